//! `compare --history`: occasions of a figure by date, and when it changed.
//!
//! A file is an occasion: what `compare` reads, a trace, or an explained trace. A list names values or files by date. Traces are
//! explained one after the other, and only the sums by cause are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_events::date::unix_seconds;
use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;
use stopgap_explain::{Explainer, LOSS_LIMIT, Options};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::signals;
use stopgap_report::change_points::screen;
use stopgap_report::gate;
use stopgap_report::text::plain;
use stopgap_stats::change_points::lines::{Line, Of, lines};
use stopgap_stats::change_points::{
    ChangePoints, History, MOST_POINTS, Point, Verdict, change_points,
};
use stopgap_stats::compare::{Endpoint, Run};
use stopgap_stats::document::Document;
use stopgap_stats::explain::{self, Explain, Findings, Idleness};
use stopgap_stats::quantile::median;
use stopgap_stats::read::{self, Format, Read, compatible};
use stopgap_trace::Input;

use super::sides::{agree, contents, files_of, one, wrong};
use super::{begin, identity, status};
use crate::args;
use crate::explain::ahead;
use crate::failure::Failure;
use crate::output::Printed;
use crate::{input_file, output, session, voice};

/// One occasion.
struct Occasion {
    date: Option<u64>,
    label: String,
    figure: Figure,
}

enum Figure {
    Value(f64),
    /// Runs, by their place in [`Found::reads`].
    Runs(usize),
    Trace(Account),
}

/// Where the time of a trace went.
struct Account {
    /// The recorded program's time, ns, where the trace shows all of it.
    path: Option<Sum>,
    /// Time that threads lost waiting, ms in a second.
    lost: Sum,
}

/// A sum and its parts by cause.
#[derive(Default)]
struct Sum {
    all: f64,
    parts: BTreeMap<String, f64>,
}

impl Sum {
    fn add(&mut self, cause: &str, amount: f64) {
        self.all += amount;
        *self.parts.entry(cause.to_owned()).or_default() += amount;
    }
}

/// Occasions of all files, as they are read.
struct Found {
    asked: read::Options,
    occasions: Vec<Occasion>,
    reads: Vec<(PathBuf, Read)>,
    /// Files whose time of change is their date.
    undated: usize,
    missing: Vec<Missing>,
    /// Reasons to doubt it, most important first.
    warnings: Vec<String>,
    /// The files that were read, by device and inode.
    files: BTreeSet<(u64, u64)>,
}

/// Why a file is refused.
const TWICE: &str = "it is named twice: an occasion counts once";

/// Date and label that a list gives a file.
#[derive(Default)]
struct Told {
    date: Option<u64>,
    label: String,
}

pub(super) fn run(args: &args::Compare) -> Result<ExitCode, Failure> {
    signals::install();
    let directory = args.place.directory()?;
    // Before the work, so that an unwritable place is an error at once.
    let junit = args.junit.as_deref().map(begin).transpose()?;
    let openmetrics = args.openmetrics.as_deref().map(begin).transpose()?;
    let mut found = read(args)?;
    let (history, series) = history(args, &mut found)?;
    let mut record = change_points(&history, &session::command());
    record.series = series;
    record.warnings.splice(..0, found.warnings);
    record.missing.splice(..0, found.missing);

    let comparison = record.as_comparison();
    if let Some(file) = junit {
        file.write(&gate::junit(&comparison), &found.files)?;
    }
    if let Some(file) = openmetrics {
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
        file.write(&gate::openmetrics(&comparison, &name), &found.files)?;
    }
    if args.bisect_hint {
        output::print(&hint(&record)?)?;
        return Ok(ExitCode::from(status(args, comparison.verdict.word)));
    }
    let name = output::name("history", Linux.unix_seconds());
    let printed = match args.ktap || args.annotations {
        true => Printed::Asked,
        false => Printed::with(args.json),
    };
    output::document(
        &record.to_json(),
        &name,
        directory.as_deref(),
        printed,
        |written| {
            if args.ktap {
                return gate::ktap(&comparison);
            }
            let mut text = screen(&record, written, voice::style());
            if args.annotations {
                text.push_str(&gate::annotations(&comparison));
            }
            text
        },
    )?;
    Ok(ExitCode::from(status(args, comparison.verdict.word)))
}

