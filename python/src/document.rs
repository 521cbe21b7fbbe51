//! The command's documents: as JSON, as tables, as text and as a page.

use std::collections::BTreeMap;
use std::ffi::OsString;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stopgap_cli::library::{self, Compared};
use stopgap_events::machine::Missing;
use stopgap_events::question::Question;
use stopgap_report::explain::{Show, screen};
use stopgap_report::html::{self, Source};
use stopgap_report::{Style, moved};
use stopgap_stats::compare::Comparison;
use stopgap_stats::compare::moved::Moved;
use stopgap_stats::document::Document as _;
use stopgap_stats::explain::{Explain, Idleness, Waiting};
use stopgap_stats::record::Parameter;
use stopgap_stats::replay::{Beside, Replay, RoundtripRow, Row};

use crate::call::{Noted, guarded, of_command};
use crate::table::Table;

/// A document of the command.
#[pyclass(frozen, module = "stopgap._stopgap")]
pub(crate) struct Document {
    json: String,
    kind: Kind,
    /// Why the trace was not read to its end.
    #[pyo3(get)]
    damaged: Option<String>,
}

enum Kind {
    Explain(Box<Explain>),
    Replay(Box<Replay>),
    Compare(Box<Comparison>),
    Moved(Box<Moved>),
}

impl Document {
    fn whole(json: String, kind: Kind) -> Document {
        Document {
            json,
            kind,
            damaged: None,
        }
    }
}

/// Does what `stopgap explain` does, by the words of its command line, and notes.
#[pyfunction]
pub(crate) fn explain(py: Python<'_>, words: Vec<OsString>) -> PyResult<Noted<Document>> {
    let (explained, notes) = of_command(py, move || library::explain(&words))?;
    let document = Document {
        json: explained.document.to_json(),
        kind: Kind::Explain(Box::new(explained.document)),
        damaged: explained.damaged,
    };
    Ok((document, notes))
}

/// Does what `stopgap replay` does, by the words of its command line, and notes.
#[pyfunction]
pub(crate) fn replay(py: Python<'_>, words: Vec<OsString>) -> PyResult<Noted<Document>> {
    let (replay, notes) = of_command(py, move || library::replay(&words))?;
    Ok((
        Document::whole(replay.to_json(), Kind::Replay(Box::new(replay))),
        notes,
    ))
}

/// Does what `stopgap compare` does, by the words of its command line, and notes.
#[pyfunction]
pub(crate) fn compare(py: Python<'_>, words: Vec<OsString>) -> PyResult<Noted<Document>> {
    let (compared, notes) = of_command(py, move || library::compare(&words))?;
    let document = match compared {
        Compared::Runs(runs) => Document::whole(runs.to_json(), Kind::Compare(runs)),
        Compared::Traces(moved) => Document::whole(moved.to_json(), Kind::Moved(moved)),
    };
    Ok((document, notes))
}

/// Returns what `stopgap ministat` prints, by the words of its command line, and notes.
#[pyfunction]
pub(crate) fn ministat(py: Python<'_>, words: Vec<OsString>) -> PyResult<Noted<String>> {
    of_command(py, move || library::ministat(&words))
}

#[pymethods]
impl Document {
    /// The document as the command prints it with `--json`, without the line feed at the end.
    fn json(&self) -> &str {
        &self.json
    }

    /// The table of that name.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        guarded(py, || match &self.kind {
            Kind::Explain(explain) => of_explain(explain, name),
            Kind::Replay(replay) => of_replay(replay, name),
            Kind::Compare(comparison) => match name {
                "figures" => Table::of_rows(&comparison.endpoints),
                "environment" => Table::of_rows(&comparison.environment),
                _ => Err(none(name)),
            },
            Kind::Moved(moved) => match name {
                "figures" => Table::of_rows(&moved.figures),
                "environment" => Table::of_rows(&moved.environment),
                _ => Err(none(name)),
            },
        })
    }

    /// Returns what the command shows on a terminal of `width` columns without colour.
    fn text(&self, py: Python<'_>, width: u16, verbose: bool) -> PyResult<String> {
        let style = Style {
            width,
            colour: false,
            verbose,
        };
        guarded(py, || {
            Ok(match &self.kind {
                Kind::Explain(explain) => {
                    let show = if verbose { Show::All } else { Show::Story };
                    screen(&explain.findings, style, show)
                }
                Kind::Replay(it) => stopgap_report::replay::screen(it, style),
                Kind::Compare(it) => stopgap_report::compare::screen(
                    it,
                    &stopgap_report::compare::Beside::default(),
                    style,
                ),
                Kind::Moved(it) => moved::screen(it, None, style),
            })
        })
    }

    /// Returns the page of `stopgap report`: HTML that loads nothing and runs nothing.
    fn page(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        guarded(py, || {
            let document = match &self.kind {
                Kind::Explain(it) => html::Document::Explain(it.clone()),
                Kind::Replay(it) => html::Document::Replay(it.clone()),
                Kind::Compare(it) => html::Document::Compare(it.clone()),
                Kind::Moved(it) => html::Document::Other(Box::new(html::moved::record(it, name))),
            };
            let name = name.to_owned();
            Ok(html::page(&[Source { name, document }]))
        })
    }
}

