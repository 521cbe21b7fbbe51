//! The memory beside a load, and what keeps it there.

use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::holds::{Held, Segment, Way};
use stopgap_kernel::memory::{Advice, Mapping};
use stopgap_kernel::{Result, System};

use super::cost::{base_pages, populate, shared};
use super::parameters::Mode;

/// Objects that [`Mode::ShmChurn`] makes of its set, each a segment.
const OBJECTS: u64 = 16;
/// How long an object stays unlocked: one frame or so.
const UNLOCKED: Nanos = Nanos::millis(10);

/// Memory that was made resident and is not yet held.
pub(super) enum Set {
    /// There is none.
    Nothing,
    /// A mapped memfd, held in a way or not at all.
    Mapped(Mapping, Option<Way>),
    /// Segments, to be locked and to stay so.
    Locked(Vec<Segment>),
    /// Segments, to be locked and unlocked.
    Churned(Vec<Segment>),
}

/// Has reclaim meet all of a locked segment once, which moves it off the lists. A kernel that knows no such
/// advice (before 5.4) moves it when the load's reclaim meets it.
fn cull(system: &dyn System, segment: &Segment) {
    let mapping = segment.mapping();
    let length = mapping.range().length();
    let _ = system.advise(mapping, Bytes(0), length, Advice::PageOut);
}

impl Set {
    /// Makes `bytes` resident as the mode wants them.
    pub(super) fn make(system: &dyn System, mode: Mode, bytes: Bytes) -> Result<Set> {
        let segments = |count: u64| {
            let page = system.page_size();
            let each = Bytes(bytes.0 / count).page_aligned(page).max(page);
            (0..count)
                .map(|_| {
                    let segment = system.segment(each)?;
                    base_pages(system, segment.mapping());
                    populate(system, segment.mapping())?;
                    Ok(segment)
                })
                .collect::<Result<Vec<Segment>>>()
        };
        let mapped = |way| {
            let mapping = shared(system, bytes)?;
            populate(system, &mapping)?;
            Ok(Set::Mapped(mapping, way))
        };
        match mode {
            Mode::None => Ok(Set::Nothing),
            Mode::Plain => mapped(None),
            Mode::Held(Way::ShmLock) => segments(1).map(Set::Locked),
            Mode::Held(way) => mapped(Some(way)),
            Mode::ShmChurn => segments(OBJECTS).map(Set::Churned),
        }
    }

    /// Holds it until what is returned is dropped. What is locked lazily is met by reclaim here already: the
    /// price of that is the cost experiment's, and the load is about what comes after.
    pub(super) fn hold<'a>(&'a self, system: &'a dyn System) -> Result<Vec<Held<'a>>> {
        match self {
            Set::Nothing | Set::Mapped(_, None) | Set::Churned(_) => Ok(Vec::new()),
            Set::Mapped(mapping, Some(way)) => Ok(vec![system.hold(mapping, *way)?]),
            Set::Locked(segments) => segments
                .iter()
                .map(|segment| {
                    let held = system.shm_lock(segment)?;
                    cull(system, segment);
                    Ok(held)
                })
                .collect(),
        }
    }

    /// Locks all objects, then unlocks one after the other for a moment, until `stop`; at once over where
    /// there is none to churn.
    pub(super) fn churn(&self, system: &dyn System, stop: &AtomicBool) -> Result<()> {
        let Set::Churned(segments) = self else {
            return Ok(());
        };
        let held: Result<Vec<Held<'_>>> = segments.iter().map(|one| system.shm_lock(one)).collect();
        let mut held: Vec<Option<Held<'_>>> = held?.into_iter().map(Some).collect();
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(lock) = held[at].take() {
                lock.release()?;
            }
            system.sleep_until(system.now() + UNLOCKED);
            let mapping = segments[at].mapping();
            system.touch(mapping, Bytes(0), mapping.range().length())?;
            held[at] = Some(system.shm_lock(&segments[at])?);
            at = (at + 1) % segments.len();
        }
        Ok(())
    }
}
