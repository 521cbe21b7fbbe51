//! Ours beside the peers, the soaks of ours, and whether what a document says of stopgap holds here. No ordinary build
//! compiles it.
//!
//! ```text
//! cargo run --release -p stopgap-bench -- frag            # ours and theirs, one table
//! cargo run --release -p stopgap-bench -- soak --ops 110m # every policy against its oracle
//! cargo run --release -p stopgap-bench -- soak chunks     # the memory model against its oracle
//! cargo run --release -p stopgap-bench -- threads         # two threads over one
//! cargo run --release -p stopgap-bench -- overhead        # what being recorded costs
//! cargo run --release -p stopgap-bench -- delays          # explain beside the kernel's delay accounting
//! cargo run --release -p stopgap-bench -- x11             # a real X server, explained
//! cargo run --release -p stopgap-bench -- watch           # ten minutes, five stalls: caught?
//! cargo run --release -p stopgap-bench -- wakeup          # probe wakeup beside cyclictest
//! cargo run --release -p stopgap-bench -- simulate        # compare's tests where the truth is known
//! ```

mod delays;
mod overhead;
mod peers;
mod simulate;
mod soak;
mod threads;
mod wakeup;
mod watch;
mod x11;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stopgap_cli::{Failure, replay};

/// A workload or a recorded trace through stopgap's policies and other people's allocators, all in one
/// run, interleaved; same flags, table and record as `stopgap replay placement`.
#[derive(Parser)]
#[command(
    name = "stopgap-bench",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    replay: Option<replay::Flags>,
}

#[derive(Subcommand)]
enum Command {
    /// Random steps, good and bad, on every placement policy and on its oracle, until they differ; `soak chunks`
    /// does the same to the model of the kernel's memory.
    Soak(soak::Flags),
    /// The speed-up of two threads over one: a Stopgap each, one `Shared`, one under a lock.
    Threads(threads::Flags),
    /// What `stopgap record` costs a client and a server, and what it does to their switches; status 2 where a
    /// bound is broken.
    Overhead(overhead::Flags),
    /// Reclaim as `explain` sums it of a recording, beside the kernel's own delay accounting (taskstats), of one task
    /// alone in a memory cgroup; exit status 2 where they differ by more than 25 %. Root. Makes a cgroup and a swap
    /// file and switches `kernel.task_delayacct` on while it runs.
    Delays(delays::Flags),
    /// What `delays` records.
    #[command(hide = true)]
    DelaysTask(delays::TaskFlags),
    /// Runs of a real X server and its client on one CPU, recorded and explained: status 2 where what is said of
    /// their switches does not hold.
    X11(x11::Flags),
    /// Whether `stopgap watch` catches the stalls that are injected into a load, and names their causes (root).
    Watch(watch::Flags),
    /// The load of `watch`, commanded through standard input.
    #[command(hide = true)]
    WatchLoad,
    /// `probe wakeup` beside cyclictest (package rt-tests), alternating, under a load that takes the CPU; status 2 where
    /// means, maxima or missed periods do not hold. Root.
    Wakeup(wakeup::Flags),
    /// How often the tests of `compare`, and those of others, call two sides different where nothing changed and where
    /// something did, and how often intervals hold the truth.
    Simulate(simulate::Flags),
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Soak(flags) => soak::run(&flags),
            Command::Threads(flags) => threads::run(&flags),
            Command::Overhead(flags) => overhead::run(&flags),
            Command::Delays(flags) => delays::run(&flags),
            Command::DelaysTask(flags) => delays::task(&flags),
            Command::X11(flags) => x11::run(&flags),
            Command::Watch(flags) => watch::run(&flags),
            Command::WatchLoad => watch::load(),
            Command::Wakeup(flags) => wakeup::run(&flags),
            Command::Simulate(flags) => simulate::run(&flags),
        }
    }
}

fn main() -> ExitCode {
    let result = stopgap_cli::parse().and_then(|args: Args| match args {
        Args {
            command: Some(command),
            ..
        } => command.run(),
        Args {
            replay: Some(flags),
            ..
        } => replay::placement(&flags, peers::ALL),
        Args { .. } => Err(Failure::error(
            "give a workload, a trace, or a command; see --help",
        )),
    });
    result.unwrap_or_else(Failure::report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Args::command().debug_assert();
        let soak = Args::try_parse_from(["stopgap-bench", "soak", "--ops", "2k"]).unwrap();
        assert!(matches!(soak.command, Some(Command::Soak(_))));
        let soak =
            Args::try_parse_from(["stopgap-bench", "soak", "chunks", "--seed", "2"]).unwrap();
        assert!(matches!(soak.command, Some(Command::Soak(_))));
        let threads =
            Args::try_parse_from(["stopgap-bench", "threads", "--repetitions", "3"]).unwrap();
        assert!(matches!(threads.command, Some(Command::Threads(_))));
        let overhead = Args::try_parse_from(["stopgap-bench", "overhead", "--pairs", "3"]).unwrap();
        assert!(matches!(overhead.command, Some(Command::Overhead(_))));
        let delays = Args::try_parse_from(["stopgap-bench", "delays", "--runs", "1"]).unwrap();
        assert!(matches!(delays.command, Some(Command::Delays(_))));
        let x11 = Args::try_parse_from(["stopgap-bench", "x11", "--runs", "3"]).unwrap();
        assert!(matches!(x11.command, Some(Command::X11(_))));
        let wakeup = Args::try_parse_from(["stopgap-bench", "wakeup", "--runs", "3"]).unwrap();
        assert!(matches!(wakeup.command, Some(Command::Wakeup(_))));
        let replay = Args::try_parse_from(["stopgap-bench", "frag", "--n", "1k"]).unwrap();
        assert!(replay.command.is_none() && replay.replay.is_some());
    }
}
