//! The cause of one stall: what the operations lost their time to that overlap a window of the trace.
//!
//! A trace of some seconds shows much that has nothing to do with a stall: the longest wait of the
//! last minute may be a benign one. So what counts is the time that was lost *within* the window. And a
//! wait explains more than work: where a thread populates its memory for 150 ms while another waits for
//! the lock that it holds, the lock is the stall's cause and the work is its holder's.

use std::collections::BTreeMap;

use stopgap_stats::explain::{Findings, Part, Slow};
use stopgap_stats::watch::{Cause, Stall, Trigger, TriggerKind};

/// Waits that are memory's doing.
const MEMORY: [&str; 5] = [
    "memcg-reclaim",
    "direct-reclaim",
    "compaction",
    "shrinker",
    "throttled",
];
/// What is no wait for somebody or something: more of it explains less.
const WORK: [&str; 3] = ["on-cpu", "run-queue", "unknown"];
/// A wait is the cause where it took this share of the time lost, however much work there was beside it.
const ENOUGH: f64 = 0.2;
/// Less within a window explains no stall.
const LEAST_NS: u64 = 1_000_000;

/// The cause of `stall` by the operations in `findings`, of which the slowest some hundred should have
/// been kept.
#[must_use]
pub fn cause(findings: &Findings, stall: &Stall) -> Cause {
    let window = (stall.begin_ns, stall.end_ns);
    let lost: Vec<Lost<'_>> = findings
        .slow
        .iter()
        .flat_map(|slow| parts(slow, window))
        .collect();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for lost in &lost {
        *sums.entry(&lost.part.cause).or_default() += lost.ns;
    }
    let all: f64 = sums.values().sum();
    if all < LEAST_NS as f64 {
        return without_operations(findings);
    }
    let word = choose(&sums, all, stall.triggers.first());
    // Of the operations that it made slow, the one that lost most to it.
    let most = lost
        .iter()
        .filter(|lost| lost.part.cause == word)
        .max_by(|a, b| a.ns.total_cmp(&b.ns));
    let Some(most) = most else {
        return without_operations(findings);
    };
    let share = sums[word] / all;
    let (slow, part) = (most.slow, most.part);
    let least = if slow.at_least { "at least " } else { "" };
    let name = part.function.as_deref();
    let name = name.map_or(String::new(), |function| format!(" ({function})"));
    let mut text = format!(
        "{word}{name}, {:.0} % of {} lost in operations; most by {} ({}) in {}: {least}{}, {:.0} % of it {word}",
        share * 100.0,
        ms(all),
        slow.task,
        slow.tid,
        called(&slow.call),
        ms(slow.length_ns as f64),
        part.share * 100.0,
    );
    if let Some(waker) = &slow.woken_by
        && matches!(word, "mmap_lock" | "lock" | "fence" | "unknown")
    {
        let call = waker.call.as_deref();
        let call = call.map_or(String::new(), |call| format!(" in {call}"));
        text.push_str(&format!("; ended by {}{call}", waker.task));
    }
    Cause {
        word: word.to_owned(),
        text,
        share: Some(share),
    }
}

/// What an operation lost to one cause within the window.
struct Lost<'f> {
    slow: &'f Slow,
    part: &'f Part,
    ns: f64,
}

/// The parts of an operation, each as if it were spread evenly over it.
fn parts(slow: &Slow, (begin, end): (u64, u64)) -> impl Iterator<Item = Lost<'_>> {
    let from = slow.begin_ns.max(begin);
    let to = slow.begin_ns.saturating_add(slow.length_ns).min(end);
    let inside = to.saturating_sub(from) as f64 / slow.length_ns.max(1) as f64;
    let waited = |part: &&Part| part.cause != "event"; // what it was called for
    slow.parts.iter().filter(waited).map(move |part| Lost {
        slow,
        part,
        ns: part.ns as f64 * inside,
    })
}

/// The word of the cause: of pressure, what can have made it; else the greatest wait that is no small
/// part; else the greatest.
fn choose<'f>(sums: &BTreeMap<&'f str, f64>, all: f64, trigger: Option<&Trigger>) -> &'f str {
    let greatest = |fits: &dyn Fn(&str) -> bool| {
        let fitting = sums.iter().filter(|(word, ns)| fits(word) && **ns > 0.0);
        fitting
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map(|(word, ns)| (*word, *ns))
    };
    let memory = |word: &str| MEMORY.contains(&word);
    let pressure = match trigger.map(|trigger| trigger.kind) {
        // Pages that come back from the disk are pressure, too, but reclaim is why they were gone.
        Some(TriggerKind::MemoryPressure) => greatest(&memory)
            .filter(|(_, ns)| *ns >= all * ENOUGH / 4.0)
            .or_else(|| greatest(&|word| memory(word) || word == "io")),
        Some(TriggerKind::IoPressure) => greatest(&|word| word == "io"),
        _ => None,
    };
    let wait = || greatest(&|word| !WORK.contains(&word)).filter(|(_, ns)| *ns >= all * ENOUGH);
    let chosen = pressure
        .or_else(wait)
        .or_else(|| greatest(&|word| word != "unknown"))
        .or_else(|| greatest(&|_| true));
    chosen.map_or("unknown", |(word, _)| word)
}

