//! From what the plugin counted to functions: symbols of a kernel, the plugin's file, and the two put together.
//!
//! ```text
//! System.map, or /proc/kallsyms of the guest -> Symbols ─┐
//! the plugin's file (stopgap_plugin::file) ---> Counted ─┴-> Profile, a cell and operation each
//! ```
//!
//! # Contract
//!
//! A profile's instructions are the windows' instructions, all of them: what the kernel executed by function and caller,
//! what programs executed as one row, what lies where no symbol is as another. A file whose numbers do not come to each
//! other is refused, with the line.
//!
//! A profile is of all operations of a cell, so it goes with means: the differences of functions come to the difference of
//! the means. A median is one operation, and the one in the middle does different work on another kernel.
//!
//! Pure: texts in, numbers out. What is read may be wrong, cut or of another kernel: an error, never a panic.

use std::collections::{BTreeMap, HashMap};

use crate::functions::{PROGRAM, Profile};
use stopgap_guest::protocol::Counts;

mod symbols;

pub(crate) use symbols::Symbols;

/// The first line of a file of the plugin's.
const HEADER: &str = "stopgap.plugin/1";

/// Instructions between a reading of the guest's counter and the mark beside it, at most. They are in what the guest counts
/// and in no window; of an operation that does nothing they are taken off, but a compiler may put a few more there.
pub(crate) const BESIDE: u64 = 32;

/// The plugin's counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Parent and site of a call, by chain.
    chains: HashMap<u32, (u32, u64)>,
    blocks: HashMap<u32, Block>,
    /// The windows, by cell (its place in the plan) and operation (`stopgap_guest::mark`).
    pub windows: BTreeMap<(u32, u8), Windows>,
    /// Ends of windows that had no beginning: 0, or the guest's marks are wrong.
    pub astray: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    start: u64,
    sizes: Vec<u8>,
}

/// The windows of one operation of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    /// What each took: what the guest counted, but for [`BESIDE`], unless its CPU was halted in between.
    pub counts: Counts,
    /// Windows that did not end: 0, or a cell was ended in the midst of an operation.
    pub torn: u64,
    ran: Vec<Ran>,
}

/// Instructions of a block that ran under a chain, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ran {
    chain: u32,
    block: u32,
    executed: u16,
    times: u64,
}

impl Counted {
    /// Reads the plugin's file.
    ///
    /// # Errors
    /// Text that is no such file, is cut, or contradicts itself, with the line.
    pub(crate) fn parse(text: &str) -> Result<Counted, String> {
        let mut counted = Counted::default();
        let mut reading: Option<Reading> = None;
        let mut ended = false;
        for (at, line) in text.lines().enumerate() {
            let wrong = |why: &str| {
                format!(
                    "line {} of the plugin's counts: {why}: {}",
                    at + 1,
                    short(line)
                )
            };
            if ended {
                return Err(wrong("after the end"));
            }
            let mut words = line.split(' ');
            let word = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.collect();
            if at == 0 {
                if line != HEADER {
                    return Err(format!(
                        "not the plugin's counts ({HEADER}): {}",
                        short(line)
                    ));
                }
                continue;
            }
            match word {
                "window" => {
                    counted.close(reading.take()).map_err(|why| wrong(&why))?;
                    let [cell, operation] =
                        numbers(&rest).ok_or_else(|| wrong("not understood"))?;
                    let key = (small(cell), small(operation));
                    let (Some(cell), Some(operation)) = key else {
                        return Err(wrong("a number that is too large"));
                    };
                    reading = Some(Reading {
                        key: (cell, operation),
                        ..Reading::default()
                    });
                }
                "end" => {
                    counted.close(reading.take()).map_err(|why| wrong(&why))?;
                    let [lines] = numbers(&rest).ok_or_else(|| wrong("not understood"))?;
                    if lines != at as u64 {
                        return Err(wrong("not so many lines came before"));
                    }
                    ended = true;
                }
                _ => counted
                    .line(word, &rest, reading.as_mut())
                    .map_err(|why| wrong(&why))?,
            }
        }
        if ended {
            Ok(counted)
        } else {
            Err("the plugin's counts are cut: QEMU was ended before it wrote them".to_owned())
        }
    }

