//! Makes the verdict: a word and a line.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Findings, Idleness, Link, Pair, Part, Slow, Waiting, cause_in_words};
use stopgap_stats::verdict::{Verdict, Word};
use stopgap_trace::NOBODY;

use crate::explainer::Seen;
use crate::operation::STALL_NS;

/// Most switches per round trip that are no excess: 2, and the usual variation around it.
const NO_EXCESS: f64 = 2.5;

/// Fewest switches per second beyond 2 per round trip that are an excess. At about 3 us each, 1,000 take 0.3 % of a
/// CPU.
const EXCESS_A_SECOND: f64 = 1_000.0;

/// Returns a placeholder for findings that are not complete yet.
pub(crate) fn inconclusive_yet() -> Verdict {
    Verdict::inconclusive("not judged")
}

/// Judges complete findings. Stalls come before switches: they cost more.
pub(crate) fn judge(findings: &Findings, seen: &Seen) -> Verdict {
    let losses = &findings.losses;
    if let Some(nobody) = findings.missing.iter().find(|m| m.what == NOBODY) {
        return Verdict::inconclusive(&format!("{NOBODY}: {}", nobody.why));
    }
    if let Some(why) = &findings.trace.cut_short {
        return Verdict::inconclusive(&format!("the trace is cut short ({why})"));
    }
    if let (Some(share), Some(lost)) = (losses.share, losses.lost)
        && share > losses.limit
    {
        return Verdict::inconclusive(&format!(
            "{lost} events were lost, {:.1} % of all, more than {:.0} %",
            share * 100.0,
            losses.limit * 100.0
        ));
    }
    let doubtful = losses.contradictions + losses.disordered;
    let events = findings.trace.events as f64;
    if doubtful as f64 > losses.limit * events {
        return Verdict::inconclusive(&format!(
            "{doubtful} of {events:.0} events contradict those before them or are out of order, more than {:.0} %",
            losses.limit * 100.0
        ));
    }
    if !seen.switches && !seen.calls {
        return Verdict::unsupported("the trace has neither scheduling events nor system calls");
    }
    let mut verdict = of_what_is_known(findings, seen);
    if losses.untold > 0 && verdict.word != Word::Inconclusive {
        verdict.text.push_str(&format!(
            " (uncertain: the trace lacks {} of recorded threads; {} of their time is unknown)",
            match losses.untold {
                1 => "1 switch".to_owned(),
                untold => format!("{untold} switches"),
            },
            Nanos(seen.untold_ns)
        ));
    }
    verdict
}

/// Names the longest stall of `all`, of which the longest is first.
fn longest(all: &[Slow]) -> String {
    // A thread that waits for a child shares the child's stall. The child's own operation has the cause.
    let own = |slow: &&Slow| {
        let child = leading(slow).is_some_and(|part| part.cause == "child");
        slow.excess_ns >= STALL_NS && !child
    };
    let first = all.first();
    match all.iter().find(own).or(first) {
        None => String::new(),
        Some(own) if first == Some(own) => format!(", the longest {}", in_words(own)),
        Some(own) => format!(", the longest, waits for a child aside, {}", in_words(own)),
    }
}

