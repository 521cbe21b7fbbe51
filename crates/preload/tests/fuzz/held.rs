//! Holders of pages of a map, which may outlive the map: pipes, requests in flight, registered buffers, shared memory,
//! forked children. There is one for each side. In the end both must have the same contents.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::actor::{Outcome, agree};
use crate::aio::{self, Context, direct_file};
use crate::random::Random;
use crate::raw::{Map, PAGE, call, number, pipe};
use crate::sides;
use crate::uring::{READ_FIXED, Ring, WRITE_FIXED, request};

/// Capacity of a pipe.
pub(crate) const PIPE_PAGES: usize = 16;
/// Length of the file, and of the longest request.
const FILE_PAGES: usize = 256;

/// See the module.
pub(crate) enum Held {
    /// Messages in pipes.
    Pipes {
        pipes: [[OwnedFd; 2]; 2],
        length: usize,
    },
    /// Direct reads in flight.
    Reads([Context; 2]),
    /// Registered buffers of `io_uring`.
    Buffers {
        rings: Box<[Ring; 2]>,
        maps: [Map; 2],
    },
    /// Second attachments of segments that were attached over a part of a map.
    Segments { others: [Map; 2], whole: bool },
    /// A forked child that compares its maps when the pipe has a byte.
    Child { pid: c_int, waits: OwnedFd },
}

static CHILDREN: AtomicUsize = AtomicUsize::new(0);

/// Returns whether one more waiting child would make the test too slow.
pub(crate) fn too_many_children() -> bool {
    CHILDREN.load(Ordering::Relaxed) >= 2
}

/// Returns which holders this machine does not permit, and why.
pub(crate) fn missing() -> Vec<String> {
    let ring = Ring::new().err();
    ring.into_iter()
        .chain(file().as_ref().err().cloned())
        .collect()
}

/// Opens what all threads share: a child of a fork in the midst of it would wait for ever.
pub(crate) fn prepare() {
    let _ = file();
}

fn file() -> &'static Result<OwnedFd, String> {
    static FILE: OnceLock<Result<OwnedFd, String>> = OnceLock::new();
    FILE.get_or_init(|| direct_file(0xee, FILE_PAGES))
}

type Taken = Result<Option<Held>, String>;

fn pages_at(at: usize, pages: usize) -> Map {
    Map {
        at,
        length: pages * PAGE,
    }
}

