extern crate std;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::iommu::{Run, map};

/// 2^order chunks of `size` bytes, none beside another, 4 MiB in all.
fn scattered(size: u64) -> Vec<Run> {
    let chunks = (4 << 20) / size;
    let run = |i| Run {
        start: (1 << 32) + 2 * i * size,
        length: size,
    };
    (0..chunks).map(run).collect()
}

#[test]
fn sizes_imply_a_format_or_it_is_unknown() {
    assert_eq!(Format::for_sizes(PageSizes::K4_M2_G1), Some(Format::Radix));
    assert_eq!(Format::for_sizes(PageSizes::K4_K64_M2), Some(Format::Radix));
    assert_eq!(
        Format::for_sizes(PageSizes::K4_K64_M1_M16),
        Some(Format::ShortDescriptors)
    );
    let unknown: [&[u64]; 5] = [
        &[K4],
        &[K4, K64],
        &[K64, M2],
        &[K4, M1, M2],
        &[K4, M2, M2 << 1],
    ];
    for sizes in unknown {
        assert_eq!(
            Format::for_sizes(PageSizes::new(sizes).unwrap()),
            None,
            "{sizes:?}"
        );
    }
}

/// 4 MiB from 1 GiB on: root, third, second level; and two last-level tables where a page is smaller than 2
/// MiB.
#[test]
fn a_4_mib_buffer_has_the_tables_that_its_entries_need() {
    let radix = |size| {
        let batches = map(&scattered(size), PageSizes::K4_K64_M2, G1).unwrap();
        let bytes = Format::Radix.table_bytes(&batches).unwrap();
        (bytes, Format::Radix.descriptors(&batches))
    };
    assert_eq!(radix(K4), (5 * K4, 1024));
    assert_eq!(radix(K64), (5 * K4, 1024)); // a hint in every descriptor, no fewer of them
    assert_eq!(radix(M2), (3 * K4, 2));
    let short = |size| {
        let batches = map(&scattered(size), PageSizes::K4_K64_M1_M16, G1).unwrap();
        let bytes = Format::ShortDescriptors.table_bytes(&batches).unwrap();
        (bytes, Format::ShortDescriptors.descriptors(&batches))
    };
    assert_eq!(short(K4), ((16 + 4) << 10, 1024));
    assert_eq!(short(K64), ((16 + 4) << 10, 1024));
    assert_eq!(short(M2), (16 << 10, 4));
}

#[test]
fn what_a_format_cannot_address_has_no_tables() {
    let batches = |iova| map(&scattered(M1), PageSizes::K4_K64_M1_M16, iova).unwrap();
    let fits = batches((1 << 32) - (4 << 20));
    assert_eq!(Format::ShortDescriptors.table_bytes(&fits), Some(16 << 10));
    let beyond = batches((1 << 32) - (3 << 20));
    assert_eq!(Format::ShortDescriptors.table_bytes(&beyond), None);
    assert_eq!(Format::Radix.table_bytes(&[]), Some(K4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The oracle notes the tables that every entry by itself needs.
    #[test]
    fn tables_are_those_of_the_oracle(
        parts in prop::collection::vec((0..4000u64, 1..3000u64, 0..10u32), 1..6), start in 0..300_000u64,
    ) {
        let runs: Vec<Run> = parts
            .iter()
            .map(|&(start, pages, order)| Run { start: (start << order) * K4, length: pages * K4 })
            .collect();
        let batches = map(&runs, PageSizes::K4_K64_M2, start * K4).unwrap();
        let mut tables = BTreeSet::from([(48, 0)]);
        for batch in &batches {
            for entry in 0..batch.count {
                let iova = batch.iova + entry * batch.size;
                let bits = [39, 30, 21].into_iter().filter(|&bits| batch.size >> bits == 0);
                tables.extend(bits.map(|bits| (bits, iova >> bits)));
            }
        }
        let expected = tables.len() as u64 * K4;
        prop_assert_eq!(Format::Radix.table_bytes(&batches), Some(expected));
    }
}
