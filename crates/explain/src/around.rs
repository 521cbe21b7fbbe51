//! The cause of one stall: what the operations lost their time to that overlap a window of the trace.
//!
//! A trace of some seconds shows much that has nothing to do with a stall: the longest wait of the
//! last minute may be a benign one. So what counts is the time that was lost *within* the window. And a
//! wait explains more than work: where a thread populates its memory for 150 ms while another waits for
//! the lock that it holds, the lock is the stall's cause and the work is its holder's.
//!
//! Where a call fired, the question is about that call, not about others that lost time meanwhile (module `fired`).

mod fired;
pub mod lost;

use std::collections::BTreeMap;

use stopgap_stats::explain::{Findings, Part, Slow};
use stopgap_stats::watch::{Cause, Stall, Trigger, TriggerKind};

use crate::why::{self, Kind};

/// A wait is the cause where it took this share of the time lost, however much work there was beside it.
const ENOUGH: f64 = 0.2;
/// Less within a window explains no stall.
const LEAST_NS: u64 = 1_000_000;

/// Returns the trigger that leads `stall`, and the cause by the operations in `findings`, of which the slowest some
/// hundred should have been kept: pressure that the trace explains, else the calls that fired, else any operation that lost time.
#[must_use]
pub fn headline<'s>(findings: &Findings, stall: &'s Stall) -> (Option<&'s Trigger>, Cause) {
    let of = |kind| move |trigger: &&Trigger| trigger.kind == kind;
    let triggers = || stall.triggers.iter();
    let all = overlapping(&findings.slow, (stall.begin_ns, stall.end_ns));
    for trigger in triggers() {
        if let Some(cause) = pressure(findings, &all, trigger.kind) {
            return (Some(trigger), cause);
        }
    }
    if let Some(call) = triggers().find(of(TriggerKind::SlowCall)) {
        let (call, cause) = fired::cause(findings, stall, call, &all);
        return (Some(call), cause);
    }
    let first = stall.triggers.first();
    let unexplained = match first.map(|trigger| trigger.kind) {
        Some(TriggerKind::MemoryPressure) => Some(NO_RECLAIM),
        Some(TriggerKind::IoPressure) => Some(NO_IO),
        _ => None,
    };
    let cause = match unexplained {
        Some(why) => unknown(why),
        None => told(&all, &Chosen::among(&all, any), "operations").unwrap_or_else(|| {
            reclaim_outside(findings).unwrap_or_else(|| {
                unknown("no operation of who was traced lost time within the window")
            })
        }),
    };
    (first, cause)
}

const NO_RECLAIM: &str = "no operation in the window waited for memory or for the disk, and nobody reclaimed: it was \
    somebody who was not traced, or before the window";
const NO_IO: &str = "no operation in the window waited for the disk: it was a call that is not taken apart (read, \
    write, fsync, ...), somebody who was not traced, or before the window";

fn unknown(why: &str) -> Cause {
    Cause {
        word: "unknown".to_owned(),
        text: format!("unknown: {why}"),
        share: None,
    }
}

/// Returns a cause that makes pressure. Other causes do not, however great they are.
fn pressure(findings: &Findings, all: &[Lost<'_>], kind: TriggerKind) -> Option<Cause> {
    let word: fn(&Sums<'_>) -> Option<String> = match kind {
        // Pages that come back from the disk are pressure, too, but reclaim is why they were gone.
        TriggerKind::MemoryPressure => |sums| {
            sums.greatest(memory, sums.all() * ENOUGH / 4.0)
                .or_else(|| sums.greatest(|word| memory(word) || word == "io", 0.0))
        },
        TriggerKind::IoPressure => |sums| sums.greatest(|word| word == "io", 0.0),
        _ => return None,
    };
    told(all, &Chosen::among(all, word), "operations").or_else(|| {
        let reclaimed = kind == TriggerKind::MemoryPressure;
        reclaimed.then(|| reclaim_outside(findings)).flatten()
    })
}

fn is(word: &str, kind: Kind) -> bool {
    why::of_word(word).is_some_and(|cause| cause.kind == kind)
}

fn memory(word: &str) -> bool {
    is(word, Kind::Memory)
}

/// Returns whether a cause is no wait for somebody or something.
fn work(word: &str) -> bool {
    is(word, Kind::Work)
}

/// The greatest wait that is no small part; else the greatest.
fn any(sums: &Sums<'_>) -> Option<String> {
    sums.greatest(|word| !work(word), sums.all() * ENOUGH)
        .or_else(|| sums.greatest(|word| word != "unknown", 0.0))
        .or_else(|| sums.greatest(|_| true, 0.0))
}

/// Time lost, by cause.
struct Sums<'f>(BTreeMap<&'f str, f64>);

impl Sums<'_> {
    fn all(&self) -> f64 {
        self.0.values().sum()
    }

    /// Returns the greatest of those that fit, where it has at least `least`.
    fn greatest(&self, fits: impl Fn(&str) -> bool, least: f64) -> Option<String> {
        let fitting = self.0.iter().filter(|(word, ns)| fits(word) && **ns > 0.0);
        let greatest = fitting.max_by(|a, b| a.1.total_cmp(b.1));
        let enough = greatest.filter(|(_, ns)| **ns >= least);
        enough.map(|(word, _)| (*word).to_owned())
    }
}

