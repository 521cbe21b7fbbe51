extern crate std;

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::iommu::entries;

const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M2: u64 = 1 << 21;

fn count(runs: &[Run], sizes: PageSizes, iova: u64) -> u64 {
    entries(runs, sizes, iova).unwrap().values().sum()
}

/// ```text
///  frames   0 1 .. 16 .. 31 32      (4 KiB)
///             A    BBBBBBBB          the device sees A, then B
/// ```
#[test]
fn a_small_chunk_first_moves_the_start_to_64k_less_4k() {
    let small = Run {
        start: K4,
        length: K4,
    };
    let large = Run {
        start: K64,
        length: K64,
    };
    let runs = [small, large];
    assert_eq!(best_offset(&runs, PageSizes::K4_K64_M2), Ok(K64 - K4));
    assert_eq!(count(&runs, PageSizes::K4_K64_M2, 0), 17);
    assert_eq!(count(&runs, PageSizes::K4_K64_M2, K64 - K4), 2);
}

#[test]
fn where_no_offset_helps_it_is_0() {
    let scattered: Vec<Run> = (0..100)
        .map(|i| Run {
            start: 3 * i * K4,
            length: K4,
        })
        .collect();
    assert_eq!(best_offset(&scattered, PageSizes::K4_K64_M2), Ok(0));
    assert_eq!(best_offset(&[], PageSizes::K4_K64_M2), Ok(0));
    let only = PageSizes::new(&[K4]).unwrap();
    assert_eq!(best_offset(&scattered, only), Ok(0));
}

/// 64 KiB at an odd place of its 2 MiB is mapped as 64 KiB anywhere: the offset that also agrees modulo 2
/// MiB is larger and saves nothing.
#[test]
fn of_equal_offsets_it_is_the_smallest() {
    let run = Run {
        start: 7 * K64,
        length: K64,
    };
    assert_eq!(best_offset(&[run], PageSizes::K4_K64_M2), Ok(0));
}

#[test]
fn what_can_be_mapped_nowhere_is_said() {
    let sizes = PageSizes::new(&[K64, M2]).unwrap();
    let odd = Run {
        start: K4,
        length: K64,
    };
    assert!(matches!(
        best_offset(&[odd], sizes),
        Err(MapError::NoPageFits { .. })
    ));
    let last = Run {
        start: u64::MAX - K64 + 1,
        length: K64,
    };
    assert_eq!(best_offset(&[last], sizes), Err(MapError::TooLong));
    // Each has its addresses, but together they are longer than any address.
    let half = Run {
        start: 0,
        length: 1 << 63,
    };
    let sizes = PageSizes::new(&[K4, 1 << 62]).unwrap();
    assert_eq!(best_offset(&[half, half], sizes), Err(MapError::TooLong));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The oracle tries every offset.
    #[test]
    fn no_offset_needs_fewer_entries_and_no_smaller_one_as_few(
        parts in prop::collection::vec((0..40u64, 1..80u64, 0..8u32), 1..10),
        set in 0..3usize,
    ) {
        let sets: [&[u64]; 3] = [&[K4, K64], &[K4, 1 << 14, 1 << 17], &[K4, 1 << 13, K64, 1 << 18]];
        let sizes = PageSizes::new(sets[set]).unwrap();
        let runs: Vec<Run> = parts
            .iter()
            .map(|&(start, pages, order)| Run { start: (start << order) * K4, length: pages * K4 })
            .collect();
        let offsets = (0..sizes.largest()).step_by(K4 as usize);
        let all: Vec<(u64, u64)> = offsets.map(|offset| (count(&runs, sizes, offset), offset)).collect();
        let (_, expected) = *all.iter().min().unwrap();
        prop_assert_eq!(best_offset(&runs, sizes).unwrap(), expected);
    }
}
