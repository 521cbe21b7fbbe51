//! Calls in, memory events out. Pages have 4096 bytes; in the diagrams a letter is a page of a
//! mapping and its position the address in pages.

use super::*;
use crate::{Check, Place, tests};
use stopgap_events::random::Random;

const PAGE: u64 = 4_096;
const ANONYMOUS: u64 = 0x22;
const FIXED: u64 = 0x10;

fn row(tid: u32, kind: Kind) -> Event {
    tests::row(800, tid, kind)
}

fn enter(tid: u32, name: &str, arguments: &[u64]) -> Event {
    row(tid, tests::enter(name, arguments))
}

fn exit(tid: u32, name: &str, result: i64) -> Event {
    row(tid, tests::leave(name, result))
}

/// Where a policy would be after these events, as letters by name: what is live, its pages, in the
/// order of names.
struct Run {
    recorded: Recorded,
    events: VecDeque<MemoryEvent>,
}

impl Run {
    fn new() -> Run {
        Run {
            recorded: Recorded::new(Some(800), PAGE),
            events: VecDeque::new(),
        }
    }

    fn see(&mut self, event: &Event) {
        self.recorded.event(event, &mut self.events);
    }

    fn call(&mut self, name: &str, arguments: &[u64], result: u64) {
        self.see(&enter(1, name, arguments));
        self.see(&exit(1, name, result.cast_signed()));
    }

    fn mmap(&mut self, page: u64, pages: u64, flags: u64) {
        let start = page * PAGE;
        let asked = if flags & FIXED == 0 { 0 } else { start };
        self.call("mmap", &[asked, pages * PAGE, 3, flags], start);
    }

