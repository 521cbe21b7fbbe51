//! `stopgap-bench watch`: stalls of known causes, injected into a load at random times while
//! `stopgap watch` watches it. Caught? Named? And nothing else?
//!
//! What it says of the quiet parts is held against what the load itself noted, and against the pressure
//! that the kernel counted: on a machine that others use, too, a slow call in between may be a real one.

mod judge;
mod load;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::read_text;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, pressure, signals, swap};

use crate::common::{BROKEN, Guarded, failed, folder, program};
use judge::{Injected, Quiet, Seen};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// How long the load runs, in seconds; 40 a stall at least.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = count)]
    seconds: u64,
    /// Stalls to inject: memory and locks in turn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    stalls: u64,
    /// Seed of their times and order.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Watch the whole system, as `stopgap watch` without a process does.
    #[arg(long)]
    whole_system: bool,
    /// The program [default: stopgap beside this one].
    #[arg(long, value_name = "FILE")]
    stopgap: Option<PathBuf>,
    /// Directory for what watch writes [default: one of its own under the temporary directory, removed in the end].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// The least time for a stall and its page.
const LEAST_SECONDS: u64 = 40;
/// Quiet begins so long after a stall: its page is written by then.
const CALM: Nanos = Nanos::secs(14);
/// Limit of the squeezed child's cgroup.
const LIMIT: Bytes = Bytes::mib(48);
/// Swap for what it may not.
const SWAP: Bytes = Bytes::mib(512);
/// Between two looks at Ctrl-C and at pressure.
const STEP: Nanos = Nanos::millis(200);
/// How long the load runs before it is watched, for how fast it is then.
const ALONE: Nanos = Nanos::secs(5);

/// A kind of stall that is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread populates 400 MiB and holds mmap_lock.
    Populate,
    /// A thread unmaps 400 MiB and holds mmap_lock.
    Unmap,
    /// A child wants 448 MiB in a cgroup of 48 MiB.
    Squeeze,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Populate => "populate",
            Kind::Unmap => "unmap",
            Kind::Squeeze => "squeeze",
        }
    }

    /// Whether `word` names its cause.
    pub(crate) fn is_named_by(self, word: &str) -> bool {
        match self {
            Kind::Populate | Kind::Unmap => word == "mmap_lock",
            Kind::Squeeze => matches!(word, "memcg-reclaim" | "throttled"),
        }
    }
}

/// The load itself.
pub(crate) fn load() -> Result<ExitCode, Failure> {
    load::run().map(|()| ExitCode::SUCCESS)
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    if flags.seconds < flags.stalls * LEAST_SECONDS {
        return Err(Failure::error(format!(
            "{} s for {} stalls: {LEAST_SECONDS} s a stall at least",
            flags.seconds, flags.stalls
        )));
    }
    let seed = flags.seed.unwrap_or_else(|| Linux.unix_seconds());
    print(&format!(
        "seed {seed}, {} s, {} stalls",
        flags.seconds, flags.stalls
    ))?;
    let own = folder("bench-watch")?;
    let folder = flags.output.as_deref().unwrap_or(own.path());
    fs::create_dir_all(folder).map_err(failed(folder.display()))?;
    let journal = Journal::new(&Linux, Path::new("/run/stopgap"));
    let swap_file = folder.join("swap");
    let group = Site::find(&Linux).and_then(|site| {
        swap::make(&Linux, &journal, &swap_file, SWAP)?;
        let name = format!("stopgap-bench-{}", Linux.pid());
        MemoryGroup::make(&Linux, &journal, &site, &name, LIMIT)
    });
    let result = group
        .map_err(Failure::from)
        .and_then(|group| watch(flags, seed, folder, &group));
    for error in journal.undo() {
        tell(&format!("not put back: {error}; try: stopgap restore"));
    }
    result
}

/// The load and how it is spoken with.
struct Load {
    child: Guarded,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Load {
    fn start() -> Result<Load, Failure> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("watch-load")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed("the load"))?;
        let none = || Failure::error("the load has no pipes");
        let to = child.stdin.take().ok_or_else(none)?;
        let from = BufReader::new(child.stdout.take().ok_or_else(none)?);
        let child = Guarded(child);
        Ok(Load { child, to, from })
    }

    /// Two numbers in answer to a command.
    fn ask(&mut self, command: &str) -> Result<(u64, u64), Failure> {
        let what = format!("the load, asked for {command}");
        writeln!(self.to, "{command}").map_err(failed(&what))?;
        let line = self.line()?;
        numbers(&line).ok_or_else(|| Failure::error(format!("{what}: it said '{line}'")))
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(failed("the load"))?;
        Ok(line.trim_end().to_owned())
    }

    /// Ends it; the rounds that it found slow itself.
    fn end(mut self) -> Result<Vec<(u64, u64)>, Failure> {
        let _ = writeln!(self.to, "end");
        let mut noted = Vec::new();
        loop {
            let line = self.line()?;
            match numbers(&line) {
                Some(one) if line.starts_with("noted ") => noted.push(one),
                _ => break,
            }
        }
        let _ = self.child.0.wait();
        Ok(noted)
    }
}

