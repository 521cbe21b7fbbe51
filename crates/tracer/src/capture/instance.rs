//! The files of a tracefs instance.

use std::path::{Path, PathBuf};

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Bytes;
use stopgap_kernel::files::{read_lossy, read_text};
use stopgap_kernel::tracefs::Tracefs;
use stopgap_kernel::{System, syscalls};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::events::{EventName, STACK, SWITCH};
use crate::filter;

/// An instance that was made.
pub(crate) struct Instance<'s> {
    system: &'s dyn System,
    /// Files of tracefs itself.
    root: PathBuf,
    path: PathBuf,
}

/// When a thread that waits leaves its stack: one costs as much as several other events
/// (`stopgap-bench overhead --parts`). No other event explains an uninterruptible sleep (2); an interruptible one (1)
/// the open system call, a lock's contention or a fence's own events mostly do, so the stack is taken
/// where the CPU has nothing else to do.
const STACK_TRIGGER: &str = "stacktrace if prev_state & 2 || (prev_state & 1 && next_pid == 0)";
/// Readers are woken when so much of a buffer is full.
const BUFFER_PERCENT: &str = "20";

impl<'s> Instance<'s> {
    pub(crate) fn new(system: &'s dyn System, tracefs: &Tracefs, name: &str) -> Instance<'s> {
        Instance {
            system,
            root: tracefs.path().to_owned(),
            path: tracefs.instance(name),
        }
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        Ok(self.system.write(&self.path.join(file), text.as_bytes())?)
    }

    pub(crate) fn switch(&self, on: bool) -> Result<()> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    pub(crate) fn raw_pipe(&self, cpu: u32) -> PathBuf {
        self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"))
    }

    pub(crate) fn header_page(&self) -> Result<String> {
        Ok(read_text(
            self.system,
            self.root.join("events/header_page"),
        )?)
    }

    /// CPUs that have a buffer.
    pub(crate) fn cpus(&self) -> Result<Vec<u32>> {
        let names = self.system.list(&self.path.join("per_cpu"))?;
        let number = |name: &String| name.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> = names.iter().filter_map(number).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Follows what followed threads fork; what is missing where the kernel cannot.
    pub(super) fn follow_forks(&self) -> Option<Missing> {
        let error = self.write("options/event-fork", "1").err()?;
        let why = format!("this kernel cannot follow them: {error}");
        Some(Missing::new("what the processes fork", why))
    }

    /// Switches tracing off, sets clock, buffers and options.
    pub(super) fn set_up(&self, buffer: Bytes) -> Result<()> {
        self.switch(false)?;
        self.write("trace_clock", "mono")?;
        let kib = (buffer.0 / 1024).to_string();
        self.write("buffer_size_kb", &kib)?;
        // Names come with the events; a kernel without these only does more than is needed.
        for (option, value) in [
            ("options/record-cmd", "0"),
            ("buffer_percent", BUFFER_PERCENT),
        ] {
            match self.write(option, value) {
                Err(Error::System(error)) if error.is_absent() || error.is_refused() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Chooses these events (nothing is written while tracing is off), with the filter of system calls and, where `stacks`
    /// says so, the stacks of blocking threads.
    pub(super) fn choose(
        &self,
        events: impl Iterator<Item = EventName>,
        stacks: bool,
        description: &mut Description,
        missing: &mut Vec<Missing>,
    ) -> Result<()> {
        for event in events {
            let folder = format!("events/{}/{}", event.system, event.event);
            match self.format(event, &self.path.join(&folder)) {
                Ok(format) => {
                    description.formats.insert(event.to_string(), format);
                }
                Err(Error::System(error)) if error.is_absent() => {
                    let what = format!("event {event}");
                    missing.push(Missing::new(what, "this kernel does not have it"));
                    continue;
                }
                Err(error) => return Err(error),
            }
            if event.system == "raw_syscalls" {
                let chosen = syscalls::chosen();
                let numbers: Vec<u32> = chosen.iter().map(|(number, _)| *number).collect();
                self.write(&format!("{folder}/filter"), &filter::for_numbers(&numbers))?;
                let names = chosen.into_iter();
                description.syscalls = names.map(|(n, name)| (n, name.to_owned())).inserted();
            }
            if stacks && event == SWITCH {
                self.want_stack(&folder, description, missing);
            }
            self.write(&format!("{folder}/enable"), "1")?;
        }
        description.metadata.events = Some(description.formats.keys().cloned().collect());
        description.migrate_types = self.migrate_types().unwrap_or_default();
        Ok(())
    }

    pub(crate) fn format(&self, event: EventName, folder: &Path) -> Result<String> {
        let text = read_lossy(self.system, folder.join("format"))?;
        if text.is_empty() {
            let what = format!("format of {event}");
            return Err(Error::description(what, "it is empty"));
        }
        Ok(text)
    }

    fn want_stack(&self, folder: &str, description: &mut Description, missing: &mut Vec<Missing>) {
        let place = format!("events/{}/{}", STACK.system, STACK.event);
        let wanted = self
            .format(STACK, &self.root.join(place))
            .and_then(|format| {
                self.write(&format!("{folder}/trigger"), STACK_TRIGGER)?;
                Ok(format)
            });
        match wanted {
            Ok(format) => {
                description.formats.insert(STACK.to_string(), format);
            }
            Err(error) => {
                missing.push(Missing::new("the stack of who blocks", error.to_string()));
            }
        }
    }

    /// The kernel's words, in the order of their numbers (`/proc/pagetypeinfo`, root only).
    fn migrate_types(&self) -> Option<Vec<String>> {
        let text = read_text(self.system, "/proc/pagetypeinfo").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Number of blocks type"))?;
        Some(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Captures these threads too.
    pub(crate) fn follow(&self, tids: impl Iterator<Item = u32>) -> Result<()> {
        // One at a time: a thread that has just ended is no reason to refuse the others.
        for tid in tids {
            match self.write("set_event_pid", &tid.to_string()) {
                Err(Error::System(error)) if error.is_invalid() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns the sum of these counts of a CPU; `overrun` are events that were replaced before they were read.
    pub(super) fn counts(&self, cpu: u32, names: &[&str]) -> Result<u64> {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/stats"));
        let text = read_text(self.system, &path)?;
        let wrong = |what: &str| Error::description(path.display().to_string(), what);
        let mut sum: u64 = 0;
        for name in names {
            let line = text
                .lines()
                .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
            let count: u64 = line
                .and_then(|count| count.trim().parse().ok())
                .ok_or_else(|| wrong(&format!("no count '{name}'")))?;
            sum = sum.saturating_add(count);
        }
        Ok(sum)
    }
}
