//! System calls that take too long, seen while they happen: a second, small instance of tracefs with
//! the begin and end of some calls alone, whose few pages are read a few times a second.
//!
//! The cost is a comparison of numbers at each system call of a watched thread, and an event of 64
//! bytes at begin and end of a chosen call.

mod tracker;

use std::path::PathBuf;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::files::read_lossy;
use stopgap_kernel::journal::{Journal, Scope};
use stopgap_kernel::linux::TraceReader;
use stopgap_kernel::tracefs::Tracefs;
use stopgap_kernel::{System, syscalls};

use crate::capture::instance::Instance;
use crate::capture::{exclude_ourselves, instance_of};
use crate::error::{Error, Result};
use crate::events::EventName;
use crate::filter;
use crate::format::{Field, Format};
use crate::page::PageLayout;

pub use tracker::SlowCall;
use tracker::Tracker;

/// A CPU's buffer: some thousand calls between two looks. What does not fit is lost, and a call whose
/// end is lost is not told.
const BUFFER: Bytes = Bytes::kib(512);
/// Pages of one CPU in one look: more is a flood of calls, of which the rest waits for the next look.
const MOST_PAGES: usize = 512;

/// A watched call: its name and the duration above which it is slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The kernel's name, as `mmap`.
    pub call: String,
    /// So long or longer.
    pub time: Nanos,
}

/// Watches calls. Dropped, it leaves no instance.
pub struct SlowCalls<'j, 's> {
    system: &'s dyn System,
    // Before the scope: an open pipe would keep the instance.
    pipes: Vec<TraceReader>,
    scope: Option<Scope<'j, 's>>,
    path: PathBuf,
    layout: PageLayout,
    page: Vec<u8>,
    enter: Call,
    exit: Call,
    tracker: Tracker,
    _tracefs: Tracefs,
}

/// Where an event has what is asked of it.
struct Call {
    event: u16,
    tid: Field,
    number: Field,
}

/// One record of a CPU.
pub(crate) struct Step {
    pub(crate) time: u64,
    pub(crate) tid: u32,
    pub(crate) number: u32,
    pub(crate) enters: bool,
}

/// The name of the instance of the watcher with this process id.
#[must_use]
pub fn instance_name(watcher: u32) -> String {
    format!("{}-watch", instance_of(watcher))
}

/// The number of a call that can be watched, by its name.
#[must_use]
pub fn number(call: &str) -> Option<u32> {
    let chosen = syscalls::chosen();
    let found = chosen.into_iter().find(|(_, name)| *name == call);
    found.map(|(number, _)| number)
}

