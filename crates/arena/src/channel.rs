//! A channel: requests and replies between two processes over memory that both map, with at most one wake-up for many.
//!
//! # Contract
//!
//! Messages of 0 to [`End::longest`] bytes arrive whole, once, in order, in each direction. A send makes a message
//! visible; a sleeping peer is woken by [`End::flush`], which every wait does first: so 32 replies cost one wake-up. The
//! peer may be hostile. With any bytes of the peer's in it, this process reads no byte outside of the ring, hands out no reference into
//! it, and gets [`Error::Peer`](crate::Error::Peer) where the peer broke a rule. The peer may die at any time: who waits
//! gets [`Error::PeerGone`](crate::Error::PeerGone), after everything that was sent whole.
//!
//! ```
//! # fn main() -> stopgap_arena::Result<()> {
//! use stopgap_arena::channel::{Options, pair};
//!
//! let (mut server, mut client) = pair(&Options::default())?;
//! let serving = std::thread::spawn(move || {
//!     server.serve(|request, reply| reply.extend(request.iter().rev()))
//! });
//! let mut reply = Vec::new();
//! client.call(b"stop", &mut reply, None)?;
//! assert_eq!(reply, b"pots");
//! for request in [b"one", b"two"] {
//!     client.send(request, None)?; // wakes nobody
//! }
//! for expected in [b"eno", b"owt"] {
//!     client.recv(&mut reply, None)?; // the first wakes the server, once
//!     assert_eq!(reply, expected);
//! }
//! drop(client);
//! serving.join().unwrap()?;
//! # Ok(())
//! # }
//! ```
//!
//! # How
//!
//! Two rings in one memfd, one a direction, written by one side each, without a lock (`ring`: the picture, the
//! handshake, what is believed of the peer). Who finds nothing waits in up to three ways:
//!
//! ```text
//!            nothing there       it no longer pays        idle (10 ms)
//! client  ---|~~~~~~ spins ~~~~~~|...... on the futex .....|........ on the socket ..............
//!            only where the peer     woken by futex(2)         woken by a packet of 1 byte, or by
//!            runs on another CPU                               the peer's end, at once, for ever
//! ```
//!
//! * It *spins* where both sides' published CPUs differ, and as long as sleeping would cost, which is measured (`spin`).
//!   On one CPU it never does: there the peer cannot run until we sleep.
//! * It sleeps on a *futex*: the cheapest sleep and the cheapest wake-up. A futex does not tell that its peer was killed,
//!   so this sleep has an end, [`Options::idle`].
//! * Then it asks to be woken by the Unix *socket* beside the ring, and sleeps in ppoll(2) for as long as it takes. The
//!   kernel closes a killed process's sockets, and that ends the sleep. Nothing is polled: an idle end wakes once.
//!
//! So an end that has waited longer than `idle` sees the peer's death at once, and others within `idle`; with `idle`
//! 0 always at once, and wake-ups cost a socket's. The same third way is what [`End::arm`] uses, for event loops.
//!
//! # Cost
//!
//! A message is copied in and out. Where both spin: no system call. Where they sleep: one futex(2) to wake and one to
//! sleep, a side and a round trip; on one CPU that makes 2 switches. `stopgap-bench channel` measures it beside sockets
//! and poll(2); `docs/fixes/channel.md` has the figures.
//!
//! # Lineage
//!
//! The rings are io_uring's (`io_uring/io_uring.c`: two rings, each index written by one side, an index read once), as
//! is the flag that says "wake me" (`IORING_SQ_NEED_WAKEUP`). That wake-ups are owed only when somebody asked, and not
//! for each message, is virtio's event index (`vring_need_event()`, `include/uapi/linux/virtio_ring.h`); ours asks for
//! one message or for room, and the producer decides how many it gathers. To wait on several words at once there is
//! futex_waitv(2) (Linux 5.16), but not on a word and a socket; hence the third way of waiting.
//!
//! # What is left out
//!
//! * A robust futex (set_robust_list(2)) would tell of a peer's death by itself, but belongs to a thread, to the C
//!   library, and keeps its list in memory that the peer could write.
//! * io_uring can wait on a futex and a socket at once (Linux 6.7), and is switched off in many places.
//! * More than two sides; several threads at one end; messages longer than the ring; replies out of order (number the
//!   requests); zero-copy: what a hostile peer can change under the reader is not handed out.

#[cfg(not(loom))]
pub use connect::{Asks, Listener, Serves, pair};
#[cfg(not(loom))]
pub use end::End;

// Loom's atomics cannot lie in memory that is mapped: under it there is the ring alone, and its models.
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod end;
#[cfg(all(test, loom))]
mod loom;
#[cfg(not(loom))]
mod memory;
#[cfg(test)]
mod own_memory;
#[cfg_attr(loom, allow(dead_code))]
mod ring;
#[cfg(not(loom))]
mod spin;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Duration;

/// The page's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/channel.md")]
pub struct Page;

/// The end that sends requests and receives replies.
#[cfg(not(loom))]
pub type Client = End<Asks>;

/// The end that receives requests and sends replies.
#[cfg(not(loom))]
pub type Server = End<Serves>;

/// How a channel is to be. Each end has its own, but the ring is the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the ring, for each direction: 4 KiB to 1 GiB, rounded up to a power of two. Memory is taken as it is
    /// first used. Only the server heeds it. Usual: 64 KiB.
    pub ring: usize,
    /// Longest time to spin for a peer on another CPU, where experience says that it pays; 0: never. Usual: 100 us.
    pub spin: Duration,
    /// After so long a sleep the end is woken by the socket, no more by futex(2): wake-ups cost more then, and the death
    /// of the peer is seen at once. Until then it may be seen as late as that. 0: always by the socket. Usual: 10 ms.
    pub idle: Duration,
    /// How long a client waits for a server that is slow to accept. Usual: 5 s.
    pub connect: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ring: 64 << 10,
            spin: Duration::from_micros(100),
            idle: Duration::from_millis(10),
            connect: Duration::from_secs(5),
        }
    }
}

/// Counters of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Times the peer was woken: system calls.
    pub wakes: u64,
    /// Those of these by the socket, because it had waited for long, or for its event loop.
    pub wakes_by_socket: u64,
    /// Waits that ended while spinning.
    pub spun: u64,
    /// Sleeps.
    pub sleeps: u64,
}
