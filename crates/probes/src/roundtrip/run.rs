//! Starts a client and a server for each cell and run, and gathers what they say.

use serde::Serialize;
use serde::de::DeserializeOwned;
use stopgap_events::machine::Missing;
use stopgap_events::roundtrip::{Cell, ClientPolicy, Cpus};
use stopgap_events::units::Nanos;
use stopgap_kernel::ipc::Endpoint;
use stopgap_kernel::tasks::{ChildBody, ChildLimits, ChildOutcome, Switches};
use stopgap_kernel::{Error, System};
use stopgap_stats::record::Block;
use stopgap_stats::roundtrip::parameters as cell_parameters;

use super::client::{Asked, Counted, LEAST, Order, ask, fixed_count};
use super::client::{Served, serve};
use super::meter::{RECORDS, STATUS, Window};
use super::prices;
use super::{OTHER_FILES, Roundtrip};
use crate::contract::{Context, Measured, ProbeError};
use crate::runner::{self, rotate};

/// Names of series: switch-outs a round trip by getrusage(2), of both and of each side.
pub(super) const SWITCHES: &str = "switches";
pub(super) const CLIENT_VOLUNTARY: &str = "client blocked";
pub(super) const CLIENT_INVOLUNTARY: &str = "client pre-empted";
pub(super) const SERVER_VOLUNTARY: &str = "server blocked";
pub(super) const SERVER_INVOLUNTARY: &str = "server pre-empted";
/// CPU time of both a round trip.
pub(super) const CPU: &str = "CPU time";
/// Latency from the intended start.
pub(super) const LATENCY: &str = "latency";
/// How much of the time others had the CPU that client and server share, per cent.
pub(super) const OTHERS: &str = "CPU taken by others";
/// Names of counters: periods of the paced phases, and those that passed whole before their
/// batch could be sent.
pub(super) const PERIODS: &str = "periods";
pub(super) const MISSED: &str = "missed periods";
/// Unit of all that counts switches.
pub(super) const PER_ROUND_TRIP: &str = "switches/rt";

/// Names of losses: those periods, and records of switches that did not fit into a ring.
const LOST_RECORDS: &str = "records of switches";

pub(super) fn run(
    probe: &Roundtrip,
    mut cells: Vec<Cell>,
    cpus: &[u32],
    missing: Vec<Missing>,
    context: &Context<'_>,
) -> Result<Measured, ProbeError> {
    let mut measured = Measured {
        missing,
        ..Measured::default()
    };
    measured.count(PERIODS, 0);
    measured.lose(MISSED, 0);
    measured.lose(LOST_RECORDS, 0);
    let total = cells.len() * probe.runs as usize;
    let share = Nanos(context.time.0 / total.max(1) as u64);
    let mut begun = false;
    let measure = |measured: &mut Measured, run, cell: &Cell| {
        let order = Order {
            cell,
            run,
            share,
            most: probe.round_trips,
            interrupted: context.interrupted,
        };
        match pair(context.system, &order, cpus, ask) {
            Ok(outcomes) => keep(measured, &order, &outcomes),
            // Nothing can be started here at all: no socket, no process.
            Err(error) if !begun => return Err(error.into()),
            Err(error) => measured.note(cell.to_string(), error),
        }
        begun = true;
        Ok(())
    };
    let prices = |measured: &mut Measured, run| match prices::measure(context.system, cpus, run) {
        Ok(series) => series.into_iter().for_each(|series| measured.add(series)),
        Err(_) if (context.interrupted)() => {}
        Err(error) => measured.note("price", error),
    };
    let name = Cell::to_string;
    rotate(
        context,
        &mut measured,
        probe.runs,
        &mut cells,
        name,
        measure,
        prices,
    )?;
    Ok(measured)
}

type Outcomes = [Result<ChildOutcome, Error>; 2];

