use std::sync::atomic::AtomicPtr;

use super::*;

static ARENA: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// A buffer that a handler got; the next handler or the test frees it.
static LEFT: [AtomicPtr<u8>; 8] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 8];

extern "C" fn handler(_: i32) {
    let round = HANDLED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: set before the timer is, and the arena outlives it.
    let Some(arena) = (unsafe { ARENA.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    for slot in &LEFT {
        let pages = 1 + (round as usize) % 3;
        let old = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if let Some(old) = NonNull::new(old) {
            // The first byte says how many pages.
            // SAFETY: taken out of the slot, so this handler's.
            let pages = usize::from(unsafe { old.as_ptr().read() });
            if free(arena, old, pages * page()).is_err() {
                WRONG.fetch_add(1, Ordering::Relaxed);
            }
        } else if let Ok(at) = arena.alloc(pages * page(), 1) {
            let here = bytes(at, pages * page());
            if here.iter().any(|&byte| byte != 0) {
                WRONG.fetch_add(1, Ordering::Relaxed);
            }
            here.fill(u8::try_from(pages).unwrap_or(0));
            let old = slot.swap(at.as_ptr(), Ordering::AcqRel);
            if let Some(old) = NonNull::new(old) {
                // SAFETY: as above.
                let pages = usize::from(unsafe { old.as_ptr().read() });
                let _ = free(arena, old, pages * page());
            }
        } else {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A timer of the thread's own CPU time interrupts calls of the arena and of malloc; its handler allocates and frees.
#[test]
fn handlers_allocate_and_free() {
    for guard in [false, true] {
        forks::in_child(|| storm(guard));
    }
}

fn storm(guard: bool) {
    let arena = with(1 << 28, |c| c.guard = guard);
    ARENA.store((&raw const arena).cast_mut(), Ordering::Release);
    // SAFETY: plain values; the handler calls what this module says may be called in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    // Another thread sends a signal as often as it can: timers come but once in a few milliseconds.
    // SAFETY: no condition.
    let target = unsafe { libc::pthread_self() } as usize;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let handled = HANDLED.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the thread is there until this one is joined.
                unsafe { libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR1) };
                std::thread::yield_now();
            }
        });
        let mut held: Vec<(NonNull<u8>, usize)> = Vec::new();
        let begin = std::time::Instant::now();
        let mut round = 0_usize;
        // As many as it takes, on a machine that has other things to do, too.
        let enough = || {
            HANDLED.load(Ordering::Relaxed) - handled > 60
                && arena.0.strays.load(Ordering::Relaxed) > 3
        };
        while !enough() && begin.elapsed() < Duration::from_secs(50) {
            round += 1;
            let len = (1 + round * 31 % 90) * page();
            let at = arena.alloc(len, 1).unwrap();
            let here = bytes(at, 64);
            assert!(here.iter().all(|&byte| byte == 0));
            here.fill(0xff);
            held.push((at, len));
            // malloc is interrupted, too.
            drop(std::hint::black_box(vec![0_u8; round * 97 % 300_000]));
            if held.len() > 40 {
                let (at, len) = held.swap_remove(round * 17 % 40);
                assert!(filled(at, 64, 0xff));
                free(&arena, at, len).unwrap();
            }
            if round.is_multiple_of(1_000) {
                arena.trim().unwrap();
            }
        }
        for (at, len) in held {
            free(&arena, at, len).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    ARENA.store(std::ptr::null_mut(), Ordering::Release);
    for slot in &LEFT {
        if let Some(old) = NonNull::new(slot.swap(std::ptr::null_mut(), Ordering::AcqRel)) {
            let pages = usize::from(bytes(old, 1)[0]);
            free(&arena, old, pages * page()).unwrap();
        }
    }
    arena.trim().unwrap();
    let statistics = arena.statistics();
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    assert_eq!(REFUSED.load(Ordering::Relaxed), 0);
    assert_eq!((statistics.buffers, statistics.kept), (0, 0));
    assert!(HANDLED.load(Ordering::Relaxed) - handled > 60);
    // Calls were interrupted, or this tested nothing.
    assert!(statistics.strays > 0, "{statistics:?}");
    assert_eq!(arena.0.window.strays().all().count(), 0);
    check(&arena);
}

/// In a handler that interrupted a call: made to be so, step by step.
#[test]
fn a_call_within_a_call() {
    let arena = arena(1 << 28);
    let buffer = arena.alloc(4_096, 1).unwrap();
    super::super::threads::inside(
        |_| {
            let stray = arena.alloc(5_000, 1 << 20).unwrap();
            assert!(!arena.0.window.contains(stray.addr().get()));
            assert!(arena.contains(stray));
            assert_eq!(stray.addr().get() % (1 << 20), 0);
            assert!(filled(stray, 8_192, 0));
            assert!(matches!(free(&arena, stray, 1), Err(Error::Invalid { .. })));
            free(&arena, stray, 5_000).unwrap();
            assert!(matches!(
                free(&arena, stray, 5_000),
                Err(Error::Foreign { .. })
            ));
            // It waits, and cannot be freed again.
            free(&arena, buffer, 4_096).unwrap();
            assert!(matches!(
                free(&arena, buffer, 4_096),
                Err(Error::Freed { .. })
            ));
            assert_eq!((arena.trim(), arena.decay()), (Ok(0), Ok(0)));
        },
        || panic!("nothing is under way"),
    );
    assert!(!arena.0.deferred.is_empty());
    let again = arena.alloc(70 * page(), 1).unwrap();
    assert!(arena.0.deferred.is_empty());
    free(&arena, again, 70 * page()).unwrap();
    let statistics = arena.statistics();
    assert_eq!((statistics.buffers, statistics.strays), (0, 1));
    // A memfd's buffer cannot be elsewhere.
    let shared = with(1 << 28, |c| c.backing = Backing::Memfd);
    let refused = super::super::threads::inside(|_| shared.alloc(1, 1), || panic!());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    check(&arena);
}

#[test]
fn strays_end_with_their_table_and_with_the_arena() {
    let arena = arena(1 << 28);
    let mut first = (0, 0);
    super::super::threads::inside(
        |_| {
            let mut count = 0;
            while let Ok(at) = arena.alloc(4_096, 1) {
                first = (at.addr().get(), 4_096);
                count += 1;
            }
            assert_eq!(count, lock_free::strays::PLACES);
        },
        || panic!(),
    );
    assert_eq!(arena.statistics().strays, lock_free::strays::PLACES as u64);
    drop(arena);
}
