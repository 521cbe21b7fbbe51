//! The client: sends a batch, waits for its replies, first as fast as it can, then paced.
//!
//! ```text
//! warm-up | timed            | counted            | paced
//!         | CPU time, median | switches, by three | latency from the intended start
//! ```
//!
//! The records of switches cost CPU time, so that is measured in a window without them.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::roundtrip::{Cell, ClientWait, Reply};
use stopgap_events::units::Nanos;
use stopgap_kernel::ipc::{Endpoint, Wait, Waiter};
use stopgap_kernel::{Error, System};
use stopgap_stats::histogram::{Histogram, Recorder};
use stopgap_stats::record::Block;

use super::STALL;
use super::meter::{Meter, Window};

/// Round trips that every phase has at least, however long they take: one switch more or less
/// at the edges of a window is then at most one in a hundred.
pub(super) const LEAST: u64 = 50;
/// Round trips that do not count.
const WARM_UP: u64 = 20;
/// The paced phase sends a batch every so many medians.
const PACE: u64 = 2;

/// Per cent of a run's time for the phases; forking and connecting takes the rest.
const TIMED: u64 = 20;
const COUNTED: u64 = 45;
const PACED: u64 = 20;

/// Task of a client.
pub(super) struct Order<'o> {
    pub(super) cell: &'o Cell,
    /// Number of the run.
    pub(super) run: u32,
    /// Time for all of it.
    pub(super) share: Nanos,
    /// Round trips in a phase at most.
    pub(super) most: u64,
    pub(super) interrupted: &'o dyn Fn() -> bool,
}

/// A window and how many round trips were in it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) round_trips: u64,
    /// How long it was open.
    pub(super) elapsed: Nanos,
    pub(super) window: Window,
}

/// Figures that the client measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Asked {
    /// When it began, on the monotonic clock.
    pub(super) start: Nanos,
    /// Timed and counted, as far as it came.
    pub(super) windows: Vec<Counted>,
    /// The paced phase's intended period.
    pub(super) period: Option<Nanos>,
    /// Latencies of the paced phase.
    pub(super) latency: Option<Block>,
    /// Periods that passed whole before their batch could be sent.
    pub(super) missed: u64,
    pub(super) missing: Vec<Missing>,
}

/// Asks until its time is over or it is interrupted.
pub(super) fn ask(
    system: &dyn System,
    order: &Order<'_>,
    server: &Endpoint,
) -> Result<Asked, Error> {
    let mut asked = Asked {
        start: system.now(),
        ..Asked::default()
    };
    let mut meter = Meter::new(system);
    let mut client = Client::new(system, order, server)?;
    let part = |per_cent: u64| Nanos(order.share.0 / 100 * per_cent);

    client.closed_loop(WARM_UP, Nanos(0), &mut meter)?;
    let mut median = None;
    for (recorded, time) in [(false, part(TIMED)), (true, part(COUNTED))] {
        if (order.interrupted)() {
            break;
        }
        let (lengths, counted) = client.window(&mut meter, recorded, time)?;
        median = median.or(lengths.median());
        asked.windows.push(counted);
    }
    if let Some(median) = median {
        let period = Nanos(median * PACE);
        let (latency, missed) = client.paced(period, part(PACED))?;
        asked.latency = latency.into_block(order.run, asked.start.0);
        asked.missed = missed;
        asked.period = Some(period);
    }
    asked.missing = meter.missing();
    Ok(asked)
}

/// Asks exactly as often as the order says at most, in one window without records; no longer than
/// half an hour.
pub(super) fn fixed_count(
    system: &dyn System,
    order: &Order<'_>,
    server: &Endpoint,
) -> Result<Asked, Error> {
    const FOREVER: Nanos = Nanos::secs(1_800);
    let mut meter = Meter::new(system);
    let mut client = Client::new(system, order, server)?;
    client.closed_loop(WARM_UP, Nanos(0), &mut meter)?;
    let (_, counted) = client.window(&mut meter, false, FOREVER)?;
    Ok(Asked {
        windows: vec![counted],
        ..Asked::default()
    })
}

