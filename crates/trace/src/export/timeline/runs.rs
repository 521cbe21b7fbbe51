use std::collections::HashMap;

use crate::Event;
use stopgap_events::units::Nanos;
use stopgap_events::wait::Wait;

/// A time in which a thread had a CPU without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) struct Run {
    pub(in crate::export) cpu: u32,
    pub(in crate::export) from: Nanos,
    /// `None`: the thread has not left the CPU, as far as is known.
    pub(in crate::export) to: Option<Nanos>,
}

/// The runs between waits.
#[derive(Debug, Default)]
pub(in crate::export) struct Runs {
    /// The last two of each thread, the later first.
    threads: HashMap<u32, [Option<Run>; 2]>,
}

impl Runs {
    /// Takes the next wait of a thread; returns the run that it ended, where the begin of that is known too.
    pub(in crate::export) fn wait(&mut self, event: &Event, wait: &Wait) -> Option<Run> {
        let runs = self.threads.entry(event.tid?).or_default();
        let ended = runs[0].take().filter(|run| {
            let here = wait.left_cpu.is_none_or(|cpu| cpu == run.cpu);
            run.to.is_none() && run.from <= wait.left && here
        });
        let ended = ended.map(|run| Run {
            to: Some(wait.left),
            ..run
        });
        let begun = wait.ran.zip(event.cpu).map(|(from, cpu)| Run {
            cpu,
            from,
            to: None,
        });
        *runs = [begun, ended];
        ended
    }

    /// Returns the CPU that a thread had at a moment which is not long ago.
    pub(in crate::export) fn cpu_of(&self, tid: u32, time: Nanos) -> Option<u32> {
        let has = |run: &&Run| run.from <= time && run.to.is_none_or(|to| time <= to);
        let runs = self.threads.get(&tid)?.iter().flatten();
        runs.filter(has).map(|run| run.cpu).next()
    }

    /// Returns the threads that have a CPU when the trace ends, by CPU.
    pub(in crate::export) fn last(&self) -> Vec<(u32, Run)> {
        let last = |(&tid, [last, _]): (&u32, &[Option<Run>; 2])| Some((tid, (*last)?));
        let mut all: Vec<(u32, Run)> = self.threads.iter().filter_map(last).collect();
        all.sort_unstable_by_key(|(tid, run)| (run.cpu, run.from, *tid));
        all
    }
}
