//! pbobench on buffer objects, each step of their life counted apart.

use stopgap_events::memory::{MapId, Merge, Phase, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::devices::{Object, ObjectDevice, Room};
use stopgap_kernel::{Error, Result};

use super::execute::{Buffers, Named, carry_out};
use crate::meter::Meter;

/// Returns the room that [`churn`] needs of a device beside `n` objects that stay.
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
    let mut objects = Objects {
        device,
        has_objects,
        named: Named::with_room(Pbobench::peak(n)),
        live: 0,
    };
    let events = Pbobench::new(n, steps, seed).events();
    let done = carry_out(&mut objects, events, stop, meter, |_, phase| match phase {
        Phase::Steady => laid_out(),
        _ => Ok(()),
    });
    let cleared = objects.clear();
    let whole = done?;
    cleared?;
    Ok(whole)
}

/// A device's objects, by name.
struct Objects<'d> {
    device: &'d mut dyn ObjectDevice,
    /// Whether making and destroying are steps of their own; else a mapping is all there is.
    has_objects: bool,
    named: Named<Object>,
    live: u64,
}

impl Buffers for Objects<'_> {
    fn has_objects(&self) -> bool {
        self.has_objects
    }

    fn create(&mut self, id: MapId, length: Bytes) -> Result<()> {
        let object = self.device.create(length);
        self.named
            .keep(id, object.map_err(|error| at(self.live, error))?);
        Ok(())
    }

    fn map(&mut self, id: MapId, _: Bytes, _: Protection, _: Merge) -> Result<()> {
        let mapped = self.device.map(self.named.get(id)?);
        mapped.map_err(|error| at(self.live, error))?;
        self.live += 1;
        Ok(())
    }

    fn touch(&mut self, id: MapId) -> Result<()> {
        self.device.touch(self.named.get(id)?)
    }

    fn protect(&mut self, id: MapId, _: Bytes, _: Protection) -> Result<()> {
        let object = format!("object {}", id.0); // pbobench has none
        Err(Error::unsupported(object, "it cannot be protected"))
    }

    fn unmap(&mut self, id: MapId) -> Result<()> {
        self.device.unmap(self.named.get(id)?)?;
        self.live -= 1;
        Ok(())
    }

    fn destroy(&mut self, id: MapId) -> Result<()> {
        self.device.destroy(self.named.take(id)?)
    }

    /// The first refusal is returned, and the rest still given back.
    fn clear(&mut self) -> Result<()> {
        let mut cleared = Ok(());
        for object in self.named.drain() {
            let destroyed = self.device.destroy(object);
            cleared = cleared.and(destroyed);
        }
        cleared
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stopgap_kernel::devices::{Devices, Maker};
    use stopgap_kernel::fake::{Fake, FakeMaker};

    use super::*;
    use crate::meter::Step;

    /// Counts how often.
    #[derive(Default)]
    struct Times(BTreeMap<Step, u64>);

    impl Meter for Times {
        fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
            *self.0.entry(step).or_default() += 1;
            call()
        }
    }

    type Outcome = (Result<bool>, BTreeMap<Step, u64>);

    /// Churns on a maker of at most `most` objects; `calls` of `stop` return `false` before one returns `true`.
    fn attempt(most: u64, has_objects: bool, given: (u32, u64, u64), calls: u32) -> Outcome {
        let maker = FakeMaker {
            most,
            errno: 28,
            visit_ns: 0,
        };
        let machine = Fake::default().with_maker(Maker::Vgem, maker);
        let mut device = machine.objects(&Maker::Vgem, room(given.0)).unwrap();
        let mut times = Times::default();
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= calls;
        let mut layouts = 0;
        let mut laid_out = || {
            layouts += 1;
            Ok(())
        };
        let whole = churn(
            &mut *device,
            has_objects,
            given,
            &mut times,
            &stop,
            &mut laid_out,
        );
        assert_eq!(layouts, u32::from(whole.is_ok() && !times.0.is_empty()));
        (whole, times.0)
    }

    /// Every object that came is counted once in each step of its life, those that stay in none; and the fake's
    /// device insists that all are destroyed.
    #[test]
    fn each_step_is_counted_once_an_object() {
        let (whole, times) = attempt(10_000, true, (50, 2_000, 7), u32::MAX);
        assert!(whole.unwrap());
        let of = |step| times[&step];
        assert_eq!(of(Step::Create) + of(Step::Destroy), 2_000);
        assert_eq!(of(Step::Create), of(Step::Map));
        assert_eq!(of(Step::Map), of(Step::Touch));
        assert_eq!(of(Step::Unmap), of(Step::Destroy));
        assert!(of(Step::Create) - of(Step::Destroy) <= u64::from(Pbobench::SLOTS));
    }

    #[test]
    fn a_device_without_objects_has_mappings_alone() {
        let (_, times) = attempt(10_000, false, (5, 100, 7), u32::MAX);
        let steps: Vec<Step> = times.into_keys().collect();
        assert_eq!(steps, Step::MAPPING);
    }

    /// It says which call and beside how many; nothing is left behind (the fake looks).
    #[test]
    fn a_device_that_runs_out_says_where() {
        let (error, times) = attempt(20, true, (50, 10, 7), u32::MAX);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("create"), "{error}");
        assert!(error.contains("beside 20 objects"), "{error}");
        assert!(times.is_empty());
    }

    #[test]
    fn it_stops_when_told_to_and_gives_everything_back() {
        let (whole, _) = attempt(10_000, true, (1_000, 10, 7), 3);
        assert!(!whole.unwrap());
    }
}
