//! `stopgap-bench overhead`: what being recorded or watched costs a program, and what it does to its switches.
//!
//! ```text
//! overhead (recorder)  ->  stopgap-bench overhead --pair   ->  client, server
//!                          held until the capture is ready      children of it, followed by the kernel
//! ```
//!
//! The runs of a round follow each other at once: one that is not recorded, and one of each way to record. CPU time is that of client
//! and server over the same round trips, measured by themselves; of another command it is that of wait4(2), of the command and its
//! children from begin to end. The recorder's own stands beside.
//!
//! `--parts` records waits alone, and with each part of the capture by itself. `--work` records nothing: a longer round trip is all
//! that recording and the server's work have in common.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, journal, print, put_back};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Ended, Held};
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
    Bounds, Rounds, Stopgap, failed, folder, own_program, recorded, rounds, succeeded, table, text,
    wait,
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
    /// Instead: a real program with a bound of its own.
    #[arg(long, value_enum, conflicts_with_all = ["work", "judged", "parts"])]
    program: Option<Program>,
    #[command(flatten)]
    stopgap: Stopgap,
    /// Instead: this command. No bound is known for it.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["work", "judged", "parts", "program"])]
    command: Vec<OsString>,
}

/// A real program whose cost is bounded.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Program {
    /// Redis and one client, on one CPU, over a Unix socket.
    Redis,
    /// Xvfb and 20 clients that draw 60 times a second.
    Xvfb,
}

impl Program {
    fn script(self) -> &'static str {
        match self {
            Program::Redis => include_str!("overhead/redis.sh"),
            Program::Xvfb => include_str!("overhead/xvfb.sh"),
        }
    }

    /// Returns the most CPU time of a recorded run, of one that is not: of the program's own recording, and of the machine's.
    fn most(self) -> f64 {
        match self {
            Program::Redis => 1.10,
            Program::Xvfb => 1.02,
        }
    }
}

/// The events that a run records.
enum Subject {
    /// The client and the server of `probe roundtrip`.
    Pair(Cell),
    /// A command, and its name in a table.
    Command(String, Vec<OsString>),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Pair(cell) => cell.fmt(f),
            Subject::Command(name, _) => f.write_str(name),
        }
    }
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
    /// A tool that runs beside, and what it may need before it is ready; `None`: `stopgap watch` of the whole machine.
    Tool(Option<&'static [&'static str]>),
}

/// Tools that follow the whole machine. They are asked for what they are known to do best, and write to no disk.
const TOOLS: [(&str, &[&str]); 3] = [
    (
        "perf sched record",
        &["perf", "sched", "record", "-a", "-q", "-o", "/dev/null"],
    ),
    ("offcputime", &["offcputime-bpfcc", "-f"]),
    ("bpftrace, time off the CPU", &["bpftrace", "-e", OFF_CPU]),
];

/// bpftrace's own example of time off the CPU by kernel stack, without its names.
const OFF_CPU: &str = "tracepoint:sched:sched_switch { \
    @left[args->prev_pid] = nsecs; \
    $left = @left[args->next_pid]; \
    if ($left) { @us[kstack, args->next_comm] = hist((nsecs - $left) / 1000); delete(@left[args->next_pid]); } }";

/// How long a tool gets to attach.
const ATTACH: Duration = Duration::from_secs(4);
/// How long it gets to end.
const DETACH: Duration = Duration::from_secs(60);

/// The ways to record or watch a command; `most` is the bound of `record`, of the command itself or of another process.
fn command_ways(most: Option<f64>, peers: bool) -> Vec<Way> {
    let mut ways = ways();
    for way in &mut ways {
        way.most = match way.how {
            How::Waits(_) => most,
            How::Beside(_) => way.most.filter(|_| most.is_some()),
            _ => None,
        };
    }
    ways.extend(beside(most.is_some(), peers));
    ways
}

