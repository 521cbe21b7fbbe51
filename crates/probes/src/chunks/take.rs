//! What a load child does: take buffers by one strategy, look at them, release them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stopgap_chunks::iommu::{self, PageSizes, Run};
use stopgap_events::memory::Protection;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Mapping};
use stopgap_kernel::{Error, System, cgroup, own, shortage};

use super::vfio::runs;
use crate::contract::Parameters;

/// IOMMUs for which entries are counted.
pub(super) const IOMMUS: [PageSizes; 3] = [
    PageSizes::K4_M2_G1,
    PageSizes::K4_K64_M1_M16,
    PageSizes::K4_K64_M2,
];

/// How often a block is collapsed until `EAGAIN` is believed.
const COLLAPSE_TRIES: u32 = 10;

/// How the memory comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// By first touch, after this advice.
    Fault(Option<Advice>),
    /// By first touch after this advice, then collapsed into PMD-size pages.
    Collapse(Option<Advice>),
    /// By first touch, from the pool of pages of this size.
    Hugetlb(Bytes),
}

/// Task of the child.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) how: How,
    /// Bytes of a buffer.
    pub(super) size: Bytes,
    /// Buffers held at once.
    pub(super) buffers: u64,
    /// Bytes of the pages that are asked for.
    pub(super) chunk: Bytes,
    /// How the knobs of huge pages stand, for the record.
    pub(super) knobs: Parameters,
    /// Bytes of a block: the PMD size, or the buffer where that is smaller.
    pub(super) block: Bytes,
    /// Take and release everything once before anything is measured.
    pub(super) warm: bool,
    /// When to stop between two blocks, on the monotonic clock.
    pub(super) deadline: Nanos,
}

/// A length of time and when it began (monotonic clock), in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) start_ns: u64,
    pub(super) length_ns: u64,
}

/// Figures that a child measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Taken {
    /// Each finished buffer: map, advice, first touch of every page, collapse. The sum of its
    /// steps; looking at the clock and at counters between two of them is left out.
    pub(super) takes: Vec<Sample>,
    /// Each buffer's munmap.
    pub(super) releases: Vec<Sample>,
    /// Each block, without the time in which it was ready to run and had no CPU: that is not
    /// the allocator's. First touch; with [`How::Collapse`] the collapse.
    pub(super) blocks: Vec<Sample>,
    /// Each buffer's collapse, without its first touch.
    pub(super) collapses: Vec<Sample>,
    /// Minor faults of each buffer.
    pub(super) faults: Vec<u64>,
    /// Physical runs of each buffer; empty where they cannot be known.
    pub(super) runs: Vec<u64>,
    /// Entries of each buffer for each of [`IOMMUS`]; empty where they cannot be known.
    pub(super) entries: Vec<[u64; IOMMUS.len()]>,
    /// Time ready to run without a CPU, while taking.
    pub(super) waited_ns: u64,
    /// Direct reclaims and compactions that the kernel counted meanwhile, of all processes.
    pub(super) reclaims: Option<u64>,
    /// Counts of the kernel meanwhile, of all processes, by the names of [`WORK`].
    pub(super) work: BTreeMap<String, u64>,
    /// Why they are not known.
    pub(super) uncounted: Option<String>,
    /// Buffers that the deadline cut short.
    pub(super) unfinished: u64,
    /// The failure that ended it early.
    pub(super) error: Option<String>,
    /// Why `runs` and `entries` are not known.
    pub(super) hidden: Option<String>,
    /// Why time without a CPU is not known; it is then part of the blocks.
    pub(super) unseen_wait: Option<String>,
}

/// Takes, looks, releases. Whatever fails ends it; what was measured before stays.
pub(super) fn carry_out(system: &dyn System, task: &Task) -> Taken {
    let mut taken = Taken::default();
    if task.warm {
        let mut unmeasured = Taken::default();
        if let Err(error) = hold(system, task, &mut unmeasured) {
            taken.error = Some(error.to_string());
            return taken;
        }
    }
    let before = shortage::direct_reclaims(system);
    let work = Counted::read(system);
    if let Err(error) = hold(system, task, &mut taken) {
        taken.error = Some(error.to_string());
    }
    taken.work = Counted::read(system).since(&work);
    match (before, shortage::direct_reclaims(system)) {
        (Ok(before), Ok(after)) => taken.reclaims = Some(after.saturating_sub(before)),
        (Err(error), _) | (_, Err(error)) => taken.uncounted = Some(error.to_string()),
    }
    taken
}

fn hold(system: &dyn System, task: &Task, taken: &mut Taken) -> Result<(), Error> {
    let mut held = Vec::new();
    for _ in 0..task.buffers {
        let (mapping, finished) = take_buffer(system, task, taken)?;
        held.push(mapping);
        if !finished {
            taken.unfinished += 1;
            break;
        }
    }
    if taken.unfinished == 0 {
        for mapping in &held {
            look(system, mapping, taken);
        }
    }
    for mapping in held {
        let start = system.now();
        system.unmap(mapping)?;
        taken.releases.push(since(system, start));
    }
    Ok(())
}