/// Task of the client.
type Ask = fn(&dyn System, &Order<'_>, &Endpoint) -> Result<Asked, Error>;

/// Runs a server and a client that does `ask`; returns how they ended, the server first.
fn pair(system: &dyn System, order: &Order<'_>, cpus: &[u32], ask: Ask) -> Result<Outcomes, Error> {
    let cell = order.cell;
    // All phases together take a share; a machine that others use may take many times that.
    let limits = ChildLimits::within(Nanos::secs(20) + Nanos(order.share.0.saturating_mul(10)));
    // Each body owns its end, so that the other sees its process go.
    let (server_end, client_end) = system.stream_pair()?;
    let server: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(system, cell, cpus, 0)?;
            system.allow_files(u64::from(cell.descriptors) * 2 + OTHER_FILES)?;
            serve(system, cell, &server_end)
        })
    });
    let client: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(system, cell, cpus, 1)?;
            if cell.policy == ClientPolicy::Batch {
                system.set_batch()?;
            }
            ask(system, order, &client_end)
        })
    });
    let mut outcomes = system
        .run_children(&limits, vec![server, client])
        .into_iter();
    let mut next = || {
        outcomes
            .next()
            .unwrap_or_else(|| Err(Error::child("was not started")))
    };
    Ok([next(), next()])
}

/// Puts the calling process, number `side` of the two, where its cell has it.
fn place(system: &dyn System, cell: &Cell, cpus: &[u32], side: usize) -> Result<(), Error> {
    match cell.cpus {
        Cpus::One => system.set_cpus(&cpus[..1]),
        Cpus::Two => system.set_cpus(&cpus[side..=side]),
        Cpus::Free => system.set_cpus(cpus),
    }
}

/// Returns the message of a child to its parent: what it measured, or why it could not.
fn report<T: Serialize>(body: impl FnOnce() -> Result<T, Error>) -> Vec<u8> {
    runner::encode(&body().map_err(String::from))
}

fn reported<T: DeserializeOwned>(outcome: &Result<ChildOutcome, Error>) -> Result<T, String> {
    let outcome = outcome.as_ref().map_err(ToString::to_string)?;
    runner::decode(outcome).unwrap_or_else(|error| Err(error.to_string()))
}

/// Returns what server and client sent, or which of them did not.
fn both_reports(outcomes: &Outcomes) -> Result<(Served, Asked), String> {
    match (reported(&outcomes[0]), reported(&outcomes[1])) {
        (Ok(served), Ok(asked)) => Ok((served, asked)),
        // One that fails takes the other with it; the two texts show which was first.
        (Err(server), Err(client)) => Err(format!("server: {server}; client: {client}")),
        (Err(why), Ok(_)) => Err(format!("server: {why}")),
        (Ok(_), Err(why)) => Err(format!("client: {why}")),
    }
}

/// A pair that does what `order` says once, without records: the server's window and the client's.
pub(super) fn fixed_pair(
    system: &dyn System,
    order: &Order<'_>,
    cpus: &[u32],
) -> Result<(Window, Counted), Error> {
    let outcomes = pair(system, order, cpus, fixed_count)?;
    let (served, asked) = both_reports(&outcomes).map_err(Error::child)?;
    let windows = served.windows.first().zip(asked.windows.first());
    let (server, client) = windows.ok_or_else(|| Error::child("without a window"))?;
    Ok((*server, *client))
}

