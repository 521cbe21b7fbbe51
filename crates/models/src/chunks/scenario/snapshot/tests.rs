use stopgap_events::snapshot::{Builder, SCHEMA, Snapshot, Watermarks, Zone};
use stopgap_events::units::Pages;

use super::super::super::buddy::Mobility;
use super::*;

fn zone(free_blocks: &[u64]) -> Zone {
    Zone {
        node: 0,
        name: "Normal".to_owned(),
        start_frame: 300,
        pages: Pages(9_000),
        present: Pages(9_000),
        managed: Pages(8_900),
        watermarks: Watermarks {
            min: Pages(10),
            low: Pages(12),
            high: Pages(14),
        },
        per_cpu: None,
        free_blocks: free_blocks.to_vec(),
        by_type: None,
        layout: None,
        mapped: None,
    }
}

fn snapshot(zones: Vec<Zone>) -> Snapshot {
    Snapshot {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        taken_unix_s: 0,
        kernel: None,
        page_bytes: Bytes(4096),
        pageblock_order: Some(9),
        zones,
        missing: Vec::new(),
    }
}

fn from(zones: Vec<Zone>, seed: u64) -> Result<Machine, MachineError> {
    let setting = Setting {
        seed,
        ..Setting::default()
    };
    machine(&snapshot(zones), &Assumptions::default(), &setting)
}

#[test]
fn counts_alone_come_out_as_they_were() {
    for counts in [
        vec![400, 300, 200, 100, 50, 20, 10, 3, 2, 1, 1],
        vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
        // Every second page: the most that there can be.
        vec![4_450],
        vec![0; 11],
    ] {
        for seed in 1..4 {
            let machine = from(vec![zone(&counts)], seed).unwrap();
            machine.buddy().check().unwrap();
            for order in 0..ORDERS as u32 {
                let expected = counts.get(order as usize).copied().unwrap_or(0);
                assert_eq!(machine.buddy().free_blocks(order), expected, "{order}");
            }
            assert_eq!(machine.marks().low, 12);
        }
    }
}

/// ```text
/// frame 300   812   1324  1624  1836
///       a512  f512  k300  f212  n7464
/// ```
#[test]
fn a_layout_is_taken_over_page_by_page() {
    let mut layout = Builder::new();
    for (kind, pages) in [
        (Kind::Anonymous, 512),
        (Kind::Free, 512),
        (Kind::Kernel, 300),
        (Kind::Free, 212),
        (Kind::Hole, 7_464),
    ] {
        layout.push(kind, pages);
    }
    let mut zone = zone(&[]);
    zone.layout = Some(layout.finish());
    let machine = from(vec![zone], 1).unwrap();
    let buddy = machine.buddy();
    buddy.check().unwrap();
    assert_eq!(buddy.free_pages(), 724);
    assert_eq!(buddy.used_pages(Use::Movable), 512);
    assert_eq!(buddy.used_pages(Use::Unmovable), 300);
    assert_eq!(buddy.block_mobility(1_400), Some(Mobility::Unmovable));
    assert_eq!(buddy.block_mobility(400), Some(Mobility::Movable));
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let too_many = from(vec![zone(&[4_451])], 1).err().unwrap().to_string();
    assert!(
        too_many.contains("zone Normal") && too_many.contains("order 0"),
        "{too_many}"
    );
    let huge = Zone {
        start_frame: u64::MAX,
        ..zone(&[])
    };
    assert!(from(vec![huge], 1).is_err());
    assert!(from(Vec::new(), 1).is_err());
    let hostile = from(vec![zone(&[u64::MAX; 60])], 1).err().unwrap();
    assert!(hostile.to_string().contains("do not fit"), "{hostile}");

    let setting = Setting {
        page: 16_384,
        ..Setting::default()
    };
    let assumptions = Assumptions::default();
    let other = machine(&snapshot(vec![zone(&[])]), &assumptions, &setting);
    let other = other.err().unwrap().to_string();
    assert!(
        other.contains("16384") || other.contains("16 KiB"),
        "{other}"
    );
    let assumptions = Assumptions {
        pinned_share: 1.5,
        ..assumptions
    };
    let wrong = machine(
        &snapshot(vec![zone(&[])]),
        &assumptions,
        &Setting::default(),
    );
    assert!(wrong.err().unwrap().to_string().contains("pinned_share"));
}

/// Below a zone of 2 GiB, 2,048 pages and the min mark are out of reach: of what the lower zone has free,
/// the smallest blocks; nothing of the highest zone.
#[test]
fn what_is_protected_in_a_lower_zone_is_not_free() {
    let low = |free_blocks: &[u64]| Zone {
        name: "DMA32".to_owned(),
        ..zone(free_blocks)
    };
    let high = Zone {
        start_frame: 1 << 20,
        pages: Pages(1 << 19),
        present: Pages(1 << 19),
        managed: Pages(1 << 19),
        ..zone(&[3])
    };
    let free = |zones: Vec<Zone>| {
        let machine = from(zones, 1).unwrap();
        machine.buddy().check().unwrap();
        let buddy = machine.buddy();
        (0..ORDERS as u32)
            .map(|order| buddy.free_blocks(order))
            .collect::<Vec<_>>()
    };
    let mut lower = [0; 11];
    (lower[0], lower[9], lower[10]) = (100, 1, 3); // 612 pages, and two of the large blocks
    let expected = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(free(vec![low(&lower), high.clone()]), expected);
    // All of it protected.
    lower[10] = 1;
    let expected = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(free(vec![low(&lower), high.clone()]), expected);
    // Another node's zone protects nothing.
    let elsewhere = Zone { node: 1, ..high };
    assert_eq!(free(vec![low(&lower), elsewhere])[9..], [1, 1]);
}
