//! `stopgap doctor`: what this machine allows, and what each thing lacking costs in evidence.

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use stopgap_events::machine::{Check, CheckState, Environment};
use stopgap_helpers::Helper;
use stopgap_kernel::{Linux, doctor, environment};
use stopgap_report::doctor as table;

use crate::args;
use crate::failure::{DONE, Failure};
use crate::{output, prune, run as run_fix, voice};

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
    let kept = records();
    let mut diagnosis = Diagnosis {
        schema: "stopgap.doctor/1",
        environment: environment::read(&Linux),
        checks: (doctor::read(&Linux).into_iter())
            .chain(helpers())
            .collect(),
    };
    match args.json {
        true => {
            diagnosis.checks.push(kept);
            output::print(&output::json(&diagnosis))?;
        }
        false => output::screen(&table::screen(
            &diagnosis.environment,
            &diagnosis.checks,
            &kept,
            voice::style(),
        ))?,
    }
    Ok(ExitCode::from(DONE))
}

/// Returns the check that says how much lies where records go.
fn records() -> Check {
    Check {
        what: "records and traces kept".to_owned(),
        state: CheckState::Ok,
        found: prune::lies(),
        costs: String::new(),
        advice: String::new(),
    }
}

/// Returns a check for each helper file: by which rule it was found, or what is missing and what to do.
fn helpers() -> impl Iterator<Item = Check> {
    Helper::ALL.into_iter().map(|helper| {
        let (what, costs) = match helper {
            Helper::Preload => (
                "library of run --fix",
                "run --fix arena, arena-keep and chunks",
            ),
            Helper::Guest => ("guest's program of kernels", "kernels"),
            Helper::Plugin => ("QEMU plugin of kernels", "kernels --functions"),
        };
        let useless = match helper {
            Helper::Preload => run_fix::cannot_load(),
            Helper::Guest => guest().err(),
            Helper::Plugin => None,
        };
        let (state, found, advice) = match (helper.find(), useless) {
            (None, _) => (
                CheckState::Absent,
                format!("no {}", helper.file()),
                helper.advice(),
            ),
            (Some(_), Some(why)) => (CheckState::Absent, why, String::new()),
            (Some(place), None) => (CheckState::Ok, place.to_string(), String::new()),
        };
        Check {
            what: what.to_owned(),
            costs: if state == CheckState::Ok { "" } else { costs }.to_owned(),
            state,
            found,
            advice,
        }
    })
}

/// Reads the guest's program of this machine's architecture.
fn guest() -> Result<(), String> {
    use stopgap_kernels::Architecture;
    let own = match cfg!(target_arch = "aarch64") {
        true => Architecture::Aarch64,
        false => Architecture::X86_64,
    };
    let read = stopgap_kernels::guest_program(own);
    read.map(drop).map_err(|error| error.to_string())
}
