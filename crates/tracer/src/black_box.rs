//! The black box: the waits of the whole machine by BPF, of which the last seconds are kept in memory until something has
//! happened and they are written to a spool. The capture goes on meanwhile.
//!
//! ```text
//! rings in the kernel --drain, some 10 times a second--> slices in memory, the oldest go
//!                                                     |           |
//!                                        each record to a caller  a window, and the spool of a trace from it
//! ```
//!
//! Beside it the kernel counts all waits in histograms ([`BlackBox::histograms`]), whether or not the rings are read in time.

mod kept;
mod ring;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use stopgap_capture::{Capture, Follow, Level, Part};
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::utc;
use stopgap_trace::{Loss, Metadata};

pub use stopgap_capture::{
    Histogram, How, Record, Signal, TaskEvent, Wait, Waking, bucket_begin, flag,
};

use crate::capture::{describe, maps, refuse_namespace, write_json};
use crate::description::{Description, Subject};
use crate::error::{Error, Result};
use crate::perf::go;
use crate::spool::{self, DESCRIPTION, END, End, Spool};
use crate::waits::{Cgroups, MAPS, Mapped, WaitsDescription, syscall_names, unsupported, waits_of};
use kept::About;
pub use kept::{keep, recover};
use ring::{Part as Kept, Ring, Slice, is_end, thread_of};

/// A wait of this length has a kernel stack of its own. Shorter ones cost more than they tell.
const LONG: Nanos = Nanos::millis(10);
/// Rings in the kernel: 70,000 waits a CPU between two readings on a small machine, 9,000 on a large one.
const LEAST_RINGS: Bytes = Bytes::mib(16);
const RING: Bytes = Bytes::mib(1);
/// Where a reading brings more than one part in so many of a ring, the machine is busy, and for a second after it.
const BUSY_PART: u64 = 16;
const CALM: Nanos = Nanos::secs(1);
/// Kinds of waits of ten seconds that the kernel tells apart: 2 MB a CPU.
const KINDS: u32 = 2_048;
/// Paths of cgroups that are kept.
const MOST_PATHS: usize = 1 << 14;
/// From one reading to the next, on a quiet machine and on a busy one.
const STEP: Nanos = Nanos::millis(100);
const BUSY_STEP: Nanos = Nanos::millis(20);
/// Stacks that say who maps: 2 MiB of records.
const MAPPERS: u32 = 256;

/// A black box that runs. Dropped, it leaves nothing attached.
pub struct BlackBox<'s> {
    system: &'s dyn System,
    capture: Capture,
    description: Description,
    rings: Bytes,
    ring: Ring,
    most: usize,
    /// The memory of a slice that is gone.
    free: Vec<u8>,
    read_at: u64,
    busy_until: u64,
    lost: u64,
    /// A line for each executable mapping of the process whose mappers are asked about.
    maps: Vec<u8>,
    cgroups: Cgroups,
    paths: HashMap<u64, String>,
    /// Whether the hierarchy has been looked through since the last turn.
    walked: bool,
}

/// The last seconds, still in memory, which they share with the box.
#[derive(Debug)]
pub struct Window {
    kept: Kept,
    /// Waits that are open.
    open: Vec<Vec<u8>>,
    /// Files of the spool but for that of threads.
    rings: usize,
    description: Description,
    maps: Vec<u8>,
    /// From when on it has everything but what was lost.
    since: Nanos,
    end: Nanos,
}

/// The last seconds, written down.
#[derive(Debug)]
pub struct Taken {
    /// The spool of a trace.
    pub spool: Spool,
    /// From when on it has everything but what its end says was lost.
    pub since: Nanos,
    /// Its end.
    pub end: Nanos,
}