impl<'j, 's> SlowCalls<'j, 's> {
    /// Makes the instance and begins: of the process `pid` and what it forks, or of all but this
    /// process and what it forks.
    ///
    /// # Errors
    /// As [`crate::capture::Window::prepare`]; a call that is not among [`syscalls::chosen`].
    pub fn start(
        system: &'s dyn System,
        journal: &'j Journal<'s>,
        limits: &[Limit],
        pid: Option<u32>,
    ) -> Result<SlowCalls<'j, 's>> {
        let mut numbers = Vec::new();
        for limit in limits {
            let number = number(&limit.call).ok_or_else(|| {
                Error::description(
                    &limit.call,
                    "no system call that is captured on this machine",
                )
            })?;
            numbers.push((number, limit.call.clone(), limit.time));
        }
        let tracefs = system.tracefs()?;
        let scope = journal.scope();
        let name = instance_name(system.pid());
        journal.make_trace_instance(&name)?;
        let instance = Instance::new(system, &tracefs, &name);
        instance.switch(false)?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &(BUFFER.0 / 1024).to_string())?;
        let watched: Vec<u32> = numbers.iter().map(|(number, ..)| *number).collect();
        let filter = filter::for_numbers(&watched);
        let event = |event: &'static str| -> Result<Call> {
            let folder = format!("events/raw_syscalls/{event}");
            let system = "raw_syscalls";
            let text =
                instance.format(EventName { system, event }, &instance.path().join(&folder))?;
            let format = Format::parse(&folder, &text)?;
            let field = |name: &str| {
                let found = format.field(name).cloned();
                found.ok_or_else(|| Error::description(&folder, format!("it has no field {name}")))
            };
            let call = Call {
                event: format.id,
                tid: field("common_pid")?,
                number: field("id")?,
            };
            instance.write(&format!("{folder}/filter"), &filter)?;
            instance.write(&format!("{folder}/enable"), "1")?;
            Ok(call)
        };
        let (enter, exit) = (event("sys_enter")?, event("sys_exit")?);
        match pid {
            None => exclude_ourselves(system, instance.path())?,
            Some(pid) => {
                // A kernel that does not know it follows nobody; the window says so.
                let _ = instance.write("options/event-fork", "1");
                let threads = system.list(format!("/proc/{pid}/task").as_ref())?;
                instance.follow(threads.iter().filter_map(|tid| tid.parse().ok()))?;
            }
        }
        let layout = PageLayout::parse("header_page", &instance.header_page()?)?;
        let mut pipes = Vec::new();
        for cpu in instance.cpus()? {
            pipes.push(TraceReader::open(&instance.raw_pipe(cpu))?);
        }
        instance.switch(true)?;
        Ok(SlowCalls {
            system,
            pipes,
            scope: Some(scope),
            page: vec![0; layout.page_bytes()],
            layout,
            enter,
            exit,
            tracker: Tracker::new(numbers),
            path: instance.path().to_owned(),
            _tracefs: tracefs,
        })
    }

    /// Calls that have turned out to be slow since the last look: ended, or still open. One that is
    /// still open is reported once, and again when it has ended.
    ///
    /// # Errors
    /// As read(2) of the pages.
    pub fn look(&mut self) -> Result<Vec<SlowCall>> {
        let mut steps = Vec::new();
        let mut lost = false;
        for pipe in &mut self.pipes {
            for _ in 0..MOST_PAGES {
                let Some(length) = pipe.next(&mut self.page)? else {
                    break;
                };
                // A record that cannot be understood is as good as lost.
                let Ok(page) = self.layout.page(&self.page[..length]) else {
                    lost = true;
                    continue;
                };
                lost |= page.lost.is_some();
                for record in page.records() {
                    let Ok(record) = record else {
                        lost = true;
                        break;
                    };
                    let enters = record.id() == Some(self.enter.event);
                    let call = if enters { &self.enter } else { &self.exit };
                    if record.id() != Some(call.event) {
                        continue;
                    }
                    let tid = call.tid.unsigned(record.data);
                    let number = call.number.unsigned(record.data);
                    if let (Some(tid), Some(number)) = (tid, number)
                        && let (Ok(tid), Ok(number)) = (u32::try_from(tid), u32::try_from(number))
                    {
                        let time = record.time;
                        steps.push(Step {
                            time,
                            tid,
                            number,
                            enters,
                        });
                    }
                }
            }
        }
        steps.sort_by_key(|step| step.time); // a thread changes its CPU within a call
        if lost {
            self.tracker.forget();
        }
        let mut slow = self.tracker.ended(&steps);
        let system = self.system;
        let is_in = |tid: u32, number: u32| {
            // The first word is the number of the call, or "running" for a thread on a CPU.
            let text = read_lossy(system, format!("/proc/{tid}/syscall"));
            text.is_ok_and(|text| {
                let word = text.split_whitespace().next();
                word == Some("running") || word.and_then(|w| w.parse().ok()) == Some(number)
            })
        };
        slow.extend(self.tracker.open(system.now(), is_in));
        Ok(slow)
    }

    /// Where its instance is.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Ends it.
    ///
    /// # Errors
    /// Where the instance could not be removed.
    pub fn stop(mut self) -> Result<()> {
        self.pipes.clear();
        let undone = self.scope.take().map(Scope::undo);
        match undone.unwrap_or_default().into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
