use super::Range;

/// Ranges and holes of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Ranges held, or VMAs where the policy keeps those.
    pub ranges: u64,
    /// Bytes held.
    pub used: u64,
    /// From the first byte held to the last; `None` where nothing is.
    pub span: Option<Range>,
    /// Free areas that are as large as they can be, those at the window's ends among them.
    pub holes: u64,
    /// The largest of them in bytes; 0 where there is none.
    pub largest_hole: u64,
    /// Bytes of memory that the policy's own structures take, by capacity.
    pub memory: u64,
}

impl Statistics {
    /// Counts a hole.
    pub(crate) fn add_hole(&mut self, hole: Range) {
        self.holes += 1;
        self.largest_hole = self.largest_hole.max(hole.length());
    }

    /// Counts a placed range, which lies above those that were counted before.
    pub(crate) fn add_range(&mut self, range: Range) {
        self.ranges += 1;
        self.used += range.length();
        let first = self.span.map_or(range.start, |span| span.start);
        self.span = Some(Range::new(first, range.end));
    }
}

/// Steps of a policy since it was made. A counter that the policy has no use for stays 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Calls of `place` that gave a range.
    pub placed: u64,
    /// VMAs, nodes or free areas looked at while searching. For `linux-2.6.35` and `linux-3.4`:
    /// calls of `find` and steps along the list.
    pub visited: u64,
    /// Nodes of a tree that lookups of visited VMAs passed on their way down (2.6.35, 3.4); 0 where a visit is
    /// of a node.
    pub descended: u64,
    /// Steps that keep a search structure right after a change: nodes recomputed, on all levels.
    pub propagated: u64,
    /// Searches that began at the base again because of cached_hole_size (2.6.35, 3.4).
    pub resets: u64,
    /// Searches that scanned from the base (2.6.35, 3.4).
    pub full_scans: u64,
    /// Times that deferred work was carried out at once: a dirty chain flushed, magazines emptied.
    pub flushes: u64,
}

impl Work {
    /// Nothing done.
    pub(crate) const ZERO: Work = Work {
        placed: 0,
        visited: 0,
        descended: 0,
        propagated: 0,
        resets: 0,
        full_scans: 0,
        flushes: 0,
    };
}
