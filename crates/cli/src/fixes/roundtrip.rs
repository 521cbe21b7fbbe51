//! `roundtrip`: a client that pre-empts nobody, and a channel instead of a socket.

use stopgap_events::units::Nanos;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::Cpus;
use stopgap_stats::fix::Fix;
use stopgap_stats::record::{Answer, Parameter};

use super::channel::{self, Cell, Side};
use super::{Allowed, CHILD, pairs};

/// Measurements of a run of the channel or the socket.
const WINDOW: Nanos = Nanos::millis(30);

pub(super) fn fixes(answer: &Answer, allowed: Allowed) -> Vec<Fix> {
    let mut fixes: Vec<Fix> = batch_client(answer, allowed).into_iter().collect();
    fixes.extend(over_a_channel(allowed));
    fixes
}

/// Returns the cell where `SCHED_BATCH` for the client changes most, among those that the probe measured with and without.
fn batch_client(answer: &Answer, allowed: Allowed) -> Option<Fix> {
    let switches = || {
        answer
            .series
            .iter()
            .filter(|series| series.name == "switches")
    };
    let ordinary = |batch: &stopgap_stats::record::Series| {
        let mut parameters = batch.parameters.clone();
        parameters.insert("policy".to_owned(), Parameter::from("other"));
        switches().find(|series| series.parameters == parameters)
    };
    let tried = switches()
        .filter(|series| series.word("policy") == Some("batch"))
        .filter_map(|batch| {
            let pairs = pairs(ordinary(batch)?, batch);
            let count = match batch.parameters.get("batch") {
                Some(Parameter::Number(count)) if *count > 1 => {
                    format!("switches for {count} replies by a write each")
                }
                _ => "switches a round trip".to_owned(),
            };
            Some(Fix::tried("batch-client", &count, "", pairs, allowed.seed))
        });
    let most = tried.max_by(|a, b| {
        let factor = |fix: &Fix| fix.factor.as_ref().map_or(0.0, |factor| factor.value);
        factor(a).total_cmp(&factor(b))
    })?;
    let command = "docs/fixes/batch-client.md, or stopgap run --fix batch-client -- CLIENT";
    Some(
        most.but("the client also waits its turn where others want its CPU")
            .command(command),
    )
}

/// The arena's channel beside a socket and poll(2), on one CPU and on two.
fn over_a_channel(allowed: Allowed) -> Vec<Fix> {
    // A client and a server; what they send each other is some KiB.
    if let Some(why) = allowed.refuses(CHILD + CHILD) {
        return vec![Fix::untried("channel", &why)];
    }
    let cpus = match Linux.cpus() {
        Ok(mut cpus) => {
            cpus.reverse();
            cpus
        }
        Err(error) => return vec![Fix::untried("channel", &error.to_string())],
    };
    let places = [(Cpus::One, "one CPU"), (Cpus::Two, "two CPUs")];
    let places = places.into_iter().take(cpus.len());
    places
        .map(|(place, words)| {
            let cell = Cell {
                cpus: place,
                work: Nanos(0),
                batch: 1,
            };
            let run = |side| channel::run(side, &cell, &cpus, WINDOW);
            let mut us = Vec::new();
            for _ in 0..allowed.turns() {
                if signals::interrupted() {
                    break;
                }
                let p50 = |run: channel::Run| run.p50_ns.map(|ns| ns as f64 / 1e3);
                match (run(Side::Socket), run(Side::Channel)) {
                    (Ok(socket), Ok(ours)) => {
                        us.extend(p50(socket).zip(p50(ours)).map(|(a, b)| [a, b]));
                    }
                    (Err(why), _) | (_, Err(why)) => return Fix::untried("channel", &why),
                }
            }
            let what = format!("a round trip on {words}, socket and channel");
            Fix::tried("channel", &what, "us", us, allowed.seed).command("docs/fixes/channel.md")
        })
        .collect()
}
