//! The answer, from the runs alone.

use std::collections::BTreeMap;

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::roundtrip::{ClientPolicy, Cpus};
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Figure, Parameter};
use stopgap_stats::verdict::{Verdict, Word, format_interval, runs_text};

use super::{CELLS, CLIENT, Cell, PER_FLUSH, SERVER, SWITCHES, WINDOWS, X11};
use crate::contract::Measured;
use crate::roundtrip::run::find;
use crate::roundtrip::{EXCESS, LEAST};

/// Runs of which a p90 is given: one of ten is above it.
const FOR_P90: usize = 10;
/// A change is named where it leaves less than this share of the switches.
const WORTHWHILE: f64 = 0.9;

/// A cell and what its runs took.
struct Spread {
    cell: Cell,
    /// Switch-outs a flush of each run, ascending.
    runs: Vec<f64>,
    /// Their median, over runs.
    middle: Interval,
    /// Medians of client blocked, client pre-empted, server blocked, server pre-empted.
    shares: [f64; 4],
}

pub(super) fn judge(probe: &X11, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
    let spreads: Vec<Spread> = CELLS
        .iter()
        .filter_map(|&cell| spread(cell, &measured, seed))
        .collect();
    let (verdict, figure) = match measured.without_figures() {
        Some(nothing) => (nothing, None),
        None => verdict(&spreads, &measured),
    };
    let cpus: Vec<String> = probe.cpus.iter().map(ToString::to_string).collect();
    let parameters: BTreeMap<String, Parameter> = [
        ("x11", Parameter::from("Xvfb, xwininfo -root -tree")),
        ("windows", WINDOWS.into()),
        ("cpu-list", cpus.join(",").into()),
        ("runs", probe.runs.into()),
        ("seed", seed.into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Answer {
        question: Question::Roundtrip,
        parameters,
        verdict,
        figure,
        evidence: spreads.iter().map(Spread::sentence).collect(),
        advice: advice(&spreads),
        privilege,
        series: measured.series,
        counters: measured.counters,
        losses: measured.losses,
        missing: measured.missing,
        fixes: Vec::new(),
    }
}

/// `None` with too few runs for an interval.
fn spread(cell: Cell, measured: &Measured, seed: u64) -> Option<Spread> {
    let parameters = cell.parameters();
    let values = |name: &str| -> Vec<f64> {
        let series = find(&measured.series, name, &parameters);
        series.map_or_else(Vec::new, |series| {
            series.blocks.iter().map(|block| block.value).collect()
        })
    };
    let mut runs = values(SWITCHES);
    runs.sort_by(f64::total_cmp);
    let middle = over_runs(&runs, seed, |runs| {
        median(runs.iter().copied().copied().collect())
    })?;
    let [a, b] = CLIENT;
    let [c, d] = SERVER;
    Some(Spread {
        cell,
        runs,
        middle: Interval {
            low: middle.low.max(0.0), // a count
            ..middle
        },
        shares: [a, b, c, d].map(|name| median(values(name)).unwrap_or(f64::NAN)),
    })
}

impl Spread {
    fn exceeds(&self) -> bool {
        self.middle.low > EXCESS
    }

    fn figure(&self) -> Figure {
        let [value, low, high] = self.excess();
        Figure {
            value,
            unit: "x".to_owned(),
            low: Some(low),
            high: Some(high),
        }
    }

    /// How many times the least: value, low, high.
    fn excess(&self) -> [f64; 3] {
        [self.middle.value, self.middle.low, self.middle.high].map(|n| n / LEAST)
    }

    /// `one CPU: 9.8 (9.1..10.4) switches/flush, p90 12.6, 2.0 to 26.3 in 30 runs`.
    fn sentence(&self) -> String {
        let Interval { value, low, high } = self.middle;
        let middle = format_interval(value, low, high, PER_FLUSH);
        let p90 = match self.p90() {
            Some(p90) => format!("p90 {p90:.2}"),
            None => format!("p90 takes {FOR_P90} runs"),
        };
        let [first, .., last] = self.runs[..] else {
            return format!("{}: {middle}", self.cell);
        };
        let n = self.runs.len();
        format!(
            "{}: {middle}, {p90}, {first:.2} to {last:.2} in {n} runs",
            self.cell
        )
    }

    /// 90 % of the runs took no more.
    fn p90(&self) -> Option<f64> {
        let count = self.runs.len();
        (count >= FOR_P90).then(|| self.runs[(count * 9).div_ceil(10) - 1])
    }

    /// What is too much, and in whom.
    fn what(&self) -> String {
        let [
            client_blocked,
            client_preempted,
            server_blocked,
            server_preempted,
        ] = self.shares;
        let excess = [
            (
                client_blocked - 1.0,
                "the client blocks more than once a flush",
            ),
            (client_preempted, "the client is pre-empted"),
            (
                server_blocked - 1.0,
                "the server blocks more than once a flush",
            ),
            (
                server_preempted,
                "the server is pre-empted while it answers",
            ),
        ];
        let most = excess.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        format!(
            "Xvfb and xwininfo, {}: {} (client {:.1}, server {:.1})",
            self.cell,
            most.map_or("", |(_, what)| what),
            client_blocked + client_preempted,
            server_blocked + server_preempted
        )
    }

    /// Whether `other` takes clearly less.
    fn is_beaten_by(&self, other: &Spread) -> bool {
        other.middle.high < self.middle.low * WORTHWHILE
    }
}

/// What takes clearly less than `mine`: the client under `SCHED_BATCH` at the same place, then a CPU for each.
fn remedies<'s>(mine: &Spread, all: &'s [Spread]) -> Vec<(&'static str, &'s Spread)> {
    let same_place = |other: &&Spread| {
        other.cell.cpus == mine.cell.cpus && other.cell.policy == ClientPolicy::Batch
    };
    let batch = all.iter().find(same_place);
    let two = all.iter().find(|other| other.cell.cpus == Cpus::Two);
    [
        ("SCHED_BATCH for the client", batch),
        ("a CPU for each", two),
    ]
    .into_iter()
    .filter_map(|(what, other)| Some((what, other?)))
    .filter(|(_, other)| mine.is_beaten_by(other))
    .collect()
}

fn verdict(spreads: &[Spread], measured: &Measured) -> (Verdict, Option<Figure>) {
    let usual = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other);
    let most = usual.max_by(|a, b| a.middle.value.total_cmp(&b.middle.value));
    let Some(most) = most else {
        let runs = measured
            .series
            .iter()
            .map(|series| series.blocks.len())
            .max();
        let why = format!(
            "{} with a count of flushes; an interval takes 3",
            runs_text(runs.unwrap_or(0))
        );
        return (Verdict::inconclusive(&why), None);
    };
    let text = if most.exceeds() {
        let [value, low, high] = most.excess();
        let excess = format_interval(value, low, high, "x");
        let remedy = remedies(most, spreads).into_iter().next();
        let remedy = remedy.map_or_else(String::new, |(what, other)| {
            let removed = other.middle.high <= EXCESS;
            let verb = if removed { "removes" } else { "lowers" };
            format!("; {what} {verb} it ({:.2})", other.middle.value)
        });
        let text = format!("excess {excess}: {}{remedy}", most.what());
        Verdict::new(Word::Excess, text)
    } else if most.middle.high > EXCESS {
        Verdict::inconclusive(&format!("{}; more runs decide", most.sentence()))
    } else {
        Verdict::new(Word::Clean, format!("clean {}", most.sentence()))
    };
    (text, Some(most.figure()))
}

fn advice(spreads: &[Spread]) -> Vec<String> {
    let exceeding = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other && s.exceeds());
    exceeding
        .flat_map(|mine| {
            remedies(mine, spreads)
                .into_iter()
                .map(move |one| (mine, one))
        })
        .map(|(mine, (what, other))| {
            let (before, after) = (mine.middle.value, other.middle.value);
            format!(
                "{what}: {before:.2} -> {after:.2} switches/flush ({})",
                mine.cell
            )
        })
        .collect()
}
