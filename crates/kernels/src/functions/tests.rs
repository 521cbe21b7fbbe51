use proptest::prelude::*;

use super::{Function, Profile, Profiled};
use crate::testing;

/// Compares profiles of two kernels.
fn differences(before: &Profile, after: &Profile) -> Vec<Function> {
    let of = |kernel, profile: &Profile| Profiled {
        kernel,
        cell: "fork".to_owned(),
        operation: "wait".to_owned(),
        profile: profile.clone(),
    };
    super::differences(&of(0, before), &of(1, after))
}

#[test]
fn the_function_that_grew_comes_first() {
    let of = |do_mmap, other| {
        let stacks = [
            ("entry do_mmap", do_mmap),
            ("entry do_mmap mas_walk", other),
            ("entry", 50),
        ];
        testing::profile(10, &stacks)
    };
    let all = differences(&of(1_000, 400), &of(1_620, 390));
    let rows = all.iter().map(|row| (&*row.function, row.difference));
    let expected = [("do_mmap", 62.0), ("mas_walk", -1.0), ("entry", 0.0)];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert_eq!((all[0].before, all[0].after), (Some(100.0), Some(162.0)));
}

#[test]
fn what_only_one_kernel_executes_is_missing_on_the_other() {
    let [before, after] =
        [("find_vma", 10), ("mas_find", 30)].map(|one| testing::profile(2, &[one]));
    let all = differences(&before, &after);
    let rows = all
        .iter()
        .map(|row| (row.before, row.after, row.difference));
    let expected = [(None, Some(15.0), 15.0), (Some(5.0), None, -5.0)];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn without_operations_there_is_nothing_to_compare() {
    let some = testing::profile(2, &[("f", 10)]);
    assert!(differences(&Profile::default(), &some).is_empty());
    assert_eq!(Profile::default().each(), None);
}

fn profile() -> impl Strategy<Value = Profile> {
    let stack = (prop::collection::vec("[a-e]", 0..4), 0u64..1_000_000);
    (1u64..1_000, prop::collection::vec(stack, 0..20))
        .prop_map(|(operations, stacks)| Profile::of(operations, stacks))
}

proptest! {
    #[test]
    fn functions_and_stacks_come_to_all_instructions(profile in profile()) {
        let stacks: u64 = profile.stacks.iter().map(|stack| stack.instructions).sum();
        let functions: u64 = profile.functions().values().sum();
        prop_assert_eq!((stacks, functions), (profile.instructions, profile.instructions));
    }

    #[test]
    fn differences_come_to_the_difference(before in profile(), after in profile()) {
        let all = differences(&before, &after);
        let sum: f64 = all.iter().map(|row| row.difference).sum();
        let expected = after.each().unwrap() - before.each().unwrap();
        prop_assert!((sum - expected).abs() <= 1e-9 * (1.0 + before.each().unwrap() + after.each().unwrap()));
        for pair in all.windows(2) {
            prop_assert!(pair[0].difference.abs() >= pair[1].difference.abs());
        }
    }
}
