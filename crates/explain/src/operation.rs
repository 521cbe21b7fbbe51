//! Operations: how the time of one is divided by cause, and the slowest of all.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use stopgap_stats::explain::{Calls, Slow, SlowMemory, Waker};
use stopgap_trace::Text;

use crate::call::Family;
use crate::explainer::Seen;
use crate::interval::Interval;
use crate::thread::{State, Times, WokenBy};
use crate::timeline::{self, Stay};
use crate::why::{Parts, Why};

/// Nanoseconds of excess from which an operation is slow: about 300 times an mmap with its page fault.
pub(crate) const SLOW_NS: u64 = 1_000_000;

/// Nanoseconds of excess from which an operation is a stall that people notice.
pub(crate) const STALL_NS: u64 = 10_000_000;

/// An operation that has begun.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) family: Family,
    pub(crate) name: Text,
    pub(crate) begin: u64,
    /// The time until which it certainly lasted, if no event shows its end.
    pub(crate) sure: Option<u64>,
    /// The place in the program, if only its waits show the operation.
    pub(crate) by_waits: Option<Site>,
    pub(crate) length_bytes: Option<u64>,
    /// How its thread had spent its time before it began.
    pub(crate) times: Times,
    /// Its waits, in the order of time.
    stays: Vec<Stay>,
    /// The number of its waits, and the longest in nanoseconds.
    waits: u64,
    longest_wait_ns: u64,
    /// Activities of its thread, such as reclaim or a wait for a lock.
    intervals: Vec<Interval>,
    /// The time up to which `parts` is complete.
    taken: u64,
    parts: Parts,
    /// CPU time in nanoseconds until the kernel had found a hole.
    pub(crate) search_ns: Option<u64>,
    longest_sleep: Longest,
    /// Nanoseconds asleep for an unknown reason.
    unexplained_ns: u64,
    /// Samples by innermost kernel function.
    pub(crate) samples: BTreeMap<Text, u64>,
}

/// A place from which a program calls the kernel, and the call's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Number and arguments of the call; `None` in a page fault.
    pub(crate) call: Option<(u32, [Option<u64>; 3])>,
    pub(crate) instruction_pointer: Option<u64>,
    pub(crate) stack_pointer: Option<u64>,
}

/// Most waits and intervals of an operation that are kept. If there are more, the time before is divided at once.
const KEPT: usize = 1_024;

/// Most waits and intervals for which the memory of an ended operation is reused.
const SMALL: usize = 16;

/// The thread that ended the longest sleep that lost time, and the length of that sleep in nanoseconds; `None` if it
/// is unknown.
#[derive(Debug, Default)]
struct Longest(Option<(WokenBy, u64)>);

impl Longest {
    fn sees(&mut self, stay: &Stay) {
        let slept_ns = stay.woken - stay.left;
        if slept_ns > self.0.as_ref().map_or(0, |(_, ns)| *ns) {
            self.0 = stay.waker.clone().map(|by| (by, slept_ns));
        }
    }

    fn into_record(self) -> Option<Waker> {
        self.0.map(|(by, slept_ns)| Waker {
            task: by.task.as_deref().unwrap_or("an interrupt").to_owned(),
            call: by.call.as_deref().map(str::to_owned),
            slept_ns,
        })
    }
}

impl Operation {
    pub(crate) fn new(family: Family, name: Text, begin: u64) -> Operation {
        Operation {
            family,
            name,
            begin,
            sure: None,
            by_waits: None,
            length_bytes: None,
            times: Times::default(),
            stays: Vec::new(),
            waits: 0,
            longest_wait_ns: 0,
            intervals: Vec::new(),
            taken: begin,
            parts: Parts::default(),
            search_ns: None,
            longest_sleep: Longest::default(),
            unexplained_ns: 0,
            samples: BTreeMap::new(),
        }
    }

