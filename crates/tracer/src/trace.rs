//! The events of all that was captured as one trace, in the order of time.
//!
//! What captures makes a [`Source`] of its own bytes: pages of the ring buffers ([`Pages`]), records
//! of perf ([`crate::perf::Records`]). Each is in order by itself; here they are merged, and switches, wake-ups and the two
//! ends of spans become waits and spans ([`Waits`]), which the records of BPF are already.

mod balance;
mod pages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::io::Write;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_trace::{Event, Kind, Loss, MappedFile, Metadata, Waits, file};

use crate::description::Description;
use crate::error::Result;
use crate::layout;
use crate::spool::End;

use balance::Balance;
pub use pages::Pages;

/// Events of one origin.
pub trait Source {
    /// Says that all events up to this time are in the source's files, `u64::MAX` that its files are complete. A source that
    /// is never told is complete.
    fn reach(&mut self, _time: u64) {}

    /// Returns the next event, none earlier than the one before it by more than a moment; `None` after the
    /// last. Where the files still grow, `None` also comes before an event that is later than what was reached.
    ///
    /// # Errors
    /// Where reading fails; the system's reason. [`Source::report`] reports faults in the bytes.
    fn next_event(&mut self) -> Result<Option<Event>>;

    /// Returns the source's report, complete when [`Source::next_event`] has given `None`.
    fn report(&self) -> SourceReport;
}

/// A source's report of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Losses that its own bytes speak of.
    pub losses: Vec<Loss>,
    /// Data that it could not give.
    pub missing: Vec<Missing>,
    /// Files of programs and libraries in whose code stacks lie.
    pub files: Vec<MappedFile>,
}

/// The next item of each of several sources, which comes out in the order of time; of the same time, that of the source
/// with the lower number first.
pub(crate) struct Heads<T> {
    times: BinaryHeap<Reverse<(u64, usize)>>,
    items: Vec<Option<T>>,
}

impl<T> Heads<T> {
    pub(crate) fn new(sources: usize) -> Heads<T> {
        Heads {
            times: BinaryHeap::new(),
            items: (0..sources).map(|_| None).collect(),
        }
    }

    /// Adds the next item of a source that has none here.
    pub(crate) fn push(&mut self, source: usize, time: u64, item: T) {
        self.times.push(Reverse((time, source)));
        self.items[source] = Some(item);
    }

    /// Takes out the earliest item, with the number of its source.
    pub(crate) fn pop(&mut self) -> Option<(usize, T)> {
        let Reverse((_, source)) = self.times.pop()?;
        Some((source, self.items[source].take()?))
    }

    /// Whether an item of that time and source comes before all that are here.
    fn comes_before(&self, time: u64, source: usize) -> bool {
        let first = self.times.peek();
        first.is_none_or(|Reverse(first)| (time, source) < *first)
    }

    pub(crate) fn first_time(&self) -> Option<u64> {
        self.times.peek().map(|Reverse((time, _))| *time)
    }

    /// Returns whether this source has an item here.
    pub(crate) fn has(&self, source: usize) -> bool {
        self.items[source].is_some()
    }
}

/// The events of a capture: those of all its sources, merged by time.
pub struct Trace {
    sources: Vec<Box<dyn Source>>,
    heads: Heads<Event>,
    /// The source of the event that was given last: most are followed by another one of it, which need not come by `heads`.
    given: Option<usize>,
    /// The mappings before the first event; then the events that are made and were not given yet.
    ready: VecDeque<Event>,
    /// `None`: all events were given, and the open waits and spans with them.
    waits: Option<Waits>,
    /// The processes of threads that were there when the recording began: who is woken and who comes is told by thread only.
    pids: HashMap<u32, u32>,
    last: Nanos,
    metadata: Metadata,
    end: Option<End>,
    /// Where perf alone tells of switches.
    balance: Option<Balance>,
    /// No event is given that is later.
    until: u64,
}

/// Damage that was passed over.
#[derive(Default)]
pub(crate) struct Damage {
    said: Vec<Missing>,
    more: u64,
}

/// Damage that is reported piece by piece; the rest is counted.
const PIECES: usize = 20;

