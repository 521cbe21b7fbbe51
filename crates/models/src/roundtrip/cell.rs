//! What is varied: the programs, and what the kernel does beside its scheduler's rules.
//!
//! The words are those of `probe roundtrip`, so that a modelled cell finds its measured one.

use std::fmt;

use stopgap_events::units::Nanos;
use stopgap_events::words;
use thiserror::Error;

/// How the client waits for its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWait {
    /// poll(2), then read(2).
    Poll,
    /// epoll_wait(2), then read(2).
    Epoll,
    /// In read(2) itself.
    Read,
}
words!(ClientWait, "client", Poll "poll", Epoll "epoll", Read "read");

/// How the server waits for requests; a read(2) follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerWait {
    /// select(2): looks at each descriptor, before it sleeps and whenever it wakes.
    Select,
    /// poll(2): the same.
    Poll,
    /// epoll_wait(2): looks at what is ready.
    Epoll,
}
words!(ServerWait, "way to wait", Select "select", Poll "poll", Epoll "epoll");

/// How the server answers a batch of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// All replies in one writev(2), when all the work is done.
    Together,
    /// Each reply by a write(2) of its own, as soon as its work is done.
    Each,
}
words!(Reply, "reply", Together "together", Each "each");

/// Where client and server run; neither ever moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// Both on the same CPU.
    One,
    /// Each on a CPU of its own.
    Two,
}
words!(Cpus, "placement on CPUs", One "one", Two "two");

/// Under what policy the client is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientPolicy {
    /// `SCHED_OTHER`.
    Other,
    /// `SCHED_BATCH`: its wake-ups pre-empt nobody.
    Batch,
}
words!(ClientPolicy, "client policy", Other "other", Batch "batch");

/// What the kernel does, beside its scheduler's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Whether the wake-up for room carries its key (Unix sockets: since Linux 2.6.37): who polls for input then
    /// does not hear it. Who blocks in read(2) always does.
    pub keyed: bool,
    /// Whether a wake-up may pre-empt (the scheduler's feature WAKEUP_PREEMPTION).
    pub preempt: bool,
    /// Whether a writev(2) of several messages makes one buffer and one wake-up, as Linux's stream sockets do;
    /// else one of each a message.
    pub merge: bool,
}

impl Default for Kernel {
    /// Linux since 2.6.37.
    fn default() -> Kernel {
        Kernel {
            keyed: true,
            preempt: true,
            merge: true,
        }
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// How the client waits.
    pub client: ClientWait,
    /// How the server waits.
    pub server: ServerWait,
    /// Descriptors that the server waits for; all but one are idle. At least 1.
    pub descriptors: u32,
    /// CPU time that the server spends on each request. At most a second a batch.
    pub work: Nanos,
    /// CPU time that the client spends between the last reply and its next request. At most a second.
    pub think: Nanos,
    /// Requests that the client sends in one write, and whose replies it awaits: a round trip. 1 to
    /// [`MOST_BATCH`].
    pub batch: u32,
    /// How the server answers them.
    pub reply: Reply,
    /// Where both run.
    pub cpus: Cpus,
    /// The client's policy.
    pub policy: ClientPolicy,
    /// The kernel.
    pub kernel: Kernel,
}

/// Largest batch: a message alone in a buffer takes some 768 bytes of a send buffer of 212,992, and a sender that
/// waits for room, which the model does not have, begins at 277.
pub const MOST_BATCH: u32 = 256;
/// Most descriptors: more than a process may have open by default.
const MOST_DESCRIPTORS: u32 = 1 << 20;
const MOST_TIME: Nanos = Nanos::secs(1);

/// Why a cell cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CellError {
    /// A batch of none, or of more than fit.
    #[error(
        "a batch of {0}: give 1 to {MOST_BATCH}; a larger one fills the socket's buffer, which is not modelled"
    )]
    Batch(u32),
    /// Descriptors: none, or more than there can be.
    #[error("K of {0}: give 1 to {MOST_DESCRIPTORS} descriptors")]
    Descriptors(u32),
    /// Work or thinking that is no round trip any more.
    #[error("{0} of work or thinking a round trip: give at most {MOST_TIME}")]
    Time(Nanos),
}

impl Cell {
    /// The plainest: poll on both sides, one descriptor, no work, one request, one CPU, today's kernel.
    pub const PLAIN: Cell = Cell {
        client: ClientWait::Poll,
        server: ServerWait::Poll,
        descriptors: 1,
        work: Nanos(0),
        think: Nanos(0),
        batch: 1,
        reply: Reply::Together,
        cpus: Cpus::One,
        policy: ClientPolicy::Other,
        kernel: Kernel {
            keyed: true,
            preempt: true,
            merge: true,
        },
    };

    /// Mail 002 at its worst: a client that draws for some milliseconds between requests, a request that "takes
    /// very long to handle", a server in select(2) over what an X server has open, a kernel before 2.6.37.
    pub const MAIL: Cell = Cell {
        server: ServerWait::Select,
        descriptors: 50,
        work: Nanos::micros(3_930),
        think: Nanos::millis(6),
        kernel: Kernel {
            keyed: false,
            preempt: true,
            merge: true,
        },
        ..Cell::PLAIN
    };

    pub(super) fn validate(&self) -> Result<(), CellError> {
        if self.batch == 0 || self.batch > MOST_BATCH {
            return Err(CellError::Batch(self.batch));
        }
        if self.descriptors == 0 || self.descriptors > MOST_DESCRIPTORS {
            return Err(CellError::Descriptors(self.descriptors));
        }
        let work = Nanos(self.work.0.saturating_mul(u64::from(self.batch)));
        for time in [work, self.think] {
            if time > MOST_TIME {
                return Err(CellError::Time(time));
            }
        }
        Ok(())
    }
}

/// `blocking-read client, poll server, 50 us of work, one CPU`: what is plain is left out.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client {
            ClientWait::Read => f.write_str("blocking-read client")?,
            polling => write!(f, "{polling} client")?,
        }
        if self.policy == ClientPolicy::Batch {
            f.write_str(" under SCHED_BATCH")?;
        }
        if self.think > Nanos(0) {
            write!(f, " that thinks {}", self.think)?;
        }
        write!(f, ", {} server", self.server)?;
        if self.descriptors > 1 {
            write!(f, " of {} descriptors", self.descriptors)?;
        }
        match self.work {
            Nanos(0) => f.write_str(", no work")?,
            work => write!(f, ", {work} of work")?,
        }
        match (self.batch, self.reply) {
            (1, _) => {}
            (n, Reply::Together) => write!(f, ", {n} replies in one writev")?,
            (n, Reply::Each) => write!(f, ", {n} replies by a write each")?,
        }
        f.write_str(match self.cpus {
            Cpus::One => ", one CPU",
            Cpus::Two => ", two CPUs",
        })?;
        let kernel = self.kernel;
        let without = [
            (kernel.keyed, ", unkeyed"),
            (kernel.preempt, ", no wake-up pre-emption"),
            (kernel.merge, ", a wake-up a message"),
        ];
        without
            .iter()
            .filter(|(has, _)| !has)
            .try_for_each(|(_, word)| f.write_str(word))
    }
}
