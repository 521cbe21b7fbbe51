//! Finds the state in which a sampled thread was.

use stopgap_trace::{Event, Stack};

use super::Explainer;
use crate::profile::in_call;
use crate::stack::{self, kernel_function};
use crate::tasks::name;
use crate::thread::Where;

impl Explainer {
    /// Adds a sample to the profile.
    pub(super) fn sampled(&mut self, event: &Event, stack: &Stack) {
        self.seen.samples = true;
        let thread = event.tid.and_then(|tid| self.threads.get(&tid));
        let comm = event
            .comm
            .as_ref()
            .or_else(|| thread.and_then(|thread| thread.comm.as_ref()));
        let task = match event.tid {
            Some(tid) => name(tid, comm),
            None => comm.map_or_else(|| "unknown thread".into(), Clone::clone),
        };
        let call = match thread.map(|thread| &thread.place) {
            Some(Where::In(call)) => Some(&call.name),
            _ => None,
        };
        self.samples.add(&task, call, stack, state);
    }
}

/// Returns the state of a thread with the stack `stack`. `call` is its call according to the events.
fn state(call: Option<&str>, stack: &Stack) -> String {
    let Some(inner) = stack.frames().next_back() else {
        return "unknown".to_owned();
    };
    if kernel_function(inner).is_none() {
        let known = inner != stopgap_stats::profile::UNKNOWN;
        return if known { "user mode" } else { "unknown" }.to_owned();
    }
    // A recording may have rows of some calls only. The stack shows the others.
    let call = call.or_else(|| stack::call(&stack.0));
    if call.is_some() || stack::in_call(&stack.0) {
        return in_call(call);
    }
    let fault = stack::in_fault(&stack.0);
    if fault { "page fault" } else { "interrupt" }.to_owned()
}
