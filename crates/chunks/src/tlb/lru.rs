use alloc::vec::Vec;

/// The pages that were used last, the newest first.
pub(super) struct Lru {
    pages: Vec<u64>,
    entries: usize,
}

impl Lru {
    /// Room for `entries` pages, at least 1.
    pub(super) fn new(entries: usize) -> Lru {
        Lru {
            pages: Vec::new(),
            entries,
        }
    }

    /// Uses `page`; whether it was there already.
    pub(super) fn touch(&mut self, page: u64) -> bool {
        let found = self.pages.iter().position(|&there| there == page);
        let place = found.unwrap_or_else(|| {
            if self.pages.len() < self.entries {
                self.pages.push(page);
            }
            self.pages.len() - 1 // the oldest, which goes, or the one that was just put there
        });
        self.pages[..=place].rotate_right(1);
        self.pages[0] = page;
        found.is_some()
    }
}
