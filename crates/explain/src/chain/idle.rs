//! Judges whether a sleep is a wait for work or a loss.
//!
//! The first rule that holds decides. docs/explain.md has the rules for users.
//!
//! 1. A page fault, a lock, a disk, memory, a fence, a grace period of RCU, a stop, the program behind a file system
//!    (FUSE, NFS) or behind a call (seccomp, fanotify): a loss.
//! 2. A time that the thread chose itself (`nanosleep`): idle. Short sleeps between which the thread polls for
//!    something are judged later (`naps`). A worker of the kernel or of an io_uring without work is idle. So is a
//!    thread of a runtime's scheduler that has nothing to run.
//! 3. A child, or a thread that it joins. The child's end may show by the only descriptor that the thread watches.
//!    Idle while the child sleeps on purpose; may be idle while the child waits for the network; else a loss. The
//!    same holds for the first word of a thread that it created since it was idle. In the handler of a signal, every
//!    other sleep is a loss, because the interrupted code waits for the handler.
//! 4. An answer for which the thread had asked: a loss. The thread had asked if one of these holds:
//!    * By asking, it woke the thread that ended its sleep, or a thread that woke that one.
//!    * It asks that thread in at least a fifth of its waits for it, and that thread was busy all the while. A
//!      question to a busy thread is not seen.
//!    * It reads from that thread in a blocking call. A question that the other thread has not read yet is not seen
//!      either.
//!    * The end of its sleep shows that the other thread had not read an earlier message yet.
//!    * A timeout ended its wait for one descriptor or word, and since it was idle it had asked a thread that has
//!      answered before. A wait for several descriptors counts as a short sleep of rule 2.
//!    * The asked thread woke others, and those woke the thread that ended the sleep.
//!    * It connects to the thread that ended its sleep again and again.
//!    * It waits for its io_uring, and a worker of that ring ended the sleep.
//! 5. Room for what it writes, or a connection for which it asks: a loss.
//! 6. Bytes, events, a signal or another thread's word for which nobody was asked. Idle if a thread of this machine
//!    or a timer ended the wait, or if nothing ended it before the recording or the process ended. May be idle where
//!    the trace cannot tell:
//!    * The other end is another machine, or the wake-up was not seen.
//!    * Both threads existed before the recording, and either may be the one that asks.
//!    * A word of memory came from a thread that had been busy all the while. A question to a busy thread wakes
//!      nobody.
//!    * Both threads wake each other, neither is idle in between, and the other one was busy all the while. The first
//!      question to a thread that does not sleep is not seen.
//!    * The thread waits for one descriptor, and the thread that ended the wait had been busy all the while.
//!    * The thread waits in a function that serves for locks as well as for work: Python builds its condition
//!      variables from plain locks.
//!
//!    Threads that slept for the same word of memory at the same time hand work on, and none of them asks. The same
//!    holds for threads whose names differ in their last number only. Nor is a word an answer if its sender has
//!    waited for work since it was asked.
//! 7. Everything else may be idle.
//!
//! If two threads wake each other, the first of these rules that holds says which of them asks:
//!
//! * The thread that connects to the other.
//! * The thread that is idle between being woken and waking the other, at least three times as often as the other. A
//!   sleep for a time that the thread chose does not count.
//! * The thread that created the other; or that had woken the other's creator and waited meanwhile, as the client of
//!   a server that starts a process for it.
//! * The thread that woke the other first.
//!
//! If both threads existed before the recording, the first waking says nothing. Then a thread that waits for one
//! descriptor asks one that waits for several; else the thread that sleeps for a chosen time in between asks.

use std::collections::HashMap;

use stopgap_stats::explain::Idleness;

use super::history::Piece;
use super::path::{Break, Doing, For, Paths, Quick};
use super::sleeps::{Ended, waits_for_room};
use crate::call::{Role, role};

/// Most pairs of threads that are remembered.
const MOST_PAIRS: usize = 1 << 16;
/// Most threads through which a question is followed.
const MOST_HANDED_ON: u32 = 4;

