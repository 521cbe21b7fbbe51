//! Nothing is left behind: no process, cgroup, swap, file or changed setting, also after
//! `kill -9` in the middle of each probe followed by `stopgap restore`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::check::assert_answered;
use crate::common::{Run, STOPGAP, Started, assert_valid, has, root, wait_for};
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_testing::{Skip, skip};

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

/// Kills a command that was started, and restores.
fn kill_and_restore(run: &Run, mut started: Started) {
    started.child.kill().unwrap(); // SIGKILL
    started.end();
    wait_for("the end of its children, which die with it", || {
        ours().is_empty().then_some(())
    });
    run.stopgap("restore").ok();
}

/// Starts the command, kills it after so long, and restores. Returns the process that was killed.
fn killed_after(run: &Run, line: &str, milliseconds: u64) -> u32 {
    let started = run.start(line);
    let pid = started.child.id();
    std::thread::sleep(Duration::from_millis(milliseconds));
    kill_and_restore(run, started);
    pid
}

/// Returns a generator of moments that nobody chose; its seed is printed. `stopgap-bench attack kills` has many more of them.
fn moments() -> Random {
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    Random::new(seed)
}

/// With a swap file in use and each way to hold memory.
#[test]
fn reclaim_with_swap_killed() {
    if !root() {
        return skip(&Skip::root("making swap"));
    }
    let run = Run::alone();
    let before = (traces(&run, u32::MAX), forgotten_segments());
    let mut random = moments();
    for _ in 0..4 {
        let milliseconds = 60 + random.below(1_400);
        let modes = "none,plain,mlock,shm-lock,shm-churn,vmsplice,io-uring";
        let line = format!(
            "probe reclaim --swap 64M --mode {modes} --limit 64M --pinned 24M --bytes 2M --runs 1 --each 200ms"
        );
        let pid = killed_after(&run, &line, milliseconds);
        let after = (traces(&run, pid), forgotten_segments());
        assert_eq!(before, after, "killed after {milliseconds} ms");
    }
    let children = ours();
    assert!(children.is_empty(), "{children:?} still run");
}

#[test]
fn each_question_killed_in_the_middle() {
    if !root() {
        return skip(&Skip::root("changing settings"));
    }
    let run = Run::alone();
    let before = traces(&run, u32::MAX); // no process has that id
    let mut random = moments();
    for question in Question::FOUR {
        let milliseconds = 300 + random.below(2_000);
        let line = format!("check --only {question}");
        let pid = killed_after(&run, &line, milliseconds);
        let after = traces(&run, pid);
        assert_eq!(before, after, "{question} killed after {milliseconds} ms");
        let children = ours();
        assert!(children.is_empty(), "{question}: {children:?} still run");
    }
}

/// The kernel sets `vm.min_free_kbytes` when huge pages are allowed or not: a dry run says so, and the journal has it.
#[test]
fn what_the_kernel_moves_along_is_told_and_journalled() {
    const SETTING: &str = "/proc/sys/vm/min_free_kbytes";
    const LINE: &str = "probe chunks --size 4M --strategy mthp --runs 50";
    if !root() {
        return skip(&Skip::root("changing settings"));
    }
    let run = Run::alone();
    let before = traces(&run, u32::MAX);
    let told = run.stopgap(format!("{LINE} --dry-run")).out;
    if !told.contains("transparent_hugepage") {
        return skip(&Skip::machine("huge pages of several sizes"));
    }
    has(&told, &[&format!("touches and puts back {SETTING}")]);

    let started = run.start(LINE);
    let pid = started.child.id();
    let journal = format!("/run/stopgap/{pid}.json");
    let begin = std::time::Instant::now();
    let journalled = loop {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        if text.contains(SETTING) || begin.elapsed() > Duration::from_secs(60) {
            break text.contains(SETTING);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    kill_and_restore(&run, started);
    assert_eq!(before, traces(&run, pid));
    assert!(journalled, "the journal never named {SETTING}");
}

#[test]
fn quick_answers_all_four_within_its_budget_and_leaves_only_its_record() {
    let run = Run::alone();
    let mut before = traces(&run, u32::MAX);
    let started = run.start("check --quick --json --seed 7");
    let pid = started.child.id();
    // Progress is for terminals.
    let record = assert_valid(&started.end().quiet());
    let mut after = traces(&run, pid);
    assert_eq!(run.records().len(), 1);
    before.remove("files");
    after.remove("files");
    assert_eq!(before, after);
    assert_answered(&record);
    let peak = record["peak_memory"].as_u64().unwrap();
    let budget = record["memory_budget"].as_u64().unwrap();
    assert!(peak <= budget, "peak {peak} of {budget}");
    assert_eq!(record["seed"], 7);
}
