use std::collections::HashMap;
use std::io::{self, Write};

use super::timeline::{Form, Label, Run, Runs, Step, Track, What};
use super::{Out, buffered};
use crate::cell::Put;
use crate::lines::Object;
use crate::{Event, Kind, Metadata, Text};
use stopgap_events::units::Nanos;
use stopgap_events::wait::{State, Wait};

/// Above every process and thread id of Linux (2^22 at most): ids of what is neither.
const MACHINE: u32 = 1 << 30;
/// Threads whose process the trace does not name.
const NO_PROCESS: u32 = MACHINE + 1;

/// JSON in the Trace Event Format, object form, as `chrome://tracing`, Perfetto and Speedscope read
/// it: one event a line.
///
/// The format has no CPUs: they are threads of a process that is none, `machine`, on which slices
/// have the running threads' names, and arrows lead from the waker's CPU to where the woken thread
/// runs next. On a thread's own track a slice says what it does off its CPU. A sample is a point with its stack. Times are microseconds with three decimals, exact
/// in the file; a reader that takes numbers as doubles loses nanoseconds after 104 days.
pub(super) struct Chrome<'w> {
    out: Out<'w>,
    /// The identifiers of tracks that are neither a thread's nor a counter's.
    others: HashMap<Thread, u32>,
    /// The name that was written for each process and thread.
    named: HashMap<(u32, u32), Text>,
    runs: Runs,
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
    duration: Option<Nanos>,
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
            runs: Runs::default(),
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
            Thread::Track(Track::Span { tid, what, .. }) => match tid {
                Some(tid) => format!("thread {tid} {what}"),
                None => what.to_string(),
            },
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
        if let Some(duration) = entry.duration {
            let (micros, nanos) = (duration.0 / 1_000, duration.0 % 1_000);
            write!(out, ",\"dur\":{micros}.{nanos:03}")?;
        }
        if let Some(event) = entry.arguments {
            let mut object = Object::default();
            event.kind.put_cells(&mut (&mut object as &mut dyn Put));
            out.write_all(b",\"args\":")?;
            out.write_all(object.closed())?;
        }
        out.write_all(b"}")
    }

    /// Draws a whole slice.
    fn slice(
        &mut self,
        (from, to): (Nanos, Nanos),
        ids: (u32, u32),
        name: &str,
        arguments: Option<&Event>,
    ) -> io::Result<()> {
        let entry = Entry {
            phase: "X",
            label: Some((name, "sched")),
            duration: Some(to.saturating_sub(from)),
            arguments,
            ..Entry::default()
        };
        self.entry(from, ids, &entry)
    }

    /// The run that a wait ended, on the track of its CPU, and the wait on that of its thread.
    fn wait(&mut self, event: &Event, wait: &Wait, thread: (u32, u32)) -> io::Result<()> {
        if let Some(run) = self.runs.wait(event, wait) {
            self.run(event.tid, event.comm.as_ref(), run, wait.left, Some(event))?;
        }
        let ready = match wait.state {
            Some(State::Runnable) => Some(wait.left),
            _ => wait.woken,
        };
        let over = ready.unwrap_or(event.time);
        if !wait.began_before && wait.left < over {
            let state = wait.state.map_or("off its CPU", state);
            self.slice((wait.left, over), thread, state, None)?;
        }
        let Some(ready) = ready.filter(|&ready| ready < event.time) else {
            return Ok(());
        };
        self.slice((ready, event.time), thread, state(State::Runnable), None)?;
        self.arrow(event, wait, ready)
    }

    fn run(
        &mut self,
        tid: Option<u32>,
        comm: Option<&Text>,
        run: Run,
        to: Nanos,
        arguments: Option<&Event>,
    ) -> io::Result<()> {
        let tid = tid.unwrap_or_default();
        let name = match comm {
            Some(comm) => format!("{comm} {tid}"),
            None => format!("thread {tid}"),
        };
        let ids = self.other(Thread::Cpu(run.cpu))?;
        self.slice((run.from, to), ids, &name, arguments)
    }

    /// An arrow from the waker's run to that of the woken thread, where both are on CPUs that are known.
    fn arrow(&mut self, event: &Event, wait: &Wait, woken: Nanos) -> io::Result<()> {
        let waker = wait.waker.as_ref();
        let from = waker.and_then(|waker| self.runs.cpu_of(waker.task.tid, woken));
        let (Some(from), Some(to), Some(ran)) = (from, event.cpu, wait.ran) else {
            return Ok(());
        };
        self.arrows += 1;
        for (phase, time, cpu) in [("s", woken, from), ("f", ran, to)] {
            let ids = self.other(Thread::Cpu(cpu))?;
            let entry = Entry {
                phase,
                label: Some(("wake-up", "sched")),
                arrow: Some(self.arrows),
                ..Entry::default()
            };
            self.entry(time, ids, &entry)?;
        }
        Ok(())
    }
}

/// The words for what a thread does off its CPU.
fn state(state: State) -> &'static str {
    match state {
        State::Runnable => "runnable (R)",
        State::Sleeping => "asleep (S)",
        State::Blocked => "asleep (D)",
        State::Idle => "idle (I)",
        State::Stopped => "stopped (T)",
        State::Traced => "traced (t)",
        State::Parked => "parked (P)",
        State::Dead => "ended (X)",
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
            ..Entry::default()
        };
        self.entry(step.time, ids, &entry)
    }

    fn event(&mut self, event: &Event, track: &Track) -> io::Result<()> {
        let ids = self.ids(track)?;
        if let (Track::Thread { .. }, Some(comm)) = (track, &event.comm) {
            self.name(ids.0, ids.1, comm)?;
        }
        match &event.kind {
            Kind::Wait(wait) => self.wait(event, wait, ids),
            Kind::Sample { .. } => {
                let entry = Entry {
                    phase: "i",
                    label: Some((event.kind.word(), "sched")),
                    arguments: Some(event),
                    ..Entry::default()
                };
                self.entry(event.time, ids, &entry)
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self, end: Nanos) -> io::Result<()> {
        for (tid, run) in self.runs.last() {
            let mut named = self.named.iter();
            let comm = named.find_map(|(ids, comm)| (ids.1 == tid).then(|| Text::clone(comm)));
            self.run(Some(tid), comm.as_ref(), run, end, None)?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}
