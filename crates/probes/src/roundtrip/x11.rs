//! The pattern on real programs: an X server with 500 windows, and `xwininfo`, which asks for all of them.
//!
//! The client sends many requests at a time (a *flush*), the server writes each reply by itself, and each such
//! write may wake the client: mail 002, 2010. What is counted is switch-outs of client plus server a flush, over
//! a client's whole run. On one CPU one and the same pair takes 2 in one run and 10 in the next, because a
//! sleeper that came back behind stays behind: distributions are compared, never single runs. Each run has a
//! server of its own.

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::roundtrip::{ClientPolicy, Cpus};
use stopgap_events::units::Bytes;
use stopgap_kernel::x11::{Placing, XRun};
use stopgap_kernel::{Error, System};
use stopgap_stats::record::{Answer, Block, Figure, Parameter, Series, parameters};
use stopgap_stats::verdict::{Verdict, Word, runs_text};

use crate::contract::{
    Context, Judgement, Measured, Parameters, Plan, Probe, ProbeError, list, refuse,
};
use crate::roundtrip::judge::{Counts, find};
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
        judge(self, measured, seed, privilege)
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

// Answers from the runs, without a system.

/// Runs of which a p90 is given: one of ten is above it.
const FOR_P90: usize = 10;
/// A cell and what its runs took.
struct Spread {
    cell: Cell,
    /// Switch-outs a flush of each run, ascending.
    runs: Vec<f64>,
    /// Their median, over runs, and who switched.
    middle: Counts,
}

fn judge(probe: &X11, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
    let spreads: Vec<Spread> = CELLS
        .iter()
        .filter_map(|&cell| spread(cell, &measured, seed))
        .collect();
    let (verdict, figure) = match measured.without_figures() {
        Some(nothing) => (nothing, None),
        None => verdict(&spreads, &measured),
    };
    let parameters = parameters([
        ("x11", "Xvfb, xwininfo -root -tree".into()),
        ("windows", WINDOWS.into()),
        ("cpu-list", list(&probe.cpus, ",").into()),
        ("runs", probe.runs.into()),
        ("seed", seed.into()),
    ]);
    let judgement = Judgement {
        verdict,
        figure,
        evidence: spreads.iter().map(Spread::sentence).collect(),
        advice: advice(&spreads),
    };
    measured.into_answer(Question::Roundtrip, parameters, privilege, judgement)
}

/// `None` with too few runs for an interval.
fn spread(cell: Cell, measured: &Measured, seed: u64) -> Option<Spread> {
    let parameters = cell.parameters();
    let values = |name: &str| {
        let series = find(&measured.series, name, &parameters);
        series.map(Series::values).unwrap_or_default()
    };
    let mut runs = values(SWITCHES);
    runs.sort_unstable_by(f64::total_cmp);
    let shares = [CLIENT[0], CLIENT[1], SERVER[0], SERVER[1]].map(values);
    let middle = Counts::new(&runs, shares, seed)?;
    Some(Spread { cell, runs, middle })
}

impl Spread {
    /// `one CPU: 9.8 (9.1..10.4) switches/flush, p90 12.6, 2.0 to 26.3 in 30 runs`.
    fn sentence(&self) -> String {
        let middle = self.middle.text(PER_FLUSH);
        let p90 = match self.p90() {
            Some(p90) => format!("p90 {p90:.2}"),
            None => format!("p90 takes {FOR_P90} runs"),
        };
        let [first, .., last] = self.runs[..] else {
            return format!("{}: {middle}", self.cell);
        };
        let n = self.runs.len();
        format!(
            "{}: {middle}, {p90}, {first:.2} to {last:.2} in {n} runs",
            self.cell
        )
    }

    /// 90 % of the runs took no more.
    fn p90(&self) -> Option<f64> {
        let count = self.runs.len();
        (count >= FOR_P90).then(|| self.runs[(count * 9).div_ceil(10) - 1])
    }

    /// Returns which switches are too many, and in which process.
    fn what(&self) -> String {
        let most = self.middle.largest([
            "the client blocks more than once a flush",
            "the client is pre-empted",
            "the server blocks more than once a flush",
            "the server is pre-empted while it answers",
        ]);
        let (cell, by_side) = (self.cell, self.middle.by_side());
        format!("Xvfb and xwininfo, {cell}: {most} ({by_side})")
    }
}

/// What takes clearly less than `mine`: the client under `SCHED_BATCH` at the same place, then a CPU for each.
fn remedies<'s>(mine: &Spread, all: &'s [Spread]) -> Vec<(&'static str, &'s Spread)> {
    let same_place = |other: &&Spread| {
        other.cell.cpus == mine.cell.cpus && other.cell.policy == ClientPolicy::Batch
    };
    let batch = all.iter().find(same_place);
    let two = all.iter().find(|other| other.cell.cpus == Cpus::Two);
    [
        ("SCHED_BATCH for the client", batch),
        ("a CPU for each", two),
    ]
    .into_iter()
    .filter_map(|(what, other)| Some((what, other?)))
    .filter(|(_, other)| mine.middle.is_beaten_by(&other.middle))
    .collect()
}

fn verdict(spreads: &[Spread], measured: &Measured) -> (Verdict, Option<Figure>) {
    let usual = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other);
    let most = usual.max_by(|a, b| a.middle.all.value.total_cmp(&b.middle.all.value));
    let Some(most) = most else {
        let runs = measured
            .series
            .iter()
            .map(|series| series.blocks.len())
            .max();
        let why = format!(
            "{} with a count of flushes; an interval takes 3",
            runs_text(runs.unwrap_or(0))
        );
        return (Verdict::inconclusive(&why), None);
    };
    let text = if most.middle.exceeds() {
        let excess = most.middle.times();
        let remedy = remedies(most, spreads).into_iter().next();
        let remedy = remedy.map_or_else(String::new, |(what, other)| {
            let removed = other.middle.is_clean();
            let verb = if removed { "removes" } else { "lowers" };
            format!("; {what} {verb} it ({:.2})", other.middle.all.value)
        });
        let text = format!("excess {excess}: {}{remedy}", most.what());
        Verdict::new(Word::Excess, text)
    } else if !most.middle.is_clean() {
        Verdict::inconclusive(&format!("{}; more runs decide", most.sentence()))
    } else {
        Verdict::new(Word::Clean, format!("clean {}", most.sentence()))
    };
    (text, Some(most.middle.figure()))
}

fn advice(spreads: &[Spread]) -> Vec<String> {
    let exceeding = spreads
        .iter()
        .filter(|s| s.cell.policy == ClientPolicy::Other && s.middle.exceeds());
    exceeding
        .flat_map(|mine| {
            remedies(mine, spreads)
                .into_iter()
                .map(move |one| (mine, one))
        })
        .map(|(mine, (what, other))| {
            let (before, after) = (mine.middle.all.value, other.middle.all.value);
            format!(
                "{what}: {before:.2} -> {after:.2} switches/flush ({})",
                mine.cell
            )
        })
        .collect()
}

#[cfg(test)]
mod tests;
