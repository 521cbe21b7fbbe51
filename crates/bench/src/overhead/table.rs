//! What the runs of one cell come to, and the bounds that they are held to.

use std::fmt::Write as _;

use stopgap_events::units::Bytes;
use stopgap_probes::roundtrip::Cell;
use stopgap_report::text::thousands;
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;

use super::recording::Run;
use super::{MODES, Repetition};

/// CPU time of a recorded run over that of the run beside it, at most.
const MOST: [f64; MODES.len()] = [1.0, 1.35, 1.6];
/// By how much of itself the number of switches may differ.
const SWITCHES: f64 = 0.03;
/// For intervals: the same runs give the same ones for ever.
const SEED: u64 = 1;

/// A cell and its repetitions, of which there is one at least.
pub(super) struct Table {
    cell: String,
    repetitions: Vec<Repetition>,
}

/// The names of [`MODES`].
fn name(mode: usize) -> String {
    MODES[mode].map_or("not recorded".to_owned(), |events| events.to_string())
}

impl Table {
    pub(super) fn new(cell: &Cell, repetitions: Vec<Repetition>) -> Table {
        Table {
            cell: cell.to_string(),
            repetitions,
        }
    }

    /// The median of a figure of that mode.
    pub(super) fn median(&self, mode: usize, of: impl Fn(&Run) -> f64) -> f64 {
        let figures = self.repetitions.iter().map(|runs| of(&runs[mode]));
        median(figures.collect()).unwrap_or(f64::NAN)
    }

    /// The median over pairs of the recorded run's figure over that of the run that was not.
    fn ratio(&self, mode: usize, of: impl Fn(&Run) -> f64) -> (f64, Option<Interval>) {
        let ratios: Vec<f64> = self
            .repetitions
            .iter()
            .map(|runs| of(&runs[mode]) / of(&runs[0]))
            .collect();
        let interval = over_runs(&ratios, SEED, |drawn| {
            median(drawn.iter().map(|&&ratio| ratio).collect())
        });
        (median(ratios).unwrap_or(f64::NAN), interval)
    }

    fn lost(&self, mode: usize) -> u64 {
        self.repetitions.iter().map(|runs| runs[mode].lost).sum()
    }

    /// A line for each mode.
    pub(super) fn text(&self) -> String {
        let round_trips = self.repetitions[0][0].cost.round_trips;
        let mut text = format!(
            "{}: {} round trips a run, medians of {} pairs (95 % interval over pairs)\n\
             {:<22}{:>14}{:>24}{:>14}{:>12}{:>16}{:>12}{:>8}\n",
            self.cell,
            thousands(round_trips),
            self.repetitions.len(),
            "",
            "CPU ns/rt",
            "CPU, of not recorded",
            "switches/rt",
            "of that",
            "recorder ns/rt",
            "bytes/rt",
            "lost",
        );
        for mode in 0..MODES.len() {
            let (cpu, interval) = self.ratio(mode, Run::cpu);
            let interval = interval.map_or(String::new(), |interval| {
                format!(" ({:.2}..{:.2})", interval.low, interval.high)
            });
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<22}{:>14.0}{:>24}{:>14.3}{:>12}{:>16.0}{:>12.0}{:>8}",
                name(mode),
                self.median(mode, Run::cpu),
                if mode == 0 {
                    "-".to_owned()
                } else {
                    format!("{cpu:.2}x{interval}")
                },
                self.median(mode, Run::switches),
                if mode == 0 {
                    "-".to_owned()
                } else {
                    let (switches, _) = self.ratio(mode, Run::switches);
                    format!("{:+.1} %", (switches - 1.0) * 100.0)
                },
                self.median(mode, Run::recorder),
                self.median(mode, Run::bytes),
                self.lost(mode),
            );
        }
        let most = self.repetitions.iter().flatten().map(|run| run.bytes).max();
        let _ = writeln!(text, "at most {} of pages a run", Bytes(most.unwrap_or(0)));
        text
    }

    /// The bounds that are broken, in words.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (mode, most) in MOST.iter().enumerate().skip(1) {
            let name = name(mode);
            let (cpu, _) = self.ratio(mode, Run::cpu);
            if cpu.is_nan() || cpu > *most {
                broken.push(format!(
                    "{name}: {cpu:.2}x the CPU time, at most {most} allowed"
                ));
            }
            let (switches, _) = self.ratio(mode, Run::switches);
            if switches.is_nan() || (switches - 1.0).abs() > SWITCHES {
                broken.push(format!(
                    "{name}: {switches:.3} of the switches, {SWITCHES} more or less allowed"
                ));
            }
            let lost = self.lost(mode);
            if lost > 0 {
                broken.push(format!("{name}: {lost} events lost"));
            }
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::units::Nanos;
    use stopgap_kernel::tasks::Switches;
    use stopgap_probes::roundtrip::Cost;

    fn run(ns: u64, switches: u64, lost: u64) -> Run {
        Run {
            cost: Cost {
                round_trips: 1_000,
                elapsed: Nanos(ns),
                cpu: Nanos(ns * 1_000),
                switches: Switches {
                    voluntary: switches,
                    involuntary: 0,
                },
            },
            recorder: Nanos(5_000),
            lost,
            bytes: 860_000,
        }
    }

    fn table(all: Run) -> Table {
        let quiet = [run(100, 2_000, 0), run(120, 2_010, 0), all];
        // A neighbour slows a whole repetition, not one of its runs.
        let loud = [
            run(1_000, 2_000, 0),
            run(1_200, 2_010, 0),
            Run {
                cost: Cost {
                    cpu: Nanos(all.cost.cpu.0 * 10),
                    ..all.cost
                },
                ..all
            },
        ];
        Table::new(&Cell::PLAIN, vec![quiet, loud, quiet])
    }

    #[test]
    fn pairs_are_held_against_each_other() {
        let good = table(run(150, 2_020, 0));
        assert_eq!(good.broken(), Vec::<String>::new());
        let text = good.text();
        assert!(
            text.contains("1.50x (1.50..1.50)") && text.contains("+1.0 %"),
            "{text}"
        );
        assert!(text.contains("1.20x (1.20..1.20)"), "{text}");
    }

    #[test]
    fn each_bound_can_break() {
        for (all, what) in [
            (run(161, 2_000, 0), "1.61x"),
            (run(100, 2_100, 0), "1.050 of the switches"),
            (run(100, 1_900, 0), "0.950 of the switches"),
            (run(100, 2_000, 1), "3 events lost"),
        ] {
            let broken = table(all).broken();
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(
                broken[0].starts_with("all: ") && broken[0].contains(what),
                "{broken:?}"
            );
        }
    }
}
