//! Explained traces: who switched and why, what slow operations waited for.

use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Explain, Findings, Part, Spread};

use super::chart::{Axis, Chart, Layer, Scale, Shape};
use super::profile;
use super::stack;
use super::write::{Table, escaped, list};
use crate::text::{number, thousands};

/// The section of an explained trace.
pub(super) fn section(id: &str, name: &str, explain: &Explain) -> String {
    let found = &explain.findings;
    let mut html = format!(
        "<section id=\"{id}\"><h2>trace: {}</h2>\n<p class=\"verdict\">{}</p>\n",
        escaped(name),
        escaped(&found.verdict.text)
    );
    html.push_str(&list(&facts(found), "evidence"));
    let advice: Vec<String> = found
        .advice
        .iter()
        .map(|advice| format!("try {}: {} ({})", advice.word, advice.text, advice.evidence))
        .collect();
    html.push_str(&list(&advice, "advice"));
    // The verdict has the first.
    let short = found.short_calls.iter().flatten().skip(1);
    let short: Vec<String> = short.map(|short| short.text.clone()).collect();
    html.push_str(&list(&short, "evidence"));
    let mut charts = Vec::new();
    charts.extend(distribution(
        "Switches a round trip",
        "switch-outs of client and server",
        &found.switches.per_roundtrip,
    ));
    if let Some(frames) = &found.switches.frames {
        charts.extend(distribution(
            "Switches a frame",
            "switch-outs of traced threads",
            &frames.switches,
        ));
    }
    charts.extend(causes(found));
    charts.extend(slow(found));
    charts.extend(kinds(found));
    charts.extend(tasks(found));
    charts.extend(found.profile.as_ref().and_then(profile::states));
    html.push_str("<div class=\"charts\">");
    html.extend(charts.iter().map(Chart::html));
    html.push_str("</div>");
    html.extend(found.profile.as_ref().and_then(profile::figure));
    html.push_str("</section>\n");
    html
}

/// What was read and what of it was lost.
fn facts(found: &Findings) -> Vec<String> {
    let trace = &found.trace;
    let mut facts = Vec::new();
    facts.extend(
        trace
            .source
            .as_ref()
            .map(|source| format!("recorded: {source}")),
    );
    let duration = trace
        .duration_ns
        .map_or_else(|| "unknown".to_owned(), |ns| Nanos(ns).to_string());
    facts.push(format!(
        "{} events, {duration} from the first to the last",
        thousands(trace.events)
    ));
    facts.push(match found.losses.lost {
        None => "lost: unknown".to_owned(),
        Some(lost) => format!("lost: {}", thousands(lost)),
    });
    facts.extend(
        trace
            .cut_short
            .as_ref()
            .map(|why| format!("cut short: {why}")),
    );
    facts
}

/// How many had how many.
fn distribution(title: &str, axis: &str, spread: &Spread) -> Option<Chart> {
    if spread.distribution.is_empty() {
        return None;
    }
    let all: f64 = spread
        .distribution
        .iter()
        .map(|(_, count)| *count as f64)
        .sum();
    let mut layer = Layer::new("", 0);
    let mut table = Table::new(&["switches", "round trips or frames", "share, %"]);
    for &(value, count) in &spread.distribution {
        let share = count as f64 / all.max(1.0) * 100.0;
        layer.shapes.push(Shape::Column(value as f64, share));
        table
            .rows
            .push(vec![thousands(value), thousands(count), number(share)]);
    }
    let shown =
        |quantile: Option<u64>| quantile.map_or_else(|| "n too small".to_owned(), thousands);
    Some(Chart {
        title: title.to_owned(),
        about: format!(
            "How many switches each took, as a share of all {}. p50 {}, p90 {}, most {}.",
            thousands(all as u64),
            shown(spread.p50),
            shown(spread.p90),
            shown(spread.most)
        ),
        x: Axis::new(axis, "switches", Scale::Linear),
        y: Axis::new("share", "%", Scale::Linear),
        rows: Vec::new(),
        layers: vec![layer],
        rule: Some((2.0, "2: needed on one CPU".to_owned())),
        table,
        spans: None,
    })
}

/// How threads spent their time.
fn tasks(found: &Findings) -> Option<Chart> {
    let rows: Vec<stack::Row> = found
        .tasks
        .iter()
        .map(|task| {
            let part = |name: &str, ns: u64| (name.to_owned(), ns as f64 / 1e6);
            let parts = vec![
                part("running", task.running_ns),
                part("run queue", task.runnable_ns),
                part("asleep", task.blocked_ns),
                part("unknown", task.unknown_ns),
            ];
            (task.task.clone(), parts)
        })
        .collect();
    let words = stack::Words {
        title: "How threads spent their time",
        about: "The time that the traced threads existed within the trace, by state.",
        axis: "time",
        unit: "ms",
        row: "a row a thread's name",
    };
    stack::chart(&words, &rows)
}

/// Why threads left their CPU.
fn causes(found: &Findings) -> Option<Chart> {
    let mut rows: Vec<stack::Row> = Vec::new();
    for cause in &found.switches.causes {
        let part = (cause.cause.clone(), cause.count as f64);
        match rows.iter_mut().find(|(task, _)| *task == cause.task) {
            Some((_, parts)) => parts.push(part),
            None => rows.push((cause.task.clone(), vec![part])),
        }
    }
    let words = stack::Words {
        title: "Why threads left their CPU",
        about: "Switch-outs of traced threads, taken apart by cause.",
        axis: "switch-outs",
        unit: "switches",
        row: "a row a thread's name",
    };
    stack::chart(&words, &rows)
}

fn milliseconds(parts: &[Part]) -> Vec<(String, f64)> {
    let name = |part: &Part| match &part.function {
        Some(function) => format!("{} {function}", part.cause),
        None => part.cause.clone(),
    };
    parts
        .iter()
        .map(|part| (name(part), part.ns as f64 / 1e6))
        .collect()
}

/// The slowest operations, each taken apart.
fn slow(found: &Findings) -> Option<Chart> {
    let rows: Vec<stack::Row> = found
        .slow
        .iter()
        .map(|slow| {
            let at_least = if slow.at_least { ", at least" } else { "" };
            let label = format!(
                "{} of {}{at_least} {}",
                slow.call,
                slow.task,
                Nanos(slow.length_ns)
            );
            (label, milliseconds(&slow.parts))
        })
        .collect();
    let words = stack::Words {
        title: "The slowest operations, by cause",
        about: "Each operation's time, taken apart; event is the wait that it was made for.",
        axis: "time",
        unit: "ms",
        row: "a row an operation",
    };
    stack::chart(&words, &rows)
}

/// The time of slow operations by kind.
fn kinds(found: &Findings) -> Option<Chart> {
    let rows: Vec<stack::Row> = found
        .calls
        .iter()
        .filter(|calls| calls.slow > 0)
        .map(|calls| {
            let label = format!(
                "{}: {} slow of {}",
                calls.kind,
                thousands(calls.slow),
                thousands(calls.count)
            );
            (label, milliseconds(&calls.slow_parts))
        })
        .collect();
    let words = stack::Words {
        title: "Slow operations by kind and cause",
        about: "All operations whose time beyond the wait that they were made for was a millisecond or more.",
        axis: "time",
        unit: "ms",
        row: "a row a kind",
    };
    stack::chart(&words, &rows)
}
