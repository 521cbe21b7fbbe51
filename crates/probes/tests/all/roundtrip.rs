//! The round-trip probe sees what the running kernel does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use stopgap_events::machine::Privilege;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::tasks::Tasks;
use stopgap_probes::contract::Measured;
use stopgap_probes::roundtrip::{
    Cell, ClientPolicy, ClientWait, Cpus, Reply, Roundtrip, Wait, fixed,
};
use stopgap_probes::{Context, Probe};
use stopgap_stats::record::{Answer, Series};
use stopgap_stats::verdict::Word;
use stopgap_testing::{Skip, assert_contains, skip};

use crate::{alone, context, no_changes};

fn with<T>(time: Nanos, interrupted: &dyn Fn() -> bool, body: impl FnOnce(&Context<'_>) -> T) -> T {
    let journal = no_changes(&Linux);
    body(&Context {
        time,
        interrupted,
        ..context(&Linux, &journal)
    })
}

fn measure(probe: &Roundtrip, time: Nanos) -> Measured {
    with(time, &|| false, |context| {
        probe.plan(context).unwrap();
        probe.run(context).unwrap()
    })
}

fn ask(probe: &Roundtrip, time: Nanos) -> Answer {
    let _alone = alone();
    probe.judge(measure(probe, time), 1, Privilege::None)
}

fn probe_of(cells: &[Cell], runs: u32) -> Roundtrip {
    Roundtrip {
        cells: cells.to_vec(),
        cpus: Vec::new(),
        runs,
        round_trips: 2_000,
    }
}

fn values(series: &[Series], name: &str, cell: &Cell) -> Vec<f64> {
    series
        .iter()
        .find(|s| s.name == name && s.parameters == stopgap_stats::roundtrip::parameters(cell))
        .unwrap_or_else(|| panic!("no {name} of {cell}"))
        .blocks
        .iter()
        .map(|block| block.value)
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn switches(answer: &Answer, cell: &Cell) -> f64 {
    median(values(&answer.series, "switches", cell))
}

const WORKING: Cell = Cell {
    work: Nanos::micros(50),
    ..Cell::PLAIN
};
const READING: Cell = Cell {
    client: ClientWait::Read,
    ..WORKING
};

#[test]
fn a_blocking_read_costs_what_poll_does_not() {
    if !in_own_session("a_blocking_read_costs_what_poll_does_not") {
        return;
    }
    let answer = ask(&probe_of(&[WORKING, READING], 5), Nanos::millis(1_500));
    let (poll, read) = (switches(&answer, &WORKING), switches(&answer, &READING));
    assert!((2.0..=2.1).contains(&poll), "poll {poll}");
    assert!((3.0..=4.5).contains(&read), "read {read}");
    assert_eq!(answer.verdict.word, Word::Excess);
    let text = &answer.verdict.text;
    assert!(text.contains("woken by the server's read"), "{text}");
    assert!(text.contains("poll instead removes it"), "{text}");
}

/// Runs the test `name` again in a session of its own, and says whether this is that run. Who shares our session
/// shares our run queue (autogroup): a client that is woken then waits for a compiler's turn and does not pre-empt its
/// server, so that a write a reply took 16 to 48 switches beside a build, and 38 to 41 apart from it.
fn in_own_session(name: &str) -> bool {
    const OWN_SESSION: &str = "STOPGAP_TEST_OWN_SESSION";
    if std::env::var_os(OWN_SESSION).is_some() {
        return true;
    }
    let _alone = alone();
    let started = Command::new("setsid")
        .arg("-w")
        .arg(std::env::current_exe().unwrap())
        .args([&format!("roundtrip::{name}"), "--exact", "--nocapture"])
        .env(OWN_SESSION, "1")
        .status();
    match started {
        Ok(status) => assert!(status.success(), "{name}: {status}"),
        Err(error) => skip(&Skip::program(format_args!("setsid: {error}"))),
    }
    false
}

/// With work on each reply the client has taken one before the next comes, is behind the server, and pre-empts it
/// each time. Without work it catches up: the server answers the rest of the batch while the client waits.
#[test]
fn a_write_per_reply_costs_ten_times_the_single_writev() {
    if !in_own_session("a_write_per_reply_costs_ten_times_the_single_writev") {
        return;
    }
    let together = Cell {
        batch: 32,
        work: Nanos::micros(20),
        ..Cell::PLAIN
    };
    let each = Cell {
        reply: Reply::Each,
        ..together
    };
    let batch = Cell {
        policy: ClientPolicy::Batch,
        ..each
    };
    let answer = ask(&probe_of(&[together, each, batch], 3), Nanos::millis(1_200));
    let (one, many) = (switches(&answer, &together), switches(&answer, &each));
    assert!(many >= 10.0 * one, "{many} against {one}");
    // A client that pre-empts nobody may find all replies at once: 2, sometimes 17.
    let unhurried = switches(&answer, &batch);
    assert!(unhurried < many, "{unhurried} against {many}");
    assert!(answer.verdict.text.contains("for 32 replies"));
}

/// A program in plain C, run in turn with the probe's pair, counts the same within a tenth.
#[test]
fn an_independent_program_counts_the_same() {
    if !in_own_session("an_independent_program_counts_the_same") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("roundtrip");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent/roundtrip.c");
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return skip(&Skip::program("a C compiler"));
    }
    let cpus = Linux.cpus().unwrap();
    let each = Cell {
        batch: 32,
        reply: Reply::Each,
        work: Nanos::micros(20),
        ..Cell::PLAIN
    };
    let cells = [
        (Cell::PLAIN, 1_000),
        (
            Cell {
                client: ClientWait::Epoll,
                ..Cell::PLAIN
            },
            1_000,
        ),
        (READING, 300),
        (each, 100),
    ];
    let mut counts = cells.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..5 {
        for ((cell, round_trips), counts) in cells.iter().zip(&mut counts) {
            let cost = fixed(&Linux, cell, &cpus[..1], *round_trips).unwrap();
            counts[0].push(cost.switches.total() as f64 / cost.round_trips as f64);
            let numbers = [u64::from(cell.batch), cell.work.0, *round_trips].map(|n| n.to_string());
            let output = Command::new(&program)
                .args([cell.client.word(), cell.reply.word()])
                .args(numbers)
                .arg(cpus[0].to_string())
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            counts[1].push(text.trim().parse().expect("a number"));
        }
    }
    for ((cell, _), [probe, plain]) in cells.iter().zip(counts) {
        println!("{cell}: probe {probe:.2?}, plain C {plain:.2?}");
        let (probe, plain) = (median(probe), median(plain));
        let ratio = probe / plain;
        assert!(
            (0.9..=1.1).contains(&ratio),
            "{cell}: probe {probe}, plain C {plain}"
        );
    }
}

#[test]
fn three_means_agree_within_two_per_cent() {
    let cells = [WORKING, READING, Cell::PLAIN];
    let answer = ask(&probe_of(&cells, 3), Nanos::millis(1_200));
    if answer
        .missing
        .iter()
        .any(|missing| missing.what.contains("PERF_RECORD_SWITCH"))
    {
        return skip(&Skip::machine(format_args!("{:?}", answer.missing)));
    }
    for cell in &cells {
        let total = |name| values(&answer.series, name, cell).iter().sum::<f64>();
        let rusage = total("switches");
        for other in [
            "switches by PERF_RECORD_SWITCH",
            "switches by /proc/thread-self/status",
        ] {
            let other_total = total(other);
            let apart = (other_total / rusage - 1.0).abs();
            assert!(apart < 0.02, "{other}: {other_total}, rusage {rusage}");
        }
    }
}

#[test]
fn every_way_to_wait_is_measured() {
    let mut cells = Vec::new();
    for &server in Wait::ALL {
        for &client in ClientWait::ALL {
            cells.push(Cell {
                client,
                server,
                descriptors: 50,
                ..Cell::PLAIN
            });
        }
    }
    cells.push(Cell {
        cpus: Cpus::Free,
        ..Cell::PLAIN
    });
    if Linux.cpus().unwrap().len() > 1 {
        cells.push(Cell {
            cpus: Cpus::Two,
            ..WORKING
        });
    }
    let mut probe = probe_of(&cells, 1);
    probe.round_trips = 300;
    let _alone = alone();
    let measured = measure(&probe, Nanos::millis(500));
    assert_eq!(measured.missing, []);
    for cell in &cells {
        assert!(
            median(values(&measured.series, "switches", cell)) > 1.9,
            "{cell}"
        );
        assert!(
            median(values(&measured.series, "CPU time", cell)) > 500.0,
            "{cell}"
        );
        assert!(
            median(values(&measured.series, "latency", cell)) > 500.0,
            "{cell}"
        );
    }
}

/// Debian's and Ubuntu's kernels, played by a filter that lasts as long as its thread.
#[test]
fn without_records_rusage_serves() {
    let answer = std::thread::spawn(|| {
        stopgap_kernel::fake::refuse_switch_records().unwrap();
        ask(&probe_of(&[WORKING, READING], 3), Nanos::millis(600))
    })
    .join()
    .unwrap();
    let unknown: Vec<_> = answer
        .missing
        .iter()
        .filter(|missing| missing.what.contains("PERF_RECORD_SWITCH"))
        .collect();
    assert_eq!(unknown.len(), 1, "{:?}", answer.missing);
    assert_contains(&unknown[0].why, &["perf_event_paranoid"]);
    assert!(
        answer
            .series
            .iter()
            .all(|series| !series.name.contains("PERF_RECORD"))
    );
    let figure = answer.figure.unwrap();
    assert!(figure.value > 1.2 && figure.unit == "x", "{figure:?}");
    assert_eq!(values(&answer.series, "switches", &READING).len(), 3);
}

#[test]
fn an_interrupt_reports_what_there_is() {
    // The third look is in a child or between two runs: in any case in the middle.
    let looks = std::cell::Cell::new(0);
    let interrupted = || {
        looks.set(looks.get() + 1);
        looks.get() > 2
    };
    let measured = with(Nanos::secs(20), &interrupted, |context| {
        probe_of(&[WORKING], 5).run(context).unwrap()
    });
    assert!(measured.interrupted);
    let answer = probe_of(&[WORKING], 5).judge(measured, 1, Privilege::None);
    assert_eq!(answer.verdict.word, Word::Inconclusive);
}

#[test]
fn the_matrix_of_check_answers() {
    if !in_own_session("the_matrix_of_check_answers") {
        return;
    }
    let answer = ask(&Roundtrip::check(true), Nanos::secs(2));
    assert_eq!(answer.verdict.word, Word::Excess, "{}", answer.verdict.text);
    assert!(answer.figure.unwrap().value > 1.1);
    let text = &answer.verdict.text;
    assert!(text.contains("blocking-read"), "{text}");
    // The write per reply stands beside it, at more than five times the two that it takes.
    let each = answer.series.iter().find(|series| {
        series.name == "switches"
            && series.word("reply") == Some("each")
            && series.word("policy") == Some("other")
    });
    let switches = each.and_then(Series::median).unwrap();
    assert!(switches > 10.0, "{switches}");
}

/// Processes whose parent is this one, the eldest first.
fn children() -> Vec<u32> {
    let ours = std::process::id().to_string();
    let mut children: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let stat = PathBuf::from(format!("/proc/{pid}/stat"));
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            after_name.split(' ').nth(1) == Some(ours.as_str())
        })
        .collect();
    children.sort_unstable();
    children
}

