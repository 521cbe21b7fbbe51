use serde_json::{Value, json};
use stopgap_stats::record::SCHEMA;

use super::*;

/// A quiet machine: every row ok.
fn quiet() -> Value {
    let psi = |resource: &str| {
        let line = json!({"avg10": 0.3, "avg60": 0.2, "avg300": 0.1, "total_us": 9});
        json!({"resource": resource, "some": line, "full": line})
    };
    let waited = |resource: &str| json!({"resource": resource, "some": 0.2, "full": 0.1});
    json!({
        "interval_ms": 500,
        "mappings": [{"pid": 77, "name": "firefox", "mappings": 126, "backing": []}],
        "max_map_count": 65_530,
        "unusable_index": [{"order": 0, "index": 0.0}, {"order": 4, "index": 0.1}, {"order": 9, "index": 0.9}],
        "uptime_s": 900,
        "since_boot": [],
        "pressure": [psi("cpu"), psi("memory"), psi("io")],
        "unevictable": null, "mlocked": null, "voluntary": [], "involuntary": [], "process": null,
        "waited": [waited("cpu"), waited("memory"), waited("io")],
        "groups": [],
        "swap": {"total": 1u64 << 30, "used": 1u64 << 20, "on_disk": true, "in_per_s": 0.0, "out_per_s": 0.0},
        "disks": [{"name": "vda", "completed": 4, "mean_ms": 2.1, "in_flight": 0}],
        "steal": 1.0, "stuck": [], "stuck_count": 0, "oom_kills": 0, "kernel_log": [],
        "missing": [],
    })
}

fn run(now: &Value, answers: &[Value]) -> Run {
    let environment = json!({
        "host": "vm", "kernel": "6.18.44-x", "swap": "file",
        "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "root",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    let run = json!({
        "schema": SCHEMA, "version": "0.2.0", "command": ["stopgap", "check"], "started_unix_s": 1, "duration_ms": 900,
        "seed": 1, "memory_budget": 1, "environment": environment, "now": now, "answers": answers, "interrupted": false,
    });
    serde_json::from_value(run).expect("a record")
}

fn answer(question: &str, word: &str, text: &str, series: &Value) -> Value {
    json!({
        "question": question, "parameters": {}, "verdict": {"word": word, "text": text}, "figure": {"value": 2.5, "unit": "x"},
        "evidence": [], "advice": [], "privilege": "root", "series": series, "counters": [], "losses": [], "missing": [],
    })
}

/// Returns subject, state and sentence of what is not ok.
fn not_ok(overall: &Overall) -> Vec<(&str, State, &str)> {
    let rows = overall.now.iter().chain(&overall.causes);
    let bad = rows.filter(|row| row.state != State::Ok);
    bad.map(|row| (&*row.about, row.state, &*row.sentence))
        .collect()
}

#[test]
fn a_quiet_machine_is_ok_in_every_row_and_nothing_was_found() {
    let overall = judge(&run(&quiet(), &[]));
    assert_eq!(not_ok(&overall), []);
    let about: Vec<_> = overall.now.iter().map(|row| &*row.about).collect();
    assert_eq!(
        about,
        ["cpu", "disk", "memory", "swap", "mappings", "tasks", "log"]
    );
    assert_eq!(overall.headline, Headline::NothingFound);
    assert_eq!(overall.command, "sudo stopgap watch");
}

