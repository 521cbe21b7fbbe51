//! Where CPU time went: samples by thread, state and function. A part of [`crate::explain::Findings`].
//!
//! # Contract
//!
//! Each sample is counted once in [`Profile::threads`], once in the states of its thread, once in
//! [`Function::own_samples`] and once in [`Profile::stacks`]. Each of these adds up to [`Profile::samples`]. Code
//! without a name has a row of its own and is never left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Suffix of the name of a kernel function.
pub const KERNEL: &str = "_[k]";

/// Suffix of the name of a file whose symbols do not name the function.
pub const NO_SYMBOL: &str = "[no symbol]";

/// Stands for code at an address where no mapped file was known.
pub const NO_FILE: &str = "[unknown address]";

/// Stands for a sample without a stack.
pub const UNKNOWN: &str = "[unknown]";

/// Stands for threads and frames beyond those that are kept.
pub const NOT_KEPT: &str = "[not kept]";

/// Stands for callees that are too small to be listed one by one.
pub const SMALLER: &str = "[smaller ones]";

/// Where CPU time went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Number of samples.
    pub samples: u64,
    /// CPU time of a thread between two samples of it; null where the trace does not say.
    pub period_ns: Option<u64>,
    /// The samples by kind of their innermost function.
    pub innermost: Innermost,
    /// The samples by thread's name, the most first.
    pub threads: Vec<Thread>,
    /// The samples by innermost function, the most first.
    pub functions: Vec<Function>,
    /// The samples by stack, in ascending order of frames. Stacks below a thousandth of all samples are added up as
    /// `[smaller ones]` below their caller.
    pub stacks: Vec<Stack>,
}

/// Samples by kind of their innermost function. They add up to all samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Innermost {
    /// A function of a program or library.
    pub user: u64,
    /// A function of the kernel.
    pub kernel: u64,
    /// Code without a symbol.
    pub unnamed: u64,
}

/// Kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A function of a program or library.
    User,
    /// A function of the kernel.
    Kernel,
    /// Code without a name, in the kernel or not.
    Unnamed,
}

/// The threads of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Their name.
    pub task: String,
    /// Their samples.
    pub samples: u64,
    /// The samples by kind of their innermost function.
    pub innermost: Innermost,
    /// The samples by state, the most first.
    pub states: Vec<State>,
}

/// State of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// `user mode`, `in CALL`, `in a system call`, `page fault`, `interrupt` or `unknown`.
    pub state: String,
    /// The system call; null outside of one, or where it is unknown.
    pub call: Option<String>,
    /// The samples.
    pub samples: u64,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Its name. A kernel function ends in `_[k]`. Code without a name has the file's name with `[no symbol]`.
    pub function: String,
    /// Kind of function.
    pub mode: Mode,
    /// Samples in the function itself.
    pub own_samples: u64,
    /// Samples in it and in the functions that it called.
    pub with_calls_samples: u64,
}

/// A stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stack {
    /// The thread's name, its state, then functions, each called by the one before.
    pub frames: Vec<String>,
    /// Samples with the last frame as the innermost.
    pub samples: u64,
}

impl Innermost {
    /// Adds samples of a function of `mode`.
    pub fn add(&mut self, mode: Mode, samples: u64) {
        *match mode {
            Mode::User => &mut self.user,
            Mode::Kernel => &mut self.kernel,
            Mode::Unnamed => &mut self.unnamed,
        } += samples;
    }
}

impl Mode {
    /// Returns the kind of the function named `function`.
    #[must_use]
    pub fn of(function: &str) -> Mode {
        let bare = function.strip_suffix(KERNEL);
        let name = bare.unwrap_or(function);
        if name.ends_with(NO_SYMBOL) || matches!(name, NO_FILE | UNKNOWN | NOT_KEPT | SMALLER) {
            return Mode::Unnamed;
        }
        match bare {
            Some(_) => Mode::Kernel,
            None => Mode::User,
        }
    }
}

/// Returns a function's symbol without what compilers append to it: `.isra.0`, `.cold`.
#[must_use]
pub fn plain(symbol: &str) -> &str {
    let appended = [
        ".isra.",
        ".constprop.",
        ".part.",
        ".cold",
        ".llvm.",
        ".localalias",
        ".lto_priv.",
    ];
    let ends = appended
        .iter()
        .filter_map(|word| symbol.find(word))
        .filter(|&at| at > 0);
    ends.min().map_or(symbol, |at| &symbol[..at])
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_compilers_append_is_no_part_of_a_name() {
        for (symbol, name) in [
            ("do_mmap", "do_mmap"),
            ("mas_wr_store.isra.0", "mas_wr_store"),
            ("wake_up.part.0.constprop.0", "wake_up"),
            ("do_mmap.cold", "do_mmap"),
            (".cold", ".cold"),
            ("__x64_sys_mmap", "__x64_sys_mmap"),
        ] {
            assert_eq!(plain(symbol), name);
        }
    }
}
