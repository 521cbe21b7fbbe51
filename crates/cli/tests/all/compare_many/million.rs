//! A record of a million samples, to measure how long a comparison of many takes.

use serde_json::json;
use stopgap_events::random::Random;
use stopgap_stats::histogram::Recorder;

const SAMPLES: u64 = 1_000_000;

/// A record of one run: a body around a microsecond, and some 60 stalls of up to a second.
pub(crate) fn record(seed: u64) -> Vec<u8> {
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
