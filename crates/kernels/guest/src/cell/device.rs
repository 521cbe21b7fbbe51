//! Buffer objects of a device: pbobench's churn beside those that stay, each step of a life counted apart. The probe's own
//! code ([`churn`]), counted by instructions instead of a clock.

use crate::protocol::{Device, Line};
use stopgap_kernel::Linux;
use stopgap_kernel::devices::{Devices, Maker};
use stopgap_probes::meter::{Meter, Step};
use stopgap_probes::placement::{churn, room_for_objects};

use super::length;
use crate::counter::Counter;
use crate::mark::{self, Operation};
use crate::samples::Samples;

/// Counts steps by the guest's counter.
pub(super) struct Steps<'c> {
    counter: &'c Counter,
    steps: Vec<Step>,
    samples: Samples,
}

impl<'c> Steps<'c> {
    /// Makes room for `each` of every step. All that is measured with it counts: objects that stay are made without it.
    pub(super) fn of(steps: &[Step], each: usize, counter: &'c Counter) -> Steps<'c> {
        mark::counted(true);
        let words: Vec<&str> = steps.iter().map(|step| step.word()).collect();
        Steps {
            counter,
            steps: steps.to_vec(),
            samples: Samples::of(&words, each),
        }
    }

    pub(super) fn lines(self, name: &str) -> Vec<Line> {
        self.samples.lines(name)
    }
}

impl Meter for Steps<'_> {
    #[inline(always)]
    fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
        let counter = self.counter;
        let (count, result) = match step {
            Step::Create => counter.count::<{ Operation::Create as u8 }, _>(call),
            Step::Map => counter.count::<{ Operation::Map as u8 }, _>(call),
            Step::Touch => counter.count::<{ Operation::Touch as u8 }, _>(call),
            Step::Unmap => counter.count::<{ Operation::Unmap as u8 }, _>(call),
            Step::Destroy => counter.count::<{ Operation::Destroy as u8 }, _>(call),
            Step::DmaMap => counter.count::<{ Operation::DmaMap as u8 }, _>(call),
            Step::DmaUnmap => counter.count::<{ Operation::DmaUnmap as u8 }, _>(call),
            Step::Protect => counter.count::<{ Operation::Protect as u8 }, _>(call),
        };
        if let Some(place) = self.steps.iter().position(|&one| one == step) {
            self.samples.push(place, count);
        }
        result
    }
}

/// Returns the maker of the objects.
fn maker(device: Device) -> Maker {
    match device {
        Device::Vgem => Maker::Vgem,
        Device::DmaHeap => Maker::DmaHeap,
        Device::Udmabuf => Maker::Udmabuf,
    }
}

/// Makes and destroys objects of `device` beside `n` that stay, in `operations` steps.
///
/// # Errors
/// A missing device, or a refusal, with the number of live objects.
pub(super) fn run(
    name: &str,
    device: Device,
    n: u32,
    operations: u64,
    seed: u64,
    counter: &Counter,
) -> Result<Vec<Line>, String> {
    let maker = maker(device);
    let mut objects = Linux
        .objects(&maker, room_for_objects(n))
        .map_err(|error| error.to_string())?;
    let mut steps = Steps::of(&Step::OBJECT, length(operations)?, counter);
    let work = (n, operations, seed);
    churn(
        &mut *objects,
        maker.has_objects(),
        work,
        &mut steps,
        &|| false,
        &mut || Ok(()),
    )
    .map_err(|error| error.to_string())?;
    Ok(steps.lines(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Counted, Unit};

    /// A step is counted in its own place, and what the call gave comes back.
    #[test]
    fn each_step_has_its_own_counts() {
        let counter = Counter {
            overhead: 0,
            unit: Unit::Ticks,
        };
        let mut steps = Steps::of(&[Step::Create, Step::DmaMap], 8, &counter);
        assert_eq!(steps.measure(Step::DmaMap, || 7), 7);
        assert_eq!(steps.measure(Step::DmaMap, || 8), 8);
        assert_eq!(steps.measure(Step::Touch, || 9), 9, "not asked for");
        let lines = steps.lines("a");
        let [
            Line::Counts(Counted {
                operation, counts, ..
            }),
        ] = &lines[..]
        else {
            panic!("{lines:?}");
        };
        assert_eq!((operation.as_str(), counts.operations()), ("dma map", 2));
    }
}
