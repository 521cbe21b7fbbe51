//! `stopgap-bench watch`: stalls of known causes, injected into a load at random times while
//! `stopgap watch` watches it. Caught? Named? And nothing else?
//!
//! ```text
//! mapper   mmap-touch-munmap .. .. .. |wait for the lock|.. .. ..     notes itself how long that took
//! main     sleeps                     [populate or unmap]
//! child                                                   [squeeze]  in a memory cgroup
//! ```
//!
//! What it says of the quiet parts is held against what the mapper noted, and against the pressure
//! that the kernel counted: on a machine that others use, too, a slow call in between may be a real one.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use stopgap_cli::replay::count;
use stopgap_cli::{Failure, print, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::read_text;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::{Advice, Mapping, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::{Linux, pressure, signals, swap};
use stopgap_stats::watch::{Document, Page, Told, TriggerKind};

use crate::common::{Guarded, Stopgap, failed, folder, in_scope, map, verdict};

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
    #[command(flatten)]
    stopgap: Stopgap,
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
/// Memory that it touches.
const WANTED: Bytes = Bytes::mib(448);
/// Swap for what it may not.
const SWAP: Bytes = Bytes::mib(512);
/// A squeeze that takes longer is over.
const LONGEST: Nanos = Nanos::secs(60);
/// Between two looks at Ctrl-C and at pressure.
const STEP: Nanos = Nanos::millis(200);
/// How long the load runs before it is watched, for how fast it is then.
const ALONE: Nanos = Nanos::secs(5);
/// Bytes that the mapper maps.
const SMALL: Bytes = Bytes::kib(64);
/// Between two of its rounds.
const PAUSE: Nanos = Nanos::millis(5);
/// From here on it notes a round: what watch calls slow, less what a round has beside the call.
const NOTED: Nanos = Nanos::millis(45);
/// Bytes that are populated or unmapped in one call: long under any lock.
const LARGE: Bytes = Bytes::mib(400);

/// A kind of stall that is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A thread populates 400 MiB and holds mmap_lock.
    Populate,
    /// A thread unmaps 400 MiB and holds mmap_lock.
    Unmap,
    /// A child wants 448 MiB in a cgroup of 48 MiB.
    Squeeze,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Populate => "populate",
            Kind::Unmap => "unmap",
            Kind::Squeeze => "squeeze",
        }
    }

    /// Whether `word` names its cause.
    fn is_named_by(self, word: &str) -> bool {
        match self {
            Kind::Populate | Kind::Unmap => word == "mmap_lock",
            Kind::Squeeze => matches!(word, "memcg-reclaim" | "throttled"),
        }
    }
}

/// The rounds of a thread that maps a little memory all the time.
#[derive(Default)]
struct Mapper {
    stop: AtomicBool,
    rounds: AtomicU64,
    cpu_ns: AtomicU64,
    /// When and how long, of those that took [`NOTED`] or more.
    noted: Mutex<Vec<(u64, u64)>>,
}

impl Mapper {
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let (begin, cpu) = (Linux.now(), Linux.thread_cpu());
            if let Ok(mapping) = map(SMALL, Bytes(0)) {
                let _ = Linux.touch(&mapping, Bytes(0), SMALL);
                let _ = Linux.unmap(mapping);
            }
            let took = Linux.now().saturating_sub(begin);
            let cpu = Linux.thread_cpu().saturating_sub(cpu);
            self.rounds.fetch_add(1, Ordering::Relaxed);
            self.cpu_ns.fetch_add(cpu.0, Ordering::Relaxed);
            if took >= NOTED
                && let Ok(mut noted) = self.noted.lock()
            {
                noted.push((begin.0, took.0));
            }
            Linux.sleep_until(Linux.now() + PAUSE);
        }
    }

    /// Returns the rounds so far, and their CPU time.
    fn count(&self) -> [u64; 2] {
        [&self.rounds, &self.cpu_ns].map(|count| count.load(Ordering::Relaxed))
    }
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
    in_scope(&journal, || {
        let site = Site::find(&Linux)?;
        swap::make(&Linux, &journal, &folder.join("swap"), SWAP)?;
        let name = format!("stopgap-bench-{}", Linux.pid());
        let group = MemoryGroup::make(&Linux, &journal, &site, &name, LIMIT)?;
        let mapper = Mapper::default();
        std::thread::scope(|scope| {
            scope.spawn(|| mapper.run());
            let done = watch(flags, seed, folder, &group, &mapper);
            mapper.stop.store(true, Ordering::Relaxed);
            done
        })
    })
}

