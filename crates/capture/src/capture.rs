use std::collections::{HashSet, VecDeque};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, PerCpuArray, RingBuf};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, Iter, Program};
use aya::{Btf, Ebpf, EbpfLoader};

use crate::batch::{Batch, Taken};
use crate::error::innermost;
use crate::histogram::{Histogram, Sets};
use crate::part::{ALWAYS, Part};
use crate::record::{self, Record, Task, Wait};
use crate::{Error, batch, btf};

/// The programs: built from `bpf/waits.bpf.c` by `bpf/build`, and compressed by `build.rs` to a fifth.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waits.bpf.o.z"));

/// A request to the iterator over threads, as in `bpf/waits.bpf.c`.
const NOTHING: u32 = 0;
const FOLLOW: u32 = 1;
const FLUSH: u32 = 2;

/// The program of [`Capture::mappers`].
const MAPPERS: &str = "on_mapped";
/// Most rings for which `ring_mask` and the map `rings` have room.
const MOST_RINGS: u32 = 1024;
/// The number of futex(2).
const FUTEX: i32 = if cfg!(target_arch = "x86_64") {
    202
} else {
    98
};
/// Least bytes of a ring: it must hold some user stacks.
const LEAST_RING: u64 = 256 << 10;
/// Prefix of the kernel's functions of system calls, to which `sys_mmap` and similar names are appended.
const CALLS: &str = if cfg!(target_arch = "aarch64") {
    "__arm64_"
} else {
    "__x64_"
};
/// Bytes of all rings together by default.
const USUAL_RINGS: u64 = 64 << 20;

/// Options of a capture.
#[derive(Debug, Clone)]
pub struct Options {
    /// Parts that are captured beside waits.
    pub parts: Vec<Part>,
    /// Whether new threads are followed even if their parents are not. Only their waits are kept.
    pub whole_machine: bool,
    /// Threads that take one of these names later are followed at [`Level::Whole`]; at most 64 of at most 15 bytes each.
    pub names: Vec<String>,
    /// Bytes of all rings together. Each CPU has one ring, of a power of two and at least 256 KiB.
    pub ring_bytes: u64,
    /// Nanoseconds from which each wait has a kernel stack of its own. A shorter wait has one if it is the first of
    /// its kind.
    pub long_ns: u64,
    /// Nanoseconds from which interrupts and work items are kept.
    pub interrupt_ns: u64,
    /// Most stacks of programs per CPU. Each takes 8.5 KiB of the ring.
    pub user_stacks: u32,
    /// Whether [`Capture::mappers`] will be used.
    pub mappers: bool,
    /// Most kinds of waits per period that the kernel counts in histograms. A machine with many CPUs has fewer,
    /// because each CPU has its own histograms. `None`: nothing is counted.
    pub histograms: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parts: Part::ALL
                .into_iter()
                .filter(|part| part.is_usual())
                .collect(),
            whole_machine: false,
            names: Vec::new(),
            ring_bytes: USUAL_RINGS,
            long_ns: 100_000,
            interrupt_ns: 1_000_000,
            user_stacks: 20_000,
            mappers: false,
            histograms: None,
        }
    }
}

/// How much of a thread is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Its waits.
    Waits = 1,
    /// Waits, stacks and spans.
    Whole = 2,
}

/// Selects threads among the existing ones. Threads that they create later are followed likewise. All given
/// conditions must hold.
#[derive(Debug, Clone)]
pub struct Follow {
    /// How much is kept of them.
    pub level: Level,
    /// The threads of this process.
    pub process: Option<u32>,
    /// This thread.
    pub thread: Option<u32>,
    /// Threads in this cgroup of the unified hierarchy or below: its id is the inode number of its folder.
    pub cgroup: Option<u64>,
    /// Threads with this name (at most 15 bytes).
    pub name: Option<String>,
}

impl Follow {
    /// All threads.
    #[must_use]
    pub fn all(level: Level) -> Follow {
        Follow {
            level,
            process: None,
            thread: None,
            cgroup: None,
            name: None,
        }
    }
}

