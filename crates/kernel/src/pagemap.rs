//! Physical memory behind virtual addresses, from `/proc/self/pagemap`.
//!
//! 64 bits a base page (Documentation/admin-guide/mm/pagemap.rst, Linux 6.12): bit 63 present,
//! bit 62 swapped, bits 0 to 54 the page frame number where it is present. Since 4.2 a reader
//! without `CAP_SYS_ADMIN` gets frame number 0 for every page: that is *unknown*, never frame
//! 0, which Linux gives to nobody.

use std::path::Path;

use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Pages};

use crate::error::{Error, Result};
use crate::files::Files;
use crate::memory::Memory;

const PATH: &str = "/proc/self/pagemap";
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FRAME: u64 = (1 << 55) - 1;
/// Pages read by one call.
const AT_ONCE: u64 = 1 << 16;

/// Page frames behind a range of virtual addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Physical addresses of the present pages in the order of their virtual addresses;
    /// neighbours that continue one another in both are one run. `None`: unknown, because the
    /// kernel hides frame numbers from us (it needs `CAP_SYS_ADMIN`).
    pub runs: Option<Vec<AddressRange>>,
    /// Pages that are present.
    pub present: Pages,
    /// Pages that are swapped out.
    pub swapped: Pages,
    /// Pages that are neither.
    pub absent: Pages,
}

/// The physical layout of `range` of this process. Base pages are read 65,536 a call, about
/// 10 ns each.
///
/// # Errors
/// Where the file cannot be read (a kernel without `CONFIG_PROC_PAGE_MONITOR`; before 4.2
/// without privilege), ends early, or `range` is not page aligned.
pub fn layout<S: Files + Memory + ?Sized>(system: &S, range: AddressRange) -> Result<Layout> {
    let page = system.page_size();
    if !range.start.is_multiple_of(page.0) || !range.end.is_multiple_of(page.0) {
        return Err(Error::parse(PATH, format!("{range} is not page aligned")));
    }
    let mut builder = Builder::new(page);
    let mut at = range.start / page.0;
    let end = range.end / page.0;
    while at < end {
        let count = (end - at).min(AT_ONCE);
        let bytes = system.read_at(Path::new(PATH), at * 8, count as usize * 8)?;
        if bytes.len() as u64 != count * 8 {
            let reason = format!("ends after {} of {count} pages at {at:#x}", bytes.len() / 8);
            return Err(Error::parse(PATH, reason));
        }
        let (words, _) = bytes.as_chunks::<8>();
        for word in words {
            builder.add(u64::from_ne_bytes(*word));
        }
        at += count;
    }
    Ok(builder.layout)
}

struct Builder {
    layout: Layout,
    page: Bytes,
    /// Whether the page before was present, so that the next one may continue its run.
    open: bool,
}

impl Builder {
    fn new(page: Bytes) -> Builder {
        Builder {
            layout: Layout {
                runs: Some(Vec::new()),
                present: Pages(0),
                swapped: Pages(0),
                absent: Pages(0),
            },
            page,
            open: false,
        }
    }

    fn add(&mut self, word: u64) {
        if word & PRESENT == 0 {
            self.open = false;
            if word & SWAPPED == 0 {
                self.layout.absent += Pages(1);
            } else {
                self.layout.swapped += Pages(1);
            }
            return;
        }
        self.layout.present += Pages(1);
        let frame = word & FRAME;
        if frame == 0 {
            self.layout.runs = None;
        }
        let Some(runs) = &mut self.layout.runs else {
            return;
        };
        let start = frame.saturating_mul(self.page.0);
        let end = start.saturating_add(self.page.0);
        match runs.last_mut() {
            Some(last) if self.open && last.end == start => last.end = end,
            _ => runs.push(AddressRange { start, end }),
        }
        self.open = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(words: &[u64]) -> Layout {
        let mut builder = Builder::new(Bytes::kib(16));
        for &word in words {
            builder.add(word);
        }
        builder.layout
    }

    fn frames(start: u64, end: u64) -> AddressRange {
        AddressRange {
            start: start << 14,
            end: end << 14,
        }
    }

    /// ```text
    /// virtual    0 1 2 3 4 5 6 7
    /// frame      7 8 9 - 10 s 3 2
    /// runs       [---]   [ ] [ ][ ]
    /// ```
    #[test]
    fn consecutive_frames_are_one_run() {
        let soft_dirty = 1 << 55;
        let layout = build(&[
            PRESENT | 7,
            PRESENT | soft_dirty | 8,
            PRESENT | 9,
            0,
            PRESENT | 10, // the next frame, but not the next page
            SWAPPED | 11,
            PRESENT | 3,
            PRESENT | 2, // backwards
        ]);
        let runs = [frames(7, 10), frames(10, 11), frames(3, 4), frames(2, 3)];
        assert_eq!(layout.runs.unwrap(), runs);
        let counts = (layout.present, layout.swapped, layout.absent);
        assert_eq!(counts, (Pages(6), Pages(1), Pages(1)));
    }

    #[test]
    fn hidden_frames_are_unknown_not_a_run() {
        let layout = build(&[PRESENT, PRESENT, 0]);
        assert_eq!(layout.runs, None);
        assert_eq!(layout.present, Pages(2));
        // Nothing present: nothing is hidden.
        assert_eq!(build(&[0, SWAPPED]).runs, Some(vec![]));
    }

    #[test]
    fn a_file_that_ends_early_is_an_error() {
        let words: Vec<u8> = [0, PRESENT | 5]
            .iter()
            .flat_map(|w: &u64| w.to_ne_bytes())
            .collect();
        let fake = crate::fake::Fake::default().with_file(PATH, &words);
        let range = |start: u64, end: u64| AddressRange {
            start: start << 12,
            end: end << 12,
        };
        let found = layout(&fake, range(1, 2)).unwrap();
        let expected = AddressRange {
            start: 5 << 12,
            end: 6 << 12,
        };
        assert_eq!(found.runs.unwrap(), [expected]);
        let error = layout(&fake, range(1, 4)).unwrap_err().to_string();
        assert!(error.contains("ends after 1 of 3 pages at 0x1"), "{error}");
        assert!(
            layout(
                &fake,
                AddressRange {
                    start: 1,
                    end: 4096
                }
            )
            .is_err()
        );
    }

    #[test]
    fn what_was_touched_is_present() {
        use crate::Linux;
        use crate::memory::{Advice, MapKind, MapRequest};

        let page = Linux.page_size();
        let request = MapRequest::writable(Bytes(8 * page.0), MapKind::AnonymousAlone);
        let mapping = Linux.map(&request).unwrap();
        let _ = Linux.advise(&mapping, Bytes(0), request.length, Advice::NoHugePage);
        Linux.touch(&mapping, Bytes(0), Bytes(3 * page.0)).unwrap();
        let found = layout(&Linux, mapping.range()).unwrap();
        // Shared anonymous memory may come in larger folios, never in smaller ones.
        assert!(found.present.0 >= 3, "{found:?}");
        if let Some(runs) = &found.runs {
            let bytes: Bytes = runs.iter().map(AddressRange::length).sum();
            assert_eq!(bytes, found.present.bytes(page));
        }
        Linux.unmap(mapping).unwrap();
    }
}
