//! What the steps of a round trip cost on this machine, for `stopgap replay roundtrip --beside` this record.
//!
//! Calls are timed one by one on a socket that nobody sleeps on. Who sleeps and is woken cannot be timed so: there the
//! CPU time of a pair is divided by its replies, in a cell where each reply pre-empts the server.

use serde::{Deserialize, Serialize};
use stopgap_events::roundtrip::{Cell, ClientWait, Reply};
use stopgap_events::units::Nanos;
use stopgap_kernel::ipc::{Endpoint, Wait, Waiter};
use stopgap_kernel::tasks::{ChildBody, ChildLimits, Switches};
use stopgap_kernel::{Error, System};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Block, Series, parameters};

use super::client::MESSAGE;
use super::client::Order;
use super::run::{self, fixed_pair};
use crate::runner;

/// Name of the series; `step` says of what.
const PRICE: &str = "price";
/// How often a call is timed. Its price is the median.
const CALLS: usize = 1_000;
/// Descriptors of the longer wait, from which follows what one costs.
const DESCRIPTORS: usize = 50;
/// Time for a child.
const TIME: Nanos = Nanos::secs(30);
/// Batches of a pair.
const BATCHES: u64 = 40;
/// Work on each request of a pair: so long that the client is always behind the server, and pre-empts it.
const WORK: Nanos = Nanos::micros(50);
/// Requests of a batch of a pair.
const BATCH: u32 = 32;

/// Nanoseconds of each step, by its name.
type Steps = Vec<(String, f64)>;

/// One run's prices, as series of one block each.
///
/// # Errors
/// As the children's calls.
pub(super) fn measure(system: &dyn System, cpus: &[u32], run: u32) -> Result<Vec<Series>, Error> {
    let start_ns = system.now().0;
    let limits = ChildLimits::within(TIME);
    let body = || calls(system, cpus).map_err(String::from);
    let (steps, _) = runner::child::<Result<Steps, String>>(system, &limits, body)?;
    let mut steps = steps.map_err(Error::child)?;
    steps.push(("switch".to_owned(), switch(system, cpus)?));
    let price = |name: &str, steps: &[(String, f64)]| {
        let of = steps.iter().find(|(step, _)| step == name);
        of.map_or(0.0, |(_, ns)| *ns)
    };
    for client in [ClientWait::Epoll, ClientWait::Read, ClientWait::Poll] {
        let cell = Cell {
            client,
            work: WORK,
            batch: BATCH,
            reply: Reply::Each,
            ..Cell::PLAIN
        };
        let order = Order {
            cell: &cell,
            run,
            share: TIME,
            most: BATCHES,
            interrupted: &|| false,
        };
        let (server, asked) = fixed_pair(system, &order, cpus)?;
        let batches = asked.round_trips as f64;
        let replies = batches * f64::from(BATCH);
        let [write, read, wait, clock] =
            ["write", "read", "poll", "CPU clock"].map(|name| price(name, &steps));
        // The client pays a write a batch beside; the server a wait and a read.
        let took = asked.window.cpu.0 as f64 - batches * write;
        let pre_empted = server.rusage.involuntary as f64;
        let sleeps = asked.window.rusage.voluntary as f64;
        steps.push((format!("reply taken by {client}"), took / sleeps.max(1.0)));
        if client == ClientWait::Poll {
            let own = replies * (WORK.0 as f64 + 1.5 * clock) + batches * (read + wait);
            let served = server.cpu.0 as f64 - own - (replies - pre_empted).max(0.0) * write;
            steps.push(("reply served".to_owned(), served / pre_empted.max(1.0)));
        }
    }
    let series = |(step, value): (String, f64)| {
        let block = Block::number(run, start_ns, 1, value);
        Series::new(PRICE, "ns", &parameters([("step", step.into())]), [block])
    };
    Ok(steps.into_iter().map(series).collect())
}

