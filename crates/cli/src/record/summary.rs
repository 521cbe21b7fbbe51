//! A summary of a recording, in a few lines.

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_events::order::SortRows;
use stopgap_report::text::{command_line, plain, wrap};
use stopgap_stats::explain::KERNEL_EVENTS;
use stopgap_trace::Metadata;

use super::{Done, Finish};
use crate::places;

/// The kind of the rows that say when a thread was off its CPU, and why.
const WAIT: &str = "wait";

/// Columns of a line's text.
const WIDTH: u16 = 70;

/// The summary of the recording in the file `path`; `done` says how it ended, where that is known.
pub(super) fn text(
    metadata: &Metadata,
    counts: &BTreeMap<String, u64>,
    done: Option<&Done>,
    path: &Path,
) -> String {
    let mut lines = Vec::new();
    let mut line = |what: &str, text: &str| {
        let text = wrap(&plain(text), WIDTH, 0);
        let text = text.trim_end().replace('\n', &format!("\n{:10}", ""));
        lines.push(format!("{what:<10}{text}\n"));
    };
    let source = metadata.source.as_deref().unwrap_or("unknown");
    line("recorded", source);
    if let Some(done) = done {
        line(
            "ended",
            &format!("{} after {}", end(&done.finish), done.took),
        );
        if let Some(pid) = done.goes_on {
            line(
                "command",
                &format!("goes on as process {pid}, not recorded"),
            );
        }
    }
    if let Some(waits) = counts.get(WAIT) {
        line("waits", &waits.to_string());
    }
    let mut kinds: Vec<_> = counts.iter().filter(|(word, _)| *word != WAIT).collect();
    let total: u64 = kinds.iter().map(|(_, count)| **count).sum();
    kinds.sort_rows_by_key(|&(word, count)| (std::cmp::Reverse(*count), word.as_str()));
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(word, count)| format!("{word} {count}"))
        .collect();
    line("events", &format!("{total}: {}", kinds.join(", ")));
    match metadata.losses.as_deref() {
        None => line("lost", "unknown"),
        Some([]) => line("lost", "none"),
        Some(losses) => {
            let losses = losses
                .iter()
                .map(|loss| format!("{} of {}", loss.count, loss.what));
            let losses = losses.collect::<Vec<_>>().join(", ");
            line("lost", &format!("{losses}; a larger --buffer loses fewer"));
        }
    }
    for missing in &metadata.missing {
        line("missing", &format!("{}: {}", missing.what, missing.why));
    }
    if (metadata.missing.iter()).any(|missing| missing.what == KERNEL_EVENTS) {
        line(
            "more",
            "as root it records nearly all that is missing: sudo stopgap record ...",
        );
    }
    // A path is there to be copied: it is not broken.
    let path = path.display().to_string();
    lines.push(format!("{:<10}{}\n", "trace", plain(&path)));
    let words = ["stopgap".to_owned(), "explain".to_owned(), path];
    // The trace is root's.
    let sudo = if places::is_by_sudo() { "sudo " } else { "" };
    let next = format!("{sudo}{}", command_line(&words));
    lines.push(format!("{:<10}{}\n", "next", plain(&next)));
    lines.concat()
}

fn end(finish: &Finish) -> String {
    match finish {
        Finish::Ended(None) => "what was recorded ended".to_owned(),
        Finish::Ended(Some(ended)) => {
            let how = match ended.how {
                Ok(status) => format!("the command ended with status {status}"),
                Err(signal) => format!("the command was killed by signal {signal}"),
            };
            let switches = ended.switches;
            format!(
                "{how}, {} voluntary and {} involuntary switches by its rusage,",
                switches.voluntary, switches.involuntary
            )
        }
        Finish::Time => "its time was over".to_owned(),
        Finish::Interrupted => "interrupted".to_owned(),
        Finish::Cut(why) => format!("cut off: {why}"),
    }
}