fn none(name: &str) -> PyErr {
    PyKeyError::new_err(name.to_owned())
}

fn of_replay(replay: &Replay, name: &str) -> PyResult<Table> {
    let rows = &replay.rows;
    match (name, replay.question) {
        ("growth", _) => Table::of_rows(&replay.growth),
        ("rows", Question::Placement) => of_some(rows.iter().filter_map(Row::placement)),
        ("rows", Question::Chunks) => of_some(rows.iter().filter_map(Row::chunks)),
        ("rows", Question::Roundtrip) => {
            let rows = rows.iter().filter_map(Row::roundtrip).map(RoundTrips::from);
            Table::of_rows(&rows.collect::<Vec<_>>())
        }
        _ => Err(none(name)),
    }
}

fn of_some<'r, T>(rows: impl Iterator<Item = &'r T>) -> PyResult<Table>
where
    T: Clone + Serialize + DeserializeOwned + 'r,
{
    Table::of_rows(&rows.cloned().collect::<Vec<T>>())
}

fn of_explain(explain: &Explain, name: &str) -> PyResult<Table> {
    let findings = &explain.findings;
    let chains = findings.chains.as_ref();
    match name {
        "stalls" => Table::of_rows(&findings.slow),
        "waits" => {
            let waiting = chains.map(|chains| &chains.waiting);
            let rows = waiting.into_iter().flatten().map(Wait::from);
            Table::of_rows(&rows.collect::<Vec<_>>())
        }
        "blame" => Table::of_rows(chains.map_or(&[][..], |chains| &chains.blame)),
        "round_trips" => Table::of_rows(&findings.switches.pairs),
        "tasks" => Table::of_rows(&findings.tasks),
        "calls" => Table::of_rows(&findings.calls),
        _ => Err(none(name)),
    }
}

/// Waits of threads of one name for one thing, without the tree below them.
#[derive(Serialize, Deserialize)]
struct Wait {
    task: String,
    threads: u64,
    cause: String,
    text: String,
    call: Option<String>,
    place: Option<String>,
    idleness: Idleness,
    waits: u64,
    total_ns: u64,
    longest_ns: u64,
    longest_at_ns: u64,
    longest_tid: u32,
    /// The word of what was behind most of the time.
    behind: Option<String>,
    /// The thread that was.
    behind_task: Option<String>,
    /// The share of the time that it was, 0 to 1.
    behind_share: Option<f64>,
}

impl From<&Waiting> for Wait {
    fn from(waiting: &Waiting) -> Wait {
        let behind = waiting.links.first();
        Wait {
            task: waiting.task.clone(),
            threads: waiting.threads,
            cause: waiting.cause.clone(),
            text: waiting.text.clone(),
            call: waiting.call.clone(),
            place: waiting.place.clone(),
            idleness: waiting.idleness,
            waits: waiting.waits,
            total_ns: waiting.total_ns,
            longest_ns: waiting.longest_ns,
            longest_at_ns: waiting.longest_at_ns,
            longest_tid: waiting.longest_tid,
            behind: behind.map(|link| link.cause.clone()),
            behind_task: behind.and_then(|link| link.task.clone()),
            behind_share: behind.map(|link| link.share),
        }
    }
}

/// A row of a replay of `roundtrip`, with its parameters as text: a column has one type.
#[derive(Serialize, Deserialize)]
struct RoundTrips {
    workload: String,
    policy: String,
    n: Option<u64>,
    operations: u64,
    parameters: BTreeMap<String, String>,
    switches_per_request: Option<f64>,
    switches_p50: Option<u32>,
    switches_p90: Option<u32>,
    causes: BTreeMap<String, f64>,
    data_wakes: Option<f64>,
    room_wakes: Option<f64>,
    cpu_us: Option<f64>,
    measured: Option<Beside>,
    missing: Vec<Missing>,
}

impl From<&RoundtripRow> for RoundTrips {
    fn from(row: &RoundtripRow) -> RoundTrips {
        let row = row.clone();
        let text = |(name, value)| match value {
            Parameter::Number(number) => (name, number.to_string()),
            Parameter::Word(word) => (name, word),
        };
        RoundTrips {
            workload: row.workload,
            policy: row.policy,
            n: row.n,
            operations: row.operations,
            parameters: row.parameters.into_iter().map(text).collect(),
            switches_per_request: row.switches_per_request,
            switches_p50: row.switches_p50,
            switches_p90: row.switches_p90,
            causes: row.causes,
            data_wakes: row.data_wakes,
            room_wakes: row.room_wakes,
            cpu_us: row.cpu_us,
            measured: row.measured,
            missing: row.missing,
        }
    }
}
