//! A replay's record, for people.

pub(crate) mod chunks;
mod lead;
mod placement;
mod reclaim;
mod roundtrip;

use stopgap_stats::replay::Replay;

use crate::screen::Style;

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

#[cfg(test)]
pub(crate) mod tests;
