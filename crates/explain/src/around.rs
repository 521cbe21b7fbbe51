//! Finds the cause of one stall: follows the waits of its window as in any explanation ([`crate::chain`]), and takes
//! the cause that took most of the time, with the end of its chain.

use std::collections::BTreeMap;

use stopgap_events::order::SortRows;
use stopgap_stats::explain::{Advice, Idleness, Link, Waiting};
use stopgap_stats::watch::{Cause, Culprit, Stall, Trigger, TriggerKind};

use crate::advice;
use crate::chain::StallWindow;
use crate::why::{self, Kind};

/// Nanoseconds: less time than this within a window does not explain a stall.
const LEAST_NS: u64 = 1_000_000;
/// Nanoseconds before a mark that count as its stall. A mark only says that something was late, not for how long.
const BEFORE_MARK_NS: u64 = 1_000_000_000;
/// Most waits, with their chains, in a record.
const MOST_WAITING: usize = 10;

/// Returns the window of each trigger of a stall, in the order of the triggers.
#[must_use]
pub fn windows(stall: &Stall) -> Vec<StallWindow> {
    let of = |trigger: &Trigger| {
        let begin = match trigger.kind {
            TriggerKind::Mark => trigger.at_ns.saturating_sub(BEFORE_MARK_NS),
            _ => trigger.begin_ns.unwrap_or(stall.begin_ns),
        };
        StallWindow {
            tid: trigger.tid,
            begin_ns: begin,
            end_ns: trigger.at_ns,
        }
    };
    stall.triggers.iter().map(of).collect()
}

/// Returns the cause of each trigger of a stall, in the order of the triggers; `None` where the trace has none.
/// `waiting` has the waits within each of [`windows`].
#[must_use]
pub fn causes(stall: &Stall, waiting: &[Vec<Waiting>]) -> Vec<Option<Cause>> {
    let causes = stall.triggers.iter().zip(waiting);
    let of = |(trigger, waiting): (&Trigger, &Vec<Waiting>)| {
        let mut cause = cause(trigger, waiting)?;
        cause.text.push_str(&before(stall, trigger));
        Some(cause)
    };
    causes.map(of).collect()
}

/// Returns the trigger that leads a stall, and its cause. A late frame comes first. Then memory pressure, if its
/// cause took at least as much time as that of any thread with a trigger; then a thread that waited for a disk; then
/// the thread that lost most. `causes` are those of [`causes`].
#[must_use]
pub fn headline<'s>(stall: &'s Stall, causes: &[Option<Cause>]) -> (Option<&'s Trigger>, Cause) {
    let causes = stall.triggers.iter().zip(causes);
    let causes = causes.filter_map(|(trigger, cause)| Some((trigger, cause.as_ref()?)));
    let own = causes.clone().filter(|(trigger, _)| trigger.tid.is_some());
    let greatest = own.map(|(_, cause)| time_of(cause)).max().unwrap_or(0);
    let rank = |(trigger, cause): &(&Trigger, &Cause)| {
        let by_disk = cause
            .culprit
            .as_ref()
            .is_some_and(|end| end.cause == "disk");
        let kind = match trigger.kind {
            // Somebody asked to watch frames.
            TriggerKind::Frame => 4,
            TriggerKind::MemoryPressure if time_of(cause) >= greatest => 3,
            // A thread that waits for the disk names itself, which pressure does not.
            _ if by_disk && trigger.tid.is_some() => 2,
            TriggerKind::IoPressure => 1,
            _ => 0,
        };
        (kind, trigger.tid.is_some(), trigger.measured_ns)
    };
    match causes.max_by_key(rank) {
        Some((trigger, cause)) => (Some(trigger), cause.clone()),
        None => {
            let first = stall.triggers.first();
            (first, unknown(stall, first))
        }
    }
}

/// Returns what to try first against a cause; `None` if nobody can change the ends of its chains.
#[must_use]
pub fn advice(cause: &Cause) -> Option<Advice> {
    let own = |row: &&Waiting| word_of(row) == cause.word;
    let waits: Vec<&Waiting> = cause.waiting.iter().filter(own).collect();
    advice::of_waits(&waits, LEAST_NS).into_iter().next()
}

/// Returns how long threads waited for the cause.
fn time_of(cause: &Cause) -> u64 {
    let rows = cause
        .waiting
        .iter()
        .filter(|row| word_of(row) == cause.word);
    rows.map(|row| row.total_ns).sum()
}

/// Returns a clause that says how long before the trace a thread's loss began, if that is at least 1 ms.
fn before(stall: &Stall, trigger: &Trigger) -> String {
    let began = trigger.begin_ns.unwrap_or(stall.from_ns);
    match stall.from_ns.saturating_sub(began) {
        ..LEAST_NS => String::new(),
        ns => format!(
            "; it began {} before the trace (a larger --buffer keeps more)",
            ms(ns)
        ),
    }
}

