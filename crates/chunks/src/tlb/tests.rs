extern crate std;

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::iommu::{Run, map};

const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M2: u64 = 1 << 21;
const M4: u64 = 1 << 22;
const IOVA: u64 = 1 << 30;

/// 4 MiB or more in chunks of `size` bytes, none beside another.
fn plan(bytes: u64, size: u64) -> Vec<Batch> {
    let run = |i| Run {
        start: (1 << 32) + 2 * i * size,
        length: size,
    };
    let runs: Vec<Run> = (0..bytes.div_ceil(size)).map(run).collect();
    map(&runs, PageSizes::K4_K64_M2, IOVA).unwrap()
}

fn misses(tlb: &Tlb, bytes: u64, size: u64, pitch: u64, access: Access) -> u64 {
    let image = Image { bytes, pitch };
    let traffic = tlb.read(&plan(bytes, size), image, access).unwrap();
    assert_eq!(traffic.misses.len(), 1); // one page size only
    assert_eq!(traffic.cost_ns, traffic.total() * tlb.walk_ns);
    traffic.total()
}

/// The thread's disagreement, on 4 MiB of 1024 x 1024 pixels: 65,536 accesses.
///
/// ```text
///  linear     each page is read to its end before the next one: as many misses as pages
///  rotate-90  a column crosses all 1,024 rows. A row is 4 KiB: 1,024 pages for 64 entries, 64 of 64 KiB for 32
///             entries: of each page nothing is left when the next column comes. Two pages of 2 MiB always fit.
/// ```
#[test]
fn reading_in_one_direction_does_not_care_and_rotation_does() {
    let tlb = Tlb::assumed(PageSizes::K4_K64_M2);
    let of = |access| [K4, K64, M2].map(|size| misses(&tlb, M4, size, 4096, access));
    assert_eq!(of(Access::Linear), [1024, 64, 2]);
    assert_eq!(of(Access::Rotate90), [65_536, 64 * 64, 2]);
    let random = of(Access::Random { seed: 1 });
    // 64 of 1,024 pages are there, 32 of 64, both of 2: 15/16 and 1/2 of the accesses miss.
    assert!((60_500..62_500).contains(&random[0]), "{random:?}");
    assert!((32_000..33_600).contains(&random[1]), "{random:?}");
    assert_eq!(random[2], 2);
}

/// Misses an access, with half and with twice the entries: what of the verdict depends on the assumption.
#[test]
fn what_64k_is_worth_in_rotation_depends_on_the_entries() {
    let assumed = Tlb::assumed(PageSizes::K4_K64_M2);
    let of = |entries, size| {
        let tlb = assumed.scaled(entries, Factor::Same);
        misses(&tlb, M4, size, 4096, Access::Rotate90)
    };
    let by_entries = |size| Factor::ALL.map(|entries| of(entries, size));
    assert_eq!(by_entries(K4), [65_536; 3]); // 4 KiB: every access misses, whatever is assumed
    assert_eq!(by_entries(K64), [4096, 4096, 64]); // 64 entries hold all 64 pages
    assert_eq!(by_entries(M2), [2; 3]);
}

/// Full HD, 7,680 bytes a row, which begin on no page: 8.1 MiB.
#[test]
fn a_full_hd_image_keeps_the_direction() {
    let tlb = Tlb::assumed(PageSizes::K4_K64_M2);
    let (bytes, accesses) = (7680 * 1080, 7680 * 1080 / 64);
    let of = |size, access| misses(&tlb, bytes, size, 7680, access);
    assert_eq!(of(K4, Access::Linear), 2025);
    assert_eq!(of(K64, Access::Linear), 127);
    assert_eq!(of(K4, Access::Rotate90), accesses);
    let k64 = of(K64, Access::Rotate90);
    assert!((accesses / 10..accesses / 8).contains(&k64), "{k64}");
    assert_eq!(of(M2, Access::Rotate90), 4);
}

#[test]
fn assumptions_are_varied_and_never_vanish() {
    let tlb = Tlb {
        entries: [(K4, 1), (K64, 3), (M2, u32::MAX), (1 << 30, 0)].into(),
        walk_ns: u64::MAX,
    };
    let half = tlb.scaled(Factor::Half, Factor::Half);
    assert_eq!(half.entries[&K4], 1);
    assert_eq!(half.entries[&K64], 1);
    assert_eq!(half.entries[&(1 << 30)], 0); // what is missing is not invented
    let double = tlb.scaled(Factor::Double, Factor::Double);
    assert_eq!((double.entries[&M2], double.walk_ns), (u32::MAX, u64::MAX));
    assert_eq!(tlb.scaled(Factor::Same, Factor::Same), tlb);
    let image = Image {
        bytes: K64,
        pitch: 64,
    };
    let dear = tlb.read(&plan(K64, K4), image, Access::Linear).unwrap();
    assert_eq!(dear.cost_ns, u64::MAX); // stops there
}

