//! One end of a channel: sending, receiving, waiting.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::memory::Mapping;
use super::ring::{Front, MOST_FDS, Ring, WORD, footprint, sleep};
use super::spin::Learnt;
use super::sync::Ordering;
use super::{Options, Statistics};
use crate::error::{Error, Result};
use crate::sys::socket::{self, Received, Sent};
use crate::sys::threads;

/// Descriptors that may be on their way in one direction: the kernel counts them against their sender's limit too.
const MOST_FDS_AHEAD: u32 = 64;

/// Packets that are read from the socket in one go. More than a peer that keeps the rules can have sent: one with each of
/// the descriptors that may be on their way, and the call that woke us. One that sends without end must not keep us
/// from looking at the clock.
const MOST_PACKETS: u32 = 2 * MOST_FDS_AHEAD;

/// First byte of a packet on the socket: "wake up", to an end that sleeps there.
const WAKE: u8 = b'w';
/// First byte of a packet with descriptors of a message; the second byte says how many.
const FDS: u8 = b'f';

/// Between two looks at the clock and at the CPU.
const LOOKS: u32 = 32;

/// Event that a wait is for.
#[derive(Debug, Clone, Copy)]
enum For {
    Message,
    /// For a message of that footprint, and that many descriptors.
    Room {
        bytes: u32,
        fds: u32,
    },
}

impl For {
    fn bits(self) -> u32 {
        match self {
            For::Message => sleep::MESSAGE,
            For::Room { .. } => sleep::ROOM,
        }
    }
}

/// One end of a channel: [`super::Client`] or [`super::Server`], which differ in nothing but what is asked of them.
///
/// It belongs to one thread at a time, and to one process: of a fork(2), one side must let it be. Dropped, it hangs up;
/// the peer then reads what was sent, and after it gets [`Error::PeerGone`].
///
/// After [`Error::Peer`] the end is dead: everything on it returns that error again.
#[derive(Debug)]
pub struct End<R> {
    core: Core,
    role: PhantomData<R>,
}

#[derive(Debug)]
struct Core {
    /// In front of the ring, so that it is closed when the ring, as it goes, wakes the peer.
    socket: OwnedFd,
    ring: Ring<Mapping>,
    /// Nanoseconds.
    most_spin: u64,
    idle: Duration,
    learnt: Learnt,
    /// The CPU that we published, plus 1.
    published: u32,
    /// The peer was found asleep, but the call that should wake it failed.
    unwoken: Option<u32>,
    /// The peer slept when we last had something for it.
    woke: bool,
    /// We told the peer to wake us by the socket, for the caller's own poll(2).
    armed: bool,
    hung_up: bool,
    dead: Option<Error>,
    /// Descriptors that came ahead of their message, and how many in all. `None`: this process's table was full, and the
    /// kernel has closed them.
    came: VecDeque<Option<Vec<OwnedFd>>>,
    came_count: u32,
    /// Messages with descriptors that the peer has not read, as far as we know: up to where, how many.
    ahead: VecDeque<(u32, u32)>,
    ahead_count: u32,
    /// Descriptors of the message that was received last.
    fds: Vec<OwnedFd>,
    statistics: Statistics,
}

impl<R> End<R> {
    pub(super) fn new(ring: Ring<Mapping>, socket: OwnedFd, options: &Options) -> End<R> {
        End {
            core: Core {
                ring,
                socket,
                most_spin: u64::try_from(options.spin.as_nanos()).unwrap_or(u64::MAX),
                idle: options.idle,
                learnt: Learnt::NOTHING,
                published: 0,
                unwoken: None,
                woke: false,
                armed: false,
                hung_up: false,
                dead: None,
                came: VecDeque::new(),
                came_count: 0,
                ahead: VecDeque::new(),
                ahead_count: 0,
                fds: Vec::new(),
                statistics: Statistics::default(),
            },
            role: PhantomData,
        }
    }

    /// The same end for a caller that learns at run time which side it is of, as the C library does.
    #[doc(hidden)]
    pub fn of_either_side(self) -> End<()> {
        End {
            core: self.core,
            role: PhantomData,
        }
    }

