use alloc::boxed::Box;

use super::{BuildError, Built, Chunk, Effort, LARGEST, Source};

/// A buffer that is being built: what all policies share.
pub(super) struct Buffer<'a> {
    source: &'a mut dyn Source,
    built: Built,
    /// Base pages still to allocate.
    left: u64,
}

impl<'a> Buffer<'a> {
    pub(super) fn new(pages: u64, source: &'a mut dyn Source) -> Buffer<'a> {
        Buffer {
            source,
            built: Built::default(),
            left: pages,
        }
    }

    /// Base pages still to allocate.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The largest order that is not more than what is left, `__fls(count)`, and that there is. Something
    /// is left.
    pub(super) fn largest(&self) -> u32 {
        self.left.ilog2().min(LARGEST)
    }

    /// Whether a chunk of `order` could be had; it is not larger than what is left.
    pub(super) fn allocate(&mut self, order: u32, effort: Effort) -> bool {
        debug_assert!(order <= self.largest());
        self.built.tries.tries[order as usize] += 1;
        let Some(frame) = self.source.allocate(order, effort) else {
            self.built.tries.failed[order as usize] += 1;
            return false;
        };
        let chunk = Chunk { frame, order };
        self.left -= chunk.pages();
        self.built.chunks.push(chunk);
        true
    }

    /// The buffer, complete.
    pub(super) fn done(self) -> Built {
        debug_assert_eq!(self.left, 0);
        self.built
    }

    /// Undoes all.
    pub(super) fn exhausted(self) -> BuildError {
        let error = BuildError::Exhausted {
            tries: Box::new(self.built.tries),
            pages: self.built.pages(),
        };
        self.built.give_back(self.source);
        error
    }
}
