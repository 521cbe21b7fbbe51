//! Flags of the commands that write what a package installs beside the command.

use std::path::PathBuf;

use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell: bash, zsh, fish, elvish or powershell.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Existing directory for the pages: stopgap.1, stopgap-check.1, ...
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
