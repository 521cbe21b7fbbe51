//! Flags of `probe`, question by question.

use std::path::PathBuf;

use clap::{Arg, Subcommand};
use stopgap_events::question::Question;
use stopgap_events::reclaim::Load;
use stopgap_events::roundtrip::{ClientPolicy, ClientWait, Cpus, Reply, Wait};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::devices::pci::PciAddress;
use stopgap_probes::chunks::{Ratio, Strategy};
use stopgap_probes::placement::Backend;
use stopgap_probes::reclaim::Mode;
use stopgap_probes::reclaim::gem_syslatency::Field;
use stopgap_probes::wakeup;

use super::Common;
use super::values::{MOST_OPERATIONS, MOST_RUNS, U32, between, few, live_load, size, time};

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
    /// How late does a thread wake? Like cyclictest, but a missed period counts as a sample.
    Wakeup(WakeupFlags),
}

impl ProbeQuestion {
    /// Returns the question.
    pub(crate) fn question(&self) -> Question {
        match self {
            ProbeQuestion::Placement(_) => Question::Placement,
            ProbeQuestion::Roundtrip(_) => Question::Roundtrip,
            ProbeQuestion::Chunks(_) => Question::Chunks,
            ProbeQuestion::Reclaim(_) => Question::Reclaim,
            ProbeQuestion::Wakeup(_) => Question::Wakeup,
        }
    }

    /// As [`ProbeQuestion::common`], to change them.
    pub(crate) fn common_mut(&mut self) -> &mut ProbeCommon {
        match self {
            ProbeQuestion::Placement(flags) => &mut flags.common,
            ProbeQuestion::Roundtrip(flags) => &mut flags.common,
            ProbeQuestion::Chunks(flags) => &mut flags.common,
            ProbeQuestion::Reclaim(flags) => &mut flags.common,
            ProbeQuestion::Wakeup(flags) => &mut flags.common,
        }
    }

    /// Returns the flags that every probe has.
    pub(crate) fn common(&self) -> &ProbeCommon {
        match self {
            ProbeQuestion::Placement(flags) => &flags.common,
            ProbeQuestion::Roundtrip(flags) => &flags.common,
            ProbeQuestion::Chunks(flags) => &flags.common,
            ProbeQuestion::Reclaim(flags) => &flags.common,
            ProbeQuestion::Wakeup(flags) => &flags.common,
        }
    }
}

/// Flags of every probe.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProbeCommon {
    /// Take about so long, as 60s. Runs that do not fit are left out, down to three; after twice
    /// the time (at least 10 s more) these, too [default: 60s; reclaim: 110s; chunks --fragment:
    /// 9m].
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Nanos>,
    /// Make so many runs, the unit of evidence. Fewer than 3 give no interval [default: 10;
    /// reclaim: 6; chunks --fragment: 3; roundtrip --x11: 30] [1 to 10k].
    #[arg(long, value_name = "N", value_parser = few::<1, MOST_RUNS>)]
    pub(crate) runs: Option<u32>,
    /// Measure with the parameters of this record of check or probe: its file, or its name where
    /// records go, as check-1795353196-14980.
    #[arg(long, value_name = "RECORD")]
    pub(crate) again: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Flags that may stand beside `--again`, by their names in [`ProbeCommon`] and [`Common`].
const BESIDE_AGAIN: [&str; 10] = [
    "again",
    "duration",
    "runs",
    "output",
    "no_record",
    "json",
    "dry_run",
    "seed",
    "memory",
    "cpus",
];

/// Makes the flags of one question conflict with `--again`, which brings its own.
fn beside_again(arg: Arg) -> Arg {
    match BESIDE_AGAIN.contains(&arg.get_id().as_str()) || arg.is_global_set() {
        true => arg,
        false => arg.conflicts_with("again"),
    }
}

impl ProbeCommon {
    /// Returns how many runs most probes make.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.unwrap_or(10)
    }
}

#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct PlacementFlags {
    /// Lay out these numbers of mappings, as 1000,10000,60000 [default: 100, 1,000, 10,000,
    /// 20,000, 40,000 and just below vm.max_map_count].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
    pub(crate) n: Vec<u32>,
    /// Map memfd or anonymous memory. Or make, map, touch, unmap and destroy buffer objects of
    /// vgem, dma-heap, udmabuf, gl (OpenGL ES pixel-buffer objects; needs a build with --features
    /// gl). Or map a character device itself: device:PATH.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "memfd,anonymous"
    )]
    pub(crate) backend: Vec<Backend>,
    /// Carry out so many steps of pbobench at each N; half of them map [1 to 100m].
    #[arg(long, value_name = "N", default_value = "20000", value_parser = between::<1, MOST_OPERATIONS>)]
    pub(crate) steps: u64,
    /// Run so many threads at once, one of which only faults, as 2,4; 0 for none [default: 2, 4, 8
    /// and so on to all CPUs].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
    pub(crate) threads: Option<Vec<u32>>,
    /// Carry out so many loops of agua; 0 for none [up to 1m].
    #[arg(long, value_name = "N", default_value = "50", value_parser = few::<0, 1_000_000>)]
    pub(crate) agua_loops: u32,
    /// Keep at most so many mappings of agua live [default: 200,000, or what fits] [up to 64m].
    #[arg(long, value_name = "N", value_parser = few::<0, 64_000_000>)]
    pub(crate) agua_live: Option<u32>,
    /// Drop so many mappings of agua when there are more [default: its share, 35,000 of 200,000]
    /// [up to 64m].
    #[arg(long, value_name = "N", value_parser = few::<0, 64_000_000>)]
    pub(crate) agua_drop: Option<u32>,
    /// Carry out so many rounds of each form of freegap; 0 for none [up to 100m].
    #[arg(long, value_name = "N", default_value = "50000", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) freegap_rounds: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Each combination of what is given is measured.
