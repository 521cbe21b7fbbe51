//! Histograms of waits, which the programs count by process, call and how a thread waited (`bpf/histograms.bpf.h`).
//!
//! ```text
//! period 2: the programs fill set 0 | period 3: they fill set 1; set 0 is read, then cleared | period 4: set 0 again
//! ```

use std::collections::HashMap as Names;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::{Ebpf, util};

use crate::Error;
use crate::capture::{lacks_map, map, unsupported};

/// Number of buckets of a [`Histogram`].
pub const BUCKETS: usize = 109;
/// The bit of the shortest time of the second bucket: 1.024 us.
const SHORTEST_BIT: usize = 10;
/// Bytes of `struct doubling`, and how many of them a `struct sum` has; the first has bucket 0 as its last.
const DOUBLING: usize = 32;
const DOUBLINGS: usize = BUCKETS.div_ceil(4);
const SUM: usize = (DOUBLINGS + 1) * DOUBLING;
/// Bytes of `struct process_name`, of `struct kind_of_wait` and of `struct periods`.
const PROCESS: usize = 32;
const KIND: usize = 16;
const PERIODS: usize = 24;
/// The map that has the one variable of the programs that is not constant, `periods`.
const PERIODS_OF: &str = ".bss";
/// Most bytes of all histograms of all CPUs, unless that leaves fewer than [`LEAST_KINDS`].
const MEMORY: usize = 64 << 20;
const LEAST_KINDS: u32 = 256;
const MOST_KINDS: u32 = 1 << 16;
const MOST_PROCESSES: u32 = 1024;

/// How a thread waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// Ready, without a CPU.
    RunQueue,
    /// Stopped by the CPU quota of its cgroup.
    CpuQuota,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Asleep; a signal wakes it.
    Asleep,
    /// Asleep, and no signal wakes it (state D).
    Uninterruptible,
    /// The kernel counts the sleep as one for I/O.
    ForIo,
    /// In futex(2), whose arguments are those of a lock.
    FutexLock,
    /// For the mmap_lock of its own process.
    MmapLock,
    /// While in direct reclaim.
    DirectReclaim,
    /// While in reclaim of its memory cgroup.
    MemcgReclaim,
    /// While in compaction.
    Compaction,
    /// While in a shrinker.
    Shrinker,
    /// For another lock of the kernel.
    Lock,
    /// For the mmap_lock of any process.
    AnyMmapLock,
    /// For a DMA fence.
    Fence,
}

/// As `enum how`.
const HOWS: [How; 15] = [
    How::RunQueue,
    How::CpuQuota,
    How::Stopped,
    How::Asleep,
    How::Uninterruptible,
    How::ForIo,
    How::FutexLock,
    How::MmapLock,
    How::DirectReclaim,
    How::MemcgReclaim,
    How::Compaction,
    How::Shrinker,
    How::Lock,
    How::AnyMmapLock,
    How::Fence,
];

/// Waits of one kind that ended in one period. A thread that slept and then waited for a CPU counts in two: the sleep, and the wait
/// for the CPU ([`How::RunQueue`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The process; `None`: one of the others, for which there was no room.
    pub process: Option<Process>,
    /// The system call; `None` outside of one, and where there was no room for the kind.
    pub call: Option<u32>,
    /// How it waited.
    pub how: How,
    /// Number of waits.
    pub waits: u64,
    /// Sum of their lengths in nanoseconds.
    pub ns: u64,
    /// Length of the longest wait in nanoseconds.
    pub longest: u64,
    /// Number of waits by bucket; [`bucket_begin`] returns a bucket's lengths.
    pub buckets: [u64; BUCKETS],
}

/// Processes of one name in one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// The name of the process's first thread.
    pub comm: String,
    /// The id of its cgroup in the unified hierarchy.
    pub cgroup: u64,
}

/// Returns the shortest time of a bucket in nanoseconds. There are four buckets per doubling, from 1.024 us to 2
/// minutes.
#[must_use]
pub fn bucket_begin(bucket: usize) -> u64 {
    let Some(step) = bucket.checked_sub(1) else {
        return 0;
    };
    let step = step.min(BUCKETS - 2);
    (4 + (step as u64 & 3)) << (SHORTEST_BIT - 2 + step / 4)
}

