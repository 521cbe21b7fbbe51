//! The `chunks` probe on the running kernel. Knobs are the machine's: one test at a time.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::journal::{Journal, restore};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, hugetlb, thp::Thp};
use stopgap_probes::chunks::{Chunks, Strategy};
use stopgap_probes::{Context, Measured, Probe};
use stopgap_stats::record::{Answer, Parameter, Series};
use stopgap_stats::verdict::Word;
use stopgap_testing::{Skip, assert_contains, skip};

use crate::{alone, context};

fn is_root() -> bool {
    Linux.uid() == 0
}

/// Runs and judges, with the journal in `directory`.
fn run(probe: &Chunks, directory: &Path, seconds: u64) -> Answer {
    let privilege = if is_root() {
        Privilege::Root
    } else {
        Privilege::None
    };
    let journal = Journal::new(&Linux, directory);
    let context = Context {
        budget: Bytes::mib(256),
        time: Nanos::secs(seconds),
        privilege,
        scratch: directory,
        ..context(&Linux, &journal)
    };
    let measured: Measured = probe.run(&context).unwrap();
    assert!(
        measured.peak_resident < (256 << 20) + (64 << 20),
        "{}",
        measured.peak_resident
    );
    probe.judge(measured, 7, privilege)
}

fn private_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

fn find<'a>(answer: &'a Answer, name: &str, strategy: &str, size: &str) -> Option<&'a Series> {
    answer.series.iter().find(|series| {
        series.name == name
            && series.parameters["strategy"] == Parameter::from(strategy)
            && series.parameters["size"] == Parameter::from(size)
    })
}

