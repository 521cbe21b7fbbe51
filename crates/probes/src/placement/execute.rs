//! Carries memory events out on the system, and times each call.

use std::fmt;
use std::str::FromStr;

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::devices::Maker;
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, MemFile};
use stopgap_kernel::{Error, Result, System};

use super::STALL;
use crate::meter::{Clock, Meter, Step, Switched};

/// Backing of a mapping that must not merge with its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A memfd, each mapping at an offset that continues no other: what a driver's buffers
    /// look like to the kernel. The file keeps its pages, so a later first touch of the same
    /// slot maps a page that is there, where anonymous memory gets a new one.
    Memfd,
    /// Shared anonymous memory, whose every mapping has a file of its own inside the kernel.
    Anonymous,
    /// Buffer objects of a device, which have a life beside their mapping ([`super::churn`]).
    Device(Maker),
}

impl Backend {
    /// Backings that are measured unasked: every machine has them.
    pub const ALL: &'static [Backend] = &[Backend::Memfd, Backend::Anonymous];

    /// Memory that one mapping takes, untouched: the kernel's record of it (with its file, where
    /// that is its own: 1.46 KiB of slab on Linux 6.18) and our name for it.
    pub(super) fn a_mapping(&self, page: Bytes) -> Bytes {
        match self {
            Backend::Memfd => Bytes(512),
            Backend::Anonymous => Bytes::kib(2),
            Backend::Device(maker) => maker.an_object(page),
        }
    }

    /// The device whose objects they are.
    pub(super) fn maker(&self) -> Option<&Maker> {
        match self {
            Backend::Memfd | Backend::Anonymous => None,
            Backend::Device(maker) => Some(maker),
        }
    }

    /// The steps that one buffer costs in all: the names of their series.
    pub(super) fn cycle(&self) -> Vec<&'static str> {
        match self.maker() {
            Some(maker) if maker.has_objects() => Step::OBJECT.map(Step::word).into(),
            _ => Step::MAPPING.map(Step::word).into(),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Memfd => f.pad("memfd"),
            Backend::Anonymous => f.pad("anonymous"),
            Backend::Device(maker) => maker.fmt(f),
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Backend, String> {
        match word {
            "memfd" => Ok(Backend::Memfd),
            "anonymous" => Ok(Backend::Anonymous),
            word => word.parse().map(Backend::Device).map_err(|why: String| {
                why.replace("unknown device", "unknown backend")
                    .replace("there are", "there are memfd, anonymous,")
            }),
        }
    }
}

/// Where a workload's buffers come from: the kernel's calls, or what stands in for them. Each call is timed as a whole,
/// the look-up of its buffer too.
pub trait Buffers {
    /// Makes the buffer `id` of `length` bytes.
    ///
    /// # Errors
    /// As mmap(2).
    fn map(&mut self, id: MapId, length: Bytes, protection: Protection, merge: Merge)
    -> Result<()>;

    /// Uses one byte of each of its pages.
    ///
    /// # Errors
    /// Where there is no such buffer.
    fn touch(&mut self, id: MapId) -> Result<()>;

    /// Changes the protection of its first `length` bytes.
    ///
    /// # Errors
    /// As mprotect(2), or where there is no such buffer.
    fn protect(&mut self, id: MapId, length: Bytes, protection: Protection) -> Result<()>;

    /// Gives it back.
    ///
    /// # Errors
    /// As munmap(2), or where there is no such buffer.
    fn unmap(&mut self, id: MapId) -> Result<()>;

    /// Gives back all that are left.
    ///
    /// # Errors
    /// As [`Buffers::unmap`].
    fn clear(&mut self) -> Result<()>;

    /// Whether making a buffer before its map and destroying it after its unmap are steps that count.
    fn has_objects(&self) -> bool {
        false
    }

    /// Makes the object `id`.
    ///
    /// # Errors
    /// As its device says.
    fn create(&mut self, _id: MapId, _length: Bytes) -> Result<()> {
        Ok(())
    }

    /// Destroys it.
    ///
    /// # Errors
    /// As its device says, or where there is no such object.
    fn destroy(&mut self, _id: MapId) -> Result<()> {
        Ok(())
    }
}

/// Buffers by name.
#[derive(Debug)]
pub struct Named<T>(Vec<Option<T>>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl<T> Named<T> {
    /// With room for names below `names`, so that keeping one allocates nothing.
    #[must_use]
    pub fn with_room(names: u64) -> Named<T> {
        Named(Vec::with_capacity(usize::try_from(names).unwrap_or(0)))
    }

    /// Keeps it under its name.
    pub fn keep(&mut self, id: MapId, buffer: T) {
        let index = id.0 as usize;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(buffer);
    }

    /// The one of that name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn get(&mut self, id: MapId) -> Result<&mut T> {
        let buffer = self.0.get_mut(id.0 as usize).and_then(Option::as_mut);
        buffer.ok_or_else(|| unknown(id))
    }

    /// Takes the one of that name out.
    ///
    /// # Errors
    /// Where there is none.
    pub fn take(&mut self, id: MapId) -> Result<T> {
        let buffer = self.0.get_mut(id.0 as usize).and_then(Option::take);
        buffer.ok_or_else(|| unknown(id))
    }

    /// Takes out all that are left.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.0.drain(..).flatten()
    }
}

