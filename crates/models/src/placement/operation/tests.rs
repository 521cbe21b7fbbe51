use super::*;
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

fn space() -> Space {
    Space::new(Range::new(0x1000, 0x100_0000), 0x1000).unwrap()
}

fn map(id: u32, length: u64) -> MemoryEvent {
    MemoryEvent::Map {
        id: MapId(id),
        length: Bytes(length),
        protection: Protection::Write,
        merge: Merge::Never,
        placing: Placing::ANYWHERE,
    }
}

fn unmap(id: u32) -> MemoryEvent {
    MemoryEvent::Unmap { id: MapId(id) }
}

fn protect(id: u32, length: u64) -> MemoryEvent {
    MemoryEvent::Protect {
        id: MapId(id),
        length: Bytes(length),
        protection: Protection::Read,
    }
}

fn compile(events: &[MemoryEvent]) -> Result<Vec<Batch>, StreamError> {
    let mut compiler = Compiler::new(space(), Direction::Any);
    let mut events = events.iter().map(|&event| Ok(event));
    let mut batches = Vec::new();
    let mut batch = Batch::default();
    while compiler.fill(&mut events, &mut batch)? {
        batches.push(batch.clone());
    }
    Ok(batches)
}

#[test]
fn operations_are_small() {
    assert_eq!(size_of::<Operation>(), 16);
}

#[test]
fn a_batch_is_of_one_phase_and_knows_its_events() {
    let batches = compile(&[
        MemoryEvent::Begin(Phase::Layout),
        map(7, 1),
        map(u32::MAX, 0x1001),
        MemoryEvent::Begin(Phase::Steady),
        MemoryEvent::Touch { id: MapId(7) },
        unmap(u32::MAX),
        MemoryEvent::Begin(Phase::Round),
        map(1, 5),
    ])
    .unwrap();
    // A round of two operations ends no batch.
    let measured: Vec<bool> = batches.iter().map(|batch| batch.measured).collect();
    assert_eq!(measured, [false, true]);
    assert_eq!(batches[0].operations.len(), 2);
    assert_eq!(batches[0].asks.len(), 1);
    assert_eq!(batches[0].event(1), 2);
    // The slot of what was unmapped is used again, and its size is in whole pages.
    let unmap = Operation::Unmap {
        slot: 1,
        size: 0x2000,
    };
    assert_eq!(batches[1].operations[0], unmap);
    let again = Operation::Map {
        ask: 0,
        slot: 1,
        size: 5,
    };
    assert_eq!(batches[1].operations[1], again);
    assert_eq!((batches[1].event(0), batches[1].event(1)), (5, 7));
}

/// A round of a thousand operations ends a batch, and may go over several; a short one does not.
#[test]
fn long_rounds_end_batches() {
    let end = MemoryEvent::Begin(Phase::Round);
    let maps = |from: u32, count: u32| (from..from + count).map(|id| map(id, 1));
    let most = u32::try_from(BATCH).unwrap();
    let mut events: Vec<MemoryEvent> = maps(0, 1_000).chain([end]).collect();
    events.extend(maps(1_000, 10).chain([end]));
    events.extend(maps(1_010, most).chain([end]));
    let batches = compile(&events).unwrap();
    let told = |batches: &[Batch]| -> Vec<(usize, bool, bool)> {
        let of = |batch: &Batch| {
            (
                batch.operations.len(),
                batch.maps_of_round,
                batch.ends_round,
            )
        };
        batches.iter().map(of).collect()
    };
    let right = [(1_000, true, true), (BATCH, true, false), (10, true, true)];
    assert_eq!(told(&batches), right);
    // The maps before the first unmap are a batch of their own: agua's clock sees those.
    let events: Vec<MemoryEvent> = maps(0, 1_000)
        .chain([unmap(3), unmap(4), map(3, 1), end])
        .chain(maps(2_000, 1_500))
        .chain([unmap(7), end])
        .collect();
    let batches = compile(&events).unwrap();
    let right = [
        (1_000, true, false),
        (3, false, true),
        (1_500, true, false),
        (1, false, true),
    ];
    assert_eq!(told(&batches), right);
    assert_eq!((batches[1].event(0), batches[1].event(2)), (1_000, 1_002));
}

#[test]
fn what_makes_no_sense_names_its_event() {
    let refused = |events: &[MemoryEvent]| compile(events).unwrap_err();
    for (events, event, words) in [
        (vec![map(1, 1), unmap(1), unmap(1)], 2, "unmaps 1"),
        (vec![unmap(9)], 0, "unmaps 9, which is not mapped"),
        (vec![map(1, 1), map(1, 1)], 1, "mapped already"),
        (vec![map(1, 0)], 0, "the size is 0"),
        (vec![map(1, u64::MAX)], 0, "larger than the limits"),
        (vec![map(1, 1), protect(1, 0x1001)], 1, "more of 1"),
        (vec![map(1, 1), protect(1, u64::MAX)], 1, "more of 1"),
        (vec![map(1, 1), protect(1, 0)], 1, "0 bytes of 1"),
        (vec![protect(3, 1)], 0, "protects 3"),
        (vec![MemoryEvent::Touch { id: MapId(3) }], 0, "touches 3"),
    ] {
        let error = refused(&events);
        assert_eq!(error.event, event, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let placing = |change: fn(&mut Placing)| {
        let mut placing = Placing::ANYWHERE;
        change(&mut placing);
        let event = MemoryEvent::Map {
            id: MapId(0),
            length: Bytes(1),
            protection: Protection::Write,
            merge: Merge::Never,
            placing,
        };
        refused(&[event]).what
    };
    let outside = |p: &mut Placing| {
        p.limits = Some(AddressRange {
            start: 0,
            end: u64::MAX,
        });
    };
    assert_eq!(
        placing(outside),
        Wrong::Impossible(Impossible::LimitsOutside)
    );
    let crossed = |p: &mut Placing| p.limits = Some(AddressRange { start: 9, end: 5 });
    assert_eq!(
        placing(crossed),
        Wrong::Impossible(Impossible::LimitsCrossed)
    );
    let odd = |p: &mut Placing| p.alignment = Bytes(3);
    assert_eq!(placing(odd), Wrong::Impossible(Impossible::Alignment));
}

#[test]
fn a_batch_has_room_for_as_many_asks_as_maps() {
    let far = |id: u32| MemoryEvent::Map {
        id: MapId(id),
        length: Bytes(1),
        protection: Protection::Write,
        merge: Merge::Never,
        placing: Placing {
            hint: Some(u64::from(id) << 12),
            ..Placing::ANYWHERE
        },
    };
    let events: Vec<MemoryEvent> = (0..70_000).map(far).collect();
    let batches = compile(&events).unwrap();
    assert_eq!(batches[0].asks.len(), BATCH);
    assert_eq!(batches[1].operations.len(), 70_000 - BATCH);
    let Operation::Map { ask, .. } = batches[0].operations[BATCH - 1] else {
        panic!("not a map");
    };
    let hint = batches[0].asks[usize::from(ask)].hint;
    assert_eq!(hint, Some((BATCH as u64 - 1) << 12));
}

#[test]
fn a_protection_of_what_never_merges_is_no_operation() {
    let batches = compile(&[map(1, 1), protect(1, 1)]).unwrap();
    assert_eq!(batches[0].operations.len(), 1);
}
