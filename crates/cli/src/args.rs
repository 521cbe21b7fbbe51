//! Every flag, once. The help texts are the manual: each says what, in which unit, and what
//! happens without it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_placement::Direction;
use stopgap_probes::chunks::Strategy;
use stopgap_probes::placement::Backend;
use stopgap_probes::reclaim::{Mode, Way};
use stopgap_probes::roundtrip::{ClientWait, Cpus, Policy, Reply, Wait};

use crate::export::Form;
use crate::failure::{DONE, ERROR, Failure};

/// Find the stall, name its cause, try the fix, before you patch the kernel.
#[derive(Debug, Parser)]
#[command(name = "stopgap", version, propagate_version = true, after_help = EXIT)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT: &str = "Exit status: 0 done; 1 error; 3 unsupported here (check: not one question \
                    could be answered).\nStart with: stopgap check";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// This machine, now and under test: one screen, about a minute, no root needed.
    Check(Check),
    /// One question in depth, every parameter a flag.
    Probe(Probe),
    /// What if: a workload or a recorded trace through every policy.
    Replay(Replay),
    /// A trace or a built-in workload, as a trace file (Parquet) or JSON lines.
    Export(Export),
    /// This machine's physical memory: zones, free blocks, as root each page; input for a replay.
    Snapshot(Snapshot),
    /// What this machine and this user allow, and what each limit costs in evidence.
    Doctor(Doctor),
    /// Put back what a killed run left changed (the next run does it too).
    Restore(Restore),
}

/// Flags of every command that measures.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Directory for the run record [default: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap, else a private folder under the temporary directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Print the run record (JSON, schema stopgap.run/1) instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say what would be run, touched and used, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of every random choice [default: from the clock; it is in the record].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Memory that load may use, as 512M [default: the least of a quarter of MemAvailable
    /// and 2G].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,
    /// CPUs to stay on, as 0,1 [default: all that this process may use].
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) cpus: Option<Vec<u32>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Fewer runs and fewer variants: about 15 s, wider intervals.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only look (NOW), put no load on the machine: under 2 s, safe in production.
    #[arg(long, conflicts_with_all = ["quick", "only"])]
    pub(crate) passive: bool,
    /// Ask about this process: its mappings, its tasks; and place beside as many mappings.
    #[arg(short, long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// Questions to ask, as placement,chunks [default: all four].
    #[arg(long, value_name = "QUESTION", value_delimiter = ',')]
    pub(crate) only: Vec<Question>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(
    subcommand_value_name = "QUESTION",
    subcommand_help_heading = "Questions"
)]
pub(crate) struct Probe {
    #[command(subcommand)]
    pub(crate) question: ProbeQuestion,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeQuestion {
    /// Does mapping memory slow down as mappings pile up?
    Placement(PlacementFlags),
    /// Does a request and its reply cost more context switches than they must?
    Roundtrip(RoundtripFlags),
    /// Does building a big buffer stall, and can the IOMMU map it well?
    Chunks(ChunksFlags),
    /// Do held buffers make everyone else wait when memory is short?
    Reclaim(ReclaimFlags),
}

/// Flags of every probe.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProbeCommon {
    /// How long it should take, as 60s; runs that do not fit are left out, down to three.
    #[arg(short, long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) duration: Nanos,
    /// Runs; the unit of evidence. Fewer than 3 give no interval.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlacementFlags {
    /// Numbers of mappings to lay out, as 1000,10000,60000 [default: 100, 1,000, 10,000,
    /// 20,000, 40,000 and just under vm.max_map_count].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) n: Vec<u32>,
    /// What backs the mappings: memfd, anonymous.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "memfd,anonymous"
    )]
    pub(crate) backend: Vec<Backend>,
    /// Steps of pbobench at each N; half of them map.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) steps: u64,
    /// Numbers of threads at once, one of which only faults, as 2,4; 0 for none [default: 2,
    /// 4, 8 and on to all CPUs].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) threads: Option<Vec<u32>>,
    /// Loops of agua; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) agua_loops: u32,
    /// Mappings that agua keeps live at most [default: 200,000, or what fits].
    #[arg(long, value_name = "N")]
    pub(crate) agua_live: Option<u32>,
    /// Mappings that agua drops when there are more [default: its share, 35,000 of 200,000].
    #[arg(long, value_name = "N")]
    pub(crate) agua_drop: Option<u32>,
    /// Rounds of each form of freegap; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub(crate) freegap_rounds: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Each combination of what is given is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct RoundtripFlags {
    /// How the client waits: poll, epoll, read (blocking) [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) client: Vec<ClientWait>,
    /// How the server waits: select, poll, epoll [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) server: Vec<Wait>,
    /// Descriptors that the server waits for, all but one idle [default: 1,50,500].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) k: Vec<u32>,
    /// CPU time that the server spends on each request [default: 0,5us,50us,1ms].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) work: Vec<Nanos>,
    /// Requests sent by one write; a round trip ends with the last reply [default: 1].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) batch: Vec<u32>,
    /// How a batch is answered: together (one writev), each (a write a reply) [default:
    /// together].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) reply: Vec<Reply>,
    /// Where both run: one (the same CPU), two (one each), free [default: one]. Which CPUs,
    /// --cpus says, the server's first.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) on: Vec<Cpus>,
    /// The client's scheduling policy: other, batch [default: other].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<Policy>,
    /// Round trips in each phase of a run at most; fewer where the time is short.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) round_trips: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReclaimFlags {
    /// What costs are measured of: plain, mlock, shm-lock, vmsplice, io-uring [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) mode: Vec<Mode>,
    /// Memory of each mode [default: 32M as root, else 4M, within RLIMIT_MEMLOCK].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) bytes: Option<Bytes>,
    /// Passes of reclaim over each set.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) passes: u32,
    /// Leave out the refault load (root and a memory cgroup).
    #[arg(long)]
    pub(crate) no_refault: bool,
    /// Refault load: what is compared with holding nothing: vmsplice, mlock, io-uring.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "vmsplice,mlock"
    )]
    pub(crate) way: Vec<Way>,
    /// Refault load: limit of the memory cgroup, the held set included.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) limit: Bytes,
    /// Refault load: the held set.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size)]
    pub(crate) held: Bytes,
    /// Refault load: the file that is read [default: an eighth more than the limit leaves].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file: Option<Bytes>,
    /// Refault load: what the bystander populates at a time.
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    pub(crate) block: Bytes,
    /// Refault load: how long one run of one way takes [default: what the time leaves, 250ms
    /// to 4s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) each: Option<Nanos>,
    /// Refault load: from what length on populating a block counts as a stall.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    /// Make a swap file of this size for the time of the probe (root) [default: none].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) swap: Option<Bytes>,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ChunksFlags {
    /// Buffer sizes, as 4M,64M.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "4M,64M",
        value_parser = size
    )]
    pub(crate) size: Vec<Bytes>,
    /// Strategies: base, mthp (every size that the kernel has) or one as mthp-64K, thp-direct,
    /// thp-noreclaim, collapse, hugetlb [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) strategy: Vec<Strategy>,
    /// Buffers of each size that are held at once; fewer where they would be more than 128M.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) buffers: u32,
    /// Use the knobs of transparent huge pages and hugetlb as they stand; without it root sets
    /// them for each strategy and puts them back.
    #[arg(long)]
    pub(crate) no_knobs: bool,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