impl<'s> BlackBox<'s> {
    /// Attaches the programs and follows all threads of the machine. `subject` says what it is; at most `most` bytes of records
    /// are kept in memory.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] where BPF is not possible, with the reason.
    pub fn start(system: &'s dyn System, subject: Subject, most: Bytes) -> Result<BlackBox<'s>> {
        refuse_namespace(system)?;
        let cpus = system.cpus()?.len().max(1) as u64;
        let rings = Bytes(LEAST_RINGS.0.max(RING.0 * cpus));
        let parts = stopgap_capture::Options::default().parts;
        let options = stopgap_capture::Options {
            // Stacks come once a place, and would be gone with the first seconds. All programs of the machine would fill the
            // ring with what they map.
            parts: parts
                .into_iter()
                .filter(|part| !matches!(part, Part::UserStacks | Part::AddressSpace))
                .collect(),
            whole_machine: true,
            ring_bytes: rings.0,
            long_ns: LONG.0,
            mappers: true,
            histograms: Some(KINDS),
            ..stopgap_capture::Options::default()
        };
        let mut capture = Capture::start(&options).map_err(unsupported)?;
        let mut description = describe(system, subject);
        let lacks = capture.lacks().iter();
        description.metadata.missing = lacks
            .map(|(part, why)| Missing::new(part.word(), why.clone()))
            .collect();
        let events = capture.events().map(|event| format!("bpf:{event}"));
        description.metadata.events = Some(events.collect());
        description.syscalls = syscall_names();
        description.waits = Some(WaitsDescription {
            files: u32::try_from(capture.rings() + 1).unwrap_or(u32::MAX),
            no_page_locks: false,
        });
        let read_at = system.now().0;
        capture
            .follow(&Follow::all(Level::Whole))
            .map_err(unsupported)?;
        Ok(BlackBox {
            system,
            capture,
            description,
            rings,
            ring: Ring::default(),
            most: usize::try_from(most.0).unwrap_or(usize::MAX),
            free: Vec::new(),
            read_at,
            busy_until: 0,
            lost: 0,
            maps: Vec::new(),
            cgroups: Cgroups::new(system),
            paths: HashMap::new(),
            walked: false,
        })
    }

    /// Returns the parts that this kernel refuses.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.description.metadata.missing
    }

    /// Returns when to drain again after a drain.
    #[must_use]
    pub fn step(&self) -> Nanos {
        if self.is_busy() { BUSY_STEP } else { STEP }
    }