    fn line(
        &mut self,
        word: &str,
        rest: &[&str],
        reading: Option<&mut Reading>,
    ) -> Result<(), String> {
        let no = || "not understood".to_owned();
        match (word, reading) {
            ("chain", None) => {
                let [chain, parent, site] = rest else {
                    return Err(no());
                };
                let (chain, parent) = (
                    chain.parse().map_err(|_| no())?,
                    parent.parse().map_err(|_| no())?,
                );
                // Parents come first, so there is no way around in a circle.
                if chain == 0
                    || parent != 0 && !self.chains.contains_key(&parent)
                    || self.chains.contains_key(&chain)
                {
                    return Err("a chain of nothing".to_owned());
                }
                self.chains
                    .insert(chain, (parent, address(site).ok_or_else(no)?));
            }
            ("block", None) => {
                let [block, start, sizes @ ..] = rest else {
                    return Err(no());
                };
                let sizes: Option<Vec<u8>> = sizes.iter().map(|size| size.parse().ok()).collect();
                let block = block.parse().map_err(|_| no())?;
                let start = address(start).ok_or_else(no)?;
                let sizes = sizes.filter(|sizes| !sizes.is_empty()).ok_or_else(no)?;
                if self.blocks.insert(block, Block { start, sizes }).is_some() {
                    return Err("a block twice".to_owned());
                }
            }
            ("took", Some(reading)) => {
                let [took, windows] = numbers(rest).ok_or_else(no)?;
                reading.took.push((took, windows));
            }
            ("ran", Some(reading)) => {
                let [chain, block, executed, times] = numbers(rest).ok_or_else(no)?;
                let (Some(chain), Some(block), Some(executed)) =
                    (small(chain), small(block), small(executed))
                else {
                    return Err(no());
                };
                let known = self.blocks.get(&block).ok_or("an unknown block")?;
                if usize::from(executed) > known.sizes.len() {
                    return Err("more instructions than the block has".to_owned());
                }
                if chain != 0 && !self.chains.contains_key(&chain) {
                    return Err("an unknown chain".to_owned());
                }
                let ran = Ran {
                    chain,
                    block,
                    executed,
                    times,
                };
                reading.ran.push(ran);
            }
            ("torn", Some(reading)) => [reading.torn] = numbers(rest).ok_or_else(no)?,
            ("astray", _) => [self.astray] = numbers(rest).ok_or_else(no)?,
            _ => return Err(no()),
        }
        Ok(())
    }

    /// Checks and keeps an operation that was read to its end.
    fn close(&mut self, reading: Option<Reading>) -> Result<(), String> {
        let Some(reading) = reading else {
            return Ok(());
        };
        let counts = Counts::ascending(reading.took)?;
        let windows = Windows {
            counts,
            torn: reading.torn,
            ran: reading.ran,
        };
        let instructions = windows.counts.total();
        let kernel = windows.kernel().ok_or("numbers that are too large")?;
        if kernel > instructions {
            return Err(format!(
                "of the {instructions} instructions of the window before {kernel} are the kernel's"
            ));
        }
        if self.windows.insert(reading.key, windows).is_some() {
            return Err("the window before came twice".to_owned());
        }
        Ok(())
    }

