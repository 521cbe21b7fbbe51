//! Flags of `compare`.

use std::path::PathBuf;

use stopgap_events::question::Question;
use stopgap_events::units::Nanos;
use stopgap_explain::Request;
use stopgap_stats::compare::moved::Per;
use stopgap_stats::read::Unit;

use super::Place;
use super::values::{few, margin, time};

/// Most runs a side unless told otherwise.
const MOST: u32 = 5_000;

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
A file or a directory per side:
  stopgap compare old.json new.json
  stopgap compare old/ new/
Several files per side:
  stopgap compare --before old-*.json --after new-*.json
Traces of stopgap record: what moved, by cause, system call and function:
  stopgap compare old.parquet new.parquet
Two commands, run here until it is decided; then the same runs once more:
  stopgap compare --run 'CMD A' --run 'CMD B'
  stopgap compare gather-*.json

When did it change? One file per occasion, or a list of dates and values:
  stopgap compare --history nightly/

The unit of evidence of files is an occasion (a file of runs made within
minutes): fewer than 5 per side prove nothing about two endpoints. docs/compare.md
says how the command tests, and how often it is wrong.

[compare] of stopgap.toml in this directory may set endpoint (a list), margin,
max-time and cannot-tell; a flag goes first.

Exit status: 0 compared, 1 error. With --fail-on regression: 0 improvement or
not worse, 1 error, 2 regression, 4 no difference proven or inconclusive. With
--bisect: 0 good, 1 bad, 125 cannot tell (errors, too).")]
pub(crate) struct Compare {
    /// BEFORE and AFTER: a file or a directory (all files in it) each, with run records,
    /// HdrHistogram logs, cyclictest or rtla histograms, results of hyperfine, criterion,
    /// google-benchmark, Go or perf stat, or a number per line.
    /// Or one file of runs that --run gathered.
    #[arg(value_name = "RUNS", conflicts_with_all = ["before", "after", "commands"])]
    pub(crate) sides: Vec<PathBuf>,
    /// Take these files and directories as the earlier side.
    #[arg(long, value_name = "RUNS", num_args = 1.., requires = "after", conflicts_with = "commands")]
    pub(crate) before: Vec<PathBuf>,
    /// Take these files and directories as the later side.
    #[arg(long, value_name = "RUNS", num_args = 1.., requires = "before", conflicts_with = "commands")]
    pub(crate) after: Vec<PathBuf>,
    /// Say when a figure changed over many occasions: directories and files as above, each file an
    /// occasion; traces; or lists of lines "DATE VALUE LABEL" or "DATE FILE LABEL".
    #[arg(long, value_name = "RUNS", num_args = 1.., conflicts_with_all = ["sides", "before", "after", "commands", "bisect"])]
    pub(crate) history: Vec<PathBuf>,
    /// Print the labels of --history between which the last change lies, the later first:
    /// git bisect start $(stopgap compare --history RUNS --bisect-hint).
    #[arg(long, requires = "history", conflicts_with_all = ["json", "ktap", "annotations"])]
    pub(crate) bisect_hint: bool,
    /// Run this command by sh -c and measure it. Give it twice, the earlier side first. Its output
    /// is not shown.
    #[arg(long = "run", value_name = "CMD", allow_hyphen_values = true)]
    pub(crate) commands: Vec<String>,
    /// Make at most so many runs per side with --run, where it is not decided before [2 to 5000].
    #[arg(short, long, value_name = "N", requires = "commands", conflicts_with_all = ["sides", "before", "after"], default_value_t = MOST,
          value_parser = few::<2, 5_000>)]
    pub(crate) n: u32,
    /// Begin no run of --run after this time [default: 5m].
    #[arg(long, value_name = "TIME", requires = "commands", value_parser = time)]
    pub(crate) max_time: Option<Nanos>,
    /// Run both commands of --run at the same time on one CPU [default: where only CPU time, faults
    /// or memory are tested, and each command uses one CPU].
    #[arg(long, requires = "commands", conflicts_with = "in_turn")]
    pub(crate) side_by_side: bool,
    /// Run the commands of --run one after the other.
    #[arg(long, requires = "commands")]
    pub(crate) in_turn: bool,
    /// Refuse commands of --run whose first runs print different text.
    #[arg(long, requires = "commands")]
    pub(crate) same_output: bool,
    /// Take a change by less than this share for none [default: 3% with --run, 5% of files].
    #[arg(long, value_name = "SHARE", value_parser = margin, allow_hyphen_values = true)]
    pub(crate) margin: Option<f64>,
    /// Count a sample as a stall from this length on, as 1ms. Records that counted with another
    /// length are refused [default: what records say; other tools' files have no stalls].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) threshold: Option<Nanos>,
    /// Test these figures: median, p10, p99, p99.9, stall rate, stall time, or a number that runs have,
    /// as "voluntary switches", "system calls" (root). Choose before you look [default: all; with
    /// --run CPU time].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) endpoint: Vec<String>,
    /// Compare the answers of run records to this question [default: the only one].
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<Question>,
    /// Compare this series of a file: a record's by its name, a log's tag, hyperfine's command,
    /// rtla's column [default: the only one; of a record the question's latency under the highest
    /// load that all files have].
    #[arg(long, value_name = "NAME")]
    pub(crate) series: Option<String>,
    /// Take the times of cyclictest's text for these, where the text does not say: ns or us.
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<Unit>,
    /// Set the seed of arrangements, intervals and the order of runs [default: 1; with --run from
    /// the clock, and kept with the runs].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Count what traces show per this: run (of the recorded program), second, roundtrip, or a
    /// request, as write..read [default: run where each trace has a whole one, else second].
    #[arg(long, value_name = "UNIT", value_parser = per, conflicts_with = "commands")]
    pub(crate) per: Option<Per>,
    /// Print JSON (schema stopgap.compare/1, of traces stopgap.moved/1, with --history
    /// stopgap.change-points/1) instead of the screen.
    #[arg(long, conflicts_with_all = ["ktap", "annotations"])]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Exit with the result: 0 improvement or not worse, 2 regression, 4 cannot tell.
    #[arg(long, value_name = "WORD")]
    pub(crate) fail_on: Option<FailOn>,
    /// What --fail-on does where it cannot tell: fail (status 4) or pass [default: fail].
    #[arg(long, value_name = "WHAT", requires = "fail_on")]
    pub(crate) cannot_tell: Option<CannotTell>,
    /// Exit as git bisect run reads it: 0 good, 1 bad, 125 cannot tell (errors, too).
    #[arg(long, conflicts_with = "fail_on")]
    pub(crate) bisect: bool,
    /// Print KTAP, version 1, instead of the screen.
    #[arg(long)]
    pub(crate) ktap: bool,
    /// Print GitHub's workflow commands (::error, ::warning, ::notice) after the screen.
    #[arg(long, conflicts_with = "ktap")]
    pub(crate) annotations: bool,
    /// Also write JUnit's XML to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Also write OpenMetrics text to this file, as for node-exporter's textfile directory. The
    /// file is replaced as a whole.
    #[arg(long, value_name = "FILE")]
    pub(crate) openmetrics: Option<PathBuf>,
}

fn per(text: &str) -> Result<Per, String> {
    Ok(match text {
        "run" => Per::Run,
        "second" => Per::Second,
        "roundtrip" => Per::Roundtrip,
        request if request.contains("..") => Per::Request(request.parse::<Request>()?.to_string()),
        _ => return Err("it is run, second, roundtrip, or a request, as write..read".to_owned()),
    })
}

/// The answer of a gate where nothing is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CannotTell {
    // Not doc comments: clap would lay all flags out in another way for them.
    Pass,
    Fail,
}

/// The verdict that fails a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FailOn {
    // Not a doc comment: clap would lay all flags out in another way for it. The later side is worse, or nothing is proven.
    Regression,
}
