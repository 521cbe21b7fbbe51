//! The channel: both ends behind one kind of handle.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use stopgap_arena::Error;
use stopgap_arena::channel::{Client, Listener, Options, Server, Statistics};

use crate::descriptor::{borrow, close, twin};
use crate::guard::enter;
use crate::handle::{Kind, Table};
use crate::opaque::{stopgap_channel, stopgap_listener};
use crate::sized::{self, Struct};
use crate::solo::Solo;
use crate::{Failure, Result, bytes};

/// Descriptors that may go with a message.
const MOST_FDS: usize = 16;

/// `struct stopgap_channel_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct stopgap_channel_options {
    pub(crate) size: usize,
    pub(crate) ring: usize,
    pub(crate) spin_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) connect_ns: u64,
}

// SAFETY: integers of 8 bytes each, the size first.
unsafe impl Struct for stopgap_channel_options {
    const FIRST: usize = 40;
}

/// `struct stopgap_channel_statistics`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct stopgap_channel_statistics {
    pub(crate) size: usize,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) wakes: u64,
    pub(crate) wakes_by_socket: u64,
    pub(crate) spun: u64,
    pub(crate) sleeps: u64,
}

// SAFETY: integers of 8 bytes each, the size first.
unsafe impl Struct for stopgap_channel_statistics {
    const FIRST: usize = 56;
}

/// The same calls at either end.
pub(crate) enum End {
    Client(Client),
    Server(Server),
}

/// Calls a method of whichever end it is.
macro_rules! either {
    ($end:expr, $inner:ident => $call:expr) => {
        match $end {
            End::Client($inner) => $call,
            End::Server($inner) => $call,
        }
    };
}

pub(crate) static TABLE: Table<Solo<End>, 1> = Table::new(Kind::Channel);
pub(crate) static LISTENERS: Table<Listener, 1> = Table::new(Kind::Listener);

/// # Safety
/// `options` is NULL or a `struct stopgap_channel_options` with its size filled in.
unsafe fn usual(options: *const stopgap_channel_options) -> Result<Options> {
    let mut ours = Options::default();
    // SAFETY: the caller's promise.
    let Some(theirs) = (unsafe { sized::read(options) })? else {
        return Ok(ours);
    };
    let time = |usual: &mut Duration, given: u64| match given {
        0 => {}
        u64::MAX => *usual = Duration::ZERO,
        given => *usual = Duration::from_nanos(given),
    };
    if theirs.ring != 0 {
        ours.ring = theirs.ring;
    }
    time(&mut ours.spin, theirs.spin_ns);
    time(&mut ours.idle, theirs.idle_ns);
    time(&mut ours.connect, theirs.connect_ns);
    Ok(ours)
}

/// # Safety
/// `path` is NULL or a string that ends with a NUL.
unsafe fn at<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Failure::Null { what: "the path" });
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// A time to wait; negative: for ever.
fn timeout(ns: i64) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

fn open(end: End) -> Result<*mut stopgap_channel> {
    TABLE.insert(Solo::new(end))
}

/// Listens at a path.
///
/// # Safety
/// `path` is NULL or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_listen(path: *const c_char) -> *mut stopgap_listener {
    enter(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { at(path) }?;
        LISTENERS.insert(Server::bind(path)?)
    })
}

/// The listening socket.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_listener_fd(listener: *mut stopgap_listener) -> c_int {
    enter(|| Ok(LISTENERS.get(listener)?.fd().as_raw_fd()))
}

/// Stops listening.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_listener_close(listener: *mut stopgap_listener) -> c_int {
    enter(|| {
        drop(LISTENERS.close(listener)?);
        Ok(0)
    })
}

/// The next client's channel.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_channel_options` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_accept(
    listener: *mut stopgap_listener,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    enter(|| {
        let used = LISTENERS.get(listener)?;
        // SAFETY: the caller's promise.
        let options = unsafe { usual(options) }?;
        open(End::Server(used.accept(&options)?))
    })
}

/// A channel to the server at a path.
///
/// # Safety
/// `path` is NULL or a string that ends with a NUL; `options` is NULL or a `struct stopgap_channel_options` with
/// its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_connect(
    path: *const c_char,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    enter(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (at(path)?, usual(options)?) };
        open(End::Client(Client::connect(path, &options)?))
    })
}

/// An end over a socket that is there already.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_channel_options` with its size filled in. Where this succeeds, nobody else
/// uses the descriptor any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_over(
    socket: c_int,
    server: c_int,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    enter(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { usual(options) }?;
        // Until all went well the socket is the caller's.
        let ours = twin(socket)?;
        let end = match server {
            0 => End::Client(Client::over(ours, &options)?),
            1 => End::Server(Server::over(ours, &options)?),
            _ => {
                return Err(Failure::Argument {
                    what: "server is 1, or 0 at the client's side",
                });
            }
        };
        let handle = open(end)?;
        // SAFETY: the caller's promise: it is the channel's now, which has a twin of it.
        unsafe { close(socket) };
        Ok(handle)
    })
}

/// Puts a message into the ring.
///
/// # Safety
/// `length` bytes can be read at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_send(
    channel: *mut stopgap_channel,
    message: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        // SAFETY: the caller's promise.
        let message = unsafe { bytes::read(message, length, "the message") }?;
        let mut end = used.take()?;
        either!(&mut *end, end => end.send(message, timeout(timeout_ns))).map_err(of_message)?;
        Ok(0)
    })
}

