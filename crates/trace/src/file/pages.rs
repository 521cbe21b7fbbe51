use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::compact::{Broken, Compact};
use super::footer::Codec;
use super::reason;

/// Largest page, uncompressed. Usual ones have 1 MiB.
const LARGEST_PAGE: usize = 64 << 20;
/// Largest dictionary, uncompressed. Writers stop at about 1 MiB.
const LARGEST_DICTIONARY: usize = 4 << 20;
/// How many times larger a dictionary can be once it is decoded: four bytes are the shortest text.
const DECODED: usize = 16;

const SHORT: &str = "a page has fewer values than it says";
const CUT_OFF: &str = "a page's levels are cut off";
const WRONG_SIZE: &str = "a page's size is not that of its content";

/// The pages of one column in one row group, for the library's column reader.
///
/// The library reads headers and decodes levels and values. But it reserves what a header claims (arrow-rs issue 10734)
/// and, as of 60.1, panics on texts and runs that are cut off. So [`Pages::survey`] checks the claims of all pages before
/// anything is allocated for them, pages are decompressed here, and each is walked over before the library decodes it.
pub(super) struct Pages {
    codec: Codec,
    physical: Physical,
    /// Whether pages have definition levels.
    nullable: bool,
    /// As they are in the file, still compressed.
    pages: std::vec::IntoIter<Page>,
    footprint: usize,
}

impl Pages {
    /// Checks the headers of all pages in `bytes`, which must hold `rows` values of the column.
    pub(super) fn survey(
        bytes: Bytes,
        codec: Codec,
        column: &ColumnDescPtr,
        rows: u64,
    ) -> Result<Pages, String> {
        check_headers(&bytes)?;
        let physical = column.physical_type();
        // Said to be uncompressed: the library would reserve what a header says that a page becomes.
        let source = ColumnChunkMetaData::builder(Arc::clone(column))
            .set_compression(Compression::UNCOMPRESSED)
            .set_total_compressed_size(bytes.len() as i64)
            .build()
            .and_then(|chunk| SerializedPageReader::new(Arc::new(bytes), &chunk, 0, None));
        let mut source = source.map_err(reason)?;
        let mut pages = Vec::new();
        let (mut values, mut largest, mut dictionary) = (0, 0, None);
        while values < rows
            && let Some(page) = source.next()
        {
            let page = page.map_err(reason)?;
            let size = decompressed_size(&page, codec)?;
            if page.is_dictionary_page() {
                if !pages.is_empty() {
                    return Err("a dictionary comes after other pages".to_owned());
                }
                dictionary = Some(size);
            } else {
                values += u64::from(page.num_values());
                largest = largest.max(size);
            }
            check_encoding(&page, physical, dictionary.is_some())?;
            // The library takes a data page without values for the end.
            if page.is_dictionary_page() || page.num_values() > 0 {
                pages.push(page);
            }
        }
        if values != rows {
            return Err(format!("its pages hold {values} values of {rows}"));
        }
        Ok(Pages {
            codec,
            physical,
            nullable: column.max_def_level() > 0,
            pages: pages.into_iter(),
            footprint: largest + DECODED * dictionary.unwrap_or(0),
        })
    }

    /// Returns the memory that reading takes at most at a time, in bytes, beside the bytes of the file.
    pub(super) fn footprint(&self) -> usize {
        self.footprint
    }

    /// Decompresses a page and checks what the library would believe.
    fn open(&self, mut page: Page) -> Result<Page, String> {
        match &mut page {
            Page::DictionaryPage {
                buf, num_values, ..
            } => {
                *buf = self.decompressed(buf, 0)?;
                // The library makes room for so many; the shortest have four bytes.
                if u64::from(*num_values) * 4 > buf.len() as u64 {
                    return Err(SHORT.to_owned());
                }
                self.check_values(buf, Encoding::PLAIN, *num_values)?;
            }
            Page::DataPage {
                buf,
                num_values,
                encoding,
                ..
            } => {
                *buf = self.decompressed(buf, 0)?;
                let (mut levels, mut values) = (&[][..], &buf[..]);
                if self.nullable {
                    let (length, rest) = buf.split_first_chunk().ok_or(CUT_OFF)?;
                    let length = u32::from_le_bytes(*length) as usize;
                    (levels, values) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
                }
                let defined = self.defined(levels, *num_values)?;
                self.check_values(values, *encoding, defined)?;
                if values.is_empty() {
                    *buf = padded(buf);
                }
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                def_levels_byte_len,
                is_compressed,
                ..
            } => {
                let length = *def_levels_byte_len as usize;
                if *is_compressed {
                    *buf = self.decompressed(buf, length)?;
                }
                let (levels, values) = buf.split_at_checked(length).ok_or(CUT_OFF)?;
                let defined = self.defined(levels, *num_values)?;
                self.check_values(values, *encoding, defined)?;
                if values.is_empty() {
                    *buf = padded(buf);
                }
            }
        }
        Ok(page)
    }

