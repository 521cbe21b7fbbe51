use super::*;

/// Seconds after which a child hangs: many times what any takes on a machine with forty others at work on each CPU.
const HANGS: u32 = 900;

/// What a child panics of goes past the harness, which keeps what it prints to itself. Set once, before any fork: where
/// another test panics while this one forks, the hook's lock is taken for ever in the child, and only reading goes on.
fn children_say_why() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let parent = std::process::id();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::process::id() == parent {
                return usual(panic);
            }
            let text = format!("in the child: {panic}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }));
    });
}

/// Runs `work` in a child of libc's fork: what it asserts is asserted here.
pub(crate) fn in_child(work: impl FnOnce()) {
    children_say_why();
    // SAFETY: the child runs `work` alone and ends without any destructor or handler of the parent's.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a child that hangs is ended.
        unsafe { libc::alarm(HANGS) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child here.
        unsafe { libc::_exit(if done.is_ok() { 0 } else { 1 }) };
    }
    wait(child);
}

/// As [`in_child`], forked behind libc's back: none of its handlers is called.
fn in_raw_child(work: impl FnOnce()) {
    // SAFETY: the child uses nothing that another thread might have locked: no malloc, no output.
    let child = unsafe { libc::syscall(libc::SYS_fork) };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::alarm(HANGS) };
        work();
        // SAFETY: ends the child here.
        unsafe { libc::_exit(0) };
    }
    wait(i32::try_from(child).unwrap());
}

fn wait(child: i32) {
    let mut status = 0;
    // SAFETY: `status` is there.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's assertions are above");
}

#[test]
fn parent_and_child_go_on() {
    let arena = arena(1 << 30);
    let before = arena.alloc(8_192, 1).unwrap();
    bytes(before, 8_192).fill(1);
    for _ in 0..3 {
        let cached = arena.alloc(4_096, 1).unwrap();
        free(&arena, cached, 4_096).unwrap();
    }
    in_child(|| {
        bytes(before, 8_192).fill(2);
        let mut all = Vec::new();
        for len in [1, 4_096, 100_000, 3 << 20] {
            for _ in 0..30 {
                let at = arena.alloc(len, 1).unwrap();
                assert!(filled(at, len, 0));
                bytes(at, len).fill(5);
                all.push((at, len));
            }
        }
        for (at, len) in all {
            free(&arena, at, len).unwrap();
        }
        free(&arena, before, 8_192).unwrap();
        assert!(matches!(
            free(&arena, before, 8_192),
            Err(Error::Freed { .. })
        ));
        assert_eq!(arena.statistics().strays, 0);
        arena.trim().unwrap();
        check(&arena);
        // And so do a child's children.
        in_child(|| {
            let at = arena.alloc(1, 1).unwrap();
            free(&arena, at, 1).unwrap();
        });
    });
    assert!(filled(before, 8_192, 1));
    free(&arena, before, 8_192).unwrap();
    check(&arena);
}

/// Threads that allocate and free all the time, while one forks again and again.
#[test]
fn a_fork_in_the_midst_of_it() {
    let arena = arena(1 << 32);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..4_usize {
            let (arena, stop) = (&arena, &stop);
            scope.spawn(move || {
                let mut held = Vec::new();
                let mut round = thread;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let len = (1 + round * 7 % 80) * page();
                    let at = arena.alloc_uninit(len, 1).unwrap();
                    bytes(at, 1)[0] = 1;
                    held.push((at, len));
                    if held.len() > 50 {
                        let (at, len) = held.swap_remove(round * 13 % 50);
                        free(arena, at, len).unwrap();
                    }
                }
                for (at, len) in held {
                    free(arena, at, len).unwrap();
                }
            });
        }
        for _ in 0..60 {
            in_child(|| {
                // In the child all locks are open, and caches whole.
                let all: Vec<_> = (1..60_usize)
                    .map(|pages| (arena.alloc(pages * page(), 1).unwrap(), pages * page()))
                    .collect();
                for (at, len) in &all {
                    assert!(bytes(*at, *len).iter().all(|&byte| byte == 0));
                    bytes(*at, *len).fill(9);
                }
                for (at, len) in all {
                    free(&arena, at, len).unwrap();
                }
                arena.trim().unwrap();
                assert_eq!(arena.statistics().strays, 0);
                check(&arena);
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(arena.statistics().buffers, 0);
    check(&arena);
}

#[test]
fn a_memfd_is_the_parents() {
    let arena = with(1 << 28, |c| c.backing = Backing::Memfd);
    let shared = arena.alloc(4_096, 1).unwrap();
    let given = arena.alloc(4_096, 1).unwrap();
    bytes(given, 1)[0] = 7;
    in_child(|| {
        bytes(shared, 1)[0] = 42;
        for pages in [1, 100] {
            let refused = arena.alloc(pages * page(), 1);
            assert!(matches!(refused, Err(Error::Unsupported { .. })));
        }
        // Freed here, it stays the parent's.
        free(&arena, given, 4_096).unwrap();
        assert!(matches!(
            free(&arena, given, 4_096),
            Err(Error::Freed { .. })
        ));
        assert_eq!(arena.trim(), Ok(0));
    });
    assert_eq!((bytes(shared, 1)[0], bytes(given, 1)[0]), (42, 7));
    free(&arena, given, 4_096).unwrap();
    free(&arena, shared, 4_096).unwrap();
}

/// A child whose locks may be held by its parent's other threads is served without them.
#[test]
fn a_child_that_libc_does_not_know_of_gets_mappings() {
    let arena = arena(1 << 28);
    let held = arena.alloc(4_096, 1).unwrap();
    in_raw_child(|| {
        let works = |len| {
            let Ok(at) = arena.alloc(len, 1 << 16) else {
                return false;
            };
            let outside = !arena.0.window.contains(at.addr().get()) && arena.contains(at);
            bytes(at, len)[len - 1] = 1;
            outside
                && at.addr().get() % (1 << 16) == 0
                && free(&arena, at, len).is_ok()
                && free(&arena, at, len).is_err()
        };
        let all = works(1)
            && works(300_000)
            && free(&arena, held, 4_096).is_ok()
            && free(&arena, held, 4_096).is_err();
        if !all {
            // SAFETY: ends the child.
            unsafe { libc::_exit(1) };
        }
    });
    free(&arena, held, 4_096).unwrap();
    assert_eq!(arena.statistics().strays, 0);
}

#[test]
fn what_vfork_starts_takes_no_number() {
    let arena = arena(1 << 28);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The standard library starts programs by vfork or clone; before that this thread has no number.
            let status = std::process::Command::new("true").status().unwrap();
            assert!(status.success());
            let at = arena.alloc(1, 1).unwrap();
            free(&arena, at, 1).unwrap();
        });
    });
    check(&arena);
}
