//! pbobench on buffer objects, each step of their life counted apart.

use stopgap_events::memory::{MemoryEvent, Phase};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::devices::{Object, ObjectDevice, Room};
use stopgap_kernel::{Error, Result};

use super::execute::Named;
use crate::meter::{Meter, Step};

/// What [`churn`] needs of a device beside `n` objects that stay.
#[must_use]
pub fn room(n: u32) -> Room {
    Room {
        objects: Pbobench::peak(n),
        largest: Bytes(Pbobench::LARGEST),
    }
}

/// `n` objects of one page are made and mapped, and stay; then `steps` steps of [`Pbobench`], each of which either
/// makes, maps and touches an object of 1 to 16,384 bytes or unmaps and destroys one. `meter` counts the steps, not what
/// stays; a device without objects has `map`, `first touch` and `unmap` alone. At the end everything is given back.
///
/// `stop` is asked from time to time. Gives back whether it came to the end.
///
/// # Errors
/// The device's first refusal: it says which call, and beside how many objects. What was made until then is given back.
pub fn churn(
    device: &mut dyn ObjectDevice,
    has_objects: bool,
    (n, steps, seed): (u32, u64, u64),
    meter: &mut impl Meter,
    stop: &dyn Fn() -> bool,
    laid_out: &mut dyn FnMut() -> Result<()>,
) -> Result<bool> {
    let mut live = Live {
        device,
        named: Named::with_room(Pbobench::peak(n)),
        count: 0,
    };
    let done = live.carry_out(has_objects, (n, steps, seed), meter, stop, laid_out);
    let cleared = live.clear();
    let whole = done?;
    cleared?;
    Ok(whole)
}

struct Live<'d> {
    device: &'d mut dyn ObjectDevice,
    named: Named<Object>,
    count: u64,
}

impl Live<'_> {
    fn carry_out(
        &mut self,
        has_objects: bool,
        (n, steps, seed): (u32, u64, u64),
        meter: &mut impl Meter,
        stop: &dyn Fn() -> bool,
        laid_out: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let mut steady = false;
        for (index, event) in Pbobench::new(n, steps, seed).events().enumerate() {
            if index % 256 == 0 && stop() {
                return Ok(false);
            }
            match event {
                MemoryEvent::Begin(phase) => {
                    steady = phase == Phase::Steady;
                    if steady {
                        laid_out()?;
                    }
                }
                MemoryEvent::Map { id, length, .. } => {
                    let beside = self.count;
                    let mut one = Counted {
                        meter,
                        counts: steady,
                    };
                    let object = one.step(Step::Create, has_objects, || self.device.create(length));
                    let mut object = object.map_err(|error| at(beside, error))?;
                    self.count += 1;
                    let mapped = one.step(Step::Map, true, || self.device.map(&mut object));
                    self.named.keep(id, object);
                    mapped.map_err(|error| at(beside, error))?;
                }
                MemoryEvent::Touch { id } => {
                    let object = self.named.get(id)?;
                    let mut one = Counted {
                        meter,
                        counts: steady,
                    };
                    one.step(Step::Touch, true, || self.device.touch(object))?;
                }
                MemoryEvent::Unmap { id } => {
                    let mut object = self.named.take(id)?;
                    let mut one = Counted {
                        meter,
                        counts: steady,
                    };
                    one.step(Step::Unmap, true, || self.device.unmap(&mut object))?;
                    self.count -= 1;
                    one.step(Step::Destroy, has_objects, || self.device.destroy(object))?;
                }
                // pbobench has none.
                MemoryEvent::Protect { id, .. } => {
                    return Err(Error::unsupported(
                        format!("object {}", id.0),
                        "it cannot be protected",
                    ));
                }
            }
        }
        Ok(true)
    }

    /// Gives back everything that is still live; the first refusal is said, and the rest still given back.
    fn clear(&mut self) -> Result<()> {
        let mut first = Ok(());
        for object in self.named.drain() {
            let destroyed = self.device.destroy(object);
            first = first.and(destroyed);
        }
        first
    }
}