fn since(system: &dyn System, start: Nanos) -> Sample {
    Sample {
        start_ns: start.0,
        length_ns: system.now().saturating_sub(start).0,
    }
}

/// Takes one buffer; `false`: not all of it, time was over.
fn take_buffer(
    system: &dyn System,
    task: &Task,
    taken: &mut Taken,
) -> Result<(Mapping, bool), Error> {
    let faults_before = own::minor_faults(system).ok();
    let start = system.now();
    let (kind, advice) = match task.how {
        How::Fault(advice) | How::Collapse(advice) => (MapKind::Anonymous, advice),
        How::Hugetlb(page) => (MapKind::HugeTlb { page }, None),
    };
    let mapping = system.map(&MapRequest {
        length: task.size,
        protection: Protection::Write,
        kind,
        align: Bytes(task.block.0.next_power_of_two()),
    })?;
    if let Some(advice) = advice {
        system.advise(&mapping, Bytes(0), task.size, advice)?;
    }
    let mut length = since(system, start).length_ns;

    let collapse = matches!(task.how, How::Collapse(_));
    let touch = |offset, length| system.touch(&mapping, offset, length);
    let first = blocks(system, task, &touch)?;
    length += first.steps_ns;
    taken.waited_ns += first.waited_ns;
    let mut finished = first.finished;
    if !collapse {
        taken.blocks.extend(first.samples);
    } else if finished {
        // The advice that kept huge pages away would keep them away for ever.
        system.advise(&mapping, Bytes(0), task.size, Advice::HugePage)?;
        let begun = system.now();
        let second = blocks(system, task, &|offset, length| {
            collapse_block(system, &mapping, offset, length)
        })?;
        length += second.steps_ns;
        taken.waited_ns += second.waited_ns;
        taken.blocks.extend(second.samples);
        finished = second.finished;
        if finished {
            taken.collapses.push(Sample {
                start_ns: begun.0,
                length_ns: second.steps_ns,
            });
        }
    }
    taken.unseen_wait = taken.unseen_wait.take().or(first.unseen_wait);
    if finished {
        taken.takes.push(Sample {
            start_ns: start.0,
            length_ns: length,
        });
        if let (Some(before), Ok(now)) = (faults_before, own::minor_faults(system)) {
            taken.faults.push(now.saturating_sub(before));
        }
    }
    Ok((mapping, finished))
}

/// Collapses, and tries again where the kernel says so: `EAGAIN` is a page that somebody else
/// holds for a moment (madvise(2)).
fn collapse_block(
    system: &dyn System,
    mapping: &Mapping,
    offset: Bytes,
    length: Bytes,
) -> Result<(), Error> {
    let attempt = || system.advise(mapping, offset, length, Advice::Collapse);
    for _ in 1..COLLAPSE_TRIES {
        match attempt() {
            Err(error) if error.is_temporary() => {}
            done => return done,
        }
    }
    attempt()
}

/// One pass over a buffer, block by block.
struct Pass {
    samples: Vec<Sample>,
    /// All steps together, time without a CPU included.
    steps_ns: u64,
    waited_ns: u64,
    finished: bool,
    unseen_wait: Option<String>,
}

fn blocks(
    system: &dyn System,
    task: &Task,
    step: &dyn Fn(Bytes, Bytes) -> Result<(), Error>,
) -> Result<Pass, Error> {
    let count = task.size.0.div_ceil(task.block.0);
    let mut pass = Pass {
        samples: Vec::new(),
        steps_ns: 0,
        waited_ns: 0,
        finished: true,
        unseen_wait: None,
    };
    let mut waited = own::waited_for_cpu(system);
    for number in 0..count {
        if system.now() >= task.deadline {
            pass.finished = false;
            break;
        }
        let offset = Bytes(number * task.block.0);
        let length = Bytes(task.block.0.min(task.size.0 - offset.0));
        let start = system.now();
        step(offset, length)?;
        let mut sample = since(system, start);
        pass.steps_ns += sample.length_ns;
        let before = waited;
        waited = own::waited_for_cpu(system);
        if let (Ok(before), Ok(now)) = (&before, &waited) {
            let without_cpu = now.saturating_sub(*before).0;
            pass.waited_ns += without_cpu;
            sample.length_ns = sample.length_ns.saturating_sub(without_cpu);
        }
        pass.samples.push(sample);
    }
    pass.unseen_wait = waited.err().map(|error| error.to_string());
    Ok(pass)
}

/// The physical side of a buffer, where it is shown to us.
fn look(system: &dyn System, mapping: &Mapping, taken: &mut Taken) {
    let reclaimed = "pages were reclaimed before they could be looked at";
    let runs = match runs(system, mapping, reclaimed) {
        Ok(runs) => runs,
        Err(why) => {
            taken.hidden = Some(why);
            return;
        }
    };
    match entries(&runs, mapping.range().length()) {
        Ok(entries) => {
            taken.runs.push(runs.len() as u64);
            taken.entries.push(entries);
        }
        Err(error) => taken.hidden = Some(error.to_string()),
    }
}

