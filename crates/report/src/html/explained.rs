//! Explained traces: who switched and why, what slow operations waited for.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Explain, Findings, Part, Spread, Waiting, Windows, cause_in_words};
use stopgap_stats::overall::State;
use stopgap_stats::verdict::Word;

use super::chart::{Axis, Chart, Layer, Scale, Shape};
use super::stack;
use super::top::{self, Part as Rows, Row};
use super::write::{Section, list};
use super::{picture, profile, waits};
use crate::explain::cause;
use crate::headline::{self, Headline};
use crate::replay::grouped;
use crate::story;
use crate::table::{Table, known_or};
use crate::text::{number, thousands};
use crate::windows;

/// Threads at the top of the page.
const WHO: usize = 4;

/// Returns the headline of an explained trace with the first thing to try, and who lost most time.
pub(super) fn top(found: &Findings) -> (Row, Vec<Rows>) {
    let verdict = &found.verdict;
    let Headline { head, sentence } = headline::of_findings(found);
    let first = found.advice.first();
    let first = first.map(|one| format!("Try first: {} ({}).", one.text, one.evidence));
    let head = Row {
        more: sentence,
        first: first.unwrap_or_default(),
        ..Row::new(Some(top::of_word(verdict.word)), "trace", &head)
    };
    let state = (verdict.word == Word::Stalls).then_some(State::Look);
    let waiting = found.chains.as_ref().map(|chains| &*chains.waiting);
    let losers = story::losers(waiting.unwrap_or_default());
    let rows = losers.iter().take(WHO);
    let rows = rows.map(|loser| Row::new(state, &loser.task, &loser.sentence()));
    let sleepers = story::for_sleepers(waiting.unwrap_or_default());
    let slept = sleepers.iter().take(WHO);
    let slept = slept.map(|one| Row::new(None, &one.task, &one.sentence()));
    let parts = vec![
        ("Who lost most time", rows.collect()),
        ("Who waited for a sleeper", slept.collect()),
    ];
    (head, parts)
}

/// Returns the section of an explained trace. The verdict stands in it where it is not `alone` in the page, whose headline it is.
pub(super) fn section(id: &str, name: &str, explain: &Explain, alone: bool) -> String {
    let found = &explain.findings;
    let mut section = Section::new(id, &format!("trace: {name}"));
    if !alone {
        section.verdict(Some(top::of_word(found.verdict.word)), &found.verdict.text);
    }
    // The headline has the first.
    let advice = found.advice.iter().skip(usize::from(alone));
    let advice = advice.map(|one| format!("try {}: {} ({})", one.word, one.text, one.evidence));
    section.list(&advice.collect::<Vec<_>>(), "advice");
    // The verdict has the first.
    let short = found.short_calls.iter().flatten().skip(1);
    section.list(
        &short.map(|short| short.text.clone()).collect::<Vec<_>>(),
        "evidence",
    );
    let mut charts = Vec::new();
    charts.extend(distribution(
        "Context switches per round trip",
        ("context switches of both", "per round trip"),
        &found.switches.per_roundtrip,
    ));
    charts.extend(found.switches.frames.as_ref().and_then(|frames| {
        distribution(
            "Context switches per frame",
            ("context switches", "per frame"),
            &frames.switches,
        )
    }));
    charts.extend(stacks(found));
    let mut figures: Vec<String> = Vec::new();
    figures.extend(found.chains.as_ref().and_then(waits::figure));
    figures.extend(pictures(found));
    figures.extend(charts.iter().map(Chart::html));
    figures.extend(found.profile.as_ref().and_then(profile::figure));
    let mut figures = figures.into_iter().filter(|html| !html.is_empty());
    section.add(&figures.next().unwrap_or_default());
    section.fold_pictures(&figures.collect::<String>());
    section.fold("What was read", &list(&facts(found), "evidence"));
    section.finish()
}

/// Pictures of windows and waits.
const PICTURES: usize = 4;

/// Returns pictures of the longest frames, requests and round trips, and of the longest waits that lost time.
fn pictures(found: &Findings) -> Vec<String> {
    let window = |one: &Windows| {
        let longest = one.longest.as_ref()?;
        let about = windows::the_longest(one.kind, longest);
        picture::figure(
            &windows::title(one),
            &format!("The {about}."),
            &longest.steps,
        )
    };
    let wait = |waiting: &Waiting| {
        let title = format!("The longest wait of {}", waiting.task);
        let (text, length) = (&waiting.text, Nanos(waiting.longest_ns));
        picture::figure(
            &title,
            &format!("{} {text}, {length}.", waiting.task),
            &waiting.steps,
        )
    };
    let waits = found.chains.iter().flat_map(|chains| &chains.waiting);
    let mut waits: Vec<&Waiting> = waits.filter(|waiting| !waiting.steps.is_empty()).collect();
    waits.sort_rows_by_key(|waiting| std::cmp::Reverse(waiting.longest_ns));
    let mut all: Vec<String> = windows::told(found)
        .filter_map(window)
        .take(PICTURES)
        .collect();
    all.extend(waits.into_iter().filter_map(wait).take(PICTURES));
    all
}

