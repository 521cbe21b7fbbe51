use std::collections::HashSet;

use crate::Text;

/// Longest text of one cell.
const LONGEST_TEXT: usize = 64 << 10;
/// Texts that are kept to be shared, and their bytes.
const KEPT_TEXTS: usize = 65_536;
const KEPT_BYTES: usize = 16 << 20;

/// The texts that came lately: most come again and again.
#[derive(Default)]
pub(super) struct Texts {
    kept: HashSet<Text>,
    bytes: usize,
}

impl Texts {
    /// The text of these bytes.
    pub(super) fn get(&mut self, bytes: &[u8]) -> Result<Text, String> {
        if bytes.len() > LONGEST_TEXT {
            let length = bytes.len();
            return Err(format!(
                "a text of {length} bytes; at most {LONGEST_TEXT} are read"
            ));
        }
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
