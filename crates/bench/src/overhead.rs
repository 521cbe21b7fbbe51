//! `stopgap-bench overhead`: what being recorded costs a client and a server, and what it does to their switches.
//!
//! ```text
//! overhead (recorder)  ->  stopgap-bench overhead --pair   ->  client, server
//!                          held until the capture is ready      children of it, followed by the kernel
//! ```
//!
//! The runs of a round follow each other at once: one that is not recorded, and one of each set of events. CPU time is that of client
//! and server over the same round trips, measured by themselves. The recorder's own stands beside.
//!
//! `--parts` prepares the capture as `record` does and, before it starts, switches off what a part does not have in the instance of
//! tracefs. `--work` records nothing: a longer round trip is all that recording and the server's work have in common.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, journal, print, put_back};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::Files;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::Held;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::{Cell, ClientWait, Cost, Cpus, fixed};
use stopgap_report::text::{plain, thousands};
use stopgap_tracer::capture::{Options, instance_of};
use stopgap_tracer::events::EventSet;

use crate::common::{
    Bounds, Rounds, failed, folder, own_program, recorded, rounds, succeeded, table,
};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Pairs of runs; each set of events has one in each repetition, in rotating order.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Round trips of a run.
    #[arg(long, value_name = "N", default_value = "100k", value_parser = count)]
    round_trips: u64,
    /// Leave other tools (strace, perf) out.
    #[arg(long)]
    no_peers: bool,
    /// The one cell alone that is held to the bounds: a fifth of the time.
    #[arg(long)]
    judged: bool,
    /// Instead: the cost of each part of the capture.
    #[arg(long, conflicts_with_all = ["work", "judged"])]
    parts: bool,
    /// Switches of a client that blocks, not recorded, by the work of its server, instead.
    #[arg(long, conflicts_with = "judged")]
    work: bool,
    /// Be the client and the server, as `client,placement`, and write what it cost to the file.
    #[arg(long, hide = true, num_args = 2, value_names = ["CELL", "FILE"])]
    pair: Option<Vec<String>>,
}

/// Fewer round trips take so little time that their CPU time is no figure.
const LEAST_ROUND_TRIPS: u64 = 1_000;
/// No run takes longer.
const LONGEST: Nanos = Nanos::secs(3_600);
/// By how much of itself the number of switches may differ.
const SWITCHES: f64 = 0.03;
/// Other tools are slow: they get one in so many of the round trips.
const PEERS_SHARE: u64 = 20;

/// What is recorded beside nothing, and the most CPU time that a recorded run may take of one that is not.
const SETS: [(EventSet, f64); 2] = [(EventSet::Scheduling, 1.35), (EventSet::All, 1.6)];

/// Cells of the client and the server. The first is held to the bounds.
const CELLS: [Cell; 3] = [
    Cell::PLAIN,
    Cell {
        client: ClientWait::Read,
        ..Cell::PLAIN
    },
    Cell {
        cpus: Cpus::Two,
        ..Cell::PLAIN
    },
];

/// What the server computes for each request (`--work`). The last is longer than recording takes.
const WORK: [Nanos; 7] = [
    Nanos(0),
    Nanos(500),
    Nanos(1_000),
    Nanos(2_000),
    Nanos(3_000),
    Nanos(8_000),
    Nanos(50_000),
];

/// When a switch leaves a stack.
#[derive(Clone, Copy, PartialEq)]
enum Stacks {
    Never,
    /// As `record` has it.
    Usual,
    AtEachWait,
}

/// A part of the capture beside the scheduler's events.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    /// System calls, and whether only those that `record` chooses.
    calls: Option<bool>,
    /// Memory, locks, block I/O and fences.
    rest: bool,
    stacks: Stacks,
}

const fn part(name: &'static str, calls: Option<bool>, rest: bool, stacks: Stacks) -> Part {
    Part {
        name,
        calls,
        rest,
        stacks,
    }
}

const PARTS: [Part; 7] = [
    part("scheduling", None, false, Stacks::Never),
    part(
        "scheduling, stacks at each wait",
        None,
        false,
        Stacks::AtEachWait,
    ),
    part("scheduling, system calls", Some(true), false, Stacks::Never),
    part(
        "the same, calls not filtered",
        Some(false),
        false,
        Stacks::Never,
    ),
    part("all but stacks", Some(true), true, Stacks::Never),
    part("all: what record does", Some(true), true, Stacks::Usual),
    part(
        "all, stacks at each wait",
        Some(true),
        true,
        Stacks::AtEachWait,
    ),
];

