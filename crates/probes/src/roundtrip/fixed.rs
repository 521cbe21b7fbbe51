//! A given number of round trips and what they cost: what the cost of looking on is measured with.

use serde::{Deserialize, Serialize};
use stopgap_events::roundtrip::Cell;
use stopgap_events::units::Nanos;
use stopgap_kernel::tasks::Switches;
use stopgap_kernel::{Error, System};

use super::client::Order;
use super::run;

/// Costs of the round trips, client and server together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// How many there were.
    pub round_trips: u64,
    /// By the wall clock.
    pub elapsed: Nanos,
    /// CPU time, user and system.
    pub cpu: Nanos,
    /// Switch-outs by getrusage(2).
    pub switches: Switches,
}

/// Carries out `round_trips` of `cell`, after a few that do not count. Client and server are
/// children of the caller, on CPUs of `cpus` (the server's first) as the cell says.
///
/// # Errors
/// What the system refuses, and where one of the two ends early or takes half an hour.
pub fn fixed(
    system: &dyn System,
    cell: &Cell,
    cpus: &[u32],
    round_trips: u64,
) -> Result<Cost, Error> {
    let order = Order {
        cell,
        run: 0,
        share: Nanos::secs(180), // both are killed after ten times that
        most: round_trips,
        interrupted: &|| false,
    };
    let (server, client) = run::fixed_pair(system, &order, cpus)?;
    let both = |of: fn(&Switches) -> u64| of(&client.window.rusage) + of(&server.rusage);
    Ok(Cost {
        round_trips: client.round_trips,
        elapsed: client.elapsed,
        cpu: client.window.cpu + server.cpu,
        switches: Switches {
            voluntary: both(|switches| switches.voluntary),
            involuntary: both(|switches| switches.involuntary),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::Linux;

    #[test]
    fn as_many_round_trips_as_asked_are_counted() {
        use stopgap_kernel::tasks::Tasks;
        let cpus = Linux.cpus().unwrap();
        let cost = fixed(&Linux, &Cell::PLAIN, &cpus, 500).unwrap();
        assert_eq!(cost.round_trips, 500);
        // Each of the two waits for the other every time, on one CPU.
        assert!(cost.switches.total() >= 990, "{cost:?}");
        assert!(
            cost.cpu > Nanos(0) && cost.elapsed >= Nanos(cost.cpu.0 / 2),
            "{cost:?}"
        );
    }
}
