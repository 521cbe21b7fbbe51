//! Who called whom: shadow stacks of the kernel, kept by the addresses that calls store to and returns load from.
//!
//! The interface shows no register, but it shows each store of a call and each load of a return: their address is the
//! stack pointer. A frame is that address (its *slot*) and the call's last byte (its *site*), as an unwinder would
//! find it. Naming a frame by its site and not by the call's target is right for a function that was reached by a tail
//! call or through a retpoline too.
//!
//! ```text
//!  slot   ffffc900000fbf50   site in do_syscall_64     outermost
//!         ffffc900000fbee8   site in ksys_mmap_pgoff
//!         ffffc900000fbe80   site in vm_mmap_pgoff     top: the code that runs now was called from here
//! ```
//!
//! Invariant: within one stack, slots fall strictly from the bottom to the top. A push or a return at slot `s` first
//! removes the frames at and below `s`: they were left without a return (an exit, a tail through `iret`).
//!
//! * A stack is the 16 KiB that a slot lies in (`THREAD_SIZE` of x86-64, to which stacks of tasks are aligned). One that
//!   is not aligned (interrupts) may cross into the next 16 KiB, which then counts as one that was switched to.
//! * Switched to by a call (interrupts): its frames hang below what ran before. Switched to by a return (another task):
//!   its frames are those that it had.
//! * After code of a program the kernel's stack is empty.
//!
//! * QEMU 7.2 does not show each load of a return, also where it was asked to (seen of a few functions, the same in each
//!   boot; why is not known). A return that was not shown and goes to right behind the top frame's site removes that one.
//!
//! Left out: the function that an exception or an interrupt came upon makes no call, so it stands not between its
//! caller and the handler. Cost: a look-up in a map of stacks for a change of stack, otherwise a push and a pop.

use std::collections::HashMap;

/// A stack's size as an order: 16 KiB.
const ORDER: u32 = 14;

/// A chain of sites, as its place in [`Chains`]; 0 is the empty one.
pub(crate) type Chain = u32;

#[derive(Debug, Clone, Copy)]
struct Frame {
    slot: u64,
    site: u64,
    /// The chain of it and those below it; known once somebody asked for it.
    chain: Option<Chain>,
}

#[derive(Debug, Default)]
struct Stack {
    /// The chain that its bottom hangs below.
    base: Chain,
    frames: Vec<Frame>,
}

impl Stack {
    fn cut(&mut self, slot: u64) {
        while self.frames.last().is_some_and(|frame| frame.slot <= slot) {
            self.frames.pop();
        }
    }
}

/// Chains that were asked for: each is its parent's and one more site.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    known: HashMap<(Chain, u64), Chain>,
    /// Parent and site, from chain 1 on.
    all: Vec<(Chain, u64)>,
}

impl Chains {
    fn child(&mut self, parent: Chain, site: u64) -> Chain {
        *self.known.entry((parent, site)).or_insert_with(|| {
            self.all.push((parent, site));
            // Saturated only after four billion chains, more than there is memory for.
            Chain::try_from(self.all.len()).unwrap_or(Chain::MAX)
        })
    }

    /// Returns the sites of a chain, the outermost first.
    pub(crate) fn sites(&self, mut chain: Chain) -> Vec<u64> {
        let mut sites = Vec::new();
        while let Some(&(parent, site)) = self.all.get((chain as usize).wrapping_sub(1)) {
            sites.push(site);
            chain = parent;
        }
        sites.reverse();
        sites
    }
}

/// The kernel's stacks.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// By number: addresses without their lowest bits.
    idle: HashMap<u64, Stack>,
    /// The stack in use, not in `idle`.
    number: u64,
    stack: Stack,
    /// A program ran since the last call or return.
    program: bool,
}

impl Stacks {
    /// Code of a program runs.
    pub(crate) fn program(&mut self) {
        self.program = true;
    }

    /// A call at `site` stored its return address at `slot`. Within a window, chains are known: `chains` is given.
    pub(crate) fn call(&mut self, slot: u64, site: u64, chains: Option<&mut Chains>) {
        if self.program || slot >> ORDER != self.number {
            // Outside windows nobody asks what a stack hangs below.
            let below = if self.program {
                0
            } else {
                chains.map_or(0, |chains| self.chain(chains))
            };
            self.switch(slot);
            self.stack.cut(slot);
            if self.program {
                self.stack.frames.clear();
            }
            if self.stack.frames.is_empty() {
                self.stack.base = below;
            }
            self.program = false;
        } else {
            self.stack.cut(slot);
        }
        self.stack.frames.push(Frame {
            slot,
            site,
            chain: None,
        });
    }

    /// A return loaded its address from `slot`.
    pub(crate) fn ret(&mut self, slot: u64) {
        if slot >> ORDER != self.number {
            self.switch(slot);
        }
        self.stack.cut(slot);
        if self.program {
            self.stack = Stack::default();
        }
        self.program = false;
    }

    /// A return whose load was not shown went to `next`: where the last call comes back to, or it was no such return.
    pub(crate) fn back(&mut self, next: u64) {
        if self
            .stack
            .frames
            .last()
            .is_some_and(|frame| frame.site.wrapping_add(1) == next)
        {
            self.stack.frames.pop();
        }
    }

    /// Makes the stack of `slot` the one in use. Forgets an empty one that is left.
    fn switch(&mut self, slot: u64) {
        let number = slot >> ORDER;
        if number != self.number {
            let next = self.idle.remove(&number).unwrap_or_default();
            let last = std::mem::replace(&mut self.stack, next);
            if !last.frames.is_empty() {
                self.idle.insert(self.number, last);
            }
            self.number = number;
        }
    }

    /// Returns the callers of the code that runs now.
    pub(crate) fn chain(&mut self, chains: &mut Chains) -> Chain {
        if self.program {
            return 0;
        }
        let frames = &mut self.stack.frames;
        // From the lowest that is not known yet: below a known one all are.
        let known = frames.iter().rposition(|frame| frame.chain.is_some());
        let mut chain = known
            .and_then(|at| frames[at].chain)
            .unwrap_or(self.stack.base);
        for frame in &mut frames[known.map_or(0, |at| at + 1)..] {
            chain = chains.child(chain, frame.site);
            frame.chain = Some(chain);
        }
        chain
    }
}

#[cfg(test)]
mod tests;
