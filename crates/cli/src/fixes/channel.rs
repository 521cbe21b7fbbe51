//! Round trips over the arena's channel and over a socket with poll(2): one run of either, a client and a server, forked.
//! `check` compares them by it, and `stopgap-bench channel` holds them to bounds.

use serde_json::{Value, json};
use stopgap_arena::channel::{self, Client, Options, Server};
use stopgap_events::units::Nanos;
use stopgap_events::words;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::ipc::{Endpoint, Ipc, Wait, Waiter};
use stopgap_kernel::tasks::{ChildBody, ChildLimits, ChildOutcome, Tasks};
use stopgap_kernel::{Error, Linux};
use stopgap_probes::roundtrip::Cpus;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;

/// How requests and replies go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The arena's channel.
    Channel,
    /// A socket: poll(2), read(2), and one write(2) or writev(2) for what was read.
    Socket,
    /// A socket whose server writes each reply by itself.
    SocketEach,
}
words!(Side, "side", Channel "channel", Socket "socket", SocketEach "socket, each");

/// Work of a client and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Where they run.
    pub cpus: Cpus,
    /// CPU time for each request.
    pub work: Nanos,
    /// Requests that the client sends before it waits for their replies: a round trip.
    pub batch: u32,
}

/// Bytes of a request and of a reply, as in `probe roundtrip`.
const MESSAGE: usize = 32;
/// Round trips that do not count.
const WARM_UP: u32 = 100;
/// Round trips of a window at least.
const LEAST: u64 = 50;

/// A request, by its first byte.
mod command {
    pub(super) const WORK: u8 = 0;
    /// The window begins with the next request.
    pub(super) const OPEN: u8 = 1;
    /// It ended before this one.
    pub(super) const CLOSE: u8 = 2;
}

/// Measurements of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Round trips that counted.
    pub round_trips: u64,
    /// Switch-outs of both processes.
    pub switches: u64,
    /// CPU time of both.
    pub cpu_ns: u64,
    /// Median of the round trips; `None` where there were too few.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: u64,
    /// Times that a channel's server woke its client, and the client its server.
    pub wakes: Option<[u64; 2]>,
}

impl Run {
    /// So many a round trip.
    #[must_use]
    pub fn per_round_trip(&self, count: u64) -> f64 {
        count as f64 / self.round_trips.max(1) as f64
    }
}

/// One side's counts at a point in time.
#[derive(Clone, Copy, Default)]
struct Counts {
    switches: u64,
    cpu_ns: u64,
    wakes: u64,
}

impl Counts {
    fn now(wakes: u64) -> Result<Counts, String> {
        Ok(Counts {
            switches: Linux.switches().map_err(said)?.total(),
            cpu_ns: Linux.thread_cpu().0,
            wakes,
        })
    }

    fn since(self, earlier: Counts) -> [u64; 3] {
        [
            self.switches - earlier.switches,
            self.cpu_ns - earlier.cpu_ns,
            self.wakes - earlier.wakes,
        ]
    }
}

#[allow(clippy::needless_pass_by_value)] // as map_err wants it
fn said(error: impl ToString) -> String {
    error.to_string()
}

/// Serves a request: works, and measures.
struct Answer {
    work: Nanos,
    opened: Option<Counts>,
    opens: bool,
    window: Option<[u64; 3]>,
}

impl Answer {
    /// At the begin of each request.
    fn to(&mut self, command: u8, wakes: u64) -> Result<(), String> {
        if std::mem::take(&mut self.opens) {
            self.opened = Some(Counts::now(wakes)?);
        }
        match command {
            command::OPEN => self.opens = true,
            command::CLOSE => {
                if let Some(opened) = self.opened.take() {
                    self.window = Some(Counts::now(wakes)?.since(opened));
                }
            }
            // Two readings of the clock more, for nothing, would be a third of a round trip.
            _ if self.work.0 > 0 => Linux.spin(self.work),
            _ => {}
        }
        Ok(())
    }
}

/// The client's end of either.
enum Asks<'e> {
    Channel(&'e mut Client),
    Socket {
        socket: &'e Endpoint,
        waiter: Waiter<'e>,
        buffer: Vec<u8>,
    },
}

