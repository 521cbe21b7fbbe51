//! `stopgap doctor`: what this machine allows, and what each thing lacking costs in evidence.

use std::process::ExitCode;

use crate::args;
use crate::failure::Failure;

pub(crate) fn run(_args: &args::Doctor) -> Result<ExitCode, Failure> {
    todo!()
}
