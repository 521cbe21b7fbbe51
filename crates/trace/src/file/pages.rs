use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::Page;
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

pub(super) const SHORT: &str = "a page has fewer values than it says";
pub(super) const CUT_OFF: &str = "a page's levels are cut off";
const WRONG_SIZE: &str = "a page's size is not that of its content";

/// The pages of one column in one row group.
///
/// The library reads their headers. But it reserves what a header claims (arrow-rs issue 10734), and, as of 60.1, panics on texts and
/// runs that are cut off. So [`Pages::survey`] checks the claims of all pages before anything is allocated for them, pages are
/// decompressed here, and levels and values are decoded in `rows`.
pub(super) struct Pages {
    codec: Codec,
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
            nullable: column.max_def_level() > 0,
            pages: pages.into_iter(),
            footprint: largest + DECODED * dictionary.unwrap_or(0),
        })
    }

    /// Returns the memory that reading takes at most at a time, in bytes, beside the bytes of the file.
    pub(super) fn footprint(&self) -> usize {
        self.footprint
    }

    /// Returns whether pages have definition levels.
    pub(super) fn nullable(&self) -> bool {
        self.nullable
    }

    /// Returns the next page, decompressed.
    pub(super) fn next(&mut self) -> Result<Option<Page>, String> {
        let Some(mut page) = self.pages.next() else {
            return Ok(None);
        };
        let before = match &page {
            Page::DataPageV2 {
                is_compressed: false,
                ..
            } => return Ok(Some(page)),
            Page::DataPageV2 {
                def_levels_byte_len,
                ..
            } => *def_levels_byte_len as usize,
            Page::DictionaryPage { .. } | Page::DataPage { .. } => 0,
        };
        match &mut page {
            Page::DictionaryPage { buf, .. }
            | Page::DataPage { buf, .. }
            | Page::DataPageV2 { buf, .. } => *buf = self.decompressed(buf, before)?,
        }
        Ok(Some(page))
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
}

/// Walks over the headers before the library does: no list is longer than there is time for, and lengths of levels can
/// be added up. Refuses a page that differs from its checksum; files of other writers may have none.
fn check_headers(bytes: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let (mut body, mut checksum) = (0, None);
        let mut header = Compact::new(rest, 1_024);
        let walked = header.structure(|walk, id, wire| match id {
            3 if wire.is_integer() => {
                body = walk.number()?;
                Ok(())
            }
            4 if wire.is_integer() => {
                checksum = Some(walk.number()? as u32);
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
        let begin = at + header.position();
        at = begin + body;
        // The library refuses a page that is longer than the file. Fuzzing would end here each time.
        if let (Some(checksum), Some(page)) = (checksum, bytes.get(begin..at))
            && crc32fast::hash(page) != checksum
            && !cfg!(fuzzing)
        {
            return Err("the file is damaged: a page differs from its checksum".to_owned());
        }
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