/// Watches the load, and judges.
fn watch(
    flags: &Flags,
    seed: u64,
    folder: &Path,
    group: &MemoryGroup,
    mapper: &Mapper,
) -> Result<ExitCode, Failure> {
    let program = flags.stopgap.program()?;
    sleep(ALONE)?;
    let alone = mapper.count();
    let (said, told) = (folder.join("said"), folder.join("told"));
    let file = |path: &Path| File::create(path).map_err(failed(path.display()));
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(["watch", "--json", "-o"]).arg(folder);
    // A lock is held for 100 ms: less than what fires by default.
    command.args(["--slow", "mmap=50ms,munmap=50ms,fault=50ms"]);
    if !flags.whole_system {
        command.args(["-p", &Linux.pid().to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(file(&said)?)
        .stderr(file(&told)?);
    let mut watcher = Guarded(command.spawn().map_err(failed(program.display()))?);
    let deadline = Linux.now() + Nanos::secs(20);
    while !text(&told).contains("Ctrl-C ends") {
        sleep(Nanos::millis(100))?;
        if Linux.now() > deadline || matches!(watcher.0.try_wait(), Ok(Some(_))) {
            let what = format!("watch does not begin: {}", text(&told).trim_end());
            return Err(Failure::error(what));
        }
    }
    let mut seen = Seen::default();
    let (first, began) = (mapper.count(), Linux.now());
    let mut random = Random::new(seed);
    // Memory and locks in turn, so that two stalls are of both.
    let mut locks = [Kind::Populate, Kind::Unmap];
    random.shuffle(&mut locks);
    let mut kinds = [Kind::Squeeze, locks[0], Kind::Squeeze, locks[1]];
    kinds.rotate_left(random.index(2));
    let slot = Nanos::secs(flags.seconds).0 / flags.stalls;
    for (number, kind) in (0..flags.stalls).zip(kinds.into_iter().cycle()) {
        // Within its slot, with quiet before it and time for its page after it.
        let free = slot - Nanos::secs(LEAST_SECONDS - 10).0;
        let at = Nanos(began.0 + number * slot + Nanos::secs(10).0 + random.below(free.max(1)));
        let after = if number == 0 { Nanos(0) } else { CALM };
        calm(&mut seen, &watcher.0, after, at)?;
        let injected = inject(kind, group.path())?;
        let Injected { begin, end, .. } = injected;
        seen.injected.push(injected);
        tell(&format!(
            "{:.0} s: {} for {:.0} ms",
            Nanos(begin.saturating_sub(began.0)).as_secs_f64(),
            kind.word(),
            (end - begin) as f64 / 1e6
        ));
    }
    calm(
        &mut seen,
        &watcher.0,
        CALM,
        Nanos(began.0 + slot * flags.stalls),
    )?;
    let last = mapper.count();
    if let Ok(noted) = mapper.noted.lock() {
        seen.noted.clone_from(&noted);
    }
    let _ = kill_process(Pid::from_child(&watcher.0), Signal::INT);
    let deadline = Linux.now() + Nanos::secs(180);
    seen.status = loop {
        match watcher.0.try_wait() {
            Ok(Some(status)) => break status.code(),
            _ if Linux.now() > deadline => return Err(Failure::error("watch does not end")),
            _ => sleep(Nanos::millis(100))?,
        }
    };
    let round = |from: [u64; 2], to: [u64; 2]| {
        let [rounds, cpu] = [0, 1].map(|at| to[at].saturating_sub(from[at]));
        cpu as f64 / rounds.max(1) as f64 / 1e3
    };
    (seen.alone_us, seen.watched_us) = (round([0; 2], alone), round(first, last));
    let (found, holds) = judge(&text(&said), &seen).map_err(Failure::error)?;
    print(&format!("{}\n{found}", text(&told)))?;
    Ok(verdict(holds))
}

/// Makes a stall.
fn inject(kind: Kind, cgroup: &Path) -> Result<Injected, Failure> {
    let large = || -> Result<Mapping, Failure> {
        let mapping = map(LARGE, Bytes(0))?;
        Linux.advise(&mapping, Bytes(0), LARGE, Advice::NoHugePage)?;
        Ok(mapping)
    };
    let timed = |stall: &mut dyn FnMut() -> stopgap_kernel::Result<()>| {
        let begin = Linux.now().0;
        stall()?;
        let end = Linux.now().0;
        Ok(Injected { kind, begin, end })
    };
    match kind {
        // Holds mmap_lock for reading while it makes pages (`faultin_page_range()`); who maps waits.
        Kind::Populate => {
            let mapping = large()?;
            let injected =
                timed(&mut || Linux.advise(&mapping, Bytes(0), LARGE, Advice::PopulateWrite));
            // In pieces, so that no call is slow.
            let piece = Bytes::mib(4);
            for at in (0..LARGE.0).step_by(piece.0 as usize) {
                Linux.advise(&mapping, Bytes(at), piece, Advice::DontNeed)?;
            }
            Linux.unmap(mapping)?;
            injected
        }
        // Holds mmap_lock while it frees pages (`do_vmi_align_munmap()`). The pages were made by faults, which hold the lock of
        // their VMA alone (6.4 on) and none for long.
        Kind::Unmap => {
            let mapping = large()?;
            Linux.touch(&mapping, Bytes(0), LARGE)?;
            let mut mapping = Some(mapping);
            timed(&mut || {
                mapping
                    .take()
                    .map_or(Ok(()), |mapping| Linux.unmap(mapping))
            })
        }
        // A child in the cgroup wants more than it may have.
        Kind::Squeeze => {
            let limits = ChildLimits {
                time: LONGEST,
                cgroup: Some(cgroup.to_owned()),
            };
            let mut body = || {
                let memory = map(WANTED, Bytes(0));
                let _ = memory.and_then(|memory| Linux.touch(&memory, Bytes(0), WANTED));
                Vec::new()
            };
            timed(&mut || Linux.run_child(&limits, &mut body).map(drop))
        }
    }
}

/// Waits until `until`. Once `after` has passed, notes the watch's CPU time and the pressure.
fn calm(seen: &mut Seen, watcher: &Child, after: Nanos, until: Nanos) -> Result<(), Failure> {
    sleep(after)?;
    let (from, cpu) = (Linux.now(), cpu_time(watcher.id())?);
    while Linux.now() < until {
        let total = |word| pressure::total(&Linux, &pressure::global(word));
        let totals = ["memory", "io"].map(|word| total(word).map_or(0, |total| total.0));
        seen.pressure.push((Linux.now().0, totals));
        sleep(until.saturating_sub(Linux.now()).min(STEP))?;
    }
    seen.quiet_ns += Linux.now().saturating_sub(from).0;
    seen.cpu_ns += cpu_time(watcher.id())?.saturating_sub(cpu);
    Ok(())
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

// Compares what watch said with what was injected and what else happened.

/// A stall that was made.
#[derive(Debug, Clone, Copy)]
struct Injected {
    kind: Kind,
    /// ns on the monotonic clock.
    begin: u64,
    end: u64,
}

/// The bench's own observations.
#[derive(Debug, Default)]
struct Seen {
    injected: Vec<Injected>,
    /// Rounds of the load that took 9 ms or more: when and how long.
    noted: Vec<(u64, u64)>,
    /// The time between stalls, and the watch's CPU time in it.
    quiet_ns: u64,
    cpu_ns: u64,
    /// When, and how long some task had waited for memory and for I/O by then.
    pressure: Vec<(u64, [u64; 2])>,
    /// CPU time of a round of the load, before it was watched and while it was.
    alone_us: f64,
    watched_us: f64,
    /// Exit status of the watch.
    status: Option<i32>,
}

/// The share of one CPU that a watch may take while nothing happens.
const MOST_CPU: f64 = 0.02;
/// Pressure that others made is real from this part of the threshold on: our looks are not the watch's.
const REAL: f64 = 0.7;

/// `documents` is what watch printed.
fn judge(documents: &str, seen: &Seen) -> Result<(String, bool), String> {
    let mut pages = Vec::new();
    let mut ended = false;
    for line in documents.lines() {
        let document: Document =
            serde_json::from_str(line).map_err(|error| format!("what watch said: {error}"))?;
        match document.told {
            Told::Stall(page) => pages.push(page),
            Told::End(_) => ended = true,
        }
    }
    let mut text = format!(
        "{:<10} {:>8} {:>9}  {:<7} {:<6} named\n",
        "injected", "at", "took", "caught", "right"
    );
    let start = seen.injected.first().map_or(0, |first| first.begin);
    let (mut caught, mut right) = (0, 0);
    for one in &seen.injected {
        // A stall may have a second window: the one that names its cause counts.
        let mut of_it: Vec<&Page> = pages.iter().filter(|page| overlaps(page, one)).collect();
        of_it.sort_by_key(|page| !one.kind.is_named_by(&page.cause.word));
        let page = of_it.first();
        let named = page.is_some_and(|page| one.kind.is_named_by(&page.cause.word));
        caught += usize::from(page.is_some());
        right += usize::from(named);
        let word = |yes| if yes { "yes" } else { "NO" };
        let _ = writeln!(
            text,
            "{:<10} {:>6.1} s {:>6.0} ms  {:<7} {:<6} {}",
            one.kind.word(),
            (one.begin - start) as f64 / 1e9,
            (one.end - one.begin) as f64 / 1e6,
            word(page.is_some()),
            word(named),
            page.map_or("-", |page| &page.cause.text)
        );
    }
    let mut wrong = 0;
    for page in &pages {
        if seen.injected.iter().any(|one| overlaps(page, one)) {
            continue;
        }
        let real = is_real(page, seen);
        wrong += usize::from(!real);
        let _ = writeln!(
            text,
            "{:<10} {:>6.1} s            {}  {}",
            if real { "other's" } else { "FALSE" },
            (page.stall.begin_ns as f64 - start as f64) / 1e9,
            if real {
                "real: seen without watch, too;"
            } else {
                "nothing else saw it;"
            },
            page.cause.text
        );
    }
    let cpu = seen.cpu_ns as f64 / (seen.quiet_ns as f64).max(1.0);
    let count = seen.injected.len();
    let slower = (seen.watched_us / seen.alone_us - 1.0) * 100.0;
    let _ = write!(
        text,
        "caught {caught} of {count}, cause named {right} of {count}, false {wrong}\n\
         CPU time of watch while nothing happens: {:.2} % of one CPU over {:.0} s (at most {:.0} %)\n\
         a round of the load (mmap, 16 faults, munmap): {:.1} us of CPU time before, {:.1} us watched ({slower:+.0} %)\n",
        cpu * 100.0,
        seen.quiet_ns as f64 / 1e9,
        MOST_CPU * 100.0,
        seen.alone_us,
        seen.watched_us,
    );
    if seen.status != Some(0) || !ended {
        let _ = writeln!(text, "watch ended with status {:?}", seen.status);
    }
    let holds = caught == count
        && right == count
        && wrong == 0
        && cpu <= MOST_CPU
        && seen.status == Some(0)
        && ended;
    Ok((text, holds))
}

fn overlaps(page: &Page, one: &Injected) -> bool {
    page.stall.begin_ns <= one.end && page.stall.end_ns >= one.begin
}

/// Whether what fired was there by somebody else's word.
fn is_real(page: &Page, seen: &Seen) -> bool {
    page.stall
        .triggers
        .iter()
        .any(|trigger| match trigger.kind {
            TriggerKind::SlowCall => {
                let length = trigger.measured_ns.unwrap_or(0);
                let begin = trigger.at_ns.saturating_sub(length);
                let in_load = |&(at, took): &(u64, u64)| at <= trigger.at_ns && at + took >= begin;
                seen.noted.iter().any(in_load)
            }
            TriggerKind::MemoryPressure => pressed(trigger.at_ns, trigger.threshold_ns, seen, 0),
            TriggerKind::IoPressure => pressed(trigger.at_ns, trigger.threshold_ns, seen, 1),
            _ => false, // nobody else counts those
        })
}

/// Whether so much pressure was there in the two seconds before `at`.
fn pressed(at: u64, threshold: Option<u64>, seen: &Seen, resource: usize) -> bool {
    let window = at.saturating_sub(2_000_000_000)..=at + 500_000_000;
    let looks = seen
        .pressure
        .iter()
        .filter(|(when, _)| window.contains(when));
    let totals: Vec<u64> = looks.map(|(_, totals)| totals[resource]).collect();
    let waited = match (totals.first(), totals.last()) {
        (Some(first), Some(last)) => last.saturating_sub(*first),
        _ => 0,
    };
    waited as f64 >= threshold.unwrap_or(0) as f64 * REAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(begin: u64, end: u64, word: &str, kind: &str) -> String {
        let findings = r#""findings":{"trace":{"events":0},"losses":{"limit":0.01,"contradictions":0,"disordered":0},
            "verdict":{"word":"clean","text":"clean"},"switches":{"per_roundtrip":{"distribution":[]},"causes":[],"pairs":[]},
            "tasks":[],"slow":[],"calls":[],"memory":{},"advice":[],"missing":[]}"#;
        format!(
            r#"{{"schema":"stopgap.watch/3","version":"0","told":"stall","unix_s":0,"triggers":[{{"kind":"{kind}",
            "at_ns":{end},"measured_ns":5,"threshold_ns":100,"open":false}}],"begin_ns":{begin},"end_ns":{end},"from_ns":0,
            "taken_ns":{end},"suppressed":0,"cause":{{"word":"{word}","text":"{word}, 90 %","waiting":[]}},"causes":[],{findings}}}"#
        )
        .replace('\n', "")
    }

    const END: &str = r#"{"schema":"stopgap.watch/3","version":"0","told":"end","stalls":1,"suppressed":0,"failed":0,"watched_ns":1,"why":"x"}"#;

    fn seen(cpu_ns: u64) -> Seen {
        Seen {
            injected: vec![Injected {
                kind: Kind::Populate,
                begin: 1_000,
                end: 2_000,
            }],
            noted: vec![(5_000, 20)],
            quiet_ns: 1_000,
            cpu_ns,
            alone_us: 10.0,
            watched_us: 11.0,
            status: Some(0),
            ..Seen::default()
        }
    }

    #[test]
    fn it_holds_when_all_is_caught_and_named() {
        let said = format!("{}\n{END}", line(1_500, 2_500, "mmap_lock", "slow-call"));
        let (text, holds) = judge(&said, &seen(20)).unwrap();
        assert!(
            holds && text.contains("caught 1 of 1, cause named 1 of 1, false 0"),
            "{text}"
        );
        assert!(!judge(&said, &seen(21)).unwrap().1, "more than 2 %");
        let wrong = format!("{}\n{END}", line(1_500, 2_500, "on-cpu", "slow-call"));
        assert!(!judge(&wrong, &seen(0)).unwrap().1);
        let late = format!("{}\n{END}", line(2_001, 2_500, "mmap_lock", "slow-call"));
        assert!(!judge(&late, &seen(0)).unwrap().1);
        assert!(judge("{}", &seen(0)).is_err());
    }

    #[test]
    fn what_the_load_saw_itself_is_no_false_one() {
        let hit = line(1_500, 2_500, "mmap_lock", "slow-call");
        let with = |other: String| judge(&format!("{hit}\n{other}\n{END}"), &seen(0)).unwrap();
        let real = with(line(5_000, 5_010, "run-queue", "slow-call"));
        assert!(real.1 && real.0.contains("other's"), "{}", real.0);
        let none = with(line(7_000, 7_010, "run-queue", "slow-call"));
        assert!(!none.1 && none.0.contains("FALSE"), "{}", none.0);
        assert!(!with(line(7_000, 7_010, "io", "io-pressure")).1);
    }
}
