//! Our placement policies beside the peers, the soaks of ours, what a second thread brings, and what the tests of a
//! comparison are worth. No ordinary build compiles it.
//!
//! ```text
//! cargo run --release -p stopgap-bench -- frag            # ours and theirs, one table
//! cargo run --release -p stopgap-bench -- soak --ops 110m # every policy against its oracle
//! cargo run --release -p stopgap-bench -- soak chunks     # the memory model against its oracle
//! cargo run --release -p stopgap-bench -- threads         # two threads over one
//! cargo run --release -p stopgap-bench -- simulate        # compare's tests where the truth is known
//! ```

mod peers;
mod simulate;
mod soak;
mod threads;

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
    /// How often the tests of `compare`, and those of others, call two sides different where nothing changed and where
    /// something did, and how often intervals hold the truth.
    Simulate(simulate::Flags),
}

fn main() -> ExitCode {
    let result = stopgap_cli::parse().and_then(|args: Args| match args {
        Args {
            command: Some(Command::Soak(flags)),
            ..
        } => soak::run(&flags),
        Args {
            command: Some(Command::Threads(flags)),
            ..
        } => threads::run(&flags),
        Args {
            command: Some(Command::Simulate(flags)),
            ..
        } => simulate::run(&flags),
        Args {
            replay: Some(flags),
            ..
        } => replay::placement(&flags, peers::ALL),
        Args { .. } => Err(Failure::error(
            "give a workload, a trace, soak, threads or simulate; see --help",
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
        let simulate =
            Args::try_parse_from(["stopgap-bench", "simulate", "--runs", "10,30"]).unwrap();
        assert!(matches!(simulate.command, Some(Command::Simulate(_))));
        let replay = Args::try_parse_from(["stopgap-bench", "frag", "--n", "1k"]).unwrap();
        assert!(replay.command.is_none() && replay.replay.is_some());
    }
}