/// The tools that run beside.
fn beside(bounded: bool, peers: bool) -> Vec<Way> {
    let watch = Way {
        name: "watch".to_owned(),
        how: How::Tool(None),
        most: bounded.then_some(1.07),
    };
    let tools = TOOLS.iter().filter(|_| peers).map(|&(name, words)| Way {
        name: name.to_owned(),
        how: How::Tool(Some(words)),
        most: None,
    });
    std::iter::once(watch).chain(tools).collect()
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
        stopgap: &flags.stopgap,
    };
    if let Some(subject) = command(flags)? {
        return one(&recorder, flags, &subject);
    }
    if flags.parts {
        print(parts(&recorder, flags.pairs)?.trim_end())?;
    } else if flags.work {
        print(works(&recorder, flags.pairs)?.trim_end())?;
    } else {
        return sets(&recorder, flags);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the command that is asked for, if one is.
fn command(flags: &Flags) -> Result<Option<Subject>, Failure> {
    let Some(program) = flags.program else {
        let name = || {
            flags
                .command
                .iter()
                .map(|word| plain(&word.to_string_lossy()))
        };
        let name = name().collect::<Vec<_>>().join(" ");
        let command = Subject::Command(name, flags.command.clone());
        return Ok((!flags.command.is_empty()).then_some(command));
    };
    let own = own_program()?.into_os_string();
    let words: [OsString; 4] = ["sh".into(), "-euc".into(), program.script().into(), own];
    let name = format!("{program:?}").to_lowercase();
    Ok(Some(Subject::Command(name, words.into())))
}

/// Records and watches a command in each way.
fn one(recorder: &Recorder<'_>, flags: &Flags, subject: &Subject) -> Result<ExitCode, Failure> {
    let ways = command_ways(flags.program.map(Program::most), !flags.no_peers);
    let ways = there(recorder, ways)?;
    let all = rounds(flags.pairs, &[1 + ways.len()], |_, side| {
        recorder.run(subject, side.checked_sub(1).map(|way| &ways[way].how))
    })?;
    let names = ways.iter().map(|way| way.name.clone());
    print(costs(subject, names, &all[0], &[0, 1, 2, 3, 4, 7]).trim_end())?;
    bounds(
        &ways,
        &all[0],
        !matches!(flags.program, Some(Program::Xvfb)),
    )
    .print()
}

/// Starts each tool once, leaves out those that do not work on this machine, and says why.
fn there(recorder: &Recorder<'_>, ways: Vec<Way>) -> Result<Vec<Way>, Failure> {
    let mut left = Vec::new();
    for way in ways {
        match way.how {
            How::Tool(Some(words)) => {
                let tried = recorder.attach(Command::new(words[0]).args(&words[1..]));
                match tried {
                    Ok(mut tool) => end(&mut tool.0)?,
                    Err(why) => {
                        print(&format!("skipped: {}: {why}", way.name))?;
                        continue;
                    }
                }
            }
            How::Tool(None) => drop(recorder.stopgap.program()?),
            _ => {}
        }
        left.push(way);
    }
    Ok(left)
}

/// Records each cell in each way; only the first cell is held to bounds.
fn sets(recorder: &Recorder<'_>, flags: &Flags) -> Result<ExitCode, Failure> {
    let mut ways = ways();
    ways.extend(there(recorder, beside(true, !flags.no_peers))?);
    let mut cells = CELLS.to_vec();
    cells.truncate(if flags.judged { 1 } else { CELLS.len() });
    if Linux.cpus()?.len() < 2 {
        cells.retain(|cell| cell.cpus != Cpus::Two);
    }
    let sides = vec![1 + ways.len(); cells.len()];
    let all = rounds(flags.pairs, &sides, |cell, side| {
        let way = side.checked_sub(1).map(|way| &ways[way].how);
        recorder.run(&Subject::Pair(cells[cell]), way)
    })?;
    for (cell, rounds) in cells.iter().zip(&all) {
        if rounds.0.is_empty() {
            continue;
        }
        let names = ways.iter().map(|way| way.name.clone());
        let subject = Subject::Pair(*cell);
        print(costs(&subject, names, rounds, &[0, 1, 2, 3, 4, 5, 6, 7]).trim_end())?;
        let most = rounds.0.iter().flatten().map(|run| run.bytes).max();
        print(&format!(
            "at most {} of records a run",
            Bytes(most.unwrap_or(0))
        ))?;
        if cell == &CELLS[0] && !flags.no_peers && !signals::interrupted() {
            peers(recorder, rounds.median(0, Run::cpu))?;
        }
    }
    bounds(&ways, &all[0], true).print()
}

/// Returns the costs of each side beside those of the first, which is not recorded; of the columns only these.
fn costs(
    subject: &Subject,
    names: impl Iterator<Item = String>,
    rounds: &Rounds<Run>,
    columns: &[usize],
) -> String {
    let pair = matches!(subject, Subject::Pair(_));
    let head: [&str; 8] = [
        "captured",
        if pair { "CPU ns/rt" } else { "CPU ms" },
        "CPU, of not recorded",
        if pair { "switches/rt" } else { "switches" },
        "of that",
        "recorder ns/rt",
        "bytes/rt",
        "lost",
    ];
    let (scale, digits) = if pair { (1.0, 3) } else { (1e-6, 0) };
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
            median(0, &|run| run.cpu() * scale),
            beside(rounds.ratio(side, 0, Run::cpu).shown(2, "x")),
            median(digits, &Run::switches),
            beside(format!("{:+.1} %", (switches - 1.0) * 100.0)),
            median(0, &|run| run.per_round_trip(run.recorder.0)),
            median(0, &|run| run.per_round_trip(run.bytes)),
            lost.to_string(),
        ];
        columns.iter().map(|&at| cells[at].clone()).collect()
    });
    let round_trips = if pair {
        let round_trips = thousands(rounds.0[0][0].cost.round_trips);
        format!("{round_trips} round trips a run, ")
    } else {
        String::new()
    };
    format!(
        "{subject}: {round_trips}medians of {} pairs (95 % interval over pairs)\n{}",
        rounds.0.len(),
        table(
            &columns
                .iter()
                .map(|&at| head[at])
                .collect::<Vec<_>>()
                .join("|"),
            rows
        ),
    )
}