/// The sizes of the maps, and the reader's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sets {
    /// Most kinds of a period.
    pub(crate) kinds: u32,
    pub(crate) processes: u32,
    period: u32,
    /// Whether the set of the last period has not been read yet.
    closed: bool,
}

impl Sets {
    /// Returns sets of `kinds` of waits per period, or of fewer if so many CPUs would need too much memory.
    pub(crate) fn new(kinds: u32, cpus: usize) -> Sets {
        let most = MEMORY / (2 * SUM * cpus.max(1));
        let most = u32::try_from(most).unwrap_or(MOST_KINDS).max(LEAST_KINDS);
        let kinds = kinds.clamp(1, most.min(MOST_KINDS));
        Sets {
            kinds,
            processes: MOST_PROCESSES.min(kinds),
            period: 2,
            closed: false,
        }
    }

    /// Returns the number of entries of the map `sums`.
    pub(crate) fn sums(&self) -> u32 {
        2 * self.stride()
    }

    fn stride(&self) -> u32 {
        HOWS.len() as u32 + self.kinds
    }

    /// Begins the first period.
    pub(crate) fn begin(&self, ebpf: &mut Ebpf) -> Result<(), Error> {
        write(ebpf, periods(self.period, [0; 2], [0; 2]))
    }

    /// Ends a period and begins the next one. The counts must be read before the next call.
    pub(crate) fn turn(&mut self, ebpf: &mut Ebpf) -> Result<(), Error> {
        if self.closed {
            self.read(ebpf)?; // nobody wanted it
        }
        // The set of the new period is clear. The counts of the old one are read with it.
        let ends = counts(ebpf)?;
        let set = self.period as usize & 1;
        let (mut processes, mut kinds) = (ends.0, ends.1);
        (processes[1 - set], kinds[1 - set]) = (0, 0);
        self.period += 1;
        self.closed = true;
        write(ebpf, periods(self.period, processes, kinds))
    }

    /// Returns the counts of the period that ended last, and clears its set; nothing if it was read already. The
    /// period must have ended some milliseconds ago, so that programs that ran at that time have finished.
    pub(crate) fn read(&mut self, ebpf: &mut Ebpf) -> Result<Vec<Histogram>, Error> {
        if !std::mem::take(&mut self.closed) {
            return Ok(Vec::new());
        }
        let set = (self.period - 1) & 1;
        let mut names: Names<u32, Process> = Names::new();
        for (name, number) in taken::<PROCESS>(ebpf, "processes", set)? {
            names.insert(number, process(&name));
        }
        let mut kinds: Vec<(u32, Option<u32>, Option<u32>, How)> = Vec::new();
        for (kind, sum) in taken::<KIND>(ebpf, "kinds", set)? {
            let Some(&how) = HOWS.get(u32_at(&kind, 12) as usize) else {
                continue;
            };
            let call = u32::try_from(u32_at(&kind, 8).cast_signed()).ok();
            kinds.push((sum, Some(u32_at(&kind, 4)), call, how));
        }
        let first = set * self.stride();
        let others = (first..).zip(HOWS);
        kinds.extend(others.map(|(sum, how)| (sum, None, None, how)));
        let map = map(ebpf, "sums")?;
        let mut sums: PerCpuArray<&mut MapData, [u8; SUM]> =
            PerCpuArray::try_from(map).map_err(|_| lacks_map())?;
        let cpus = util::nr_cpus().unwrap_or(1);
        let mut found = Vec::new();
        for (sum, process, call, how) in kinds {
            let each = sums.get(&sum, 0).map_err(|error| unread(&error))?;
            let process = process.and_then(|number| names.get(&number).cloned());
            let mut histogram = Histogram {
                process,
                call,
                how,
                waits: 0,
                ns: 0,
                longest: 0,
                buckets: [0; BUCKETS],
            };
            each.iter().for_each(|bytes| histogram.add(bytes));
            if histogram.waits > 0 {
                found.push(histogram);
                let zero = PerCpuValues::try_from(vec![[0; SUM]; cpus]);
                let zero = zero.map_err(|error| unsupported("clearing histograms", &error))?;
                sums.set(sum, zero, 0).map_err(|error| unread(&error))?;
            }
        }
        Ok(found)
    }
}

