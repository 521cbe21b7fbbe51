//! Captures from the running kernel, skipped where it refuses; and what a kernel wrote, whole and with changed bytes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_testing::{Skip, skip};

mod address_space;
mod live;
mod page_bytes;
mod perf_bytes;
mod perf_live;
mod same_waits;
mod waits_live;

/// A command that has not ended after so long hangs: a busy machine may take a hundred times what a quiet one takes.
const A_HANG: Nanos = Nanos::secs(300);

/// Lets one capture run at a time: instances are named by process, and one's load is another's delay.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what a capture needs, or skips the test where this machine refuses it.
fn or_skip<T>(prepared: stopgap_tracer::Result<T>) -> Option<T> {
    match prepared {
        Ok(prepared) => Some(prepared),
        Err(stopgap_tracer::Error::System(error)) => {
            skip(&Skip::machine(&error));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs `body` on copies of the files with changed bytes; `odd` are bytes that matter in them.
fn run_changed(files: &[Vec<u8>], odd: [u8; 4], mut body: impl FnMut(&[u8])) {
    let (seed, rounds) = seed_and_rounds(1, 3_000);
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        let mut bytes = files[random.index(files.len())].clone();
        for _ in 0..1 + random.below(6) {
            let at = random.index(bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.bits().to_le_bytes()[0],
                2 => bytes[at] = odd[random.index(4)],
                _ => bytes.truncate(at.max(1)),
            }
        }
        body(&bytes);
    }
}

/// Returns the seed and the number of rounds of a test with random bytes: `STOPGAP_SEED` and `STOPGAP_ROUNDS`, or these.
/// Both are printed.
fn seed_and_rounds(seed: u64, rounds: u64) -> (u64, u64) {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = given("STOPGAP_SEED").unwrap_or(seed);
    let rounds = given("STOPGAP_ROUNDS").unwrap_or(rounds);
    println!("STOPGAP_SEED={seed} STOPGAP_ROUNDS={rounds}");
    (seed, rounds)
}