/// A running capture. Dropping it detaches everything.
pub struct Capture {
    /// Result of loading the program of [`Capture::mappers`].
    mappers: Result<(), String>,
    /// Attached while a process is selected.
    mapper: Option<BtfTracePointLink>,
    ebpf: Ebpf,
    rings: Vec<RingBuf<MapData>>,
    lacks: Vec<(Part, String)>,
    events: Vec<&'static str>,
    /// Records of threads that were found. They come first at the next reading.
    found: VecDeque<Vec<u8>>,
    /// Wakes the thread that waits for [`Capture::bell`].
    bell: RingBuf<MapData>,
    /// Waits that were taken of each CPU's batch.
    taken: Vec<Taken>,
    sets: Option<Sets>,
}

impl Capture {
    /// Loads and attaches the programs. No thread is followed yet. Takes about 0.2 s.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kernel has no BTF or BPF, refuses them to this user, or lacks the
    /// events of the scheduler. Other lacking parts are in [`Capture::lacks`].
    pub fn start(options: &Options) -> Result<Capture, Error> {
        let kernel = Btf::from_sys_fs().map_err(|error| {
            unsupported(
                "this kernel's BTF cannot be read (/sys/kernel/btf/vmlinux)",
                &error,
            )
        })?;
        let raw = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        let preempt = btf::preempt_offset(&raw).unwrap_or(0);
        drop(raw);
        let cpus = aya::util::nr_cpus().unwrap_or(1);
        let count = u32::try_from(cpus)
            .unwrap_or(MOST_RINGS)
            .next_power_of_two()
            .min(MOST_RINGS);
        let on = |part| u8::from(options.parts.contains(&part));
        let mask = count - 1;
        let by_name = u8::from(!options.names.is_empty());
        let (machine, kernel_stacks, user_stacks) = (
            u8::from(options.whole_machine),
            on(Part::KernelStacks),
            on(Part::UserStacks),
        );
        let sets = options.histograms.map(|kinds| Sets::new(kinds, cpus));
        let histograms = u8::from(sets.is_some());
        let kinds = sets.map_or(0, |sets| sets.kinds);
        let processes = sets.map_or(0, |sets| sets.processes);
        let object = miniz_oxide::inflate::decompress_to_vec_zlib(OBJECT).map_err(|error| {
            refused(
                "the BPF object in this command is damaged",
                &error.to_string(),
            )
        })?;
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&kernel))
            .allow_unsupported_maps()
            .override_global("long_ns", &options.long_ns, true)
            .override_global("interrupt_ns", &options.interrupt_ns, true)
            .override_global("preempt_offset", &preempt, true)
            .override_global("ring_mask", &mask, true)
            .override_global("whole_machine", &machine, true)
            .override_global("by_name", &by_name, true)
            .override_global("kernel_stacks", &kernel_stacks, true)
            .override_global("user_stacks", &user_stacks, true)
            .override_global("user_stacks_at_most", &options.user_stacks, true)
            .override_global("histograms", &histograms, true)
            .override_global("kinds_at_most", &kinds, true)
            .override_global("processes_at_most", &processes, true)
            .override_global("futex", &FUTEX, true)
            .map_max_entries("rings", count);
        if let Some(sets) = &sets {
            loader
                .map_max_entries("processes", 2 * sets.processes)
                .map_max_entries("kinds", 2 * sets.kinds)
                .map_max_entries("sums", sets.sums());
        }
        let mut ebpf = loader
            .load(&object)
            .map_err(|error| refused_map("its maps are refused", &error))?;
        let rings = make_rings(&mut ebpf, count, options.ring_bytes)?;
        if let Some(sets) = &sets {
            sets.begin(&mut ebpf)?;
        }
        let names = map(&mut ebpf, "names")?;
        let mut names: HashMap<&mut MapData, [u8; 16], u8> =
            HashMap::try_from(names).map_err(|_| lacks_map())?;
        for name in &options.names {
            names
                .insert(name_of_thread(name), 1, 0)
                .map_err(|error| unsupported("a name of threads", &error))?;
        }
        let bell = ebpf.take_map("bell").ok_or_else(lacks_map)?;
        let bell = RingBuf::try_from(bell).map_err(|_| lacks_map())?;
        for (program, event) in ALWAYS {
            attach(&mut ebpf, program, event, &kernel)
                .map_err(|why| refused(&format!("the program at {event}"), &why))?;
        }
        let iterator: &mut Iter = program(&mut ebpf, "each_task")?;
        iterator
            .load("task", &kernel)
            .map_err(|error| unsupported("the iterator over threads", &error))?;
        let mut lacks = Vec::new();
        let mut events: Vec<&str> = ALWAYS.iter().map(|(_, event)| *event).collect();
        let by_calls = options.parts.contains(&Part::Calls);
        for &part in &options.parts {
            if part == Part::AddressSpace && by_calls {
                continue;
            }
            let mut refused = Vec::new();
            for (program, event) in part.programs() {
                match attach(&mut ebpf, program, event, &kernel) {
                    Ok(()) => {}
                    // The loader names the type that the event's arguments would have.
                    Err(why) if why.starts_with("unknown BTF type") => {
                        refused.push(format!("this kernel has no event {event}"));
                    }
                    Err(why) => refused.push(format!("{event}: {why}")),
                }
                // Only some of these calls would give a wrong address space.
                if part == Part::AddressSpace && !refused.is_empty() {
                    detach(&mut ebpf, part);
                    break;
                }
            }
            if refused.is_empty() {
                for (_, event) in part.programs() {
                    // Two programs may be at one event.
                    if !events.contains(event) {
                        events.push(event);
                    }
                }
            } else {
                lacks.push((part, refused.join("; ")));
            }
        }
        let mut mappers = Err("it was not asked for".to_owned());
        if options.mappers {
            let program: &mut BtfTracePoint = program(&mut ebpf, MAPPERS)?;
            let loaded = program.load("sys_exit", &kernel);
            mappers = loaded.map_err(|error| innermost(&error));
        }
        let mut capture = Capture {
            mappers,
            mapper: None,
            ebpf,
            rings,
            lacks,
            events,
            found: VecDeque::new(),
            bell,
            taken: vec![Taken::default(); cpus],
            sets,
        };
        // No thread is followed, so none is found. This tests the iterator, because a failure later would end a
        // recording.
        let tried = capture.iterate(NOTHING, &Follow::all(Level::Waits));
        match tried {
            Ok(_) => Ok(capture),
            Err(Error::System { what, error }) => Err(refused(what, &error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Returns the requested parts that this kernel refuses, with the reason.
    #[must_use]
    pub fn lacks(&self) -> &[(Part, String)] {
        &self.lacks
    }

    /// Returns the kernel's tracepoints that programs are attached to.
    pub fn events(&self) -> impl Iterator<Item = &'static str> {
        self.events.iter().copied()
    }

    /// Follows existing threads. Returns the number of found threads that were not followed before, or fewer.
    ///
    /// # Errors
    /// If the system refuses the iterator.
    pub fn follow(&mut self, follow: &Follow) -> Result<usize, Error> {
        let found = self.iterate(FOLLOW, follow)?;
        let count = found.len();
        self.found.extend(found);
        Ok(count)
    }

    /// Returns a descriptor that becomes readable when a stack of a process comes for the first time, until the next
    /// [`Capture::read`]. To get the mappings of short-lived processes, read then. The same process makes it readable
    /// again after 1 ms if stacks of more places come.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Gives `each` the records that have come, each with the number of its sequence. The records of a sequence are
    /// in order. The first half of the numbers below [`Capture::rings`] is for records of the CPUs other than waits,
    /// and the second half for their waits. That number itself is for threads that [`Capture::follow`] found. Does
    /// not wait. Call it at least every 20 ms.
    pub fn read(&mut self, mut each: impl FnMut(usize, &[u8])) {
        while self.bell.next().is_some() {}
        let mut open = self.open_batches();
        let count = self.rings.len();
        for record in self.found.drain(..) {
            each(2 * count, &record);
        }
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let waits = count + number;
            while let Some(record) = ring.next() {
                match record.first() {
                    Some(&batch::KIND) => {
                        let taken = self.taken.get_mut(Batch::cpu(&record));
                        if let (Some(taken), Some(batch)) = (taken, Batch::parse(&record)) {
                            taken.whole(&batch, |wait| each(waits, wait));
                        }
                    }
                    Some(&(record::kind::WAIT | record::kind::WAIT_STACK)) => each(waits, &record),
                    _ => each(number, &record),
                }
            }
            // Several CPUs share a ring only if there are more than 1024 CPUs.
            let cpus = open.iter_mut().zip(&mut self.taken);
            for (batch, taken) in cpus.skip(number).step_by(count) {
                if let Some(batch) = batch.take() {
                    taken.open(&batch, |wait| each(waits, wait));
                }
            }
        }
    }

    /// Returns the batch of each CPU. `None` if it changes too quickly: then its waits are in the ring, or come the
    /// next time.
    fn open_batches(&mut self) -> Vec<Option<Batch<'static>>> {
        /// Most readings of a batch. The kernel copies it in some microseconds, and filling it takes longer.
        const READINGS: usize = 3;
        let Ok(batches) = map(&mut self.ebpf, "batches")
            .and_then(|map| PerCpuArray::try_from(map).map_err(|_| lacks_map()))
        else {
            return Vec::new();
        };
        let batches: PerCpuArray<&mut MapData, [u8; batch::BYTES]> = batches;
        let read = || batches.get(&0, 0).ok();
        let Some(mut before) = read() else {
            return Vec::new();
        };
        let mut found: Vec<Option<Batch<'_>>> = before.iter().map(|_| None).collect();
        for _ in 1..READINGS {
            let Some(after) = read() else { break };
            for ((found, before), after) in found.iter_mut().zip(before.iter()).zip(after.iter()) {
                if found.is_none() {
                    *found = Batch::read_twice(before, after);
                }
            }
            if found.iter().all(Option::is_some) {
                break;
            }
            before = after;
        }
        found
    }

    /// Returns records of all followed threads: the counts of each, and its wait if it is off its CPU now. The
    /// capture goes on. Takes about 2 us per thread.
    ///
    /// # Errors
    /// If the system refuses the iterator.
    pub fn open(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        self.iterate(FLUSH, &Follow::all(Level::Waits))
    }

    /// Requests the stacks of this process's calls that add mappings, as records of [`crate::UserStack`], at most
    /// `stacks` of them. `None` ends this. Meanwhile each system call of the machine costs about 100 ns more.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub fn mappers(&mut self, process: Option<u32>, stacks: u32) -> Result<(), Error> {
        if let Err(why) = &self.mappers {
            return Err(refused("the program at sys_exit", why));
        }
        let mut asked = [0; 16];
        asked[..4].copy_from_slice(&process.unwrap_or(0).to_le_bytes());
        asked[8..12].copy_from_slice(&stacks.to_le_bytes());
        let map = map(&mut self.ebpf, "mappers")?;
        let mut map: Array<&mut MapData, [u8; 16]> =
            Array::try_from(map).map_err(|_| lacks_map())?;
        map.set(0, asked, 0)
            .map_err(|error| unsupported("asking for mappers", &error))?;
        if process.is_none() {
            self.mapper = None;
        } else if self.mapper.is_none() {
            let program: &mut BtfTracePoint = program(&mut self.ebpf, MAPPERS)?;
            let link = program.attach().and_then(|link| program.take_link(link));
            self.mapper =
                Some(link.map_err(|error| unsupported("the program at sys_exit", &error))?);
        }
        Ok(())
    }

    /// Ends a period of [`Options::histograms`] and begins the next one.
    ///
    /// # Errors
    /// If the system refuses its maps.
    pub fn turn(&mut self) -> Result<(), Error> {
        match &mut self.sets {
            Some(sets) => sets.turn(&mut self.ebpf),
            None => Ok(()),
        }
    }

    /// Returns the histograms of the period that [`Capture::turn`] ended last, once, and clears their set for the
    /// period after the current one. Call it some milliseconds after the end, so that programs that ran at that time
    /// have finished. Takes about 5 us per kind.
    ///
    /// # Errors
    /// If the system refuses its maps.
    pub fn histograms(&mut self) -> Result<Vec<Histogram>, Error> {
        match &mut self.sets {
            Some(sets) => sets.read(&mut self.ebpf),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the number of records that were lost so far because a ring was full.
    ///
    /// # Errors
    /// If the object lacks the map of counts.
    pub fn lost(&mut self) -> Result<u64, Error> {
        let numbers = map(&mut self.ebpf, "numbers")?;
        let numbers: PerCpuArray<&mut MapData, u64> =
            PerCpuArray::try_from(numbers).map_err(|_| lacks_map())?;
        Ok(numbers.get(&0, 0).map_or(0, |lost| lost.iter().sum()))
    }

    /// Returns the number of sequences of [`Capture::read`], without that of found threads: two for each ring. Each
    /// CPU has one ring.
    #[must_use]
    pub fn rings(&self) -> usize {
        2 * self.rings.len()
    }

    /// Ends the capture. Writes the open waits and the counts of all threads, detaches the programs, and gives `each`
    /// the last records. Returns the number of records that were lost because a ring was full.
    ///
    /// # Errors
    /// If the system refuses the iterator. Nothing stays attached then, either.
    pub fn stop(mut self, mut each: impl FnMut(usize, &[u8])) -> Result<u64, Error> {
        let open = self.iterate(FLUSH, &Follow::all(Level::Waits));
        for (_, program) in self.ebpf.programs_mut() {
            unload(program);
        }
        // Some of these waits ended while they were written.
        let (mut ended, all) = (HashSet::new(), self.rings());
        self.read(|number, record| {
            ended.extend(Record::which_wait(record));
            each(number, record);
        });
        let lost = self.lost()?;
        for record in open? {
            if Record::which_wait(&record).is_none_or(|wait| !ended.contains(&wait)) {
                each(all, &record);
            }
        }
        Ok(lost)
    }

    /// Runs the iterator over all threads, and returns the records that it writes.
    fn iterate(&mut self, what: u32, follow: &Follow) -> Result<Vec<Vec<u8>>, Error> {
        let request = request(what, follow);
        let asked = map(&mut self.ebpf, "asked")?;
        let mut asked: Array<&mut MapData, [u8; 40]> =
            Array::try_from(asked).map_err(|_| lacks_map())?;
        let system = |what| {
            move |error: aya::maps::MapError| Error::System {
                what,
                error: std::io::Error::other(innermost(&error)),
            }
        };
        asked
            .set(0, request, 0)
            .map_err(system("asking the iterator over threads"))?;
        let iterator: &mut Iter = program(&mut self.ebpf, "each_task")?;
        let failed = |error: &dyn std::error::Error| Error::System {
            what: "the iterator over threads",
            error: std::io::Error::other(innermost(error)),
        };
        let link = iterator.attach().map_err(|error| failed(&error))?;
        let link = iterator.take_link(link).map_err(|error| failed(&error))?;
        let mut file = link.into_file().map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| failed(&error))?;
        let mut records = Vec::new();
        let mut rest = &bytes[..];
        while let Some(&kind) = rest.first() {
            let length = if kind == 5 {
                Task::BYTES
            } else {
                Wait::BYTES_WITH_STACK
            };
            let Some((record, after)) = rest.split_at_checked(length) else {
                break;
            };
            records.push(record.to_vec());
            rest = after;
        }
        Ok(records)
    }
}

