//! Random calls, beside a list that is obviously right; what is in each buffer is looked at.

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Alloc {
        pages: usize,
        shift: u32,
        zero: bool,
    },
    Free(usize),
    FreeWrongly(usize),
    Map {
        pages: usize,
        offset: usize,
    },
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pages = prop_oneof![8 => 1..5_usize, 4 => 1..70_usize, 1 => 70..600_usize];
    let step = prop_oneof![
        10 => (pages, prop_oneof![9 => Just(0), 1 => 12..31_u32], any::<bool>())
            .prop_map(|(pages, shift, zero)| Step::Alloc { pages, shift, zero }),
        8 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::FreeWrongly),
        2 => (1..4_usize, 0..10_usize).prop_map(|(pages, offset)| Step::Map { pages, offset }),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..400)
}

/// What was given out: where, its pages, and the word that is written through it; `None`: a mapping, from a page of a
/// file.
struct Held {
    at: NonNull<u8>,
    pages: usize,
    tag: Option<u64>,
    from: usize,
}

impl Held {
    fn check(&self) {
        for number in 0..self.pages {
            let here = bytes(address(self.at.addr().get() + number * page()), page());
            match self.tag {
                Some(tag) => {
                    let word = (tag << 20 | number as u64).to_ne_bytes();
                    assert_eq!(here[..8], word);
                    assert_eq!(here[page() - 8..], word);
                }
                None => {
                    let byte = u8::try_from(self.from + number).unwrap();
                    assert_eq!((here[0], here[page() - 1]), (byte, byte));
                }
            }
        }
    }

    fn write(&self) {
        for number in 0..self.pages {
            let here = bytes(address(self.at.addr().get() + number * page()), page());
            let word = (self.tag.unwrap_or(0) << 20 | number as u64).to_ne_bytes();
            here[..8].copy_from_slice(&word);
            here[page() - 8..].copy_from_slice(&word);
        }
    }

    fn overlaps(&self, other: &Held) -> bool {
        let end = |held: &Held| held.at.addr().get() + held.pages * page();
        self.at.addr().get() < end(other) && other.at.addr().get() < end(self)
    }
}

/// Says what a window's parts must have room for, from nothing but the list of ranges held.
///
/// ```text
///   first       maps end         frontier                      end
///     | mm  m     |                 |    BBBB|  BBB|     BBBB|   |    | a guard
///         a mapping ^^^^^^^^^^^^^^^^    ^ a buffer  ^^^^^        ^^
///       ^^  ^^^^^^^^^^^^^^^^^^^^^^^^
/// ```
///
/// Between mappings, and below where one was since a part last had none, no buffer goes, by design; and no mapping goes
/// where buffers were. The frontier alone is the arena's word: how large its steps are is no promise.
struct Parts<'a> {
    inner: &'a Inner,
    /// The highest end of a mapping in each shard since there was none.
    maps_end: Vec<usize>,
}

