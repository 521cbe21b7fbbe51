//! The counts as a file of lines. `stopgap_kernels::counted` reads it.
//!
//! ```text
//! stopgap.plugin/2
//! window 3 0                              cell 3, operation 0; what follows is of its windows
//! took 17749 412                          as many instructions, so many windows
//! ran 412 ffffffff81001234,ffffffff81002345 ffffffff810ebc60 4 2 2 3
//!                                         in all of them, so often: the last bytes of its callers' calls, the outermost
//!                                         first (- without a caller); where the instructions start; the bytes of each
//! torn 1                                  windows that did not end; only where there are some
//! astray 1                                ends without a beginning; only where there are some
//! end 4                                   the lines before this one: without it, the file is torn
//! ```
//!
//! Addresses are hexadecimal, all else decimal. The same windows make the same file.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::{self, Write};

use crate::counts::{Block, Recorder};

/// The first line.
const HEADER: &str = "stopgap.plugin/2";

/// Writes what was recorded; `blocks` by their numbers.
pub(crate) fn write(to: &mut dyn Write, recorder: &Recorder, blocks: &[&Block]) -> io::Result<()> {
    let mut written = 0;
    let mut line = |text: Arguments<'_>| {
        written += 1;
        writeln!(to, "{text}").map(|()| written)
    };
    let mut before = line(format_args!("{HEADER}"))?;
    for ((cell, operation), tally) in &recorder.tallies {
        before = line(format_args!("window {cell} {operation}"))?;
        for (took, windows) in &tally.windows {
            before = line(format_args!("took {took} {windows}"))?;
        }
        let sorted: BTreeMap<_, _> = tally.ran.iter().collect();
        for (&(chain, number, executed), times) in sorted {
            let block = blocks[number as usize];
            let sites = recorder.chains.sites(chain);
            let mut sites: Vec<String> = sites.iter().map(|site| format!("{site:x}")).collect();
            if sites.is_empty() {
                sites.push("-".to_owned());
            }
            let sizes = block.sizes.iter().take(usize::from(executed));
            let sizes: String = sizes.map(|size| format!(" {size}")).collect();
            let (sites, start) = (sites.join(","), block.start);
            before = line(format_args!("ran {times} {sites} {start:x}{sizes}"))?;
        }
        if tally.torn > 0 {
            before = line(format_args!("torn {}", tally.torn))?;
        }
    }
    if recorder.astray > 0 {
        before = line(format_args!("astray {}", recorder.astray))?;
    }
    line(format_args!("end {before}"))?;
    to.flush()
}

#[cfg(test)]
mod tests;
