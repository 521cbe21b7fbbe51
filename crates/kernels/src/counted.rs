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

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use crate::functions::{PROGRAM, Profile};
use stopgap_guest::protocol::Counts;

mod symbols;

pub(crate) use symbols::Symbols;

/// The first line of a file of the plugin's.
const HEADER: &str = "stopgap.plugin/2";

/// Instructions between a reading of the guest's counter and the mark beside it, at most. They are in what the guest counts
/// and in no window; of an operation that does nothing they are taken off, but a compiler may put a few more there.
pub(crate) const BESIDE: u64 = 32;

/// The plugin's counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The windows, by cell (its place in the plan) and operation (`stopgap_guest::mark`).
    pub windows: BTreeMap<(u32, u8), Windows>,
    /// Ends of windows that had no beginning: 0, or the guest's marks are wrong.
    pub astray: u64,
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

/// Instructions of the kernel, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ran {
    times: u64,
    /// The calls that led there, the outermost first.
    sites: Vec<u64>,
    start: u64,
    /// The bytes of each.
    sizes: Vec<u8>,
}

impl Counted {
    /// Reads the plugin's file.
    ///
    /// # Errors
    /// Text that is no such file, is cut, or contradicts itself, with the line.
    pub(crate) fn parse(text: &str) -> Result<Counted, String> {
        let mut counted = Counted::default();
        let mut open: Option<Open> = None;
        let mut ended = false;
        for (before, line) in (0u64..).zip(text.lines()) {
            let words: Vec<&str> = line.split(' ').collect();
            let mut take = || -> Result<(), String> {
                match (&words[..], &mut open) {
                    _ if ended => return Err("after the end".to_owned()),
                    (["window", cell, operation], _) => {
                        counted.close(open.take())?;
                        open = Some(Open {
                            key: (number(cell)?, number(operation)?),
                            ..Open::default()
                        });
                    }
                    (["took", took, windows], Some(open)) => {
                        open.took.push((number(took)?, number(windows)?));
                    }
                    (["ran", times, sites, start, sizes @ ..], Some(open)) if !sizes.is_empty() => {
                        let sites = sites.split(',').filter(|site| *site != "-");
                        open.windows.ran.push(Ran {
                            times: number(times)?,
                            sites: sites.map(address).collect::<Result<_, _>>()?,
                            start: address(start)?,
                            sizes: sizes
                                .iter()
                                .map(|size| number(size))
                                .collect::<Result<_, _>>()?,
                        });
                    }
                    (["torn", torn], Some(open)) => open.windows.torn = number(torn)?,
                    (["astray", astray], _) => counted.astray = number(astray)?,
                    (["end", lines], _) => {
                        counted.close(open.take())?;
                        if number::<u64>(lines)? != before {
                            return Err("not so many lines came before".to_owned());
                        }
                        ended = true;
                    }
                    _ => return Err("not understood".to_owned()),
                }
                Ok(())
            };
            if before == 0 {
                if line != HEADER {
                    let line = short(line);
                    return Err(format!("not the plugin's counts ({HEADER}): {line}"));
                }
                continue;
            }
            take().map_err(|why| {
                let (number, line) = (before + 1, short(line));
                format!("line {number} of the plugin's counts: {why}: {line}")
            })?;
        }
        match ended {
            true => Ok(counted),
            false => {
                Err("the plugin's counts are cut: QEMU was ended before it wrote them".to_owned())
            }
        }
    }

    /// Checks and keeps an operation that was read to its end.
    fn close(&mut self, open: Option<Open>) -> Result<(), String> {
        let Some(Open {
            key,
            took,
            mut windows,
        }) = open
        else {
            return Ok(());
        };
        windows.counts = Counts::ascending(took)?;
        let instructions = windows.counts.total();
        let kernel = windows.kernel().ok_or("numbers that are too large")?;
        if kernel > instructions {
            return Err(format!(
                "of the {instructions} instructions of the window before {kernel} are the kernel's"
            ));
        }
        match self.windows.insert(key, windows) {
            Some(_) => Err("the window before came twice".to_owned()),
            None => Ok(()),
        }
    }

    /// The instructions of an operation's windows by function and caller; `None` where there are no such windows.
    pub(crate) fn profile(&self, cell: u32, operation: u8, symbols: &Symbols) -> Option<Profile> {
        let windows = self.windows.get(&(cell, operation))?;
        let program = windows.counts.total().checked_sub(windows.kernel()?)?;
        let mut stacks = vec![(vec![PROGRAM.to_owned()], program)];
        for ran in &windows.ran {
            let mut at = ran.start;
            let name = |&size| {
                let name = symbols.name(at);
                at = at.wrapping_add(u64::from(size));
                name
            };
            let names: Vec<&str> = ran.sizes.iter().map(name).collect();
            let callers = ran.sites.iter().map(|&site| symbols.name(site));
            // A block may run from one symbol into the next: entry code has several without a jump in between.
            for own in names.chunk_by(|one, next| one == next) {
                let frames = callers.clone().chain([own[0]]).map(str::to_owned);
                let instructions = (own.len() as u64).saturating_mul(ran.times);
                stacks.push((frames.collect(), instructions));
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
        let Windows { counts, torn, .. } =
            self.windows.get(&(cell, operation)).unwrap_or(&no_windows);
        let said = said.unwrap_or(&no_counts);
        if *torn > 0 {
            return Err(format!(
                "{torn} operations that the plugin saw begin did not end"
            ));
        }
        let (seen, told) = (counts.operations(), said.operations());
        if seen != told {
            return Err(format!(
                "the plugin saw {seen} operations, the guest {told}"
            ));
        }
        // Where no operation differs by more, no two of the same rank do.
        let (mut ours, mut theirs) = (counts.pairs().to_vec(), said.pairs().to_vec());
        let (mut ours, mut theirs) = (ours.iter_mut().peekable(), theirs.iter_mut().peekable());
        while let (Some((seen, times)), Some((told, as_often))) =
            (ours.peek_mut(), theirs.peek_mut())
        {
            if seen.abs_diff(*told) > BESIDE {
                let halted = match told > seen {
                    true => "; its CPU was halted, or",
                    false => ":",
                };
                return Err(format!(
                    "an operation of {told} guest instructions by the guest's counter is one of {seen} by the plugin's{halted} \
                     the tool is at fault"
                ));
            }
            let both = (*times).min(*as_often);
            *times -= both;
            *as_often -= both;
            let (ours_end, theirs_end) = (*times == 0, *as_often == 0);
            ours.next_if(|_| ours_end);
            theirs.next_if(|_| theirs_end);
        }
        Ok(())
    }
}

impl Windows {
    /// Returns the instructions of all windows that are the kernel's; `None` beyond 64 bits.
    fn kernel(&self) -> Option<u64> {
        self.ran.iter().try_fold(0u64, |all, ran| {
            all.checked_add(ran.times.checked_mul(ran.sizes.len() as u64)?)
        })
    }
}

/// The windows of an operation while they are read.
#[derive(Default)]
struct Open {
    key: (u32, u8),
    took: Vec<(u64, u64)>,
    windows: Windows,
}

fn number<T: FromStr<Err = ParseIntError>>(word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => "a number that is too large".to_owned(),
            _ => "not understood".to_owned(),
        })
}

fn address(word: &str) -> Result<u64, String> {
    u64::from_str_radix(word, 16).map_err(|_| "not understood".to_owned())
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
