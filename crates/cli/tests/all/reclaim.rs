//! `probe reclaim` as its users run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Run, STOPGAP, assert_valid, root, text, words};
use stopgap_kernel::cgroup::{Site, Version};
use stopgap_kernel::{Linux, swap};
use stopgap_testing::{Skip, skip};

/// A memory cgroup of this test, removed when it ends.
struct Group(PathBuf);

impl Group {
    /// Makes a cgroup of version 1 with this limit; `None` where the machine has no such hierarchy.
    fn make(name: &str, limit: &str) -> Option<Group> {
        let site = Site::find(&Linux).ok()?;
        if site.version != Version::V1 || !root() {
            return None;
        }
        let path = site.parent.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let group = Group(path);
        std::fs::write(group.0.join("memory.limit_in_bytes"), limit).ok()?;
        Some(group)
    }

    fn output(&self, run: &Run, args: &[&str]) -> Output {
        let enter = format!("echo 0 > {}/cgroup.procs && exec \"$@\"", self.0.display());
        Command::new("sh")
            .args(["-c", &enter, "sh", STOPGAP])
            .args(args)
            .env("XDG_STATE_HOME", run.directory.path())
            .output()
            .unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A group of 4 GiB on a host with more: a load of 3 GiB is refused, for any budget, and a small
/// one runs.
#[test]
fn inside_a_small_group_a_large_load_is_refused_and_a_small_one_runs() {
    let Some(group) = Group::make("p4g", "4G") else {
        return skip(&Skip::machine("cgroup version 1, as root"));
    };
    let run = Run::new();
    let large = words("probe reclaim --mode none --limit 3G --pinned 2G --memory 8G");
    let refused = group.output(&run, &large);
    let said = text(&refused.stdout);
    assert_eq!(
        refused.status.code(),
        Some(3),
        "{said}{}",
        text(&refused.stderr)
    );
    assert!(said.contains("more than half of the"), "{said}");
    assert!(said.contains("cgroup that this runs in"), "{said}");
    let small =
        words("probe reclaim --mode mlock --limit 64M --pinned 32M --runs 1 --each 300ms --json");
    let ran = group.output(&run, &small);
    let record = assert_valid(&text(&ran.stdout));
    let series = record["answers"][0]["series"].as_array().unwrap();
    let read = series
        .iter()
        .find(|s| s["name"] == "read" && s["parameters"]["mode"] == "mlock");
    let read = read.unwrap_or_else(|| panic!("no load ran: {}", record["answers"][0]["verdict"]));
    assert_eq!(read["parameters"]["pinned"], 32 << 20);
    assert_eq!(read["parameters"]["limit"], 64 << 20);
    assert_eq!(read["parameters"]["load"], "mixed");
}

/// Compares references with a lock, live: pages scanned separate them; nothing else need differ.
#[test]
fn references_are_told_from_a_lock() {
    let run = Run::new();
    let swapfile = run.directory.path().join("swap");
    let journal = stopgap_kernel::journal::Journal::new(&Linux, run.directory.path());
    let made = swap::make(
        &Linux,
        &journal,
        &swapfile,
        stopgap_events::units::Bytes::mib(64),
    );
    if made.is_err() || Site::find(&Linux).is_err() {
        return skip(&Skip::machine("a memory cgroup and a swap file, as root"));
    }
    let line = "probe reclaim --mode vmsplice,mlock --limit 64M --pinned 32M --runs 4 --each 1s --bytes 1M --json --seed 5";
    let output = run.output(&words(line));
    drop(journal);
    let record = assert_valid(&text(&output.stdout));
    let answer = &record["answers"][0];
    let series = answer["series"].as_array().unwrap();
    let ratios = |mode: &str| -> Vec<f64> {
        let wanted = |s: &&serde_json::Value| {
            s["name"] == "scanned per reclaimed" && s["parameters"]["mode"] == mode
        };
        let series = series
            .iter()
            .find(wanted)
            .unwrap_or_else(|| panic!("no {mode} in {answer}"));
        let blocks = series["blocks"].as_array().unwrap();
        blocks
            .iter()
            .map(|block| block["value"].as_f64().unwrap())
            .collect()
    };
    let (pinned, locked) = (ratios("vmsplice"), ratios("mlock"));
    let found = stopgap_stats::separation::Separation::between(&pinned, &locked, 1).unwrap();
    // Somebody else's reclaim at the same time counts as ours here: one run of three may be spoilt.
    assert!(found.auc.value >= 0.66, "{pinned:?} against {locked:?}");
    let lines = answer["evidence"].to_string();
    assert!(lines.contains("vmsplice against mlock AUC"), "{lines}");
}

#[test]
fn a_kernel_without_shrinker_debugfs_is_unsupported() {
    if Path::new("/sys/kernel/debug/shrinker").exists() {
        return skip(&Skip::machine("a kernel without shrinker debugfs"));
    }
    let run = Run::new();
    let output = run.output(&["probe", "reclaim", "--shrinker", "i915"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let said = text(&output.stderr) + &text(&output.stdout);
    let why = if root() {
        "CONFIG_SHRINKER_DEBUG"
    } else {
        "root"
    };
    assert!(said.contains(why), "{said}");
}

/// The smallest set of each mode: a page, or a page an object.
#[test]
fn a_set_of_one_byte_is_a_page() {
    if Site::find(&Linux).is_err() || !root() {
        return skip(&Skip::machine("a memory cgroup, as root"));
    }
    let run = Run::new();
    let line = "probe reclaim --mode mlock,shm-lock,shm-churn,vmsplice --pinned 1 --limit 16M --bytes 1 --runs 1 --each 250ms --json";
    let output = run.output(&words(line));
    let record = assert_valid(&text(&output.stdout));
    let answer = &record["answers"][0];
    for mode in ["mlock", "shm-lock", "shm-churn", "vmsplice"] {
        let wanted =
            |s: &&serde_json::Value| s["name"] == "read" && s["parameters"]["mode"] == mode;
        let found = answer["series"].as_array().unwrap().iter().find(wanted);
        assert!(
            found.is_some(),
            "no load beside {mode}: {}",
            answer["evidence"]
        );
    }
}
