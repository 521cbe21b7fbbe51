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
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_events::random::Random;
use stopgap_kernel::signals;

use super::{Common, Place, names};
use crate::common::{failed, folder, table, wait};

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

/// Signals; of ten commands eight get the first.
const SIGNALS: [(Signal, &str); 3] = [
    (Signal::KILL, "SIGKILL"),
    (Signal::TERM, "SIGTERM"),
    (Signal::INT, "SIGINT"),
];

/// A command and the counts of its rounds.
struct Attacked {
    name: &'static str,
    words: &'static str,
    /// How long it takes where nobody kills it.
    usual: Duration,
    rounds: u64,
    /// By each of [`SIGNALS`], and those that had ended before.
    ends: [u64; 4],
    moments: Vec<Duration>,
    put_back: u64,
    recovered: u64,
    left: u64,
}

pub(super) fn run(flags: &Flags) -> Result<bool, Failure> {
    signals::install();
    let root = folder("attack")?;
    let (root, seed) = (root.path(), flags.common.seed);
    let program = flags.common.stopgap.program()?;
    let mut random = Random::new(seed);
    prepare(root, &program)?;
    let mut all = Vec::new();
    let commands = COMMANDS.lines().filter_map(|line| line.split_once(": "));
    for (name, words) in commands.filter(|(name, _)| flags.common.wants(name)) {
        let place = Place::new(&root.join("usual"), &program)?;
        let begin = Instant::now();
        let (status, told) = place.ends(&mut command(root, &place, words), LONGEST)?;
        let usual = begin.elapsed();
        let _ = fs::remove_dir_all(&place.folder);
        let (seconds, told) = (LONGEST.as_secs(), told.trim().replace('\n', "; "));
        match status {
            Some(status) if status.success() => all.push(Attacked {
                name,
                words,
                usual,
                rounds: 0,
                ends: [0; 4],
                moments: Vec::new(),
                put_back: 0,
                recovered: 0,
                left: 0,
            }),
            Some(status) => tell(&format!("skipped: {name}: {status}: {told}")),
            None => tell(&format!("skipped: {name}: it takes more than {seconds} s")),
        }
    }
    print(&format!("seed {seed}, {} kills", flags.rounds))?;
    let bar = progress_bar();
    let mut faults = Vec::new();
    let commands = all.len().max(1) as u64;
    for round in 0..flags.rounds {
        let Some(attacked) = all.get_mut((round % commands) as usize) else {
            break;
        };
        if signals::interrupted() {
            break;
        }
        bar.set_position(round * 1_000 / flags.rounds);
        bar.set_message(attacked.name);
        let place = Place::new(&root.join(format!("round-{round}")), &program)?;
        let how = kill_one(root, &place, attacked, &mut random)?;
        match how {
            (_, left) if left.is_empty() => _ = fs::remove_dir_all(&place.folder),
            (how, left) => {
                attacked.left += 1;
                let (name, left) = (attacked.name, left.join("; "));
                faults.push(format!("{name}, round {round}, {how}: {left}"));
            }
        }
    }
    bar.finish_and_clear();
    let rows = all.iter().map(|seen| {
        let [kill, term, int, ended] = seen.ends.map(|count| count.to_string());
        let ms = |moment: Option<&Duration>| moment.map_or(0, Duration::as_millis);
        let (first, last) = (ms(seen.moments.iter().min()), ms(seen.moments.iter().max()));
        let mut row = vec![
            seen.name.to_owned(),
            seen.rounds.to_string(),
            kill,
            term,
            int,
            ended,
        ];
        row.push(format!("{first}..{last} ms"));
        row.extend([seen.put_back, seen.recovered, seen.left].map(|count| count.to_string()));
        row
    });
    let head = "command|rounds|KILL|TERM|INT|ended|killed after|put back|recovered|left";
    print(table(head, rows).trim_end())?;
    faults.iter().try_for_each(|fault| print(fault))?;
    Ok(faults.is_empty())
}