    /// Puts a message into the ring, if there is room for it now; false: there is none.
    ///
    /// A peer that spins sees it at once; one that sleeps is woken by [`End::flush`], which every wait begins with: so
    /// many messages cost one wake-up. Where more than half of the ring is unread it is woken here.
    ///
    /// # Errors
    /// [`Error::Limit`] where it is longer than [`End::longest`]; [`Error::Peer`]; [`Error::PeerGone`] where that is
    /// known already and there is no room.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        self.core.alive(|core| core.send(message, &[], None))
    }

    /// Puts a message into the ring; waits while there is no room, at most `timeout`, `None`: for ever. It wakes nobody
    /// by itself, as [`End::try_send`].
    ///
    /// Two ends that both only send wait for each other once both ways are full. Who sends more than a ring holds
    /// before it receives gives a timeout, or sends by [`End::try_send`] and receives in between.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::PeerGone`], [`Error::Limit`] and [`Error::Peer`]; the message is not sent then.
    pub fn send(&mut self, message: &[u8], timeout: Option<Duration>) -> Result<()> {
        self.send_fds(message, &[], timeout)
    }

    /// The same with at most 16 descriptors, which the peer gets as its own, closed on exec. They go by the socket, ahead of the
    /// message: two system calls more. At most 64 are on their way.
    ///
    /// # Errors
    /// As [`End::send`]; [`Error::Invalid`] for more descriptors; as sendmsg(2), `ETOOMANYREFS` where this process has
    /// too many on their way.
    pub fn send_fds(
        &mut self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.core
            .alive(|core| core.send(message, fds, Some(timeout)).map(drop))
    }

    /// Wakes the peer if it sleeps and there is something for it since the last time: at most one system call; none
    /// where it is awake. Waiting for a message does this by itself.
    ///
    /// # Errors
    /// As futex(2) and sendmsg(2). Called again it tries again.
    pub fn flush(&mut self) -> Result<()> {
        self.core.alive(Core::flush)
    }

    /// Takes the next message, if there is one now, in place of what `into` held; false: there is none, and the peer
    /// was woken if it slept ([`End::flush`]).
    ///
    /// # Errors
    /// [`Error::PeerGone`] where it is known to be gone and everything was taken ([`End::check_peer`] asks);
    /// [`Error::Peer`]; `EMFILE` where the descriptors of the message found no place in this process: the message is
    /// lost then.
    pub fn try_recv(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        self.core.alive(|core| {
            if !core.try_front()? {
                return Ok(false);
            }
            core.take(into).map(|()| true)
        })
    }

    /// Waits for a message, at most `timeout`, `None`: for ever, and takes it in place of what `into` held. Before it
    /// waits it wakes the peer if it sleeps ([`End::flush`]).
    ///
    /// # Errors
    /// [`Error::TimedOut`]; otherwise as [`End::try_recv`]; as futex(2), ppoll(2) and recvmsg(2).
    pub fn recv(&mut self, into: &mut Vec<u8>, timeout: Option<Duration>) -> Result<()> {
        self.core.alive(|core| {
            core.wait(For::Message, timeout)?;
            core.take(into)
        })
    }

    /// The same into a buffer of fixed length. Gives the message's length; what lies behind it stays.
    ///
    /// # Errors
    /// As [`End::recv`]; [`Error::Limit`] where the message is longer than `into`: it stays, and is the next again.
    pub fn recv_into(&mut self, into: &mut [u8], timeout: Option<Duration>) -> Result<usize> {
        self.core.alive(|core| {
            core.wait(For::Message, timeout)?;
            core.take_into(into)
        })
    }

    /// The next message's length in bytes, if one is there now.
    ///
    /// # Errors
    /// As [`End::try_recv`].
    pub fn next_length(&mut self) -> Result<Option<usize>> {
        self.core.alive(|core| {
            core.try_front()?;
            Ok(core.ring.front()?.map(|front| front.length as usize))
        })
    }

    /// The descriptors of the message that was received last. Those that nobody takes are closed with the next message.
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.core.fds)
    }

    /// Asks to be woken through [`End::fd`], for an event loop of the caller's own: wakes the peer if it sleeps; true:
    /// nothing is there, and the descriptor becomes readable with the next message, or when the peer goes; false: there
    /// is something to receive now. What is done on the end next takes the request back, so ask again before each poll.
    ///
    /// # Errors
    /// As [`End::flush`] and [`End::try_recv`].
    pub fn arm(&mut self) -> Result<bool> {
        self.core.alive(Core::arm)
    }

    /// The socket beside the ring: to poll for reading after [`End::arm`], for nothing else.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.core.socket.as_fd()
    }

    /// Asks the kernel whether the peer is still there: one system call. Waits do it by themselves.
    ///
    /// # Errors
    /// [`Error::PeerGone`]; what it had sent may still be received. [`Error::Peer`]; as recvmsg(2).
    pub fn check_peer(&mut self) -> Result<()> {
        self.core.alive(|core| {
            core.disarm()?;
            core.drain()?;
            core.gone_unless(|core| Ok(!core.hung_up))
        })
    }

    /// Bytes of the longest message: the ring's, less 8.
    #[must_use]
    pub fn longest(&self) -> usize {
        (self.core.ring.capacity() - WORD) as usize
    }

    #[cfg(test)]
    pub(super) fn ring(&self) -> &Ring<Mapping> {
        &self.core.ring
    }

    #[cfg(test)]
    pub(super) fn ring_mut(&mut self) -> &mut Ring<Mapping> {
        &mut self.core.ring
    }

    /// Returns counters of this end.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Whoever waits for what was sent is woken. A copy that fork(2) made owes nothing.
        let _ = self.alive(Core::flush);
    }
}

