//! Answers from the runs, without a system.

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::roundtrip::{ClientPolicy, Cpus};
use stopgap_stats::record::{Answer, Figure, Series, parameters};
use stopgap_stats::verdict::{Verdict, Word, runs_text};

use super::{CELLS, CLIENT, Cell, PER_FLUSH, SERVER, SWITCHES, WINDOWS, X11};
use crate::contract::{Judgement, Measured, list};
use crate::roundtrip::judge::Counts;
use crate::roundtrip::judge::find;

/// Runs of which a p90 is given: one of ten is above it.
const FOR_P90: usize = 10;
/// A cell and what its runs took.
struct Spread {
    cell: Cell,
    /// Switch-outs a flush of each run, ascending.
    runs: Vec<f64>,
    /// Their median, over runs, and who switched.
    middle: Counts,
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
    let parameters = parameters([
        ("x11", "Xvfb, xwininfo -root -tree".into()),
        ("windows", WINDOWS.into()),
        ("cpu-list", list(&probe.cpus, ",").into()),
        ("runs", probe.runs.into()),
        ("seed", seed.into()),
    ]);
    let judgement = Judgement {
        verdict,
        figure,
        evidence: spreads.iter().map(Spread::sentence).collect(),
        advice: advice(&spreads),
    };
    measured.into_answer(Question::Roundtrip, parameters, privilege, judgement)
}

/// `None` with too few runs for an interval.
fn spread(cell: Cell, measured: &Measured, seed: u64) -> Option<Spread> {
    let parameters = cell.parameters();
    let values = |name: &str| {
        let series = find(&measured.series, name, &parameters);
        series.map(Series::values).unwrap_or_default()
    };
    let mut runs = values(SWITCHES);
    runs.sort_by(f64::total_cmp);
    let shares = [CLIENT[0], CLIENT[1], SERVER[0], SERVER[1]].map(values);
    let middle = Counts::new(&runs, shares, seed)?;
    Some(Spread { cell, runs, middle })
}

impl Spread {
    /// `one CPU: 9.8 (9.1..10.4) switches/flush, p90 12.6, 2.0 to 26.3 in 30 runs`.
    fn sentence(&self) -> String {
        let middle = self.middle.text(PER_FLUSH);
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

    /// Returns which switches are too many, and in which process.
    fn what(&self) -> String {
        let most = self.middle.largest([
            "the client blocks more than once a flush",
            "the client is pre-empted",
            "the server blocks more than once a flush",
            "the server is pre-empted while it answers",
        ]);
        let (cell, by_side) = (self.cell, self.middle.by_side());
        format!("Xvfb and xwininfo, {cell}: {most} ({by_side})")
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
    .filter(|(_, other)| mine.middle.is_beaten_by(&other.middle))
    .collect()
}

fn verdict(spreads: &[Spread], measured: &Measured) -> (Verdict, Option<Figure>) {
    let usual = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other);
    let most = usual.max_by(|a, b| a.middle.all.value.total_cmp(&b.middle.all.value));
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
    let text = if most.middle.exceeds() {
        let excess = most.middle.times();
        let remedy = remedies(most, spreads).into_iter().next();
        let remedy = remedy.map_or_else(String::new, |(what, other)| {
            let removed = other.middle.is_clean();
            let verb = if removed { "removes" } else { "lowers" };
            format!("; {what} {verb} it ({:.2})", other.middle.all.value)
        });
        let text = format!("excess {excess}: {}{remedy}", most.what());
        Verdict::new(Word::Excess, text)
    } else if !most.middle.is_clean() {
        Verdict::inconclusive(&format!("{}; more runs decide", most.sentence()))
    } else {
        Verdict::new(Word::Clean, format!("clean {}", most.sentence()))
    };
    (text, Some(most.middle.figure()))
}

fn advice(spreads: &[Spread]) -> Vec<String> {
    let exceeding = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other && s.middle.exceeds());
    exceeding
        .flat_map(|mine| {
            remedies(mine, spreads)
                .into_iter()
                .map(move |one| (mine, one))
        })
        .map(|(mine, (what, other))| {
            let (before, after) = (mine.middle.all.value, other.middle.all.value);
            format!(
                "{what}: {before:.2} -> {after:.2} switches/flush ({})",
                mine.cell
            )
        })
        .collect()
}
