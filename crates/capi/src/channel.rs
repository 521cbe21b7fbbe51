//! The channel: both ends behind one kind of handle.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::Mutex;
use std::time::Duration;

use stopgap_arena::Error;
use stopgap_arena::channel::{Client, Options, Server, Statistics};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, borrow, close, duplicate, put, structs};
use crate::handle::{CHANNELS, End, LISTENERS, open, stopgap_channel, stopgap_listener};

structs! {
    stopgap_channel_options, 40:
        ring: usize, spin_ns: u64, idle_ns: u64, connect_ns: u64,;

    stopgap_channel_statistics, 56 from Statistics:
        sent: u64, received: u64, wakes: u64, wakes_by_socket: u64, spun: u64, sleeps: u64,;
}

/// Descriptors that may go with a message.
const MOST_FDS: usize = 16;

/// # Safety
/// `options` is NULL or a `struct stopgap_channel_options` with its size filled in.
unsafe fn usual(options: *const stopgap_channel_options) -> Result<Options> {
    // SAFETY: the caller's promise.
    let theirs = unsafe { given::read(options) }?;
    let mut ours = Options::default();
    given::set(&mut ours.ring, theirs.ring);
    for (ours, theirs) in [
        (&mut ours.spin, theirs.spin_ns),
        (&mut ours.idle, theirs.idle_ns),
        (&mut ours.connect, theirs.connect_ns),
    ] {
        match theirs {
            u64::MAX => *ours = Duration::ZERO,
            theirs => given::set_time(ours, theirs),
        }
    }
    Ok(ours)
}

/// A time to wait; negative: for ever.
fn timeout(ns: i64) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