struct Client<'c> {
    system: &'c dyn System,
    order: &'c Order<'c>,
    server: &'c Endpoint,
    /// `None`: it waits in read(2).
    waiter: Option<Waiter<'c>>,
    requests: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'c> Client<'c> {
    fn new(
        system: &'c dyn System,
        order: &'c Order<'c>,
        server: &'c Endpoint,
    ) -> Result<Client<'c>, Error> {
        let wait = match order.cell.client {
            ClientWait::Poll => Some(Wait::Poll),
            ClientWait::Epoll => Some(Wait::Epoll),
            ClientWait::Read => None,
        };
        let batch = order.cell.batch as usize * MESSAGE;
        Ok(Client {
            system,
            order,
            server,
            waiter: wait.map(|wait| Waiter::new(wait, &[server])).transpose()?,
            requests: [command::WORK].repeat(batch),
            buffer: vec![0; batch.max(4096)],
        })
    }

    /// Sends a command outside of any window and waits for its acknowledgement.
    fn tell(&mut self, command: u8) -> Result<(), Error> {
        self.server.write_all(&[command; MESSAGE])?;
        self.receive(MESSAGE)
    }

    /// Round trips in a window on both sides, `time` or the order's most; how long each took.
    fn window(
        &mut self,
        meter: &mut Meter<'_>,
        recorded: bool,
        time: Nanos,
    ) -> Result<(Histogram, Counted), Error> {
        self.tell(if recorded {
            command::OPEN_RECORDED
        } else {
            command::OPEN
        })?;
        let open = meter.open(recorded)?;
        let begin = self.system.now();
        let lengths = self.closed_loop(self.order.most, time, meter)?;
        let elapsed = self.system.now().saturating_sub(begin);
        let window = meter.close(open)?;
        self.tell(command::CLOSE)?;
        let counted = Counted {
            round_trips: lengths.len(),
            elapsed,
            window,
        };
        Ok((lengths, counted))
    }

    fn round_trip(&mut self) -> Result<(), Error> {
        self.server.write_all(&self.requests)?;
        self.receive(self.requests.len())
    }

    fn receive(&mut self, mut left: usize) -> Result<(), Error> {
        while left > 0 {
            if let Some(waiter) = &mut self.waiter
                && waiter.wait()? == 0
            {
                continue; // a signal
            }
            let count = self.server.read(&mut self.buffer)?;
            if count == 0 {
                return Err(Error::child("that serves went away"));
            }
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    /// One round trip after the other until `time` is over, at least [`LEAST`] and at most
    /// `most`. Gives how long each took.
    fn closed_loop(
        &mut self,
        most: u64,
        time: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<Histogram, Error> {
        let mut lengths = Histogram::new();
        let start = self.system.now();
        let mut before = start;
        while lengths.len() < most && !(self.order.interrupted)() {
            if lengths.len() >= LEAST && before.saturating_sub(start) >= time {
                break;
            }
            self.round_trip()?;
            meter.drain();
            let now = self.system.now();
            lengths.record(now.saturating_sub(before).0);
            before = now;
        }
        Ok(lengths)
    }

    /// A batch every `period`, whether or not the one before was answered in time. A latency
    /// runs from the intended start, so one that had to wait for another includes the wait.
    ///
    /// ```text
    /// intended    0       1       2       3
    /// sent        0       1           2   3
    /// answered        0              1   2    3
    /// latency     |---|   |----------|
    ///                             |------|
    ///                                     |---|
    /// ```
    ///
    /// Gives the latencies, and how many periods had passed whole before their batch was sent.
    fn paced(&mut self, period: Nanos, time: Nanos) -> Result<(Recorder, u64), Error> {
        self.system.set_timer_slack(Nanos(1))?;
        let count = (time.0 / period.0.max(1)).max(LEAST).min(self.order.most);
        let first = self.system.now() + period;
        let mut latencies = Recorder::new(STALL.0);
        let mut missed = 0;
        for number in 0..count {
            let intended = first + Nanos(period.0 * number);
            let mut now = self.system.now();
            while now < intended && !(self.order.interrupted)() {
                self.system.sleep_until(intended);
                now = self.system.now();
            }
            if (self.order.interrupted)() {
                break;
            }
            missed += u64::from(now >= intended + period);
            self.round_trip()?;
            let latency = self.system.now().saturating_sub(intended);
            latencies.record(intended.0, latency.0);
        }
        Ok((latencies, missed))
    }
}

// The server: waits for its descriptors, reads, works, answers.

/// Bytes of a request and of a reply: an X request with a few arguments, an X reply.
pub(super) const MESSAGE: usize = 32;

/// A request, by its first byte.
pub(super) mod command {
    /// Work, then answer.
    pub(in super::super) const WORK: u8 = 0;
    /// Open a window when the next request arrives.
    pub(in super::super) const OPEN: u8 = 1;
    /// The same, with records of switches.
    pub(in super::super) const OPEN_RECORDED: u8 = 2;
    /// Close the window.
    pub(in super::super) const CLOSE: u8 = 3;
}

/// Figures that the server measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Served {
    /// In the order in which the client had them opened.
    pub(super) windows: Vec<Window>,
    pub(super) missing: Vec<Missing>,
}

/// Serves until the client closes its end or dies. It does not look at Ctrl-C itself: the
/// client does, closes its window and goes, so that what was counted is whole.
pub(super) fn serve(system: &dyn System, cell: &Cell, client: &Endpoint) -> Result<Served, Error> {
    let idle: Vec<_> = (1..cell.descriptors)
        .map(|_| system.stream_pair())
        .collect::<Result<_, _>>()?;
    let mut watched = vec![client];
    watched.extend(idle.iter().map(|(ours, _)| ours));
    let mut waiter = Waiter::new(cell.server, &watched)?;
    let mut meter = Meter::new(system);
    let mut windows = Vec::new();
    // A window runs from the arrival of its first request to that of CLOSE: as many waits as
    // round trips, on both sides.
    let (mut opening, mut open) = (None, None);

    let reply = [0u8; MESSAGE];
    let mut buffer = vec![0u8; (cell.batch as usize * MESSAGE).max(4096)];
    let mut have = 0;
    loop {
        if waiter.wait()? == 0 {
            continue; // a signal
        }
        let count = client.read(&mut buffer[have..])?;
        if count == 0 {
            break;
        }
        if let Some(recorded) = opening.take() {
            open = Some(meter.open(recorded)?);
        }
        have += count;
        let mut answered = 0;
        for request in buffer[..have].chunks_exact(MESSAGE) {
            match request[0] {
                command::OPEN => opening = Some(false),
                command::OPEN_RECORDED => opening = Some(true),
                command::CLOSE => {
                    let closed = open.take().map(|open| meter.close(open));
                    windows.extend(closed.transpose()?);
                }
                // No work is none: spin() reads the CPU clock twice, which takes longer than the write that follows.
                _ if cell.work.0 == 0 => {}
                _ => system.spin(cell.work),
            }
            match cell.reply {
                Reply::Each => client.write_all(&reply)?,
                Reply::Together => answered += 1,
            }
        }
        if answered > 0 {
            client.write_gathered(&reply, answered)?;
        }
        // A request that came in part stays for the next read.
        let whole = have / MESSAGE * MESSAGE;
        buffer.copy_within(whole..have, 0);
        have -= whole;
        meter.drain();
    }
    Ok(Served {
        windows,
        missing: meter.missing(),
    })
}
