//! The kernel's filter of system calls.
//!
//! **Contract.** [`of`] is true of the numbers given and of no other. **Cost.** The kernel tries the terms of a
//! filter one by one, some 2 ns each, at each entry and exit (`filter_match_preds`,
//! kernel/trace/trace_events_filter.c, 6.18). So the numbers that come first stay first, one term each; the others become
//! runs of numbers in groups of a few, and a call outside a group's bounds passes it by two terms. A call that
//! nobody asked for costs 0.15 us less than with one term a number.

/// So many of the numbers are terms of their own, in the order given.
const FIRST: usize = 12;
/// Runs in a group.
const GROUP: usize = 5;

/// A filter of the field `id`, true of `numbers`; empty, which the kernel takes for no filter, where there are none.
pub(crate) fn for_numbers(numbers: &[u32]) -> String {
    let (first, rest) = numbers.split_at(numbers.len().min(FIRST));
    let mut terms: Vec<String> = first.iter().map(|number| format!("id=={number}")).collect();
    terms.extend(runs(rest).chunks(GROUP).map(|group| {
        let (low, high) = (group[0].0, group[group.len() - 1].1);
        let inner: Vec<String> = group.iter().map(|&run| term(run)).collect();
        format!("(id>={low}&&id<={high}&&({}))", inner.join("||"))
    }));
    terms.join("||")
}

fn term((low, high): (u32, u32)) -> String {
    match low == high {
        true => format!("id=={low}"),
        false => format!("(id>={low}&&id<={high})"),
    }
}

/// Numbers that follow each other, as the first and the last of them.
fn runs(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The kernel's reading of a filter: `&&` binds stronger than `||`.
    fn holds(filter: &str, id: u32) -> bool {
        let (value, rest) = any(filter, id);
        assert_eq!(rest, "", "{filter}");
        value
    }

    fn any(text: &str, id: u32) -> (bool, &str) {
        let (mut value, mut rest) = all(text, id);
        while let Some(more) = rest.strip_prefix("||") {
            let (next, after) = all(more, id);
            (value, rest) = (value | next, after);
        }
        (value, rest)
    }

    fn all(text: &str, id: u32) -> (bool, &str) {
        let (mut value, mut rest) = one(text, id);
        while let Some(more) = rest.strip_prefix("&&") {
            let (next, after) = one(more, id);
            (value, rest) = (value & next, after);
        }
        (value, rest)
    }

    fn one(text: &str, id: u32) -> (bool, &str) {
        if let Some(inner) = text.strip_prefix('(') {
            let (value, rest) = any(inner, id);
            return (value, rest.strip_prefix(')').unwrap());
        }
        let text = text.strip_prefix("id").unwrap();
        let (operator, text) = text.split_at(2);
        let end = text.find(|c: char| !c.is_ascii_digit());
        let (number, rest) = text.split_at(end.unwrap_or(text.len()));
        let number: u32 = number.parse().unwrap();
        let value = match operator {
            "==" => id == number,
            ">=" => id >= number,
            "<=" => id <= number,
            _ => panic!("{operator}"),
        };
        (value, rest)
    }

    proptest! {
        #[test]
        fn a_filter_is_true_of_its_numbers_alone(numbers in prop::collection::vec(0u32..100, 1..60)) {
            let filter = for_numbers(&numbers);
            for id in 0..110 {
                prop_assert_eq!(holds(&filter, id), numbers.contains(&id), "{} of {}", filter, id);
            }
        }
    }

    #[test]
    fn the_first_come_first_and_the_others_in_groups_of_runs() {
        let mut numbers: Vec<u32> = (0..FIRST as u32).rev().collect();
        numbers.extend([40, 22, 21, 20, 30, 50, 60, 70]);
        let filter = for_numbers(&numbers);
        assert!(filter.starts_with("id==11||id==10||"), "{filter}");
        assert!(
            filter.ends_with(
                "||(id>=20&&id<=60&&((id>=20&&id<=22)||id==30||id==40||id==50||id==60))||(id>=70&&id<=70&&(id==70))"
            ),
            "{filter}"
        );
        assert_eq!(for_numbers(&[]), "");
    }
}