/// Entries for the three sets of page sizes, the median over runs.
fn entries(answer: &Answer, strategy: &str, size: &str) -> [f64; 3] {
    ["{4K,2M,1G}", "{4K,64K,1M,16M}", "{4K,64K,2M}"].map(|set| {
        let series = find(answer, &format!("entries {set}"), strategy, size);
        let series = series.unwrap_or_else(|| {
            let take = find(answer, "take", strategy, size).map(|take| &take.error);
            panic!("no entries of {strategy}: {take:?}, {:?}", answer.missing)
        });
        let mut values: Vec<f64> = series.blocks.iter().map(|block| block.value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

/// Every knob that the probe may set, as it stands.
fn knobs() -> BTreeMap<PathBuf, String> {
    let mut paths = vec![
        PathBuf::from("/sys/kernel/mm/transparent_hugepage/enabled"),
        PathBuf::from("/sys/kernel/mm/transparent_hugepage/defrag"),
    ];
    if let Some(thp) = Thp::read(&Linux).unwrap() {
        paths.extend(thp.sizes.into_iter().map(|size| size.knob));
    }
    paths.extend(
        hugetlb::pools(&Linux)
            .unwrap()
            .iter()
            .map(|pool| hugetlb::knob(pool.page)),
    );
    paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect()
}

/// The counts that were measured by hand for a 4 MiB buffer on x86-64.
#[test]
#[cfg(target_arch = "x86_64")]
#[allow(clippy::float_cmp)] // counts
fn entries_are_those_measured_by_hand() {
    let _alone = alone();
    if !is_root() {
        return skip(&Skip::root("settings of huge pages"));
    }
    let before = knobs();
    let folder = private_folder();
    let probe = Chunks {
        sizes: vec![Bytes::mib(4)],
        strategies: vec![
            Strategy::Base,
            Strategy::Mthp(Bytes::kib(64)),
            Strategy::ThpDirect,
            Strategy::Collapse,
            Strategy::Hugetlb,
        ],
        runs: 3,
        buffers: 4,
        knobs: true,
        fragment: None,
    };
    let answer = run(&probe, folder.path(), 20);
    for strategy in ["thp-direct", "collapse", "hugetlb"] {
        assert_eq!(
            entries(&answer, strategy, "4M"),
            [2.0, 4.0, 2.0],
            "{strategy}"
        );
    }
    // Base pages that lie side by side, in order and aligned save entries: luck, and little.
    for count in entries(&answer, "base", "4M") {
        assert!((512.0..=1024.0).contains(&count), "{count}");
    }
    let kernel_has_64k = find(&answer, "block", "mthp-64K", "4M").is_some();
    if kernel_has_64k {
        let [usual, short, long] = entries(&answer, "mthp-64K", "4M");
        assert_eq!(usual, 1024.0);
        // Sixteen side by side, in order and aligned would make an entry of 1 MiB.
        assert_eq!(long, 64.0);
        assert!((34.0..=64.0).contains(&short), "{short}");
    } else {
        let error = find(&answer, "take", "mthp-64K", "4M")
            .unwrap()
            .error
            .as_ref();
        assert_contains(error.unwrap(), &["this kernel has no THP of 64K"]);
    }
    // As many pieces as the strategy says: what a fault gave.
    let faults = |strategy| find(&answer, "faults", strategy, "4M").unwrap().blocks[0].value;
    assert!(
        (1024.0..1100.0).contains(&faults("base")),
        "{}",
        faults("base")
    );
    assert!(
        (2.0..60.0).contains(&faults("thp-direct")),
        "{}",
        faults("thp-direct")
    );
    assert_eq!(knobs(), before);
}

#[test]
fn as_an_ordinary_user_it_answers() {
    let _alone = alone();
    if is_root() {
        return run_again_as_nobody("chunks::as_an_ordinary_user_it_answers");
    }
    let folder = private_folder();
    let answer = run(&Chunks::check(true), folder.path(), 3);
    let base = find(&answer, "take", "base", "4M").unwrap();
    assert!(base.blocks.iter().all(|block| block.value > 0.0));
    assert_ne!(
        answer.verdict.word,
        Word::Unsupported,
        "{}",
        answer.verdict.text
    );
    assert!(find(&answer, "physical runs", "base", "4M").is_none());
    let layout = answer
        .missing
        .iter()
        .find(|missing| missing.what.contains("physical layout"));
    assert!(layout.unwrap().why.contains("needs root"), "{layout:?}");
    for series in &answer.series {
        assert_eq!(
            series.blocks.is_empty(),
            series.error.is_some(),
            "{series:?}"
        );
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing to put back"
    );
}

fn run_again_as_nobody(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("test");
    stopgap_kernel::fake::install(&std::env::current_exe().unwrap(), &copy);
    let own = folder.path().join("tmp");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
    let outcome = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(&copy)
        .args(["--exact", test, "--nocapture"])
        .env("TMPDIR", &own)
        .current_dir(&own)
        .output();
    let outcome = outcome.expect("setpriv is part of util-linux, which every Debian has");
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        outcome.status.success(),
        "{}\n{said}",
        String::from_utf8_lossy(&outcome.stdout)
    );
}

/// Names the journal's folder to the process that is to be killed.
const TO_BE_KILLED: &str = "STOPGAP_TEST_CHUNKS_JOURNAL";

#[test]
#[ignore = "a_killed_run_is_put_back starts and kills it"]
fn victim() {
    let Some(directory) = std::env::var_os(TO_BE_KILLED) else {
        return;
    };
    let probe = Chunks {
        runs: 1_000,
        ..Chunks::check(false)
    };
    run(&probe, Path::new(&directory), 600);
}

#[test]
fn a_killed_run_is_put_back() {
    let _alone = alone();
    if !is_root() {
        return skip(&Skip::root("settings of huge pages"));
    }
    let before = knobs();
    let folder = private_folder();
    // Wherever it is killed, what it had changed by then is put back.
    for delay in [0, 5, 40] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "chunks::victim", "--ignored"])
            .env(TO_BE_KILLED, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let journal = folder.path().join(format!("{}.json", victim.id()));
        while !journal.exists() {
            assert!(Instant::now() < deadline, "it never changed a knob");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(delay));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let restored = restore(&Linux, folder.path()).unwrap();
        assert!(restored.failed.is_empty(), "{restored:?}");
        // Huge pages that the load child held leave the pool when it is gone.
        let deadline = Instant::now() + Duration::from_secs(10);
        while knobs() != before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(knobs(), before, "{restored:?}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    let journals = left.iter().flatten().filter(|file| {
        file.path()
            .extension()
            .is_some_and(|extension| extension == "json")
    });
    assert_eq!(journals.count(), 0, "{left:?}");
}
