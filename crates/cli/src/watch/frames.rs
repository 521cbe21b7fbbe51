//! Frames: what a thread does between two sleeps at the place where it waits for its next beat, or between two marks of its own.
//! A frame that takes longer than the period is late.
//!
//! ```text
//! beats       |---------|---------|---------|---------|---------|        a period apart, learned or given
//! the thread  wwwsssssss|wwwsssssss|wwLLLLLLLLLLLLLLLLLLLLLLLsss|wwws    works, sleeps until the beat, waits for a lock
//!                                  ^ begin                   ^ end: late by the length less the period
//! ```
//!
//! The sleep at that place is never late, however long it is: no frame may be due. After a sleep of more than a period and a half the
//! thread was idle, and its next frame is none of the rhythm. Between marks waits for work are not counted, wherever they are: one of
//! them is for the next beat.

mod beats;

use std::collections::{HashMap, HashSet};

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::watch::{Rhythm, Trigger, TriggerKind};

use crate::args::{Frame, FrameOf};
use beats::{Beats, Place, Places, Sleep};

pub(super) use beats::{Place as SleepPlace, Sleep as Slept};

/// Sleeps and marks that one reading keeps; a thread that has more draws no frames.
const MOST_HELD: usize = 1 << 16;
/// Threads whose frames are reported after they ended.
const MOST_ENDED: usize = 100;
/// Lines about rhythms that were learned.
const MOST_SAID: usize = 20;
/// A longer frame of which more than half are waits for work is none: the thread has left its loop for another.
const LEFT: u64 = 1_000_000_000;

/// Something that a thread did.
#[derive(Debug)]
enum Did {
    /// It slept where it may wait for its next beat.
    Slept(Sleep),
    /// It waited for work: when it left, and when it was woken.
    Idled(u64, u64),
    Marked,
    Ended,
}

/// The frames of a thread.
#[derive(Debug)]
struct Thread {
    /// A period that was given.
    given: Option<u64>,
    /// Where it sleeps; of a thread that marks its frames nowhere.
    places: Places,
    marks: Beats,
    /// The period, and the place of which it is.
    pace: Option<(u64, Place)>,
    /// When the frame began that goes on; `None` where it is none of the rhythm.
    since: Option<u64>,
    /// Time for which the thread waited for work since.
    idle: u64,
    /// The frame that went on at the last look, and the one that has fired.
    seen: Option<u64>,
    fired: Option<u64>,
    told: Rhythm,
}

/// The frames of all threads that are asked for.
#[derive(Debug, Default)]
pub(super) struct Frames {
    asked: Vec<Frame>,
    /// Which of them some thread has.
    met: HashSet<usize>,
    late: Option<u64>,
    /// What threads did, by the time when it was over: the records of several CPUs come one CPU after the other.
    held: Vec<(u64, u32, Did)>,
    threads: HashMap<u32, Thread>,
    ended: Vec<Rhythm>,
    said: Vec<String>,
    learned: usize,
}

impl Frames {
    /// `late` replaces the limit, which is a period.
    pub(super) fn new(asked: Vec<Frame>, late: Option<Nanos>) -> Frames {
        Frames {
            asked,
            late: late.map(|late| late.0),
            ..Frames::default()
        }
    }

    /// Returns whether any frames are asked for.
    pub(super) fn are_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Follows the frames of a thread where they are asked for by its process, its name or its process's name. Returns whether
    /// they are.
    pub(super) fn follow(&mut self, tid: u32, pid: u32, names: [&str; 2]) -> bool {
        let is = |frame: &Frame| match &frame.of {
            FrameOf::Process(asked) => *asked == pid,
            FrameOf::Name(name) => names.contains(&&**name),
            FrameOf::Mark(_) => false,
        };
        let Some(at) = self.asked.iter().position(is) else {
            return false;
        };
        self.met.insert(at);
        let given = self.asked[at].period;
        self.thread(tid, pid, names[0], given, None);
        true
    }