impl Asks<'_> {
    /// Sends so many requests and receives as many replies.
    fn ask(&mut self, request: &[u8; MESSAGE], count: u32) -> Result<(), String> {
        match self {
            Asks::Channel(client) => {
                for _ in 0..count {
                    client.send(request, None).map_err(said)?;
                }
                let mut reply = [0; MESSAGE];
                for _ in 0..count {
                    client.recv_into(&mut reply, None).map_err(said)?;
                }
            }
            Asks::Socket {
                socket,
                waiter,
                buffer,
            } => {
                let sent = match count {
                    1 => socket.write_all(request),
                    _ => socket.write_gathered(request, count as usize),
                };
                sent.map_err(said)?;
                let mut left = MESSAGE * count as usize;
                while left > 0 {
                    if waiter.wait().map_err(said)? == 0 {
                        continue; // a signal
                    }
                    match socket.read(buffer).map_err(said)? {
                        0 => return Err("the server went away".to_owned()),
                        read => left = left.saturating_sub(read),
                    }
                }
            }
        }
        Ok(())
    }

    /// Times it woke its peer.
    fn wakes(&self) -> u64 {
        match self {
            Asks::Channel(client) => client.statistics().wakes,
            Asks::Socket { .. } => 0,
        }
    }
}

/// Answers over the channel until the client goes.
fn over_channel(server: &mut Server, answer: &mut Answer) -> Result<(), String> {
    let mut request = [0; MESSAGE];
    loop {
        match server.recv_into(&mut request, None) {
            Ok(_) => {}
            Err(stopgap_arena::Error::PeerGone) => return Ok(()),
            Err(error) => return Err(said(error)),
        }
        answer.to(request[0], server.statistics().wakes)?;
        server.send(&[0; MESSAGE], None).map_err(said)?;
    }
}

/// The same over the socket, with a write for `each` reply or for all of a read.
fn over_socket(socket: &Endpoint, each: bool, answer: &mut Answer) -> Result<(), String> {
    let mut waiter = Waiter::new(Wait::Poll, &[socket]).map_err(said)?;
    let reply = [0; MESSAGE];
    let mut buffer = vec![0; 64 * MESSAGE];
    let mut have = 0;
    loop {
        if waiter.wait().map_err(said)? == 0 {
            continue; // a signal
        }
        match socket.read(&mut buffer[have..]).map_err(said)? {
            0 => return Ok(()),
            read => have += read,
        }
        let mut answered = 0;
        for request in buffer[..have].chunks_exact(MESSAGE) {
            answer.to(request[0], 0)?;
            match each {
                true => socket.write_all(&reply).map_err(said)?,
                false => answered += 1,
            }
        }
        match answered {
            0 => {}
            1 => socket.write_all(&reply).map_err(said)?,
            _ => socket.write_gathered(&reply, answered).map_err(said)?,
        }
        // A request that came in part stays for the next read.
        let whole = have / MESSAGE * MESSAGE;
        buffer.copy_within(whole..have, 0);
        have -= whole;
    }
}

/// Forks a client and a server, and gives what they measured.
///
/// # Errors
/// Runs that the system refuses, and failures of either process.
pub fn run(side: Side, cell: &Cell, cpus: &[u32], window: Nanos) -> Result<Run, String> {
    let (serves, asks) = match side {
        Side::Channel => {
            let (mut server, mut client) = channel::pair(&Options::default()).map_err(said)?;
            (
                child(cell, cpus, 0, move || {
                    serve(cell, |answer| over_channel(&mut server, answer))
                }),
                child(cell, cpus, 1, move || {
                    ask(&mut Asks::Channel(&mut client), cell, window)
                }),
            )
        }
        Side::Socket | Side::SocketEach => {
            let (server, client) = Linux.stream_pair().map_err(said)?;
            let each = side == Side::SocketEach;
            (
                child(cell, cpus, 0, move || {
                    serve(cell, |answer| over_socket(&server, each, answer))
                }),
                child(cell, cpus, 1, move || {
                    let mut end = Asks::Socket {
                        socket: &client,
                        waiter: Waiter::new(Wait::Poll, &[&client]).map_err(said)?,
                        buffer: vec![0; 64 * MESSAGE],
                    };
                    ask(&mut end, cell, window)
                }),
            )
        }
    };
    // A machine that others use may take many times that.
    let limits = ChildLimits {
        time: Nanos::secs(20) + Nanos(window.0.saturating_mul(20)),
        cgroup: None,
    };
    let outcomes = Linux.run_children(&limits, vec![serves, asks]);
    let [served, asked] = match &outcomes[..] {
        [served, asked] => [reported("server", served)?, reported("client", asked)?],
        _ => return Err("client and server were not started".to_owned()),
    };
    let number = |of: &Value, name: &str| {
        let number = of[name].as_u64();
        number.ok_or_else(|| format!("no {name} was measured"))
    };
    let both = |name: &str| Ok::<_, String>(number(&served, name)? + number(&asked, name)?);
    Ok(Run {
        round_trips: number(&asked, "round_trips")?,
        switches: both("switches")?,
        cpu_ns: both("cpu")?,
        p50_ns: asked["p50"].as_u64(),
        p99_ns: asked["p99"].as_u64(),
        max_ns: number(&asked, "max")?,
        wakes: match side {
            Side::Channel => Some([number(&served, "wakes")?, number(&asked, "wakes")?]),
            _ => None,
        },
    })
}

