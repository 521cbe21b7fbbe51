//! Random events explained: what the fuzz target asserts.

use std::time::{Duration, Instant};

use stopgap_events::random::Random;

#[path = "../../../fuzz/bodies/explain.rs"]
mod body;

#[test]
fn any_events_add_up() {
    let seed = std::env::var("STOPGAP_SEED").ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = match seed {
        Some(text) => text.parse().unwrap(),
        None => u64::from(now.unwrap().subsec_nanos()),
    };
    println!("STOPGAP_SEED={seed}");
    let mut random = Random::new(seed);
    let time = std::env::var("STOPGAP_SOAK_S").map_or(1, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(time);
    let mut events = 0;
    while Instant::now() < end {
        let length = random.index(3_000);
        let bytes: Vec<u8> = (0..length)
            .map(|_| random.bits().to_le_bytes()[0])
            .collect();
        events += body::run(&bytes);
    }
    println!("{events} events");
    assert!(events > 1_000, "{events}");
}
