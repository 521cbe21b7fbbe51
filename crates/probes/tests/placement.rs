//! The placement probe sees what is there: the same code against a fake kernel that searches
//! linearly, on a virtual clock, and against the running one.

use std::path::Path;

use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::fake::{Fake, Search};
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, System};
use stopgap_probes::placement::{Backend, Placement};
use stopgap_probes::{Context, Probe};
use stopgap_stats::record::Answer;
use stopgap_stats::verdict::Word;

fn ask(system: &dyn System, probe: &Placement, seed: u64) -> Answer {
    let journal = Journal::new(system, Path::new("/nonexistent/stopgap"));
    let context = Context {
        system,
        journal: &journal,
        budget: Bytes::mib(512),
        time: Nanos::secs(60),
        seed,
        privilege: Privilege::None,
        scratch: Path::new("/nonexistent"),
        progress: &|_, _| {},
        interrupted: &|| false,
    };
    probe.plan(&context).unwrap();
    let measured = probe.run(&context).unwrap();
    probe.judge(measured, seed, Privilege::None)
}

fn small(ladder: &[u32], steps: u64) -> Placement {
    Placement {
        ladder: ladder.to_vec(),
        few: false,
        also: None,
        backends: vec![Backend::Memfd],
        steps,
        runs: 3,
        threads: Vec::new(),
        agua_loops: 0,
        agua_live: None,
        agua_drop: None,
        freegap_rounds: 0,
    }
}

#[test]
fn a_kernel_that_searches_linearly_grows_as_n() {
    let fake = Fake::new(Search::Linear);
    let answer = ask(
        &fake,
        &small(&[100, 500, 1_000, 2_000, 4_000, 8_000], 300),
        5,
    );
    assert_eq!(answer.verdict.word, Word::Grows, "{}", answer.verdict.text);
    let text = &answer.verdict.text;
    let inside = text
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .and_then(|(interval, _)| interval.split_once(".."))
        .map(|(low, high)| (low.parse::<f64>().unwrap(), high.parse::<f64>().unwrap()));
    let (low, high) = inside.unwrap();
    assert!(low <= 1.0 && 1.0 <= high, "{text}");
    assert!(high - low < 0.3, "{text}");
}

#[test]
fn a_kernel_that_searches_at_constant_cost_is_flat() {
    let fake = Fake::new(Search::Constant);
    let answer = ask(&fake, &small(&[100, 500, 1_000, 4_000, 10_000], 300), 5);
    assert_eq!(answer.verdict.word, Word::Flat, "{}", answer.verdict.text);
}

/// Five runs of five: the figure of numbers that a maple tree must give, on a noisy machine.
#[test]
fn the_running_kernel_is_flat() {
    for seed in 1..=5 {
        let answer = ask(
            &Linux,
            &small(&[100, 1_000, 10_000, 30_000, 60_000], 1_500),
            seed,
        );
        println!("seed {seed}: {} {:?}", answer.verdict.text, answer.evidence);
        assert_eq!(
            answer.verdict.word,
            Word::Flat,
            "seed {seed}: {}",
            answer.verdict.text
        );
    }
}

#[test]
fn threads_agua_and_freegap_are_measured() {
    let mut probe = small(&[100, 1_000, 2_000, 10_000], 500);
    probe.backends = Backend::ALL.to_vec();
    probe.threads = if Linux.cpus().unwrap().len() > 1 {
        vec![2]
    } else {
        Vec::new()
    };
    probe.agua_loops = 2;
    probe.freegap_rounds = 500;
    let answer = ask(&Linux, &probe, 3);
    let evidence = answer.evidence.join("\n");
    for wanted in ["agua", "freegap posted", "innermprot", "innerremap"] {
        assert!(evidence.contains(wanted), "{wanted} is not in {evidence}");
    }
    if !probe.threads.is_empty() {
        assert!(evidence.contains("beside 1 mapping"), "{evidence}");
    }
    let agua: Vec<_> = answer.missing.iter().map(|m| m.what.as_str()).collect();
    assert!(agua.iter().all(|what| what.starts_with("agua")), "{agua:?}");
}

#[test]
fn nonsense_is_refused_before_anything_is_done() {
    let fake = Fake::new(Search::Constant);
    let journal = Journal::new(&fake, Path::new("/run/stopgap"));
    let context = Context {
        system: &fake,
        journal: &journal,
        budget: Bytes::mib(512),
        time: Nanos::secs(60),
        seed: 1,
        privilege: Privilege::None,
        scratch: Path::new("/nonexistent"),
        progress: &|_, _| {},
        interrupted: &|| false,
    };
    let refused = |probe: Placement| probe.plan(&context).unwrap_err().to_string();
    assert!(refused(small(&[0], 10)).contains("N of 0"));
    assert!(refused(small(&[65_000], 10)).contains("sysctl vm.max_map_count=66000"));
    let mut threads = small(&[100], 10);
    threads.threads = vec![9];
    assert!(refused(threads).contains("9 threads"));
}
