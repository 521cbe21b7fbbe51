//! Files that other programs make now, read back: cyclictest (Debian's rt-tests) and hyperfine.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stopgap_stats::read::{Format, Options, Read, compatible, read};
use stopgap_testing::{Skip, skip};

/// A program's standard output; `None`, with a message, where the program is missing or cannot run here.
fn output(program: &str, words: &[&str]) -> Option<String> {
    let why = match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => {
            return Some(String::from_utf8(output.stdout).expect("it writes text"));
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let why = why.lines().next().unwrap_or_default().to_owned();
    skip(&Skip::program(format!("{program}: {why}")));
    None
}

fn usual(text: &str) -> Read {
    read(text.as_bytes(), &Options::default()).expect("what the program made")
}

fn document(path: &Path) -> (String, Value) {
    let text = std::fs::read_to_string(path).expect("it was written");
    let value = serde_json::from_str(&text).expect("it is JSON");
    (text, value)
}

/// One run of it, written in both of its forms: they read as the same, and as what its own figures say.
#[test]
fn cyclictest_reads_as_what_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("a.json");
    let flag = format!("--json={}", json.display());
    // A histogram that is long enough for a busy machine.
    let words = [
        "-q", "-l", "300", "-i", "1000", "-t", "2", "-h", "100000", &flag,
    ];
    let Some(printed) = output("cyclictest", &words) else {
        return;
    };
    let (text, said) = document(&json);
    let (printed, kept) = (usual(&printed), usual(&text));
    assert_eq!(
        (printed.format, kept.format),
        (Format::Cyclictest, Format::Cyclictest)
    );
    assert_eq!(kept.parameters["interval"], "1000");
    assert_eq!(kept.parameters["threads"], "2");
    assert_eq!(printed.runs[0], kept.runs[0]);
    // Unless the machine was so busy that every wake-up was late.
    if !printed.unit.is_empty() {
        assert!(compatible(&[("a", &printed), ("b", &kept)]).is_ok());
    }

    // All samples of both threads, one after the other.
    let threads = said["thread"].as_object().expect("threads");
    let mut samples: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut cycles, mut longest) = (0, 0);
    for thread in threads.values() {
        cycles += thread["cycles"].as_u64().expect("a count");
        longest = longest.max(thread["max"].as_u64().expect("a time"));
        for (time, count) in thread["histogram"].as_object().expect("counts") {
            let time = time.parse().expect("a time");
            *samples.entry(time).or_default() += count.as_u64().expect("a count");
        }
    }
    let mut all: Vec<u64> = Vec::new();
    for (&time, &count) in &samples {
        all.extend(std::iter::repeat_n(
            time,
            usize::try_from(count).expect("few"),
        ));
    }
    let run = &kept.runs[0];
    let (max, middle) = (
        longest as f64,
        all[usize::try_from(cycles).expect("few").div_ceil(2) - 1] as f64,
    );
    assert_eq!(run.max, Some(max));
    assert_eq!(run.median, Some(middle), "{cycles} cycles");

    let Some(printed) = output("cyclictest", &["-q", "-l", "50", "-i", "1000"]) else {
        return;
    };
    let average = usual(&printed);
    assert!(average.runs[0].numbers["average"] > 0.0 && average.runs[0].median.is_none());
}

#[test]
fn hyperfine_reads_as_what_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("a.json");
    let place = json.display().to_string();
    let words = [
        "-N",
        "-w",
        "1",
        "-r",
        "5",
        "--export-json",
        &place,
        "sleep 0.001",
        "sleep 0.002",
    ];
    if output("hyperfine", &words).is_none() {
        return;
    }
    let (text, said) = document(&json);
    for command in said["results"].as_array().expect("results") {
        let name = command["command"].as_str().expect("a name");
        let options = Options {
            series: Some(name.to_owned()),
            ..Options::default()
        };
        let one = read(text.as_bytes(), &options).expect("what it made");
        let times: Vec<f64> = one.runs.iter().map(|run| run.numbers["elapsed"]).collect();
        assert_eq!((one.format, times.len()), (Format::Hyperfine, 5));
        let mean = times.iter().sum::<f64>() / 5.0;
        let theirs = command["mean"].as_f64().expect("a mean");
        assert!((mean / theirs - 1.0).abs() < 1e-9, "{mean} {theirs}");
        assert!(
            times.iter().all(|time| (0.001..60.0).contains(time)),
            "{times:?}"
        );
    }
}
