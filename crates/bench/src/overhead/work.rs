//! `overhead --work`: what a longer round trip does to the switches of a client that blocks, with nobody recording.
//!
//! Recording makes a round trip longer. Here the server's work does, and nothing else is different.

use std::fmt::Write as _;

use stopgap_cli::{Failure, progress_bar};
use stopgap_events::units::Nanos;
use stopgap_kernel::signals;
use stopgap_probes::roundtrip::{Cell, ClientWait};
use stopgap_report::text::thousands;
use stopgap_stats::quantile::median;

use super::recording::{Recorder, Run};

/// What the server computes for each request. The last is longer than recording takes.
const WORK: [Nanos; 7] = [
    Nanos(0),
    Nanos(500),
    Nanos(1_000),
    Nanos(2_000),
    Nanos(3_000),
    Nanos(8_000),
    Nanos(50_000),
];

fn cell(work: Nanos) -> Cell {
    Cell {
        client: ClientWait::Read,
        work,
        ..Cell::PLAIN
    }
}

/// As many repetitions, each with a run of each work, in rotating order.
pub(super) fn run(recorder: &Recorder<'_>, repetitions: u32) -> Result<String, Failure> {
    let mut runs: [Vec<Run>; WORK.len()] = Default::default();
    let bar = progress_bar();
    for done in 0..repetitions {
        bar.set_position(u64::from(done) * 1_000 / u64::from(repetitions));
        for step in 0..WORK.len() {
            let at = (done as usize + step) % WORK.len();
            if signals::interrupted() {
                break;
            }
            match recorder.run(&cell(WORK[at]), None) {
                Ok(run) => runs[at].push(run),
                Err(_) if signals::interrupted() => break, // Ctrl-C ends the pair too
                Err(failure) => return Err(failure),
            }
        }
    }
    bar.finish_and_clear();
    Ok(text(recorder.round_trips(), &runs))
}

fn text(round_trips: u64, runs: &[Vec<Run>]) -> String {
    let mut text = format!(
        "{}: {} round trips a run, not recorded, medians\n{:<12}{:>6}{:>14}{:>14}{:>20}\n",
        cell(Nanos(0)),
        thousands(round_trips),
        "work",
        "runs",
        "CPU us/rt",
        "switches/rt",
        "least..most",
    );
    for (work, runs) in WORK.iter().zip(runs).filter(|(_, runs)| !runs.is_empty()) {
        let of = |figure: &dyn Fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
        let switches = of(&Run::switches);
        let least = switches.iter().copied().fold(f64::INFINITY, f64::min);
        let most = switches.iter().copied().fold(0.0, f64::max);
        let work = match work.0 {
            0 => "none".to_owned(),
            _ => work.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{work:<12}{:>6}{:>14.1}{:>14.2}{:>20}",
            runs.len(),
            median(of(&Run::cpu)).unwrap_or(f64::NAN) / 1e3,
            median(switches).unwrap_or(f64::NAN),
            format!("{least:.2}..{most:.2}"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::tasks::Switches;
    use stopgap_probes::roundtrip::Cost;

    #[test]
    fn a_row_is_the_median_of_its_runs() {
        let run = |us: u64, voluntary: u64| Run {
            cost: Cost {
                round_trips: 1_000,
                elapsed: Nanos(us),
                cpu: Nanos(us * 1_000_000),
                switches: Switches {
                    voluntary,
                    involuntary: 0,
                },
            },
            recorder: Nanos(0),
            lost: 0,
            bytes: 0,
        };
        let mut runs: [Vec<Run>; WORK.len()] = Default::default();
        runs[0] = vec![run(9, 2_000), run(10, 2_500), run(30, 3_900)];
        let text = text(1_000, &runs);
        let row: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row, ["none", "3", "10.0", "2.50", "2.00..3.90"]);
        assert_eq!(text.lines().count(), 3, "no row without runs: {text}");
    }
}
