use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Block, Recorder};
use crate::code::{Kind, Mark};

/// Where the kernel's faults and interrupts are handled, and some code of either side.
const FAULTS: u64 = 0xffff_ffff_8140_0b00;
const INTERRUPTS: u64 = 0xffff_ffff_8140_0d00;
const KERNEL: u64 = 0xffff_ffff_8100_0000;
const PROGRAM: u64 = 0x40_1000;

/// How a block is left.
#[derive(Debug, Clone, Copy)]
enum Left {
    /// At its end, for the one after it.
    Whole,
    /// Its instruction (so many from the front, modulo its length) faults, and is carried out again.
    Fault(usize),
    /// Its instruction is a device's: QEMU ends the block there and goes on after it.
    Device(usize),
    /// Its instruction, not the last, writes to the block: QEMU begins a block with it anew.
    OwnCode(usize),
    /// At its end, for an interrupt.
    Interrupt,
    /// At its end, to code on an absent page; programs only.
    NotThere,
}

/// QEMU with a guest that runs what a test asks for. It keeps its own count: each instruction carried out, once.
#[derive(Default)]
struct Machine {
    recorder: Recorder,
    counter: u64,
    blocks: Vec<&'static Block>,
    counting: bool,
    carried_out: BTreeMap<u64, u64>,
}

impl Machine {
    fn block(&mut self, start: u64, sizes: &[u8], leaves: bool) -> &'static Block {
        let last = if leaves { Kind::Leave } else { Kind::Other };
        let known =
            |block: &&&Block| block.start == start && block.sizes == sizes && block.last == last;
        if let Some(block) = self.blocks.iter().find(known) {
            return block;
        }
        let number = u32::try_from(self.blocks.len()).unwrap();
        let block = Box::leak(Box::new(Block {
            number,
            start,
            sizes: sizes.to_vec(),
            last,
        }));
        self.blocks.push(block);
        block
    }

    fn done(&mut self, block: &Block, from: usize, to: usize) {
        if self.counting {
            for n in from..to {
                *self.carried_out.entry(block.at(n as u64)).or_default() += 1;
            }
        }
    }

    /// A block that is carried out to its end.
    fn whole(&mut self, start: u64, sizes: &[u8], leaves: bool) {
        let block = self.block(start, sizes, leaves);
        self.recorder.starts(block, self.counter);
        self.counter += sizes.len() as u64;
        self.done(block, 0, sizes.len());
    }

    /// A handler, and back.
    fn handle(&mut self, at: u64) {
        self.whole(at, &[3, 2, 5], false);
        self.whole(at + 10, &[4, 2], true);
    }

    fn run(&mut self, start: u64, sizes: &[u8], left: Left) {
        let last = sizes.len() - 1;
        let block = self.block(start, sizes, false);
        let (at, handler) = match left {
            Left::Whole => return self.whole(start, sizes, false),
            Left::Interrupt | Left::NotThere => {
                self.whole(start, sizes, false);
                self.handle(if matches!(left, Left::NotThere) {
                    FAULTS
                } else {
                    INTERRUPTS
                });
                // Where it goes on.
                let after = block.at(sizes.len() as u64);
                return self.whole(after, &[1, 1], false);
            }
            Left::OwnCode(_) if last == 0 => return self.whole(start, sizes, false),
            Left::OwnCode(n) => (n % last, None),
            Left::Fault(n) => (n % sizes.len(), Some(FAULTS)),
            Left::Device(n) => (n % sizes.len(), None),
        };
        self.recorder.starts(block, self.counter);
        self.counter += at as u64 + 1;
        match left {
            Left::Device(_) => {
                self.done(block, 0, at + 1);
                if at < last {
                    self.whole(block.at(at as u64 + 1), &sizes[at + 1..], false);
                }
            }
            _ => {
                self.done(block, 0, at);
                if let Some(handler) = handler {
                    self.handle(handler);
                }
                self.whole(block.at(at as u64), &sizes[at..], false);
            }
        }
    }

    /// A block of a program with a mark in its midst.
    fn mark(&mut self, mark: Mark) {
        let block = self.block(PROGRAM, &[3, 7, 3], false);
        self.recorder.starts(block, self.counter);
        self.counter += 1;
        self.done(block, 0, 1);
        self.recorder.mark(mark, self.counter);
        self.counting = matches!(mark, Mark::Begin(_));
        self.counter += 2;
        self.done(block, 2, 3);
    }

    /// A boot's thousands of page faults: a fault in the midst of a block.
    fn booted() -> Machine {
        let mut machine = Machine::default();
        machine.run(KERNEL + 0x9000, &[4, 4, 4], Left::Fault(1));
        machine
    }

    /// The kernel's instructions by address, as recorded, and the lengths of windows.
    fn recorded(&mut self) -> (BTreeMap<u64, u64>, Vec<u64>) {
        let blocks = &self.blocks;
        self.recorder.finish();
        let (mut by_address, mut windows) = (BTreeMap::new(), Vec::new());
        for tally in self.recorder.tallies.values() {
            for (&took, &times) in &tally.windows {
                windows.extend((0..times).map(|_| took));
            }
            for (&(_, block, executed), &times) in &tally.ran {
                for n in 0..u64::from(executed) {
                    *by_address.entry(blocks[block as usize].at(n)).or_default() += times;
                }
            }
        }
        (by_address, windows)
    }
}

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        4 => Just(Left::Whole),
        3 => (0usize..8).prop_map(Left::Fault),
        1 => (0usize..8).prop_map(Left::Device),
        1 => (0usize..8).prop_map(Left::OwnCode),
        2 => Just(Left::Interrupt),
        2 => Just(Left::NotThere),
    ]
}

