//! Random bytes as steps on the memory model: what the fuzz target asserts.

use stopgap_events::random::Random;

#[path = "../../../fuzz/bodies/buddy.rs"]
mod body;

#[test]
fn any_bytes_do_as_on_the_naive_memory() {
    let given = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (seed, most) = (given("STOPGAP_SEED", 1), given("STOPGAP_ROUNDS", 50_000));
    println!("STOPGAP_SEED={seed}");
    let mut random = Random::new(seed);
    let (mut done, mut steps) = (0, 0);
    while steps < most as usize {
        let length = 5 * random.index(200);
        let bytes: Vec<u8> = (0..3 + length).map(|_| random.bits() as u8).collect();
        done += body::run(&bytes);
        steps += length / 5;
    }
    println!("{done} of {steps} steps could be carried out");
    assert!(done > steps / 4 && done < steps, "{done} of {steps}");
}
