//! Events that show what a thread does: system calls, page faults, reclaim, locks, I/O.

use stopgap_trace::{Activity, Event, Kind, Span, Text};

use super::Explainer;
use crate::call::{self, Call, Family, Role, name_of, role, waits_for_several};
use crate::interval::{Interval, What};
use crate::stack::kernel_function;
use crate::tasks::name;
use crate::thread::{Ended, Where};

impl Explainer {
    pub(super) fn action(&mut self, event: &Event) {
        if let Kind::Span(span) = &event.kind {
            return self.span(event, span);
        }
        let Some(tid) = self.acts(event) else {
            return;
        };
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
                let thread = self.thread(tid, None);
                let running = thread.times.running;
                if let Some(operation) = &mut thread.operation {
                    let begin = operation.times.running;
                    operation.search_ns.get_or_insert(running - begin);
                }
            }
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
        self.seen.call_rows = true;
        self.seen.nameless_calls |= name.is_none();
        let name = name_of(number, name);
        let now = self.now;
        let thread = self.thread(tid, None);
        thread.traced = true;
        thread.calls = true;
        let lost_exit = matches!(&thread.place, Where::In(call) if !is_sigreturn(&call.name));
        if (thread.operation.as_ref()).is_some_and(|operation| operation.sure.is_some()) {
            self.end_operation(tid, None, false);
        }
        let role = role(&name);
        let family = Family::of_call(&name);
        let mut operation = self.operation(family, Text::clone(&name), now);
        let thread = self.thread(tid, None);
        operation.times = thread.times;
        operation.length_bytes = match family {
            Family::Brk | Family::Fault => None,
            family if family.is_memory() => arguments[1],
            _ => None,
        };
        thread.operation = Some(operation);
        thread.slept_in_call = false;
        thread.multiplexes |= waits_for_several(&name, arguments[1]);
        let first = arguments[0];
        thread.place = Where::In(Call { name, role, first });
        self.contradictions += u64::from(lost_exit);
        if let (Role::Sends, Some(descriptor)) = (role, first) {
            let sender = (tid, self.process_of(tid));
            let graph = &self.graph;
            let asker = |one, other| graph.asker(one, other);
            self.roundtrips.sends(sender, descriptor, now, asker);
        }
    }

    fn leaves_call(&mut self, tid: u32, number: u32, name: Option<&Text>, result: Option<i64>) {
        self.seen.calls = true;
        self.seen.call_rows = true;
        self.seen.nameless_calls |= name.is_none();
        let name = name_of(number, name);
        let now = self.now;
        let thread = self.thread(tid, None);
        thread.traced = true;
        thread.calls = true;
        let place = std::mem::replace(&mut thread.place, Where::User);
        if let Where::In(call) = &place
            && let Some(descriptor) = call::opened(&call.name, call.first, result)
        {
            let process = self.process_of(tid);
            self.roundtrips.opens(process, descriptor, now);
        }
        let thread = self.thread(tid, None);
        let name = match &place {
            Where::In(call) if is_sigreturn(&call.name) => Text::clone(&call.name),
            _ => name,
        };
        thread.ended = Some(Ended {
            name: Text::clone(&name),
            at: now,
        });
        thread.slept_in_call = false;
        thread.multiplexes |= waits_for_several(&name, None);
        match place {
            Where::In(call) if call.name == name => {
                self.end_operation(tid, result, false);
                if call.role == Role::Receives && result.is_some_and(|result| result > 0) {
                    self.roundtrips.received(tid, call.first, now);
                }
            }
            Where::In(_) => {
                // The end of the first call and the begin of the second were lost, so neither length is known.
                self.thread(tid, None).operation = None;
                self.contradictions += 1;
            }
            // The call began before the trace, or in the parent before a fork.
            Where::Unknown => {}
            Where::User => self.contradictions += 1,
        }
        self.mappings.call(&name, result);
    }

    /// Begins a page fault, unless the thread is in a system call: then the fault is part of the call.
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
            let mut fault = self.operation(Family::Fault, "fault".into(), now);
            fault.sure = Some(now);
            self.thread(tid, None).operation = Some(fault);
        }
    }

    /// Returns the process of `tid`. If the source does not name it, the thread stands for its process.
    fn process_of(&self, tid: u32) -> u32 {
        let thread = self.threads.get(&tid);
        thread.and_then(|thread| thread.pid).unwrap_or(tid)
    }

    fn sees(&mut self, what: &What) {
        self.seen.reclaim |= matches!(what, What::Reclaim(..));
        self.seen.compaction |= *what == What::Compaction;
        self.seen.locks |= matches!(what, What::Lock(..));
    }

    fn span(&mut self, event: &Event, span: &Span) {
        let now = self.now;
        // Interrupts, and requests of other threads, end while any thread runs.
        let is_own = !matches!(
            span.what,
            Activity::Block | Activity::Softirq | Activity::Interrupt
        );
        let tid = match is_own && !span.open {
            true => self.acts(event),
            false => event.tid.filter(|&tid| tid != 0),
        };
        let Some(tid) = tid else { return };
        let begin = span.begin.0.min(now);
        if span.what == Activity::PageFault {
            self.seen.faults = true;
            return self.faulted(tid, begin);
        }
        let Some(what) = What::of_span(span) else {
            return;
        };
        self.sees(&what);
        // An interrupt may contend for a spinlock in the middle of the program's own code. Every other span shows
        // that a thread in a fault is still there.
        let spins = matches!(what, What::Lock(false, _))
            && span.lock.as_ref().is_none_or(|lock| lock.contains("SPIN"));
        let thread = self.thread(tid, None);
        if let Some(operation) = &mut thread.operation {
            if is_own && !spins {
                let overlaps = operation.last_ran().is_some_and(|ran| begin <= ran);
                if operation.by_waits.is_some() && overlaps {
                    operation.begins(begin);
                }
                if operation.by_waits.is_none() || overlaps {
                    operation.lasts(now);
                }
            }
            let what = what.clone();
            operation.holds(Interval {
                what,
                begin,
                end: now,
            });
        }
        if !span.open {
            let task = name(tid, thread.comm.as_ref());
            let wall = now - begin;
            (self.mappings).reclaimed(task, &what, wall, span.scanned, span.reclaimed);
        }
    }

    /// Takes the end of a page fault of `tid` that began at `begin`.
    fn faulted(&mut self, tid: u32, begin: u64) {
        let now = self.now;
        let thread = self.thread(tid, None);
        if let Some(operation) = &mut thread.operation
            && operation.family == Family::Fault
        {
            if operation.last_ran().is_some_and(|ran| begin <= ran) {
                operation.begins(begin);
            }
            operation.lasts(now);
        }
    }
}

/// Sigreturn restores the registers from before the signal, so its exit has the number -1, or there is no exit.
fn is_sigreturn(name: &str) -> bool {
    matches!(name, "rt_sigreturn" | "sigreturn")
}