/// Judges what the trace does have.
fn of_what_is_known(findings: &Findings, seen: &Seen) -> Verdict {
    // This counts all stalls, not only the listed ones.
    let stalls: u64 = findings.calls.iter().map(|calls| calls.stalls).sum();
    let long = (stalls > 0).then(|| {
        let worst = longest(&findings.slow);
        let time = findings.calls.iter().map(|calls| calls.stalls_ns).sum();
        (time, format!("{}{worst}", count(stalls, time)))
    });
    let short = findings.short_calls.iter().flatten().next();
    let short = short.map(|short| (short.total_ns, short.text.clone()));
    let many = many_short_waits(findings);
    // A row of waits may be many calls, none of which lost 10 ms: then the verdict says their sum, and calls none of them long.
    let long = long.filter(|(told, _)| {
        let summed = many.as_ref().is_some_and(|(time, _)| time >= &(told / 2));
        !(summed && are_rows_of_waits(&findings.slow))
    });
    let many = many.filter(|(time, _)| {
        // Long stalls may already contain the time of the short ones.
        long.as_ref().is_none_or(|(told, _)| time / 2 > *told)
    });
    let mut stalls: Vec<(u64, String)> = long.into_iter().chain(short).chain(many).collect();
    stalls.sort_rows_by_key(|(time, _)| std::cmp::Reverse(*time));
    if !stalls.is_empty() {
        // Waits that may be stalls are named too if they took more time.
        let most = stalls.iter().map(|(time, _)| *time).max().unwrap_or(0);
        let unclear = may_be_idle(findings).filter(|(time, _)| *time > most);
        let stalls = stalls.into_iter().chain(unclear);
        let stalls: Vec<String> = stalls.map(|(_, text)| text).collect();
        return Verdict::new(Word::Stalls, format!("stalls: {}", stalls.join("; and ")));
    }
    if let Some(text) = excess(findings) {
        return Verdict::new(Word::Excess, text);
    }
    if !seen.switches {
        return Verdict::inconclusive(
            "a part of what it would take was not recorded; see what is unknown",
        );
    }
    if let Some((_, unclear)) = may_be_idle(findings) {
        return Verdict::new(Word::Waiting, unclear);
    }
    let unknown: u64 = findings.tasks.iter().map(|task| task.unknown_ns).sum();
    let wall: u64 = findings.tasks.iter().map(|task| task.wall_ns).sum();
    if unknown >= STALL_NS && unknown as f64 > UNKNOWN_SHARE * wall as f64 {
        return Verdict::inconclusive(&format!(
            "the trace does not say what the threads did in {} of their {}",
            Nanos(unknown),
            Nanos(wall)
        ));
    }
    if !seen.calls && wall > 0 {
        return Verdict::inconclusive(
            "no loss of 10 ms is known, but a part of what it would take was not recorded; see what is unknown",
        );
    }
    if wall == 0 {
        return Verdict::inconclusive("the trace does not say what any thread did for how long");
    }
    let switches = &findings.switches;
    let trips = match (switches.roundtrips, switches.per_roundtrip.mean) {
        (Some(trips), Some(mean)) => {
            format!("{mean:.1} switches a round trip over {trips} of them; ")
        }
        _ => String::new(),
    };
    Verdict::new(
        Word::Clean,
        format!(
            "clean: {trips}no thread lost 10 ms at a time, of {} in which the threads waited or ran",
            Nanos(wall)
        ),
    )
}

/// Returns the pair with the most switches beyond 2 per round trip, if there are enough of them to matter.
fn excess(findings: &Findings) -> Option<String> {
    let beyond = |pair: &Pair| pair.switches.saturating_sub(2 * pair.roundtrips);
    let seconds = findings.trace.duration_ns? as f64 / 1e9;
    let costs = |pair: &&Pair| {
        pair.per_roundtrip.mean.is_some_and(|mean| mean > NO_EXCESS)
            && beyond(pair) as f64 >= EXCESS_A_SECOND * seconds
    };
    let pairs = findings.switches.pairs.iter().filter(costs);
    let worst = pairs.max_by_key(|pair| beyond(pair))?;
    let mean = worst.per_roundtrip.mean?;
    Some(format!(
        "excess {:.1}x: {mean:.1} switches a round trip instead of 2, over {} of them between {} and {}",
        mean / 2.0,
        worst.roundtrips,
        worst.client,
        worst.server,
    ))
}

/// Share of unknown time above which there is no verdict.
const UNKNOWN_SHARE: f64 = 0.01;
/// Share of a program's work and losses from which short waits or short calls together are a stall.
const MANY_SHARE: f64 = 0.1;
const MANY_NS: u64 = 100_000_000;
/// Share of the time from which the text calls a cause "mostly".
const MOSTLY: f64 = 0.5;

