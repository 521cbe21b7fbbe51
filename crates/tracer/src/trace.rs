//! The pages of all CPUs as one trace, in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{Read, Write};

use stopgap_events::machine::Missing;
use stopgap_events::trace::{Event, Loss, Metadata, file};

use crate::decode::Decoder;
use crate::description::Description;
use crate::error::{Error, Result};
use crate::layout;
use crate::page::{Lost, PageLayout};
use crate::spool::{End, pages_of, read_page};
use crate::symbols::Symbols;

/// The events of a capture. Of each CPU a page is in memory.
///
/// What is damaged is passed over and told by [`Trace::metadata`]: of a page the rest, of a record
/// that record.
pub struct Trace<R> {
    pages: PageLayout,
    decoder: Decoder,
    /// What was mapped before the first event.
    layout: VecDeque<Event>,
    cpus: Vec<Cpu<R>>,
    /// The next record of each CPU, earliest first.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    metadata: Metadata,
    end: Option<End>,
    damage: Damage,
}

/// One CPU's pages.
struct Cpu<R> {
    number: u32,
    source: R,
    page: Vec<u8>,
    pages: u64,
    /// Records of the page, from the last to the next: when, and where in `page`.
    records: Vec<(u64, std::ops::Range<usize>)>,
    /// The record that is next in turn, and its stack.
    head: Option<Head>,
    lost: u64,
    lost_unknown: bool,
}

struct Head {
    time: u64,
    record: Vec<u8>,
    stack: Option<Vec<u8>>,
}

/// What was passed over.
#[derive(Default)]
struct Damage {
    said: Vec<Missing>,
    more: u64,
}

/// Damage that is told piece by piece; the rest is counted.
const PIECES: usize = 20;

impl Damage {
    fn add(&mut self, what: String, why: String) {
        if self.said.len() < PIECES {
            self.said.push(Missing::new(what, why));
        } else {
            self.more += 1;
        }
    }
}