/// Returns the error for something that the kernel refuses, with a remedy.
pub(crate) fn unsupported(what: &str, error: &dyn std::error::Error) -> Error {
    refused(what, &innermost(error))
}

/// Returns the same for maps. Before Linux 5.11 they count against the limit of locked memory.
fn refused_map(what: &str, error: &dyn std::error::Error) -> Error {
    let why = innermost(error);
    let mut refused = refused(what, &why);
    if let Error::Unsupported(line) = &mut refused
        && why.contains("Operation not permitted")
    {
        line.push_str("; before Linux 5.11 also a higher RLIMIT_MEMLOCK (ulimit -l)");
    }
    refused
}

fn refused(what: &str, why: &str) -> Error {
    let advice = match () {
        () if why.contains("Operation not permitted") => {
            "; it needs CAP_BPF and CAP_PERFMON, or root, and in a container a seccomp profile that allows bpf(2)"
        }
        () if why.contains("Function not implemented") => {
            "; the kernel, or a container's seccomp profile, has no bpf(2)"
        }
        () if why.contains("Invalid argument") && is_confidential() => {
            "; lockdown 'confidentiality' lets no program read the kernel's memory, boot with lockdown=integrity"
        }
        () => "",
    };
    Error::Unsupported(format!("{what}: {why}{advice}"))
}

