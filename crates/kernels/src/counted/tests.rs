use crate::functions::{PROGRAM, Profile, UNKNOWN};
use proptest::prelude::*;

use super::{BESIDE, Counted, Counts, Symbols};

const MAP: &str = "\
ffffffff81000000 T do_syscall_64
ffffffff81000100 T do_mmap
ffffffff81000200 T mas_walk
ffffffff81000300 D data
";

/// do_syscall_64 calls do_mmap, in whose block the next function begins; a call stands in what is no function.
const FILE: &str = "\
stopgap.plugin/1
chain 1 0 ffffffff81000005
chain 2 1 ffffffff81000310
block 1 ffffffff81000000 5 5
block 3 ffffffff810001fc 2 2 1 1
window 3 0
took 13 1
took 20 1
ran 0 1 2 2
ran 1 3 3 4
ran 2 3 4 1
window 3 1
torn 1
astray 1
end 14
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
    let stacks: Vec<(String, u64)> = profile
        .stacks
        .iter()
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
        (
            functions["do_mmap"],
            functions["mas_walk"],
            functions[PROGRAM]
        ),
        (10, 6, 13)
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
    for same in [
        &[(13, 1), (20, 1)][..],
        &[(20, 2)],
        &[(13 + BESIDE, 1), (20 + BESIDE, 1)],
    ] {
        assert_eq!(agrees(0, same), Ok(()), "{same:?}");
    }
    for (other, says) in [
        (&[(13, 1)][..], "saw 2 operations, the guest 1"),
        (&[(13, 1), (20, 2)], "saw 2 operations, the guest 3"),
        (
            &[(13, 1), (21 + BESIDE, 1)],
            "of 53 guest instructions by the guest's counter is one of 20 by the plugin's; its CPU",
        ),
        (
            &[(14 + BESIDE, 1), (20 + BESIDE, 1)],
            "one of 13 by the plugin's",
        ),
    ] {
        let why = agrees(0, other).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    assert!(
        agrees(1, &[])
            .unwrap_err()
            .contains("1 operations that the plugin saw begin did not end")
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
    for cut in 1..FILE.len() - 1 {
        // But for the line break at the end, and digits of the last number.
        assert!(Counted::parse(&FILE[..cut]).is_err(), "{cut}");
    }
    for (line, instead, why) in [
        (
            "chain 2 1 ffffffff81000310",
            "chain 2 5 ffffffff81000310",
            "a chain of nothing",
        ),
        (
            "chain 2 1 ffffffff81000310",
            "chain 2 2 ffffffff81000310",
            "a chain of nothing",
        ),
        (
            "chain 2 1 ffffffff81000310",
            "chain 1 0 ffffffff81000310",
            "a chain of nothing",
        ),
        (
            "chain 1 0 ffffffff81000005",
            "chain 1 0 x",
            "not understood",
        ),
        (
            "block 3 ffffffff810001fc 2 2 1 1",
            "block 3 ffffffff810001fc",
            "not understood",
        ),
        (
            "block 3 ffffffff810001fc 2 2 1 1",
            "block 1 ffffffff810001fc 2",
            "a block twice",
        ),
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
        (
            "ran 1 3 3 4",
            "ran 1 3 5 4",
            "more instructions than the block has",
        ),
        ("ran 1 3 3 4", "ran 1 4 3 4", "an unknown block"),
        ("ran 1 3 3 4", "ran 9 3 3 4", "an unknown chain"),
        ("ran 1 3 3 4", "ran 1 3 70000 4", "not understood"),
        ("ran 1 3 3 4", "ran 1 3 3 18446744073709551615", "too large"),
        ("window 3 1", "window 3 0", "came twice"),
        ("window 3 1", "window 3 256", "too large"),
        ("astray 1", "wild 1", "not understood"),
        ("end 14", "end 13", "not so many lines"),
        ("end 14", "end 14\nend 15", "after the end"),
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
        ran in prop::collection::vec((0u32..4, 0usize..12, 1usize..8, 1u64..1_000), 0..30),
        program in 0u64..1_000_000,
        windows in 1u64..100,
    ) {
        let mut lines = vec!["stopgap.plugin/1".to_owned()];
        for chain in 1..4 {
            lines.push(format!("chain {chain} {} {:x}", chain - 1, 0xffff_ffff_8100_0000u64 + 0xf0 * chain));
        }
        for (number, (start, sizes)) in blocks.iter().enumerate() {
            let sizes: String = sizes.iter().map(|size| format!(" {size}")).collect();
            lines.push(format!("block {number} {:x}{sizes}", 0xffff_ffff_80ff_ff80u64 + start));
        }
        let ran: Vec<_> = ran
            .into_iter()
            .map(|(chain, block, executed, times)| {
                let block = block % blocks.len();
                (chain, block, executed.min(blocks[block].1.len()), times)
            })
            .collect();
        let kernel: u64 = ran.iter().map(|(_, _, executed, times)| *executed as u64 * times).sum();
        lines.push("window 3 0".to_owned());
        let first = kernel + program;
        lines.push(format!("took {first} 1"));
        if windows > 1 {
            lines.push(format!("took {} {}", first + 1, windows - 1));
        }
        for (chain, block, executed, times) in &ran {
            lines.push(format!("ran {chain} {block} {executed} {times}"));
        }
        lines.push(format!("end {}\n", lines.len()));
        let profile = profile(&lines.join("\n"));
        let all = first + (windows - 1) * (first + 1);
        prop_assert_eq!((profile.operations, profile.instructions), (windows, all));
        let functions = profile.functions();
        prop_assert_eq!(functions.values().sum::<u64>(), all);
        prop_assert_eq!(functions.get(PROGRAM).copied().unwrap_or(0), all - kernel);
    }
}