/// Returns the bounds of the ways that have some. `same_work`: each run does the same, so its switches are as many.
fn bounds(ways: &[Way], rounds: &Rounds<Run>, same_work: bool) -> Bounds {
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
        let high = cpu.interval.map_or(f64::INFINITY, |interval| interval.high);
        bounds.at_most(
            format_args!("{name}: the same, upper end of the interval"),
            high,
            ((most + SPREAD) * 1e3).round() / 1e3,
        );
        let switches = rounds.ratio(side, 0, Run::switches).value;
        let what = format!(
            "{name}: switches, of not recorded: {switches:.3} (1, {SWITCHES} more or less)"
        );
        if same_work {
            bounds.add((switches - 1.0).abs() <= SWITCHES, what);
        }
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
        let way = side.checked_sub(1).map(|way| &ways[way].how);
        recorder.run(&Subject::Pair(Cell::PLAIN), way)
    })?;
    let names = ways.iter().map(|way| way.name.clone());
    let subject = Subject::Pair(Cell::PLAIN);
    Ok(costs(&subject, names, &all[0], &[0, 1, 2, 6, 7]))
}

/// Runs a client that blocks beside a server that works, not recorded.
fn works(recorder: &Recorder<'_>, pairs: u32) -> Result<String, Failure> {
    let cell = |work| Cell {
        client: ClientWait::Read,
        work,
        ..Cell::PLAIN
    };
    let all = rounds(pairs, &[WORK.len()], |_, side| {
        recorder.run(&Subject::Pair(cell(WORK[side])), None)
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
    stopgap: &'a Stopgap,
}

/// A tool that runs beside. Dropped, it is killed.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it has ended
        let _ = self.0.wait();
    }
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
    fn run(&self, subject: &Subject, how: Option<&How>) -> Result<Run, Failure> {
        let (words, file) = match subject {
            Subject::Pair(cell) => {
                let (words, file) = self.command(cell, self.round_trips);
                (words, Some(file))
            }
            Subject::Command(_, words) => (words.clone(), None),
        };
        let folder = self.folder.join("spool");
        let (before, begin) = (Linux.thread_cpu(), Linux.now());
        let (spool, ended) = match how {
            None => (None, unrecorded(&words)?),
            Some(How::Tool(tool)) => {
                let mut beside = self.start(*tool)?;
                let ended = unrecorded(&words)?;
                end(&mut beside.0)?;
                (None, ended)
            }
            Some(How::Waits(options)) => record_waits(&folder, options, &words, false)?,
            Some(How::Beside(options)) => record_waits(&folder, options, &words, true)?,
            Some(How::Events(events)) => {
                let options = Options {
                    events: *events,
                    buffer: None,
                    spool: folder.clone(),
                    subject: SOURCE.into(),
                };
                let journal = Journal::new(&Linux, self.journal);
                let (spool, ended) = recorded(&journal, &options, &words, LONGEST, || Ok(()))?;
                (Some(spool), ended)
            }
        };
        let elapsed = Linux.now().saturating_sub(begin);
        let recorder = Linux.thread_cpu().saturating_sub(before);
        let (mut lost, mut bytes) = (0, 0);
        if let Some(captured) = spool {
            let losses = captured.end().into_iter().flat_map(|end| &end.losses);
            lost = losses.map(|loss| loss.count).sum();
            let pages = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            bytes = pages
                .flat_map(|page| page.metadata())
                .map(|page| page.len())
                .sum();
            captured.remove()?;
        }
        let cost = match file {
            Some(file) => read_cost(&file).map_err(Failure::error)?,
            None => Cost {
                round_trips: 1,
                elapsed,
                cpu: ended.user_time + ended.system_time,
                switches: ended.switches,
            },
        };
        Ok(Run {
            cost,
            recorder: if how.is_some() { recorder } else { Nanos(0) },
            lost,
            bytes,
        })
    }

    /// Starts the tool, else `stopgap watch`, and gives it time to attach.
    fn start(&self, tool: Option<&[&str]>) -> Result<Beside, Failure> {
        match tool {
            Some(words) => self.attach(Command::new(words[0]).args(&words[1..])),
            None => {
                let mut watch = Command::new(self.stopgap.program()?);
                watch.arg("watch").arg("-o").arg(self.folder.join("stalls"));
                self.attach(&mut watch)
            }
        }
        .map_err(Failure::error)
    }

    fn attach(&self, command: &mut Command) -> Result<Beside, String> {
        let log = self.folder.join("tool.log");
        let told = std::fs::File::create(&log).map_err(text)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(told);
        let mut beside = Beside(command.spawn().map_err(text)?);
        match wait(&mut beside.0, ATTACH) {
            Ok(None) => Ok(beside),
            Ok(Some(status)) => {
                let told = std::fs::read_to_string(&log).unwrap_or_default();
                let told = plain(told.lines().last().unwrap_or_default());
                Err(format!("it ended with {status}: {told}"))
            }
            Err(_) => Err("interrupted".to_owned()),
        }
    }
}

