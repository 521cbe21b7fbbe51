//! Prices of the steps of a call.

use stopgap_events::random::Random;
use stopgap_stats::record::{Answer, Series};
use stopgap_stats::replay::chunks::Assumption;

/// CPU time of each step, in nanoseconds, switches included. One list for all cells: no cell has a price of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// A write, until the buffer is queued at the peer.
    pub write_enter: u64,
    /// Each message of a writev beyond the first.
    pub vector: u64,
    /// Each further buffer that one call makes or frees.
    pub buffer: u64,
    /// The rest of a write.
    pub write_leave: u64,
    /// A read, until it has looked; where there is something, until it was freed.
    pub read_enter: u64,
    /// The rest of a read that gave something.
    pub read_leave: u64,
    /// A wait (select, poll, epoll), until it looks at its descriptors.
    pub wait_enter: u64,
    /// Looking at a descriptor.
    pub descriptor: u64,
    /// The rest of a wait that found something.
    pub wait_leave: u64,
    /// Sleeping in poll or select, beyond the switch: from the wake-up until the call looks again, and what the call
    /// does to be woken.
    pub look_again: u64,
    /// The same in epoll_wait.
    pub look_again_epoll: u64,
    /// The same in a blocking read.
    pub look_again_read: u64,
    /// Making a sleeper runnable; the waker pays.
    pub wake: u64,
    /// From one task to another; the one that begins pays.
    pub switch: u64,
    /// An idle CPU, from the wake-up on it until it switches.
    pub idle_wake: u64,
    /// The client's own, a round trip: it reads the clock and the records of switches.
    pub client_loop: u64,
    /// The server's own, a request that has work: it reads its CPU clock until the work is done. A request without
    /// work takes nothing.
    pub server_loop: u64,
    /// By how many per cent each of these takes more or less, evenly, by the seed; below 100. Real steps are no
    /// clockwork, and clockwork falls into step with itself. Work and thinking take exactly the time of the cell.
    pub spread_per_cent: u64,
}

impl Default for Prices {
    /// Medians of what `stopgap probe roundtrip` measured as its series `price` (Linux 6.18, 2 CPUs, a virtual
    /// machine): see [`Prices::measured`].
    fn default() -> Prices {
        Prices::from_steps(&Steps {
            write: 1_300,
            read: 1_370,
            wait: 770,
            descriptor: 140,
            clock: 860,
            switch: 2_450,
            served: 6_700,
            took_poll: 8_400,
            took_epoll: 8_200,
            took_read: 7_300,
        })
    }
}

/// Nanoseconds that the probe measured, by the steps of its series `price`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    /// write(2) of a message to a peer that does not sleep.
    write: u64,
    /// read(2) of a message that is there.
    read: u64,
    /// poll(2) of a socket that can be read.
    wait: u64,
    /// Each further descriptor of that poll(2).
    descriptor: u64,
    /// Reading the thread's CPU clock.
    clock: u64,
    /// A switch between two tasks that only yield.
    switch: u64,
    /// CPU time of a server that a poller pre-empts after each of its writes, a reply, without its work.
    served: u64,
    /// CPU time of that client, a reply.
    took_poll: u64,
    /// The same of a client in epoll_wait(2).
    took_epoll: u64,
    /// The same of a client in a blocking read(2).
    took_read: u64,
}

impl Prices {
    /// The prices of the machine that `answer` is of, where the probe measured them there: each median of its series
    /// `price` in place of the default's.
    #[must_use]
    pub fn measured(answer: &Answer) -> Option<Prices> {
        let step = |name: &str| {
            let of = |series: &&Series| series.name == "price" && series.word("step") == Some(name);
            let median = answer.series.iter().find(of)?.median()?;
            Some(median.round().clamp(0.0, 1e9) as u64)
        };
        Some(Prices::from_steps(&Steps {
            write: step("write")?,
            read: step("read")?,
            wait: step("poll")?,
            descriptor: step("descriptor")?,
            clock: step("CPU clock")?,
            switch: step("switch")?,
            served: step("reply served")?,
            took_poll: step("reply taken by poll")?,
            took_epoll: step("reply taken by epoll")?,
            took_read: step("reply taken by read")?,
        }))
    }