/// Whether a sleeping thread had asked for what ended its sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    /// It asks that thread at times. This time no question was seen, as with a question to a busy thread.
    Unseen,
    /// As `Unseen`, but a question was seen for few of its waits.
    Rarely,
    /// No, unless the first question was not seen. Both threads wake each other and neither is idle in between; or it
    /// created the other thread.
    Mutual,
    /// Unknown: both threads existed before the recording.
    Perhaps,
    Yes,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    /// The thread that asked first, by the wake-ups; `None` where that is not known.
    first: Option<u32>,
    /// Whether `first` created the other thread, or asked its first question without being woken for it.
    sure: bool,
    /// The thread that connects to the other.
    client: Option<u32>,
    /// Whether a thread opens connections to the other in order to answer it.
    calls_back: bool,
    /// Whether the thread that asks created the other, or had asked the other's creator.
    made: bool,
    /// How often each thread was idle after the other had woken it and before it woke the other. A thread that asks
    /// does so; one that answers does not.
    idle: [u32; 2],
    /// The same count for sleeps of a chosen length: by a client between two questions, or by a server that takes its
    /// time.
    naps: [u32; 2],
    /// Whether each waits for several descriptors at once.
    several: [bool; 2],
    /// When each was woken by the other last.
    woken: [u64; 2],
    /// When the last question without an answer was asked.
    open: Option<u64>,
    /// Whether that question was a new connection. News may come over the connection later.
    greets: bool,
    /// Wakings of the thread that asks: those that answered a question that was seen, and others.
    answers: [u32; 2],
}

/// Pairs of threads by thread ids, the lower one first. Knows which thread of a pair asks.
#[derive(Debug, Default)]
pub(super) struct Pairs(HashMap<(u32, u32), Pair, Quick>);

/// Facts about one thread of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct One {
    pub(super) tid: u32,
    /// Whether it was created during the recording.
    pub(super) born: bool,
    /// The thread that created it.
    pub(super) parent: Option<u32>,
    /// When it was first seen.
    pub(super) began: u64,
    /// Whether it waits for several descriptors.
    pub(super) several: bool,
    /// When its last wait ended that was not for an answer; whether it slept for a time that it had chosen.
    pub(super) idled: u64,
    pub(super) napped: bool,
    /// Whether neither a thread nor packets ended that wait: the thread has acted by itself since.
    pub(super) by_itself: bool,
    /// How often it opened a connection for which another thread waited; whether it accepts connections.
    pub(super) connects: u8,
    pub(super) accepts: bool,
    /// Whether it is opening a connection now.
    pub(super) connecting: bool,
}

impl One {
    /// Returns whether it is a client of `other`, which accepts connections.
    fn is_client_of(&self, other: &One) -> bool {
        self.connects > 1 && !self.accepts && other.accepts
    }
}

/// A sleep for bytes, events, a signal or a word of memory, and the thread that ended it.
pub(super) struct Met {
    pub(super) waker: One,
    pub(super) sleeper: One,
    pub(super) left: u64,
    pub(super) woken: u64,
    /// Whether the waker took bytes. Room to write also wakes a thread that waits to read.
    pub(super) received: bool,
    /// Whether the sleeper waits for several descriptors at once.
    pub(super) several: bool,
    /// Whether the sleeper waits for a word of memory.
    pub(super) word: bool,
}

impl Pair {
    /// Returns the thread that asks.
    fn asker(&self, key: (u32, u32)) -> Option<u32> {
        let known = self.client.or_else(|| self.idler(key));
        known.or_else(|| match (self.first, self.napper(key)) {
            // The first question may not have been seen because it went to a busy thread.
            (Some(first), Some(naps)) if first != naps => match self.several {
                [false, true] => Some(key.0),
                [true, false] => Some(key.1),
                _ if self.sure => Some(first),
                _ => Some(naps),
            },
            (first, naps) => first.or(naps),
        })
    }

    /// Returns the thread that is idle between an answer and its next question, if one is: at least three times as
    /// often as the other, which may also wait for questions of third threads. A nap counts only for the other
    /// thread.
    fn idler(&self, (low, high): (u32, u32)) -> Option<u32> {
        let [by_low, by_high] = self.idle_or_napped();
        match self.idle {
            [one, _] if is_many(one, by_high) => Some(low),
            [_, other] if is_many(other, by_low) => Some(high),
            _ => None,
        }
    }

    /// Returns the same, but naps count for both threads.
    fn napper(&self, (low, high): (u32, u32)) -> Option<u32> {
        match self.idle_or_napped() {
            [one, other] if is_many(one, other) => Some(low),
            [one, other] if is_many(other, one) => Some(high),
            _ => None,
        }
    }