impl Damage {
    pub(crate) fn add(&mut self, what: String, why: String) {
        if self.said.len() < PIECES {
            self.said.push(Missing::new(what, why));
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn tell(&self, missing: &mut Vec<Missing>) {
        missing.extend(self.said.iter().cloned());
        if self.more > 0 {
            let what = format!("{} records and pages more", self.more);
            missing.push(Missing::new(what, "damaged as those before"));
        }
    }
}

impl Trace {
    /// The trace of `sources`; of events of the same time those of the source that stands first come
    /// first. `metadata` is what is known of it before it is read, `end` how its capture ended
    /// (`None`: it was cut off).
    ///
    /// # Errors
    /// Where a source cannot be read.
    pub fn new(
        metadata: Metadata,
        end: Option<End>,
        sources: Vec<Box<dyn Source>>,
    ) -> Result<Trace> {
        let mut trace = Trace {
            heads: Heads::new(sources.len()),
            given: None,
            ready: VecDeque::new(),
            waits: Some(Waits::default()),
            pids: HashMap::new(),
            last: Nanos(0),
            sources,
            metadata,
            end,
            balance: None,
            until: u64::MAX,
        };
        for index in 0..trace.sources.len() {
            trace.advance(index)?;
        }
        Ok(trace)
    }

    /// As [`Trace::new`], of sources whose files still grow: no event comes before [`Trace::reach`].
    pub(crate) fn growing(metadata: Metadata, sources: Vec<Box<dyn Source>>) -> Trace {
        Trace {
            heads: Heads::new(sources.len()),
            given: None,
            ready: VecDeque::new(),
            waits: Some(Waits::default()),
            pids: HashMap::new(),
            last: Nanos(0),
            sources,
            metadata,
            end: None,
            balance: None,
            until: 0,
        }
    }

    /// Says that the files have all events up to `time`, of every source. `u64::MAX`: the files are complete.
    ///
    /// # Errors
    /// Where a source cannot be read.
    pub(crate) fn reach(&mut self, time: u64) -> Result<()> {
        self.until = time;
        self.given = None;
        for index in 0..self.sources.len() {
            self.sources[index].reach(time);
            if !self.heads.has(index) {
                self.advance(index)?;
            }
        }
        Ok(())
    }

    /// Says how the capture ended.
    pub(crate) fn set_end(&mut self, end: Option<End>) {
        self.end = end;
    }

    /// Puts the mappings that `description` has before the first event.
    #[must_use]
    pub fn led_by(mut self, description: &Description) -> Trace {
        let (layout, missing) = layout::events(description, self.heads.first_time());
        self.ready = layout.into();
        let tasks = description.tasks.iter();
        self.pids = tasks.map(|task| (task.tid, task.pid)).collect();
        self.metadata.missing.extend(missing);
        self
    }

    /// Compares the switches with rusage, where perf is their only source: those that rusage counts in addition are missing.
    #[must_use]
    pub fn balanced(mut self) -> Trace {
        self.balance = Some(Balance::default());
        self
    }

    /// Returns the next event; `None` after the last.
    ///
    /// # Errors
    /// Where reading fails; the system's reason.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(mut event) = self.ready.pop_front() {
                self.of_its_process(&mut event);
                return Ok(Some(event));
            }
            if self.waits.is_none() {
                return Ok(None);
            }
            // An event is returned as it came, where it can be: it has 176 bytes.
            if let Some(index) = self.given {
                let mut next = self.sources[index].next_event();
                if let Ok(Some(event)) = &mut next
                    && self.comes_next(event.time.0, index)
                    && (self.waits.as_mut()).is_some_and(|waits| waits.passes(event))
                {
                    self.notes(event);
                    self.of_its_process(event);
                    return next;
                }
                if let Some(event) = next? {
                    self.heads.push(index, event.time.0, event);
                }
                self.given = None;
            }
            if (self.heads.first_time()).is_some_and(|time| time > self.until) {
                return Ok(None);
            }
            let Some((index, mut event)) = self.heads.pop() else {
                if self.until < u64::MAX {
                    return Ok(None);
                }
                if let Some(waits) = self.waits.take() {
                    waits.finish(self.last, &mut self.ready);
                }
                continue;
            };
            self.given = Some(index);
            self.notes(&event);
            let Some(waits) = &mut self.waits else {
                return Ok(None);
            };
            if waits.passes(&event) {
                self.of_its_process(&mut event);
                return Ok(Some(event));
            }
            waits.event(event, &mut self.ready);
        }
    }

    /// Notes an event of a source that comes next.
    fn notes(&mut self, event: &Event) {
        if let Some(balance) = &mut self.balance {
            balance.event(event);
        }
        self.last = self.last.max(event.time);
    }

    /// Gives a wait its thread's process, where that is known by the thread alone.
    fn of_its_process(&self, event: &mut Event) {
        if event.pid.is_none() && matches!(event.kind, Kind::Wait(_)) {
            event.pid = event.tid.and_then(|tid| self.pids.get(&tid).copied());
        }
    }

    /// Whether an event of that time and source may be given, and comes before those of all others.
    fn comes_next(&self, time: u64, source: usize) -> bool {
        time <= self.until && self.heads.comes_before(time, source)
    }

    /// Looks at the next event of a source.
    fn advance(&mut self, index: usize) -> Result<()> {
        if let Some(event) = self.sources[index].next_event()? {
            self.heads.push(index, event.time.0, event);
        }
        Ok(())
    }

    /// Returns the trace's metadata, complete when [`Trace::next_event`] has given `None`.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        let mut metadata = self.metadata.clone();
        let mut losses = Vec::new();
        match &self.end {
            Some(end) => {
                metadata.missing.extend(end.missing.iter().cloned());
                metadata.conditions.clone_from(&end.conditions);
                losses.clone_from(&end.losses);
            }
            None => metadata.missing.push(Missing::new(
                "the end of the recording",
                "it was cut off; losses are those that its pages speak of",
            )),
        }
        for told in self.sources.iter().map(|source| source.report()) {
            for own in told.losses {
                let known = losses.iter_mut().find(|loss| loss.what == own.what);
                match known {
                    // The same ones, counted at two places.
                    Some(loss) => loss.count = loss.count.max(own.count),
                    None => losses.push(own),
                }
            }
            metadata.missing.extend(told.missing);
            metadata.files.extend(told.files);
        }
        let lacks = self.balance.as_ref().and_then(Balance::missing);
        metadata.missing.extend(lacks);
        // A recording that was cut off may have lost events that nobody counted.
        metadata.losses = (self.end.is_some() || !losses.is_empty()).then_some(losses);
        metadata
    }

    /// Writes all events as a trace file, and counts them by kind.
    ///
    /// # Errors
    /// Where reading or writing fails; the system's reason.
    pub fn write<W: Write + Send>(self, out: W) -> Result<Written<W>> {
        let mut writing = Writing::new(self, out)?;
        writing.write(|| Ok(()))?;
        writing.finish()
    }
}

