//! `stopgap replay chunks` and `stopgap advise chunks`: what they print, what they write, and what they refuse.

use std::time::Duration;

use crate::common::{Run, has, valid};
use serde_json::{Value, json};

/// The document of `COMMAND chunks LINE`, run in a folder of its own.
fn document(command: &str, line: &str) -> Value {
    document_of(&Run::new(), command, line)
}

fn document_of(run: &Run, command: &str, line: &str) -> Value {
    let json = run.stopgap(format!("{command} chunks {line} --json"));
    valid(&format!("stopgap.{command}-1.json"), &json.quiet())
}

fn row<'a>(document: &'a Value, policy: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["policy"] == policy);
    found.unwrap_or_else(|| panic!("no {policy} in {rows:#?}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Fails unless it is refused in one line that has all of `parts`, and writes nothing.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("replay chunks {line}"), parts);
}

/// Mail 001's count of tries, for every policy that it names.
#[test]
fn nothing_contiguous_makes_the_mails_tries() {
    let document = document("replay", "no-contiguous --buffers 2");
    assert_eq!(document["question"], "chunks");
    assert_eq!(document["rows"].as_array().unwrap().len(), 13);
    for (policy, tries) in [
        ("old", 9_228),
        ("one-page", 1_024),
        ("sticky", 1_034),
        ("start-64k", 1_028),
        ("fold", 1_026),
        ("list", 1_027),
        ("iommu-dma", 1_026),
    ] {
        let row = row(&document, policy);
        assert_eq!(row["tries_per_buffer"], f64::from(tries), "{policy}");
        let failed = f64::from(tries - 1_024);
        assert_eq!(row["failed_tries_per_buffer"], failed, "{policy}");
        assert_eq!(row["tries_per_buffer_at_worst"], tries, "{policy}");
        assert_eq!(row["entries"], json!({"4K": 1024.0}), "{policy}");
        assert_eq!(row["n"], Value::Null);
    }
    let old = row(&document, "old");
    let tlb = old["tlb"].as_array().unwrap().iter();
    let access: Vec<&Value> = tlb.map(|tlb| &tlb["access"]).collect();
    assert_eq!(access, ["linear", "rotate-90", "random"]);
    assert_eq!(old["tlb_misses_per_access"], 1.0 / 64.0);
    assert_eq!(document["chunks"]["kernel"], "3.14");
    assert_eq!(document["chunks"]["device"], json!(["4K", "64K", "2M"]));
}

/// Without an input it is mail 001's machine; its times stand beside the mail's.
#[test]
fn the_thread_stands_beside_the_mail() {
    let document = document("replay", "--policy one-page,fold,list --buffers 2");
    assert_eq!(document["rows"].as_array().unwrap().len(), 3);
    // fold is the farthest from the mail (docs/questions/chunks.md).
    for (policy, kind, ms, least, most) in [
        ("one-page", "fitted", json!(250.0), 0.9, 1.1),
        ("fold", "compared", Value::Null, 0.6, 3.0),
    ] {
        let mail = &row(&document, policy)["mail"];
        assert_eq!(mail["kind"], kind, "{mail}");
        assert!(ms.is_null() || mail["mail_ms"] == ms, "{mail}");
        assert!((least..most).contains(&number(&mail["factor"])), "{mail}");
    }
    let mail = &row(&document, "list")["mail"];
    assert_eq!(
        (&mail["mail_ms"], &mail["kind"]),
        (&Value::Null, &json!("absent"))
    );
    let mut assumed = document["chunks"]["assumptions"].as_array().unwrap().iter();
    assert!(assumed.any(|one| one["name"] == "reclaim" && one["value"] == 244.0));
    let sensitivity = row(&document, "fold")["sensitivity"].as_array().unwrap();
    let walk = |one: &&Value| one["assumption"] == "walk" && one["access"] == "rotate-90";
    assert_eq!(sensitivity.iter().filter(walk).count(), 2);
}

/// Mail 001: single pages harm nobody, and large chunks take what USB and Wi-Fi need. At the command's default length; the
/// model's own tests have three seeds, twice the length, and the other policies.
#[test]
fn large_chunks_harm_the_drivers_and_single_pages_do_not() {
    for seed in 1..=3 {
        let document = document(
            "replay",
            &format!("--policy one-page,start-64k --seed {seed}"),
        );
        assert_eq!(document["chunks"]["buffers"], 50);
        let failing = |drivers: &Value| {
            let drivers = drivers.as_array().unwrap();
            let share = |one: &Value| number(&one["failures"]) / number(&one["tries"]);
            drivers.iter().map(share).collect::<Vec<f64>>()
        };
        let alone = failing(&document["chunks"]["bystanders_alone"]);
        assert_eq!(alone, [0.0, 0.0], "seed {seed}");
        let single = failing(&row(&document, "one-page")["bystanders"]);
        assert_eq!(single, [0.0, 0.0], "seed {seed}");
        let large = failing(&row(&document, "start-64k")["bystanders"]);
        assert!(large[0] > 0.2 && large[1] > 0.5, "seed {seed}: {large:?}");
    }
}

/// The lines that Robin Murphy quotes, and those in which Doug Anderson saw the times.
#[test]
fn the_log_is_the_mails() {
    let log = Run::new()
        .stopgap("replay chunks --log --policy one-page")
        .ok()
        .out;
    let mail = "\
iommu_dma_alloc: alloc size 0x753000, 1875 pages
__iommu_dma_alloc_pages: allocated at order 10
__iommu_dma_alloc_pages: allocated at order 9
__iommu_dma_alloc_pages: allocated at order 8
__iommu_dma_alloc_pages: allocated at order 6
__iommu_dma_alloc_pages: allocated at order 4
__iommu_dma_alloc_pages: allocated at order 1
__iommu_dma_alloc_pages: allocated at order 0
iommu: map: iova 0xff800000 pa 0x00000009f5400000 size 0x400000
iommu: mapping: iova 0xff800000 pa 0x00000009f5400000 pgsize 0x200000
iommu: mapping: iova 0xffa00000 pa 0x00000009f5600000 pgsize 0x200000
iommu: map: iova 0xffc00000 pa 0x00000000fa200000 size 0x200000
iommu: mapping: iova 0xffc00000 pa 0x00000000fa200000 pgsize 0x200000
iommu: map: iova 0xffe00000 pa 0x00000009f5a00000 size 0x100000
iommu: mapping: iova 0xffe00000 pa 0x00000009f5a00000 pgsize 0x1000
iommu: mapping: iova 0xffe01000 pa 0x00000009f5a01000 pgsize 0x1000
iommu: mapping: iova 0xffe02000 pa 0x00000009f5a02000 pgsize 0x1000
iommu: mapping: iova 0xffe03000 pa 0x00000009f5a03000 pgsize 0x1000
...
";
    assert!(log.starts_with(mail), "{log}");
    let time = |line: &str| {
        let ns = line
            .strip_prefix("one-page: alloc 4194304 bytes: ")?
            .strip_suffix(" ns")?;
        ns.parse::<u64>().ok()
    };
    let times: Vec<u64> = log.lines().filter_map(time).collect();
    assert_eq!(times.len(), 4, "{log}");
    assert!(times.iter().all(|ns| ns / 10_000_000 == 25), "{times:?}");
}

/// On another kernel, or with other buffers, the mail has nothing to say.
#[test]
fn other_scenes_do_not() {
    for line in ["--kernel 6.12", "--size 2M", "aged"] {
        let document = document("replay", &format!("{line} --policy one-page --buffers 1"));
        assert_eq!(document["rows"][0]["mail"], Value::Null, "{line}");
    }
}

#[test]
fn tables_are_for_people() {
    let done = Run::new().stopgap("replay chunks --policy one-page,list --buffers 2");
    let screen = done.ok().out;
    assert!(screen.starts_with("thread: "), "{screen}");
    let parts = [
        "mail 001",
        "not in the mail",
        "fitted",
        "mwifiex fails in 0 % without a buffer, 0 % beside",
        "rotate-90 %",
        "dwc2:3 %",
        "unusable index",
        "x1/2..x2",
        "record ",
    ];
    has(&screen, &parts);
    for line in screen.lines().filter(|line| !line.starts_with("record ")) {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

/// Two calls with the same seed give the same record but for its command line; another seed gives another.
#[test]
fn the_same_seed_gives_the_same_figures() {
    let figures = |seed: u32| {
        document(
            "replay",
            &format!("--policy fold --buffers 2 --seed {seed}"),
        )["rows"]
            .clone()
    };
    assert_eq!(figures(3), figures(3));
    assert_ne!(figures(3), figures(4));
}

#[test]
fn advice_names_a_policy_a_runner_up_and_what_would_change_it() {
    let line = "kept-1/4 --buffers 3 --device 4K,64K,2M --access rotate-90";
    let advised = document("advise", line);
    let advice = &advised["advice"];
    assert_eq!(advice["verdict"]["word"], "use", "{advice:#}");
    assert_eq!(advice["passes"], 60);
    let policy = advice["policy"].as_str().unwrap();
    let life = |row: &Value| number(&row["time_ms"]) + 60.0 * number(&row["tlb"][0]["pass_ms"]);
    assert!(
        life(row(&advised, policy)) < life(row(&advised, "one-page")),
        "{advice:#}"
    );
    assert!(advice["runner_up"].is_string());
    assert_eq!(advice["candidates"].as_array().unwrap().len(), 13);
    let variants = advice["variants"].as_array().unwrap();
    for assumption in ["TLB entries", "walk"] {
        for factor in [0.5, 2.0] {
            let same = |v: &Value| v["assumption"] == assumption && v["factor"] == factor;
            assert!(variants.iter().any(same), "{assumption} x{factor}");
        }
    }
    // Without any pass only what it takes to build counts, of those that are not set aside for what others lack.
    let none = document("advise", &format!("{line} --passes 0"));
    let candidates = none["advice"]["candidates"].as_array().unwrap();
    let in_question = candidates.iter().filter(|one| one["set_aside"].is_null());
    let times: Vec<f64> = in_question.map(|one| number(&one["build_ms"])).collect();
    let first = number(&candidates[0]["build_ms"]);
    assert!(
        times.len() > 1 && times.iter().all(|&time| time >= first),
        "{times:?}"
    );

    let screen = Run::new().stopgap(format!("advise chunks {line}")).out;
    assert!(screen.starts_with(&format!("use {policy}: ")), "{screen}");
    has(
        &screen,
        &[
            "runner-up",
            "TLB entries x1/2",
            "walk x2",
            "stands",
            "60 passes",
        ],
    );
}

#[test]
fn figures_that_make_no_sense() {
    let run = Run::new();
    for (line, parts) in [
        ("--size 0", &["--size 0", "at least one page"][..]),
        ("--size 5000", &["5000", "4 KiB"]),
        ("--size 3G", &["3G", "thread has 2 GiB"]),
        ("--size 9999999T", &["more memory"]),
        ("--buffers 0", &["--buffers 0"]),
        ("--buffers 2m", &["1,000,000"]),
        ("--device 64K,2M", &["{64K,2M}", "4K"]),
        ("--device 4K,48K", &["'48K'", "power of two"]),
        ("--device=", &["power of two"]),
        ("--device 1,4K", &["{1,4K}", "no pages below 4K"]),
        ("--device 2K,4K", &["{2K,4K}", "no pages below 4K"]),
        ("--device 4K,16E", &["'16E'", "64 bits"]),
        (
            "kept-1/4-pined",
            &["kept-1/4-pined", "unknown", "kept-1/4-pinned"],
        ),
        ("-o /dev/full", &["/dev/full", "no directory"]),
        ("--access zigzag", &["'zigzag'", "rotate-90"]),
        ("--kernel 2.6", &["'2.6'", "6.12"]),
        ("--policy bets", &["'bets'", "list-noreclaim", "all"]),
        ("threat", &["'threat'", "no-contiguous", "no such file"]),
        ("kept-1/1", &["kept-1/1", "2 to 512"]),
    ] {
        refused(&run, line, parts);
    }
    run.refuses("advise chunks", &["--device", "--access"]);
    run.refuses("advise gpu", &["gpu", "there are chunks;"]);
}

/// Lists in the help are the lists that there are.
#[test]
fn the_help_names_what_there_is() {
    for command in ["replay", "advise"] {
        let help = Run::new().stopgap(format!("{command} chunks --help")).out;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let policies = stopgap_chunks::policy::Name::ALL.iter();
        let scenarios = stopgap_models::chunks::scenario::Scenario::ALL.iter();
        let patterns = stopgap_models::chunks::experiment::Pattern::ALL.iter();
        let kernels = stopgap_models::chunks::kernel::Kernel::ALL.iter();
        let words = policies.map(ToString::to_string);
        let words = words.chain(scenarios.map(ToString::to_string));
        let words = words.chain(patterns.map(ToString::to_string));
        for word in words.chain(kernels.map(ToString::to_string)) {
            assert!(help.contains(&word), "{command}: no {word} in {help}");
        }
    }
}

const HEADER: &str = r#"{"schema":"stopgap.trace/1"}"#;

fn map(id: u32, bytes: u64) -> String {
    format!(
        r#"{{"time_ns":1,"kind":"map","id":{id},"length_bytes":{bytes},"protection":"write","merge":"never"}}"#
    )
}

/// Mappings are buffers: two are built, one of them of two pages, after the first is gone.
#[test]
fn a_traces_mappings_are_buffers_on_the_threads_memory() {
    let unmap = r#"{"time_ns":2,"kind":"unmap","id":3}"#;
    let lines = [HEADER, &map(3, 4_096), unmap, &map(3, 4_097)].join("\n");
    let run = Run::new();
    run.write("video.jsonl", &lines);
    let document = document_of(&run, "replay", "video.jsonl --policy one-page");
    let row = &document["rows"][0];
    assert_eq!(row["workload"], "video.jsonl");
    assert_eq!(
        (&row["operations"], &row["tries_per_buffer"]),
        (&json!(2), &json!(1.5))
    );
    assert_eq!(row["mail"], Value::Null);
    let setting = &document["chunks"];
    assert_eq!(setting["memory"], "thread");
    assert_eq!(
        (&setting["buffers"], &setting["live"]),
        (&json!(2), &Value::Null)
    );

    let run = Run::new();
    run.write("video.jsonl", lines);
    run.write("empty", format!("{HEADER}\n"));
    run.write("large", format!("{HEADER}\n{}\n", map(1, 3 << 30)));
    run.write("noise", "not a trace\n");
    for (line, parts) in [
        (
            "video.jsonl --size 4M",
            &["video.jsonl", "leave out --size"][..],
        ),
        ("video.jsonl --buffers 4", &["leave out --size"]),
        ("./empty", &["empty", "maps nothing"]),
        ("./large", &["large", "line 2", "larger than", "2 GiB"]),
        ("./noise", &["noise", "it is no trace"]),
        (".", &["directory"]),
        ("/dev/zero", &["a pipe or a device"]),
    ] {
        refused(&run, line, parts);
    }
    for other in [
        "",
        "\n",
        "[]",
        "{}",
        "{\"schema\":\"stopgap.run/1\"}",
        " [1,\n2]\n",
    ] {
        run.write("other.json", other);
        refused(
            &run,
            "other.json",
            &["other.json", "stopgap.snapshot/1", "stopgap.trace/1"],
        );
    }
}

/// A zone of 64 MiB: blocks of order 3 and 10 free, of the rest nothing is known.
fn snapshot(page: u64) -> String {
    let blocks = [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 3];
    json!({
        "schema": "stopgap.snapshot/1", "version": "0.1.0", "taken_unix_s": 1, "kernel": "6.12",
        "page_bytes": page, "pageblock_order": 9,
        "zones": [{
            "node": 0, "name": "Normal", "start_frame": 0, "pages": 16_384, "present": 16_384, "managed": 16_384,
            "watermarks": {"min": 100, "low": 125, "high": 150}, "per_cpu": null,
            "free_blocks": blocks, "by_type": null, "layout": null, "mapped": null
        }],
        "missing": [{"what": "pins", "why": "no kernel tells"}]
    })
    .to_string()
}

#[test]
fn a_snapshot_is_a_memory_with_assumptions() {
    let run = Run::new();
    run.write("box.json", snapshot(4_096));
    let document = document_of(
        &run,
        "replay",
        "box.json --policy list --size 1M --buffers 2",
    );
    let row = &document["rows"][0];
    assert_eq!(row["workload"], "box.json");
    // 3 x 1,024 of 3 x 1,024 + 7 x 8 free pages are in blocks of order 4 and more.
    let index = number(&row["unusable_before"][4]);
    assert!((index - 56.0 / 3_128.0).abs() < 1e-9, "{index}");
    let mut missing = row["missing"].as_array().unwrap().iter();
    assert!(missing.any(|one| one["what"] == "pins"), "{row}");
    let mut otherwise = row["sensitivity"].as_array().unwrap().iter();
    let pinned = |one: &Value| one["assumption"].as_str().unwrap().contains("pinned");
    assert!(otherwise.any(pinned), "{row}");
    let mut assumed = document["chunks"]["assumptions"].as_array().unwrap().iter();
    assert!(assumed.any(|one| one["value"] == Value::Null));

    let run = Run::new();
    let whole = snapshot(4_096);
    run.write("box.json", &whole);
    run.write("arm.json", snapshot(16_384));
    refused(
        &run,
        "box.json --size 128M",
        &["128M", "box.json has 64 MiB"],
    );
    let arm = ["arm.json", "16 KiB", "the model knows 4 KiB pages only"];
    refused(&run, "arm.json", &arm);
    for length in [whole.len() / 2, whole.len() - 1] {
        run.write("cut.json", &whole[..length]);
        refused(&run, "cut.json", &["cut.json", "cut short"]);
    }
}

/// Long enough that the command is at work, and not done.
const LATER: Duration = Duration::from_millis(1_500);

/// The policy that Ctrl-C found at work is not the best for being the only one.
#[test]
fn an_interrupted_advice_names_no_policy() {
    let run = Run::new();
    let started =
        run.start("advise chunks --buffers 1m --json --device 4K,64K,2M --access rotate-90");
    let document = started
        .interrupt_after(LATER)
        .document("stopgap.advise-1.json");
    let advice = &document["advice"];
    assert_eq!(advice["verdict"]["word"], "inconclusive");
    assert_eq!(advice["policy"], Value::Null);
    let said = "inconclusive: interrupted, 0 of 13 policies compared";
    assert_eq!(advice["verdict"]["text"], said);
}

/// One buffer of 1 GiB by `old` takes minutes of ours in `thread`: the command ends before the buffer is built.
#[test]
fn an_interrupt_is_heard_within_a_buffer() {
    let run = Run::new();
    let started = run.start("replay chunks --size 1G --policy old");
    let done = started.interrupt_after(LATER).ends(1);
    has(&done.err, &["interrupted before anything"]);
}

/// Ctrl-C reports what was built until then.
#[test]
fn an_interrupt_loses_nothing() {
    let run = Run::new();
    let started = run.start("replay chunks --buffers 1m --json");
    let document = started
        .interrupt_after(LATER)
        .document("stopgap.replay-1.json");
    assert_eq!(document["interrupted"], true);
    let rows = document["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.len() < 13, "{}", rows.len());
    assert!(number(&rows[0]["time_ms"]) > 0.0);
}

/// A file that has a scenario's name must be given as `./NAME`.
#[test]
fn a_scenarios_name_wins_over_a_file() {
    let run = Run::new();
    run.write("aged", "not a trace\n");
    run.stopgap("replay chunks aged --policy list").ok();
    let done = run.stopgap("replay chunks ./aged --policy list").ends(1);
    has(&done.err, &["./aged: it is no trace"]);
}

/// Prices that a probe wrote take the place of those that are assumed; each tells where it comes from.
#[test]
fn prices_of_a_machine_are_read_from_a_file() {
    let price = |name: &str, value: f64| json!({"name": name, "value": value, "least": value, "greatest": value});
    let usual = json!({
        "schema": "stopgap.prices/1", "version": "0.1.0", "kernel": null, "started_unix_s": 0, "page_bytes": 4096,
        "prices": [price("clear_page_ns", 1_000.0), price("move_page_ns", 7_000.0)], "strategies": [],
    });
    valid("stopgap.prices-1.json", &usual.to_string());
    let run = Run::new();
    run.write("prices.json", usual.to_string());
    let assumed = document_of(&run, "replay", "unfragmented --buffers 1 --policy one-page");
    let line = "unfragmented --buffers 1 --policy one-page --prices prices.json";
    let priced = document_of(&run, "replay", line);
    let clear = |document: &Value| number(&row(document, "one-page")["time_by_cause_ms"]["clear"]);
    assert!((clear(&assumed) - 0.3072).abs() < 1e-9 && (clear(&priced) - 1.024).abs() < 1e-9);
    let why = |name: &str| {
        let all = priced["chunks"]["assumptions"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == name).unwrap();
        one["why"].as_str().unwrap().to_owned()
    };
    assert_eq!(why("clear"), "fitted by probe chunks: prices.json");
    assert_eq!(why("scan"), "assumed");

    let run = Run::new();
    for (change, value, part) in [
        (
            "/schema",
            json!("stopgap.prices/9"),
            "stopgap.prices/1 is read",
        ),
        ("/page_bytes", json!(16_384), "16 KiB pages"),
        ("/prices/0/name", json!("tea"), "tea of 1000 ns is no price"),
        (
            "/prices/0/value",
            json!(-1.0),
            "clear_page_ns of -1 ns is no price",
        ),
    ] {
        let mut changed = usual.clone();
        *changed.pointer_mut(change).unwrap() = value;
        run.write("changed.json", changed.to_string());
        refused(
            &run,
            "unfragmented --prices changed.json",
            &["--prices", part],
        );
    }
    run.write("prices.json", usual.to_string());
    run.write("text", "1 2 3");
    for (line, parts) in [
        (
            "thread --prices prices.json",
            &["mail 001's machine", "unfragmented"][..],
        ),
        (
            "unfragmented --prices nowhere.json",
            &["--prices nowhere.json", "No such file"],
        ),
        (
            "unfragmented --prices text",
            &["not prices of probe chunks"],
        ),
    ] {
        refused(&run, line, parts);
    }
}
