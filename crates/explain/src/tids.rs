//! A map by thread number. With a general map, finding the threads of an event would be most of its cost.

use std::collections::HashMap;
use std::ops::Index;

use crate::chain::Quick;

/// Threads per page.
const PAGE: u32 = 256;
/// Numbers of at least this have no page. The kernel never gives them (`PID_MAX_LIMIT`, include/linux/threads.h), but
/// a wrong trace may.
const LIMIT: u32 = 1 << 22;

/// A map by thread number.
#[derive(Debug)]
pub(crate) struct Tids<T> {
    /// Values, in no order.
    of: Vec<Option<T>>,
    free: Vec<u32>,
    /// Index into `of` by thread.
    places: HashMap<u32, u32, Quick>,
    /// The same index plus one, by page; 0 where there is no value.
    pages: Vec<Option<Box<[u32; PAGE as usize]>>>,
}

impl<T> Default for Tids<T> {
    fn default() -> Tids<T> {
        Tids {
            of: Vec::new(),
            free: Vec::new(),
            places: HashMap::default(),
            pages: Vec::new(),
        }
    }
}

impl<T> Tids<T> {
    #[inline]
    fn place(&self, tid: u32) -> Option<usize> {
        match self.pages.get((tid / PAGE) as usize) {
            Some(page) => {
                let place = page.as_ref()?[(tid % PAGE) as usize];
                Some(place.checked_sub(1)? as usize)
            }
            None if tid < LIMIT => None,
            None => self.places.get(&tid).map(|&place| place as usize),
        }
    }

    #[inline]
    pub(crate) fn get(&self, tid: &u32) -> Option<&T> {
        self.of.get(self.place(*tid)?)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tid: &u32) -> Option<&mut T> {
        let place = self.place(*tid)?;
        self.of.get_mut(place)?.as_mut()
    }

    #[inline]
    pub(crate) fn contains_key(&self, tid: &u32) -> bool {
        self.place(*tid).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the threads in no particular order. Equal maps return them in the same order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &u32> {
        self.places.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.of.iter().flatten()
    }

    pub(crate) fn insert(&mut self, tid: u32, of: T) -> Option<T> {
        if let Some(known) = self.get_mut(&tid) {
            return Some(std::mem::replace(known, of));
        }
        self.add(tid, of);
        None
    }

    #[inline]
    pub(crate) fn or_insert_with(&mut self, tid: u32, make: impl FnOnce() -> T) -> &mut T {
        let place = match self.place(tid) {
            Some(place) => place,
            None => self.add(tid, make()),
        };
        self.of[place]
            .get_or_insert_with(|| unreachable!("a thread has its place while it is known"))
    }

    /// Adds a thread that is not in the map, and returns its index.
    #[cold]
    fn add(&mut self, tid: u32, of: T) -> usize {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => {
                self.of.push(None);
                self.of.len() - 1
            }
        };
        self.of[place] = Some(of);
        self.places.insert(tid, place as u32); // fewer than threads have numbers
        if tid < LIMIT {
            let page = (tid / PAGE) as usize;
            if page >= self.pages.len() {
                self.pages.resize_with(page + 1, || None);
            }
            let page = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE as usize]));
            page[(tid % PAGE) as usize] = place as u32 + 1;
        }
        place
    }

    pub(crate) fn remove(&mut self, tid: &u32) -> Option<T> {
        let place = self.places.remove(tid)?;
        if let Some(Some(page)) = self.pages.get_mut((tid / PAGE) as usize) {
            page[(tid % PAGE) as usize] = 0;
        }
        self.free.push(place);
        self.of.get_mut(place as usize)?.take()
    }
}

impl<T> Index<&u32> for Tids<T> {
    type Output = T;

    fn index(&self, tid: &u32) -> &T {
        self.get(tid).expect("the thread is known")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Behaves like a map, also for numbers that no kernel gives.
        #[test]
        fn is_a_map(steps in prop::collection::vec((0..4_u8, prop::sample::select(vec![
            0, 1, 255, 256, 70_000, LIMIT - 1, LIMIT, u32::MAX,
        ])), 0..200)) {
            let (mut tids, mut map) = (Tids::default(), BTreeMap::new());
            for (at, (step, tid)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(tids.insert(tid, at), map.insert(tid, at)),
                    1 => prop_assert_eq!(tids.remove(&tid), map.remove(&tid)),
                    2 => prop_assert_eq!(tids.or_insert_with(tid, || at), map.entry(tid).or_insert(at)),
                    _ => prop_assert_eq!(tids.get_mut(&tid), map.get_mut(&tid)),
                }
                prop_assert_eq!(tids.get(&tid), map.get(&tid));
                prop_assert_eq!(tids.contains_key(&tid), map.contains_key(&tid));
                prop_assert_eq!(tids.len(), map.len());
                let mut keys: Vec<u32> = tids.keys().copied().collect();
                keys.sort_unstable();
                prop_assert!(keys.iter().eq(map.keys()));
                let mut values: Vec<usize> = tids.values().copied().collect();
                values.sort_unstable();
                let mut wanted: Vec<usize> = map.values().copied().collect();
                wanted.sort_unstable();
                prop_assert_eq!(values, wanted);
            }
        }
    }
}