    fn idle_or_napped(&self) -> [u32; 2] {
        [0, 1].map(|side| self.idle[side].saturating_add(self.naps[side]))
    }
}

fn is_many(one: u32, other: u32) -> bool {
    one >= 2 + 3 * other.min(1 << 20)
}

/// Fewest letters that the names of a pool's threads share.
const COMMON: usize = 3;

/// Bytes of a thread's name that the kernel keeps (TASK_COMM_LEN without the final zero).
const LONGEST_NAME: usize = 15;

/// Returns whether two threads of a process have names that differ in their last number only, as `pool-1-thread-2`.
/// The kernel cuts the last digit off `pool-1-thread-12`, so two threads of a pool may also have the same name.
#[must_use]
pub fn are_of_a_pool(one: &str, other: &str) -> bool {
    let stem = |name: &'_ str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let apart = one != other || one.len() == LONGEST_NAME;
    let (end, same) = (stem(one), apart && stem(other) == stem(one));
    let letters = one[..end].bytes().filter(u8::is_ascii_alphabetic).count();
    same && end < one.len() && end < other.len() && one[..end] == other[..end] && letters >= COMMON
}

/// Words of memory that are remembered for a thread.
const MOST_WORDS: usize = 4;

/// The words of memory for which a thread slept last, each once, and when it was woken. Several are kept because a
/// thread may wait for locks after it waited for work and before it hands more work on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Words([(u64, u64); MOST_WORDS]);

impl Words {
    pub(super) fn slept(&mut self, address: u64, woken: u64) {
        let same = self.0.iter().position(|&(of, _)| of == address);
        self.0[..=same.unwrap_or(MOST_WORDS - 1)].rotate_right(1);
        self.0[0] = (address, woken);
    }

    /// Returns whether the thread slept for the word `address` while another thread of its process did, which fell
    /// asleep at `left`. Such threads wait for work in turn, and one that hands work on asks for nothing. Two threads
    /// that talk by one word take turns in sleeping.
    pub(super) fn slept_beside(&self, address: u64, left: u64) -> bool {
        let beside = |&(of, woken): &(u64, u64)| of == address && woken > left;
        address != 0 && self.0.iter().any(beside)
    }
}