    /// `+id:pages` a map, `-id` an unmap, `~id:pages` a protection, `|` a phase.
    fn said(&mut self) -> String {
        let pages = |length: Bytes| length.0.div_ceil(PAGE);
        let words = self.events.drain(..).map(|event| match event {
            MemoryEvent::Map {
                id,
                length,
                placing,
                ..
            } => match placing.hint {
                Some(hint) => format!("+{}:{}@{}", id.0, pages(length), hint / PAGE),
                None => format!("+{}:{}", id.0, pages(length)),
            },
            MemoryEvent::Unmap { id } => format!("-{}", id.0),
            MemoryEvent::Protect { id, length, .. } => format!("~{}:{}", id.0, pages(length)),
            MemoryEvent::Touch { .. } => unreachable!("nothing is touched"),
            MemoryEvent::Begin(phase) => phase.word().to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn missing(&self) -> Vec<String> {
        let all = self.recorded.missing();
        all.into_iter().map(|missing| missing.what).collect()
    }
}

#[test]
fn maps_and_unmaps_of_all_threads_are_one_process() {
    let mut run = Run::new();
    // Thread 2 enters before and leaves after thread 1 was in and out.
    run.see(&enter(2, "mmap", &[0, 5_000, 3, ANONYMOUS]));
    run.mmap(10, 4, ANONYMOUS);
    run.see(&exit(2, "mmap", 20 * 4_096));
    run.call("munmap", &[10 * PAGE, 4 * PAGE], 0);
    assert_eq!(run.said(), "+0:4 +1:2 -0");
    let mut other = enter(1, "mmap", &[0, 4_096, 3, ANONYMOUS]);
    other.pid = Some(801);
    run.see(&other);
    run.mmap(10, 1, ANONYMOUS);
    assert_eq!(run.said(), "+0:1", "a name that is free is used again");
    assert_eq!(run.missing(), ["what was mapped before"]);
}

#[test]
fn what_fails_changes_nothing() {
    let mut run = Run::new();
    run.call("mmap", &[0, PAGE, 3, ANONYMOUS], (-12_i64).cast_unsigned());
    run.see(&exit(3, "mmap", 4_096)); // its begin is not in the trace
    assert_eq!(run.said(), "");
    assert_eq!(
        run.missing()[0],
        "1 calls without their begin, arguments or result"
    );
}

/// ```text
/// 0123456789
///   AAAAAA      a map
///   A.AAAA      page 3 goes
///   A.AA..      pages 6 to 9 go, of which two are mapped
/// ```
#[test]
fn a_part_that_goes_leaves_the_rest() {
    let mut run = Run::new();
    run.mmap(2, 6, ANONYMOUS);
    run.call("munmap", &[3 * PAGE, PAGE], 0);
    assert_eq!(run.said(), "+0:6 -0 +0:1 +1:4");
    run.call("munmap", &[6 * PAGE, 4 * PAGE], 0);
    assert_eq!(run.said(), "-1 +1:2");
    run.call("munmap", &[0, 100 * PAGE], 0);
    assert_eq!(run.said(), "-0 -1");
    assert_eq!(run.missing()[0], "2 mappings of which a part was unmapped");
}

/// A loader maps a library whole, then its parts over it.
///
/// ```text
/// 0123456789
/// LLLLLL        the library
/// LLDDLL        its data, MAP_FIXED
///     XXXX      half over it, half beside
/// ```
#[test]
fn what_is_put_over_mappings_takes_no_place() {
    let mut run = Run::new();
    run.mmap(0, 6, 2);
    run.mmap(2, 2, 2 | FIXED);
    assert_eq!(run.said(), "+0:6");
    run.mmap(4, 4, ANONYMOUS | FIXED);
    assert_eq!(run.said(), "-0 +0:4 +1:4@4");
    assert_eq!(
        run.missing()[..2],
        [
            "1 mappings of which a part was unmapped",
            "1 mappings put over what is mapped (MAP_FIXED)"
        ]
    );
}

#[test]
fn mremap_moves_grows_and_shrinks() {
    let mut run = Run::new();
    run.mmap(10, 2, ANONYMOUS);
    run.call("mremap", &[10 * PAGE, 2 * PAGE, 8 * PAGE, 1], 40 * PAGE);
    assert_eq!(
        run.said(),
        "+0:2 +1:8 -0",
        "it finds its place while the old is taken"
    );
    run.call("mremap", &[40 * PAGE, 8 * PAGE, 9 * PAGE, 1], 40 * PAGE);
    assert_eq!(run.said(), "-1 +1:9");
    run.call("mremap", &[40 * PAGE, 9 * PAGE, 3 * PAGE, 1], 40 * PAGE);
    assert_eq!(run.said(), "-1 +1:3");
    run.call("mremap", &[70 * PAGE, PAGE, 2 * PAGE, 1], 80 * PAGE);
    assert_eq!(
        run.said(),
        "+0:2",
        "of what was not in the trace, the new place is known"
    );
    assert_eq!(
        run.missing()[..2],
        [
            "2 mappings that mremap resized in place",
            "1 unmaps, moves or protections of what the trace did not map"
        ]
    );
}

#[test]
fn the_heap_grows_where_it_is() {
    let mut run = Run::new();
    run.call("brk", &[0], 50 * PAGE);
    run.call("brk", &[53 * PAGE - 7], 53 * PAGE - 7);
    run.call("brk", &[90 * PAGE], 53 * PAGE - 7); // refused: where it was
    run.call("brk", &[51 * PAGE], 51 * PAGE);
    assert_eq!(run.said(), "+0:3@50 -0 +0:1");
}

#[test]
fn protections_from_the_start_of_a_mapping() {
    let mut run = Run::new();
    run.mmap(0, 4, ANONYMOUS);
    run.mmap(4, 4, ANONYMOUS);
    run.call("mprotect", &[0, 6 * PAGE, 0], 0);
    run.call("mprotect", &[PAGE, PAGE, 0], 0);
    run.call("mprotect", &[90 * PAGE, PAGE, 0], 0);
    assert_eq!(run.said(), "+0:4 +1:4 ~0:4 ~1:2");
    assert_eq!(
        run.missing()[0],
        "1 protections that begin inside of a mapping"
    );
}

#[test]
fn what_was_mapped_before_is_the_layout() {
    let mut run = Run::new();
    let before = |page: u64, pages: u64| {
        let map = MemoryEvent::Map {
            id: MapId(7),
            length: Bytes(pages * PAGE),
            protection: Protection::Read,
            merge: Merge::Never,
            placing: Placing::ANYWHERE,
        };
        let range = AddressRange::new(page * PAGE, Bytes(pages * PAGE));
        row(1, Kind::Memory { event: map, range })
    };
    run.see(&before(5, 2));
    run.see(&before(9, 1));
    run.call("munmap", &[5 * PAGE, 2 * PAGE], 0);
    assert_eq!(run.said(), "layout +0:2@5 +1:1@9 steady -0");
    run.see(&before(20, 1)); // another look at the maps, which the calls have told already
    assert_eq!(run.said(), "");
    run.see(&row(
        1,
        Kind::Exec {
            filename: None,
            old_tid: None,
        },
    ));
    assert_eq!(run.said(), "-1");
    assert_eq!(run.missing(), ["what exec mapped"]);
}

/// A child has its parent's mappings and heap, at their addresses.
#[test]
fn a_child_begins_with_what_its_parent_had() {
    for exec in [false, true] {
        let mut run = Run::new();
        let parent = |mut event: Event| {
            event.pid = Some(799);
            event
        };
        let of_parent = [
            row(
                9,
                Kind::Counter {
                    name: HEAP_END.into(),
                    value: (70 * PAGE).cast_signed(),
                },
            ),
            enter(9, "mmap", &[0, 3 * PAGE, 3, ANONYMOUS]),
            exit(9, "mmap", 4_096 * 30),
            row(
                9,
                Kind::Fork {
                    target_tid: 800,
                    target_pid: Some(800),
                    target_comm: None,
                },
            ),
            enter(9, "munmap", &[30 * PAGE, 3 * PAGE]),
            exit(9, "munmap", 0),
        ];
        for event in of_parent {
            run.see(&parent(event));
        }
        if exec {
            run.see(&row(
                1,
                Kind::Exec {
                    filename: None,
                    old_tid: None,
                },
            ));
        }
        run.call("brk", &[71 * PAGE], 71 * PAGE);
        let expected = ["layout +0:3@30 steady +1:1@70", ""];
        assert_eq!(run.said(), expected[usize::from(exec)]);
        assert_eq!(run.missing().is_empty(), !exec);
    }
}

/// Whatever the calls say, what comes out makes sense; and what is live is what the calls left
/// mapped, page by page.
#[test]
fn any_calls_make_sense() {
    let mut random = Random::new(11);
    for _ in 0..300 {
        let mut run = Run::new();
        let mut pages = [false; 64];
        let mut check = Check::new();
        let mut live: HashMap<u32, u64> = HashMap::new();
        for _ in 0..60 {
            let (page, count) = (random.below(56), 1 + random.below(8));
            let range = usize::try_from(page).unwrap()..usize::try_from(page + count).unwrap();
            let (start, length) = (page * PAGE, count * PAGE);
            match random.below(4) {
                0 => {
                    run.call("mmap", &[start, length, 3, ANONYMOUS | FIXED], start);
                    pages[range].fill(true);
                }
                1 => {
                    run.call("munmap", &[start, length], 0);
                    pages[range].fill(false);
                }
                2 => run.call("mprotect", &[start, length, 1], 0),
                _ => {
                    run.mmap(page, count, ANONYMOUS);
                    pages[range].fill(true);
                }
            }
            for event in run.events.drain(..) {
                check.event(Place::File, &event).unwrap();
                match event {
                    MemoryEvent::Map { id, length, .. } => {
                        live.insert(id.0, length.0.div_ceil(PAGE));
                    }
                    MemoryEvent::Unmap { id } => drop(live.remove(&id.0)),
                    MemoryEvent::Protect { id, length, .. } => {
                        assert!(length.0 <= live[&id.0] * PAGE);
                    }
                    _ => {}
                }
            }
            let mapped = pages.iter().filter(|&&mapped| mapped).count() as u64;
            assert_eq!(live.values().sum::<u64>(), mapped);
        }
    }
    let mut run = Run::new();
    for value in [0, 1, PAGE - 1, u64::MAX - 1, u64::MAX] {
        for name in ["mmap", "munmap", "mremap", "mprotect", "brk"] {
            run.call(name, &[value; 6], value);
            run.call(name, &[value; 6], PAGE);
        }
    }
}
