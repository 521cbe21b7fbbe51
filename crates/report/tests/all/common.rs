//! Records of every kind, made by hand: what pages are made of in tests.

use std::collections::BTreeMap;

use serde_json::json;
use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_report::html::{self, Document, Source};
use stopgap_stats::change_points::{History, Point};
use stopgap_stats::compare::{self, Side};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::history::{self, Adder, Key, Sum, Unread};
use stopgap_stats::record::{Answer, Block, Figure, Parameter, Run, SCHEMA, Series};
use stopgap_stats::verdict::{Verdict, Word};

/// Numbers that look random and are the same for ever (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Some hundred samples around `middle`, a hundredth of them a thousand times as long.
fn latency(run: u32, middle: u64, noise: &mut Noise) -> Block {
    let mut recorder = Recorder::new(10_000_000);
    for at in 0..2_000 {
        let slow = if noise.next().is_multiple_of(100) {
            1_000
        } else {
            1
        };
        recorder.record(
            at * 1_000_000,
            slow * (middle + noise.next() % (middle / 2)),
        );
    }
    recorder.into_block(run, 0).expect("it has samples")
}

fn count(run: u32, value: f64) -> Block {
    Block {
        run,
        start_ns: 0,
        samples: 100,
        value,
        histogram: None,
        stalls: None,
    }
}

fn series(name: &str, unit: &str, parameters: &[(&str, Parameter)], blocks: Vec<Block>) -> Series {
    let parameters = parameters
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()));
    Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        parameters: parameters.collect(),
        blocks,
        error: None,
    }
}

fn answer(question: Question, word: Word, text: &str, series: Vec<Series>) -> Answer {
    Answer {
        question,
        parameters: BTreeMap::new(),
        verdict: Verdict::new(word, text),
        figure: Some(Figure {
            value: 1.2,
            unit: "x".to_owned(),
            low: Some(1.1),
            high: Some(1.3),
        }),
        evidence: vec!["3.6 -> 4.1 us per map".to_owned()],
        advice: vec!["poll instead".to_owned()],
        privilege: Privilege::None,
        series,
        counters: Vec::new(),
        losses: Vec::new(),
        missing: vec![stopgap_events::machine::Missing::new(
            "layout",
            "needs root",
        )],
        fixes: Vec::new(),
    }
}