/// A refusal, and beside how many objects it came.
fn at(live: u64, error: Error) -> Error {
    match error {
        Error::Call {
            call,
            target,
            source,
        } => Error::Call {
            call,
            target: format!("{target} beside {live} objects"),
            source,
        },
        other => other,
    }
}

/// A meter that is on or off.
struct Counted<'m, M> {
    meter: &'m mut M,
    counts: bool,
}

impl<M: Meter> Counted<'_, M> {
    fn step<T>(&mut self, step: Step, is_call: bool, call: impl FnOnce() -> T) -> T {
        if self.counts && is_call {
            self.meter.measure(step, call)
        } else {
            call()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stopgap_kernel::devices::{Devices, Maker};
    use stopgap_kernel::fake::{Fake, FakeMaker};

    use super::*;

    /// Counts how often.
    #[derive(Default)]
    struct Times(BTreeMap<Step, u64>);

    impl Meter for Times {
        fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
            *self.0.entry(step).or_default() += 1;
            call()
        }
    }

    fn machine(most: u64) -> Fake {
        let maker = FakeMaker {
            most,
            errno: 28,
            visit_ns: 0,
        };
        Fake::default().with_maker(Maker::Vgem, maker)
    }

    /// Every object that came is counted once in each step of its life, those that stay in none; and the fake's
    /// device insists that all are destroyed.
    #[test]
    fn each_step_is_counted_once_an_object() {
        let machine = machine(10_000);
        let mut device = machine.objects(&Maker::Vgem, room(50)).unwrap();
        let mut times = Times::default();
        let mut at_layout = 0;
        let mut laid_out = || {
            at_layout += 1;
            Ok(())
        };
        let whole = churn(
            &mut *device,
            true,
            (50, 2_000, 7),
            &mut times,
            &|| false,
            &mut laid_out,
        );
        assert!(whole.unwrap());
        assert_eq!(at_layout, 1);
        let of = |step| times.0[&step];
        assert_eq!(of(Step::Create) + of(Step::Destroy), 2_000);
        assert_eq!(of(Step::Create), of(Step::Map));
        assert_eq!(of(Step::Map), of(Step::Touch));
        assert_eq!(of(Step::Unmap), of(Step::Destroy));
        assert!(of(Step::Create) - of(Step::Destroy) <= u64::from(Pbobench::SLOTS));
    }

    #[test]
    fn a_device_without_objects_has_mappings_alone() {
        let machine = machine(10_000);
        let mut device = machine.objects(&Maker::Vgem, room(5)).unwrap();
        let mut times = Times::default();
        churn(
            &mut *device,
            false,
            (5, 100, 7),
            &mut times,
            &|| false,
            &mut || Ok(()),
        )
        .unwrap();
        let steps: Vec<Step> = times.0.into_keys().collect();
        assert_eq!(steps, Step::MAPPING);
    }

    /// It says which call and beside how many; nothing is left behind (the fake looks).
    #[test]
    fn a_device_that_runs_out_says_where() {
        let machine = machine(20);
        let mut device = machine.objects(&Maker::Vgem, room(50)).unwrap();
        let mut times = Times::default();
        let error = churn(
            &mut *device,
            true,
            (50, 10, 7),
            &mut times,
            &|| false,
            &mut || Ok(()),
        );
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("create") && error.contains("beside 20 objects"),
            "{error}"
        );
        assert!(times.0.is_empty());
    }

    #[test]
    fn it_stops_when_told_to_and_gives_everything_back() {
        let machine = machine(10_000);
        let mut device = machine.objects(&Maker::Vgem, room(1_000)).unwrap();
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 2;
        let mut times = Times::default();
        let whole = churn(
            &mut *device,
            true,
            (1_000, 10, 7),
            &mut times,
            &stop,
            &mut || Ok(()),
        );
        assert!(!whole.unwrap());
    }
}
