//! `stopgap-bench soak`: every placement policy against its oracle; `soak chunks`: the model of the kernel's memory against a naive one.

use std::io::IsTerminal;
use std::process::ExitCode;

use indicatif::ProgressBar;
use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_models::chunks::buddy::oracle as memory;
use stopgap_placement::oracle::soak::soak;
use stopgap_placement::registry::Name;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Flags {
    #[command(subcommand)]
    instead: Option<Instead>,
    #[command(flatten)]
    placement: Placement,
}

#[derive(clap::Subcommand)]
enum Instead {
    /// Instead of the policies, the model of the kernel's memory that chunks are taken from (the buddy
    /// allocator), against a naive one.
    Chunks(Chunks),
}

#[derive(clap::Args)]
struct Chunks {
    /// Steps in all: blocks taken and freed, single pages taken out of blocks, and many that cannot be.
    #[arg(long, value_name = "N", default_value = "10m", value_parser = count)]
    ops: u64,
    /// Seed of the first stretch of steps; a difference names the seed that leads to it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct Placement {
    /// Steps in all: ours takes ten shares, every other policy one.
    #[arg(long, value_name = "N", default_value = "200m", value_parser = count)]
    ops: u64,
    /// Seed of the first stretch of steps; a difference names the seed that leads to it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Policies, as best-fit,linux-6.12 [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<Name>,
}

/// Shares of the steps that ours takes: who uses it depends on it, where the others are for comparison.
const OURS: u64 = 10;

/// Steps between two lines of progress where standard error is no terminal.
const SAY_EVERY: u64 = 10_000_000;

/// Soaks what the flags ask for; the first difference is the error.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let ops = match &flags.instead {
        Some(Instead::Chunks(chunks)) => chunks.ops,
        None => flags.placement.ops,
    };
    if ops == 0 {
        return Err(Failure::error("--ops 0: take at least 1"));
    }
    let bar = progress_bar();
    let soaked = match &flags.instead {
        Some(Instead::Chunks(flags)) => chunks(flags, &bar),
        None => placement(&flags.placement, &bar),
    };
    bar.finish_and_clear();
    print(&format!("{} steps in all without a difference", soaked?))?;
    Ok(ExitCode::SUCCESS)
}

/// Soaks policy by policy; returns the steps.
fn placement(flags: &Placement, bar: &ProgressBar) -> Result<u64, Failure> {
    let asked = match flags.policy.as_slice() {
        [] => Name::ALL,
        asked => asked,
    };
    let is_first = |&(at, name): &(usize, &Name)| !asked[..at].contains(name);
    let names = asked.iter().enumerate().filter(is_first);
    let names: Vec<Name> = names.map(|(_, name)| *name).collect();
    let shares = |name| match name {
        Name::Stopgap if names.len() > 1 => OURS,
        _ => 1,
    };
    let all: u64 = names.iter().map(|&name| shares(name)).sum();
    let mut done: u64 = 0;
    let each = flags.ops.div_ceil(all);
    let more = if names.contains(&Name::Stopgap) && names.len() > 1 {
        ", ten times as many of stopgap"
    } else {
        ""
    };
    print(&format!("seed {}, {each} steps a policy{more}", flags.seed))?;
    for &name in &names {
        let steps = each * shares(name);
        let mut progress = progress(bar, name.to_string(), flags.ops, done);
        let met = soak(name, steps, flags.seed, |met| progress(met.steps));
        let met =
            met.map_err(|what| Failure::error(format!("after {done} steps of others: {what}")))?;
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
    Ok(done)
}

/// Soaks the model of the physical memory; returns the steps.
fn chunks(flags: &Chunks, bar: &ProgressBar) -> Result<u64, Failure> {
    print(&format!("seed {}, {} steps", flags.seed, flags.ops))?;
    let mut progress = progress(bar, "chunks".to_owned(), flags.ops, 0);
    let met = memory::soak(flags.ops, flags.seed, |met| progress(met.steps));
    let met = met.map_err(Failure::error)?;
    bar.suspend(|| {
        print(&format!(
            "{} blocks taken, {} exhausted, {} freed, {} refused as impossible, {} fallbacks that changed a block's type and {} that did not",
            met.taken, met.exhausted, met.given, met.refused, met.claimed, met.pieces
        ))
    })?;
    Ok(met.steps)
}

/// Returns what shows how many steps of `name` were taken and says whether to go on: by the bar, or by lines where standard error is
/// no terminal. `all` steps are soaked, `before` this one so many.
fn progress(bar: &ProgressBar, name: String, all: u64, before: u64) -> impl FnMut(u64) -> bool {
    let mut said = 0;
    move |steps| {
        let share = (before + steps) as f64 / all as f64;
        bar.set_position((share * 1_000.0) as u64);
        bar.set_message(format!("{name} {steps}"));
        if !std::io::stderr().is_terminal() && steps >= said + SAY_EVERY {
            said = steps;
            tell(&format!("{name}: {steps} steps without a difference"));
        }
        !signals::interrupted()
    }
}
