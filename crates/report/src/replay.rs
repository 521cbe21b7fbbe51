//! A replay's record, for people.

pub(crate) mod chunks;
mod lead;
mod placement;
mod reclaim;
mod roundtrip;

use stopgap_events::machine::Missing;
use stopgap_stats::replay::Replay;

use crate::screen::Style;
use crate::text::{plain, wrap};

/// The whole record.
#[must_use]
pub fn screen(replay: &Replay, style: Style) -> String {
    if replay.chunks.is_some() {
        chunks::screen(replay, style)
    } else if let Some(setting) = &replay.roundtrip {
        roundtrip::screen(replay, setting, style)
    } else if let Some(setting) = &replay.reclaim {
        reclaim::screen(replay, setting, style)
    } else {
        placement::screen(replay, style)
    }
}

/// What could not be told, once, with how many rows it concerns.
fn notes<'a>(missing: impl Iterator<Item = &'a Missing>, style: Style) -> String {
    let mut notes: Vec<(String, usize)> = Vec::new();
    for missing in missing {
        let said = format!("{} unknown: {}", plain(&missing.what), plain(&missing.why));
        match notes.iter_mut().find(|(text, _)| *text == said) {
            Some((_, count)) => *count += 1,
            None => notes.push((said, 1)),
        }
    }
    notes
        .iter()
        .map(|(said, count)| wrap(&format!("  {count} rows: {said}"), style.width, 2))
        .collect()
}

/// The end of a legend: what stands beside the model, and that it was interrupted.
fn ending(replay: &Replay, beside: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(beside) = beside {
        text.push_str(&format!(
            ". measured: median of the runs (least..most) in {}; factor: modelled over measured",
            plain(beside)
        ));
    }
    if replay.interrupted {
        text.push_str(". Interrupted: less than was planned");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
