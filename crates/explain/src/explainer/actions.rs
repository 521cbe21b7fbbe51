//! Events by which threads act: system calls, faults, reclaim, locks, I/O.

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
        if let Some(phase) = phase(&event.kind) {
            return self.phase(tid, phase);
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
        thread.operation = Family::of_call(&name).map(|family| {
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

    /// Something begins or ends.
    fn phase(&mut self, tid: u32, Phase { what, end, spins }: Phase) {
        self.seen.reclaim |= matches!(what, What::Reclaim(..));
        self.seen.compaction |= what == What::Compaction;
        self.seen.locks |= matches!(what, What::Lock(..));
        let now = self.now;
        let thread = self.thread(tid, None);
        if let Some(operation) = &mut thread.operation
            && !spins
        {
            operation.goes_on();
        }
        let Some(end) = end else {
            thread.intervals.begin(what, now);
            return;
        };
        let begun = thread.intervals.end(&what);
        // The kernel tells of throttling when it is over; the sleep was booked on what it looked like.
        if let (What::Reclaim(Reclaimer::Throttled, _), Some(lasted)) = (&what, end.lasted)
            && let Some((slept, why)) = thread.slept.take()
            && let Some(operation) = &mut thread.operation
        {
            operation.shift(&why, &Why::Throttled, slept.min(lasted.0));
        }
        let wall = begun.map(|begin| now - begin);
        let task = name(tid, thread.comm.as_ref());
        if let Some(wall) = wall.or(end.lasted.map(|lasted| lasted.0)) {
            self.mappings
                .reclaimed(task, &what, wall, end.scanned, end.reclaimed);
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

/// Sigreturn restores the registers of before the signal, so its end has the number -1, or there is no end.
fn is_sigreturn(name: &str) -> bool {
    matches!(name, "rt_sigreturn" | "sigreturn")
}

/// A begin or an end.
struct Phase {
    what: What,
    end: Option<End>,
    /// Whether it may be a spinning lock, for which an interrupt contends in the midst of the program's own code. All else
    /// shows that a thread that was in a fault is still there.
    spins: bool,
}

/// Figures of an end.
#[derive(Default)]
struct End {
    /// Pages or objects looked at.
    scanned: Option<u64>,
    /// Pages or objects freed.
    reclaimed: Option<u64>,
    lasted: Option<Nanos>,
}

/// Returns what an event begins or ends, if it does.
fn phase(kind: &Kind) -> Option<Phase> {
    let over = || Some(End::default());
    let (what, end) = match kind {
        Kind::ReclaimBegin { by, shrinker, .. } => (What::Reclaim(*by, shrinker.clone()), None),
        Kind::ReclaimEnd {
            by,
            shrinker,
            scanned,
            reclaimed,
            duration,
            ..
        } => {
            let end = End {
                scanned: *scanned,
                reclaimed: *reclaimed,
                lasted: *duration,
            };
            (What::Reclaim(*by, shrinker.clone()), Some(end))
        }
        Kind::CompactionBegin { .. } => (What::Compaction, None),
        Kind::CompactionEnd { .. } => (What::Compaction, over()),
        Kind::LockBegin { lock, address, .. } => (What::Lock(is_of_mm(lock), *address), None),
        Kind::LockEnd { lock, address, .. } => (What::Lock(is_of_mm(lock), *address), over()),
        Kind::FenceWaitBegin { .. } => (What::Fence, None),
        Kind::FenceWaitEnd { .. } => (What::Fence, over()),
        _ => return None,
    };
    let spins = match kind {
        Kind::LockBegin { lock, .. } => lock.as_ref().is_none_or(|lock| lock.contains("SPIN")),
        // The end of a wait (contention_end) does not say for which lock; the thread slept, or it spun.
        Kind::LockEnd { lock, .. } => lock.is_none(),
        _ => false,
    };
    Some(Phase { what, end, spins })
}

/// Returns whether it is the lock of a memory map.
fn is_of_mm(lock: &Option<Text>) -> bool {
    matches!(lock.as_deref(), Some("mmap" | "mmap_lock"))
}
