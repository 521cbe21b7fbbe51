//! The pattern on real programs: an X server with 500 windows, and `xwininfo`, which asks for all of them.
//!
//! The client sends many requests at a time (a *flush*), the server writes each reply by itself, and each such
//! write may wake the client: mail 002, 2010. What is counted is switch-outs of client plus server a flush, over
//! a client's whole run. On one CPU one and the same pair takes 2 in one run and 10 in the next, because a
//! sleeper that came back behind stays behind: distributions are compared, never single runs. Each run has a
//! server of its own.

mod judge;

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::roundtrip::{ClientPolicy, Cpus};
use stopgap_events::units::Bytes;
use stopgap_kernel::x11::{Placing, XRun};
use stopgap_kernel::{Error, System};
use stopgap_stats::record::{Answer, Block, Parameter, parameters};

use crate::contract::{Context, Measured, Parameters, Plan, Probe, ProbeError, refuse};
use crate::runner::rotate;

/// Windows that `xwininfo` asks for.
const WINDOWS: u32 = 500;
/// Memory that a server and a client use.
const MEMORY: Bytes = Bytes::mib(128);

/// Names of series. The first three are per flush; a run's switches are those of the whole run.
const SWITCHES: &str = "switches";
const CLIENT: [&str; 2] = ["client blocked", "client pre-empted"];
const SERVER: [&str; 2] = ["server blocked", "server pre-empted"];
const OF_A_RUN: &str = "switches of a run";
const PER_FLUSH: &str = "switches/flush";

/// The probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct X11 {
    /// CPUs to use, the server's first; empty: those that we may use, from the last one down.
    pub cpus: Vec<u32>,
    /// Runs of each cell. An interval takes 3.
    pub runs: u32,
}

/// Where both run, and the client's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    cpus: Cpus,
    policy: ClientPolicy,
}

/// All of them; each under `SCHED_BATCH` behind the one that is not.
const CELLS: [Cell; 5] = {
    const fn cell(cpus: Cpus, policy: ClientPolicy) -> Cell {
        Cell { cpus, policy }
    }
    [
        cell(Cpus::One, ClientPolicy::Other),
        cell(Cpus::One, ClientPolicy::Batch),
        cell(Cpus::Two, ClientPolicy::Other),
        cell(Cpus::Free, ClientPolicy::Other),
        cell(Cpus::Free, ClientPolicy::Batch),
    ]
};

impl Cell {
    fn parameters(self) -> Parameters {
        parameters([
            ("client", Parameter::from("xwininfo")),
            ("server", "Xvfb".into()),
            ("windows", WINDOWS.into()),
            ("on", self.cpus.word().into()),
            ("policy", self.policy.word().into()),
        ])
    }

    fn placing(self, cpus: &[u32]) -> Placing {
        let (server, client) = match self.cpus {
            Cpus::One => (&cpus[..1], &cpus[..1]),
            Cpus::Two => (&cpus[..1], &cpus[1..2]),
            Cpus::Free => (cpus, cpus),
        };
        Placing {
            server: server.to_vec(),
            client: client.to_vec(),
            batch: self.policy == ClientPolicy::Batch,
            through: Vec::new(),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.cpus {
            Cpus::One => "one CPU",
            Cpus::Two => "two CPUs",
            Cpus::Free => "placed freely",
        })?;
        match self.policy {
            ClientPolicy::Other => Ok(()),
            ClientPolicy::Batch => f.write_str(", client under SCHED_BATCH"),
        }
    }
}

impl X11 {
    /// The CPUs to use, the server's first.
    fn cpus(&self, system: &dyn System) -> Result<Vec<u32>, ProbeError> {
        if self.runs == 0 {
            return refuse("0 runs measure nothing; give at least 1");
        }
        if self.cpus.is_empty() {
            let mut allowed = system.cpus()?;
            allowed.reverse();
            return Ok(allowed);
        }
        Ok(self.cpus.clone())
    }
}