/// Reclaim that went on outside of the operations that are taken apart, as in read; else nothing.
fn without_operations(findings: &Findings) -> Cause {
    let reclaim = findings.memory.reclaim.as_deref().unwrap_or_default();
    let own = reclaim.iter().filter(|row| row.by != "kswapd");
    let most = own.max_by_key(|row| row.wall_ns);
    if let Some(row) = most.filter(|row| row.wall_ns >= LEAST_NS) {
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
        return Cause {
            word,
            text,
            share: None,
        };
    }
    Cause {
        word: "unknown".to_owned(),
        text: "no operation of who was traced lost time within the window".to_owned(),
        share: None,
    }
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
mod tests {
    use super::*;
    use stopgap_stats::explain::{Memory, Reclaim, Waker};

    const MS: u64 = 1_000_000;

    fn slow(task: &str, call: &str, begin: u64, parts: &[(&str, u64)]) -> Slow {
        let length: u64 = parts.iter().map(|(_, ms)| ms * MS).sum();
        let part = |&(cause, ms): &(&str, u64)| Part {
            cause: cause.to_owned(),
            function: None,
            ns: ms * MS,
            share: (ms * MS) as f64 / length as f64,
        };
        Slow {
            call: call.to_owned(),
            task: task.to_owned(),
            tid: 7,
            begin_ns: begin * MS,
            length_ns: length,
            at_least: false,
            excess_ns: length,
            length_bytes: None,
            result: None,
            parts: parts.iter().map(part).collect(),
            woken_by: None,
        }
    }

    fn findings(slow: Vec<Slow>) -> Findings {
        let options = crate::Options {
            top: 10,
            frame_marker: None,
        };
        let nothing = stopgap_events::trace::Metadata::default();
        let mut findings = crate::Explainer::new(&nothing, options).finish();
        findings.slow = slow;
        findings
    }

    fn stall(kind: TriggerKind, begin: u64, end: u64) -> Stall {
        let trigger = Trigger {
            kind,
            at_ns: end * MS,
            measured_ns: None,
            threshold_ns: None,
            window_ns: None,
            group: None,
            call: None,
            tid: None,
            task: None,
            open: false,
        };
        Stall {
            unix_s: 0,
            triggers: vec![trigger],
            begin_ns: begin * MS,
            end_ns: end * MS,
            from_ns: 0,
            taken_ns: end * MS,
            gap_ns: 0,
            suppressed: 0,
        }
    }

    /// ```text
    /// ms        0         1000       2000       3000
    /// other     [---- io, 1800 ms --]                  long, and before
    /// waiter                              [mmap_lock]
    /// holder                              [on-cpu---]
    /// window                          |=============|
    /// ```
    #[test]
    fn what_overlaps_counts_and_a_wait_before_work() {
        let mut waiter = slow(
            "waiter",
            "mmap",
            2_100,
            &[("mmap_lock", 150), ("run-queue", 10)],
        );
        waiter.woken_by = Some(Waker {
            task: "holder".to_owned(),
            call: Some("mmap".to_owned()),
            slept_ns: 150 * MS,
        });
        let findings = findings(vec![
            slow("other", "ioctl", 0, &[("io", 1_800)]),
            slow("holder", "mmap", 2_090, &[("on-cpu", 300)]),
            waiter,
        ]);
        let found = cause(&findings, &stall(TriggerKind::SlowCall, 2_000, 2_500));
        assert_eq!(found.word, "mmap_lock", "{}", found.text);
        assert!(
            found.text.contains("most by waiter (7) in mmap: 160 ms"),
            "{}",
            found.text
        );
        assert!(
            found.text.ends_with("ended by holder in mmap"),
            "{}",
            found.text
        );
        assert!((found.share.unwrap() - 150.0 / 460.0).abs() < 1e-9);
        let before = cause(&findings, &stall(TriggerKind::Request, 0, 1_900));
        assert_eq!(before.word, "io");
    }

    /// The thread that reclaims waits for a CPU most of the time, and for pages from the disk.
    #[test]
    fn memory_pressure_is_memorys_doing() {
        let squeezed = [("run-queue", 600), ("io", 300), ("memcg-reclaim", 200)];
        let found = findings(vec![slow("eater", "fault", 100, &squeezed)]);
        let word = |kind| cause(&found, &stall(kind, 0, 2_000)).word;
        assert_eq!(word(TriggerKind::MemoryPressure), "memcg-reclaim");
        assert_eq!(word(TriggerKind::IoPressure), "io");
        let thrash = findings(vec![slow(
            "eater",
            "fault",
            100,
            &[("io", 300), ("on-cpu", 9)],
        )]);
        assert_eq!(
            cause(&thrash, &stall(TriggerKind::MemoryPressure, 0, 900)).word,
            "io"
        );
        let busy = findings(vec![slow("x", "munmap", 0, &[("on-cpu", 90), ("lock", 1)])]);
        assert_eq!(
            cause(&busy, &stall(TriggerKind::SlowCall, 0, 900)).word,
            "on-cpu"
        );
    }

    #[test]
    fn nothing_is_no_cause() {
        let mut nothing = findings(vec![slow("poller", "poll", 0, &[("event", 5_000)])]);
        let found = cause(&nothing, &stall(TriggerKind::Request, 0, 5_000));
        assert_eq!((&*found.word, found.share), ("unknown", None));
        nothing.memory = Memory {
            reclaim: Some(vec![Reclaim {
                task: "cat".to_owned(),
                by: "memcg".to_owned(),
                function: None,
                count: 40,
                wall_ns: 200 * MS,
                most_ns: 9 * MS,
                scanned: None,
                reclaimed: None,
            }]),
            ..Memory::default()
        };
        let found = cause(&nothing, &stall(TriggerKind::MemoryPressure, 0, 5_000));
        assert_eq!(found.word, "memcg-reclaim");
        assert!(
            found.text.contains("by cat: 200 ms in 40 times"),
            "{}",
            found.text
        );
    }
}
