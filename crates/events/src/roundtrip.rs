//! A client and a server on a Unix socket: what `probe roundtrip` varies and measures, and `replay roundtrip` models.

use std::fmt;

use crate::units::Nanos;
use crate::words;

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

/// A way to wait until one of several sockets can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// select(2): looks at each descriptor before it sleeps and whenever it wakes.
    Select,
    /// poll(2): the same.
    Poll,
    /// epoll_wait(2), level-triggered: looks at what is ready.
    Epoll,
}
words!(Wait, "way to wait", Select "select", Poll "poll", Epoll "epoll");

/// How the server answers a batch of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// All replies in one writev(2), when all the work is done.
    Together,
    /// Each reply by a write(2) of its own, as soon as its work is done.
    Each,
}
words!(Reply, "reply", Together "together", Each "each");

/// Where client and server run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// Both on the same CPU.
    One,
    /// Each on a CPU of its own.
    Two,
    /// Wherever the kernel puts them. Only the probe has it.
    Free,
}
words!(Cpus, "placement on CPUs", One "one", Two "two", Free "free");

/// Under what policy the client is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientPolicy {
    /// The one it inherits, usually `SCHED_OTHER`.
    Other,
    /// `SCHED_BATCH`: its wake-ups pre-empt nobody.
    Batch,
}
words!(ClientPolicy, "policy", Other "other", Batch "batch");

/// What a kernel does, beside its scheduler's rules. The probe measures the running kernel as it is; the model varies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Whether the wake-up for room to write carries its key (Unix sockets: since Linux 2.6.37). A task that polls for
    /// input then sleeps on; a task that blocks in read(2) always wakes.
    pub keyed: bool,
    /// Whether a wake-up may pre-empt (the scheduler's feature WAKEUP_PREEMPTION).
    pub preempt: bool,
    /// Whether a writev(2) of several messages makes one buffer and one wake-up, as Linux's stream sockets do, or one
    /// of each for each message.
    pub merge: bool,
}

impl Kernel {
    /// Linux since 2.6.37.
    pub const RECENT: Kernel = Kernel {
        keyed: true,
        preempt: true,
        merge: true,
    };
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// How the client waits.
    pub client: ClientWait,
    /// How the server waits.
    pub server: Wait,
    /// Descriptors that the server waits for; all but one are idle. At least 1.
    pub descriptors: u32,
    /// CPU time that the server spends on each request.
    pub work: Nanos,
    /// CPU time that the client spends between the last reply and its next request. The probe's client spends none.
    pub think: Nanos,
    /// Requests that the client sends in one write, and whose replies it awaits: a round trip. At least 1.
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

impl Cell {
    /// The plainest: poll on both sides, one descriptor, no work, one request, one CPU, a recent kernel.
    pub const PLAIN: Cell = Cell {
        client: ClientWait::Poll,
        server: Wait::Poll,
        descriptors: 1,
        work: Nanos(0),
        think: Nanos(0),
        batch: 1,
        reply: Reply::Together,
        cpus: Cpus::One,
        policy: ClientPolicy::Other,
        kernel: Kernel::RECENT,
    };

    /// Mail 002 at its worst: a client that draws for some milliseconds between requests, a request that "takes
    /// very long to handle", a server in select(2) over what an X server has open, a kernel before 2.6.37.
    pub const MAIL: Cell = Cell {
        server: Wait::Select,
        descriptors: 50,
        work: Nanos::micros(3_930),
        think: Nanos::millis(6),
        kernel: Kernel {
            keyed: false,
            ..Kernel::RECENT
        },
        ..Cell::PLAIN
    };
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
            Cpus::Free => ", placed freely",
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

/// Lists of parameters, for a matrix of all their combinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// How the client waits.
    pub clients: Vec<ClientWait>,
    /// How the server waits.
    pub servers: Vec<Wait>,
    /// Descriptors that the server waits for.
    pub descriptors: Vec<u32>,
    /// Work on each request.
    pub work: Vec<Nanos>,
    /// Thinking before each request.
    pub think: Vec<Nanos>,
    /// Requests a round trip.
    pub batches: Vec<u32>,
    /// How they are answered; of no effect with one request, and then not repeated.
    pub replies: Vec<Reply>,
    /// Where both run.
    pub cpus: Vec<Cpus>,
    /// The client's policy.
    pub policies: Vec<ClientPolicy>,
    /// The kernel.
    pub kernels: Vec<Kernel>,
}

impl Default for Matrix {
    /// All of how client and server may wait, and how long the server works, with one request
    /// at a time on one CPU.
    fn default() -> Matrix {
        Matrix {
            clients: ClientWait::ALL.to_vec(),
            servers: Wait::ALL.to_vec(),
            descriptors: vec![1, 50, 500],
            work: [0, 5, 50, 1_000].map(Nanos::micros).to_vec(),
            think: vec![Nanos(0)],
            batches: vec![1],
            replies: vec![Reply::Together],
            cpus: vec![Cpus::One],
            policies: vec![ClientPolicy::Other],
            kernels: vec![Kernel::RECENT],
        }
    }
}

impl Matrix {
    /// Returns all combinations, each once. One request has one reply: how it is answered is then no parameter.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        /// Sets each of `values` in a copy of each cell.
        fn vary<T: Copy>(cells: &mut Vec<Cell>, values: &[T], set: impl Fn(&mut Cell, T)) {
            let set = &set;
            let with = |mut cell: Cell| {
                values.iter().map(move |&value| {
                    set(&mut cell, value);
                    cell
                })
            };
            *cells = cells.iter().copied().flat_map(with).collect();
        }
        let mut cells = vec![Cell::PLAIN];
        vary(&mut cells, &self.cpus, |c, v| c.cpus = v);
        vary(&mut cells, &self.policies, |c, v| c.policy = v);
        vary(&mut cells, &self.kernels, |c, v| c.kernel = v);
        vary(&mut cells, &self.clients, |c, v| c.client = v);
        vary(&mut cells, &self.servers, |c, v| c.server = v);
        vary(&mut cells, &self.descriptors, |c, v| c.descriptors = v);
        vary(&mut cells, &self.work, |c, v| c.work = v);
        vary(&mut cells, &self.think, |c, v| c.think = v);
        vary(&mut cells, &self.batches, |c, v| c.batch = v);
        vary(&mut cells, &self.replies, |c, v| c.reply = v);
        let mut once = Vec::with_capacity(cells.len());
        for mut cell in cells {
            if cell.batch == 1 {
                cell.reply = Cell::PLAIN.reply;
            }
            if !once.contains(&cell) {
                once.push(cell);
            }
        }
        once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for &client in ClientWait::ALL {
            assert_eq!(client.word().parse(), Ok(client));
        }
        for &cpus in Cpus::ALL {
            assert_eq!(cpus.word().parse(), Ok(cpus));
        }
        let error = "both".parse::<Reply>().unwrap_err();
        assert_eq!(error, "unknown reply 'both'; there are together, each");
    }

    #[test]
    fn a_cell_in_words() {
        let cell = Cell {
            client: ClientWait::Read,
            server: Wait::Select,
            descriptors: 500,
            work: Nanos::micros(50),
            ..Cell::PLAIN
        };
        assert_eq!(
            cell.to_string(),
            "blocking-read client, select server of 500 descriptors, 50 us of work, one CPU"
        );
    }
}
