use std::path::Path;
use stopgap_testing::assert_contains;

use stopgap_events::machine::Privilege;
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::Site;
use stopgap_kernel::fake::{Fake, HoldCosts};
use stopgap_kernel::holds::Way;
use stopgap_kernel::journal::{Journal, restore};
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::{Error, Linux, System, swap};
use stopgap_stats::record::{Answer, Block, Parameter, Series, parameters};
use stopgap_stats::verdict::Word;

use super::evidence::{ANONYMOUS, CGROUP, LOAD, RATIO};
use super::{ENDLESS, Mode, PressureParameters, Reclaim};
use crate::contract::{Context, Measured, Probe, ProbeError, test_context};

fn with_context<T>(
    system: &dyn System,
    scratch: &Path,
    privilege: Privilege,
    then: impl FnOnce(&Context<'_>) -> T,
) -> T {
    let journal = Journal::new(system, &scratch.join("journal"));
    then(&Context {
        time: Nanos::secs(4),
        privilege,
        scratch,
        ..test_context(system, &journal)
    })
}

fn answer(probe: &Reclaim, system: &dyn System, scratch: &Path, privilege: Privilege) -> Answer {
    with_context(system, scratch, privilege, |context| {
        let measured = probe.run(context).unwrap();
        probe.judge(measured, context.seed, privilege)
    })
}

fn machine() -> Fake {
    Fake::default()
        .with_file("/proc/vmstat", "nr_unevictable 0\n")
        .with_file("/proc/meminfo", "MemAvailable: 8388608 kB\n")
        .with_file("/proc/swaps", "Filename Type Size Used Priority\n")
        .with_file(
            "/proc/self/mountinfo",
            "20 1 254:0 / / rw - ext4 /dev/vda rw\n",
        )
        .with_file("/proc/self/cgroup", "0::/\n")
        .with_file("/run/x", "")
}

fn on_fake(probe: &Reclaim, fake: &Fake, privilege: Privilege) -> Answer {
    answer(probe, fake, Path::new("/run"), privilege)
}

/// The median of a step's runs, by thread CPU time.
fn cost(answer: &Answer, step: &str, mode: Mode) -> Result<f64, String> {
    let wanted = |s: &&Series| {
        s.name == step
            && s.word("mode") == Some(mode.word())
            && s.word("clock") == Some("thread CPU")
    };
    let series = answer.series.iter().find(wanted).ok_or("no such series")?;
    series
        .median()
        .ok_or(series.error.clone().unwrap_or_default())
}

/// Runs that the time does not hold are left out, down to three, and the answer says so.
#[test]
fn the_time_ends_the_runs() {
    let probe = Reclaim {
        runs: 1_000_000,
        modes: vec![Mode::Plain],
        bytes: Some(Bytes::kib(64)),
        pressure: None,
        ..Reclaim::check(true)
    };
    let fake = machine();
    let measured = with_context(&fake, Path::new("/run"), Privilege::None, |context| {
        let context = Context {
            time: Nanos(0),
            ..*context
        };
        probe.run(&context).unwrap()
    });
    let runs = measured.series.iter().map(|series| series.blocks.len());
    assert_eq!(runs.max(), Some(3));
    let said = |missing: &stopgap_events::machine::Missing| {
        missing.what == "cost, 999997 of 1000000 runs" && missing.why.contains("time")
    };
    assert!(measured.missing.iter().any(said), "{:?}", measured.missing);
}

#[test]
fn an_ordinary_user_gets_the_costs_and_hears_what_is_missing() {
    let answer = on_fake(&Reclaim::check(true), &machine(), Privilege::None);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
    assert_contains(
        &answer.verdict.text,
        &["no memory cgroup: no pressure could be made"],
    );
    let figure = answer.figure.clone().unwrap();
    let pinned = HoldCosts::of(Way::Vmsplice).later_pass as f64;
    assert!((figure.value - pinned).abs() < 6.0, "{figure:?}");
    assert!(answer.advice[0].contains("root"), "{:?}", answer.advice);
    let take = cost(&answer, "take", Mode::Held(Way::Mlock)).unwrap();
    assert!((take - 341.0).abs() < 6.0, "{take}");
}

#[test]
fn a_cgroup_that_cannot_be_made_leaves_the_costs() {
    let mount = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let fake = machine()
        .with_file(
            "/proc/self/mountinfo",
            format!("20 1 254:0 / / rw - ext4 /dev/vda rw\n{mount}"),
        )
        .with_file("/proc/self/cgroup", "4:memory:/\n")
        .with_file("/sys/fs/cgroup/memory/tasks", "")
        .read_only("/sys/fs/cgroup");
    let answer = on_fake(&Reclaim::check(true), &fake, Privilege::Root);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
    let text = &answer.verdict.text;
    assert_contains(text, &["no memory cgroup", "no pressure"]);
    assert!(cost(&answer, "release", Mode::Held(Way::Mlock)).is_ok());
}

/// A machine on which a memory cgroup can be made, as far as that can be seen.
fn with_group(fake: Fake) -> Fake {
    let mounts = "20 1 254:0 / / rw - ext4 /dev/vda rw\n\
                  30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    fake.with_file("/proc/self/mountinfo", mounts)
        .with_file("/proc/self/cgroup", "4:memory:/\n")
        .with_file("/sys/fs/cgroup/memory/tasks", "")
}

fn missing_load(probe: &Reclaim, fake: &Fake) -> String {
    with_context(fake, Path::new("/run"), Privilege::Root, |context| {
        let context = Context {
            budget: Bytes::gib(8), // what a user may say, whatever there is
            ..*context
        };
        let plan = probe.plan(&context).unwrap();
        let load = plan.missing.iter().find(|missing| missing.what == LOAD);
        load.map_or(String::new(), |missing| missing.why.clone())
    })
}

fn loaded(change: impl Fn(&mut PressureParameters)) -> Reclaim {
    let mut pressure = PressureParameters::default();
    change(&mut pressure);
    Reclaim {
        pressure: Some(pressure),
        ..Reclaim::check(true)
    }
}

/// 4 GiB free, of the host or of the group that we are in: a load of more than half is not begun.
#[test]
fn a_small_host_is_never_driven_out_of_memory() {
    let four = Bytes::gib(4);
    let host = with_group(machine().with_file("/proc/meminfo", "MemAvailable: 4194304 kB\n"));
    let group = with_group(machine().with_file("/proc/meminfo", "MemAvailable: 67108864 kB\n"))
        .with_file(
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            four.0.to_string(),
        )
        .with_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0");
    for (fake, whose) in [(&host, "this host"), (&group, "cgroup that this runs in")] {
        let large = loaded(|load| load.limit = Bytes::gib(3));
        let why = missing_load(&large, fake);
        assert!(
            why.contains("more than half of the 4 GiB") && why.contains(whose),
            "{why}"
        );
        assert_eq!(
            missing_load(&loaded(|_| {}), fake),
            "",
            "128 MiB can be spared"
        );
        let costs = Reclaim {
            bytes: Some(Bytes::gib(3)),
            ..Reclaim::check(true)
        };
        with_context(fake, Path::new("/run"), Privilege::Root, |context| {
            let context = Context {
                budget: Bytes::gib(8),
                ..*context
            };
            let refused = costs.plan(&context).unwrap_err();
            assert!(matches!(refused, ProbeError::Unsupported(_)), "{refused}");
        });
    }
}

#[test]
fn blocks_alone_need_swap() {
    let populate = loaded(|load| load.load = Load::Populate);
    let why = missing_load(&populate, &with_group(machine()));
    assert!(why.contains("no swap") && why.contains("--swap"), "{why}");
    let made = Reclaim {
        swap: Some(Bytes::gib(1)),
        ..populate
    };
    assert_eq!(missing_load(&made, &with_group(machine())), "");
}

#[test]
fn a_kernel_without_shrinker_debugfs_is_unsupported_and_named_ones_are_found() {
    let probe = Reclaim {
        shrinker: Some("i915".to_owned()),
        ..Reclaim::check(true)
    };
    let refusal = |fake: &Fake, privilege| {
        with_context(fake, Path::new("/run"), privilege, |context| {
            match probe.plan(context) {
                Err(ProbeError::Unsupported(why)) => why,
                other => panic!("{other:?}"),
            }
        })
    };
    let why = refusal(&machine(), Privilege::Root);
    assert!(why.contains("CONFIG_SHRINKER_DEBUG"), "{why}");
    assert!(refusal(&machine(), Privilege::None).contains("root"));
    let folder = "/sys/kernel/debug/shrinker";
    let other = machine().with_file(format!("{folder}/sb-ext4:vda-7/count"), "1 3\n");
    assert!(refusal(&other, Privilege::Root).contains("there are sb-ext4:vda-7"));

    // The fake kernel frees nothing: the answer says so, and has no time an object.
    let fake = machine()
        .with_file(format!("{folder}/i915-3/count"), "1 100\n")
        .with_file(format!("{folder}/i915-3/scan"), "");
    let answer = on_fake(&probe, &fake, Privilege::Root);
    assert_eq!(
        fake.content(format!("{folder}/i915-3/scan")).unwrap(),
        "1 0 100"
    );
    assert_eq!(answer.verdict.word, Word::Inconclusive);
    assert_contains(&answer.verdict.text, &["not one was freed"]);
    assert!(
        answer
            .series
            .iter()
            .all(|series| series.word("shrinker") == Some("i915-3"))
    );
}

#[test]
fn zram_and_what_was_not_validated_stand_in_the_verdict() {
    let none: &[f64] = &[1.01, 1.00, 1.02];
    let ratios: &[(&str, &[f64])] = &[("none", none), ("vmsplice", &[2.38, 2.45, 2.40])];
    let mut other = measured("zram", ALL_MET, ratios);
    other.facts.insert(CGROUP.to_owned(), 2.0);
    for series in &mut other.series {
        series
            .parameters
            .insert("lru".to_owned(), "multi-generational".into());
    }
    let (_, text) = verdict(other);
    for words in [
        "swap on zram",
        "multi-generational LRU",
        "cgroup version 2",
        "not validated",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let (_, text) = verdict(measured("file", ALL_MET, ratios));
    assert!(!text.contains("validated"), "{text}");
}

/// Without swap it should cost nothing; where it does, the answer says so.
#[test]
fn a_cost_without_swap_is_said_to_be_unexpected() {
    let none: &[f64] = &[1.01, 1.00, 1.02];
    let ratios: &[(&str, &[f64])] = &[("none", none), ("vmsplice", &[2.38, 2.45, 2.40])];
    let (word, text) = verdict(measured("none", 0.0, ratios));
    assert_eq!(word, Word::Excess);
    assert!(text.contains("without swap"), "{text}");
}

#[test]
fn scratch_in_memory_is_refused_with_the_reason() {
    let fake = machine().with_file("/proc/self/mountinfo", "20 1 0:9 / / rw - tmpfs none rw\n");
    let answer = on_fake(&Reclaim::check(true), &fake, Privilege::Root);
    assert_contains(&answer.verdict.text, &["tmpfs"]);
}

#[test]
fn a_limit_of_zero_and_no_ring_are_errors_in_their_series() {
    let fake = machine()
        .with_memlock_limit(Bytes(0))
        .refusing(Way::IoUring, 1); // EPERM
    let answer = on_fake(&Reclaim::check(true), &fake, Privilege::None);
    for way in [Way::Mlock, Way::ShmLock, Way::IoUring] {
        let error = cost(&answer, "take", Mode::Held(way)).unwrap_err();
        assert!(
            error.contains("Operation not permitted") || error.contains("io_uring"),
            "{error}"
        );
    }
    let lock = cost(&answer, "take", Mode::Held(Way::Mlock)).unwrap_err();
    assert!(lock.contains("RLIMIT_MEMLOCK is 0 B"), "{lock}");
    assert!(cost(&answer, "take", Mode::Held(Way::Vmsplice)).is_ok());
    assert!(cost(&answer, "pass 1", Mode::Plain).is_ok());
    assert!(answer.counters.is_empty(), "no load ran: unknown, not 0");
}

/// What is missing stands among the lines that everybody reads, with the setting to change; the rest is measured.
#[test]
fn a_shmmax_that_is_too_small_is_named_and_the_other_ways_are_measured() {
    let fake = machine().with_file("/proc/sys/kernel/shmmax", (1 << 20).to_string());
    let answer = on_fake(&Reclaim::check(true), &fake, Privilege::None);
    let line = "locked (SHM_LOCK), its cost: not measured: a System V segment of 4 MiB: kernel.shmmax allows 1 MiB a \
                segment; as root: sysctl kernel.shmmax=4194304, or ask for less";
    let said = answer.evidence.iter().filter(|said| *said == line).count();
    assert_eq!(said, 1, "{:#?}", answer.evidence);
    for way in [Way::Mlock, Way::Vmsplice, Way::IoUring] {
        assert!(cost(&answer, "take", Mode::Held(way)).is_ok(), "{way}");
    }
    let full = machine()
        .with_file("/proc/sys/kernel/shmall", "1023")
        .with_file("/proc/sysvipc/shm", "key shmid perms size\n");
    let answer = on_fake(&Reclaim::check(true), &full, Privilege::None);
    let lines = answer.evidence.join("\n");
    assert!(lines.contains("sysctl kernel.shmall=1024"), "{lines}");
}

#[test]
fn a_lock_limit_that_is_too_small_stands_among_the_lines() {
    let probe = Reclaim {
        bytes: Some(Bytes::mib(1)),
        ..Reclaim::check(true)
    };
    let fake = machine().with_memlock_limit(Bytes::kib(64));
    let lines = on_fake(&probe, &fake, Privilege::None).evidence.join("\n");
    for way in [Way::Mlock, Way::ShmLock, Way::IoUring] {
        let line = format!("{}, its cost: not measured: ", way.words());
        let said = lines.lines().find(|said| said.starts_with(&line));
        let said = said.unwrap_or_else(|| panic!("{way} not in {lines}"));
        assert!(said.contains("RLIMIT_MEMLOCK is 64 KiB"), "{said}");
    }
}

/// The budget holds for the whole child: what is chosen unasked fits into it, and where not one page does it says so.
#[test]
fn the_budget_holds_the_set_and_the_child() {
    let plan = |probe: &Reclaim, budget: Bytes| {
        with_context(&machine(), Path::new("/run"), Privilege::Root, |context| {
            let context = Context { budget, ..*context };
            probe.plan(&context)
        })
    };
    let costs = Reclaim {
        pressure: None,
        ..Reclaim::check(true)
    };
    for budget in [Bytes::mib(33), Bytes::mib(48), Bytes::mib(100)] {
        let memory = plan(&costs, budget).unwrap().memory;
        assert!(memory <= budget, "{memory} of {budget}");
    }
    let refused = plan(&costs, Bytes::kib(1)).unwrap_err();
    assert!(matches!(&refused, ProbeError::Parameter(why) if why.contains("--memory")));
    let small = Reclaim {
        swap: Some(Bytes::kib(39)),
        ..costs
    };
    let refused = plan(&small, Bytes::gib(1)).unwrap_err().to_string();
    assert!(refused.contains("at least 40 KiB"), "{refused}");
}

/// Runs without end end with the time, and the plan says so.
#[test]
fn the_plan_knows_that_the_time_ends_the_runs() {
    let endless = loaded(|load| load.runs = u32::MAX);
    let fake = with_group(machine());
    let plan = with_context(&fake, Path::new("/run"), Privilege::Root, |context| {
        endless.plan(context).unwrap()
    });
    assert!(plan.time < Nanos::secs(10), "{}", plan.time);
}

#[test]
fn what_is_charged_stays_within_the_limit() {
    let fake = machine().with_memlock_limit(Bytes::kib(64));
    let answer = on_fake(&Reclaim::check(true), &fake, Privilege::None);
    assert!(cost(&answer, "take", Mode::Held(Way::Mlock)).is_ok());
}

#[test]
fn nothing_measurable_is_unsupported() {
    let probe = Reclaim {
        modes: vec![Mode::Held(Way::Mlock)],
        ..Reclaim::check(true)
    };
    let fake = machine().with_memlock_limit(Bytes(0));
    let answer = on_fake(&probe, &fake, Privilege::None);
    assert_eq!(
        answer.verdict.word,
        Word::Unsupported,
        "{}",
        answer.verdict.text
    );
    assert_contains(&answer.verdict.text, &["mlock"]);
}

#[test]
fn wrong_parameters_and_swap_without_root_do_not_begin() {
    let swap = Reclaim {
        swap: Some(Bytes::mib(64)),
        ..Reclaim::check(true)
    };
    let none = Reclaim {
        runs: 0,
        ..Reclaim::check(true)
    };
    with_context(&machine(), Path::new("/run"), Privilege::None, |context| {
        assert!(matches!(
            swap.plan(context),
            Err(ProbeError::Unsupported(_))
        ));
        assert!(matches!(none.run(context), Err(ProbeError::Parameter(_))));
    });
}

/// Returns what a refault load would have given: per way the ratios of its runs.
fn measured(swap: &str, anonymous: f64, ratios: &[(&str, &[f64])]) -> Measured {
    let mut measured = Measured::default();
    measured.facts.insert("page_size".to_owned(), 4096.0);
    for (mode, values) in ratios {
        let held = if *mode == "none" { 0 } else { Bytes::mib(64).0 };
        let parameters = parameters([
            ("mode", Parameter::from(*mode)),
            ("swap", swap.into()),
            ("lru", "classic".into()),
            ("pinned", held.into()),
            ("room", Bytes::mib(64).0.into()),
        ]);
        let series = |name: &str, values: &[f64]| {
            let blocks = (0..).zip(values);
            let blocks = blocks.map(|(run, &value)| Block::number(run, 0, 1, value));
            Series::new(name, "pages", &parameters, blocks)
        };
        measured.series.push(series(RATIO, values));
        let scanned = vec![anonymous; values.len()];
        measured.series.push(series(ANONYMOUS, &scanned));
    }
    measured
}

fn verdict(measured: Measured) -> (Word, String) {
    let verdict = Reclaim::check(false)
        .judge(measured, 3, Privilege::Root)
        .verdict;
    (verdict.word, verdict.text)
}

const ALL_MET: f64 = 1e6;

#[test]
fn an_excess_is_told_with_its_interval_and_beside_the_lock() {
    let none: &[f64] = &[1.01, 1.00, 1.02];
    let (word, text) = verdict(measured(
        "file",
        ALL_MET,
        &[
            ("none", none),
            ("vmsplice", &[2.38, 2.45, 2.40]),
            ("mlock", &[1.02, 1.01, 1.02]),
        ],
    ));
    assert_eq!(word, Word::Excess, "{text}");
    assert!(text.starts_with("excess 2.4x (2."), "{text}");
    assert_contains(
        &text,
        &["while 64 MiB of 128 MiB are pinned (vmsplice references); locked (mlock) 1.0x"],
    );
}

#[test]
fn clean_is_said_only_where_it_could_have_been_seen() {
    let even: &[f64] = &[1.00, 1.01, 1.02];
    let ratios: &[(&str, &[f64])] = &[("none", even), ("vmsplice", even)];
    assert_eq!(verdict(measured("zram", ALL_MET, ratios)).0, Word::Clean);
    let (word, text) = verdict(measured("none", 0.0, ratios));
    assert_eq!(word, Word::Inconclusive);
    assert!(text.contains("no swap"), "{text}");
    let (word, text) = verdict(measured("zram", 12.0, ratios));
    assert_eq!(word, Word::Inconclusive);
    assert!(text.contains("did not meet"), "{text}");
}

#[test]
fn runs_that_disagree_or_are_too_few_decide_nothing() {
    let even: &[f64] = &[1.0, 1.0, 1.0];
    let wild: &[f64] = &[1.0, 4.0, 1.1];
    let (word, text) = verdict(measured(
        "file",
        ALL_MET,
        &[("none", even), ("vmsplice", wild)],
    ));
    assert_eq!(word, Word::Inconclusive, "{text}");
    let few: &[(&str, &[f64])] = &[("none", &[1.0, 1.0]), ("vmsplice", &[3.0, 3.0])];
    assert_contains(
        &verdict(measured("file", ALL_MET, few)).1,
        &["fewer than 3"],
    );
}

/// Small enough for a test, large enough to be real.
fn small() -> Reclaim {
    Reclaim {
        bytes: None,
        runs: 1,
        pressure: Some(PressureParameters {
            limit: Bytes::mib(64),
            pinned: vec![Bytes::mib(24)],
            runs: 1,
            time: Some(Nanos::millis(150)),
            modes: vec![Mode::Held(Way::Vmsplice), Mode::Held(Way::Mlock)],
            ..PressureParameters::default()
        }),
        ..Reclaim::check(true)
    }
}

fn our_privilege() -> Privilege {
    if Linux.uid() == 0 {
        Privilege::Root
    } else {
        Privilege::None
    }
}

/// Groups, swap areas and files that a process `pid` of ours could have left.
fn left_by(pid: &str, scratch: &Path) -> Vec<String> {
    let ours = format!("stopgap-{pid}-");
    let mut left = Vec::new();
    let groups = Site::find(&Linux).ok().map(|site| site.parent);
    for folder in groups.as_deref().into_iter().chain([scratch]) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&ours) {
                left.push(name);
            }
        }
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    left.extend(
        swaps
            .lines()
            .filter(|line| line.contains(&ours))
            .map(str::to_owned),
    );
    left
}

