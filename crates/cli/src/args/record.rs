//! Flags of `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_tracer::events::{CaptureSource, EventSet};

use super::values::{few, label, pid, process_name, size, time};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A recording that was killed, or that found the disk full, leaves a folder
.NAME.PID.spool beside the file; --recover makes the file from it. A second
Ctrl-C, at least two seconds after the first, ends record at once and leaves
that folder.

Without root and without CAP_BPF and CAP_PERFMON, record sees switches of your
own processes and counters. The summary says what is missing;
docs/record.md says why.

Exit status: the command's, 128 + N where signal N killed it, 0 where it goes
on. 125 where stopgap fails, 126 where the command cannot be run, 127 where it
is not found. Without a command: 0 recorded, 1 error, 3 unsupported here.")]
pub(crate) struct Record {
    /// Record these processes, as 17,42, their children, all their threads and what they start,
    /// until they end; repeatable.
    #[arg(short, long, value_name = "PID", value_parser = pid, value_delimiter = ',', conflicts_with = "command")]
    pub(crate) pid: Vec<u32>,
    /// Record the processes of this name (as ps -o comm prints it) and what they start, later ones
    /// too; repeatable.
    #[arg(long, value_name = "NAME", value_parser = process_name, conflicts_with = "command")]
    pub(crate) comm: Vec<String>,
    /// Record the processes in this control group (a folder below /sys/fs/cgroup) and below it,
    /// later ones too; repeatable.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Record all threads of the machine, while the command runs or until Ctrl-C; not by perf.
    #[arg(short, long, conflicts_with_all = ["pid", "comm", "cgroup", "only", "samples"])]
    pub(crate) all: bool,
    /// Stop after this time, as 60s. A command goes on unrecorded [default: when the command or
    /// process ends, or at Ctrl-C].
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Nanos>,
    /// Write this trace file (Parquet, docs/trace.md). A file of that name is replaced when all is
    /// written [default: a new file where records go: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Record more or less. scheduling: only waits (by tracefs only switches and wake-ups). all:
    /// also system calls that do not wait [default: waits with stacks, reclaim, locks and I/O; by
    /// tracefs all]. Not by perf.
    #[arg(long, value_name = "SET")]
    pub(crate) events: Option<EventSet>,
    /// Record by bpf (every wait, in the kernel, also those of all other threads), tracefs
    /// (switches, wake-ups, system calls) or perf (switches of your own processes) [default: bpf,
    /// else tracefs, else perf].
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<CaptureSource>,
    /// Leave out the waits of other threads; by bpf.
    #[arg(long)]
    pub(crate) only: bool,
    /// Set the size of each CPU's buffer, as 16M; not by perf [default: 64M for all CPUs; by
    /// tracefs 64M each, or the CPU's share of 1/32 of memory].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<Bytes>,
    /// Sample what runs so often per second and CPU: functions of the kernel and the program, with
    /// their callers, and by BPF all system calls, as --events all. 999 costs about 3 % [1 to
    /// 10000].
    #[arg(long, value_name = "HZ", value_parser = few::<1, 10_000>)]
    pub(crate) samples: Option<u32>,
    /// Put a label into the trace, as machine=lab-3; repeatable. A key has at most 64 letters,
    /// digits and -_./, a value at most 256 bytes.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Make the trace file of a recording that was cut off, from its folder [default of -o: beside
    /// it].
    #[arg(long, value_name = "DIR",
          conflicts_with_all = ["pid", "comm", "cgroup", "all", "command", "duration", "events", "source", "only", "buffer", "samples", "labels"])]
    pub(crate) recover: Option<PathBuf>,
    /// Make the trace file on standard output of the folder of a recording that runs: `record` starts this itself.
    #[arg(long, hide = true, value_name = "DIR", conflicts_with_all = ["pid", "command", "recover"])]
    pub(crate) convert: Option<PathBuf>,
    /// Command to record, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
