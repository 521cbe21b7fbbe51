//! What this machine allows: each means of measuring and each source of evidence, whether it
//! is there for this user, what is lost where it is not, and what would help.
//!
//! It only reads; nothing is tried out that would change something. So it says what the
//! kernel's settings and our capabilities promise, and a probe may still be refused by a
//! security module or a seccomp filter.

mod evidence;
mod means;

use stopgap_events::machine::{Check, CheckState};

use crate::System;
use crate::environment::privilege::{self, Held};
use crate::error::Error;
use crate::files::read_text;
use crate::notes::Notes;

/// All checks, evidence first, then the means of the probes. About 60 small files, 1 ms. It
/// never fails: what cannot be told is [`CheckState::Unknown`].
#[must_use]
pub fn read(system: &dyn System) -> Vec<Check> {
    let machine = Machine {
        system,
        // Capabilities that cannot be read count as none: nothing is promised too much.
        held: privilege::read(system, &mut Notes::default()),
        version: version(system),
    };
    let evidence = evidence::CHECKS.iter().chain(means::CHECKS);
    evidence.map(|check| check(&machine)).collect()
}

/// What more than one check needs.
struct Machine<'a> {
    system: &'a dyn System,
    held: Held,
    /// Major and minor number of the kernel.
    version: Option<(u32, u32)>,
}

type Checker = fn(&Machine<'_>) -> Check;

impl Machine<'_> {
    fn is_admin(&self) -> bool {
        self.held.has("CAP_SYS_ADMIN")
    }

    /// The kernel's version as people write it.
    fn linux(&self) -> String {
        match self.version {
            Some((major, minor)) => format!("Linux {major}.{minor}"),
            None => "a kernel of unknown version".to_owned(),
        }
    }
}

fn version(system: &dyn System) -> Option<(u32, u32)> {
    let release = read_text(system, "/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// It is there.
fn ok(what: &str, found: impl Into<String>) -> Check {
    less(what, CheckState::Ok, found, "", "")
}

/// It is there in part or not at all.
fn less(
    what: &str,
    state: CheckState,
    found: impl Into<String>,
    costs: &str,
    advice: impl Into<String>,
) -> Check {
    Check {
        what: what.to_owned(),
        state,
        found: found.into(),
        costs: costs.to_owned(),
        advice: advice.into(),
    }
}

/// A file that tells it says something else than expected, or cannot be read.
fn unknown(what: &str, error: &Error, costs: &str) -> Check {
    less(what, CheckState::Unknown, error.to_string(), costs, "")
}

#[cfg(all(test, feature = "fake"))]
mod tests;
