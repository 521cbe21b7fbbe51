//! A page of the ring buffer, as `per_cpu/cpuN/trace_pipe_raw` gives it: when it begins, what was
//! lost before it, and its records (`kernel/trace/ring_buffer.c`).
//!
//! ```text
//! page:   | timestamp | commit and flags | records ... | lost events (where flagged) | unused |
//!           0           8                  16            16 + commit
//! record: | 5 bits type or length / 4 | 27 bits ns since the record before | data, 4-byte steps |
//! ```
//!
//! The layout is read from `events/header_page`; what a header word means is the same since
//! Linux 2.6.30 (absolute timestamps: 4.17). Little-endian machines only: on others the two parts of
//! the header word change places.

use crate::error::{Error, Result};
use crate::format::Field;

/// The types of a header word that are no length.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time in the header word; the rest is in the word after it.
const DELTA_BITS: u32 = 27;
/// An absolute time has 59 bits; the upper 5 are those of the time before it.
const STAMP_BITS: u32 = 59;
/// `RB_MISSED_EVENTS`, `RB_MISSED_STORED`: flags in `commit`.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// The bits of `commit` that are the length.
const COMMIT: u64 = (1 << 20) - 1;
/// Bytes before a page's data; kernels have 16.
const LARGEST_HEADER: usize = 256;

/// How the kernel's pages are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLayout {
    timestamp: Field,
    commit: Field,
    data: Field,
}

impl PageLayout {
    /// Reads the text of `events/header_page`; `file` is its name in errors.
    ///
    /// # Errors
    /// Where a field is missing or of another size than a kernel could have.
    pub fn parse(file: &str, text: &str) -> Result<PageLayout> {
        let wrong = |why: String| Error::description(file, why);
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with("field:") {
                fields.push(Field::parse(line).map_err(wrong)?);
            }
        }
        let find = |name: &str, sizes: &dyn Fn(usize) -> bool| {
            let field = fields.iter().find(|field| field.name() == name);
            let field = field.ok_or_else(|| wrong(format!("it has no field {name}")))?;
            if sizes(field.size()) {
                return Ok(field.clone());
            }
            let size = field.size();
            Err(wrong(format!("field {name}: a size of {size} bytes")))
        };
        let layout = PageLayout {
            timestamp: find("timestamp", &|size| size == 8)?,
            commit: find("commit", &|size| size == 4 || size == 8)?,
            data: find("data", &|size| (64..COMMIT as usize).contains(&size))?,
        };
        // A page is held for each CPU.
        if layout.data.offset() > LARGEST_HEADER {
            let offset = layout.data.offset();
            return Err(wrong(format!("field data: at byte {offset} of a page")));
        }
        Ok(layout)
    }

    /// Bytes of a page, its header with it.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.data.offset() + self.data.size()
    }

    /// The page in `bytes`, which may end where its records do.
    ///
    /// # Errors
    /// A line that says why it is none: it ends in its header, or its records lie beyond its end.
    pub fn page<'p>(&self, bytes: &'p [u8]) -> std::result::Result<Page<'p>, String> {
        let short = || format!("{} bytes hold no page header", bytes.len());
        let time = self.timestamp.unsigned(bytes).ok_or_else(short)?;
        let commit = self.commit.unsigned(bytes).ok_or_else(short)?;
        let data = bytes.get(self.data.offset()..).ok_or_else(short)?;
        let length = (commit & COMMIT) as usize;
        let records = data.get(..length).ok_or_else(|| {
            format!(
                "it says that its records take {length} bytes of {}",
                data.len()
            )
        })?;
        let lost = match commit & (MISSED | MISSED_STORED) {
            0 => None,
            flags if flags & MISSED_STORED == 0 => Some(Lost::Unknown),
            _ => {
                // An `unsigned long`, as the length is.
                let end = length + self.commit.size();
                let count = data.get(length..end).map(|bytes| {
                    let mut wide = [0; 8];
                    wide[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(wide)
                });
                let beyond = || "the count of lost events lies beyond its end".to_owned();
                Some(Lost::Events(count.ok_or_else(beyond)?))
            }
        };
        Ok(Page {
            time,
            lost,
            records,
            header: self.data.offset(),
        })
    }
}