fn is_confidential() -> bool {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown");
    lockdown.is_ok_and(|words| words.contains("[confidentiality]"))
}

/// Returns a `struct request_of_reader`.
fn request(what: u32, follow: &Follow) -> [u8; 40] {
    let mut bytes = [0; 40];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &what.to_le_bytes());
    put(4, &(follow.level as u32).to_le_bytes());
    put(8, &follow.process.unwrap_or(0).to_le_bytes());
    put(12, &follow.thread.unwrap_or(0).to_le_bytes());
    put(16, &follow.cgroup.unwrap_or(0).to_le_bytes());
    put(24, &name_of_thread(follow.name.as_deref().unwrap_or("")));
    bytes
}

/// Returns a name as the kernel keeps it.
fn name_of_thread(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

fn make_rings(ebpf: &mut Ebpf, count: u32, bytes: u64) -> Result<Vec<RingBuf<MapData>>, Error> {
    let each = (bytes / u64::from(count)).max(LEAST_RING);
    let each = u32::try_from(1_u64 << each.ilog2().min(30)).unwrap_or(1 << 30);
    let refused =
        |error: &aya::maps::MapError| refused_map(&format!("a ring of {each} bytes"), error);
    let outer = map(ebpf, "rings")?;
    let mut outer: ArrayOfMaps<&mut MapData, RingBuf<MapData>> =
        ArrayOfMaps::try_from(outer).map_err(|_| lacks_map())?;
    let mut rings = Vec::new();
    for index in 0..count {
        const RINGBUF: u32 = 27;
        let definition = aya_obj::Map::new_from_params(RINGBUF, 0, 0, each, 0);
        let ring = MapData::create(definition, "waits", None).map_err(|error| refused(&error))?;
        let ring = RingBuf::try_from(Map::RingBuf(ring)).map_err(|error| refused(&error))?;
        outer
            .set(index, &ring, 0)
            .map_err(|error| refused(&error))?;
        rings.push(ring);
    }
    Ok(rings)
}

/// Attaches a program to the tracepoint or the system call `event`.
fn attach(ebpf: &mut Ebpf, name: &str, event: &str, kernel: &Btf) -> Result<(), String> {
    let program = ebpf.program_mut(name);
    let program = program.ok_or_else(|| format!("the object has no program {name}"))?;
    let function = || format!("{CALLS}{event}");
    let attached = match program {
        Program::BtfTracePoint(program) => program
            .load(event, kernel)
            .and_then(|()| program.attach().map(drop)),
        Program::FEntry(program) => program
            .load(&function(), kernel)
            .and_then(|()| program.attach().map(drop)),
        Program::FExit(program) => program
            .load(&function(), kernel)
            .and_then(|()| program.attach().map(drop)),
        Program::TracePoint(program) => {
            const SYSTEM: &str = "dma_fence";
            let loaded = program.load();
            loaded.and_then(|()| program.attach(SYSTEM, event).map(drop))
        }
        _ => return Err(format!("{name} is a program of another type")),
    };
    attached.map_err(|error| innermost(&error))
}

fn detach(ebpf: &mut Ebpf, part: Part) {
    for (name, _) in part.programs() {
        if let Some(program) = ebpf.program_mut(name) {
            unload(program);
        }
    }
}

fn unload(program: &mut Program) {
    // The result does not matter: an error would only say that it is not attached.
    let _ = match program {
        Program::BtfTracePoint(program) => program.unload(),
        Program::FEntry(program) => program.unload(),
        Program::FExit(program) => program.unload(),
        Program::TracePoint(program) => program.unload(),
        _ => Ok(()),
    };
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Error>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    let program = ebpf
        .program_mut(name)
        .and_then(|program| program.try_into().ok());
    program.ok_or_else(|| Error::Unsupported(format!("the object has no program {name}")))
}

pub(crate) fn map<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Map, Error> {
    ebpf.map_mut(name).ok_or_else(lacks_map)
}

pub(crate) fn lacks_map() -> Error {
    Error::Unsupported("the object lacks a map".to_owned())
}
