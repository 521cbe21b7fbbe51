//! Reads result files, ours and those of other tools, as runs that can be compared.
//!
//! # Contract
//!
//! [`read`] takes a file's bytes and returns [`Read`]: the runs, and the parameters that two files must have in
//! common to be compared ([`compatible`]). It is pure. Any bytes are allowed: damage is an error with its line, never
//! a panic, and a truncated file is an error, never fewer samples. It needs about three times the file's size in
//! memory, plus at most 100 MB for one histogram of a log at a time.
//!
//! | format | a run is | figures |
//! |---|---|---|
//! | `stopgap` | a block of a series: a process | quantiles, stall episodes; or a number |
//! | `hdr-log` | the file: its intervals together | quantiles, in nanoseconds |
//! | `cyclictest` | the file: its threads together | quantiles (`-h`, `--json`); of `-q` alone the average, as a number |
//! | `rtla` | the file: its CPUs together | quantiles |
//! | `hyperfine` | each time of one command: a process | elapsed seconds, and memory where it is there |
//! | `criterion` | each sample | time of an iteration |
//! | `google-benchmark` | each repetition of one benchmark | CPU time and elapsed time of an iteration |
//! | `go` | each line of one benchmark | its numbers of which less is better |
//! | `perf-stat` | the file, or each run of `--append` | the events |
//! | `numbers` | a line | the number |
//!
//! For a file with several benchmarks, [`Options::series`] must name one. [`Read::missing`] lists figures that are
//! not compared, such as those of which more is better.
//!
//! Quantiles are given if there are enough samples ([`needed`](crate::quantile::needed)) and if they fall within the
//! histogram. Samples beyond its end are counted, but their length is unknown.
//!
//! A histogram's samples above a threshold count as stalls if [`Options::stall_threshold_ns`] is given and the file
//! says how long the measurement took. They are samples, not episodes, so [`Run::episodes`] stays unknown.

mod compatible;
mod counts;
mod criterion;
mod cyclictest;
mod go;
mod google;
mod hdr;
mod hyperfine;
mod numbers;
mod perf_stat;
mod record;
mod rtla;
mod together;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use stopgap_events::machine::{Environment, Missing};
use stopgap_events::question::Question;
use stopgap_events::words;
use thiserror::Error;

use crate::compare::Run;

pub use compatible::{Incompatible, compatible};
pub use together::{Setups, Together, together};

/// Kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// A run record of ours, `stopgap.run/1`.
    Stopgap,
    /// A log of HdrHistogram's, V2 encodings, compressed or not.
    HdrLog,
    /// Output of cyclictest: `-q`, `-h`, `--json`.
    Cyclictest,
    /// Output of `rtla timerlat hist` and `rtla osnoise hist`.
    Rtla,
    /// JSON that hyperfine exports.
    Hyperfine,
    /// `sample.json` of criterion.
    Criterion,
    /// JSON of google-benchmark.
    Google,
    /// Text of `go test -bench`.
    Go,
    /// `perf stat -x,` and `perf stat -j`.
    PerfStat,
    /// A number a line.
    Numbers,
}

words!(
    Format, "format",
    Stopgap "stopgap",
    HdrLog "hdr-log",
    Cyclictest "cyclictest",
    Rtla "rtla",
    Hyperfine "hyperfine",
    Criterion "criterion",
    Google "google-benchmark",
    Go "go",
    PerfStat "perf-stat",
    Numbers "numbers",
);

/// Unit of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
}

words!(Unit, "unit", Ns "ns", Us "us");

impl Unit {
    /// Nanoseconds in one.
    fn ns(self) -> u64 {
        match self {
            Unit::Ns => 1,
            Unit::Us => 1_000,
        }
    }
}

