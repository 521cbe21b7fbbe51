use stopgap_chunks::policy::{Effort, Source};
use stopgap_events::snapshot::{Builder, SCHEMA, Snapshot, Watermarks, Zone};
use stopgap_events::units::Pages;

use super::super::super::buddy::Mobility;
use super::super::super::kernel::Kernel;
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
            assert_eq!(machine.zones[0].marks.low, 12);
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

/// Below a zone of 2 GiB, 2,048 pages stay free beside the low mark: of 4 blocks of 4 MiB one request gets one, the
/// next none.
#[test]
fn what_is_reserved_in_a_lower_zone_is_not_to_be_had() {
    let low = |large: u64| Zone {
        name: "DMA32".to_owned(),
        ..zone(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, large])
    };
    let high = Zone {
        start_frame: 1 << 20,
        pages: Pages(1 << 19),
        present: Pages(1 << 19),
        managed: Pages(1 << 19),
        ..zone(&[3])
    };
    let had = |zones: Vec<Zone>| {
        let setting = Setting {
            kernel: Kernel::V6_12,
            ..Setting::default()
        };
        let mut machine = machine(&snapshot(zones), &Assumptions::default(), &setting).unwrap();
        let had = (0..4).map_while(|_| machine.allocate(10, Effort::NoReclaim));
        let had = had.count();
        machine.memories().for_each(|zone| zone.check().unwrap());
        had
    };
    assert_eq!(had(vec![low(4), high.clone()]), 1);
    assert_eq!(had(vec![low(2), high.clone()]), 0);
    // Another node's zone reserves nothing.
    let elsewhere = Zone { node: 1, ..high };
    assert_eq!(had(vec![low(4), elsewhere]), 3);
}

fn free_pages(machine: &Machine) -> u64 {
    machine.memories().map(Buddy::free_pages).sum()
}

fn with_layout(start_frame: u64, runs: &[(Kind, u64)]) -> Zone {
    let mut layout = Builder::new();
    for &(kind, pages) in runs {
        layout.push(kind, pages);
    }
    let pages = Pages(runs.iter().map(|run| run.1).sum());
    Zone {
        start_frame,
        pages,
        present: pages,
        managed: pages,
        layout: Some(layout.finish()),
        ..zone(&[])
    }
}

/// Two zones of 4 KiB pages, far apart, the second with a hole of 1 GiB and 5 pages:
///
/// ```text
/// machine   512 GiB: a1500 f548       544 GiB: f1024 k1019 n262149 f1024
/// model     0:       a1500 f548       2048:    f1024 k1019 n5      f1024
/// ```
#[test]
fn zones_lie_side_by_side_wherever_they_are() {
    const GIB: u64 = 1 << 18;
    let low = with_layout(512 * GIB, &[(Kind::Anonymous, 1_500), (Kind::Free, 548)]);
    let runs = [
        (Kind::Free, 1_024),
        (Kind::Kernel, 1_019),
        (Kind::Hole, GIB + 5),
        (Kind::Free, 1_024),
    ];
    let high = Zone {
        node: 1,
        ..with_layout(544 * GIB, &runs)
    };
    let snapshot = snapshot(vec![low, high]);
    let frames = Frames::from_snapshot(&snapshot).unwrap();
    assert_eq!(frames.pages(), 5 * 1_024);
    let hole = 544 * GIB + 2_043;
    for (machine, model) in [
        (0, None),
        (512 * GIB - 1, None),
        (512 * GIB, Some(0)),
        (512 * GIB + 2_047, Some(2_047)),
        (512 * GIB + 2_048, None),
        (544 * GIB + 1, Some(2_049)),
        (hole, Some(2_048 + 2_043)),
        (hole + 1_000, None),
        (hole + GIB + 5, Some(2_048 + 2_048)),
        (u64::MAX, None),
    ] {
        assert_eq!(frames.model_frame(machine), model, "{machine}");
    }
    let setting = Setting::default();
    let mut machine = super::machine(&snapshot, &Assumptions::default(), &setting).unwrap();
    machine.memories().for_each(|zone| zone.check().unwrap());
    assert_eq!(free_pages(&machine), 548 + 2 * 1_024);
    let large: u64 = machine.memories().map(|zone| zone.free_blocks(10)).sum();
    assert_eq!(large, 2);
    // A frame of the machine is pinned by its number there.
    assert!(machine.pin(frames.model_frame(512 * GIB + 1_499).unwrap()));
    assert!(!machine.pin(frames.model_frame(512 * GIB + 1_500).unwrap()));
    let pinned = machine.memories().map(|zone| zone.used_pages(Use::Pinned));
    assert_eq!(pinned.collect::<Vec<_>>(), [0, 1]);
}

/// Present pages alone count, where nothing tells which of the spanned ones they are.
#[test]
fn a_zone_without_a_layout_is_as_large_as_it_is_present() {
    let far = Zone {
        start_frame: 1 << 27,
        pages: Pages(1 << 30),
        ..zone(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4])
    };
    let machine = from(vec![far], 1).unwrap();
    machine.buddy().check().unwrap();
    assert_eq!(machine.buddy().pages(), 9 * 1_024);
    assert_eq!(machine.buddy().free_blocks(10), 4);
}

#[test]
fn more_than_the_model_holds_is_said_in_gib() {
    let pages = Pages(1 << 24);
    let most = Zone {
        start_frame: 0,
        pages,
        present: pages,
        ..zone(&[])
    };
    let fits = Frames::from_snapshot(&snapshot(vec![most.clone()])).unwrap();
    assert_eq!(fits.pages(), 1 << 24);
    let one_more = Zone {
        node: 1,
        ..zone(&[])
    };
    let error = Frames::from_snapshot(&snapshot(vec![most, one_more])).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("up to 64 GiB"), "{error}");
}

/// Nothing tells whose the shared frames are, so they are there once.
#[test]
fn frames_of_two_zones_are_there_once() {
    let low = with_layout(0, &[(Kind::Free, 1_024), (Kind::Unknown, 100)]);
    let high = Zone {
        node: 1,
        ..with_layout(1_024, &[(Kind::Unknown, 100), (Kind::Free, 924)])
    };
    let machine = from(vec![low, high], 1).unwrap();
    let memory = |zone: &Buddy| zone.pages() - zone.used_pages(Use::Hole);
    let pages: u64 = machine.memories().map(memory).sum();
    assert_eq!(pages, 1_024 + 100 + 924);
}