/// A run of `check` on a kernel: all four questions, three runs each.
pub(crate) fn run(kernel: &str, seed: u64) -> Run {
    let mut noise = Noise(seed);
    let environment = json!({
        "host": "box", "kernel": kernel, "page_size": 4096, "cpus": [0, 1], "mitigations": ["spectre: met"],
        "privilege": "none", "capabilities": [], "pressure_before": [], "pressure_after": [],
        "missing": [{"what": "microcode", "why": "not readable"}],
    });
    let mut placement = Vec::new();
    for n in [100_u64, 1_000, 10_000, 40_000] {
        let at = [
            ("n", n.into()),
            ("backend", "memfd".into()),
            ("workload", "pbobench".into()),
        ];
        for name in ["map", "first touch", "unmap"] {
            let blocks = (0..3).map(|run| latency(run, 3_000, &mut noise)).collect();
            placement.push(series(name, "ns", &at, blocks));
        }
        let control = [("n", n.into()), ("workload", "control".into())];
        let blocks = (0..3)
            .map(|run| latency(run, n * 150, &mut noise))
            .collect();
        placement.push(series("read /proc/self/maps", "ns", &control, blocks));
    }
    // As many cells and strategies as a real check has.
    let mut roundtrip = Vec::new();
    for (client, work, reply, on) in [
        ("poll", "50us", "together", "one"),
        ("poll", "0s", "together", "one"),
        ("poll", "20us", "together", "one"),
        ("poll", "20us", "each", "one"),
        ("poll", "50us", "together", "two"),
        ("epoll", "50us", "together", "one"),
        ("epoll", "50us", "together", "two"),
        ("read", "50us", "together", "one"),
        ("read", "50us", "together", "two"),
        ("read", "0s", "together", "one"),
    ] {
        let at = [
            ("client", client.into()),
            ("server", "poll".into()),
            ("work", work.into()),
            ("reply", reply.into()),
            ("on", on.into()),
        ];
        let more = if client == "read" { 1.8 } else { 0.0 };
        let figures = |base: f64| {
            (0..3)
                .map(|run| count(run, base + 0.01 * f64::from(run)))
                .collect::<Vec<_>>()
        };
        roundtrip.push(series("switches", "switches/rt", &at, figures(2.0 + more)));
        roundtrip.push(series(
            "client blocked",
            "switches/rt",
            &at,
            figures(1.0 + more / 2.0),
        ));
        roundtrip.push(series("server blocked", "switches/rt", &at, figures(1.0)));
        roundtrip.push(series(
            "server pre-empted",
            "switches/rt",
            &at,
            figures(more / 2.0),
        ));
        let blocks = (0..3).map(|run| latency(run, 20_000, &mut noise)).collect();
        roundtrip.push(series("latency", "ns", &at, blocks));
    }
    let mut chunks = Vec::new();
    for (strategy, entries) in [
        ("base", 1_024.0),
        ("mthp-16K", 1_024.0),
        ("mthp-32K", 1_024.0),
        ("mthp-64K", 64.0),
        ("mthp-128K", 64.0),
        ("mthp-256K", 64.0),
        ("mthp-512K", 64.0),
        ("mthp-1M", 64.0),
        ("thp-direct", 2.0),
        ("thp-noreclaim", 2.0),
        ("collapse", 2.0),
        ("hugetlb", 2.0),
    ] {
        for size in ["4M", "64M"] {
            let at = [("strategy", strategy.into()), ("size", size.into())];
            let blocks = (0..3)
                .map(|run| latency(run, 400_000, &mut noise))
                .collect::<Vec<_>>();
            chunks.push(series("take", "ns", &at, blocks.clone()));
            chunks.push(series("block", "ns", &at, blocks));
            chunks.push(series(
                "entries {4K,64K,2M}",
                "entries/buffer",
                &at,
                vec![count(0, entries)],
            ));
        }
    }
    let mut reclaim = Vec::new();
    for (mode, scanned) in [("none", 1.0), ("vmsplice", 2.4), ("mlock", 1.02)] {
        let at = [("mode", mode.into())];
        let blocks = (0..3).map(|run| count(run, scanned)).collect();
        reclaim.push(series("scanned per reclaimed", "pages/page", &at, blocks));
        let blocks = (0..3)
            .map(|run| latency(run, 600_000, &mut noise))
            .collect();
        reclaim.push(series("populate a block", "ns", &at, blocks));
    }
    Run {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        command: ["stopgap", "check", "--only", "it's"]
            .map(str::to_owned)
            .to_vec(),
        started_unix_s: 1_700_000_000,
        duration_ms: 61_000,
        seed,
        memory_budget: 2 << 30,
        environment: serde_json::from_value(environment).expect("all options may be absent"),
        now: None,
        answers: vec![
            answer(
                Question::Placement,
                Word::Flat,
                "flat 1.2x (1.1..1.3)",
                placement,
            ),
            answer(
                Question::Roundtrip,
                Word::Excess,
                "excess 1.9x: blocking-read client",
                roundtrip,
            ),
            answer(
                Question::Chunks,
                Word::Inconclusive,
                "inconclusive: not fragmented",
                chunks,
            ),
            answer(
                Question::Reclaim,
                Word::Excess,
                "excess 2.4x pages scanned",
                reclaim,
            ),
        ],
        verdict: None,
        interrupted: false,
        peak_memory: Some(1 << 20),
    }
}

/// The same with what the machine showed by itself and with the verdict in the record, as `check` writes it now.
pub(crate) fn run_with_verdict(kernel: &str, seed: u64) -> Run {
    let waited =
        |resource: &str, full: f64| json!({"resource": resource, "some": full, "full": full});
    let now = json!({
        "interval_ms": 500,
        "mappings": [{"pid": 77, "name": "firefox", "mappings": 126, "backing": []}],
        "max_map_count": 65_530,
        "unusable_index": [{"order": 0, "index": 0.0}, {"order": 4, "index": 0.1}],
        "uptime_s": 900, "since_boot": [], "pressure": [], "unevictable": null, "mlocked": null,
        "voluntary": [], "involuntary": [], "process": null,
        "waited": [waited("cpu", 0.1), waited("memory", 0.1), waited("io", 6.0)],
        "groups": [], "swap": null,
        "disks": [{"name": "vda", "completed": 4, "mean_ms": 2.1, "in_flight": 0}],
        "steal": 1.0,
        "stuck": [{"pid": 5, "tid": 5, "name": "kworker/u8:0", "function": "io_schedule"}],
        "stuck_count": 1, "oom_kills": 0,
        "kernel_log": [{"kind": "hung_task", "seconds_ago": 60, "text": "INFO: task blocked"}],
        "missing": [],
    });
    let mut run = run(kernel, seed);
    run.now = Some(serde_json::from_value(now).expect("what a machine shows"));
    run.verdict = Some(stopgap_report::overall::judge(&run));
    run
}

