//! What must hold of the channel.

use std::fmt;

use stopgap_events::units::Nanos;
use stopgap_probes::roundtrip::Cpus;

use super::death::Death;
use super::table::{Row, socket};
use stopgap_cli::fixes::channel::Cell;

/// Switches a round trip on one CPU: there and back. To two digits; a few of a run's are of other tasks' making.
const ONE_CPU: f64 = 2.00;
/// On two.
const TWO_CPUS: f64 = 0.1;
/// Latency, of the socket's, on one CPU and on two.
const OF_SOCKET: [f64; 2] = [0.7, 0.1];
/// Wake-ups for 32 replies.
const WAKES: f64 = 1.0;
/// Beyond `idle`, what a busy machine may add until the death of a peer is known.
const LATE: Nanos = Nanos::millis(100);

/// What must hold, and whether it does.
pub(super) struct Bound {
    holds: bool,
    text: String,
}

impl Bound {
    pub(super) fn holds(&self) -> bool {
        self.holds
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds " } else { "BROKEN" };
        write!(f, "{word}  {}", self.text)
    }
}

/// Whether a bound speaks of the cell.
pub(super) fn judges(cell: &Cell) -> bool {
    cell.cpus != Cpus::Free && (cell.work == Nanos(0) || cell.batch > 1)
}

/// To the two digits that are printed.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// All bounds of what was measured. A figure that is not known is no bound kept.
pub(super) fn of(rows: &[Row], deaths: &[Death]) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let mut bound = |value: Option<f64>, most: f64, name: String| {
        let said = value.map_or("not known".to_owned(), |value| format!("{value:.3}"));
        bounds.push(Bound {
            holds: value.is_some_and(|value| value <= most),
            text: format!("{name}: {said} (at most {most})"),
        });
    };
    for row in rows.iter().filter(|row| judges(&row.cell)) {
        let Cell { cpus, work, batch } = row.cell;
        let (cpus, switches, of_socket) = match cpus {
            Cpus::One => ("one CPU", ONE_CPU, OF_SOCKET[0]),
            _ => ("two CPUs", TWO_CPUS, OF_SOCKET[1]),
        };
        if batch > 1 {
            let name =
                format!("{cpus}, work {work}: wake-ups for {batch} replies, most of any run");
            bound(row.wakes().map(|[_, most]| rounded(most)), WAKES, name);
            continue;
        }
        let name = format!("{cpus}, work {work}: switches a round trip");
        bound(row.switches(0).map(rounded), switches, name);
        let ratio = row.ratio(socket(&row.cell)).map(|(value, _)| value);
        bound(
            ratio,
            of_socket,
            format!("{cpus}, work {work}: latency, of the socket's"),
        );
    }
    let ms = |time: Nanos| time.0 as f64 / 1e6;
    for death in deaths {
        let most = death.seen.iter().copied().max();
        bound(
            most.map(ms),
            ms(death.idle + LATE),
            format!(
                "killed {} into the wait, idle {}: known after, ms, most of any run",
                death.waited, death.idle
            ),
        );
    }
    bounds
}
