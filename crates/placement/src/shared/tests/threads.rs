//! With threads.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use super::*;

/// Which pages somebody holds, by whoever was given them.
struct Pages {
    space: Space,
    held: Vec<AtomicU8>,
}

impl Pages {
    fn of(space: Space) -> Pages {
        let pages = space.window().length() / space.page();
        Pages {
            space,
            held: (0..pages).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    fn turn(&self, range: Range, from: u8, to: u8) {
        let index = |address| ((address - self.space.window().start) / self.space.page()) as usize;
        for page in &self.held[index(range.start)..index(range.end)] {
            let was = page.swap(to, Ordering::Relaxed);
            assert_eq!(was, from, "{range} is given to two");
        }
    }

    fn given(&self, range: Range) {
        self.turn(range, 0, 1);
    }

    /// Before it is freed: afterwards it may be another one's.
    fn given_up(&self, range: Range) {
        self.turn(range, 1, 0);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
        (self.0 >> 33) % bound
    }

    /// Most are small and plain; some are large, limited, hinted or aligned.
    fn request(&mut self, space: Space) -> Request {
        let (window, page) = (space.window(), space.page());
        let pages = window.length() / page;
        let mut request = Request::of((1 + self.below(24)) * page);
        match self.below(40) {
            0 => request.size = (1 + self.below(pages / 3)) * page,
            1 => {
                let start = window.start + self.below(pages / 2) * page;
                request.limits = Some(Range::new(start, start + pages / 4 * page));
            }
            2 => request.hint = Some(window.start + self.below(pages) * page),
            3 => request.direction = Direction::BottomUp,
            4..8 => request.alignment = page << self.below(4),
            _ => {}
        }
        request
    }
}

/// What a thread of [`stress`] has.
struct Thread<'a> {
    shared: &'a Shared,
    pages: &'a Pages,
    random: Random,
    /// Ranges that another thread placed, for this one to free.
    received: mpsc::Receiver<Range>,
    next: mpsc::Sender<Range>,
}

impl Thread<'_> {
    fn free(&self, range: Range) {
        self.pages.given_up(range);
        assert_eq!(self.shared.free(range), Ok(()), "{range}");
    }

    fn run(mut self, steps: u64, live: u64) {
        let mut held = Vec::new();
        for _ in 0..steps {
            while let Ok(range) = self.received.try_recv() {
                self.free(range);
            }
            if self.random.below(2 * live) < held.len() as u64 {
                let range = held.swap_remove(self.random.below(held.len() as u64) as usize);
                if self.random.below(3) == 0 {
                    self.next.send(range).unwrap();
                } else {
                    self.free(range);
                }
                continue;
            }
            let request = self.random.request(self.shared.space());
            match self.shared.place(&request) {
                Ok(range) => {
                    self.pages.given(range);
                    held.push(range);
                }
                Err(why) => {
                    assert_eq!(why, PlaceError::Exhausted, "{request:?}");
                    // What is missing may be with a thread that has no CPU: without it, this one would
                    // use up its steps on refusals.
                    thread::yield_now();
                }
            }
        }
        for range in held {
            self.free(range);
        }
        drop(self.next);
        // Until the thread before has ended.
        while let Ok(range) = self.received.recv() {
            self.pages.given_up(range);
            assert_eq!(self.shared.free(range), Ok(()), "{range}");
        }
    }
}

/// `threads` threads, each with about `live` ranges, that give each other ranges to free.
fn stress(shared: &Shared, threads: u64, live: u64, steps: u64) {
    let pages = Pages::of(shared.space());
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel()).unzip();
    senders.rotate_left(1);
    thread::scope(|scope| {
        for (seed, (next, received)) in (1..).zip(senders.into_iter().zip(receivers)) {
            let thread = Thread {
                shared,
                pages: &pages,
                random: Random(seed),
                received,
                next,
            };
            scope.spawn(move || thread.run(steps, live));
        }
        for _ in 0..5 {
            thread::yield_now();
            shared.check().unwrap();
        }
    });
    shared.check().unwrap();
    let statistics = shared.statistics();
    assert_eq!((statistics.ranges, statistics.holes), (0, 1));
    let mut left = pages.held.iter();
    assert!(left.all(|page| page.load(Ordering::Relaxed) == 0));
}

/// Room enough, room that is taken apart again and again, and hardly any.
#[test]
fn threads_never_share_a_page_and_leave_nothing() {
    for (threads, pages, shards, least, live) in [
        (2, 40_000, 4, 64, 200),
        (4, 8_000, 4, 16, 100),
        (8, 3_000, 2, 8, 20),
        (3, 200, 2, 4, 8),
    ] {
        let shared = Shared::with_extents(space(0x3000, pages), shards, least, 10);
        stress(&shared, threads, live, 8_000);
        assert!(shared.work().placed > 500, "{threads}");
    }
    let shared = Shared::new(space(0x3000, 1 << 20));
    stress(&shared, 2, 300, 8_000);
}

#[test]
fn of_several_that_free_the_same_range_one_succeeds() {
    let threads = 3;
    let shared = Shared::with_extents(space(0, 5_000), 2, 64, 10);
    let (barrier, freed) = (Barrier::new(threads), AtomicUsize::new(0));
    // Some of them small, some of them the central map's.
    let ranges: Vec<Range> = (0..900)
        .map(|i| shared.place(&Request::of(0x1000 << (i % 3))).unwrap())
        .collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for part in ranges.chunks(30) {
                    barrier.wait();
                    for &range in part {
                        match shared.free(range) {
                            Ok(()) => {
                                freed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(why) => assert_eq!(why, FreeError::AlreadyFree),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(freed.load(Ordering::Relaxed), ranges.len());
    assert_eq!(shared.statistics().ranges, 0);
    shared.check().unwrap();
}

/// A thread that dies with a lock takes nobody with it.
#[test]
fn a_poisoned_lock_still_locks() {
    let shared = Shared::with_extents(space(0, 5_000), 2, 64, 10);
    let held = shared.place(&Request::of(0x1000)).unwrap();
    thread::scope(|scope| {
        let all = || {
            let _everything = Everything::of(&shared);
            std::panic::resume_unwind(alloc::boxed::Box::new(())); // says nothing
        };
        assert!(scope.spawn(all).join().is_err());
    });
    assert!(shared.central.is_poisoned());
    shared.free(held).unwrap();
    shared.place(&Request::of(0x100_0000)).unwrap();
    shared.check().unwrap();
}

#[test]
fn it_may_be_shared_and_sent() {
    fn is<T: Send + Sync + 'static>() {}
    is::<Shared>();
}