/// Returns the labels between which the last change lies as `git bisect start` takes them, the later first.
fn hint(record: &ChangePoints) -> Result<String, Failure> {
    let Verdict { text, .. } = &record.verdict;
    let last = record
        .last()
        .ok_or_else(|| Failure::error(format!("there is nothing to bisect: {text}")))?;
    let mut hint = String::new();
    for at in [last.bad, last.good] {
        // The rest of a label may be a subject.
        let label = &record.points[at].label;
        let word = label.split_whitespace().next().unwrap_or_default();
        if word.is_empty() || word.starts_with('-') || word.contains(char::is_control) {
            return Err(Failure::error(format!(
                "occasion {} has no label that names a commit ('{}'); give a list of lines DATE FILE COMMIT",
                at + 1,
                plain(word)
            )));
        }
        hint += word;
        hint.push('\n');
    }
    Ok(hint)
}

/// Reads everything that is named, in the order of dates.
fn read(args: &args::Compare) -> Result<Found, Failure> {
    let mut found = Found {
        asked: read::Options {
            format: None,
            question: args.question,
            series: args.series.clone(),
            stall_threshold_ns: args.threshold.map(|time| time.0),
            unit: args.unit,
        },
        occasions: Vec::new(),
        reads: Vec::new(),
        undated: 0,
        missing: Vec::new(),
        warnings: Vec::new(),
        files: BTreeSet::new(),
    };
    for path in &args.history {
        if !path.is_dir() {
            found.file(path, Told::default(), true)?;
            continue;
        }
        let mut files = Vec::new();
        files_of(path, &mut files)?;
        let (before, all) = (found.occasions.len(), files.len());
        let mut first = None;
        let mut others = 0;
        for file in files {
            // Other files may lie there, too: a README, a page.
            if let Err(Failure::Told { message, .. }) = found.file(&file, Told::default(), false) {
                if signals::interrupted() || found.occasions.len() >= MOST_POINTS {
                    return Err(Failure::error(message));
                }
                others += 1;
                first.get_or_insert(message);
            }
        }
        if let (true, Some(why)) = (found.occasions.len() == before, &first) {
            return Err(Failure::error(why.clone()));
        }
        if let Some(why) = first {
            let what = format!("{others} of {all} files of {}", path.display());
            found.missing.push(Missing::new(what, why));
        }
    }
    if found.undated > 0 {
        found.warnings.push(format!(
            "{} of {} occasions do not say when they were: the time at which their file was changed is taken",
            found.undated,
            found.occasions.len()
        ));
    }
    let dated = found.occasions.iter().filter(|one| one.date.is_some());
    match dated.count() {
        0 => {}
        all if all == found.occasions.len() => {
            found.occasions.sort_rows_by_key(|one| one.date);
            let pairs = found.occasions.windows(2);
            let equal = pairs.filter(|two| two[0].date == two[1].date).count();
            if equal > 0 {
                found.warnings.push(format!(
                    "occasions of one date ({equal}) stay in the order in which they were given"
                ));
            }
        }
        some => {
            return Err(Failure::error(format!(
                "{some} of {} occasions have a date: give all of them one, or none",
                found.occasions.len()
            )));
        }
    }
    Ok(found)
}

