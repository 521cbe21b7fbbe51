//! Whether a sleep is a wait for work, or a loss.
//!
//! Rules, the first that holds; docs/explain.md has them for users:
//!
//! 1. A page fault, a lock, a disk, memory, a fence, a grace period of RCU, a stop, the program behind a file system (FUSE, NFS) or a call (seccomp, fanotify): a loss.
//! 2. A time that the thread named itself (`nanosleep`): idle; what it looked for between short ones is judged later (`naps`).
//!    A worker of the kernel or of an io_uring without work: idle. So is a thread of a run time's scheduler that has nothing to run.
//! 3. A child (its end may show by a descriptor that it watches alone) or a thread that it joins: as long as that one sleeps on purpose, idle; behind the network, it may be; else a loss.
//!    So is the first word of a thread that it made since it was idle.
//!    In the handler of a signal, all but such sleeps: a loss, because what the signal interrupted waits for it.
//! 4. An answer that it had asked for is a loss: it woke, by asking, the thread that woke it, or one that woke that one.
//!    Or it asks that thread at times, in at least a fifth of its waits for it, and that one was busy all the while: a question to a busy
//!    thread is not seen. Or it reads from it in a blocking call: nor is a question seen that the other does not look at yet.
//!    Or the end of its sleep shows that the other had not read yet what it was sent.
//!    Or a timeout ended its wait for one descriptor or word, and since it was idle it had asked a thread that has answered it before. Of several
//!    descriptors as short sleeps in 2.
//!    Or the thread that it asked told others, and those told the one that ended its sleep; or it connects to that one again and again.
//!    Who waits for its io_uring has asked the worker of that ring for what ends the wait.
//! 5. Room for what it writes, or a connection that it asks for: a loss.
//! 6. Bytes, events, a signal or another thread's word that nobody was asked for: idle where a thread of this machine or a
//!    timer ended the wait, or nothing did while the recording or the process went on. It may be idle where the trace cannot tell: the other
//!    end is another machine, the wake-up was not seen, both threads were there before the recording and either may be
//!    the one that asks, or the thread that gave its word had been busy all the while (a busy thread is asked without waking it).
//!    Who slept for the same word of memory meanwhile, or has the other's name but for its last number, hands work on: nobody asks. Nor does a word
//!    answer of one that had nothing to do since it was asked.
//!    It may be, too, where both wake each other, neither is idle in between, and the other was busy all the while: a first
//!    question to a thread that does not sleep is not seen.
//!    And where it waits for one descriptor, and the thread that ended it had been busy all the while.
//!    And in a function that waits for a lock as well as for work: Python's lock, of which it makes condition variables.
//! 7. All else may be idle.
//!
//! Which thread asks: where two wake each other, the one that is idle between being woken and waking the other, at least three times as
//! often as the other, a sleep for a time that it names not counted; but who connects to the other asks it. Where neither is, the one that made the other, or that woke who made it and waited meanwhile (a server's new process
//! for a client); else the one that woke the other first. Where both existed before the recording that is not known; then a thread
//! that waits for several descriptors is the server of one that does not; else the one that sleeps for a time in between.

use std::collections::HashMap;

use stopgap_stats::explain::Idleness;

use super::history::Piece;
use super::path::{Break, Doing, For, Paths, Quick};
use super::sleeps::{Ended, waits_for_room};
use crate::call::{Role, role};

/// Pairs of threads that are remembered.
const MOST_PAIRS: usize = 1 << 16;
/// Threads by which a question is handed on.
const MOST_HANDED_ON: u32 = 4;

/// Whether a sleeping thread had asked for what ended its sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    /// It asks that thread at times, and this time no question was seen: one to a busy thread is not.
    Unseen,
    /// The same, and of few of its waits a question was seen.
    Rarely,
    /// No, unless its first question was not seen: each wakes the other, and neither is idle in between; or it made that thread.
    Mutual,
    /// Both threads were there before the recording.
    Perhaps,
    Yes,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    /// The thread that asked first, as far as wake-ups show; `None` where that is not known.
    first: Option<u32>,
    /// Whether that one made the other, or began by itself what it asked then.
    sure: bool,
    /// The thread that connects to the other.
    client: Option<u32>,
    /// Whether one connects to answer the other.
    calls_back: bool,
    /// Whether the one that asks made the other, or had asked who made it.
    made: bool,
    /// How often each was idle after the other had woken it and before it woke the other: so is who asks, not who answers.
    idle: [u32; 2],
    /// The same, where it slept for a time that it had named: a client between two questions, or a server that takes its time.
    naps: [u32; 2],
    /// Whether each waits for several descriptors at once.
    several: [bool; 2],
    /// When each was woken by the other last.
    woken: [u64; 2],
    /// When it asked for what it has not been told yet.
    open: Option<u64>,
    /// Whether that was by opening a connection, on which it may take news from then on.
    greets: bool,
    /// How often it was told what it had been seen to ask for, and how often something else.
    answers: [u32; 2],
}

