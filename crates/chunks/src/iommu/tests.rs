extern crate std;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const SETS: [PageSizes; 3] = [
    PageSizes::K4_M2_G1,
    PageSizes::K4_K64_M1_M16,
    PageSizes::K4_K64_M2,
];
const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M2: u64 = 1 << 21;
const M4: u64 = 1 << 22;

/// The oracle: one entry at a time, every size tried, largest first, with remainders instead
/// of bits. A position is a base page of the list of all base pages.
fn naive(runs: &[Run], sizes: PageSizes, iova: u64) -> Option<Vec<(u64, u64, u64)>> {
    let grain = 4096;
    let pages: Vec<u64> = runs
        .iter()
        .flat_map(|run| (0..run.length / grain).map(|i| run.start + i * grain))
        .collect();
    let mut descending: Vec<u64> = sizes.iter().collect();
    descending.reverse();
    let mut entries = vec![];
    let mut at = 0;
    while at < pages.len() {
        let (here, physical) = (iova + at as u64 * grain, pages[at]);
        let fits = |size: u64| {
            let count = (size / grain) as usize;
            here.is_multiple_of(size)
                && physical.is_multiple_of(size)
                && at + count <= pages.len()
                && (0..count).all(|i| pages[at + i] == physical + i as u64 * grain)
        };
        let size = descending.iter().copied().find(|&size| fits(size))?;
        entries.push((here, physical, size));
        at += (size / grain) as usize;
    }
    Some(entries)
}

fn spread(batches: &[Batch]) -> Vec<(u64, u64, u64)> {
    batches
        .iter()
        .flat_map(|b| (0..b.count).map(|i| (b.iova + i * b.size, b.physical + i * b.size, b.size)))
        .collect()
}

fn total(runs: &[Run], sizes: PageSizes) -> u64 {
    let length = runs.iter().map(|run| run.length).sum();
    let iova = iova_alignment(length).unwrap();
    entries(runs, sizes, iova).unwrap().values().sum()
}

/// A 4 MiB buffer by what it is made of, as measured on a live kernel.
#[test]
fn a_buffer_of_known_chunks_needs_the_known_entries() {
    // Far apart, so that no two chunks join; aligned to their own size.
    let scattered = |chunk: u64| -> Vec<Run> {
        (0..M4 / chunk)
            .map(|i| Run {
                start: (1 << 32) + i * 2 * chunk,
                length: chunk,
            })
            .collect()
    };
    for (chunk, expected) in [
        (K4, [1024, 1024, 1024]),
        (K64, [1024, 64, 64]),
        (M2, [2, 4, 2]),
    ] {
        assert_eq!(SETS.map(|set| total(&scattered(chunk), set)), expected);
    }
    // One run that is not aligned to a large page: every large entry is lost.
    let shifted = [Run {
        start: (1 << 32) + K4,
        length: M4,
    }];
    assert_eq!(SETS.map(|set| total(&shifted, set)), [1024, 1024, 1024]);
}

#[test]
fn a_small_chunk_first_misaligns_what_follows() {
    let (small, large) = (
        Run {
            start: K4,
            length: K4,
        },
        Run {
            start: 1 << 32,
            length: K64,
        },
    );
    let count = |runs: &[Run]| -> u64 {
        let counts = entries(runs, PageSizes::K4_K64_M2, 1 << 30).unwrap();
        counts.values().sum()
    };
    assert_eq!(count(&[large, small]), 2);
    assert_eq!(count(&[small, large]), 17);
}

#[test]
fn a_smallest_page_above_the_base_page_maps_what_it_can() {
    let sizes = PageSizes::new(&[K64, 1 << 25]).unwrap();
    let whole = Run {
        start: 3 * K64,
        length: 2 * K64,
    };
    // Two 32 KiB halves that continue one another are one mappable page.
    let halves = [(0, K64 / 2), (K64 / 2, K64 / 2)].map(|(start, length)| Run { start, length });
    assert_eq!(entries(&[whole], sizes, 0).unwrap()[&K64], 2);
    assert_eq!(entries(&halves, sizes, 0).unwrap()[&K64], 1);
    let odd = Run {
        start: 3 * K64,
        length: K64 + K4,
    };
    let error = map(&[odd], sizes, K64).unwrap_err();
    assert_eq!(
        error,
        MapError::NoPageFits {
            iova: 2 * K64,
            physical: 4 * K64,
            length: K4,
            smallest: K64
        }
    );
    assert!(error.to_string().contains("smallest page has 65536 bytes"));
}

