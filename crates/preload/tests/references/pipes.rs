//! Pages that a pipe holds (vmsplice), and pages that move on from a pipe without a copy.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::raw::{Count, Map, all, call, checked, memfd, number, pipe, read};
use crate::sockets::tcp_pair;
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("vmsplice", || {
        messages(200, |map| Box::new(spliced(map, 0)))
    }),
    ("vmsplice-gift", || {
        messages(200, |map| Box::new(spliced(map, libc::SPLICE_F_GIFT)))
    }),
    ("vmsplice-free", || {
        messages(200, |map| Box::new(freed(map)))
    }),
    ("vmsplice-fork", read_by_a_child),
    ("tee", || messages(50, |map| Box::new(teed(map)))),
    ("splice-pipe", || messages(50, |map| Box::new(moved(map)))),
    ("splice-unix", || {
        messages(50, |map| {
            let (to, from) = UnixStream::pair().expect("sockets");
            sent(map, &to.into(), from.into())
        })
    }),
    ("splice-tcp", || {
        messages(50, |map| {
            let (to, from) = tcp_pair();
            sent(map, &to.into(), from.into())
        })
    }),
    ("splice-file", || messages(50, |map| Box::new(written(map)))),
    ("vmsplice-out", taken_out),
];

/// Receives the message of a number of bytes.
type Later = Box<dyn FnOnce(usize) -> Vec<u8>>;

const PAGES: usize = 4;

/// Sends messages by reference. Unmaps each message's map, maps as much again and writes to it before receiving.
fn messages(rounds: usize, send: impl Fn(Map) -> Later) -> Seen {
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    for round in 0..rounds {
        let byte = 1 + (round % 100) as u8;
        let map = Map::filled(PAGES, byte);
        let later = send(map);
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        changed.add(!all(&later(map.length), byte));
        map.unmap();
    }
    Ok(format!(
        "{changed} messages changed, {dirty} new maps not zero"
    ))
}

fn splice_in(map: Map, pipe: &OwnedFd, flags: u32) {
    let vector = [map.at, map.length];
    let vector = vector.as_ptr() as usize;
    let arguments = [number(pipe), vector, 1, flags as usize];
    assert_eq!(call(libc::SYS_vmsplice, &arguments), Ok(map.length));
}

fn splice(from: &OwnedFd, to: &OwnedFd, length: usize) {
    let mut left = length;
    while left > 0 {
        let arguments = [number(from), 0, number(to), 0, left, 0];
        left -= call(libc::SYS_splice, &arguments).expect("splice");
    }
}

fn spliced(map: Map, flags: u32) -> impl FnOnce(usize) -> Vec<u8> {
    let [reads, writes] = pipe(map.length);
    splice_in(map, &writes, flags);
    move |length| {
        drop(writes);
        read(&reads, length)
    }
}

fn freed(map: Map) -> impl FnOnce(usize) -> Vec<u8> {
    let later = spliced(map, 0);
    // SAFETY: what this map holds is not looked at any more, but by the pipe.
    let done = unsafe { libc::madvise(map.at as *mut libc::c_void, map.length, libc::MADV_FREE) };
    assert_eq!(checked(done as isize), Ok(0));
    later
}

fn teed(map: Map) -> impl FnOnce(usize) -> Vec<u8> {
    let (first, other) = (pipe(map.length), pipe(map.length));
    splice_in(map, &first[1], 0);
    let arguments = [number(&first[0]), number(&other[1]), map.length, 0];
    assert_eq!(call(libc::SYS_tee, &arguments), Ok(map.length));
    read(&first[0], map.length);
    move |length| read(&other[0], length)
}

fn moved(map: Map) -> impl FnOnce(usize) -> Vec<u8> {
    let (first, other) = (pipe(map.length), pipe(map.length));
    splice_in(map, &first[1], 0);
    splice(&first[0], &other[1], map.length);
    move |length| read(&other[0], length)
}

fn sent(map: Map, to: &OwnedFd, from: OwnedFd) -> Later {
    let [reads, writes] = pipe(map.length);
    splice_in(map, &writes, 0);
    splice(&reads, to, map.length);
    Box::new(move |length| read(&from, length))
}

fn written(map: Map) -> impl FnOnce(usize) -> Vec<u8> {
    let [reads, writes] = pipe(map.length);
    let file = memfd(0);
    splice_in(map, &writes, 0);
    splice(&reads, &file, map.length);
    move |length| {
        let mut bytes = vec![0; length];
        // SAFETY: the buffer is as long as it says.
        let got = unsafe { libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), length, 0) };
        assert_eq!(checked(got), Ok(length));
        bytes
    }
}

/// Receives the message in another process.
fn read_by_a_child() -> Seen {
    let [reads, writes] = pipe(PAGES * 4096);
    let go = pipe(4096);
    // SAFETY: the program has one thread; the child reads and ends.
    let child: c_int = unsafe { libc::fork() };
    if child == 0 {
        read(&go[0], 1);
        let kept = all(&read(&reads, PAGES * 4096), 0x11);
        // SAFETY: nothing of the parent's is run.
        unsafe { libc::_exit(kept.into()) };
    }
    let map = Map::filled(PAGES, 0x11);
    splice_in(map, &writes, 0);
    let map = map.again();
    map.fill(0xbb);
    crate::raw::write(&go[1], &[1]);
    let kept = crate::raw::wait_for(child) == 1;
    let seen = if kept { "as it was sent" } else { "changed" };
    Ok(format!("the message {seen}"))
}

fn taken_out() -> Seen {
    let mut dirty = Count::default();
    for _ in 0..50 {
        let [reads, writes] = pipe(PAGES * 4096);
        crate::raw::write(&writes, &[0x22; PAGES * 4096]);
        let map = Map::filled(PAGES, 0x11);
        let vector = [map.at, map.length];
        let arguments = [number(&reads), vector.as_ptr() as usize, 1, 0];
        assert_eq!(call(libc::SYS_vmsplice, &arguments), Ok(map.length));
        let map = map.again();
        dirty.add(!map.all(0));
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}
