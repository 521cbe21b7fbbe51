use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;

use super::hybrid::Hybrid;
use super::pages::{CUT_OFF, Pages, SHORT};
use crate::column::{Column, ColumnType};

/// Longest text of one cell.
const LONGEST_TEXT: usize = 64 << 10;

/// A column of a row group, decoded some rows at a time.
pub(super) struct Rows {
    column: Column,
    physical: Physical,
    pages: Pages,
    /// Rows of the page that are still to come.
    left: usize,
    /// Which of them are not null; `None` where all are.
    levels: Option<Hybrid>,
    values: Values,
    numbers: Vec<u64>,
    dictionary: Arc<Entries>,
    /// Values of rows that are partly null, before each comes to its row.
    dense: Vec<u64>,
}

/// The values of a page that are still to come.
enum Values {
    Plain(Bytes),
    /// By their bits, and the next of these.
    Bits(Bytes, usize),
    /// By their places in the dictionary.
    Places(Hybrid),
    Runs(Hybrid),
}

/// Some rows of one column.
#[derive(Default)]
pub(super) struct Cells {
    /// For each row 1, or 0 where it is null. Empty where all are.
    pub(super) valid: Vec<u8>,
    /// For each row its number, or of a text its place: in the dictionary, and after that in `own`.
    pub(super) values: Vec<u64>,
    /// Whether numbers are those of an `i64`.
    pub(super) signed: bool,
    pub(super) dictionary: Arc<Entries>,
    /// Texts that are not in the dictionary.
    pub(super) own: Entries,
}

/// Texts as they stand in a page, each after its length.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Bytes,
    at: Vec<(u32, u32)>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&[u8]> {
        let &(from, length) = self.at.get(place)?;
        self.bytes.get(from as usize..)?.get(..length as usize)
    }

    /// Takes `count` texts from the begin of a page, and returns how many bytes they are.
    fn read(bytes: &Bytes, count: usize) -> Result<(Entries, usize), String> {
        let (mut at, mut from) = (Vec::with_capacity(count.min(bytes.len() / 4)), 0);
        for _ in 0..count {
            let rest = bytes.get(from..).ok_or(SHORT)?;
            let (length, rest) = rest.split_first_chunk().ok_or(SHORT)?;
            let length = u32::from_le_bytes(*length);
            if length as usize > rest.len() {
                return Err(SHORT.to_owned());
            }
            if length as usize > LONGEST_TEXT {
                return Err(format!(
                    "a text of {length} bytes; at most {LONGEST_TEXT} are read"
                ));
            }
            at.push((from as u32 + 4, length)); // a page has 64 MiB at most
            from += 4 + length as usize;
        }
        let bytes = bytes.slice(..from);
        Ok((Entries { bytes, at }, from))
    }
}

impl Rows {
    pub(super) fn new(column: Column, physical: Physical, pages: Pages) -> Rows {
        Rows {
            column,
            physical,
            pages,
            left: 0,
            levels: None,
            values: Values::Plain(Bytes::new()),
            numbers: Vec::new(),
            dictionary: Arc::default(),
            dense: Vec::new(),
        }
    }

    pub(super) fn column(&self) -> Column {
        self.column
    }

    /// Decodes the next `rows` rows in place of those in `to`.
    pub(super) fn fill(&mut self, rows: usize, to: &mut Cells) -> Result<(), String> {
        to.valid.clear();
        to.values.clear();
        if to.own.len() > 0 {
            to.own = Entries::default();
        }
        // Numbers may be of the other width where another tool wrote them.
        to.signed = !matches!(
            (self.physical, self.column.column_type()),
            (Physical::INT32, ColumnType::U32) | (Physical::INT64, ColumnType::U64)
        );
        let mut done = 0;
        while done < rows {
            while self.left == 0 {
                self.open()?;
            }
            let count = self.left.min(rows - done);
            self.part(count, done, to)?;
            self.left -= count;
            done += count;
        }
        if !Arc::ptr_eq(&to.dictionary, &self.dictionary) {
            to.dictionary = Arc::clone(&self.dictionary);
        }
        Ok(())
    }

    /// Decodes `count` rows of the page, after the `before` that there are; these are not in `to` where all are null.
    fn part(&mut self, count: usize, before: usize, to: &mut Cells) -> Result<(), String> {
        let run = match &mut self.levels {
            None => Some(true),
            Some(levels) => levels.run(count)?.map(|level| level != 0),
        };
        match run {
            Some(false) if to.valid.is_empty() => return Ok(()),
            _ if to.valid.len() < before => {
                to.valid.resize(before, 0);
                to.values.resize(before, 0);
            }
            _ => {}
        }
        match (run, &mut self.levels) {
            (Some(true), _) => {
                to.valid.resize(before + count, 1);
                let mut values = std::mem::take(&mut to.values);
                let read = self.read(count, &mut values, to);
                to.values = values;
                read?;
            }
            (Some(false), _) | (None, None) => {
                to.valid.resize(before + count, 0);
                to.values.resize(before + count, 0);
            }
            (None, Some(levels)) => {
                levels.bits(count, &mut to.valid)?;
                let filled = &to.valid[before..];
                let filled: usize = filled.iter().map(|&valid| usize::from(valid)).sum();
                let mut dense = std::mem::take(&mut self.dense);
                dense.clear();
                let read = self.read(filled, &mut dense, to);
                dense.push(0);
                let mut next = 0;
                to.values.extend(to.valid[before..].iter().map(|&valid| {
                    let value = dense.get(next).copied().unwrap_or(0);
                    next += usize::from(valid);
                    value
                }));
                self.dense = dense;
                read?;
            }
        }
        Ok(())
    }

