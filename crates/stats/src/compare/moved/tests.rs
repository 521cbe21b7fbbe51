use super::*;
use crate::explain::{Calls, Chains, Findings, Idleness, Link, Waiting};
use stopgap_events::random::Random;

fn uniform(random: &mut Random) -> f64 {
    random.below(1 << 53) as f64 / (1_u64 << 53) as f64
}

fn link(cause: &str, text: &str, ns: u64) -> Link {
    Link {
        cause: cause.to_owned(),
        text: text.to_owned(),
        task: None,
        tid: None,
        call: None,
        place: None,
        device: None,
        ns,
        share: 1.0,
        links: Vec::new(),
    }
}

fn waiting(task: &str, text: &str, place: &str, links: Vec<Link>) -> Waiting {
    Waiting {
        task: task.to_owned(),
        threads: 1,
        cause: "io".to_owned(),
        text: text.to_owned(),
        call: None,
        place: Some(place.to_owned()),
        idleness: Idleness::Stalled,
        waits: 1,
        total_ns: links.iter().map(|link| link.ns).sum(),
        steps: Vec::new(),
        longest_ns: 0,
        longest_at_ns: 0,
        longest_tid: 0,
        links,
    }
}

fn calls(kind: &str, count: u64, total_ns: u64) -> Calls {
    Calls {
        kind: kind.to_owned(),
        count,
        slow: 0,
        stalls: 0,
        stalls_ns: 0,
        total_ns,
        most_ns: 0,
        slow_parts: Vec::new(),
    }
}

/// A trace of 1 s: `ops-PID` waits `fsync` ms for a disk, in as many calls, and about 20 ms for a lock.
fn found(random: &mut Random, fsync: u64) -> Findings {
    let mut scattered = |ms: u64| (ms as f64 * 1e6 * (0.9 + 0.2 * uniform(random))) as u64;
    let (disk, lock, read) = (scattered(fsync), scattered(20), scattered(30));
    let pid = 10 + disk % 90;
    let task = format!("ops-{pid}");
    let mut found: Findings = serde_json::from_value(empty()).unwrap();
    found.chains = Some(Chains {
        waiting: vec![
            waiting(
                &task,
                "was in fsync",
                "main > flush",
                vec![link("disk", "disk vda, its own request", disk)],
            ),
            waiting(
                &task,
                &format!("waited for the lock at 0x7f{pid}"),
                "main > queue",
                vec![link("running", &format!("worker-{pid} ran"), lock)],
            ),
        ],
        ..Chains::default()
    });
    found.switches.roundtrips = Some(0);
    found.calls = vec![calls("fsync", fsync, disk), calls("read", 30, read)];
    found
}

/// Findings of a trace with nothing in it.
fn empty() -> serde_json::Value {
    serde_json::json!({
        "trace": {"source": null, "clock": null, "boot_id": null, "events": 9, "duration_ns": 1_000_000_000, "cut_short": null},
        "losses": {"lost": 0, "share": 0.0, "limit": 0.01, "contradictions": 0, "disordered": 0},
        "verdict": {"word": "clean", "text": "", "figures": []},
        "chains": null,
        "switches": {"roundtrips": null, "total": null, "involuntary": null, "others": null,
            "per_roundtrip": {"p50": null, "p90": null, "mean": null, "most": null, "distribution": []},
            "excess": null, "causes": [], "pairs": [], "frames": null},
        "tasks": [], "slow": [], "calls": [], "memory": {"maps": null, "unmaps": null, "maps_per_s": null, "unmaps_per_s": null,
            "live": null, "reclaim": null, "explained_by": null, "search_at_most_ns": null, "slow": null, "spaces": null},
        "functions": null, "advice": [], "missing": []
    })
}

/// Two sides of `n` traces, with `before` and `after` ms of fsync per second.
fn sides(n: usize, before: u64, after: u64) -> [Vec<Account>; 2] {
    let mut random = Random::new(5);
    [before, after].map(|fsync| {
        let one = |index: usize| Account::new(format!("{index}"), &found(&mut random, fsync), None);
        (0..n).map(one).collect()
    })
}

fn compared(sides: &[Vec<Account>; 2]) -> Moved {
    moved(sides, Options::default())
}

fn word(record: &Moved, family: Family, name: &str) -> FigureWord {
    let mut figures = record.figures.iter();
    let found = figures.find(|figure| figure.family == family && figure.name == name);
    found
        .unwrap_or_else(|| panic!("{name}: {:#?}", record.figures))
        .word
}

#[test]
fn one_more_fsync_moves_what_it_is_in_and_nothing_else() {
    let record = compared(&sides(6, 50, 100));
    assert_eq!(record.verdict.word, Word::Moved, "{:#?}", record.verdict);
    let leading = record.leading().unwrap();
    assert!(leading.name.ends_with("fsync"), "{leading:#?}");
    assert_eq!(leading.word, FigureWord::More);
    assert_eq!(record.in_the_end().unwrap().name, "disk");
    for (family, name) in [
        (Family::Call, "fsync"),
        (Family::Count, "fsync"),
        (Family::Waits, "flush"),
    ] {
        assert_eq!(word(&record, family, name), FigureWord::More, "{name}");
    }
    for (family, name) in [
        (Family::Call, "read"),
        (Family::Cause, "another thread ran"),
        (Family::Chain, "ops-* waited for the lock at *"),
        (Family::Waits, "queue"),
    ] {
        assert_eq!(word(&record, family, name), FigureWord::NotProven, "{name}");
    }
    // The interval of a figure that moved excludes 0. Other intervals contain it.
    for figure in &record.figures {
        if let (Some(low), Some(high)) = (figure.low, figure.high) {
            assert_eq!(
                low > 0.0 || high < 0.0,
                figure.word.is_proven(),
                "{figure:#?}"
            );
        }
    }
    assert!(
        leading.low.unwrap() > 30.0 && leading.high.unwrap() < 70.0,
        "{leading:#?}"
    );
    let back = compared(&{
        let [before, after] = sides(6, 50, 100);
        [after, before]
    });
    assert_eq!(word(&back, Family::Call, "fsync"), FigureWord::Less);
}