impl Pairs {
    /// Notes that `waker` has woken `sleeper` at `at`. The sleeper waited for bytes, events, a signal or a word since
    /// `left`.
    fn wakes(&mut self, waker: One, sleeper: One, left: u64, at: u64, word: bool) -> Asked {
        let key = (waker.tid.min(sleeper.tid), waker.tid.max(sleeper.tid));
        if self.0.len() >= MOST_PAIRS {
            self.0.clear();
        }
        let new = !self.0.contains_key(&key);
        let made = waker.parent.is_some_and(|parent| {
            let serves = || {
                waker.born
                    && left < waker.began
                    && self.woke_before(sleeper.tid, parent, waker.began)
            };
            parent == sleeper.tid || serves()
        });
        let pair = self.0.entry(key).or_insert_with(|| Pair {
            made,
            sure: made || waker.by_itself,
            client: None,
            calls_back: false,
            idle: [0; 2],
            naps: [0; 2],
            several: [false; 2],
            woken: [0; 2],
            first: if made {
                Some(sleeper.tid)
            } else if waker.born || sleeper.born {
                Some(waker.tid)
            } else {
                match (waker.several, sleeper.several) {
                    (false, true) => Some(waker.tid),
                    (true, false) => Some(sleeper.tid),
                    _ => None,
                }
            },
            open: None,
            greets: false,
            answers: [0; 2],
        });
        let (by, of) = if waker.tid == key.0 { (0, 1) } else { (1, 0) };
        (pair.several[by], pair.several[of]) = (waker.several, sleeper.several);
        // An idle wait counts once, and only after a question: a question to a busy thread is not seen. The other
        // thread must have slept already: an idle server that a third thread wakes also takes a question of this one
        // then. It may have slept again before the other got a CPU.
        let was_told = pair.woken[by] > 0 && pair.woken[by] >= pair.woken[of];
        let since = pair.woken[by].max(left);
        let idled_since = was_told && (since + 1..=at).contains(&waker.idled);
        if idled_since {
            let count = match waker.napped {
                false => &mut pair.idle[by],
                true => &mut pair.naps[by],
            };
            *count = count.saturating_add(1);
        }
        // It was asked in another way and answers by opening a connection, without a wait for work in between.
        let asked = pair.open.is_some() && pair.first == Some(sleeper.tid);
        pair.calls_back |= waker.connecting && asked && waker.idled <= pair.woken[by];
        let told = std::mem::replace(&mut pair.woken[of], at);
        let client = !pair.calls_back && sleeper.is_client_of(&waker);
        if client {
            pair.client = Some(sleeper.tid);
        } else if !pair.calls_back && waker.is_client_of(&sleeper) {
            pair.client = Some(waker.tid);
        }
        match pair.asker(key) {
            Some(asker) if asker == waker.tid => {
                pair.open = Some(at);
                pair.greets = waker.connecting;
                let neither = pair.idle == [0; 2] && pair.naps == [0; 2];
                let mutual = pair.woken[0] > 0 && pair.woken[1] > 0 && neither;
                if mutual && !sleeper.several {
                    Asked::Mutual
                } else {
                    Asked::No
                }
            }
            // It has waited for work since it was asked, so this is no answer: threads of a pool hand each other work
            // in both directions. An event loop waits for others while it still has questions to answer.
            Some(_) if idled_since && word && !waker.several && !waker.napped => {
                pair.open = None;
                Asked::No
            }
            Some(_) if pair.open.take().is_some() => {
                pair.answers[0] = pair.answers[0].saturating_add(u32::from(!pair.greets));
                Asked::Yes
            }
            // It did something else after the last answer and then waited for the server to which it connects. A
            // thread that connects again and again asks; a thread that connects once may receive news.
            Some(_) if client && sleeper.idled > told => Asked::Unseen,
            // It created the other thread, or asked that thread's creator: perhaps it waits for the result.
            Some(_) if new && pair.made => Asked::Mutual,
            Some(_) if new => Asked::Perhaps,
            Some(_) => {
                pair.answers[1] = pair.answers[1].saturating_add(1);
                match pair.answers[0] {
                    0 => Asked::No,
                    seen if pair.answers[1] <= seen.saturating_mul(4) => Asked::Unseen,
                    _ => Asked::Rarely,
                }
            }
            None => Asked::Perhaps,
        }
    }

    /// Notes that a thread ended the sleep of another, or took bytes during that sleep. Returns whether the sleeping
    /// thread had asked for that, directly or through a thread that it had asked.
    pub(super) fn ends(
        &mut self,
        met: &Met,
        woken_by: impl Fn(u32) -> Option<(u32, u64)>,
    ) -> Asked {
        let (waker, sleeper) = (met.waker, met.sleeper);
        if met.received {
            // The reader may be an event loop: it may already have answered, and the sleeper takes that answer now.
            if met.several {
                return Asked::No;
            }
            // The reader takes only now what the sleeper had sent before this wait.
            self.receives(waker, sleeper, met.left, met.woken);
            return Asked::Yes;
        }
        let asked = self.wakes(waker, sleeper, met.left, met.woken, met.word);
        let handed_on = asked != Asked::Yes && self.was_handed_on(sleeper.tid, waker.tid, woken_by);
        if handed_on { Asked::Yes } else { asked }
    }

    /// Notes that `reader` took what `sender` had sent before it fell asleep. Sending to a busy thread wakes nobody,
    /// so the message shows only now.
    fn receives(&mut self, reader: One, sender: One, left: u64, at: u64) {
        let key = (reader.tid.min(sender.tid), reader.tid.max(sender.tid));
        let (by, of) = if reader.tid == key.0 { (0, 1) } else { (1, 0) };
        let seen = |pair: &Pair| pair.woken[by] > pair.woken[of];
        if !self.0.get(&key).is_some_and(seen) {
            self.wakes(sender, reader, left, at, false);
        }
    }

    /// Returns whether one of two threads was seen to wake the other.
    pub(super) fn have_met(&self, one: u32, other: u32) -> bool {
        self.0.contains_key(&(one.min(other), one.max(other)))
    }

    /// Notes that `asker` asks `of` through other threads.
    pub(super) fn learns(&mut self, asker: u32, of: u32) {
        if let Some(pair) = self.0.get_mut(&(asker.min(of), asker.max(of))) {
            pair.first = Some(asker);
            pair.open = None;
        }
    }

