//! Every system call fails in turn.

use rustix::io::Errno;

use super::*;
use crate::inject;

fn maps() -> usize {
    vmas((0, usize::MAX)).len()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A bit of everything. What is refused is refused; what is given out is right.
fn everything(arena: &Arena) -> std::result::Result<(), Error> {
    let mut held = Vec::new();
    let mut first_error = Ok(());
    let mut note = |error: Error| {
        if first_error.is_ok() {
            first_error = Err(error);
        }
    };
    for round in 0..6 {
        for pages in [1, 3, 64, 65, 700] {
            match arena.alloc(pages * page(), 1) {
                Ok(at) => {
                    assert!(filled(at, pages * page(), 0));
                    bytes(at, pages * page()).fill(1);
                    held.push((at, pages * page()));
                }
                Err(error) => note(error),
            }
        }
        if round % 2 == 1 {
            for (at, len) in held.drain(..) {
                free(arena, at, len).unwrap();
            }
            if let Err(error) = arena.trim() {
                note(error);
            }
        }
    }
    first_error
}

#[test]
fn every_call_fails_in_turn() {
    for config in [
        Config::default(),
        Config {
            backing: Backing::Memfd,
            ..Config::default()
        },
        Config {
            guard: true,
            ..Config::default()
        },
        Config {
            guard: true,
            decay: Duration::ZERO,
            backing: Backing::Memfd,
            ..Config::default()
        },
    ] {
        let config = Config {
            window: 2_000 << 12,
            ..config
        };
        // In a process of its own: other tests' threads map things in this one.
        forks::in_child(|| {
            // Made once for all, and malloc's heap grown beyond what follows, which would be a mapping more. Longer ones are mapped.
            drop((made(config), [(); 4].map(|()| vec![1_u8; 100 << 10])));
            let (maps_before, files_before) = (maps(), descriptors());
            let mut nth = 1;
            loop {
                let made = inject::failing(nth, Errno::NOMEM, || Arena::new(&config));
                let Some(failed) = made.failed else {
                    break;
                };
                let errno = Errno::NOMEM;
                let expected = Error::Call {
                    call: failed,
                    errno,
                };
                assert_eq!(made.result.unwrap_err(), expected, "call {nth}");
                assert_eq!((maps(), descriptors()), (maps_before, files_before));
                nth += 1;
            }
            assert!(nth > 3);
            // The calls of a life, but for making it.
            let mut nth = 1;
            loop {
                let arena = made(config);
                let done = inject::failing(nth, Errno::NOMEM, || everything(&arena));
                let Some(failed) = done.failed else {
                    done.result.unwrap();
                    break;
                };
                if failed == "mprotect" {
                    assert!(done.result.is_err(), "{failed}, call {nth}");
                }
                // Nothing is lost.
                arena.trim().unwrap();
                arena.trim().unwrap();
                check(&arena);
                let statistics = arena.statistics();
                assert_eq!(
                    (statistics.buffers, statistics.kept),
                    (0, 0),
                    "{failed}, call {nth}"
                );
                let whole = config.window - if config.guard { page() } else { 0 };
                let at = arena.alloc(whole, 1).unwrap();
                assert!(filled(at, whole, 0), "{failed}");
                assert_eq!(arena.statistics().buffers, 1, "{failed}, call {nth}");
                free(&arena, at, whole).unwrap();
                drop(arena);
                assert_eq!((maps(), descriptors()), (maps_before, files_before));
                nth += 1;
            }
            assert!(nth > 5, "{nth}");
        });
    }
}
