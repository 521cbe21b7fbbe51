//! `stopgap fleet`: becomes the Python package, which has all of it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::args;
use crate::failure::Failure;

/// The interpreter that has the package.
const PYTHON: &str = "STOPGAP_PYTHON";

/// Runs the package as `python3 -m stopgap.fleet` does, and says in one line where it is not installed.
const PROGRAM: &str = "\
import sys
try:
    from stopgap.fleet.__main__ import main
except ImportError as error:
    sys.exit(f\"stopgap: {sys.executable} cannot load the package ({error}): install it with: \
{sys.executable} -m pip install './python[fleet]' in stopgap's sources, or set $STOPGAP_PYTHON to a Python that has it\")
sys.exit(main(sys.argv[1:]))";

pub(crate) fn run(args: &args::Fleet) -> Result<ExitCode, Failure> {
    let python = env::var_os(PYTHON).filter(|python| !python.is_empty());
    let python = python.unwrap_or_else(|| OsString::from("python3"));
    let error = Command::new(&python)
        // No module of the current directory goes before those that are installed (Python 3.11 or later).
        .env("PYTHONSAFEPATH", "1")
        .arg("-c")
        .arg(PROGRAM)
        .args(&args.words)
        .exec();
    let python = python.to_string_lossy();
    Err(Failure::error(format!(
        "{python}: {error}; fleet needs Python 3.9 or later: install it, or set ${PYTHON}"
    )))
}
