//! The `stopgap` command. Flags and glue alone: what it says and how it measures is in the
//! crates below.
//!
//! | module | what |
//! |---|---|
//! | `args` | every flag, once |
//! | `places` | where records and the journal go |
//! | `session` | what each run sets up first and undoes last |
//! | `check`, `probe`, `export`, `doctor`, `restore` | the commands |
//! | `output` | writing the record and printing, with nothing lost |
//! | `whole_file` | writing a file that is there whole or not at all |
//! | `failure` | one line on standard error and the exit status |

mod args;
mod check;
mod doctor;
mod export;
mod failure;
mod output;
mod places;
mod probe;
mod restore;
#[cfg(test)]
mod schemas;
mod session;
mod whole_file;

use std::process::ExitCode;

use args::Command;
use failure::Failure;

fn main() -> ExitCode {
    let result = args::parse().and_then(|args| match args.command {
        Command::Check(args) => check::run(&args),
        Command::Probe(args) => probe::run(args),
        Command::Export(args) => export::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Restore(args) => restore::run(&args),
    });
    result.unwrap_or_else(Failure::report)
}
