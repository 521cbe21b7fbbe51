//! Makes the record after the last event.

use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{
    Chains, Explained, Findings, Frames, Function, Losses, Memory, ShortCalls, Switches, Task,
    Trace,
};
use stopgap_trace::{Clock, Loss, NOBODY};

use crate::LOSS_LIMIT;
use crate::advice;
use crate::call::Family;
use crate::explainer::Explainer;
use crate::lacks;
use crate::operation::Operations;
use crate::verdict;
use crate::why::Why;

/// Most sampled functions in the record.
const FUNCTIONS: usize = 20;

/// Returns the record of the whole trace.
pub(crate) fn record(mut all: Explainer) -> Findings {
    all.seen.learn(&all.metadata);
    let mut missing = all.metadata.missing.clone();
    missing.extend(lacks::never_seen(&all));
    missing.extend(unexplained(&all));
    let trace = trace(&all);
    let losses = losses(&all, &mut missing);
    let (tasks, switches, short_calls) = switches(&mut all, &mut missing);
    let period = all.metadata.sample_period_ns.map(|period| period.0);
    let profile = (all.seen.samples).then(|| all.samples.to_record(period));
    let memory = memory(&all, trace.duration_ns, &mut missing);
    let functions = functions(&all.operations, all.seen.samples);
    let slow = std::mem::take(&mut all.operations.slowest);
    let calls = all.operations.calls();
    let chains = all.chains();
    let mut findings = Findings {
        chains,
        verdict: verdict::inconclusive_yet(),
        trace,
        losses,
        switches,
        tasks,
        slow,
        calls,
        short_calls,
        memory,
        functions,
        profile,
        advice: Vec::new(),
        missing,
    };
    // A process that lived too briefly for the recorder to find it may be in the trace all the same.
    match all.ever_followed.is_empty() {
        true => nobody_was_meant(&mut findings),
        false => findings.missing.retain(|missing| missing.what != NOBODY),
    }
    findings.advice = advice::advise(&findings);
    findings.verdict = verdict::judge(&findings, &all.seen);
    findings
}

/// Removes what other threads did, if none of the processes that should be recorded came.
fn nobody_was_meant(findings: &mut Findings) {
    if !(findings.missing.iter()).any(|missing| missing.what == NOBODY) {
        return;
    }
    findings.chains = findings.chains.take().map(|_| Chains::default());
    findings.switches = Switches::default();
    findings.tasks.clear();
    findings.slow.clear();
    findings.calls.clear();
    findings.short_calls = None;
    findings.functions = None;
    findings.profile = None;
}

fn trace(all: &Explainer) -> Trace {
    let has_times = all.metadata.clock != Some(Clock::Order);
    Trace {
        source: all.metadata.source.clone(),
        clock: all.metadata.clock.map(|clock| clock.word().to_owned()),
        boot_id: all.metadata.boot_id.clone(),
        events: all.events,
        duration_ns: all.first.filter(|_| has_times).map(|first| all.now - first),
        cut_short: all.cut_short.clone(),
    }
}

fn losses(all: &Explainer, missing: &mut Vec<Missing>) -> Losses {
    let lost = all.metadata.losses.as_ref();
    let counts = |lost: &Vec<Loss>| {
        lost.iter()
            .fold(0_u64, |sum, l| sum.saturating_add(l.count))
    };
    let lost = lost.map(counts);
    if lost.is_none() {
        let why = "the trace does not say whether events were lost";
        missing.push(Missing::new("losses", why));
    }
    let share = lost.map(|lost| match lost {
        0 => 0.0,
        lost => lost as f64 / (all.events as f64 + lost as f64),
    });
    if all.untold > 0 {
        let what = format!("{} switches of recorded threads", all.untold);
        let why = "the kernel did not tell of them. Time from when a thread was last known to have a CPU, or to be off one, is \
                   unknown; in an operation it counts as the state in which the thread left";
        missing.push(Missing::new(what, why));
    }
    Losses {
        lost,
        share,
        limit: LOSS_LIMIT,
        contradictions: all.contradictions,
        untold: all.untold,
        disordered: all.disordered,
    }
}

/// Nanoseconds: less sleep than this in all slow operations of a kind is not worth a line.
const UNEXPLAINED_NS: u64 = 1_000_000;

