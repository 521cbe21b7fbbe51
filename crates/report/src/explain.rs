//! An explained trace, for people: the verdict, why threads waited, advice, and what is not known; and tables of
//! switches and their causes, of tasks, slow operations and memory.

use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::explain::{
    AddressSpace, Findings, KERNEL_EVENTS, Memory, Part, SlowMemory, Spread, Switches, Waiting,
    Waker, cause_in_words,
};

use stopgap_stats::verdict::Word;

use crate::headline;
use crate::profile;
use crate::story;
use crate::table::{Screen, Style, Table, join, known, known_or};
use crate::text::{number, share, thousands};
use crate::windows;

/// Causes and pairs that are shown; the JSON record has all.
const ROWS: usize = 12;

/// Adds a part of the screen; nothing where there is nothing to say.
type Say = fn(&Findings, &mut Screen);

/// How much a screen says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The verdict and what it stands on.
    Story,
    /// Every table, too.
    All,
}

/// Returns the text of the findings.
#[must_use]
pub fn screen(findings: &Findings, style: Style, show: Show) -> String {
    let mut screen = Screen::new(style);
    let headline = headline::of_findings(findings);
    screen.say_bold(headline.head);
    screen.say(headline.sentence);
    screen.say(scene(findings));
    let parts: [(&str, Say); 9] = [
        ("ADVICE", |findings, screen| {
            for advice in &findings.advice {
                let (word, text, evidence) = (&advice.word, &advice.text, &advice.evidence);
                screen.say_by(4, format!("  {word}: {text}; {evidence}"));
            }
        }),
        ("WHY", story::say),
        ("CRITICAL PATH", windows::say),
        ("SWITCHES", say_switches),
        ("TASKS", say_tasks),
        ("SLOW", say_slow),
        ("PROFILE", |findings, screen| {
            if let Some(profile) = &findings.profile {
                profile::say(profile, screen);
            }
        }),
        ("MEMORY", say_memory),
        ("UNKNOWN", |findings, screen| {
            for missing in &findings.missing {
                screen.say_by(4, format!("  {}: {}", missing.what, missing.why));
            }
        }),
    ];
    let mut left_out = Vec::new();
    let mut has_why = false;
    for (head, say) in parts {
        let mut part = Screen::new(style);
        say(findings, &mut part);
        let part = part.finish();
        if part.is_empty() {
            continue;
        }
        has_why |= head == "WHY";
        if show == Show::All || is_of_story(head, findings, has_why) {
            screen.add(&format!("\n{head}\n{part}"));
        } else if head != "UNKNOWN" {
            left_out.push(head);
        }
    }
    if show == Show::Story && !findings.missing.is_empty() {
        let names = findings.missing.iter().map(|missing| &missing.what);
        let names = join(names, "; ");
        screen.add("\n");
        screen.say(format!(
            "Not known: {names}. Why, and how to record it: --verbose"
        ));
        if (findings.missing.iter()).any(|missing| missing.what == KERNEL_EVENTS) {
            screen.say("It was recorded without root. As root nearly all of it is known: sudo stopgap record ...");
        }
    }
    if !left_out.is_empty() {
        screen.add("\n");
        screen.say(format!("--verbose adds {}", left_out.join(", ")));
    }
    screen.finish()
}

/// Returns who lost how much in these waits, with the chains behind them: part WHY of a screen.
#[must_use]
pub fn why(waiting: &[Waiting], style: Style) -> String {
    let mut screen = Screen::new(style);
    story::say_losers(&story::losers(waiting), &mut screen);
    screen.finish()
}

/// Whether a part is among what the verdict stands on, or was asked for.
fn is_of_story(head: &str, findings: &Findings, has_why: bool) -> bool {
    let word = findings.verdict.word;
    match head {
        "UNKNOWN" => false,
        // Without scheduling events there are no chains to tell.
        _ if findings.chains.is_none() => true,
        "SWITCHES" => word == Word::Excess || findings.switches.frames.is_some(),
        "SLOW" => word == Word::Stalls && !has_why,
        "TASKS" | "MEMORY" => false,
        _ => true,
    }
}

