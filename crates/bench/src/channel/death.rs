//! How long after its server was killed a client that waits for the reply knows it.

use std::time::Duration;

use serde_json::json;
use stopgap_arena::Error;
use stopgap_arena::channel::{self, Options};
use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::tasks::{ChildBody, ChildLimits, Tasks};
use stopgap_probes::roundtrip::Cpus;

use stopgap_cli::fixes::channel::{place, report, reported};

/// How long the client has waited when the server is killed, and what it learnt when.
#[derive(Debug, Clone)]
pub(super) struct Death {
    pub(super) waited: Nanos,
    pub(super) idle: Nanos,
    /// From the kill to the error, of each run.
    pub(super) seen: Vec<Nanos>,
}

/// How long both processes run before the client asks.
const SETTLED: Nanos = Nanos::millis(5);

/// Kills servers: early in the client's wait, late in it, and with `idle` 0.
pub(super) fn measure(cpus: &[u32], runs: u32) -> Result<Vec<Death>, Failure> {
    let usual = Options::default().idle;
    let cells = [
        (Nanos::millis(3), usual),
        (Nanos::millis(50), usual),
        (Nanos::millis(3), Duration::ZERO),
    ];
    let mut deaths = Vec::new();
    for (waited, idle) in cells {
        let seen: Result<Vec<Nanos>, Failure> =
            (0..runs).map(|_| death(waited, idle, cpus)).collect();
        deaths.push(Death {
            waited,
            idle: Nanos(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX)),
            seen: seen?,
        });
    }
    Ok(deaths)
}

fn death(waited: Nanos, idle: Duration, cpus: &[u32]) -> Result<Nanos, Failure> {
    let options = Options {
        idle,
        ..Options::default()
    };
    let pair = channel::pair(&options).map_err(|error| Failure::error(error.to_string()))?;
    let (mut server, mut client) = pair;
    let limits = ChildLimits {
        time: Nanos::secs(20),
        cgroup: None,
    };
    let serves: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(Cpus::Free, cpus, 0)?;
            let mut request = Vec::new();
            // Once there and back, so that both are there.
            server
                .recv(&mut request, None)
                .and_then(|()| server.send(b"", None))
                .and_then(|()| server.recv(&mut request, None))
                .map_err(|error| error.to_string())?;
            let at = request.try_into().map_err(|_| "no request came")?;
            let at = Nanos(u64::from_ne_bytes(at));
            while Linux.now() < at {
                Linux.sleep_until(at);
            }
            // Its destructors must not run: the socket is the kernel's to close.
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            Err("it outlived itself".to_owned())
        })
    });
    let asks: ChildBody<'_> = Box::new(move || {
        report(|| {
            place(Cpus::Free, cpus, 1)?;
            let mut reply = Vec::new();
            let limit = Some(Duration::from_secs(5));
            let ready = client.call(b"", &mut reply, limit);
            ready.map_err(|error| error.to_string())?;
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
    seen.map(Nanos)
        .ok_or_else(|| Failure::error("the client measured nothing"))
}