/// Returns the sleeps in slow operations that neither an event nor a stack explains, in a trace where other sleeps
/// have stacks.
fn unexplained(all: &Explainer) -> Vec<Missing> {
    let by_family = all.operations.unexplained.iter();
    let told = by_family.filter(|(_, (_, ns))| all.seen.stacks && *ns >= UNEXPLAINED_NS);
    let line = |(family, (count, ns)): (&Family, &(u64, u64))| {
        let (word, time) = (family.word(), Nanos(*ns));
        let what = format!("what {count} slow {word} slept for, {time} in all");
        let why = "no event says so, and the switch has no kernel stack that does: record takes those of uninterruptible \
                   waits, and of others where the CPU goes idle. perf record -g -e sched:sched_switch -e \
                   raw_syscalls:sys_enter -e raw_syscalls:sys_exit takes all; explain reads the text of perf script";
        Missing::new(what, why)
    };
    told.map(line).collect()
}

fn switches(
    all: &mut Explainer,
    missing: &mut Vec<Missing>,
) -> (Vec<Task>, Switches, Option<Vec<ShortCalls>>) {
    let seen = all.seen;
    let samples = seen.samples.then_some(&all.samples);
    let act = seen.call_rows || seen.faults || !all.followed.is_empty();
    let totals = std::mem::take(&mut all.tasks).totals(act, samples);
    let tellable = seen.switches && seen.calls && seen.wakings;
    let (pairs, spread) = all.roundtrips.to_record();
    let frames = all.options.frame_marker.clone().map(|marker| {
        let counts = all.frames.counts();
        if counts.len() == 0 {
            let calls = if lacks::lacks_calls(all) {
                "; a system call can be one in a trace of stopgap record --events all"
            } else {
                ""
            };
            let why = format!("the marker {marker} did not come twice{calls}");
            missing.push(Missing::new("frames", why));
        }
        Frames {
            marker,
            count: counts.len(),
            switches: counts.to_record(),
        }
    });
    let trips = spread.len();
    let per_roundtrip = Some(spread.to_record())
        .filter(|_| tellable)
        .unwrap_or_default();
    if tellable && trips > 0 && per_roundtrip.p90.is_none() {
        let why = format!("it needs 100 round trips, and there are {trips}");
        missing.push(Missing::new("p90 of switches per round trip", why));
    }
    let switches = Switches {
        roundtrips: tellable.then_some(trips),
        total: seen.switches.then_some(totals.switches),
        involuntary: seen.switches.then_some(totals.involuntary),
        others: seen.switches.then_some(totals.others),
        excess: per_roundtrip.mean.map(|mean| mean - 2.0),
        per_roundtrip,
        causes: totals.causes,
        pairs: Some(pairs).filter(|_| tellable).unwrap_or_default(),
        frames: frames.filter(|_| seen.switches),
    };
    let tasks = Some(totals.tasks)
        .filter(|_| seen.switches)
        .unwrap_or_default();
    (tasks, switches, seen.call_rows.then_some(totals.short))
}

fn memory(all: &Explainer, duration_ns: Option<u64>, missing: &mut Vec<Missing>) -> Memory {
    let reclaim_seen = all.seen.reclaim || all.seen.compaction;
    let mut memory = all
        .mappings
        .to_record(duration_ns, reclaim_seen, &all.spaces);
    if memory.live.is_none() {
        let why = "nobody counted them: no such calls or events, no counter of mappings";
        missing.push(Missing::new("live mappings over time", why));
    }
    if !all.mappings.counted() {
        let why = "the trace has neither map and unmap events nor such system calls";
        missing.push(Missing::new("maps and unmaps", why));
    }
    memory.search_at_most_ns = all.operations.search_ns;
    let slow = all.operations.slow_memory();
    memory.slow = all.operations.slow_memory_record(&all.seen);
    memory.explained_by = slow.to_record().into_iter().next().map(|part| {
        let mut with_cause = all.operations.with_cause.iter();
        let same =
            |why: &Why| why.word() == part.cause && why.function() == part.function.as_deref();
        Explained {
            operations: with_cause.find(|(why, _)| same(why)).map_or(0, |(_, n)| *n),
            cause: part.cause,
            function: part.function,
            share: part.share,
        }
    });
    memory
}

fn functions(operations: &Operations, sampled: bool) -> Option<Vec<Function>> {
    let of = |(function, samples): (&stopgap_trace::Text, &u64)| Function {
        function: function.to_string(),
        samples: *samples,
    };
    let mut functions: Vec<Function> = operations.functions.iter().map(of).collect();
    functions.sort_rows_by_key(|function| std::cmp::Reverse(function.samples));
    functions.truncate(FUNCTIONS);
    sampled.then_some(functions)
}
