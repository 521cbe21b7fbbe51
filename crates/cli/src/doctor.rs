//! `stopgap doctor`: what this machine allows, and what each thing lacking costs in evidence.

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use stopgap_events::machine::{Check, Environment};
use stopgap_kernel::{Linux, doctor, environment};
use stopgap_report::doctor as table;

use crate::args;
use crate::failure::{DONE, Failure};
use crate::{output, voice};

/// The document that `doctor --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Diagnosis {
    /// `stopgap.doctor/1`.
    schema: &'static str,
    /// The machine.
    environment: Environment,
    /// The checks and their results.
    checks: Vec<Check>,
}

pub(crate) fn run(args: &args::Doctor) -> Result<ExitCode, Failure> {
    let diagnosis = Diagnosis {
        schema: "stopgap.doctor/1",
        environment: environment::read(&Linux),
        checks: doctor::read(&Linux),
    };
    match args.json {
        true => output::print(&output::json(&diagnosis))?,
        false => output::screen(&table::screen(
            &diagnosis.environment,
            &diagnosis.checks,
            voice::style(),
        ))?,
    }
    Ok(ExitCode::from(DONE))
}
