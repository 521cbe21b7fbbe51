//! Flags of `replay reclaim`.

use std::path::PathBuf;

use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_models::reclaim::{Kernel, Release};

use super::replay::RecordFlags;
use super::values::{few, size, time};

/// Each combination of what is given is carried out.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayReclaim {
    /// How memory is held: none, held (references only), mlock, mapping (marked before it is filled), mapping-late (when
    /// pages are on a list), or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// How pages of a marked mapping are released: second-pass (or two-pass), batch, batch-resched, single (or page)
    /// [default: batch-resched; of gem-syslatency all].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = release)]
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
    /// Whose rules: linux-4.19, linux-6.12 [default: linux-6.12; of gem-syslatency linux-4.19].
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<Kernel>,
    /// How often the group's statistics are summed up, by which Linux 6.12 judges its lists: by itself each 2s; whoever
    /// reads memory.stat, as the probe does each 15 ms on cgroup version 2, does it then. 0: always exact.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    pub(crate) statistics: Nanos,
    /// What the file's page cache consists of, a power of two from 4K (single pages) to 2M: ext4 since 6.16 and XFS since
    /// 5.18 make large folios where they read ahead.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4K")]
    pub(crate) folio: Bytes,
    /// Simulated time of each run, from the first page reclaimed on, the warm-up included, as the probe's --each; of
    /// gem-syslatency what counts, a third of it passes before.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "4s")]
    pub(crate) time: Nanos,
    /// Runs of each row, a seed each: when the group's statistics are summed up is chance. scan/recl is their median
    /// [default: 6; gem-syslatency: 1].
    #[arg(long, value_name = "N", value_parser = few::<1, 1_000>)]
    pub(crate) runs: Option<u32>,
    /// The record of a `stopgap probe reclaim`: what it measured stands beside what is modelled.
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Seed of how far apart the tasks begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) record: RecordFlags,
}

/// A release path by its word, or by the other that it goes by.
fn release(text: &str) -> Result<Release, String> {
    match text {
        "two-pass" => Ok(Release::SecondPass),
        "page" => Ok(Release::Single),
        _ => text.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_path_has_two_names_where_people_use_two() {
        assert_eq!(release("two-pass"), Ok(Release::SecondPass));
        assert_eq!(release("page"), Ok(Release::Single));
        for &path in Release::ALL {
            assert_eq!(release(path.word()), Ok(path));
        }
        assert!(release("pages").unwrap_err().contains("second-pass"));
    }
}
