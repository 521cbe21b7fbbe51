//! A built-in workload of memory events, each call counted.
//!
//! Events are drawn before anything is mapped, buffers are kept in a table that is there from the start: between two counted
//! calls this program allocates nothing. A buffer that must not merge with its neighbours is a part of one memfd whose offset
//! continues no other's, as in the probe.

use crate::protocol::Line;
use stopgap_events::memory::{MemoryEvent, Merge, Phase};
use stopgap_events::units::Bytes;
use stopgap_events::workload::{Agua, Workload};
use stopgap_kernel::Linux;
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, Memory};

use super::length;
use crate::counter::Counter;
use crate::mark::{self, Operation};
use crate::samples::{Samples, words};

/// The places of operations among the samples; the last is the sum of a buffer's map, first touch and unmap.
const MAP: usize = 0;
const TOUCH: usize = 1;
const UNMAP: usize = 2;
const PROTECT: usize = 3;
const CHURN: usize = 4;

/// A buffer, and what it took until now: its map and its first touch, where both were counted.
struct Buffer {
    mapping: Mapping,
    map: Option<u64>,
    touch: Option<u64>,
}

/// Carries `workload` out with `n` mappings that stay.
///
/// # Errors
/// The system's refusal.
pub(super) fn run(
    name: &str,
    workload: Workload,
    n: u32,
    operations: u64,
    seed: u64,
    counter: &Counter,
) -> Result<Vec<Line>, String> {
    let events: Vec<MemoryEvent> = match workload {
        Workload::Agua => agua(n, operations),
        _ => workload.events(n, operations, seed).collect(),
    };
    let [map, touch, unmap, protect] = words([
        Operation::Map,
        Operation::Touch,
        Operation::Unmap,
        Operation::Protect,
    ]);
    let mut samples = Samples::of(&[map, touch, unmap, protect, "churn"], length(operations)?);
    let (mut names, mut longest) = (1, Bytes(1));
    for event in &events {
        if let MemoryEvent::Map { id, length, .. } = event {
            names = names.max(u64::from(id.0) + 1);
            longest = longest.max(*length);
        }
    }
    // Bytes of the file between two buffers' starts: the longest and a page more.
    let page = Linux.page_size();
    let stride = longest.page_aligned(page) + page;
    let file = Linux.mem_file(Bytes(stride.0.saturating_mul(names)));
    let file = file.map_err(|error| error.to_string())?;
    let mut live: Vec<Option<Buffer>> = (0..names).map(|_| None).collect();
    let mut steady = false;
    for event in &events {
        let mut sample = |place: usize, count: u64| {
            if steady {
                samples.push(place, count);
            }
        };
        let result = match *event {
            MemoryEvent::Begin(Phase::Round) => Ok(()),
            MemoryEvent::Begin(phase) => {
                steady = phase == Phase::Steady;
                mark::counted(steady);
                Ok(())
            }
            MemoryEvent::Map {
                id,
                length,
                protection,
                merge,
                ..
            } => {
                let request = MapRequest {
                    length,
                    protection,
                    kind: match merge {
                        Merge::May => MapKind::Anonymous,
                        Merge::Never => MapKind::File {
                            file: &file,
                            offset: Bytes(u64::from(id.0) * stride.0),
                        },
                    },
                    align: Bytes(0),
                };
                let (count, mapping) =
                    counter.count::<{ Operation::Map as u8 }, _>(|| Linux.map(&request));
                sample(MAP, count);
                mapping.map(|mapping| {
                    live[id.0 as usize] = Some(Buffer {
                        mapping,
                        map: steady.then_some(count),
                        touch: None,
                    });
                })
            }
            MemoryEvent::Touch { id } => live[id.0 as usize].as_mut().map_or(Ok(()), |buffer| {
                let (mapping, bytes) = (&buffer.mapping, buffer.mapping.range().length());
                let (count, result) = counter.count::<{ Operation::Touch as u8 }, _>(|| {
                    Linux.touch(mapping, Bytes(0), bytes)
                });
                buffer.touch = Some(count);
                sample(TOUCH, count);
                result
            }),
            MemoryEvent::Protect {
                id,
                length,
                protection,
            } => live[id.0 as usize].as_mut().map_or(Ok(()), |buffer| {
                let mapping = &mut buffer.mapping;
                let (count, result) = counter.count::<{ Operation::Protect as u8 }, _>(|| {
                    Linux.protect(mapping, Bytes(0), length, protection)
                });
                sample(PROTECT, count);
                result
            }),
            MemoryEvent::Unmap { id } => live[id.0 as usize].take().map_or(Ok(()), |buffer| {
                let (count, result) =
                    counter.count::<{ Operation::Unmap as u8 }, _>(|| Linux.unmap(buffer.mapping));
                sample(UNMAP, count);
                if let (Some(map), Some(touch)) = (buffer.map, buffer.touch) {
                    sample(CHURN, map + touch + count);
                }
                result
            }),
        };
        result.map_err(|error| format!("{event:?}: {error}"))?;
    }
    Ok(samples.lines(name))
}

