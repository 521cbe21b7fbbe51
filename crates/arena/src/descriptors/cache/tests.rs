use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::arena::tests::forks;
use crate::inject;

const MIB: usize = 1 << 20;

fn give<M: Maker>(cache: &Cache<M>, buffer: Buffer<M::Object>) {
    // SAFETY: tests use nothing after they gave it.
    unsafe { cache.give(buffer) };
}

#[allow(clippy::mut_from_ref)]
fn bytes<O>(buffer: &Buffer<O>) -> &mut [u8] {
    // SAFETY: tests have one at a time.
    unsafe { std::slice::from_raw_parts_mut(buffer.address().as_ptr(), buffer.capacity()) }
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.matches("memfd:stopgap-cache").count()
}

/// Puts the time at which everything was given back by a second.
fn let_a_second_pass<M: Maker>(cache: &Cache<M>) {
    let mut state = cache.state();
    let kept = state.classes.iter_mut().flatten();
    kept.for_each(|kept| kept.since = kept.since.saturating_sub(1_000_000_000));
    state.due = 0;
}

#[test]
fn classes_waste_an_eighth_at_most_and_grow() {
    assert_eq!(class(1), (0, 1));
    assert_eq!(class(8), (7, 8));
    assert_eq!(class(9), (8, 9));
    assert_eq!(class(17), (16, 18));
    assert_eq!(class(1 << 40).1, 1 << 40);
    let mut last = class(1);
    for pages in
        (1..5_000).chain((20..40).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]))
    {
        let (number, length) = class(pages);
        assert!(
            length >= pages && length - pages <= pages / 8,
            "{pages}: {length}"
        );
        // The same class, or the next ones.
        assert_eq!(class(length), (number, length));
        assert!(
            (number == last.0) == (length == last.1) && number >= last.0,
            "{pages}"
        );
        last = (number, length);
    }
}

#[test]
fn what_was_given_is_handed_out_again_mapped() {
    let cache = Cache::new(Memfd).unwrap();
    let first = cache.take(4 * MIB).unwrap();
    assert!(bytes(&first).iter().all(|&byte| byte == 0));
    bytes(&first)[4 * MIB - 1] = 7;
    assert_eq!(files::size(first.object().as_fd()), Ok(4 << 20));
    let mut byte = [0];
    files::read_at(first.object().as_fd(), &mut byte, 4 * MIB as u64 - 1).unwrap();
    assert_eq!(byte, [7]);
    let address = first.address();
    let other = cache.take(4 * MIB).unwrap();
    assert_ne!(other.address(), address);
    give(&cache, first);
    assert_eq!(cache.statistics().kept, 4 << 20);
    // No system call, and of its class.
    let again = inject::failing(1, Errno::NOMEM, || cache.take(4 * MIB - 5).unwrap());
    assert_eq!((again.made, again.result.address()), (0, address));
    assert_eq!(
        (again.result.len(), again.result.capacity()),
        (4 * MIB - 5, 4 * MIB)
    );
    assert_eq!(bytes(&again.result)[4 * MIB - 1], 7);
    let statistics = cache.statistics();
    assert_eq!((statistics.made, statistics.reused), (2, 1));
    assert_eq!((statistics.taken, statistics.kept), (8 << 20, 0));
    give(&cache, again.result);
    // Another class does not get it.
    assert_ne!(cache.take(5 * MIB).unwrap().address(), address);
    assert_ne!(cache.take(2 * MIB).unwrap().address(), address);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cache = Cache::new(Memfd).unwrap();
    assert!(matches!(cache.take(0), Err(Error::Invalid { .. })));
    let all = |bytes| {
        Err(Error::NoRoom {
            bytes,
            largest: None,
        })
    };
    assert_eq!(cache.take(usize::MAX).map(drop), all(usize::MAX));
    assert!(cache.take(1 << 62).is_err());
    assert_eq!(cache.statistics(), Statistics::default());
    // A buffer of another cache is closed, not kept.
    let other = Cache::new(Memfd).unwrap();
    give(&other, cache.take(1).unwrap());
    assert_eq!(
        (other.statistics(), cache.statistics().kept),
        (Statistics::default(), 0)
    );
}