#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct RoundtripFlags {
    /// Let the client wait by poll, epoll, read (blocking) [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) client: Vec<ClientWait>,
    /// Let the server wait by select, poll, epoll [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) server: Vec<Wait>,
    /// Let the server wait for so many descriptors, all but one idle [default: 1,50,500] [1 to
    /// 1m].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<1, 1_000_000>)]
    pub(crate) k: Vec<u32>,
    /// Let the server use so much CPU time per request [default: 0,5us,50us,1ms].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) work: Vec<Nanos>,
    /// Send so many requests by one write; a round trip ends with the last reply [default: 1].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
    pub(crate) batch: Vec<u32>,
    /// Answer a batch together (one writev) or each (a write per reply) [default: together].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) reply: Vec<Reply>,
    /// Run both on one CPU, on two (one each), or free [default: one]. --cpus names the CPUs, the
    /// server's first.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) on: Vec<Cpus>,
    /// Schedule the client as other or batch [default: other].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<ClientPolicy>,
    /// Ask a real X server instead: Xvfb with 500 windows and xwininfo -root -tree, 30 runs on one
    /// CPU, on two and placed freely (packages xvfb and x11-utils).
    #[arg(long, conflicts_with_all = ["client", "server", "k", "work", "batch", "reply", "on",
          "policy", "round_trips"])]
    pub(crate) x11: bool,
    /// Make at most so many round trips in each phase of a run, fewer where the time is short [1
    /// to 100m].
    #[arg(long, value_name = "N", default_value = "20000", value_parser = between::<1, MOST_OPERATIONS>)]
    pub(crate) round_trips: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct ReclaimFlags {
    /// Hold memory in these ways: none, plain, mlock, shm-lock, shm-churn (locked and unlocked
    /// over and over), vmsplice, io-uring, udmabuf. The cost per page is measured for all but none
    /// and shm-churn. The load always runs beside none, too [default: costs of all, the load
    /// beside none, vmsplice, mlock, shm-lock].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) mode: Vec<Mode>,
    /// Hold so much memory in each way [default: 32M as root, else 4M, within RLIMIT_MEMLOCK].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) bytes: Option<Bytes>,
    /// Let reclaim pass over each set so often.
    #[arg(long, value_name = "N", default_value = "3", value_parser = few::<0, U32>)]
    pub(crate) passes: u32,
    /// Measure the costs per page only, without the load, which needs root and a memory cgroup.
    #[arg(long, conflicts_with_all = ["load", "limit", "pinned", "file", "block", "each", "stall", "swappiness"])]
    pub(crate) no_load: bool,
    /// Make memory short by refault (reads a file slightly larger than its room over and over),
    /// stream (reads a file that never ends), populate (fills blocks slightly larger than the
    /// room; needs swap) or mixed (refault, and a block at a time).
    #[arg(long, value_name = "LOAD", default_value = "mixed", value_parser = live_load)]
    pub(crate) load: Load,
    /// Limit the memory cgroup of the load to this, the held set included.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size)]
    pub(crate) limit: Bytes,
    /// Hold so much memory beside the load; several sizes in turn, as 32M,64M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64M", value_parser = size)]
    pub(crate) pinned: Vec<Bytes>,
    /// Let the load read a file of this size [default: an eighth more than the limit leaves].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file: Option<Bytes>,
    /// Let the load populate blocks of this size.
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    pub(crate) block: Bytes,
    /// Run each mode so long once its room is full, the warm-up included [default: what the time
    /// leaves, 250ms to 4s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) each: Option<Nanos>,
    /// Count populating a block as a stall from this length on.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    /// Set the swappiness of the load's cgroup, 0 to 200 (cgroup version 1) [default: the
    /// machine's].
    #[arg(long, value_name = "N")]
    pub(crate) swappiness: Option<u32>,
    /// Make a swap file of this size while the probe runs (root) [default: none].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) swap: Option<Bytes>,
    /// Instead of all above, let this shrinker scan its objects once and time each (root,
    /// CONFIG_SHRINKER_DEBUG). The kernel frees what the shrinker holds: do not do this in
    /// production.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["mode", "bytes", "passes", "no_load", "load", "limit",
          "pinned", "file", "block", "each", "stall", "swappiness", "swap", "duration", "runs"])]
    pub(crate) shrinker: Option<String>,
    #[command(flatten)]
    pub(crate) gem: GemSyslatencyFlags,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Experiment that replaces the strategies of `chunks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ChunksBackend {
    /// Mapping for a device.
    Vfio,
}

#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct ChunksFlags {
    /// Ask about mapping for a device instead: vfio maps a buffer of 4K, 64K and 2M pages for a
    /// PCI device that is bound to vfio-pci, and counts the IOMMU entries. QEMU's edu also copies
    /// through the mapping.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["strategy", "buffers", "fragment", "pinned"])]
    pub(crate) backend: Option<ChunksBackend>,
    /// Use the device of this address with --backend vfio, as 0000:00:04.0 [default: the first
    /// edu, else the first].
    #[arg(long, value_name = "ADDRESS", requires = "backend")]
    pub(crate) device: Option<PciAddress>,
    /// Build buffers of these sizes, as 4M,64M [default: 4M,64M; with --fragment 64M; with
    /// --backend vfio one, 4M].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) size: Vec<Bytes>,
    /// Try these strategies: base, mthp (every size that the kernel has) or one as mthp-64K,
    /// mthp-to-64K (all sizes up to it at once), thp-direct, thp-noreclaim, collapse, hugetlb
    /// [default: all but mthp-to-SIZE; see --fragment].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) strategy: Vec<Strategy>,
    /// Hold so many buffers of each size at once, fewer where they would be more than 128M
    /// [default: 8; with --fragment 1] [1 to 100k].
    #[arg(long, value_name = "N", value_parser = few::<1, 100_000>)]
    pub(crate) buffers: Option<u32>,
    /// Fragment memory first (root): keep this share of page frames, as 1/4, in all free memory,
    /// anew for each strategy of each run (15 to 40 s each). This holds that share of free memory,
    /// so it needs --memory; 6 GiB, on small machines a third, stay available at every moment. The
    /// strategies are then by default base, thp-noreclaim, mthp-64K, mthp-to-64K, thp-direct.
    #[arg(long, value_name = "RATIO")]
    pub(crate) fragment: Option<Ratio>,
    /// Pin the kept pages of --fragment, so that compaction cannot move them.
    #[arg(long, requires = "fragment")]
    pub(crate) pinned: bool,
    /// Leave the knobs of transparent huge pages and hugetlb as they are. Without this flag root
    /// sets them for each strategy and puts them back.
    #[arg(long)]
    pub(crate) no_knobs: bool,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Flags of `probe reclaim --as-gem-syslatency`: its own letters.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GemSyslatencyFlags {
    /// Follow mail 004's protocol instead, without its GPU: the lines and letters of IGT's
    /// gem_syslatency.
    #[arg(long, conflicts_with_all = ["mode", "bytes", "passes", "no_load", "load", "limit", "pinned", "file",
          "block", "each", "swappiness", "swap", "shrinker", "duration", "runs"])]
    pub(crate) as_gem_syslatency: bool,
    /// As gem_syslatency: measure so long; it always ends [default: 10].
    #[arg(short = 't', value_name = "SECONDS", requires = "as_gem_syslatency",
          value_parser = between::<1, 86_400>)]
    pub(crate) seconds: Option<u64>,
    /// As gem_syslatency: walk the root file system in the background, from 5 s before on, and map
    /// each file (reads only).
    #[arg(short = 'b', requires = "as_gem_syslatency")]
    pub(crate) background: bool,
    /// As gem_syslatency: measure how long it takes to map, touch and unmap 2 MiB instead of a
    /// timer, beside threads that make and drop objects of 16 MiB.
    #[arg(short = 'm', requires = "as_gem_syslatency")]
    pub(crate) memory_mode: bool,
    /// As gem_syslatency: print one number: 0 passes of busy threads, 1 mean latency, 2 folded
    /// maximum (us).
    #[arg(
        short = 'f',
        value_name = "FIELD",
        requires = "as_gem_syslatency",
        conflicts_with = "json"
    )]
    pub(crate) field: Option<Field>,
}

/// A thread pinned to each CPU sleeps until an absolute time, again and again; how late it wakes
/// is measured from that time on.
#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct WakeupFlags {
    /// Let this time pass between two intended wake-ups; 50us to 1s.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) interval: Nanos,
    /// Schedule the threads as fifo (SCHED_FIFO; where the kernel refuses it, as other, and the
    /// screen says so) or as other (SCHED_OTHER).
    #[arg(long, value_name = "POLICY", default_value = "fifo")]
    pub(crate) policy: wakeup::Policy,
    /// Set the priority under fifo, 1 to 99 [default: 80].
    #[arg(long, value_name = "N", value_parser = few::<1, 99>)]
    pub(crate) priority: Option<u32>,
    /// Count a wake-up as a stall from this lateness on.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}
