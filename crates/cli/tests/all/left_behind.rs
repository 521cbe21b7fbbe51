//! Nothing is left behind: no process, cgroup, swap, file or changed setting, also after
//! `kill -9` in the middle of each probe followed by `stopgap restore`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Run, STOPGAP, root, text};
use stopgap_kernel::fake::skipped as skip;

/// What a probe could leave changed, by name; of cgroups and journals those of process `pid`:
/// somebody else may run stopgap meanwhile.
fn traces(run: &Run, pid: u32) -> BTreeMap<String, String> {
    let mut traces = BTreeMap::new();
    let mut file = |path: &Path| {
        let content = std::fs::read_to_string(path).unwrap_or_default();
        traces.insert(path.display().to_string(), content.trim().to_owned());
    };
    let huge = Path::new("/sys/kernel/mm/transparent_hugepage");
    for name in ["enabled", "defrag", "shmem_enabled"] {
        file(&huge.join(name));
    }
    for size in names(huge)
        .into_iter()
        .filter(|n| n.starts_with("hugepages-"))
    {
        file(&huge.join(size).join("enabled"));
    }
    let pools = Path::new("/sys/kernel/mm/hugepages");
    for size in names(pools) {
        file(&pools.join(size).join("nr_hugepages"));
    }
    file(Path::new("/proc/swaps"));
    file(Path::new("/proc/sys/vm/min_free_kbytes"));
    let mut cgroups = Vec::new();
    find_cgroups(Path::new("/sys/fs/cgroup"), 0, &mut cgroups);
    let pid = pid.to_string();
    let its = |name: &String| name.split(['-', '.', '/']).any(|part| part == pid);
    cgroups.retain(its);
    traces.insert("cgroups".to_owned(), cgroups.join(" "));
    let mut journals = names(Path::new("/run/stopgap"));
    journals.retain(its);
    traces.insert("journals".to_owned(), journals.join(" "));
    let kept: Vec<String> = names(&run.directory.path().join("stopgap"))
        .into_iter()
        .filter(|name| name != "journal")
        .collect();
    traces.insert("files".to_owned(), kept.join(" "));
    traces
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

fn find_cgroups(path: &Path, depth: u32, found: &mut Vec<String>) {
    for name in names(path) {
        let inside = path.join(&name);
        if name.starts_with("stopgap") && inside.is_dir() {
            found.push(inside.display().to_string());
        }
        if depth < 6 && inside.is_dir() && !inside.is_symlink() {
            find_cgroups(&inside, depth + 1, found);
        }
    }
}

/// Processes that run our command from this test's build.
fn ours() -> Vec<u32> {
    let program = std::fs::canonicalize(STOPGAP).unwrap();
    names(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
        })
        .collect()
}

/// System V segments that nobody has attached: of a killed run they would stay for ever.
fn forgotten_segments() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let attached = |line: &&str| line.split_whitespace().nth(6) != Some("0");
    let forgotten = table.lines().skip(1).filter(|line| !attached(line));
    forgotten.map(str::to_owned).collect()
}

/// Starts the command, kills it after so long, and restores: the process that was killed.
fn kill_and_restore(run: &Run, words: &[&str], milliseconds: u64) -> u32 {
    let mut child = run
        .command(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(milliseconds));
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300)); // its children die with it
    let restored = run.output(&["restore"]);
    assert!(restored.status.success(), "{}", text(&restored.stdout));
    child.id()
}

/// Ten times at moments that nobody chose, with a swap file in use and each way to hold memory.
#[test]
fn reclaim_with_swap_killed_ten_times() {
    if !root() {
        return skip("kill -9 in probe reclaim --swap as root: only root makes swap");
    }
    let run = Run::alone();
    let (before, segments) = (traces(&run, 0), forgotten_segments());
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = stopgap_events::random::Random::new(seed);
    for _ in 0..10 {
        let milliseconds = 60 + random.below(1_400);
        let modes = "none,plain,mlock,shm-lock,shm-churn,vmsplice,io-uring";
        let words = [
            "probe", "reclaim", "--swap", "64M", "--mode", modes, "--limit", "64M", "--pinned",
            "24M", "--bytes", "2M", "--runs", "1", "--each", "200ms",
        ];
        let pid = kill_and_restore(&run, &words, milliseconds);
        let after = traces(&run, pid);
        assert_eq!(before, after, "killed after {milliseconds} ms, seed {seed}");
        assert_eq!(
            segments,
            forgotten_segments(),
            "killed after {milliseconds} ms, seed {seed}"
        );
    }
    let children = ours();
    assert!(children.is_empty(), "{children:?} still run");
}

fn killed_in_the_middle(question: &str) {
    if !root() {
        return skip(format!(
            "kill -9 in {question} as root: only root changes settings"
        ));
    }
    let run = Run::alone();
    let before = traces(&run, 0); // no process has that id
    for milliseconds in [400, 1_100, 2_300] {
        let pid = kill_and_restore(&run, &["check", "--only", question], milliseconds);
        let after = traces(&run, pid);
        assert_eq!(before, after, "{question} killed after {milliseconds} ms");
    }
    let children = ours();
    assert!(children.is_empty(), "{question}: {children:?} still run");
}

/// The kernel sets `vm.min_free_kbytes` when huge pages are allowed or not: a dry run says so, and the journal has it.
#[test]
fn what_the_kernel_moves_along_is_told_and_journalled() {
    if !root() {
        return skip("vm.min_free_kbytes while probe chunks runs: only root changes settings");
    }
    const SETTING: &str = "/proc/sys/vm/min_free_kbytes";
    let words = [
        "probe",
        "chunks",
        "--size",
        "4M",
        "--strategy",
        "mthp",
        "--runs",
        "50",
    ];
    let run = Run::alone();
    let before = traces(&run, 0);
    let told = run.output(&[&words[..], &["--dry-run"]].concat());
    let told = text(&told.stdout);
    if !told.contains("transparent_hugepage") {
        return skip("vm.min_free_kbytes: this kernel has one size of huge pages, or none");
    }
    assert!(
        told.contains(&format!("touches and puts back {SETTING}")),
        "{told}"
    );

    let mut child = run
        .command(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = format!("/run/stopgap/{}.json", child.id());
    let begin = std::time::Instant::now();
    let journalled = loop {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        if text.contains(SETTING) || begin.elapsed() > Duration::from_secs(10) {
            break text.contains(SETTING);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300)); // its children die with it
    let restored = run.output(&["restore"]);
    assert!(restored.status.success(), "{}", text(&restored.stdout));
    assert_eq!(before, traces(&run, child.id()));
    assert!(journalled, "the journal never named {SETTING}");
}

#[test]
fn placement_killed_in_the_middle() {
    killed_in_the_middle("placement");
}

#[test]
fn roundtrip_killed_in_the_middle() {
    killed_in_the_middle("roundtrip");
}

#[test]
fn chunks_killed_in_the_middle() {
    killed_in_the_middle("chunks");
}

#[test]
fn reclaim_killed_in_the_middle() {
    killed_in_the_middle("reclaim");
}

#[test]
fn a_whole_run_leaves_only_its_record() {
    let run = Run::alone();
    let mut before = traces(&run, 0);
    let mut child = run
        .command(&["check", "--quick"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    let mut after = traces(&run, pid);
    assert_eq!(run.records().len(), 1);
    before.remove("files");
    after.remove("files");
    assert_eq!(before, after);
}