fn numbers(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace().skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Runs load and watch; the judgement.
fn watch(
    flags: &Flags,
    seed: u64,
    folder: &Path,
    group: &MemoryGroup,
) -> Result<ExitCode, Failure> {
    let program = program(flags.stopgap.as_deref())?;
    let mut load = Load::start()?;
    sleep(ALONE)?;
    let alone = load.ask("count")?;
    let (said, told) = (folder.join("said"), folder.join("told"));
    let file = |path: &Path| File::create(path).map_err(failed(path.display()));
    let mut command = Command::new(&program);
    command.args(["watch", "--json", "-o"]).arg(folder);
    if !flags.whole_system {
        command.args(["-p", &load.child.0.id().to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(file(&said)?)
        .stderr(file(&told)?);
    let mut watcher = Guarded(command.spawn().map_err(failed(program.display()))?);
    let deadline = Linux.now() + Nanos::secs(20);
    while !fs::read_to_string(&told).is_ok_and(|told| told.contains("Ctrl-C ends")) {
        sleep(Nanos::millis(100))?;
        if Linux.now() > deadline || matches!(watcher.0.try_wait(), Ok(Some(_))) {
            let told = fs::read_to_string(&told).unwrap_or_default();
            return Err(Failure::error(format!(
                "watch does not begin: {}",
                told.trim_end()
            )));
        }
    }
    let mut quiet = Quiet::default();
    let mut injected = Vec::new();
    let first = load.ask("count")?;
    let began = Linux.now();
    let mut random = Random::new(seed);
    // Memory and locks in turn, so that two stalls are of both.
    let mut locks = [Kind::Populate, Kind::Unmap];
    random.shuffle(&mut locks);
    let mut kinds = [[Kind::Squeeze, locks[0]], [Kind::Squeeze, locks[1]]].concat();
    kinds.rotate_left(random.index(2));
    let slot = Nanos::secs(flags.seconds).0 / flags.stalls;
    for (number, kind) in (0..flags.stalls).zip(kinds.iter().copied().cycle()) {
        // Within its slot, with quiet before it and time for its page after it.
        let free = slot - Nanos::secs(LEAST_SECONDS - 10).0;
        let at = Nanos(began.0 + number * slot + Nanos::secs(10).0 + random.below(free.max(1)));
        let after = if number == 0 { Nanos(0) } else { CALM };
        calm(&mut quiet, &watcher, after, at)?;
        let command = match kind {
            Kind::Squeeze => format!("squeeze {}", group.path().display()),
            kind => kind.word().to_owned(),
        };
        let (begin, end) = load.ask(&command)?;
        injected.push(Injected { kind, begin, end });
        tell(&format!(
            "{:.0} s: {} for {:.0} ms",
            Nanos(begin.saturating_sub(began.0)).as_secs_f64(),
            kind.word(),
            (end - begin) as f64 / 1e6
        ));
    }
    let end = Nanos(began.0 + slot * flags.stalls);
    calm(&mut quiet, &watcher, CALM, end)?;
    let last = load.ask("count")?;
    let noted = load.end()?;
    // Watching a process it ends by itself.
    if flags.whole_system {
        let _ = Command::new("kill")
            .args(["-INT", &watcher.0.id().to_string()])
            .status();
    }
    let deadline = Linux.now() + Nanos::secs(180);
    let status = loop {
        match watcher.0.try_wait() {
            Ok(Some(status)) => break status,
            _ if Linux.now() > deadline => return Err(Failure::error("watch does not end")),
            _ => sleep(Nanos::millis(100))?,
        }
    };
    let documents = fs::read_to_string(&said).unwrap_or_default();
    let round = |a: (u64, u64), b: (u64, u64)| {
        (b.1.saturating_sub(a.1)) as f64 / b.0.saturating_sub(a.0).max(1) as f64 / 1e3
    };
    let seen = Seen {
        injected,
        noted,
        quiet,
        alone_us: round((0, 0), alone),
        watched_us: round(first, last),
        status: status.code(),
    };
    let verdict = judge::judge(&documents, &seen).map_err(Failure::error)?;
    let told = fs::read_to_string(&told).unwrap_or_default();
    print(&format!("{told}\n{}", verdict.text))?;
    Ok(if verdict.holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}

/// Waits until `until`. Once `after` has passed, notes the watch's CPU time and the pressure.
fn calm(quiet: &mut Quiet, watcher: &Guarded, after: Nanos, until: Nanos) -> Result<(), Failure> {
    let from = Linux.now() + after;
    sleep(after)?;
    let cpu = cpu_time(watcher.0.id())?;
    while Linux.now() < until {
        quiet.pressure.push((Linux.now().0, totals()));
        sleep(until.saturating_sub(Linux.now()).min(STEP))?;
    }
    let now = Linux.now();
    if now > from {
        quiet.ns += now.saturating_sub(from).0;
        quiet.cpu_ns += cpu_time(watcher.0.id())?.saturating_sub(cpu);
    }
    Ok(())
}

fn totals() -> [u64; 2] {
    ["memory", "io"]
        .map(|word| pressure::total(&Linux, &pressure::global(word)).map_or(0, |total| total.0))
}

fn sleep(time: Nanos) -> Result<(), Failure> {
    let until = Linux.now() + time;
    while Linux.now() < until {
        if signals::interrupted() {
            return Err(Failure::error("interrupted"));
        }
        Linux.sleep_until(until.min(Linux.now() + STEP));
    }
    Ok(())
}

/// CPU time of a process, in the kernel and outside; in steps of 10 ms. Without its children: those of a
/// watch make pages, which is not nothing that happens.
fn cpu_time(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/stat");
    let text = read_text(&Linux, &path)?;
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: Result<u64, _> = ticks.map(str::parse::<u64>).sum();
    Ok(ticks.map_err(failed(path))? * 10_000_000)
}
