//! `stopgap-bench channel`: the arena's channel beside a Unix socket and poll(2), in one run.
//!
//! ```text
//!            pair 0                  pair 1
//! cell 1   channel   socket        socket    channel     a client and a server, forked for each: pinned on one CPU,
//! cell 2   channel   socket        socket    channel     on one each, or free
//! ```
//!
//! A *run* is a warm-up and a window, opened and closed by a message, so that both sides count over the same round
//! trips. Switches are those of both processes by getrusage(2); latency is of each round trip; wake-ups are what the
//! channel's own ends count. At the end the server is killed (SIGKILL) while the client waits for its reply.

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use stopgap_arena::Error;
use stopgap_arena::channel::{Options, pair};
use stopgap_cli::fixes::channel::{self, Cell, Run, Side, place, report, reported};
use stopgap_cli::{Failure, print};
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::tasks::{ChildBody, ChildLimits, Tasks};
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::Cpus;

use crate::common::{Bounds, Rounds, failed, figure, middle, rounds, table, text};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each side of each cell.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..))]
    runs: u32,
    /// Length of a run's window, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    window: u64,
    /// The cells alone that are held to bounds.
    #[arg(long)]
    judged: bool,
}

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
/// How long both processes run before the client asks.
const SETTLED: Nanos = Nanos::millis(5);

/// What is compared in a cell; the first is ours. The last is another only where there are more requests than one.
const SIDES: [Side; 3] = [Side::Channel, Side::Socket, Side::SocketEach];

fn sides(cell: &Cell) -> &'static [Side] {
    if cell.batch == 1 { &SIDES[..2] } else { &SIDES }
}

fn cells() -> Vec<Cell> {
    let works = [Nanos(0), Nanos::micros(50)];
    let of = |cpus| [1, 32].map(|batch| works.map(|work| Cell { cpus, work, batch }));
    [Cpus::One, Cpus::Two, Cpus::Free].map(of).concat().concat()
}

/// Whether a bound speaks of the cell.
fn is_judged(cell: &Cell) -> bool {
    cell.cpus != Cpus::Free && (cell.work == Nanos(0) || cell.batch > 1)
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    // From the last one down: the first has most of the interrupts.
    let mut cpus = Linux.cpus()?;
    cpus.reverse();
    let mut cells = cells();
    cells.retain(|cell| cell.cpus == Cpus::One || cpus.len() > 1);
    cells.retain(|cell| !flags.judged || is_judged(cell));
    let window = Nanos::millis(flags.window);
    let counts: Vec<usize> = cells.iter().map(|cell| sides(cell).len()).collect();
    let all = rounds(flags.runs, &counts, |at, side| {
        let cell = &cells[at];
        channel::run(sides(cell)[side], cell, &cpus, window).map_err(Failure::error)
    })?;
    let rows = cells.into_iter().zip(all);
    let rows: Vec<(Cell, Rounds<Run>)> = rows.filter(|(_, rounds)| !rounds.0.is_empty()).collect();
    print(shown(&rows).trim_end())?;
    if cpus.len() < 2 {
        print("skipped: one CPU only, so two CPUs are not measured")?;
    }
    let mut bounds = bounds(&rows);
    if !signals::interrupted() {
        deaths(&cpus, flags.runs, &mut bounds)?;
    }
    bounds.print()
}

/// Returns the switches a round trip of a side.
fn switches(rounds: &Rounds<Run>, side: usize) -> f64 {
    rounds.median(side, |run| run.per_round_trip(run.switches))
}

/// Returns what woke a side of the channel, a round trip: the client (0) or the server (1).
fn wakes(run: &Run, which: usize) -> f64 {
    run.wakes
        .map_or(f64::NAN, |wakes| run.per_round_trip(wakes[which]))
}

fn ns(value: Option<u64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}

/// Returns a line for each side of each cell.
fn shown(rows: &[(Cell, Rounds<Run>)]) -> String {
    let mut lines = Vec::new();
    for (cell, rounds) in rows {
        for (at, side) in sides(cell).iter().enumerate() {
            let us = |value: f64| figure(value / 1e3, 2);
            let ratio = rounds.ratio(0, at, |run| ns(run.p50_ns));
            let is_known = at > 0 && !ratio.value.is_nan();
            lines.push(vec![
                cell.cpus.to_string(),
                cell.work.to_string(),
                cell.batch.to_string(),
                side.to_string(),
                figure(switches(rounds, at), 2),
                us(rounds.median(at, |run| ns(run.p50_ns))),
                us(rounds.median(at, |run| ns(run.p99_ns))),
                us(ns(rounds.side(at).map(|run| run.max_ns).max())),
                us(rounds.median(at, |run| run.per_round_trip(run.cpu_ns))),
                figure(rounds.median(at, |run| wakes(run, 0)), 2),
                figure(rounds.median(at, |run| wakes(run, 1)), 2),
                if is_known {
                    ratio.shown(3, "x")
                } else {
                    "-".to_owned()
                },
            ]);
        }
    }
    let head = "CPUs|work|k||sw/rt|p50|p99|max|CPU|wakes c|wakes s|channel of";
    format!(
        "medians of {} runs a side, interleaved; times in us of a round trip; max of all; channel of: its p50 over that \
         of the side, of runs beside each other (95 % interval over runs)\n{}\
         k: requests, and replies, of a round trip. sw/rt: switch-outs of both processes. wakes c, s: system calls that \
         woke the client, the server.\n",
        rows.iter()
            .map(|(_, rounds)| rounds.0.len())
            .min()
            .unwrap_or(0),
        table(head, lines),
    )
}