#[test]
fn what_is_dropped_is_closed_and_a_second_unused_too() {
    forks::in_child(|| {
        // A child has the mappings of the tests that ran beside the fork.
        let others = mappings();
        let mappings = || mappings() - others;
        let cache = Cache::new(Memfd).unwrap();
        drop(cache.take(MIB).unwrap());
        assert_eq!(mappings(), 0);
        give(&cache, cache.take(MIB).unwrap());
        assert_eq!((cache.decay(), mappings()), (0, 1));
        let_a_second_pass(&cache);
        let recent = cache.take(2 * MIB).unwrap();
        assert_eq!(mappings(), 1, "the call that took closed what was old");
        give(&cache, recent);
        let_a_second_pass(&cache);
        assert_eq!((cache.decay(), mappings()), (2 << 20, 0));
        give(&cache, cache.take(MIB).unwrap());
        assert_eq!((cache.trim(), mappings()), (1 << 20, 0));
        assert_eq!(cache.statistics().kept, 0);
        cache.pressure.pretend();
        let_a_second_pass(&cache);
        give(&cache, cache.take(MIB).unwrap());
        drop(cache);
        assert_eq!(mappings(), 0);
    });
}

#[test]
fn no_more_is_kept_than_is_taken_but_for_64_mib() {
    let cache = Cache::new(Memfd).unwrap();
    let all: Vec<_> = (0..200).map(|_| cache.take(MIB).unwrap()).collect();
    let mut expected = 0;
    for (buffer, taken) in all.into_iter().zip((0..200_u64).rev()) {
        give(&cache, buffer);
        expected = (expected + 1).min(taken.max(64));
        let statistics = cache.statistics();
        assert_eq!(
            (statistics.taken, statistics.kept),
            (taken << 20, expected << 20)
        );
    }
    assert_eq!(expected, 64);
}

/// An object whose device is at work as long as the cell says so.
struct Slow {
    file: OwnedFd,
    busy: Rc<Cell<Result<bool>>>,
}

impl Object for Slow {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn is_idle(&self) -> Result<bool> {
        self.busy.get().map(|busy| !busy)
    }
}

#[test]
fn what_a_device_is_at_work_on_is_not_handed_out() {
    let all = RefCell::new(Vec::new());
    let cache = Cache::new(|bytes: usize| {
        let busy = Rc::new(Cell::new(Ok(false)));
        all.borrow_mut().push(busy.clone());
        Memfd.make(bytes).map(|file| Slow { file, busy })
    })
    .unwrap();
    let [one, two] = [(); 2].map(|()| cache.take(1).unwrap());
    let (first, second) = (one.address(), two.address());
    give(&cache, one);
    give(&cache, two);
    all.borrow()[1].set(Ok(true));
    let given = cache.take(1).unwrap();
    assert_eq!(given.address(), first);
    all.borrow()[0].set(Ok(true));
    give(&cache, given);
    // Both are busy: a third.
    let third = cache.take(1).unwrap();
    assert_eq!(all.borrow().len(), 3);
    all.borrow()[1].set(Ok(false));
    assert_eq!(cache.take(1).unwrap().address(), second);
    // What cannot be asked is closed.
    all.borrow()[0].set(Err(Error::invalid("gone")));
    let another = cache.take(1).unwrap();
    assert_eq!((cache.statistics().kept, all.borrow().len()), (0, 4));
    give(&cache, another);
    give(&cache, third);
}

#[test]
fn a_maker_that_fails_is_asked_again_when_all_is_closed() {
    let left = Cell::new(2);
    let full = Error::Call {
        call: "ioctl",
        errno: Errno::NOSPC,
    };
    let cache = Cache::new(|bytes: usize| {
        let now = left.get();
        left.set(now - 1);
        if now > 0 {
            Memfd.make(bytes)
        } else {
            Err(full)
        }
    })
    .unwrap();
    let [one, two] = [(); 2].map(|()| cache.take(MIB).unwrap());
    assert_eq!(cache.take(1).map(drop), Err(full));
    give(&cache, one);
    left.set(0);
    assert_eq!(cache.take(1).map(drop), Err(full));
    assert_eq!(cache.statistics().kept, 0, "closed, and asked again");
    assert_eq!(left.get(), -2);
    drop(two);
}

