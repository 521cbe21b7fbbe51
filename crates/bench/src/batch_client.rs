//! `stopgap-bench batch-client`: what answers cost that come one by one, and what takes that away: the arena's writer in
//! the server, or `SCHED_BATCH` for the client.
//!
//! ```text
//! server   read 32 requests, answer each        client   send 32 requests, poll and read until 32 replies are there
//!          one by one: a write each             under SCHED_OTHER or SCHED_BATCH
//!          writer:     push each
//!          gathered:   one write, by hand
//! ```
//!
//! Both on one CPU. Then what a client under `SCHED_BATCH` waits on a CPU that another thread uses, and a real X server
//! and its client.

mod replies;
mod waits;
mod x;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use stopgap_arena::sched;
use stopgap_cli::Failure;
use stopgap_kernel::signals;
use stopgap_stats::quantile::median;

/// A bound is broken.
const BROKEN: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each of the ways to answer.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Rounds of 32 requests in each run.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Runs of the real client of each policy, each with a server of its own; 0: none.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    x_runs: u32,
    /// The CPU of both; it should be idle [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// A command that runs the real client under SCHED_BATCH, as 'stopgap run --fix batch-client --' [default: the library's
    /// own call, then exec].
    #[arg(long, value_name = "COMMAND")]
    through: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct ExecFlags {
    /// The command and its words.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Something that must be true.
struct Bound {
    holds: bool,
    text: String,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds " } else { "BROKEN" };
        write!(f, "{word}  {}", self.text)
    }
}

fn middle(values: &[f64]) -> f64 {
    median(values.to_vec()).unwrap_or(f64::NAN)
}

/// The value that `share` of them do not pass.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let at = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let mut bounds = replies::measure(flags)?;
    waits::measure(flags)?;
    bounds.extend(x::measure(flags)?);
    for bound in &bounds {
        println!("{bound}");
    }
    Ok(if bounds.iter().all(|bound| bound.holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}

/// Becomes a command under `SCHED_BATCH`.
pub(crate) fn exec(flags: &ExecFlags) -> Result<ExitCode, Failure> {
    let failed = |error: &dyn fmt::Display| {
        Failure::error(format!("{}: {error}", flags.command[0].display()))
    };
    sched::batch_client()
        .map_err(|error| failed(&error))?
        .stay();
    let error = Command::new(&flags.command[0])
        .args(&flags.command[1..])
        .exec();
    Err(failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let at = |share| quantile(&values, share).to_string();
        assert_eq!([at(0.1), at(0.9), at(1.0)], ["1", "9", "10"]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
