//! `stopgap completions` and `stopgap man`: completions for shells and manual pages, from the definitions of the flags.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::args::{self, Args};
use crate::failure::{DONE, Failure};
use crate::output;

pub(crate) fn completions(args: &args::Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let (command, name) = (&mut Args::command(), "stopgap");
    match args.shell {
        args::Shell::Bash => generate(Bash, command, name, &mut script),
        args::Shell::Zsh => generate(Zsh, command, name, &mut script),
        args::Shell::Fish => generate(Fish, command, name, &mut script),
    }
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::from(DONE))
}

pub(crate) fn man(args: &args::Man) -> Result<ExitCode, Failure> {
    let directory = &args.directory;
    clap_mangen::generate_to(Args::command(), directory).map_err(|error| {
        Failure::error(format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        ))
    })?;
    Ok(ExitCode::from(DONE))
}
