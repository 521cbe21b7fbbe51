//! What runs inside a kernel in emulation: it carries a plan out and counts guest instructions.
//!
//! The program `stopgap-guest` is the guest's first process and its only one but for what it starts itself. It is linked
//! statically, because its initramfs holds nothing else:
//!
//! ```text
//! cargo rustc --release -p stopgap-guest --bin stopgap-guest -- -C target-feature=+crt-static
//! ```
//!
//! * [`init`]: mounts, settings, modules, power off. [`run`]: a plan, each cell in a process of its own.
//! * [`cell`]: what cells do. [`layout`]: where their processes have their memory.
//! * [`protocol`]: the plan and the lines, shared with the host.
//! * [`counter`]: counts instructions. [`mark`]: instructions that tell a TCG plugin where an operation begins
//!   and ends.
//!
//! Same kernel, same initramfs, same seed: the same lines, to the last instruction. What that rests on:
//!
//! * one CPU, its clock the count of instructions, no clock and no input from outside (the emulator's flags);
//! * nothing random here: no hash map, no address of ASLR, and streams of numbers that seeds fix;
//! * the guest writes nothing before all is counted: the host decides how fast a serial port is emptied.

pub mod cell;
pub mod child;
pub mod counter;
pub mod init;
pub mod layout;
pub mod mark;
pub mod protocol;
pub mod run;
pub mod samples;
pub mod voice;

use std::path::{Path, PathBuf};

pub use cell::NOTHING;

use crate::counter::Counter;
use crate::protocol::Line;
use crate::voice::Voice;

/// This program, to be started again.
#[must_use]
pub fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/init"))
}

/// Carries a plan's cells out on this machine, as an ordinary program, and prints the lines. Modules are not loaded.
///
/// # Errors
/// A plan that is none, a seed that is no number, and where nothing can be printed.
pub fn ordinary(plan: &Path, seed: Option<&str>) -> Result<(), String> {
    let seed = match seed {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| format!("the seed '{text}' is no number"))?,
    };
    let read = run::read(plan)?;
    let counter = Counter::calibrate();
    let mut voice = Voice::new(std::io::stdout());
    let mut result = voice.say(&Line::Hello(run::hello(seed, &counter)));
    run::cells(&read, plan, seed, &counter, |line| {
        if result.is_ok() {
            result = voice.say(&line);
        }
    });
    result
        .and_then(|()| voice.done())
        .map_err(|error| error.to_string())
}
