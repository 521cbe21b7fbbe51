//! The channel: both ends behind one kind of handle.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use stopgap_arena::Error;
use stopgap_arena::channel::{Client, Options, Server};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, borrow, close, duplicate, put, structs};
use crate::handle::OneCall;
use crate::tables::{CHANNELS, End, LISTENERS, open, stopgap_channel, stopgap_listener};

structs! {
    stopgap_channel_options, 40:
        ring: usize, spin_ns: u64, idle_ns: u64, connect_ns: u64,;

    stopgap_channel_statistics, 56:
        sent: u64, received: u64, wakes: u64, wakes_by_socket: u64, spun: u64, sleeps: u64,;
}

/// Descriptors that may go with a message.
const MOST_FDS: usize = 16;

/// Calls a method of whichever end it is.
macro_rules! either {
    ($end:expr, $inner:ident => $call:expr) => {
        match $end {
            End::Client($inner) => $call,
            End::Server($inner) => $call,
        }
    };
}

/// # Safety
/// `options` is NULL or a `struct stopgap_channel_options` with its size filled in.
unsafe fn usual(options: *const stopgap_channel_options) -> Result<Options> {
    let mut ours = Options::default();
    // SAFETY: the caller's promise.
    let Some(theirs) = (unsafe { given::read(options) })? else {
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

/// A time to wait; negative: for ever.
fn timeout(ns: i64) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

fn open_end(end: End) -> Result<*mut stopgap_channel> {
    open(&CHANNELS, OneCall::new(end))
}

/// Listens at a path.
///
/// # Safety
/// `path` is NULL or a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_listen(path: *const c_char) -> *mut stopgap_listener {
    enter(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { given::path(path) }?;
        open(&LISTENERS, Server::bind(path)?)
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
    enter(|| LISTENERS.close(listener).map(drop))
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
        open_end(End::Server(used.accept(&options)?))
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
        let (path, options) = unsafe { (given::path(path)?, usual(options)?) };
        open_end(End::Client(Client::connect(path, &options)?))
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
        let ours = duplicate(socket)?;
        let end = match server {
            0 => End::Client(Client::over(ours, &options)?),
            1 => End::Server(Server::over(ours, &options)?),
            _ => {
                return Err(Failure::Argument("server is 1, or 0 at the client's side"));
            }
        };
        let handle = open_end(end)?;
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
        let used = CHANNELS.get(channel)?;
        // SAFETY: the caller's promise.
        let message = unsafe { given::bytes(message, length, "the message") }?;
        let mut end = used.begin()?;
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
        let used = CHANNELS.get(channel)?;
        if fds.is_null() && count > 0 {
            return Err(Failure::Null {
                what: "the descriptors",
            });
        }
        if count > MOST_FDS {
            return Err(Failure::Argument(
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
        let mut end = used.begin()?;
        either!(&mut *end, end => end.send_fds(message, &borrowed, timeout(timeout_ns)))
            .map_err(of_message)?;
        Ok(0)
    })
}

/// Wakes the peer.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_flush(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = CHANNELS.get(channel)?;
        let mut end = used.begin()?;
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
        let used = CHANNELS.get(channel)?;
        // SAFETY: the caller's promise.
        let buffer = unsafe { given::room(buffer, size, "the buffer") }?;
        let mut end = used.begin()?;
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
        let used = CHANNELS.get(channel)?;
        let mut end = used.begin()?;
        {
            // SAFETY: the caller's promise.
            let request = unsafe { given::bytes(request, length, "the request") }?;
            if size > 0 && reply.is_null() {
                return Err(Failure::Null { what: "the reply" });
            }
            either!(&mut *end, end => end.send(request, timeout(timeout_ns)))
                .map_err(of_message)?;
        }
        // SAFETY: the caller's promise. The slice of the request is no longer used, so they may be the same bytes.
        let reply = unsafe { given::room(reply, size, "the reply") }?;
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
        let used = CHANNELS.get(channel)?;
        let mut end = used.begin()?;
        let Some(bytes) = either!(&mut *end, end => end.next_length())? else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe { put(length, bytes) };
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
        let used = CHANNELS.get(channel)?;
        if fds.is_null() && size > 0 {
            return Err(Failure::Null {
                what: "the descriptors",
            });
        }
        let mut end = used.begin()?;
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
        let used = CHANNELS.get(channel)?;
        let mut end = used.begin()?;
        Ok(either!(&mut *end, end => end.arm())?)
    })
}

/// The socket beside the ring.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_fd(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = CHANNELS.get(channel)?;
        let end = used.begin()?;
        Ok(either!(&*end, end => end.fd().as_raw_fd()))
    })
}

/// Asks whether the peer is there.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_check_peer(channel: *mut stopgap_channel) -> c_int {
    enter(|| {
        let used = CHANNELS.get(channel)?;
        let mut end = used.begin()?;
        either!(&mut *end, end => end.check_peer())?;
        Ok(0)
    })
}

/// Bytes of the longest message.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_longest(channel: *mut stopgap_channel) -> isize {
    enter(|| {
        let used = CHANNELS.get(channel)?;
        let end = used.begin()?;
        // A ring has at most 1 GiB.
        Ok(either!(&*end, end => end.longest()) as isize)
    })
}

/// Fills in counters of this end.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_channel_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_channel_stat(
    channel: *mut stopgap_channel,
    statistics: *mut stopgap_channel_statistics,
) -> c_int {
    enter(|| {
        let used = CHANNELS.get(channel)?;
        let end = used.begin()?;
        let got = either!(&*end, end => end.statistics());
        let value = stopgap_channel_statistics {
            size: 0,
            sent: got.sent,
            received: got.received,
            wakes: got.wakes,
            wakes_by_socket: got.wakes_by_socket,
            spun: got.spun,
            sleeps: got.sleeps,
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Hangs up.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_channel_close(channel: *mut stopgap_channel) -> c_int {
    enter(|| CHANNELS.close(channel).map(drop))
}