/// Options of reading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Kind of file; `None`: by its content.
    pub format: Option<Format>,
    /// Question of a record; `None`: the only one that has figures.
    pub question: Option<Question>,
    /// Series. For a record its name and parameters (`map backend=memfd n=200`; without them the question's usual
    /// latency under the largest `n`); for a log its tag; for hyperfine its command (default: the only one); for rtla
    /// the column without its CPU (default: `Thr` if there is one); for Go or google-benchmark a benchmark (default:
    /// the only one); for perf an event (default: all).
    pub series: Option<String>,
    /// Nanoseconds from which a sample is a stall. `None`: the threshold of a record, and no stalls in other files.
    pub stall_threshold_ns: Option<u64>,
    /// Unit of cyclictest's latencies, for a text that does not show it. A file that shows another unit is an error.
    pub unit: Option<Unit>,
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// Kind of file.
    pub format: Format,
    /// The measurement in the tool's words; `None` where the file does not say.
    pub question: Option<String>,
    /// Unit of quantiles and maximum; empty where the file does not say.
    pub unit: String,
    /// Unit of numbers; empty where the file does not say.
    pub number_unit: String,
    /// Parameters that must be equal in runs that are compared, by name.
    pub parameters: BTreeMap<String, String>,
    /// Parameters that the file does not give: they may have any value.
    pub unsaid: Vec<String>,
    /// The series of a record that [`Options::series`] selects. The runs are those of the first one. Empty for other
    /// files.
    pub series: Vec<String>,
    /// Figures by which a record's question is judged, in all setups: for [`together`](fn@together). Empty if one
    /// series was selected.
    pub setups: Vec<Setups>,
    /// Time of the measurement, seconds since 1970, if the file has it.
    pub started_unix_s: Option<u64>,
    /// The machine, if the file names it.
    pub environment: Option<Environment>,
    /// The runs, at least one.
    pub runs: Vec<Run>,
    /// Figures that the file lacks, and why.
    pub missing: Vec<Missing>,
}

impl Read {
    fn new(format: Format) -> Read {
        Read {
            format,
            question: None,
            unit: String::new(),
            number_unit: String::new(),
            parameters: BTreeMap::new(),
            unsaid: Vec::new(),
            series: Vec::new(),
            setups: Vec::new(),
            started_unix_s: None,
            environment: None,
            runs: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// Reason for which a file cannot be read. The caller puts the file's name in front.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{why}", place(*line))]
pub struct ReadError {
    /// Line, from 1; `None` for the whole file.
    pub line: Option<usize>,
    /// The reason on one line, without control characters.
    pub why: String,
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

impl ReadError {
    fn whole(why: impl AsRef<str>) -> ReadError {
        ReadError {
            line: None,
            why: plain(why.as_ref()),
        }
    }

    fn at(line: usize, why: impl AsRef<str>) -> ReadError {
        ReadError {
            line: Some(line),
            why: plain(why.as_ref()),
        }
    }

    fn json(what: &str, error: &serde_json::Error) -> ReadError {
        ReadError::whole(format!("not {what}: {error}"))
    }
}

/// Returns words from a file in a form that can neither control the terminal nor fill the screen.
fn plain(words: &str) -> String {
    let letters = words.chars().take(300);
    letters
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

/// Reads a file.
///
/// # Errors
/// [`ReadError`]: the file is empty, of no known kind, damaged, or truncated; or it has no run, or several
/// series of which none is selected.
pub fn read(bytes: &[u8], options: &Options) -> Result<Read, ReadError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ReadError::whole("it is empty"));
    }
    // The byte-order mark that Windows' programs write before a text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let format = match options.format {
        Some(format) => format,
        None => recognise(bytes)?,
    };
    asked(format, options)?;
    let read = match format {
        Format::Stopgap => record::read(text(bytes)?, options),
        Format::HdrLog => hdr::read(bytes, options),
        Format::Cyclictest => cyclictest::read(text(bytes)?, options),
        Format::Rtla => rtla::read(text(bytes)?, options),
        Format::Hyperfine => hyperfine::read(text(bytes)?, options),
        Format::Criterion => criterion::read(text(bytes)?),
        Format::Google => google::read(text(bytes)?, options),
        Format::Go => go::read(text(bytes)?, options),
        Format::PerfStat => perf_stat::read(text(bytes)?, options),
        Format::Numbers => numbers::read(text(bytes)?),
    }?;
    if read.runs.is_empty() {
        return Err(ReadError::whole("there is no run in it"));
    }
    Ok(read)
}

/// Refuses an option that the file does not support, instead of ignoring it.
fn asked(format: Format, options: &Options) -> Result<(), ReadError> {
    let has_series = !matches!(
        format,
        Format::Numbers | Format::Cyclictest | Format::Criterion
    );
    if let (Some(question), false) = (options.question, format == Format::Stopgap) {
        return Err(ReadError::whole(format!(
            "it is of format {format}, which has no question '{question}'"
        )));
    }
    if let (Some(unit), false) = (options.unit, format == Format::Cyclictest) {
        return Err(ReadError::whole(format!(
            "it is of format {format}, for which no unit '{unit}' can be given"
        )));
    }
    match &options.series {
        Some(series) if !has_series => Err(ReadError::whole(format!(
            "it is of format {format}, which has no series '{series}'"
        ))),
        _ => Ok(()),
    }
}

/// Recognises the kind of file by its content. Other text counts as numbers.
///
/// # Errors
/// JSON that is damaged, or that comes from no known tool.
pub fn recognise(bytes: &[u8]) -> Result<Format, ReadError> {
    let begin = bytes.trim_ascii_start();
    if begin.starts_with(b"{") {
        return json(text(bytes)?);
    }
    // Headings are at the beginning, and a log's first interval comes soon after.
    for line in begin.split(|&byte| byte == b'\n').take(200) {
        let has = |part: &[u8]| line.windows(part.len()).any(|some| some == part);
        if line.starts_with(b"# RTLA") {
            return Ok(Format::Rtla);
        }
        if line.starts_with(b"# Histogram") || line.starts_with(b"T:") {
            return Ok(Format::Cyclictest);
        }
        let log = b"#[Histogram log format version";
        if line.starts_with(log) || line.starts_with(b"\"StartTimestamp\"") || has(b",HIST") {
            return Ok(Format::HdrLog);
        }
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        if line.starts_with("goos: ") || go::is_result(line) {
            return Ok(Format::Go);
        }
        if perf_stat::is_line(line) {
            return Ok(Format::PerfStat);
        }
    }
    Ok(Format::Numbers)
}

fn json(text: &str) -> Result<Format, ReadError> {
    #[derive(Deserialize)]
    struct Keys {
        schema: Option<String>,
        results: Option<IgnoredAny>,
        thread: Option<IgnoredAny>,
        benchmarks: Option<IgnoredAny>,
        context: Option<IgnoredAny>,
        iters: Option<IgnoredAny>,
        times: Option<IgnoredAny>,
    }
    // Each line of perf's output is a document of its own.
    if text
        .trim_start()
        .lines()
        .next()
        .is_some_and(perf_stat::is_line)
    {
        return Ok(Format::PerfStat);
    }
    let keys: Keys =
        serde_json::from_str(text).map_err(|error| ReadError::json("whole JSON", &error))?;
    match keys {
        Keys {
            schema: Some(schema),
            ..
        } if schema == crate::record::SCHEMA => Ok(Format::Stopgap),
        Keys {
            schema: Some(schema),
            ..
        } => Err(ReadError::whole(format!(
            "the document's schema is '{}', expected '{}'",
            schema.chars().take(80).collect::<String>(),
            crate::record::SCHEMA
        ))),
        Keys {
            results: Some(_), ..
        } => Ok(Format::Hyperfine),
        Keys {
            thread: Some(_), ..
        } => Ok(Format::Cyclictest),
        Keys {
            benchmarks: Some(_),
            context: Some(_),
            ..
        } => Ok(Format::Google),
        Keys {
            iters: Some(_),
            times: Some(_),
            ..
        } => Ok(Format::Criterion),
        _ => Err(ReadError::whole(
            "JSON of no known tool: neither a run record, nor of cyclictest, hyperfine, google-benchmark or perf stat; of criterion's files sample.json is read",
        )),
    }
}

fn text(bytes: &[u8]) -> Result<&str, ReadError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        ReadError::at(line_of(before), "it is no text")
    })
}