/// Whichever of client and server dies, the other one ends and the probe goes on.
#[test]
fn whichever_dies_the_probe_ends() {
    if !in_own_session("whichever_dies_the_probe_ends") {
        return; // it kills children of its process
    }
    let probe = Roundtrip {
        round_trips: u64::MAX,
        ..probe_of(&[Cell::PLAIN], 1)
    };
    for victim in [0, 1] {
        let probe = probe.clone();
        let probe = std::thread::spawn(move || measure(&probe, Nanos::secs(60)));
        let deadline = Instant::now() + Duration::from_secs(20);
        let both = loop {
            let children = children();
            if children.len() == 2 {
                break children;
            }
            assert!(Instant::now() < deadline, "children: {children:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        std::thread::sleep(Duration::from_millis(100)); // into the counting
        let pid = both[victim].to_string();
        assert!(
            Command::new("kill")
                .args(["-9", &pid])
                .status()
                .unwrap()
                .success()
        );
        let killed = Instant::now();
        let measured = probe.join().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(10), "{victim}");
        assert_eq!(measured.missing.len(), 1, "{:?}", measured.missing);
        let why = &measured.missing[0].why;
        assert!(why.contains("killed by signal 9"), "{why}");
        assert_eq!(children(), [0; 0], "left behind");
    }
}
