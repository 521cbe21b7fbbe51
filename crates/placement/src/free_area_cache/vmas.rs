use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::contract::{FreeError, Merge, Range, Space, Statistics};

/// The VMAs of an address space by address, and the one that was looked up last.
///
/// The kernel has a red-black tree and a sorted list over the same VMAs. Here it is one B-tree, keyed
/// by the VMAs' *ends*: what [`VmaSet::find`] asks for, the lowest VMA that ends above an address, is
/// then the first entry above that key, a single descent of O(log N) like find_vma's, and a step of the
/// list is a step of the tree's iterator. A node holds up to eleven entries, so a descent touches fewer
/// lines of memory than the kernel's; the order of its cost is the same.
#[derive(Debug, Clone)]
pub(super) struct VmaSet {
    space: Space,
    by_end: BTreeMap<u64, Vma>,
    /// mm->mmap_cache: what the last lookup gave. The kernel keeps a pointer, which follows a VMA that
    /// grows; here it is forgotten when the VMA changes. Only time could tell them apart.
    last: Option<Range>,
}

#[derive(Debug, Clone, Copy)]
struct Vma {
    start: u64,
    merge: Merge,
}

/// What lies on either side of a hole that munmap(2) has just made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbours {
    /// Where the VMA below ends.
    pub(super) below: Option<u64>,
    /// Where the VMA above starts.
    pub(super) above: Option<u64>,
}

impl VmaSet {
    pub(super) fn new(space: Space) -> VmaSet {
        VmaSet {
            space,
            by_end: BTreeMap::new(),
            last: None,
        }
    }

    pub(super) fn space(&self) -> Space {
        self.space
    }

    /// find_vma(): the lowest VMA whose end is above `address`. The last VMA found is tried first, but
    /// counts only if it contains `address`; whatever is found is remembered. O(log N), or O(1) if it is
    /// the last one.
    pub(super) fn find(&mut self, address: u64) -> Option<Range> {
        if let Some(last) = self.last
            && (last.start..last.end).contains(&address)
        {
            return Some(last);
        }
        let (&end, vma) = self.by_end.range(address + 1..).next()?;
        self.last = Some(Range::new(vma.start, end));
        self.last
    }

