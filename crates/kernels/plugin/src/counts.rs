//! What is counted: exactly the instructions that QEMU's instruction counter counts, by block and by caller.
//!
//! # Contract
//!
//! Between a begin mark and the end mark after it, each instruction of the guest's one CPU is counted once: those of the
//! kernel by block and chain of callers, those of programs as one number. An instruction that faults and is carried
//! out again is counted once, as `icount` does. So a window's instructions are the ticks that pass in it under
//! `icount shift=0`, except those that pass while the CPU is halted and clocks jump to the next timer.
//!
//! # How
//!
//! QEMU calls when a block of instructions starts, and nobody when one is left early. So each instruction adds 1 to a
//! counter before it is carried out (an addition without a call), and when a block starts, the counter tells how far the
//! block before it came:
//!
//! ```text
//!  block of 5     begun   next block starts at          so
//!  i i i i i      5       wherever                      all were carried out
//!  i i i . .      3       the instruction after them    the third was a device access: QEMU ended the block there
//!  i i i . .      3       the third again               it wrote to this block's own code: counted when repeated
//!  i i i . .      3       elsewhere: a handler          the third faulted: counted when repeated, 2 now
//!  i i i i i      5       a fault's handler             the fifth may have faulted, too
//! ```
//!
//! The last line is where a block ends in an instruction that faults. A handler is known by having been entered from
//! the midst of a block, which interrupts are not (QEMU takes those between blocks only), and page faults have been by
//! the thousand before anything is counted. In the kernel the last instruction did fault then, because its code is
//! always there; unless it returned to a program, whose code may not be. A program's block, too, may have been carried
//! out to its end with the *next* instruction on an absent page: the place where the program goes on shows it.
//!
//! Left out: a block's last instruction that writes to that very block, which QEMU repeats: it looks like one that repeats
//! itself, and is counted twice. A kernel patches code that it does not run.
//!
//! Instructions that repeat (`rep`) are a block of their own a turn; QEMU counts each turn, and so does this.
//!
//! # Cost
//!
//! Outside windows a comparison a block and a push a call; inside, a look-up a block. Memory grows with different
//! blocks, and with different chains within windows.
//!
//! Lineage: QEMU 7.2, `accel/tcg/plugin-gen.c` (what is injected where), `accel/tcg/translate-all.c`
//! (`cpu_io_recompile`, and that its repeated block shows no instruction to plugins), `accel/tcg/cpu-exec.c`.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::code::{Kind, Mark};
use crate::stacks::{Chain, Chains, Stacks};

/// Whether an address is the kernel's: the upper half.
pub(crate) fn of_kernel(address: u64) -> bool {
    address >> 63 == 1
}

/// A block of instructions, one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its number, counted from 0.
    pub(crate) number: u32,
    /// Where it starts.
    pub(crate) start: u64,
    /// The bytes of each instruction; at least one instruction.
    pub(crate) sizes: Vec<u8>,
    /// The kind of the last instruction.
    pub(crate) last: Kind,
}

impl Block {
    fn length(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Where instruction number `n` starts; at `n = length`, what follows the block.
    fn at(&self, n: u64) -> u64 {
        let bytes = self
            .sizes
            .iter()
            .zip(0..n)
            .map(|(&size, _)| u64::from(size));
        self.start.wrapping_add(bytes.sum())
    }
}

/// The key of a window: the number of the cell, and the operation.
pub(crate) type Key = (u32, u8);

/// By chain and block and how many instructions of the block were carried out: how often. The kernel's only.
pub(crate) type Ran = HashMap<(Chain, u32, u16), u64>;

/// The counts of the windows of one key.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Instructions of a window, and how many windows had so many.
    pub(crate) windows: BTreeMap<u64, u64>,
    /// The blocks that ran in all of them.
    pub(crate) ran: Ran,
    /// Windows that did not end; they are neither among `windows` nor in `ran`.
    pub(crate) torn: u64,
}

#[derive(Debug)]
struct Window {
    key: Key,
    /// The counter's value at the mark.
    from: u64,
    /// Instructions that the counter has twice.
    twice: u64,
    /// The blocks that ran in it.
    ran: Ran,
}

/// The block that runs.
#[derive(Debug)]
struct Running {
    block: &'static Block,
    /// The counter's value when it started.
    from: u64,
    /// Its callers; known of the kernel's blocks within a window.
    chain: Chain,
}

