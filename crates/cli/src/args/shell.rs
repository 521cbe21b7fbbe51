//! Flags of the commands that write what a package installs beside the command.

use std::path::PathBuf;

/// A shell that packages install completions for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Existing directory for the pages: stopgap.1, stopgap-check.1, ...
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