fn unread(error: &MapError) -> Error {
    unsupported("reading histograms", error)
}

/// Removes the keys of a set from a map, and returns each with its number.
fn taken<const KEY: usize>(
    ebpf: &mut Ebpf,
    name: &str,
    set: u32,
) -> Result<Vec<([u8; KEY], u32)>, Error> {
    let map = map(ebpf, name)?;
    let mut map: HashMap<&mut MapData, [u8; KEY], u32> =
        HashMap::try_from(map).map_err(|_| lacks_map())?;
    let of_set: Vec<([u8; KEY], u32)> = map
        .iter()
        .filter_map(Result::ok)
        .filter(|(key, _)| u32_at(key, 0) == set)
        .collect();
    for (key, _) in &of_set {
        map.remove(key).map_err(|error| unread(&error))?;
    }
    Ok(of_set)
}

fn write(ebpf: &mut Ebpf, bytes: [u8; PERIODS]) -> Result<(), Error> {
    let map = map(ebpf, PERIODS_OF)?;
    let mut map: Array<&mut MapData, [u8; PERIODS]> =
        Array::try_from(map).map_err(|_| lacks_map())?;
    map.set(0, bytes, 0)
        .map_err(|error| unsupported("a period of histograms", &error))
}

/// Returns the number of processes and kinds that have a number, by set.
fn counts(ebpf: &mut Ebpf) -> Result<([u32; 2], [u32; 2]), Error> {
    let map = map(ebpf, PERIODS_OF)?;
    let map: Array<&mut MapData, [u8; PERIODS]> = Array::try_from(map).map_err(|_| lacks_map())?;
    let bytes = map
        .get(&0, 0)
        .map_err(|error| unsupported("a period of histograms", &error))?;
    Ok((
        [u32_at(&bytes, 8), u32_at(&bytes, 12)],
        [u32_at(&bytes, 16), u32_at(&bytes, 20)],
    ))
}

impl Histogram {
    /// Adds the `struct sum` of a CPU.
    fn add(&mut self, bytes: &[u8; SUM]) {
        for (number, doubling) in bytes.chunks_exact(DOUBLING).enumerate() {
            self.ns += u64_at(doubling, 16);
            self.longest = self.longest.max(u64_at(doubling, 24));
            for place in 0..4 {
                let waits = u64::from(u32_at(doubling, 4 * place));
                self.waits += waits;
                let bucket = (4 * number + place).checked_sub(3);
                if let Some(bucket) = bucket.and_then(|bucket| self.buckets.get_mut(bucket)) {
                    *bucket += waits;
                }
            }
        }
    }
}

fn periods(period: u32, processes: [u32; 2], kinds: [u32; 2]) -> [u8; PERIODS] {
    let [a, b] = processes;
    let [c, d] = kinds;
    let mut bytes = [0; PERIODS];
    for (to, number) in bytes.chunks_exact_mut(4).zip([period, 0, a, b, c, d]) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn process(name: &[u8; PROCESS]) -> Process {
    let comm = &name[16..];
    let end = comm.iter().position(|&byte| byte == 0);
    Process {
        comm: String::from_utf8_lossy(&comm[..end.unwrap_or(comm.len())]).into_owned(),
        cgroup: u64_at(name, 8),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .copied()
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .copied()
        .map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_four_for_each_doubling() {
        let begins: Vec<u64> = (0..BUCKETS).map(bucket_begin).collect();
        assert_eq!(&begins[..6], [0, 1024, 1280, 1536, 1792, 2048]);
        assert!(begins.is_sorted());
        assert_eq!(begins[BUCKETS - 1], (1 << 36) + 3 * (1 << 34), "120 s");
    }

    #[test]
    fn many_cpus_have_fewer_kinds() {
        assert_eq!(Sets::new(2048, 2).kinds, 2048);
        let many = Sets::new(2048, 64).kinds;
        assert!((500..600).contains(&many), "{many}");
        assert_eq!(Sets::new(2048, 1 << 20).kinds, LEAST_KINDS);
        assert_eq!(Sets::new(0, 1).kinds, 1);
    }
}
