//! `stopgap-bench simulate`: what the tests of `stopgap compare` are worth, beside those that others use.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_report::text::thousands;
use stopgap_stats::compare::simulate::{CHANGED, Counts, Outcome, Plan, simulate};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Simulations of each size.
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..))]
    simulations: u32,
    /// Runs a side, 5 to 1,000, as 10,30.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10,30", value_parser = clap::value_parser!(u16).range(5..=1_000))]
    runs: Vec<u16>,
    /// Seed of the first simulation; each has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// How long to be silent where standard error is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Simulates every size, and prints a table of each.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    for &runs in &flags.runs {
        let plan = Plan::new(flags.simulations, usize::from(runs), flags.seed);
        let bar = progress_bar();
        let mut said = Instant::now();
        let outcome = simulate(&plan, |done| {
            bar.set_position(u64::from(done) * 1_000 / u64::from(plan.simulations));
            bar.set_message(format!("{runs} runs a side, {done} simulations"));
            if bar.is_hidden() && said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                tell(&format!("{runs} runs a side: {done} simulations"));
            }
            !signals::interrupted()
        });
        bar.finish_and_clear();
        if outcome.simulations == 0 {
            return Err(Failure::error("interrupted before anything was simulated"));
        }
        print(&table(&outcome))?;
        if signals::interrupted() {
            tell("interrupted: fewer simulations");
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One size, in per cent.
fn table(outcome: &Outcome) -> String {
    let plan = &outcome.plan;
    let mut text = format!(
        "{} runs x 2,000 samples a side, {} simulations, seed {}, {} arrangements, {} draws an interval\n",
        plan.runs,
        thousands(u64::from(outcome.simulations)),
        plan.seed,
        thousands(u64::from(plan.permutations)),
        thousands(u64::from(plan.resamples)),
    );
    for (heading, rows) in [
        ("rejected at 5 %: others", &outcome.peers),
        (
            "rejected at 5 %: ours, each endpoint by itself",
            &outcome.endpoints,
        ),
        ("all endpoints together, adjusted by Holm", &outcome.gate),
        ("95 % intervals that hold the truth", &outcome.intervals),
    ] {
        let _ = write!(text, "\n{heading:<48}");
        for changed in CHANGED {
            let _ = write!(text, "{changed:>24}");
        }
        text.push('\n');
        for row in rows {
            text.push_str(&line(row, outcome.simulations));
        }
    }
    text
}

fn line(row: &Counts, of: u32) -> String {
    let mut text = format!("  {:<46}", row.name);
    for count in row.counts {
        let share = count.map_or(String::new(), |count| {
            format!("{:.1}", 100.0 * f64::from(count) / f64::from(of))
        });
        let _ = write!(text, "{share:>24}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let outcome = simulate(&Plan::new(2, 5, 1), |_| true);
        let text = table(&outcome);
        assert!(text.starts_with("5 runs x 2,000 samples a side, 2 simulations, seed 1, "));
        assert!(text.contains("\n  Mann-Whitney on raw samples"));
        let line = |begins: &str| text.lines().find(|line| line.starts_with(begins)).unwrap();
        let figures = |begins| line(begins).split_whitespace().count();
        assert_eq!(figures("  stall rate"), 2 + 3);
        // An endpoint of one side has one figure.
        assert_eq!(figures("  p99 of a run, ours   "), 5 + 1);
    }
}
