//! Frames, requests and round trips: how long they took, and where that went.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Findings, Link, Longest, Stop, WindowKind, Windows};

use crate::table::{Screen, known};
use crate::text::thousands;

/// Rows of a kind, and parts of one.
const ROWS: usize = 4;
const PARTS: usize = 5;
/// Less than this share is not told.
const SMALL: f64 = 0.05;
/// Round trips whose longest took less than this are no news; nobody asked for them.
const LEAST_LONGEST_NS: u64 = 10_000_000;

/// Returns `frames`.
fn word(kind: WindowKind, count: u64) -> &'static str {
    match (kind, count) {
        (WindowKind::Frame, 1) => "frame",
        (WindowKind::Frame, _) => "frames",
        (WindowKind::Request, 1) => "request",
        (WindowKind::Request, _) => "requests",
        (WindowKind::RoundTrip, 1) => "round trip",
        (WindowKind::RoundTrip, _) => "round trips",
    }
}

/// Returns `91 requests write..read of client`.
pub(crate) fn title(windows: &Windows) -> String {
    let (task, by) = (&windows.task, &windows.by);
    let what = word(windows.kind, windows.count);
    let count = thousands(windows.count);
    match windows.kind {
        WindowKind::Frame => format!("{count} {what} of {task} by {by}"),
        WindowKind::Request => format!("{count} {what} {by} of {task}"),
        WindowKind::RoundTrip => format!("{count} {what} of {task} with {by}"),
    }
}

/// Returns windows that are worth telling.
pub(crate) fn told(findings: &Findings) -> impl Iterator<Item = &Windows> {
    let all = findings.chains.iter().flat_map(|chains| &chains.windows);
    let long = |windows: &Windows| {
        let longest = windows.longest.as_ref();
        longest.is_some_and(|longest| longest.length_ns >= LEAST_LONGEST_NS)
    };
    all.filter(move |windows| windows.kind != WindowKind::RoundTrip || long(windows))
}

/// Says how long windows took and where their time went.
pub(crate) fn say(findings: &Findings, screen: &mut Screen) {
    for kind in [
        WindowKind::Frame,
        WindowKind::Request,
        WindowKind::RoundTrip,
    ] {
        let of_kind = || told(findings).filter(move |windows| windows.kind == kind);
        of_kind()
            .take(ROWS)
            .for_each(|windows| one(windows, screen));
        let more = of_kind().count().saturating_sub(ROWS);
        if more > 0 {
            let names = if more == 1 { "name" } else { "names" };
            screen.say(format!("  {} of {more} more {names}", word(kind, 2)));
        }
    }
}

fn one(windows: &Windows, screen: &mut Screen) {
    let not_counted = not_counted(windows);
    let Some(longest) = &windows.longest else {
        return screen.say_by(4, format!("  {}{not_counted}", title(windows)));
    };
    screen.say_by(
        4,
        format!(
            "  {}: {} in all, p50 {}, p99 {}, longest {}{not_counted}",
            title(windows),
            Nanos(windows.total_ns),
            known(windows.p50_ns.map(Nanos)),
            known(windows.p99_ns.map(Nanos)),
            Nanos(longest.length_ns),
        ),
    );
    parts(&windows.parts, screen);
    if windows.count > 1 {
        screen.say_by(4, format!("    {}", the_longest(windows.kind, longest)));
        if longest.parts.first().map(|part| &part.text)
            != windows.parts.first().map(|part| &part.text)
        {
            parts(&longest.parts, screen);
        }
    } else {
        screen.say_by(4, format!("    chain: {}", chain(&longest.chain)));
    }
}

fn parts(parts: &[Link], screen: &mut Screen) {
    let mut say = |share: f64, text: &str| {
        let share = format!("{:.0}", share * 100.0);
        screen.say_by(12, format!("    {share:>4} %  {text}"));
    };
    // Many small ones of a kind may be the most together.
    let (mut kinds, mut left): (Vec<(&str, f64)>, f64) = (Vec::new(), 0.0);
    let mut shown = 0;
    for part in parts {
        if part.share >= SMALL && shown < PARTS && part.cause != "other" {
            shown += 1;
            say(part.share, &part.text);
            continue;
        }
        match (
            kinds
                .iter_mut()
                .find(|(kind, _)| kind_of(part) == Some(*kind)),
            kind_of(part),
        ) {
            (Some((_, share)), _) => *share += part.share,
            (None, Some(kind)) => kinds.push((kind, part.share)),
            (None, None) => left += part.share,
        }
    }
    kinds.sort_rows(|a, b| b.1.total_cmp(&a.1));
    for (kind, share) in kinds {
        if share >= SMALL {
            say(share, kind);
        } else {
            left += share;
        }
    }
    if left >= 0.005 {
        say(left, "other causes");
    }
}

/// Returns what parts of this cause have in common, in words.
fn kind_of(part: &Link) -> Option<&'static str> {
    Some(match part.cause.as_str() {
        "running" => "other running",
        "run-queue" => "other waiting for a CPU",
        "disk" => "other requests to disks",
        "unknown" => "chains that break",
        _ => return None,
    })
}

/// Returns `longest: request 102, 412 ms, at 3.571 s: client was in read > server was in fsync > disk sda`.
pub(crate) fn the_longest(kind: WindowKind, longest: &Longest) -> String {
    format!(
        "longest: {} {}, {}, at {}: {}",
        word(kind, 1),
        thousands(longest.number),
        Nanos(longest.length_ns),
        Nanos(longest.at_ns),
        chain(&longest.chain)
    )
}

/// Returns the stops of a chain in words.
pub(crate) fn chain(stops: &[Stop]) -> String {
    let words = stops.iter().enumerate().map(|(index, stop)| {
        // The first hop has no subject of its own.
        match (index, &stop.task) {
            (0, Some(task)) if !stop.text.starts_with(task.as_str()) => {
                format!("{task} {}", stop.text)
            }
            _ => stop.text.clone(),
        }
    });
    words.collect::<Vec<_>>().join(" > ")
}

/// Returns `; not counted: 1 that began before the trace, 2 that were not over when it ended`.
fn not_counted(windows: &Windows) -> String {
    let mut words = Vec::new();
    if windows.began_before > 0 {
        let count = thousands(windows.began_before);
        words.push(format!("{count} whose begin is not in the trace"));
    }
    if windows.not_over > 0 {
        let count = thousands(windows.not_over);
        words.push(format!("{count} whose end is not in the trace"));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!("; not counted: {}", words.join(", ")),
    }
}
