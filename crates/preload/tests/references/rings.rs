//! `io_uring`: registered buffers and rings, requests in flight.

use crate::aio::direct_file;
use crate::direct;
use crate::raw::{Count, Map, PAGE, all, pipe, read, write};
use crate::sockets::{let_send_much, tcp_pair};
use crate::uring::{
    Parameters, READ, READ_FIXED, REGISTER_BUFFER_RING, Request, Ring, SEND_ZC, UNREGISTER_BUFFERS,
    WRITE_FIXED, request,
};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("uring-buffer-read", registered_read),
    ("uring-buffer-write", registered_write),
    ("uring-direct", direct_read),
    ("uring-send-zc", send_zc),
    ("uring-own-ring", own_ring),
    ("uring-buffer-ring", buffer_ring),
    ("uring-read", waiting_read),
];

const PAGES: usize = 4;

fn registered_read() -> Seen {
    let ring = Ring::new()?;
    let mut dirty = Count::default();
    for _ in 0..50 {
        let [reads, writes] = pipe(PAGES * PAGE);
        let old = Map::filled(PAGES, 0x11);
        ring.register_buffer(old)?;
        let map = old.again();
        write(&writes, &[0x22; PAGES * PAGE]);
        ring.submit(&request(READ_FIXED, &reads, old.at, old.length));
        assert_eq!(ring.wait(), old.length as i32);
        dirty.add(!map.all(0));
        ring.register(UNREGISTER_BUFFERS, 0, 0)?;
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

fn registered_write() -> Seen {
    let ring = Ring::new()?;
    let mut changed = Count::default();
    for _ in 0..50 {
        let [reads, writes] = pipe(PAGES * PAGE);
        let old = Map::filled(PAGES, 0x11);
        ring.register_buffer(old)?;
        let map = old.again();
        map.fill(0xbb);
        ring.submit(&request(WRITE_FIXED, &writes, old.at, old.length));
        assert_eq!(ring.wait(), old.length as i32);
        changed.add(!all(&read(&reads, old.length), 0x11));
        ring.register(UNREGISTER_BUFFERS, 0, 0)?;
        map.unmap();
    }
    Ok(format!("{changed} messages changed"))
}

fn direct_read() -> Seen {
    let ring = Ring::new()?;
    let file = direct_file(0xee, direct::PAGES)?;
    let mut dirty = Count::default();
    for _ in 0..20 {
        let map = Map::filled(direct::PAGES, 0x11);
        ring.submit(&request(READ, &file, map.at, map.length));
        let map = map.again();
        assert_eq!(ring.wait(), map.length as i32);
        dirty.add(!map.all(0));
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

fn send_zc() -> Seen {
    const PAGES: usize = 64;
    const MESSAGES: usize = 8;
    let ring = Ring::new()?;
    let mut changed = Count::default();
    let (to, from) = tcp_pair();
    let_send_much(&to)?;
    for round in 0..MESSAGES {
        let map = Map::filled(PAGES, 1 + round as u8);
        ring.submit(&request(SEND_ZC, &to, map.at, map.length));
        match ring.wait() {
            sent if sent == map.length as i32 => {}
            error => return Err(format!("IORING_OP_SEND_ZC: {error}")),
        }
        let map = map.again();
        map.fill(0xbb);
        map.unmap();
    }
    for round in 0..MESSAGES {
        changed.add(!all(&read(&from, PAGES * PAGE), 1 + round as u8));
    }
    Ok(format!("{changed} messages changed"))
}

fn own_ring() -> Seen {
    const NO_MMAP: u32 = 1 << 14;
    let mut dirty = Count::default();
    for _ in 0..20 {
        let [reads, writes] = pipe(PAGE);
        let buffer = Map::bare(1);
        // A page for the requests and one for the rings.
        let old = Map::filled(2, 0);
        let mut about = Parameters {
            flags: NO_MMAP,
            ..Parameters::default()
        };
        about.send_at.memory = old.at as u64;
        about.complete_at.memory = (old.at + PAGE) as u64;
        let ring = Ring::on(about)?;
        ring.submit(&request(READ, &reads, buffer.at, PAGE));
        let map = old.again();
        write(&writes, &[0x22]);
        ring.enter(0, 1);
        assert_eq!(buffer.get(0), 0x22, "the request has completed");
        dirty.add(!map.all(0));
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

fn buffer_ring() -> Seen {
    const BUFFERS: u32 = 512; // two pages
    const OF_GROUP: u16 = 7;
    const SELECT_BUFFER: u8 = 1 << 5;
    let mut changed = Count::default();
    for _ in 0..20 {
        let ring = Ring::new()?;
        let [reads, writes] = pipe(PAGE);
        let buffer = Map::bare(1);
        let map = Map::filled(2, 0);
        let registered = [
            map.at as u64,
            u64::from(BUFFERS) | u64::from(OF_GROUP) << 32,
            0,
            0,
            0,
        ];
        ring.register(REGISTER_BUFFER_RING, registered.as_ptr() as usize, 1)?;
        // The first buffer: its address and length; and that there is one.
        let words = map.at as *mut u64;
        // SAFETY: within the map; the kernel reads it in io_uring_enter.
        unsafe {
            words.write_volatile(buffer.at as u64);
            words.add(1).write_volatile(PAGE as u64 | 1 << 48);
        }
        let map = map.again();
        write(&writes, &[0x22; 100]);
        ring.submit(&Request {
            flags: SELECT_BUFFER,
            buffer: OF_GROUP,
            ..request(READ, &reads, 0, PAGE)
        });
        changed.add(ring.wait() != 100 || buffer.get(99) != 0x22);
        map.unmap();
    }
    Ok(format!("{changed} requests found no buffer"))
}

fn waiting_read() -> Seen {
    let ring = Ring::new()?;
    let mut refused = Count::default();
    for _ in 0..20 {
        let [reads, writes] = pipe(PAGE);
        let map = Map::filled(PAGES, 0x11);
        ring.submit(&request(READ, &reads, map.at, map.length));
        map.unmap();
        write(&writes, &[0x22; 100]);
        refused.add(ring.wait() == -libc::EFAULT);
    }
    Ok(format!("{refused} requests failed with EFAULT"))
}
