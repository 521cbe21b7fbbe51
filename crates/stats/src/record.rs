//! The run record: one run (a process or a boot) with its question, its machine, its measurements and their answer.
//! JSON, versioned by [`SCHEMA`]. Within a version it only grows, so a reader skips fields that it does not know.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Counter, Environment, Missing, Now, Privilege};
use stopgap_events::question::Question;
use thiserror::Error;

use crate::document::schema_named_in;
use crate::fix::Fix;
use crate::histogram::Histogram;
use crate::overall::Overall;
use crate::quantile::median;
use crate::verdict::{Verdict, Word};

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.run/1";

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Length of the run in milliseconds.
    pub duration_ms: u64,
    /// Seed of every random choice.
    pub seed: u64,
    /// Memory that the probes were allowed to use, in bytes.
    pub memory_budget: u64,
    /// The machine.
    pub environment: Environment,
    /// Counters of the machine before any load; absent where they were not read.
    pub now: Option<Now>,
    /// One answer for each question.
    pub answers: Vec<Answer>,
    /// The result over all answers (`check`); absent in records of other commands and before 0.2.0.
    #[serde(default)]
    pub verdict: Option<Overall>,
    /// Whether it was interrupted: the figures are measured, but fewer than planned.
    pub interrupted: bool,
    /// Peak resident memory of the tool and of its largest load child together, in bytes; absent where it is unknown.
    pub peak_memory: Option<u64>,
}

/// Reason for which a document cannot be read as a run record.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Invalid JSON, a missing field, or a field of the wrong kind. The message ends with line and column, from 1.
    #[error("not a run record: {0}")]
    Json(#[from] serde_json::Error),
    /// A document of another kind, or of a version that this program does not know.
    #[error("the document's schema is '{found}', expected '{SCHEMA}'")]
    Schema {
        /// Its schema.
        found: String,
    },
}

impl Run {
    /// Reads a record.
    ///
    /// Text from disk may be anything; memory taken is at most some 4,000 times its size (see
    /// [`Histogram`]).
    ///
    /// # Errors
    /// [`RecordError`], which names the place.
    pub fn from_json(text: &str) -> Result<Run, RecordError> {
        let schema = schema_named_in(text)?;
        if schema != SCHEMA {
            // A name from disk is cut to a recognisable length.
            let found = schema.chars().take(80).collect();
            return Err(RecordError::Schema { found });
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// The parameters of the probe, by the names of its flags.
    pub parameters: BTreeMap<String, Parameter>,
    /// The answer in words.
    pub verdict: Verdict,
    /// The answer as a number, if there is one.
    pub figure: Option<Figure>,
    /// Short sentences that support the verdict, most important first. The first one is shown beside the verdict on
    /// the first screen.
    pub evidence: Vec<String>,
    /// The command or the change that would help, if the evidence names one.
    pub advice: Vec<String>,
    /// Privilege of the measurement.
    pub privilege: Privilege,
    /// The measurements.
    pub series: Vec<Series>,
    /// Counters, by name.
    pub counters: Vec<Counter>,
    /// Losses (ring-buffer overruns, missed periods), by name; an explicit zero where nothing was lost.
    pub losses: Vec<Counter>,
    /// Figures that could not be measured, and why.
    pub missing: Vec<Missing>,
    /// Fixes for the question and their effect here, tried in the same run, the leading one first. `check` tries
    /// them.
    #[serde(default)]
    pub fixes: Vec<Fix>,
}

impl Answer {
    /// Returns whether the question was answered: there is a figure, and the verdict is not that this machine cannot
    /// tell.
    #[must_use]
    pub fn answered(&self) -> bool {
        let figures = self.series.iter().any(|series| !series.blocks.is_empty());
        figures && self.verdict.word != Word::Unsupported
    }
}

/// Makes the parameters of an answer or a series from names and values.
#[must_use]
pub fn parameters<const N: usize>(pairs: [(&str, Parameter); N]) -> BTreeMap<String, Parameter> {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A parameter's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// A count, or a size in the unit of its name.
    Number(u64),
    /// A word.
    Word(String),
}

impl From<u64> for Parameter {
    fn from(number: u64) -> Parameter {
        Parameter::Number(number)
    }
}
impl From<u32> for Parameter {
    fn from(number: u32) -> Parameter {
        Parameter::Number(u64::from(number))
    }
}
impl From<&str> for Parameter {
    fn from(word: &str) -> Parameter {
        Parameter::Word(word.to_owned())
    }
}
impl From<String> for Parameter {
    fn from(word: String) -> Parameter {
        Parameter::Word(word)
    }
}

/// A number with its unit and its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// The estimate.
    pub value: f64,
    /// Its unit, as `us`, `switches/rt`, `x`.
    pub unit: String,
    /// Lower end of its 95 % interval; absent where the data gives no bound.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval; absent where the data gives no bound.
    pub high: Option<f64>,
}

impl Figure {
    /// Returns a number without interval.
    #[must_use]
    pub fn new(value: f64, unit: &str) -> Figure {
        Figure {
            value,
            unit: unit.to_owned(),
            low: None,
            high: None,
        }
    }

