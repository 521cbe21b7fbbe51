//! Each command, started, killed at a random moment, and `stopgap restore` after it: what is left?
//!
//! ```text
//! look at the machine      command runs ....X  killed      restore      look again: the same?
//!                          0 ..... random .... its usual time
//! ```
//!
//! Eight of ten are killed by SIGKILL; the others get SIGTERM or SIGINT and end by themselves. One `restore` of ten is
//! killed, too, and run again. The machine may have other tests on it: processes are ours by a variable in their
//! environment, files by their folder, cgroups and the like by the process id in their name. A setting that differs is
//! looked at again for some seconds, since another's test may be changing it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_events::random::Random;
use stopgap_kernel::signals;

use super::{Common, Place, names};
use crate::common::{failed, folder, wait};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Kills in all, the commands in turn.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

/// Commands that create or change something, by name. `{w}` is the folder of the round, `{k}` two kernels.
const COMMANDS: &str = include_str!("commands.txt");

/// Folders of settings, and settings: compared before and after.
const SETTINGS: &str = include_str!("settings.txt");
/// Counters below those folders, and files whose reading changes something.
const NOT_SETTINGS: [&str; 8] = [
    "drop_caches",
    "free_hugepages",
    "full_scans",
    "pages_collapsed",
    "resv_hugepages",
    "stat_refresh",
    "stats",
    "surplus_hugepages",
];

/// Variable in the environment of a killed command, by which its processes are found.
const MARK: &str = "STOPGAP_ATTACK";
/// Limit of a command that nobody kills.
const LONGEST: Duration = Duration::from_secs(90);
/// Processes of a killed command are gone by then.
const GONE: Duration = Duration::from_secs(3);
/// `watch` leaves a window to a process of its own, which makes the page by then.
const FINISHED: Duration = Duration::from_secs(60);
/// A setting that another's test changes is put back by then.
const SETTLED: Duration = Duration::from_secs(60);
/// The recorded command.
const LOAD: &str = "i=0\nwhile [ $i -lt 150 ]; do sleep 0.01; i=$((i + 1)); done\n";

/// Counts of one command.
#[derive(Default)]
struct Seen {
    rounds: u64,
    /// By SIGKILL, SIGTERM and SIGINT; and those that had ended before.
    by: [u64; 3],
    ended: u64,
    earliest: Option<Duration>,
    latest: Duration,
    put_back: u64,
    recovered: u64,
    left: u64,
}

/// The commands' surroundings.
struct Attack<'a> {
    root: &'a Path,
    program: PathBuf,
    random: Random,
    faults: Vec<String>,
}

pub(super) fn run(flags: &Flags) -> Result<bool, Failure> {
    signals::install();
    let root = folder("attack")?;
    let program = flags.common.program()?;
    let seed = flags.common.seed;
    let mut attack = Attack {
        root: root.path(),
        program,
        random: Random::new(seed),
        faults: Vec::new(),
    };
    attack.prepare()?;
    let mut all = Vec::new();
    let commands = COMMANDS.lines().filter_map(|line| line.split_once(": "));
    for (name, words) in commands.filter(|(name, _)| flags.common.wants(name)) {
        match attack.usual_time(words)? {
            Ok(time) => all.push((name, words, time, Seen::default())),
            Err(why) => tell(&format!("skipped: {name}: {why}")),
        }
    }
    print(&format!("seed {seed}, {} kills", flags.rounds))?;
    let bar = progress_bar();
    let commands = all.len().max(1) as u64;
    for round in 0..flags.rounds {
        let Some((name, words, time, seen)) = all.get_mut((round % commands) as usize) else {
            break;
        };
        if signals::interrupted() {
            break;
        }
        bar.set_position(round * 1_000 / flags.rounds);
        bar.set_message(*name);
        attack.round(round, name, words, *time, seen)?;
    }
    bar.finish_and_clear();
    print(
        "command           rounds  KILL  TERM   INT  ended       killed after  put back recovered  left",
    )?;
    for (name, _, _, seen) in &all {
        let [kill, term, int] = seen.by;
        let (first, last) = (seen.earliest.unwrap_or_default(), seen.latest);
        let after = format!("{}..{} ms", first.as_millis(), last.as_millis());
        print(&format!(
            "{name:<17} {:>6} {kill:>5} {term:>5} {int:>5} {:>6}  {after:>17}  {:>8} {:>9} {:>5}",
            seen.rounds, seen.ended, seen.put_back, seen.recovered, seen.left
        ))?;
    }
    for fault in &attack.faults {
        print(fault)?;
    }
    Ok(attack.faults.is_empty())
}

