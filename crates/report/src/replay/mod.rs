//! A replay's record, for people.

mod placement;

use stopgap_stats::replay::Replay;

use crate::screen::Style;

/// The whole record.
#[must_use]
pub fn screen(replay: &Replay, style: Style) -> String {
    placement::screen(replay, style)
}
