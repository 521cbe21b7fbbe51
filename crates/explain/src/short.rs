//! Short calls of the mmap family that are a stall together: none of them is noticeable, but a thread spends its time
//! in them.
//!
//! Mail 000 is such a case: each map took 406 us, none took more than 1 ms, and a desktop stood still for seconds.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Function, ShortCalls, ShortKind, Task};

use crate::call::Family;
use crate::operation::{SLOW_NS, STALL_NS};
use crate::profile::{Samples, call_of};

/// Number of families whose calls are added up: all that change the memory map. A page fault is no call.
const FAMILIES: usize = 6;

/// Share of a thread's work from which short calls are a stall. In mail 000, the function that was the stall had over
/// 30 % of the CPU time, and no other had more than 3 %. This threshold is between the two.
const STALL_SHARE: f64 = 0.1;

/// Nanoseconds: less time in all is no stall. People perceive a tenth of a second as immediate.
const LEAST_NS: u64 = 100_000_000;

/// Nanoseconds within one second that are a stall, even if the thread does other things the rest of the time. They
/// are the 30 % of mail 000, which were measured during the stall.
const STALL_IN_A_SECOND_NS: u64 = 300_000_000;

const SECOND: u64 = 1_000_000_000;

/// Most kernel functions that are named.
const FUNCTIONS: usize = 5;

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    calls: u64,
    total: u64,
    longest: u64,
}

/// The short calls of one thread, or of the threads of one name.
#[derive(Debug, Default)]
pub(crate) struct Short {
    kinds: [Sum; FAMILIES],
    slow: u64,
    asleep: u64,
    /// The current second, counted from the first event, and the nanoseconds of calls in it.
    second: (u64, u64),
    worst: (u64, u64),
}

impl Short {
    /// Adds a call that ended `at` ns after the first event. It took `work` ns, of which it slept `asleep` ns. Waits
    /// for a CPU are not part of `work`.
    pub(crate) fn add(&mut self, family: Family, work: u64, asleep: u64, at: u64) {
        let Some(sum) = self.kinds.get_mut(family as usize) else {
            return;
        };
        if work >= STALL_NS {
            return; // a slow operation of its own
        }
        sum.calls += 1;
        sum.total = sum.total.saturating_add(work);
        sum.longest = sum.longest.max(work);
        self.slow += u64::from(work >= SLOW_NS);
        self.asleep = self.asleep.saturating_add(asleep);
        let second = at / SECOND;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += work;
        if self.second.1 > self.worst.1 {
            self.worst = self.second;
        }
    }

    /// Adds another thread's calls. The worst second is that of one thread.
    pub(crate) fn fold(&mut self, other: &Short) {
        for (sum, more) in self.kinds.iter_mut().zip(&other.kinds) {
            sum.calls += more.calls;
            sum.total = sum.total.saturating_add(more.total);
            sum.longest = sum.longest.max(more.longest);
        }
        self.slow += other.slow;
        self.asleep = self.asleep.saturating_add(other.asleep);
        if other.worst.1 > self.worst.1 {
            self.worst = other.worst;
        }
    }