#[test]
fn this_machine_answers_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let answer = answer(&small(), &Linux, folder.path(), our_privilege());
    // Whoever we are: memory that is not held can be passed over.
    let plain = cost(&answer, "pass 1", Mode::Plain).unwrap();
    assert!(plain > 0.0);
    for &way in Way::ALL {
        match cost(&answer, "take", Mode::Held(way)) {
            Ok(take) => assert!(take > 0.0, "{way}: {take}"),
            Err(why) => assert!(!why.is_empty(), "{way}"),
        }
    }
    if let Ok(pass) = cost(&answer, "pass 1", Mode::Held(Way::Mlock)) {
        panic!("MADV_PAGEOUT of a locked mapping took {pass} ns a page");
    }
    assert!(!answer.evidence.is_empty());
    let pid = Linux.pid().to_string();
    assert_eq!(left_by(&pid, folder.path()), Vec::<String>::new());
}

/// Killed in the middle of a load (as root: with swap in use), then restored.
#[test]
fn what_a_killed_run_left_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let privilege = our_privilege();
    let mut probe = small();
    probe.modes.clear();
    if let Some(pressure) = &mut probe.pressure {
        pressure.time = Some(Nanos::secs(30));
    }
    // Not as root in a container, or where the folder is in memory.
    let swap_works = with_context(&Linux, folder.path(), privilege, |context| {
        let path = folder.path().join("swap");
        swap::make(&Linux, context.journal, &path, Bytes::mib(1)).is_ok()
    });
    probe.swap = swap_works.then_some(Bytes::mib(16));
    let limits = ChildLimits {
        time: Nanos::millis(1_500), // then it is killed
        cgroup: None,
    };
    let mut run = || {
        let answer = answer(&probe, &Linux, folder.path(), privilege);
        answer.verdict.text.into_bytes()
    };
    let outcome = Linux.run_child(&limits, &mut run);
    let journal = folder.path().join("journal");
    let journals = || {
        let entries = std::fs::read_dir(&journal).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.ends_with(".json"))
            .collect::<Vec<_>>()
    };
    let left = journals();
    let restored = restore(&Linux, &journal).unwrap();
    match outcome {
        Err(Error::Child { ended }) => {
            // Only as root is there something to kill in the middle of.
            assert!(ended.contains("time limit"), "{ended}");
            assert_eq!(left.len(), 1, "{left:?}");
            // The group, the file, and the swap file.
            assert_eq!(
                restored.done.len(),
                2 + usize::from(swap_works),
                "{restored:?}"
            );
            let pid = left[0].trim_end_matches(".json");
            assert_eq!(left_by(pid, folder.path()), Vec::<String>::new());
        }
        Ok(outcome) => {
            let text = String::from_utf8(outcome.output).unwrap();
            assert!(
                text.contains("no pressure") || text.contains("tmpfs"),
                "{text}"
            );
        }
        Err(other) => panic!("{other}"),
    }
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert!(journals().is_empty());
}