    /// Returns whether a ring fills so quickly that who reads it late loses records.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.read_at < self.busy_until
    }

    /// Returns the bytes of records that are kept.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.ring.bytes() as u64)
    }

    /// Takes what has come into memory and gives each record to `each`: threads that begin, waits and signals in the order of time, threads
    /// that end. Older records than of `from` go, and the oldest where
    /// they are too many. Returns how many records were lost since the last time because a ring of the kernel was full.
    ///
    /// # Errors
    /// Where the count of what was lost cannot be read.
    pub fn drain(&mut self, from: Nanos, mut each: impl FnMut(&[u8])) -> Result<u64> {
        let mut slice = Slice::new(self.read_at, std::mem::take(&mut self.free));
        // A CPU has two sequences of records in its ring.
        let rings = self.capture.rings() / 2;
        let mut came = vec![0; rings];
        self.capture.read(|sequence, record| {
            came[sequence % rings] += record.len() as u64;
            slice.put(sequence, record);
        });
        // Who a thread is comes before what it did, and its end after that, whichever CPU wrote it down.
        let (ends, lives): (Vec<&[u8]>, Vec<&[u8]>) = slice
            .threads()
            .into_iter()
            .partition(|record| is_end(record));
        lives.into_iter().for_each(&mut each);
        slice.others().into_iter().for_each(&mut each);
        ends.into_iter().for_each(&mut each);
        let lost = self.capture.lost().map_err(unsupported)?;
        slice.lost = lost.saturating_sub(self.lost);
        self.lost = lost;
        self.read_at = self.system.now().0;
        slice.end = self.read_at;
        let most = came.into_iter().max().unwrap_or(0);
        if most > self.rings.0 / rings as u64 / BUSY_PART {
            self.busy_until = self.read_at + CALM.0;
        }
        let lost = slice.lost;
        if let Some(mut free) = self.ring.push(slice, from.0, self.most) {
            free.clear();
            self.free = free;
        }
        Ok(lost)
    }

    /// Returns what its traces say of the machine.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.description.metadata
    }

    /// Ends a period of histograms and begins the next.
    ///
    /// # Errors
    /// As [`Capture::turn`].
    pub fn turn(&mut self) -> Result<()> {
        self.walked = false;
        self.capture.turn().map_err(unsupported)
    }

    /// Returns the histograms of the period that ended last, once; some milliseconds after its end.
    ///
    /// # Errors
    /// As [`Capture::histograms`].
    pub fn histograms(&mut self) -> Result<Vec<Histogram>> {
        self.capture.histograms().map_err(unsupported)
    }

    /// Returns the path of a cgroup in the unified hierarchy by its id; `None` where it is gone, or there is no such hierarchy.
    pub fn cgroup(&mut self, id: u64) -> Option<String> {
        if !self.paths.contains_key(&id) && !std::mem::replace(&mut self.walked, true) {
            if self.paths.len() > MOST_PATHS {
                self.paths.clear();
                self.cgroups = Cgroups::new(self.system);
            }
            let found = self.cgroups.walk().into_iter();
            self.paths.extend(found.map(|group| (group.id, group.path)));
        }
        self.paths.get(&id).cloned()
    }

    /// Returns the records of all threads as they are now: counts, and the waits that are open.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn open(&mut self) -> Result<Vec<Vec<u8>>> {
        let now = self.system.now().0;
        let open = self.capture.open().map_err(unsupported)?;
        let alive = open.iter().filter_map(|record| thread_of(record));
        self.ring.alive(now, alive);
        Ok(open)
    }

    /// Returns what [`keep`] must be sent first, of a box whose batches carry the number `id`.
    #[must_use]
    pub fn about(&self, id: u64) -> Vec<u8> {
        let about = About {
            id,
            description: self.description.clone(),
            now_ns: self.system.now().0,
            unix_s: self.system.unix_seconds(),
        };
        serde_json::to_vec(&about).unwrap_or_default()
    }

    /// Returns what [`keep`] must be sent after each drain.
    #[must_use]
    pub fn last(&self) -> Vec<u8> {
        self.ring.last().map(Slice::to_bytes).unwrap_or_default()
    }

    /// Returns what [`keep`] must be sent of `open`, which [`BlackBox::open`] returned: a thread that is stuck when the machine dies
    /// has no other record.
    #[must_use]
    pub fn last_open(&self, open: &[Vec<u8>]) -> Vec<u8> {
        let mut slice = Slice::new(self.read_at, Vec::new());
        slice.end = self.system.now().0;
        let waits = open
            .iter()
            .filter(|record| Record::wait_of(record).is_some());
        waits.for_each(|record| slice.put(self.capture.rings(), record));
        slice.to_bytes()
    }

    /// Records from now on the stacks of the calls of this process that add mappings, as far as its next [`BlackBox::take`] has them;
    /// of no process with `None`.
    ///
    /// # Errors
    /// Where the kernel refuses it, or the process has ended.
    pub fn ask_mappers(&mut self, pid: Option<u32>) -> Result<()> {
        self.maps.clear();
        self.capture.mappers(pid, MAPPERS).map_err(unsupported)?;
        let Some(pid) = pid else { return Ok(()) };
        let time_ns = self.system.now().0;
        for mapping in maps::executable(self.system, pid)? {
            let line = serde_json::to_vec(&Mapped { time_ns, mapping });
            self.maps.extend(line.unwrap_or_default());
            self.maps.push(b'\n');
        }
        Ok(())
    }

    /// Returns what there is since `from`, after a drain that gives each new record to `each`, and how many records were lost since
    /// the drain before. The box goes on.
    ///
    /// # Errors
    /// As [`BlackBox::open`].
    pub fn window(&mut self, from: Nanos, each: impl FnMut(&[u8])) -> Result<(Window, u64)> {
        // Open waits are written down after all that has ended.
        let lost = self.drain(Nanos(0), each)?;
        let open = self.open()?;
        let end = self.system.now();
        let kept = self.ring.since(from.0);
        let since = kept.slices.first().map_or(end.0, |slice| slice.begin);
        let since = Nanos(since.max(from.0));
        let mut description = self.description.clone();
        let age = end.saturating_sub(since).0 / 1_000_000_000;
        let began = self.system.unix_seconds().saturating_sub(age);
        description.metadata.start = Some(utc(began));
        description.metadata.schedulers = go::processes(self.system);
        let window = Window {
            kept,
            open,
            rings: self.capture.rings(),
            description,
            maps: self.maps.clone(),
            since,
            end,
        };
        Ok((window, lost))
    }
}

