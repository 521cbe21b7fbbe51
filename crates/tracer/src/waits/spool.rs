//! Records on their way into a spool.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use serde::Serialize;
use stopgap_capture::{Capture, Follow, Level, Part, Record};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_kernel::folder::Folder;
use stopgap_trace::Loss;

use super::cgroups::Cgroups;
use super::{CGROUPS, MAPS, Mapped, Options, WaitsDescription, waits_of};
use crate::capture::maps;
use crate::error::{Error, Result};

/// Processes whose mappings are read; each takes some 10 KiB.
const MOST_PROCESSES: usize = 1 << 16;

/// A capture that runs, and the files that its records go to.
pub struct WaitSpool {
    capture: Capture,
    out: Files,
    /// Whether the calls that change an address space are recorded.
    has_mappings: bool,
    no_page_locks: bool,
}

/// The file of each ring, and that of mappings.
struct Files {
    rings: Vec<Out>,
    maps: Out,
    paths: Out,
    cgroups: Cgroups,
    /// The processes whose mappings were written down.
    processes: HashMap<u32, Known>,
    /// Processes whose mappings are to be read, and whether a stack came at a place that no known mapping covers.
    wanted: HashMap<u32, bool>,
}

/// What is known of the mappings of a process.
#[derive(Default)]
struct Known {
    /// Executable addresses.
    ranges: Vec<Range<u64>>,
    /// Pages that may be executed, by its last stack. It has loaded a library where they are more or fewer.
    code: u32,
    /// When they were read.
    read: Nanos,
}

/// A process whose place is known has its mappings read again after this time at least: a compiler at run time gets pages all the time.
const READ_AGAIN: Nanos = Nanos::millis(20);

struct Out {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl WaitSpool {
    /// Attaches the programs, makes the files in `folder`, and records the waits of all threads unless `options` say
    /// otherwise.
    ///
    /// # Errors
    /// [`stopgap_kernel::Error::Unsupported`] where the kernel or this user's rights do not allow it; where a file cannot be
    /// made.
    pub fn open(system: &dyn System, folder: &Folder, options: &Options) -> Result<WaitSpool> {
        let mut wanted = stopgap_capture::Options {
            whole_machine: !options.only,
            names: options.names.clone(),
            parts: options.parts.clone(),
            ..stopgap_capture::Options::default()
        };
        if let Some(bytes) = options.rings {
            wanted.ring_bytes = bytes.0;
        }
        let mut capture = Capture::start(&wanted).map_err(unsupported)?;
        let files = u32::try_from(capture.rings()).unwrap_or(u32::MAX);
        let rings: Result<Vec<Out>> = (0..=files)
            .map(|number| Out::create(folder, &waits_of(number)))
            .collect();
        let mut out = Files {
            rings: rings?,
            maps: Out::create(folder, MAPS)?,
            paths: Out::create(folder, CGROUPS)?,
            cgroups: Cgroups::new(system),
            processes: HashMap::new(),
            wanted: HashMap::new(),
        };
        let found = out.cgroups.walk();
        out.paths.lines(found);
        if !options.only {
            capture
                .follow(&Follow::all(Level::Waits))
                .map_err(unsupported)?;
        }
        let lacks = |part| capture.lacks().iter().any(|(lack, _)| *lack == part);
        let mut has = [Part::AddressSpace, Part::Calls].into_iter();
        let has_mappings = has.any(|part| options.parts.contains(&part) && !lacks(part));
        Ok(WaitSpool {
            capture,
            out,
            has_mappings,
            no_page_locks: !options.parts.contains(&Part::PageLock),
        })
    }

    /// Returns its part of the spool's description.
    #[must_use]
    pub fn description(&self) -> WaitsDescription {
        WaitsDescription {
            files: u32::try_from(self.out.rings.len()).unwrap_or(u32::MAX),
            no_page_locks: self.no_page_locks,
        }
    }

    /// Returns the kernel's events that are recorded.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.capture
            .events()
            .map(|event| format!("bpf:{event}"))
            .collect()
    }

