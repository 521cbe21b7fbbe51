//! One column of a row group, encoded: pages, their headers, and what the footer says of them.
//!
//! ```text
//! dictionary page (header, values PLAIN), where few values come again and again
//! data page (header, definition levels RLE, values PLAIN or their places in the dictionary, bit-packed)
//! ```
//!
//! The `parquet` crate would do it: it looks at each cell several times and hashes each text and number for its dictionary. Here
//! a text's place is known when it is put, and a column that is null is a handful of bytes. One data page holds a whole row group.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescPtr;

use super::batch::{Cells, Held, Texts};
use crate::column::{Column, ColumnType};

/// Bytes of a dictionary at which values are written as they are.
const LARGEST_DICTIONARY: usize = 1 << 20;
/// Numbers in a dictionary: their places take 16 bits.
const MOST_NUMBERS: usize = 1 << 16;
/// Bytes of a text that statistics keep.
const LONGEST_STATISTIC: usize = 64;

/// Encodes columns. It keeps what it has allocated.
pub(super) struct Encoder {
    snappy: snap::raw::Encoder,
    page: Vec<u8>,
    compressed: Vec<u8>,
    numbers: Numbers,
}

/// An encoded column.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// What a chunk is made of so far.
#[derive(Default)]
struct Pages {
    bytes: Vec<u8>,
    /// As if nothing was compressed.
    uncompressed: usize,
    dictionary: bool,
    data_at: usize,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder {
            snappy: snap::raw::Encoder::new(),
            page: Vec::new(),
            compressed: Vec::new(),
            numbers: Numbers::default(),
        }
    }

    /// Encodes the cells of `column` of a group of `rows`.
    pub(super) fn chunk(
        &mut self,
        column: Column,
        required: bool,
        cells: &Cells,
        rows: u32,
        descriptor: &ColumnDescPtr,
    ) -> Result<Chunk, ParquetError> {
        let mut pages = Pages::default();
        let few = column != Column::Id;
        let encoding = match &cells.held {
            _ if cells.count() == 0 => Encoding::PLAIN,
            Held::Int32(values) if few && self.numbers.index(values) => {
                self.page.clear();
                for value in &self.numbers.values {
                    self.page.extend(value.to_le_bytes());
                }
                let count = self.numbers.values.len();
                self.put(&mut pages, Some(count), rows, Encoding::PLAIN)?;
                Encoding::RLE_DICTIONARY
            }
            Held::Text(texts) if texts.bytes() <= LARGEST_DICTIONARY => {
                self.page.clear();
                for text in &texts.dictionary {
                    plain(&mut self.page, text);
                }
                self.put(
                    &mut pages,
                    Some(texts.dictionary.len()),
                    rows,
                    Encoding::PLAIN,
                )?;
                Encoding::RLE_DICTIONARY
            }
            _ => Encoding::PLAIN,
        };
        self.page.clear();
        if !required {
            levels(&mut self.page, cells, rows);
        }
        let page = &mut self.page;
        match (&cells.held, encoding) {
            (Held::Int32(_), Encoding::RLE_DICTIONARY) => {
                places(page, &self.numbers.places, self.numbers.values.len());
            }
            (Held::Text(texts), Encoding::RLE_DICTIONARY) => {
                places(page, &texts.places, texts.dictionary.len());
            }
            (Held::Int32(values), _) => page.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (Held::Int64(values), _) => page.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            (Held::Bool(values), _) => page.extend(values.chunks(8).map(|bits| {
                let bits = bits.iter().enumerate();
                bits.fold(0, |byte, (at, &bit)| byte | u8::from(bit) << at)
            })),
            (Held::Text(texts), _) => {
                for &place in &texts.places {
                    plain(page, &texts.dictionary[place as usize]);
                }
            }
        }
        self.put(&mut pages, None, rows, encoding)?;
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        if pages.dictionary {
            encodings.push(Encoding::RLE_DICTIONARY);
        }
        let metadata = ColumnChunkMetaData::builder(Arc::clone(descriptor))
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_num_values(rows.into())
            .set_total_compressed_size(pages.bytes.len() as i64)
            .set_total_uncompressed_size(pages.uncompressed as i64)
            .set_data_page_offset(pages.data_at as i64)
            .set_dictionary_page_offset(pages.dictionary.then_some(0))
            .set_statistics(statistics(column, cells, rows))
            .build()?;
        Ok(Chunk {
            close: ColumnCloseResult {
                bytes_written: pages.bytes.len() as u64,
                rows_written: rows.into(),
                metadata,
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            },
            bytes: pages.bytes.into(),
        })
    }

    /// Adds the page that was made: a dictionary's of `entries`, or one of data.
    fn put(
        &mut self,
        pages: &mut Pages,
        entries: Option<usize>,
        rows: u32,
        encoding: Encoding,
    ) -> Result<(), ParquetError> {
        let room = snap::raw::max_compress_len(self.page.len());
        if self.compressed.len() < room {
            self.compressed.resize(room, 0);
        }
        let length = self.snappy.compress(&self.page, &mut self.compressed);
        let length = length.map_err(|error| ParquetError::External(Box::new(error)))?;
        // `PageHeader` in compact Thrift: the high half of a field's byte is how much its number is above the last one's.
        // The fourth number is the checksum of the page as it is stored.
        let begin = pages.bytes.len();
        let bytes = &mut pages.bytes;
        let (kind, header, count) = match entries {
            Some(entries) => (2, 0x3c, entries as u64),
            None => (0, 0x1c, rows.into()),
        };
        for number in [kind, self.page.len() as u64, length as u64] {
            field(bytes, number);
        }
        signed(
            bytes,
            crc32fast::hash(&self.compressed[..length]).cast_signed(),
        );
        bytes.push(header);
        field(bytes, count);
        field(bytes, encoding as u64);
        if entries.is_none() {
            field(bytes, Encoding::RLE as u64); // of definition levels
            field(bytes, Encoding::RLE as u64); // of repetition levels, of which there are none
            pages.data_at = begin;
        }
        bytes.extend([0, 0]);
        pages.uncompressed += bytes.len() - begin + self.page.len();
        pages.dictionary |= entries.is_some();
        bytes.extend_from_slice(&self.compressed[..length]);
        Ok(())
    }
}