#[test]
fn few_traces_say_what_they_cannot_tell() {
    let once = compared(&sides(1, 50, 100));
    assert_eq!(once.verdict.word, Word::Inconclusive);
    assert!(
        once.verdict.text.starts_with("measured once a side"),
        "{}",
        once.verdict.text
    );
    assert!(
        once.figures
            .iter()
            .all(|one| one.word == FigureWord::SeenOnce)
    );
    assert!(once.leading().unwrap().name.ends_with("fsync"));
    let three = compared(&sides(3, 50, 100));
    assert_eq!(three.verdict.word, Word::Inconclusive);
    assert!(
        three.verdict.text.contains("too few"),
        "{}",
        three.verdict.text
    );
    let equal = compared(&sides(4, 50, 50));
    assert_eq!(equal.verdict.word, Word::Inconclusive);
    assert!(
        equal.verdict.text.contains("figures or more"),
        "{}",
        equal.verdict.text
    );
    let equal = compared(&sides(8, 50, 50));
    assert_eq!(
        equal.verdict.word,
        Word::NoDifferenceProven,
        "{:#?}",
        equal.verdict
    );
}

/// A trace without calls has an unknown number of them, not 0.
#[test]
fn what_a_trace_does_not_show_is_unknown() {
    let mut sides = sides(6, 50, 100);
    let mut random = Random::new(9);
    let mut blind = found(&mut random, 50);
    blind.switches.roundtrips = None;
    sides[0][2] = Account::new("blind".to_owned(), &blind, None);
    let record = compared(&sides);
    assert_eq!(word(&record, Family::Call, "fsync"), FigureWord::Unknown);
    assert_eq!(
        word(&record, Family::Chain, "ops-* was in fsync"),
        FigureWord::More
    );
    let why = &record
        .missing
        .iter()
        .find(|one| one.what == "system calls")
        .unwrap()
        .why;
    assert_eq!(why, "1 of 6 traces before and 0 of 6 after lack them");
    blind.chains = None;
    sides[0][2] = Account::new("blind".to_owned(), &blind, None);
    let record = compared(&sides);
    assert!(
        record
            .figures
            .iter()
            .all(|one| one.word == FigureWord::Unknown),
        "{record:#?}"
    );
    assert_eq!(record.verdict.word, Word::Inconclusive);
    let nothing = compared(&[Vec::new(), Vec::new()]);
    assert_eq!(nothing.verdict.word, Word::Inconclusive);
}

/// Each hop is coloured only if it is proven. The amounts of frames add up to the time.
#[test]
fn frames_are_proven_one_by_one() {
    let record = compared(&sides(6, 50, 100));
    let [waits] = &record.pictures[..] else {
        panic!("{:#?}", record.pictures);
    };
    let word = |path: &[&str]| {
        let found = waits.frames.iter().find(|frame| frame.path == path);
        found.unwrap_or_else(|| panic!("{path:?}: {waits:#?}")).word
    };
    let fsync = ["ops-*", "was in fsync", "disk vda, its own request"];
    assert_eq!(word(&fsync), FigureWord::More);
    assert_eq!(word(&fsync[..2]), FigureWord::More);
    assert_eq!(
        word(&["ops-*", "waited for the lock at *"]),
        FigureWord::NotProven
    );
    let sum: f64 = waits.frames.iter().map(|frame| frame.after).sum();
    assert!((105.0..135.0).contains(&sum), "{sum}");
}

/// More waiting for work is no loss, however much it is.
#[test]
fn waits_for_work_do_not_lead() {
    let mut sides = sides(6, 50, 100);
    for (at, account) in sides[1].iter_mut().enumerate() {
        let key = Key {
            family: Family::Call,
            path: vec!["epoll_wait".to_owned()],
        };
        account.figures.insert(key, 700.0 + at as f64);
        account.idle.insert("epoll_wait".to_owned(), 690.0);
    }
    let record = compared(&sides);
    assert_eq!(word(&record, Family::Call, "epoll_wait"), FigureWord::More);
    assert!(record.leading().unwrap().name.ends_with("fsync"));
}

/// Two builds whose files have different names.
#[test]
fn a_program_may_have_another_name() {
    let mut sides = sides(6, 50, 100);
    for account in &mut sides[1] {
        account.rename("ops-1", "ops-new");
    }
    let record = compared(&sides);
    assert!(
        record
            .figures
            .iter()
            .any(|one| one.name.starts_with("ops-new"))
    );
    for account in sides.iter_mut().flatten() {
        account.rename("ops-7", "the program");
        account.rename("ops-new", "the program");
    }
    let record = compared(&sides);
    assert_eq!(
        word(&record, Family::Chain, "the program was in fsync"),
        FigureWord::More
    );
    assert!(
        !record.figures.iter().any(|one| one.name.starts_with("ops")),
        "{record:#?}"
    );
}

#[test]
fn equal_figures_are_told_once() {
    let record = compared(&sides(6, 50, 100));
    let told = |name: &str| {
        record
            .figures
            .iter()
            .filter(|one| one.name.contains(name))
            .count()
    };
    assert_eq!(told("its own request"), 0, "{:#?}", record.figures);
}