    /// Begins a new operation in the memory of one that has ended.
    pub(crate) fn again(&mut self, family: Family, name: Text, begin: u64) {
        (self.family, self.name, self.begin) = (family, name, begin);
        (self.sure, self.by_waits, self.length_bytes) = (None, None, None);
        self.times = Times::default();
        self.stays.clear();
        (self.waits, self.longest_wait_ns) = (0, 0);
        self.intervals.clear();
        self.taken = begin;
        self.parts.clear();
        self.search_ns = None;
        self.longest_sleep = Longest::default();
        self.unexplained_ns = 0;
        if !self.samples.is_empty() {
            self.samples.clear();
        }
    }

    /// Returns whether the operation's memory is small enough to be kept for the next one.
    pub(crate) fn is_small(&self) -> bool {
        self.stays.capacity() <= SMALL && self.intervals.capacity() <= SMALL
    }

    /// Adds a time off the CPU. The operation had not ended then.
    pub(crate) fn stays(&mut self, stay: Stay) {
        if self.stays.len() >= KEPT {
            self.take_apart(stay.left, State::Running);
        }
        self.waits += 1;
        self.longest_wait_ns = self.longest_wait_ns.max(stay.ran.saturating_sub(stay.left));
        self.stays.push(stay);
    }

    /// Adds an activity of the thread.
    pub(crate) fn holds(&mut self, interval: Interval) {
        if self.intervals.len() < KEPT {
            self.intervals.push(interval);
        }
    }

    /// Extends an operation without an end event: it lasts at least until `at`.
    pub(crate) fn lasts(&mut self, at: u64) {
        if let Some(sure) = &mut self.sure {
            *sure = at.max(*sure);
        }
    }

    /// Moves the begin back to `at`, because an activity shows that the operation had begun by then.
    pub(crate) fn begins(&mut self, at: u64) {
        if self.taken == self.begin && at < self.begin {
            self.begin = at;
            self.taken = at;
        }
    }

    /// Returns the end of its last wait.
    pub(crate) fn last_ran(&self) -> Option<u64> {
        self.stays.last().map(|stay| stay.ran)
    }

    /// Divides the time up to `end`. Between its waits the thread was in the state `between`.
    fn take_apart(&mut self, end: u64, between: State) {
        let mut stays = std::mem::take(&mut self.stays);
        let mut intervals = std::mem::take(&mut self.intervals);
        let window = (self.taken, end.max(self.taken));
        timeline::take_apart(window, &stays, &intervals, between, |piece| {
            if piece.state == State::Blocked {
                if piece.why == Why::Unknown {
                    self.unexplained_ns += piece.ns;
                }
                if let Some(stay) = piece.stay.filter(|_| !piece.why.is_idle()) {
                    self.longest_sleep.sees(&stays[stay]);
                }
            }
            self.parts.add(&piece.why, piece.ns);
        });
        stays.clear();
        self.stays = stays;
        intervals.clear();
        self.intervals = intervals;
        self.taken = window.1;
    }

    fn length(&self) -> u64 {
        self.parts.sum()
    }

    /// Returns the length in nanoseconds without idle waits. For a call that works, and for the program's own code,
    /// also without CPU time.
    pub(crate) fn excess(&self) -> u64 {
        let known = |why: &Why| {
            let works = self.family.works() && matches!(why, Why::OnCpu | Why::Unknown);
            why.is_idle() || works
        };
        let parts = self.parts.each().filter(|(why, _)| !known(why));
        let lost: u64 = parts.map(|(_, ns)| ns).sum();
        // The thread slept for an unknown reason. That counts as lost.
        lost + if self.family.works() {
            self.unexplained_ns
        } else {
            0
        }
    }

    /// Returns whether it lost enough time for people to notice. Nobody notices that a long computation takes a
    /// hundredth longer.
    fn is_stall(&self, excess: u64) -> bool {
        let least = match self.family {
            Family::Computing => STALL_NS.max(self.length() / 10),
            _ => STALL_NS,
        };
        excess >= least
    }
}

