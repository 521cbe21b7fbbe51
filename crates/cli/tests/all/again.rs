//! `probe QUESTION --again RECORD`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Run, has};

/// The parameters of all series of the first answer about `roundtrip`.
fn cells(record: &str) -> BTreeSet<String> {
    let record: Value = serde_json::from_str(record).unwrap();
    let answers = record["answers"].as_array().unwrap();
    let answer = answers
        .iter()
        .find(|a| a["question"] == "roundtrip")
        .unwrap();
    let series = answer["series"].as_array().unwrap();
    series
        .iter()
        .map(|series| series["parameters"].to_string())
        .collect()
}

#[test]
fn a_probe_measures_again_what_a_record_says() {
    let run = Run::new();
    let line = "probe roundtrip --client poll,read --server epoll --k 1,7 --work 0 --round-trips 20 --runs 2 -d 1s --json";
    let first = run.stopgap(line).ok().out;
    let [record] = &run.records()[..] else {
        panic!("{:?}", run.records());
    };
    let name = record.file_stem().unwrap().to_str().unwrap().to_owned();
    let again = run
        .stopgap(format!("probe roundtrip --again {name} --json --no-record"))
        .ok();
    has(
        &again.err,
        &["the parameters are those of: stopgap probe roundtrip --client poll,read"],
    );
    assert_eq!(cells(&again.out), cells(&first));
    let record: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(record["answers"][0]["parameters"]["runs"], 2);
    // A record of such a run leads to the one before it.
    std::fs::create_dir(run.path("other")).unwrap();
    run.stopgap(format!("probe roundtrip --again {name} -o other"))
        .ok();
    let [other] = &crate::common::records(&run.path("other"))[..] else {
        panic!("no record");
    };
    let line = format!(
        "probe roundtrip --again {} --runs 3 --json --no-record",
        other.display()
    );
    let third = run.stopgap(line).ok().out;
    assert_eq!(cells(&third), cells(&first));

    run.refuses(
        format!("probe wakeup --again {name}"),
        &["no answer about wakeup, only about roundtrip"],
    );
    run.refuses(
        format!("probe roundtrip --again {name} --k 3"),
        &["--again", "--k"],
    );
    run.refuses(
        "probe roundtrip --again nowhere",
        &["nowhere.json: No such file"],
    );
    run.write(
        "bad.json",
        first.replacen("\"roundtrip\",", "\"roundtrip\", \"--nosuch\",", 1),
    );
    run.refuses(
        "probe roundtrip --again bad.json",
        &["does not understand its command line"],
    );
    let words = first.split_once("\"roundtrip\",").unwrap();
    let end = words.1.split_once(']').unwrap().1;
    let circle = format!(
        "{}\"roundtrip\", \"--again\", \"circle.json\"]{end}",
        words.0
    );
    run.write("circle.json", circle);
    run.refuses("probe roundtrip --again circle.json", &["in a circle"]);
}

#[test]
fn a_probe_measures_what_check_asked() {
    let run = Run::new();
    let checked = run
        .stopgap("check --quick --only roundtrip --json")
        .ok()
        .out;
    run.write("check.json", &checked);
    let line = "probe roundtrip --again ./check.json -d 2s --runs 3 --json --no-record";
    let again = run.stopgap(line).ok().out;
    assert_eq!(cells(&again), cells(&checked));
}