/// Ends the tool as Ctrl-C does.
fn end(tool: &mut Child) -> Result<(), Failure> {
    let pid = rustix::process::Pid::from_child(tool);
    let asked = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    asked.map_err(failed("SIGINT to the tool"))?;
    match wait(tool, DETACH)? {
        Some(_) => Ok(()),
        None => Err(Failure::error(
            "the tool beside did not end within a minute of SIGINT",
        )),
    }
}

/// Runs the command.
fn unrecorded(words: &[OsString]) -> Result<Ended, Failure> {
    let child = Held::start(words)?.release()?;
    while !child.watched().ends_within(Nanos::millis(100)) {}
    let ended = child.ended()?;
    let ended = ended
        .ok_or_else(|| Failure::error("the command has ended, and wait4(2) does not say how"))?;
    succeeded(&ended)?;
    Ok(ended)
}

/// Records waits of the command, or `beside` it those of a process that is held and does nothing.
fn record_waits(
    folder: &Path,
    options: &waits::Options,
    words: &[OsString],
    beside: bool,
) -> Result<(Option<Spool>, Ended), Failure> {
    let by = By::Waits(options.clone());
    let mut recording = Recording::prepare(&Linux, folder, SOURCE.into(), None, &by)?;
    let (held, other) = (Held::start(words)?, Held::start(&["true".into()])?);
    recording.start(if beside { other.pid() } else { held.pid() })?;
    let child = held.release()?;
    let deadline = Linux.now() + LONGEST;
    let ended = loop {
        recording.pump(Some(child.watched()), Nanos::millis(100))?;
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
    Ok((Some(spool), ended))
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
        let text = costs(
            &Subject::Pair(Cell::PLAIN),
            names,
            &rounds,
            &[0, 2, 4, 6, 7],
        );
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
        let hold = |all| bounds(&two_ways(), &three(all), true).hold();
        assert_eq!(hold(run(150, 2_020, 0)), [true; 4]);
        assert_eq!(hold(run(161, 2_000, 0)), [false, true, true, true]);
        assert_eq!(hold(run(165, 2_000, 0)), [false, false, true, true]);
        assert_eq!(hold(run(100, 2_100, 0)), [true, true, false, true]);
        assert_eq!(hold(run(100, 1_900, 0)), [true, true, false, true]);
        assert_eq!(hold(run(100, 2_000, 1)), [true, true, true, false]);
    }
}
