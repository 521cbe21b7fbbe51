//! What is known beside the line: threads, and which system calls have been reported.

use std::collections::HashMap;
use std::str::FromStr;

use syscalls::Sysno;

use super::header::{Header, Tool};
use crate::Text;
use crate::kernel_event::Tasks;

/// Threads whose system calls are followed.
const MOST_CALLS: usize = 1 << 22;

/// The tracepoints that show a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traced {
    /// `raw_syscalls:sys_enter`, `sys_exit`: by number.
    Raw,
    /// `syscalls:sys_enter_NAME`, `sys_exit_NAME`.
    Named,
}

#[derive(Default)]
pub(super) struct Context {
    pub(super) tasks: Tasks,
    /// In which form each thread's system call was begun or ended last.
    calls: HashMap<u32, (Traced, bool)>,
    /// Whether a system call had a number and no name.
    pub(super) numbers: bool,
}

impl Context {
    /// Returns the process and the name of the acting thread. ftrace prints the name that a thread had when the text was
    /// made: names from earlier events come first.
    pub(super) fn actor(&mut self, header: &Header<'_>) -> (Option<u32>, Option<Text>) {
        let printed = header.comm.map(|comm| self.tasks.keep(comm));
        let Some(tid) = header.tid else {
            return (header.pid, printed);
        };
        let task = self.tasks.task(tid);
        let learned = task.and_then(|task| task.comm.clone());
        let comm = match header.tool {
            Tool::Perf => printed.or(learned),
            Tool::Ftrace => learned.or(printed),
        };
        let idle = (tid == 0).then_some(0); // a process of its own
        let pid = header.pid.or(task.and_then(|task| task.pid)).or(idle);
        (pid, comm)
    }

    /// Notes that the thread at hand begins or ends a call, and returns whether that is new: where both kinds of
    /// tracepoints were recorded, each call comes twice.
    pub(super) fn call(&mut self, traced: Traced, begins: bool) -> bool {
        let Some(tid) = self.tasks.tid else {
            return true;
        };
        let last = self.calls.get(&tid);
        if last.is_some_and(|&(by, began)| by != traced && began == begins) {
            self.calls.remove(&tid); // both came
            return false;
        }
        if last.is_some() || self.calls.len() < MOST_CALLS {
            self.calls.insert(tid, (traced, begins));
        }
        true
    }

    /// Returns the name of the call of that number, as this machine counts them.
    pub(super) fn syscall_name(&mut self, number: u32) -> Option<Text> {
        self.numbers = true;
        let call = Sysno::new(number as usize)?;
        Some(self.tasks.keep(call.name()))
    }
}

/// Returns the number of a call, as this machine counts them.
pub(super) fn syscall_number(name: &str) -> Option<u32> {
    // The kernel's functions of a few calls are named otherwise than the calls.
    let name = match name {
        "newfstatat" | "newfstat" | "newlstat" | "newstat" if Sysno::from_str(name).is_err() => {
            &name[3..]
        }
        "newuname" => "uname",
        "sendfile64" => "sendfile",
        name => name,
    };
    let call = Sysno::from_str(name).ok()?;
    u32::try_from(call.id()).ok()
}