impl<'a> Parts<'a> {
    fn new(arena: &'a Arena) -> Parts<'a> {
        let maps_end = arena.0.shards.iter().map(|shard| shard.bounds()[0]);
        Parts {
            inner: &arena.0,
            maps_end: maps_end.collect(),
        }
    }

    /// What of the list lies in pages `low..high`, by address: first page and the one after the last, guards among them.
    fn taken(&self, held: &[Held], low: usize, high: usize) -> Vec<(usize, usize)> {
        let pages = held.iter().map(|held| {
            let first = (held.at.addr().get() - self.inner.window.span.start) / page();
            let guard = held.tag.is_some() && self.inner.guard;
            (first, first + held.pages + usize::from(guard))
        });
        let mut taken: Vec<_> = pages
            .filter(|&(first, end)| low < end && first < high)
            .collect();
        taken.sort_unstable();
        taken
    }

    /// After each step.
    fn note(&mut self, held: &[Held]) {
        let maps: Vec<_> = held.iter().filter(|held| held.tag.is_none()).collect();
        for (shard, noted) in self.inner.shards.iter().zip(&mut self.maps_end) {
            let [first, maps_end, frontier, end] = shard.bounds();
            let ends = maps.iter().map(|map| {
                (map.at.addr().get() - self.inner.window.span.start) / page() + map.pages
            });
            let here = ends.filter(|&at| first < at && at <= end);
            *noted = here.max().map_or(first, |highest| highest.max(*noted));
            assert_eq!(maps_end, *noted);
            assert!(maps_end <= frontier && frontier <= end);
        }
    }

    /// A page from which `pages` fit between what is held, within `low..high`.
    fn between(
        &self,
        held: &[Held],
        (low, high): (usize, usize),
        pages: usize,
        align: usize,
    ) -> Option<usize> {
        let start = self.inner.window.span.start;
        let mut from = low;
        let taken = self.taken(held, low, high);
        taken
            .into_iter()
            .chain([(high, high)])
            .find_map(|(first, after)| {
                // The window itself starts at any page.
                let aligned =
                    ((start + from * page()).next_multiple_of(align.max(page())) - start) / page();
                from = after.max(low);
                (aligned + pages <= first).then_some(aligned)
            })
    }

    fn for_buffer(&self, held: &[Held], pages: usize, align: usize) -> Option<usize> {
        let total = self.inner.with_guard(pages);
        let parts = self.inner.shards.iter().zip(&self.maps_end);
        parts
            .map(|(shard, &maps_end)| (maps_end, shard.bounds()[3]))
            .find_map(|part| self.between(held, part, total, align))
    }

    fn for_map(&self, held: &[Held], pages: usize) -> Option<usize> {
        let parts = self.inner.shards.iter().map(Shard::bounds);
        parts
            .map(|[first, _, frontier, _]| (first, frontier))
            .find_map(|part| self.between(held, part, pages, 1))
    }
}

fn run(config: Config, steps: &[Step]) {
    let arena = made(config);
    let file = file(16);
    let mut held: Vec<Held> = Vec::new();
    let mut freed = Vec::new();
    let mut parts = Parts::new(&arena);
    for (count, step) in steps.iter().enumerate() {
        match *step {
            Step::Alloc { pages, shift, zero } => {
                let len = pages * page() - count % page();
                let align = 1_usize << shift;
                let got = if zero {
                    arena.alloc(len, align)
                } else {
                    arena.alloc_uninit(len, align)
                };
                let at = match got {
                    Ok(at) => at,
                    Err(error) => {
                        assert!(matches!(error, Error::NoRoom { .. }));
                        let place = parts.for_buffer(&held, pages, align);
                        assert_eq!(place, None, "a place for {pages} pages, aligned to {align}");
                        continue;
                    }
                };
                assert_eq!(at.addr().get() % align.max(page()), 0);
                if zero {
                    assert!(filled(at, pages * page(), 0));
                }
                let new = Held {
                    at,
                    pages,
                    tag: Some(count as u64 + 1),
                    from: 0,
                };
                assert!(held.iter().all(|other| !other.overlaps(&new)));
                new.write();
                held.push(new);
            }
            Step::Map { pages, offset } => {
                let got = arena.map_fd(
                    file.as_fd(),
                    (offset * page()) as u64,
                    pages * page(),
                    Protection::READ,
                    Sharing::Shared,
                );
                let at = match got {
                    Ok(at) => at,
                    Err(error) => {
                        assert!(matches!(error, Error::NoRoom { .. }));
                        let place = parts.for_map(&held, pages);
                        assert_eq!(place, None, "a place for a mapping of {pages} pages");
                        continue;
                    }
                };
                let new = Held {
                    at,
                    pages,
                    tag: None,
                    from: offset,
                };
                assert!(held.iter().all(|other| !other.overlaps(&new)));
                held.push(new);
            }
            Step::Free(which) if !held.is_empty() => {
                let gone = held.swap_remove(which % held.len());
                gone.check();
                free(&arena, gone.at, gone.pages * page()).unwrap();
                freed.push(gone.at);
            }
            Step::FreeWrongly(which) => {
                if let Some(at) = freed.get(which % freed.len().max(1))
                    && !held.iter().any(|held| held.at == *at)
                {
                    assert!(free(&arena, *at, page()).is_err());
                }
                if let Some(held) = held.get(which % held.len().max(1)) {
                    assert!(free(&arena, held.at, (held.pages + 1) * page()).is_err());
                    let inside = address(held.at.addr().get() + 8);
                    assert!(free(&arena, inside, held.pages * page()).is_err());
                }
            }
            Step::Trim => {
                arena.trim().unwrap();
            }
            Step::Free(_) => {}
        }
        parts.note(&held);
    }
    held.iter().for_each(Held::check);
    let statistics = arena.statistics();
    let buffers = held.iter().filter(|held| held.tag.is_some()).count();
    assert_eq!(statistics.buffers, buffers as u64);
    assert_eq!(statistics.maps, (held.len() - buffers) as u64);
    assert!(statistics.kept <= config.keep as u64, "{statistics:?}");
    check(&arena);
    for gone in held {
        gone.check();
        free(&arena, gone.at, gone.pages * page()).unwrap();
    }
    arena.trim().unwrap();
    assert_eq!(arena.statistics().kept, 0);
    check(&arena);
    // Nothing is lost: the largest buffer fits again.
    let largest = first_page(config.window / page(), arena.0.shards.len(), 1) * page();
    let largest = largest - if config.guard { page() } else { 0 };
    arena.alloc(largest, 1).unwrap();
}

#[test]
fn random_calls_do_what_a_list_says() {
    for (number, backing) in [Backing::Anonymous, Backing::Memfd].into_iter().enumerate() {
        for guard in [false, true] {
            for (window, keep) in [(3_000, 1 << 20), (1 << 18, 4 << 20), (1 << 18, 0)] {
                let config = Config {
                    window: window * 4_096,
                    backing,
                    keep,
                    guard,
                    give_back: GiveBack::After(Duration::from_millis(1)),
                };
                let mut runner = TestRunner::new(Runs {
                    cases: if number == 0 { 24 } else { 12 },
                    failure_persistence: None,
                    ..Runs::default()
                });
                runner
                    .run(&steps(), |steps| {
                        run(config, &steps);
                        Ok(())
                    })
                    .unwrap();
            }
        }
    }
}