fn open_end(end: End) -> Result<*mut stopgap_channel> {
    open(&CHANNELS, Mutex::new(end))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_listen(
    path: *const c_char,
) -> *mut stopgap_listener {
    enter(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { given::path(path) }?;
        open(&LISTENERS, Server::bind(path)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_listener_fd(listener: *mut stopgap_listener) -> c_int {
    LISTENERS.call(listener, |listener| Ok(listener.fd().as_raw_fd()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_listener_close(listener: *mut stopgap_listener) -> c_int {
    enter(|| LISTENERS.close(listener).map(drop))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_accept(
    listener: *mut stopgap_listener,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    LISTENERS.call(listener, |listener| {
        // SAFETY: the caller's promise.
        let options = unsafe { usual(options) }?;
        open_end(listener.accept(&options)?.of_either_side())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_connect(
    path: *const c_char,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    enter(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (given::path(path)?, usual(options)?) };
        open_end(Client::connect(path, &options)?.of_either_side())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_over(
    socket: c_int,
    server: c_int,
    options: *const stopgap_channel_options,
) -> *mut stopgap_channel {
    enter(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { usual(options) }?;
        // Until all went well the socket is the caller's.
        let ours = duplicate(borrow(socket)?)?;
        let end = match server {
            0 => Client::over(ours, &options)?.of_either_side(),
            1 => Server::over(ours, &options)?.of_either_side(),
            _ => {
                return Err(Failure::argument("server is 1, or 0 at the client's side"));
            }
        };
        let handle = open_end(end)?;
        // SAFETY: the caller's promise: it is the channel's now, which has a twin of it.
        unsafe { close(socket) };
        Ok(handle)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_send(
    channel: *mut stopgap_channel,
    message: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> c_int {
    CHANNELS.alone(channel, |end| {
        // SAFETY: the caller's promise.
        let message = unsafe { given::bytes(message, length, "the message") }?;
        end.send(message, timeout(timeout_ns)).map_err(of_message)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_send_fds(
    channel: *mut stopgap_channel,
    message: *const c_void,
    length: usize,
    fds: *const c_int,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    CHANNELS.alone(channel, |end| {
        if fds.is_null() && count > 0 {
            return Err(Failure::Null("the descriptors"));
        }
        if count > MOST_FDS {
            return Err(Failure::argument(
                "more descriptors than may go with a message",
            ));
        }
        let mut borrowed: Vec<BorrowedFd<'_>> = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: the caller's promise.
            borrowed.push(borrow(unsafe { fds.add(i).read() })?);
        }
        // SAFETY: the caller's promise.
        let message = unsafe { given::bytes(message, length, "the message") }?;
        end.send_fds(message, &borrowed, timeout(timeout_ns))
            .map_err(of_message)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_flush(channel: *mut stopgap_channel) -> c_int {
    CHANNELS.alone(channel, |end| Ok(end.flush()?))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_recv(
    channel: *mut stopgap_channel,
    buffer: *mut c_void,
    size: usize,
    timeout_ns: i64,
) -> isize {
    CHANNELS.alone(channel, |end| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { given::room(buffer, size, "the buffer") }?;
        receive(end, buffer, timeout_ns)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_call(
    channel: *mut stopgap_channel,
    request: *const c_void,
    length: usize,
    reply: *mut c_void,
    size: usize,
    timeout_ns: i64,
) -> isize {
    CHANNELS.alone(channel, |end| {
        // SAFETY: the caller's promise.
        let request = unsafe { given::bytes(request, length, "the request") }?;
        given::check_bytes(reply.is_null(), size, "the reply")?;
        end.send(request, timeout(timeout_ns)).map_err(of_message)?;
        // SAFETY: the caller's promise. The slice of the request is no longer used, so they may be the same bytes.
        let reply = unsafe { given::room(reply, size, "the reply") }?;
        receive(end, reply, timeout_ns)
    })
}

fn receive(end: &mut End, buffer: &mut [u8], timeout_ns: i64) -> Result<isize> {
    let length = end.recv_into(buffer, timeout(timeout_ns));
    // No longer than the buffer, and that is at most isize::MAX.
    Ok(length.map_err(of_message)? as isize)
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_next(
    channel: *mut stopgap_channel,
    length: *mut usize,
) -> c_int {
    CHANNELS.alone(channel, |end| {
        let Some(bytes) = end.next_length()? else {
            return Ok(false);
        };
        // SAFETY: the caller's promise.
        unsafe { put(length, bytes) };
        Ok(true)
    })
}

/// Hands over as many descriptors of the message that was received last as there is room for; the rest is closed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_take_fds(
    channel: *mut stopgap_channel,
    fds: *mut c_int,
    size: usize,
) -> c_int {
    CHANNELS.alone(channel, |end| {
        if fds.is_null() && size > 0 {
            return Err(Failure::Null("the descriptors"));
        }
        let mut count = 0;
        for fd in end.take_fds().into_iter().take(size) {
            // SAFETY: the caller's promise; count < size.
            unsafe { fds.add(count).write(fd.into_raw_fd()) };
            count += 1;
        }
        // At most MOST_FDS.
        Ok(count as c_int)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_arm(channel: *mut stopgap_channel) -> c_int {
    CHANNELS.alone(channel, |end| Ok(end.arm()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_fd(channel: *mut stopgap_channel) -> c_int {
    CHANNELS.alone(channel, |end| Ok(end.fd().as_raw_fd()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_check_peer(channel: *mut stopgap_channel) -> c_int {
    CHANNELS.alone(channel, |end| Ok(end.check_peer()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_longest(channel: *mut stopgap_channel) -> isize {
    // A ring has at most 1 GiB.
    CHANNELS.alone(channel, |end| Ok(end.longest() as isize))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_channel_stat(
    channel: *mut stopgap_channel,
    statistics: *mut stopgap_channel_statistics,
) -> c_int {
    CHANNELS.alone(channel, |end| {
        let counters = end.statistics().into();
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &counters, "the statistics") }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_channel_close(channel: *mut stopgap_channel) -> c_int {
    enter(|| CHANNELS.close(channel).map(drop))
}
