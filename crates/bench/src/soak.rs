//! `stopgap-bench soak`.

use std::io::IsTerminal;
use std::process::ExitCode;

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_placement::oracle::soak::{Met, soak};
use stopgap_placement::registry::Name;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Steps in all, shared evenly by the policies.
    #[arg(long, value_name = "N", default_value = "110m", value_parser = count)]
    ops: u64,
    /// Seed of the first stretch of steps; a difference names the seed that leads to it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Policies, as best-fit,linux-6.12 [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<Name>,
}

/// Steps between two lines of progress where standard error is no terminal.
const SAY_EVERY: u64 = 10_000_000;

/// Soaks policy by policy; the first difference is the error.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    if flags.ops == 0 {
        return Err(Failure::error("--ops 0: take at least 1"));
    }
    let mut names: Vec<Name> = Vec::new();
    let asked = if flags.policy.is_empty() {
        Name::ALL
    } else {
        &flags.policy
    };
    for &name in asked {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let bar = progress_bar();
    let share = flags.ops.div_ceil(names.len() as u64);
    let mut done: u64 = 0;
    print(&format!("seed {}, {share} steps a policy", flags.seed))?;
    for name in names {
        let mut said = 0;
        let told = |met: &Met| {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )] // 0 to 1,000
            bar.set_position(((done + met.steps) as f64 / flags.ops as f64 * 1_000.0) as u64);
            bar.set_message(format!("{name} {}", met.steps));
            if !std::io::stderr().is_terminal() && met.steps >= said + SAY_EVERY {
                said = met.steps;
                tell(&format!("{name}: {said} steps without a difference"));
            }
            !signals::interrupted()
        };
        let met = soak(name, share, flags.seed, told).map_err(|what| {
            bar.finish_and_clear();
            Failure::error(format!("after {done} steps of others: {what}"))
        })?;
        done += met.steps;
        bar.suspend(|| {
            print(&format!(
                "{name:<22} {} steps: {} placed, {} exhausted, {} freed, no difference",
                met.steps, met.placed, met.exhausted, met.freed
            ))
        })?;
        if signals::interrupted() {
            break;
        }
    }
    bar.finish_and_clear();
    print(&format!("{done} steps in all without a difference"))?;
    Ok(ExitCode::SUCCESS)
}