    /// Returns which of two threads asks the other, if it is known.
    pub(super) fn who_asks(&self, one: u32, other: u32) -> Option<u32> {
        let key = (one.min(other), one.max(other));
        self.0.get(&key).and_then(|pair| pair.asker(key))
    }

    /// Returns which of two threads asks the other, by how often each is idle in between.
    pub(super) fn idler(&self, one: u32, other: u32) -> Option<u32> {
        let key = (one.min(other), one.max(other));
        self.0.get(&key).and_then(|pair| pair.napper(key))
    }

    /// Returns which of two threads asks the other where it made that one, or had asked who made it. The first question to a
    /// new thread wakes nobody: it does not wait yet.
    pub(super) fn maker(&self, one: u32, other: u32) -> Option<u32> {
        let pair = self.0.get(&(one.min(other), one.max(other)));
        pair.and_then(|pair| pair.first.filter(|_| pair.made))
    }

    /// Returns whether `by`, which woke `tid`, works for `tid`: the wakings lead back from `by` to `tid` through
    /// other threads.
    fn was_handed_on(
        &self,
        tid: u32,
        by: u32,
        woken_by: impl Fn(u32) -> Option<(u32, u64)>,
    ) -> bool {
        let mut of = by;
        for _ in 0..MOST_HANDED_ON {
            let Some((next, at)) = woken_by(of) else {
                break;
            };
            if next == tid {
                return of != by && self.waits_since(tid, of, at);
            }
            of = next;
        }
        false
    }

    /// Returns when `by` last woke `tid`; 0 if it never did.
    pub(super) fn told_at(&self, by: u32, tid: u32) -> u64 {
        let pair = self.0.get(&(by.min(tid), by.max(tid)));
        pair.map_or(0, |pair| pair.woken[usize::from(tid > by)])
    }

    /// Returns whether `one` had woken `other` by the time `at`.
    fn woke_before(&self, one: u32, other: u32, at: u64) -> bool {
        let pair = self.0.get(&(one.min(other), one.max(other)));
        pair.is_some_and(|pair| (1..=at).contains(&pair.woken[usize::from(other > one)]))
    }

    /// Returns whether one of two threads has ever answered a question of the other.
    pub(super) fn has_answered(&self, one: u32, other: u32) -> bool {
        let pair = self.0.get(&(one.min(other), one.max(other)));
        pair.is_some_and(|pair| pair.answers[0] > 0)
    }

    /// Returns whether `asker` asked `of` at `at` and has no answer yet.
    pub(super) fn waits_since(&self, asker: u32, of: u32, at: u64) -> bool {
        let key = (asker.min(of), asker.max(of));
        let pair = self.0.get(&key);
        pair.is_some_and(|pair| pair.asker(key) == Some(asker) && pair.open == Some(at))
    }
}

/// Facts by which a sleep is judged.
pub(super) struct Asleep<'a> {
    /// Its call.
    pub(super) call: Option<&'a str>,
    /// Whether it is uninterruptible, or a page fault.
    pub(super) blocked: bool,
    /// Whether it had ended when the recording ended.
    pub(super) over: bool,
    pub(super) what: For,
    pub(super) ended: Ended,
    pub(super) asked: Asked,
    /// Whether it waits for several descriptors at once.
    pub(super) several: bool,
    /// Whether the thread is in a signal handler.
    pub(super) handles_signal: bool,
    /// Whether the program waits in this function for locks as well as for work.
    pub(super) lock_or_not: bool,
}