impl Window {
    /// Writes it into the folder `path`, which is made. It lets go of the memory while it does.
    ///
    /// # Errors
    /// A full disk among them; the folder is then of no use.
    pub fn write(self, path: &Path) -> Result<Taken> {
        let folder = spool::make(path)?;
        let mut files = Files::create(&folder, self.rings + 1)?;
        for record in &self.kept.threads {
            files.put(self.rings, record)?;
        }
        let mut lost = 0;
        for slice in self.kept.slices {
            lost += slice.lost;
            for (ring, record) in slice.records() {
                files.put(ring as usize, record)?;
            }
        }
        for record in &self.open {
            files.put(self.rings, record)?;
        }
        files.finish()?;
        let losses = (lost > 0).then(|| Loss {
            what: "rings of BPF".to_owned(),
            count: lost,
        });
        let about = End {
            losses: losses.into_iter().collect(),
            ..End::default()
        };
        let spool = write_spool(folder, &self.description, &self.maps, Some(&about))?;
        Ok(Taken {
            spool,
            since: self.since,
            end: self.end,
        })
    }
}

/// Files of records of a spool.
struct Files<'f> {
    folder: &'f Folder,
    files: Vec<BufWriter<File>>,
}

impl Files<'_> {
    fn create(folder: &Folder, count: usize) -> Result<Files<'_>> {
        let files = (0..count).map(|number| {
            let name = name_of(number);
            let file = folder.create(name.as_ref(), 0o600);
            file.map(|file| BufWriter::with_capacity(1 << 16, file))
                .map_err(|error| Error::file(&folder.path().join(&name), error))
        });
        Ok(Files {
            folder,
            files: files.collect::<Result<_>>()?,
        })
    }

    /// Adds a record to a file, with its length before it.
    fn put(&mut self, number: usize, record: &[u8]) -> Result<()> {
        let Some(file) = self.files.get_mut(number) else {
            return Ok(());
        };
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        let written = file
            .write_all(&length.to_le_bytes())
            .and_then(|()| file.write_all(record));
        written.map_err(|error| failed(self.folder, number, error))
    }

    fn finish(self) -> Result<()> {
        for (number, mut file) in self.files.into_iter().enumerate() {
            file.flush()
                .map_err(|error| failed(self.folder, number, error))?;
        }
        Ok(())
    }
}

fn name_of(number: usize) -> String {
    waits_of(u32::try_from(number).unwrap_or(u32::MAX))
}

fn failed(folder: &Folder, number: usize, error: std::io::Error) -> Error {
    Error::file(&folder.path().join(name_of(number)), error)
}

/// Writes all but the records of a spool of waits into `folder`: lines of mappings; without an `end` it was cut off.
fn write_spool(
    folder: Folder,
    description: &Description,
    maps: &[u8],
    end: Option<&End>,
) -> Result<Spool> {
    let written = folder
        .create(MAPS.as_ref(), 0o600)
        .and_then(|mut file| file.write_all(maps));
    written.map_err(|error| Error::file(&folder.path().join(MAPS), error))?;
    write_json(&folder, DESCRIPTION, description)?;
    if let Some(end) = end {
        write_json(&folder, END, end)?;
    }
    Spool::from_folder(folder)
}
