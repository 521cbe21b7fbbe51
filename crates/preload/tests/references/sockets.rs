//! Pages that sockets hold: `MSG_ZEROCOPY`, and the memory of an `AF_XDP` socket.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::raw::{Count, Map, PAGE, READ_WRITE, all, call, checked, number, open, read};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[("msg-zerocopy", zerocopy), ("af-xdp", xdp)];

/// Connects two TCP sockets over loopback.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("loopback");
    let to = TcpStream::connect(address).expect("loopback");
    let (from, _) = listener.accept().expect("loopback");
    (to, from)
}

fn set_to(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: usize,
    length: usize,
) -> Result<(), String> {
    let arguments = [number(socket), level as usize, name as usize, value, length];
    let done = call(libc::SYS_setsockopt, &arguments);
    done.map(drop)
        .map_err(|errno| format!("setsockopt {level}, {name}: {errno}"))
}

fn set(socket: &impl AsRawFd, name: i32, value: i32) -> Result<(), String> {
    set_to(socket, libc::SOL_SOCKET, name, &raw const value as usize, 4)
}

/// Allows zero-copy sends, and more bytes in the send queue than the receiver's window takes.
pub(crate) fn let_send_much(to: &TcpStream) -> Result<(), String> {
    const SO_ZEROCOPY: i32 = 60;
    set(to, SO_ZEROCOPY, 1)?;
    set(to, libc::SO_SNDBUFFORCE, 32 << 20)
}

fn zerocopy() -> Seen {
    const PAGES: usize = 4;
    const MESSAGES: usize = 200;
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    let (to, from) = tcp_pair();
    let_send_much(&to)?;
    for round in 0..MESSAGES {
        let byte = 1 + round as u8;
        let map = Map::filled(PAGES, byte);
        let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT;
        // SAFETY: the buffer is as long as it says.
        let done = unsafe { libc::send(to.as_raw_fd(), map.at as *const _, map.length, flags) };
        let done = checked(done).map_err(|errno| format!("MSG_ZEROCOPY: {errno}"))?;
        assert_eq!(done, map.length);
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        map.unmap();
    }
    for round in 0..MESSAGES {
        changed.add(!all(&read(&from, PAGES * PAGE), 1 + round as u8));
    }
    Ok(format!(
        "{changed} messages changed, {dirty} new maps not zero"
    ))
}

const FRAMES: usize = 4;
const FRAME: usize = PAGE;

/// A descriptor of a frame, as in linux/if_xdp.h.
#[repr(C)]
struct Descriptor {
    address: u64,
    length: u32,
    options: u32,
}

/// Maps the send ring of a socket.
fn ring(socket: &OwnedFd, offsets: &libc::xdp_ring_offset) -> usize {
    let length = offsets.desc as usize + FRAMES * size_of::<Descriptor>();
    let shared = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
    let sends = libc::XDP_PGOFF_TX_RING as usize;
    let arguments = [0, length, READ_WRITE, shared, number(socket), sends];
    call(libc::SYS_mmap, &arguments).expect("a ring")
}

/// Works in a network namespace of its own, which ends with the process.
fn xdp() -> Seen {
    let flags = libc::CLONE_NEWNET as usize;
    call(libc::SYS_unshare, &[flags]).map_err(|errno| format!("a network of its own: {errno}"))?;
    up()?;
    let domain = libc::AF_XDP as usize;
    let kind = libc::SOCK_RAW as usize;
    let socket = open("AF_XDP", libc::SYS_socket, &[domain, kind, 0])?;
    let map = Map::filled(FRAMES, 0x11);
    let memory = libc::xdp_umem_reg {
        addr: map.at as u64,
        len: map.length as u64,
        chunk_size: FRAME as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    let option = |name: i32, value: usize, length: usize| {
        set_to(&socket, libc::SOL_XDP, name, value, length)
    };
    let (at, length) = (&raw const memory as usize, size_of_val(&memory));
    option(libc::XDP_UMEM_REG, at, length)?;
    let entries = FRAMES as u32;
    for name in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_TX_RING,
    ] {
        option(name, &raw const entries as usize, 4)?;
    }
    // SAFETY: all zeroes are valid offsets; the kernel fills them.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&offsets) as u32;
    let arguments = [
        number(&socket),
        libc::SOL_XDP as usize,
        libc::XDP_MMAP_OFFSETS as usize,
        &raw mut offsets as usize,
        &raw mut length as usize,
    ];
    assert_eq!(call(libc::SYS_getsockopt, &arguments), Ok(0));
    let ring = ring(&socket, &offsets.tx);
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: 1, // loopback
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let (at, length) = (&raw const address as usize, size_of_val(&address));
    call(libc::SYS_bind, &[number(&socket), at, length])
        .map_err(|errno| format!("AF_XDP on loopback: {errno}"))?;
    let everything = (libc::ETH_P_ALL as u16).to_be();
    let packet = [libc::AF_PACKET as usize, kind, everything.into()];
    let listens = open("AF_PACKET", libc::SYS_socket, &packet)?;

    let map = map.again();
    map.fill(0xbb);
    for frame in 0..FRAMES {
        let descriptor = Descriptor {
            address: (frame * FRAME) as u64,
            length: 100,
            options: 0,
        };
        let at = ring + offsets.tx.desc as usize + frame * size_of::<Descriptor>();
        // SAFETY: the ring is mapped, and as long as its entries; the kernel reads it in sendto.
        unsafe { (at as *mut Descriptor).write_volatile(descriptor) };
    }
    // SAFETY: as above.
    unsafe { ((ring + offsets.tx.producer as usize) as *mut u32).write_volatile(entries) };
    let now = libc::MSG_DONTWAIT as usize;
    let sent = call(libc::SYS_sendto, &[number(&socket), 0, 0, now]);
    sent.map_err(|errno| format!("AF_XDP sends: {errno}"))?;
    let mut changed = Count::default();
    for _ in 0..FRAMES {
        changed.add(!all(&read(&listens, 100), 0x11));
    }
    Ok(format!("{changed} frames changed"))
}

/// Brings the loopback device of this network namespace up.
fn up() -> Result<(), String> {
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    let socket = open(
        "a socket",
        libc::SYS_socket,
        &[libc::AF_INET as usize, kind],
    )?;
    // SAFETY: all zeroes are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
    let at = &raw const request as usize;
    let done = call(
        libc::SYS_ioctl,
        &[number(&socket), libc::SIOCSIFFLAGS as usize, at],
    );
    done.map(drop).map_err(|errno| format!("loopback: {errno}"))
}
