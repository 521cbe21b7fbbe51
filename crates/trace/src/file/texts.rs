use std::collections::HashSet;
use std::sync::Arc;

use super::rows::{Cells, Entries};
use crate::Text;

/// Texts that are kept to be shared, and their bytes.
const KEPT_TEXTS: usize = 65_536;
const KEPT_BYTES: usize = 16 << 20;

/// The texts of one column, by their places in [`Cells`].
#[derive(Default)]
pub(super) struct OfColumn {
    of: Arc<Entries>,
    /// Those of the dictionary that came in some row, and after them those that are not in it.
    texts: Vec<Option<Text>>,
}

impl OfColumn {
    /// Makes the texts of the rows in `cells`.
    pub(super) fn read(&mut self, cells: &Cells, kept: &mut Texts) -> Result<(), String> {
        let entries = &cells.dictionary;
        if !Arc::ptr_eq(&self.of, entries) {
            self.of = Arc::clone(entries);
            self.texts.clear();
        }
        self.texts.truncate(entries.len());
        self.texts.resize(entries.len() + cells.own.len(), None);
        for (&place, &valid) in cells.values.iter().zip(&cells.valid) {
            let place = place as usize;
            if valid == 0 || self.texts[place].is_some() {
                continue;
            }
            let bytes = match place.checked_sub(entries.len()) {
                None => entries.get(place),
                Some(own) => cells.own.get(own),
            };
            self.texts[place] = Some(kept.get(bytes.unwrap_or_default())?);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<&Text> {
        self.texts.get(place as usize)?.as_ref()
    }
}

/// The texts that came lately: most come again and again.
#[derive(Default)]
pub(super) struct Texts {
    kept: HashSet<Text>,
    bytes: usize,
}

impl Texts {
    fn get(&mut self, bytes: &[u8]) -> Result<Text, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())?;
        if let Some(kept) = self.kept.get(text) {
            return Ok(Text::clone(kept));
        }
        if self.kept.len() >= KEPT_TEXTS || self.bytes + bytes.len() > KEPT_BYTES {
            self.kept.clear();
            self.bytes = 0;
        }
        self.bytes += bytes.len();
        let text = Text::from(text);
        self.kept.insert(Text::clone(&text));
        Ok(text)
    }
}
