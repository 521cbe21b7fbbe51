//! One file's runs: a number a line, each a run.

use std::collections::BTreeMap;

use stopgap_events::machine::Environment;
use stopgap_stats::compare::Run;

/// What one file holds.
pub(super) struct Read {
    /// What kind of file it is.
    pub(super) kind: &'static str,
    /// What was asked; files of different questions are not compared.
    pub(super) question: Option<String>,
    /// Unit of quantiles.
    pub(super) unit: String,
    /// Unit of numbers.
    pub(super) number_unit: String,
    /// What must be equal on both sides.
    pub(super) parameters: BTreeMap<String, String>,
    /// The machine, where the file says it.
    pub(super) environment: Option<Environment>,
    /// The runs.
    pub(super) runs: Vec<Run>,
}

/// Reads one number a line; what follows a number sign is passed over.
pub(super) fn read(_name: &str, bytes: &[u8]) -> Result<Read, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("no text: {error}"))?;
    let mut runs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let value: f64 = word.parse().map_err(|_| {
            let word: String = word.chars().take(40).collect();
            format!("line {number}: '{word}' is no number")
        })?;
        if !value.is_finite() {
            return Err(format!("line {number}: {value} cannot be compared"));
        }
        runs.push(Run::of_number(format!("line {number}"), "value", value));
    }
    Ok(Read {
        kind: "numbers",
        question: None,
        unit: "ns".to_owned(),
        number_unit: String::new(),
        parameters: BTreeMap::new(),
        environment: None,
        runs,
    })
}
