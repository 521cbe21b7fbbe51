//! The cause of calls that fired: theirs alone. What others lost meanwhile is no answer.

use stopgap_stats::explain::{Findings, Slow};
use stopgap_stats::watch::{Cause, Stall, Trigger, TriggerKind};

use super::{
    Chosen, ENOUGH, Lost, any, called, ended_by, most, ms, overlapping, told, unknown, work,
};

/// Returns the cause of the calls that fired, and the call that the text is about: `first` where the trace has none. `all` has the
/// time that any thread lost within the window.
pub(super) fn cause<'s>(
    findings: &Findings,
    stall: &'s Stall,
    first: &'s Trigger,
    all: &[Lost<'_>],
) -> (&'s Trigger, Cause) {
    let calls = stall.triggers.iter();
    let calls = calls.filter(|trigger| trigger.kind == TriggerKind::SlowCall);
    let found: Vec<(&Trigger, &Slow)> = calls
        .filter_map(|trigger| Some((trigger, find(findings, trigger)?)))
        .collect();
    // From its own begin on: the window may be longer, and a call may have begun before it.
    let lost: Vec<Lost<'_>> = found
        .iter()
        .flat_map(|(_, slow)| overlapping(std::slice::from_ref(*slow), (0, u64::MAX)))
        .collect();
    let chosen = Chosen::among(&lost, any);
    let Some(word) = chosen.word.as_deref() else {
        return (first, not_there(stall, first, &found));
    };
    if work(word)
        && let Some((trigger, cause)) = holder(&found, all, chosen.all)
    {
        return (trigger, cause);
    }
    if let [(trigger, slow)] = found[..] {
        return (trigger, one(stall, trigger, slow, &lost, &chosen));
    }
    let what = format!("{} calls that fired", found.len());
    let told = told(&lost, &chosen, &what);
    (
        first,
        told.unwrap_or_else(|| not_there(stall, first, &found)),
    )
}

/// The operation that is the call of `trigger`, or what the trace has of it.
fn find<'f>(findings: &'f Findings, trigger: &Trigger) -> Option<&'f Slow> {
    let begin = began(trigger);
    let is = |slow: &&Slow| {
        Some(slow.tid) == trigger.tid
            && Some(&slow.call) == trigger.call.as_ref()
            && slow.begin_ns < trigger.at_ns
            && slow.begin_ns.saturating_add(slow.length_ns) > begin
    };
    let of_it = findings.slow.iter().filter(is);
    of_it.max_by_key(|slow| slow.length_ns)
}

fn began(trigger: &Trigger) -> u64 {
    (trigger.at_ns).saturating_sub(trigger.measured_ns.unwrap_or(0))
}

/// How long before the trace the call began, where that is a part of it to speak of.
fn before(stall: &Stall, trigger: &Trigger) -> Option<f64> {
    let before = stall.from_ns.saturating_sub(began(trigger));
    (before >= super::LEAST_NS).then_some(before as f64)
}

/// One call, of which the line has already told who, which and how long.
fn one(stall: &Stall, trigger: &Trigger, slow: &Slow, lost: &[Lost<'_>], chosen: &Chosen) -> Cause {
    let word = chosen.word.clone().unwrap_or_default();
    let share = chosen.ns / chosen.all;
    let name = most(lost, &word).map_or_else(|| word.clone(), Lost::name);
    let percent = share * 100.0;
    let mut text = match before(stall, trigger) {
        None => format!("{name}, {percent:.0} % of it"),
        Some(before) => format!(
            "{name}, {percent:.0} % of the {} that the trace has of it; it began {} before (a larger --buffer keeps more)",
            ms(chosen.all),
            ms(before),
        ),
    };
    if word == "unknown" {
        text.push_str(": no event and no kernel stack says what it waited for");
    }
    text.push_str(&ended_by(slow, &word));
    Cause {
        word,
        text,
        share: Some(share),
    }
}

/// A call that fired worked, and others waited for the lock that it held: it ended their waits.
fn holder<'s>(
    found: &[(&'s Trigger, &Slow)],
    all: &[Lost<'_>],
    own: f64,
) -> Option<(&'s Trigger, Cause)> {
    let waits = all.iter().filter(|lost| {
        matches!(&*lost.part.cause, "mmap_lock" | "lock") && lost.ns >= own * ENOUGH
    });
    let longest = waits.max_by(|a, b| a.ns.total_cmp(&b.ns))?;
    let waker = longest.slow.woken_by.as_ref()?;
    let (trigger, slow) = found.iter().find(|(_, slow)| {
        slow.task == waker.task
            && Some(&slow.call) == waker.call.as_ref()
            && slow.tid != longest.slow.tid
    })?;
    let word = &longest.part.cause;
    let text = format!(
        "{word}: it held the lock for which {} ({}) waited {} in {}; of its own {} the most was {}",
        longest.slow.task,
        longest.slow.tid,
        ms(longest.ns),
        called(&longest.slow.call),
        ms(slow.length_ns as f64),
        slow.parts.first().map_or("unknown", |part| &part.cause),
    );
    let cause = Cause {
        word: word.clone(),
        text,
        share: None,
    };
    Some((trigger, cause))
}

/// Returns why the cause of the call of `trigger` is unknown.
fn not_there(stall: &Stall, trigger: &Trigger, found: &[(&Trigger, &Slow)]) -> Cause {
    if !found.is_empty() {
        return unknown("it lost no time within the trace");
    }
    if trigger.at_ns < stall.from_ns {
        // An open call has not ended.
        let how = if trigger.open {
            "was still going on"
        } else {
            "was over"
        };
        let since = (stall.from_ns - trigger.at_ns) as f64;
        return unknown(&format!(
            "it {how} {} before the trace begins, and is not in it (a larger --buffer keeps more)",
            ms(since)
        ));
    }
    match before(stall, trigger) {
        Some(before) => unknown(&format!(
            "it began {} before the trace, which has no event of its thread (a larger --buffer keeps more)",
            ms(before)
        )),
        None => unknown("the trace does not have the call: events were lost"),
    }
}
