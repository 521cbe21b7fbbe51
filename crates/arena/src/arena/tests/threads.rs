use std::sync::Barrier;
use std::sync::mpsc;

use super::*;

/// Each thread writes its number into what it has; others free it.
#[test]
fn threads_allocate_and_free_each_others() {
    // Other tests' threads would take the numbers of those that end, and what these kept.
    for backing in [Backing::Anonymous, Backing::Memfd] {
        forks::in_child(|| each_others(backing));
    }
}

fn each_others(backing: Backing) {
    {
        let arena = with(4 << 30, |c| {
            (c.backing, c.decay) = (backing, Duration::from_millis(1));
        });
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4)
            .map(|_| mpsc::channel::<(usize, usize, u8)>())
            .unzip();
        std::thread::scope(|scope| {
            for (number, receiver) in receivers.into_iter().enumerate() {
                let next = senders[(number + 1) % 4].clone();
                let arena = &arena;
                scope.spawn(move || {
                    let tag = u8::try_from(number + 1).unwrap();
                    for round in 0..1_500_usize {
                        let len = (1 + (round * 31 + number) % 70) * page();
                        let zero = round % 2 == 0;
                        let at = if zero {
                            arena.alloc(len, 1)
                        } else {
                            arena.alloc_uninit(len, 1)
                        }
                        .unwrap();
                        if zero {
                            assert!(filled(at, len, 0));
                        }
                        bytes(at, len).fill(tag);
                        next.send((at.addr().get(), len, tag)).unwrap();
                        while let Ok((at, len, tag)) = receiver.try_recv() {
                            let at = address(at);
                            assert!(filled(at, len, tag));
                            free(arena, at, len).unwrap();
                        }
                    }
                    drop(next);
                    for (at, len, tag) in receiver.iter().take_while(|got| got.1 > 0) {
                        let at = address(at);
                        assert!(filled(at, len, tag));
                        free(arena, at, len).unwrap();
                    }
                });
            }
            drop(senders);
        });
        let statistics = arena.statistics();
        assert_eq!(statistics.buffers, 0);
        trim_all(&arena);
        check(&arena);
    }
}