    fn thread(&mut self, tid: u32, pid: u32, task: &str, given: Option<Nanos>, mark: Option<&str>) {
        let new = || Thread {
            given: given.map(|period| period.0),
            places: Places::default(),
            marks: Beats::default(),
            pace: None,
            since: None,
            idle: 0,
            seen: None,
            fired: None,
            told: Rhythm {
                pid,
                tid,
                task: String::new(),
                call: None,
                mark: mark.map(str::to_owned),
                period_ns: 0,
                frames: 0,
                late: 0,
                latest_ns: None,
            },
        };
        let thread = self.threads.entry(tid).or_insert_with(new);
        task.clone_into(&mut thread.told.task);
    }

    /// Returns whether frames by this mark are asked for.
    pub(super) fn are_by(&self, mark: &str) -> bool {
        let is = |frame: &Frame| matches!(&frame.of, FrameOf::Mark(name) if name == mark);
        self.asked.iter().any(is)
    }

    /// A thread marked a frame, by a name of [`Frames::are_by`].
    pub(super) fn marked(&mut self, mark: &str, tid: u32, (pid, task): (u32, &str), time: u64) {
        let is = |frame: &Frame| matches!(&frame.of, FrameOf::Mark(name) if name == mark);
        let at = self.asked.iter().position(is);
        self.met.extend(at);
        let given = at.and_then(|at| self.asked[at].period);
        self.thread(tid, pid, task, given, Some(mark));
        let thread = self.threads.get(&tid);
        let own = |thread: &Thread| thread.told.mark.as_deref() == Some(mark);
        if thread.is_some_and(own) {
            self.hold(time, tid, Did::Marked);
        }
    }