/// Calls, one by one.
fn calls(system: &dyn System, cpus: &[u32]) -> Result<Steps, Error> {
    system.set_cpus(&cpus[..1])?;
    system.allow_files(4 * DESCRIPTORS as u64)?;
    let (ours, theirs) = system.stream_pair()?;
    let idle: Vec<_> = (1..DESCRIPTORS)
        .map(|_| system.stream_pair())
        .collect::<Result<_, _>>()?;
    let mut all = vec![&ours];
    all.extend(idle.iter().map(|(one, _)| one));
    let (mut one, mut many) = (
        Waiter::new(Wait::Poll, &[&ours])?,
        Waiter::new(Wait::Poll, &all)?,
    );
    let message = [0; MESSAGE];
    let mut buffer = [0; 4096];
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..CALLS {
        let mut before = system.now();
        let mut lap = |times: &mut Vec<f64>| {
            let now = system.now();
            times.push(now.saturating_sub(before).0 as f64);
            before = system.now();
        };
        theirs.write_all(&message)?;
        lap(&mut times[0]);
        one.wait()?;
        lap(&mut times[1]);
        many.wait()?;
        lap(&mut times[2]);
        ours.read(&mut buffer)?;
        lap(&mut times[3]);
        system.thread_cpu();
        lap(&mut times[4]);
    }
    let [write, poll, longer, read, clock] = times.map(|all| median(all).unwrap_or_default());
    let descriptor = (longer - poll).max(0.0) / (DESCRIPTORS - 1) as f64;
    let steps = [
        ("write", write),
        ("read", read),
        ("poll", poll),
        ("descriptor", descriptor),
        ("CPU clock", clock),
    ];
    Ok(steps.map(|(step, ns)| (step.to_owned(), ns)).to_vec())
}

/// CPU time of a switch between two tasks on one CPU that do nothing but yield it, sched_yield(2) included.
fn switch(system: &dyn System, cpus: &[u32]) -> Result<f64, Error> {
    let yields = |end: Endpoint, first: bool| -> Result<f64, Error> {
        system.set_cpus(&cpus[..1])?;
        // Both begin together.
        if first {
            end.write_all(&[0])?;
        } else {
            end.read(&mut [0])?;
        }
        let (cpu, before) = (system.thread_cpu(), system.switches()?);
        for _ in 0..CALLS {
            std::thread::yield_now();
        }
        let used = system.thread_cpu().saturating_sub(cpu);
        let switches = system.switches()?.since(before).total();
        Ok(used.0 as f64 / switches.max(1) as f64)
    };
    let (one, two) = system.stream_pair()?;
    let limits = ChildLimits::within(TIME);
    let body = |end, first| -> ChildBody<'_> {
        Box::new(move || runner::encode(&yields(end, first).map_err(String::from)))
    };
    let outcomes = system.run_children(&limits, vec![body(one, true), body(two, false)]);
    let mut least = f64::INFINITY;
    for outcome in outcomes {
        let used: Result<f64, String> = runner::decode(&outcome?)?;
        // The figure is too high for one that yielded by itself for a while.
        least = least.min(used.map_err(Error::child)?);
    }
    Ok(least)
}

// A given number of round trips and what they cost: what the cost of looking on is measured with.

/// Costs of the round trips, client and server together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// How many there were.
    pub round_trips: u64,
    /// By the wall clock.
    pub elapsed: Nanos,
    /// CPU time, user and system.
    pub cpu: Nanos,
    /// Switch-outs by getrusage(2).
    pub switches: Switches,
}

/// Carries out `round_trips` of `cell`, after a few that do not count. Client and server are
/// children of the caller, on CPUs of `cpus` (the server's first) as the cell says.
///
/// # Errors
/// What the system refuses, and where one of the two ends early or takes half an hour.
pub fn fixed(
    system: &dyn System,
    cell: &Cell,
    cpus: &[u32],
    round_trips: u64,
) -> Result<Cost, Error> {
    let order = Order {
        cell,
        run: 0,
        share: Nanos::secs(180), // both are killed after ten times that
        most: round_trips,
        interrupted: &|| false,
    };
    let (server, client) = run::fixed_pair(system, &order, cpus)?;
    let both = |of: fn(&Switches) -> u64| of(&client.window.rusage) + of(&server.rusage);
    Ok(Cost {
        round_trips: client.round_trips,
        elapsed: client.elapsed,
        cpu: client.window.cpu + server.cpu,
        switches: Switches {
            voluntary: both(|switches| switches.voluntary),
            involuntary: both(|switches| switches.involuntary),
        },
    })
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::Linux;

    use super::*;

    #[test]
    fn as_many_round_trips_as_asked_are_counted() {
        use stopgap_kernel::tasks::Tasks;
        let cpus = Linux.cpus().unwrap();
        let cost = fixed(&Linux, &Cell::PLAIN, &cpus, 500).unwrap();
        assert_eq!(cost.round_trips, 500);
        // Each of the two waits for the other every time, on one CPU.
        assert!(cost.switches.total() >= 990, "{cost:?}");
        assert!(
            cost.cpu > Nanos(0) && cost.elapsed >= Nanos(cost.cpu.0 / 2),
            "{cost:?}"
        );
    }
}