/// Returns the time that the threads of one name lost in many waits, some of them short, with a sentence; of the name
/// that lost most.
fn many_short_waits(findings: &Findings) -> Option<(u64, String)> {
    let waiting = &findings.chains.as_ref()?.waiting;
    let of_task = |task: &stopgap_stats::explain::Task| {
        let own = || {
            let stalled = |w: &&Waiting| w.idleness == Idleness::Stalled && w.task == task.task;
            waiting.iter().filter(stalled)
        };
        let lost: u64 = own().map(lost).sum();
        let worked = task.running_ns + lost;
        let first = own().max_by_key(|waiting| self::lost(waiting))?;
        let enough = lost >= MANY_NS && lost as f64 >= MANY_SHARE * worked as f64;
        let waits: u64 = own().map(|waiting| waiting.waits).sum();
        let waited: u64 = own().map(|waiting| waiting.total_ns).sum();
        // WHY counts this work, too: without it here, the two would contradict each other.
        let answered = match waited.saturating_sub(lost) {
            ns if ns >= lost / 10 => {
                format!("; {} more went to work that it had asked for", Nanos(ns))
            }
            _ => String::new(),
        };
        // Work for an answer is part of the wait, but not of the loss.
        let why = first
            .links
            .iter()
            .find(|link| !(is_asked(first) && is_work(link)));
        // A chain with a small part of the time does not say where most of it went.
        let most = |link: &&Link| link.ns as f64 >= MOSTLY * first.total_ns as f64;
        let mostly = match why.filter(most).map(|link| &*link.text) {
            // "waited for a CPU" and its link "waited for a CPU, behind X" are one clause.
            Some(why) if why.starts_with(&*first.text) => why.to_owned(),
            Some(why) => format!("{}: {why}", first.text),
            None => first.text.clone(),
        };
        enough.then(|| {
            let longest = Nanos(own().map(|waiting| waiting.longest_ns).max().unwrap_or(0));
            let (task, time) = (&task.task, Nanos(lost));
            let share = match self::lost(first) as f64 / lost as f64 {
                share if share >= MOSTLY => "mostly".to_owned(),
                share => format!("for {:.0} % of it", share * 100.0),
            };
            let waits = match waits {
                1 => "1 wait".to_owned(),
                waits => format!("{waits} waits"),
            };
            let text = format!(
                "{task} lost {time} in {waits}, the longest {longest}; {share} it {mostly}{answered}"
            );
            (lost, text)
        })
    };
    findings
        .tasks
        .iter()
        .filter_map(of_task)
        .max_by_key(|(lost, _)| *lost)
}

/// Returns the nanoseconds of waits without the work of the thread or device that answers. A program that asks a lot
/// waits a lot.
pub(crate) fn lost(waiting: &Waiting) -> u64 {
    fn works(links: &[Link]) -> u64 {
        let of = |link: &Link| match &*link.cause {
            _ if is_work(link) => link.ns,
            // The holder of a lock does not work for the thread that waits for the lock.
            "lock" | "mmap_lock" => 0,
            _ => works(&link.links),
        };
        links.iter().map(of).sum()
    }
    waiting.total_ns
        - if is_asked(waiting) {
            works(&waiting.links)
        } else {
            0
        }
}

/// Returns whether another thread or a device works for what such a wait is for. A fence stands for work of a GPU.
fn is_asked(waiting: &Waiting) -> bool {
    matches!(
        &*waiting.cause,
        "data" | "events" | "word" | "signal" | "child" | "fence" | "something"
    )
}

/// Returns whether a chain ends with a thread that ran, or with a device that did its work.
fn is_work(link: &Link) -> bool {
    link.links.is_empty() && matches!(&*link.cause, "running" | "device")
}

/// Returns the most time in waits that may be stalls, with a sentence.
fn may_be_idle(findings: &Findings) -> Option<(u64, String)> {
    let waiting = &findings.chains.as_ref()?.waiting;
    let unclear = || {
        let unclear = |w: &&Waiting| w.idleness == Idleness::MayBeIdle && w.longest_ns >= STALL_NS;
        waiting.iter().filter(unclear)
    };
    let first = unclear().max_by_key(|waiting| waiting.total_ns)?;
    let others = unclear().count() - 1;
    let behind = first.links.first().filter(|link| link.text != first.text);
    let behind = behind.map_or_else(String::new, |link| format!("; behind it: {}", link.text));
    let more = match others {
        0 => String::new(),
        1 => "; and 1 more such wait".to_owned(),
        others => format!("; and {others} more such waits"),
    };
    let text = format!(
        "waiting, may be idle: {}, {} (the longest {}): {}{behind}; the trace does not tell whether it had work{more}",
        first.task,
        Nanos(first.total_ns),
        Nanos(first.longest_ns),
        first.text,
    );
    Some((first.total_ns, text))
}

fn count(stalls: u64, lost: u64) -> String {
    let lost = Nanos(lost);
    match stalls {
        1 => format!("a thread lost {lost} at a time"),
        _ => format!("threads lost 10 ms or more at a time {stalls} times, {lost} in all"),
    }
}

fn in_words(slow: &Slow) -> String {
    let ms = slow.excess_ns as f64 / 1e6;
    let of = leading(slow);
    let cause = of.map_or_else(String::new, |part| {
        let words = cause_in_words(&part.cause);
        let cause = named(words, part.function.as_deref());
        let waited = if words.starts_with("for ") {
            "waiting "
        } else {
            ""
        };
        let share = part.ns as f64 / slow.excess_ns as f64 * 100.0;
        format!(", {share:.0} % of it {waited}{cause}")
    });
    let (call, task) = (&slow.call, &slow.task);
    match (slow.waits, slow.longest_wait_ns) {
        (Some(waits @ 2..), Some(longest)) => format!(
            "{call} of {task}: {ms:.1} ms in {waits} waits of one call or several, the longest wait {}{cause}",
            Nanos(longest)
        ),
        _ => {
            let least = if slow.at_least { "at least " } else { "" };
            format!("{call} of {task}: {least}{ms:.1} ms{cause}")
        }
    }
}

