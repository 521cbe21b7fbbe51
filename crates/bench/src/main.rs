//! Ours beside the peers, the soaks of ours, and whether what a document says of stopgap holds here. No ordinary build
//! compiles it.
//!
//! ```text
//! cargo run --release -p stopgap-bench -- frag            # ours and theirs, one table
//! cargo run --release -p stopgap-bench -- shapes          # placement on many shapes of programs, beside the peers: goals
//! cargo run --release -p stopgap-bench -- cache           # a cache of buffers: the arena beside malloc and mmap: goals
//! cargo run --release -p stopgap-bench -- soak --ops 110m # every policy against its oracle
//! cargo run --release -p stopgap-bench -- soak chunks     # the memory model against its oracle
//! cargo run --release -p stopgap-bench -- overhead        # what being recorded costs
//! cargo run --release -p stopgap-bench -- arena           # buffers of the arena beside mmap's
//! cargo run --release -p stopgap-bench -- delays          # explain beside the kernel's delay accounting
//! cargo run --release -p stopgap-bench -- explain-speed   # waits that explain follows per second
//! cargo run --release -p stopgap-bench -- x11             # a real X server, explained
//! cargo run --release -p stopgap-bench -- watch           # ten minutes, five stalls: caught?
//! cargo run --release -p stopgap-bench -- wakeup          # probe wakeup beside cyclictest
//! cargo run --release -p stopgap-bench -- chunked         # chunked buffers beside base pages and THP
//! cargo run --release -p stopgap-bench -- channel         # the arena's channel beside socket and poll(2)
//! cargo run --release -p stopgap-bench -- simulate        # compare's tests where the truth is known
//! cargo run --release -p stopgap-bench -- anytime         # looking after every unit, where the truth is known
//! cargo run --release -p stopgap-bench -- occasions DIR...   # compare of real records where nothing changed
//! cargo run --release -p stopgap-bench -- change-points   # change points of histories, where the truth is known
//! cargo run --release -p stopgap-bench -- locked          # locked sets: what they cost, and whether reclaim sees them
//! cargo run --release -p stopgap-bench -- batch-client    # one wake for many replies: the writer, SCHED_BATCH, real X
//! cargo run --release -p stopgap-bench -- preload-soak    # real programs with the preload library and without
//! cargo run --release -p stopgap-bench -- attack kills    # each command killed at random moments: what is left?
//! cargo run --release -p stopgap-bench -- attack mutants  # changed files of each format: an answer or an error?
//! cargo run --release -p stopgap-bench -- mails           # the five mails, claim by claim: docs/mails.md
//! cargo run --release -p stopgap-bench -- model-live --keep DIR   # each cell of a model beside the live kernel: docs/model-live.md
//! cargo run --release -p stopgap-bench -- screens         # what documents show is what the commands print
//! ```