/// Returns the cause `unknown`, with the reason.
fn unknown(stall: &Stall, trigger: Option<&Trigger>) -> Cause {
    let why = match trigger {
        Some(trigger) if trigger.at_ns < stall.from_ns => {
            let how = if trigger.open {
                "was still going on"
            } else {
                "was over"
            };
            format!(
                "it {how} {} before the trace begins, and is not in it (a larger --buffer keeps more)",
                ms(stall.from_ns - trigger.at_ns)
            )
        }
        Some(trigger) => match trigger.kind {
            TriggerKind::MemoryPressure => {
                "nobody waited for memory or freed any within the stall".to_owned()
            }
            TriggerKind::IoPressure => "nobody waited for a disk within the stall".to_owned(),
            _ => "no thread lost time within the stall".to_owned(),
        },
        None => "nothing fired".to_owned(),
    };
    Cause {
        word: "unknown".to_owned(),
        text: format!("unknown: {why}"),
        share: None,
        culprit: None,
        waiting: Vec::new(),
    }
}

/// Returns the word that parts of an operation have for this wait.
#[must_use]
pub fn word_of(waiting: &Waiting) -> &'static str {
    match waiting.idleness {
        Idleness::Idle => return "idle",
        Idleness::MayBeIdle => return "may-be-idle",
        Idleness::Stalled => {}
    }
    match &*waiting.cause {
        "continue" => "stopped",
        "data" | "events" | "word" | "signal" => "answer",
        "time" => "answer", // the thread polls for an answer
        "priority-inversion" => "run-queue",
        word => why::of_word(word).map_or("unknown", |cause| cause.word),
    }
}

fn is_memory(word: &str) -> bool {
    why::of_word(word).is_some_and(|cause| cause.kind == Kind::Memory)
}

/// Returns the cause of a trigger from the waits of its window; `None` if none of them explains it.
fn cause(trigger: &Trigger, waiting: &[Waiting]) -> Option<Cause> {
    let own = trigger.tid.is_some();
    // A stop is a cause only for the stopped thread itself: other threads go on.
    let lost =
        |one: &&Waiting| one.idleness == Idleness::Stalled && (own || word_of(one) != "stopped");
    let mut rows: Vec<&Waiting> = waiting.iter().filter(lost).collect();
    // A frame is late by all of its time, whether its thread ran or waited.
    let ran = match trigger.kind {
        TriggerKind::Frame => {
            let length = trigger.at_ns.saturating_sub(trigger.begin_ns?);
            length.saturating_sub(waiting.iter().map(|row| row.total_ns).sum())
        }
        _ => 0,
    };
    if own && (sum(&rows) + ran) * 2 < trigger.measured_ns.unwrap_or(2 * LEAST_NS) {
        // Idle waits count, too: somebody asked to watch this call, or it became known only after the trigger which
        // thread asks.
        rows = waiting.iter().collect();
    }
    if trigger.kind == TriggerKind::MemoryPressure {
        // Memory pressure includes pages that come back from the disk, but not a call's own wait for a disk.
        rows.retain(|row| word_of(row) != "io" || row.call.is_none());
    }
    let all = sum(&rows) + ran;
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    if ran > 0 {
        sums.insert("on-cpu", ran);
    }
    for row in &rows {
        *sums.entry(word_of(row)).or_default() += row.total_ns;
    }
    let greatest = |fits: fn(&str) -> bool| {
        let fitting = sums
            .iter()
            .filter(|(word, ns)| fits(word) && **ns >= LEAST_NS);
        fitting.max_by_key(|(_, ns)| **ns).map(|(word, _)| *word)
    };
    let word = match trigger.kind {
        // Reclaim had taken the pages that come back, so it comes first.
        TriggerKind::MemoryPressure => {
            greatest(is_memory).or_else(|| greatest(|word| word == "io"))
        }
        TriggerKind::IoPressure => greatest(|word| word == "io"),
        _ => greatest(|_| true),
    }?;
    rows.sort_rows_by_key(|row| (word_of(row) != word, std::cmp::Reverse(row.total_ns)));
    let of_it: Vec<&Waiting> = rows
        .iter()
        .copied()
        .filter(|row| word_of(row) == word)
        .collect();
    let ns = sums[word];
    let share = ns as f64 / all as f64;
    let chain = (!of_it.is_empty()).then(|| Chain::of(&of_it));
    let who = match (own, &chain) {
        (false, Some(chain)) => format!("; most by {}", chain.waiting.task),
        _ => String::new(),
    };
    let (text, culprit) = match chain {
        Some(chain) => (chain.text(ns), chain.culprit(all)),
        None => {
            let itself = itself(trigger, share);
            (itself.text.clone(), Some(itself))
        }
    };
    let also = sums
        .iter()
        .filter(|(other, ns)| **other != word && **ns * 10 >= all);
    let also: String = also
        .map(|(other, ns)| format!("; {:.0} % {other}", *ns as f64 / all as f64 * 100.0))
        .collect();
    Some(Cause {
        word: word.to_owned(),
        text: format!(
            "{word}, {:.0} % of {}{who}: {text}{also}",
            share * 100.0,
            ms(all),
        ),
        share: Some(share),
        culprit,
        waiting: rows.into_iter().take(MOST_WAITING).cloned().collect(),
    })
}

