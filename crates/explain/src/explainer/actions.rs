//! What threads do: system calls, faults, reclaim, locks, I/O.

use stopgap_events::units::Nanos;
use stopgap_trace::{Event, Kind, Reclaimer, Text};

use super::{Explainer, MOST_REQUESTS, outs};
use crate::call::{Call, Family, Role, name_of, role, waits_for_several};
use crate::interval::What;
use crate::operation::Operation;
use crate::stack::kernel_function;
use crate::tasks::name;
use crate::thread::{Ended, Where};
use crate::why::Why;

/// Pages or objects looked at and freed, where an end says so.
type Freed = (Option<u64>, Option<u64>);

impl Explainer {
    pub(super) fn action(&mut self, event: &Event) {
        if self.inside_a_switch(event) {
            self.seen.locks |= !matches!(event.kind, Kind::Sample { .. });
            return; // the thread's time is that of its new state
        }
        let Some(tid) = self.acts(event) else {
            if let Kind::BlockComplete { device, sector, .. } = &event.kind {
                self.completes(device, *sector);
            }
            return;
        };
        if is_of_a_fault(&event.kind)
            && let Some(operation) = &mut self.thread(tid, None).operation
        {
            operation.goes_on();
        }
        match &event.kind {
            Kind::SyscallEnter {
                number,
                name,
                arguments,
            } => self.enters(tid, *number, name.as_ref(), arguments),
            Kind::SyscallExit {
                number,
                name,
                result,
            } => self.leaves_call(tid, *number, name.as_ref(), *result),
            Kind::PageFault { user, .. } => self.faults(tid, *user),
            Kind::UnmappedArea { .. } => {
                if let Some(operation) = &mut self.thread(tid, None).operation {
                    operation.search_ns.get_or_insert(operation.on_cpu());
                }
            }
            Kind::ReclaimBegin { by, shrinker, .. } => {
                self.seen.reclaim = true;
                self.begins(tid, What::Reclaim(*by, shrinker.clone()));
            }
            Kind::ReclaimEnd {
                by,
                shrinker,
                scanned,
                reclaimed,
                duration,
                ..
            } => {
                self.seen.reclaim = true;
                let what = What::Reclaim(*by, shrinker.clone());
                self.ends(tid, &what, (*scanned, *reclaimed), *duration);
            }
            Kind::CompactionBegin { .. } => {
                self.seen.compaction = true;
                self.begins(tid, What::Compaction);
            }
            Kind::CompactionEnd { .. } => {
                self.seen.compaction = true;
                self.ends(tid, &What::Compaction, (None, None), None);
            }
            Kind::LockBegin { lock, address, .. } => {
                self.seen.locks = true;
                self.begins(tid, what_lock(lock.as_ref(), *address));
            }
            Kind::LockEnd { lock, address, .. } => {
                self.seen.locks = true;
                let what = what_lock(lock.as_ref(), *address);
                self.ends(tid, &what, (None, None), None);
            }
            Kind::FenceWaitBegin { .. } => self.begins(tid, What::Fence),
            Kind::FenceWaitEnd { .. } => self.ends(tid, &What::Fence, (None, None), None),
            Kind::BlockIssue { device, sector, .. } => self.issues(tid, device, *sector),
            Kind::BlockComplete { device, sector, .. } => self.completes(device, *sector),
            Kind::Sample { stack } => {
                let inner = stack.frames().next_back().and_then(kernel_function);
                let thread = self.thread(tid, None);
                if let (Some(function), Some(operation)) = (inner, &mut thread.operation) {
                    *operation.samples.entry(function.into()).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn enters(&mut self, tid: u32, number: u32, name: Option<&Text>, arguments: &[Option<u64>; 6]) {
        self.seen.calls = true;
        self.seen.nameless_calls |= name.is_none();
        let name = name_of(number, name);
        let now = self.now;
        let is_fault = |operation: &Operation| operation.family == Family::Fault;
        let thread = self.thread(tid, None);
        thread.traced = true;
        let lost_exit = matches!(&thread.place, Where::In(call) if !is_sigreturn(&call.name));
        if thread.operation.as_ref().is_some_and(is_fault) {
            self.end_operation(tid, None, false);
        }
        let role = role(&name);
        let thread = self.thread(tid, None);
        thread.operation = Family::of(&name).map(|family| {
            let mut operation = Operation::new(family, Text::clone(&name), now);
            operation.times = thread.times;
            operation.length_bytes = match family {
                Family::Ioctl | Family::Poll | Family::Brk | Family::Fault => None,
                _ => arguments[1],
            };
            operation
        });
        thread.intervals.clear();
        thread.requests = 0;
        thread.slept_in_call = false;
        thread.multiplexes |= waits_for_several(&name, arguments[1]);
        let first = arguments[0];
        thread.place = Where::In(Call { name, role, first });
        self.contradictions += u64::from(lost_exit);
        if let (Role::Sends, Some(descriptor)) = (role, first) {
            let threads = &self.threads;
            let outs = |tid| outs(threads, tid);
            self.roundtrips.sends(tid, descriptor, now, outs);
        }
    }

    fn leaves_call(&mut self, tid: u32, number: u32, name: Option<&Text>, result: Option<i64>) {
        self.seen.calls = true;
        self.seen.nameless_calls |= name.is_none();
        let name = name_of(number, name);
        let now = self.now;
        let thread = self.thread(tid, None);
        thread.traced = true;
        let place = std::mem::replace(&mut thread.place, Where::User);
        let name = match &place {
            Where::In(call) if is_sigreturn(&call.name) => Text::clone(&call.name),
            _ => name,
        };
        thread.ended = Some(Ended {
            name: Text::clone(&name),
            at: now,
        });
        thread.slept_in_call = false;
        thread.intervals.clear();
        thread.multiplexes |= waits_for_several(&name, None);
        match place {
            Where::In(call) if call.name == name => {
                self.end_operation(tid, result, false);
                if call.role == Role::Receives && result.is_some_and(|result| result > 0) {
                    self.roundtrips.received(tid, call.first, now);
                }
            }
            Where::In(_) => {
                // Two calls of which the first's end and the second's begin were lost: of neither is the length known.
                self.thread(tid, None).operation = None;
                self.contradictions += 1;
            }
            // The call began before the trace did, or in a fork.
            Where::Unknown => {}
            Where::User => self.contradictions += 1,
        }
        self.mappings.call(&name, result);
    }

    /// A fault in a system call is part of the call.
    fn faults(&mut self, tid: u32, user: Option<bool>) {
        self.seen.faults = true;
        let now = self.now;
        let thread = self.thread(tid, None);
        thread.traced = true;
        let in_user = match thread.place {
            Where::User => user != Some(false),
            Where::Unknown => user == Some(true),
            Where::In(_) => false,
        };
        if in_user {
            self.end_operation(tid, None, false);
            let thread = self.thread(tid, None);
            thread.intervals.clear();
            thread.requests = 0;
            thread.operation = Some(Operation::new(Family::Fault, "fault".into(), now));
        }
    }

    fn begins(&mut self, tid: u32, what: What) {
        let now = self.now;
        self.thread(tid, None).intervals.begin(what, now);
    }

    fn ends(&mut self, tid: u32, what: &What, (scanned, reclaimed): Freed, told: Option<Nanos>) {
        let now = self.now;
        let thread = self.thread(tid, None);
        let begun = thread.intervals.end(what);
        // The kernel tells of throttling when it is over; the sleep was booked on what it looked like.
        if let (What::Reclaim(Reclaimer::Throttled, _), Some(told)) = (what, told)
            && let Some((slept, why)) = thread.slept.take()
            && let Some(operation) = &mut thread.operation
        {
            operation.shift(&why, &Why::Throttled, slept.min(told.0));
        }
        let wall = begun
            .map(|begun| now - begun.begin)
            .or(told.map(|told| told.0));
        let task = name(tid, thread.comm.as_ref());
        if let Some(wall) = wall {
            self.mappings
                .reclaimed(task, what, wall, scanned, reclaimed);
        }
    }

    fn issues(&mut self, tid: u32, device: &Text, sector: u64) {
        if self.requests.len() < MOST_REQUESTS {
            self.requests.insert((Text::clone(device), sector), tid);
            self.thread(tid, None).requests += 1;
        }
    }

    fn completes(&mut self, device: &Text, sector: u64) {
        let Some(tid) = self.requests.remove(&(Text::clone(device), sector)) else {
            return;
        };
        let now = self.now;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.advance(now);
            thread.requests = thread.requests.saturating_sub(1);
        }
    }
}

/// It brings back the registers of before the signal, so that its end has the number -1, or none is told.
fn is_sigreturn(name: &str) -> bool {
    matches!(name, "rt_sigreturn" | "sigreturn")
}

/// Whether a thread that is in a fault is still there. An interrupt contends for spinning locks and wakes others in the
/// midst of the program's own code.
fn is_of_a_fault(kind: &Kind) -> bool {
    match kind {
        Kind::ReclaimBegin { .. }
        | Kind::ReclaimEnd { .. }
        | Kind::CompactionBegin { .. }
        | Kind::CompactionEnd { .. }
        | Kind::FenceWaitBegin { .. }
        | Kind::FenceWaitEnd { .. } => true,
        // The end of a wait (contention_end) does not say of what; it slept, or it spun.
        Kind::LockBegin { lock, .. } => lock.as_ref().is_some_and(|lock| !lock.contains("SPIN")),
        Kind::LockEnd { lock, .. } => lock.is_some(),
        _ => false,
    }
}

fn what_lock(lock: Option<&Text>, address: Option<u64>) -> What {
    let mmap = lock.is_some_and(|lock| &**lock == "mmap" || &**lock == "mmap_lock");
    What::Lock { mmap, address }
}
