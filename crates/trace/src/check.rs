use std::collections::HashSet;

use super::error::{Error, Place};
use stopgap_events::memory::{MapId, MemoryEvent};
use stopgap_events::units::Bytes;

/// Whether memory events make sense together: what a replay needs to be sure of before it believes
/// a file.
///
/// Refused are a mapping of 0 bytes or under a name that is live, an unmap, protect or touch of
/// what is not mapped, an alignment that is no power of two, an offset that is no remainder of it,
/// and crossed limits. Whether a request fits a window, the policy says. Memory: up to 8 MiB for
/// names below 2^26; each live one above takes some 8 bytes.
///
/// ```
/// use stopgap_events::memory::{MapId, MemoryEvent};
/// use stopgap_trace::{Check, Place};
/// let mut check = Check::new();
/// let error = check.event(Place::Row(7), &MemoryEvent::Unmap { id: MapId(3) });
/// assert_eq!(error.unwrap_err().to_string(), "row 7: unmap of mapping 3, which is not mapped");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Check {
    /// A bit a name.
    low: Vec<u64>,
    high: HashSet<MapId>,
}

const LOW: u32 = 1 << 26;

impl Check {
    /// Nothing is mapped.
    #[must_use]
    pub fn new() -> Check {
        Check::default()
    }

    /// The next event; `place` says in errors which. After an error the state is what it was.
    ///
    /// # Errors
    /// Where it makes no sense after those before.
    pub fn event(&mut self, place: Place, event: &MemoryEvent) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::new(place, why));
        let (what, id) = match *event {
            MemoryEvent::Begin(_) => return Ok(()),
            MemoryEvent::Map {
                id,
                length,
                placing,
                ..
            } => {
                let MapId(name) = id;
                if length == Bytes(0) {
                    return refuse(format!("map of mapping {name}: 0 bytes"));
                }
                let (alignment, offset) = (placing.alignment.0, placing.offset.0);
                if alignment != 0 && !alignment.is_power_of_two() {
                    return refuse(format!(
                        "map of mapping {name}: the alignment {alignment} is no power of two"
                    ));
                }
                if offset != 0 && offset >= alignment {
                    return refuse(format!(
                        "map of mapping {name}: the offset {offset} is not below the alignment"
                    ));
                }
                if placing
                    .limits
                    .is_some_and(|limits| limits.start >= limits.end)
                {
                    return refuse(format!("map of mapping {name}: its limits hold no address"));
                }
                if !self.set(id, true) {
                    return refuse(format!("map of mapping {name}, which is mapped already"));
                }
                return Ok(());
            }
            MemoryEvent::Unmap { id } => {
                if self.set(id, false) {
                    return Ok(());
                }
                ("unmap", id)
            }
            MemoryEvent::Protect {
                id,
                length: Bytes(0),
                ..
            } => {
                return refuse(format!("protect of mapping {}: 0 bytes", id.0));
            }
            MemoryEvent::Protect { id, .. } => ("protect", id),
            MemoryEvent::Touch { id } => ("touch", id),
        };
        if self.is_mapped(id) {
            return Ok(());
        }
        refuse(format!("{what} of mapping {}, which is not mapped", id.0))
    }

    /// Whether a mapping of that name is live.
    #[must_use]
    pub fn is_mapped(&self, id: MapId) -> bool {
        if id.0 >= LOW {
            return self.high.contains(&id);
        }
        let word = self.low.get(id.0 as usize / 64);
        word.is_some_and(|word| word >> (id.0 % 64) & 1 != 0)
    }

    /// Makes it so; whether it was not.
    fn set(&mut self, id: MapId, mapped: bool) -> bool {
        if self.is_mapped(id) == mapped {
            return false;
        }
        if id.0 >= LOW {
            if mapped {
                self.high.insert(id);
            } else {
                self.high.remove(&id);
            }
            return true;
        }
        let word = id.0 as usize / 64;
        if word >= self.low.len() {
            self.low.resize(word + 1, 0);
        }
        self.low[word] ^= 1 << (id.0 % 64);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::memory::{Merge, Placing, Protection};
    use stopgap_events::range::AddressRange;
    use stopgap_events::workload::Workload;

    fn map(id: u32, length: u64, placing: Placing) -> MemoryEvent {
        MemoryEvent::Map {
            id: MapId(id),
            length: Bytes(length),
            protection: Protection::Write,
            merge: Merge::May,
            placing,
        }
    }

    fn refused(check: &mut Check, event: &MemoryEvent) -> String {
        let error = check.event(Place::Event(5), event).unwrap_err().to_string();
        assert!(error.starts_with("event 5: "), "{error}");
        error
    }

    #[test]
    fn workloads_make_sense() {
        for &workload in Workload::ALL {
            let mut check = Check::new();
            for (index, event) in workload.events(300, 3_000, 1).enumerate() {
                check.event(Place::Event(index as u64), &event).unwrap();
            }
        }
    }

    #[test]
    fn nonsense_is_named_and_changes_nothing() {
        let any = Placing::ANYWHERE;
        for id in [0, 63, 64, LOW - 1, LOW, u32::MAX] {
            let mut check = Check::new();
            let unmap = MemoryEvent::Unmap { id: MapId(id) };
            let touch = MemoryEvent::Touch { id: MapId(id) };
            assert!(refused(&mut check, &unmap).contains(&format!("{id}, which is not mapped")));
            assert!(refused(&mut check, &touch).contains("touch"));
            assert!(refused(&mut check, &map(id, 0, any)).contains("0 bytes"));
            assert!(!check.is_mapped(MapId(id)));
            check.event(Place::File, &map(id, 1, any)).unwrap();
            assert!(refused(&mut check, &map(id, 1, any)).contains("mapped already"));
            check.event(Place::File, &touch).unwrap();
            check.event(Place::File, &unmap).unwrap();
            assert!(
                refused(&mut check, &unmap).contains("not mapped"),
                "double free"
            );
        }
    }

    #[test]
    fn what_no_policy_could_understand() {
        let mut check = Check::new();
        let mut placing = Placing::ANYWHERE;
        placing.alignment = Bytes(12_288);
        assert!(refused(&mut check, &map(1, 1, placing)).contains("12288 is no power of two"));
        placing.alignment = Bytes(8_192);
        placing.offset = Bytes(8_192);
        assert!(refused(&mut check, &map(1, 1, placing)).contains("offset"));
        placing.offset = Bytes(4_096);
        let (start, end) = (9, 9);
        placing.limits = Some(AddressRange { start, end });
        assert!(refused(&mut check, &map(1, 1, placing)).contains("limits"));
        let protect = MemoryEvent::Protect {
            id: MapId(1),
            length: Bytes(0),
            protection: Protection::None,
        };
        assert!(refused(&mut check, &protect).contains("0 bytes"));
    }
}
