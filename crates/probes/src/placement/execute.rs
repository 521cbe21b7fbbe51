//! Carries memory events out on the system, and times each call.

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Protection};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, MemFile};
use stopgap_kernel::{Error, Result, System};

/// What stands behind a mapping that must not merge with its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A memfd, each mapping at an offset that continues no other: what a driver's buffers
    /// look like to the kernel. The file keeps its pages, so a later first touch of the same
    /// slot maps a page that is there, where anonymous memory gets a new one.
    Memfd,
    /// Shared anonymous memory, whose every mapping has a file of its own inside the kernel.
    Anonymous,
}

impl Backend {
    /// Memory that one mapping takes, untouched: the kernel's record of it (with its file, where
    /// that is its own: 1.46 KiB of slab on Linux 6.18) and our name for it.
    pub(super) fn a_mapping(self) -> Bytes {
        match self {
            Backend::Memfd => Bytes(512),
            Backend::Anonymous => Bytes::kib(2),
        }
    }
}

words!(Backend, "backend", Memfd "memfd", Anonymous "anonymous");

/// A call that was timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    pub(super) operation: Operation,
    pub(super) start: Nanos,
    pub(super) length: Nanos,
}

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Map,
    Touch,
    Unmap,
    Protect,
}

impl Operation {
    pub(super) const ALL: [Operation; 4] = [
        Operation::Map,
        Operation::Touch,
        Operation::Unmap,
        Operation::Protect,
    ];

    /// The name of its series.
    pub(super) fn series(self) -> &'static str {
        match self {
            Operation::Map => "map",
            Operation::Touch => "first touch",
            Operation::Unmap => "unmap",
            Operation::Protect => "protect",
        }
    }
}

/// Carries events out. Mappings are kept by their name.
pub(super) struct Executor<'s> {
    system: &'s dyn System,
    backend: Backend,
    file: MemFile,
    /// Bytes of the file between the starts of two names: the largest mapping and a page more,
    /// so that no mapping's end continues in the next one's start, wherever they lie.
    stride: Bytes,
    live: Vec<Option<Mapping>>,
}

impl<'s> Executor<'s> {
    /// For names below `names`.
    pub(super) fn new(system: &'s dyn System, backend: Backend, names: u64) -> Result<Self> {
        let page = system.page_size();
        let stride = Bytes(Pbobench::LARGEST).page_aligned(page) + page;
        Ok(Executor {
            system,
            backend,
            file: system.mem_file(Bytes(stride.0 * names.max(1)))?,
            stride,
            live: Vec::new(),
        })
    }

    /// Carries one event out; `None` where it is no call.
    pub(super) fn apply(&mut self, event: MemoryEvent) -> Result<Option<Timed>> {
        let system = self.system;
        match event {
            MemoryEvent::Map {
                id,
                length,
                protection,
                merge,
                placing: _, // the probe's workloads go anywhere
            } => {
                let request = self.request(id, length, protection, merge);
                let start = system.now();
                let mapping = system.map(&request)?;
                let timed = self.timed(Operation::Map, start);
                *self.slot(id) = Some(mapping);
                Ok(Some(timed))
            }
            MemoryEvent::Unmap { id } => {
                let mapping = self.slot(id).take().ok_or_else(|| unknown(id))?;
                let start = system.now();
                system.unmap(mapping)?;
                Ok(Some(self.timed(Operation::Unmap, start)))
            }
            MemoryEvent::Protect {
                id,
                length,
                protection,
            } => {
                let mapping = self.slot(id).as_mut().ok_or_else(|| unknown(id))?;
                let start = system.now();
                system.protect(mapping, Bytes(0), length, protection)?;
                Ok(Some(self.timed(Operation::Protect, start)))
            }
            MemoryEvent::Touch { id } => {
                let mapping = self.slot(id).as_ref().ok_or_else(|| unknown(id))?;
                let start = system.now();
                system.touch(mapping, Bytes(0), mapping.range().length())?;
                Ok(Some(self.timed(Operation::Touch, start)))
            }
            MemoryEvent::Begin(_) => Ok(None),
        }
    }

    /// Carries a workload out and hands each timed call of its steady phase, and the end of
    /// each round, to `record`; between two events it stops when `stop` says so. Gives back
    /// whether it came to the end.
    pub(super) fn carry_out(
        &mut self,
        events: impl Iterator<Item = MemoryEvent>,
        stop: &dyn Fn() -> bool,
        mut record: impl FnMut(Step),
    ) -> Result<bool> {
        let mut steady = false;
        for (count, event) in events.enumerate() {
            if count % 256 == 0 && stop() {
                return Ok(false);
            }
            match event {
                MemoryEvent::Begin(Phase::Round) => record(Step::Round),
                MemoryEvent::Begin(phase) => steady = phase == Phase::Steady,
                _ => {
                    if let Some(timed) = self.apply(event)?
                        && steady
                    {
                        record(Step::Call(timed));
                    }
                }
            }
        }
        Ok(true)
    }

    /// Unmaps everything that is still live.
    pub(super) fn clear(&mut self) -> Result<()> {
        for mapping in self.live.drain(..).flatten() {
            self.system.unmap(mapping)?;
        }
        Ok(())
    }

    fn request(
        &self,
        id: MapId,
        length: Bytes,
        protection: Protection,
        merge: Merge,
    ) -> MapRequest<'_> {
        let kind = match (merge, self.backend) {
            (Merge::May, _) => MapKind::Anonymous,
            (Merge::Never, Backend::Anonymous) => MapKind::AnonymousAlone,
            (Merge::Never, Backend::Memfd) => MapKind::File {
                file: &self.file,
                offset: Bytes(u64::from(id.0) * self.stride.0),
            },
        };
        MapRequest {
            length,
            protection,
            kind,
            align: Bytes(0),
        }
    }

    fn slot(&mut self, id: MapId) -> &mut Option<Mapping> {
        let index = id.0 as usize;
        if index >= self.live.len() {
            self.live.resize_with(index + 1, || None);
        }
        &mut self.live[index]
    }

    fn timed(&self, operation: Operation, start: Nanos) -> Timed {
        Timed {
            operation,
            start,
            length: self.system.now().saturating_sub(start),
        }
    }
}

/// What a workload's steady phase consists of.
pub(super) enum Step {
    Call(Timed),
    Round,
}

fn unknown(id: MapId) -> Error {
    Error::unsupported(format!("mapping {}", id.0), "the workload never mapped it")
}
