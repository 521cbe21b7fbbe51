//! The pages of all CPUs' ring buffers as one source of events.

use std::io::Read;

use stopgap_events::machine::Missing;
use stopgap_trace::{Event, Kind, Loss};

use super::{Damage, Heads, Source, SourceReport};
use crate::decode::Decoder;
use crate::description::Description;
use crate::error::{Error, Result};
use crate::page::{Lost, PageLayout};
use crate::spool::{loss_of, machine_pages_of, pages_of, read_page};
use crate::symbols::Symbols;

/// Events of the kernel's ring-buffer pages. One page per CPU is in memory.
///
/// What is damaged is passed over and told: of a page the rest, of a record that record.
pub struct Pages<R> {
    layout: PageLayout,
    decoder: Decoder,
    cpus: Vec<Cpu<R>>,
    /// The next record of each CPU.
    heads: Heads<Head>,
    missing: Vec<Missing>,
    damage: Damage,
}

/// One CPU's pages.
struct Cpu<R> {
    number: u32,
    /// Whether the pages have what is captured of all threads.
    of_machine: bool,
    source: R,
    page: Vec<u8>,
    pages: u64,
    /// Records of the page, from the last to the next: when, and where in `page`.
    records: Vec<(u64, std::ops::Range<usize>)>,
    lost: u64,
    lost_unknown: bool,
}

/// A record and its stack.
struct Head {
    time: u64,
    record: Vec<u8>,
    stack: Option<Vec<u8>>,
}

impl<R: Read> Pages<R> {
    /// The events of the pages in `sources`, each with the number of its CPU, and of those in `of_machine`, which have what is captured of
    /// all threads ([`EventSet::of_machine`](crate::events::EventSet::of_machine)).
    ///
    /// # Errors
    /// Where a format cannot be understood, or a source cannot be read.
    pub fn new(
        description: &Description,
        layout: PageLayout,
        symbols: Symbols,
        sources: Vec<(u32, R)>,
        of_machine: Vec<(u32, R)>,
    ) -> Result<Pages<R>> {
        let unnamed = symbols.is_empty();
        let (decoder, mut missing) = Decoder::new(description, symbols)?;
        if unnamed && description.formats.contains_key("ftrace:kernel_stack") {
            missing.push(Missing::new(
                "names of kernel functions",
                "/proc/kallsyms of the machine and boot of the recording says none; stacks are addresses",
            ));
        }
        let page = vec![0; layout.page_bytes()];
        let heads = Heads::new(sources.len() + of_machine.len());
        let sources = sources.into_iter().map(|source| (false, source));
        let sources = sources.chain(of_machine.into_iter().map(|source| (true, source)));
        let cpus = sources.map(|(of_machine, (number, source))| Cpu {
            number,
            of_machine,
            source,
            page: page.clone(),
            pages: 0,
            records: Vec::new(),
            lost: 0,
            lost_unknown: false,
        });
        let mut pages = Pages {
            cpus: cpus.collect(),
            layout,
            decoder,
            heads,
            missing,
            damage: Damage::default(),
        };
        for index in 0..pages.cpus.len() {
            pages.advance(index)?;
        }
        Ok(pages)
    }

    /// Makes the next record of a CPU its head.
    fn advance(&mut self, index: usize) -> Result<()> {
        let Some((time, record)) = self.take_record(index)? else {
            return Ok(());
        };
        let mut stack = None;
        if self.decoder.is_switch(&record)
            && self.fill(index)?
            && let cpu = &self.cpus[index]
            && let Some((_, range)) = cpu.records.last()
            && self.decoder.belongs(&record, &cpu.page[range.clone()])
        {
            stack = self.take_record(index)?.map(|(_, stack)| stack);
        }
        let head = Head {
            time,
            record,
            stack,
        };
        self.heads.push(index, time, head);
        Ok(())
    }

    /// Takes the next record of a CPU.
    fn take_record(&mut self, index: usize) -> Result<Option<(u64, Vec<u8>)>> {
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
                file: match cpu.of_machine {
                    false => pages_of(cpu.number),
                    true => machine_pages_of(cpu.number),
                },
                source,
            })?;
            if length == 0 {
                return Ok(false);
            }
            let place = format!("CPU {}, page {}", cpu.number, cpu.pages);
            cpu.pages += 1;
            let bytes = &cpu.page[..length];
            let page = match self.layout.page(bytes) {
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

impl<R: Read> Source for Pages<R> {
    fn next_event(&mut self) -> Result<Option<Event>> {
        while let Some((index, head)) = self.heads.pop() {
            let Cpu {
                number, of_machine, ..
            } = self.cpus[index];
            self.advance(index)?;
            let (record, stack) = (&head.record, head.stack.as_deref());
            match self.decoder.decode(number, head.time, record, stack) {
                // It only names a program: followed threads have theirs.
                Ok(Some(event)) if of_machine && matches!(event.kind, Kind::Exec { .. }) => {}
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(why) => self.damage.add(format!("a record of CPU {number}"), why),
            }
        }
        Ok(None)
    }

    fn report(&self) -> SourceReport {
        let mut missing = self.missing.clone();
        for cpu in self.cpus.iter().filter(|cpu| cpu.lost_unknown) {
            let of_cpu = loss_of(cpu.of_machine)(cpu.number);
            let what = format!("how many events of {of_cpu} were lost");
            let why = "the kernel had no room to say it in the page";
            missing.push(Missing::new(what, why));
        }
        self.damage.tell(&mut missing);
        let lost = self.cpus.iter().filter(|cpu| cpu.lost > 0);
        let losses = lost.map(|cpu| Loss {
            what: loss_of(cpu.of_machine)(cpu.number),
            count: cpu.lost,
        });
        SourceReport {
            losses: losses.collect(),
            missing,
            files: Vec::new(),
        }
    }
}
