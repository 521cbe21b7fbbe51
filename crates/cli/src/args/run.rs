//! Flags of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Place;
use super::values::few;
use crate::run::Fix;

/// Runs a side, unless told otherwise.
const RUNS: u32 = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
stopgap run --fix arena -- python3 churn.py
stopgap run --fix arena-keep --measure -n 20 -- python3 churn.py     # with and without, in turn
STOPGAP_REPORT=1 stopgap run --fix arena -- python3 churn.py    # what was done, at exit

What each fix does, costs and cannot do: docs/fixes/run.md. Exit status: the command's; 125 where stopgap \
fails, 126 where the command cannot be run, 127 where it is not found. With --measure 0, 1 an error, 3 where a fix cannot be had.")]
pub(crate) struct RunFix {
    /// Fixes: arena (anonymous maps get a place without the kernel's search: for kernels that search linearly, before
    /// 3.8), arena-keep (arena, and the pages of a freed map serve the next one of its size: for programs that map and
    /// unmap the same sizes many thousand times a second, as CPython does; it corrupts the data of programs that use
    /// vmsplice, O_DIRECT, io_uring, MSG_ZEROCOPY or userfaultfd), chunks=POLICY (arena, and huge pages for large maps
    /// as the policy would: a name of replay chunks), batch-client (SCHED_BATCH: being woken does not pre-empt the other
    /// side).
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) fix: Vec<Fix>,
    /// Run it with and without, in turn, and say what differs: times, faults, switches, memory. Its output is not shown.
    #[arg(long)]
    pub(crate) measure: bool,
    /// Of --measure: runs a side, fixed before the first [2 to 5000].
    #[arg(short, long, value_name = "N", requires = "measure", default_value_t = RUNS,
          value_parser = few::<2, 5_000>)]
    pub(crate) n: u32,
    /// Of --measure: seed of the order of runs [default: from the clock; it is kept with the runs].
    #[arg(long, value_name = "N", requires = "measure")]
    pub(crate) seed: Option<u64>,
    /// Of --measure: print JSON (schema stopgap.run-fix/1) instead of the screen.
    #[arg(long, requires = "measure")]
    pub(crate) json: bool,
    /// Of --measure: write the record and the runs into this directory [default: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap].
    #[arg(short, long, value_name = "DIR", requires = "measure")]
    pub(crate) output: Option<PathBuf>,
    /// Of --measure: write no record and keep no runs.
    #[arg(long, requires = "measure", conflicts_with = "output")]
    pub(crate) no_record: bool,
    /// The command and its arguments.
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunFix {
    pub(crate) fn place(&self) -> Place {
        Place {
            output: self.output.clone(),
            no_record: self.no_record,
        }
    }
}