/// Refuses a text whose last line has no line feed: the last number may lack digits.
fn ends_with_a_line(text: &str) -> Result<(), ReadError> {
    if text.ends_with('\n') {
        return Ok(());
    }
    let line = text.lines().count();
    let why =
        "it ends without a line feed: the file is cut off; if it is whole, add one (echo >>FILE)";
    Err(ReadError::at(line, why))
}

/// Longest line of a table, in bytes. Splitting a line takes many times its size.
const LONGEST_LINE: usize = 16 << 10;

/// Returns the number of the line after `before`, from 1.
fn line_of(before: &[u8]) -> usize {
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the series with the selected name; without a selection the only one.
fn choose<'a, T>(
    what: &str,
    all: &'a [(String, T)],
    wanted: Option<&str>,
) -> Result<&'a T, ReadError> {
    let names = || {
        let names: Vec<String> = all
            .iter()
            .take(10)
            .map(|(name, _)| format!("'{name}'"))
            .collect();
        let rest = all.len().saturating_sub(names.len());
        match rest {
            0 => names.join(", "),
            _ => format!("{} and {rest} more", names.join(", ")),
        }
    };
    match (all, wanted) {
        ([], _) => Err(ReadError::whole(format!("there is no {what} in it"))),
        (_, Some(wanted)) => all
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, one)| one)
            .ok_or_else(|| ReadError::whole(format!("no {what} '{wanted}'; there is {}", names()))),
        ([(_, only)], None) => Ok(only),
        (_, None) => Err(ReadError::whole(format!(
            "{} of {what}, and none is chosen: {}",
            all.len(),
            names()
        ))),
    }
}

#[cfg(test)]
mod tests;