/// The thread of an operation, and the operation's end.
pub(crate) struct Ending {
    pub(crate) task: Text,
    pub(crate) tid: u32,
    pub(crate) result: Option<i64>,
    pub(crate) at: u64,
    /// The state of the thread between its waits.
    pub(crate) between: State,
    /// Whether the operation was still open when the trace ended.
    pub(crate) open: bool,
}

/// Sums over the operations of one family.
#[derive(Default)]
struct Sum {
    count: u64,
    slow: u64,
    stalls: u64,
    stalled: u64,
    total: u64,
    most: u64,
    slow_parts: Parts,
}

/// The slowest operations, and sums over all. Memory grows with the length of that list and with the families.
#[derive(Default)]
pub(crate) struct Operations {
    top: usize,
    /// Slowest first.
    pub(crate) slowest: Vec<Slow>,
    /// Sums by family. Calls of no other family have a sum for each name.
    sums: BTreeMap<(Family, Option<Text>), Sum>,
    /// Number of slow memory operations with each cause. Each shrinker is a cause of its own.
    pub(crate) with_cause: BTreeMap<Why, u64>,
    pub(crate) search_ns: Option<u64>,
    /// The same for slow memory operations only.
    slow_search_ns: u64,
    pub(crate) functions: BTreeMap<Text, u64>,
    /// Number of slow operations with time asleep for an unknown reason, and that time in nanoseconds.
    pub(crate) unexplained: BTreeMap<Family, (u64, u64)>,
}

impl Operations {
    pub(crate) fn new(top: usize) -> Operations {
        Operations {
            top,
            ..Operations::default()
        }
    }

    /// Takes an operation that has ended.
    pub(crate) fn ended(&mut self, operation: &mut Operation, ending: &Ending) {
        let end = operation.sure.unwrap_or(ending.at);
        operation.take_apart(end, ending.between);
        let is_told = operation.sure.is_none();
        if !is_told && operation.length() == 0 {
            return;
        }
        let excess = operation.excess();
        let name = (operation.family == Family::Call).then(|| Text::clone(&operation.name));
        let sum = self.sums.entry((operation.family, name)).or_default();
        sum.count += 1;
        sum.total = sum.total.saturating_add(operation.length());
        sum.most = sum.most.max(excess);
        if operation.is_stall(excess) {
            sum.stalls += 1;
            sum.stalled = sum.stalled.saturating_add(excess);
        }
        if let Some(ns) = operation.search_ns {
            let all = self.search_ns.get_or_insert(0);
            *all = all.saturating_add(ns);
        }
        if excess >= SLOW_NS {
            sum.slow += 1;
            if operation.family.is_memory() {
                let ns = operation.search_ns.unwrap_or(0);
                self.slow_search_ns = self.slow_search_ns.saturating_add(ns);
            }
            for (why, ns) in operation.parts.each() {
                sum.slow_parts.add(why, ns);
                if operation.family.is_memory() {
                    *self.with_cause.entry(why.clone()).or_default() += 1;
                }
            }
            if operation.unexplained_ns > 0 {
                let of_family = self.unexplained.entry(operation.family).or_default();
                of_family.0 += 1;
                of_family.1 = of_family.1.saturating_add(operation.unexplained_ns);
            }
            for (function, count) in &operation.samples {
                *self.functions.entry(Text::clone(function)).or_default() += count;
            }
        }
        // If operations are equally slow, the later one is dropped.
        let key = |slow: &Slow| (Reverse(slow.excess_ns), slow.begin_ns, slow.tid);
        let full = self.slowest.len() >= self.top;
        let least = self.slowest.last().map_or(0, |least| least.excess_ns);
        if excess == 0 || full && (self.top == 0 || excess <= least) {
            return;
        }
        let by_waits = operation.by_waits.is_some();
        let slow = Slow {
            call: operation.name.to_string(),
            task: ending.task.to_string(),
            tid: ending.tid,
            begin_ns: operation.begin,
            length_ns: operation.length(),
            at_least: !is_told || ending.open,
            excess_ns: excess,
            length_bytes: operation.length_bytes,
            result: ending.result,
            parts: operation.parts.to_record(),
            woken_by: std::mem::take(&mut operation.longest_sleep).into_record(),
            waits: by_waits.then_some(operation.waits),
            longest_wait_ns: by_waits.then_some(operation.longest_wait_ns),
        };
        let at = self
            .slowest
            .partition_point(|known| key(known) <= key(&slow));
        self.slowest.insert(at, slow);
        self.slowest.truncate(self.top);
    }

