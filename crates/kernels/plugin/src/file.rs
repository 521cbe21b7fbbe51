//! The counts as a file of lines. `stopgap_kernels::counted` reads it.
//!
//! ```text
//! stopgap.plugin/1
//! chain 1 0 ffffffff81001234              a chain, the chain that it continues (0: none), its call's last byte
//! block 7 ffffffff810ebc60 4 2 2 3        a block, where it starts, the bytes of each of its instructions
//! window 3 0                              cell 3, operation 0; what follows is of its windows
//! took 17749 412                          as many instructions, so many windows
//! ran 1 7 4 412                           in all of them, under chain 1, of block 7, the first 4 instructions, so often
//! torn 1                                  windows that did not end; only where there are some
//! astray 1                                ends without a beginning; only where there are some
//! end 6                                   the lines before this one: without it, the file is torn
//! ```
//!
//! Addresses are hexadecimal, all else decimal. Only chains and blocks that something refers to are there, each before
//! it is referred to. The same windows make the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::counts::{Block, Counted};

/// The first line.
const HEADER: &str = "stopgap.plugin/1";

/// Writes it; `blocks` by their numbers.
pub(crate) fn write(
    to: &mut dyn Write,
    counted: &Counted<'_>,
    blocks: &[&Block],
) -> io::Result<()> {
    let mut lines = Lines { to, written: 0 };
    lines.line(format_args!("{HEADER}"))?;
    for (chain, parent, site) in counted.chains.iter() {
        lines.line(format_args!("chain {chain} {parent} {site:x}"))?;
    }
    let ran = counted.tallies.values().flat_map(|tally| tally.ran.keys());
    let used: BTreeSet<u32> = ran.map(|&(_, block, _)| block).collect();
    for block in used {
        let Some(&Block {
            start, ref sizes, ..
        }) = blocks.get(block as usize).copied()
        else {
            continue;
        };
        let sizes: String = sizes.iter().map(|size| format!(" {size}")).collect();
        lines.line(format_args!("block {block} {start:x}{sizes}"))?;
    }
    for ((cell, operation), tally) in counted.tallies {
        lines.line(format_args!("window {cell} {operation}"))?;
        for (took, windows) in &tally.windows {
            lines.line(format_args!("took {took} {windows}"))?;
        }
        let sorted: BTreeMap<_, _> = tally.ran.iter().collect();
        for ((chain, block, executed), times) in sorted {
            lines.line(format_args!("ran {chain} {block} {executed} {times}"))?;
        }
        if tally.torn > 0 {
            lines.line(format_args!("torn {}", tally.torn))?;
        }
    }
    if counted.astray > 0 {
        lines.line(format_args!("astray {}", counted.astray))?;
    }
    let before = lines.written;
    lines.line(format_args!("end {before}"))?;
    lines.to.flush()
}

struct Lines<'a> {
    to: &'a mut dyn Write,
    written: u64,
}

impl Lines<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.written += 1;
        writeln!(self.to, "{text}")
    }
}

#[cfg(test)]
mod tests;