/// Returns whether only waits show nearly all that these operations lost, none as long as a tenth of its operation: they may be many calls.
fn are_rows_of_waits(slow: &[Slow]) -> bool {
    let is_row = |slow: &&Slow| {
        let longest = slow.longest_wait_ns.filter(|_| slow.waits > Some(1));
        longest.is_some_and(|longest| longest < slow.excess_ns / 10)
    };
    let all: u64 = slow.iter().map(|slow| slow.excess_ns).sum();
    let rows: u64 = slow.iter().filter(is_row).map(|slow| slow.excess_ns).sum();
    all > 0 && rows >= all / 10 * 9
}

/// Returns the largest part of what an operation lost.
fn leading(slow: &Slow) -> Option<&Part> {
    let of = |part: &&Part| !matches!(&*part.cause, "idle" | "may-be-idle" | "on-cpu");
    let on_cpu = || slow.parts.iter().find(|part| part.cause == "on-cpu");
    slow.parts.iter().find(of).or_else(on_cpu)
}

/// `shrinker i915_gem_shrinker_scan`, `compaction`.
pub(crate) fn named(cause: &str, function: Option<&str>) -> String {
    match function {
        Some(function) => format!("{cause} {function}"),
        None => cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(cause: &str, ns: u64, links: Vec<Link>) -> Link {
        Link {
            cause: cause.to_owned(),
            text: String::new(),
            task: None,
            tid: None,
            call: None,
            place: None,
            device: None,
            ns,
            share: 0.0,
            links,
        }
    }

    fn slow(waits: Option<u64>, cause: &str) -> Slow {
        let part = |cause: &str, ns| Part {
            cause: cause.to_owned(),
            function: None,
            ns,
            share: 1.0,
        };
        Slow {
            call: "fsync".to_owned(),
            task: "db".to_owned(),
            tid: 1,
            begin_ns: 0,
            length_ns: 1_680_000_000,
            at_least: true,
            excess_ns: 1_680_000_000,
            length_bytes: None,
            result: None,
            parts: vec![part(cause, 1_680_000_000)],
            woken_by: None,
            waits,
            longest_wait_ns: waits.map(|_| 118_000_000),
        }
    }

    /// 400 calls from one place, each of which waits. Without their begins and ends, the length of one call is
    /// unknown.
    #[test]
    fn waits_of_calls_that_are_not_told_apart_are_no_single_long_call() {
        let text = in_words(&slow(Some(402), "io"));
        assert_eq!(
            text,
            "fsync of db: 1680.0 ms in 402 waits of one call or several, the longest wait 118 ms, 100 % of it waiting for a disk"
        );
        let one = in_words(&slow(Some(1), "io"));
        assert_eq!(
            one,
            "fsync of db: at least 1680.0 ms, 100 % of it waiting for a disk"
        );
    }

    /// A client waits 100 ns for its server. The server runs for 30 and waits 70 for a lock, whose holder runs.
    #[test]
    fn work_for_an_answer_is_no_loss_and_the_work_of_a_locks_holder_is() {
        let held = link("lock", 70, vec![link("running", 70, Vec::new())]);
        let own = link("running", 30, Vec::new());
        let waiting = Waiting {
            task: "client".to_owned(),
            threads: 1,
            cause: "data".to_owned(),
            text: String::new(),
            call: None,
            place: None,
            idleness: Idleness::Stalled,
            waits: 1,
            total_ns: 100,
            steps: Vec::new(),
            longest_ns: 100,
            longest_at_ns: 0,
            longest_tid: 1,
            links: vec![own, held],
        };
        assert_eq!(lost(&waiting), 70);
    }

    /// A wait of less than 10 ms is no stall, so it does not replace a wait for a child as the longest one.
    #[test]
    fn a_short_wait_is_not_the_longest_stall() {
        let child = slow(None, "child");
        let io = |ns| Slow {
            excess_ns: ns,
            call: "pread64".to_owned(),
            ..slow(None, "io")
        };
        let text = longest(&[child.clone(), io(STALL_NS - 1)]);
        assert!(!text.contains("pread64"), "{text}");
        let text = longest(&[child, io(STALL_NS)]);
        assert!(text.contains("waits for a child aside, pread64"), "{text}");
        assert_eq!(longest(&[]), "");
    }
}