#[test]
fn a_random_pattern_is_its_seeds() {
    let image = Image {
        bytes: M4,
        pitch: 4096,
    };
    let offsets = |seed| {
        let mut offsets = vec![];
        Access::Random { seed }.each(image, |offset| offsets.push(offset));
        offsets
    };
    assert_eq!(offsets(7), offsets(7));
    assert_ne!(offsets(7), offsets(8));
    assert!(offsets(7).iter().all(|&at| at < M4 && at % BURST == 0));
}

#[test]
fn what_makes_no_sense_is_said() {
    let tlb = Tlb::assumed(PageSizes::K4_K64_M2);
    let image = |bytes, pitch| Image { bytes, pitch };
    let error = |plan: &[Batch], image| tlb.read(plan, image, Access::Rotate90).unwrap_err();
    let good = plan(M4, K4);
    for pitch in [0, 63, 100] {
        assert_eq!(error(&good, image(M4, pitch)), TlbError::Pitch { pitch });
    }
    let (bytes, pitch, accesses) = (4096, 8192, 1 << 34);
    let no_row = TlbError::NoRow { bytes, pitch };
    assert_eq!(error(&good, image(bytes, pitch)), no_row);
    let long = image(1 << 40, 64);
    assert_eq!(error(&good, long), TlbError::TooLong { accesses });
    let empty = error(&[], image(M4, 4096));
    assert_eq!(
        empty.to_string(),
        "the plan maps 0 bytes, the image has 4194304"
    );
    let batch = |iova, size, count| Batch {
        iova,
        physical: 0,
        size,
        count,
    };
    let bad = [
        vec![batch(IOVA, K4, 0)],
        vec![batch(IOVA, 0, 1)],
        vec![batch(IOVA, K4, u64::MAX)],
        vec![batch(u64::MAX - K4 + 1, K4, 1)],
        vec![batch(IOVA, K4, 1), batch(IOVA, K4, 1)],
    ];
    for plan in bad {
        let iova = plan[0].iova;
        assert_eq!(error(&plan, image(K4, K4)), TlbError::BadPlan { iova });
    }
    let giant = [batch(1 << 30, 1 << 30, 1)];
    let none = TlbError::NoEntries { size: 1 << 30 };
    assert_eq!(error(&giant, image(M4, 4096)), none);
    assert!(
        none.to_string()
            .contains("no entry for pages of 1073741824 bytes")
    );
    let mut emptied = tlb.clone();
    emptied.entries.insert(K4, 0);
    let refused = emptied.read(&good, image(M4, 4096), Access::Linear);
    assert_eq!(refused, Err(TlbError::NoEntries { size: K4 }));
}

/// The oracle: when each page was used last, and a search for the oldest.
fn naive(tlb: &Tlb, plan: &[Batch], offsets: &[u64]) -> BTreeMap<u64, u64> {
    let pages: Vec<(u64, u64)> = plan
        .iter()
        .flat_map(|b| (0..b.count).map(|i| (b.iova + i * b.size - plan[0].iova, b.size)))
        .collect();
    let mut misses: BTreeMap<u64, u64> = pages.iter().map(|&(_, size)| (size, 0)).collect();
    let mut used: BTreeMap<(u64, u64), usize> = BTreeMap::new(); // by size and place
    for (time, offset) in offsets.iter().enumerate() {
        let within = |&&(at, size): &&(u64, u64)| (at..at + size).contains(offset);
        let &(at, size) = pages.iter().find(within).unwrap();
        if used.insert((size, at), time).is_none() {
            *misses.get_mut(&size).unwrap() += 1;
            let of_size = || used.iter().filter(|((s, _), _)| *s == size);
            if of_size().count() > tlb.entries[&size] as usize {
                let (&oldest, _) = of_size().min_by_key(|&(_, &time)| time).unwrap();
                used.remove(&oldest);
            }
        }
    }
    misses
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn misses_are_those_of_the_oracle(
        parts in prop::collection::vec((0..30u64, 1..40u64), 1..8),
        entries in 1..9u32, rows in 1..40u64, pattern in 0..3u64, seed: u64,
    ) {
        let runs: Vec<Run> = parts
            .iter()
            .map(|&(start, pages)| Run { start: start * K64 + start % 3 * K4, length: pages * K4 })
            .collect();
        let plan = map(&runs, PageSizes::K4_K64_M2, IOVA).unwrap();
        let bytes: u64 = runs.iter().map(|run| run.length).sum();
        let pitch = (bytes / rows / BURST).max(1) * BURST;
        let image = Image { bytes, pitch };
        let access = [Access::Linear, Access::Rotate90, Access::Random { seed }][pattern as usize];
        let tlb = Tlb { entries: [(K4, entries), (K64, entries / 2 + 1)].into(), walk_ns: 1 };
        let mut offsets = vec![];
        access.each(image, |offset| offsets.push(offset));
        let traffic = tlb.read(&plan, image, access).unwrap();
        prop_assert_eq!(traffic.accesses, offsets.len() as u64);
        prop_assert_eq!(traffic.misses, naive(&tlb, &plan, &offsets));
        if !matches!(access, Access::Random { .. }) {
            offsets.sort_unstable();
            let all: Vec<u64> = (0..offsets.len() as u64).map(|burst| burst * BURST).collect();
            prop_assert_eq!(offsets, all); // each burst once
        }
    }
}
