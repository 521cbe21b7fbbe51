//! An explained trace, for people: the verdict, switches and their causes, slow operations, memory, advice, and
//! what is not known.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::explain::{
    AddressSpace, Calls, Findings, Memory, Part, Slow, SlowMemory, Spread, Switches,
};

use crate::profile;
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// Stands where something is not known.
const UNKNOWN: &str = "-";

/// Causes and pairs that are shown; the JSON record has all.
const ROWS: usize = 12;

/// The whole of it.
#[must_use]
pub fn screen(findings: &Findings, style: Style) -> String {
    let mut text = wrap(&plain(&findings.verdict.text), style.width, 2);
    text.push_str(&wrap(&scene(findings), style.width, 2));
    let parts = [
        ("SWITCHES", switches(&findings.switches, style)),
        ("TASKS", tasks(findings, style)),
        ("SLOW", slow(findings, style)),
        ("PROFILE", profiled(findings, style)),
        ("MEMORY", memory(findings, style)),
        ("ADVICE", advice(findings, style)),
        ("UNKNOWN", missing(findings, style)),
    ];
    for (head, part) in parts {
        if !part.is_empty() {
            text.push_str(&format!("\n{head}\n{part}"));
        }
    }
    text
}

/// `xwininfo -root -tree: 45,120 events in 1.20 s, none lost`.
fn scene(findings: &Findings) -> String {
    let trace = &findings.trace;
    let source = trace
        .source
        .as_deref()
        .unwrap_or("a trace of unknown source");
    let time = trace.duration_ns.map_or_else(
        || "in an unknown time".to_owned(),
        |ns| format!("in {}", Nanos(ns)),
    );
    let losses = &findings.losses;
    let lost = match (losses.lost, losses.share) {
        (Some(0), _) => "none lost".to_owned(),
        (Some(lost), Some(share)) => {
            format!("{} lost ({} %)", thousands(lost), number(share * 100.0))
        }
        _ => "losses unknown".to_owned(),
    };
    let mut text = format!(
        "{}: {} events {time}, {lost}",
        plain(source),
        thousands(trace.events)
    );
    if losses.contradictions + losses.disordered > 0 {
        text.push_str(&format!(
            ", {} contradict those before, {} out of order",
            thousands(losses.contradictions),
            thousands(losses.disordered)
        ));
    }
    text
}

fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), thousands)
}

fn spread(spread: &Spread) -> [String; 3] {
    let mean = spread.mean.map_or_else(|| UNKNOWN.to_owned(), number);
    [mean, count(spread.p50), count(spread.p90)]
}

fn switches(switches: &Switches, style: Style) -> String {
    let Some(total) = switches.total else {
        return String::new();
    };
    let line = format!(
        "{} switch-outs, {} of them involuntary; {} round trips, {} switches each (p50 {}, p90 {}){}",
        thousands(total),
        count(switches.involuntary),
        count(switches.roundtrips),
        spread(&switches.per_roundtrip)[0],
        spread(&switches.per_roundtrip)[1],
        spread(&switches.per_roundtrip)[2],
        switches
            .excess
            .map_or_else(String::new, |excess| format!(", {excess:+.2} against 2")),
    );
    let mut text = wrap(&format!("  {line}"), style.width, 2);
    if let Some(frames) = &switches.frames {
        let [mean, p50, p90] = spread(&frames.switches);
        let line = format!(
            "  {} frames by {}: {mean} switches each (p50 {p50}, p90 {p90})",
            thousands(frames.count),
            plain(&frames.marker)
        );
        text.push_str(&wrap(&line, style.width, 2));
    }
    text.push_str(&pairs(switches, style));
    text.push_str(&causes(switches, style));
    text
}

