//! 60 run records of a million samples each: read and compared in under 5 s.

use std::time::Instant;

use serde_json::json;
use stopgap_events::random::Random;
use stopgap_stats::compare::{Options as How, Side, compare};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::read::{Options, compatible, read};

const RECORDS: usize = 60;
const SAMPLES: u64 = 1_000_000;

/// A record of one run: a body around a microsecond, and some 60 stalls of up to a second.
fn record(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut recorder = Recorder::new(1_000_000);
    for i in 0..SAMPLES {
        let bits = random.bits();
        let ns = match bits % 16_384 {
            0 => 1_000_000 + (bits >> 34),
            _ => 800 + (bits >> 20) % 400 + (bits >> 40) % 97 * ((bits >> 50) % 53),
        };
        recorder.record(i * 2_000_000_000, ns);
    }
    let block = recorder.into_block(0, 0).unwrap();
    let environment = json!({
        "host": "a", "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    let series = json!([{"name": "map", "unit": "ns", "parameters": {"n": 40_000}, "blocks": [block], "error": null}]);
    let record = json!({
        "schema": "stopgap.run/1", "environment": environment,
        "answers": [{"question": "placement", "parameters": {"workload": "frag"}, "series": series}],
    });
    record.to_string().into_bytes()
}

#[test]
fn sixty_records_of_a_million_samples() {
    // What is timed is reading and comparing, so some records are made and each is read several times.
    let made: Vec<Vec<u8>> = (1..=6).map(record).collect();
    let begin = Instant::now();
    let files: Vec<_> = (0..RECORDS)
        .map(|number| read(&made[number % made.len()], &Options::default()).unwrap())
        .collect();
    let in_reading = begin.elapsed();
    let named: Vec<_> = files.iter().map(|file| ("record", file)).collect();
    assert_eq!(compatible(&named), Ok(Vec::new()));
    let side = |files: &[stopgap_stats::read::Read]| Side {
        name: "side".to_owned(),
        runs: files.iter().flat_map(|file| file.runs.clone()).collect(),
    };
    let (before, after) = files.split_at(RECORDS / 2);
    let comparison = compare(&side(before), &side(after), &How::default());
    let all = begin.elapsed();
    let size: usize = made.iter().map(Vec::len).sum::<usize>() / made.len();
    println!("60 records of {size} bytes: read in {in_reading:.2?}, compared after {all:.2?}");
    assert_eq!(comparison.endpoints.len(), 5, "{:?}", comparison.missing);
    assert!(all.as_secs_f64() < 5.0, "{all:?}");
}
