//! Flags of `replay`, question by question.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use stopgap_events::units::Bytes;
use stopgap_placement::Direction;

use super::values::{MOST_OPERATIONS, between, count, direction, pid, size};
use super::{Place, ReplayChunks, ReplayReclaim, ReplayRoundtrip};

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
    /// What would building big buffers have cost, and how well could the IOMMU map them?
    Chunks(ReplayChunks),
    /// How often would a client and a server switch, by which rules of waking up?
    Roundtrip(Box<ReplayRoundtrip>),
    /// What would memory that must stay cost everyone else, held or released in another way?
    Reclaim(Box<ReplayReclaim>),
}

/// Flags of `replay placement`, and of `stopgap-bench`.
#[derive(Debug, clap::Args)]
pub struct ReplayPlacement {
    /// Carry out a workload: pbobench, agua, freegap (all its forms), frag, aligned, limits, tight
    /// (1.03 and 1.06 times the bytes), many-sizes, phases, sequential, all. Or the file of a
    /// trace.
    #[arg(value_name = "WORKLOAD|TRACE")]
    pub(crate) input: OsString,
    /// Try these policies: linux-2.6.35, linux-3.4, linux-3.8, van-riel-v1, weiner-lazy,
    /// linux-6.1, linux-6.7, linux-6.12, best-fit, best-fit-no-coalesce, stopgap, or all [default:
    /// all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Set the workload's size, as 1k,10k,1m; four sizes or more show growth [default: the
    /// workload's; pbobench 100,1k,10k,20k,40k as in mail 000].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) n: Vec<u64>,
    /// Carry out so many operations at each N: maps, unmaps and protections [default: the
    /// workload's; 200k where there are several N] [up to 100m].
    #[arg(long, value_name = "N", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) ops: Option<u64>,
    /// Set the seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Let every map search from this end: top-down, bottom-up [default: the policy's own].
    #[arg(long, value_name = "DIRECTION", value_parser = direction)]
    pub(crate) direction: Option<Direction>,
    /// Replay the memory map of this process of a trace [default: the only one that maps or
    /// unmaps].
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// Let all policies use so much memory, as 512M [default: a quarter of MemAvailable, at most
    /// 2G].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,
    /// Print the record (JSON, schema stopgap.replay/1) instead of the tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the record into this directory [default: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Write no record.
    #[arg(long, conflicts_with = "output")]
    pub(crate) no_record: bool,
}

impl ReplayPlacement {
    pub(crate) fn place(&self) -> Place {
        Place {
            output: self.output.clone(),
            no_record: self.no_record,
        }
    }
}

/// Where the record of a model goes. Not part of [`ReplayPlacement`]: bench has that as an optional whole, which clap
/// does not see where there is another inside.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordFlags {
    /// Print the record (JSON, schema stopgap.replay/1; of advise stopgap.advise/1) instead of the
    /// tables.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}