/// Other tools, as they are called before the command. They write nothing to a disk, and what they print goes nowhere.
const PEERS: [(&str, &str); 4] = [
    ("strace -f -c", "strace -f -c -o /dev/null"),
    ("strace -f", "strace -f -o /dev/null"),
    ("perf trace", "perf trace -o /dev/null --"),
    (
        "perf record (sched)",
        "perf record -q -o /dev/null -e sched:sched_switch -e sched:sched_waking --",
    ),
];

/// The cost of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    cost: Cost,
    /// The recorder's own CPU time, from start to stop; the trace file is made later.
    recorder: Nanos,
    /// Events that were lost.
    lost: u64,
    /// Bytes of pages.
    bytes: u64,
}

impl Run {
    fn per_round_trip(&self, count: u64) -> f64 {
        count as f64 / self.cost.round_trips.max(1) as f64
    }

    /// CPU time of client and server, ns a round trip.
    fn cpu(&self) -> f64 {
        self.per_round_trip(self.cost.cpu.0)
    }

    /// Switch-outs of both a round trip.
    fn switches(&self) -> f64 {
        self.per_round_trip(self.cost.switches.total())
    }
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    if let Some(words) = &flags.pair {
        return pair(words, flags.round_trips);
    }
    signals::install();
    if flags.round_trips < LEAST_ROUND_TRIPS {
        return Err(Failure::error(
            "--round-trips: fewer than 1000 are over before a figure is one",
        ));
    }
    // On a disk: memory that the pages took would be missing elsewhere.
    let folder = folder("overhead")?;
    let journal = journal(None)?;
    put_back(&Linux, &journal);
    let recorder = Recorder {
        journal: &journal,
        folder: folder.path(),
        program: own_program()?,
        round_trips: flags.round_trips,
    };
    if flags.parts {
        print(parts(&recorder, flags.pairs)?.trim_end())?;
    } else if flags.work {
        print(works(&recorder, flags.pairs)?.trim_end())?;
    } else {
        return sets(&recorder, flags);
    }
    Ok(ExitCode::SUCCESS)
}

/// Records each cell with each set of events; only the first cell is held to bounds.
fn sets(recorder: &Recorder<'_>, flags: &Flags) -> Result<ExitCode, Failure> {
    let mut cells = CELLS.to_vec();
    cells.truncate(if flags.judged { 1 } else { CELLS.len() });
    if Linux.cpus()?.len() < 2 {
        cells.retain(|cell| cell.cpus != Cpus::Two);
    }
    let sides = vec![1 + SETS.len(); cells.len()];
    let all = rounds(flags.pairs, &sides, |cell, side| {
        let set = side.checked_sub(1).map(|set| (SETS[set].0, None));
        recorder.run(&cells[cell], set)
    })?;
    for (cell, rounds) in cells.iter().zip(&all) {
        if rounds.0.is_empty() {
            continue;
        }
        let names = SETS.iter().map(|(events, _)| events.to_string());
        print(costs(cell, names, rounds, &[0, 1, 2, 3, 4, 5, 6, 7]).trim_end())?;
        let most = rounds.0.iter().flatten().map(|run| run.bytes).max();
        print(&format!(
            "at most {} of pages a run",
            Bytes(most.unwrap_or(0))
        ))?;
        if cell == &CELLS[0] && !flags.no_peers && !signals::interrupted() {
            peers(recorder, rounds.median(0, Run::cpu))?;
        }
    }
    bounds(&all[0]).print()
}

