//! `stopgap-bench overhead`: what being recorded costs a client and a server, and what it does to their switches.
//!
//! ```text
//! overhead (recorder)  ->  stopgap-bench overhead --pair   ->  client, server
//!                          held until the capture is ready      children of it, followed by the kernel
//! ```
//!
//! The runs of a round follow each other at once: one that is not recorded, and one of each way to record. CPU time is that of client
//! and server over the same round trips, measured by themselves. The recorder's own stands beside.
//!
//! `--parts` records waits alone, and with each part of the capture by itself. `--work` records nothing: a longer round trip is all
//! that recording and the server's work have in common.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, journal, print, put_back};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::Held;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::{Cell, ClientWait, Cost, Cpus, fixed};
use stopgap_report::text::{plain, thousands};
use stopgap_tracer::capture::Options;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::recording::{By, Recording};
use stopgap_tracer::spool::{End, Spool};
use stopgap_tracer::waits::{self, Part};

use crate::common::{
    Bounds, Rounds, failed, folder, own_program, recorded, rounds, succeeded, table,
};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Pairs of runs; each way to record has one in each repetition, in rotating order.
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

/// A way to record, and the most CPU time that a recorded run may take of one that is not; the interval's upper end may be
/// [`SPREAD`] more.
struct Way {
    name: String,
    how: How,
    most: Option<f64>,
}

/// By how much the upper end of the interval may be above the bound of the median.
const SPREAD: f64 = 0.04;

enum How {
    /// As `record` does.
    Waits(waits::Options),
    /// As `record` does of another process than the client and the server.
    Beside(waits::Options),
    /// `record --source tracefs`.
    Events(EventSet),
}

/// The ways that are held to bounds, and those of before.
fn ways() -> Vec<Way> {
    let way = |name: &str, how, most| Way {
        name: name.to_owned(),
        how,
        most,
    };
    let only = waits::Options {
        only: true,
        ..waits::Options::default()
    };
    let usual = waits::Options::default;
    vec![
        way("record", How::Waits(usual()), Some(1.10)),
        way(
            "record, of another process",
            How::Beside(usual()),
            Some(1.06),
        ),
        way(
            "record --only, of another process",
            How::Beside(only),
            Some(1.03),
        ),
        way(
            "--source tracefs --events scheduling",
            How::Events(EventSet::Scheduling),
            None,
        ),
        way(
            "--source tracefs --events all",
            How::Events(EventSet::All),
            None,
        ),
    ]
}

/// Waits alone, and with each part by itself.
fn part_ways() -> Vec<Way> {
    let way = |name: &str, parts: Vec<Part>| Way {
        name: name.to_owned(),
        how: How::Waits(waits::Options {
            parts,
            ..waits::Options::default()
        }),
        most: None,
    };
    let parts = Part::ALL.iter().map(|&part| way(part.word(), vec![part]));
    let usual = waits::Options::default().parts;
    let ends = [
        way("waits alone", Vec::new()),
        way("all that are usual", usual),
    ];
    ends.into_iter().chain(parts).collect()
}

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

