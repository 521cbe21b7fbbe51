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
    /// How late does a thread wake? As cyclictest, but a missed period is a sample.
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
    /// How long it should take, as 60s; runs that do not fit are left out, down to three, and after twice the
    /// time (at least 10 s more than it) also those [default: 60s; reclaim: 110s; chunks --fragment: 9m].
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Nanos>,
    /// Runs; the unit of evidence. Fewer than 3 give no interval [default: 10; reclaim: 6; chunks
    /// --fragment: 3; roundtrip --x11: 30] [1 to 10k].
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
    /// Numbers of mappings to lay out, as 1000,10000,60000 [default: 100, 1,000, 10,000,
    /// 20,000, 40,000 and just under vm.max_map_count].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
    pub(crate) n: Vec<u32>,
    /// What backs the mappings: memfd, anonymous; or whose buffer objects are made, mapped, touched, unmapped and
    /// destroyed: vgem, dma-heap, udmabuf, gl (OpenGL ES pixel-buffer objects; needs a build with --features gl); or a
    /// character device that is mapped itself: device:PATH.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "memfd,anonymous"
    )]
    pub(crate) backend: Vec<Backend>,
    /// Steps of pbobench at each N; half of them map [1 to 100m].
    #[arg(long, value_name = "N", default_value = "20000", value_parser = between::<1, MOST_OPERATIONS>)]
    pub(crate) steps: u64,
    /// Numbers of threads at once, one of which only faults, as 2,4; 0 for none [default: 2,
    /// 4, 8 and on to all CPUs].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
    pub(crate) threads: Option<Vec<u32>>,
    /// Loops of agua; 0 for none [up to 1m].
    #[arg(long, value_name = "N", default_value = "50", value_parser = few::<0, 1_000_000>)]
    pub(crate) agua_loops: u32,
    /// Mappings that agua keeps live at most [default: 200,000, or what fits] [up to 64m].
    #[arg(long, value_name = "N", value_parser = few::<0, 64_000_000>)]
    pub(crate) agua_live: Option<u32>,
    /// Mappings that agua drops when there are more [default: its share, 35,000 of 200,000] [up to 64m].
    #[arg(long, value_name = "N", value_parser = few::<0, 64_000_000>)]
    pub(crate) agua_drop: Option<u32>,
    /// Rounds of each form of freegap; 0 for none [up to 100m].
    #[arg(long, value_name = "N", default_value = "50000", value_parser = between::<0, MOST_OPERATIONS>)]
    pub(crate) freegap_rounds: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Each combination of what is given is measured.
