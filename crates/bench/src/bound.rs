//! What a command of this crate must find, and what it ends with where it does not.

use std::fmt;
use std::process::ExitCode;

/// A bound is broken.
const BROKEN: u8 = 2;

/// What must hold, and whether it does.
pub(crate) struct Bound {
    holds: bool,
    text: String,
}

impl Bound {
    pub(crate) fn new(holds: bool, text: String) -> Bound {
        Bound { holds, text }
    }

    pub(crate) fn holds(&self) -> bool {
        self.holds
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds " } else { "BROKEN" };
        write!(f, "{word}  {}", self.text)
    }
}

/// A line for each; status 2 where one is broken.
pub(crate) fn print(bounds: &[Bound]) -> ExitCode {
    for bound in bounds {
        println!("{bound}");
    }
    if bounds.iter().all(Bound::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    }
}
