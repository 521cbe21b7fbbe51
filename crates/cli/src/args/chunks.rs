//! Flags of `replay chunks` and `advise chunks`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;
use stopgap_chunks::iommu::PageSizes;
use stopgap_events::units::Bytes;
use stopgap_models::chunks::experiment::Pattern;
use stopgap_models::chunks::kernel::Kernel;

use super::replay::RecordFlags;
use super::values::{MOST_OPERATIONS, between, count, size};

/// Flags that both commands have.
#[derive(Debug, clap::Args)]
pub(crate) struct ChunksInput {
    /// Take this memory: a scenario (no-contiguous, thread, unfragmented, kept-1/4,
    /// kept-1/4-pinned, aged; kept takes any of 1/2 to 1/512) or the file of a snapshot. Or take
    /// the buffers of a trace: they are built when mapped and freed when unmapped, in the memory
    /// of thread. Write ./thread for a file of a scenario's name.
    #[arg(value_name = "SCENARIO|FILE|TRACE", default_value = "thread")]
    pub(crate) input: OsString,
    /// Try these policies: old, one-page, sticky, start-64k, fold, list, list-noreclaim, sorted,
    /// iova-offset, landed, iommu-dma, ttm, per-device, or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Model the page allocator of this kernel: 3.4, 3.14, 6.12 [default: 3.14, the one of mail
    /// 001, for no-contiguous and thread, else 6.12].
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<Kernel>,
    /// Take the prices of the kernel's work from this file, which probe chunks wrote on the
    /// machine [default: assumed prices].
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Build buffers of this size [default: 4M; a trace has its own sizes].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<Bytes>,
    /// Build so many buffers by each policy [default: 50; a trace has its own].
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) buffers: Option<u64>,
    /// Set the seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
}

/// Flags of `replay chunks`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayChunks {
    #[command(flatten)]
    pub(crate) input: ChunksInput,
    /// Assume an IOMMU that maps these page sizes: powers of two, 4K among them.
    #[arg(long, value_name = "SIZES", default_value = "4K,64K,2M")]
    pub(crate) device: PageSizes,
    /// Let the device read a buffer in these orders, each by itself: linear, rotate-90, random.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "linear,rotate-90,random"
    )]
    pub(crate) access: Vec<Pattern>,
    /// Print the log lines of mail 001's buffers instead of the tables: the frame buffer of a Juno
    /// as the kernel maps it, and the time of each of the first buffers by --policy [default:
    /// sticky, start-64k, fold, one-page].
    #[arg(long)]
    pub(crate) log: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    subcommand_value_name = "QUESTION",
    subcommand_help_heading = "Questions"
)]
pub(crate) struct Advise {
    #[command(subcommand)]
    pub(crate) question: AdviseQuestion,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdviseQuestion {
    /// Choose the policy by which this device's buffers get their memory.
    Chunks(AdviseChunks),
}

/// Flags of `advise chunks`.
#[derive(Debug, clap::Args)]
pub(crate) struct AdviseChunks {
    #[command(flatten)]
    pub(crate) input: ChunksInput,
    /// Assume an IOMMU that maps these page sizes, 4K among them, as 4K,64K,2M.
    #[arg(long, value_name = "SIZES")]
    pub(crate) device: PageSizes,
    /// Let the device read a buffer in this order: linear, rotate-90, random.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) access: Pattern,
    /// Let the device read a buffer so often while it lives; 60 are a second of a display. The
    /// advice says what fewer and more would change [up to 100m].
    #[arg(long, value_name = "N", default_value = "60", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) passes: u64,
}
