//! Texts of perf and ftrace with changed bytes and lines: what the fuzz target asserts.

use stopgap_events::random::Random;

use crate::seed_and_rounds;

#[path = "../../../../fuzz/bodies/trace_text.rs"]
mod body;

const TEXTS: [&str; 5] = [
    include_str!("../../fixtures/text/perf.txt"),
    include_str!("../../fixtures/text/trace-cmd.txt"),
    include_str!("../../fixtures/text/trace.txt"),
    include_str!("../../fixtures/text/perf-stacks.txt"),
    include_str!("../../fixtures/text/trace-cmd-stacks.txt"),
];

/// Lines of events that no fixture has.
const RARE: &str = "\
a-7 [001] ..... 1.000001: mm_shrink_slab_start: f+0x0/0x1 00ab: nid: 1 objects to shrink 2 gfp_flags G cache items 9 delta 4 total_scan 64 priority 12
a-7 [001] ..... 1.000002: mm_shrink_slab_end: f+0x0/0x1 00ab: nid: 1 unused scan count 2 new scan count 3 total_scan 14 last shrinker return val 40
a-7 [001] ..... 1.000003: mm_vmscan_throttled: nid=0 usec_timeout=9 usect_delayed=4000 reason=X
a-7 [001] ..... 1.000004: contention_begin: 00000000deadbeef (flags=SPIN|READ)
a-7 [001] ..... 1.000005: block_rq_issue: 8,16 WS 4096 (a b) 2048 + 8 none,0,0 [kworker/0:1]
a-7 [001] ..... 1.000006: block_rq_complete: 8,16 WS () 2048 + 8 none,0,0 [-5]
a-7 [001] ..... 1.000007: dma_fence_wait_start: driver=i timeline=r a context=9 seqno=77
a-7 [001] ..... 1.000008: sys_write(fd: 3, buf: 0x7ffc \"x, y: z\", count: 0x20)
CPU:0 [LOST 12 EVENTS]
a 7/8 [000] 1.000000009:  250000 cpu-clock:ppp:
\tffffffff821facd8 clear_page+0x8 ([kernel.kallsyms])
";

/// Some lines of a text, with some bytes changed.
fn changed(random: &mut Random) -> Vec<u8> {
    let of = |random: &mut Random| match random.below(3) {
        0 => RARE,
        _ => TEXTS[random.index(TEXTS.len())],
    };
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let lines: Vec<&str> = of(random).split_inclusive('\n').collect();
        let from = random.index(lines.len());
        let count = 1 + random.index(30);
        let some = lines[from..].iter().take(count);
        some.for_each(|line| bytes.extend_from_slice(line.as_bytes()));
    }
    for _ in 0..random.below(4) {
        // Cut to one byte and that one removed: an empty text, and nothing in it to change.
        if bytes.is_empty() {
            break;
        }
        let at = random.index(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = b" =:,.[]()>-0\n\t\xff"[random.index(15)],
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at + 1),
            _ => {
                let end = (at + random.index(40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// A seed whose texts hold one that is cut to nothing before its last change.
#[test]
fn a_text_may_be_cut_to_nothing() {
    let mut random = Random::new(724_449_610);
    assert!((0..100_000).any(|_| changed(&mut random).is_empty()));
}

#[test]
fn changed_texts_are_events_or_one_error() {
    let (seed, rounds) = seed_and_rounds(1, 3_000);
    let mut random = Random::new(seed);
    for text in TEXTS {
        assert!(body::run(text.as_bytes()), "a text that is well");
    }
    assert!(body::run(RARE.as_bytes()));
    let refused = (0..rounds)
        .filter(|_| !body::run(&changed(&mut random)))
        .count() as u64;
    assert!(refused > 0 && refused < rounds, "{refused} of {rounds}");
}