mod anytime;
mod arena;
mod attack;
mod batch_client;
mod cache;
mod change_points;
mod channel;
mod chunked;
mod common;
mod delays;
mod explain_speed;
mod locked;
mod mails;
mod model_live;
mod moved;
mod occasions;
mod overhead;
mod peers;
mod preload_soak;
mod screens;
mod shapes;
mod simulate;
mod soak;
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
    /// Our placement beside other allocators on many shapes of programs, interleaved: time, span, failures, longest operation;
    /// status 2 where a goal is missed.
    Shapes(shapes::Flags),
    /// One run of `shapes --pair`.
    #[command(hide = true)]
    PairRun(shapes::pair::RunFlags),
    /// One shape on ours alone, in a process of its own.
    #[command(hide = true)]
    ShapeRun(shapes::RunFlags),
    /// A cache of 8,000 buffers in the arena, mimalloc, jemalloc, glibc and mmap: CPU time, faults, peak, and what is held after
    /// most is freed; and a file that is mapped again. Status 2 where a goal is missed.
    Cache(cache::Flags),
    /// One run of `cache`.
    #[command(hide = true)]
    CacheRun(cache::RunFlags),
    /// What `stopgap record` costs a client and a server, and what it does to their switches; status 2 where a
    /// bound is broken.
    Overhead(overhead::Flags),
    /// pbobench on the arena (`reuse`) and on mmap in one run; status 2 where a bound is broken. Takes a GiB of
    /// memory at most, and no privilege.
    Arena(arena::Flags),
    /// Reclaim as `explain` sums it of a recording, beside the kernel's own delay accounting (taskstats), of one task
    /// alone in a memory cgroup; exit status 2 where they differ by more than 25 %. Root. Makes a cgroup and a swap
    /// file and switches `kernel.task_delayacct` on while it runs.
    Delays(delays::Flags),
    /// The task that `delays` records.
    #[command(hide = true)]
    DelaysTask(delays::TaskFlags),
    /// How many waits `explain` reads and follows per second, part by part; status 2 where the wait-for graph is slower than
    /// promised.
    ExplainSpeed(explain_speed::Flags),
    /// Runs of a real X server and its client on one CPU, recorded and explained; status 2 where `explain` is wrong about
    /// their switches.
    X11(x11::Flags),
    /// Whether `stopgap watch` catches the stalls that are injected into a load, and names their causes (root).
    Watch(watch::Flags),
    /// `probe wakeup` beside cyclictest (package rt-tests), alternating, under a load that takes the CPU; status 2 where
    /// means, maxima or missed periods do not hold. Root.
    Wakeup(wakeup::Flags),
    /// The arena's channel beside a Unix socket and poll(2), on one CPU, on two and free: switches, latency, wake-ups, and
    /// when the death of the peer is known; status 2 where a bound is broken.
    Channel(channel::Flags),
    /// How often the tests of `compare`, and those of others, call two sides different where nothing changed and where
    /// something did, and how often intervals hold the truth.
    Simulate(simulate::Flags),
    /// How often a comparison that is looked at after every pair is wrong, how soon it is decided, and the same of Mann-Whitney,
    /// Welch, hyperfine and tango.
    Anytime(anytime::Flags),
    /// Compares real records between which nothing was changed, and again with a change put into them.
    Occasions(occasions::Flags),
    /// How often `compare` of traces says that a figure moved which did not; status 2 where false discoveries are more than 5 %.
    Moved(moved::Flags),
    /// How often `compare --history` calls histories changed where nothing changed, how often it finds a step, and whether its
    /// intervals hold the truth, beside Otava's algorithm.
    ChangePoints(change_points::Flags),
    /// The library's chunked buffer beside base pages and direct THP in memory that is fragmented on purpose (root; give
    /// `--memory 16G`), and beside each strategy of `probe chunks` in memory as it is; status 2 where a bound is broken.
    Chunked(chunked::Flags),
    /// What a locked set costs beside mlock(2) and beside nothing, and the refault load beside it; status 2 where a bound
    /// is broken. Root. Makes memory cgroups, sparse files and, where there is little swap, a swap file while it runs.
    Locked(locked::Flags),
    /// The task that `locked` puts under pressure.
    #[command(hide = true)]
    LockedPressure(locked::PressureFlags),
    /// Switches that a server's replies cost one by one, through the coalescing writer, and with the client under
    /// SCHED_BATCH; and what a client under SCHED_BATCH waits beside a busy thread. Then a real X server, its client as
    /// it is and under SCHED_BATCH by the library, or by the command given with --through. Status 2 where a bound is broken.
    BatchClient(batch_client::Flags),
    /// Runs a command under SCHED_BATCH.
    #[command(hide = true)]
    BatchClientExec(batch_client::ExecFlags),
    /// Real programs with the preload library and without, interleaved, each held to its own checks; status 2 where one
    /// fails with it alone or takes more than 3 % more user and system time, 3 where one is missing that must not be.
    PreloadSoak(preload_soak::Flags),
    /// The command under conditions that nobody wants, counted: killed at random moments, given changed files. Exit status
    /// 1 where something did not hold.
    Attack(attack::Flags),
    /// What the five mails claim, held against what the commands print; writes docs/mails.md and a page a mail. Exit status 1
    /// where a claim was not judged, or differs and nobody has written why.
    Mails(mails::Flags),
    /// Every cell that a probe measures and a model predicts, in rounds, as a table. Exit status 2 where fewer than 80 % of
    /// them are within 25 %. Root.
    ModelLive(model_live::Flags),
    /// Runs the commands that documents show and those of the list of capabilities, and compares what they print. Exit status 2
    /// where one prints something else.
    Screens(screens::Flags),
    /// One run of `preload-soak`.
    #[command(hide = true)]
    PreloadSoakRun(preload_soak::Place),
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Soak(flags) => soak::run(&flags),
            Command::Shapes(flags) => shapes::run(&flags),
            Command::PairRun(flags) => shapes::pair::run_one(&flags).map(|()| ExitCode::SUCCESS),
            Command::ShapeRun(flags) => shapes::run_one(&flags).map(|()| ExitCode::SUCCESS),
            Command::Cache(flags) => cache::run(&flags),
            Command::CacheRun(flags) => cache::run_one(&flags),
            Command::Overhead(flags) => overhead::run(&flags),
            Command::Arena(flags) => arena::run(&flags),
            Command::Delays(flags) => delays::run(&flags),
            Command::DelaysTask(flags) => delays::task(&flags),
            Command::ExplainSpeed(flags) => explain_speed::run(&flags),
            Command::X11(flags) => x11::run(&flags),
            Command::Watch(flags) => watch::run(&flags),
            Command::Wakeup(flags) => wakeup::run(&flags),
            Command::Channel(flags) => channel::run(&flags),
            Command::Simulate(flags) => simulate::run(&flags),
            Command::Anytime(flags) => anytime::run(&flags),
            Command::Occasions(flags) => occasions::run(&flags),
            Command::Moved(flags) => moved::run(&flags),
            Command::ChangePoints(flags) => change_points::run(&flags),
            Command::Chunked(flags) => chunked::run(&flags),
            Command::Locked(flags) => locked::run(&flags),
            Command::LockedPressure(flags) => locked::task(&flags),
            Command::BatchClient(flags) => batch_client::run(&flags),
            Command::BatchClientExec(flags) => batch_client::exec(&flags),
            Command::Attack(flags) => attack::run(&flags),
            Command::Mails(flags) => mails::run(&flags),
            Command::ModelLive(flags) => model_live::run(&flags),
            Command::Screens(flags) => screens::run(&flags),
            Command::PreloadSoak(flags) => preload_soak::run(&flags),
            Command::PreloadSoakRun(place) => preload_soak::run_one(&place),
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
        for words in [
            "soak --ops 2k",
            "soak chunks --seed 2",
            "shapes --only lifo,zipf --operations 20k",
            "shapes --pair",
            "cache --rounds 1",
            "overhead --pairs 3",
            "arena --repetitions 5",
            "delays --runs 1",
            "explain-speed trace.parquet",
            "x11 --runs 3",
            "wakeup --runs 3",
            "channel --runs 3",
            "chunked --states 3",
            "locked --loads 2",
            "batch-client --x-runs 0",
            "preload-soak --only redis,jvm",
        ] {
            let parsed =
                Args::try_parse_from(["stopgap-bench"].into_iter().chain(words.split(' ')));
            assert!(parsed.unwrap().command.is_some(), "{words}");
        }
        assert!(Args::try_parse_from(["stopgap-bench", "preload-soak", "--only", "x"]).is_err());
        let replay = Args::try_parse_from(["stopgap-bench", "frag", "--n", "1k"]).unwrap();
        assert!(replay.command.is_none() && replay.replay.is_some());
    }
}