    /// Returns the record, if the calls are a stall together. `task` has the threads' times.
    pub(crate) fn to_record(&self, task: &Task, samples: Option<&Samples>) -> Option<ShortCalls> {
        let total: u64 = self.kinds.iter().map(|sum| sum.total).sum();
        let calls: u64 = self.kinds.iter().map(|sum| sum.calls).sum();
        let longest = self.kinds.iter().map(|sum| sum.longest).max()?;
        // Without scheduling events the thread's time is unknown, and all of it counts as work.
        let elsewhere = task.blocked_ns.saturating_sub(self.asleep);
        let waits = task.runnable_ns.saturating_add(elsewhere);
        let idle = match task.running_ns {
            0 => waits,
            _ => waits.saturating_add(task.unknown_ns),
        };
        let work = task.wall_ns.saturating_sub(idle).max(total);
        let share = total as f64 / work.max(1) as f64;
        let all_along = share >= STALL_SHARE && total >= LEAST_NS;
        if !all_along && self.worst.1 < STALL_IN_A_SECOND_NS {
            return None;
        }
        let of = |(family, sum): (&Family, &Sum)| ShortKind {
            kind: family.word().to_owned(),
            calls: sum.calls,
            total_ns: sum.total,
            longest_ns: sum.longest,
        };
        let kinds = Family::ALL.iter().zip(&self.kinds);
        let mut kinds: Vec<ShortKind> = kinds.filter(|(_, sum)| sum.calls > 0).map(of).collect();
        kinds.sort_rows_by_key(|kind| std::cmp::Reverse(kind.total_ns));
        let is_one = |state: &str| {
            let family = call_of(state).map(Family::of_call);
            family.is_some_and(|family| (family as usize) < FAMILIES)
        };
        let function = |(function, samples): (&str, u64)| Function {
            function: function.to_owned(),
            samples,
        };
        let inside = samples.map(|samples| samples.inside(&task.task, is_one));
        let (samples, functions, below) = inside.map_or((None, Vec::new(), None), |inside| {
            let own = inside.own.into_iter().take(FUNCTIONS).map(function);
            (
                Some(inside.samples),
                own.collect(),
                inside.below.map(function),
            )
        });
        let mut record = ShortCalls {
            text: String::new(),
            task: task.task.clone(),
            calls,
            total_ns: total,
            mean_ns: total / calls.max(1),
            longest_ns: longest,
            slow: self.slow,
            work_ns: work,
            share,
            worst_second_ns: self.worst.1,
            worst_second_from_ns: self.worst.0 * SECOND,
            kinds,
            samples,
            functions,
            below,
        };
        record.text = sentence(&record, all_along);
        Some(record)
    }
}

/// Returns a sentence: `maps spent 93 % of its 1.46 s of work in 20,009 calls of the mmap family, 68 us each, the
/// longest 812 us, none above 1 ms: mmap 10,008, munmap 10,001; of that time clear_page_erms had 41 %, ... (1,380
/// samples)`.
fn sentence(short: &ShortCalls, all_along: bool) -> String {
    let (task, calls) = (&short.task, short.calls);
    let share = short.share * 100.0;
    let mut text = format!(
        "{task} spent {share:.0} % of its {} of work in {calls} short calls of the mmap family, {} each, the longest {}",
        Nanos(short.work_ns),
        Nanos(short.mean_ns),
        Nanos(short.longest_ns)
    );
    match short.slow {
        0 => text.push_str(", none above 1 ms"),
        slow => text.push_str(&format!(", {slow} above 1 ms")),
    }
    let kinds = short.kinds.iter();
    let kinds: Vec<String> = kinds
        .map(|kind| format!("{} {}", kind.kind, kind.calls))
        .collect();
    text.push_str(&format!(" ({})", kinds.join(", ")));
    if !all_along {
        text.push_str(&format!(
            ", {} of it in one second ({} after the first event)",
            Nanos(short.worst_second_ns),
            Nanos(short.worst_second_from_ns)
        ));
    }
    match (short.samples, short.functions.first()) {
        (Some(samples), Some(first)) => {
            let per_cent = |one: &Function| {
                let share = one.samples as f64 / samples.max(1) as f64 * 100.0;
                format!("{} {share:.0} %", one.function)
            };
            let each: Vec<String> = short.functions.iter().take(3).map(per_cent).collect();
            text.push_str(&format!("; the kernel was in {} there", each.join(", ")));
            let below = short.below.as_ref();
            if let Some(below) = below.filter(|below| below.function != first.function) {
                text.push_str(&format!(", within {}", per_cent(below)));
            }
            text.push_str(&format!(" ({samples} samples)"));
        }
        (Some(_), None) => text.push_str("; no sample shows where in the kernel"),
        (None, _) => {
            text.push_str("; record --samples 999 shows in which functions of the kernel");
        }
    }
    text
}
