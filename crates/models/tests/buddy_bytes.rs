//! Random bytes as steps on the memory model: what the fuzz target asserts.

use std::time::{Duration, Instant};

use stopgap_events::random::Random;

#[path = "../../../fuzz/bodies/buddy.rs"]
mod body;

/// From the environment (`STOPGAP_SEED`), otherwise from the clock; printed.
fn seed() -> u64 {
    let given = std::env::var("STOPGAP_SEED").ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = match given {
        Some(text) => text.parse().unwrap(),
        None => u64::from(now.unwrap().subsec_nanos()),
    };
    println!("STOPGAP_SEED={seed}");
    seed
}

#[test]
fn any_bytes_do_as_on_the_naive_memory() {
    let mut random = Random::new(seed());
    let time = std::env::var("STOPGAP_SOAK_S").map_or(1, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(time);
    let (mut done, mut steps) = (0, 0);
    while steps < 5_000 || Instant::now() < end {
        let length = 5 * random.index(200);
        let bytes: Vec<u8> = (0..3 + length).map(|_| random.bits() as u8).collect();
        done += body::run(&bytes);
        steps += length / 5;
    }
    println!("{done} of {steps} steps could be carried out");
    assert!(done > steps / 4 && done < steps, "{done} of {steps}");
}
