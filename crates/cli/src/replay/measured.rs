//! A probe's answer to a question, to stand beside a model's rows.

use std::path::Path;

use stopgap_events::question::Question;
use stopgap_report::text::plain;
use stopgap_stats::record::{Answer, Run};

use crate::failure::Failure;
use crate::input_file;

/// The answer to `question` in the record at `path`.
pub(super) fn measured(path: &Path, question: Question) -> Result<Answer, Failure> {
    let name = plain(&path.display().to_string());
    let failed = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    let text = input_file::whole(path, input_file::LARGEST_RECORD);
    let text = String::from_utf8(text.map_err(|error| failed(&error))?)
        .map_err(|_| failed(&"it is no text, and a record is JSON"))?;
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