/// Records each cell in each way; only the first cell is held to bounds.
fn sets(recorder: &Recorder<'_>, flags: &Flags) -> Result<ExitCode, Failure> {
    let ways = ways();
    let mut cells = CELLS.to_vec();
    cells.truncate(if flags.judged { 1 } else { CELLS.len() });
    if Linux.cpus()?.len() < 2 {
        cells.retain(|cell| cell.cpus != Cpus::Two);
    }
    let sides = vec![1 + ways.len(); cells.len()];
    let all = rounds(flags.pairs, &sides, |cell, side| {
        let way = side.checked_sub(1).map(|way| &ways[way].how);
        recorder.run(&cells[cell], way)
    })?;
    for (cell, rounds) in cells.iter().zip(&all) {
        if rounds.0.is_empty() {
            continue;
        }
        let names = ways.iter().map(|way| way.name.clone());
        print(costs(cell, names, rounds, &[0, 1, 2, 3, 4, 5, 6, 7]).trim_end())?;
        let most = rounds.0.iter().flatten().map(|run| run.bytes).max();
        print(&format!(
            "at most {} of records a run",
            Bytes(most.unwrap_or(0))
        ))?;
        if cell == &CELLS[0] && !flags.no_peers && !signals::interrupted() {
            peers(recorder, rounds.median(0, Run::cpu))?;
        }
    }
    bounds(&ways, &all[0]).print()
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

fn bounds(ways: &[Way], rounds: &Rounds<Run>) -> Bounds {
    let mut bounds = Bounds::default();
    for (side, way) in (1..).zip(ways) {
        let Some(most) = way.most else { continue };
        let name = &way.name;
        let cpu = rounds.ratio(side, 0, Run::cpu);
        bounds.at_most(
            format_args!("{name}: CPU time, of not recorded"),
            cpu.value,
            most,
        );
        let what = format_args!("{name}: the same, upper end of the interval");
        let high = cpu.interval.map_or(f64::INFINITY, |interval| interval.high);
        bounds.at_most(what, high, ((most + SPREAD) * 1e3).round() / 1e3);
        let switches = rounds.ratio(side, 0, Run::switches).value;
        let what = format!(
            "{name}: switches, of not recorded: {switches:.3} (1, {SWITCHES} more or less)"
        );
        bounds.add((switches - 1.0).abs() <= SWITCHES, what);
        let lost: u64 = rounds.side(side).map(|run| run.lost).sum();
        bounds.add(lost == 0, format!("{name}: {lost} records lost (0)"));
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
    let ways = part_ways();
    let all = rounds(pairs, &[1 + ways.len()], |_, side| {
        recorder.run(&Cell::PLAIN, side.checked_sub(1).map(|way| &ways[way].how))
    })?;
    let names = ways.iter().map(|way| way.name.clone());
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

    /// Carries out one run, recorded in that way.
    fn run(&self, cell: &Cell, how: Option<&How>) -> Result<Run, Failure> {
        let (words, file) = self.command(cell, self.round_trips);
        let (mut recorder, mut lost, mut bytes) = (Nanos(0), 0, 0);
        if let Some(how) = how {
            let folder = self.folder.join("spool");
            let before = Linux.thread_cpu();
            let captured = match how {
                How::Waits(options) => record_waits(&folder, options, &words, false)?,
                How::Beside(options) => record_waits(&folder, options, &words, true)?,
                How::Events(events) => {
                    let options = Options {
                        events: *events,
                        buffer: None,
                        spool: folder.clone(),
                        subject: SOURCE.into(),
                    };
                    let journal = Journal::new(&Linux, self.journal);
                    recorded(&journal, &options, &words, LONGEST, || Ok(()))?
                }
            };
            recorder = Linux.thread_cpu().saturating_sub(before);
            let losses = captured.end().into_iter().flat_map(|end| &end.losses);
            lost = losses.map(|loss| loss.count).sum();
            let pages = std::fs::read_dir(&folder).into_iter().flatten().flatten();
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

/// Records waits of the command, or `beside` it those of a process that is held and does nothing.
fn record_waits(
    folder: &Path,
    options: &waits::Options,
    words: &[OsString],
    beside: bool,
) -> Result<Spool, Failure> {
    let by = By::Waits(options.clone());
    let mut recording = Recording::prepare(&Linux, folder, SOURCE.into(), None, &by)?;
    let (held, other) = (Held::start(words)?, Held::start(&["true".into()])?);
    recording.start(if beside { other.pid() } else { held.pid() })?;
    let child = held.release()?;
    let deadline = Linux.now() + LONGEST;
    let ended = loop {
        recording.pump(child.watched(), Nanos::millis(100))?;
        if let Some(ended) = child.ended()? {
            break ended;
        }
        if Linux.now() > deadline {
            return Err(Failure::error("what is recorded does not end"));
        }
    };
    let _ = other.give_up(); // it has done nothing
    let spool = recording.stop(End::default())?;
    succeeded(&ended)?;
    Ok(spool)
}

/// Subject of the traces, in their metadata.
const SOURCE: &str = "stopgap-bench overhead";

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

    fn two_ways() -> Vec<Way> {
        let way = |most| Way {
            name: "a way".to_owned(),
            how: How::Events(EventSet::All),
            most,
        };
        vec![way(None), way(Some(1.6))]
    }

    #[test]
    fn the_runs_of_a_round_are_held_against_each_other() {
        let rounds = three(run(150, 2_020, 1));
        let names = two_ways().into_iter().map(|way| way.name);
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
        let hold = |all| bounds(&two_ways(), &three(all)).hold();
        assert_eq!(hold(run(150, 2_020, 0)), [true; 4]);
        assert_eq!(hold(run(161, 2_000, 0)), [false, true, true, true]);
        assert_eq!(hold(run(165, 2_000, 0)), [false, false, true, true]);
        assert_eq!(hold(run(100, 2_100, 0)), [true, true, false, true]);
        assert_eq!(hold(run(100, 1_900, 0)), [true, true, false, true]);
        assert_eq!(hold(run(100, 2_000, 1)), [true, true, true, false]);
    }
}