impl Found {
    /// Reads one file; where `lists` are allowed, a list names others.
    fn file(&mut self, path: &Path, told: Told, lists: bool) -> Result<(), Failure> {
        input_file::stop_if_interrupted().map_err(|error| wrong(path, &error))?;
        let kind = fs::metadata(path).map_err(|error| wrong(path, &error))?;
        let name = || path.file_stem().unwrap_or_default().to_string_lossy();
        let label = match told.label.is_empty() {
            true => name().into_owned(),
            false => told.label,
        };
        if kind.is_file() && is_trace(path) {
            return self.trace(path, told.date, label);
        }
        let bytes = contents(path)?;
        if is_explained(&bytes) {
            let explained: Explain =
                serde_json::from_slice(&bytes).map_err(|error| wrong(path, &error))?;
            let account = account(&explained.findings).map_err(|why| wrong(path, &why))?;
            return self.put(path, told.date, label, Figure::Trace(account));
        }
        let format = read::recognise(&bytes).map_err(|error| wrong(path, &error))?;
        if format != Format::Numbers {
            drop(bytes);
            let read = one(path, &self.asked)?;
            let start = told.date.or(read.started_unix_s);
            self.reads.push((path.to_owned(), read));
            let runs = Figure::Runs(self.reads.len() - 1);
            return self.put(path, start, label, runs).inspect_err(|_| {
                self.reads.pop();
            });
        }
        let text = str::from_utf8(&bytes).map_err(|_| wrong(path, &"it is no text"))?;
        let all = lines(text).map_err(|(line, why)| wrong(path, &format!("line {line}: {why}")))?;
        if all.is_empty() {
            return Err(wrong(path, &"there is no occasion in it"));
        }
        if !lists {
            // A file among others is one occasion, as in a comparison.
            let alone = |line: &Line| match line.of {
                Of::Value(value) if line.date_unix_s.is_none() && line.label.is_empty() => {
                    Some(value)
                }
                _ => None,
            };
            let values: Option<Vec<f64>> = all.iter().map(alone).collect();
            let values = values.and_then(median);
            let Some(value) = values else {
                // Traces of other tools are text, too.
                return self.trace(path, told.date, label);
            };
            return self.put(path, told.date, label, Figure::Value(value));
        }
        if !self
            .files
            .insert(identity(path).map_err(|error| wrong(path, &error))?)
        {
            return Err(wrong(path, &TWICE));
        }
        for line in all {
            self.line(path, line)?;
        }
        Ok(())
    }

    /// Takes a trace, which is explained.
    fn trace(&mut self, path: &Path, date: Option<u64>, label: String) -> Result<(), Failure> {
        let (account, start, commit) = explained(path)?;
        let own = path.file_stem().unwrap_or_default().to_string_lossy() == label;
        let label = commit.filter(|_| own).unwrap_or(label);
        self.put(path, date.or(start), label, Figure::Trace(account))
    }

    /// Takes an occasion of a list.
    fn line(&mut self, list: &Path, line: Line) -> Result<(), Failure> {
        match line.of {
            Of::Value(value) => {
                self.room(list)?;
                self.occasions.push(Occasion {
                    date: line.date_unix_s,
                    label: line.label,
                    figure: Figure::Value(value),
                });
                Ok(())
            }
            Of::File(file) => {
                let place = list.parent().unwrap_or(Path::new("")).join(&file);
                if !place.exists() {
                    let why = format!(
                        "line {}: '{}' is neither a number nor a date (as 2026-03-04) nor a file beside it",
                        line.number,
                        plain(&file.chars().take(80).collect::<String>())
                    );
                    return Err(wrong(list, &why));
                }
                let told = Told {
                    date: line.date_unix_s,
                    label: line.label,
                };
                self.file(&place, told, false)
            }
        }
    }

    /// Takes an occasion that is a file.
    fn put(
        &mut self,
        path: &Path,
        date: Option<u64>,
        label: String,
        figure: Figure,
    ) -> Result<(), Failure> {
        self.room(path)?;
        let there = fs::metadata(path).map_err(|error| wrong(path, &error))?;
        if !self.files.insert((there.dev(), there.ino())) {
            return Err(wrong(path, &TWICE));
        }
        // A name may begin with its date.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let date = date.or_else(|| unix_seconds(name.get(..10)?));
        self.undated += usize::from(date.is_none());
        let date = date.or(u64::try_from(there.mtime()).ok());
        self.occasions.push(Occasion {
            date,
            label,
            figure,
        });
        Ok(())
    }

    fn room(&self, path: &Path) -> Result<(), Failure> {
        match self.occasions.len() < MOST_POINTS {
            true => Ok(()),
            false => Err(wrong(path, &format!("more than {MOST_POINTS} occasions"))),
        }
    }
}