/// Returns `xwininfo -root -tree: 45,120 events in 1.20 s, none lost`.
fn scene(findings: &Findings) -> String {
    let (trace, losses) = (&findings.trace, &findings.losses);
    let source = trace
        .source
        .as_deref()
        .unwrap_or("a trace of unknown source");
    let time = known_or("an unknown time", trace.duration_ns.map(Nanos));
    let lost = match (losses.lost, losses.share) {
        (Some(0), _) => "none lost".to_owned(),
        (Some(lost), Some(share)) => {
            format!("{} lost ({} %)", thousands(lost), number(share * 100.0))
        }
        _ => "losses unknown".to_owned(),
    };
    let mut text = format!(
        "{source}: {} events in {time}, {lost}",
        thousands(trace.events)
    );
    if losses.contradictions + losses.disordered > 0 {
        text += &format!(
            ", {} contradict those before, {} out of order",
            thousands(losses.contradictions),
            thousands(losses.disordered)
        );
    }
    text
}

fn count(value: Option<u64>) -> String {
    known(value.map(thousands))
}

/// Returns mean, p50 and p90.
fn spread(spread: &Spread) -> [String; 3] {
    [
        known(spread.mean.map(number)),
        count(spread.p50),
        count(spread.p90),
    ]
}

fn say_switches(findings: &Findings, screen: &mut Screen) {
    let switches = &findings.switches;
    let Some(total) = switches.total else { return };
    let [mean, p50, p90] = spread(&switches.per_roundtrip);
    let excess = switches
        .excess
        .map(|excess| format!(", {excess:+.2} against 2"));
    screen.say(format!(
        "  {} switch-outs, {} of them involuntary; {} round trips, {mean} switches each (p50 {p50}, p90 {p90}){}",
        thousands(total),
        count(switches.involuntary),
        count(switches.roundtrips),
        known_or("", excess),
    ));
    if let Some(frames) = &switches.frames {
        let [mean, p50, p90] = spread(&frames.switches);
        let (frames, marker) = (thousands(frames.count), &frames.marker);
        screen.say(format!(
            "  {frames} frames by {marker}: {mean} switches each (p50 {p50}, p90 {p90})"
        ));
    }
    let mut pairs = Table::new(
        "client | server | >round trips | >switches each | >p50 | >p90 | >sends | >replies | >p50 time",
    );
    for pair in switches.pairs.iter().take(ROWS) {
        let [mean, p50, p90] = spread(&pair.per_roundtrip);
        let [sends, replies] = [pair.sends_per_roundtrip, pair.replies_per_roundtrip].map(number);
        let (trips, time) = (thousands(pair.roundtrips), known(pair.p50_ns.map(Nanos)));
        let (client, server) = (&pair.client, &pair.server);
        pairs.row(&[
            client, server, &trips, &mean, &p50, &p90, &sends, &replies, &time,
        ]);
    }
    screen.table_of_some(&pairs);
    screen.table_of_some(&causes(switches, total));
}

fn causes(switches: &Switches, total: u64) -> Table {
    let mut table = Table::new("who | >switch-outs | >% | why");
    let mut add = |task: &str, cause: &str, count: u64| {
        table.row(&[&task, &thousands(count), &share(count, total), &cause]);
    };
    let (shown, rest) = switches.causes.split_at(switches.causes.len().min(ROWS));
    for cause in shown {
        add(&cause.task, &cause.cause, cause.count);
    }
    let count: u64 = rest.iter().map(|cause| cause.count).sum();
    if count > 0 {
        add("", &format!("{} other causes", rest.len()), count);
    }
    table
}

