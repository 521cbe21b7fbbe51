//! The answer in a word and a line.

use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Findings, Slow};
use stopgap_stats::verdict::{Verdict, Word};

use crate::explainer::Seen;

/// Switches per round trip that are no excess: 2 and what distributions do around it.
const NO_EXCESS: f64 = 2.5;

/// Stands until the findings are complete.
pub(crate) fn inconclusive_yet() -> Verdict {
    Verdict::inconclusive("not judged")
}

/// Stalls before switches: who waits for a second does not mind a switch.
pub(crate) fn judge(findings: &Findings, seen: &Seen) -> Verdict {
    let losses = &findings.losses;
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
        let unknown = findings.tasks.iter().map(|task| task.unknown_ns).sum();
        verdict.text.push_str(&format!(
            " (uncertain: the trace lacks {} of recorded threads; {} of their time is unknown)",
            match losses.untold {
                1 => "1 switch".to_owned(),
                untold => format!("{untold} switches"),
            },
            Nanos(unknown)
        ));
    }
    verdict
}

/// The verdict by the events that are there.
fn of_what_is_known(findings: &Findings, seen: &Seen) -> Verdict {
    // All of them, not only those that are listed.
    let stalls: u64 = findings.calls.iter().map(|calls| calls.stalls).sum();
    let long = (stalls > 0).then(|| {
        let worst = findings.slow.first().map(told);
        let worst = worst.map_or_else(String::new, |worst| format!(", the longest {worst}"));
        let time = findings.calls.iter().map(|calls| calls.stalls_ns).sum();
        (time, format!("{}{worst}", count(stalls)))
    });
    let short = findings.short_calls.iter().flatten().next();
    let short = short.map(|short| (short.total_ns, short.text.clone()));
    let mut stalls: Vec<(u64, String)> = long.into_iter().chain(short).collect();
    stalls.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    if !stalls.is_empty() {
        let stalls: Vec<String> = stalls.into_iter().map(|(_, text)| text).collect();
        return Verdict::new(Word::Stalls, format!("stalls: {}", stalls.join("; and ")));
    }
    let switches = &findings.switches;
    match (switches.roundtrips, switches.per_roundtrip.mean) {
        (Some(trips), Some(mean)) if mean > NO_EXCESS => Verdict::new(
            Word::Excess,
            format!(
                "excess {:.1}x: {mean:.1} switches a round trip instead of 2, over {trips} of them",
                mean / 2.0
            ),
        ),
        (Some(trips), Some(mean)) => Verdict::new(
            Word::Clean,
            format!(
                "clean: {mean:.1} switches a round trip over {trips} of them; no operation above 10 ms"
            ),
        ),
        _ if seen.calls && seen.switches => Verdict::new(
            Word::Clean,
            "clean: no operation above 10 ms; no round trips were recognised",
        ),
        _ => Verdict::inconclusive(
            "a part of what it would take was not recorded; see what is unknown",
        ),
    }
}

fn count(stalls: u64) -> String {
    match stalls {
        1 => "1 operation above 10 ms".to_owned(),
        _ => format!("{stalls} operations above 10 ms"),
    }
}

fn told(slow: &Slow) -> String {
    let ms = slow.excess_ns as f64 / 1e6;
    let of = slow.parts.iter().find(|part| part.cause != "event");
    let cause = of.map_or_else(String::new, |part| {
        let cause = named(&part.cause, part.function.as_deref());
        let share = part.ns as f64 / slow.excess_ns as f64 * 100.0;
        format!(", {share:.0} % of it {cause}")
    });
    let least = if slow.at_least { "at least " } else { "" };
    format!("{} of {}: {least}{ms:.1} ms{cause}", slow.call, slow.task)
}

/// `shrinker i915_gem_shrinker_scan`, `compaction`.
pub(crate) fn named(cause: &str, function: Option<&str>) -> String {
    match function {
        Some(function) => format!("{cause} {function}"),
        None => cause.to_owned(),
    }
}