/// A replay of placement, one of chunks, one of roundtrip.
fn replays() -> Vec<Document> {
    let replay = |question: &str, rows: serde_json::Value, growth: serde_json::Value| {
        let all = json!({
            "schema": "stopgap.replay/1", "version": "0.1.0", "command": ["stopgap", "replay", question],
            "question": question, "seed": 1, "repetitions": 5, "interrupted": false, "rows": rows, "growth": growth,
        });
        Document::Replay(serde_json::from_value(all).expect("a replay"))
    };
    let placement = |policy: &str, n: u64, ns: f64| {
        json!({
            "workload": "pbobench", "policy": policy, "n": n, "operations": 1000, "maps": 500, "ns_per_operation": ns,
            "spread": {"low": ns * 0.9, "high": ns * 1.1}, "work_per_map": ns / 20.0, "failures": 0, "live": n,
            "missing": [{"what": "p99.99", "why": "too few"}],
        })
    };
    let mut placements = Vec::new();
    for n in [100_u64, 1_000, 10_000] {
        placements.push(placement("linux-2.6.35", n, n as f64 * 4.0));
        placements.push(placement("stopgap", n, 6.0));
    }
    let growth = json!([{
        "workload": "pbobench", "policy": "linux-2.6.35", "quantity": "time", "word": "grows",
        "exponent": {"value": 1.0, "low": 0.9, "high": 1.1}, "text": "grows ~N^1.00",
    }]);
    let chunk = |policy: &str, entries: serde_json::Value| {
        json!({
            "workload": "two-thirds", "policy": policy, "operations": 10, "failures": 0, "tries_per_buffer": 10.0,
            "failed_tries_per_buffer": 0.4, "tries_per_buffer_at_worst": 1000, "tries_per_buffer_by_order": [],
            "failed_tries_per_buffer_by_order": [],
            "time_by_cause_ms": {"reclaim": 20.0, "zeroing": 1.5}, "entries": entries, "tlb": [],
            "bystander_tries": 10, "bystander_failures": 1, "bystanders": [], "unusable_before": [],
            "unusable_after": [], "sensitivity": [], "missing": [],
        })
    };
    let chunks = json!([
        chunk("one-page", json!({"4K": 1024.0})),
        chunk("landed", json!({"64K": 30.0, "2M": 1.0, "4K": 40.0})),
    ]);
    let roundtrip = json!([{
        "workload": "poll client", "policy": "linux-6.12", "operations": 1000, "parameters": {"client": "poll"},
        "switches_per_request": 2.0, "causes": {"client blocked": 1.0, "server blocked": 1.0}, "missing": [],
    }]);
    vec![
        replay("placement", json!(placements), growth),
        replay("chunks", chunks, json!([])),
        replay("roundtrip", roundtrip, json!([])),
    ]
}

