//! A window or a wait as a picture of its chains: time to the right, threads and things below each other, an arrow at each
//! wake-up.
//!
//! ```text
//! client  [was in read............................]▲[ran ]
//! server  [was in fsync.................]▲[ran    ]|
//! sda     [behind requests of writer    ]|
//! ```

use std::fmt::Write as _;

use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Step, Stop};

use super::flame::{Frame, container};
use super::write::{escaped, short};

/// Rows of a picture, and what a row takes: its name above, its bars below.
const MOST_ROWS: usize = 24;
const NAME: usize = 16;
const BAR: usize = 18;
const ROW: usize = NAME + BAR + 6;
/// How strong a bar's colour is: its text is read on it.
const STRENGTH: f64 = 0.4;
/// Bars of a picture.
const MOST_BARS: usize = 1_500;
/// Letters of the name of a row.
const LONGEST: usize = 80;

/// A stretch of time in which one actor does the same.
struct Bar<'s> {
    row: usize,
    begin: u64,
    end: u64,
    stop: &'s Stop,
}

struct Arrow {
    at: u64,
    from: usize,
    to: usize,
}

/// Returns a figure of `steps` with this title and text above it; `None` where there is nothing to draw.
pub(super) fn figure(title: &str, about: &str, steps: &[Step]) -> Option<String> {
    let (first, last) = (steps.first()?, steps.last()?);
    let (begin, end) = (first.at_ns, last.at_ns + last.ns);
    let whole = end.checked_sub(begin).filter(|&whole| whole > 0)?;
    let mut names: Vec<String> = Vec::new();
    let mut bars: Vec<Bar<'_>> = Vec::new();
    let mut arrows = Vec::new();
    // Doings of each place of the chain in the step before.
    let mut before: Vec<(usize, &Stop)> = Vec::new();
    for step in steps {
        let mut now: Vec<(usize, &Stop)> = Vec::new();
        for stop in &step.chain {
            let name = row_of(stop);
            let known = names.iter().position(|known| *known == name);
            let row = match known {
                Some(row) => row,
                None if names.len() < MOST_ROWS => {
                    names.push(name);
                    names.len() - 1
                }
                None => break,
            };
            // A thread that waits and the thing that it waits for may have one row: the wait is drawn.
            if now.iter().any(|(other, _)| *other == row) {
                continue;
            }
            now.push((row, stop));
            let last = bars.iter().rposition(|bar| bar.row == row);
            let goes_on =
                last.filter(|&at| bars[at].end == step.at_ns && bars[at].stop.text == stop.text);
            if let Some(at) = goes_on {
                bars[at].end += step.ns;
            } else if bars.len() < MOST_BARS {
                bars.push(Bar {
                    row,
                    begin: step.at_ns,
                    end: step.at_ns + step.ns,
                    stop,
                });
            }
        }
        arrows.extend(ended(&before, &now, step.at_ns));
        before = now;
    }
    arrows.extend(ended(&before, &[], end));
    let share = |at: u64| (at - begin) as f64 / whole as f64 * 100.0;
    let mut html = String::new();
    for (row, name) in names.iter().enumerate() {
        let (top, name) = (row * ROW, escaped(&short(name, LONGEST)));
        let _ = write!(html, "<span style=\"--t:{top}px\">{name}</span>");
    }
    for bar in &bars {
        let (length, after) = (Nanos(bar.end - bar.begin), Nanos(bar.begin - begin));
        let frame = Frame {
            left: share(bar.begin),
            width: share(bar.end) - share(bar.begin),
            top: bar.row * ROW + NAME,
            class: class(&bar.stop.cause),
            strength: STRENGTH,
            name: &bar.stop.text,
            about: &format!("{length}, after {after}"),
        };
        frame.write(&mut html);
    }
    let mut svg = String::new();
    for arrow in &arrows {
        // From the near edge of the one bar to that of the other.
        let (from, to) = match arrow.from > arrow.to {
            true => (arrow.from * ROW + NAME, arrow.to * ROW + NAME + BAR),
            false => (arrow.from * ROW + NAME + BAR, arrow.to * ROW + NAME),
        };
        let head = if from > to { 6 } else { -6 };
        let _ = write!(
            svg,
            "<svg class=\"arrow\" x=\"{:.3}%\" y=\"0\"><path d=\"M0 {from}V{to}M-4 {1}L0 {to}L4 {1}\"/></svg>",
            share(arrow.at),
            to as i64 + head,
        );
    }
    let height = names.len() * ROW + NAME;
    let top = height - NAME;
    let [middle, end] = [0.5, 1.0].map(|part| Nanos((whole as f64 * part) as u64).to_string());
    let _ = write!(
        html,
        "<svg class=\"arrows\" aria-hidden=\"true\">{svg}</svg><span class=\"scale\" style=\"--t:{top}px\">\
         <em>0</em><em>{}</em><em>{}</em></span>",
        escaped(&middle),
        escaped(&end)
    );
    let label = format!("{title}: {about}");
    Some(format!(
        "<figure><figcaption><b>{}</b></figcaption>{}\n\
         <p class=\"about\">{} Time goes to the right and begins {} into the trace. <span class=\"thread\">Green</span>: the thread runs; <span \
         class=\"user\">blue</span>: it waits; <span class=\"kernel\">orange</span>: it waits for a CPU, a disk, a timer or the \
         network. An arrow goes from the thread or device that ended a wait to the thread that waited.</p></figure>\n",
        escaped(title),
        container(&label, height, &html),
        escaped(about),
        Nanos(begin),
    ))
}

