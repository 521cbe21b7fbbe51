//! One cell of the matrix: how client and server wait, work, answer and are placed.

use std::collections::BTreeMap;
use std::fmt;

use stopgap_events::units::Nanos;
use stopgap_events::words;
use stopgap_kernel::ipc::Wait;
use stopgap_stats::record::Parameter;

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
    /// Wherever the kernel puts them.
    Free,
}
words!(Cpus, "placement on CPUs", One "one", Two "two", Free "free");

/// Under what policy the client is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The one it inherits, usually `SCHED_OTHER`.
    Other,
    /// `SCHED_BATCH`: its wake-ups pre-empt nobody.
    Batch,
}
words!(Policy, "policy", Other "other", Batch "batch");

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// How the client waits.
    pub client: ClientWait,
    /// How the server waits.
    pub server: Wait,
    /// Descriptors that the server waits for; all but one are idle. At least 1; with select at
    /// most [`stopgap_kernel::ipc::MOST_SELECTED`].
    pub descriptors: u32,
    /// CPU time that the server spends on each request.
    pub work: Nanos,
    /// Requests that the client sends in one write, and whose replies it awaits: a round trip.
    /// 1 to [`stopgap_kernel::ipc::MOST_GATHERED`].
    pub batch: u32,
    /// How the server answers them.
    pub reply: Reply,
    /// Where both run.
    pub cpus: Cpus,
    /// The client's policy.
    pub policy: Policy,
}

impl Cell {
    /// The plainest: poll on both sides, one descriptor, no work, one request, one CPU.
    pub const PLAIN: Cell = Cell {
        client: ClientWait::Poll,
        server: Wait::Poll,
        descriptors: 1,
        work: Nanos(0),
        batch: 1,
        reply: Reply::Together,
        cpus: Cpus::One,
        policy: Policy::Other,
    };

    /// Its parameters, by the names of their flags.
    #[must_use]
    pub fn parameters(&self) -> BTreeMap<String, Parameter> {
        [
            ("client", self.client.word().into()),
            ("server", self.server.word().into()),
            ("k", self.descriptors.into()),
            ("work", self.work.short().into()),
            ("batch", self.batch.into()),
            ("reply", self.reply.word().into()),
            ("on", self.cpus.word().into()),
            ("policy", self.policy.word().into()),
        ]
        .map(|(name, value): (&str, Parameter)| (name.to_owned(), value))
        .into()
    }
}

/// `read client, poll server, 50 us of work, one CPU`: what is plain is left out.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client {
            ClientWait::Read => f.write_str("blocking-read client")?,
            polling => write!(f, "{polling} client")?,
        }
        if self.policy == Policy::Batch {
            f.write_str(" under SCHED_BATCH")?;
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
        match self.cpus {
            Cpus::One => f.write_str(", one CPU"),
            Cpus::Two => f.write_str(", two CPUs"),
            Cpus::Free => f.write_str(", placed freely"),
        }
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
