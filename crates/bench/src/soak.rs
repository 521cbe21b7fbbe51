//! `stopgap-bench soak`, and `soak chunks`: [`memory`].

mod memory;

use std::io::IsTerminal;
use std::process::ExitCode;

use indicatif::ProgressBar;
use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_placement::oracle::soak::{Met, soak};
use stopgap_placement::registry::Name;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Flags {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    placement: Placement,
}

#[derive(clap::Subcommand)]
enum Of {
    /// Instead of the policies, the model of the kernel's memory that chunks are taken from (the buddy
    /// allocator), against a naive one.
    Chunks(memory::Flags),
}

/// What the placement policies, without a sub-command, are soaked with.
#[derive(clap::Args)]
struct Placement {
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

/// Soaks what the flags ask for; the first difference is the error.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    match &flags.of {
        Some(Of::Chunks(flags)) => memory::run(flags),
        None => placement(&flags.placement),
    }
}

/// Policy by policy.
fn placement(flags: &Placement) -> Result<ExitCode, Failure> {
    some(flags.ops)?;
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
        let mut progress = Progress::new(&bar, name.to_string(), flags.ops, done);
        let told = |met: &Met| progress.tell(met.steps);
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

/// At least one step.
fn some(ops: u64) -> Result<(), Failure> {
    if ops == 0 {
        return Err(Failure::error("--ops 0: take at least 1"));
    }
    Ok(())
}

/// How far a soak is: the bar, or lines where standard error is no terminal.
struct Progress<'a> {
    bar: &'a ProgressBar,
    name: String,
    /// Steps of all that is soaked, and those done before this one.
    of: u64,
    before: u64,
    said: u64,
}

impl Progress<'_> {
    fn new(bar: &ProgressBar, name: String, of: u64, before: u64) -> Progress<'_> {
        Progress {
            bar,
            name,
            of,
            before,
            said: 0,
        }
    }

    /// Shows that `steps` were taken. Whether to go on.
    fn tell(&mut self, steps: u64) -> bool {
        let name = &self.name;
        self.bar
            .set_position(((self.before + steps) as f64 / self.of as f64 * 1_000.0) as u64);
        self.bar.set_message(format!("{name} {steps}"));
        if !std::io::stderr().is_terminal() && steps >= self.said + SAY_EVERY {
            self.said = steps;
            tell(&format!("{name}: {steps} steps without a difference"));
        }
        !signals::interrupted()
    }
}
