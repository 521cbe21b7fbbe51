//! What must hold of any steps on the memory model. Shared by the fuzz target and by
//! `crates/models/tests/buddy_bytes.rs`, which runs it on random bytes.

use stopgap_models::chunks::buddy::oracle::{Pair, Step};
use stopgap_models::chunks::buddy::{Mobility, Use};

/// Bytes of one step: what, order, which, and two of the frame.
const STEP: usize = 5;

/// More pages than these make a case slow, and nothing new happens in them.
const MOST_PAGES: u64 = 3_000;

/// Three bytes say how many pages the memory has and what they are; the rest are steps. The model and the naive one
/// answer alike, and every invariant holds. Gives back how many steps could be carried out.
pub(crate) fn run(bytes: &[u8]) -> usize {
    let Some((&[low, high, first], steps)) = bytes.split_first_chunk() else {
        return 0;
    };
    let pages = 1 + u64::from(u16::from_le_bytes([low, high])) % MOST_PAGES;
    let of = Use::ALL.get(usize::from(first) % (Use::ALL.len() + 1));
    let pair = Pair::new(pages, of.copied()).unwrap();
    let mut pair = if first >= 128 { pair.of_3_14() } else { pair };
    let mut done = 0;
    for (place, bytes) in steps.chunks_exact(STEP).enumerate() {
        let step = step(bytes, pages);
        let answer = pair.step(step);
        let answer = answer.unwrap_or_else(|what| panic!("{pages} pages, step {place}: {what}"));
        done += usize::from(answer.is_ok());
        if place.is_multiple_of(64) {
            pair.compare().unwrap();
        }
    }
    pair.compare().unwrap();
    done
}

fn step(bytes: &[u8], pages: u64) -> Step {
    let order = u32::from(bytes[1]) % 12;
    let mobility = Mobility::ALL[usize::from(bytes[2]) % Mobility::ALL.len()];
    let of = Use::ALL[usize::from(bytes[2]) / Mobility::ALL.len() % Use::ALL.len()];
    // One frame in some is beyond the memory.
    let frame = u64::from(u16::from_le_bytes([bytes[3], bytes[4]])) % (pages + pages / 16 + 1);
    match bytes[0] % 8 {
        0 | 1 => Step::Take(order, mobility, of),
        2 | 3 => Step::Give(frame >> order << order, order),
        4 => Step::Give(frame, 0),
        5 => Step::TakeAt(frame, of),
        6 => Step::SetUse(frame, of),
        _ => Step::SetBlock(frame, mobility),
    }
}
