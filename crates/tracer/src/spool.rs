//! A spool: the folder in which a capture keeps its pages until the trace file is written, and from
//! which it can still be written after a crash or a full disk.
//!
//! ```text
//! spool.json      the description, written before the first page
//! cpu0.raw ...    pages of each CPU, one after the other
//! perf0.raw ..    records of perf of each CPU
//! waits0.raw ..   records of BPF of each ring; maps.jsonl the mappings of processes whose stacks they have,
//!                 cgroups.jsonl the paths of cgroups
//! counters.jsonl  counters, a row a line
//! end.json        how the capture ended and what was lost; not there after a crash
//! ```

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::folder::Folder;
use stopgap_trace::{Conditions, Loss, Metadata, Text};

use crate::counters::{COUNTERS, Rows};
use crate::description::Description;
use crate::error::{Error, Result};
use crate::page::PageLayout;
use crate::perf::{ElfNames, Records, records_of};
use crate::symbols::Symbols;
use crate::trace::{Pages, Source, Trace, Writing, Written};
use crate::waits::{CGROUPS, MAPS, Waits, waits_of};

/// The description's file.
pub const DESCRIPTION: &str = "spool.json";
/// The end's file.
pub const END: &str = "end.json";

/// The most that is read of a description: it has the mappings of a process as text, 100 bytes each.
const LARGEST_DESCRIPTION: Bytes = Bytes::mib(256);
/// The most that is read of an end: a line for each CPU.
const LARGEST_END: Bytes = Bytes::mib(16);

/// The file of a CPU's pages.
#[must_use]
pub fn pages_of(cpu: u32) -> String {
    format!("cpu{cpu}.raw")
}

/// The file of a CPU's pages of what is captured of all threads.
pub(crate) fn machine_pages_of(cpu: u32) -> String {
    format!("machine{cpu}.raw")
}

/// Names what is lost where a CPU's pages are full.
pub(crate) fn loss_of(of_machine: bool) -> fn(u32) -> String {
    match of_machine {
        false => |cpu| format!("CPU {cpu}"),
        true => |cpu| format!("requests and signals of CPU {cpu}"),
    }
}

/// How a capture ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The losses, by the kernel's count.
    pub losses: Vec<Loss>,
    /// Gaps of the capture, beside those of the description.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// The circumstances, where the recorder looked at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// Makes the folder `path` for a spool, mode 0700, in a directory that is there.
///
/// # Errors
/// `EEXIST` where anything has the name; as mkdirat(2).
pub(crate) fn make(path: &Path) -> Result<Folder> {
    let name = path.file_name().unwrap_or_default();
    Folder::open(path.parent().unwrap_or(Path::new("/")))
        .and_then(|parent| parent.make_own(name))
        .map_err(|error| Error::file(path, error))
}

/// How the capture in `folder` ended; `None` where it was cut off, or still runs.
fn end_in(folder: &Folder) -> Result<Option<End>> {
    match folder.content(END.as_ref(), LARGEST_END.0) {
        // Half of an end, as a full disk leaves it, is none.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file(&folder.path().join(END), error)),
    }
}

/// A folder of pages.
#[derive(Debug)]
pub struct Spool {
    folder: Folder,
    description: Description,
    end: Option<End>,
    watch: Option<Watch>,
}

/// Called while the files of a spool are read.
#[derive(Clone)]
struct Watch {
    /// Bytes read so far, of all files.
    read: Rc<Cell<u64>>,
    /// Takes the bytes read so far; an error ends the reading.
    ask: Rc<dyn Fn(u64) -> io::Result<()>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} bytes)", self.read.get())
    }
}

/// A file of pages or records that is read under a [`Watch`].
struct Watched {
    file: File,
    watch: Option<Watch>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if let Some(watch) = &self.watch {
            watch.read.set(watch.read.get() + count as u64);
            (watch.ask)(watch.read.get())?;
        }
        Ok(count)
    }
}

impl Spool {
    /// Opens the one that the user named, finished or not.
    ///
    /// # Errors
    /// Where it has no description, or one that cannot be read.
    pub fn open(folder: &Path) -> Result<Spool> {
        let opened = Folder::open(folder);
        Spool::from_folder(opened.map_err(|error| Error::file(&folder.join(DESCRIPTION), error))?)
    }

    /// The one in `folder`, finished or not.
    ///
    /// # Errors
    /// As [`Spool::open`].
    pub fn from_folder(folder: Folder) -> Result<Spool> {
        let file = folder.path().join(DESCRIPTION);
        let text = folder.content(DESCRIPTION.as_ref(), LARGEST_DESCRIPTION.0);
        let text = text.map_err(|error| Error::file(&file, error))?;
        let description = Description::parse(&file.display().to_string(), &text)?;
        Ok(Spool {
            end: end_in(&folder)?,
            folder,
            description,
            watch: None,
        })
    }