/// Returns whether a file is a trace, by how it begins or is named.
fn is_trace(path: &Path) -> bool {
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    (read.is_ok() && begin == *b"PAR1") || path.extension().is_some_and(|end| end == "jsonl")
}

/// Returns whether a document is an explained trace.
fn is_explained(bytes: &[u8]) -> bool {
    let begin = &bytes[..bytes.len().min(200)];
    let schema = explain::SCHEMA.as_bytes();
    bytes.starts_with(b"{") && begin.windows(schema.len()).any(|part| part == schema)
}

/// Explains a trace: where its time went, when it began, and the commit that its labels name.
fn explained(path: &Path) -> Result<(Account, Option<u64>, Option<String>), Failure> {
    let file = input_file::trace(path).map_err(|error| wrong(path, &error))?;
    let mut input = ahead::decoded(Input::new(file).map_err(|error| wrong(path, &error))?);
    let metadata = input.metadata();
    let start = metadata.start.as_deref().and_then(unix_seconds);
    let commit = metadata.labels.get("commit").cloned();
    let options = Options {
        top: 0,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(metadata, options);
    for (number, event) in (1u64..).zip(input.by_ref()) {
        explainer.event(&event.map_err(|error| wrong(path, &error))?);
        if number.is_multiple_of(4_096)
            && let Some(why) = explainer.is_full()
        {
            return Err(wrong(path, &why));
        }
    }
    drop(input); // and the bar
    let account = account(&explainer.finish()).map_err(|why| wrong(path, &why))?;
    Ok((account, start, commit))
}

/// Returns the sums of an explained trace.
fn account(findings: &Findings) -> Result<Account, String> {
    if let Some(why) = &findings.trace.cut_short {
        return Err(format!("it is cut off: {why}"));
    }
    let share = findings.losses.share.unwrap_or(0.0);
    if share > LOSS_LIMIT {
        return Err(format!("{:.0} % of its events were lost", share * 100.0));
    }
    let chains = findings.chains.as_ref();
    let chains = chains.ok_or("it has no scheduling events, so nobody knows who waited")?;
    let path = chains.critical_path.as_ref().map(|path| {
        let mut sum = Sum::default();
        for part in &path.parts {
            sum.add(&part.cause, part.ns as f64);
        }
        sum.all = path.window_ns as f64;
        sum
    });
    let seconds = findings.trace.duration_ns.unwrap_or(0).max(1) as f64 / 1e9;
    let mut lost = Sum::default();
    for waiting in &chains.waiting {
        if waiting.idleness == Idleness::Stalled {
            lost.add(&waiting.cause, waiting.total_ns as f64 / 1e6 / seconds);
        }
    }
    Ok(Account { path, lost })
}

/// Returns the figure of each occasion, and the series of records.
fn history(args: &args::Compare, found: &mut Found) -> Result<(History, Option<String>), Failure> {
    let margin = args.margin.unwrap_or(0.0);
    let kind = |figure: &Figure| match figure {
        Figure::Value(_) => "a value",
        Figure::Runs(_) => "a record",
        Figure::Trace(_) => "a trace",
    };
    if let [first, rest @ ..] = &found.occasions[..]
        && let Some(other) = (rest.iter()).find(|one| kind(&one.figure) != kind(&first.figure))
    {
        return Err(Failure::error(format!(
            "'{}' is {} and '{}' is {}: they have no figure in common",
            plain(&first.label),
            kind(&first.figure),
            plain(&other.label),
            kind(&other.figure)
        )));
    }
    let endpoint = match &args.endpoint[..] {
        [] => None,
        [one] => Some(Endpoint::from(&**one)),
        more => {
            return Err(Failure::error(format!(
                "{} endpoints: a history is of one figure; name one with --endpoint",
                more.len()
            )));
        }
    };
    let mut history = History {
        margin,
        what: "value".to_owned(),
        ..History::default()
    };
    if found.reads.is_empty() {
        if let Some(endpoint) = endpoint {
            return Err(Failure::error(format!(
                "--endpoint {endpoint} is of records: values and traces have one figure"
            )));
        }
        of_accounts(found, &mut history);
        return Ok((history, None));
    }
    let series = of_records(endpoint, found, &mut history)?;
    Ok((history, series))
}

/// The figure of values and traces.
fn of_accounts(found: &mut Found, history: &mut History) {
    let traces = || {
        found.occasions.iter().filter_map(|one| match &one.figure {
            Figure::Trace(account) => Some(account),
            _ => None,
        })
    };
    let whole = traces().all(|account| account.path.is_some());
    if traces().next().is_some() {
        let (what, unit) = match whole {
            true => ("elapsed time", "ns"),
            false => ("time lost waiting", "ms/s"),
        };
        (history.what, history.unit) = (what.to_owned(), unit.to_owned());
    }
    let mut parts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let n = found.occasions.len();
    for (at, one) in found.occasions.drain(..).enumerate() {
        let value = match one.figure {
            Figure::Value(value) => value,
            Figure::Runs(_) => f64::NAN,
            Figure::Trace(Account { path, lost }) => {
                let sum = path.filter(|_| whole).unwrap_or(lost);
                for (cause, amount) in sum.parts {
                    parts.entry(cause).or_insert_with(|| vec![0.0; n])[at] = amount;
                }
                sum.all
            }
        };
        history.points.push(Point {
            date_unix_s: one.date,
            label: one.label,
            value,
        });
    }
    history.causes = parts.into_iter().collect();
}

/// The figure of records: each file counts once, as in a comparison. Returns their series.
fn of_records(
    endpoint: Option<Endpoint>,
    found: &mut Found,
    history: &mut History,
) -> Result<Option<String>, Failure> {
    let mut both = [std::mem::take(&mut found.reads), Vec::new()];
    let passed_over = agree(&mut both, &found.asked)?;
    let [reads, _] = both;
    let called: Vec<(String, &Read)> = reads
        .iter()
        .map(|(file, read)| (file.display().to_string(), read))
        .collect();
    let all: Vec<(&str, &Read)> = called.iter().map(|(name, read)| (&**name, *read)).collect();
    let doubts = compatible(&all).map_err(|error| Failure::error(error.to_string()))?;
    found.warnings.extend(doubts.into_iter().chain(passed_over));
    let mut runs: Vec<Run> = reads
        .iter()
        .map(|(_, read)| Run::of_occasion("", &read.runs))
        .collect();
    let read = &reads[0].1;
    let own = runs[0].numbers.keys().next().cloned();
    let together = read::together(&all.iter().map(|(_, read)| *read).collect::<Vec<_>>());
    for number in &together {
        for (run, value) in runs.iter_mut().zip(&number.values) {
            run.numbers.insert(number.name.clone(), *value);
        }
    }
    let leads = together.first().map(|number| number.name.clone());
    let endpoint = endpoint.unwrap_or(match (leads, runs[0].median, own) {
        (Some(name), ..) | (None, None, Some(name)) => Endpoint::Number(name),
        _ => Endpoint::Median,
    });
    let unit = match &endpoint {
        Endpoint::StallRate => "1/s",
        Endpoint::StallTime => "ms/s",
        Endpoint::Number(name) | Endpoint::Mean(name) => {
            let own = together.iter().find(|number| number.name == *name);
            own.map_or(&read.number_unit, |number| &number.unit)
        }
        _ => &read.unit,
    };
    (history.what, history.unit) = (endpoint.to_string(), unit.to_owned());
    for one in found.occasions.drain(..) {
        let Figure::Runs(place) = one.figure else {
            continue;
        };
        match endpoint.value(&runs[place]) {
            Some(value) => history.points.push(Point {
                date_unix_s: one.date,
                label: one.label,
                value,
            }),
            None => {
                let why = format!("it has no {endpoint}");
                found.missing.push(Missing::new(one.label, why));
            }
        }
    }
    let question = read.question.as_deref();
    Ok(question.and_then(|question| Some(format!("{question}: {}", read.series.first()?))))
}