fn pairs(switches: &Switches, style: Style) -> String {
    if switches.pairs.is_empty() {
        return String::new();
    }
    let head = [
        "client",
        "server",
        "round trips",
        "switches each",
        "p50",
        "p90",
        "sends",
        "replies",
        "p50 time",
    ];
    let rows = switches.pairs.iter().take(ROWS).map(|pair| {
        let [mean, p50, p90] = spread(&pair.per_roundtrip);
        let time = pair
            .p50_ns
            .map_or_else(|| UNKNOWN.to_owned(), |ns| Nanos(ns).to_string());
        vec![
            plain(&pair.client),
            plain(&pair.server),
            thousands(pair.roundtrips),
            mean,
            p50,
            p90,
            number(pair.sends_per_roundtrip),
            number(pair.replies_per_roundtrip),
            time,
        ]
    });
    let right = [false, false, true, true, true, true, true, true, true];
    plain_table(&head, rows.collect(), &right, false, style)
}

fn causes(switches: &Switches, style: Style) -> String {
    let total = switches.total.unwrap_or(0).max(1) as f64;
    let row = |task: String, cause: String, count: u64| {
        let share = number(count as f64 / total * 100.0);
        vec![task, thousands(count), share, cause]
    };
    let shown = switches.causes.iter().take(ROWS);
    let mut rows: Vec<Vec<String>> = shown
        .map(|cause| row(plain(&cause.task), plain(&cause.cause), cause.count))
        .collect();
    let rest = switches.causes.iter().skip(ROWS);
    let count: u64 = rest.clone().map(|cause| cause.count).sum();
    if count > 0 {
        let others = format!("{} other causes", rest.count());
        rows.push(row(String::new(), others, count));
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = ["who", "switch-outs", "%", "why"];
    plain_table(&head, rows, &[false, true, true, false], false, style)
}

fn tasks(findings: &Findings, style: Style) -> String {
    if findings.tasks.is_empty() {
        return String::new();
    }
    let head = [
        "task",
        "threads",
        "switch-outs",
        "running",
        "run queue",
        "asleep",
        "unknown",
    ];
    let rows = findings.tasks.iter().take(ROWS).map(|task| {
        vec![
            plain(&task.task),
            thousands(task.threads),
            thousands(task.switches),
            Nanos(task.running_ns).to_string(),
            Nanos(task.runnable_ns).to_string(),
            Nanos(task.blocked_ns).to_string(),
            Nanos(task.unknown_ns).to_string(),
        ]
    });
    let right = [false, true, true, true, true, true, true];
    plain_table(&head, rows.collect(), &right, false, style)
}

/// `direct-reclaim 80 %, on-cpu 12 %, run-queue 8 %`; of many the first.
fn taken_apart(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let name = match &part.function {
            Some(function) => format!("{} {}", part.cause, plain(function)),
            None => plain(&part.cause),
        };
        format!("{name} {} %", number(part.share * 100.0))
    };
    let parts: Vec<String> = parts.iter().take(4).map(part).collect();
    parts.join(", ")
}

fn slow(findings: &Findings, style: Style) -> String {
    if findings.calls.is_empty() {
        return String::new();
    }
    let head = [
        "operation",
        "count",
        "slow",
        "together",
        "longest",
        "what the slow ones are made of",
    ];
    let rows = findings.calls.iter().map(|calls: &Calls| {
        vec![
            plain(&calls.kind),
            thousands(calls.count),
            thousands(calls.slow),
            Nanos(calls.total_ns).to_string(),
            Nanos(calls.most_ns).to_string(),
            taken_apart(&calls.slow_parts),
        ]
    });
    let right = [false, true, true, true, true, false];
    let mut text = plain_table(&head, rows.collect(), &right, false, style);
    if !findings.slow.is_empty() {
        let head = [
            "slowest",
            "task",
            "tid",
            "after",
            "took",
            "because of",
            "woken by",
        ];
        let begin = |slow: &Slow| slow.begin_ns;
        let first = findings.slow.iter().map(begin).min().unwrap_or(0);
        let rows = findings.slow.iter().map(|slow| {
            let least = if slow.at_least { ">= " } else { "" };
            let waker = slow.woken_by.as_ref().map_or_else(String::new, |waker| {
                let call = waker
                    .call
                    .as_deref()
                    .map_or_else(String::new, |c| format!(" in {c}"));
                plain(&format!("{}{call}", waker.task))
            });
            vec![
                plain(&slow.call),
                plain(&slow.task),
                slow.tid.to_string(),
                Nanos(slow.begin_ns.saturating_sub(first)).to_string(),
                format!("{least}{}", Nanos(slow.length_ns)),
                taken_apart(&slow.parts),
                waker,
            ]
        });
        let right = [false, false, true, true, true, false, false];
        text.push('\n');
        text.push_str(&plain_table(&head, rows.collect(), &right, false, style));
    }
    let short = findings.short_calls.as_deref().unwrap_or_default();
    if !short.is_empty() {
        text.push('\n');
        text.push_str(&profile::short_calls(short, style));
    }
    let functions = findings.functions.iter().flatten();
    let list: Vec<String> = functions
        .map(|one| format!("{} {}", plain(&one.function), thousands(one.samples)))
        .collect();
    if !list.is_empty() {
        let list = list.join(", ");
        let line = format!("  samples in slow operations: {list}");
        text.push_str(&wrap(&line, style.width, 2));
    }
    text.push_str(&wrap(
        "  slow: 1 ms or more without `event`, the wait that a call was made for; `after`: since the first of these \
         began",
        style.width,
        2,
    ));
    text
}