/// A cause that was chosen, its time, and all that was lost.
struct Chosen {
    word: Option<String>,
    ns: f64,
    all: f64,
}

impl Chosen {
    fn among(lost: &[Lost<'_>], word: impl Fn(&Sums<'_>) -> Option<String>) -> Chosen {
        let mut sums = Sums(BTreeMap::new());
        for lost in lost {
            *sums.0.entry(&lost.part.cause).or_default() += lost.ns;
        }
        let all = sums.all();
        let word = word(&sums).filter(|_| all >= LEAST_NS as f64);
        let ns = word.as_deref().map_or(0.0, |word| sums.0[word]);
        Chosen { word, ns, all }
    }
}

/// The cause in words, for several operations, which are called `what`.
fn told(lost: &[Lost<'_>], chosen: &Chosen, what: &str) -> Option<Cause> {
    let word = chosen.word.as_deref()?;
    // The operation that lost most to the cause.
    let most = most(lost, word)?;
    let share = chosen.ns / chosen.all;
    let slow = most.slow;
    let least = if slow.at_least { "at least " } else { "" };
    let within = match slow.length_ns as f64 - most.inside {
        outside if outside >= LEAST_NS as f64 => {
            format!(" within the stall, of {}", ms(slow.length_ns as f64))
        }
        _ => String::new(),
    };
    let text = format!(
        "{}, {:.0} % of {} lost in {what}; most by {} ({}) in {}: {least}{}{within}, {:.0} % of it {word}{}",
        most.name(),
        share * 100.0,
        ms(chosen.all),
        slow.task,
        slow.tid,
        called(&slow.call),
        ms(most.inside),
        most.part.share * 100.0,
        ended_by(slow, word),
    );
    Some(Cause {
        word: word.to_owned(),
        text,
        share: Some(share),
    })
}

fn most<'l, 'f>(lost: &'l [Lost<'f>], word: &str) -> Option<&'l Lost<'f>> {
    let of_it = lost.iter().filter(|lost| lost.part.cause == word);
    of_it.max_by(|a, b| a.ns.total_cmp(&b.ns))
}

/// Returns the thread that ended a wait for somebody.
fn ended_by(slow: &Slow, word: &str) -> String {
    let Some(waker) = &slow.woken_by else {
        return String::new();
    };
    if !matches!(word, "mmap_lock" | "lock" | "fence" | "unknown") {
        return String::new();
    }
    let call = waker.call.as_deref();
    let call = call.map_or(String::new(), |call| format!(" in {call}"));
    format!("; ended by {}{call}", waker.task)
}

/// Time that an operation lost to one cause within the window.
struct Lost<'f> {
    slow: &'f Slow,
    part: &'f Part,
    ns: f64,
    /// Length of the operation within the window.
    inside: f64,
}

impl Lost<'_> {
    /// The cause, with the function of a shrinker.
    fn name(&self) -> String {
        match &self.part.function {
            Some(function) => format!("{} ({function})", self.part.cause),
            None => self.part.cause.clone(),
        }
    }
}

fn overlapping(slow: &[Slow], window: (u64, u64)) -> Vec<Lost<'_>> {
    slow.iter().flat_map(|slow| parts(slow, window)).collect()
}

/// The parts of an operation, each as if it were spread evenly over it.
fn parts(slow: &Slow, (begin, end): (u64, u64)) -> impl Iterator<Item = Lost<'_>> {
    let from = slow.begin_ns.max(begin);
    let to = slow.begin_ns.saturating_add(slow.length_ns).min(end);
    let inside = to.saturating_sub(from) as f64;
    let share = inside / slow.length_ns.max(1) as f64;
    let waited = |part: &&Part| !matches!(&*part.cause, "idle" | "may-be-idle"); // nothing was due
    slow.parts.iter().filter(waited).map(move |part| Lost {
        slow,
        part,
        ns: part.ns as f64 * share,
        inside,
    })
}

/// Reclaim that went on outside of slow operations.
fn reclaim_outside(findings: &Findings) -> Option<Cause> {
    let reclaim = findings.memory.reclaim.as_deref().unwrap_or_default();
    let own = reclaim.iter().filter(|row| row.by != "kswapd");
    let row = own.max_by_key(|row| row.wall_ns)?;
    let word = match &*row.by {
        "direct" | "memcg" => format!("{}-reclaim", row.by),
        by => by.to_owned(),
    };
    let text = format!(
        "{word} by {}: {} in {} times, in no operation that is taken apart",
        row.task,
        ms(row.wall_ns as f64),
        row.count
    );
    (row.wall_ns >= LEAST_NS).then_some(Cause {
        word,
        text,
        share: None,
    })
}

fn called(call: &str) -> &str {
    match call {
        "fault" => "page faults",
        call => call,
    }
}

fn ms(ns: f64) -> String {
    format!("{:.0} ms", ns / 1e6)
}

#[cfg(test)]
mod tests;
