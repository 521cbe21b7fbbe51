//! `stopgap-bench soak`: every placement policy against its oracle; `soak chunks`: the model of the kernel's memory against a naive one.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use indicatif::ProgressBar;
use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_models::chunks::buddy::oracle as memory;
use stopgap_placement::oracle::soak::{Met, soak};
use stopgap_placement::registry::Name;

use crate::common::{failed, simulated};

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

/// Steps of a part of a policy's soak, which a thread carries out by itself, from a seed of its own.
const PART: u64 = 1_000_000;

/// The results of the parts of a policy's soak.
#[derive(Default)]
struct Tally {
    met: Met,
    different: Option<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        let (met, more) = (&mut self.met, other.met);
        met.steps += more.steps;
        met.placed += more.placed;
        met.exhausted += more.exhausted;
        met.freed += more.freed;
        self.different = self.different.take().or(other.different);
    }
}

/// Soaks policy by policy, in threads; returns the steps.
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
        let parts = u32::try_from(steps.div_ceil(PART)).map_err(failed("--ops"))?;
        let (taken, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let one = |part: u32, tally: &mut Tally| {
            let part = u64::from(part);
            let length = PART.min(steps - part * PART);
            let mut told = 0;
            let seed = flags.seed.wrapping_add(part << 32);
            let met = soak(name, length, seed, |met| {
                taken.fetch_add(met.steps - told, Ordering::Relaxed);
                told = met.steps;
                !signals::interrupted() && !stop.load(Ordering::Relaxed)
            });
            stop.fetch_or(met.is_err(), Ordering::Relaxed);
            let (met, different) =
                met.map_or_else(|what| (Met::default(), Some(what)), |met| (met, None));
            tally.add(Tally { met, different });
        };
        let show = RefCell::new(progress(bar, name.to_string(), flags.ops, done));
        let told = || {
            (show.borrow_mut())(taken.load(Ordering::Relaxed));
        };
        let tally = simulated(parts, &AtomicU32::new(0), one, Tally::add, told);
        if let Some(what) = tally.different {
            return Err(Failure::error(format!(
                "after {done} steps of others: {what}"
            )));
        }
        let met = tally.met;
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