proptest! {
    /// Each instruction once, even if its block was left early; and nothing outside windows.
    #[test]
    fn as_many_as_were_carried_out(
        runs in prop::collection::vec((any::<bool>(), 0u64..8, prop::collection::vec(1u8..=15, 1..6), left()), 0..40),
        outside in 0usize..10,
    ) {
        let mut machine = Machine::booted();
        for (at, (kernel, place, sizes, left)) in runs.iter().enumerate() {
            if at == outside {
                machine.mark(Mark::Begin(0));
            }
            // Apart by more than blocks are long, so that going on after one is never the start of another.
            let start = if *kernel { KERNEL } else { PROGRAM } + 0x1000 + 0x200 * place;
            let left = match left {
                Left::NotThere if *kernel => Left::Whole,
                left => *left,
            };
            machine.run(start, sizes, left);
        }
        let begun = machine.counting;
        if begun {
            machine.mark(Mark::End);
        }
        let expected = machine.carried_out.clone();
        let (by_address, windows) = machine.recorded();
        let of_kernel: BTreeMap<u64, u64> = expected.iter().filter(|(at, _)| *at >> 63 == 1).map(|(at, n)| (*at, *n)).collect();
        prop_assert_eq!(by_address, of_kernel);
        let all: u64 = expected.values().sum();
        prop_assert_eq!(windows, if begun { vec![all] } else { vec![] });
    }
}

#[test]
fn cells_are_told_apart_by_the_digits_before() {
    let mut machine = Machine::booted();
    for digit in [1, 2] {
        machine.mark(Mark::Cell);
        machine.mark(Mark::Digit(1));
        machine.mark(Mark::Digit(digit));
        machine.mark(Mark::Begin(7));
        machine.mark(Mark::End);
    }
    let keys: Vec<_> = machine.recorder.tallies.keys().copied().collect();
    assert_eq!(keys, [(0x11, 7), (0x12, 7)]);
}

/// A process that is killed in the midst of an operation, and marks of nobody.
#[test]
fn a_window_that_does_not_end_is_none() {
    let mut machine = Machine::booted();
    machine.mark(Mark::End);
    machine.mark(Mark::Begin(1));
    machine.whole(KERNEL, &[4], false);
    machine.mark(Mark::Begin(1));
    machine.mark(Mark::End);
    machine.mark(Mark::Begin(2));
    machine.whole(KERNEL, &[4], false);
    machine.recorder.finish();
    let counted = &machine.recorder;
    assert_eq!(counted.astray, 1);
    let torn: Vec<_> = counted
        .tallies
        .iter()
        .map(|(key, tally)| (key.1, tally.torn, tally.windows.len()))
        .collect();
    assert_eq!(torn, [(1, 1, 1), (2, 1, 0)]);
    assert!(counted.tallies.values().all(|tally| tally.ran.is_empty()));
}

/// ```text
///  f calls g, g returns without its load being shown, f calls h
/// ```
#[test]
fn a_return_that_was_not_shown() {
    let code = |start, last| -> &'static Block {
        Box::leak(Box::new(Block {
            number: 0,
            start,
            sizes: vec![5, 5],
            last,
        }))
    };
    let (f, g, h) = (KERNEL, KERNEL + 0x100, KERNEL + 0x200);
    let top = 0xffff_c900_000f_bf50;
    for shown in [true, false] {
        let mut recorder = Recorder::default();
        recorder.mark(Mark::Begin(0), 0);
        recorder.starts(code(f, Kind::Call), 0);
        recorder.call(top, f + 9);
        recorder.starts(code(g, Kind::Return), 2);
        if shown {
            recorder.ret(top);
        }
        // Three arguments on the stack: the next call's slot is further down.
        recorder.starts(code(f + 10, Kind::Call), 4);
        recorder.call(top - 24, f + 19);
        recorder.starts(code(h, Kind::Other), 6);
        recorder.starts(code(PROGRAM, Kind::Other), 8);
        recorder.mark(Mark::End, 9);
        let chains = [1, 2].map(|chain| recorder.chains.sites(chain));
        assert_eq!(chains, [[f + 9], [f + 19]], "shown: {shown}");
    }
}