#[derive(Debug, clap::Args)]
#[command(
    subcommand_value_name = "QUESTION",
    subcommand_help_heading = "Questions"
)]
pub(crate) struct Replay {
    #[command(subcommand)]
    pub(crate) question: ReplayQuestion,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayQuestion {
    /// What would mapping memory have cost, and how well packed would it be?
    Placement(ReplayPlacement),
}

/// Flags of `replay placement`, and of `stopgap-bench`.
#[derive(Debug, clap::Args)]
pub struct ReplayPlacement {
    /// What is carried out: pbobench, agua, freegap (all its forms), frag, aligned, limits, tight
    /// (1.03 and 1.06 times the bytes), many-sizes, phases, sequential, all; or the file of a trace.
    #[arg(value_name = "WORKLOAD|TRACE")]
    pub(crate) input: OsString,
    /// Policies, as best-fit,linux-6.12 [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// The workload's size, as 1k,10k,1m; four and more show growth [default: pbobench 100,1k,10k,
    /// 20k,40k as in mail 000; what the workload usually has].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) n: Vec<u64>,
    /// Operations at each N: maps, unmaps and protections [default: what the workload usually has,
    /// 200k where there are several N].
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) ops: Option<u64>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// From which end every map looks: top-down, bottom-up [default: as the policy likes].
    #[arg(long, value_name = "DIRECTION", value_parser = direction)]
    pub(crate) direction: Option<Direction>,
    /// Memory that all policies may take, as 512M [default: the least of a quarter of MemAvailable
    /// and 2G].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,
    /// Print the record (JSON, schema stopgap.replay/1) instead of the tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory for the record [default: $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap, else a
    /// private folder under the temporary directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// A trace file, JSON lines (docs/trace.md), or a built-in workload: pbobench, agua,
    /// freegap-posted, freegap-innermprot, freegap-innerremap, frag, aligned, limits, tight-1.03,
    /// tight-1.06, many-sizes, phases, sequential. A file of such a name is ./frag.
    #[arg(value_name = "INPUT")]
    pub(crate) input: PathBuf,
    /// The form: trace (Parquet), jsonl (JSON lines).
    #[arg(long, value_name = "FORM")]
    pub(crate) to: Form,
    /// File to write; - is standard output (jsonl). What is there is replaced when all is
    /// written; the input is never.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Of a workload: how many mappings, as 40k [default: the workload's].
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) n: Option<u64>,
    /// Of a workload: operations after the layout; a map is one and an unmap is one [default:
    /// the workload's].
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) ops: Option<u64>,
    /// Of a workload: seed of every random choice [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Snapshot {
    /// File to write (JSON, schema stopgap.snapshot/1); - is standard output, without the summary.
    /// What is there is replaced when all is written [default: a file of its own where records go:
    /// $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap, else a private folder under the temporary
    /// directory].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Print JSON (schema stopgap.doctor/1).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Print JSON (schema stopgap.restore/1).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Most memory and longest time that make sense anywhere: what is computed from them stays far
