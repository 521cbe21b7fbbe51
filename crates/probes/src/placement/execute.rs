//! Carries memory events out on the system, and times each call.

use std::fmt;
use std::str::FromStr;

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::devices::Maker;
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, MemFile};
use stopgap_kernel::{Error, Result, System};

use crate::meter::{Meter, Step, Switched};

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
                    "its buffers are objects, not mappings alone",
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