/// The events of agua with its beginning as the layout: the loops until more than `n` mappings were live. From there on
/// `operations` of them are counted; a loop has 10,000 maps before its first unmap.
fn agua(n: u32, operations: u64) -> Vec<MemoryEvent> {
    let mut events = vec![MemoryEvent::Begin(Phase::Layout)];
    let (mut live, mut most, mut left, mut steady) = (0u64, 0, operations, false);
    for event in Agua::new(u32::MAX, n).events() {
        match event {
            MemoryEvent::Begin(Phase::Round) if !steady && most > u64::from(n) => {
                steady = true;
                events.push(MemoryEvent::Begin(Phase::Steady));
            }
            MemoryEvent::Begin(_) => {}
            _ if steady && left == 0 => break,
            _ => {
                match event {
                    MemoryEvent::Map { .. } => live += 1,
                    _ => live -= 1, // an unmap: agua has nothing else
                }
                most = most.max(live);
                left -= u64::from(steady);
                events.push(event);
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What agua counts is beside as many mappings as asked for, and has both of its calls.
    #[test]
    fn agua_is_counted_from_its_ceiling_on() {
        for n in [1, 1_000, 10_000, 40_000] {
            let events = agua(n, 12_500);
            let begin = |phase| {
                events
                    .iter()
                    .position(|event| *event == MemoryEvent::Begin(phase))
            };
            let steady = begin(Phase::Steady).unwrap();
            let maps = |events: &[MemoryEvent]| {
                let map = |event: &&MemoryEvent| matches!(event, MemoryEvent::Map { .. });
                events.iter().filter(map).count() as i64
            };
            assert_eq!(begin(Phase::Layout), Some(0));
            let live = 2 * maps(&events[..steady]) - (steady as i64 - 1);
            let (low, high) = (i64::from(n) * 8 / 10, i64::from(n));
            assert!((low..=high).contains(&live), "N = {n}: {live} live");
            let counted = &events[steady + 1..];
            assert_eq!(counted.len(), 12_500);
            assert!(maps(counted) >= 10_000 && maps(counted) < 12_500);
        }
    }

    /// Each workload that mmap(2) can carry out: as many counts as events, and a churn for each whole life.
    #[test]
    fn every_call_is_counted() {
        let counter = Counter::calibrate();
        for workload in [
            Workload::Pbobench,
            Workload::Agua,
            Workload::FreegapPosted,
            Workload::FreegapInnerremap,
            Workload::ManySizes,
        ] {
            let n = if workload.n_may_be_chosen() {
                20
            } else {
                workload.default_n()
            };
            let operations = 500;
            let lines = run("a", workload, n, operations, 3, &counter).unwrap();
            let total = |wanted: &str| {
                lines.iter().find_map(|line| match line {
                    Line::Counts(counted) if counted.operation == wanted => {
                        Some(counted.counts.operations())
                    }
                    _ => None,
                })
            };
            let calls: u64 = ["map", "unmap", "protect"]
                .iter()
                .filter_map(|word| total(word))
                .sum();
            assert_eq!(calls, operations, "{workload}");
            if workload == Workload::Pbobench {
                assert_eq!(total("churn"), total("unmap"));
                assert_eq!(total("first touch"), total("map"));
            } else {
                assert_eq!(total("churn"), None, "{workload}");
            }
        }
    }
}