/// Counts instructions. `counter` is the number of instructions begun, at the time of each call.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    cell: u32,
    window: Option<Window>,
    running: Option<Running>,
    /// The block that runs has returned: its load was shown.
    returned: bool,
    /// Where faults are handled.
    handlers: HashSet<u64>,
    /// A program's block that may have faulted in its last instruction: where that is, and what follows.
    doubt: Option<(u64, u64)>,
    stacks: Stacks,
    pub(crate) chains: Chains,
    pub(crate) tallies: BTreeMap<Key, Tally>,
    /// Ends without a beginning.
    pub(crate) astray: u64,
}

impl Recorder {
    /// `block` starts, none of its instructions has begun.
    pub(crate) fn starts(&mut self, block: &'static Block, counter: u64) {
        if let Some(running) = self.running.take() {
            self.left(&running, block.start, counter);
            // QEMU 7.2 does not show the load of each return.
            if running.block.last == Kind::Return && !self.returned {
                self.stacks.back(block.start);
            }
        }
        self.returned = false;
        let mut chain = 0;
        if !of_kernel(block.start) {
            self.stacks.program();
            self.resolve(block.start);
        } else if self.window.is_some() {
            chain = self.stacks.chain(&mut self.chains);
        }
        self.running = Some(Running {
            block,
            from: counter,
            chain,
        });
    }

    /// A block was left for `next`.
    fn left(&mut self, running: &Running, next: u64, counter: u64) {
        let block = running.block;
        let begun = counter.wrapping_sub(running.from).min(block.length());
        if begun == 0 {
            return;
        }
        let early = begun < block.length();
        if !early && self.window.is_none() {
            return;
        }
        let (last, after) = (block.at(begun - 1), block.at(begun));
        let again = early && next != after;
        if again && next != last && of_kernel(next) {
            self.handlers.insert(next);
        }
        let Some(window) = &mut self.window else {
            return;
        };
        let handled = !early && next != after && self.handlers.contains(&next);
        if !of_kernel(block.start) {
            window.twice += u64::from(again);
            if handled {
                self.doubt = Some((last, after));
            }
            return;
        }
        // After a return the program's page, not the kernel's, may be missing.
        let twice = again || handled && block.last != Kind::Leave;
        window.twice += u64::from(twice);
        // A block has 512 instructions at most.
        let executed = u16::try_from(begun - u64::from(twice)).unwrap_or(u16::MAX);
        if executed > 0 {
            *window
                .ran
                .entry((running.chain, block.number, executed))
                .or_default() += 1;
        }
    }

    /// A program goes on at `start`.
    fn resolve(&mut self, start: u64) {
        let Some((last, after)) = self.doubt else {
            return;
        };
        if start == last
            && let Some(window) = &mut self.window
        {
            window.twice += 1;
        }
        if start == last || start == after {
            self.doubt = None;
        }
    }

    /// A mark is carried out. `counter` has it, or has it not, but the same of each mark.
    pub(crate) fn mark(&mut self, mark: Mark, counter: u64) {
        match mark {
            Mark::Cell => self.cell = 0,
            Mark::Digit(digit) => self.cell = self.cell << 4 | u32::from(digit),
            Mark::Begin(operation) => {
                self.tear();
                let key = (self.cell, operation);
                self.window = Some(Window {
                    key,
                    from: counter,
                    twice: 0,
                    ran: Ran::new(),
                });
                self.doubt = None;
            }
            Mark::End => match self.window.take() {
                Some(window) => {
                    // Less one of the two marks.
                    let begun = counter.wrapping_sub(window.from).saturating_sub(1);
                    let instructions = begun.saturating_sub(window.twice);
                    let tally = self.tallies.entry(window.key).or_default();
                    *tally.windows.entry(instructions).or_default() += 1;
                    for (what, times) in window.ran {
                        *tally.ran.entry(what).or_default() += times;
                    }
                }
                None => self.astray += 1,
            },
        }
    }

    fn tear(&mut self) {
        if let Some(window) = self.window.take() {
            self.tallies.entry(window.key).or_default().torn += 1;
        }
    }

    /// The kernel calls: the call's last byte is at `site`, and it stored where it comes back to at `slot`.
    pub(crate) fn call(&mut self, slot: u64, site: u64) {
        let chains = self.window.is_some().then_some(&mut self.chains);
        self.stacks.call(slot, site, chains);
    }

    /// The kernel returns, to what it loaded from `slot`.
    pub(crate) fn ret(&mut self, slot: u64) {
        self.returned = true;
        self.stacks.ret(slot);
    }

    /// No more comes.
    pub(crate) fn finish(&mut self) {
        self.tear();
    }
}

#[cfg(test)]
mod tests;