#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct RoundtripFlags {
    /// How the client waits: poll, epoll, read (blocking) [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) client: Vec<ClientWait>,
    /// How the server waits: select, poll, epoll [default: all].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) server: Vec<Wait>,
    /// Descriptors that the server waits for, all but one idle [default: 1,50,500] [1 to 1m].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<1, 1_000_000>)]
    pub(crate) k: Vec<u32>,
    /// CPU time that the server spends on each request [default: 0,5us,50us,1ms].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time)]
    pub(crate) work: Vec<Nanos>,
    /// Requests sent by one write; a round trip ends with the last reply [default: 1].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = few::<0, U32>)]
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
    pub(crate) policy: Vec<ClientPolicy>,
    /// Ask a real X server instead: Xvfb with 500 windows, xwininfo -root -tree, 30 runs on one CPU, on two
    /// and placed freely (packages xvfb and x11-utils).
    #[arg(long, conflicts_with_all = ["client", "server", "k", "work", "batch", "reply", "on",
          "policy", "round_trips"])]
    pub(crate) x11: bool,
    /// Round trips in each phase of a run at most; fewer where the time is short [1 to 100m].
    #[arg(long, value_name = "N", default_value = "20000", value_parser = between::<1, MOST_OPERATIONS>)]
    pub(crate) round_trips: u64,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct ReclaimFlags {
    /// What is done with memory: none, plain, mlock, shm-lock, shm-churn (locked and unlocked over and
    /// over), vmsplice, io-uring, udmabuf. Costs a page are measured of all but none and shm-churn; beside the load
    /// none always stands [default: costs of all, the load beside none, vmsplice, mlock, shm-lock].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) mode: Vec<Mode>,
    /// Memory of each mode [default: 32M as root, else 4M, within RLIMIT_MEMLOCK].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) bytes: Option<Bytes>,
    /// Passes of reclaim over each set.
    #[arg(long, value_name = "N", default_value = "3", value_parser = few::<0, U32>)]
    pub(crate) passes: u32,
    /// Leave out the load (root and a memory cgroup): costs alone.
    #[arg(long, conflicts_with_all = ["load", "limit", "pinned", "file", "block", "each", "stall", "swappiness"])]
    pub(crate) no_load: bool,
    /// What makes memory short: refault (a file slightly larger than its room, round and round), stream (a
    /// file that never ends), populate (blocks, slightly more than the room; needs swap), mixed (refault, and
    /// a block at a time).
    #[arg(long, value_name = "LOAD", default_value = "mixed", value_parser = live_load)]
    pub(crate) load: Load,
    /// Load: limit of the memory cgroup, the held set included.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size)]
    pub(crate) limit: Bytes,
    /// Load: the held set; several in turn, as 32M,64M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64M", value_parser = size)]
    pub(crate) pinned: Vec<Bytes>,
    /// Load: the file that is read [default: an eighth more than the limit leaves].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) file: Option<Bytes>,
    /// Load: what is populated at a time.
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    pub(crate) block: Bytes,
    /// Load: how long one run of one mode takes once its room is full, the warm-up included [default: what
    /// the time leaves, 250ms to 4s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) each: Option<Nanos>,
    /// Load: from what length on populating a block counts as a stall.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    /// Load: swappiness of its cgroup, 0 to 200 (cgroup version 1) [default: the machine's].
    #[arg(long, value_name = "N")]
    pub(crate) swappiness: Option<u32>,
    /// Make a swap file of this size for the time of the probe (root) [default: none].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) swap: Option<Bytes>,
    /// Nothing of the above: have this shrinker scan what it has, once, and time it an object (root,
    /// CONFIG_SHRINKER_DEBUG). What it holds is freed: do not do this in production.
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
    /// Ask another side: vfio maps a buffer of 4K, 64K and 2M pages for a PCI device that is bound to vfio-pci, and
    /// counts the IOMMU entries; QEMU's edu also copies through the mapping.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["strategy", "buffers", "fragment", "pinned"])]
    pub(crate) backend: Option<ChunksBackend>,
    /// With --backend vfio: the device's address, as 0000:00:04.0 [default: the first edu, else the first].
    #[arg(long, value_name = "ADDRESS", requires = "backend")]
    pub(crate) device: Option<PciAddress>,
    /// Buffer sizes, as 4M,64M [default: 4M,64M; with --fragment 64M; with --backend vfio one, 4M].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) size: Vec<Bytes>,
    /// Strategies: base, mthp (every size that the kernel has) or one as mthp-64K, mthp-to-64K (all
    /// sizes up to it at once), thp-direct, thp-noreclaim, collapse, hugetlb [default: all but
    /// mthp-to-SIZE; see --fragment].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) strategy: Vec<Strategy>,
    /// Buffers of each size that are held at once; fewer where they would be more than 128M
    /// [default: 8; with --fragment 1] [1 to 100k].
    #[arg(long, value_name = "N", value_parser = few::<1, 100_000>)]
    pub(crate) buffers: Option<u32>,
    /// Make memory fragmented first (root): keep this share of page frames, as 1/4, in all memory that is
    /// free, for each strategy of each run anew (15 to 40 s each). Holds that share of what is free, so it
    /// needs --memory; 6 GiB, on small machines a third, stay available at every moment. Strategies are
    /// then by default base, thp-noreclaim, mthp-64K, mthp-to-64K, thp-direct.
    #[arg(long, value_name = "RATIO")]
    pub(crate) fragment: Option<Ratio>,
    /// With --fragment: pin the kept pages, so that compaction cannot move them.
    #[arg(long, requires = "fragment")]
    pub(crate) pinned: bool,
    /// Use the knobs of transparent huge pages and hugetlb as they stand; without it root sets
    /// them for each strategy and puts them back.
    #[arg(long)]
    pub(crate) no_knobs: bool,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}

/// Flags of `probe reclaim --as-gem-syslatency`: its own letters.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GemSyslatencyFlags {
    /// Mail 004's protocol instead, without its GPU: IGT's gem_syslatency, its lines and letters.
    #[arg(long, conflicts_with_all = ["mode", "bytes", "passes", "no_load", "load", "limit", "pinned", "file",
          "block", "each", "swappiness", "swap", "shrinker", "duration", "runs"])]
    pub(crate) as_gem_syslatency: bool,
    /// As gem_syslatency: how long it measures; it always ends [default: 10].
    #[arg(short = 't', value_name = "SECONDS", requires = "as_gem_syslatency",
          value_parser = between::<1, 86_400>)]
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

/// A thread pinned to each CPU sleeps until an absolute time, again and again; how late it wakes
/// is measured from that time on.
#[derive(Debug, clap::Args)]
#[command(mut_args(beside_again))]
pub(crate) struct WakeupFlags {
    /// Between two intended wake-ups; 50us to 1s.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) interval: Nanos,
    /// Scheduling policy: fifo (SCHED_FIFO; where it is refused the ordinary one, and that is said),
    /// other (SCHED_OTHER).
    #[arg(long, value_name = "POLICY", default_value = "fifo")]
    pub(crate) policy: wakeup::Policy,
    /// Priority under fifo, 1 to 99 [default: 80].
    #[arg(long, value_name = "N", value_parser = few::<1, 99>)]
    pub(crate) priority: Option<u32>,
    /// From what lateness on a wake-up counts as a stall.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = time)]
    pub(crate) stall: Nanos,
    #[command(flatten)]
    pub(crate) common: ProbeCommon,
}