#[test]
fn sets_print_and_wrong_ones_are_refused() {
    assert_eq!(
        SETS.map(|set| set.to_string()),
        ["{4K,2M,1G}", "{4K,64K,1M,16M}", "{4K,64K,2M}"]
    );
    assert_eq!(PageSizes::new(&[]), Err(MapError::BadSizes));
    assert_eq!(PageSizes::new(&[K4, 5000]), Err(MapError::BadSizes));
    assert_eq!(PageSizes::new(&[1 << 63]).unwrap().to_string(), "{8E}");
}

#[test]
fn sets_are_read_as_they_are_printed() {
    for set in SETS {
        assert_eq!(set.to_string().parse(), Ok(set));
        assert_eq!(set.to_string().trim_matches(['{', '}']).parse(), Ok(set));
    }
    assert_eq!("4096, 2m".parse(), Ok(PageSizes::new(&[K4, M2]).unwrap()));
    for wrong in [
        "", "4K,", "4K,3M", "0", "4KB", "-4K", "4é", "{4K", "+4K", "K",
    ] {
        let error = wrong.parse::<PageSizes>().unwrap_err();
        assert!(error.contains("is no power of two"), "{wrong}: {error}");
    }
    for large in ["16E", "4K,16E", "99999999999999999999", "9999999999999G"] {
        let error = large.parse::<PageSizes>().unwrap_err();
        assert!(error.contains("more than 64 bits hold"), "{large}: {error}");
    }
}

#[test]
fn the_ends_of_the_address_space_are_no_panic() {
    let last = Run {
        start: u64::MAX - K4 + 1,
        length: K4,
    };
    assert_eq!(map(&[last], SETS[0], 0), Err(MapError::TooLong));
    let half = Run {
        start: 0,
        length: 1 << 63,
    };
    let huge = PageSizes::new(&[1 << 63]).unwrap();
    assert_eq!(entries(&[half], huge, 0).unwrap()[&(1 << 63)], 1);
    assert_eq!(map(&[half], huge, 1 << 63), Err(MapError::TooLong));
    let upper = Run {
        start: 1 << 63,
        length: M4,
    };
    assert_eq!(entries(&[upper], SETS[0], 0).unwrap()[&M2], 2);
    assert_eq!(iova_alignment(u64::MAX), None);
    assert!(map(&[], huge, 1).unwrap().is_empty());
}

/// Runs in base pages: neighbours that continue, gaps, all alignments up to 32 MiB.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (
        prop_oneof![Just(0u64), 1..40u64, 0..9000u64],
        1..2000u64,
        0..14u32,
    );
    prop::collection::vec(run, 1..8).prop_map(|parts| {
        let mut at = 0;
        parts
            .into_iter()
            .map(|(gap, pages, order)| {
                // A gap of 0 continues the run before, unless the alignment says otherwise.
                let start = if gap == 0 {
                    at
                } else {
                    (at + gap).next_multiple_of(1 << order)
                };
                at = start + pages;
                Run {
                    start: start * K4,
                    length: pages * K4,
                }
            })
            .collect()
    })
}

fn sizes() -> impl Strategy<Value = PageSizes> {
    prop_oneof![
        prop::sample::select(&SETS[..]),
        prop::collection::vec(12..26u32, 1..5).prop_map(|bits| {
            let sizes: Vec<u64> = bits.into_iter().map(|bit| 1 << bit).collect();
            PageSizes::new(&sizes).unwrap()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_are_those_of_the_oracle(
        runs in runs(), sizes in sizes(), iova in 0..20_000u64, order in 0..14u32,
    ) {
        let iova = (iova << order) * K4;
        let ours = map(&runs, sizes, iova);
        match naive(&runs, sizes, iova) {
            None => prop_assert!(matches!(ours, Err(MapError::NoPageFits { .. })), "{ours:?}"),
            Some(expected) => {
                let ours = ours.unwrap();
                prop_assert_eq!(spread(&ours), expected);
                let most = runs.len() * 2 * sizes.iter().count();
                prop_assert!(ours.len() <= most, "{} batches", ours.len());
            }
        }
    }

    /// Said without the oracle: covered exactly, aligned in both spaces.
    #[test]
    fn entries_cover_exactly_and_are_aligned(
        runs in runs(), set in 0..3usize, iova in 0..20_000u64,
    ) {
        let batches = map(&runs, SETS[set], iova * K4).unwrap();
        let mut at = iova * K4;
        let mut bytes = runs.iter().flat_map(|run| (run.start..run.start + run.length).step_by(4096));
        for (here, physical, size) in spread(&batches) {
            prop_assert_eq!(here, at);
            prop_assert!(here.is_multiple_of(size) && physical.is_multiple_of(size));
            for page in (physical..physical + size).step_by(4096) {
                prop_assert_eq!(bytes.next(), Some(page));
            }
            at += size;
        }
        prop_assert_eq!(bytes.next(), None);
    }
}
