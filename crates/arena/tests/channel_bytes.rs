//! A channel whose peer is hostile: what the fuzz target asserts, on random bytes; and one that corrupts every word of the
//! ring while the other side runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use stopgap_arena::Error;

#[path = "../../../fuzz/bodies/channel.rs"]
mod body;

/// From the environment (`STOPGAP_SEED`), otherwise from the clock; printed.
fn random() -> TestRng {
    let given = std::env::var("STOPGAP_SEED").ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = match given {
        Some(text) => text.parse().unwrap(),
        None => u64::from(now.unwrap().subsec_nanos()),
    };
    println!("STOPGAP_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

fn time() -> Duration {
    let seconds = std::env::var("STOPGAP_SOAK_S").map_or(1, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
fn a_channels_peer_of_any_bytes_is_messages_or_an_error() {
    let mut random = random();
    let end = Instant::now() + time();
    let (mut good, mut steps) = (0, 0);
    while steps < 5_000 || Instant::now() < end {
        let length = 6 * (random.next_u32() as usize % 60);
        let mut bytes = vec![0; 1 + length];
        random.fill_bytes(&mut bytes);
        good += body::run(&bytes);
        steps += length / 6;
    }
    println!("{steps} steps, {good} calls of the victim's succeeded");
    assert!(good > steps / 20 && good < steps, "{good} of {steps}");
}

/// Writes of the corruptor.
#[derive(Debug, Clone, Copy)]
struct Write {
    offset: usize,
    value: u32,
    /// Added, so that it is nearly right, rather than stored.
    adds: bool,
}

fn write() -> impl Strategy<Value = Write> {
    let offset = prop_oneof![
        3 => (0..192_usize).prop_map(|word| word * 4), // indices and sides
        1 => (4096..12288_usize).prop_map(|byte| byte / 4 * 4), // messages
    ];
    let value = prop_oneof![any::<u32>(), (0..64_u32).prop_map(|n| n * 8), 0..16_u32];
    (offset, value, any::<bool>()).prop_map(|(offset, value, adds)| Write {
        offset,
        value,
        adds,
    })
}

/// One thread corrupts, another is the victim, both as fast as they can.
fn concurrently(writes: &[Write], of_server: bool) -> Result<(), TestCaseError> {
    let over = AtomicBool::new(false);
    let check = |error: Error| match error {
        Error::Peer { .. } | Error::PeerGone | Error::TimedOut => Ok(()),
        error => Err(TestCaseError::fail(error.to_string())),
    };
    let play = |ask: &mut dyn FnMut(&mut Vec<u8>) -> Result<(), Error>, hostile: &body::Hostile| {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for write in writes {
                        let word = hostile.word(write.offset);
                        match write.adds {
                            true => drop(word.fetch_add(write.value, Ordering::Relaxed)),
                            false => word.store(write.value, Ordering::Relaxed),
                        }
                    }
                }
            });
            let mut got = Vec::new();
            let end = Instant::now() + Duration::from_millis(3);
            let mut result = Ok(());
            while result.is_ok() && Instant::now() < end {
                result = ask(&mut got);
                if got.len() > 4088 {
                    result = Err(Error::Invalid {
                        what: "longer than the ring",
                    });
                }
            }
            over.store(true, Ordering::Relaxed);
            result
        })
    };
    let limit = Some(Duration::from_micros(200));
    let result = if of_server {
        let (mut server, hostile) = body::server();
        play(
            &mut |got| match server
                .recv(got, limit)
                .and_then(|()| server.send(got, limit))
            {
                Err(Error::TimedOut) => Ok(()),
                result => result,
            },
            &hostile,
        )
    } else {
        let (mut client, hostile) = body::client();
        play(
            &mut |got| match client.call(&[9; 100], got, limit) {
                Err(Error::TimedOut) => Ok(()),
                result => result,
            },
            &hostile,
        )
    };
    result.or_else(check)
}

#[test]
fn a_channel_that_is_corrupted_while_it_is_used_is_messages_or_an_error() {
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig {
            cases: 200 * u32::try_from(time().as_secs()).unwrap(),
            failure_persistence: None,
            ..ProptestConfig::default()
        },
        random(),
    );
    let cases = (prop::collection::vec(write(), 1..12), any::<bool>());
    runner
        .run(&cases, |(writes, of_server)| {
            concurrently(&writes, of_server)
        })
        .unwrap();
    // Every word of the header, and of both ways, by itself.
    let words = (0..192)
        .map(|word| word * 4)
        .chain((4096..12288).step_by(64));
    for offset in words {
        for (value, adds) in [(u32::MAX, false), (8, true), (0, false)] {
            let write = Write {
                offset,
                value,
                adds,
            };
            if adds || offset < 768 {
                concurrently(&[write], offset % 8 == 0).unwrap();
            }
        }
    }
}
