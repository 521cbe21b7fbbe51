//! Clients and servers of a recorded trace as cells of the model.

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::roundtrip::{Cell, ClientWait, Cpus, Reply, Wait};
use stopgap_events::units::Nanos;
use stopgap_explain::{Exchange, Exchanges, Explainer, Options};
use stopgap_kernel::signals;
use stopgap_models::roundtrip::{MOST_BATCH, Prices};
use stopgap_report::text::plain;
use stopgap_stats::replay::roundtrip::{Beside, RoundtripRow};
use stopgap_trace::{Metadata, Text};

use super::kernels;
use crate::args::ReplayRoundtrip;
use crate::failure::Failure;
use crate::input_file;

/// Pairs that are replayed: those with the most round trips.
const MOST_PAIRS: usize = 8;
/// Fewer round trips say nothing of how the two talk.
const FEWEST: u64 = 5;
/// The longest time of work or thinking a round trip that the model takes.
const LONGEST: Nanos = Nanos::secs(1);

/// A pair of the trace, the cell that is like it, and what of it is assumed.
#[derive(Clone)]
pub(super) struct Observed {
    named: String,
    cell: Cell,
    roundtrips: u64,
    switches: u64,
    missing: Vec<Missing>,
}

/// The pairs of the trace in `path`, which is read twice.
pub(super) fn read(path: &Path) -> Result<Vec<Observed>, Failure> {
    let name = plain(&path.display().to_string());
    let failed = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    let each = |take: &mut dyn FnMut(&stopgap_trace::Event) -> Result<(), Failure>| {
        let file = input_file::trace(path).map_err(|error| failed(&error))?;
        let input = stopgap_trace::Input::new(file).map_err(|error| failed(&error))?;
        let metadata = input.metadata().clone();
        for event in input {
            if signals::interrupted() {
                return Err(failed(&"interrupted before anything was replayed"));
            }
            take(&event.map_err(|error| failed(&error))?)?;
        }
        Ok::<Metadata, Failure>(metadata)
    };
    let options = Options {
        top: 0,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(&Metadata::default(), options);
    each(&mut |event| {
        explainer.event(event);
        explainer.is_full().map_or(Ok(()), |why| Err(failed(&why)))
    })?;
    let mut exchanges = Exchanges::new(&explainer.pairs());
    let metadata = each(&mut |event| {
        exchanges.event(event);
        Ok(())
    })?;
    let lost: u64 =
        (metadata.losses.iter().flatten()).fold(0, |sum, loss| sum.saturating_add(loss.count));
    let mut exchanges = exchanges.finish();
    exchanges.retain(|exchange| exchange.roundtrips >= FEWEST);
    exchanges.truncate(MOST_PAIRS);
    let seen: Vec<Observed> = exchanges
        .iter()
        .map(|exchange| Observed::from_exchange(exchange, lost))
        .collect();
    if seen.is_empty() {
        return Err(failed(&format_args!(
            "no two threads in it asked and answered each other {FEWEST} times, so there is nothing to replay; record \
             client and server with system calls, switches and wakings (stopgap record), and see what stopgap explain \
             finds"
        )));
    }
    Ok(seen)
}

/// Their cells, by each of the kernel's behaviours that `flags` name; `seen` becomes as long.
pub(super) fn cells(seen: &mut Vec<Observed>, flags: &ReplayRoundtrip) -> Vec<Cell> {
    let (mut all, mut cells) = (Vec::new(), Vec::new());
    for pair in seen.drain(..) {
        for kernel in kernels(flags) {
            cells.push(Cell {
                kernel,
                ..pair.cell
            });
            all.push(pair.clone());
        }
    }
    *seen = all;
    cells
}

impl Observed {
    fn from_exchange(exchange: &Exchange, lost: u64) -> Observed {
        let mut missing = Vec::new();
        let mut assume = |what: &str, why: String| missing.push(Missing::new(what, why));
        let of = |name: &Option<Text>, tid: u32| match name {
            Some(name) => format!("{name} ({tid})"),
            None => format!("thread {tid}"),
        };
        let (client, server) = &exchange.names;
        let trips = exchange.roundtrips;

        let mut cell = Cell::PLAIN;
        cell.client = match most(&exchange.client_waits, trips) {
            Some("epoll_wait" | "epoll_pwait" | "epoll_pwait2") => ClientWait::Epoll,
            Some(_) => ClientWait::Poll,
            None => ClientWait::Read,
        };
        cell.server = match most(&exchange.server_waits, trips) {
            Some("epoll_wait" | "epoll_pwait" | "epoll_pwait2") => Wait::Epoll,
            Some("select" | "pselect6") => Wait::Select,
            Some(_) => Wait::Poll,
            None => {
                let why = "it blocks in its read, which the model's server does not; taken as poll of one descriptor";
                assume("the server's wait", why.to_owned());
                Wait::Poll
            }
        };
        let known = exchange.server_descriptors.filter(|&count| count > 0);
        let fits = known.and_then(|count| u32::try_from(count.min(1 << 20)).ok());
        cell.descriptors = fits.unwrap_or(1);
        match cell.server {
            Wait::Epoll => {
                let why = "epoll's calls do not say; taken as 1: it looks only at what is ready";
                assume("the server's descriptors", why.to_owned());
            }
            Wait::Select => {
                let why = "select says the highest, not how many; taken as all below it";
                assume("the server's descriptors", why.to_owned());
            }
            Wait::Poll if known.is_none() => {
                assume(
                    "the server's descriptors",
                    "no call says; taken as 1".to_owned(),
                );
            }
            Wait::Poll => {}
        }

        // A write may hold several requests, which no event tells; replies one by one do.
        let replies = (exchange.replies + trips / 2) / trips;
        let batch = u32::try_from(replies.clamp(1, u64::from(MOST_BATCH))).unwrap_or(1);
        cell.batch = batch;
        if batch > 1 {
            cell.reply = Reply::Each;
            let why = format!(
                "{:.2} writes answer a flush; taken as {batch} requests, a write each",
                exchange.replies as f64 / trips as f64
            );
            assume("requests a flush", why);
        } else {
            let why =
                "one write answers a flush, which may hold several; taken as 1, answered together";
            assume("requests a flush", why.to_owned());
        }

        // The model's programs have a little of their own, which is in its prices already.
        let own = Prices::default();
        let server_own = own.server_loop.saturating_mul(u64::from(batch));
        let server_ns = exchange
            .server_user_ns
            .map(|ns| (ns / trips).saturating_sub(server_own));
        let client_ns =
            (exchange.client_user_ns).map(|ns| (ns / trips).saturating_sub(own.client_loop));
        let mut bounded = |what: &str, ns: Option<u64>, count: u32| {
            let Some(ns) = ns else {
                let why = "no row tells when its calls begin and end (stopgap record --events all has them); taken as none";
                assume(what, why.to_owned());
                return Nanos(0);
            };
            if ns > LONGEST.0 {
                assume(
                    what,
                    format!("{} a round trip; taken as {LONGEST}", Nanos(ns)),
                );
            }
            Nanos(ns.min(LONGEST.0) / u64::from(count))
        };
        cell.work = bounded("the server's work", server_ns, batch);
        cell.think = bounded("the client's thinking", client_ns, 1);
        cell.cpus = match exchange.one_cpu {
            Some(true) => Cpus::One,
            Some(false) => {
                let why =
                    "they ran on several; the model gives each one of its own and never moves it";
                assume("their CPUs", why.to_owned());
                Cpus::Two
            }
            None => {
                assume("their CPUs", "no event says; taken as one".to_owned());
                Cpus::One
            }
        };
        let why = "no event says whether it is SCHED_BATCH; taken as SCHED_OTHER";
        assume("the client's policy", why.to_owned());
        if lost > 0 {
            let why = format!("{lost} events were lost when it was recorded");
            assume("round trips that are not in the trace", why);
        }
        Observed {
            named: format!(
                "{} asks {}",
                of(client, exchange.client),
                of(server, exchange.server)
            ),
            cell,
            roundtrips: trips,
            switches: exchange.switches,
            missing,
        }
    }

    /// Puts what the trace shows beside what is modelled.
    pub(super) fn stands_beside(&self, row: &mut RoundtripRow) {
        row.workload = format!("{}: {}", plain(&self.named), row.workload);
        let switches = self.switches as f64 / self.roundtrips as f64;
        let factor = row.switches_per_request.filter(|_| switches > 0.0);
        row.measured = Some(Beside {
            runs: 1,
            switches,
            least: switches,
            most: switches,
            factor: factor.map(|modelled| modelled / switches),
            shares: BTreeMap::new(),
        });
        row.missing.extend(self.missing.iter().cloned());
    }
}

/// The call that waits most often, where there is one in half of the round trips or more.
fn most(waits: &BTreeMap<Text, u64>, trips: u64) -> Option<&str> {
    let all: u64 = waits.values().sum();
    let most = waits.iter().max_by_key(|(_, count)| **count)?;
    (all.saturating_mul(2) >= trips).then_some(&**most.0)
}
