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
    /// Hold memory by these policies: none, held (references only), mlock, mapping (marked before
    /// it is filled), mapping-late (marked when its pages are on a list), or all [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Release pages of a marked mapping by second-pass (or two-pass), batch, batch-resched,
    /// single (or page) [default: batch-resched; gem-syslatency: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = release)]
    pub(crate) release: Vec<Release>,
    /// Hold so much memory [default: half of the limit; gem-syslatency: 29 of 32 parts, in use by
    /// a GPU].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) pinned: Vec<Bytes>,
    /// Assume so much memory: the limit of a cgroup, for gem-syslatency the machine's.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) limit: Bytes,
    /// Make memory short by refault, stream, populate, mixed, gem-syslatency (mail 004's, at its
    /// prices).
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "mixed"
    )]
    pub(crate) load: Vec<Load>,
    /// Let the load read a file of this size over and over [default: an eighth more than the limit
    /// leaves; gem-syslatency: twice the limit].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file: Option<Bytes>,
    /// Assume so much free swap.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2G")]
    pub(crate) swap: Bytes,
    /// Assume no swap: anonymous lists are not scanned.
    #[arg(long, conflicts_with = "swap")]
    pub(crate) no_swap: bool,
    /// Weigh anonymous pages against file pages by this, 0 to 200.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) swappiness: u64,
    /// Follow the rules of linux-4.19 or linux-6.12 [default: linux-6.12; gem-syslatency:
    /// linux-4.19].
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<Kernel>,
    /// Sum up the group's statistics so often; Linux 6.12 judges its lists by them. The kernel
    /// does it every 2 s, and when somebody reads memory.stat, as the probe does every 15 ms on
    /// cgroup version 2. 0: always exact.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    pub(crate) statistics: Nanos,
    /// Fill the file's page cache with folios of this size, a power of two from 4K (single pages)
    /// to 2M. ext4 since 6.16 and XFS since 5.18 make large folios where they read ahead.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4K")]
    pub(crate) folio: Bytes,
    /// Simulate so much time per run from the first reclaimed page on, the warm-up included, as
    /// the probe's --each. For gem-syslatency this is the time that counts; a third of it passes
    /// before.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "4s")]
    pub(crate) time: Nanos,
    /// Make so many runs per row, with a seed each: chance decides when the group's statistics are
    /// summed up. scan/recl is the median [default: 6; gem-syslatency: 1].
    #[arg(long, value_name = "N", value_parser = few::<1, 1_000>)]
    pub(crate) runs: Option<u32>,
    /// Show what the record of a `stopgap probe reclaim` measured beside the model's figures.
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Set the seed of how far apart the tasks begin.
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
