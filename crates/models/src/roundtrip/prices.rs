//! What a step of a call costs.

use stopgap_events::random::Random;

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
    /// Who was woken in a call, until he looks again.
    pub look_again: u64,
    /// Making a sleeper runnable; the waker pays.
    pub wake: u64,
    /// From one task to another; the one that begins pays.
    pub switch: u64,
    /// An idle CPU, from the wake-up on it until it switches.
    pub idle_wake: u64,
    /// The client's own, a round trip: it reads the clock and the records of switches.
    pub client_loop: u64,
    /// The server's own, a request, without work: it reads its CPU clock twice.
    pub server_loop: u64,
    /// By how many per cent each of these takes more or less, evenly, by the seed; below 100. Real steps are no
    /// clockwork, and clockwork falls into step with itself. Work and thinking take what they were told to.
    pub spread_per_cent: u64,
}

impl Default for Prices {
    /// Measured on the machine of the probe's figures (Linux 6.18, 2 CPUs, a virtual machine), call by call on a
    /// socket pair without a reader: write 1.3 us, read 0.8, poll 0.4 ready and 0.28 not, 140 ns a descriptor, a
    /// read that finds nothing 0.3, the thread's CPU clock 0.5. How a call divides into before and after its wake-up,
    /// and a switch into itself and the wake-up before it, was not measured: together they are what is missing of the
    /// round trip's 10.6 us of CPU time, and the records of switches that the probe counts by.
    fn default() -> Prices {
        Prices {
            write_enter: 900,
            vector: 27,
            buffer: 300,
            write_leave: 400,
            read_enter: 250,
            read_leave: 550,
            wait_enter: 140,
            descriptor: 140,
            wait_leave: 130,
            look_again: 200,
            wake: 700,
            switch: 2_800,
            idle_wake: 5_000,
            client_loop: 400,
            server_loop: 1_050,
            spread_per_cent: 10,
        }
    }
}

impl Prices {
    /// A step's price as it is this time; advances `random`.
    pub(super) fn spread(&self, price: u64, random: &mut Random) -> u64 {
        let most = price * self.spread_per_cent / 100;
        price - most + random.below(2 * most + 1)
    }
}
