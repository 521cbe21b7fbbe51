//! `stopgap probe wakeup` and `probe reclaim --as-gem-syslatency`, and what reads what they write. As any user.

use crate::common::{Run, has, records};
use serde_json::Value;

/// A probe of 1 s in a folder of its own; the record.
fn probe(run: &Run, name: &str) -> String {
    let screen = run
        .stopgap(format!("probe wakeup -d 1s --runs 3 -o {name}"))
        .ok()
        .out;
    has(&screen, &["\nwakeup: "]);
    let record = records(&run.path(name)).pop().expect("a record");
    record.display().to_string()
}

#[test]
fn records_are_whole_compared_and_drawn() {
    let run = Run::new();
    let [before, after] = ["before", "after"].map(|name| probe(&run, name));
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&before).unwrap()).unwrap();
    let answer = &record["answers"][0];
    assert_eq!(answer["question"], "wakeup");
    let series = &answer["series"][0];
    assert_eq!(series["name"], "wake-up");
    let blocks = series["blocks"].as_array().unwrap().iter();
    let samples: u64 = blocks.map(|b| b["samples"].as_u64().unwrap()).sum();
    // A wake-up a millisecond on every CPU, in three runs of 333 ms: none is left out, however late it is.
    let cpus = record["environment"]["cpus"].as_array().unwrap().len() as u64;
    assert!(samples >= 999 * cpus, "{samples}");

    let compared = run.stopgap(format!("compare {before} {after} --json"));
    let compared = compared.document("stopgap.compare-1.json");
    assert!(
        !compared["endpoints"].as_array().unwrap().is_empty(),
        "{compared}"
    );
    assert!(
        !compared["warnings"].to_string().contains("question"),
        "{compared}"
    );

    run.stopgap(format!("report {before} {after} -o page.html"))
        .ok();
    let drawn = [
        "how late does a thread wake",
        "lateness of a wake-up, by percentile",
        "lateness of a wake-up, run by run",
        "lateness of a wake-up, cpu by cpu",
    ];
    has(&run.read("page.html").to_lowercase(), &drawn);
    let terminal = run.stopgap(format!("report --terminal {before}")).ok().out;
    has(&terminal, &["wakeup: ", "wake-up"]);
}

#[test]
fn numbers_of_the_mails_protocol_are_for_ministat() {
    let run = Run::new();
    for name in ["means", "again"] {
        let line = "probe reclaim --as-gem-syslatency -t 1 -m -f 1";
        let numbers: String = (0..3).map(|_| run.stopgap(line).ok().out).collect();
        for line in numbers.lines() {
            let number = line.parse::<f64>();
            assert!(
                number.is_ok_and(|n| n >= 0.0) && line.contains('.'),
                "{numbers}"
            );
        }
        run.write(name, numbers);
    }
    let record = run.records().pop().expect("a record");
    run.stopgap("ministat means again").ok();
    run.stopgap("compare means again").ok();
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    let answer = &record["answers"][0];
    assert_eq!(answer["series"][0]["name"], "2 MiB allocation");
    let line = answer["evidence"][0].as_str().unwrap();
    assert!(line.starts_with("gem_syslatency: cycles="), "{line}");
}
