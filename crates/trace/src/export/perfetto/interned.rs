use std::collections::HashMap;

use super::messages::{Callstack, Frame, InternedData, InternedString, Mapping};
use crate::{Stack, Text};

/// Bytes of text after which all is forgotten and said anew: what an export holds does not grow with
/// its trace.
const MOST: usize = 16 << 20;

const PROGRAM: u64 = 1;
const KERNEL: u64 = 2;

/// Names that are written once and then referred to by a number. Numbers are never used again.
pub(super) struct Interned {
    functions: HashMap<String, u64>,
    stacks: HashMap<Text, u64>,
    symbols: HashMap<String, u64>,
    bytes: usize,
    last: u64,
    /// The strings that the next packet must define.
    new: Option<InternedData>,
    /// Whether the next packet begins anew.
    cleared: bool,
}

impl Interned {
    pub(super) fn new() -> Interned {
        let mut interned = Interned {
            functions: HashMap::new(),
            stacks: HashMap::new(),
            symbols: HashMap::new(),
            bytes: 0,
            last: KERNEL,
            new: None,
            cleared: false,
        };
        interned.begin();
        interned
    }

    /// What the packet that refers to them has to say, and whether all before is forgotten.
    pub(super) fn take_packet(&mut self) -> (Option<InternedData>, bool) {
        (self.new.take(), std::mem::take(&mut self.cleared))
    }

    /// The number of a call stack.
    pub(super) fn stack(&mut self, stack: &Stack) -> u64 {
        if let Some(&iid) = self.stacks.get(&stack.0) {
            return iid;
        }
        self.make_room(stack.0.len());
        let frame_ids = stack.frames().map(|frame| self.frame(frame)).collect();
        let iid = self.next();
        self.stacks.insert(Text::clone(&stack.0), iid);
        let callstack = Callstack {
            iid: Some(iid),
            frame_ids,
        };
        self.fresh().callstacks.push(callstack);
        iid
    }

    /// The number of a function of the kernel.
    pub(super) fn symbol(&mut self, name: &str) -> u64 {
        if let Some(&iid) = self.symbols.get(name) {
            return iid;
        }
        self.make_room(name.len());
        let iid = self.next();
        self.symbols.insert(name.to_owned(), iid);
        self.fresh().kernel_symbols.push(string(iid, name));
        iid
    }

    /// The number of a frame, which is also that of its function's name.
    fn frame(&mut self, frame: &str) -> u64 {
        if let Some(&iid) = self.functions.get(frame) {
            return iid;
        }
        self.bytes += frame.len();
        let iid = self.next();
        self.functions.insert(frame.to_owned(), iid);
        let (name, mapping) = match frame.strip_suffix("_[k]") {
            Some(name) => (name, KERNEL),
            None => (frame, PROGRAM),
        };
        let new = self.fresh();
        new.function_names.push(string(iid, name));
        new.frames.push(Frame {
            iid: Some(iid),
            function_name_id: Some(iid),
            mapping_id: Some(mapping),
        });
        iid
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn fresh(&mut self) -> &mut InternedData {
        self.new.get_or_insert_default()
    }

    fn make_room(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > MOST {
            self.functions.clear();
            self.stacks.clear();
            self.symbols.clear();
            self.bytes = bytes;
            self.begin();
        }
    }

    /// Perfetto has a frame in a file that is mapped; the trace knows no more than whose it is.
    fn begin(&mut self) {
        self.cleared = true;
        let new = self.fresh();
        for (iid, path) in [(PROGRAM, "program"), (KERNEL, "kernel")] {
            new.mapping_paths.push(string(iid, path));
            new.mappings.push(Mapping {
                iid: Some(iid),
                path_string_ids: vec![iid],
            });
        }
    }
}

fn string(iid: u64, text: &str) -> InternedString {
    InternedString {
        iid: Some(iid),
        str: Some(text.as_bytes().to_vec()),
    }
}