/// A trace file on its way.
pub(crate) struct Writing<W: Write + Send> {
    pub(crate) trace: Trace,
    writer: file::Writer<W>,
    counts: BTreeMap<&'static str, u64>,
    /// The word of the events that came last, and how many of them are not in `counts` yet.
    run: (&'static str, u64),
}

/// Events between two looks at whether to go on.
const STRIDE: u32 = 4096;

impl<W: Write + Send> Writing<W> {
    pub(crate) fn new(trace: Trace, out: W) -> Result<Writing<W>> {
        Ok(Writing {
            trace,
            writer: file::Writer::new(out)?,
            counts: BTreeMap::new(),
            run: ("", 0),
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.run.1
    }

    /// Counts an event of this word. Most are of the word of the one before.
    fn counts(&mut self, word: &'static str) {
        if !std::ptr::eq(self.run.0, word) {
            self.ends_run();
            self.run = (word, 0);
        }
        self.run.1 += 1;
    }

    fn ends_run(&mut self) {
        let (word, count) = self.run;
        if count > 0 {
            *self.counts.entry(word).or_insert(0) += count;
        }
    }

    /// Writes the events that have come. `may_go_on` is asked now and then; its error ends the writing.
    pub(crate) fn write(&mut self, mut may_go_on: impl FnMut() -> Result<()>) -> Result<()> {
        let mut left = STRIDE;
        while let Some(event) = self.trace.next_event()? {
            self.counts(event.kind.word());
            self.writer.write(&event)?;
            left -= 1;
            if left == 0 {
                left = STRIDE;
                may_go_on()?;
            }
        }
        Ok(())
    }

    /// Writes what the trace says of itself, and ends the file.
    pub(crate) fn finish(mut self) -> Result<Written<W>> {
        self.ends_run();
        let metadata = self.trace.metadata();
        Ok(Written {
            out: self.writer.finish(&metadata)?,
            metadata,
            counts: self.counts,
        })
    }
}

/// The events that were written.
#[derive(Debug)]
pub struct Written<W> {
    /// To what.
    pub out: W,
    /// The trace's metadata.
    pub metadata: Metadata,
    /// Events by the word of their kind.
    pub counts: BTreeMap<&'static str, u64>,
}
