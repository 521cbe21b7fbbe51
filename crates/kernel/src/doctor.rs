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
/// never fails: a check that cannot be made is [`CheckState::Unknown`].
#[must_use]
pub fn read(system: &dyn System) -> Vec<Check> {
    let machine = Machine {
        system,
        // Capabilities that cannot be read count as none: nothing is promised too much.
        held: privilege::read(system, &mut Notes::default()),
        version: version(system),
    };
    let rows = evidence::ROWS.iter().chain(means::ROWS);
    rows.map(|row| (row.check)(row, &machine)).collect()
}

/// Facts that more than one check needs.
struct Machine<'a> {
    system: &'a dyn System,
    held: Held,
    /// Major and minor number of the kernel.
    version: Option<(u32, u32)>,
}

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

/// One check.
struct Row {
    /// The thing looked at.
    what: &'static str,
    /// The price of its absence.
    costs: &'static str,
    check: fn(&Row, &Machine<'_>) -> Check,
}

impl Row {
    fn is(
        &self,
        state: CheckState,
        found: impl Into<String>,
        costs: &str,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            what: self.what.to_owned(),
            state,
            found: found.into(),
            costs: costs.to_owned(),
            advice: advice.into(),
        }
    }

    /// It is there.
    fn ok(&self, found: impl Into<String>) -> Check {
        self.is(CheckState::Ok, found, "", "")
    }

    /// It is there in part.
    fn limited(&self, found: impl Into<String>, advice: impl Into<String>) -> Check {
        self.is(CheckState::Limited, found, self.costs, advice)
    }

    /// Returns the check of something missing, or refused to this user.
    fn absent(&self, found: impl Into<String>, advice: impl Into<String>) -> Check {
        self.is(CheckState::Absent, found, self.costs, advice)
    }

    /// A file that tells it says something else than expected, or cannot be read.
    fn unknown(&self, error: &Error) -> Check {
        self.is(CheckState::Unknown, error.to_string(), self.costs, "")
    }

    /// Unknown, or absent with these words where the file does not exist.
    fn unless_there(&self, error: &Error, lacks: &str) -> Check {
        match error.is_absent() {
            true => self.absent(lacks, ""),
            false => self.unknown(error),
        }
    }

    /// Absent, because it is missing (with this advice) or refused to us; unknown for any other error.
    fn refused(&self, error: &Error, advice: &str) -> Check {
        match (error.is_absent(), error.is_refused()) {
            (true, _) => self.absent(error.to_string(), advice),
            (_, true) => self.absent(error.to_string(), "root"),
            _ => self.unknown(error),
        }
    }
}

#[cfg(test)]
mod tests;
