//! Records of perf that a running kernel gave, whole and with changed bytes: what the fuzz target
//! asserts.

use std::path::Path;
use std::time::{Duration, Instant};

use stopgap_events::random::Random;

#[path = "../../../fuzz/bodies/perf_records.rs"]
mod body;

/// Linux 6.18: `sh -c "/bin/true; /bin/true | cat"`, switches and samples.
fn fixtures() -> [Vec<u8>; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perf");
    ["perf0.raw", "perf1.raw"].map(|name| std::fs::read(folder.join(name)).unwrap())
}

#[test]
fn changed_bytes_end() {
    let seed = std::env::var("STOPGAP_SEED").map_or(0x9e4f, |seed| seed.parse().unwrap());
    println!("STOPGAP_SEED={seed}");
    let mut random = Random::new(seed);
    let files = fixtures();
    for file in &files {
        assert!(body::run(file) > 0);
    }
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let mut bytes = files[random.index(files.len())].clone();
        for _ in 0..1 + random.below(6) {
            let at = random.index(bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.bits().to_le_bytes()[0],
                2 => bytes[at] = [0, 0xff, 9, 8][random.index(4)],
                _ => bytes.truncate(at.max(1)),
            }
        }
        body::run(&bytes);
    }
}