    /// vma->vm_next and on: the VMAs that end above `address`, by address. O(log N) for the first.
    pub(super) fn above(&self, address: u64) -> impl Iterator<Item = Range> + '_ {
        self.from(address).map(|(range, _)| range)
    }

    fn from(&self, address: u64) -> impl Iterator<Item = (Range, Merge)> + '_ {
        // Addresses end at 2^48, and so the sum cannot overflow.
        self.by_end
            .range(address + 1..)
            .map(|(&end, vma)| (Range::new(vma.start, end), vma.merge))
    }

    /// Takes `range`, which is free, and joins it with neighbours that are alike. O(log N).
    pub(super) fn take(&mut self, range: Range, merge: Merge) {
        self.insert(range, merge);
        if merge != Merge::Never {
            self.join(range.start);
            self.join(range.end);
        }
    }

    /// Frees `range` as do_munmap() does: VMAs are split at its ends, all between is removed, and the
    /// last lookup is forgotten. O((VMAs freed + 1) log N).
    pub(super) fn free(&mut self, range: Range) -> Result<Neighbours, FreeError> {
        self.refuse(range)?;
        self.carve(range);
        self.last = None;
        let below = self.by_end.range(..=range.start).next_back();
        Ok(Neighbours {
            below: below.map(|(&end, _)| end),
            above: self.from(range.end).next().map(|(above, _)| above.start),
        })
    }

    /// Changes what `part` merges with, as mprotect(2) does. O((VMAs touched + 1) log N).
    pub(super) fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        self.refuse(part)?;
        let fixed = self.touched(part).any(|(_, has)| has == Merge::Never);
        if merge == Merge::Never || fixed {
            return Err(FreeError::NotAsGiven);
        }
        self.carve(part);
        self.take(part, merge);
        Ok(())
    }

    fn touched(&self, range: Range) -> impl Iterator<Item = (Range, Merge)> + '_ {
        self.from(range.start)
            .take_while(move |(vma, _)| vma.start < range.end)
    }

    /// Why `range` may not be freed or changed, if it may not.
    fn refuse(&self, range: Range) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let (mut taken, mut divisible, mut whole) = (0, true, false);
        for (vma, merge) in self.touched(range) {
            taken += vma.end.min(range.end) - vma.start.max(range.start);
            divisible &= merge != Merge::Never;
            whole = vma == range;
        }
        match taken {
            0 => Err(FreeError::AlreadyFree),
            _ if whole || (divisible && taken == range.length()) => Ok(()),
            _ => Err(FreeError::NotAsGiven),
        }
    }

    /// Removes `range` from all VMAs that it touches; what lies outside it stays.
    fn carve(&mut self, range: Range) {
        // Ends: what is put back no longer touches `range`.
        while let Some((vma, merge)) = { self.touched(range).next() } {
            self.remove(vma.end);
            if vma.start < range.start {
                self.insert(Range::new(vma.start, range.start), merge);
            }
            if range.end < vma.end {
                self.insert(Range::new(range.end, vma.end), merge);
            }
        }
    }

    /// Makes one VMA of the two that meet at `address`, if they do and are alike.
    fn join(&mut self, address: u64) {
        let below = self.by_end.get(&address).copied();
        let above = self.from(address).next();
        if let (Some(below), Some((above, merge))) = (below, above)
            && above.start == address
            && below.merge == merge
            && merge != Merge::Never
        {
            self.remove(address);
            self.remove(above.end);
            self.insert(Range::new(below.start, above.end), merge);
        }
    }

    fn insert(&mut self, range: Range, merge: Merge) {
        let start = range.start;
        self.by_end.insert(range.end, Vma { start, merge });
    }

    fn remove(&mut self, end: u64) {
        self.by_end.remove(&end);
        self.last = self.last.filter(|last| last.end != end);
    }

    /// Walks all VMAs. `memory` is an estimate, because a BTreeMap does not tell its capacity: its
    /// nodes counted as ln 2 full, which is what random insertions and removals leave of a B-tree.
    pub(super) fn statistics(&self) -> Statistics {
        let window = self.space.window();
        let (mut used, mut holes, mut largest_hole) = (0, 0, 0);
        let mut hole = |start: u64, end: u64| {
            holes += u64::from(start < end);
            largest_hole = largest_hole.max(end - start);
        };
        let (mut last, mut first) = (window.start, None);
        for range in self.above(window.start) {
            used += range.length();
            hole(last, range.start);
            first = first.or(Some(range.start));
            last = range.end;
        }
        hole(last, window.end);
        let entry = size_of::<(u64, Vma)>() as u64;
        Statistics {
            ranges: self.by_end.len() as u64,
            used,
            span: first.map(|start| Range::new(start, last)),
            holes,
            largest_hole,
            memory: self.by_end.len() as u64 * entry * 1_000 / 693,
        }
    }

    /// VMAs are whole pages, in order and apart; no two that are alike touch; the last lookup is one.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut below: Option<(Range, Merge)> = None;
        for (range, merge) in self.from(0) {
            if !self.space.holds(range) {
                return Err(format!("VMA {range} is not made of whole pages"));
            }
            if let Some((under, alike)) = below {
                if under.end > range.start {
                    return Err(format!("VMAs {under} and {range} overlap"));
                }
                if under.end == range.start && merge == alike && merge != Merge::Never {
                    return Err(format!("VMAs {under} and {range} should be one"));
                }
            }
            below = Some((range, merge));
        }
        let known = |last: Range| self.by_end.get(&last.end).map(|vma| vma.start);
        match self.last {
            Some(last) if known(last) != Some(last.start) => {
                Err(format!("the last lookup gave {last}, which is no VMA"))
            }
            _ => Ok(()),
        }
    }
}
