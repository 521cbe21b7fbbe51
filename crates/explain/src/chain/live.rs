//! The rules of idleness for a wait that has just ended (docs/explain.md, "Waits for work"). `stopgap watch` uses
//! them, because it sees each wait of the machine only once.
//!
//! The rules are those of the graph ([`super::idle`]), but less is known: the wait itself, and the wakings before it.
//! There is no stack that says what a sleep is for. For the thread that ended it, only the end of its last wait for
//! work is known.

use std::collections::HashMap;

use stopgap_stats::explain::Idleness;

pub use super::idle::are_of_a_pool;
use super::idle::{self, Asked, Asleep, Met, One, Pairs, Words};
use super::path::{For, Quick};
use super::sleeps::{Ended, Family, family_of, is_mutex, sends_at_once, waits_for_room, what_of};
use crate::call::{Role, role, waits_for_several};

/// Most threads that are remembered.
const MOST_THREADS: usize = 1 << 18;

/// Judgement of an interruptible sleep by its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByCall {
    /// A loss: a lock, a disk, room for what it writes, a connection.
    Loss,
    /// Idle: a time that the thread chose, or a child.
    Idle,
    /// A loss if the thread had asked: bytes, events, a signal or a thread's word.
    Answer,
    /// A driver's own wait. It may be for work if another thread ended it, else it is a loss.
    Driver,
}

/// Judges an interruptible sleep in the call `name`.
#[must_use]
pub fn by_call(name: &str, arguments: [Option<u64>; 3]) -> ByCall {
    if waits_for_room(name) {
        return ByCall::Loss;
    }
    match family_of(name, arguments) {
        Family::Futex if is_mutex(arguments) => ByCall::Loss,
        Family::Sync | Family::FileLock => ByCall::Loss,
        Family::Time | Family::Child => ByCall::Idle,
        Family::Futex
        | Family::Events
        | Family::Socket
        | Family::Data
        | Family::Semaphore
        | Family::Signal => ByCall::Answer,
        Family::Other => ByCall::Driver,
    }
}

/// How the kernel counts a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Stopped by a signal or a debugger.
    Stopped,
    /// For I/O.
    ForIo,
    /// No signal can end it.
    Uninterruptible,
    /// A signal can end it.
    Interruptible,
}

/// Returns the cause of a sleep, in the words of an operation's parts. Only its call and how the kernel counts it are
/// known.
#[must_use]
pub fn word_of_sleep(counted: Counted, name: &str) -> &'static str {
    let family = match name {
        // The arguments are unknown. Only the commands of fcntl that lock a file sleep.
        "fcntl" => Family::FileLock,
        name => family_of(name, [None; 3]),
    };
    match (counted, family) {
        (Counted::Stopped, _) => "stopped",
        (Counted::ForIo, _) | (_, Family::Sync) => "io",
        (_, Family::FileLock) => "lock",
        (Counted::Interruptible, _) => match by_call(name, [None; 3]) {
            ByCall::Idle | ByCall::Answer => "idle",
            ByCall::Driver => "unknown",
            ByCall::Loss => "answer",
        },
        (_, Family::Child) => "child",
        _ => "unknown",
    }
}

/// A sleep that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Slept<'a> {
    /// The thread.
    pub tid: u32,
    /// When it fell asleep.
    pub left: u64,
    /// When it was woken.
    pub woken: u64,
    /// Name of the call in which it slept.
    pub call: &'a str,
    /// First arguments of that call.
    pub arguments: [Option<u64>; 3],
    /// The thread that woke it, or whose packet did; `None`: an interrupt.
    pub waker: Option<u32>,
    /// The call that the waker was in.
    pub waker_call: Option<&'a str>,
    /// Whether both threads belong to one pool of their process ([`are_of_a_pool`]).
    pub by_its_pool: bool,
}

/// State of one thread.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// The thread that created it, if that was seen.
    parent: Option<u32>,
    born: bool,
    began: u64,
    several: bool,
    idled: u64,
    napped: bool,
    words: Words,
    woken_by: Option<(u32, u64)>,
}

/// Finds the thread of a pair that asks the other, from their wakings.
#[derive(Debug, Default)]
pub struct Asks {
    pairs: Pairs,
    threads: HashMap<u32, Thread, Quick>,
}