/// The time left of a wait; `None`: for ever.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<u64>);

impl Deadline {
    fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.map(|timeout| {
            let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            threads::now().saturating_add(timeout)
        }))
    }

    /// `Some(0)`: it is over.
    fn left(self) -> Option<Duration> {
        self.0
            .map(|at| Duration::from_nanos(at.saturating_sub(threads::now())))
    }
}

impl Core {
    /// Does `work` unless the end is dead; dead it is from the first error on that is the peer's fault.
    fn alive<T>(&mut self, work: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        if let Some(error) = self.dead {
            return Err(error);
        }
        let result = work(self);
        if let Err(error @ Error::Peer { .. }) = result {
            self.dead = Some(error);
        }
        result
    }

    /// Sends a message; false: there is no room, and `wait` is `None`.
    fn send(
        &mut self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        wait: Option<Option<Duration>>,
    ) -> Result<bool> {
        let (length, count) = self.fits(message, fds)?;
        let what = For::Room {
            bytes: footprint(length),
            fds: count,
        };
        self.disarm()?;
        if self.hung_up {
            return Err(Error::PeerGone);
        }
        // The clock is read only where it is needed.
        let mut deadline = None;
        if !self.ready(what)? {
            let Some(timeout) = wait else {
                self.flush()?;
                return Ok(false);
            };
            let until = *deadline.insert(Deadline::after(timeout));
            self.wait_until(what, until)?;
        }
        if count > 0 {
            let until = deadline.unwrap_or_else(|| Deadline::after(wait.flatten()));
            self.send_ahead(fds, until)?;
        }
        self.push(message, count)?;
        Ok(true)
    }