    /// Decompresses what comes after the first `before` bytes.
    fn decompressed(&self, bytes: &Bytes, before: usize) -> Result<Bytes, String> {
        let (levels, block) = bytes.split_at_checked(before).ok_or(CUT_OFF)?;
        if self.codec == Codec::None || block.is_empty() {
            return Ok(bytes.clone());
        }
        let size = snap::raw::decompress_len(block).map_err(|error| error.to_string())?;
        let mut to = vec![0; before + size];
        to[..before].copy_from_slice(levels);
        snap::raw::Decoder::new()
            .decompress(block, &mut to[before..])
            .map_err(|error| error.to_string())?;
        Ok(Bytes::from(to))
    }

    /// Returns how many of `count` values are not null, by their levels.
    fn defined(&self, levels: &[u8], count: u32) -> Result<u32, String> {
        if self.nullable {
            check_runs(levels, 1, count)
        } else {
            Ok(count)
        }
    }

    fn check_values(&self, bytes: &[u8], encoding: Encoding, count: u32) -> Result<(), String> {
        match encoding {
            // Fixed widths the library checks.
            Encoding::PLAIN if self.physical == Physical::BYTE_ARRAY => {
                let mut rest = bytes;
                for _ in 0..count {
                    let (length, after) = rest.split_first_chunk().ok_or(SHORT)?;
                    let length = u32::from_le_bytes(*length) as usize;
                    rest = after.get(length..).ok_or(SHORT)?;
                }
            }
            Encoding::RLE => {
                // Four bytes with the length come first.
                check_runs(bytes.get(4..).unwrap_or_default(), 1, count)?;
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                if let Some((&width, runs)) = bytes.split_first() {
                    check_runs(runs, width, count)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Iterator for Pages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<ParquetResult<Page>> {
        let page = self.pages.next()?;
        Some(self.open(page).map_err(ParquetError::General))
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        self.next().transpose()
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        Err(ParquetError::NYI("rows are not skipped".to_owned()))
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        Err(ParquetError::NYI("rows are not skipped".to_owned()))
    }
}

/// Walks over the headers before the library does: no list is longer than there is time for, and lengths of levels can
/// be added up.
fn check_headers(bytes: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let mut body = 0;
        let mut header = Compact::new(rest, 1_024);
        let walked = header.structure(|walk, id, wire| match id {
            3 if wire.is_integer() => {
                body = walk.number()?;
                Ok(())
            }
            8 if wire.is_struct() => walk.structure(|walk, id, wire| match id {
                5 | 6 if wire.is_integer() => {
                    let length = walk.number()?;
                    let possible = 0..=bytes.len() as i64;
                    possible
                        .contains(&length)
                        .then_some(())
                        .ok_or(Broken::Garbage)
                }
                _ => walk.skip(wire),
            }),
            _ => walk.skip(wire),
        });
        walked.map_err(|broken| match broken {
            Broken::Short => "a page's header is cut off",
            Broken::Garbage | Broken::LongList(_) => "a page's header is garbage",
        })?;
        let body = usize::try_from(body).map_err(|_| "a page has a negative size")?;
        at += header.position() + body;
    }
    Ok(())
}

/// Returns the size of a page once it is decompressed, in bytes, by its content and not by its header.
fn decompressed_size(page: &Page, codec: Codec) -> Result<usize, String> {
    let (before, compressed) = match page {
        Page::DataPageV2 {
            def_levels_byte_len,
            is_compressed,
            ..
        } => (*def_levels_byte_len as usize, *is_compressed),
        _ => (0, true),
    };
    let block = page.buffer().get(before..).ok_or(CUT_OFF)?;
    let mut size = page.buffer().len();
    // Writers may leave out a block that would become nothing.
    if codec == Codec::Snappy && compressed && !block.is_empty() {
        // Three bytes become 64 at the most.
        let possible = (block.len() + 1) * 22;
        let becomes = snap::raw::decompress_len(block).ok();
        size = before + becomes.filter(|&size| size <= possible).ok_or(WRONG_SIZE)?;
    }
    let largest = match page {
        Page::DictionaryPage { .. } => LARGEST_DICTIONARY,
        Page::DataPage { .. } | Page::DataPageV2 { .. } => LARGEST_PAGE,
    };
    if size > largest {
        return Err(format!(
            "a page of {size} bytes; at most {largest} are read"
        ));
    }
    Ok(size)
}

/// Refuses encodings for which the library is not checked here.
fn check_encoding(page: &Page, physical: Physical, has_dictionary: bool) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    match page {
        Page::DataPage {
            def_level_encoding, ..
        } if *def_level_encoding != Encoding::RLE => {
            return refuse("a page has levels that are not RLE");
        }
        Page::DataPageV2 {
            rep_levels_byte_len,
            ..
        } if *rep_levels_byte_len != 0 => {
            return refuse("a page has repetition levels, and no column is a list");
        }
        _ => {}
    }
    match page.encoding() {
        Encoding::PLAIN => Ok(()),
        Encoding::PLAIN_DICTIONARY if page.is_dictionary_page() => Ok(()),
        Encoding::RLE if physical == Physical::BOOLEAN && page.is_data_page() => Ok(()),
        Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY
            if physical != Physical::BOOLEAN && page.is_data_page() =>
        {
            if has_dictionary {
                Ok(())
            } else {
                refuse("there is no dictionary, and one is used")
            }
        }
        _ => refuse(
            "a page has an encoding that is not read here; write it PLAIN or with a dictionary",
        ),
    }
}

/// Walks over the runs of Parquet's hybrid of run lengths and bit packing, until they have `count` values of `width` bits;
/// returns how many of these are not 0, where `width` is 1.
///
/// ```text
/// header (varint) even: header / 2 times the value that follows in whole bytes
/// header (varint) odd:  header / 2 groups of eight values follow, lowest bits first
/// ```
fn check_runs(mut bytes: &[u8], width: u8, count: u32) -> Result<u32, String> {
    let (mut left, mut ones) = (u64::from(count), 0);
    loop {
        let mut header = 0;
        for shift in (0..).step_by(7) {
            // The library panics on a longer one.
            if shift > 28 {
                return Err("a page has a run that is longer than any may be".to_owned());
            }
            let Some((&byte, rest)) = bytes.split_first() else {
                return Ok(ones);
            };
            bytes = rest;
            header |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let run = header >> 1;
        if header & 1 == 1 {
            // Writers may cut off the last group.
            let length = run.saturating_mul(u64::from(width)).min(bytes.len() as u64);
            let (packed, rest) = bytes.split_at(length as usize);
            if width == 1 {
                ones += ones_in(packed, left);
            }
            bytes = rest;
            left = left.saturating_sub(run * 8);
        } else {
            let Some((value, rest)) = bytes.split_at_checked(usize::from(width).div_ceil(8)) else {
                return Ok(ones);
            };
            if value.iter().any(|&byte| byte != 0) {
                ones += run.min(left) as u32;
            }
            bytes = rest;
            left = left.saturating_sub(run);
        }
        if left == 0 {
            return Ok(ones);
        }
    }
}

/// Counts the bits that are set among the first `most`.
fn ones_in(packed: &[u8], most: u64) -> u32 {
    let whole = packed.len().min((most / 8) as usize);
    let rest = packed.get(whole).filter(|_| most / 8 == whole as u64);
    let rest = rest.map_or(0, |byte| byte & ((1 << (most % 8)) - 1));
    packed[..whole]
        .iter()
        .map(|byte| byte.count_ones())
        .sum::<u32>()
        + rest.count_ones()
}

/// The page's bytes with four more: where all values are null, writers may leave out even the width or the length of the
/// values, which the library asks for.
fn padded(bytes: &[u8]) -> Bytes {
    [bytes, &[0; 4]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_as_far_as_they_are_asked_for() {
        for (bytes, count, ones) in [
            (&[0x03, 0b0101_0101][..], 8, 4),
            (&[0x03, 0b0101_0101], 3, 2),
            (&[0x10, 1], 8, 8),
            (&[0x10, 1], 5, 5),
            (&[0x10, 0, 0x04, 1], 10, 2),
            (&[0x05, 0xff], 16, 8), // the second group is cut off
            (&[0x10], 8, 0),
            (&[], 8, 0),
            (&[0x03, 0xff], 0, 0),
        ] {
            assert_eq!(check_runs(bytes, 1, count), Ok(ones), "{bytes:?}");
        }
        assert!(check_runs(&[0xff; 12], 1, 8).is_err());
        assert!(check_runs(&[0xff; 12], 1, 0).is_err(), "the library looks");
        for width in [0, 7, 32] {
            for bytes in [[0xfe_u8, 0xff, 0xff, 0xff, 0x0f], [0; 5], [5; 5]] {
                assert!(check_runs(&bytes, width, u32::MAX).is_ok());
            }
        }
    }

    #[test]
    fn headers_that_lie_are_garbage() {
        // Field 3, the size: -1. Field 8 within it field 6, repetition levels: 2^31 - 1.
        assert!(check_headers(&[0x35, 0x01, 0]).is_err());
        let long = [0x8c, 0x65, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(check_headers(&long).is_err());
        // A list of 2^31 booleans, which take no bytes.
        let list = [0x99, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert!(check_headers(&list).is_err());
        assert_eq!(check_headers(&[0x35, 0x02, 0, 0xff]), Ok(()));
    }
}