#[test]
fn of_threads_that_free_the_same_one_succeeds() {
    let arena = arena(1 << 28);
    for _ in 0..300 {
        let at = arena.alloc(1, 1).unwrap().addr().get();
        let barrier = Barrier::new(3);
        let results: Vec<_> = std::thread::scope(|scope| {
            let free = || {
                barrier.wait();
                free(&arena, address(at), 1)
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(free)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let freed = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(freed, 1, "{results:?}");
        assert!(
            results
                .iter()
                .all(|result| matches!(result, Ok(()) | Err(Error::Freed { .. })))
        );
    }
}

/// More threads than there are numbers, all at once.
#[test]
fn threads_without_a_number_are_served() {
    forks::in_child(without_a_number);
}

fn without_a_number() {
    let arena = arena(1 << 30);
    let threads = lock_free::owners::NUMBERS + 20;
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                barrier.wait();
                for pages in [1, 2, 70] {
                    let at = arena.alloc(pages * page(), 1).unwrap();
                    bytes(at, 8).fill(1);
                    free(&arena, at, pages * page()).unwrap();
                }
                barrier.wait();
            };
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let statistics = arena.statistics();
    assert_eq!(
        (statistics.buffers, statistics.given),
        (0, threads as u64 * 3)
    );
    trim_all(&arena);
    check(&arena);
}

/// Dead threads' caches, too: once the kernel has forgotten those, which is some moments after they were joined.
fn trim_all(arena: &Arena) {
    for _ in 0..1_000 {
        arena.trim().unwrap();
        if arena.statistics().kept == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{:?}", arena.statistics());
}

/// A thread's last deeds: its thread-local values are dropped, and theirs, and each uses the arena.
#[test]
fn thread_local_destructors_may_use_it() {
    static ARENA: std::sync::OnceLock<Arena> = std::sync::OnceLock::new();
    struct Last(NonNull<u8>);
    impl Drop for Last {
        fn drop(&mut self) {
            let arena = ARENA.get().unwrap();
            free(arena, self.0, 4_096).unwrap();
            let at = arena.alloc(8_192, 1).unwrap();
            free(arena, at, 8_192).unwrap();
        }
    }
    thread_local! {
        static FIRST: Last = Last(ARENA.get().unwrap().alloc(4_096, 1).unwrap());
        static SECOND: Last = Last(ARENA.get().unwrap().alloc(4_096, 1).unwrap());
    }
    let arena = ARENA.get_or_init(|| arena(1 << 28));
    for _ in 0..50 {
        std::thread::spawn(|| {
            FIRST.with(|_| ());
            SECOND.with(|_| ());
        })
        .join()
        .unwrap();
    }
    assert_eq!(arena.statistics().buffers, 0);
    check(arena);
}

/// In an atexit handler of a process whose other threads still run.
#[test]
fn handlers_at_exit_may_use_it() {
    static ARENA: std::sync::OnceLock<Arena> = std::sync::OnceLock::new();
    extern "C" fn last() {
        let arena = ARENA.get().unwrap();
        let works = |len| {
            arena
                .alloc(len, 1)
                .and_then(|at| free(arena, at, len))
                .is_ok()
        };
        if !(works(1) && works(1 << 20)) {
            // SAFETY: ends the child.
            unsafe { libc::_exit(9) };
        }
    }
    // SAFETY: the child starts a thread of its own and ends by exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let arena = ARENA.get_or_init(|| arena(1 << 28));
        std::thread::spawn(move || {
            loop {
                let at = arena.alloc(1, 1).unwrap();
                free(arena, at, 1).unwrap();
            }
        });
        // SAFETY: a function that stays; and an end that calls it. The harness's own handlers write nothing.
        unsafe {
            libc::alarm(30);
            libc::atexit(last);
            libc::exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: `status` is there.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// While the lock of a shard is held, a thread of another one frees what lies there; who places there gets it.
#[test]
fn others_free_without_the_lock() {
    let arena = arena(64 << 30);
    if arena.0.shards.len() < 2 {
        return skip(&Skip::machine("two shards: this machine has one CPU"));
    }
    // More than a thread's cache keeps.
    let len = 100 * page();
    let at = arena.alloc(len, 1).unwrap();
    let start = at.addr().get();
    let page = arena.0.window.page_at(start).unwrap();
    let number = arena.0.shard_of(page);
    let shard = &arena.0.shards[number];
    let begin = Barrier::new(8);
    let freed = std::sync::atomic::AtomicBool::new(false);
    let (done, ends) = mpsc::channel();
    let ended = std::thread::scope(|scope| {
        shard.lock.keep_locked();
        for _ in 0..8 {
            let (done, arena) = (done.clone(), &arena);
            let (begin, freed) = (&begin, &freed);
            scope.spawn(move || {
                let own =
                    crate::arena::threads::inside(|inside| arena.0.own_shard(inside), || number);
                // All live at once: their numbers differ.
                begin.wait();
                if own != number && !freed.swap(true, Ordering::Relaxed) {
                    free(arena, address(start), len).unwrap();
                }
                done.send(()).unwrap();
            });
        }
        let ended = (0..8)
            .map(|_| ends.recv_timeout(Duration::from_secs(60)))
            .all(|end| end.is_ok());
        shard.lock.unlock();
        ended
    });
    assert!(ended, "a free waited for the lock");
    assert!(freed.load(Ordering::Relaxed), "all threads had one shard");
    assert_eq!(arena.statistics().buffers, 0);
    assert_eq!(arena.statistics().kept, len as u64);
    assert_eq!(free(&arena, at, len), Err(Error::Freed { address: start }));
}

/// More than a cache, the ring and the depot keep, all freed by a thread of another shard: each comes back once, and is refused from
/// the moment it was freed.
#[test]
fn what_others_freed_comes_back_once() {
    forks::in_child(|| {
        let arena = with(64 << 30, |c| c.decay = HOUR);
        if arena.0.shards.len() < 2 {
            return skip(&Skip::machine("two shards: this machine has one CPU"));
        }
        let len = 3 * page();
        let round = || {
            let all = (0..700).map(|_| arena.alloc_uninit(len, 1).unwrap());
            let all: Vec<usize> = all.map(|at| at.addr().get()).collect();
            let mut starts = all.clone();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|two| two[1] - two[0] >= len));
            all
        };
        for _ in 0..3 {
            let all = round();
            std::thread::scope(|scope| {
                // Its number is not this thread's.
                scope.spawn(|| {
                    for &at in &all {
                        let foreign = free(&arena, address(at + page()), page());
                        assert!(matches!(foreign, Err(Error::Foreign { .. })));
                        assert!(matches!(
                            free(&arena, address(at + 1), len),
                            Err(Error::Foreign { .. })
                        ));
                        invalid(free(&arena, address(at), 2 * page()));
                        free(&arena, address(at), len).unwrap();
                        let again = free(&arena, address(at), len);
                        assert_eq!(again, Err(Error::Freed { address: at }));
                    }
                });
            });
            let statistics = arena.statistics();
            assert_eq!(statistics.buffers, 0);
            // Each cache may have got some besides.
            let kept = statistics.kept / len as u64;
            assert!((700..=732).contains(&kept), "{kept}");
            let ends = free(&arena, address(all[699]), len);
            assert_eq!(ends, Err(Error::Freed { address: all[699] }));
        }
        check(&arena);
    });
}
