//! Flags of `compare`.

use std::path::PathBuf;

use stopgap_events::question::Question;
use stopgap_events::units::Nanos;

use super::Place;
use super::values::{few, margin, time};

/// How many runs a side are made unless told otherwise.
const RUNS: u32 = 30;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file or a directory a side:       stopgap compare old.json new.json; stopgap compare old/ new/
Several a side (the shell's *):     stopgap compare --before old-*.json --after new-*.json
Two commands, run here, then again: stopgap compare --run 'CMD A' --run 'CMD B' -n 30; stopgap compare gather-*.json

The unit of evidence is a run (a process or a boot), never a sample; 5 runs a side are the fewest that can prove anything of
three endpoints. How it is tested, and how often that is wrong: docs/compare.md.

Exit status: 0 compared, 1 error. With --fail-on regression: 0 improvement or not worse, 1 error, 2 regression, 4 no \
difference proven or inconclusive. With --bisect: 0 good, 1 bad, 125 cannot tell (errors, too).")]
pub(crate) struct Compare {
    /// BEFORE and AFTER: a file or a directory (all files in it) of runs each: run records, HdrHistogram logs, cyclictest and
    /// rtla histograms, hyperfine's JSON, a number a line; or one file of runs that --run gathered.
    #[arg(value_name = "RUNS", conflicts_with_all = ["before", "after", "commands"])]
    pub(crate) sides: Vec<PathBuf>,
    /// Files and directories of the earlier side.
    #[arg(long, value_name = "RUNS", num_args = 1.., requires = "after", conflicts_with = "commands")]
    pub(crate) before: Vec<PathBuf>,
    /// Files and directories of the later side.
    #[arg(long, value_name = "RUNS", num_args = 1.., requires = "before", conflicts_with = "commands")]
    pub(crate) after: Vec<PathBuf>,
    /// Run this by sh -c and measure it; given twice, the earlier side first. Its output is not shown.
    #[arg(long = "run", value_name = "CMD", allow_hyphen_values = true)]
    pub(crate) commands: Vec<String>,
    /// Of --run: runs a side, fixed before the first; there is no early stop [2 to 5000].
    #[arg(short, long, value_name = "N", requires = "commands", conflicts_with_all = ["sides", "before", "after"], default_value_t = RUNS,
          value_parser = few::<2, 5_000>)]
    pub(crate) n: u32,
    /// By what share the later side may be worse and still be "not worse".
    #[arg(long, value_name = "SHARE", value_parser = margin, default_value = "5%",
          allow_hyphen_values = true)]
    pub(crate) margin: f64,
    /// From what length on a sample is a stall, as 1ms; records that counted with another are refused [default: what records
    /// say, and no stalls of other tools' files].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) threshold: Option<Nanos>,
    /// What is tested: median, p99, p99.9, stall rate, stall time, or a number that runs have, as "voluntary switches"; choose
    /// before looking [default: all; of --run elapsed time, user time and system time].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) endpoint: Vec<String>,
    /// For run records: which question's answers are compared [default: the only one].
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<Question>,
    /// Which series of a file: a record's by its name, a log's tag, hyperfine's command, rtla's column [default: the only one;
    /// of a record the question's latency under the most load that all files have].
    #[arg(long, value_name = "NAME")]
    pub(crate) series: Option<String>,
    /// Seed of arrangements, intervals and the order of runs [default: 1; of --run from the clock, and kept with the runs].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print JSON (schema stopgap.compare/1) instead of the screen.
    #[arg(long, conflicts_with_all = ["ktap", "annotations"])]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Let the exit status say what it came to: 0 improvement or not worse, 2 regression, 4 cannot tell.
    #[arg(long, value_name = "WORD")]
    pub(crate) fail_on: Option<FailOn>,
    /// Let the exit status be what git bisect run reads: 0 good, 1 bad, 125 cannot tell (an error, too).
    #[arg(long, conflicts_with = "fail_on")]
    pub(crate) bisect: bool,
    /// Print KTAP, version 1, instead of the screen.
    #[arg(long)]
    pub(crate) ktap: bool,
    /// Print GitHub's workflow commands (::error, ::warning, ::notice) after the screen.
    #[arg(long, conflicts_with = "ktap")]
    pub(crate) annotations: bool,
    /// Write JUnit's XML to this file, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write OpenMetrics text to this file, too, as for node-exporter's textfile directory; it is there whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub(crate) openmetrics: Option<PathBuf>,
}

/// The verdict that fails a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FailOn {
    /// That the later side is worse, or that nothing is proven.
    Regression,
}
