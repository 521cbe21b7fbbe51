//! The placement probe sees what is there: the same code against a fake kernel that searches
//! linearly, on a virtual clock, and against the running one.

use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::devices::{Devices, Maker, Room};
use stopgap_kernel::fake::{Fake, FakeMaker, Search};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, System};
use stopgap_probes::placement::{Backend, Placement};
use stopgap_probes::{Context, Probe};
use stopgap_stats::record::{Answer, Parameter, Series};
use stopgap_stats::verdict::Word;
use stopgap_testing::{Skip, assert_contains};

use crate::{alone, context, no_changes};

fn ask(system: &dyn System, probe: &Placement, seed: u64) -> Answer {
    ask_for(Nanos::secs(60), system, probe, seed)
}

fn ask_for(time: Nanos, system: &dyn System, probe: &Placement, seed: u64) -> Answer {
    let journal = no_changes(system);
    let context = Context {
        time,
        seed,
        ..context(system, &journal)
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

/// ```text
///   run     0             1             2             3  4  5 ...
///           |------####---|-------------|-------------|  as many again, where there is time
///             a neighbour: each call made here takes three times as long
/// ```
#[test]
fn runs_that_a_neighbour_left_open_are_followed_by_more() {
    let probe = small(&[10, 25, 50, 100, 200], 100);
    let quiet = Fake::new(Search::Constant);
    let answer = ask(&quiet, &probe, 5);
    let blocks = |answer: &Answer| answer.series[0].blocks.len();
    assert_eq!(
        (answer.verdict.word, blocks(&answer)),
        (Word::Flat, 3),
        "three quiet runs are enough"
    );
    let run = quiet.now().0 / 3;
    let disturbed = || Fake::new(Search::Constant).with_neighbour(run * 3 / 8..run * 3 / 4);
    let answer = ask_for(Nanos(1), &disturbed(), &probe, 5);
    assert_eq!(
        (answer.verdict.word, blocks(&answer)),
        (Word::Inconclusive, 3),
        "no time for more: {}",
        answer.verdict.text
    );
    let answer = ask(&disturbed(), &probe, 5);
    assert_eq!(
        (answer.verdict.word, blocks(&answer)),
        (Word::Flat, 9),
        "{}",
        answer.verdict.text
    );
    assert_eq!(answer.missing, []);
}

#[test]
fn threads_agua_and_freegap_are_measured() {
    let _alone = alone();
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

/// What it takes and answers within `time`, on a machine where each part takes a second.
fn within(time: Nanos, probe: &Placement) -> (Nanos, Answer) {
    let fake = Fake::new(Search::Constant);
    let journal = no_changes(&fake);
    let context = Context {
        time,
        progress: &|_, _| fake.sleep_until(fake.now() + Nanos::secs(1)),
        ..context(&fake, &journal)
    };
    let begin = fake.now();
    let measured = probe.run(&context).unwrap();
    let took = fake.now().saturating_sub(begin);
    (took, probe.judge(measured, 7, Privilege::None))
}

/// ```text
/// 14 s   ppppccccx ppppcccc ppppcccc       p, c: what the verdict stands on; x, beside it, while there is time
///  2 s   ppppccccx ppp|                    10 s after it, the end
/// ```
#[test]
fn the_time_bounds_the_probe() {
    let mut probe = small(&[100, 200, 300, 400], 100);
    probe.agua_loops = 1;
    probe.agua_live = Some(100);
    // Seconds, runs of the largest N, runs of agua, and what the answer calls left out.
    let of = |time: Nanos| -> (u64, usize, usize, Vec<String>) {
        let (took, answer) = within(time, &probe);
        let runs = |name: &str, of: &str, value: u32| {
            let value = Parameter::from(value);
            let of_it = |s: &&Series| s.name == name && s.parameters.get(of) == Some(&value);
            let series = answer.series.iter().find(of_it);
            series.map_or(0, |series| series.blocks.len())
        };
        let left_out = answer.missing.iter().map(|m| m.what.clone());
        (
            took.0 / 1_000_000_000,
            runs("map", "n", 400),
            runs("loop", "live", 100),
            left_out.collect(),
        )
    };
    let (took, runs, agua, left_out) = of(Nanos::secs(14));
    assert!((25..28).contains(&took), "{took} s");
    assert_eq!((runs, agua), (3, 1));
    assert_eq!(left_out, ["some runs of threads, agua and freegap"]);
    let (took, runs, _, left_out) = of(Nanos::secs(2));
    assert!((12..14).contains(&took), "{took} s");
    assert!((1..=2).contains(&runs), "{runs}");
    assert_eq!(left_out, ["2 of 3 runs, or parts of them"]);
}

fn objects(makers: &[Maker], ladder: &[u32]) -> Placement {
    Placement {
        backends: makers.iter().cloned().map(Backend::Device).collect(),
        ..small(ladder, 300)
    }
}

/// With no machine's limits.
const PLENTY: FakeMaker = FakeMaker {
    most: u64::MAX,
    errno: ENOSPC,
    visit_ns: 0,
};

/// Error numbers, as Linux has them on every machine that we know.
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;

/// The search costs the same at any N, but making an object looks at all that are there.
#[test]
fn a_device_whose_objects_cost_more_and_more_grows_as_n() {
    let walks = FakeMaker {
        visit_ns: 40,
        ..PLENTY
    };
    let fake = Fake::new(Search::Constant).with_maker(Maker::Vgem, walks);
    let ladder = [100, 500, 1_000, 2_000, 4_000];
    let answer = ask(&fake, &objects(&[Maker::Vgem], &ladder), 5);
    assert_eq!(answer.verdict.word, Word::Grows, "{}", answer.verdict.text);
    let evidence = answer.evidence.join("\n");
    assert_contains(&evidence, &["create, map, touch, unmap and destroy"]);
    assert!(evidence.contains("vgem at N 4000: create "), "{evidence}");
}

#[test]
fn a_device_that_is_not_there_is_unsupported_with_its_module() {
    let fake = Fake::new(Search::Constant);
    let answer = ask(
        &fake,
        &objects(&[Maker::Udmabuf, Maker::Vgem], &[100, 1_000]),
        5,
    );
    assert_eq!(answer.verdict.word, Word::Unsupported);
    let text = &answer.verdict.text;
    assert!(
        text.starts_with("unsupported: udmabuf: ") && text.ends_with("modprobe udmabuf"),
        "{text}"
    );
    assert!(!answer.answered());
    assert!(answer.series.is_empty(), "nothing else was asked");
}

/// The one that is there answers; the other stands among what is missing.
#[test]
fn a_device_that_is_not_there_does_not_keep_others_from_answering() {
    let fake = Fake::new(Search::Constant).with_maker(Maker::DmaHeap, PLENTY);
    let ladder = [100, 500, 1_000, 4_000, 10_000];
    let answer = ask(&fake, &objects(&[Maker::Vgem, Maker::DmaHeap], &ladder), 5);
    assert_eq!(answer.verdict.word, Word::Flat, "{}", answer.verdict.text);
    let missing: Vec<_> = answer
        .missing
        .iter()
        .map(|missing| missing.what.as_str())
        .collect();
    assert_eq!(missing, ["vgem"]);
}

/// A heap that refuses from the first on, and handles that end on the way up the ladder.
#[test]
fn a_device_that_refuses_says_at_which_n() {
    let refuses = FakeMaker {
        most: 0,
        errno: ENOMEM,
        visit_ns: 0,
    };
    let fake = Fake::new(Search::Constant).with_maker(Maker::DmaHeap, refuses);
    let answer = ask(&fake, &objects(&[Maker::DmaHeap], &[100, 1_000]), 5);
    assert_eq!(
        answer.verdict.word,
        Word::Inconclusive,
        "{}",
        answer.verdict.text
    );
    let why = &answer.missing[0].why;
    assert!(why.contains("Cannot allocate memory"), "{why}");

    let runs_out = FakeMaker {
        most: 1_500,
        ..PLENTY
    };
    let fake = Fake::new(Search::Constant).with_maker(Maker::Vgem, runs_out);
    let answer = ask(&fake, &objects(&[Maker::Vgem], &[100, 1_000, 2_000]), 5);
    let out = answer
        .missing
        .iter()
        .find(|missing| missing.what == "pbobench, N=2000, vgem");
    let why = &out.expect("N = 2,000 fails").why;
    assert_contains(why, &["beside 1500 objects", "No space left"]);
}

/// OpenGL buffers of this machine's driver; Mesa's software renderer serves.
#[test]
fn opengl_buffers_are_measured_where_there_is_a_driver() {
    let room = Room {
        objects: 1,
        largest: Bytes::kib(4),
    };
    if let Err(error) = Linux.objects(&Maker::Gl, room) {
        let skip = match error.to_string() {
            without if without.contains("built without OpenGL") => Skip::machine(without),
            no_driver => Skip::program(no_driver),
        };
        return stopgap_testing::skip(&skip);
    }
    let answer = ask(&Linux, &objects(&[Maker::Gl], &[100, 1_000, 4_000]), 5);
    let names = ["create", "map", "first touch", "unmap", "destroy"];
    for name in names {
        let of_it = |s: &&Series| s.name == name && s.number("n") == Some(1_000);
        let series = answer.series.iter().find(of_it);
        let runs = series.map_or(0, |series| series.blocks.len());
        assert_eq!(runs, 3, "{name}: {:?}", answer.missing);
    }
    assert!(answer.evidence[0].contains("gl"), "{:?}", answer.evidence);
}

/// A device that is mapped itself has no objects: three steps, and neighbours that never merge.
#[test]
fn a_character_device_is_mapped_itself() {
    let zero = Maker::Path("/dev/zero".into());
    let answer = ask(&Linux, &objects(&[zero], &[100, 1_000, 4_000]), 5);
    assert_contains(&answer.evidence[0], &["per map, touch and unmap"]);
    assert!(
        answer.series.iter().all(|series| series.name != "create"),
        "no objects"
    );
    let none = Maker::Path("/dev/stopgap-none".into());
    let answer = ask(&Linux, &objects(&[none], &[100, 1_000]), 5);
    let text = &answer.verdict.text;
    assert!(
        text.starts_with("unsupported: device:/dev/stopgap-none: there is no"),
        "{text}"
    );
}

#[test]
fn nonsense_is_refused_before_anything_is_done() {
    let fake = Fake::new(Search::Constant);
    let journal = no_changes(&fake);
    let context = context(&fake, &journal);
    let refused = |probe: Placement| probe.plan(&context).unwrap_err().to_string();
    assert!(refused(small(&[0], 10)).contains("N of 0"));
    assert!(refused(small(&[65_000], 10)).contains("sysctl vm.max_map_count=66000"));
    let mut threads = small(&[100], 10);
    threads.threads = vec![9];
    assert!(refused(threads).contains("9 threads"));
}
