//! How much room the memory takes.

use stopgap_events::random::Random;

use crate::chunks::buddy::{Buddy, Mobility, ORDERS, Use};

/// A byte a page, 16 a free block, and 48 KiB, of which the types of 32,768 blocks are 32.
fn assert_small(buddy: &Buddy, when: &str) {
    let blocks: u64 = (0..ORDERS as u32).map(|o| buddy.free_blocks(o)).sum();
    let most = buddy.pages() + 16 * blocks + (48 << 10);
    let bytes = buddy.bytes() as u64;
    assert!(bytes <= most, "{when}: {bytes} bytes, at most {most}");
}

/// The largest memory, all of its blocks as small as can be, and whole again.
#[test]
fn every_other_page_of_64_gib_free() {
    let mut buddy = Buddy::new(Buddy::MOST_PAGES, Use::Movable).unwrap();
    assert_small(&buddy, "nothing free");
    for frame in (0..buddy.pages()).step_by(2) {
        buddy.free(frame, 0).unwrap();
        if frame.is_multiple_of(1 << 20) {
            assert_small(&buddy, "freeing");
        }
    }
    assert_eq!(buddy.free_blocks(0), Buddy::MOST_PAGES / 2);
    assert_small(&buddy, "every other page free");
    for frame in (1..buddy.pages()).step_by(2) {
        buddy.free(frame, 0).unwrap();
    }
    assert_eq!(buddy.free_blocks(10), Buddy::MOST_PAGES >> 10);
    assert_small(&buddy, "all free");
}

/// Fills and empties 1 GiB again and again in random order; at all times.
#[test]
fn churn_leaves_nothing_behind() {
    let seed = 7;
    let mut random = Random::new(seed);
    let mut buddy = Buddy::all_free(1 << 18).unwrap();
    let mut held = Vec::new();
    for round in 0..8 {
        let when = format!("seed {seed}, round {round}");
        loop {
            let mobility = Mobility::ALL[random.index(2)];
            let order = random.below(4) as u32;
            let Some(frame) = buddy.allocate(order, mobility, Use::Reclaimable) else {
                break;
            };
            held.push((frame, order));
        }
        assert_small(&buddy, &when);
        random.shuffle(&mut held);
        let kept = held.len() * (round % 4) / 4;
        for (count, (frame, order)) in held.drain(kept..).enumerate() {
            buddy.free(frame, order).unwrap();
            if count.is_multiple_of(1 << 10) {
                assert_small(&buddy, &when);
            }
        }
        assert_small(&buddy, &when);
    }
    buddy.check().unwrap();
}
