//! Call chains as text.

use std::collections::HashMap;
use std::rc::Rc;

use stopgap_trace::{Stack, Text};

use super::mappings::{File, Mappings};
use super::names::Names;
use crate::symbols::Symbols;

/// The stack of a sample in which the kernel could follow no frame.
const UNKNOWN: &str = "[unknown]";
/// Frames that are kept as text; beyond that they are made anew each time.
const FRAMES: usize = 1 << 18;

/// Makes text of call chains.
pub(crate) struct Stacks {
    symbols: Symbols,
    names: Box<dyn Names>,
    kernel: HashMap<u64, Text>,
    user: HashMap<(Rc<File>, u64), Text>,
}

impl Stacks {
    pub(crate) fn new(symbols: Symbols, names: Box<dyn Names>) -> Stacks {
        Stacks {
            symbols,
            names,
            kernel: HashMap::new(),
            user: HashMap::new(),
        }
    }

    /// The stack of a thread in a process with these mappings: `kernel` and `user` are innermost first.
    pub(crate) fn stack(
        &mut self,
        mappings: Option<&Mappings>,
        kernel: &[u64],
        user: &[u64],
    ) -> Stack {
        let mut frames = Vec::with_capacity(kernel.len() + user.len());
        for (depth, &address) in user.iter().enumerate().rev() {
            frames.push(self.user(mappings, address, depth));
        }
        for (depth, &address) in kernel.iter().enumerate().rev() {
            frames.push(self.kernel(address, depth));
        }
        if frames.is_empty() {
            frames.push(Text::from(UNKNOWN));
        }
        Stack::new(frames.iter().map(|frame| &**frame))
    }

    /// The stack of a program, `user` innermost first; `named` names what no file holds.
    pub(crate) fn user_stack(
        &mut self,
        mappings: Option<&Mappings>,
        user: &[u64],
        mut named: impl FnMut(u64) -> Option<Text>,
    ) -> Stack {
        let mut frames = Vec::with_capacity(user.len());
        for (depth, &address) in user.iter().enumerate().rev() {
            let at = call(address, depth);
            let file = mappings.and_then(|mappings| mappings.find(at));
            let made = file.is_none_or(|(file, _)| file.inode == 0 && !file.name.starts_with('['));
            let name = if made { named(at) } else { None };
            frames.push(name.unwrap_or_else(|| self.user(mappings, address, depth)));
        }
        Stack::new(frames.iter().map(|frame| &**frame))
    }

    fn kernel(&mut self, address: u64, depth: usize) -> Text {
        let at = call(address, depth);
        if let Some(frame) = self.kernel.get(&at) {
            return Text::clone(frame);
        }
        let frame: Text = match self.symbols.function(at) {
            Some(name) => format!("{name}_[k]"),
            None => format!("{address:#x}_[k]"),
        }
        .into();
        if self.kernel.len() < FRAMES {
            self.kernel.insert(at, Text::clone(&frame));
        }
        frame
    }

    fn user(&mut self, mappings: Option<&Mappings>, address: u64, depth: usize) -> Text {
        let at = call(address, depth);
        let Some((file, offset)) = mappings.and_then(|mappings| mappings.find(at)) else {
            return format!("{address:#x}").into();
        };
        let key = (Rc::clone(file), offset);
        if let Some(frame) = self.user.get(&key) {
            return Text::clone(frame);
        }
        let frame = match self.names.function(file, offset) {
            Some(name) => name,
            None => format!("{}+{offset:#x}", short(file)).into(),
        };
        if self.user.len() < FRAMES {
            self.user.insert(key, Text::clone(&frame));
        }
        frame
    }
}

/// All frames but the innermost have the address of the return: the call stands before it, and
/// may be the last of its function.
fn call(address: u64, depth: usize) -> u64 {
    if depth == 0 {
        address
    } else {
        address.wrapping_sub(1)
    }
}

/// A file without its folders; what is none by what it is.
fn short(file: &File) -> &str {
    match &*file.name {
        "" | "//anon" => "[anon]",
        name => name.rsplit('/').next().unwrap_or(name),
    }
}