    /// Divides measured steps. The part of a call before its wake-up is assumed (70 % of a write, half of a read and
    /// of a wait): no probe sees into a call. What a pre-empted server pays beyond a switch and a write is the wake-up;
    /// what its client pays beyond a switch and its calls is sleeping in them.
    fn from_steps(steps: &Steps) -> Prices {
        let rest = |whole: u64, parts: [u64; 3]| whole.saturating_sub(parts.iter().sum());
        let Steps { switch, read, .. } = *steps;
        Prices {
            write_enter: steps.write * 7 / 10,
            vector: 27,
            buffer: 300,
            write_leave: steps.write - steps.write * 7 / 10,
            read_enter: read / 2,
            read_leave: read - read / 2,
            wait_enter: (steps.wait / 2).saturating_sub(steps.descriptor),
            descriptor: steps.descriptor,
            wait_leave: steps.wait - steps.wait / 2,
            look_again: rest(steps.took_poll, [switch, read, steps.wait]),
            look_again_epoll: rest(steps.took_epoll, [switch, read, steps.wait]),
            look_again_read: rest(steps.took_read, [switch, read, 0]),
            wake: rest(steps.served, [switch, steps.write, 0]),
            switch,
            idle_wake: 5_000,
            client_loop: 400,
            // Half a reading before the first look at it, half after the last, and on average half too late.
            server_loop: steps.clock * 3 / 2,
            spread_per_cent: 25,
        }
    }

    /// These prices where taking a reply costs the client `per_cent` more CPU time, or less. Two runs of the probe, a
    /// minute apart, differ by 12 % (15.1 and 17.0 us).
    #[must_use]
    pub fn nudged(&self, per_cent: i64) -> Prices {
        let taking = self.switch + self.read_enter + self.read_leave + self.look_again;
        let more = taking.cast_signed() * per_cent / 100;
        let nudge = |price: u64| price.saturating_add_signed(more);
        Prices {
            look_again: nudge(self.look_again),
            look_again_epoll: nudge(self.look_again_epoll),
            look_again_read: nudge(self.look_again_read),
            ..self.clone()
        }
    }

    /// Returns each with its name and source, for a record.
    #[must_use]
    pub fn assumptions(&self) -> Vec<Assumption> {
        const MEASURED: &str = "measured call by call; where a call divides, assumed";
        const REST: &str = "what is missing of the measured CPU time of a reply that pre-empts";
        const TOLD: &str = "assumption";
        let ns = [
            ("write until the peer has it", self.write_enter, MEASURED),
            ("a further message of a writev", self.vector, MEASURED),
            ("a further buffer of a call", self.buffer, TOLD),
            ("rest of a write", self.write_leave, MEASURED),
            ("read until it has looked", self.read_enter, MEASURED),
            ("rest of a read", self.read_leave, MEASURED),
            ("wait until it looks", self.wait_enter, MEASURED),
            ("a descriptor", self.descriptor, MEASURED),
            ("rest of a wait", self.wait_leave, MEASURED),
            ("sleeping in poll and select", self.look_again, REST),
            ("sleeping in epoll_wait", self.look_again_epoll, REST),
            ("sleeping in read", self.look_again_read, REST),
            ("waking", self.wake, REST),
            ("a switch", self.switch, MEASURED),
            ("an idle CPU until it switches", self.idle_wake, TOLD),
            ("the client's own, a round trip", self.client_loop, TOLD),
            (
                "the server's own, a request with work",
                self.server_loop,
                MEASURED,
            ),
        ];
        let named = ns.map(|(name, value, why)| Assumption::new(name, value as f64, "ns", why));
        let mut all = named.to_vec();
        let spread = self.spread_per_cent as f64;
        let name = "each step more or less, evenly";
        all.push(Assumption::new(name, spread, "%", TOLD));
        all
    }

    /// A step's price as it is this time; advances `random`.
    pub(super) fn spread(&self, price: u64, random: &mut Random) -> u64 {
        let most = price * self.spread_per_cent / 100;
        price - most + random.below(2 * most + 1)
    }
}
