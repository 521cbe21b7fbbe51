//! The model of the physical memory against the naive one.

use std::process::ExitCode;

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, progress_bar};
use stopgap_models::chunks::buddy::oracle::{Met, soak};

use super::{Progress, some};

#[derive(clap::Args)]
pub(super) struct Flags {
    /// Steps in all: blocks taken and freed, single pages taken out of blocks, and many that cannot be.
    #[arg(long, value_name = "N", default_value = "10m", value_parser = count)]
    ops: u64,
    /// Seed of the first stretch of steps; a difference names the seed that leads to it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    some(flags.ops)?;
    print(&format!("seed {}, {} steps", flags.seed, flags.ops))?;
    let bar = progress_bar();
    let mut progress = Progress::new(&bar, "chunks".to_owned(), flags.ops, 0);
    let met = soak(flags.ops, flags.seed, |met: &Met| progress.tell(met.steps));
    bar.finish_and_clear();
    let met = met.map_err(Failure::error)?;
    print(&format!(
        "{} blocks taken, {} exhausted, {} freed, {} refused as impossible, {} fallbacks that changed a block's type and {} that did not",
        met.taken, met.exhausted, met.given, met.refused, met.claimed, met.pieces
    ))?;
    print(&format!("{} steps in all without a difference", met.steps))?;
    Ok(ExitCode::SUCCESS)
}