/// Entries for each of [`IOMMUS`], at an IOVA that is aligned as `iommu-dma` aligns it.
fn entries(runs: &[Run], length: Bytes) -> Result<[u64; IOMMUS.len()], iommu::MapError> {
    let iova = iommu::iova_alignment(length.0).ok_or(iommu::MapError::TooLong)?;
    let mut counts = [0; IOMMUS.len()];
    for (count, sizes) in counts.iter_mut().zip(IOMMUS) {
        *count = iommu::entries(runs, sizes, iova)?.values().sum();
    }
    Ok(counts)
}

// Counts of reclaim and compaction while buffers were taken.
//
// `/proc/vmstat` counts for the whole machine, and `memory.stat` of our own cgroup (version 2) the
// pages of that group alone: both together tell whose pages were in the way. A counter that the
// kernel does not have is not among the figures, never 0.

/// A figure and the counters whose sum it is.
pub(super) struct Work {
    /// Name of its series.
    pub(super) name: &'static str,
    /// Its unit, a buffer.
    pub(super) unit: &'static str,
    counters: &'static [&'static str],
    /// Those that a kernel thread did.
    daemon: &'static [&'static str],
    /// Whether it counts our own cgroup; else the machine.
    own: bool,
}

const fn machine(
    name: &'static str,
    unit: &'static str,
    counters: &'static [&'static str],
) -> Work {
    Work {
        name,
        unit,
        counters,
        daemon: &[],
        own: false,
    }
}

/// All figures. Names of counters: `mm/vmstat.c`, `mm/memcontrol.c`, Linux 6.12.
pub(super) const WORK: [Work; 8] = [
    machine(
        "scanned by direct reclaim",
        "pages/buffer",
        &["pgscan_direct"],
    ),
    machine("reclaimed directly", "pages/buffer", &["pgsteal_direct"]),
    machine("direct compactions", "times/buffer", &["compact_stall"]),
    machine(
        "direct compactions that failed",
        "times/buffer",
        &["compact_fail"],
    ),
    Work {
        name: "scanned by compaction",
        unit: "pages/buffer",
        counters: &["compact_migrate_scanned", "compact_free_scanned"],
        daemon: &[
            "compact_daemon_migrate_scanned",
            "compact_daemon_free_scanned",
        ],
        own: false,
    },
    machine("moved", "pages/buffer", &["pgmigrate_success"]),
    Work {
        name: "scanned in the own cgroup",
        unit: "pages/buffer",
        counters: &["pgscan"],
        daemon: &[],
        own: true,
    },
    Work {
        name: "reclaimed in the own cgroup",
        unit: "pages/buffer",
        counters: &["pgsteal"],
        daemon: &[],
        own: true,
    },
];

/// Counters at one time.
pub(super) struct Counted {
    machine: BTreeMap<String, u64>,
    own: BTreeMap<String, u64>,
}

impl Counted {
    /// Reads both files; what cannot be read has no counter.
    pub(super) fn read(system: &dyn System) -> Counted {
        Counted {
            machine: cgroup::counters(system, "/proc/vmstat").unwrap_or_default(),
            own: cgroup::own_counters(system).unwrap_or_default(),
        }
    }

    /// Returns the growth since `earlier`, by the name of the figure.
    pub(super) fn since(&self, earlier: &Counted) -> BTreeMap<String, u64> {
        let figure = |work: &Work| {
            let (now, then) = match work.own {
                true => (&self.own, &earlier.own),
                false => (&self.machine, &earlier.machine),
            };
            let since = |name: &&str| Some(now.get(*name)?.saturating_sub(*then.get(*name)?));
            let sum = work.counters.iter().map(since).sum::<Option<u64>>()?;
            // Before 4.12 kcompactd's part was not counted by itself.
            let daemon: u64 = work.daemon.iter().filter_map(since).sum();
            Some((work.name.to_owned(), sum.saturating_sub(daemon)))
        };
        WORK.iter().filter_map(figure).inserted()
    }
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::fake::Fake;

    use super::*;

    #[test]
    fn what_the_kernel_does_not_count_is_no_figure() {
        let at = |text: &str| Counted::read(&Fake::default().with_file("/proc/vmstat", text));
        let before = at(
            "pgscan_direct 10\ncompact_migrate_scanned 1\ncompact_free_scanned 2\n\
             compact_daemon_migrate_scanned 0\n",
        );
        let after = at(
            "pgscan_direct 14\ncompact_migrate_scanned 8\ncompact_free_scanned 9\n\
             compact_daemon_migrate_scanned 3\n",
        );
        let since = after.since(&before);
        let expected = [
            ("scanned by compaction", 11),
            ("scanned by direct reclaim", 4),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(since, BTreeMap::from(expected));
        assert!(after.since(&at("")).is_empty());
    }
}