    /// Returns whether the thread marks its frames.
    pub(super) fn marks(&self, tid: u32) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| thread.told.mark.is_some())
    }

    /// A thread that is followed slept, until it ran at `ran`.
    pub(super) fn slept(&mut self, tid: u32, sleep: Sleep, ran: u64) {
        self.hold(ran, tid, Did::Slept(sleep));
    }

    /// A thread that marks waited for work, until it ran at `ran`.
    pub(super) fn idled(&mut self, tid: u32, (left, woken): (u64, u64), ran: u64) {
        self.hold(ran, tid, Did::Idled(left, woken));
    }

    /// A thread has ended.
    pub(super) fn ended(&mut self, tid: u32, time: u64) {
        if self.threads.contains_key(&tid) {
            self.hold(time, tid, Did::Ended);
        }
    }

    /// Threads that are not among those `alive` at `now` have ended. A full ring may have lost that, or what they did last is
    /// [held](Frames::until): their frames are reported when it is known.
    pub(super) fn retain(&mut self, alive: &HashSet<u32>, now: u64) {
        let ended = |tid: u32, held: &[(u64, u32, Did)]| {
            (held.iter()).any(|(_, of, did)| *of == tid && matches!(did, Did::Ended))
        };
        for &tid in self.threads.keys() {
            if !alive.contains(&tid) && !ended(tid, &self.held) {
                self.held.push((now, tid, Did::Ended));
            }
        }
    }

    fn hold(&mut self, time: u64, tid: u32, did: Did) {
        if self.held.len() >= MOST_HELD {
            self.lost();
        }
        self.held.push((time, tid, did));
    }

    /// Records were lost: what goes on may have ended.
    pub(super) fn lost(&mut self) {
        self.held.retain(|(_, _, did)| matches!(did, Did::Ended));
        for thread in self.threads.values_mut() {
            (thread.since, thread.idle, thread.fired) = (None, 0, None);
            thread.marks.pause();
            thread.places.pause();
        }
    }

    /// All that was over by `time` is known. Returns the frames among it that were late.
    pub(super) fn until(&mut self, time: u64) -> Vec<Trigger> {
        let mut fired = Vec::new();
        self.held.sort_rows_by_key(|(at, ..)| *at);
        let over = self.held.partition_point(|(at, ..)| *at <= time);
        for (at, tid, did) in self.held.drain(..over) {
            let Some(thread) = self.threads.get_mut(&tid) else {
                continue;
            };
            let before = thread.told.period_ns;
            match did {
                Did::Slept(sleep) => fired.extend(thread.slept(&sleep, self.late)),
                Did::Idled(left, woken) => thread.idles(left, woken),
                Did::Marked => fired.extend(thread.marked(at, self.late)),
                Did::Ended => {
                    let told = self.threads.remove(&tid).map(|thread| thread.told);
                    let told = told.filter(|told| told.period_ns > 0);
                    if self.ended.len() < MOST_ENDED {
                        self.ended.extend(told);
                    }
                    continue;
                }
            }
            let told = &thread.told;
            if told.period_ns.abs_diff(before) > before / 5 && self.learned < MOST_SAID {
                self.learned += 1;
                self.said.push(rhythm(told));
            }
        }
        fired
    }

    /// Looks at what goes on at `now`. `asleep` has, by thread, the place of the sleep that goes on, when it began, and whether it is
    /// for work. Returns the frames that are late and not over: those of which the look before knew, too.
    pub(super) fn look(
        &mut self,
        asleep: &HashMap<u32, (Place, u64, bool)>,
        now: u64,
    ) -> Vec<Trigger> {
        let mut fired = Vec::new();
        for (tid, thread) in &mut self.threads {
            let (Some(since), Some((period, place))) = (thread.since, thread.pace) else {
                continue;
            };
            if self.held.iter().any(|(_, of, _)| of == tid) {
                continue; // not up to date
            }
            let sleep = asleep.get(tid);
            let marks = thread.told.mark.is_some();
            if let Some(&(_, left, _)) = sleep.filter(|sleep| sleep.0 == place && !marks) {
                fired.extend(thread.is_over(left, self.late));
                thread.since = None;
                continue;
            }
            let idle = sleep.filter(|sleep| sleep.2);
            let idle = idle.map_or(0, |sleep| now.saturating_sub(sleep.1.max(since)));
            let late = thread.late((since, now), thread.idle + idle, period);
            let known = thread.seen.replace(since) == Some(since);
            if known && late >= self.late.unwrap_or(period) && thread.fired != Some(since) {
                thread.fired = Some(since);
                fired.push(Trigger {
                    open: true,
                    ..thread.trigger((since, now), late, self.late.unwrap_or(period))
                });
            }
        }
        fired
    }

    /// Returns when the oldest frame began that has fired and is not over.
    pub(super) fn oldest_open(&self) -> Option<u64> {
        let threads = self.threads.values();
        threads.filter_map(|thread| thread.fired).min()
    }

    /// Returns lines about rhythms that were learned since the last time.
    pub(super) fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// Returns a line for each name or mark that was asked for and that no thread had: perhaps it is misspelt.
    pub(super) fn unmet(&self) -> Vec<String> {
        let unmet = self.asked.iter().enumerate();
        let unmet = unmet.filter(|(at, _)| !self.met.contains(at));
        let line = |(_, frame): (usize, &Frame)| match &frame.of {
            FrameOf::Process(pid) => format!("no frames: no thread of process {pid} was seen"),
            FrameOf::Name(name) => format!(
                "no frames: no thread or process of the name {name} was seen (ps -eLo comm prints the names)"
            ),
            FrameOf::Mark(mark) => format!("no frames: no thread set the mark {mark}"),
        };
        unmet.map(line).collect()
    }

    /// Returns what the threads' frames were like.
    pub(super) fn rhythms(&self) -> Vec<Rhythm> {
        let live = self.threads.values().map(|thread| &thread.told);
        let all = self.ended.iter().chain(live);
        let mut all: Vec<Rhythm> = all.filter(|told| told.period_ns > 0).cloned().collect();
        all.sort_rows_by_key(|told| (std::cmp::Reverse(told.late), told.tid));
        all
    }
}

/// A rhythm in words: `frames of game (812): 60.0 Hz, by clock_nanosleep`.
pub(super) fn rhythm(told: &Rhythm) -> String {
    let by = match (&told.mark, &told.call) {
        (Some(mark), _) => format!(", by its mark {mark}"),
        (None, Some(call)) => format!(", by {call}"),
        (None, None) => String::new(),
    };
    let hz = hz(told.period_ns);
    format!("frames of {} ({}): {hz}{by}", told.task, told.tid)
}

