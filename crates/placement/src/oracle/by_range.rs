use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use crate::by_handle::{ByHandle, Handle};
use crate::contract::{FreeError, PlaceError, Policy, Range, Request, Space, Statistics, Work};

/// [`ByHandle`] as a policy: a map has the handle of each range. What is freed it frees again by old handles, which must be refused.
pub struct ByRange {
    inner: ByHandle,
    held: BTreeMap<u64, (Range, Handle)>,
    /// Handles of ranges that were freed, the latest last.
    stale: VecDeque<Handle>,
    /// An old handle freed something, or a handle was of another range.
    fault: Option<Handle>,
}

impl ByRange {
    /// Handles remembered after their range was freed.
    const STALE: usize = 200;

    /// `inner`, fresh.
    #[must_use]
    pub fn new(inner: ByHandle) -> ByRange {
        ByRange {
            inner,
            held: BTreeMap::new(),
            stale: VecDeque::new(),
            fault: None,
        }
    }

    /// Why a range that is not held as it is is refused.
    fn refuse(&self, range: Range) -> FreeError {
        if !self.inner.space().holds(range) {
            return FreeError::Malformed;
        }
        let before = self.held.range(..range.end).next_back();
        if before.is_some_and(|(_, (held, _))| range.start < held.end) {
            FreeError::NotAsGiven
        } else {
            FreeError::AlreadyFree
        }
    }
}

impl Policy for ByRange {
    fn space(&self) -> Space {
        self.inner.space()
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let (range, handle) = self.inner.place(request)?;
        if self.inner.range_of(handle) != Ok(range) {
            self.fault = Some(handle);
        }
        self.held.insert(range.start, (range, handle));
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        let found = self.held.get(&range.start).copied();
        let Some((_, handle)) = found.filter(|(held, _)| *held == range) else {
            return Err(self.refuse(range));
        };
        self.inner.free(handle)?;
        self.held.remove(&range.start);
        self.stale.push_back(handle);
        let oldest = (self.stale.len() > ByRange::STALE).then(|| self.stale.pop_front());
        for old in [Some(handle), oldest.flatten()].into_iter().flatten() {
            if self.inner.free(old) != Err(FreeError::AlreadyFree) {
                self.fault = Some(old);
            }
        }
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    fn work(&self) -> Work {
        self.inner.work()
    }

    fn check(&self) -> Result<(), String> {
        match self.fault {
            Some(handle) => Err(alloc::format!("{handle:?} is taken for another")),
            None => self.inner.check(),
        }
    }
}