/// Adds what a pair sent.
fn keep(measured: &mut Measured, order: &Order<'_>, outcomes: &Outcomes) {
    for outcome in outcomes.iter().flatten() {
        measured.keep_peak(outcome.peak_resident);
    }
    let (served, asked) = match both_reports(outcomes) {
        Ok(said) => said,
        // Ctrl-C reaches the children too; a second one ends them.
        Err(_) if (order.interrupted)() => return,
        Err(why) => return measured.note(order.cell.to_string(), why),
    };
    for missing in served.missing.into_iter().chain(asked.missing) {
        measured.note(missing.what, missing.why);
    }
    let parameters = cell_parameters(order.cell);
    let mut add =
        |name: &str, unit: &str, block: Block| measured.block(name, unit, &parameters, [block]);
    let (mut lost, mut periods) = (0, 0);
    let block =
        |round_trips: u64, value: f64| Block::number(order.run, asked.start.0, round_trips, value);
    // Ctrl-C cuts a window short: a figure of a few round trips, or of none, is no run's.
    let whole = |(client, _): &(&Counted, &Window)| client.round_trips >= LEAST.min(order.most);
    let mut windows = asked.windows.iter().zip(&served.windows);
    if let Some((timed, server)) = windows.next().filter(whole) {
        let cpu = timed.window.cpu + server.cpu;
        let count = timed.round_trips;
        add(CPU, "ns/rt", block(count, ratio(cpu.0, count)));
    }
    if let Some((counted, server)) = windows.next().filter(whole) {
        let count = counted.round_trips;
        for (name, switches) in means(counted, server) {
            add(name, PER_ROUND_TRIP, block(count, ratio(switches, count)));
        }
        if order.cell.cpus == Cpus::One {
            let ours = (counted.window.cpu + server.cpu).0;
            let others = 100.0 - 100.0 * ratio(ours, counted.elapsed.0);
            add(OTHERS, "%", block(count, others.max(0.0)));
        }
        let records = [counted.window.records, server.records];
        lost = records.iter().flatten().map(|records| records.lost).sum();
    }
    if let Some(latency) = asked.latency {
        periods = latency.samples;
        add(LATENCY, "ns", latency);
    }
    if let Some(period) = asked.period {
        add("intended period", "ns", block(1, period.0 as f64));
    }
    measured.count(PERIODS, periods);
    measured.lose(MISSED, asked.missed);
    measured.lose(LOST_RECORDS, lost);
}

/// Switch-outs over the counted window, by series.
fn means(client: &Counted, server: &Window) -> Vec<(&'static str, u64)> {
    let client = &client.window;
    let both =
        |of: fn(&Window) -> Option<Switches>| Some(of(client)?.total() + of(server)?.total());
    let mut means = vec![
        (SWITCHES, client.rusage.total() + server.rusage.total()),
        (CLIENT_VOLUNTARY, client.rusage.voluntary),
        (CLIENT_INVOLUNTARY, client.rusage.involuntary),
        (SERVER_VOLUNTARY, server.rusage.voluntary),
        (SERVER_INVOLUNTARY, server.rusage.involuntary),
    ];
    means.extend(both(|window| window.status).map(|total| (STATUS, total)));
    // A count that lacks some is no count.
    let whole = both(|window| {
        let records = window.records?;
        (records.lost == 0).then_some(records.switches)
    });
    means.extend(whole.map(|total| (RECORDS, total)));
    means
}

fn ratio(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(round_trips: u64) -> Counted {
        Counted {
            round_trips,
            elapsed: Nanos::millis(1),
            window: Window {
                rusage: Switches {
                    voluntary: round_trips + 1,
                    involuntary: 0,
                },
                status: None,
                records: None,
                cpu: Nanos::micros(300),
            },
        }
    }

    /// Returns what a pair sends whose phases had that many round trips.
    fn gathered(phases: [u64; 2]) -> Vec<stopgap_stats::record::Series> {
        let windows = phases.map(counted);
        let served = Served {
            windows: windows.map(|counted| counted.window).to_vec(),
            missing: Vec::new(),
        };
        let asked = Asked {
            windows: windows.to_vec(),
            ..Asked::default()
        };
        let outcome = |output| {
            Ok(ChildOutcome {
                output,
                peak_resident: 0,
            })
        };
        let outcomes = [
            outcome(report(|| Ok(served))),
            outcome(report(|| Ok(asked))),
        ];
        let order = Order {
            cell: &Cell::PLAIN,
            run: 0,
            share: Nanos(1),
            most: 1_000,
            interrupted: &|| true,
        };
        let mut measured = Measured::default();
        keep(&mut measured, &order, &outcomes);
        measured.series
    }

    #[test]
    fn a_window_that_was_cut_short_is_no_figure() {
        let names = |phases| -> Vec<String> {
            let series = gathered(phases);
            series.into_iter().map(|series| series.name).collect()
        };
        assert!(names([LEAST, LEAST]).contains(&SWITCHES.to_owned()));
        assert_eq!(names([LEAST, 0]), [CPU]);
        assert_eq!(names([3, 0]), [""; 0]);
    }
}