/// Judges a sleep: one word for all of it, or `None` if [`of_child`] judges each part. `is_busy` returns whether the
/// thread that ended the sleep worked for most of its length, itself or through threads for which it waited.
pub(super) fn judge(asleep: &Asleep<'_>, is_busy: impl Fn() -> bool) -> Option<Idleness> {
    use Idleness::{Idle, MayBeIdle, Stalled};
    Some(match asleep.what {
        For::Lock { .. }
        | For::Io
        | For::Memory { .. }
        | For::Fence { .. }
        | For::Rcu
        | For::Continue
        | For::Answer => Stalled,
        For::Time | For::Work => Idle,
        For::Child => return None,
        _ if asleep.handles_signal => Stalled,
        _ if asleep.asked == Asked::Yes => Stalled,
        _ if asleep.call.is_some_and(waits_for_room) => Stalled,
        // Uninterruptible, or a page fault, for an unknown reason: this is no wait for work.
        For::Something if asleep.blocked => Stalled,
        // The trace does not name the call.
        For::Something if asleep.call.is_none() => MayBeIdle,
        // A wait inside a driver, for an unknown reason: it may be for work only if another thread ended it.
        For::Something => match asleep.ended {
            Ended::By(_) => MayBeIdle,
            _ => Stalled,
        },
        _ if asleep.asked == Asked::Perhaps => MayBeIdle,
        _ if asleep.asked == Asked::Unseen && is_busy() => Stalled,
        _ if asleep.asked == Asked::Rarely && !asleep.several && is_busy() => Stalled,
        // The asked thread may not have read the question yet, for example because a lock blocks it. A blocking read
        // waits for an answer; an event loop may wait for anything.
        For::Data if asleep.asked == Asked::Unseen => Stalled,
        For::Events if asleep.asked == Asked::Unseen && !asleep.several => MayBeIdle,
        // The other thread computed all the while, so a question to it would not have been seen.
        For::Data | For::Events if !asleep.several && is_by(asleep) && is_busy() => MayBeIdle,
        _ if asleep.asked == Asked::Mutual && is_busy() => MayBeIdle,
        For::Signal => Idle,
        // One of its own disk requests ended.
        For::Events if asleep.ended == Ended::Disk => Stalled,
        // By the call, the kernel waits for input only: a terminal, inotify, a new connection.
        For::Events if !is_poll(asleep.call) => Idle,
        For::Events | For::Data | For::Word { .. } => match asleep.ended {
            Ended::By(_) => match asleep.what {
                For::Word { .. } if asleep.lock_or_not || is_busy() => MayBeIdle,
                _ => Idle,
            },
            Ended::Timer | Ended::Timeout | Ended::ProcessOver => Idle,
            Ended::Nobody if !asleep.over => Idle,
            Ended::Interrupt if asleep.what == For::Events => Idle,
            Ended::Network if asleep.what == For::Events && asleep.several => Idle,
            Ended::Disk | Ended::Device => Stalled,
            Ended::DelayedAck => Stalled,
            Ended::Network | Ended::Interrupt | Ended::Uncertain | Ended::Nobody => MayBeIdle,
        },
    })
}

/// Returns whether a thread of this machine ended the sleep.
fn is_by(asleep: &Asleep<'_>) -> bool {
    matches!(asleep.ended, Ended::By(_))
}

fn is_poll(call: Option<&str>) -> bool {
    call.is_none_or(|name| role(name) == Role::Waits)
}

/// Judges one part of a wait for a child by the end of that part's chain.
pub(super) fn of_child(end: Doing) -> Idleness {
    match end {
        Doing::Timer | Doing::Timeout => Idleness::Idle,
        Doing::Network
        | Doing::Interrupt
        | Doing::Broken(
            Break::Unheard
            | Break::Uncertain
            | Break::NoWaking
            | Break::Before
            | Break::ProcessOver
            | Break::NotOver,
        ) => Idleness::MayBeIdle,
        _ => Idleness::Stalled,
    }
}

/// Judges a sleep that began before the recording. Only its call is known.
pub(super) fn of_before(what: For) -> Idleness {
    match what {
        For::Lock { .. }
        | For::Io
        | For::Memory { .. }
        | For::Fence { .. }
        | For::Rcu
        | For::Continue
        | For::Answer => Idleness::Stalled,
        For::Time | For::Work | For::Events | For::Signal => Idleness::Idle,
        _ => Idleness::MayBeIdle,
    }
}

/// Returns whether the thread worked for most of the time, rather than slept on purpose or waited for another
/// machine.
pub(super) fn is_busy(behind: &[Piece], paths: &Paths) -> bool {
    let (mut busy, mut all) = (0_u64, 0_u64);
    for piece in behind {
        all += piece.ns;
        let works = matches!(
            paths.end(piece.path),
            Doing::Runs { .. }
                | Doing::Queued { .. }
                | Doing::Disk { .. }
                | Doing::Quota
                | Doing::Budget
        );
        busy += if works { piece.ns } else { 0 };
    }
    busy * 2 > all
}
