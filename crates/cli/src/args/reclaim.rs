//! Flags of `replay reclaim`.

use std::path::PathBuf;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_models::reclaim::{Kernel, Load, Lru, Release};

use super::values::{size, time};

/// Each combination of what is given is carried out.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayReclaim {
    /// How memory is held: none, held (references only), mlock, mapping (marked before it is filled), mapping-late (when
    /// pages are on a list), or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// How pages of a marked mapping are released: second-pass, batch, batch-resched, single [default: batch-resched;
    /// of gem-syslatency all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) release: Vec<Release>,
    /// What is held [default: half of the limit; of gem-syslatency 29 of 32 parts, in use by a GPU].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) pinned: Vec<Bytes>,
    /// Memory in all: the limit of a cgroup; of gem-syslatency the machine's.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) limit: Bytes,
    /// What makes memory short: refault, stream, populate, mixed, gem-syslatency (mail 004's, at its prices).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "mixed"
    )]
    pub(crate) load: Vec<Load>,
    /// The file that is read round and round [default: an eighth more than the limit leaves; of gem-syslatency twice
    /// the limit].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file: Option<Bytes>,
    /// Free swap.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2G")]
    pub(crate) swap: Bytes,
    /// No swap: anonymous lists are not scanned.
    #[arg(long, conflicts_with = "swap")]
    pub(crate) no_swap: bool,
    /// What anonymous pages weigh against file pages, 0 to 200 of 200.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) swappiness: u64,
    /// Which lists: classic, mglru (not validated against a live kernel).
    #[arg(long, value_name = "LISTS", default_value = "classic")]
    pub(crate) lru: Lru,
    /// Whose rules: linux-4.19, linux-6.12 [default: linux-6.12; of gem-syslatency linux-4.19].
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<Kernel>,
    /// Simulated time that counts, of each row; a third of it passes before.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) time: Nanos,
    /// The record of a `stopgap probe reclaim`: what it measured stands beside what is modelled.
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Seed of how far apart the tasks begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the record (JSON, schema stopgap.replay/1) instead of the tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory for the record [default: $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap, else a
    /// private folder under the temporary directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}