fn say_tasks(findings: &Findings, screen: &mut Screen) {
    let mut table =
        Table::new("task | >threads | >switch-outs | >running | >run queue | >asleep | >unknown");
    for task in findings.tasks.iter().take(ROWS) {
        let [threads, switches] = [task.threads, task.switches].map(thousands);
        let times = [
            task.running_ns,
            task.runnable_ns,
            task.blocked_ns,
            task.unknown_ns,
        ];
        let [running, runnable, blocked, unknown] = times.map(Nanos);
        table.row(&[
            &task.task, &threads, &switches, &running, &runnable, &blocked, &unknown,
        ]);
    }
    screen.table_of_some(&table);
}

/// Returns a cause in words, with its function where one is known.
pub(crate) fn cause(cause: &str, function: Option<&str>) -> String {
    format!(
        "{}{}",
        cause_in_words(cause),
        known_or("", function.map(|function| format!(" {function}")))
    )
}

/// Returns `direct-reclaim 80 %, on-cpu 12 %, run-queue 8 %`; of many the first.
fn taken_apart(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let name = cause(&part.cause, part.function.as_deref());
        format!("{name} {} %", number(part.share * 100.0))
    };
    join(parts.iter().take(4).map(part), ", ")
}

fn say_slow(findings: &Findings, screen: &mut Screen) {
    if findings.calls.is_empty() {
        return;
    }
    let mut table = Table::new(
        "operation | >count | >slow | >together | >longest | what the slow ones are made of",
    );
    // A call that worked only is no news.
    let mut lost: Vec<_> = findings
        .calls
        .iter()
        .filter(|calls| calls.most_ns > 0)
        .collect();
    lost.sort_rows_by_key(|calls| std::cmp::Reverse(calls.most_ns));
    for calls in lost.iter().take(ROWS) {
        let [count, slow] = [calls.count, calls.slow].map(thousands);
        let [total, most] = [calls.total_ns, calls.most_ns].map(Nanos);
        let parts = taken_apart(&calls.slow_parts);
        table.row(&[&calls.kind, &count, &slow, &total, &most, &parts]);
    }
    screen.table_of_some(&table);
    if lost.len() > ROWS {
        screen.say(format!("  and {} other operations", lost.len() - ROWS));
    }
    if let Some(first) = findings.slow.iter().map(|slow| slow.begin_ns).min() {
        let mut table =
            Table::new("slowest | task | >tid | >after | >took | because of | woken by");
        for slow in &findings.slow {
            let least = if slow.at_least { ">= " } else { "" };
            let took = format!("{least}{}", Nanos(slow.length_ns));
            let after = Nanos(slow.begin_ns.saturating_sub(first));
            let waker = |waker: &Waker| {
                let call = waker.call.as_ref().map(|call| format!(" in {call}"));
                format!("{}{}", waker.task, known_or("", call))
            };
            let (parts, waker) = (
                taken_apart(&slow.parts),
                known_or("", slow.woken_by.as_ref().map(waker)),
            );
            table.row(&[
                &slow.call, &slow.task, &slow.tid, &after, &took, &parts, &waker,
            ]);
        }
        if !lost.is_empty() {
            screen.add("\n");
        }
        screen.table(&table);
    }
    let short = findings.short_calls.as_deref().unwrap_or_default();
    if !short.is_empty() {
        screen.add("\n");
        profile::say_short_calls(short, screen);
    }
    let functions = findings.functions.iter().flatten();
    let functions = functions.map(|one| format!("{} {}", one.function, thousands(one.samples)));
    let functions = join(functions, ", ");
    if !functions.is_empty() {
        screen.say(format!("  samples in slow operations: {functions}"));
    }
    screen
        .say("  slow: 1 ms or more without `idle` waits; `after`: since the first of these began");
}