    /// The instructions of an operation's windows by function and caller; `None` where there are no such windows.
    pub(crate) fn profile(&self, cell: u32, operation: u8, symbols: &Symbols) -> Option<Profile> {
        let windows = self.windows.get(&(cell, operation))?;
        let program = windows.counts.total().checked_sub(windows.kernel()?)?;
        let mut callers: HashMap<u32, Vec<String>> = HashMap::new();
        let mut stacks = vec![(vec![PROGRAM.to_owned()], program)];
        for ran in &windows.ran {
            let callers = callers
                .entry(ran.chain)
                .or_insert_with(|| self.callers(ran.chain, symbols));
            let Some(block) = self.blocks.get(&ran.block) else {
                continue;
            };
            let mut at = block.start;
            // A block may run from one symbol into the next: entry code has several without a jump in between.
            let mut run: Option<(&str, u64)> = None;
            let mut say = |name: &str, instructions: u64| {
                let mut frames = callers.clone();
                frames.push(name.to_owned());
                stacks.push((frames, instructions.saturating_mul(ran.times)));
            };
            for &size in block.sizes.iter().take(usize::from(ran.executed)) {
                let name = symbols.name(at);
                match &mut run {
                    Some((running, instructions)) if *running == name => *instructions += 1,
                    _ => {
                        if let Some((name, instructions)) = run.replace((name, 1)) {
                            say(name, instructions);
                        }
                    }
                }
                at = at.wrapping_add(u64::from(size));
            }
            if let Some((name, instructions)) = run {
                say(name, instructions);
            }
        }
        Some(Profile::of(windows.counts.operations(), stacks))
    }

    /// Holds the windows of an operation against `said`, what the guest counted of it in the same boot: as many, and each of
    /// as many instructions but for [`BESIDE`]. The guest reads a clock that counts instructions and goes on while the CPU
    /// is halted, the plugin counts instructions, so that an operation in which it was halted shows here, too.
    ///
    /// # Errors
    /// In what they differ.
    pub(crate) fn agrees(
        &self,
        cell: u32,
        operation: u8,
        said: Option<&Counts>,
    ) -> Result<(), String> {
        let (no_windows, no_counts) = (Windows::default(), Counts::default());
        let windows = self.windows.get(&(cell, operation)).unwrap_or(&no_windows);
        let said = said.unwrap_or(&no_counts);
        if windows.torn > 0 {
            return Err(format!(
                "{} operations that the plugin saw begin did not end",
                windows.torn
            ));
        }
        let (seen, told) = (windows.counts.operations(), said.operations());
        if seen != told {
            return Err(format!(
                "the plugin saw {seen} operations, the guest {told}"
            ));
        }
        // Where no operation differs by more, no two of the same rank do.
        let (mut ours, mut theirs) = (
            windows.counts.pairs().iter().copied(),
            said.pairs().iter().copied(),
        );
        let (mut one, mut other) = (ours.next(), theirs.next());
        while let (Some((seen, times)), Some((told, as_often))) = (one, other) {
            if seen.abs_diff(told) > BESIDE {
                let halted = if told > seen {
                    "; its CPU was halted, or"
                } else {
                    ":"
                };
                return Err(format!(
                    "an operation of {told} guest instructions by the guest's counter is one of {seen} by the plugin's{halted} \
                     the tool is at fault"
                ));
            }
            let both = times.min(as_often);
            let rest = |value, left: u64| (left > 0).then_some((value, left));
            one = rest(seen, times - both).or_else(|| ours.next());
            other = rest(told, as_often - both).or_else(|| theirs.next());
        }
        Ok(())
    }

    /// The functions that a chain's calls stand in, the outermost first.
    fn callers(&self, chain: u32, symbols: &Symbols) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = chain;
        // Ends: a parent is always from an earlier line.
        while let Some(&(parent, site)) = self.chains.get(&next) {
            names.push(symbols.name(site).to_owned());
            next = parent;
        }
        names.reverse();
        names
    }
}

impl Windows {
    /// Returns the instructions of all windows that are the kernel's; `None` beyond 64 bits.
    fn kernel(&self) -> Option<u64> {
        self.ran.iter().try_fold(0u64, |all, ran| {
            all.checked_add(ran.times.checked_mul(u64::from(ran.executed))?)
        })
    }
}

/// The windows of an operation while they are read.
#[derive(Default)]
struct Reading {
    key: (u32, u8),
    took: Vec<(u64, u64)>,
    ran: Vec<Ran>,
    torn: u64,
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn small<T: TryFrom<u64>>(number: u64) -> Option<T> {
    T::try_from(number).ok()
}

fn address(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

/// The beginning of a line, fit to be shown.
fn short(line: &str) -> String {
    line.chars()
        .take(60)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