impl Asks {
    /// Notes that the thread `parent` created `tid` at `time`.
    pub fn born(&mut self, tid: u32, parent: u32, time: u64) {
        if let Some(thread) = self.thread(tid) {
            *thread = Thread {
                parent: Some(parent),
                born: true,
                began: time,
                ..Thread::default()
            };
        }
    }

    /// Forgets a thread that has ended.
    pub fn ended(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    fn thread(&mut self, tid: u32) -> Option<&mut Thread> {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&tid) {
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    /// Takes an interruptible sleep that has ended. Returns whether it was a loss rather than a wait for work.
    ///
    /// A wait for an answer is a loss only if the thread waits for nothing else. A thread that waits for several
    /// descriptors may have other work; more is not known when the wait ends.
    pub fn is_loss(&mut self, slept: &Slept<'_>) -> bool {
        let family = family_of(slept.call, slept.arguments);
        let lock = |_: &str, address| For::Lock { kind: 0, address };
        let what = what_of(family, slept.arguments, lock);
        let several = waits_for_several(slept.call, slept.arguments[1]);
        let for_answer = matches!(
            what,
            For::Events | For::Data | For::Word { .. } | For::Signal
        );
        if several && let Some(thread) = self.thread(slept.tid) {
            thread.several = true;
        }
        let received = slept.waker.is_some() && slept.waker_call.map(role) == Some(Role::Receives);
        let one_of_its_pool = match (what, slept.waker) {
            (For::Word { address }, Some(waker)) => {
                let waker = self.threads.get(&waker);
                let beside = |waker: &Thread| waker.words.slept_beside(address, slept.left);
                slept.by_its_pool || waker.is_some_and(beside)
            }
            _ => false,
        };
        let asked = match slept.waker {
            Some(waker) if for_answer && !one_of_its_pool => {
                self.asked(slept, waker, (received, several))
            }
            _ => Asked::No,
        };
        let asleep = Asleep {
            call: Some(slept.call),
            blocked: false,
            over: true,
            what,
            ended: slept.waker.map_or(Ended::Interrupt, Ended::By),
            asked,
            several,
            handles_signal: false,
            lock_or_not: false,
        };
        // The waker has not waited for work since the sleep began, so it was busy.
        let waker = slept.waker.and_then(|waker| self.threads.get(&waker));
        let is_busy = || waker.is_some_and(|waker| waker.idled <= slept.left);
        let stalled = idle::judge(&asleep, is_busy) == Some(Idleness::Stalled);
        let by_itself = for_answer || what == For::Time;
        if let Some(thread) = self.thread(slept.tid) {
            if by_itself && !received && !matches!(asked, Asked::Yes | Asked::Unseen) {
                thread.idled = slept.woken;
                thread.napped = what == For::Time;
            }
            if let For::Word { address } = what {
                thread.words.slept(address, slept.woken);
            }
            if let Some(waker) = slept.waker {
                thread.woken_by = Some((waker, slept.woken));
            }
        }
        stalled && !(for_answer && several)
    }

    fn asked(&mut self, slept: &Slept<'_>, waker: u32, (received, several): (bool, bool)) -> Asked {
        let one = |tid: u32| {
            let thread = self.threads.get(&tid).copied().unwrap_or_default();
            One {
                tid,
                born: thread.born,
                parent: thread.parent,
                began: thread.began,
                several: thread.several,
                idled: thread.idled,
                napped: thread.napped,
                by_itself: thread.napped,
                connects: 0,
                accepts: false,
                connecting: false,
            }
        };
        let met = Met {
            waker: one(waker),
            sleeper: one(slept.tid),
            left: slept.left,
            woken: slept.woken,
            received,
            several,
            word: slept.call == "futex",
        };
        let woken_by = |of: u32| self.threads.get(&of).and_then(|thread| thread.woken_by);
        self.pairs.ends(&met, woken_by)
    }
}

/// Returns whether a softirq may deliver what a thread sent in the call `name`, if it runs on that thread's CPU
/// during the call.
#[must_use]
pub fn may_carry(name: &str) -> bool {
    sends_at_once(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_judged_as_in_the_graph() {
        let of = |operation: u64, value: u64| [Some(1), Some(operation), Some(value)];
        assert_eq!(by_call("futex", of(0x80, 2)), ByCall::Loss, "glibc's mutex");
        let inheritance = by_call("futex", of(0x86, 0));
        assert_eq!(inheritance, ByCall::Loss, "with priority inheritance");
        let variable = by_call("futex", of(0x189, 14));
        assert_eq!(variable, ByCall::Answer, "a condition variable");
        assert_eq!(by_call("epoll_wait", of(0, 2)), ByCall::Answer);
        assert_eq!(by_call("nanosleep", of(0, 0)), ByCall::Idle);
        assert_eq!(by_call("wait4", of(0, 0)), ByCall::Idle);
        assert_eq!(by_call("fsync", of(0, 0)), ByCall::Loss);
        assert_eq!(by_call("write", of(0, 0)), ByCall::Loss);
        assert_eq!(by_call("ioctl", of(0, 0)), ByCall::Driver);
    }

    /// A client (7) asks a server (8) through a pipe and gets the answer after 300 ms. Both existed before the
    /// recording.
    #[test]
    fn an_answer_is_a_loss_and_what_nobody_asked_for_is_not() {
        let read = |tid, waker, woken| Slept {
            tid,
            left: woken - 900,
            woken,
            call: "read",
            arguments: [Some(3), None, None],
            waker: Some(waker),
            waker_call: Some("write"),
            by_its_pool: false,
        };
        let mut asks = Asks::default();
        asks.born(7, 1, 0);
        assert!(!asks.is_loss(&read(8, 7, 1_000)), "the server had no work");
        assert!(asks.is_loss(&read(7, 8, 2_000)), "the client's answer");
        assert!(!asks.is_loss(&read(8, 7, 3_000)));
        assert!(asks.is_loss(&read(7, 8, 4_000)));
        // A consumer asks for nothing.
        let mut asks = Asks::default();
        asks.born(7, 1, 0);
        for woken in [1_000, 2_000, 3_000] {
            assert!(!asks.is_loss(&read(8, 7, woken)));
        }
        // Only now the server reads what the client had sent before it slept.
        let mut asks = Asks::default();
        let reads = |call, arguments| Slept {
            call,
            arguments,
            waker_call: Some("recvmsg"),
            ..read(7, 8, 1_000)
        };
        assert!(asks.is_loss(&reads("recvfrom", [Some(3), None, None])));
        let several = [Some(1), Some(5), None];
        assert!(!asks.is_loss(&reads("poll", several)), "a loop of events");
        // Thread 9 answers, which the server asked.
        let mut asks = Asks::default();
        asks.born(7, 1, 0);
        assert!(!asks.is_loss(&read(8, 7, 1_000)));
        assert!(!asks.is_loss(&read(9, 8, 1_500)));
        assert!(asks.is_loss(&read(7, 9, 2_000)));
    }

    #[test]
    fn who_waits_for_several_has_other_work() {
        let mut asks = Asks::default();
        asks.born(7, 1, 0);
        let slept = |tid, waker, call, woken| Slept {
            tid,
            left: woken - 900,
            woken,
            call,
            arguments: [Some(3), Some(2), None],
            waker: Some(waker),
            waker_call: Some("write"),
            by_its_pool: false,
        };
        assert!(!asks.is_loss(&slept(8, 7, "read", 1_000)));
        assert!(!asks.is_loss(&slept(7, 8, "poll", 2_000)));
        assert!(!asks.is_loss(&slept(8, 7, "read", 3_000)));
        assert!(asks.is_loss(&slept(7, 8, "recvfrom", 4_000)));
    }

    #[test]
    fn words_are_those_of_a_part_of_an_operation() {
        use Counted::{ForIo, Interruptible, Stopped, Uninterruptible};
        for (counted, name, word) in [
            (Interruptible, "flock", "lock"),
            (Interruptible, "poll", "idle"),
            (Interruptible, "write", "answer"),
            (Uninterruptible, "fdatasync", "io"),
            (Uninterruptible, "vfork", "child"),
            (Uninterruptible, "read", "unknown"),
            (Uninterruptible, "mkdir", "unknown"),
            (ForIo, "read", "io"),
            (Stopped, "poll", "stopped"),
        ] {
            assert_eq!(word_of_sleep(counted, name), word, "{name}");
            assert!(crate::why::of_word(word).is_some());
        }
    }
}