/// A rhythm, and how many frames were late: `frames of game (812): 60.0 Hz, by clock_nanosleep; 3 of 3600 late, at most 83 ms`.
pub(super) fn summary(told: &Rhythm) -> String {
    let latest = told.latest_ns.map(|ns| format!(", at most {}", Nanos(ns)));
    format!(
        "{}; {} of {} late{}",
        rhythm(told),
        told.late,
        told.frames,
        latest.unwrap_or_default()
    )
}

/// How often a period is in a second: `60.0 Hz`.
pub(super) fn hz(period_ns: u64) -> String {
    format!("{:.1} Hz", 1e9 / period_ns.max(1) as f64)
}

impl Thread {
    fn slept(&mut self, sleep: &Sleep, late: Option<u64>) -> Option<Trigger> {
        let mut trigger = None;
        if let Some((period, place)) = self.pace
            && place == sleep.place
        {
            trigger = self.is_over(sleep.left, late);
            let asleep = sleep.woken.saturating_sub(sleep.left);
            self.since = (asleep <= period + period / 2).then_some(sleep.woken);
        } else if sleep.idle {
            self.idles(sleep.left, sleep.woken);
        }
        let pace = self.places.slept(sleep, self.given);
        if pace != self.pace {
            if pace.map(|pace| pace.1) != self.pace.map(|pace| pace.1) {
                let here = pace.filter(|pace| pace.1 == sleep.place);
                (self.since, self.fired) = (here.map(|_| sleep.woken), None);
            }
            self.pace = pace;
            if let Some((period, place)) = pace {
                self.told.period_ns = period;
                self.told.call = self.places.call(place);
            }
        }
        trigger
    }

    /// The thread waited for work.
    fn idles(&mut self, left: u64, woken: u64) {
        let since = self.since.unwrap_or(woken).max(left);
        self.idle += woken.saturating_sub(since);
    }

    fn marked(&mut self, at: u64, late: Option<u64>) -> Option<Trigger> {
        let trigger = self.is_over(at, late);
        let known = self.marks.beat(at);
        let period = match self.pace {
            Some((period, _)) if known && self.given.is_none() && !self.marks.keep(period) => None,
            Some((period, _)) => self.marks.steady().filter(|_| known).or(Some(period)),
            None => self.marks.steady().filter(|_| known),
        };
        let period = self.given.or(period);
        self.pace = period.map(|period| (period, Place::default()));
        self.told.period_ns = period.unwrap_or(self.told.period_ns);
        self.since = Some(at);
        trigger
    }

    /// The frame that goes on is over at `end`. Returns a trigger where it is late.
    fn is_over(&mut self, end: u64, late: Option<u64>) -> Option<Trigger> {
        let (since, idle) = (self.since.take(), std::mem::take(&mut self.idle));
        self.fired = None;
        let (since, (period, _)) = (since?, self.pace?);
        self.told.frames += 1;
        let limit = late.unwrap_or(period);
        let late = self.late((since, end), idle, period);
        if late < limit {
            return None;
        }
        self.told.late += 1;
        self.told.latest_ns = self.told.latest_ns.max(Some(late));
        Some(self.trigger((since, end), late, limit))
    }

    /// How late a frame is that has lasted from `begin` to `end`, with waits for work of `idle`.
    fn late(&self, (begin, end): (u64, u64), idle: u64, period: u64) -> u64 {
        let lasted = end.saturating_sub(begin);
        match self.told.mark {
            Some(_) => lasted.saturating_sub(idle + period),
            None if lasted > LEFT && idle > lasted / 2 => 0,
            None => lasted.saturating_sub(period),
        }
    }

    fn trigger(&self, (begin, end): (u64, u64), late: u64, limit: u64) -> Trigger {
        let told = &self.told;
        Trigger {
            begin_ns: Some(begin),
            measured_ns: Some(late),
            threshold_ns: Some(limit),
            window_ns: Some(told.period_ns),
            call: told.call.clone(),
            mark: told.mark.clone(),
            pid: Some(told.pid),
            tid: Some(told.tid),
            task: Some(told.task.clone()),
            ..Trigger::new(TriggerKind::Frame, end)
        }
    }
}

#[cfg(test)]
mod tests;
