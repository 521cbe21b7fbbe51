//! What a probe's record says of a question, to stand beside a model's rows.

use std::fs;
use std::io::Read;
use std::path::Path;

use stopgap_events::question::Question;
use stopgap_report::text::plain;
use stopgap_stats::record::{Answer, Run};

use crate::failure::Failure;
use crate::input_file;

/// Most bytes of a record: a matrix of a few hundred cells is some 10 MB.
const MOST_RECORD: u64 = 256 << 20;

/// The answer to `question` in the record at `path`.
pub(super) fn measured(path: &Path, question: Question) -> Result<Answer, Failure> {
    let name = plain(&path.display().to_string());
    let failed = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    let mut text = String::new();
    let file = input_file::open(path).map_err(|error| failed(&error))?;
    let length = fs::metadata(path).map_err(|error| failed(&error))?.len();
    if length > MOST_RECORD {
        return Err(failed(&"more than a run record ever is"));
    }
    file.take(MOST_RECORD)
        .read_to_string(&mut text)
        .map_err(|error| failed(&error))?;
    let run = Run::from_json(&text).map_err(|error| failed(&error))?;
    let answers = run.answers.into_iter();
    answers
        .filter(|answer| answer.question == question)
        .reduce(|first, _| first)
        .ok_or_else(|| {
            let without =
                format!("a run record without {question}; make one with stopgap probe {question}");
            failed(&without)
        })
}
