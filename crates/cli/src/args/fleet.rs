//! Flags of `fleet`, all of which the Python package reads.

use std::ffi::OsString;

use clap::Args;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = AFTER)]
pub(crate) struct Fleet {
    /// explain, replay or report, and its words: a directory of traces or a URL, and flags
    #[arg(
        value_name = "explain|replay|report DIR|URL",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

const AFTER: &str = "\
stopgap fleet explain DIR   explains each trace; again: only what is missing
stopgap fleet replay DIR    replays each under other policies
stopgap fleet report DIR    ranks causes, compares kernels, names outliers

This is the Python package stopgap, run by python3 or $STOPGAP_PYTHON; each has
--help. docs/fleet.md has the way from one laptop to a Ray cluster.

Exit status: 0 done, 1 error.";
