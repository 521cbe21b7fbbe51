//! Where a cell's process has its memory: the layout sample.
//!
//! Addresses are the same at each boot (ASLR is off), and that is a trap: whether two buffers share a page-table page, or a
//! search meets a hole early, is an accident of one layout, which a comparison of two kernels would take for the kernels'
//! doing. So a *sample* of layouts is compared, and the seed draws them: stack, heap and the area of mmap(2) are each moved
//! by whole pages, by less than what one page-table page covers.
//!
//! Eight touched *anchor* pages come next, each a mapping of its own, so that the first page-table pages of the area are there
//! before anything is counted and stay to the end.

use stopgap_events::memory::Protection;
use stopgap_events::random::Random;
use stopgap_events::units::Bytes;
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, Memory};
use stopgap_kernel::{Linux, Result};

/// Pages that one page-table page covers, where pages are 4 KiB.
const COVERED: u64 = 512;
/// The stack moves by fewer pages: an argument of a program may be 32 pages long.
const MOST_STACK: u64 = 31;
/// Anchor pages.
pub const ANCHORS: usize = 8;

/// How far a seed moves each area, in base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The stack: what the arguments of the program take.
    pub stack: u64,
    /// The heap.
    pub heap: u64,
    /// The area that mmap(2) places in.
    pub area: u64,
}

impl Layout {
    /// The layout of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Layout {
        let mut random = Random::new(seed);
        Layout {
            stack: random.below(MOST_STACK),
            heap: random.below(COVERED),
            area: random.below(COVERED),
        }
    }

    /// The argument that moves the stack of a program that it is given to.
    #[must_use]
    pub fn argument(&self, page: Bytes) -> String {
        let bytes = usize::try_from(self.stack * page.0.min(4_096)).unwrap_or(0);
        "-".repeat(bytes)
    }

    /// Moves heap and area of the calling process, and maps the anchors. To be called first.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn take(&self) -> Result<Anchors> {
        grow_heap(self.heap * Linux.page_size().0);
        let shift = match self.area {
            0 => None,
            pages => Some(Linux.map(&MapRequest {
                length: Bytes(pages * Linux.page_size().0),
                protection: Protection::None,
                kind: MapKind::Anonymous,
                align: Bytes(0),
            })?),
        };
        let anchors = (0..ANCHORS).map(|_| {
            let anchor = Linux.map(&MapRequest {
                length: Linux.page_size(),
                protection: Protection::Write,
                kind: MapKind::AnonymousAlone,
                align: Bytes(0),
            })?;
            Linux.touch(&anchor, Bytes(0), anchor.range().length())?;
            Ok(anchor)
        });
        let _anchors = anchors.collect::<Result<_>>()?;
        Ok(Anchors {
            _shift: shift,
            _anchors,
        })
    }
}

/// The anchors; they stay mapped until the process ends.
#[derive(Debug)]
pub struct Anchors {
    _shift: Option<Mapping>,
    _anchors: Vec<Mapping>,
}

/// Moves the end of the heap up. Where the kernel refuses, the heap begins where it begins.
#[allow(unsafe_code)]
fn grow_heap(bytes: u64) {
    if let Ok(bytes) = libc::intptr_t::try_from(bytes) {
        // SAFETY: adds memory behind the heap; malloc(3) takes up wherever the end is.
        unsafe { libc::sbrk(bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_stay_in_their_ranges() {
        let layouts: Vec<Layout> = (0..200).map(Layout::of).collect();
        for layout in &layouts {
            assert!(layout.stack < 31 && layout.heap < 512 && layout.area < 512);
            assert_eq!(
                layout.argument(Bytes::kib(4)).len() as u64,
                layout.stack * 4_096
            );
        }
        for seed in 1..6 {
            assert_ne!(layouts[seed], layouts[seed - 1]);
        }
        assert_eq!(Layout::of(7), Layout::of(7));
    }

    #[test]
    fn the_anchors_are_apart_and_the_area_moves() {
        let layout = Layout {
            stack: 0,
            heap: 3,
            area: 5,
        };
        let taken = layout.take().unwrap();
        assert_eq!(taken._anchors.len(), ANCHORS);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for anchor in &taken._anchors {
            let start = format!("{:x}-{:x} rw-s", anchor.range().start, anchor.range().end);
            assert!(
                maps.contains(&start),
                "{start} is no mapping of its own in\n{maps}"
            );
        }
        for anchor in taken._anchors {
            Linux.unmap(anchor).unwrap();
        }
        Linux.unmap(taken._shift.unwrap()).unwrap();
    }
}
