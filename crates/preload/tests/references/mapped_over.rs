//! Maps of something else that a raw system call puts over a map of the library. What the program then unmaps through
//! libc is not what it mapped.

use std::os::fd::OwnedFd;

use crate::raw::{
    Count, Errno, Map, NO_FILE, PAGE, PLAIN, READ_WRITE, answer, call, errno, memfd, number, open,
    peek, vm_flags,
};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("shm-remap", || attached(true)),
    ("shm-remap-shmdt", || attached(false)),
    ("fixed-file", || over_a_file(4, 0, 4, libc::MAP_SHARED)),
    ("fixed-file-part", || over_a_file(4, 1, 2, libc::MAP_SHARED)),
    ("fixed-file-private", || {
        over_a_file(4, 0, 4, libc::MAP_PRIVATE)
    }),
    ("fixed-packet-ring", packet_ring),
    ("fixed-perf-ring", perf_ring),
    ("fixed-shared-moved", || shared_moved(LENGTH)),
    ("fixed-shared-doubled", || shared_moved(0)),
    ("remap-file-pages", reordered),
    ("dontunmap", moved_away),
    ("bare-munmap", unmapped_barely),
];

const PAGES: usize = 4;
const LENGTH: usize = PAGES * PAGE;

fn attached(unmaps: bool) -> Seen {
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    let mut answers = Vec::new();
    for _ in 0..50 {
        let map = Map::filled(PAGES, 0x11);
        // SAFETY: the segment goes over a map of this program, and ends with its last attachment.
        let other = unsafe {
            let segment = libc::shmget(libc::IPC_PRIVATE, LENGTH, libc::IPC_CREAT | 0o600);
            if segment < 0 {
                return Err(format!("shmget: {}", errno()));
            }
            let at = map.at as *const libc::c_void;
            assert_eq!(libc::shmat(segment, at, libc::SHM_REMAP) as usize, map.at);
            let other = libc::shmat(segment, std::ptr::null(), 0) as usize;
            assert_eq!(
                libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()),
                0
            );
            other
        };
        let other = Map {
            at: other,
            length: LENGTH,
        };
        map.fill(0x22);
        if unmaps {
            map.unmap();
        } else {
            // SAFETY: not touched any more.
            assert_eq!(unsafe { libc::shmdt(map.at as *const libc::c_void) }, 0);
        }
        let new = Map::new(PAGES);
        dirty.add(!new.all(0));
        new.fill(0xbb);
        changed.add(!other.all(0x22));
        // SAFETY: not touched any more.
        assert_eq!(unsafe { libc::shmdt(other.at as *const libc::c_void) }, 0);
        new.unmap();
        if !unmaps {
            answers.push(answer(map.try_unmap()));
        }
    }
    answers.dedup();
    let mut seen = format!("{changed} attachments changed, {dirty} new maps not zero");
    if !unmaps {
        seen += &format!(", munmap of the place: {}", answers.join(", "));
    }
    Ok(seen)
}

/// Maps a file over some pages of a map by a raw call.
fn put_over(map: Map, flags: i32, file: &OwnedFd) -> Result<usize, Errno> {
    let flags = (flags | libc::MAP_FIXED) as usize;
    let arguments = [map.at, map.length, READ_WRITE, flags, number(file), 0];
    call(libc::SYS_mmap, &arguments)
}

/// Has `refer` put something over maps, and return another view of it, which holds `byte`. Unmaps each map, maps as much
/// again, writes to that, and looks at the view.
fn over(
    rounds: usize,
    pages: usize,
    (what, byte): (&str, u8),
    refer: impl Fn(Map) -> Result<Map, String>,
) -> Seen {
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    for _ in 0..rounds {
        let map = Map::filled(pages, 0x11);
        let view = refer(map)?;
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        changed.add(!view.all(byte));
        map.unmap();
        assert_eq!(call(libc::SYS_munmap, &[view.at, view.length]), Ok(0));
    }
    Ok(format!(
        "{changed} {what} changed, {dirty} new maps not zero"
    ))
}

fn over_a_file(pages: usize, from: usize, count: usize, flags: i32) -> Seen {
    over(50, pages, ("files", 0x22), |map| {
        let file = memfd(pages * PAGE);
        let view = look_at(&file, pages);
        view.fill(0x22);
        let part = map.part(from, count);
        assert_eq!(put_over(part, flags, &file), Ok(part.at));
        assert!(part.all(0x22));
        Ok(view)
    })
}

/// Maps a file elsewhere.
fn look_at(file: &OwnedFd, pages: usize) -> Map {
    let length = pages * PAGE;
    let shared = libc::MAP_SHARED as usize;
    let at = call(
        libc::SYS_mmap,
        &[0, length, READ_WRITE, shared, number(file), 0],
    );
    Map {
        at: at.expect("a map of a file"),
        length,
    }
}

