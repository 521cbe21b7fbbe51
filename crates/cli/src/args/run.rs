//! Flags of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Place;
use super::values::few;
use crate::run::Fix;

/// Most runs a side, unless told otherwise.
const RUNS: u32 = 60;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
stopgap run --fix arena -- python3 churn.py

With and without the fix, in turn:
  stopgap run --fix arena-keep --measure -n 20 -- python3 churn.py

With a report at exit of what the fix did:
  STOPGAP_REPORT=1 stopgap run --fix arena -- python3 churn.py

docs/fixes/run.md has what each fix does, costs and cannot do.

Exit status: the command's. 125 where stopgap fails, 126 where the command
cannot be run, 127 where it is not found. With --measure: 0 measured, 1 error,
3 a fix cannot work here.")]
pub(crate) struct RunFix {
    /// Run with these fixes. arena: anonymous maps get a place without the kernel's search, for
    /// kernels that search linearly (before 3.8). arena-keep: as arena, and the pages of a freed
    /// map serve the next one of its size, for programs that map and unmap the same sizes many
    /// thousand times per second, as CPython does. It corrupts the data of programs that use
    /// vmsplice, O_DIRECT, io_uring, MSG_ZEROCOPY or userfaultfd. chunks=POLICY: as arena, and
    /// large maps get huge pages as this policy of replay chunks would give them. batch-client:
    /// SCHED_BATCH, under which a woken client does not pre-empt the other side.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub(crate) fix: Vec<Fix>,
    /// Run the command with and without the fixes, in turn, and show what differs: times, faults,
    /// switches, memory. Its output is not shown.
    #[arg(long)]
    pub(crate) measure: bool,
    /// Make at most so many runs per side with --measure, where it is not decided before [2 to
    /// 5000].
    #[arg(short, long, value_name = "N", requires = "measure", default_value_t = RUNS,
          value_parser = few::<2, 5_000>)]
    pub(crate) n: u32,
    /// Set the seed of the order of runs of --measure [default: from the clock; it is kept with
    /// the runs].
    #[arg(long, value_name = "N", requires = "measure")]
    pub(crate) seed: Option<u64>,
    /// Print the result of --measure as JSON (schema stopgap.run-fix/1) instead of the screen.
    #[arg(long, requires = "measure")]
    pub(crate) json: bool,
    /// Write the record and the runs of --measure into this directory [default:
    /// $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap].
    #[arg(short, long, value_name = "DIR", requires = "measure")]
    pub(crate) output: Option<PathBuf>,
    /// Write no record of --measure, and keep no runs.
    #[arg(long, requires = "measure", conflicts_with = "output")]
    pub(crate) no_record: bool,
    /// Command to run, with its arguments.
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
