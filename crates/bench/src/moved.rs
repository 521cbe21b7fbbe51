//! `stopgap-bench moved`: how often `compare` of traces says that a figure moved which did not.

use std::fmt::Write as _;
use std::process::ExitCode;

use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_stats::compare::moved::simulate::{FIGURES, WORLDS, simulate};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Simulations of each world and size.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    simulations: u32,
    /// Traces a side, 4 to 100, as 5,7,10.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "5,7,10", value_parser = clap::value_parser!(u16).range(4..=100))]
    traces: Vec<u16>,
    /// Seed of the first simulation; each has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// False discoveries that are accepted, and of so many simulations two standard errors more.
fn most(simulations: u32) -> f64 {
    0.05 + 2.0 * (0.05 * 0.95 / f64::from(simulations)).sqrt()
}

/// Simulates every world, and prints a table in per cent; status 2 where false discoveries are more than 5 %.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let mut broken = false;
    for &traces in &flags.traces {
        let mut text = format!(
            "{traces} traces a side, {FIGURES} figures, {} simulations, seed {}; %\n{:48} {:>7} {:>7} {:>7} {:>7}\n",
            flags.simulations, flags.seed, "", "false", "any", "found", "missed"
        );
        for world in &WORLDS {
            let bar = progress_bar();
            if bar.is_hidden() {
                tell(&format!("{traces} traces a side: {}", world.name));
            }
            let outcome = simulate(
                world,
                usize::from(traces),
                flags.simulations,
                flags.seed,
                |done| {
                    bar.set_position(u64::from(done) * 1_000 / u64::from(flags.simulations));
                    !signals::interrupted()
                },
            );
            bar.finish_and_clear();
            if signals::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            broken |= outcome.false_rate > most(flags.simulations);
            let [wrong, any, found, missed] = [
                outcome.false_rate,
                outcome.any,
                outcome.found,
                outcome.missed,
            ]
            .map(|share| share * 100.0);
            // A string takes what is written to it.
            let _ = writeln!(
                text,
                "{:48} {wrong:7.1} {any:7.1} {found:7.1} {missed:7.1}",
                world.name
            );
        }
        print(&text)?;
    }
    Ok(ExitCode::from(if broken { 2 } else { 0 }))
}