/// Returns what was read and what of it was lost.
fn facts(found: &Findings) -> Vec<String> {
    let trace = &found.trace;
    let (events, time) = (thousands(trace.events), trace.duration_ns.map(Nanos));
    let facts = [
        trace
            .source
            .as_ref()
            .map(|source| format!("recorded: {source}")),
        Some(format!(
            "{events} events, {} from the first to the last",
            known_or("unknown", time)
        )),
        Some(format!(
            "lost: {}",
            known_or("unknown", found.losses.lost.map(thousands))
        )),
        trace
            .cut_short
            .as_ref()
            .map(|why| format!("cut short: {why}")),
    ];
    facts.into_iter().flatten().collect()
}

/// Returns how many had how many switches.
fn distribution(title: &str, (axis, unit): (&str, &str), spread: &Spread) -> Option<Chart> {
    let all: u64 = spread.distribution.iter().map(|(_, count)| count).sum();
    let mut layer = Layer::new("", 0);
    let mut table = Table::new("switches | round trips or frames | share, %");
    for &(value, count) in &spread.distribution {
        let share = count as f64 / all.max(1) as f64 * 100.0;
        layer.shapes.push(Shape::Column(value as f64, share));
        table.row(&[&thousands(value), &thousands(count), &number(share)]);
    }
    let [p50, p90, most] =
        [spread.p50, spread.p90, spread.most].map(|n| known_or("n too small", n.map(thousands)));
    let about = format!(
        "The share of all {} by the number of switches that each took. p50 {p50}, p90 {p90}, most {most}.",
        thousands(all)
    );
    let x = Axis::new(axis, unit, Scale::Linear);
    let y = Axis::new("share", "%", Scale::Linear);
    (!spread.distribution.is_empty()).then(|| Chart {
        layers: vec![layer],
        rule: Some((2.0, "2: needed on one CPU".to_owned())),
        table,
        ..Chart::new(title, about, x, y)
    })
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn milliseconds(parts: &[Part]) -> Vec<(String, f64)> {
    let part = |part: &Part| (cause(&part.cause, part.function.as_deref()), ms(part.ns));
    parts.iter().map(part).collect()
}

/// Returns why threads left their CPU, slow operations taken apart by cause, and how threads spent their time.
fn stacks(found: &Findings) -> Vec<Chart> {
    let causes = found.switches.causes.iter();
    let causes = causes.map(|one| (one.task.clone(), (one.cause.clone(), one.count as f64)));
    let slow = found.slow.iter().map(|slow| {
        let at_least = if slow.at_least { ", at least" } else { "" };
        let (call, task, length) = (&slow.call, &slow.task, Nanos(slow.length_ns));
        (
            format!("{call} of {task}{at_least} {length}"),
            milliseconds(&slow.parts),
        )
    });
    let kinds = found
        .calls
        .iter()
        .filter(|calls| calls.slow > 0)
        .map(|calls| {
            let [slow, all] = [calls.slow, calls.count].map(thousands);
            (
                format!("{}: {slow} slow of {all}", calls.kind),
                milliseconds(&calls.slow_parts),
            )
        });
    let tasks = found.tasks.iter().map(|task| {
        let parts = [
            (cause_in_words("on-cpu"), task.running_ns),
            (cause_in_words("run-queue"), task.runnable_ns),
            ("asleep", task.blocked_ns),
            ("unknown", task.unknown_ns),
        ];
        let parts = parts.map(|(name, ns)| (name.to_owned(), ms(ns)));
        (task.task.clone(), parts.to_vec())
    });
    let time = ("time", "ms");
    let switches = stack::Given {
        title: "Why threads left their CPU".to_owned(),
        about: "Context switches of traced threads by cause.",
        axis: ("context switches", "number"),
        row: "thread",
        rows: grouped(causes),
    };
    let times = [
        stack::Given {
            title: "The slowest operations, by cause".to_owned(),
            about: "The time of each operation by cause. Idle: the thread had nothing to do.",
            axis: time,
            row: "operation",
            rows: slow.collect(),
        },
        stack::Given {
            title: "Slow operations by kind and cause".to_owned(),
            about: "All operations that lost at least a millisecond, idle waits not counted.",
            axis: time,
            row: "kind",
            rows: kinds.collect(),
        },
        stack::Given {
            title: "How threads spent their time".to_owned(),
            about: "The lifetime of the traced threads within the trace, by state.",
            axis: time,
            row: "thread",
            rows: tasks.collect(),
        },
    ];
    let states = found.profile.as_ref().map(profile::states);
    let mut taken = 0;
    let times = stack::charts_beside(&mut taken, times.into_iter().chain(states));
    let mut charts = stack::charts_beside(&mut taken, [switches]);
    charts.extend(times);
    charts
}
