use proptest::prelude::*;

use super::{Function, Profile, Profiled};
use crate::testing;

/// Compares profiles of two kernels.
fn differences(before: &Profile, after: &Profile) -> Vec<Function> {
    by_layouts(&[before], &[after])
}

/// Compares profiles of two kernels, each under some layouts.
fn by_layouts(before: &[&Profile], after: &[&Profile]) -> Vec<Function> {
    let of = |kernel, profiles: &[&Profile]| -> Vec<Profiled> {
        let of = |profile: &&Profile| Profiled {
            kernel,
            cell: "fork".to_owned(),
            operation: "wait".to_owned(),
            profile: (*profile).clone(),
        };
        profiles.iter().map(of).collect()
    };
    let (before, after) = (of(0, before), of(1, after));
    let each: [Vec<&Profiled>; 2] = [&before, &after].map(|all| all.iter().collect());
    super::differences(&each[0], &each[1])
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
fn what_layouts_and_interrupts_change_does_not_lead() {
    let of = |do_mmap, walk, tick| {
        let stacks = [
            ("entry do_mmap", do_mmap),
            ("entry do_mmap clear_page", walk),
            ("entry asm_sysvec_apic_timer_interrupt tick", tick),
        ];
        testing::profile(10, &stacks)
    };
    let before = [of(1_000, 4_000, 0), of(1_000, 6_000, 500)];
    let after = [of(1_620, 6_500, 9_000), of(1_620, 4_500, 0)];
    let all = by_layouts(&[&before[0], &before[1]], &[&after[0], &after[1]]);
    let rows = all.iter().map(|row| (&*row.function, row.difference));
    let expected = [("do_mmap", 62.0), ("clear_page", 250.0), ("tick", 900.0)];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let [mapped, cleared, tick] = &all[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(
        (mapped.between_layouts, mapped.stands_out()),
        (Some(0.0), 62.0)
    );
    assert_eq!(
        (cleared.between_layouts, cleared.stands_out()),
        (Some(200.0), 50.0)
    );
    assert_eq!((tick.elsewhere, tick.stands_out()), (900.0, 0.0));
    // Of one layout it is not known, and the largest difference leads.
    let alone = by_layouts(&[&before[0]], &[&after[0]]);
    assert_eq!(
        (&*alone[0].function, alone[0].between_layouts),
        ("clear_page", None)
    );
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
