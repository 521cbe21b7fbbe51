//! Pages that a buffer got, and the tries for them.

use std::fmt;
use std::time::Duration;

use super::knobs::Why;

/// Where pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The kernel's pool of huge pages that are set aside.
    Hugetlb,
    /// Transparent huge pages.
    Thp,
    /// Base pages.
    Base,
}

/// Pages of one size and one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes of one page.
    pub page: usize,
    /// Where they come from.
    pub kind: Kind,
    /// Bytes that the buffer has of them.
    pub bytes: usize,
    /// Bytes of these that nobody looked at: `/proc/self/pagemap` could not be read, so that smaller pages may have
    /// come. Not 0 is unknown, not bad.
    pub unverified: usize,
    /// How often the kernel was asked.
    pub tries: u64,
    /// Tries that gave something smaller, or nothing.
    pub failed: u64,
    /// How often the policy wanted one and the kernel was not asked.
    pub refused: u64,
    /// Why it was not, the last time.
    pub why: Option<Why>,
}

/// Pages that a buffer got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Got {
    /// By size, the largest first; those that the policy asked for, and base pages.
    pub sizes: Vec<Size>,
    /// Chunks in the order of their addresses: bytes of each, and how many follow one another. Each lies in one piece
    /// of physical memory, aligned to its size (as long as the kernel does not move or swap it); neighbours may or may
    /// not continue one another. What is unverified counts as base pages.
    pub chunks: Vec<(usize, u64)>,
    /// From the first system call to the last.
    pub took: Duration,
}

impl Got {
    /// Bytes in pages larger than a base page that were seen to be so.
    #[must_use]
    pub fn large_bytes(&self) -> usize {
        let large = self.sizes.iter().filter(|size| size.kind != Kind::Base);
        large.map(|size| size.bytes - size.unverified).sum()
    }

    /// The row of a size and a kind, made where there is none.
    pub(super) fn row(&mut self, kind: Kind, page: usize) -> &mut Size {
        let place = |size: &Size| (std::cmp::Reverse(size.page), size.kind as u8);
        let key = (std::cmp::Reverse(page), kind as u8);
        let at = match self.sizes.binary_search_by_key(&key, place) {
            Ok(at) => at,
            Err(at) => {
                let new = Size {
                    page,
                    kind,
                    bytes: 0,
                    unverified: 0,
                    tries: 0,
                    failed: 0,
                    refused: 0,
                    why: None,
                };
                self.sizes.insert(at, new);
                at
            }
        };
        &mut self.sizes[at]
    }

    pub(super) fn chunk(&mut self, bytes: usize, count: u64) {
        match self.chunks.last_mut() {
            Some(last) if last.0 == bytes => last.1 += count,
            _ => self.chunks.push((bytes, count)),
        }
    }
}

/// Bytes of a page, short: `2M`, `64K`.
fn short(bytes: usize) -> String {
    match bytes.trailing_zeros() {
        20.. => format!("{}M", bytes >> 20),
        10.. => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// One line a size: `2M thp: 62914560 bytes, 31 tries, 1 failed`.
impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for size in &self.sizes {
            let kind = match size.kind {
                Kind::Hugetlb => "hugetlb",
                Kind::Thp => "thp",
                Kind::Base => "base",
            };
            let page = short(size.page);
            write!(f, "{page} {kind}: {} bytes", size.bytes)?;
            if size.tries > 0 {
                write!(f, ", {} tries, {} failed", size.tries, size.failed)?;
            }
            if size.unverified > 0 {
                write!(f, ", {} bytes unverified", size.unverified)?;
            }
            if let Some(why) = size.why {
                write!(f, ", {} times not tried: {why}", size.refused)?;
            }
            writeln!(f)?;
        }
        write!(f, "took {} us", self.took.as_micros())
    }
}