#[test]
fn every_call_that_fails_is_an_error_and_loses_nothing() {
    forks::in_child(|| {
        let (mut nth, mut stay) = (1, 0);
        loop {
            let done = inject::failing(nth, Errno::NOMEM, || {
                let cache = Cache::new(Memfd)?;
                give(&cache, cache.take(MIB)?);
                give(&cache, cache.take(MIB)?);
                Ok::<_, Error>(())
            });
            // What the kernel does not unmap stays mapped.
            stay += usize::from(done.failed == Some("munmap"));
            assert!(mappings() <= stay);
            let Some(call) = done.failed else {
                done.result.unwrap();
                break;
            };
            let errno = Errno::NOMEM;
            // Pressure that cannot be read is none.
            if !["open", "read", "munmap"].contains(&call) {
                assert_eq!(done.result, Err(Error::Call { call, errno }));
            }
            nth += 1;
        }
        assert!(nth > 5, "{nth}");
    });
}

#[test]
fn a_child_hands_out_nothing_that_is_the_parents() {
    let cache = Cache::new(Memfd).unwrap();
    let held = cache.take(MIB).unwrap();
    let kept = cache.take(MIB).unwrap();
    let addresses = [held.address(), kept.address()];
    bytes(&kept)[0] = 7;
    give(&cache, kept);
    let held = Cell::new(Some(held));
    forks::in_child(|| {
        give(&cache, held.take().unwrap());
        let file = |buffer: &Buffer<OwnedFd>| files::read_at(buffer.object().as_fd(), &mut [0], 0);
        let new = cache.take(MIB).unwrap();
        assert_eq!((cache.statistics().made, file(&new)), (1, Ok(1)));
        bytes(&new)[0] = 9;
        give(&cache, new);
        assert_eq!(cache.statistics().kept, 1 << 20);
    });
    let again = cache.take(MIB).unwrap();
    assert_eq!((again.address(), bytes(&again)[0]), (addresses[1], 7));
    assert_eq!(held.take().unwrap().address(), addresses[0]);
}

#[test]
fn threads_take_and_give() {
    let cache = Cache::new(Memfd).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..5_u8 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..300_usize {
                    let buffer = cache.take((1 + round % 7) * page()).unwrap();
                    bytes(&buffer).fill(thread);
                    std::thread::yield_now();
                    assert!(bytes(&buffer).iter().all(|&byte| byte == thread));
                    give(cache, buffer);
                }
            });
        }
    });
    let statistics = cache.statistics();
    assert_eq!(
        (statistics.taken, statistics.made + statistics.reused),
        (0, 1_200)
    );
    assert!(statistics.made <= 28, "{statistics:?}");
}

/// CPU time of the calling thread in ns.
fn cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// `cargo test --release -p stopgap-arena -- --ignored --nocapture --exact descriptors::cache::tests::cost`
#[test]
#[ignore = "measures: for a release build on a machine that stands still"]
fn cost() {
    const LEN: usize = 4 * MIB;
    let cache = Cache::new(Memfd).unwrap();
    give(&cache, cache.take(LEN).unwrap());
    let file = Memfd.make(LEN).unwrap();
    let map = || {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        Mapping(sys::map_file(file.as_fd(), 0, LEN, both, MapFlags::empty()).unwrap())
    };
    let fill = |start: usize, by: usize| {
        let bytes = std::ptr::with_exposed_provenance_mut::<u8>(start);
        for at in (0..LEN).step_by(by) {
            // SAFETY: mapped, that long.
            unsafe { bytes.add(at).write_bytes(1, by.min(page())) };
        }
    };
    // Nothing is written; a page; all.
    for by in [LEN, page()].map(Some).into_iter().chain([None]) {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..300 {
            let start = cpu();
            let mapping = map();
            by.into_iter().for_each(|by| fill(mapping.0.start, by));
            drop(mapping);
            times[0].push(cpu() - start);
            let start = cpu();
            let buffer = cache.take(LEN).unwrap();
            by.into_iter()
                .for_each(|by| fill(buffer.address().addr().get(), by));
            give(&cache, buffer);
            times[1].push(cpu() - start);
        }
        let [mmap, ours] = times.map(median);
        let what = match by {
            None => "nothing written",
            Some(LEN) => "a page written",
            Some(_) => "all written",
        };
        println!(
            "{what}: mmap, munmap {mmap:.0} ns; take, give {ours:.0} ns: {:.1} times",
            mmap / ours
        );
    }
}
