//! userfaultfd(2): registered ranges, and markers that stay in page tables.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::raw::{Errno, Map, PAGE, answer, call, number, open, peek, read, vm_flags};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("userfault-missing", missing),
    ("userfault-protect", protected),
    ("userfault-poison", poisoned),
    ("userfault-event", told_of_unmap),
    ("userfault-move", moved),
];

/// Modes of a registration.
pub(crate) const MISSING: u64 = 1;
const WRITE_PROTECT: u64 = 2;

const EVENT_UNMAP: u64 = 1 << 6;
const POISON: u64 = 1 << 14;
const MOVE: u64 = 1 << 16;

/// Returns an ioctl number of linux/userfaultfd.h: read and write, type 0xaa.
const fn of(number: usize, size: usize) -> usize {
    3 << 30 | size << 16 | 0xaa << 8 | number
}

/// A userfaultfd.
pub(crate) struct Faults(OwnedFd);

impl Faults {
    pub(crate) fn new(features: u64) -> Result<Faults, String> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        let faults = Faults(open("userfaultfd", libc::SYS_userfaultfd, &[flags])?);
        const VERSION: u64 = 0xaa;
        let about = [VERSION, features, 0];
        faults
            .control(of(0x3f, 24), &about)
            .map_err(|errno| format!("features {features:#x} of userfaultfd: {errno}"))?;
        Ok(faults)
    }

    fn control<const N: usize>(&self, number_of: usize, words: &[u64; N]) -> Result<usize, Errno> {
        let mut words = *words;
        let at = words.as_mut_ptr() as usize;
        call(libc::SYS_ioctl, &[number(&self.0), number_of, at])
    }

    pub(crate) fn register(&self, map: Map, mode: u64) -> Result<(), String> {
        let about = [map.at as u64, map.length as u64, mode, 0];
        let done = self.control(of(0, 32), &about);
        done.map(drop)
            .map_err(|errno| format!("UFFDIO_REGISTER {mode}: {errno}"))
    }

    fn unregister(&self, map: Map) {
        let about = [map.at as u64, map.length as u64];
        // Read only.
        let number = 2 << 30 | 16 << 16 | 0xaa << 8 | 1;
        assert_eq!(answer(self.control(number, &about)), "ok");
    }

    /// Waits some milliseconds for an event.
    fn event(&self, milliseconds: i32) -> Option<[u8; 32]> {
        let mut wait = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one struct, as it says.
        if unsafe { libc::poll(&raw mut wait, 1, milliseconds) } != 1 {
            return None;
        }
        read(&self.0, 32).try_into().ok()
    }

    /// Waits for a fault. Returns the page.
    pub(crate) fn wait(&self) -> usize {
        let event = self.event(20_000).expect("a fault");
        let address = event[16..24].try_into().expect("8 bytes");
        usize::from_ne_bytes(address) / PAGE * PAGE
    }

    /// Puts a page there, and wakes the thread that faulted.
    pub(crate) fn fill(&self, at: usize, byte: u8) {
        let page = Map::bare(1);
        page.fill(byte);
        let about = [at as u64, page.at as u64, PAGE as u64, 0, 0];
        assert_eq!(answer(self.control(of(3, 40), &about)), "ok");
    }

    fn protect(&self, map: Map, mode: u64) -> Result<usize, Errno> {
        self.control(of(6, 24), &[map.at as u64, map.length as u64, mode])
    }
}

/// Maps four pages, of which the last two stay missing.
fn half() -> Map {
    let map = Map::new(4);
    map.part(0, 2).fill(0x11);
    map
}

fn missing() -> Seen {
    let faults = Faults::new(0)?;
    let map = half();
    faults.register(map, MISSING)?;
    let map = map.again();
    let flags = vm_flags(map.at);
    let byte = std::thread::scope(|scope| {
        let reader = scope.spawn(|| map.get(3 * PAGE));
        if faults.event(300).is_some() {
            faults.fill(map.at + 3 * PAGE, 0xee);
        }
        reader.join().expect("a thread")
    });
    Ok(format!("it reads {byte:#x}, flags {flags}"))
}

fn protected() -> Seen {
    let faults = Faults::new(0)?;
    let map = Map::filled(4, 0x11);
    faults.register(map, WRITE_PROTECT)?;
    faults
        .protect(map.part(1, 1), 1)
        .map_err(|errno| format!("UFFDIO_WRITEPROTECT: {errno}"))?;
    // The library's own write to it may be what waits.
    let done = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let map = map.again();
            map.fill(0xbb);
            map
        });
        let asked = faults.event(300).is_some();
        if asked {
            faults.protect(map.part(1, 1), 0).expect("no protection");
        }
        let map = writer.join().expect("a thread");
        (asked, vm_flags(map.at))
    });
    let (asked, flags) = done;
    let told = if asked { "is told" } else { "is not told" };
    Ok(format!("the monitor {told}, flags {flags}"))
}

fn poisoned() -> Seen {
    let faults = Faults::new(POISON)?;
    let map = half();
    faults.register(map, MISSING)?;
    let about = [(map.at + 3 * PAGE) as u64, PAGE as u64, 0, 0];
    faults
        .control(of(8, 32), &about)
        .map_err(|errno| format!("UFFDIO_POISON: {errno}"))?;
    faults.unregister(map);
    let map = map.again();
    let seen = peek(map.at + 3 * PAGE).map(|byte| assert_eq!(byte, 0));
    Ok(format!("reading the new map: {}", answer(seen)))
}

fn told_of_unmap() -> Seen {
    const UNMAP: u8 = 0x16;
    let faults = Faults::new(EVENT_UNMAP)?;
    let map = Map::filled(4, 0x11);
    faults.register(map, MISSING)?;
    let event = std::thread::scope(|scope| {
        let unmaps = scope.spawn(|| map.unmap());
        let event = faults.event(300);
        unmaps.join().expect("a thread");
        event
    });
    let Some(event) = event else {
        return Ok("no event".into());
    };
    let word = |at: usize| usize::from_ne_bytes(event[at..at + 8].try_into().expect("8 bytes"));
    let (start, end) = (word(8), word(16));
    let whole = event[0] == UNMAP && (start, end) == (map.at, map.at + map.length);
    let what = if whole {
        "of the map"
    } else {
        "of something else"
    };
    Ok(format!("an event {what}"))
}

fn moved() -> Seen {
    let faults = Faults::new(MOVE)?;
    let to = Map::bare(4);
    faults.register(to, MISSING)?;
    let map = Map::filled(4, 0x11);
    let about = [to.at as u64, map.at as u64, to.length as u64, 0, 0];
    faults
        .control(of(5, 40), &about)
        .map_err(|errno| format!("UFFDIO_MOVE: {errno}"))?;
    let map = map.again();
    let zero = map.all(0);
    map.fill(0xbb);
    let kept = to.all(0x11);
    Ok(format!(
        "the new map zero: {zero}, the moved pages as they were: {kept}"
    ))
}