    /// Returns the parts that this kernel refuses.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let lacks = self.capture.lacks().iter();
        lacks
            .map(|(part, why)| {
                let why = match part {
                    Part::AddressSpace => format!(
                        "mmap, munmap, brk, mremap, mprotect and madvise are recorded where they wait only, because the kernel lets no \
                         program attach to its functions ({why}); --events all records each, and slows every system call of the machine"
                    ),
                    _ => why.clone(),
                };
                Missing::new(part.word(), why)
            })
            .collect()
    }

    /// Returns whether the calls that map and unmap are recorded.
    #[must_use]
    pub(crate) fn has_mappings(&self) -> bool {
        self.has_mappings
    }

    /// Records waits, stacks and spans of all threads of the process `pid`, and of what they make; `None`: of the whole machine.
    ///
    /// # Errors
    /// Where the system refuses to look at its threads.
    pub fn follow(&mut self, pid: Option<u32>) -> Result<()> {
        let follow = Follow {
            process: pid,
            ..Follow::all(Level::Whole)
        };
        self.capture.follow(&follow).map_err(unsupported)?;
        Ok(())
    }

    /// Returns a descriptor that is readable when [`WaitSpool::drain`] should not wait for its turn, see [`Capture::bell`].
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.capture.bell()
    }

    /// Moves what has come into the files, and reads the mappings of processes whose stacks are among it.
    ///
    /// # Errors
    /// A full disk among them: what was written before is whole records but for the last.
    pub fn drain(&mut self, system: &dyn System) -> Result<()> {
        let out = &mut self.out;
        self.capture.read(|number, record| out.put(number, record));
        out.flush(system)
    }

    /// Ends the capture and moves the rest into the files. Returns what was lost, and what could not be done.
    pub fn stop(self, system: &dyn System) -> (Vec<Loss>, Vec<Missing>) {
        let WaitSpool {
            capture, mut out, ..
        } = self;
        let lost = capture.stop(|number, record| out.put(number, record));
        let mut missing = Vec::new();
        if let Err(error) = out.flush(system) {
            missing.push(Missing::new("the last waits", error.to_string()));
        }
        let count = lost.unwrap_or_else(|error| {
            missing.push(Missing::new(
                "waits that were open, and what was lost",
                error.to_string(),
            ));
            0
        });
        let losses = (count > 0).then(|| Loss {
            what: "rings of BPF".to_owned(),
            count,
        });
        (losses.into_iter().collect(), missing)
    }
}

impl Files {
    /// Keeps a record for the next [`Files::flush`]: its length in 4 bytes, then itself.
    fn put(&mut self, number: usize, record: &[u8]) {
        let Some(out) = self.rings.get_mut(number) else {
            return;
        };
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        out.buffer.extend_from_slice(&length.to_le_bytes());
        out.buffer.extend_from_slice(record);
        self.cgroups.see(record);
        if let Some((pid, address, code)) = Record::place_of_stack(record) {
            if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&pid) {
                return;
            }
            let known = self.processes.entry(pid).or_default();
            let uncovered = !known.ranges.iter().any(|range| range.contains(&address));
            let changed = std::mem::replace(&mut known.code, code) != code;
            if uncovered || changed {
                *self.wanted.entry(pid).or_default() |= uncovered;
            }
        }
    }

    fn flush(&mut self, system: &dyn System) -> Result<()> {
        let now = system.now();
        for (pid, uncovered) in std::mem::take(&mut self.wanted) {
            let known = self.processes.entry(pid).or_default();
            if !uncovered && now < known.read + READ_AGAIN {
                self.wanted.insert(pid, uncovered);
                continue;
            }
            // A process that is gone has no mappings: its frames stay addresses.
            let mappings = maps::executable(system, pid).unwrap_or_default();
            let ranges = mappings.iter().map(|mapping| mapping.start..mapping.end);
            known.ranges = ranges.collect();
            known.read = system.now();
            let time_ns = known.read.0;
            let mappings = mappings.into_iter();
            self.maps
                .lines(mappings.map(|mapping| Mapped { time_ns, mapping }));
        }
        self.paths.lines(self.cgroups.look(system));
        self.paths.flush()?;
        self.rings.iter_mut().try_for_each(Out::flush)?;
        self.maps.flush()
    }
}

impl Out {
    fn create(folder: &Folder, name: &str) -> Result<Out> {
        let path = folder.path().join(name);
        let file = folder
            .create(name.as_ref(), 0o600)
            .map_err(|error| Error::file(&path, error))?;
        Ok(Out {
            file,
            path,
            buffer: Vec::new(),
        })
    }

    /// Keeps a JSON object a line for the next [`Out::flush`].
    fn lines(&mut self, lines: impl IntoIterator<Item = impl Serialize>) {
        for line in lines {
            let line = serde_json::to_vec(&line);
            self.buffer.extend(line.unwrap_or_default());
            self.buffer.push(b'\n');
        }
    }

    fn flush(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| Error::file(&self.path, error))
    }
}

pub(crate) fn unsupported(error: stopgap_capture::Error) -> Error {
    match error {
        stopgap_capture::Error::Unsupported(why) => {
            stopgap_kernel::Error::unsupported("capture by BPF", why).into()
        }
        stopgap_capture::Error::System { what, error } => Error::file(what.as_ref(), error),
    }
}
