//! A child's life: fork(2), its end, wait4(2), and where asked for an execve(2) in between.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::protocol::Line;
use stopgap_events::memory::Protection;
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::memory::{MapKind, MapRequest, Memory};

use super::length;
use crate::child::Child;
use crate::counter::Counter;
use crate::mark::{self, Operation};
use crate::samples::{Samples, words};

/// The argument that makes this program end at once, before it does anything.
pub const NOTHING: &str = "--nothing";
/// Children that are not counted.
const WARM: u64 = 5;

/// Counts the lives of `children`, one after the other, of a parent with so many touched pages.
///
/// # Errors
/// The system's refusal, and a child that did not end well.
pub(super) fn run(
    name: &str,
    children: u64,
    exec: bool,
    pages: u32,
    counter: &Counter,
) -> Result<Vec<Line>, String> {
    touched(pages).map_err(|error| error.to_string())?;
    let [fork, wait] = words([Operation::Fork, Operation::Wait]);
    let whole = if exec { "fork+exec+wait" } else { "fork+wait" };
    let mut samples = Samples::of(&[fork, wait, whole], length(children)?);
    let mut program = Command::new(crate::program());
    program.arg(NOTHING);
    for number in 0..WARM + children {
        mark::counted(number >= WARM);
        let body = || {
            if !exec {
                return 0;
            }
            drop(program.exec()); // comes back only where it failed
            1
        };
        let (first, child) = counter.count::<{ Operation::Fork as u8 }, _>(|| Child::start(body));
        let child = child.map_err(|error| format!("fork: {error}"))?;
        let (rest, ended) = counter.count::<{ Operation::Wait as u8 }, _>(|| child.reap());
        ended.map_err(|error| format!("wait: {error}"))?;
        if number >= WARM {
            samples.push(0, first);
            samples.push(1, rest);
            samples.push(2, first + rest);
        }
    }
    Ok(samples.lines(name))
}

/// Touches the pages whose tables a child copies.
fn touched(pages: u32) -> stopgap_kernel::Result<()> {
    if pages == 0 {
        return Ok(());
    }
    let length = Bytes(u64::from(pages) * Linux.page_size().0);
    let mapping = Linux.map(&MapRequest {
        length,
        protection: Protection::Write,
        kind: MapKind::Anonymous,
        align: Bytes(0),
    })?;
    Linux.touch(&mapping, Bytes(0), length)
}
