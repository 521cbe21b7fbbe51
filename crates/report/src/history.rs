//! What a history says, for a terminal: the verdict, a line of bars for each cause, and who waited.

use stopgap_events::units::Nanos;
use stopgap_stats::history::{Bin, History, IDLE, OfCause, name_of, time};

use crate::table::{Screen, Style, Table, join, known};
use crate::terminal::BARS;
use crate::text::{count, thousands};

/// Kinds that are shown.
const KINDS: usize = 12;
/// Gaps and files that are named.
const NAMED: usize = 3;

/// Returns the screen; `clock` says a number of seconds since 1970 as the reader's clock does.
#[must_use]
pub fn screen(history: &History, clock: &dyn Fn(u64) -> String, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.say_bold(&history.verdict);
    if !history.causes.is_empty() {
        let hosts = match history.hosts.is_empty() {
            true => String::new(),
            false => format!(", of {}", join(&history.hosts, " and ")),
        };
        screen.say(format!(
            "from {} to {}, {} watched{hosts}, {}",
            clock(history.from_unix_s),
            clock(history.to_unix_s),
            time(history.watched_ns),
            count(usize::try_from(history.boots).unwrap_or(0), "boot"),
        ));
        screen.add("\n");
        picture(history, &mut screen, clock);
        screen.add("\n");
        screen.table_of_some(&kinds(history, KINDS));
    }
    for doubt in doubts(history, clock) {
        screen.say(format!("unknown: {doubt}"));
    }
    screen.finish()
}

/// Adds a line of bars for each cause: how much of it in which part of the time. All lines have one scale.
fn picture(history: &History, screen: &mut Screen, clock: &dyn Fn(u64) -> String) {
    // Time that was lost for each second of watching.
    let rate = |bin: &Bin, cause: &str| {
        let lost = bin.lost_ns.get(cause).copied().unwrap_or(0);
        lost as f64 / bin.watched_ns.max(1) as f64
    };
    let rates = lost(history).flat_map(|of| history.bins.iter().map(|bin| rate(bin, &of.cause)));
    let most = rates.fold(0.0, f64::max);
    let bars = |cause: &str| {
        let bars = history.bins.iter().map(|bin| match bin.watched_ns {
            0 => '.',
            _ => bar(rate(bin, cause), most),
        });
        bars.collect()
    };
    screen.table_of_some(&causes(history, Some(&bars)));
    if let Some(bin) = history.bins.first() {
        screen.say(format!(
            "each bar is {} from {} on, the highest {:.2} s lost per second by all threads together; '.' nobody watched",
            time(bin.length_ns),
            clock(bin.unix_s),
            most
        ));
    }
    if let Some(idle) = history.causes.iter().find(|of| of.cause == IDLE) {
        screen.say(format!(
            "not lost: {} waits for work, for time or for a child, {} together",
            thousands(idle.sum.waits),
            time(idle.sum.ns)
        ));
    }
}

/// Causes that cost time.
fn lost(history: &History) -> impl Iterator<Item = &OfCause> {
    history.causes.iter().filter(|of| of.cause != IDLE)
}

/// Returns a row for each cause; `when` draws when it was.
pub(crate) fn causes(history: &History, when: Option<&dyn Fn(&str) -> String>) -> Table {
    let mut table = Table::new(match when {
        Some(_) => "lost to | when | >together | >% | >waits | >half are | >1 of 100 is | >longest",
        None => "lost to | >together | >% | >waits | >half are | >1 of 100 is | >longest",
    });
    for of in lost(history) {
        let share = of.sum.ns as f64 / history.lost_ns.max(1) as f64 * 100.0;
        let at = |q| known(of.sum.at(q).map(|ns| format!(">= {}", Nanos(ns))));
        let mut row = vec![of.cause.clone()];
        row.extend(when.map(|when| when(&of.cause)));
        row.extend([
            time(of.sum.ns),
            format!("{share:.0}"),
            thousands(of.sum.waits),
            at(0.5),
            at(0.99),
            Nanos(of.sum.longest_ns).to_string(),
        ]);
        table.rows.push(row);
    }
    table
}