fn profiled(findings: &Findings, style: Style) -> String {
    let profile = findings.profile.as_ref();
    profile.map_or_else(String::new, |profile| profile::screen(profile, style))
}

fn memory(findings: &Findings, style: Style) -> String {
    let memory = &findings.memory;
    let mut text = String::new();
    if memory.maps.is_some() || memory.unmaps.is_some() {
        let rate = |rate: Option<f64>| {
            rate.map_or_else(String::new, |rate| format!(" ({} a second)", number(rate)))
        };
        let line = format!(
            "  {} maps{}, {} unmaps{}",
            count(memory.maps),
            rate(memory.maps_per_s),
            count(memory.unmaps),
            rate(memory.unmaps_per_s)
        );
        text.push_str(&wrap(&line, style.width, 2));
    }
    if let Some(live) = &memory.live {
        let line = format!(
            "  live mappings ({}): {} first, {} at most, {} last",
            plain(&live.source),
            live.first,
            live.most,
            live.last
        );
        text.push_str(&wrap(&line, style.width, 2));
    }
    for space in memory.spaces.iter().flatten() {
        text.push_str(&wrap(&address_space(space), style.width, 2));
    }
    if let Some(slow) = &memory.slow {
        text.push_str(&wrap(&slow_memory(slow, memory), style.width, 2));
    }
    if let Some(ns) = memory.search_at_most_ns {
        let line = format!(
            "  search for holes in all mmap calls: at most {}",
            Nanos(ns)
        );
        text.push_str(&wrap(&line, style.width, 2));
    }
    if let Some(reclaim) = memory.reclaim.as_ref().filter(|list| !list.is_empty()) {
        let head = [
            "task",
            "by",
            "function",
            "count",
            "wall time",
            "longest",
            "scanned",
            "freed",
        ];
        let rows = reclaim.iter().take(ROWS).map(|one| {
            vec![
                plain(&one.task),
                plain(&one.by),
                one.function.as_deref().map_or_else(String::new, plain),
                thousands(one.count),
                Nanos(one.wall_ns).to_string(),
                Nanos(one.most_ns).to_string(),
                count(one.scanned),
                count(one.reclaimed),
            ]
        });
        let right = [false, false, false, true, true, true, true, true];
        text.push_str(&plain_table(&head, rows.collect(), &right, false, style));
    }
    text
}

/// `  process 812 (python3) at its end: 96 mappings, 412 MiB; 12 holes of 3.1 MiB, the largest 1.0 MiB`.
fn address_space(space: &AddressSpace) -> String {
    let pid = space
        .pid
        .map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
    let task = space.task.as_deref();
    let task = task.map_or_else(String::new, |task| format!(" ({})", plain(task)));
    let holes = match &space.holes {
        None => "the kernel placed none of them".to_owned(),
        Some(holes) if holes.count == 0 => "no holes between them".to_owned(),
        Some(holes) => format!(
            "{} holes of {} together, the largest {}",
            thousands(holes.count),
            Bytes(holes.bytes),
            Bytes(holes.largest)
        ),
    };
    format!(
        "  {pid}{task} after {} calls: {} mappings of {}; {holes}",
        thousands(space.calls),
        thousands(space.mappings),
        Bytes(space.bytes)
    )
}