/// Returns the costs of each side beside those of the first, which is not recorded; of the columns only these.
fn costs(
    cell: &Cell,
    names: impl Iterator<Item = String>,
    rounds: &Rounds<Run>,
    columns: &[usize],
) -> String {
    const HEAD: [&str; 8] = [
        "captured",
        "CPU ns/rt",
        "CPU, of not recorded",
        "switches/rt",
        "of that",
        "recorder ns/rt",
        "bytes/rt",
        "lost",
    ];
    let names = std::iter::once("not recorded".to_owned()).chain(names);
    let rows = names.enumerate().map(|(side, name)| {
        let beside = |text: String| if side == 0 { "-".to_owned() } else { text };
        let switches = rounds.ratio(side, 0, Run::switches).value;
        let median = |digits: usize, figure: &dyn Fn(&Run) -> f64| {
            format!("{:.digits$}", rounds.median(side, figure))
        };
        let lost: u64 = rounds.side(side).map(|run| run.lost).sum();
        let cells = [
            name,
            median(0, &Run::cpu),
            beside(rounds.ratio(side, 0, Run::cpu).shown(2, "x")),
            median(3, &Run::switches),
            beside(format!("{:+.1} %", (switches - 1.0) * 100.0)),
            median(0, &|run| run.per_round_trip(run.recorder.0)),
            median(0, &|run| run.per_round_trip(run.bytes)),
            lost.to_string(),
        ];
        columns.iter().map(|&at| cells[at].clone()).collect()
    });
    format!(
        "{cell}: {} round trips a run, medians of {} pairs (95 % interval over pairs)\n{}",
        thousands(rounds.0[0][0].cost.round_trips),
        rounds.0.len(),
        table(
            &columns
                .iter()
                .map(|&at| HEAD[at])
                .collect::<Vec<_>>()
                .join("|"),
            rows
        ),
    )
}

fn bounds(rounds: &Rounds<Run>) -> Bounds {
    let mut bounds = Bounds::default();
    for (side, (events, most)) in (1..).zip(SETS) {
        let cpu = rounds.ratio(side, 0, Run::cpu).value;
        bounds.at_most(
            format_args!("{events}: CPU time, of not recorded"),
            cpu,
            most,
        );
        let switches = rounds.ratio(side, 0, Run::switches).value;
        let what = format!(
            "{events}: switches, of not recorded: {switches:.3} (1, {SWITCHES} more or less)"
        );
        bounds.add((switches - 1.0).abs() <= SWITCHES, what);
        let lost: u64 = rounds.side(side).map(|run| run.lost).sum();
        bounds.add(lost == 0, format!("{events}: {lost} events lost (0)"));
    }
    bounds
}

/// Prints a line for each other tool, beside `none`, the CPU time that is not recorded; one run each.
fn peers(recorder: &Recorder<'_>, none: f64) -> Result<(), Failure> {
    let round_trips = (recorder.round_trips / PEERS_SHARE).max(LEAST_ROUND_TRIPS);
    print(&format!(
        "other tools, one run of {round_trips} round trips each:"
    ))?;
    for (name, words) in PEERS {
        let (command, file) = recorder.command(&Cell::PLAIN, round_trips);
        let _ = std::fs::remove_file(&file); // or an older cost would pass for this one's
        let mut words = words.split(' ');
        let program = words.next().unwrap_or_default();
        let output = Command::new(program).args(words).args(command).output();
        let cost = output
            .map_err(|error| format!("{program}: {error}"))
            .and_then(|output| {
                if !output.status.success() {
                    let told = String::from_utf8_lossy(&output.stderr);
                    let first = told.lines().next().unwrap_or_default();
                    return Err(format!("{} {}", output.status, plain(first)));
                }
                read_cost(&file)
            });
        print(&match cost {
            Ok(cost) => {
                let per = |figure: u64| figure as f64 / cost.round_trips.max(1) as f64;
                let (cpu, switches) = (per(cost.cpu.0), per(cost.switches.total()));
                format!("{name:<22}{cpu:>14.0}{:>23.2}x{switches:>14.3}", cpu / none)
            }
            Err(why) => format!("skipped: {name}: {why}"),
        })?;
    }
    Ok(())
}

/// Records the plain cell part by part.
fn parts(recorder: &Recorder<'_>, pairs: u32) -> Result<String, Failure> {
    let all = rounds(pairs, &[1 + PARTS.len()], |_, side| {
        let part = side
            .checked_sub(1)
            .map(|part| (EventSet::All, Some(PARTS[part])));
        recorder.run(&Cell::PLAIN, part)
    })?;
    let names = PARTS.iter().map(|part| part.name.to_owned());
    Ok(costs(&Cell::PLAIN, names, &all[0], &[0, 1, 2, 6, 7]))
}