/// Puts a message with descriptors into the ring.
///
/// # Safety
/// `length` bytes can be read at `message`, `count` numbers at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_send_fds(
    channel: *mut stopgap_channel,
    message: *const c_void,
    length: usize,
    fds: *const c_int,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        if fds.is_null() && count > 0 {
            return Err(Failure::Null {
                what: "the descriptors",
            });
        }
        if count > MOST_FDS {
            return Err(Failure::Argument {
                what: "more descriptors than may go with a message",
            });
        }
        let mut borrowed: Vec<BorrowedFd<'_>> = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: the caller's promise.
            borrowed.push(borrow(unsafe { fds.add(i).read() })?);
        }
        // SAFETY: the caller's promise.
        let message = unsafe { bytes::read(message, length, "the message") }?;
        let mut end = used.take()?;
        either!(&mut *end, end => end.send_fds(message, &borrowed, timeout(timeout_ns)))
            .map_err(of_message)?;
        Ok(0)
    })
}

/// Wakes the peer.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_flush(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let mut end = used.take()?;
        either!(&mut *end, end => end.flush())?;
        Ok(0)
    })
}

/// Waits for a message.
///
/// # Safety
/// `size` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_recv(
    channel: *mut stopgap_channel,
    buffer: *mut c_void,
    size: usize,
    timeout_ns: i64,
) -> isize {
    enter(|| {
        let used = TABLE.get(channel)?;
        // SAFETY: the caller's promise.
        let buffer = unsafe { bytes::write(buffer, size, "the buffer") }?;
        let mut end = used.take()?;
        receive(&mut end, buffer, timeout(timeout_ns))
    })
}

/// Sends a request and waits for a message.
///
/// # Safety
/// `length` bytes can be read at `request`, `size` bytes can be written at `reply`; both may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_call(
    channel: *mut stopgap_channel,
    request: *const c_void,
    length: usize,
    reply: *mut c_void,
    size: usize,
    timeout_ns: i64,
) -> isize {
    enter(|| {
        let used = TABLE.get(channel)?;
        let mut end = used.take()?;
        {
            // SAFETY: the caller's promise.
            let request = unsafe { bytes::read(request, length, "the request") }?;
            if size > 0 && reply.is_null() {
                return Err(Failure::Null { what: "the reply" });
            }
            either!(&mut *end, end => end.send(request, timeout(timeout_ns)))
                .map_err(of_message)?;
        }
        // SAFETY: the caller's promise. The slice of the request is no longer used, so they may be the same bytes.
        let reply = unsafe { bytes::write(reply, size, "the reply") }?;
        receive(&mut end, reply, timeout(timeout_ns))
    })
}

fn receive(end: &mut End, buffer: &mut [u8], timeout: Option<Duration>) -> Result<isize> {
    let length = either!(end, end => end.recv_into(buffer, timeout)).map_err(of_message)?;
    // No longer than the buffer, and that is at most isize::MAX.
    Ok(length as isize)
}

/// A limit of the channel's is one of a message's length.
fn of_message(error: Error) -> Failure {
    match error {
        Error::Limit { asked, limit, .. } => Failure::TooLong {
            bytes: asked,
            room: limit,
        },
        other => other.into(),
    }
}

/// Whether a message is there, and how long it is.
///
/// # Safety
/// `length` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_next(
    channel: *mut stopgap_channel,
    length: *mut usize,
) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let mut end = used.take()?;
        let Some(bytes) = either!(&mut *end, end => end.next_length())? else {
            return Ok(0);
        };
        if !length.is_null() {
            // SAFETY: the caller's promise.
            unsafe { length.write(bytes) };
        }
        Ok(1)
    })
}

/// The descriptors of the message that was received last.
///
/// # Safety
/// `size` numbers can be written at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_take_fds(
    channel: *mut stopgap_channel,
    fds: *mut c_int,
    size: usize,
) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        if fds.is_null() && size > 0 {
            return Err(Failure::Null {
                what: "the descriptors",
            });
        }
        let mut end = used.take()?;
        let taken: Vec<OwnedFd> = either!(&mut *end, end => end.take_fds());
        let count = taken.len().min(size);
        for (i, fd) in taken.into_iter().take(count).enumerate() {
            // SAFETY: the caller's promise; i < size.
            unsafe { fds.add(i).write(fd.into_raw_fd()) };
        }
        // At most MOST_FDS.
        Ok(count as c_int)
    })
}

/// Asks to be woken by the socket.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_arm(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let mut end = used.take()?;
        Ok(c_int::from(either!(&mut *end, end => end.arm())?))
    })
}

/// The socket beside the ring.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_fd(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let end = used.take()?;
        Ok(either!(&*end, end => end.fd().as_raw_fd()))
    })
}

/// Asks whether the peer is there.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_check_peer(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let mut end = used.take()?;
        either!(&mut *end, end => end.check_peer())?;
        Ok(0)
    })
}

/// Bytes of the longest message.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_longest(channel: *mut stopgap_channel) -> isize {
    enter(|| {
        let used = TABLE.get(channel)?;
        let end = used.take()?;
        // A ring has at most 1 GiB.
        Ok(either!(&*end, end => end.longest()) as isize)
    })
}

/// What an end did.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_channel_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_stat(
    channel: *mut stopgap_channel,
    statistics: *mut stopgap_channel_statistics,
) -> c_int {
    enter(|| {
        let used = TABLE.get(channel)?;
        let end = used.take()?;
        let Statistics {
            sent,
            received,
            wakes,
            wakes_by_socket,
            spun,
            sleeps,
        } = either!(&*end, end => end.statistics());
        let value = stopgap_channel_statistics {
            size: 0,
            sent,
            received,
            wakes,
            wakes_by_socket,
            spun,
            sleeps,
        };
        // SAFETY: the caller's promise.
        unsafe { sized::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Hangs up.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_close(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        drop(TABLE.close(channel)?);
        Ok(0)
    })
}