/// Pairs of threads, the lower first: which of them asks the other.
#[derive(Debug, Default)]
pub(super) struct Pairs(HashMap<(u32, u32), Pair, Quick>);

/// One of two threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct One {
    pub(super) tid: u32,
    /// Whether it began in the recording.
    pub(super) born: bool,
    /// The thread that made it.
    pub(super) parent: Option<u32>,
    /// When it was first seen.
    pub(super) began: u64,
    /// Whether it waits for several descriptors.
    pub(super) several: bool,
    /// When its last wait ended that was not for an answer, and whether it slept for a time that it had named.
    pub(super) idled: u64,
    pub(super) napped: bool,
    /// Whether neither a thread nor packets ended that wait: what it does since it began by itself.
    pub(super) by_itself: bool,
    /// How often it opened a connection that another thread waited for, and whether it accepts some.
    pub(super) connects: u8,
    pub(super) accepts: bool,
    /// Whether it opens a connection just now.
    pub(super) connecting: bool,
}

impl One {
    /// Whether it is a client of the other, which accepts connections.
    fn is_client_of(&self, other: &One) -> bool {
        self.connects > 1 && !self.accepts && other.accepts
    }
}

/// A sleep for bytes, events, a signal or a word, and the thread that ended it.
pub(super) struct Met {
    pub(super) waker: One,
    pub(super) sleeper: One,
    pub(super) left: u64,
    pub(super) woken: u64,
    /// Whether the waker took bytes: room to write wakes who waits to read, too.
    pub(super) received: bool,
    /// Whether the sleeper waits for several descriptors at once.
    pub(super) several: bool,
    /// Whether it waits for a word.
    pub(super) word: bool,
}

impl Pair {
    /// Returns the thread that asks.
    fn asker(&self, key: (u32, u32)) -> Option<u32> {
        let known = self.client.or_else(|| self.idler(key));
        known.or_else(|| match (self.first, self.napper(key)) {
            // The first question may not have been seen: it found a busy thread.
            (Some(first), Some(naps)) if first != naps => match self.several {
                [false, true] => Some(key.0),
                [true, false] => Some(key.1),
                _ if self.sure => Some(first),
                _ => Some(naps),
            },
            (first, naps) => first.or(naps),
        })
    }

    /// Returns the thread that is idle between what it is told and what it asks, where it is one of the two: three times as often as the
    /// other, which may wait for questions of others, too. A nap speaks against the other only.
    fn idler(&self, (low, high): (u32, u32)) -> Option<u32> {
        let [by_low, by_high] = self.idle_or_napped();
        match self.idle {
            [one, _] if is_many(one, by_high) => Some(low),
            [_, other] if is_many(other, by_low) => Some(high),
            _ => None,
        }
    }

    /// The same, where naps count as much.
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

/// Letters that names of threads of a pool have in common, at least.
const COMMON: usize = 3;

/// Bytes of a thread's name that the kernel keeps (TASK_COMM_LEN, and a zero).
const LONGEST_NAME: usize = 15;

/// Whether two threads of a process have names that differ in their last number alone, as `pool-1-thread-2`. Of `pool-1-thread-12` the
/// kernel cuts off the last digit: then both may have one name.
#[must_use]
pub fn are_of_a_pool(one: &str, other: &str) -> bool {
    let stem = |name: &'_ str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let apart = one != other || one.len() == LONGEST_NAME;
    let (end, same) = (stem(one), apart && stem(other) == stem(one));
    let letters = one[..end].bytes().filter(u8::is_ascii_alphabetic).count();
    same && end < one.len() && end < other.len() && one[..end] == other[..end] && letters >= COMMON
}

/// Words of memory that are remembered of a thread.
const MOST_WORDS: usize = 4;

/// The words of memory for which a thread slept last, each once, and when it was woken. Between a wait for work and handing more of it on it may
/// wait for locks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Words([(u64, u64); MOST_WORDS]);

impl Words {
    pub(super) fn slept(&mut self, address: u64, woken: u64) {
        let same = self.0.iter().position(|&(of, _)| of == address);
        self.0[..=same.unwrap_or(MOST_WORDS - 1)].rotate_right(1);
        self.0[0] = (address, woken);
    }

