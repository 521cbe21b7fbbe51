use crate::functions::{PROGRAM, Profile, UNKNOWN};
use proptest::prelude::*;

use super::{BESIDE, Counted, Counts, Symbols};
use crate::testing::holds;

const MAP: &str = "\
ffffffff81000000 T do_syscall_64
ffffffff81000100 T do_mmap
ffffffff81000200 T mas_walk
ffffffff81000300 D data
";

/// do_syscall_64 calls do_mmap, in whose block the next function begins; a call stands in what is no function.
const FILE: &str = "\
stopgap.plugin/2
window 3 0
took 13 1
took 20 1
ran 2 - ffffffff81000000 5 5
ran 4 ffffffff81000005 ffffffff810001fc 2 2 1
ran 1 ffffffff81000005,ffffffff81000310 ffffffff810001fc 2 2 1 1
window 3 1
torn 1
astray 1
end 10
";

fn profile(text: &str) -> Profile {
    let symbols = Symbols::parse(MAP).unwrap();
    Counted::parse(text)
        .unwrap()
        .profile(3, 0, &symbols)
        .unwrap()
}

#[test]
fn by_function_and_caller() {
    let profile = profile(FILE);
    let stacks = profile.stacks.iter();
    let stacks: Vec<_> = stacks
        .map(|stack| (stack.frames.join(" "), stack.instructions))
        .collect();
    let expected = [
        (PROGRAM.to_owned(), 13),
        ("do_syscall_64".to_owned(), 4),
        (format!("do_syscall_64 {UNKNOWN} do_mmap"), 2),
        (format!("do_syscall_64 {UNKNOWN} mas_walk"), 2),
        ("do_syscall_64 do_mmap".to_owned(), 8),
        ("do_syscall_64 mas_walk".to_owned(), 4),
    ];
    assert_eq!(stacks, expected);
    assert_eq!((profile.operations, profile.instructions), (2, 33));
    let functions = profile.functions();
    assert_eq!(
        [
            functions["do_mmap"],
            functions["mas_walk"],
            functions[PROGRAM]
        ],
        [10, 6, 13]
    );
}