/// Whether placement, reclaim or compaction explains the slow ones.
fn slow_memory(slow: &SlowMemory, memory: &Memory) -> String {
    let percent = |share: f64| format!("{} %", number(share * 100.0));
    let or_unknown = |share: Option<f64>| share.map_or_else(|| UNKNOWN.to_owned(), percent);
    let placement = slow.placement_at_most.map_or_else(
        || UNKNOWN.to_owned(),
        |share| format!("at most {}", percent(share)),
    );
    let mut line = format!(
        "  the slow ones ({}, {}): placement {placement}, reclaim {}, compaction {}",
        thousands(slow.operations),
        Nanos(slow.total_ns),
        or_unknown(slow.reclaim),
        or_unknown(slow.compaction)
    );
    if let Some(explained) = &memory.explained_by {
        let function = explained.function.as_deref();
        let function =
            function.map_or_else(String::new, |function| format!(" {}", plain(function)));
        line.push_str(&format!(
            "; most of it is {}{function} ({}, in {} of them)",
            explained.cause,
            percent(explained.share),
            thousands(explained.operations)
        ));
    }
    line
}

fn advice(findings: &Findings, style: Style) -> String {
    let mut text = String::new();
    for advice in &findings.advice {
        let line = format!(
            "  {}: {}; {}",
            plain(&advice.word),
            plain(&advice.text),
            plain(&advice.evidence)
        );
        text.push_str(&wrap(&line, style.width, 4));
    }
    text
}

fn missing(findings: &Findings, style: Style) -> String {
    let mut text = String::new();
    for missing in &findings.missing {
        let line = format!("  {}: {}", plain(&missing.what), plain(&missing.why));
        text.push_str(&wrap(&line, style.width, 4));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::machine::Missing;
    use stopgap_stats::explain::{Cause, CauseKind, Losses, Memory, Trace};
    use stopgap_stats::verdict::Verdict;

    const STYLE: Style = Style {
        width: 100,
        colour: false,
    };

    fn nothing() -> Findings {
        Findings {
            trace: Trace::default(),
            losses: Losses::default(),
            verdict: Verdict::unsupported("nothing was recorded"),
            switches: Switches::default(),
            tasks: Vec::new(),
            slow: Vec::new(),
            calls: Vec::new(),
            short_calls: None,
            memory: Memory::default(),
            functions: None,
            profile: None,
            advice: Vec::new(),
            missing: vec![Missing::new("switches", "no scheduling events")],
        }
    }

    #[test]
    fn what_is_not_known_is_no_zero() {
        let screen = screen(&nothing(), STYLE);
        assert_eq!(
            screen,
            "unsupported: nothing was recorded\n\
             a trace of unknown source: 0 events in an unknown time, losses unknown\n\
             \nUNKNOWN\n  switches: no scheduling events\n"
        );
    }

    #[test]
    fn causes_that_are_not_shown_are_counted() {
        let mut findings = nothing();
        let causes = (0..20).map(|index| Cause {
            task: format!("x\n{index}"),
            cause: "blocked in read".to_owned(),
            count: 5,
            kind: CauseKind::Blocked,
            call: None,
            by_task: None,
            by_call: None,
        });
        findings.switches.causes = causes.collect();
        findings.switches.total = Some(100);
        let screen = screen(&findings, STYLE);
        assert!(
            screen.contains("100 switch-outs, - of them involuntary; - round trips"),
            "{screen}"
        );
        assert!(
            screen.contains("8 other causes") && screen.contains("40"),
            "{screen}"
        );
        assert!(
            screen.contains("x\\u{a}3"),
            "a name breaks no line: {screen}"
        );
    }
}