/// Buffers that the kernel maps.
pub struct Mapped<'s> {
    system: &'s dyn System,
    backend: Backend,
    file: MemFile,
    /// Bytes of the file between the starts of two names: the largest mapping and a page more,
    /// so that no mapping's end continues in the next one's start, wherever they lie.
    stride: Bytes,
    live: Named<Mapping>,
}

impl<'s> Mapped<'s> {
    /// For names below `names`.
    ///
    /// # Errors
    /// Where the file behind them cannot be made.
    pub fn new(system: &'s dyn System, backend: Backend, names: u64) -> Result<Self> {
        let page = system.page_size();
        let stride = Bytes(Pbobench::LARGEST).page_aligned(page) + page;
        Ok(Mapped {
            system,
            backend,
            file: system.mem_file(Bytes(stride.0 * names.max(1)))?,
            stride,
            live: Named::default(),
        })
    }
}

impl Buffers for Mapped<'_> {
    fn map(
        &mut self,
        id: MapId,
        length: Bytes,
        protection: Protection,
        merge: Merge,
    ) -> Result<()> {
        let kind = match (merge, &self.backend) {
            (Merge::May, _) => MapKind::Anonymous,
            (Merge::Never, Backend::Anonymous) => MapKind::AnonymousAlone,
            (Merge::Never, Backend::Device(maker)) => {
                return Err(Error::unsupported(
                    maker,
                    "its buffers are objects, not only mappings",
                ));
            }
            (Merge::Never, Backend::Memfd) => MapKind::File {
                file: &self.file,
                offset: Bytes(u64::from(id.0) * self.stride.0),
            },
        };
        let mapping = self.system.map(&MapRequest {
            length,
            protection,
            kind,
            align: Bytes(0),
        })?;
        self.live.keep(id, mapping);
        Ok(())
    }

    fn touch(&mut self, id: MapId) -> Result<()> {
        let mapping = self.live.get(id)?;
        let length = mapping.range().length();
        self.system.touch(mapping, Bytes(0), length)
    }

    fn protect(&mut self, id: MapId, length: Bytes, protection: Protection) -> Result<()> {
        let mapping = self.live.get(id)?;
        self.system.protect(mapping, Bytes(0), length, protection)
    }

    fn unmap(&mut self, id: MapId) -> Result<()> {
        self.system.unmap(self.live.take(id)?)
    }

    fn clear(&mut self) -> Result<()> {
        for mapping in self.live.drain() {
            self.system.unmap(mapping)?;
        }
        Ok(())
    }
}

/// Carries one event out; `meter` counts it where it is a call.
///
/// # Errors
/// Those of [`Buffers`].
pub(super) fn apply(
    buffers: &mut impl Buffers,
    event: MemoryEvent,
    meter: &mut impl Meter,
) -> Result<()> {
    match event {
        MemoryEvent::Map {
            id,
            length,
            protection,
            merge,
            placing: _, // the probe's workloads go anywhere
        } => {
            match buffers.has_objects() {
                true => meter.measure(Step::Create, || buffers.create(id, length))?,
                false => buffers.create(id, length)?,
            }
            meter.measure(Step::Map, || buffers.map(id, length, protection, merge))
        }
        MemoryEvent::Unmap { id } => {
            meter.measure(Step::Unmap, || buffers.unmap(id))?;
            match buffers.has_objects() {
                true => meter.measure(Step::Destroy, || buffers.destroy(id)),
                false => buffers.destroy(id),
            }
        }
        MemoryEvent::Protect {
            id,
            length,
            protection,
        } => meter.measure(Step::Protect, || buffers.protect(id, length, protection)),
        MemoryEvent::Touch { id } => meter.measure(Step::Touch, || buffers.touch(id)),
        MemoryEvent::Begin(_) => Ok(()),
    }
}