    /// Whether it can ever be sent; its length and number of descriptors.
    fn fits(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(u32, u32)> {
        let longest = self.ring.capacity() - WORD;
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        if length > longest {
            return Err(Error::Limit {
                asked: message.len() as u64,
                limit: longest.into(),
                which: "the ring",
            });
        }
        let count = u32::try_from(fds.len()).unwrap_or(u32::MAX);
        if count > MOST_FDS {
            return Err(Error::invalid("more than 16 descriptors with a message"));
        }
        Ok((length, count))
    }

    /// The descriptors of a message, ahead of it.
    fn send_ahead(&mut self, fds: &[BorrowedFd<'_>], deadline: Deadline) -> Result<()> {
        let packet = [FDS, fds.len() as u8];
        loop {
            match socket::send(self.socket.as_fd(), &packet, fds)? {
                Sent::Yes => return Ok(()),
                Sent::Gone => {
                    self.hung_up = true;
                    return Err(Error::PeerGone);
                }
                Sent::Full => {
                    let left = deadline.left();
                    if left == Some(Duration::ZERO) {
                        return Err(Error::TimedOut);
                    }
                    socket::writable(self.socket.as_fd(), left)?;
                }
            }
        }
    }

    /// Writes a message for which there is room.
    fn push(&mut self, message: &[u8], fds: u32) -> Result<()> {
        if !self.ring.push(message, fds)? {
            return Err(Error::peer("room that was free is free no more"));
        }
        if fds > 0 {
            self.ahead.push_back((self.ring.tail(), fds));
            self.ahead_count += fds;
        }
        self.statistics.sent += 1;
        // A failed wake-up is not a failed send: it is tried again with the next flush.
        if self.ring.half_full() {
            self.ring.look_at_head()?;
            if self.ring.half_full() {
                let _ = self.flush();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.unwoken.is_none() && !self.ring.owes() {
            return Ok(());
        }
        let how = self.unwoken.or_else(|| self.ring.sleeper());
        self.woke = how.is_some();
        let Some(how) = how else { return Ok(()) };
        self.unwoken = Some(how);
        self.wake(how)?;
        self.unwoken = None;
        Ok(())
    }

    /// Wakes the peer, which sleeps in the way `how`.
    fn wake(&mut self, how: u32) -> Result<()> {
        self.statistics.wakes += 1;
        if how & sleep::SOCKET != 0 {
            self.statistics.wakes_by_socket += 1;
            match socket::send(self.socket.as_fd(), &[WAKE], &[])? {
                // Full of packets that it has not read: its poll returns by them.
                Sent::Yes | Sent::Full => {}
                // Whoever waits finds that out when nothing is left to receive.
                Sent::Gone => self.hung_up = true,
            }
            return Ok(());
        }
        // The end learns from a wait only where it could have spun.
        if self.ring.theirs().cpu.load(Ordering::Relaxed) != self.published {
            self.ring
                .mine()
                .woke
                .store(threads::now(), Ordering::Relaxed);
        }
        threads::wake_shared(&self.ring.theirs().sleep)
    }

    /// Whether what is waited for is there.
    fn ready(&mut self, what: For) -> Result<bool> {
        match what {
            For::Message => Ok(self.ring.front()?.is_some()),
            For::Room { bytes, fds } => {
                if !self.ring.room(bytes)? {
                    return Ok(false);
                }
                if fds > 0 && self.ahead_count + fds > MOST_FDS_AHEAD {
                    self.ring.look_at_head()?;
                    self.forget_taken();
                }
                Ok(fds == 0 || self.ahead_count + fds <= MOST_FDS_AHEAD)
            }
        }
    }

    /// Descriptors of messages that the peer has read are on their way no more.
    fn forget_taken(&mut self) {
        let unread = self.ring.tail().wrapping_sub(self.ring.their_head());
        while let Some(&(end, count)) = self.ahead.front() {
            // Its end is in the part that is not read yet, or not.
            if self.ring.tail().wrapping_sub(end) < unread {
                break;
            }
            self.ahead.pop_front();
            self.ahead_count -= count;
        }
    }

    fn try_front(&mut self) -> Result<bool> {
        self.disarm()?;
        if self.ready(For::Message)? {
            return Ok(true);
        }
        self.flush()?;
        if !self.hung_up {
            return Ok(false);
        }
        // Hung up was seen after what had been written, but maybe after our look.
        self.gone_unless(|core| core.ready(For::Message))
            .map(|()| true)
    }

    fn gone_unless(&mut self, there: impl FnOnce(&mut Core) -> Result<bool>) -> Result<()> {
        match there(self)? {
            true => Ok(()),
            false => Err(Error::PeerGone),
        }
    }

    fn wait(&mut self, what: For, timeout: Option<Duration>) -> Result<()> {
        self.disarm()?;
        if self.ready(what)? {
            return Ok(());
        }
        self.wait_until(what, Deadline::after(timeout))
    }

    fn wait_until(&mut self, what: For, deadline: Deadline) -> Result<()> {
        self.flush()?;
        let woken = std::mem::take(&mut self.woke);
        if self.ready(what)? {
            return Ok(());
        }
        let mine = self.publish_cpu();
        // On one CPU there is nothing to learn, and no clock to read.
        let apart = self.is_apart(mine);
        let began = if apart { threads::now() } else { 0 };
        if apart && self.spin(what, began, woken, deadline)? {
            self.learnt
                .came(threads::now().saturating_sub(began), woken);
            self.statistics.spun += 1;
            return Ok(());
        }
        let mut idle = self.idle.is_zero();
        loop {
            let slept = self.sleep(what, deadline, idle)?;
            if idle {
                // The packet that woke us, so that it wakes nobody again.
                self.drain()?;
            }
            if slept == Slept::NotAtAll {
                return Ok(());
            }
            self.publish_cpu();
            if self.ready(what)? {
                if apart {
                    self.learn(began, woken);
                }
                return Ok(());
            }
            // Woken for nothing, or not woken at all: is it still there?
            self.drain()?;
            if self.hung_up {
                return self.gone_unless(|core| core.ready(what));
            }
            if deadline.left() == Some(Duration::ZERO) {
                return Err(Error::TimedOut);
            }
            idle |= slept == Slept::Long;
        }
    }

    /// Sleeps once, on the futex for at most `idle`, or on the socket.
    fn sleep(&mut self, what: For, deadline: Deadline, on_socket: bool) -> Result<Slept> {
        let left = deadline.left();
        let place = if on_socket {
            sleep::SOCKET
        } else {
            sleep::FUTEX
        };
        let how = what.bits() | place;
        self.ring.falls_asleep(how);
        let ready = self.ready(what);
        if !matches!(ready, Ok(false)) {
            self.ring.is_awake();
            return ready.map(|_| Slept::NotAtAll);
        }
        self.statistics.sleeps += 1;
        let result = if on_socket {
            socket::readable(self.socket.as_fd(), left).map(|()| false)
        } else {
            let most = left.map_or(self.idle, |left| left.min(self.idle));
            threads::wait(&self.ring.mine().sleep, how, most)
        };
        self.ring.is_awake();
        Ok(match result? {
            true => Slept::Long,
            false => Slept::Called,
        })
    }

    /// Spins until it is there; false: it no longer pays.
    fn spin(&mut self, what: For, began: u64, woken: bool, deadline: Deadline) -> Result<bool> {
        let budget = self.learnt.budget(self.most_spin, woken);
        let end = began.saturating_add(budget);
        let end = deadline.0.map_or(end, |deadline| end.min(deadline));
        if end <= began {
            return Ok(false);
        }
        loop {
            for _ in 0..LOOKS {
                if self.ready(what)? {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            // It waits itself; or it came to this CPU, and we keep it from running.
            if self.ring.peer_sleeps() || threads::now() >= end {
                return Ok(false);
            }
            let mine = self.publish_cpu();
            if !self.is_apart(mine) {
                return Ok(false);
            }
        }
    }

    /// Whether the peer was last seen on another CPU than `mine`, and it may be spun for at all.
    fn is_apart(&self, mine: u32) -> bool {
        let theirs = self.ring.theirs().cpu.load(Ordering::Relaxed);
        self.most_spin > 0 && theirs != 0 && theirs != mine
    }

    /// Says where we run. Gives that, plus 1.
    fn publish_cpu(&mut self) -> u32 {
        let cpu = threads::cpu() + 1;
        if cpu != self.published {
            self.published = cpu;
            self.ring.mine().cpu.store(cpu, Ordering::Relaxed);
        }
        cpu
    }

    /// What a wait that slept teaches. The peer's own word for when it woke us is believed only within the wait.
    fn learn(&mut self, began: u64, woken: bool) {
        let now = threads::now();
        let woke = self.ring.theirs().woke.load(Ordering::Relaxed);
        if (began..=now).contains(&woke) {
            self.learnt.woke(now - woke);
            self.learnt.came(woke - began, woken);
        } else {
            self.learnt.came(now.saturating_sub(began), woken);
        }
    }

    fn arm(&mut self) -> Result<bool> {
        self.disarm()?;
        self.flush()?;
        self.ring.falls_asleep(sleep::MESSAGE | sleep::SOCKET);
        let ready = self.ready(For::Message);
        if !matches!(ready, Ok(false)) || self.hung_up {
            self.ring.is_awake();
            return ready.map(|_| false);
        }
        self.publish_cpu();
        self.armed = true;
        Ok(true)
    }

    fn disarm(&mut self) -> Result<()> {
        if !self.armed {
            return Ok(());
        }
        self.ring.is_awake();
        self.drain()?;
        self.armed = false;
        Ok(())
    }

    /// Reads what lies in the socket; of a peer that broke the rules maybe not all.
    fn drain(&mut self) -> Result<()> {
        for _ in 0..MOST_PACKETS {
            if !self.receive()? {
                break;
            }
        }
        Ok(())
    }

    /// Reads one packet; false: there is none.
    fn receive(&mut self) -> Result<bool> {
        let wrong = |what| Err(Error::Peer { what });
        let mut bytes = [0; 8];
        match socket::receive(self.socket.as_fd(), &mut bytes)? {
            Received::Nothing => Ok(false),
            Received::Gone => {
                self.hung_up = true;
                Ok(false)
            }
            Received::Packet { cut: true, .. } => wrong("a packet on the socket is too long"),
            Received::Packet {
                length,
                fds,
                fds_cut,
                ..
            } => match bytes[..length] {
                [WAKE] if fds.is_empty() && !fds_cut => Ok(true),
                [FDS, count] => {
                    let count = u32::from(count);
                    if count == 0 || count > MOST_FDS || count + self.came_count > MOST_FDS_AHEAD {
                        return wrong("more descriptors came than may be on their way");
                    }
                    if fds_cut == (fds.len() == count as usize) {
                        return wrong("other descriptors came than were announced");
                    }
                    self.came.push_back((!fds_cut).then_some(fds));
                    self.came_count += count;
                    Ok(true)
                }
                _ => wrong("a packet on the socket is none of the channel's"),
            },
        }
    }

    /// The next message, which callers found there.
    fn front(&mut self) -> Result<Front> {
        self.ring.front()?.ok_or(Error::TimedOut)
    }

    fn take(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let front = self.front()?;
        into.clear();
        into.resize(front.length as usize, 0);
        self.pop(front, into)
    }

    fn take_into(&mut self, into: &mut [u8]) -> Result<usize> {
        let front = self.front()?;
        let length = front.length as usize;
        let limit = into.len() as u64;
        let into = into.get_mut(..length).ok_or(Error::Limit {
            asked: length as u64,
            limit,
            which: "the buffer",
        })?;
        self.pop(front, into)?;
        Ok(length)
    }

    fn pop(&mut self, front: Front, into: &mut [u8]) -> Result<()> {
        let mut read = 0;
        while front.fds > 0 && self.came.is_empty() {
            // They went ahead of the message, so they are here, and little lies before them.
            read += 1;
            if read > MOST_PACKETS || !self.receive()? {
                return Err(Error::peer("the descriptors of a message did not come"));
            }
        }
        self.ring.pop(into);
        self.statistics.received += 1;
        // Who waits for room need not wait until we wait. If it falls asleep only now, it does wait for that.
        if self.ring.half_empty()
            && self.ring.theirs().sleep.load(Ordering::Relaxed) & sleep::ROOM != 0
        {
            let _ = self.flush();
        }
        self.fds = Vec::new();
        if front.fds == 0 {
            return Ok(());
        }
        self.came_count = self.came_count.saturating_sub(front.fds);
        match self.came.pop_front() {
            Some(Some(fds)) if fds.len() == front.fds as usize => {
                self.fds = fds;
                Ok(())
            }
            Some(None) => Err(Error::Call {
                call: "recvmsg",
                errno: Errno::MFILE,
            }),
            _ => Err(Error::peer("other descriptors came than the message says")),
        }
    }
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slept {
    /// It was there after all.
    NotAtAll,
    /// The peer called, or a signal came.
    Called,
    /// The time was over.
    Long,
}
