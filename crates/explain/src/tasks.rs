//! Sums over threads that have ended, by name.

use std::collections::{BTreeMap, HashMap};

use stopgap_events::order::SortRows;
use stopgap_stats::explain::{Cause, ShortCalls, Task};
use stopgap_trace::Text;

use crate::profile::Samples;
use crate::short::Short;
use crate::switch_cause::Because;
use crate::thread::Thread;

/// Returns a thread's name, or its number if the name is unknown.
pub(crate) fn name(tid: u32, comm: Option<&Text>) -> Text {
    comm.map_or_else(|| format!("thread {tid}").into(), Text::clone)
}

/// Sums over the threads of one name.
#[derive(Default)]
struct Folded {
    task: Task,
    short: Short,
    involuntary: u64,
    causes: HashMap<Because, u64>,
}

impl From<Thread> for Folded {
    fn from(thread: Thread) -> Folded {
        let times = &thread.times;
        let task = Task {
            threads: 1,
            switches: thread.switches,
            running_ns: times.running,
            runnable_ns: times.runnable,
            blocked_ns: times.blocked,
            unknown_ns: times.unknown,
            wall_ns: thread.booked - thread.begin,
            ..Task::default()
        };
        Folded {
            task,
            short: thread.short,
            involuntary: thread.involuntary,
            causes: thread.causes.counts(),
        }
    }
}

impl Folded {
    fn add(&mut self, more: Folded) {
        let (task, other) = (&mut self.task, more.task);
        task.threads += other.threads;
        task.switches += other.switches;
        task.running_ns += other.running_ns;
        task.runnable_ns += other.runnable_ns;
        task.blocked_ns += other.blocked_ns;
        task.unknown_ns += other.unknown_ns;
        task.wall_ns += other.wall_ns;
        self.short.fold(&more.short);
        self.involuntary += more.involuntary;
        for (because, count) in more.causes {
            *self.causes.entry(because).or_default() += count;
        }
    }
}

/// Sums over ended threads: those that the recorder followed, and others with some switches in the trace.
#[derive(Default)]
pub(crate) struct Tasks {
    traced: BTreeMap<Text, Folded>,
    others: BTreeMap<Text, Folded>,
}

/// Switch-outs by cause and by task.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) switches: u64,
    pub(crate) involuntary: u64,
    pub(crate) others: u64,
    pub(crate) causes: Vec<Cause>,
    pub(crate) tasks: Vec<Task>,
    /// Short calls that are a stall together, the most time first.
    pub(crate) short: Vec<ShortCalls>,
}

impl Tasks {
    pub(crate) fn fold(&mut self, tid: u32, thread: Thread) {
        let name = name(tid, thread.comm.as_ref());
        let list = match thread.traced {
            true => &mut self.traced,
            false => &mut self.others,
        };
        list.entry(name).or_default().add(thread.into());
    }

    /// Returns the number of names that are kept.
    pub(crate) fn len(&self) -> usize {
        self.traced.len() + self.others.len()
    }

    /// Returns whether any of the threads was followed.
    pub(crate) fn any_traced(&self) -> bool {
        !self.traced.is_empty()
    }

    /// Returns the totals. `act` says whether any event shows what a thread did. Without it, the trace has scheduling
    /// events only, so it is unknown which threads were followed, and all threads count.
    pub(crate) fn totals(self, act: bool, samples: Option<&Samples>) -> Totals {
        let mut totals = Totals::default();
        let (mut counted, mut others) = (self.traced, self.others);
        if !act {
            for (name, folded) in std::mem::take(&mut others) {
                counted.entry(name).or_default().add(folded);
            }
        }
        totals.others = others.values().map(|folded| folded.task.switches).sum();
        for (name, folded) in counted {
            totals.switches += folded.task.switches;
            totals.involuntary += folded.involuntary;
            let mut causes: Vec<(Because, u64)> = folded.causes.into_iter().collect();
            causes.sort_rows(Ord::cmp);
            let task = name.to_string();
            totals
                .causes
                .extend(causes.into_iter().map(|(because, count)| Cause {
                    task: task.clone(),
                    cause: because.text(),
                    count,
                    kind: because.kind,
                    call: because.call.as_deref().map(str::to_owned),
                    by_task: because.by.as_deref().map(str::to_owned),
                    by_call: because.by_call.as_deref().map(str::to_owned),
                }));
            let task = Task {
                task,
                ..folded.task
            };
            totals.short.extend(folded.short.to_record(&task, samples));
            totals.tasks.push(task);
        }
        totals
            .short
            .sort_rows_by_key(|short| std::cmp::Reverse(short.total_ns));
        // The sort is stable: equal rows stay in the order of their names.
        totals
            .causes
            .sort_rows_by_key(|cause| std::cmp::Reverse(cause.count));
        totals
            .tasks
            .sort_rows_by_key(|task| std::cmp::Reverse(task.switches));
        totals
    }
}