#[test]
fn words_read_back() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse::<Mode>(), Ok(mode));
    }
    assert!("pinned".parse::<Mode>().unwrap_err().contains("io-uring"));
}

#[test]
fn only_references_pin() {
    let pins: Vec<_> = Mode::ALL.into_iter().filter(|mode| mode.pins()).collect();
    let ways = [Way::Vmsplice, Way::IoUring, Way::Udmabuf];
    assert_eq!(pins, ways.map(Mode::Held));
}

#[test]
fn what_makes_no_sense_is_named() {
    let sane = Reclaim::check(false);
    assert_eq!(sane.wrong(), None);
    assert_eq!(Reclaim::check(true).wrong(), None);
    let with = |change: &dyn Fn(&mut Reclaim)| {
        let mut probe = sane.clone();
        change(&mut probe);
        probe
    };
    let pinned = |mib| loaded(move |load| load.pinned = vec![Bytes::mib(64), Bytes::mib(mib)]);
    for (probe, word) in [
        (with(&|probe| probe.runs = 0), "runs"),
        (with(&|probe| probe.passes = 1_001), "at most 1000"),
        (with(&|probe| probe.bytes = Some(Bytes(0))), "page"),
        (
            with(&|probe| (probe.modes, probe.pressure) = (vec![], None)),
            "nothing to do",
        ),
        (pinned(120), "raise"),
        (
            pinned(300),
            "300 MiB pinned do not fit into a limit of 128 MiB",
        ),
        (pinned(0), "0 bytes"),
        (loaded(|load| load.file = Some(Bytes::mib(1))), "larger"),
        (loaded(|load| load.time = Some(Nanos(0))), "0 s of the load"),
        (loaded(|load| load.swappiness = Some(201)), "200"),
    ] {
        let why = probe.wrong().unwrap_or_default();
        assert!(why.contains(word), "'{why}' does not say '{word}'");
    }
}

#[test]
fn a_stream_does_not_come_round() {
    let stream = PressureParameters {
        load: Load::Stream,
        ..PressureParameters::default()
    };
    assert_eq!(stream.file_size(Bytes::mib(128)), ENDLESS);
    let mixed = PressureParameters::default();
    assert_eq!(mixed.file_size(Bytes::mib(64)), Bytes::mib(72));
}