fn say_memory(findings: &Findings, screen: &mut Screen) {
    let memory = &findings.memory;
    if memory.maps.is_some() || memory.unmaps.is_some() {
        let rate = |rate: Option<f64>| {
            known_or("", rate.map(|rate| format!(" ({} a second)", number(rate))))
        };
        screen.say(format!(
            "  {} maps{}, {} unmaps{}",
            count(memory.maps),
            rate(memory.maps_per_s),
            count(memory.unmaps),
            rate(memory.unmaps_per_s)
        ));
    }
    if let Some(live) = &memory.live {
        screen.say(format!(
            "  live mappings ({}): {} first, {} at most, {} last",
            live.source, live.first, live.most, live.last
        ));
    }
    for space in memory.spaces.iter().flatten() {
        screen.say(address_space(space));
    }
    if let Some(slow) = &memory.slow {
        screen.say(slow_memory(slow, memory));
    }
    if let Some(ns) = memory.search_at_most_ns {
        screen.say(format!(
            "  search for holes in all mmap calls: at most {}",
            Nanos(ns)
        ));
    }
    let mut table =
        Table::new("task | by | function | >count | >wall time | >longest | >scanned | >freed");
    for one in memory.reclaim.iter().flatten().take(ROWS) {
        let (times, function) = (thousands(one.count), known_or("", one.function.as_ref()));
        let [wall, most] = [one.wall_ns, one.most_ns].map(Nanos);
        let [scanned, freed] = [one.scanned, one.reclaimed].map(count);
        table.row(&[
            &one.task, &one.by, &function, &times, &wall, &most, &scanned, &freed,
        ]);
    }
    screen.table_of_some(&table);
}

/// Returns `  process 812 (python3) at its end: 96 mappings, 412 MiB; 12 holes of 3.1 MiB, the largest 1.0 MiB`.
fn address_space(space: &AddressSpace) -> String {
    let pid = known_or("a process", space.pid.map(|pid| format!("process {pid}")));
    let task = known_or("", space.task.as_ref().map(|task| format!(" ({task})")));
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
    let (calls, mappings) = (thousands(space.calls), thousands(space.mappings));
    format!(
        "  {pid}{task} after {calls} calls: {mappings} mappings of {}; {holes}",
        Bytes(space.bytes)
    )
}

/// Returns whether placement, reclaim or compaction explains the slow operations.
fn slow_memory(slow: &SlowMemory, memory: &Memory) -> String {
    let percent = |share: f64| format!("{} %", number(share * 100.0));
    let mut line = format!(
        "  the slow ones ({}, {}): placement {}, reclaim {}, compaction {}",
        thousands(slow.operations),
        Nanos(slow.total_ns),
        known(
            slow.placement_at_most
                .map(|share| format!("at most {}", percent(share)))
        ),
        known(slow.reclaim.map(percent)),
        known(slow.compaction.map(percent))
    );
    if let Some(explained) = &memory.explained_by {
        line += &format!(
            "; most of it is {} ({}, in {} of them)",
            cause(&explained.cause, explained.function.as_deref()),
            percent(explained.share),
            thousands(explained.operations)
        );
    }
    line
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
        verbose: false,
    };

    fn nothing() -> Findings {
        Findings {
            trace: Trace::default(),
            losses: Losses::default(),
            verdict: Verdict::unsupported("nothing was recorded"),
            switches: Switches::default(),
            chains: None,
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
        let screen = screen(&nothing(), STYLE, Show::Story);
        assert_eq!(
            screen,
            "COULD NOT LOOK\nnothing was recorded\n\
             a trace of unknown source: 0 events in an unknown time, losses unknown\n\
             \nNot known: switches. Why, and how to record it: --verbose\n"
        );
    }

    #[test]
    fn what_root_would_record_is_said_on_the_first_screen() {
        let mut findings = nothing();
        let said = |findings: &Findings| screen(findings, STYLE, Show::Story);
        assert!(!said(&findings).contains("sudo"));
        findings.missing = vec![Missing::new(KERNEL_EVENTS, "no bpf: needs root")];
        let said = said(&findings);
        assert!(said.ends_with("known: sudo stopgap record ...\n"), "{said}");
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
        let screen = screen(&findings, STYLE, Show::All);
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