/// Returns the name of the row of a stop: its thread, or the thing that it is.
fn row_of(stop: &Stop) -> String {
    let thread = match (&stop.task, stop.tid) {
        (Some(task), Some(tid)) => Some(format!("{task} {tid}")),
        (Some(task), None) => Some(task.clone()),
        (None, _) => None,
    };
    match (stop.cause.as_str(), thread) {
        ("timer" | "timeout", None) => "timer".to_owned(),
        ("disk", _) | (_, None) => stop.text.split(',').next().unwrap_or_default().to_owned(),
        (_, Some(thread)) => thread,
    }
}

fn class(cause: &str) -> &'static str {
    match cause {
        "running" => "thread",
        "run-queue" | "priority-inversion" | "cpu-quota" | "disk" | "timer" | "timeout"
        | "network" | "delayed-ack" | "device" | "interrupt" => "kernel",
        "unknown" | "left-out" => "unnamed",
        _ => "user",
    }
}

/// Returns the arrows of waits that ended at `at`: from what stood behind a wait to the one that waited.
fn ended(before: &[(usize, &Stop)], now: &[(usize, &Stop)], at: u64) -> Vec<Arrow> {
    let pairs = before.iter().zip(before.iter().skip(1)).enumerate();
    let over = pairs.filter(|(place, ((row, stop), _))| {
        let still = now.get(*place);
        !still.is_some_and(|(other, now)| other == row && now.text == stop.text)
    });
    over.map(|(_, ((to, _), (from, _)))| Arrow {
        at,
        from: *from,
        to: *to,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(task: Option<(&str, u32)>, cause: &str, text: &str) -> Stop {
        Stop {
            task: task.map(|(task, _)| task.to_owned()),
            tid: task.map(|(_, tid)| tid),
            cause: cause.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Each thread has a row, the disk, too; an arrow stands where a wait ended, not where only what is behind it changed.
    #[test]
    fn arrows_stand_at_wake_ups() {
        let client = || stop(Some(("client", 11)), "data", "was in read");
        let server = |cause, text| stop(Some(("server", 12)), cause, text);
        let disk = || {
            stop(
                Some(("writer", 13)),
                "disk",
                "disk vda, behind requests of writer",
            )
        };
        let step = |at_ns, ns, chain: Vec<Stop>| Step { at_ns, ns, chain };
        let steps = [
            step(
                1_000,
                100,
                vec![stop(Some(("client", 11)), "running", "client ran")],
            ),
            step(
                1_100,
                600,
                vec![client(), server("io", "server was in fsync"), disk()],
            ),
            step(1_700, 100, vec![client(), server("running", "server ran")]),
            step(
                1_800,
                200,
                vec![stop(Some(("client", 11)), "running", "client ran")],
            ),
        ];
        let figure = figure("a <request>", "about", &steps).unwrap();
        for name in ["client 11", "server 12", "disk vda"] {
            assert!(
                figure.contains(&format!("px\">{name}</span>")),
                "{name}: {figure}"
            );
        }
        assert!(figure.contains("a &lt;request&gt;"));
        let arrows: Vec<&str> = (figure.split("<svg class=\"arrow\" x=\"").skip(1))
            .map(|arrow| arrow.split('%').next().unwrap())
            .collect();
        assert_eq!(arrows, ["70.000", "80.000"], "{figure}");
        // The client's wait is one bar over two steps.
        assert!(
            figure.contains("--l:10.000%;--w:70.000%;--t:16px"),
            "{figure}"
        );
    }

    #[test]
    fn nothing_has_no_picture() {
        assert!(figure("a", "b", &[]).is_none());
    }
}
