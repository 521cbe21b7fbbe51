use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::{Error, Event, Place};
use stopgap_events::units::Nanos;

/// Events that are looked at before the first of them goes out.
const WINDOW: usize = 1 << 16;

/// Puts events that come roughly in order of time into that order; those of the same time stay as
/// they came.
pub(super) struct InOrder {
    waiting: BinaryHeap<Reverse<Waiting>>,
    next: u64,
    /// The time that went out last.
    reached: Nanos,
}

struct Waiting {
    index: u64,
    event: Event,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.event.time.0, self.index)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl InOrder {
    pub(super) fn new() -> InOrder {
        InOrder {
            waiting: BinaryHeap::new(),
            next: 0,
            reached: Nanos(0),
        }
    }

    /// Takes an event; gives the earliest where the window is full.
    pub(super) fn push(&mut self, event: Event) -> Result<Option<Event>, Error> {
        let index = self.next;
        self.next += 1;
        let refuse = |why: String| Err(Error::new(Place::Event(index), why));
        let time = event.time.0;
        // Viewers count signed nanoseconds.
        if i64::try_from(time).is_err() {
            return refuse(format!("its time of {time} ns is more than 2^63"));
        }
        if event.time < self.reached {
            return refuse(format!(
                "its time of {time} ns is before {} ns, which more than {WINDOW} events ago was over; sort the \
                 trace by time_ns",
                self.reached.0
            ));
        }
        self.waiting.push(Reverse(Waiting { index, event }));
        if self.waiting.len() <= WINDOW {
            return Ok(None);
        }
        Ok(self.pop())
    }

    /// The earliest of those that wait.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let Reverse(first) = self.waiting.pop()?;
        self.reached = first.event.time;
        Some(first.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::memory::{MemoryEvent, Phase};
    use stopgap_events::random::Random;

    fn at(time: u64, cpu: u32) -> Event {
        Event {
            time: Nanos(time),
            cpu: Some(cpu),
            ..Event::of_workload(0, MemoryEvent::Begin(Phase::Steady))
        }
    }

    #[test]
    fn what_is_nearly_in_order_is_sorted_as_if_all_were_held() {
        let mut random = Random::new(3);
        let mut events: Vec<Event> = (0..200_000)
            .map(|index| {
                at(
                    index / 3 + random.below(5_000),
                    u32::try_from(index).unwrap(),
                )
            })
            .collect();
        let mut order = InOrder::new();
        let mut sorted = Vec::new();
        for event in &events {
            sorted.extend(order.push(event.clone()).unwrap());
        }
        sorted.extend(std::iter::from_fn(|| order.pop()));
        events.sort_by_key(|event| event.time); // stable
        assert!(sorted == events);
    }

    #[test]
    fn what_comes_too_late_is_told() {
        let mut order = InOrder::new();
        for time in 0..=WINDOW as u64 {
            order.push(at(time + 10, 0)).unwrap();
        }
        let error = order.push(at(9, 0)).unwrap_err().to_string();
        assert!(error.starts_with("event 65537: its time of 9 ns is before 10 ns"));
        let error = order.push(at(u64::MAX, 0)).unwrap_err().to_string();
        assert!(error.contains("2^63"), "{error}");
    }
}