/// Carries a workload out; `meter` counts the calls of its steady phase, `begins` is called where a phase or round begins.
/// Between two events it stops when `stop` says so. Returns whether it came to the end.
///
/// # Errors
/// Those of [`Buffers`].
pub(super) fn carry_out<M: Meter>(
    buffers: &mut impl Buffers,
    events: impl Iterator<Item = MemoryEvent>,
    stop: &dyn Fn() -> bool,
    meter: &mut M,
    mut begins: impl FnMut(&mut M, Phase) -> Result<()>,
) -> Result<bool> {
    let mut meter = Switched { meter, on: false };
    for (count, event) in events.enumerate() {
        if count % 256 == 0 && stop() {
            return Ok(false);
        }
        match event {
            MemoryEvent::Begin(phase) => {
                if phase != Phase::Round {
                    meter.on = phase == Phase::Steady;
                }
                begins(meter.meter, phase)?;
            }
            event => apply(buffers, event, &mut meter)?,
        }
    }
    Ok(true)
}

/// Lays out `n` mappings that cannot merge, and all else that comes before the steady phase of pbobench; returns whether
/// it finished.
///
/// # Errors
/// Those of [`Buffers`].
pub(super) fn lay_out(
    buffers: &mut impl Buffers,
    n: u32,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<bool> {
    /// Counts nothing.
    struct Nothing;
    impl Meter for Nothing {
        fn measure<T>(&mut self, _: Step, call: impl FnOnce() -> T) -> T {
            call()
        }
    }
    let events = Pbobench::new(n, 0, seed).events();
    carry_out(buffers, events, stop, &mut Nothing, |_, _| Ok(()))
}

fn unknown(id: MapId) -> Error {
    Error::unsupported(format!("mapping {}", id.0), "the workload never mapped it")
}

// Two kinds of buffers under one workload, in turn, in one process: what a fix would bring.

/// Calls of a turn. With them a median rests on hundreds, and a turn takes some milliseconds.
const TURN: usize = 1_500;

/// pbobench with `n` buffers that stay: `turns` times a stretch of its steady phase on `one`, then the same stretch on
/// `other`. Gives each turn's two costs of a cycle, in ns: the sum of the medians of map, first touch and unmap. It ends
/// early, with what there is, where `stop` says so.
///
/// # Errors
/// Those of [`Buffers`].
pub fn beside<A: Buffers, B: Buffers>(
    clock: &dyn System,
    (one, other): (A, B),
    n: u32,
    turns: u32,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<[f64; 2]>> {
    let mut one = Side::new(clock, one, n, seed)?;
    let mut other = Side::new(clock, other, n, seed)?;
    let mut costs = Vec::new();
    for _ in 0..turns {
        if stop() {
            break;
        }
        if let (Some(a), Some(b)) = (one.turn()?, other.turn()?) {
            costs.push([a, b]);
        }
    }
    one.buffers.clear()?;
    other.buffers.clear()?;
    Ok(costs)
}

struct Side<'s, B> {
    clock: &'s dyn System,
    buffers: B,
    events: Box<dyn Iterator<Item = MemoryEvent>>,
}

impl<'s, B: Buffers> Side<'s, B> {
    /// With the `n` buffers that stay.
    fn new(clock: &'s dyn System, mut buffers: B, n: u32, seed: u64) -> Result<Self> {
        lay_out(&mut buffers, n, seed, &|| false)?;
        let events = Pbobench::new(n, u64::MAX, seed).events();
        let steady = |event: &MemoryEvent| *event != MemoryEvent::Begin(Phase::Steady);
        Ok(Side {
            clock,
            buffers,
            events: Box::new(events.skip_while(steady).skip(1)),
        })
    }

    /// The cost of a cycle in the next stretch; `None` where one of its calls did not come.
    fn turn(&mut self) -> Result<Option<f64>> {
        let mut calls = Clock::new(self.clock, STALL);
        for event in self.events.by_ref().take(TURN) {
            apply(&mut self.buffers, event, &mut calls)?;
        }
        let median = |step| calls.recorders.get(step)?.histogram().median();
        let sum = Step::MAPPING.iter().map(median).sum::<Option<u64>>();
        Ok(sum.map(|ns| ns as f64))
    }
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::fake::Fake;

    use super::*;
    use crate::placement::names;

    /// The same buffers on both sides, on a virtual clock: what is measured is the same to the nanosecond.
    #[test]
    fn equal_buffers_cost_the_same() {
        let fake = Fake::default();
        let buffers = || Mapped::new(&fake, Backend::Memfd, names(100)).unwrap();
        let costs = beside(&fake, (buffers(), buffers()), 100, 5, 1, &|| false).unwrap();
        assert_eq!(costs.len(), 5);
        for [a, b] in costs {
            assert!(a > 0.0 && (a / b - 1.0).abs() < 0.05, "{a} {b}");
        }
        let stopped = beside(&fake, (buffers(), buffers()), 100, 5, 1, &|| true).unwrap();
        assert!(stopped.is_empty());
    }
}