/// Events that were lost before a page, because they were not read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// So many.
    Events(u64),
    /// The kernel had no room to say how many.
    Unknown,
}

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'p> {
    /// When it begins, in ns on the clock of the buffer.
    pub time: u64,
    /// The events lost before it.
    pub lost: Option<Lost>,
    records: &'p [u8],
    header: usize,
}

impl<'p> Page<'p> {
    /// Its records, in order.
    #[must_use]
    pub fn records(&self) -> Records<'p> {
        Records {
            time: self.time,
            header: self.header,
            all: self.records,
            at: 0,
        }
    }
}

/// One record: an event's bytes, from its common fields on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'p> {
    /// When, in ns on the clock of the buffer.
    pub time: u64,
    /// Its fields, as its format says.
    pub data: &'p [u8],
    /// Where in the page they begin.
    pub offset: usize,
}

impl Record<'_> {
    /// The number of its event; `None` where it is too short for one.
    #[must_use]
    pub fn id(&self) -> Option<u16> {
        self.data.first_chunk().map(|&id| u16::from_le_bytes(id))
    }
}

/// The records of a page. An error ends them: the next record has no known begin.
#[derive(Debug, Clone)]
pub struct Records<'p> {
    time: u64,
    /// Bytes of the page before its records.
    header: usize,
    all: &'p [u8],
    at: usize,
}

impl<'p> Records<'p> {
    /// The next record, `None` at the end of the page.
    fn step(&mut self) -> std::result::Result<Option<Record<'p>>, String> {
        while self.at < self.all.len() {
            let (at, all) = (self.at, self.all);
            let cut = || format!("it ends within the record at {at}");
            let head = word(all, at).ok_or_else(cut)?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let next = || word(all, at + 4).ok_or_else(cut);
            let (start, length) = match kind {
                PADDING if delta == 0 => break, // nothing follows
                PADDING => {
                    // A record that was taken back; of 1 ns by the kernel's own hand
                    // (`rb_event_discard()`), no time has passed.
                    self.time = self.time.wrapping_add(if delta == 1 { 0 } else { delta });
                    self.at = at + 4 + next()? as usize;
                    if self.at > self.all.len() {
                        return Err(cut());
                    }
                    continue;
                }
                TIME_EXTEND => {
                    let more = u64::from(next()?) << DELTA_BITS;
                    self.time = self.time.wrapping_add(more + delta);
                    self.at = at + 8;
                    continue;
                }
                TIME_STAMP => {
                    self.time = absolute(self.time, (u64::from(next()?) << DELTA_BITS) + delta);
                    self.at = at + 8;
                    continue;
                }
                0 => {
                    let length = (next()? as usize).checked_sub(4);
                    let short = || format!("the record at {at} has no length");
                    (at + 8, length.ok_or_else(short)?)
                }
                words => (at + 4, words as usize * 4),
            };
            let data = all.get(start..start.saturating_add(length));
            let data = data.ok_or_else(cut)?;
            self.time = self.time.wrapping_add(delta);
            self.at = start + length.next_multiple_of(4);
            return Ok(Some(Record {
                time: self.time,
                data,
                offset: self.header + start,
            }));
        }
        Ok(None)
    }
}

impl<'p> Iterator for Records<'p> {
    type Item = std::result::Result<Record<'p>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.at = self.all.len();
        }
        step.transpose()
    }
}

fn word(all: &[u8], at: usize) -> Option<u32> {
    let bytes = all.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The time of which the lower 59 bits are `low`, after `before` (`rb_fix_abs_ts()`).
fn absolute(before: u64, low: u64) -> u64 {
    let low = low & ((1 << STAMP_BITS) - 1);
    let time = before >> STAMP_BITS << STAMP_BITS | low;
    if before >> STAMP_BITS != 0 && time < before {
        return time.wrapping_add(1 << STAMP_BITS); // the lower part has begun anew
    }
    time
}

#[cfg(test)]
mod tests;
