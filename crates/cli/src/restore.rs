//! `stopgap restore`: puts back what a killed run left changed.

use std::path::PathBuf;
use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use stopgap_kernel::{Linux, journal};
use stopgap_report::text::plain;

use crate::args;
use crate::failure::{DONE, ERROR, Failure};
use crate::record::spools;
use crate::{output, places};

/// The document that `restore --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Restored {
    /// `stopgap.restore/1`.
    schema: &'static str,
    /// The journal's directory.
    journal: String,
    /// The changes that were put back.
    done: Vec<String>,
    /// The changes that could not be put back.
    failed: Vec<String>,
}

pub(crate) fn run(args: &args::Restore) -> Result<ExitCode, Failure> {
    let directory = places::journal(None)?;
    let restored = journal::restore(&Linux, &directory)?;
    stopgap_kernels::sweep();
    // Where recordings usually are: here, and where records go.
    for folder in [PathBuf::from("."), places::would_be(None)] {
        spools::tell_of(&folder);
    }
    let status = if restored.failed.is_empty() {
        DONE
    } else {
        ERROR
    };
    let report = Restored {
        schema: "stopgap.restore/1",
        journal: directory.display().to_string(),
        done: restored.done,
        failed: restored.failed,
    };
    match args.json {
        true => output::print(&output::json(&report))?,
        false => output::screen(&report.text())?,
    }
    Ok(ExitCode::from(status))
}

impl Restored {
    fn text(&self) -> String {
        if self.done.is_empty() && self.failed.is_empty() {
            return format!("nothing to put back (journal {})\n", self.journal);
        }
        let done = self
            .done
            .iter()
            .map(|line| format!("put back: {}\n", plain(line)));
        let failed = self
            .failed
            .iter()
            .map(|line| format!("failed: {}\n", plain(line)));
        done.chain(failed).collect()
    }
}
