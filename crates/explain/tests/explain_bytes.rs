//! Explains random events, with the assertions of the fuzz target.

use stopgap_events::random::Random;

#[path = "../../../fuzz/bodies/explain.rs"]
mod body;

/// Traces of up to 500 events.
#[test]
fn any_events_add_up() {
    let number = |name, or| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let (seed, rounds) = (number("STOPGAP_SEED", 1), number("STOPGAP_ROUNDS", 200));
    println!("STOPGAP_SEED={seed} STOPGAP_ROUNDS={rounds}");
    let mut random = Random::new(seed);
    let mut events = 0;
    for _ in 0..rounds {
        let length = random.index(3_000);
        let bytes = (0..length).map(|_| random.bits().to_le_bytes()[0]);
        events += body::run(&bytes.collect::<Vec<u8>>());
    }
    assert!(events as u64 > 50 * rounds, "{events}");
}
