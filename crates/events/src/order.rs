//! Sorts rows, and fills maps, with one sort for all types of rows.
//!
//! The standard library's `sort_by` is compiled again for every type of row and every rule: 5 KB each, where a hundred tables are sorted by
//! as many rules. These methods sort the rows' numbers by one copy of it, and then move the rows. They cost a call through a pointer for each
//! comparison and 16 bytes a row: too much for millions of events, nothing for what is printed.

use std::cmp::Ordering;

/// Sorts rows by a rule, stably.
pub trait SortRows<T> {
    /// Sorts by `compare`. Rows that are equal keep their order. Takes O(n log n) comparisons and O(n) swaps.
    fn sort_rows(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by `key`, which is called for every comparison.
    fn sort_rows_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortRows<T> for [T] {
    fn sort_rows(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let places = places(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        arrange(places, &mut |a, b| self.swap(a, b));
    }

    fn sort_rows_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_rows(|a, b| key(a).cmp(&key(b)));
    }
}

/// Fills a map or a set.
pub trait Inserted: Iterator + Sized {
    /// Inserts each item into an empty map or set; of equal keys the last one counts. `collect` sorts before it fills a `BTreeMap` or a
    /// `BTreeSet`, by a copy of the sort for each type of key and value.
    fn inserted<C: Default + Extend<Self::Item>>(self) -> C {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

impl<I: Iterator> Inserted for I {}

/// Says of each row which place it gets.
#[inline(never)]
fn places(rows: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|&a, &b| compare(a, b));
    let mut places = vec![0; rows];
    for (place, row) in order.into_iter().enumerate() {
        places[row] = place;
    }
    places
}

/// Moves each row to its place. Each swap brings one row there, so there are fewer swaps than rows.
#[inline(never)]
fn arrange(mut places: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for row in 0..places.len() {
        while places[row] != row {
            let place = places[row];
            swap(row, place);
            places.swap(row, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_last_of_equal_keys_counts() {
        let pairs = [(2, 'a'), (1, 'b'), (2, 'c')];
        let map: std::collections::BTreeMap<u8, char> = pairs.into_iter().inserted();
        assert_eq!(Vec::from_iter(map), [(1, 'b'), (2, 'c')]);
    }

    #[test]
    fn as_the_standard_library_sorts() {
        let mut random = Random::new(1);
        for rows in (0..40).chain([100, 1000]) {
            let all: Vec<(u64, usize)> = (0..rows).map(|n| (random.below(7), n)).collect();
            let (mut ours, mut theirs) = (all.clone(), all.clone());
            ours.sort_rows(|a, b| b.0.cmp(&a.0));
            theirs.sort_by_key(|row| std::cmp::Reverse(row.0));
            assert_eq!(ours, theirs, "stable, of {all:?}");
            ours.sort_rows_by_key(|row| row.0);
            theirs.sort_by_key(|row| row.0);
            assert_eq!(ours, theirs, "by key, of {all:?}");
        }
    }

    #[test]
    fn keys_may_be_borrowed_from_outside_and_rows_need_no_clone() {
        let ranks = ["b", "a"];
        let mut rows = vec![String::from("a"), String::from("b"), String::from("c")];
        rows.sort_rows_by_key(|row| {
            ranks
                .iter()
                .position(|rank| rank == row)
                .unwrap_or(ranks.len())
        });
        assert_eq!(rows, ["b", "a", "c"]);
    }
}
