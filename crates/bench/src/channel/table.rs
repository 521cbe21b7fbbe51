//! What the runs come to, as lines.

use std::fmt::Write as _;

use stopgap_events::units::Nanos;
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::quantile::median;

use super::death::Death;
use stopgap_cli::fixes::channel::{Cell, Run, Side};

use super::sides;

/// For intervals: the same runs give the same ones for ever.
const SEED: u64 = 1;

/// A cell and its repetitions: a run of each of its sides.
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) repetitions: Vec<Vec<Run>>,
}

fn ns(value: u64) -> f64 {
    value as f64
}

impl Row {
    pub(super) fn new(cell: Cell) -> Row {
        Row {
            cell,
            repetitions: Vec::new(),
        }
    }

    fn all(&self, side: usize) -> impl Iterator<Item = &Run> {
        self.repetitions.iter().map(move |runs| &runs[side])
    }

    fn median(&self, side: usize, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.all(side).filter_map(of).collect())
    }

    /// Median of switches a round trip.
    pub(super) fn switches(&self, side: usize) -> Option<f64> {
        self.median(side, |run| Some(run.per_round_trip(run.switches)))
    }

    /// Wake-ups of the client by the server, a round trip: median, most.
    pub(super) fn wakes(&self) -> Option<[f64; 2]> {
        let wakes = |run: &Run| run.wakes.map(|[wakes, _]| run.per_round_trip(wakes));
        let most = self.all(0).filter_map(wakes).reduce(f64::max)?;
        Some([self.median(0, wakes)?, most])
    }

    /// The channel's median latency over that of another side, of runs beside each other, with its 95 % interval.
    pub(super) fn ratio(&self, side: usize) -> Option<(f64, Option<[f64; 2]>)> {
        let ratios: Vec<f64> = self
            .repetitions
            .iter()
            .filter_map(|runs| Some(ns(runs[0].p50_ns?) / ns(runs[side].p50_ns?)))
            .collect();
        // As a logarithm, whose range has no end.
        let interval = over_runs(&ratios, SEED, |drawn| {
            median(drawn.iter().map(|ratio| ratio.ln()).collect())
        });
        let interval = interval.map(|i| [i.low, i.high].map(f64::exp));
        Some((median(ratios)?, interval))
    }

    fn text(&self, text: &mut String) {
        let Cell { cpus, work, batch } = self.cell;
        let us = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{:.2}", v / 1e3));
        let plain = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        for (at, side) in sides(&self.cell).iter().enumerate() {
            let ratio = match (at, self.ratio(at)) {
                (0, _) | (_, None) => String::new(),
                (_, Some((value, None))) => format!("{value:.3}x"),
                (_, Some((value, Some([low, high])))) => {
                    format!("{value:.3}x ({low:.3}..{high:.3})")
                }
            };
            let worst = self.all(at).map(|run| run.max_ns).max();
            let wakes = |which: usize| {
                self.median(at, |run| {
                    run.wakes.map(|wakes| run.per_round_trip(wakes[which]))
                })
            };
            let _ = writeln!(
                text,
                "{:<5}{:>6}{:>4}  {:<13}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}  {}",
                cpus.to_string(),
                work.to_string(),
                batch,
                side.to_string(),
                plain(self.switches(at)),
                us(self.median(at, |run| run.p50_ns.map(ns))),
                us(self.median(at, |run| run.p99_ns.map(ns))),
                us(worst.map(ns)),
                us(self.median(at, |run| Some(run.per_round_trip(run.cpu_ns)))),
                plain(wakes(0)),
                plain(wakes(1)),
                ratio,
            );
        }
    }
}

/// A line for each side of each cell.
pub(super) fn text(rows: &[Row]) -> String {
    let runs = rows.iter().map(|row| row.repetitions.len()).min();
    let mut text = format!(
        "medians of {} runs a side, interleaved; times in us of a round trip; max of all; channel of: its p50 over that \
         of the side, of runs beside each other (95 % interval over runs)\n\
         {:<5}{:>6}{:>4}  {:<13}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}  channel of\n",
        runs.unwrap_or(0),
        "CPUs",
        "work",
        "k",
        "",
        "sw/rt",
        "p50",
        "p99",
        "max",
        "CPU",
        "wakes c",
        "wakes s",
    );
    for row in rows {
        row.text(&mut text);
    }
    text.push_str(
        "k: requests, and replies, of a round trip. sw/rt: switch-outs of both processes. wakes c, s: system calls that \
         woke the client, the server.\n",
    );
    text
}

/// A line for each way to die.
pub(super) fn deaths(deaths: &[Death]) -> String {
    let mut text = String::new();
    for death in deaths {
        let seen = death.seen.iter().map(|seen| ns(seen.0)).collect();
        let most = death.seen.iter().copied().max().unwrap_or(Nanos(0));
        let _ = writeln!(
            text,
            "server killed {} into the client's wait, idle {}: known after {} (median), {} (max of {})",
            death.waited,
            death.idle,
            median(seen).map_or("-".to_owned(), |v| format!("{:.2} ms", v / 1e6)),
            format_args!("{:.2} ms", ns(most.0) / 1e6),
            death.seen.len(),
        );
    }
    text
}

/// The number of the socket's side.
pub(super) fn socket(cell: &Cell) -> usize {
    let sides = sides(cell).iter();
    sides.take_while(|&&side| side != Side::Socket).count()
}
