//! The black box: the waits of the whole machine by BPF, of which the last seconds are kept in memory until something has
//! happened and they are written to a spool. The capture goes on meanwhile.
//!
//! ```text
//! rings in the kernel --drain, some 10 times a second--> slices in memory, the oldest go
//!                                                     |           |
//!                                        each record to a caller  take: the spool of a trace
//! ```
//!
//! Beside it the kernel counts all waits in histograms ([`BlackBox::histograms`]), whether or not the rings are read in time.

mod kept;
mod ring;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use stopgap_capture::{Capture, Follow, Level, Part};
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::utc;
use stopgap_trace::{Loss, Metadata};

pub use stopgap_capture::{Histogram, How, Record, TaskEvent, Wait, bucket_begin, flag};

use crate::capture::{describe, maps, refuse_namespace, write_json};
use crate::description::{Description, Subject};
use crate::error::{Error, Result};
use crate::spool::{self, DESCRIPTION, END, End, Spool};
use crate::waits::{Cgroups, MAPS, Mapped, WaitsDescription, syscall_names, unsupported, waits_of};
use kept::About;
pub use kept::{keep, recover};
use ring::{Ring, Slice, is_end, is_thread};

/// A wait of this length has a kernel stack of its own. Shorter ones cost more than they tell.
const LONG: Nanos = Nanos::millis(10);
/// Rings in the kernel: 70,000 waits a CPU between two readings on a small machine, 9,000 on a large one.
const LEAST_RINGS: Bytes = Bytes::mib(16);
const RING: Bytes = Bytes::mib(1);
/// Where a reading brings more than one part in so many of the rings, the next one is soon.
const BUSY_PART: u64 = 16;
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
    step: Nanos,
    lost: u64,
    /// A line for each executable mapping of the process whose mappers are asked about.
    maps: Vec<u8>,
    cgroups: Cgroups,
    paths: HashMap<u64, String>,
    /// Whether the hierarchy has been looked through since the last turn.
    walked: bool,
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
            step: STEP,
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
        self.step
    }

    /// Returns the bytes of records that are kept.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.ring.bytes() as u64)
    }

    /// Takes what has come into memory and gives each record to `each`. Older records than of `from` go, and the oldest where
    /// they are too many. Returns how many records were lost since the last time because a ring of the kernel was full.
    ///
    /// # Errors
    /// Where the count of what was lost cannot be read.
    pub fn drain(&mut self, from: Nanos, mut each: impl FnMut(&[u8])) -> Result<u64> {
        let mut slice = Slice::new(self.read_at, std::mem::take(&mut self.free));
        self.capture.read(|ring, record| slice.put(ring, record));
        // Who a thread is comes before what it did, and its end after that, whichever CPU wrote it down.
        let (ends, lives): (Vec<&[u8]>, Vec<&[u8]>) = slice
            .threads()
            .into_iter()
            .partition(|record| is_end(record));
        lives.into_iter().for_each(&mut each);
        let others = slice.records().map(|(_, record)| record);
        others
            .filter(|record| !is_thread(record))
            .for_each(&mut each);
        ends.into_iter().for_each(&mut each);
        let lost = self.capture.lost().map_err(unsupported)?;
        slice.lost = lost.saturating_sub(self.lost);
        self.lost = lost;
        self.read_at = self.system.now().0;
        slice.end = self.read_at;
        let busy = slice.bytes() as u64 > self.rings.0 / BUSY_PART;
        self.step = if busy { BUSY_STEP } else { STEP };
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
        self.capture.open().map_err(unsupported)
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

    /// Writes what there is since `from` into the folder `path`, which is made. The box goes on.
    ///
    /// # Errors
    /// A full disk among them; the folder is then of no use.
    pub fn take(&mut self, path: &Path, from: Nanos) -> Result<Taken> {
        let folder = spool::make(path)?;
        // Open waits are written down after all that has ended.
        self.drain(Nanos(0), |_| {})?;
        let open = self.open()?;
        let end = self.system.now();
        let found = self.capture.rings();
        let mut records = vec![Vec::new(); found + 1];
        let (lost, since) = self.ring.read(from.0, |ring, record| {
            put(
                &mut records,
                ring.map_or(found, |ring| ring as usize),
                record,
            );
        });
        for record in &open {
            put(&mut records, found, record);
        }
        let since = Nanos(since.unwrap_or(end.0).max(from.0));
        let mut description = self.description.clone();
        let age = end.saturating_sub(since).0 / 1_000_000_000;
        let began = self.system.unix_seconds().saturating_sub(age);
        description.metadata.start = Some(utc(began));
        let losses = (lost > 0).then(|| Loss {
            what: "rings of BPF".to_owned(),
            count: lost,
        });
        let about = End {
            losses: losses.into_iter().collect(),
            ..End::default()
        };
        let spool = write_spool(folder, &description, &records, &self.maps, Some(&about))?;
        Ok(Taken { spool, since, end })
    }
}

/// Adds a record to those of a file, with its length before it.
fn put(files: &mut [Vec<u8>], number: usize, record: &[u8]) {
    if let Some(file) = files.get_mut(number) {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(record);
    }
}

/// Writes a spool of waits into `folder`: `records` of each file, lines of mappings; without an `end` it was cut off.
fn write_spool(
    folder: Folder,
    description: &Description,
    records: &[Vec<u8>],
    maps: &[u8],
    end: Option<&End>,
) -> Result<Spool> {
    for (number, records) in records.iter().enumerate() {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        write(&folder, &waits_of(number), records)?;
    }
    write(&folder, MAPS, maps)?;
    write_json(&folder, DESCRIPTION, description)?;
    if let Some(end) = end {
        write_json(&folder, END, end)?;
    }
    Spool::from_folder(folder)
}

/// Writes a file and waits for no disk.
fn write(folder: &Folder, name: &str, bytes: &[u8]) -> Result<()> {
    let written = folder
        .create(name.as_ref(), 0o600)
        .and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| Error::file(&folder.path().join(name), error))
}