/// Runs a client that blocks beside a server that works, not recorded.
fn works(recorder: &Recorder<'_>, pairs: u32) -> Result<String, Failure> {
    let cell = |work| Cell {
        client: ClientWait::Read,
        work,
        ..Cell::PLAIN
    };
    let all = rounds(pairs, &[WORK.len()], |_, side| {
        recorder.run(&cell(WORK[side]), None)
    })?;
    let rows = WORK.iter().enumerate().map(|(side, work)| {
        let mut switches: Vec<f64> = all[0].side(side).map(Run::switches).collect();
        switches.sort_by(f64::total_cmp);
        let (least, most) = (switches[0], switches[switches.len() - 1]);
        vec![
            match work {
                Nanos(0) => "none".to_owned(),
                work => work.to_string(),
            },
            switches.len().to_string(),
            format!("{:.1}", all[0].median(side, Run::cpu) / 1e3),
            format!("{:.2}", all[0].median(side, Run::switches)),
            format!("{least:.2}..{most:.2}"),
        ]
    });
    let head = "work|runs|CPU us/rt|switches/rt|least..most";
    Ok(format!(
        "{}: {} round trips a run, not recorded, medians\n{}",
        cell(Nanos(0)),
        thousands(recorder.round_trips),
        table(head, rows),
    ))
}

impl Part {
    /// Switches off, in the instance of this process, what is not of the part.
    fn choose(&self) -> Result<(), Failure> {
        let instance = Linux.tracefs()?.instance(&instance_of(Linux.pid()));
        let events = instance.join("events");
        let write = |file: &str, text: &str| Linux.write(&events.join(file), text.as_bytes());
        let mut systems: Vec<&str> = EventSet::All.events().map(|event| event.system).collect();
        systems.dedup();
        for system in systems {
            let on = match system {
                "sched" | "task" => true,
                "raw_syscalls" => self.calls.is_some(),
                _ => self.rest,
            };
            if !on {
                match write(&format!("{system}/enable"), "0") {
                    Err(error) if error.is_absent() => {}
                    other => other?,
                }
            }
        }
        if self.calls == Some(false) {
            for event in ["sys_enter", "sys_exit"] {
                write(&format!("raw_syscalls/{event}/filter"), "0")?;
            }
        }
        let trigger = "sched/sched_switch/trigger";
        if self.stacks != Stacks::Usual {
            write(trigger, "!stacktrace")?;
        }
        if self.stacks == Stacks::AtEachWait {
            write(trigger, "stacktrace if prev_state & 3")?;
        }
        Ok(())
    }
}

/// Runs the client and the server.
struct Recorder<'a> {
    journal: &'a Path,
    folder: &'a Path,
    /// This program.
    program: PathBuf,
    round_trips: u64,
}

impl Recorder<'_> {
    /// Returns the command that is the client and the server of `cell`, and the file that it writes.
    fn command(&self, cell: &Cell, round_trips: u64) -> (Vec<OsString>, PathBuf) {
        let file = self.folder.join("cost.json");
        let round_trips = round_trips.to_string();
        let words = [
            "overhead",
            "--round-trips",
            &round_trips,
            "--pair",
            &cell_word(cell),
        ];
        let mut command = vec![self.program.clone().into_os_string()];
        command.extend(words.map(OsString::from));
        command.push(file.clone().into_os_string());
        (command, file)
    }

    /// Carries out one run, recorded where `capture` says of what.
    fn run(&self, cell: &Cell, capture: Option<(EventSet, Option<Part>)>) -> Result<Run, Failure> {
        let (words, file) = self.command(cell, self.round_trips);
        let (mut recorder, mut lost, mut bytes) = (Nanos(0), 0, 0);
        if let Some((events, part)) = capture {
            let options = Options {
                events,
                buffer: None,
                spool: self.folder.join("spool"),
                subject: "stopgap-bench overhead".into(),
            };
            let journal = Journal::new(&Linux, self.journal);
            let before = Linux.thread_cpu();
            let choose = || part.map_or(Ok(()), |part| part.choose());
            let captured = recorded(&journal, &options, &words, LONGEST, choose)?;
            recorder = Linux.thread_cpu().saturating_sub(before);
            let losses = captured.end().into_iter().flat_map(|end| &end.losses);
            lost = losses.map(|loss| loss.count).sum();
            let pages = std::fs::read_dir(&options.spool)
                .into_iter()
                .flatten()
                .flatten();
            bytes = pages
                .flat_map(|page| page.metadata())
                .map(|page| page.len())
                .sum();
            captured.remove()?;
        } else {
            let child = Held::start(&words)?.release()?;
            while !child.watched().ends_within(Nanos::millis(100)) {}
            child.ended()?.as_ref().map_or(Ok(()), succeeded)?;
        }
        Ok(Run {
            cost: read_cost(&file).map_err(Failure::error)?,
            recorder,
            lost,
            bytes,
        })
    }
}

