//! What the decoder knows beside the record: threads, names, texts that come again.

use std::collections::{HashMap, HashSet};

use stopgap_trace::{Stack, Text};

use crate::description::Description;
use crate::format::Field;
use crate::symbols::Symbols;

/// A thread, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    pub(super) pid: Option<u32>,
    pub(super) comm: Option<Text>,
}

/// An allocation that could not be served.
#[derive(Debug, Clone, Default)]
pub(super) struct Allocation {
    pub(super) order: Option<u32>,
    pub(super) gfp: Option<Text>,
}

/// Texts that are kept once; what comes beyond is made anew each time.
const TEXTS: usize = 1 << 16;
/// Length of a thread's name (`TASK_COMM_LEN` less its NUL).
const COMM: usize = 15;
/// Function below which a stack at a switch is of interest.
const SCHEDULE: &str = "__schedule";

pub(super) struct Context {
    /// The thread of the record at hand.
    pub(super) tid: Option<u32>,
    /// Its stack, innermost first, where one was written with the record.
    pub(super) stack: Vec<u64>,
    tasks: HashMap<u32, Task>,
    /// Of threads just made: whether they are of their maker's process.
    pub(super) threads: HashMap<u32, bool>,
    /// Objects that a shrinker was to look at, by thread.
    pub(super) to_scan: HashMap<u32, u64>,
    /// For what a thread compacts memory, by thread.
    pub(super) compacts: HashMap<u32, Allocation>,
    syscalls: HashMap<u32, Text>,
    migrate_types: Vec<Text>,
    symbols: Symbols,
    texts: HashSet<Text>,
}

impl Context {
    pub(super) fn new(description: &Description, symbols: Symbols) -> Context {
        let tasks = description.tasks.iter().map(|task| {
            let comm = task.comm.as_deref().map(Text::from);
            let pid = Some(task.pid);
            (task.tid, Task { pid, comm })
        });
        let syscalls = description.syscalls.iter();
        let types = description.migrate_types.iter();
        Context {
            tid: None,
            stack: Vec::new(),
            tasks: tasks.collect(),
            threads: HashMap::new(),
            to_scan: HashMap::new(),
            compacts: HashMap::new(),
            syscalls: syscalls
                .map(|(&number, name)| (number, Text::from(name.as_str())))
                .collect(),
            migrate_types: types.map(|name| Text::from(name.as_str())).collect(),
            symbols,
            texts: HashSet::new(),
        }
    }

    pub(super) fn task(&self, tid: u32) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// A thread has this name from now on.
    pub(super) fn name(&mut self, tid: u32, comm: Option<&Text>) {
        let task = self.tasks.entry(tid).or_default();
        if tid == 0 {
            task.pid = Some(0); // the idle task is a process of its own
        }
        if let Some(comm) = comm
            && task.comm.as_ref() != Some(comm)
        {
            task.comm = Some(Text::clone(comm));
        }
    }

    /// A thread is of this process.
    pub(super) fn process(&mut self, tid: u32, pid: Option<u32>) {
        self.tasks.entry(tid).or_default().pid = pid;
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

    /// The text in a field.
    pub(super) fn text(&mut self, field: &Option<Field>, record: &[u8]) -> Option<Text> {
        let text = field.as_ref()?.text(record)?;
        Some(self.keep(&text))
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

    pub(super) fn syscall(&self, number: u32) -> Option<Text> {
        self.syscalls.get(&number).cloned()
    }

    /// The kernel's word for a migrate type, or its number where nobody said the words.
    pub(super) fn migrate_type(&mut self, number: Option<u32>) -> Option<Text> {
        let number = number?;
        let known = self.migrate_types.get(number as usize).cloned();
        Some(known.unwrap_or_else(|| self.keep(&number.to_string())))
    }

    /// The function at an address.
    pub(super) fn function(&mut self, address: Option<u64>) -> Option<Text> {
        let address = address?;
        match self.symbols.function(address) {
            Some(name) => Some(Text::clone(name)),
            None => Some(self.keep(&format!("{address:#x}"))),
        }
    }

    /// The stack of the record at hand, without the functions that wrote it.
    pub(super) fn stack(&mut self) -> Option<Stack> {
        if self.stack.is_empty() {
            return None;
        }
        let own = self.stack.iter().position(|&address| {
            let name = self.symbols.function(address);
            name.is_some_and(|name| &**name == SCHEDULE)
        });
        Some(self.symbols.stack(&self.stack[own.unwrap_or(0)..]))
    }
}