    /// Whether it slept for the word `address` while another thread of its process did, which fell asleep at `left`: both are of those that wait there
    /// for work in turn, and one that hands it on asks for nothing. Two that talk by one word sleep by turns.
    pub(super) fn slept_beside(&self, address: u64, left: u64) -> bool {
        let beside = |&(of, woken): &(u64, u64)| of == address && woken > left;
        address != 0 && self.0.iter().any(beside)
    }
}

impl Pairs {
    /// `waker` has woken `sleeper` at `at`, which waited for bytes, events, a signal or a word since `left`.
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
        // One wait for work counts once, and only after a question: one to a busy thread is not seen. And the other waited already: a server
        // that is idle until another asks takes the question of this one then, too. It may have waited again before the other got a CPU.
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
        // It was asked in another way and answers by connecting, without a wait for work in between.
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
            // It had nothing to do since it was asked, so this is no answer: threads of a pool give each other work in both directions. A loop of
            // events waits for others while it has questions to answer.
            Some(_) if idled_since && word && !waker.several && !waker.napped => {
                pair.open = None;
                Asked::No
            }
            Some(_) if pair.open.take().is_some() => {
                pair.answers[0] = pair.answers[0].saturating_add(u32::from(!pair.greets));
                Asked::Yes
            }
            // It did something else since it was told something, and came back to the server to which it connects.
            // One that connects again and again asks; one that connects once may take news.
            Some(_) if client && sleeper.idled > told => Asked::Unseen,
            // It made the other, or asked who made it: perhaps for what it does.
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

    /// A thread has ended the sleep of another, or taken bytes in the middle of it. Returns whether the sleeping thread had asked
    /// for it, or for what another thread does that it asked.
    pub(super) fn ends(
        &mut self,
        met: &Met,
        woken_by: impl Fn(u32) -> Option<(u32, u64)>,
    ) -> Asked {
        let (waker, sleeper) = (met.waker, met.sleeper);
        if met.received {
            // A loop of events may have answered, and the reader takes that.
            if met.several {
                return Asked::No;
            }
            // Only now it reads what it was sent before that wait.
            self.receives(waker, sleeper, met.left, met.woken);
            return Asked::Yes;
        }
        let asked = self.wakes(waker, sleeper, met.left, met.woken, met.word);
        let handed_on = asked != Asked::Yes && self.was_handed_on(sleeper.tid, waker.tid, woken_by);
        if handed_on { Asked::Yes } else { asked }
    }

    /// `reader` has taken what `sender` had sent before it fell asleep. To a busy thread that woke nobody: it is seen only now.
    fn receives(&mut self, reader: One, sender: One, left: u64, at: u64) {
        let key = (reader.tid.min(sender.tid), reader.tid.max(sender.tid));
        let (by, of) = if reader.tid == key.0 { (0, 1) } else { (1, 0) };
        let seen = |pair: &Pair| pair.woken[by] > pair.woken[of];
        if !self.0.get(&key).is_some_and(seen) {
            self.wakes(sender, reader, left, at, false);
        }
    }

    /// Whether one of two threads was seen to wake the other.
    pub(super) fn have_met(&self, one: u32, other: u32) -> bool {
        self.0.contains_key(&(one.min(other), one.max(other)))
    }

    /// `asker` was seen to ask `of`, through others.
    pub(super) fn learns(&mut self, asker: u32, of: u32) {
        if let Some(pair) = self.0.get_mut(&(asker.min(of), asker.max(of))) {
            pair.first = Some(asker);
            pair.open = None;
        }
    }

    /// Returns which of two threads asks the other, as far as is known.
    pub(super) fn who_asks(&self, one: u32, other: u32) -> Option<u32> {
        let key = (one.min(other), one.max(other));
        self.0.get(&key).and_then(|pair| pair.asker(key))
    }

