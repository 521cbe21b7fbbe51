use proptest::prelude::*;

use super::{Function, Profile, Profiled};

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

fn frames(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn the_function_that_grew_comes_first() {
    let of = |do_mmap, other| {
        let stacks = [
            (frames(&["do_syscall_64", "do_mmap"]), do_mmap),
            (frames(&["do_syscall_64", "do_mmap", "mas_walk"]), other),
            (frames(&["do_syscall_64"]), 50),
        ];
        Profile::of(10, stacks)
    };
    let all = differences(&of(1_000, 400), &of(1_620, 390));
    let rows: Vec<(&str, f64)> = all
        .iter()
        .map(|row| (&*row.function, row.difference))
        .collect();
    assert_eq!(
        rows,
        [
            ("do_mmap", 62.0),
            ("mas_walk", -1.0),
            ("do_syscall_64", 0.0)
        ]
    );
    assert_eq!((all[0].before, all[0].after), (Some(100.0), Some(162.0)));
}

#[test]
fn what_only_one_kernel_executes_is_missing_on_the_other() {
    let before = Profile::of(2, [(frames(&["find_vma"]), 10)]);
    let after = Profile::of(2, [(frames(&["mas_find"]), 30)]);
    let all = differences(&before, &after);
    assert_eq!(
        (all[0].before, all[0].after, all[0].difference),
        (None, Some(15.0), 15.0)
    );
    assert_eq!(
        (all[1].before, all[1].after, all[1].difference),
        (Some(5.0), None, -5.0)
    );
}

#[test]
fn without_operations_there_is_nothing_to_compare() {
    let some = Profile::of(2, [(frames(&["f"]), 10)]);
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