    /// Asks `ask` after each piece that is read of the pages, with the bytes read so far; an error that it returns
    /// ends the reading.
    pub fn watch(&mut self, ask: impl Fn(u64) -> io::Result<()> + 'static) {
        self.watch = Some(Watch {
            read: Rc::default(),
            ask: Rc::new(ask),
        });
    }

    /// Returns the bytes of all pages and records that are there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.captured()
            .filter_map(|(_, name)| self.file(&name).ok()?.metadata().ok())
            .map(|about| about.len())
            .sum()
    }

    /// Returns the missing files that its description names, each with the CPU whose events were in it.
    #[must_use]
    pub fn absent(&self) -> Vec<(u32, String)> {
        let absent =
            |(_, name): &(u32, String)| matches!(self.folder.find(name.as_ref()), Ok(None));
        self.captured().filter(absent).collect()
    }

    /// Files of pages and records that the description names, with their CPU.
    fn captured(&self) -> impl Iterator<Item = (u32, String)> {
        let of_kernel = match self.description.header_page.is_empty() {
            true => &[][..],
            false => &self.description.cpus,
        };
        let pages = of_kernel.iter().map(|&cpu| (cpu, pages_of(cpu)));
        let of_machine = self.of_machine().iter();
        let of_machine = of_machine.map(|&cpu| (cpu, machine_pages_of(cpu)));
        let perf = self.description.perf.iter().flat_map(|perf| &perf.cpus);
        let waits = self.waits().map(|ring| (ring, waits_of(ring)));
        pages
            .chain(of_machine)
            .chain(perf.map(|&cpu| (cpu, records_of(cpu))))
            .chain(waits)
    }

    /// CPUs of which there are pages of what is captured of all threads.
    fn of_machine(&self) -> &[u32] {
        match self.description.of_machine {
            true => &self.description.cpus,
            false => &[],
        }
    }

    /// The numbers of the files of waits.
    pub(crate) fn waits(&self) -> std::ops::Range<u32> {
        let described = self.description.waits.as_ref();
        // No machine has more rings.
        0..described.map_or(0, |waits| waits.files.min(1 << 12))
    }

    /// How it ended, where that could not be written.
    pub(crate) fn set_end(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Removes the folder: its trace is written.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2). What is not of a spool stays, and with it the folder.
    pub fn remove(self) -> Result<()> {
        let mut files: Vec<String> = self
            .description
            .cpus
            .iter()
            .map(|&cpu| pages_of(cpu))
            .collect();
        files.extend(self.of_machine().iter().map(|&cpu| machine_pages_of(cpu)));
        let perf = self.description.perf.iter().flat_map(|perf| &perf.cpus);
        files.extend(perf.map(|&cpu| records_of(cpu)));
        files.extend(self.waits().map(waits_of));
        let of_waits = self.description.waits.iter();
        files.extend(of_waits.flat_map(|_| [MAPS, CGROUPS].map(str::to_owned)));
        files.push(COUNTERS.to_owned());
        // Last of all, so that a spool without it is one that nobody needs.
        files.extend([END.to_owned(), DESCRIPTION.to_owned()]);
        for file in files {
            let removed = self.folder.remove(file.as_ref());
            removed.map_err(|error| Error::file(&self.folder.path().join(file), error))?;
        }
        let path = self.folder.path();
        let parent = Folder::open(path.parent().unwrap_or(Path::new("/")));
        let removed =
            parent.and_then(|parent| parent.remove_folder(path.file_name().unwrap_or_default()));
        removed.map_err(|error| Error::file(path, error))
    }

    /// How its capture ended; `None` where it was cut off.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether its capture came to an end and could say so.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// As [`Folder::read`].
    pub(crate) fn file(&self, name: &str) -> Result<File> {
        let file = self.folder.read(name.as_ref());
        file.map_err(|error| Error::file(&self.folder.path().join(name), error))
    }

    /// Returns the description of the capture.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Its events, in the order of time. `symbols` are those of the kernel that it was captured on.
    ///
    /// # Errors
    /// Where a format or a file cannot be understood or opened.
    pub fn trace(&self, symbols: &Symbols) -> Result<Trace> {
        let description = &self.description;
        let sources = self.sources(symbols, true)?;
        let trace = Trace::new(self.metadata(), self.end.clone(), sources)?;
        let perf = description.perf.as_ref();
        let perf_alone =
            description.header_page.is_empty() && perf.is_some_and(|perf| perf.scheduling);
        Ok(match perf_alone {
            true => trace.led_by(description).balanced(),
            false => trace.led_by(description),
        })
    }

    /// Begins the trace file of a capture that still runs; [`Spool::may_be_followed`] must be true of it.
    ///
    /// # Errors
    /// As [`Spool::trace`], and where the file cannot be written.
    pub fn follow<W: Write + Send>(&self, symbols: &Symbols, out: W) -> Result<Following<W>> {
        let folder = self.folder.try_clone();
        let folder = folder.map_err(|error| Error::file(self.folder.path(), error))?;
        let trace = Trace::growing(self.metadata(), self.sources(symbols, false)?);
        let writing = Writing::new(trace, out)?;
        Ok(Following { folder, writing })
    }

    /// Returns whether a trace file can be made of it while it is written: where it has waits and counters alone. Of perf's
    /// records and the kernel's pages nobody says up to which time they have come.
    #[must_use]
    pub fn may_be_followed(&self) -> bool {
        let description = &self.description;
        description.waits.is_some()
            && description.perf.is_none()
            && description.header_page.is_empty()
            && description.layouts.is_empty()
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = self.description.metadata.clone();
        metadata.sample_period_ns = self.description.perf.as_ref().and_then(|perf| perf.period);
        let absent = self.absent().into_iter().map(|(cpu, file)| {
            let why = format!("{file} is not in the folder of the recording");
            Missing::new(format!("events of CPU {cpu}"), why)
        });
        metadata.missing.extend(absent);
        metadata
    }

    /// What makes events of its files; `complete`: whether nobody writes them any more.
    fn sources(&self, symbols: &Symbols, complete: bool) -> Result<Vec<Box<dyn Source>>> {
        let description = &self.description;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        if !description.header_page.is_empty() {
            let layout = PageLayout::parse("header_page", &description.header_page)?;
            let pages = self.files(&description.cpus, pages_of)?;
            let of_machine = self.files(self.of_machine(), machine_pages_of)?;
            let pages = Pages::new(description, layout, symbols.clone(), pages, of_machine)?;
            sources.push(Box::new(pages));
        }
        if let Some(perf) = &description.perf {
            let files = self.files(&perf.cpus, records_of)?;
            let written = files
                .iter()
                .filter_map(|(_, file)| file.get_ref().file.metadata().ok()?.modified().ok());
            let names = Box::new(ElfNames::new(written.max()));
            let records = Records::new(perf, &description.tasks, symbols.clone(), names, files)?;
            sources.push(Box::new(records));
        }
        if let Some(described) = &description.waits {
            let rings: Vec<u32> = self.waits().collect();
            let rings = self
                .files(&rings, waits_of)?
                .into_iter()
                .map(|(_, file)| file);
            let lines = [MAPS, CGROUPS].map(|name| self.file(name).ok());
            let calls = description.syscalls.iter();
            let calls = calls.map(|(&number, name)| (number, Text::from(name.as_str())));
            let names = Box::new(ElfNames::new(None));
            let rings = rings.collect();
            let mut waits = Waits::new(calls, symbols.clone(), names, rings, lines, complete)?;
            if described.no_page_locks {
                waits.leave_out_page_locks();
            }
            sources.push(Box::new(waits));
        }
        if let Some(rows) = Rows::open(&self.folder, complete)? {
            sources.push(Box::new(rows));
        }
        Ok(sources)
    }

    /// The files of these CPUs, those that are there.
    fn files(
        &self,
        cpus: &[u32],
        name: fn(u32) -> String,
    ) -> Result<Vec<(u32, BufReader<Watched>)>> {
        let mut files = Vec::new();
        for &cpu in cpus {
            match self.file(&name(cpu)) {
                Ok(file) => {
                    let watch = self.watch.clone();
                    let file = Watched { file, watch };
                    files.push((cpu, BufReader::with_capacity(1 << 18, file)));
                }
                // It was lost, or the recorder was killed before it made the file: `absent` says so.
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }
}

/// A trace file that is made of a spool while the capture runs.
pub struct Following<W: Write + Send> {
    folder: Folder,
    writing: Writing<W>,
}

impl<W: Write + Send> Following<W> {
    /// Writes the events up to `time`: the capture has moved all of them to its files
    /// ([`Recording::drained`](crate::recording::Recording::drained)). `may_go_on` is asked after some thousand events; its
    /// error ends the writing.
    ///
    /// # Errors
    /// Where reading or writing fails; the system's reason.
    pub fn reach(&mut self, time: Nanos, may_go_on: impl FnMut() -> io::Result<()>) -> Result<()> {
        self.write(time.0, may_go_on)
    }

    /// Returns how many events were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.writing.count()
    }

    /// Writes the rest and ends the file: the capture has ended.
    ///
    /// # Errors
    /// As [`Following::reach`].
    pub fn finish(mut self, may_go_on: impl FnMut() -> io::Result<()>) -> Result<Written<W>> {
        self.writing.trace.set_end(end_in(&self.folder)?);
        self.write(u64::MAX, may_go_on)?;
        self.writing.finish()
    }

    fn write(&mut self, time: u64, mut may_go_on: impl FnMut() -> io::Result<()>) -> Result<()> {
        self.writing.trace.reach(time)?;
        let folder = self.folder.path();
        self.writing
            .write(|| may_go_on().map_err(|error| Error::file(folder, error)))
    }
}

/// The next page of `from`; fewer bytes than a page at the end, none after it.
pub(crate) fn read_page(from: &mut impl Read, page: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < page.len() {
        match from.read(&mut page[have..]) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