pub(crate) fn explain() -> Document {
    let part = |cause: &str, ns: u64| json!({"cause": cause, "ns": ns, "share": 0.5});
    let spread = json!({"p50": 2, "p90": 9, "mean": 3.1, "most": 12, "distribution": [[2, 80], [4, 15], [12, 5]]});
    let all = json!({
        "schema": "stopgap.explain/2", "version": "0.1.0", "command": ["stopgap", "explain", "a.trace"],
        "trace": {"source": "cc <main.c>", "events": 9000, "duration_ns": 3_000_000_000_u64},
        "losses": {"lost": 0, "share": 0.0, "limit": 0.01, "contradictions": 0, "disordered": 0},
        "verdict": {"word": "stalls", "text": "stalls: 2 operations lost 100 ms"}, "chains": chains(),
        "switches": {"roundtrips": 100, "total": 310, "per_roundtrip": spread, "pairs": [], "causes": [
            {"task": "client", "cause": "blocked in poll", "count": 200, "kind": "blocked"},
            {"task": "server", "cause": "pre-empted on the way out of writev", "count": 110,
             "kind": "preempted-on-the-way-out"},
        ]},
        "tasks": [{"task": "client", "threads": 1, "switches": 200, "running_ns": 900_000_000, "runnable_ns": 300_000_000,
                   "blocked_ns": 1_700_000_000, "unknown_ns": 1_000_000, "wall_ns": 2_901_000_000_u64}],
        "slow": [{
            "call": "mmap", "task": "cc", "tid": 7, "begin_ns": 5, "length_ns": 30_000_000, "at_least": false,
            "excess_ns": 30_000_000, "parts": [part("direct-reclaim", 20_000_000), part("on-cpu", 10_000_000)],
        }],
        "calls": [{"kind": "mmap", "count": 90, "slow": 1, "total_ns": 40_000_000, "most_ns": 30_000_000,
                   "slow_parts": [part("direct-reclaim", 20_000_000)]}],
        "memory": {}, "functions": null, "profile": profile(),
        "advice": [{"word": "reclaim", "text": "hold less", "evidence": "66 % of the time"}],
        "missing": [{"what": "locks", "why": "not captured"}],
    });
    Document::Explain(serde_json::from_value(all).expect("an explained trace"))
}

/// A client whose server waited for the disk, step by step, and a thread with a name of 4,000 letters.
fn chains() -> serde_json::Value {
    let link = |cause: &str, text: &str, task: Option<&str>, ns: u64, links: serde_json::Value| {
        json!({
            "cause": cause, "text": text, "task": task, "tid": null, "call": null, "place": null, "ns": ns, "share": 1.0, "links": links,
        })
    };
    let stop = |task: &str, cause: &str, text: &str| json!({"task": task, "tid": 7, "cause": cause, "text": text});
    let step =
        |at: u64, ns: u64, chain: serde_json::Value| json!({"at_ns": at, "ns": ns, "chain": chain});
    let waiting = |task: &str, ns: u64, links: serde_json::Value, steps: serde_json::Value| {
        json!({
            "task": task, "threads": 1, "cause": "data", "text": "was in recvfrom", "call": "recvfrom", "place": null,
            "idleness": "stalled", "waits": 3, "total_ns": ns, "steps": steps, "longest_ns": ns, "longest_at_ns": 5,
            "longest_tid": 7, "links": links,
        })
    };
    let disk = link(
        "disk",
        "disk vda, behind requests of tar",
        Some("tar"),
        70_000_000,
        json!([]),
    );
    let server = link(
        "io",
        "server was in fsync",
        Some("server"),
        70_000_000,
        json!([disk]),
    );
    let ran = link(
        "running",
        "server ran",
        Some("server"),
        30_000_000,
        json!([]),
    );
    let long = "std::collections::".repeat(223);
    let client = stop("client", "data", "was in recvfrom");
    let steps = json!([
        step(
            0,
            70_000_000,
            json!([client, stop("server", "io", "server was in fsync")])
        ),
        step(
            70_000_000,
            30_000_000,
            json!([client, stop("server", "running", "server ran")])
        ),
    ]);
    json!({
        "waiting": [waiting("client", 100_000_000, json!([server, ran]), steps), waiting(&long, 20_000_000, json!([]), json!([]))],
        "blame": [], "critical_path": null, "windows": [],
    })
}

/// A thread that maps, and one without names.
fn profile() -> serde_json::Value {
    let state = |state: &str, call: Option<&str>, samples: u64| json!({"state": state, "call": call, "samples": samples});
    let function = |function: &str, mode: &str, own: u64, all: u64| json!({"function": function, "mode": mode, "own_samples": own, "with_calls_samples": all});
    let stack = |frames: &[&str], samples: u64| json!({"frames": frames, "samples": samples});
    json!({
        "samples": 1000, "period_ns": 1_001_001, "innermost": {"user": 180, "kernel": 700, "unnamed": 120},
        "threads": [
            {"task": "client", "samples": 900, "innermost": {"user": 180, "kernel": 700, "unnamed": 20},
             "states": [state("in mmap", Some("mmap"), 700), state("user mode", None, 200)]},
            {"task": "<server>", "samples": 100, "innermost": {"user": 0, "kernel": 0, "unnamed": 100},
             "states": [state("user mode", None, 100)]},
        ],
        "functions": [
            function("clear_page_erms_[k]", "kernel", 600, 600), function("compute", "user", 180, 180),
            function("libc.so.6 [no symbol]", "unnamed", 120, 120), function("do_mmap_[k]", "kernel", 100, 700),
            function("main", "user", 0, 880),
        ],
        "stacks": [
            stack(&["<server>", "user mode", "libc.so.6 [no symbol]"], 100),
            stack(&["client", "in mmap", "main", "do_mmap_[k]"], 100),
            stack(&["client", "in mmap", "main", "do_mmap_[k]", "clear_page_erms_[k]"], 600),
            stack(&["client", "user mode", "libc.so.6 [no symbol]"], 20),
            stack(&["client", "user mode", "main", "compute"], 180),
        ],
    })
}

