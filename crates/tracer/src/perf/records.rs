//! The records of all CPUs as one source of events.

use std::io::Read;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_trace::{Event, Kind, Loss, Text};

use super::cpu::Cpu;
use super::description::PerfDescription;
use super::names::Names;
use super::record::{Body, Record};
use super::stacks::Stacks;
use super::tasks::Tasks;
use crate::description::TaskName;
use crate::error::{Error, Result};
use crate::symbols::Symbols;
use crate::trace::{Damage, Heads, Source, SourceReport};

/// The file of a CPU's records.
#[must_use]
pub fn records_of(cpu: u32) -> String {
    format!("perf{cpu}.raw")
}

/// Returns the name of a CPU's records among losses.
#[must_use]
pub(crate) fn losses_of(cpu: u32) -> String {
    format!("CPU {cpu}, records of perf")
}

/// Events of perf's records. What is damaged is passed over and told.
///
/// A switch says one side: who leaves (`tid`; `preempted`, and then the state `R`), or who comes
/// (`next_tid`). These records do not show which thread has the CPU in between.
pub struct Records<R> {
    /// Whether scheduling events come from these records.
    scheduling: bool,
    cpus: Vec<Cpu<R>>,
    /// The next record of each CPU.
    heads: Heads<Record>,
    tasks: Tasks,
    stacks: Stacks,
    runnable: Text,
    missing: Vec<Missing>,
    damage: Damage,
}

impl<R: Read> Records<R> {
    /// The events of the records in `sources`, each with the number of its CPU. `tasks` are the
    /// threads that were there at the begin.
    ///
    /// # Errors
    /// Where a source cannot be read.
    pub fn new(
        description: &PerfDescription,
        tasks: &[TaskName],
        symbols: Symbols,
        names: Box<dyn Names>,
        sources: Vec<(u32, R)>,
    ) -> Result<Records<R>> {
        let mut missing = Vec::new();
        if description.period.is_some() && symbols.is_empty() {
            missing.push(Missing::new(
                "names of kernel functions in samples",
                "/proc/kallsyms of the machine and boot of the recording says none",
            ));
        }
        let mut records = Records {
            scheduling: description.scheduling,
            heads: Heads::new(sources.len()),
            cpus: sources
                .into_iter()
                .map(|(number, source)| Cpu::new(number, source))
                .collect(),
            tasks: Tasks::new(tasks, description),
            stacks: Stacks::new(symbols, names),
            runnable: Text::from("R"),
            missing,
            damage: Damage::default(),
        };
        for index in 0..records.cpus.len() {
            records.advance(index)?;
        }
        Ok(records)
    }

    fn advance(&mut self, index: usize) -> Result<()> {
        let cpu = &mut self.cpus[index];
        let record = cpu.next(&mut self.damage).map_err(|source| Error::File {
            file: records_of(cpu.number),
            source,
        })?;
        if let Some(record) = record {
            self.heads.push(index, record.time, record);
        }
        Ok(())
    }

    /// The event in a record, where it is one of this source's.
    fn event(&mut self, record: &Record) -> Option<Event> {
        // An ending thread keeps its name until then.
        let ends = matches!(record.body, Body::Exit { .. });
        if !ends {
            self.tasks.learn(record);
        }
        let told = match record.body {
            Body::Sample { .. } => true,
            _ => self.scheduling,
        };
        let event = told.then(|| self.kind(record)).flatten();
        let event = event.map(|(pid, tid, kind)| Event {
            time: Nanos(record.time),
            cpu: Some(record.cpu),
            pid,
            tid,
            comm: self.tasks.comm(tid),
            kind,
        });
        if ends {
            self.tasks.learn(record);
        }
        event
    }

    /// Process, thread and what happened.
    fn kind(&mut self, record: &Record) -> Option<(Option<u32>, Option<u32>, Kind)> {
        let (pid, tid) = (record.pid, record.tid);
        Some(match &record.body {
            Body::Sample { kernel, user } => {
                let stack = self.stacks.stack(self.tasks.mappings(pid), kernel, user);
                (pid, tid, Kind::Sample { stack })
            }
            Body::Switch { out, preempted } => {
                let state = (*out && *preempted).then(|| Text::clone(&self.runnable));
                let kind = Kind::Switch {
                    state,
                    preempted: out.then_some(*preempted),
                    priority: None,
                    next_tid: if *out { None } else { tid },
                    next_comm: if *out { None } else { self.tasks.comm(tid) },
                    next_priority: None,
                    stack: None,
                };
                if *out {
                    (pid, tid, kind)
                } else {
                    (None, None, kind)
                }
            }
            Body::Fork {
                pid,
                tid,
                parent_pid,
                parent_tid,
            } => {
                let kind = Kind::Fork {
                    target_tid: *tid,
                    target_pid: Some(*pid),
                    target_comm: self.tasks.comm(Some(*tid)),
                };
                (Some(*parent_pid), Some(*parent_tid), kind)
            }
            Body::Exit { pid, tid } => (Some(*pid), Some(*tid), Kind::Exit { priority: None }),
            Body::Comm { exec: true, .. } => {
                let kind = Kind::Exec {
                    filename: None,
                    old_tid: None,
                };
                (pid, tid, kind)
            }
            _ => return None,
        })
    }
}

impl<R: Read> Source for Records<R> {
    fn next_event(&mut self) -> Result<Option<Event>> {
        while let Some((index, record)) = self.heads.pop() {
            self.advance(index)?;
            if let Some(event) = self.event(&record) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn report(&self) -> SourceReport {
        let mut missing = self.missing.clone();
        for cpu in self.cpus.iter().filter(|cpu| cpu.throttled > 0) {
            let what = format!("samples of CPU {} at all times", cpu.number);
            let why = format!(
                "the kernel made fewer {} times: kernel.perf_event_max_sample_rate, \
                 kernel.perf_cpu_time_max_percent",
                cpu.throttled
            );
            missing.push(Missing::new(what, why));
        }
        self.damage.tell(&mut missing);
        let lost = self.cpus.iter().filter(|cpu| cpu.lost > 0);
        let losses = lost.map(|cpu| Loss {
            what: losses_of(cpu.number),
            count: cpu.lost,
        });
        SourceReport {
            losses: losses.collect(),
            missing,
            files: Vec::new(),
        }
    }
}