impl Held {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Held::Pipes { .. } => "a pipe",
            Held::Reads(_) => "a read in flight",
            Held::Buffers { .. } => "a registered buffer",
            Held::Segments { .. } => "a segment",
            Held::Child { .. } => "a child",
        }
    }

    /// Returns whether the holder writes to its pages at any time.
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Held::Reads(_))
    }

    /// Puts pages into a pipe by vmsplice; if `tees`, duplicates them into a second pipe and reads the first one.
    pub(crate) fn pipes(at: [usize; 2], pages: usize, tees: bool) -> Taken {
        let splice = |at: usize| -> Result<[OwnedFd; 2], String> {
            let pipes = [(); 2].map(|()| pipe(pages * PAGE));
            let [first, second] = pipes;
            let vector = [at, pages * PAGE];
            let arguments = [number(&first[1]), vector.as_ptr() as usize, 1, 0];
            let done = call(libc::SYS_vmsplice, &arguments);
            if done != Ok(pages * PAGE) {
                return Err(format!("vmsplice: {done:?}"));
            }
            if !tees {
                return Ok(first);
            }
            let arguments = [number(&first[0]), number(&second[1]), pages * PAGE, 0];
            let done = call(libc::SYS_tee, &arguments);
            if done != Ok(pages * PAGE) {
                return Err(format!("tee: {done:?}"));
            }
            Ok(second)
        };
        let [a, b] = at.map(splice);
        Ok(Some(Held::Pipes {
            pipes: [a?, b?],
            length: pages * PAGE,
        }))
    }

    /// Submits a direct read into all of both maps.
    pub(crate) fn reads(at: [usize; 2], pages: usize) -> Taken {
        let Ok(file) = file() else { return Ok(None) };
        let contexts = [Context::new()?, Context::new()?];
        for (context, at) in contexts.iter().zip(at) {
            context.submit(aio::READ, file, pages_at(at, pages))?;
        }
        Ok(Some(Held::Reads(contexts)))
    }

    /// Registers all of both maps as buffers of `io_uring`.
    pub(crate) fn buffers(at: [usize; 2], pages: usize) -> Taken {
        let (Ok(a), Ok(b)) = (Ring::new(), Ring::new()) else {
            return Ok(None);
        };
        let maps = at.map(|at| pages_at(at, pages));
        a.register_buffer(maps[0])?;
        b.register_buffer(maps[1])?;
        Ok(Some(Held::Buffers {
            rings: Box::new([a, b]),
            maps,
        }))
    }

    /// Attaches segments of equal contents over some pages of both maps, and a second time elsewhere.
    pub(crate) fn segments(at: [usize; 2], pages: usize, random: &mut Random) -> Taken {
        let whole = random.below(2) == 0;
        let from = if whole { 0 } else { random.below(pages) };
        let count = if whole {
            pages
        } else {
            1 + random.below(pages - from)
        };
        let seed = random.next();
        let attach = |at: usize| -> Result<Map, String> {
            let length = count * PAGE;
            // SAFETY: it goes over live pages of the fuzzer's, and ends with its last attachment.
            unsafe {
                let segment = libc::shmget(libc::IPC_PRIVATE, length, libc::IPC_CREAT | 0o600);
                let here = (at + from * PAGE) as *const c_void;
                let there = libc::shmat(segment, here, libc::SHM_REMAP);
                let other = libc::shmat(segment, std::ptr::null(), 0);
                libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
                if !std::ptr::eq(there, here) || other as usize == usize::MAX {
                    return Err(format!("shmat: {}", std::io::Error::last_os_error()));
                }
                let mut random = Random::new(seed);
                for word in (0..length).step_by(256) {
                    other.byte_add(word).cast::<u64>().write(random.next());
                }
                Ok(pages_at(other as usize, count))
            }
        };
        let [a, b] = at.map(attach);
        Ok(Some(Held::Segments {
            others: [a?, b?],
            whole,
        }))
    }

    /// Forks a child that compares later.
    pub(crate) fn child(looks: impl FnOnce() -> Outcome) -> Held {
        let [waits, go] = pipe(PAGE);
        // SAFETY: the child only looks, and allocates by glibc's malloc, which a fork leaves usable.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop(go);
            let mut byte = 0_u8;
            // SAFETY: one byte; then nothing of the parent's is run. Its end is the child's, too.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::read(waits.as_raw_fd(), (&raw mut byte).cast(), 1);
                let done = looks();
                if let Err(why) = &done {
                    println!("in a child that waited: {why}");
                }
                libc::_exit(done.is_err().into());
            }
        }
        CHILDREN.fetch_add(1, Ordering::Relaxed);
        Held::Child { pid, waits: go }
    }

    /// Compares the contents that both sides have in the end.
    pub(crate) fn settle(self, seed: u64) -> Outcome {
        match self {
            Held::Pipes { pipes, length } => {
                same("a message", pipes.map(|ends| taken(&ends[0], length)))
            }
            Held::Reads([a, b]) => agree_on("a read", [a.wait(), b.wait()]),
            Held::Buffers { rings, maps } => {
                let some = maps[0].length.min(PIPE_PAGES * PAGE);
                let pipes = [(); 2].map(|()| pipe(some));
                let transfer = |code, end: usize| {
                    let [a, b] = [0, 1].map(|side| {
                        let fd: &OwnedFd = &pipes[side][end];
                        rings[side].submit(&request(code, fd, maps[side].at, some));
                        rings[side].wait().into()
                    });
                    agree_on("a registered buffer", [a, b])
                };
                transfer(WRITE_FIXED, 1)?;
                let [a, b] = &pipes;
                same(
                    "what a registered buffer holds",
                    [taken(&a[0], some), taken(&b[0], some)],
                )?;
                let bytes: Vec<u8> = {
                    let mut random = Random::new(seed);
                    (0..some / 8)
                        .flat_map(|_| random.next().to_le_bytes())
                        .collect()
                };
                for pipe in &pipes {
                    crate::raw::write(&pipe[1], &bytes);
                }
                transfer(READ_FIXED, 0)
            }
            Held::Segments { others, .. } => {
                let held = others.map(|other| {
                    let mut bytes = vec![0; other.length];
                    sides::read(other.at, &mut bytes).map(|_| bytes)
                });
                let [a, b] = others.map(|other| detach(other.at));
                agree("shmdt", a, b)?;
                let [a, b] = held;
                match (a, b) {
                    (Ok(a), Ok(b)) => same("a segment", [a, b]),
                    other => Err(format!("a segment: {other:?}")),
                }
            }
            Held::Child { pid, waits } => {
                CHILDREN.fetch_sub(1, Ordering::Relaxed);
                crate::raw::write(&waits, &[1]);
                let mut status = 0;
                // SAFETY: `status` is ours.
                while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
                if status == 0 {
                    Ok(())
                } else {
                    Err(format!("a child that waited ended with status {status:#x}"))
                }
            }
        }
    }
}

/// Reads a message from a pipe.
fn taken(pipe: &OwnedFd, length: usize) -> Vec<u8> {
    crate::raw::read(pipe, length)
}

fn agree_on(what: &str, [a, b]: [i64; 2]) -> Outcome {
    let result = |done: i64| match usize::try_from(done) {
        Ok(done) => Ok(done),
        Err(_) => Err(-done as c_int),
    };
    agree(what, result(a), result(b))
}

fn same(what: &str, [a, b]: [Vec<u8>; 2]) -> Outcome {
    if a == b {
        return Ok(());
    }
    let at = a.iter().zip(&b).position(|(a, b)| a != b);
    Err(format!("{what}: contents differ from byte {at:?} on"))
}

/// shmdt(2).
pub(crate) fn detach(at: usize) -> Result<usize, sides::Errno> {
    // SAFETY: an attachment of the fuzzer's.
    let done = unsafe { libc::shmdt(at as *const c_void) };
    if done == 0 {
        Ok(0)
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}
