//! Flags of `probe reclaim --as-gem-syslatency`: its own letters.

use clap::value_parser;
use stopgap_probes::reclaim::gem_syslatency::Field;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GemSyslatencyFlags {
    /// Mail 004's protocol instead, without its GPU: IGT's gem_syslatency, its lines and letters.
    #[arg(long, conflicts_with_all = ["mode", "bytes", "passes", "no_load", "load", "limit", "pinned", "file",
          "block", "each", "swappiness", "swap", "shrinker", "duration", "runs"])]
    pub(crate) as_gem_syslatency: bool,
    /// As gem_syslatency: how long it measures; it always ends [default: 10].
    #[arg(short = 't', value_name = "SECONDS", requires = "as_gem_syslatency",
          value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// As gem_syslatency: walk the root file system in the background, from 5 s before, and map each file (reads only).
    #[arg(short = 'b', requires = "as_gem_syslatency")]
    pub(crate) background: bool,
    /// As gem_syslatency: measure mapping, touching and unmapping 2 MiB instead of a timer, beside threads that make and
    /// drop objects of 16 MiB.
    #[arg(short = 'm', requires = "as_gem_syslatency")]
    pub(crate) memory_mode: bool,
    /// As gem_syslatency: print one number: 0 passes of busy threads, 1 mean latency, 2 folded maximum (us).
    #[arg(
        short = 'f',
        value_name = "FIELD",
        requires = "as_gem_syslatency",
        conflicts_with = "json"
    )]
    pub(crate) field: Option<Field>,
}