fn packet_ring() -> Seen {
    let domain = libc::AF_PACKET as usize;
    let kind = libc::SOCK_RAW as usize;
    // Protocol 0: no packet arrives.
    let socket = open("AF_PACKET", libc::SYS_socket, &[domain, kind, 0])?;
    const RECEIVES: usize = 5;
    // Block size, blocks, frame size, frames.
    let about = [PAGE as u32, PAGES as u32, PAGE as u32, PAGES as u32];
    let (at, length) = (about.as_ptr() as usize, size_of_val(&about));
    let level = libc::SOL_PACKET as usize;
    let arguments = [number(&socket), level, RECEIVES, at, length];
    call(libc::SYS_setsockopt, &arguments).map_err(|errno| format!("PACKET_RX_RING: {errno}"))?;
    let mut changed = Count::default();
    for _ in 0..20 {
        let view = look_at(&socket, PAGES);
        let map = Map::filled(PAGES, 0x11);
        assert_eq!(put_over(map, libc::MAP_SHARED, &socket), Ok(map.at));
        map.all(0); // present
        let map = map.again();
        map.fill(0xbb);
        changed.add(!view.all(0));
        map.unmap();
        view.fill(0);
        assert_eq!(call(libc::SYS_munmap, &[view.at, view.length]), Ok(0));
    }
    Ok(format!("{changed} rings changed"))
}

fn perf_ring() -> Seen {
    const SOFTWARE: u32 = 1;
    const DUMMY: u64 = 9;
    let mut about = [0_u8; 128];
    about[..4].copy_from_slice(&SOFTWARE.to_ne_bytes());
    about[4..8].copy_from_slice(&128_u32.to_ne_bytes());
    about[8..16].copy_from_slice(&DUMMY.to_ne_bytes());
    let (this, any, none) = (0, usize::MAX, usize::MAX);
    let arguments = [about.as_ptr() as usize, this, any, none, 0];
    let ring = open("perf_event_open", libc::SYS_perf_event_open, &arguments)?;
    // A page of counters, and a power of two that no program may write to.
    let pages = 1 + PAGES;
    let mut dirty = Count::default();
    for _ in 0..20 {
        let map = Map::filled(pages, 0x11);
        assert_eq!(put_over(map, libc::MAP_SHARED, &ring), Ok(map.at));
        map.all(0); // present
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

fn shared_moved(old_length: usize) -> Seen {
    over(20, PAGES, ("memories", 0x22), |map| {
        let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize;
        let at = call(libc::SYS_mmap, &[0, LENGTH, READ_WRITE, shared, NO_FILE]);
        let memory = Map {
            at: at.expect("shared memory"),
            length: LENGTH,
        };
        memory.fill(0x22);
        // A second view of it, where the first one moves away.
        let may_move = libc::MREMAP_MAYMOVE as usize;
        let view = call(libc::SYS_mremap, &[memory.at, 0, LENGTH, may_move, 0]);
        let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        let arguments = [memory.at, old_length, LENGTH, fixed, map.at];
        assert_eq!(call(libc::SYS_mremap, &arguments), Ok(map.at));
        assert!(map.all(0x22));
        Ok(Map {
            at: view.expect("a second view"),
            length: LENGTH,
        })
    })
}

fn reordered() -> Seen {
    over(20, PAGES, ("files", 0x22), |map| {
        let file = memfd(LENGTH);
        let view = look_at(&file, PAGES);
        view.fill(0x22);
        assert_eq!(put_over(map, libc::MAP_SHARED, &file), Ok(map.at));
        assert!(map.all(0x22));
        let arguments = [map.at, PAGE, 0, 2, 0];
        call(libc::SYS_remap_file_pages, &arguments)
            .map_err(|errno| format!("remap_file_pages: {errno}"))?;
        assert!(map.all(0x22));
        Ok(view)
    })
}

fn moved_away() -> Seen {
    over(20, PAGES, ("moved maps", 0x11), |map| {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP) as usize;
        let moved = call(libc::SYS_mremap, &[map.at, LENGTH, LENGTH, flags, 0]);
        Ok(Map {
            at: moved.expect("MREMAP_DONTUNMAP"),
            length: LENGTH,
        })
    })
}

fn unmapped_barely() -> Seen {
    let mut dirty = Count::default();
    let mut readable = Count::default();
    let mut flags = Vec::new();
    for _ in 0..20 {
        let map = Map::filled(PAGES, 0x11);
        assert_eq!(call(libc::SYS_munmap, &[map.at, LENGTH]), Ok(0));
        readable.add(peek(map.at).is_ok());
        let fixed = PLAIN | libc::MAP_FIXED as usize;
        let there = call(
            libc::SYS_mmap,
            &[map.at, LENGTH, READ_WRITE, fixed, NO_FILE],
        );
        assert_eq!(there, Ok(map.at));
        map.fill(0x33);
        let map = map.again();
        flags.push(vm_flags(map.at));
        dirty.add(!map.all(0));
        map.unmap();
        readable.add(peek(map.at).is_ok());
    }
    flags.dedup();
    Ok(format!(
        "{dirty} new maps not zero, {readable} unmapped maps read, flags {flags:?}"
    ))
}