impl Attack<'_> {
    /// What the commands read, and what stands in for QEMU where STOPGAP_KERNELS names no kernels.
    fn prepare(&self) -> Result<(), Failure> {
        let write = |name: &str, text: &str| {
            let path = self.root.join(name);
            fs::write(&path, text).map_err(failed(path.display()))
        };
        write("load", LOAD)?;
        super::samples::lab_of(&self.root.join("lab"))?;
        let place = Place::new(&self.root.join("first"), &self.program)?;
        let passive = &mut place.command("check --passive --json");
        let output = passive.stdout(Stdio::piped()).output();
        let output = output.map_err(failed(self.program.display()))?;
        write("record.json", &String::from_utf8_lossy(&output.stdout))
    }

    fn command(&self, place: &Place, words: &str) -> std::process::Command {
        let given = std::env::var("STOPGAP_KERNELS").unwrap_or_default();
        let mut packages = names(Path::new(&given));
        packages.retain(|name| name.ends_with("_amd64.deb"));
        let lab = self.root.join("lab");
        let kernels = match packages.as_slice() {
            [first, second, ..] => format!("{given}/{first} {given}/{second}"),
            _ => format!("{0}/bzImage {0}/bzImage", lab.display()),
        };
        let mut command = place.command(&words.replace("{k}", &kernels));
        if packages.len() < 2 {
            super::samples::in_lab(&mut command, &lab).env("STOPGAP_GUEST_TAKES", "0.2");
        }
        let mark = std::process::id().to_string();
        command.env(MARK, mark);
        command
    }

    /// Runs a command to its end: how long that takes, or why it cannot be run here.
    fn usual_time(&mut self, words: &str) -> Result<Result<Duration, String>, Failure> {
        let place = Place::new(&self.root.join("usual"), &self.program)?;
        let begin = Instant::now();
        let (status, told) = place.ends(&mut self.command(&place, words), LONGEST)?;
        let took = begin.elapsed();
        let _ = fs::remove_dir_all(&place.folder);
        Ok(match status {
            Some(status) if status.success() => Ok(took),
            Some(status) => Err(format!("{status}: {}", told.trim().replace('\n', "; "))),
            None => Err(format!("it takes more than {} s", LONGEST.as_secs())),
        })
    }

    fn round(
        &mut self,
        round: u64,
        name: &str,
        words: &str,
        usual: Duration,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let place = Place::new(&self.root.join(format!("round-{round}")), &self.program)?;
        let before = settings();
        let told = fs::File::create(place.folder.join("told")).map_err(failed("told"))?;
        let child = self.command(&place, words).stderr(told).spawn();
        let mut child = child.map_err(failed(self.program.display()))?;
        let pid = child.id();
        let moment = usual.mul_f64(self.random.below(1_050) as f64 / 1_000.0);
        let ended = wait(&mut child, moment)?.is_some();
        let how = match self.random.below(10) {
            0 => (Signal::TERM, 1),
            1 => (Signal::INT, 2),
            _ => (Signal::KILL, 0),
        };
        let mut left = Vec::new();
        if ended {
            seen.ended += 1;
        } else {
            seen.by[how.1] += 1;
            left.extend(kill(&mut child, how.0)?);
        }
        seen.rounds += 1;
        seen.earliest = Some(seen.earliest.map_or(moment, |first| first.min(moment)));
        seen.latest = seen.latest.max(moment);
        left.extend(survivors());
        self.restore(&place, seen, &mut left)?;
        left.extend(differences(&before, pid));
        left.extend(files(&place, seen)?);
        if left.is_empty() {
            let _ = fs::remove_dir_all(&place.folder);
            return Ok(());
        }
        seen.left += 1;
        let (after, how) = (moment.as_millis(), ["SIGKILL", "SIGTERM", "SIGINT"][how.1]);
        self.faults.push(format!(
            "{name}, round {round}, {how} after {after} ms, pid {pid}: {}",
            left.join("; ")
        ));
        Ok(())
    }

    /// Runs `restore`, one time of ten killed itself before.
    fn restore(
        &mut self,
        place: &Place,
        seen: &mut Seen,
        left: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if self.random.below(10) == 0 {
            let limit = Duration::from_micros(self.random.below(20_000));
            place.ends(&mut place.command("restore"), limit)?;
        }
        let begin = Instant::now();
        loop {
            let mut command = place.command("restore");
            let output = command.stdout(Stdio::piped()).output();
            let output = output.map_err(failed("restore"))?;
            let said = String::from_utf8_lossy(&output.stdout);
            seen.put_back += u64::from(said.contains("put back:"));
            // It may have met what another's test is using.
            if output.status.success() {
                return Ok(());
            }
            if begin.elapsed() > SETTLED {
                left.push(format!("restore: {} {}", output.status, said.trim()));
                return Ok(());
            }
            sleep(Duration::from_secs(1));
        }
    }
}

/// Sends a signal and waits for the end; a fault where that does not come.
fn kill(child: &mut Child, signal: Signal) -> Result<Option<String>, Failure> {
    let _ = kill_process(Pid::from_child(child), signal); // it may just have ended
    if wait(child, Duration::from_secs(30))?.is_some() {
        return Ok(None);
    }
    let _ = child.kill();
    let _ = child.wait();
    Ok(Some("it did not end within 30 s".to_owned()))
}