    pub(crate) fn calls(&self) -> Vec<Calls> {
        let of = |((family, name), sum): (&(Family, Option<Text>), &Sum)| Calls {
            kind: name.as_deref().unwrap_or(family.word()).to_owned(),
            count: sum.count,
            slow: sum.slow,
            stalls: sum.stalls,
            stalls_ns: sum.stalled,
            total_ns: sum.total,
            most_ns: sum.most,
            slow_parts: sum.slow_parts.to_record(),
        };
        self.sums.iter().map(of).collect()
    }

    /// Returns the shares of placement, reclaim and compaction in the slow memory operations.
    pub(crate) fn slow_memory_record(&self, seen: &Seen) -> Option<SlowMemory> {
        let parts = self.slow_memory();
        let total = parts.sum();
        let of_memory = self
            .sums
            .iter()
            .filter(|((family, _), _)| family.is_memory());
        let operations = of_memory.map(|(_, sum)| sum.slow).sum();
        let share = |ns: u64| ns as f64 / total as f64;
        let of = |wanted: fn(&Why) -> bool| {
            let wanted = parts.each().filter(|(why, _)| wanted(why));
            share(wanted.map(|(_, ns)| ns).sum())
        };
        (operations > 0 && total > 0).then(|| SlowMemory {
            operations,
            total_ns: total,
            placement_at_most: self.search_ns.map(|_| share(self.slow_search_ns)),
            reclaim: seen.reclaim.then(|| {
                of(|why| *why == Why::Throttled || why.is_reclaim() && *why != Why::Compaction)
            }),
            compaction: seen.compaction.then(|| of(|why| *why == Why::Compaction)),
        })
    }

    /// Returns the time of slow memory operations by cause.
    pub(crate) fn slow_memory(&self) -> Parts {
        let mut all = Parts::default();
        for ((family, _), sum) in &self.sums {
            if family.is_memory() {
                for (why, ns) in sum.slow_parts.each() {
                    all.add(why, ns);
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::What;

    /// An operation in the memory of another one starts empty.
    #[test]
    fn an_operation_in_the_place_of_another_is_new() {
        let mut operation = Operation::new(Family::Fault, "fault".into(), 5);
        operation.sure = Some(6);
        operation.by_waits = Some(Site::default());
        operation.length_bytes = Some(7);
        operation.times.running = 8;
        operation.holds(Interval {
            what: What::Fence,
            begin: 6,
            end: 9,
        });
        let by = WokenBy {
            task: Some("waker".into()),
            call: None,
            role: crate::call::Role::Sends,
        };
        operation.stays(Stay {
            left: 6,
            woken: 8,
            ran: 10,
            states: (State::Blocked, State::Runnable),
            stack: None,
            deep: false,
            for_io: false,
            otherwise: Why::Unknown,
            throttled: false,
            waker: Some(by),
        });
        operation.take_apart(9, State::Running);
        operation.unexplained_ns += 1;
        operation.search_ns = Some(3);
        operation.samples.insert("function".into(), 1);
        operation.again(Family::Computing, "computing".into(), 11);
        let new = Operation::new(Family::Computing, "computing".into(), 11);
        assert_eq!(format!("{operation:?}"), format!("{new:?}"));
    }
}
