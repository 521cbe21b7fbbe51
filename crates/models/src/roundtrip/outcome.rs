//! Result of a cell: switch-outs, each with its cause.

use std::collections::BTreeMap;
use std::fmt;

use stopgap_events::words;
use stopgap_stats::quantile::rank;

/// Whose switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The server; task 0.
    Server,
    /// The client; task 1.
    Client,
}
words!(Side, "side", Server "server", Client "client");

impl Side {
    pub(super) fn of_task(task: usize) -> Side {
        if task == 0 {
            Side::Server
        } else {
            Side::Client
        }
    }
}

/// Why a task left the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It waits: in poll and the like, or in a read.
    Blocks,
    /// It was woken for room to write, found nothing to read, and waits on.
    BlocksAgain,
    /// On its way out of write: what it sent woke the other.
    PreemptedAfterWrite,
    /// On its way out of read: the room that it made woke the other.
    PreemptedAfterRead,
    /// Its time was over.
    SliceOver,
}

/// Cause of a switch: the task that left the CPU, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// Whose switch.
    pub side: Side,
    /// Why.
    pub why: Why,
}

impl Cause {
    /// Whether the task waits of itself (a voluntary switch).
    #[must_use]
    pub fn voluntary(self) -> bool {
        matches!(self.why, Why::Blocks | Why::BlocksAgain)
    }
}

/// `server pre-empted after write`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Blocks => "blocks",
            Why::BlocksAgain => "woken for room, blocks again",
            Why::PreemptedAfterWrite => "pre-empted after write",
            Why::PreemptedAfterRead => "pre-empted after read",
            Why::SliceOver => "pre-empted, slice over",
        };
        write!(f, "{} {why}", self.side)
    }
}

/// Counts over a number of round trips.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Switch-outs of both in each round trip, in order. A round trip ends when the client has its last reply;
    /// what follows belongs to the next.
    pub switches: Vec<u32>,
    /// The same switch-outs by cause; they add up.
    pub causes: BTreeMap<Cause, u64>,
    /// Times that a sleeper was woken because something came.
    pub data_wakes: u64,
    /// Times that a sleeper was woken because there was room to write.
    pub room_wakes: u64,
    /// CPU time of both, switches included, in nanoseconds.
    pub cpu_ns: u64,
    /// Simulated time, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Outcome {
    /// Round trips.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.switches.len() as u64
    }

    /// `count` a round trip; `None` where there was none.
    #[must_use]
    pub fn per_round_trip(&self, count: u64) -> Option<f64> {
        let round_trips = self.round_trips();
        (round_trips > 0).then(|| count as f64 / round_trips as f64)
    }

    /// All switch-outs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.switches.iter().map(|&count| u64::from(count)).sum()
    }

    /// Switch-outs a round trip, the mean; `None` where there was none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.per_round_trip(self.total())
    }

    /// Switch-outs that at least a share `q`, 0 to 1, of the round trips did not exceed; `None` where there was none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u32> {
        let mut sorted = self.switches.clone();
        sorted.sort_unstable();
        sorted
            .get(rank(q, self.round_trips()) as usize - 1)
            .copied()
    }
}