/// Returns processes of ours that live on too long; they are ended.
fn survivors() -> Vec<String> {
    let begin = Instant::now();
    loop {
        let left = marked().into_iter().map(|pid| (pid, words_of(pid)));
        let left: Vec<(Pid, String)> = left.collect();
        let finishes = |(_, words): &(Pid, String)| words.contains("watch --finish");
        let limit = match left.iter().all(finishes) {
            true => FINISHED,
            false => GONE,
        };
        if left.is_empty() || begin.elapsed() > limit {
            let ended = left.into_iter().map(|(pid, words)| {
                let _ = kill_process(pid, Signal::KILL);
                format!("process {words}lives on")
            });
            return ended.collect();
        }
        sleep(Duration::from_millis(20));
    }
}

/// Returns the command line of a process.
fn words_of(pid: Pid) -> String {
    let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    let words = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Processes whose environment has our mark.
fn marked() -> Vec<Pid> {
    let mark = format!("{MARK}={}", std::process::id());
    let ours = |pid: &Pid| {
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let environment = fs::read(path).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    };
    let pids = names(Path::new("/proc")).into_iter();
    pids.filter_map(|name| Pid::from_raw(name.parse().ok()?))
        .filter(ours)
        .collect()
}

/// Returns the machine's settings by their paths.
fn settings() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> = SETTINGS.lines().map(PathBuf::from).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let inside = names(&path).into_iter();
            let settings = inside.filter(|name| !NOT_SETTINGS.contains(&name.as_str()));
            open.extend(settings.map(|name| path.join(name)));
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.insert(path, text);
        }
    }
    found
}

/// Returns mounts, swap files, trace instances, journals and cgroups named after process `pid` or our folders.
fn named(pid: u32) -> Vec<String> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let mut all = text("/proc/mounts") + &text("/proc/swaps");
    let mut open = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    open.extend(["/sys/kernel/tracing/instances", "/run/stopgap"].map(|path| (path.into(), 6)));
    while let Some((folder, depth)) = open.pop() {
        for inside in names(&folder).into_iter().map(|name| folder.join(name)) {
            all += &format!(" {}", inside.display());
            if depth < 6 && inside.is_dir() && !inside.is_symlink() {
                open.push((inside, depth + 1));
            }
        }
    }
    let pid = pid.to_string();
    let ours = |word: &&str| {
        let mut parts = word.split(['-', '.', '/']);
        word.contains("stopgap-attack.")
            || word.contains("stopgap") && parts.any(|part| part == pid)
    };
    let ours = all.split_whitespace().filter(ours);
    ours.map(str::to_owned).collect()
}

/// Returns changed settings, and names left in the machine.
fn differences(before: &BTreeMap<PathBuf, String>, pid: u32) -> Vec<String> {
    let end = Instant::now() + SETTLED;
    loop {
        let now = settings();
        let mut changed = before.clone();
        changed.retain(|path, was| now.get(path) != Some(was));
        let changed = changed.iter();
        let changed =
            changed.map(|(path, was)| format!("{}: '{}' before", path.display(), was.trim()));
        let mut left: Vec<String> = changed.collect();
        left.extend(named(pid));
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        sleep(Duration::from_millis(200));
    }
}

/// Returns temporary files, half files and outputs that are not whole. Recovers recordings that were cut off.
fn files(place: &Place, seen: &mut Seen) -> Result<Vec<String>, Failure> {
    let temporary = names(&place.folder.join("tmp")).into_iter();
    let mut left: Vec<String> = temporary.map(|name| format!("file tmp/{name}")).collect();
    let mut folders = vec![place.folder.join("out"), place.folder.join("state")];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(&name);
            let shown = path.strip_prefix(&place.folder).unwrap_or(&path).display();
            if name.ends_with(".spool") {
                let verb = match name.starts_with(".stall-") {
                    true => "watch --finish",
                    false => "record --recover",
                };
                let words = format!("{verb} {}", path.display());
                let (status, told) = place.ends(&mut place.command(&words), LONGEST)?;
                match status {
                    Some(status) if status.success() && !path.exists() => seen.recovered += 1,
                    _ => left.push(format!(
                        "{verb} {shown}: {}",
                        told.trim().replace('\n', "; ")
                    )),
                }
            } else if path.is_dir() {
                folders.push(path);
            } else if name.starts_with('.') || name.ends_with(".partial") {
                left.push(format!("file {shown}"));
            } else if !whole(place, &path)? {
                left.push(format!("{shown} is not whole"));
            }
        }
    }
    Ok(left)
}

/// Whether an output can be read to its end.
fn whole(place: &Place, path: &Path) -> Result<bool, Failure> {
    let end = path.extension().unwrap_or_default().to_string_lossy();
    let text = || fs::read_to_string(path).unwrap_or_default();
    Ok(match &*end {
        "json" => serde_json::from_str::<serde_json::Value>(&text()).is_ok(),
        "html" => text().trim_end().ends_with("</html>"),
        "xml" => text().trim_end().ends_with("</testsuites>"),
        "csv" => text().ends_with('\n'),
        "parquet" => {
            let words = format!("export {} --to jsonl -o /dev/null", path.display());
            let (status, _) = place.ends(&mut place.command(&words), LONGEST)?;
            status.is_some_and(|status| status.success())
        }
        _ => true,
    })
}