/// Returns the word for a cell on the command line of the pair's process.
fn cell_word(cell: &Cell) -> String {
    format!("{},{},{}", cell.client, cell.cpus, cell.work.0)
}

fn cell_named(word: &str) -> Option<Cell> {
    let words: Vec<&str> = word.split(',').collect();
    let &[client, cpus, work] = words.as_slice() else {
        return None;
    };
    Some(Cell {
        client: client.parse::<ClientWait>().ok()?,
        cpus: cpus.parse::<Cpus>().ok()?,
        work: Nanos(work.parse().ok()?),
        ..Cell::PLAIN
    })
}

/// Is the process that is recorded: carries out the round trips of the cell in the first of `words`, and writes their cost to the
/// file in the second.
fn pair(words: &[String], round_trips: u64) -> Result<ExitCode, Failure> {
    let [word, file] = words else {
        return Err(Failure::error("--pair: give a cell and a file"));
    };
    let cell = cell_named(word).ok_or_else(|| Failure::error(format!("--pair: no cell {word}")))?;
    // From the last one down: the first has most of the interrupts.
    let mut cpus = Linux.cpus()?;
    cpus.reverse();
    let cost = fixed(&Linux, &cell, &cpus, round_trips)?;
    let cost = serde_json::to_vec(&cost).map_err(failed(file))?;
    std::fs::write(file, cost).map_err(failed(file))?;
    Ok(ExitCode::SUCCESS)
}

fn read_cost(file: &Path) -> Result<Cost, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the client and the server: {error}");
    let text = std::fs::read(file).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::tasks::Switches;

    #[test]
    fn a_cell_is_told_by_its_word() {
        let works = Cell {
            work: Nanos(500),
            ..Cell::PLAIN
        };
        for told in CELLS.into_iter().chain([works]) {
            assert_eq!(cell_named(&cell_word(&told)), Some(told));
        }
        for wrong in ["poll", "poll,one", "poll,here,0", "poll,one,x"] {
            assert_eq!(cell_named(wrong), None, "{wrong}");
        }
    }

    fn run(ns: u64, switches: u64, lost: u64) -> Run {
        Run {
            cost: Cost {
                round_trips: 1_000,
                elapsed: Nanos(ns),
                cpu: Nanos(ns * 1_000),
                switches: Switches {
                    voluntary: switches,
                    involuntary: 0,
                },
            },
            recorder: Nanos(5_000),
            lost,
            bytes: 300_000,
        }
    }

    /// Three rounds. A neighbour slows the second as a whole, not one of its runs.
    fn three(all: Run) -> Rounds<Run> {
        let quiet = vec![run(100, 2_000, 0), run(120, 2_010, 0), all];
        let loud = quiet.iter().map(|quiet| Run {
            cost: Cost {
                cpu: Nanos(quiet.cost.cpu.0 * 10),
                ..quiet.cost
            },
            ..*quiet
        });
        Rounds(vec![quiet.clone(), loud.collect(), quiet.clone()])
    }

    #[test]
    fn the_runs_of_a_round_are_held_against_each_other() {
        let rounds = three(run(150, 2_020, 1));
        let names = SETS.iter().map(|(events, _)| events.to_string());
        let text = costs(&Cell::PLAIN, names, &rounds, &[0, 2, 4, 6, 7]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert!(
            rows[0].starts_with("not recorded") && rows[0].contains(" - "),
            "{text}"
        );
        assert!(rows[1].contains("1.20x (1.20..1.20)"), "{text}");
        assert!(
            rows[2].contains("1.50x (1.50..1.50)") && rows[2].contains("+1.0 %"),
            "{text}"
        );
        assert!(rows[2].ends_with("300     3"), "{text}");
    }

    #[test]
    fn each_bound_can_break() {
        assert_eq!(bounds(&three(run(150, 2_020, 0))).hold(), [true; 6]);
        for (all, broken) in [
            (run(161, 2_000, 0), 3),
            (run(100, 2_100, 0), 4),
            (run(100, 1_900, 0), 4),
            (run(100, 2_000, 1), 5),
        ] {
            let hold = bounds(&three(all)).hold();
            assert!((0..6).all(|at| hold[at] == (at != broken)), "{hold:?}");
        }
    }
}