    /// Returns which of two threads asks the other, as what they do in between shows.
    pub(super) fn idler(&self, one: u32, other: u32) -> Option<u32> {
        let key = (one.min(other), one.max(other));
        self.0.get(&key).and_then(|pair| pair.napper(key))
    }

    /// Whether `by`, which woke `tid`, had been asked by a thread that `tid` asked, or by one that was asked by that one.
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

    /// When `by` woke `tid` last; 0 where it did not.
    pub(super) fn told_at(&self, by: u32, tid: u32) -> u64 {
        let pair = self.0.get(&(by.min(tid), by.max(tid)));
        pair.map_or(0, |pair| pair.woken[usize::from(tid > by)])
    }

    /// Whether `one` had woken `other` until `at`.
    fn woke_before(&self, one: u32, other: u32, at: u64) -> bool {
        let pair = self.0.get(&(one.min(other), one.max(other)));
        pair.is_some_and(|pair| (1..=at).contains(&pair.woken[usize::from(other > one)]))
    }

    /// Whether one of two threads told the other at times what it had asked for.
    pub(super) fn has_answered(&self, one: u32, other: u32) -> bool {
        let pair = self.0.get(&(one.min(other), one.max(other)));
        pair.is_some_and(|pair| pair.answers[0] > 0)
    }

    /// Whether `asker` asked `of` at `at`, and has not been told.
    pub(super) fn waits_since(&self, asker: u32, of: u32, at: u64) -> bool {
        let key = (asker.min(of), asker.max(of));
        let pair = self.0.get(&key);
        pair.is_some_and(|pair| pair.asker(key) == Some(asker) && pair.open == Some(at))
    }
}

/// The facts of a sleep by which it is judged.
pub(super) struct Asleep<'a> {
    /// Its call.
    pub(super) call: Option<&'a str>,
    /// Whether no signal ends it, or it is a page fault.
    pub(super) blocked: bool,
    /// Whether it was over when the recording ended.
    pub(super) over: bool,
    pub(super) what: For,
    pub(super) ended: Ended,
    pub(super) asked: Asked,
    /// Whether it waits for several descriptors at once.
    pub(super) several: bool,
    /// Whether it is in a signal's handler.
    pub(super) handles_signal: bool,
    /// Whether its program waits in that place for a lock as well as for work.
    pub(super) lock_or_not: bool,
}

/// Judges a sleep: one for all of it, or `None` where each part of it is judged by [`of_child`]. `is_busy`: whether who ended it worked
/// for most of its time, by itself or by those that it waited for.
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
        // Uninterruptible or a page fault, and nobody says why: not for work.
        For::Something if asleep.blocked => Stalled,
        // The trace does not tell in which call.
        For::Something if asleep.call.is_none() => MayBeIdle,
        // A driver's own wait, of which nothing tells: only another thread's word may be work.
        For::Something => match asleep.ended {
            Ended::By(_) => MayBeIdle,
            _ => Stalled,
        },
        _ if asleep.asked == Asked::Perhaps => MayBeIdle,
        _ if asleep.asked == Asked::Unseen && is_busy() => Stalled,
        _ if asleep.asked == Asked::Rarely && !asleep.several && is_busy() => Stalled,
        // Whoever it asks may not look at the question: a server that another has locked. A blocking read waits for answers; a loop of
        // events may wait for anything.
        For::Data if asleep.asked == Asked::Unseen => Stalled,
        For::Events if asleep.asked == Asked::Unseen && !asleep.several => MayBeIdle,
        // Of one that computed all the while: a question to it would not have been seen.
        For::Data | For::Events if !asleep.several && is_by(asleep) && is_busy() => MayBeIdle,
        _ if asleep.asked == Asked::Mutual && is_busy() => MayBeIdle,
        For::Signal => Idle,
        // A request of its own ended.
        For::Events if asleep.ended == Ended::Disk => Stalled,
        // The kernel says that nothing else can be meant: a terminal, inotify, a new connection.
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

/// Whether a thread of this machine ended it.
fn is_by(asleep: &Asleep<'_>) -> bool {
    matches!(asleep.ended, Ended::By(_))
}

fn is_poll(call: Option<&str>) -> bool {
    call.is_none_or(|name| role(name) == Role::Waits)
}

/// Judges a part of a wait for a child, by what is at its end.
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

/// Judges what began before the recording, by its call alone.
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

/// Whether most of the time went by in work, and not in a sleep on purpose or in a wait for somebody elsewhere.
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