impl<R: Read> Trace<R> {
    /// A trace of the pages in `sources`, each with the number of its CPU.
    ///
    /// # Errors
    /// Where a format cannot be understood, or a source cannot be read.
    pub fn new(
        description: &Description,
        layout: PageLayout,
        symbols: Symbols,
        sources: Vec<(u32, R)>,
        end: Option<End>,
    ) -> Result<Trace<R>> {
        let unnamed = symbols.is_empty();
        let (decoder, missing) = Decoder::new(description, symbols)?;
        let mut metadata = description.metadata.clone();
        metadata.missing.extend(missing);
        if unnamed && description.formats.contains_key("ftrace:kernel_stack") {
            metadata.missing.push(Missing::new(
                "names of kernel functions",
                "/proc/kallsyms of the machine and boot of the recording says none; stacks are addresses",
            ));
        }
        let page = vec![0; layout.page_bytes()];
        let cpus = sources.into_iter().map(|(number, source)| Cpu {
            number,
            source,
            page: page.clone(),
            pages: 0,
            records: Vec::new(),
            head: None,
            lost: 0,
            lost_unknown: false,
        });
        let mut trace = Trace {
            cpus: cpus.collect(),
            pages: layout,
            decoder,
            layout: VecDeque::new(),
            heads: BinaryHeap::new(),
            metadata,
            end,
            damage: Damage::default(),
        };
        for index in 0..trace.cpus.len() {
            trace.advance(index)?;
        }
        let first = trace.heads.peek().map(|Reverse((time, _))| *time);
        let (layout, missing) = layout::events(description, first);
        trace.layout = layout.into();
        trace.metadata.missing.extend(missing);
        Ok(trace)
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// What the system says of reading.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if let Some(event) = self.layout.pop_front() {
            return Ok(Some(event));
        }
        while let Some(Reverse((_, index))) = self.heads.pop() {
            let Some(head) = self.cpus[index].head.take() else {
                continue;
            };
            let number = self.cpus[index].number;
            self.advance(index)?;
            let (record, stack) = (&head.record, head.stack.as_deref());
            match self.decoder.decode(number, head.time, record, stack) {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(why) => self.damage.add(format!("a record of CPU {number}"), why),
            }
        }
        Ok(None)
    }

    /// What the trace says of itself, complete when [`Trace::next_event`] has given `None`.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        let mut metadata = self.metadata.clone();
        metadata.losses = match &self.end {
            Some(end) => {
                metadata.missing.extend(end.missing.iter().cloned());
                Some(end.losses.clone())
            }
            None => {
                metadata.missing.push(Missing::new(
                    "the end of the recording",
                    "it was cut off; losses are those that its pages speak of",
                ));
                let lost = self.cpus.iter().filter(|cpu| cpu.lost > 0);
                let losses: Vec<Loss> = lost
                    .map(|cpu| Loss {
                        what: format!("CPU {}", cpu.number),
                        count: cpu.lost,
                    })
                    .collect();
                (!losses.is_empty()).then_some(losses) // none that is known is not none
            }
        };
        for cpu in self.cpus.iter().filter(|cpu| cpu.lost_unknown) {
            let what = format!("how many events of CPU {} were lost", cpu.number);
            let why = "the kernel had no room to say it in the page";
            metadata.missing.push(Missing::new(what, why));
        }
        metadata.missing.extend(self.damage.said.iter().cloned());
        if self.damage.more > 0 {
            let what = format!("{} records and pages more", self.damage.more);
            metadata
                .missing
                .push(Missing::new(what, "damaged as those before"));
        }
        metadata
    }

    /// Writes all as a trace file; how many events of each kind.
    ///
    /// # Errors
    /// What the system says of reading or writing.
    pub fn write<W: Write + Send>(mut self, out: W) -> Result<Written<W>> {
        let mut writer = file::Writer::new(out)?;
        let mut counts = BTreeMap::new();
        while let Some(event) = self.next_event()? {
            *counts.entry(event.kind.word()).or_insert(0) += 1;
            writer.write(&event)?;
        }
        let metadata = self.metadata();
        Ok(Written {
            out: writer.finish(&metadata)?,
            metadata,
            counts,
        })
    }

    /// Makes the next record of a CPU its head.
    fn advance(&mut self, index: usize) -> Result<()> {
        let Some((time, record)) = self.take(index)? else {
            return Ok(());
        };
        let mut stack = None;
        if self.decoder.is_switch(&record)
            && self.fill(index)?
            && let cpu = &self.cpus[index]
            && let Some((_, range)) = cpu.records.last()
            && self.decoder.belongs(&record, &cpu.page[range.clone()])
        {
            stack = self.take(index)?.map(|(_, stack)| stack);
        }
        self.cpus[index].head = Some(Head {
            time,
            record,
            stack,
        });
        self.heads.push(Reverse((time, index)));
        Ok(())
    }

    /// Takes the next record of a CPU.
    fn take(&mut self, index: usize) -> Result<Option<(u64, Vec<u8>)>> {
        if !self.fill(index)? {
            return Ok(None);
        }
        let cpu = &mut self.cpus[index];
        let next = cpu.records.pop();
        Ok(next.map(|(time, range)| (time, cpu.page[range].to_vec())))
    }

    /// Reads pages until there is a record; whether there is one.
    fn fill(&mut self, index: usize) -> Result<bool> {
        let cpu = &mut self.cpus[index];
        while cpu.records.is_empty() {
            let read = read_page(&mut cpu.source, &mut cpu.page);
            let length = read.map_err(|source| Error::File {
                file: pages_of(cpu.number),
                source,
            })?;
            if length == 0 {
                return Ok(false);
            }
            let place = format!("CPU {}, page {}", cpu.number, cpu.pages);
            cpu.pages += 1;
            let bytes = &cpu.page[..length];
            let page = match self.pages.page(bytes) {
                Ok(page) => page,
                Err(why) => {
                    self.damage.add(place, why);
                    continue;
                }
            };
            match page.lost {
                Some(Lost::Events(count)) => cpu.lost = cpu.lost.saturating_add(count),
                Some(Lost::Unknown) => cpu.lost_unknown = true,
                None => {}
            }
            for record in page.records() {
                match record {
                    Ok(record) => {
                        let range = record.offset..record.offset + record.data.len();
                        cpu.records.push((record.time, range));
                    }
                    Err(why) => self.damage.add(place.clone(), why),
                }
            }
            cpu.records.reverse();
        }
        Ok(true)
    }
}

/// What was written.
#[derive(Debug)]
pub struct Written<W> {
    /// To what.
    pub out: W,
    /// What the trace says of itself.
    pub metadata: Metadata,
    /// Events by the word of their kind.
    pub counts: BTreeMap<&'static str, u64>,
}