/// Makes what the commands read, and what stands in for QEMU where STOPGAP_KERNELS names no kernels.
fn prepare(root: &Path, program: &Path) -> Result<(), Failure> {
    let write = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        fs::write(&path, bytes).map_err(failed(path.display()))
    };
    write("load", LOAD.as_bytes())?;
    super::samples::lab_of(&root.join("lab"))?;
    let place = Place::new(&root.join("first"), program)?;
    let passive = &mut place.command("check --passive --json");
    let output = passive.stdout(Stdio::piped()).output();
    let output = output.map_err(failed(program.display()))?;
    write("record.json", &output.stdout)
}

/// Returns the program with these words, marked as ours.
fn command(root: &Path, place: &Place, words: &str) -> Command {
    let given = std::env::var("STOPGAP_KERNELS").unwrap_or_default();
    let mut packages = names(Path::new(&given));
    packages.retain(|name| name.ends_with("_amd64.deb"));
    let lab = root.join("lab");
    let kernels = match packages.as_slice() {
        [first, second, ..] => format!("{given}/{first} {given}/{second}"),
        _ => format!("{0}/bzImage {0}/bzImage", lab.display()),
    };
    let mut command = place.command(&words.replace("{k}", &kernels));
    if packages.len() < 2 {
        super::samples::in_lab(&mut command, &lab).env("STOPGAP_GUEST_TAKES", "0.2");
    }
    command.env(MARK, std::process::id().to_string());
    command
}

/// Runs a command, kills it at a random moment, and restores. Returns how it was killed, and what is left of it.
fn kill_one(
    root: &Path,
    place: &Place,
    seen: &mut Attacked,
    random: &mut Random,
) -> Result<(String, Vec<String>), Failure> {
    let before = settings();
    let told = fs::File::create(place.folder.join("told")).map_err(failed("told"))?;
    let child = command(root, place, seen.words).stderr(told).spawn();
    let mut child = child.map_err(failed(place.program.display()))?;
    let pid = child.id();
    let moment = seen.usual.mul_f64(random.below(1_050) as f64 / 1_000.0);
    let ended = wait(&mut child, moment)?.is_some();
    let which = match random.below(10) {
        0 => 1,
        1 => 2,
        _ => 0,
    };
    let (signal, name) = SIGNALS[which];
    let mut left = Vec::new();
    if !ended {
        left.extend(kill(&mut child, signal)?);
    }
    seen.rounds += 1;
    seen.ends[if ended { 3 } else { which }] += 1;
    seen.moments.push(moment);
    left.extend(survivors());
    // One restore of ten is killed itself, and run again.
    if random.below(10) == 0 {
        let limit = Duration::from_micros(random.below(20_000));
        place.ends(&mut place.command("restore"), limit)?;
    }
    let begin = Instant::now();
    loop {
        let output = place.command("restore").stdout(Stdio::piped()).output();
        let output = output.map_err(failed("restore"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        seen.put_back += u64::from(said.contains("put back:"));
        if output.status.success() {
            break;
        }
        // It may have met what another's test is using.
        if begin.elapsed() > SETTLED {
            left.push(format!("restore: {} {}", output.status, said.trim()));
            break;
        }
        sleep(Duration::from_secs(1));
    }
    left.extend(differences(&before, pid));
    left.extend(files(place, &mut seen.recovered)?);
    let after = moment.as_millis();
    Ok((format!("{name} after {after} ms, pid {pid}"), left))
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
        let left = marked();
        let finishes = left
            .iter()
            .all(|(_, words)| words.contains("watch --finish"));
        let limit = if finishes { FINISHED } else { GONE };
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

/// Processes whose environment has our mark, and their command lines.
fn marked() -> Vec<(Pid, String)> {
    let mark = format!("{MARK}={}", std::process::id());
    let ours = |name: String| {
        let read = |file: &str| fs::read(format!("/proc/{name}/{file}")).unwrap_or_default();
        let environment = read("environ");
        let mut variables = environment.split(|byte| *byte == 0);
        let is_ours = variables.any(|variable| variable == mark.as_bytes());
        let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        Some((Pid::from_raw(name.parse().ok()?)?, words)).filter(|_| is_ours)
    };
    names(Path::new("/proc"))
        .into_iter()
        .filter_map(ours)
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
fn files(place: &Place, recovered: &mut u64) -> Result<Vec<String>, Failure> {
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
                    Some(status) if status.success() && !path.exists() => *recovered += 1,
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