/// A bar for a value; one that is more than nothing is seen.
fn bar(value: f64, most: f64) -> char {
    if value <= 0.0 || most <= 0.0 {
        return BARS[0];
    }
    let height = (value / most * (BARS.len() - 1) as f64).round() as usize;
    BARS[height.clamp(1, BARS.len() - 1)]
}

/// Returns the kinds that took most, `most` of them.
pub(crate) fn kinds(history: &History, most: usize) -> Table {
    let mut table =
        Table::new("who | cause | >together | >% | >waits | >half are | >longest | cgroup");
    let lost = history.kinds.iter().filter(|of| of.cause != IDLE);
    for of in lost.take(most) {
        let share = of.sum.ns as f64 / history.lost_ns.max(1) as f64 * 100.0;
        table.row(&[
            &name_of(of),
            &of.cause,
            &time(of.sum.ns),
            &format!("{share:.0}"),
            &thousands(of.sum.waits),
            &known(of.sum.at(0.5).map(|ns| format!(">= {}", Nanos(ns)))),
            &Nanos(of.sum.longest_ns),
            &known(of.cgroup.as_ref()),
        ]);
    }
    table
}

/// Returns what is not known.
pub(crate) fn doubts(history: &History, clock: &dyn Fn(u64) -> String) -> Vec<String> {
    let mut doubts = Vec::new();
    if history.from_unix_s > history.asked_from_unix_s + 60 && !history.causes.is_empty() {
        let from = clock(history.from_unix_s);
        doubts.push(format!("before {from}: the history begins there"));
    }
    doubts.extend(history.gaps.iter().take(NAMED).map(|gap| {
        let [from, to] = [gap.from_unix_s, gap.to_unix_s].map(clock);
        format!("from {from} to {to} nobody watched")
    }));
    if history.gaps.len() > NAMED {
        let more = history.gaps.len() - NAMED;
        doubts.push(format!("nobody watched {more} times more"));
    }
    if history.rows_of_the_future > 0 {
        let rows = usize::try_from(history.rows_of_the_future).unwrap_or(0);
        doubts.push(format!(
            "when {} were: they lie after now, the clock was set back",
            count(rows, "row")
        ));
    }
    let unread = history.unread.iter().take(NAMED);
    doubts.extend(unread.map(|unread| format!("what {} has: {}", unread.file, unread.why)));
    if history.unread.len() > NAMED {
        let more = history.unread.len() - NAMED;
        doubts.push(format!("what {} more have", count(more, "file")));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use stopgap_stats::history::{Adder, Key, Sum, Unread};

    #[test]
    fn the_screen_says_what_took_most_and_when() {
        const S: u64 = 1_000_000_000;
        let mut adder = Adder::new(0, 480 * S);
        for minute in 0..8 {
            let key = |cause: &str, process: &str| Key {
                cause: cause.to_owned(),
                process: Some(process.to_owned()),
                cgroup: None,
                call: Some("fdatasync".to_owned()),
            };
            let sum = Sum {
                waits: 1,
                ns: minute * S,
                longest_ns: minute * S,
                buckets: [(minute * S, 1)].into(),
            };
            let at = (60 * minute * S, 60 * (minute + 1) * S);
            adder.add(at, Some("b"), key("io", "postgres"), &sum);
            adder.add(at, Some("b"), key("idle", "sleep"), &sum);
        }
        let unread = Unread {
            file: "day-20261120.parquet".to_owned(),
            why: "it is cut off".to_owned(),
        };
        let history = adder.finish(BTreeSet::new(), vec![unread]);
        let style = Style {
            width: 160,
            colour: false,
            verbose: false,
        };
        let shown = screen(&history, &|s| format!("{s} s"), style);
        let first = shown.lines().next().unwrap();
        assert_eq!(
            first,
            "threads lost most time waiting for the disk: 100 % of the 28.0 s that all lost in 8 min of watching, most of it postgres in fdatasync: 28.0 s"
        );
        assert!(shown.contains("██████"), "{shown}");
        assert!(shown.contains("postgres in fdatasync"), "{shown}");
        assert!(shown.contains("not lost: 8 waits"), "{shown}");
        assert!(
            shown.contains("unknown: what day-20261120.parquet has: it is cut off"),
            "{shown}"
        );
    }
}