/// Each state warns in its own row, with its name and its limit, and in no other.
#[test]
fn each_known_state_warns_in_its_row_alone() {
    let full = |resource: usize, per_cent: f64| {
        move |now: &mut Value| {
            now["pressure"][resource]["full"]["avg10"] = json!(per_cent);
            now["pressure"][resource]["some"]["avg10"] = json!(per_cent);
        }
    };
    let log = |kind: &'static str, text: &'static str, ago: u64| {
        move |now: &mut Value| {
            now["kernel_log"] = json!([{"kind": kind, "seconds_ago": ago, "text": text}]);
        }
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(&str, Change, State, &[&str])> = vec![
        (
            "disk",
            Box::new(full(2, 6.0)),
            State::Look,
            &["6.0 %", "warns at 5 %"],
        ),
        ("disk", Box::new(full(2, 60.0)), State::Cause, &["60 %"]),
        (
            "disk",
            Box::new(|now| now["disks"][0]["mean_ms"] = json!(230.0)),
            State::Look,
            &["vda", "230 ms", "warns at 100 ms"],
        ),
        (
            "disk",
            Box::new(|now| {
                now["disks"][0] =
                    json!({"name": "sdb", "completed": 0, "mean_ms": null, "in_flight": 3});
            }),
            State::Cause,
            &["sdb completed none of 3"],
        ),
        (
            "memory",
            Box::new(full(1, 2.0)),
            State::Look,
            &["2.0 %", "warns at 1 %"],
        ),
        ("memory", Box::new(full(1, 12.0)), State::Cause, &["12 %"]),
        (
            "memory",
            Box::new(|now| now["pressure"][1]["some"]["avg10"] = json!(8.0)),
            State::Look,
            &["8.0 %", "warns at 5 %"],
        ),
        (
            "memory",
            Box::new(|now| {
                now["groups"] = json!([{"path": "/build", "some": 20.0, "at_limit": null}]);
            }),
            State::Look,
            &["/build", "20 %"],
        ),
        (
            "memory",
            Box::new(|now| {
                now["groups"] = json!([{"path": "/build", "some": null, "at_limit": 900}]);
            }),
            State::Look,
            &["/build", "900 times"],
        ),
        (
            "memory",
            Box::new(|now| {
                let path = "/user.slice/user@1000.service/app.slice/app-gnome-firefox-4711.scope";
                now["groups"] = json!([{"path": path, "some": null, "at_limit": 12_345}]);
            }),
            State::Look,
            &["group .../app-g..scope", "12,345 times"],
        ),
        (
            "memory",
            Box::new(|now| now["unusable_index"][1]["index"] = json!(0.63)),
            State::Look,
            &["fragmented", "63 %", "warns at 50 %"],
        ),
        (
            "swap",
            Box::new(|now| now["swap"]["used"] = json!(200u64 << 20)),
            State::Look,
            &["200 MiB", "warns at 64 MiB"],
        ),
        (
            "swap",
            Box::new(|now| now["swap"]["in_per_s"] = json!(8e6)),
            State::Look,
            &["7.63 MiB/s", "warns at 1 MiB/s"],
        ),
        (
            "mappings",
            Box::new(|now| now["mappings"][0]["mappings"] = json!(40_000)),
            State::Look,
            &["firefox (77)", "40,000 of 65,530", "warns at half"],
        ),
        (
            "mappings",
            Box::new(|now| {
                now["mappings"][0]["backing"] =
                    json!([{"file": "/dev/dri/card0", "mappings": 9_100, "one_page": 9_000}]);
            }),
            State::Look,
            &["firefox (77)", "9,000", "warns at 5,000"],
        ),
        (
            "tasks",
            Box::new(|now| {
                now["stuck"] =
                    json!([{"pid": 5, "tid": 6, "name": "dd", "function": "io_schedule"}]);
                now["stuck_count"] = json!(3);
            }),
            State::Look,
            &["dd (6), 2 more", "io_schedule"],
        ),
        (
            "tasks",
            Box::new(|now| {
                now["stuck"] = json!([{"pid": 1_234_567, "tid": 1_234_567, "name": "kworker/u8:2-ev", "function": "folio_wait_bit_common"}]);
                now["stuck_count"] = json!(13);
            }),
            State::Look,
            &["kworker/u8:2-ev (1234567) +12: state D in folio_wait_bit_common"],
        ),
        (
            "cpu",
            Box::new(|now| now["pressure"][0]["some"]["avg10"] = json!(80.0)),
            State::Look,
            &["80 %", "warns at 50 %"],
        ),
        (
            "cpu",
            Box::new(|now| now["steal"] = json!(14.0)),
            State::Look,
            &["14.0 %", "warns at 10 %"],
        ),
        (
            "log",
            Box::new(log(
                "oom_kill",
                "Out of memory: Killed process 9 (firefox) total-vm:9kB",
                300,
            )),
            State::Cause,
            &["killed 9 (firefox) for lack of memory 5 min ago"],
        ),
        (
            "log",
            Box::new(log(
                "oom_kill",
                "Memory cgroup out of memory: Killed process 9 (cc1) total-vm:9kB",
                300,
            )),
            State::Look,
            &["killed 9 (cc1) for its group's memory limit"],
        ),
        (
            "log",
            Box::new(log(
                "hung_task",
                "INFO: task dd:12 blocked for more than 122 seconds.",
                60,
            )),
            State::Cause,
            &["task dd:12 blocked for more than 122 seconds (60 s ago)"],
        ),
        (
            "log",
            Box::new(log(
                "hung_task",
                "INFO: task kworker/u8:2-events:1234567 blocked for more than 122 seconds.",
                600,
            )),
            State::Cause,
            &[
                "task kworker/u8:2-events:1234567 blocked for",
                "... (10 min ago)",
            ],
        ),
        (
            "log",
            Box::new(log(
                "disk_error",
                "nvme nvme0: I/O 345 (I/O Cmd) QID 2 timeout, aborting",
                60,
            )),
            State::Cause,
            &["a disk failed or was late 60 s ago: nvme nvme0: I/O"],
        ),
        (
            "log",
            Box::new(log(
                "gpu_hang",
                "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:85dffffb, in x",
                60,
            )),
            State::Cause,
            &["a GPU hung 60 s ago: i915"],
        ),
    ];
    for (about, change, state, words) in cases {
        let mut now = quiet();
        change(&mut now);
        let overall = judge(&run(&now, &[]));
        let rows = not_ok(&overall);
        let [(named, found, sentence)] = rows[..] else {
            panic!("{about}: {rows:?}");
        };
        assert_eq!((named, found), (about, state), "{sentence}");
        for word in words {
            assert!(sentence.contains(word), "'{sentence}' lacks '{word}'");
        }
        assert!(
            sentence.chars().count() <= 64,
            "it wraps on 80 columns: {sentence}"
        );
        let expected = match state {
            State::Cause => Headline::LikelyCause,
            _ => Headline::WorthALook,
        };
        assert_eq!(overall.headline, expected);
        assert!(
            overall.text.ends_with(&about.to_uppercase()),
            "{}",
            overall.text
        );
        assert!(!overall.command.is_empty());
    }
}

#[test]
fn a_disk_is_waited_for_while_others_run() {
    let mut now = quiet();
    now["pressure"][2]["some"]["avg10"] = json!(93.0);
    now["pressure"][0]["some"]["avg10"] = json!(80.0);
    let overall = judge(&run(&now, &[]));
    let about: Vec<_> = not_ok(&overall).iter().map(|(about, ..)| *about).collect();
    assert_eq!(about, ["cpu", "disk"]);
    assert!(overall.text.ends_with(": DISK"), "{}", overall.text);
    assert!(
        overall.now[1]
            .sentence
            .contains("93 % of the last 10 s (warns at 20 %)")
    );
}

/// At the limit mmap fails; nobody else freezes by it.
#[test]
fn a_program_near_its_limit_is_no_cause_of_a_freeze() {
    let mut now = quiet();
    now["mappings"][0]["mappings"] = json!(65_000);
    assert_eq!(judge(&run(&now, &[])).headline, Headline::WorthALook);
}

#[test]
fn an_open_request_for_which_nobody_waits_is_no_stall() {
    let mut now = quiet();
    now["disks"][0] = json!({"name": "dm-0", "completed": 0, "mean_ms": null, "in_flight": 3});
    now["waited"][2]["some"] = json!(0.0);
    assert_eq!(not_ok(&judge(&run(&now, &[]))), []);
}

#[test]
fn order_4_is_named_by_the_machines_page_size() {
    let mut now = quiet();
    now["unusable_index"][1]["index"] = json!(0.63);
    let mut record = run(&now, &[]);
    record.environment.page_size = stopgap_events::units::Bytes::kib(16);
    let overall = judge(&record);
    assert!(
        overall.now[2].sentence.contains("under 256 KiB"),
        "{overall:?}"
    );
}

/// "Nobody waited in the last 10 s" speaks of 10 s, and of the past in the past tense; each in one line of the screen.
#[test]
fn a_wait_that_is_over_is_told_and_does_not_warn() {
    for (ten, just, says) in [
        (0.0, 0.0, "nobody waited for it in the last 10 s"),
        (3.3, 0.0, "waited for 3.3 % of 10 s, not now"),
        (99.9, 0.0, "waited for 99 % of 10 s, not now"),
        (3.3, 1.0, "waited for 3.3 % of the last 10 s"),
    ] {
        let mut now = quiet();
        now["disks"][0]["name"] = json!("nvme0n1");
        now["disks"][0]["mean_ms"] = json!(0.123);
        for at in [1, 2] {
            now["pressure"][at]["some"]["avg10"] = json!(ten);
            now["waited"][at]["some"] = json!(just);
        }
        let mut run = run(&now, &[]);
        run.environment.swap = Some("none".to_owned());
        let overall = judge(&run);
        assert_eq!(not_ok(&overall), []);
        for about in ["disk", "memory"] {
            let row = overall.now.iter().find(|row| row.about == about).unwrap();
            assert!(row.sentence.starts_with(says), "{}", row.sentence);
            assert!(row.sentence.chars().count() <= 64, "{}", row.sentence);
        }
    }
}

#[test]
fn several_kills_are_counted_and_the_last_is_named_so() {
    let mut now = quiet();
    let kill = |pid: u32, seconds: u64| {
        let text = format!("Out of memory: Killed process {pid} (cc1) total-vm:9kB");
        json!({"kind": "oom_kill", "seconds_ago": seconds, "text": text})
    };
    // One of the day before does not count.
    now["kernel_log"] = json!([kill(5, 90_000), kill(7, 900), kill(8, 600), kill(9, 300)]);
    let overall = judge(&run(&now, &[]));
    let row = overall.now.iter().find(|row| row.about == "log");
    assert_eq!(
        row.map(|row| &*row.sentence),
        Some("3 kills for lack of memory; the last: 9 (cc1) 5 min ago")
    );
}

/// `check -p` has tested placement with as many mappings already.
#[test]
fn the_row_of_mappings_advises_no_test_that_was_just_made() {
    let mut now = quiet();
    now["mappings"][0]["mappings"] = json!(40_000);
    let command = |now: &Value| judge(&run(now, &[])).command;
    assert_eq!(command(&now), "sudo stopgap check -p 77");
    now["process"] = json!({"pid": 77, "name": "firefox", "resident": 1, "swapped": 0});
    assert_eq!(
        command(&now),
        "sudo awk '{print $6}' /proc/77/maps | sort | uniq -c | sort -n | tail -5"
    );
}

#[test]
fn what_goes_on_leads_before_what_the_log_has() {
    let mut now = quiet();
    let kill = "Memory cgroup out of memory: Killed process 7 (x)";
    now["kernel_log"] = json!([{"kind": "oom_kill", "seconds_ago": 1_400, "text": kill}]);
    assert!(judge(&run(&now, &[])).text.ends_with(": LOG"));
    now["pressure"][0]["some"]["avg10"] = json!(96.0);
    assert!(judge(&run(&now, &[])).text.ends_with(": CPU"));
}

/// A program above its memory reads its pages back from the disk: that the disk is busy is not why.
#[test]
fn swap_leads_before_the_disk_on_which_it_lies() {
    let mut now = quiet();
    now["waited"][2]["full"] = json!(13.0);
    now["waited"][2]["some"] = json!(13.0);
    now["pressure"][2]["full"]["avg10"] = json!(13.0);
    assert!(judge(&run(&now, &[])).text.ends_with(": DISK"));
    now["swap"]["in_per_s"] = json!(2e8);
    assert!(judge(&run(&now, &[])).text.ends_with(": SWAP"));
}

#[test]
fn a_stall_that_is_over_and_a_log_line_of_yesterday_do_not_count() {
    let mut now = quiet();
    now["pressure"][2]["full"]["avg10"] = json!(30.0);
    now["waited"][2]["full"] = json!(0.0);
    now["kernel_log"] = json!([{"kind": "gpu_hang", "seconds_ago": 90_000, "text": "GPU HANG"}]);
    assert_eq!(not_ok(&judge(&run(&now, &[]))), []);
}

#[test]
fn what_could_not_be_read_is_unknown_and_says_why() {
    let mut now = quiet();
    for name in ["pressure", "waited", "disks", "mappings"] {
        now[name] = json!([]);
    }
    now["kernel_log"] = json!(null);
    now["missing"] = json!([{"what": "pressure", "why": "no PSI: boot with psi=1"}]);
    let overall = judge(&run(&now, &[]));
    let rows = not_ok(&overall);
    assert!(rows.iter().all(|(_, state, _)| *state == State::Unknown));
    let about: Vec<_> = rows.iter().map(|(about, ..)| *about).collect();
    assert_eq!(about, ["cpu", "disk", "memory", "mappings", "log"]);
    assert!(rows[0].2.ends_with("boot with psi=1"), "{rows:?}");
    assert_eq!(overall.headline, Headline::NothingFound);
}

#[test]
fn a_record_without_anything_could_not_look() {
    let overall = judge(&run(&Value::Null, &[]));
    assert_eq!(overall.headline, Headline::CouldNotLook);
    assert_eq!(
        overall.text,
        "COULD NOT LOOK, because interrupted before the first figure"
    );
}

/// A series of one run's values.
fn series(name: &str, parameters: &Value, values: &[f64]) -> Value {
    let block = |(run, value): (usize, &f64)| json!({"run": run, "start_ns": 0, "samples": 9, "value": value});
    let blocks: Vec<Value> = values.iter().enumerate().map(block).collect();
    json!({"name": name, "unit": "ns", "parameters": parameters, "blocks": blocks})
}

fn maps(n: u64, ns: f64) -> Value {
    series(
        "map",
        &json!({"workload": "pbobench", "backend": "memfd", "n": n}),
        &[ns; 3],
    )
}

#[test]
fn placement_compares_two_sizes_and_is_a_cause_where_a_program_has_many_mappings() {
    let flat = answer(
        "placement",
        "flat",
        "flat 1.0x",
        &json!([maps(1_000, 900.0), maps(64_000, 910.0)]),
    );
    let overall = judge(&run(&quiet(), &[flat]));
    assert_eq!(
        overall.causes[0].sentence,
        "mapping memory is as fast beside 64,000 mappings as beside 1,000"
    );
    let nearly = json!([maps(1_000, 900.0), maps(64_000, 1_440.0)]);
    let nearly = answer("placement", "flat", "flat 1.6x", &nearly);
    assert_eq!(
        judge(&run(&quiet(), &[nearly])).causes[0].sentence,
        "mapping memory takes 1.60x as long beside 64,000 mappings as beside 1,000"
    );
    let grows = answer(
        "placement",
        "grows",
        "grows ~N^1.0",
        &json!([maps(1_000, 900.0), maps(64_000, 45_000.0)]),
    );
    let overall = judge(&run(&quiet(), std::slice::from_ref(&grows)));
    assert_eq!(
        (overall.headline, overall.causes[0].state),
        (Headline::WorthALook, State::Look)
    );
    assert_eq!(
        overall.causes[0].sentence,
        "mapping memory takes 50.0x as long beside 64,000 mappings as beside 1,000"
    );
    let mut now = quiet();
    now["mappings"][0]["mappings"] = json!(6_000);
    assert_eq!(judge(&run(&now, &[grows])).headline, Headline::LikelyCause);
}

fn cell(client: &str, reply: &str, batch: u64, switches: [f64; 3]) -> Value {
    let parameters = json!({"client": client, "server": "poll", "reply": reply, "batch": batch});
    series("switches", &parameters, &switches)
}

#[test]
fn what_every_linux_costs_is_no_finding() {
    let linux = json!([
        cell("poll", "together", 1, [2.0; 3]),
        cell("read", "together", 1, [3.86; 3]),
        cell("poll", "each", 32, [62.9; 3]),
    ]);
    let excess = answer(
        "roundtrip",
        "excess",
        "excess 1.9x: blocking-read client",
        &linux,
    );
    let overall = judge(&run(&quiet(), &[excess]));
    assert_eq!(not_ok(&overall), []);
    assert_eq!(
        overall.causes[0].sentence,
        "2.0 task switches per request, as few as there can be"
    );
    let more = json!([
        cell("poll", "together", 1, [3.1, 3.0, 3.2]),
        cell("read", "together", 1, [3.86; 3])
    ]);
    let overall = judge(&run(
        &quiet(),
        &[answer("roundtrip", "excess", "excess 1.5x: x", &more)],
    ));
    assert_eq!(overall.causes[0].state, State::Look);
    assert_eq!(
        overall.causes[0].sentence,
        "a request costs 3.10 task switches, where Linux needs 2.00"
    );
}

#[test]
fn a_question_without_an_answer_says_why_in_a_clause() {
    let text =
        "inconclusive: no swap, so anonymous lists are not scanned: memory that is held (1.00x)";
    let swap = answer("reclaim", "inconclusive", text, &json!([]));
    let whole = answer(
        "chunks",
        "inconclusive",
        "inconclusive: not fragmented (index 0.11, up 31 min)",
        &json!([]),
    );
    let odd = answer(
        "placement",
        "unsupported",
        "unsupported: mmap: Cannot allocate memory (os error 12)",
        &json!([]),
    );
    let enough = "inconclusive: fragmented (index 0.56), but 4.36 GiB lie free in large blocks, so that nothing had to be compacted";
    let control = "inconclusive: memfd: the positive control did not grow as N (N^0.6)";
    let control = answer("placement", "inconclusive", control, &json!([]));
    let enough = answer("chunks", "inconclusive", enough, &json!([]));
    let overall = judge(&run(&quiet(), &[odd, control, whole, enough, swap]));
    let sentences: Vec<_> = overall.causes.iter().map(|row| &*row.sentence).collect();
    assert_eq!(
        sentences,
        [
            "cannot tell: mmap: Cannot allocate memory",
            "cannot tell: the machine was too busy: even the test's control failed",
            "cannot tell: memory is not fragmented (up 31 min)",
            "cannot tell: enough large blocks are free: nothing was compacted",
            "cannot tell: without swap no such stall can be made"
        ]
    );
}

/// Old records have none of the new fields.
#[test]
fn a_record_of_0_1_is_judged_by_todays_rule() {
    let mut now = quiet();
    let fields = now.as_object_mut().expect("an object");
    for name in [
        "waited",
        "groups",
        "swap",
        "disks",
        "steal",
        "stuck",
        "stuck_count",
        "oom_kills",
        "kernel_log",
    ] {
        fields.remove(name);
    }
    let overall = of(&run(&now, &[]));
    assert_eq!(overall.headline, Headline::NothingFound);
    assert_eq!(not_ok(&overall).len(), 1, "the log alone is unknown");
}