    /// Returns the number with its interval.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Figure {
        Figure {
            low: Some(low),
            high: Some(high),
            ..self
        }
    }
}

/// Measurements of one quantity under one set of parameters, one block per run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The quantity, as `map`, `first touch`, `switches`.
    pub name: String,
    /// Unit of every number in it, as `ns`, `switches/rt`.
    pub unit: String,
    /// Parameters, as `n`, `backend`, `cpus`.
    pub parameters: BTreeMap<String, Parameter>,
    /// The runs; empty where [`Series::error`] gives the reason.
    pub blocks: Vec<Block>,
    /// Reason why there is no number. A failed step is an error here, never a number.
    pub error: Option<String>,
}

impl Series {
    /// Returns the series of these blocks, or of none.
    #[must_use]
    pub fn new(
        name: &str,
        unit: &str,
        parameters: &BTreeMap<String, Parameter>,
        blocks: impl IntoIterator<Item = Block>,
    ) -> Series {
        Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            parameters: parameters.clone(),
            blocks: blocks.into_iter().collect(),
            error: None,
        }
    }

    /// Returns whether the series has this name and all of these parameters, perhaps among others.
    #[must_use]
    pub fn is(&self, name: &str, parameters: &[(&str, Parameter)]) -> bool {
        let has = |(key, value): &(&str, Parameter)| self.parameters.get(*key) == Some(value);
        self.name == name && parameters.iter().all(has)
    }

    /// Returns the runs' figures.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        self.blocks.iter().map(|block| block.value).collect()
    }

    /// Returns the parameter of that name, if it is a word.
    #[must_use]
    pub fn word(&self, parameter: &str) -> Option<&str> {
        match self.parameters.get(parameter)? {
            Parameter::Word(word) => Some(word),
            Parameter::Number(_) => None,
        }
    }

    /// Returns the parameter of that name, if it is a number.
    #[must_use]
    pub fn number(&self, parameter: &str) -> Option<u64> {
        match self.parameters.get(parameter)? {
            Parameter::Number(number) => Some(*number),
            Parameter::Word(_) => None,
        }
    }

    /// Returns the median of the runs' figures; `None` without runs.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        median(self.values())
    }

    /// Returns the least and the greatest of the runs' figures; `None` without runs.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        let values = self.blocks.iter().map(|block| (block.value, block.value));
        values.reduce(|(least, most), (value, _)| (least.min(value), most.max(value)))
    }

    /// Returns all samples of a latency over all runs; empty for other quantities.
    #[must_use]
    pub fn pooled(&self) -> Histogram {
        let mut pooled = Histogram::new();
        for histogram in self.blocks.iter().filter_map(|b| b.histogram.as_ref()) {
            pooled.merge(histogram);
        }
        pooled
    }
}

/// The part of a series from one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Number of the run within the process, from 0. Blocks with the same number were measured in the same run.
    pub run: u32,
    /// When it began, nanoseconds on the monotonic clock.
    pub start_ns: u64,
    /// Number of samples.
    pub samples: u64,
    /// The run's figure: the median of a latency, the mean of a count. In the series' unit.
    pub value: f64,
    /// All samples of a latency, in nanoseconds.
    pub histogram: Option<Histogram>,
    /// Samples above the threshold, as episodes; a count has none.
    pub stalls: Option<Stalls>,
}

