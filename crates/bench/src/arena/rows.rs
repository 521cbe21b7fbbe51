//! A cell: one way of having buffers, at one N.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use stopgap_arena::{Arena, Backing, Config, Protection, Sharing};
use stopgap_events::memory::{MemoryEvent, Phase};
use stopgap_events::workload::Pbobench;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;

/// Who gives buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Mmap,
    MapFd,
    Reuse(Backing),
    Zeroed(Backing),
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backing = |backing: &Backing| match backing {
            Backing::Anonymous => "",
            Backing::Memfd => ", memfd",
        };
        f.pad(&match self {
            Row::Mmap => "mmap".to_owned(),
            Row::MapFd => "map_fd".to_owned(),
            Row::Reuse(of) => format!("reuse{}", backing(of)),
            Row::Zeroed(of) => format!("reuse zeroed{}", backing(of)),
        })
    }
}

/// What a cell came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// CPU time of a step.
    pub(super) ns: f64,
    /// Lines of /proc/self/maps more than before, with N buffers and those of the slots.
    pub(super) vmas: usize,
    /// Bytes that the arena keeps at the end.
    pub(super) kept: Option<u64>,
}

type Result<T> = std::result::Result<T, String>;

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Gives a buffer of a length, by its number, and takes it back.
trait Giver {
    fn give(&self, number: usize, length: usize) -> Result<NonNull<u8>>;
    fn take(&self, at: NonNull<u8>, length: usize) -> Result<()>;
    fn kept(&self) -> Option<u64> {
        None
    }
}

/// A file, in which the parts of two numbers never continue each other, as the probe has it.
struct File {
    fd: OwnedFd,
    stride: usize,
}

impl File {
    fn new(names: u64) -> Result<File> {
        let page = rustix::param::page_size();
        // 16 KiB: it fits.
        let stride = (Pbobench::LARGEST as usize).next_multiple_of(page) + page;
        let fd = memfd_create("bench", MemfdFlags::CLOEXEC).map_err(text)?;
        ftruncate(&fd, names * stride as u64).map_err(text)?;
        Ok(File { fd, stride })
    }

    fn offset(&self, number: usize) -> u64 {
        (number * self.stride) as u64
    }
}

struct Mmap(File);

impl Giver for Mmap {
    fn give(&self, number: usize, length: usize) -> Result<NonNull<u8>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (fd, offset) = (&self.0.fd, self.0.offset(number));
        // SAFETY: without an address the kernel chooses one that nothing uses.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )
        };
        NonNull::new(at.map_err(text)?.cast()).ok_or_else(|| "mapped at 0".to_owned())
    }

    fn take(&self, at: NonNull<u8>, length: usize) -> Result<()> {
        // SAFETY: mapped by `give`, that long, and not used any more.
        unsafe { munmap(at.as_ptr().cast(), length) }.map_err(text)
    }
}

struct MapFd(Arena, File);

impl Giver for MapFd {
    fn give(&self, number: usize, length: usize) -> Result<NonNull<u8>> {
        let (fd, offset) = (self.1.fd.as_fd(), self.1.offset(number));
        self.0
            .map_fd(fd, offset, length, Protection::READ_WRITE, Sharing::Shared)
            .map_err(text)
    }

    fn take(&self, at: NonNull<u8>, length: usize) -> Result<()> {
        // SAFETY: given out by `give`, and not used any more.
        unsafe { self.0.free(at, length) }.map_err(text)
    }
}

struct Reuse<const ZEROED: bool>(Arena);

impl<const ZEROED: bool> Giver for Reuse<ZEROED> {
    #[inline]
    fn give(&self, _: usize, length: usize) -> Result<NonNull<u8>> {
        let given = if ZEROED {
            self.0.alloc(length, 1)
        } else {
            self.0.alloc_uninit(length, 1)
        };
        given.map_err(text)
    }

    #[inline]
    fn take(&self, at: NonNull<u8>, length: usize) -> Result<()> {
        // SAFETY: given out by `give`, and not used any more.
        unsafe { self.0.free(at, length) }.map_err(text)
    }

    fn kept(&self) -> Option<u64> {
        Some(self.0.statistics().kept)
    }
}

fn vmas() -> Result<usize> {
    let maps = std::fs::read("/proc/self/maps").map_err(text)?;
    Ok(maps.iter().filter(|&&byte| byte == b'\n').count())
}

/// `steps` steps with `n` buffers that stay.
pub(super) fn measure(row: Row, n: u32, steps: u64, seed: u64) -> Result<Measured> {
    let before = vmas()?;
    let names = Pbobench::peak(n);
    let arena = |backing| {
        Arena::new(&Config {
            backing,
            ..Config::default()
        })
        .map_err(text)
    };
    let load = Load {
        before,
        n,
        steps,
        seed,
    };
    match row {
        Row::Mmap => load.carry_out(&Mmap(File::new(names)?)),
        Row::MapFd => load.carry_out(&MapFd(arena(Backing::Anonymous)?, File::new(names)?)),
        Row::Reuse(backing) => load.carry_out(&Reuse::<false>(arena(backing)?)),
        Row::Zeroed(backing) => load.carry_out(&Reuse::<true>(arena(backing)?)),
    }
}

struct Load {
    before: usize,
    n: u32,
    steps: u64,
    seed: u64,
}

impl Load {
    fn carry_out(&self, giver: &impl Giver) -> Result<Measured> {
        let events = Pbobench::new(self.n, self.steps, self.seed).events();
        let (mut layout, mut steady) = (Vec::new(), Vec::new());
        let mut to = &mut layout;
        for event in events {
            match event {
                MemoryEvent::Begin(Phase::Steady) => to = &mut steady,
                MemoryEvent::Begin(_) => {}
                event => to.push(event),
            }
        }
        let names = self.n as usize + Pbobench::SLOTS as usize;
        let mut live: Vec<Option<(NonNull<u8>, usize)>> = vec![None; names];
        let page = rustix::param::page_size();
        let mut apply = |events: &[MemoryEvent]| {
            for event in events {
                match *event {
                    // 16 KiB at most.
                    MemoryEvent::Map { id, length, .. } => {
                        let (id, length) = (id.0 as usize, length.0 as usize);
                        live[id] = Some((giver.give(id, length)?, length));
                    }
                    MemoryEvent::Touch { id } => {
                        if let Some((at, length)) = live[id.0 as usize] {
                            for at_byte in (0..length).step_by(page) {
                                // SAFETY: inside of what was given out, which is writable.
                                unsafe { at.as_ptr().add(at_byte).write_volatile(1) };
                            }
                        }
                    }
                    MemoryEvent::Unmap { id } => {
                        if let Some((at, length)) = live[id.0 as usize].take() {
                            giver.take(at, length)?;
                        }
                    }
                    MemoryEvent::Protect { .. } | MemoryEvent::Begin(_) => {}
                }
            }
            Ok::<(), String>(())
        };
        apply(&layout)?;
        // The first steps touch what nobody touched yet: page faults, which are not what is asked about.
        let (warm, timed) = steady.split_at(steady.len() / 10);
        apply(warm)?;
        let start = Linux.thread_cpu().0;
        apply(timed)?;
        let took = Linux.thread_cpu().0 - start;
        let steps = timed
            .iter()
            .filter(|event| !matches!(event, MemoryEvent::Touch { .. }))
            .count();
        let vmas = vmas()?.saturating_sub(self.before);
        let kept = giver.kept();
        for (at, length) in live.into_iter().flatten() {
            giver.take(at, length)?;
        }
        let ns = took as f64 / steps.max(1) as f64;
        Ok(Measured { ns, vmas, kept })
    }
}