/// Windows are those that the guest counted: as many, and each as long but for what lies beside a mark.
#[test]
fn windows_are_held_against_what_the_guest_counted() {
    let counted = Counted::parse(FILE).unwrap();
    let agrees = |operation, pairs: &[(u64, u64)]| {
        let said = Counts::new(pairs.to_vec()).unwrap();
        counted.agrees(3, operation, Some(&said))
    };
    // The file has one of 13 and one of 20.
    let beside = |a: u64, b: u64| [(a + BESIDE, 1), (b + BESIDE, 1)];
    for same in [&[(13, 1), (20, 1)][..], &[(20, 2)], &beside(13, 20)] {
        assert_eq!(agrees(0, same), Ok(()), "{same:?}");
    }
    for (other, says) in [
        (&[(13, 1)][..], "saw 2 operations, the guest 1"),
        (&[(13, 1), (20, 2)], "saw 2 operations, the guest 3"),
        (
            &[(13, 1), (21 + BESIDE, 1)],
            "of 53 guest instructions by the guest's counter is one of 20 by the plugin's; its CPU",
        ),
        (&beside(14, 20), "one of 13 by the plugin's"),
    ] {
        let why = agrees(0, other).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    let torn = agrees(1, &[]).unwrap_err();
    holds(
        &torn,
        &["1 operations that the plugin saw begin did not end"],
    );
    assert_eq!(counted.agrees(4, 0, None), Ok(()));
    assert!(
        counted
            .agrees(3, 0, None)
            .unwrap_err()
            .contains("the guest 0")
    );
    // Longer windows than the guest's counts have no other explanation.
    let long = Counted::parse(&FILE.replace("took 20 1", "took 99 1")).unwrap();
    let said: Counts = "13x1 20x1".parse().unwrap();
    let why = long.agrees(3, 0, Some(&said)).unwrap_err();
    assert!(
        why.ends_with("is one of 99 by the plugin's: the tool is at fault"),
        "{why}"
    );
}

#[test]
fn windows_that_did_not_end_have_no_profile() {
    let counted = Counted::parse(FILE).unwrap();
    assert_eq!((counted.astray, counted.windows[&(3, 1)].torn), (1, 1));
    assert_eq!(counted.windows[&(3, 0)].counts.pairs(), [(13, 1), (20, 1)]);
    let symbols = Symbols::parse(MAP).unwrap();
    assert_eq!(counted.profile(3, 1, &symbols).unwrap(), Profile::default());
    assert_eq!(counted.profile(4, 0, &symbols), None);
}

/// Each with the line that is wrong.
#[test]
fn a_file_that_is_cut_or_contradicts_itself_is_refused() {
    assert!(Counted::parse("").unwrap_err().contains("cut"));
    assert!(
        Counted::parse("ELF")
            .unwrap_err()
            .starts_with("not the plugin's counts")
    );
    const RAN: &str = "ran 2 - ffffffff81000000 5 5";
    for cut in 1..FILE.len() - 1 {
        // But for the line break at the end, and digits of the last number.
        assert!(Counted::parse(&FILE[..cut]).is_err(), "{cut}");
    }
    for (line, instead, why) in [
        ("took 13 1", "took 13 0", "came 0 times"),
        ("took 13 1", "took 21 1", "20 after 21"),
        (
            "took 13 1",
            "took 13 18446744073709551615",
            "more than 64 bits",
        ),
        (
            "took 13 1",
            "took 13 9223372036854775807",
            "more than 64 bits",
        ),
        ("took 13 1", "took -13 1", "not understood"),
        ("took 20 1", "took 20", "not understood"),
        (
            "took 20 1",
            "",
            "of the 13 instructions of the window before 20 are the kernel's",
        ),
        (RAN, "ran 2 - ffffffff81000000", "not understood"),
        (RAN, "ran 2 - ffffffff81000000 5 -5", "not understood"),
        (
            RAN,
            "ran 2 - ffffffff81000000 5 256",
            "a number that is too large",
        ),
        (RAN, "ran 2 x ffffffff81000000 5 5", "not understood"),
        (RAN, "ran 2 - x 5 5", "not understood"),
        (RAN, "ran 2 - fffffffff81000000 5 5", "not understood"),
        (
            RAN,
            "ran 18446744073709551615 - ffffffff81000000 5 5",
            "numbers that are too large",
        ),
        (
            RAN,
            "ran 18446744073709551616 - ffffffff81000000 5 5",
            "a number that is too large",
        ),
        ("window 3 1", "window 3 0", "came twice"),
        ("window 3 1", "window 3 256", "too large"),
        ("astray 1", "wild 1", "not understood"),
        ("end 10", "end 9", "not so many lines"),
        ("end 10", "end 10\nend 11", "after the end"),
    ] {
        let instead = if instead.is_empty() {
            String::new()
        } else {
            format!("{instead}\n")
        };
        let text = FILE.replacen(&format!("{line}\n"), &instead, 1);
        assert_ne!(text, FILE, "{line}");
        let error = Counted::parse(&text).unwrap_err();
        assert!(error.contains(why), "{line} -> {instead}: {error}");
    }
}

proptest! {
    /// Whatever ran, functions come to the windows' instructions, to the last one.
    #[test]
    fn functions_come_to_the_counted_total(
        blocks in prop::collection::vec((0u64..0x400, prop::collection::vec(1u8..=15, 1..8)), 1..12),
        ran in prop::collection::vec((0u64..4, 0usize..12, 1usize..8, 1u64..1_000), 0..30),
        program in 0u64..1_000_000,
        windows in 1u64..100,
    ) {
        let mut lines = vec!["stopgap.plugin/2".to_owned(), "window 3 0".to_owned()];
        let mut kernel = 0;
        let mut executed = Vec::new();
        for (callers, block, take, times) in ran {
            let (start, sizes) = &blocks[block % blocks.len()];
            let sizes = &sizes[..take.min(sizes.len())];
            kernel += sizes.len() as u64 * times;
            let sites: Vec<String> = (1..=callers).map(|n| format!("{:x}", 0xffff_ffff_8100_0000u64 + 0xf0 * n)).collect();
            let sites = if sites.is_empty() { "-".to_owned() } else { sites.join(",") };
            let sizes: String = sizes.iter().map(|size| format!(" {size}")).collect();
            executed.push(format!("ran {times} {sites} {:x}{sizes}", 0xffff_ffff_80ff_ff80u64 + start));
        }
        let first = kernel + program;
        lines.push(format!("took {first} 1"));
        if windows > 1 {
            lines.push(format!("took {} {}", first + 1, windows - 1));
        }
        lines.extend(executed);
        lines.push(format!("end {}\n", lines.len()));
        let profile = profile(&lines.join("\n"));
        let all = first + (windows - 1) * (first + 1);
        prop_assert_eq!((profile.operations, profile.instructions), (windows, all));
        let functions = profile.functions();
        prop_assert_eq!(functions.values().sum::<u64>(), all);
        prop_assert_eq!(functions.get(PROGRAM).copied().unwrap_or(0), all - kernel);
    }
}
