//! The tables of all handles, and what C calls the handles.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ::stopgap_arena::Arena;
use ::stopgap_arena::channel::{Client, Listener, Server};
use ::stopgap_arena::chunked::Buffer;
use ::stopgap_arena::coalesce::Writer;
use ::stopgap_arena::locked::{Held, Set, Watch};

use crate::failure::Result;
use crate::handle::{Kind, OneCall, Table};

/// Types of the header that no value ever has: C only sees pointers to them.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            #[repr(C)]
            #[allow(non_camel_case_types)]
            pub struct $name {
                _nothing: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// A writer that gathers replies.
    stopgap_writer;
    /// One end of a channel.
    stopgap_channel;
    /// The socket at which a server waits for clients.
    stopgap_listener;
    /// A locked set.
    stopgap_set;
    /// Memory of a locked set.
    stopgap_held;
    /// Address space, and buffers in it.
    stopgap_arena;
    /// A chunked buffer.
    stopgap_buffer;
}

/// A locked set, and the thread that watches for it.
pub(crate) struct WatchedSet {
    /// Before the set, which the thread uses: dropped first.
    pub(crate) watch: Mutex<Option<Watch>>,
    pub(crate) set: Set,
}

/// One end of a channel.
pub(crate) enum End {
    Client(Client),
    Server(Server),
}

/// Several threads allocate at once, so a slot has several counters of users.
pub(crate) static ARENAS: Table<Arena, 8> = Table::new(Kind::Arena);
pub(crate) static BUFFERS: Table<Buffer, 1> = Table::new(Kind::Buffer);
pub(crate) static SETS: Table<WatchedSet, 1> = Table::new(Kind::Set);
pub(crate) static HELD: Table<Held, 1> = Table::new(Kind::Held);
pub(crate) static CHANNELS: Table<OneCall<End>, 1> = Table::new(Kind::Channel);
pub(crate) static LISTENERS: Table<Listener, 1> = Table::new(Kind::Listener);
pub(crate) static WRITERS: Table<OneCall<Writer<OwnedFd>>, 1> = Table::new(Kind::Writer);

/// Returns a handle for `object`, and prepares for forks.
pub(crate) fn open<T: Send + Sync, H, const N: usize>(
    table: &Table<T, N>,
    object: T,
) -> Result<*mut H> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Relaxed) && !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: `forked` only stores to atomics. Where this fails for want of memory, a child may find a handle busy
        // that another thread of its parent was in a call with, and nothing else.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
    table.insert(object)
}

/// Called first in the child of a fork(2).
///
/// A signal handler that interrupts a call and forks leaves that call's count below 0: the handle works in the child,
/// but cannot be closed there.
extern "C" fn forked() {
    ARENAS.forked();
    BUFFERS.forked();
    SETS.forked();
    HELD.forked();
    CHANNELS.forked();
    LISTENERS.forked();
    WRITERS.forked();
}