fn comparison() -> Document {
    let side = |name: &str, middle: u64, seed: u64| {
        let mut noise = Noise(seed);
        let run = |index: u32| {
            let block = latency(index, middle + u64::from(index % 5) * 20, &mut noise);
            let histogram = block.histogram.expect("a latency");
            compare::Run::of_histogram(format!("{name} {index}"), &histogram)
        };
        Side {
            name: name.to_owned(),
            runs: (0..12).map(run).collect(),
        }
    };
    let options = compare::Options::default();
    let mut compared = compare::compare(&side("6.12", 3_000, 3), &side("6.18", 2_400, 4), &options);
    compared.environment.push(compare::Difference {
        what: "kernel".to_owned(),
        before: "6.12".to_owned(),
        after: "6.18".to_owned(),
    });
    compared
        .warnings
        .push("the machines differ: kernel".to_owned());
    Document::Compare(Box::new(compared))
}

/// Six hours of a watch, of which nobody watched two.
pub(crate) fn history() -> Document {
    const MINUTE: u64 = 60_000_000_000;
    let mut adder = Adder::new(0, 360 * MINUTE);
    for minute in (0..360).filter(|minute| !(120..240).contains(minute)) {
        for (number, cause) in [(5, "io"), (3, "lock"), (1, "run-queue"), (9, "idle")] {
            let ns = MINUTE / 60 * number * (1 + minute % 7);
            let key = Key {
                cause: cause.to_owned(),
                process: Some("postgres".to_owned()),
                cgroup: Some("/system.slice/postgres.service".to_owned()),
                call: Some("fdatasync".to_owned()),
            };
            let sum = Sum {
                waits: 1,
                ns,
                longest_ns: ns,
                buckets: [(ns, 1)].into(),
            };
            adder.add(
                (MINUTE * minute, MINUTE * (minute + 1)),
                Some("b"),
                key,
                &sum,
            );
        }
    }
    let unread = Unread {
        file: "day-20261120.parquet".to_owned(),
        why: "it is cut off".to_owned(),
    };
    Document::History(Box::new(history::Document {
        schema: history::SCHEMA.to_owned(),
        version: "0".to_owned(),
        history: adder.finish(["box".to_owned()].into(), vec![unread]),
    }))
}

/// A history of 90 occasions, of which the last 40 take 30 % longer.
fn change_points() -> Document {
    let point = |t: usize| Point {
        date_unix_s: Some(86_400 * (20_000 + t as u64)),
        label: format!("c{t} <b>"),
        value: 1e6 * (1.0 + (t * 7 % 13) as f64 / 200.0) * if t < 50 { 1.0 } else { 1.3 },
    };
    let history = History {
        what: "median".to_owned(),
        unit: "ns".to_owned(),
        points: (0..90).map(point).collect(),
        ..History::default()
    };
    let record = stopgap_stats::change_points::change_points(&history, &[]);
    Document::Other(Box::new(html::change_points(&record, "history.json")))
}

/// A record of every kind, of two machines.
pub(crate) fn sources() -> Vec<Source> {
    let mut documents = vec![
        Document::Run(Box::new(run("6.12.1", 11))),
        Document::Run(Box::new(run("6.12.1", 12))),
        Document::Run(Box::new(run_with_verdict("6.18.44", 13))),
    ];
    documents.extend(replays());
    documents.push(explain());
    documents.push(comparison());
    documents.push(history());
    documents.push(change_points());
    let named = |(index, document)| Source {
        name: format!("record-{index}.json"),
        document,
    };
    documents.into_iter().enumerate().map(named).collect()
}
