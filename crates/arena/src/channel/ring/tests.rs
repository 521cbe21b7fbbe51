//! The ring against a queue, in memory of our own.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::channel::own_memory::Own;

type Shared = Arc<Own>;

const CAPACITY: u32 = 256;

/// Both sides of a ring whose indices begin at `start`.
fn rings(start: u32) -> [Ring<Shared>; 2] {
    let own = Arc::new(Own::new(start, CAPACITY / WORD));
    [SERVER, CLIENT].map(|me| {
        let mut ring = Ring::new(Arc::clone(&own), me);
        (ring.tail, ring.their_head, ring.head, ring.their_tail) = (start, start, start, start);
        ring
    })
}

fn pop(ring: &mut Ring<Shared>) -> Option<(Vec<u8>, u32)> {
    let front = ring.front().unwrap()?;
    let mut message = vec![0xee; front.length as usize];
    ring.pop(&mut message);
    Some((message, front.fds))
}

#[derive(Debug, Clone)]
enum Step {
    Push(usize, Vec<u8>, u32),
    Pop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let message = prop::collection::vec(any::<u8>(), 0..CAPACITY as usize + 8);
    prop_oneof![
        (0..2_usize, message, 0..=MOST_FDS)
            .prop_map(|(side, bytes, fds)| Step::Push(side, bytes, fds)),
        (0..2_usize).prop_map(Step::Pop),
    ]
}

proptest! {
    /// Both ways do as two queues of `CAPACITY` bytes, wherever the indices begin: also where they pass 2^32.
    #[test]
    fn it_does_as_a_queue(
        steps in prop::collection::vec(step(), 0..200),
        start in prop_oneof![Just(0), (0..64_u32).prop_map(|n| (n * WORD).wrapping_neg()), any::<u32>().prop_map(|n| n & !7)],
    ) {
        let mut rings = rings(start);
        let mut queues = [const { VecDeque::<(Vec<u8>, u32)>::new() }; 2];
        for step in steps {
            match step {
                Step::Push(side, bytes, fds) => {
                    let queue = &mut queues[1 - side];
                    let used: usize = queue.iter().map(|(m, _)| 8 + m.len().div_ceil(8) * 8).sum();
                    let fits = used + 8 + bytes.len().div_ceil(8) * 8 <= CAPACITY as usize;
                    prop_assert_eq!(rings[side].push(&bytes, fds).unwrap(), fits);
                    if fits {
                        queue.push_back((bytes, fds));
                    }
                }
                Step::Pop(side) => prop_assert_eq!(pop(&mut rings[side]), queues[side].pop_front()),
            }
        }
        for side in [SERVER, CLIENT] {
            while let Some(expected) = queues[side].pop_front() {
                prop_assert_eq!(pop(&mut rings[side]), Some(expected));
            }
            prop_assert_eq!(pop(&mut rings[side]), None);
        }
    }

    /// Whatever a hostile peer leaves in the indices and in the words, there is an error or a message within the ring.
    #[test]
    fn nonsense_is_an_error_or_a_message(
        indices in prop::array::uniform2(any::<u32>()),
        near in prop::option::of((0..=CAPACITY / 8 + 2).prop_map(|n| n * 8)),
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0..600_u64], 32),
        start in any::<u32>().prop_map(|n| n & !7),
    ) {
        let [mut server, client] = rings(start);
        let header = client.memory.header();
        let [tail, head] = match near {
            Some(near) => [start.wrapping_add(near), start.wrapping_add(near)],
            None => indices,
        };
        header.ways[SERVER].tail.0.store(tail, Ordering::Relaxed);
        header.ways[CLIENT].head.0.store(head, Ordering::Relaxed);
        for (place, word) in client.memory.words(SERVER).iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let unread = tail.wrapping_sub(start);
        match server.front() {
            Ok(None) => prop_assert_eq!(unread, 0),
            Ok(Some(front)) => {
                prop_assert!(footprint(front.length) <= unread && unread <= CAPACITY);
                prop_assert!(front.fds <= MOST_FDS);
                server.pop(&mut vec![0; front.length as usize]);
            }
            Err(error) => prop_assert!(matches!(error, Error::Peer { .. }), "{}", error),
        }
        // Nothing was written yet, so nothing can have been read.
        let room = server.room(CAPACITY + 8);
        prop_assert_eq!(room.is_err(), head != start);
        // Whatever it is, it is never more than there is.
        prop_assert_eq!(server.push(&[1; CAPACITY as usize + 1], 0), Ok(false));
    }
}

#[test]
fn a_wake_up_is_owed_once_and_only_to_who_waits_for_it() {
    let [mut server, mut client] = rings(0);
    client.falls_asleep(sleep::MESSAGE | sleep::FUTEX);
    assert_eq!(server.sleeper(), None, "nothing happened");
    for _ in 0..5 {
        assert!(server.push(b"reply", 0).unwrap());
    }
    assert_eq!(server.sleeper(), Some(sleep::MESSAGE | sleep::FUTEX));
    assert!(server.push(b"reply", 0).unwrap());
    assert_eq!(server.sleeper(), None, "it is awake");
    assert_eq!(client.is_awake(), sleep::AWAKE, "the server has said so");

    client.falls_asleep(sleep::ROOM | sleep::SOCKET);
    assert!(server.push(b"reply", 0).unwrap());
    assert_eq!(server.sleeper(), None, "it waits for room");
    assert!(client.push(b"request", 0).unwrap());
    assert!(pop(&mut server).is_some());
    assert_eq!(server.sleeper(), Some(sleep::ROOM | sleep::SOCKET));
}

#[test]
fn the_peer_may_take_back_neither_what_it_read_nor_where_it_stands() {
    let [mut server, mut client] = rings(0);
    for _ in 0..4 {
        assert!(client.push(&[7; 40], 0).unwrap());
    }
    assert!(pop(&mut server).is_some());
    assert!(pop(&mut server).is_some());
    client.look_at_head().unwrap();
    let memory = Arc::clone(&client.memory);
    let head = &memory.header().ways[SERVER].head.0;
    for nonsense in [48, 97, 4 * 48 + 8, u32::MAX, 1 << 31] {
        head.store(nonsense, Ordering::Relaxed);
        assert!(
            matches!(client.look_at_head(), Err(Error::Peer { .. })),
            "{nonsense}"
        );
    }
    head.store(96, Ordering::Relaxed);
    client.look_at_head().unwrap();
}

/// For the thread sanitizer, too: both sides in one memory, at the same addresses, which two mappings of a file are not.
#[test]
fn two_threads_see_what_the_other_wrote() {
    const COUNT: u32 = 2_000;
    let [mut server, mut client] = rings(u32::MAX - 4095);
    let bytes = |number: u32| -> Vec<u8> {
        let length = number.wrapping_mul(0x9e37_79b9) >> 26;
        (0..length).map(|at| (number + at) as u8).collect()
    };
    let sending = std::thread::spawn(move || {
        for number in 0..COUNT {
            while !client.push(&bytes(number), number % 17).unwrap() {
                std::thread::yield_now();
            }
        }
    });
    for number in 0..COUNT {
        let message = loop {
            match pop(&mut server) {
                Some(message) => break message,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(message, (bytes(number), number % 17));
    }
    sending.join().unwrap();
}