/// Returns the cells that this many CPUs can run, and what is missing of the others.
fn possible(cpus: &[u32]) -> (Vec<Cell>, Vec<Missing>) {
    super::possible(&CELLS, cpus, |cell| cell.cpus != Cpus::One)
}

fn unsupported(error: Error) -> ProbeError {
    match error {
        Error::Unsupported { what, advice } => {
            ProbeError::Unsupported(format!("unsupported: {advice}; it takes {what}"))
        }
        error => error.into(),
    }
}

impl Probe for X11 {
    fn question(&self) -> Question {
        Question::Roundtrip
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        let cpus = self.cpus(context.system)?;
        context.system.x_programs().map_err(unsupported)?;
        let (cells, missing) = possible(&cpus);
        if MEMORY > context.budget {
            return refuse(format!(
                "an X server and its client use about {MEMORY}, more than the budget of {}; give a larger --memory",
                context.budget
            ));
        }
        Ok(Plan {
            what: format!(
                "Xvfb on a display of its own with {WINDOWS} windows, and xwininfo -root -tree, {} ways, {} runs \
                 each, on CPUs {cpus:?}",
                cells.len(),
                self.runs
            ),
            touches: vec![
                "a socket and a lock of an X display (/tmp/.X11-unix, /tmp/.X*-lock)".to_owned(),
            ],
            memory: MEMORY,
            time: context.time,
            missing,
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        let system = context.system;
        system.x_programs().map_err(unsupported)?;
        let cpus = self.cpus(system)?;
        let (mut cells, missing) = possible(&cpus);
        let mut measured = Measured {
            missing,
            ..Measured::default()
        };
        let measure = |measured: &mut Measured, run, cell: &Cell| {
            let start_ns = system.now().0;
            // A server of its own: a run is what a fresh pair of processes does.
            let placing = cell.placing(&cpus);
            let counted = system
                .start_x(WINDOWS, &placing.server)
                .and_then(|x| x.ask(&placing, &mut |_| Ok(())));
            match counted {
                Ok(counted) => keep_run(measured, *cell, run, start_ns, &counted),
                Err(_) if (context.interrupted)() => {} // Ctrl-C reaches them, too
                Err(error) => measured.note(cell.to_string(), error),
            }
            Ok(())
        };
        let name = Cell::to_string;
        rotate(
            context,
            &mut measured,
            self.runs,
            &mut cells,
            name,
            measure,
            |_, _| {},
        )?;
        Ok(measured)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        judge::judge(self, measured, seed, privilege)
    }
}

/// Adds what a run took.
fn keep_run(measured: &mut Measured, cell: Cell, run: u32, start_ns: u64, counted: &XRun) {
    if counted.windows < u64::from(WINDOWS) {
        let why = format!("xwininfo named {} of {WINDOWS} windows", counted.windows);
        return measured.note(cell.to_string(), why);
    }
    let mut add = |name: &str, unit: &str, samples: u64, value: f64| {
        let block = Block::number(run, start_ns, samples, value);
        measured.block(name, unit, &cell.parameters(), [block]);
    };
    let [client, server] = [counted.client, counted.server];
    let all = client.total() + server.total();
    let Some(flushes) = counted.flushes.filter(|&flushes| flushes > 0) else {
        add(OF_A_RUN, "switches", 1, count(all));
        let why = "the kernel does not say how often a process wrote (/proc/PID/io)";
        return measured.note("client flushes", why);
    };
    let of = |switches: u64| count(switches) / count(flushes);
    add(SWITCHES, PER_FLUSH, flushes, of(all));
    for (names, switches) in [(CLIENT, client), (SERVER, server)] {
        add(names[0], PER_FLUSH, flushes, of(switches.voluntary));
        add(names[1], PER_FLUSH, flushes, of(switches.involuntary));
    }
    add(OF_A_RUN, "switches", 1, count(all));
    add("flushes", "flushes", 1, count(flushes));
    add("duration", "ns", 1, count(counted.elapsed.0));
    measured.count("flushes", flushes);
}

fn count(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