/// Returns the bounds of the cells. An unknown figure keeps no bound.
fn bounds(rows: &[(Cell, Rounds<Run>)]) -> Bounds {
    // To the two digits that are printed.
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let mut bounds = Bounds::default();
    for (cell, rounds) in rows.iter().filter(|(cell, _)| is_judged(cell)) {
        let (cpus, most, of_socket) = match cell.cpus {
            Cpus::One => ("one CPU", ONE_CPU, OF_SOCKET[0]),
            _ => ("two CPUs", TWO_CPUS, OF_SOCKET[1]),
        };
        let (work, batch) = (cell.work, cell.batch);
        if batch > 1 {
            let what =
                format!("{cpus}, work {work}: wake-ups for {batch} replies, most of any run");
            let wakes = rounds.side(0).map(|run| wakes(run, 0));
            let most = wakes.reduce(|a, b| if a > b { a } else { b });
            bounds.at_most(what, rounded(most.unwrap_or(f64::NAN)), WAKES);
            continue;
        }
        let what = format!("{cpus}, work {work}: switches a round trip");
        bounds.at_most(what, rounded(switches(rounds, 0)), most);
        let ratio = rounds.ratio(0, 1, |run| ns(run.p50_ns)).value;
        bounds.at_most(
            format!("{cpus}, work {work}: latency, of the socket's"),
            ratio,
            of_socket,
        );
    }
    bounds
}

/// Kills servers: early in the client's wait, late in it, and with `idle` 0. Prints how long after that the client knew.
fn deaths(cpus: &[u32], runs: u32, bounds: &mut Bounds) -> Result<(), Failure> {
    let usual = Options::default().idle;
    for (waited, idle) in [(3, usual), (50, usual), (3, Duration::ZERO)] {
        let waited = Nanos::millis(waited);
        let seen = (0..runs).map(|_| Ok(death(waited, idle, cpus)?.0 as f64 / 1e6));
        let seen: Vec<f64> = seen.collect::<Result<_, Failure>>()?;
        let most = seen.iter().copied().fold(0.0, f64::max);
        let idle = Nanos(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        print(&format!(
            "server killed {waited} into the client's wait, idle {idle}: known after {:.2} ms (median), {most:.2} ms (max of {runs})",
            middle(seen)
        ))?;
        let what =
            format!("killed {waited} into the wait, idle {idle}: known after, ms, most of any run");
        bounds.at_most(what, most, (idle + LATE).0 as f64 / 1e6);
    }
    Ok(())
}

fn death(waited: Nanos, idle: Duration, cpus: &[u32]) -> Result<Nanos, Failure> {
    let options = Options {
        idle,
        ..Options::default()
    };
    let (mut server, mut client) = pair(&options).map_err(failed("a channel"))?;
    let limits = ChildLimits::within(Nanos::secs(20));
    let serves: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(Cpus::Free, cpus, 0)?;
            let mut request = Vec::new();
            // Once there and back, so that both are there.
            server
                .recv(&mut request, None)
                .and_then(|()| server.send(b"", None))
                .and_then(|()| server.recv(&mut request, None))
                .map_err(text)?;
            let at = request.try_into().map_err(|_| "no request came")?;
            let at = Nanos(u64::from_ne_bytes(at));
            while Linux.now() < at {
                Linux.sleep_until(at);
            }
            // Its destructors must not run: the socket is the kernel's to close.
            let _ = kill_process(getpid(), Signal::KILL);
            Err("it outlived itself".to_owned())
        })
    });
    let asks: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(Cpus::Free, cpus, 1)?;
            let mut reply = Vec::new();
            let limit = Some(Duration::from_secs(5));
            client.call(b"", &mut reply, limit).map_err(text)?;
            // Whoever forked us drops its copies of both ends, which makes who sleeps then look again: not while we wait.
            Linux.sleep_until(Linux.now() + SETTLED);
            let at = Linux.now() + waited;
            match client.call(&at.0.to_ne_bytes(), &mut reply, limit) {
                Err(Error::PeerGone) => Ok(json!({ "seen": Linux.now().saturating_sub(at).0 })),
                other => Err(format!("the server died, the client got {other:?}")),
            }
        })
    });
    let outcomes = Linux.run_children(&limits, vec![serves, asks]);
    let asked = outcomes
        .get(1)
        .ok_or_else(|| Failure::error("the client was not started"))?;
    let seen = reported("client", asked).map_err(Failure::error)?["seen"].as_u64();
    let seen = seen.map(Nanos);
    seen.ok_or_else(|| Failure::error("the client measured nothing"))
}
