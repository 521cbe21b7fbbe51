use std::collections::HashMap;
use std::io::{self, Write};

use super::timeline::{Form, Label, Step, Track, What};
use super::{Out, buffered};
use crate::lines::Object;
use crate::{Event, Kind, Metadata, Text};
use stopgap_events::units::Nanos;

/// Above every process and thread id of Linux (2^22 at most): ids of what is neither.
const MACHINE: u32 = 1 << 30;
/// Threads whose process the trace does not name.
const NO_PROCESS: u32 = MACHINE + 1;

/// JSON in the Trace Event Format, object form, as `chrome://tracing`, Perfetto and Speedscope read
/// it: one event a line.
///
/// The format has no CPUs: they are threads of a process that is none, `machine`, on which slices
/// have the running threads' names, and arrows lead from the waker's CPU to where the woken thread
/// runs next. A sample is a point with its stack. Times are microseconds with three decimals, exact
/// in the file; a reader that takes numbers as doubles loses nanoseconds after 104 days.
pub(super) struct Chrome<'w> {
    out: Out<'w>,
    /// The identifiers of tracks that are neither a thread's nor a counter's.
    others: HashMap<Thread, u32>,
    /// The name that was written for each process and thread.
    named: HashMap<(u32, u32), Text>,
    /// CPUs on which a slice is open.
    running: HashMap<u32, u32>,
    /// The arrows that wait for their thread to run.
    woken: HashMap<u32, u64>,
    arrows: u64,
}

#[derive(PartialEq, Eq, Hash)]
enum Thread {
    Cpu(u32),
    Track(Track),
}

/// One entry; what is empty is left out.
#[derive(Default)]
struct Entry<'a> {
    phase: &'static str,
    label: Option<(&'a str, &'a str)>,
    arguments: Option<&'a Event>,
    arrow: Option<u64>,
}

impl<'w> Chrome<'w> {
    /// Begins the file, with what the trace says of itself. Give it a buffered writer.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub(super) fn new(out: impl Write + 'w, metadata: &Metadata) -> io::Result<Chrome<'w>> {
        let mut out = buffered(out);
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
        serde_json::to_writer(&mut out, metadata)?;
        out.write_all(b",\"traceEvents\":[")?;
        let mut chrome = Chrome {
            out,
            others: HashMap::new(),
            named: HashMap::new(),
            running: HashMap::new(),
            woken: HashMap::new(),
            arrows: 0,
        };
        chrome.out.write_all(b"\n")?;
        chrome.describe("process_name", MACHINE, MACHINE, "machine")?;
        Ok(chrome)
    }

    fn describe(&mut self, what: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        // The first line has no comma before it, and is the machine's.
        if pid != MACHINE || what != "process_name" {
            self.out.write_all(b",\n")?;
        }
        write!(
            self.out,
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":"
        )?;
        serde_json::to_writer(&mut self.out, name)?;
        self.out.write_all(b"}}")
    }

    /// Writes a thread's name where it is new.
    fn name(&mut self, pid: u32, tid: u32, name: &Text) -> io::Result<()> {
        if self.named.get(&(pid, tid)) == Some(name) {
            return Ok(());
        }
        self.named.insert((pid, tid), Text::clone(name));
        self.describe("thread_name", pid, tid, name)?;
        if pid == tid {
            self.describe("process_name", pid, tid, name)?;
        }
        Ok(())
    }

    /// The process and thread ids of a track that is neither's.
    fn other(&mut self, thread: Thread) -> io::Result<(u32, u32)> {
        if let Some(&tid) = self.others.get(&thread) {
            return Ok((MACHINE, tid));
        }
        // Above the ids of CPUs' and of everything that was named before.
        let tid = MACHINE + 1 + u32::try_from(self.others.len()).unwrap_or(MACHINE - 1);
        let name = match &thread {
            Thread::Cpu(cpu) => format!("CPU {cpu}"),
            Thread::Track(Track::Throttled { tid }) => format!("thread {tid} throttled"),
            Thread::Track(Track::Device { device, lane }) => format!("block {device} #{lane}"),
            Thread::Track(_) => "no thread".to_owned(),
        };
        self.others.insert(thread, tid);
        self.describe("thread_name", MACHINE, tid, &name)?;
        Ok((MACHINE, tid))
    }

    fn ids(&mut self, track: &Track) -> io::Result<(u32, u32)> {
        match *track {
            Track::Thread { pid, tid } => Ok((pid.unwrap_or(NO_PROCESS), tid)),
            Track::Counter { pid, .. } => Ok((pid.unwrap_or(MACHINE), pid.unwrap_or(MACHINE))),
            _ => self.other(Thread::Track(track.clone())),
        }
    }

    fn entry(&mut self, time: Nanos, (pid, tid): (u32, u32), entry: &Entry<'_>) -> io::Result<()> {
        let out = &mut self.out;
        let (micros, nanos) = (time.0 / 1_000, time.0 % 1_000);
        let phase = entry.phase;
        write!(
            out,
            ",\n{{\"ph\":\"{phase}\",\"ts\":{micros}.{nanos:03},\"pid\":{pid},\"tid\":{tid}"
        )?;
        if let Some((name, category)) = entry.label {
            write!(out, ",\"cat\":\"{category}\",\"name\":")?;
            serde_json::to_writer(&mut *out, name)?;
        }
        match phase {
            "i" => out.write_all(b",\"s\":\"t\"")?,
            "f" => out.write_all(b",\"bp\":\"e\"")?,
            _ => {}
        }
        if let Some(arrow) = entry.arrow {
            write!(out, ",\"id\":{arrow}")?;
        }
        if let Some(event) = entry.arguments {
            let mut object = Object::default();
            event.kind.put_cells(&mut object);
            out.write_all(b",\"args\":")?;
            out.write_all(object.closed())?;
        }
        out.write_all(b"}")
    }

    fn switch(&mut self, event: &Event, cpu: u32) -> io::Result<()> {
        let Kind::Switch {
            next_tid,
            next_comm,
            ..
        } = &event.kind
        else {
            return Ok(());
        };
        let ids = self.other(Thread::Cpu(cpu))?;
        if self.running.remove(&cpu).is_some() {
            let entry = Entry {
                phase: "E",
                arguments: Some(event),
                ..Entry::default()
            };
            self.entry(event.time, ids, &entry)?;
        }
        // 0 is nobody: the CPU is idle.
        let Some(next) = next_tid.filter(|&tid| tid != 0) else {
            return Ok(());
        };
        self.running.insert(cpu, next);
        let name = match next_comm {
            Some(comm) => format!("{comm} {next}"),
            None => format!("thread {next}"),
        };
        let label = Some((&*name, "sched"));
        let entry = |phase, arrow| Entry {
            phase,
            label,
            arguments: None,
            arrow,
        };
        self.entry(event.time, ids, &entry("B", None))?;
        if let Some(arrow) = self.woken.remove(&next) {
            let label = Some(("wake-up", "sched"));
            let entry = Entry {
                label,
                ..entry("f", Some(arrow))
            };
            self.entry(event.time, ids, &entry)?;
        }
        Ok(())
    }

    /// The beginning of an arrow: it ends where the thread runs next.
    fn wake(&mut self, event: &Event, target: u32) -> io::Result<()> {
        let Some(cpu) = event.cpu.filter(|cpu| self.running.contains_key(cpu)) else {
            return Ok(()); // from no slice, no arrow
        };
        self.arrows += 1;
        self.woken.insert(target, self.arrows);
        let ids = self.other(Thread::Cpu(cpu))?;
        let entry = Entry {
            phase: "s",
            label: Some(("wake-up", "sched")),
            arrow: Some(self.arrows),
            arguments: Some(event),
        };
        self.entry(event.time, ids, &entry)
    }
}