/// Names the thread of a trigger as the culprit: it ran for too long.
fn itself(trigger: &Trigger, share: f64) -> Culprit {
    let task = trigger.task.clone();
    Culprit {
        cause: "running".to_owned(),
        text: format!("{} ran", task.as_deref().unwrap_or("the thread")),
        task,
        tid: trigger.tid,
        share,
    }
}

fn sum(rows: &[&Waiting]) -> u64 {
    rows.iter().map(|row| row.total_ns).sum()
}

/// A chain, to the end that most of the waits have.
struct Chain<'w> {
    waiting: &'w Waiting,
    links: Vec<&'w Link>,
    /// Time in nanoseconds of all waits with this end.
    ns: u64,
}

impl<'w> Chain<'w> {
    /// Returns the chain to the end that has most of the time of `rows`, which is not empty.
    fn of(rows: &[&'w Waiting]) -> Chain<'w> {
        let mut paths: Vec<Chain<'w>> = Vec::new();
        for row in rows {
            ends(row, &row.links, &mut Vec::new(), &mut paths);
            if row.links.is_empty() {
                paths.push(Chain {
                    waiting: row,
                    links: Vec::new(),
                    ns: row.total_ns,
                });
            }
        }
        // Several chains may lead to the same end.
        let mut sums: BTreeMap<_, u64> = BTreeMap::new();
        for path in &paths {
            *sums.entry(path.key()).or_default() += path.ns;
        }
        let rank = |path: &Chain<'w>| {
            let told = path.links.last().is_none_or(|end| end.cause != "other");
            (told, sums[&path.key()], path.ns)
        };
        let best = paths.iter().max_by_key(|path| rank(path));
        let best = best.map(|path| Chain {
            waiting: path.waiting,
            links: path.links.clone(),
            ns: sums[&path.key()],
        });
        best.unwrap_or(Chain {
            waiting: rows[0],
            links: Vec::new(),
            ns: 0,
        })
    }

    fn key(&self) -> (&'w str, Option<u32>, Option<&'w str>) {
        let end = self.links.last();
        // Several threads may sleep on purpose, so the sleeper is part of the key.
        let sleeper = end.filter(|end| end.task.is_none());
        let sleeper = sleeper.and_then(|_| self.links.iter().rev().nth(1));
        (
            end.map_or(&self.waiting.text, |end| &end.text),
            end.and_then(|end| end.tid),
            sleeper.map(|sleeper| &*sleeper.text),
        )
    }

    /// Returns the hops from the waiting thread to the end, with the end's share of `whole` if it is less than 95 %.
    fn text(&self, whole: u64) -> String {
        let mut hops = vec![self.waiting.text.clone()];
        for link in &self.links {
            let mut hop = link.text.clone();
            if let (Some(tid), Some(task)) = (link.tid, &link.task)
                && hop.contains(&**task)
            {
                hop = hop.replacen(&**task, &format!("{task} ({tid})"), 1);
            }
            // A wait for a CPU has a single link, which repeats the wait and adds behind which thread it was.
            if hops.last().is_some_and(|last| hop.starts_with(&**last)) {
                hops.pop();
            }
            hops.push(hop);
        }
        let part = self.ns as f64 / whole.max(1) as f64;
        let part = match part {
            0.95.. => String::new(),
            part => format!(" ({:.0} % of it)", part * 100.0),
        };
        format!("{}{part}", hops.join(" > "))
    }

    /// Returns the thread or thing at the end; `None` if only the wait itself is known.
    fn culprit(&self, all: u64) -> Option<Culprit> {
        let end = self.links.last()?;
        // A timer belongs to the thread that sleeps.
        let who = match &end.task {
            Some(_) => Some(*end),
            None => self
                .links
                .iter()
                .rev()
                .find(|link| link.task.is_some())
                .copied(),
        };
        let who = who.filter(|_| end.cause == "timer" || end.task.is_some());
        Some(Culprit {
            cause: end.cause.clone(),
            text: end.text.clone(),
            task: who.and_then(|who| who.task.clone()),
            tid: who.and_then(|who| who.tid),
            share: self.ns as f64 / all.max(1) as f64,
        })
    }
}

/// Adds the chains from `waiting` to each end below `links`.
fn ends<'w>(
    waiting: &'w Waiting,
    links: &'w [Link],
    above: &mut Vec<&'w Link>,
    to: &mut Vec<Chain<'w>>,
) {
    for link in links {
        above.push(link);
        let deeper: u64 = link.links.iter().map(|link| link.ns).sum();
        if link.ns > deeper {
            to.push(Chain {
                waiting,
                links: above.clone(),
                ns: link.ns - deeper,
            });
        }
        ends(waiting, &link.links, above, to);
        above.pop();
    }
}

fn ms(ns: u64) -> String {
    format!("{:.0} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests;