    /// Appends the next `count` values of the page.
    fn read(&mut self, count: usize, out: &mut Vec<u64>, to: &mut Cells) -> Result<(), String> {
        match &mut self.values {
            Values::Plain(bytes) if self.physical == Physical::INT64 => {
                let (values, _) = bytes.as_chunks().0.split_at_checked(count).ok_or(SHORT)?;
                out.extend(values.iter().map(|&value| u64::from_le_bytes(value)));
                *bytes = bytes.slice(8 * count..);
            }
            Values::Plain(bytes) if self.physical == Physical::INT32 => {
                let (values, _) = bytes.as_chunks().0.split_at_checked(count).ok_or(SHORT)?;
                let signed = to.signed;
                out.extend(values.iter().map(|&value| wide(value, signed)));
                *bytes = bytes.slice(4 * count..);
            }
            Values::Plain(bytes) => {
                let (entries, length) = Entries::read(bytes, count)?;
                *bytes = bytes.slice(length..);
                let first = self.dictionary.len() + to.own.len();
                out.extend((first..first + count).map(|place| place as u64));
                match to.own.len() {
                    0 => to.own = entries,
                    _ => to.own.append(&entries),
                }
            }
            Values::Bits(bytes, at) => {
                let bits = *at..*at + count;
                if bits.end > 8 * bytes.len() {
                    return Err(SHORT.to_owned());
                }
                *at = bits.end;
                out.extend(bits.map(|bit| u64::from(bytes[bit / 8] >> (bit % 8) & 1)));
            }
            Values::Runs(runs) => runs.append(count, out, |bit| bit)?,
            Values::Places(places) => {
                let begin = out.len();
                places.append(count, out, |place| place)?;
                let texts = self.physical == Physical::BYTE_ARRAY;
                let entries = match texts {
                    true => self.dictionary.len(),
                    false => self.numbers.len(),
                };
                let most = out[begin..].iter().max().copied();
                if let Some(most) = most.filter(|&most| most >= entries as u64) {
                    return Err(format!("place {most} of a dictionary of {entries}"));
                }
                if !texts {
                    for value in &mut out[begin..] {
                        *value = self.numbers[*value as usize];
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens the next page.
    fn open(&mut self) -> Result<(), String> {
        let page = self.pages.next()?;
        let page = page.ok_or("its pages hold fewer rows than they say")?;
        let count = page.num_values() as usize;
        let (bytes, levels, encoding) = match page {
            Page::DictionaryPage { buf, .. } => return self.dictionary(&buf, count),
            Page::DataPage { buf, encoding, .. } => {
                let (mut levels, mut values) = (0, 0);
                if self.pages.nullable() {
                    let length = buf.first_chunk().ok_or(CUT_OFF)?;
                    (levels, values) = (4, 4 + u32::from_le_bytes(*length) as usize);
                }
                if values > buf.len() {
                    return Err(CUT_OFF.to_owned());
                }
                (buf.slice(values..), buf.slice(levels..values), encoding)
            }
            Page::DataPageV2 {
                buf,
                encoding,
                def_levels_byte_len,
                ..
            } => {
                let length = def_levels_byte_len as usize;
                if length > buf.len() {
                    return Err(CUT_OFF.to_owned());
                }
                (buf.slice(length..), buf.slice(..length), encoding)
            }
        };
        self.levels = self.pages.nullable().then(|| Hybrid::new(levels, 1));
        self.values = match encoding {
            Encoding::RLE => {
                // Four bytes with the length come first.
                Values::Runs(Hybrid::new(bytes.slice(bytes.len().min(4)..), 1))
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let width = bytes.first().copied().unwrap_or(0);
                if width > 32 {
                    return Err(format!("places in a dictionary of {width} bits"));
                }
                Values::Places(Hybrid::new(bytes.slice(bytes.len().min(1)..), width))
            }
            _ if self.physical == Physical::BOOLEAN => Values::Bits(bytes, 0),
            _ => Values::Plain(bytes),
        };
        self.left = count;
        Ok(())
    }

    /// Reads the dictionary.
    fn dictionary(&mut self, bytes: &Bytes, count: usize) -> Result<(), String> {
        let signed = self.column.column_type() != ColumnType::U32;
        match self.physical {
            Physical::BYTE_ARRAY => self.dictionary = Arc::new(Entries::read(bytes, count)?.0),
            Physical::INT32 => {
                let values = bytes.as_chunks().0.get(..count).ok_or(SHORT)?;
                self.numbers = values.iter().map(|&value| wide(value, signed)).collect();
            }
            _ => {
                let values = bytes.as_chunks().0.get(..count).ok_or(SHORT)?;
                self.numbers = values.iter().map(|&v| u64::from_le_bytes(v)).collect();
            }
        }
        Ok(())
    }
}

impl Entries {
    /// Adds those of another page.
    fn append(&mut self, more: &Entries) {
        let from = self.bytes.len() as u32;
        let moved = more.at.iter().map(|&(at, length)| (from + at, length));
        self.at.extend(moved);
        self.bytes = [&self.bytes[..], &more.bytes[..]].concat().into();
    }
}

/// The number of 32 bits as one of 64.
fn wide(value: [u8; 4], signed: bool) -> u64 {
    match signed {
        true => i64::from(i32::from_le_bytes(value)).cast_unsigned(),
        false => u32::from_le_bytes(value).into(),
    }
}