impl Form for Chrome<'_> {
    fn step(&mut self, step: &Step<'_>) -> io::Result<()> {
        let ids = self.ids(&step.track)?;
        let named = |label: &Label, phase| (label.name.clone(), label.category, phase);
        let (name, category, phase) = match &step.what {
            What::Begin(label) => named(label, "B"),
            What::Point(label) => named(label, "i"),
            What::Count(_) => match &step.track {
                Track::Counter { name, .. } => (name.to_string(), "counter", "C"),
                _ => return Ok(()), // only counters count
            },
            What::End => (String::new(), "", "E"),
        };
        if let What::Count(value) = step.what {
            // Every member of a counter's arguments is a line of its graph: only the value.
            let (micros, nanos) = (step.time.0 / 1_000, step.time.0 % 1_000);
            let (pid, _) = ids;
            write!(
                self.out,
                ",\n{{\"ph\":\"C\",\"ts\":{micros}.{nanos:03},\"pid\":{pid},\"name\":"
            )?;
            serde_json::to_writer(&mut self.out, &name)?;
            return write!(self.out, ",\"args\":{{\"value\":{value}}}}}");
        }
        let entry = Entry {
            phase,
            label: (phase != "E").then_some((&*name, category)),
            arguments: step.event,
            arrow: None,
        };
        self.entry(step.time, ids, &entry)
    }

    fn event(&mut self, event: &Event, track: &Track) -> io::Result<()> {
        let ids = self.ids(track)?;
        if let (Track::Thread { .. }, Some(comm)) = (track, &event.comm) {
            self.name(ids.0, ids.1, comm)?;
        }
        match (&event.kind, event.cpu) {
            (Kind::Switch { .. }, Some(cpu)) => self.switch(event, cpu),
            (Kind::Waking { target_tid, .. } | Kind::New { target_tid, .. }, _) => {
                self.wake(event, *target_tid)
            }
            (Kind::Sample { .. } | Kind::Switch { .. }, _) => {
                let entry = Entry {
                    phase: "i",
                    label: Some((event.kind.word(), "sched")),
                    arguments: Some(event),
                    arrow: None,
                };
                self.entry(event.time, ids, &entry)
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self, end: Nanos) -> io::Result<()> {
        let mut cpus: Vec<u32> = self.running.keys().copied().collect();
        cpus.sort_unstable();
        for cpu in cpus {
            let ids = self.other(Thread::Cpu(cpu))?;
            let entry = Entry {
                phase: "E",
                ..Entry::default()
            };
            self.entry(end, ids, &entry)?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}