/// One of the two processes: put where its cell has it, then `body`.
fn child<'a>(
    cell: &'a Cell,
    cpus: &'a [u32],
    side: usize,
    body: impl FnOnce() -> Result<Value, String> + 'a,
) -> ChildBody<'a> {
    Box::new(move || report(|| place(cell.cpus, cpus, side).and_then(|()| body())))
}

/// Puts the calling process, number `side` of the two, where its cell has it.
///
/// # Errors
/// As sched_setaffinity(2).
pub fn place(where_: Cpus, cpus: &[u32], side: usize) -> Result<(), String> {
    match where_ {
        Cpus::One => Linux.set_cpus(&cpus[..1]),
        Cpus::Two => Linux.set_cpus(&cpus[side..=side]),
        Cpus::Free => Linux.set_cpus(cpus),
    }
    .map_err(said)
}

fn serve(
    cell: &Cell,
    over: impl FnOnce(&mut Answer) -> Result<(), String>,
) -> Result<Value, String> {
    let mut answer = Answer {
        work: cell.work,
        opened: None,
        opens: false,
        window: None,
    };
    over(&mut answer)?;
    let [switches, cpu, wakes] = answer.window.ok_or("no window was closed")?;
    Ok(json!({ "switches": switches, "cpu": cpu, "wakes": wakes }))
}

fn ask(end: &mut Asks<'_>, cell: &Cell, window: Nanos) -> Result<Value, String> {
    let work = [command::WORK; MESSAGE];
    for _ in 0..WARM_UP.div_ceil(cell.batch) {
        end.ask(&work, cell.batch)?;
    }
    end.ask(&[command::OPEN; MESSAGE], 1)?;
    let mut lengths = Histogram::new();
    let before = Counts::now(end.wakes())?;
    let start = Linux.now();
    let mut last = start;
    while lengths.len() < LEAST || last.saturating_sub(start) < window {
        end.ask(&work, cell.batch)?;
        let now = Linux.now();
        lengths.record(now.saturating_sub(last).0);
        last = now;
    }
    let [switches, cpu, wakes] = Counts::now(end.wakes())?.since(before);
    end.ask(&[command::CLOSE; MESSAGE], 1)?;
    Ok(json!({
        "round_trips": lengths.len(),
        "switches": switches,
        "cpu": cpu,
        "wakes": wakes,
        "p50": quantile(&lengths, 0.5).ok(),
        "p99": quantile(&lengths, 0.99).ok(),
        "max": lengths.max(),
    }))
}

/// Message of a child: its measurements, or why it has none.
pub fn report(body: impl FnOnce() -> Result<Value, String>) -> Vec<u8> {
    let value = body().unwrap_or_else(|error| json!({ "error": error }));
    value.to_string().into_bytes()
}

/// Reads a child's message.
///
/// # Errors
/// Its own, where it could not measure; how it ended, where it ended badly.
pub fn reported(who: &str, outcome: &Result<ChildOutcome, Error>) -> Result<Value, String> {
    let failed = |why: String| format!("{who}: {why}");
    let outcome = outcome.as_ref().map_err(|error| failed(said(error)))?;
    let value: Value =
        serde_json::from_slice(&outcome.output).map_err(|error| failed(said(error)))?;
    match value["error"].as_str() {
        Some(error) => Err(failed(error.to_owned())),
        None => Ok(value),
    }
}
