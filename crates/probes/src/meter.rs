//! What counts a step, handed in: a clock on a machine, instructions in a guest.

use std::collections::BTreeMap;

use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_stats::histogram::Recorder;

use crate::contract::{Measured, Parameters};

/// A step of a buffer object's life, or of a buffer's that a device reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// An object is made.
    Create,
    /// It is mapped.
    Map,
    /// Each of its pages is used for the first time since.
    Touch,
    /// It is unmapped.
    Unmap,
    /// It is destroyed.
    Destroy,
    /// A buffer is mapped for a device.
    DmaMap,
    /// It is unmapped for it.
    DmaUnmap,
    /// The protection of a mapping is changed.
    Protect,
}

impl Step {
    /// The life of an object.
    pub const OBJECT: [Step; 5] = [
        Step::Create,
        Step::Map,
        Step::Touch,
        Step::Unmap,
        Step::Destroy,
    ];
    /// The life of a mapping of a device that has no objects.
    pub const MAPPING: [Step; 3] = [Step::Map, Step::Touch, Step::Unmap];

    /// The name of its series.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Map => "map",
            Step::Touch => "first touch",
            Step::Unmap => "unmap",
            Step::Destroy => "destroy",
            Step::DmaMap => "dma map",
            Step::DmaUnmap => "dma unmap",
            Step::Protect => "protect",
        }
    }
}

/// Counts steps.
pub trait Meter {
    /// Carries `call` out, once, and counts it. What it gives is given back.
    fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T;
}

/// A meter that is on or off.
pub(crate) struct Switched<'m, M> {
    pub(crate) meter: &'m mut M,
    pub(crate) on: bool,
}

impl<M: Meter> Meter for Switched<'_, M> {
    fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
        match self.on {
            true => self.meter.measure(step, call),
            false => call(),
        }
    }
}

/// The wall clock: a sample a step.
pub(crate) struct Clock<'a> {
    system: &'a dyn System,
    stall: Nanos,
    pub(crate) recorders: BTreeMap<Step, Recorder>,
}

impl<'a> Clock<'a> {
    /// From `stall` on a step counts as one.
    pub(crate) fn new(system: &'a dyn System, stall: Nanos) -> Clock<'a> {
        Clock {
            system,
            stall,
            recorders: BTreeMap::new(),
        }
    }
}

impl Clock<'_> {
    /// Adds to `measured` a series for each step, of this run, which began at `start`.
    pub(crate) fn keep(
        self,
        measured: &mut Measured,
        parameters: &Parameters,
        run: u32,
        start: Nanos,
    ) {
        for (step, recorder) in self.recorders {
            let block = recorder.into_block(run, start.0);
            measured.block(step.word(), "ns", parameters, block);
        }
    }
}

impl Meter for Clock<'_> {
    fn measure<T>(&mut self, step: Step, call: impl FnOnce() -> T) -> T {
        let start = self.system.now();
        let result = call();
        let length = self.system.now().saturating_sub(start);
        let recorder = self
            .recorders
            .entry(step)
            .or_insert_with(|| Recorder::new(self.stall.0));
        recorder.record(start.0, length.0);
        result
    }
}