/// below what 64 bits hold.
const MOST_MEMORY: Bytes = Bytes(1 << 50);
const LONGEST: Nanos = Nanos::secs(30 * 24 * 3_600);

fn size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse()?;
    let most = MOST_MEMORY;
    let sane = size <= most;
    sane.then_some(size)
        .ok_or_else(|| format!("'{text}' is more memory than there is; give at most {most}"))
}

fn time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse()?;
    (time <= LONGEST)
        .then_some(time)
        .ok_or_else(|| format!("'{text}' is longer than 30 days"))
}

/// A count: `40000`, `40k`, `1m`, `2g`; powers of 1,000.
///
/// # Errors
/// Where it is none, or more than 64 bits hold.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no count; write it as 40000, 40k or 1m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("'{text}' is more than 64 bits hold"))
}

fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is no process id; give a number, as pidof or pgrep prints it for a name")
    })
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "top-down" => Ok(Direction::TopDown),
        "bottom-up" => Ok(Direction::BottomUp),
        _ => Err(format!(
            "unknown direction '{text}'; there are top-down, bottom-up"
        )),
    }
}

/// The command line; where it is wrong, one line that says what and what to do.
/// Reads the command line of the program that `A` defines.
///
/// # Errors
/// [`Failure`]: what is wrong with it, in one line, or that help was asked for and is printed.
pub fn parse<A: Parser>() -> Result<A, Failure> {
    A::try_parse().map_err(|error| {
        let said = matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        if said {
            let status = if error.use_stderr() { ERROR } else { DONE };
            let _ = error.print(); // a closed terminal: nobody is there to read it
            return Failure::Silent { status };
        }
        Failure::error(one_line(&error, A::command().get_name()))
    })
}

fn one_line(error: &clap::Error, program: &str) -> String {
    let probing = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "probe" || word == "replay");
    if let (ErrorKind::InvalidSubcommand, true, Some(ContextValue::String(word))) = (
        error.kind(),
        probing,
        error.get(ContextKind::InvalidSubcommand),
    ) && let Err(unknown) = word.parse::<Question>()
    {
        return unknown;
    }
    let text = error.to_string();
    let what: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let what = what.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    format!("{what}; see '{program} --help'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn counts_read_as_people_write_them() {
        assert_eq!(count("40k"), Ok(40_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        assert_eq!(count("17"), Ok(17));
        for wrong in [
            "",
            "k",
            "-1",
            "1kk",
            "1.5k",
            "k1",
            "99999999999g",
            "\u{660}",
        ] {
            assert!(count(wrong).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn the_help_names_every_workload() {
        let mut command = Args::command();
        let export = command.find_subcommand_mut("export").unwrap();
        let help = export.render_long_help().to_string();
        for workload in stopgap_events::workload::Workload::ALL {
            assert!(help.contains(workload.word()), "{workload}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one_line() {
        for words in [
            &["stopgap", "check", "--only", "gpu"][..],
            &["stopgap", "check", "--passive", "--quick"],
            &["stopgap", "probe", "placement", "--n", "x"],
            &["stopgap", "probe", "placement", "-d", "5h"],
            &["stopgap", "chekc"],
        ] {
            let error = Args::try_parse_from(words).unwrap_err();
            let line = one_line(&error, "stopgap");
            assert!(!line.contains('\n'), "{line}");
            assert!(line.contains("--help"), "{line}");
        }
    }
}