impl Block {
    /// Returns a block without samples of a latency: a count or a mean.
    #[must_use]
    pub fn number(run: u32, start_ns: u64, samples: u64, value: f64) -> Block {
        Block {
            run,
            start_ns,
            samples,
            value,
            histogram: None,
            stalls: None,
        }
    }
}

/// Stall episodes of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// Nanoseconds from which a sample is a stall.
    pub threshold_ns: u64,
    /// The first [`Stalls::KEPT`] episodes.
    pub episodes: Vec<Stall>,
    /// Number of all episodes.
    pub count: u64,
}

impl Stalls {
    /// Most episodes that are kept per block: enough to see when, not enough to fill a disk.
    pub const KEPT: usize = 100;
}

/// One stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Its begin, nanoseconds on the monotonic clock.
    pub start_ns: u64,
    /// Its length in nanoseconds.
    pub length_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::histogram::Recorder;
    use crate::verdict::Word;

    /// A record with something in every part that this crate defines.
    fn run() -> Run {
        let environment = json!({
            "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
            "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
        });
        let mut recorder = Recorder::new(1_000_000);
        recorder.record(10, 3_600);
        recorder.record(20_000, 2_000_000);
        recorder.record(3_000_000, 3_800);
        Run {
            schema: SCHEMA.to_owned(),
            version: "0.1.0".to_owned(),
            command: vec!["stopgap".to_owned(), "check".to_owned()],
            started_unix_s: 1_700_000_000,
            duration_ms: 61_000,
            seed: u64::MAX,
            memory_budget: 2 << 30,
            environment: serde_json::from_value(environment).expect("all options may be absent"),
            now: None,
            answers: vec![Answer {
                question: Question::Placement,
                parameters: BTreeMap::from([
                    ("workload".to_owned(), "pbobench".into()),
                    ("runs".to_owned(), 5u32.into()),
                ]),
                verdict: Verdict::new(Word::Flat, "flat 1.2x (1.1..1.3)"),
                figure: Some(Figure {
                    value: 1.2,
                    unit: "x".to_owned(),
                    low: Some(1.1),
                    high: None,
                }),
                evidence: vec!["3.6 -> 4.1 us per map".to_owned()],
                advice: Vec::new(),
                privilege: Privilege::None,
                series: vec![Series {
                    name: "map".to_owned(),
                    unit: "ns".to_owned(),
                    parameters: BTreeMap::from([("n".to_owned(), 1_000u64.into())]),
                    blocks: recorder.into_block(0, 5).into_iter().collect(),
                    error: None,
                }],
                counters: vec![Counter {
                    name: "maps".to_owned(),
                    value: 3,
                }],
                losses: Vec::new(),
                missing: vec![Missing::new("first touch", "no memory cgroup")],
                fixes: Vec::new(),
            }],
            verdict: None,
            interrupted: false,
            peak_memory: Some(1 << 20),
        }
    }

    #[test]
    fn a_record_reads_back() {
        let run = run();
        let again = Run::from_json(&run.to_json()).expect("reads back");
        assert_eq!(again, run);
        let block = &again.answers[0].series[0].blocks[0];
        let stalls = block.stalls.as_ref().expect("a latency");
        assert_eq!((block.samples, stalls.count), (3, 1));
    }

    #[test]
    fn a_field_of_a_later_version_is_passed_over() {
        let mut value = serde_json::to_value(run()).expect("serialises");
        value["colour"] = json!("green");
        assert_eq!(Run::from_json(&value.to_string()).expect("reads"), run());
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let good = run().to_json();
        for (text, error) in [
            (
                good.replace(SCHEMA, "stopgap.replay/1"),
                "the document's schema is 'stopgap.replay/1', expected 'stopgap.run/1'",
            ),
            (
                r#"{"schema": "stopgap.run/2"}"#.to_owned(),
                "the document's schema is 'stopgap.run/2', expected 'stopgap.run/1'",
            ),
            (
                r#"{"schema": "stopgap.run/1"}"#.to_owned(),
                "not a run record: missing field `version` at line 1 column 27",
            ),
            (
                "{\n\"schema\": 7}".to_owned(),
                "not a run record: invalid type: integer `7`, expected a string at line 2 column 11",
            ),
            (
                String::new(),
                "not a run record: EOF while parsing a value at line 1 column 0",
            ),
            (
                good.replace("HIST", "!!!!"),
                "not a run record: not a histogram: not base64: Invalid symbol 33, offset 0. at \
                 line 91",
            ),
        ] {
            let shown = Run::from_json(&text).expect_err(error).to_string();
            assert!(shown.starts_with(error), "{shown}\nexpected {error}");
        }
    }

    #[test]
    fn a_series_is_read_by_its_parameters_and_as_a_whole() {
        let block = |run: u32, ns: u64| {
            let mut recorder = Recorder::new(u64::MAX);
            recorder.record(0, ns);
            recorder.into_block(run, 0).expect("a sample")
        };
        let series = Series {
            name: "map".to_owned(),
            unit: "ns".to_owned(),
            parameters: BTreeMap::from([
                ("n".to_owned(), 7u64.into()),
                ("backend".to_owned(), "memfd".into()),
            ]),
            blocks: vec![block(0, 30), block(1, 10), block(2, 20)],
            error: None,
        };
        assert_eq!((series.number("n"), series.word("n")), (Some(7), None));
        assert_eq!(series.word("backend"), Some("memfd"));
        assert_eq!((series.number("backend"), series.number("k")), (None, None));
        assert_eq!(series.median(), Some(20.0));
        assert_eq!(series.pooled().len(), 3);
    }

    #[test]
    fn the_schema_describes_the_record() {
        let schema = Run::schema();
        assert_eq!(schema["title"], "Run");
        let properties = schema["properties"].as_object().expect("an object");
        let run = serde_json::to_value(run()).expect("serialises");
        for field in run.as_object().expect("an object").keys() {
            assert!(properties.contains_key(field), "{field}");
        }
        assert_eq!(schema["$defs"]["Histogram"]["type"], "string");
    }

    /// Puts `with` in the place of the `at`-th value within `value`, counted in depth.
    fn replace(value: &mut Value, at: &mut usize, with: &Value) {
        if *at == 0 {
            *value = with.clone();
        }
        *at = at.wrapping_sub(1);
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| replace(item, at, with)),
            Value::Object(fields) => fields.values_mut().for_each(|item| replace(item, at, with)),
            _ => {}
        }
    }

    fn hostile() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            json!(null),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!(1e308),
            json!(""),
            json!("HISTEwAAAAkAAAAAAAAAAwAAAAAAAAABAAAAAAAAAAI/8AAAAAAAAP///////////w=="),
            json!([]),
            json!({}),
            json!([[[[1]]]]),
        ])
    }

    proptest! {
        #[test]
        fn hostile_values_never_panic(at in 0usize..150, with in hostile()) {
            let mut value = serde_json::to_value(run()).expect("serialises");
            let mut left = at;
            replace(&mut value, &mut left, &with);
            if let Ok(run) = Run::from_json(&value.to_string()) {
                // An accepted document can be written, and is the same when it is read.
                prop_assert_eq!(Run::from_json(&run.to_json()).expect("reads back"), run);
            }
        }

        #[test]
        fn hostile_text_never_panics(cut in any::<prop::sample::Index>(), byte in any::<u8>(), text in ".{0,200}") {
            let _ = Run::from_json(&text);
            let mut bytes = run().to_json().into_bytes();
            let at = cut.index(bytes.len());
            let _ = Run::from_json(&String::from_utf8_lossy(&bytes[..at]));
            bytes[at] = byte;
            let _ = Run::from_json(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn numbers_keep_every_bit(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            let mut run = run();
            run.answers[0].series[0].blocks[0].value = value;
            let again = Run::from_json(&run.to_json()).expect("reads back");
            prop_assert_eq!(again.answers[0].series[0].blocks[0].value.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = "[".repeat(100_000);
        assert!(Run::from_json(&deep).is_err());
        assert!(
            Run::from_json(&format!("{{\"schema\": \"stopgap.run/1\", \"x\": {deep}")).is_err()
        );
    }
}