/// A number that is not negative, in the field after the last one.
fn field(bytes: &mut Vec<u8>, number: u64) {
    bytes.push(0x15);
    varint(bytes, number << 1);
}

/// A number in the field after the last one.
fn signed(bytes: &mut Vec<u8>, number: i32) {
    bytes.push(0x15);
    varint(bytes, (number << 1 ^ number >> 31).cast_unsigned().into());
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn plain(page: &mut Vec<u8>, text: &str) {
    page.extend((text.len() as u32).to_le_bytes());
    page.extend_from_slice(text.as_bytes());
}

/// Definition levels of a group of `rows`, of which `filled` are not null: their length, then one run, or a bit for each row.
fn levels(page: &mut Vec<u8>, cells: &Cells, rows: u32) {
    let at = page.len();
    page.extend([0; 4]);
    let filled = cells.count();
    if filled == 0 || filled == rows as usize {
        varint(page, u64::from(rows) << 1);
        page.push(u8::from(filled > 0));
    } else {
        let groups = rows.div_ceil(8) as usize;
        varint(page, (groups as u64) << 1 | 1);
        let end = page.len() + groups;
        page.extend_from_slice(&cells.filled[..groups.min(cells.filled.len())]);
        page.resize(end, 0);
    }
    let length = (page.len() - at - 4) as u32;
    page[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Places in a dictionary of so many entries: their width in bits, then one run.
fn places(page: &mut Vec<u8>, places: &[u32], entries: usize) {
    let width = (usize::BITS - (entries - 1).leading_zeros()) as usize;
    page.push(width as u8);
    if width == 0 {
        return varint(page, (places.len() as u64) << 1);
    }
    varint(page, (places.len().div_ceil(8) as u64) << 1 | 1);
    for group in places.chunks(8) {
        let bits = group.iter().enumerate();
        // Places have 16 bits at most, eight of them 128.
        let packed = bits.fold(0_u128, |all, (at, &place)| {
            all | u128::from(place) << (at * width)
        });
        page.extend_from_slice(&packed.to_le_bytes()[..width]);
    }
}

/// A dictionary of numbers.
#[derive(Default)]
struct Numbers {
    values: Vec<i32>,
    places: Vec<u32>,
    /// By hash: a number's place and one more; 0 is free.
    slots: Vec<u32>,
}

impl Numbers {
    /// Makes the dictionary of `values`; whether they are few enough.
    fn index(&mut self, values: &[i32]) -> bool {
        self.values.clear();
        self.places.clear();
        self.slots.clear();
        self.slots.resize(1 << 10, 0);
        for &value in values {
            let place = self.place(value);
            self.places.push(place);
            if self.values.len() * 2 > self.slots.len() {
                if self.values.len() >= MOST_NUMBERS {
                    return false;
                }
                self.grow();
            }
        }
        self.values.len() <= MOST_NUMBERS
    }

    fn place(&mut self, value: i32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = hash(value) & mask;
        loop {
            match self.slots[slot] {
                0 => {
                    self.values.push(value);
                    self.slots[slot] = self.values.len() as u32;
                    return self.values.len() as u32 - 1;
                }
                place if self.values[place as usize - 1] == value => return place - 1,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        self.slots.clear();
        self.slots.resize(mask + 1, 0);
        for (place, &value) in self.values.iter().enumerate() {
            let mut slot = hash(value) & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = place as u32 + 1;
        }
    }
}

/// Numbers that are near lie far apart.
fn hash(value: i32) -> usize {
    (value.cast_unsigned().wrapping_mul(0x9e37_79b9) >> 9) as usize
}

/// The least and the largest value, in the column's own order, and how many are null.
fn statistics(column: Column, cells: &Cells, rows: u32) -> Statistics {
    let nulls = Some(u64::from(rows) - cells.count() as u64);
    let unsigned = matches!(column.column_type(), ColumnType::U32 | ColumnType::U64);
    match &cells.held {
        Held::Int32(values) => {
            let (least, most) = match unsigned {
                true => ends(values.iter().map(|value| value.cast_unsigned())),
                false => {
                    return Statistics::int32(
                        values.iter().min().copied(),
                        values.iter().max().copied(),
                        None,
                        nulls,
                        false,
                    );
                }
            };
            let [least, most] = [least, most].map(|end| end.map(u32::cast_signed));
            Statistics::int32(least, most, None, nulls, false)
        }
        Held::Int64(values) => {
            let (least, most) = match unsigned {
                true => ends(values.iter().map(|value| value.cast_unsigned())),
                false => {
                    return Statistics::int64(
                        values.iter().min().copied(),
                        values.iter().max().copied(),
                        None,
                        nulls,
                        false,
                    );
                }
            };
            let [least, most] = [least, most].map(|end| end.map(u64::cast_signed));
            Statistics::int64(least, most, None, nulls, false)
        }
        Held::Bool(values) => {
            let (least, most) = ends(values.iter().copied());
            Statistics::boolean(least, most, None, nulls, false)
        }
        Held::Text(texts) => {
            let (least, most) = ends(texts.dictionary.iter().map(|text| text.as_bytes()));
            let short =
                |text: Option<&[u8]>| text.is_none_or(|text| text.len() <= LONGEST_STATISTIC);
            let exact = (short(least), short(most));
            let array = |bytes: Vec<u8>| ByteArray::from(bytes);
            let least = least.map(|text| array(cut(text).to_vec()));
            let most = most.and_then(above).map(array);
            let values = ValueStatistics::new(least, most, None, nulls, false);
            let values = values.with_min_is_exact(exact.0).with_max_is_exact(exact.1);
            Statistics::ByteArray(values)
        }
    }
}

fn ends<T: Ord + Copy>(values: impl Iterator<Item = T>) -> (Option<T>, Option<T>) {
    values.fold(
        (None, None),
        |(least, most): (Option<T>, Option<T>), value| {
            (
                Some(least.map_or(value, |least| least.min(value))),
                most.max(Some(value)),
            )
        },
    )
}

/// The begin of a text, whole characters.
fn cut(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(LONGEST_STATISTIC);
    while end < text.len() && end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// A short text that is not less than this one; `None` where there is none.
fn above(text: &[u8]) -> Option<Vec<u8>> {
    let mut short = cut(text).to_vec();
    if short.len() == text.len() {
        return Some(short);
    }
    // The next ASCII character in the place of the last one; what is beyond ASCII is left out.
    while let Some(last) = short.pop() {
        if last < 0x7e {
            short.push(last + 1);
            return Some(short);
        }
    }
    None
}

impl Texts {
    /// Bytes of the dictionary's page.
    fn bytes(&self) -> usize {
        self.dictionary.iter().map(|text| text.len() + 4).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_has_a_short_one_below_and_one_above() {
        let long = "a".repeat(100);
        assert_eq!(cut(long.as_bytes()).len(), 64);
        let above_it = above(long.as_bytes()).unwrap();
        assert!(above_it.as_slice() > long.as_bytes() && above_it.len() == 64);
        let umlauts = "\u{e4}".repeat(40) + "b";
        assert_eq!(cut(umlauts.as_bytes()).len(), 64);
        assert_eq!(above(umlauts.as_bytes()), None);
        assert_eq!(above(b"ab").as_deref(), Some(&b"ab"[..]));
        assert_eq!(above("~".repeat(70).as_bytes()), None);
        let odd = "x".to_owned() + &"\u{e4}".repeat(40);
        assert_eq!(cut(odd.as_bytes()).len(), 63);
        assert_eq!(above(odd.as_bytes()).as_deref(), Some(&b"y"[..]));
    }

    #[test]
    fn numbers_have_places_up_to_a_dictionary_of_16_bits() {
        let mut numbers = Numbers::default();
        let many: Vec<i32> = (0..65_536).map(|n: i32| n.wrapping_mul(65_537)).collect();
        assert!(numbers.index(&many));
        assert!(
            numbers
                .places
                .iter()
                .enumerate()
                .all(|(at, &place)| place == at as u32)
        );
        assert!(!numbers.index(&[many, vec![1]].concat()));
        assert!(numbers.index(&[7, -7, 7]));
        assert_eq!(
            (&*numbers.values, &*numbers.places),
            (&[7, -7][..], &[0, 1, 0][..])
        );
    }
}
