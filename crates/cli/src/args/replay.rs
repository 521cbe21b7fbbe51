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
    /// What is carried out: pbobench, agua, freegap (all its forms), frag, aligned, limits, tight
    /// (1.03 and 1.06 times the bytes), many-sizes, phases, sequential, all; or the file of a trace.
    #[arg(value_name = "WORKLOAD|TRACE")]
    pub(crate) input: OsString,
    /// Policies: linux-2.6.35, linux-3.4, linux-3.8, van-riel-v1, weiner-lazy, linux-6.1, linux-6.7,
    /// linux-6.12, best-fit, best-fit-no-coalesce, stopgap, or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// The workload's size, as 1k,10k,1m; four and more show growth [default: pbobench 100,1k,10k,
    /// 20k,40k as in mail 000; what the workload usually has].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) n: Vec<u64>,
    /// Operations at each N: maps, unmaps and protections [default: what the workload usually has,
    /// 200k where there are several N] [up to 100m].
    #[arg(long, value_name = "N", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) ops: Option<u64>,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// From which end every map looks: top-down, bottom-up [default: as the policy likes].
    #[arg(long, value_name = "DIRECTION", value_parser = direction)]
    pub(crate) direction: Option<Direction>,
    /// For a recorded trace: the process whose memory map is replayed [default: the only one that
    /// maps or unmaps].
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// Memory that all policies may take, as 512M [default: the least of a quarter of MemAvailable
    /// and 2G].
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
    /// Print the record (JSON, schema stopgap.replay/1, of advise stopgap.advise/1) instead of the tables.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}
