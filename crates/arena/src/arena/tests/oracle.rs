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
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pages = prop_oneof![8 => 1..5_usize, 4 => 1..70_usize, 1 => 70..600_usize];
    let step = prop_oneof![
        10 => (pages, prop_oneof![9 => Just(0), 1 => 12..31_u32], any::<bool>())
            .prop_map(|(pages, shift, zero)| Step::Alloc { pages, shift, zero }),
        8 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::FreeWrongly),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..400)
}

/// What was given out: where, its pages, and the word that is written through it.
struct Held {
    at: NonNull<u8>,
    pages: usize,
    tag: u64,
}

impl Held {
    fn check(&self) {
        for number in 0..self.pages {
            let here = bytes(address(self.at.addr().get() + number * page()), page());
            let word = (self.tag << 20 | number as u64).to_ne_bytes();
            assert_eq!(here[..8], word);
            assert_eq!(here[page() - 8..], word);
        }
    }

    fn write(&self) {
        for number in 0..self.pages {
            let here = bytes(address(self.at.addr().get() + number * page()), page());
            let word = (self.tag << 20 | number as u64).to_ne_bytes();
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
struct Parts<'a>(&'a Inner);

impl Parts<'_> {
    /// What of the list lies in pages `low..high`, by address: first page and the one after the last, guards among them.
    fn taken(&self, held: &[Held], low: usize, high: usize) -> Vec<(usize, usize)> {
        let pages = held.iter().map(|held| {
            let first = (held.at.addr().get() - self.0.window.span.start) / page();
            (first, first + self.0.with_guard(held.pages))
        });
        let mut taken: Vec<_> = pages
            .filter(|&(first, end)| low < end && first < high)
            .collect();
        taken.sort_unstable();
        taken
    }

    /// A page from which `pages` fit between what is held, within `low..high`.
    fn between(
        &self,
        held: &[Held],
        (low, high): (usize, usize),
        pages: usize,
        align: usize,
    ) -> Option<usize> {
        let start = self.0.window.span.start;
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
        let total = self.0.with_guard(pages);
        let mut parts = self.0.shards.iter().map(|shard| {
            let [first, frontier, end] = shard.bounds();
            assert!(first <= frontier && frontier <= end);
            (first, end)
        });
        parts.find_map(|part| self.between(held, part, total, align))
    }
}

fn run(config: Config, steps: &[Step]) {
    let arena = made(config);
    let mut held: Vec<Held> = Vec::new();
    let mut freed = Vec::new();
    let parts = Parts(&arena.0);
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
                    tag: count as u64 + 1,
                };
                assert!(held.iter().all(|other| !other.overlaps(&new)));
                new.write();
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
    }
    held.iter().for_each(Held::check);
    let statistics = arena.statistics();
    assert_eq!(statistics.buffers, held.len() as u64);
    if config.decay.is_zero() {
        assert_eq!(statistics.kept, 0);
    }
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
            for (window, decay) in [(3_000, 1), (1 << 18, 1), (1 << 18, 3_600_000), (1 << 18, 0)] {
                let config = Config {
                    window: window * 4_096,
                    backing,
                    guard,
                    decay: Duration::from_millis(decay),
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
