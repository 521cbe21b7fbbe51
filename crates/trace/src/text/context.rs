//! What is known beside the line: threads, system calls, texts that come again.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use syscalls::Sysno;

use super::header::{Header, Tool};
use crate::Text;

/// Texts that are kept once; what comes beyond is made anew each time.
const TEXTS: usize = 1 << 16;
/// Threads that are followed; of more, no names and processes are learned.
const TASKS: usize = 1 << 22;
/// Length of a thread's name (`TASK_COMM_LEN` less its NUL).
const COMM: usize = 15;

/// A thread, as far as it is known.
#[derive(Debug, Default)]
struct Task {
    pid: Option<u32>,
    comm: Option<Text>,
    /// In which form its system call was begun or ended last.
    call: Option<(Traced, bool)>,
}

/// Which tracepoints told of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traced {
    /// `raw_syscalls:sys_enter`, `sys_exit`: by number.
    Raw,
    /// `syscalls:sys_enter_NAME`, `sys_exit_NAME`.
    Named,
}

#[derive(Default)]
pub(super) struct Context {
    /// The thread of the line at hand.
    pub(super) tid: Option<u32>,
    tasks: HashMap<u32, Task>,
    /// Of threads just made: whether they are of their maker's process.
    pub(super) threads: HashMap<u32, bool>,
    /// Objects that a shrinker was to look at, by thread.
    pub(super) to_scan: HashMap<u32, u64>,
    /// Whether a system call had a number alone, or a name alone.
    pub(super) numbers: bool,
    texts: HashSet<Text>,
}

impl Context {
    fn task(&mut self, tid: u32) -> Option<&mut Task> {
        if self.tasks.len() >= TASKS && !self.tasks.contains_key(&tid) {
            return None;
        }
        Some(self.tasks.entry(tid).or_default())
    }

    /// A thread has this name from now on.
    pub(super) fn name(&mut self, tid: u32, comm: Option<&Text>) {
        if let (Some(task), Some(comm)) = (self.task(tid), comm)
            && task.comm.as_ref() != Some(comm)
        {
            task.comm = Some(Text::clone(comm));
        }
    }

    /// A thread is of this process.
    pub(super) fn process(&mut self, tid: u32, pid: Option<u32>) {
        if let Some(task) = self.task(tid) {
            task.pid = pid;
        }
    }

    /// The process of a thread.
    pub(super) fn process_of(&self, tid: u32) -> Option<u32> {
        self.tasks.get(&tid)?.pid
    }

    /// The process and the name of who acts in a line. ftrace prints the name that a thread had when the text was
    /// made: what the events before say of it comes first.
    pub(super) fn who(&mut self, header: &Header<'_>) -> (Option<u32>, Option<Text>) {
        let printed = header.comm.map(|comm| self.keep(comm));
        let Some(tid) = header.tid else {
            return (header.pid, printed);
        };
        let task = self.tasks.get(&tid);
        let learned = task.and_then(|task| task.comm.clone());
        let comm = match header.tool {
            Tool::Perf => printed.or(learned),
            Tool::Ftrace => learned.or(printed),
        };
        let idle = (tid == 0).then_some(0); // a process of its own
        let pid = header.pid.or(task.and_then(|task| task.pid)).or(idle);
        (pid, comm)
    }

    /// Notes that the thread at hand begins or ends a call as `traced` tells it; whether that is news. Where both kinds
    /// of tracepoints were recorded, each call is told twice.
    pub(super) fn call(&mut self, traced: Traced, begins: bool) -> bool {
        let Some(tid) = self.tid else { return true };
        let Some(task) = self.task(tid) else {
            return true;
        };
        let told = task
            .call
            .is_some_and(|(by, began)| by != traced && began == begins);
        task.call = Some((traced, begins));
        if told {
            task.call = None; // both have told it
        }
        !told
    }

    /// The name that the kernel gives a thread that runs `filename`.
    pub(super) fn comm_of(&mut self, filename: &str) -> Text {
        let name = filename.rsplit('/').next().unwrap_or(filename);
        let mut end = name.len().min(COMM);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        self.keep(&name[..end])
    }

    /// The text, shared with those before it.
    pub(super) fn keep(&mut self, text: &str) -> Text {
        if let Some(kept) = self.texts.get(text) {
            return Text::clone(kept);
        }
        let text = Text::from(text);
        if self.texts.len() < TEXTS {
            self.texts.insert(Text::clone(&text));
        }
        text
    }

    /// The name of the call of that number, as this machine counts them.
    pub(super) fn syscall_name(&mut self, number: u32) -> Option<Text> {
        self.numbers = true;
        let call = Sysno::new(number as usize)?;
        Some(self.keep(call.name()))
    }
}

/// The number of a call, as this machine counts them.
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
