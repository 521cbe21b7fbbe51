use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;

use super::compact::{Broken, Compact, Wire};

/// Largest page, uncompressed. Usual ones have 1 MiB.
const LARGEST_PAGE: u64 = 64 << 20;
/// Largest dictionary, uncompressed. Writers stop at about 1 MiB.
const LARGEST_DICTIONARY: u64 = 4 << 20;
/// How much larger it can be when it is decoded: four bytes are the shortest text.
const DECODED: u64 = 16;

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
}

/// The pages of one column in one row group, each seen to be no larger than its bytes can be.
pub(super) struct Pages {
    bytes: Bytes,
    codec: Codec,
    /// Whether pages have definition levels.
    nullable: bool,
    pages: std::vec::IntoIter<PageInfo>,
    footprint: u64,
}

/// A page, uncompressed.
pub(super) struct Page {
    pub(super) is_dictionary: bool,
    /// How many values it says it has, nulls included.
    pub(super) values: u32,
    pub(super) encoding: Encoding,
    /// The definition levels: a [`super::hybrid::Hybrid`] of one bit, 0 where a value is null;
    /// `None` where none can be.
    pub(super) levels: Option<Bytes>,
    pub(super) body: Bytes,
}

/// How the values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// One after the other.
    Plain,
    /// Their numbers in the dictionary, as a hybrid after a byte with its width.
    Dictionary,
    /// Booleans, as a hybrid after four bytes with its length.
    Rle,
}

#[derive(Debug, Clone)]
struct PageInfo {
    body: Range<usize>,
    uncompressed: usize,
    values: u32,
    encoding: Encoding,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Dictionary,
    V1,
    V2 { definition: u32, compressed: bool },
}

/// A page's header as it stands in the file.
#[derive(Default)]
struct Header {
    form: Option<i64>,
    uncompressed: Option<i64>,
    compressed: Option<i64>,
    values: Option<i64>,
    encoding: Option<i64>,
    definition_encoding: Option<i64>,
    definition: Option<i64>,
    repetition: Option<i64>,
    is_compressed: Option<bool>,
}

impl Pages {
    /// Looks at the headers of all pages in `bytes`, which must hold `rows` values of the column.
    pub(super) fn survey(
        bytes: Bytes,
        codec: Codec,
        column: &ColumnDescriptor,
        rows: u64,
    ) -> Result<Pages, String> {
        let physical = column.physical_type();
        let mut pages = Vec::new();
        let (mut at, mut values, mut largest) = (0, 0u64, 0);
        let mut dictionary = None;
        while at < bytes.len() && values < rows {
            let (header, length) = Header::read(&bytes[at..]).map_err(|broken| match broken {
                Broken::Short => "a page's header is cut off".to_owned(),
                Broken::Garbage | Broken::LongList(_) => "a page's header is garbage".to_owned(),
            })?;
            at += length;
            let page = header.page(at, bytes.len(), physical)?;
            if codec == Codec::None && page.uncompressed != page.body.len() {
                return Err("a page that is not compressed has two sizes".to_owned());
            }
            if codec == Codec::Snappy {
                check_snappy(&page, &bytes)?;
            }
            at = page.body.end;
            if page.form == Form::Dictionary {
                if !pages.is_empty() {
                    return Err("a dictionary comes after other pages".to_owned());
                }
                dictionary = Some(page.uncompressed as u64);
            } else {
                if page.encoding == Encoding::Dictionary && dictionary.is_none() {
                    return Err("there is no dictionary, and one is used".to_owned());
                }
                largest = largest.max(page.uncompressed as u64);
                values += u64::from(page.values);
            }
            pages.push(page);
        }
        if values != rows {
            return Err(format!("its pages hold {values} values of {rows}"));
        }
        Ok(Pages {
            bytes,
            codec,
            nullable: column.max_def_level() > 0,
            pages: pages.into_iter(),
            footprint: largest + DECODED * dictionary.unwrap_or(0),
        })
    }

    /// Memory that reading takes at most at a time, beside the bytes of the file.
    pub(super) fn footprint(&self) -> u64 {
        self.footprint
    }

    /// The next page; `None` after the last.
    pub(super) fn next(&mut self) -> Option<Result<Page, String>> {
        let info = self.pages.next()?;
        Some(self.read(&info))
    }

    fn read(&self, info: &PageInfo) -> Result<Page, String> {
        let cut_off = || "a page's levels are cut off".to_owned();
        let raw = self.bytes.slice(info.body.clone());
        let levels_length = info.levels_length();
        let mut body = raw;
        if self.codec == Codec::Snappy && !info.is_plain() {
            let mut buffer = vec![0; info.uncompressed];
            buffer[..levels_length].copy_from_slice(&body[..levels_length]);
            if info.uncompressed > levels_length {
                snap::raw::Decoder::new()
                    .decompress(&body[levels_length..], &mut buffer[levels_length..])
                    .map_err(|error| error.to_string())?;
            }
            body = Bytes::from(buffer);
        }
        let is_dictionary = info.form == Form::Dictionary;
        let mut levels = None;
        if matches!(info.form, Form::V2 { .. }) {
            let part = body.split_to(levels_length);
            levels = self.nullable.then_some(part);
        } else if self.nullable && !is_dictionary {
            let (length, _) = body.split_first_chunk().ok_or_else(cut_off)?;
            let length = u32::from_le_bytes(*length) as usize;
            let _ = body.split_to(4);
            if length > body.len() {
                return Err(cut_off());
            }
            levels = Some(body.split_to(length));
        }
        Ok(Page {
            is_dictionary,
            values: info.values,
            encoding: info.encoding,
            levels,
            body,
        })
    }
}

impl PageInfo {
    /// Bytes of levels that stand before what is compressed.
    fn levels_length(&self) -> usize {
        match self.form {
            Form::V2 { definition, .. } => definition as usize,
            Form::Dictionary | Form::V1 => 0,
        }
    }

    /// Whether the page says that it is not compressed, whatever the column says.
    fn is_plain(&self) -> bool {
        matches!(
            self.form,
            Form::V2 {
                compressed: false,
                ..
            }
        )
    }
}

/// What a snappy block says that it will become must be what the header says.
fn check_snappy(page: &PageInfo, bytes: &[u8]) -> Result<(), String> {
    let lie = || Err("a page's size is not that of its content".to_owned());
    let levels = page.levels_length();
    let body = &bytes[page.body.clone()];
    if page.is_plain() {
        return if page.uncompressed == body.len() {
            Ok(())
        } else {
            lie()
        };
    }
    // Writers may leave out a block that would become nothing.
    let Some(block) = body.get(levels..) else {
        return lie();
    };
    let rest = page.uncompressed - levels;
    if rest == 0 {
        return Ok(());
    }
    // Three bytes become 64 at the most.
    let possible = (block.len() as u64 + 1) * 22;
    match snap::raw::decompress_len(block) {
        Ok(length) if length == rest && length as u64 <= possible => Ok(()),
        _ => lie(),
    }
}

impl Header {
    /// The header and its length.
    fn read(bytes: &[u8]) -> Result<(Header, usize), Broken> {
        let mut header = Header::default();
        let mut compact = Compact::new(bytes, 1_024);
        compact.structure(|walk, id, wire| {
            let pick = match id {
                1 => &mut header.form,
                2 => &mut header.uncompressed,
                3 => &mut header.compressed,
                5 | 7 | 8 if wire.is_struct() => return header.inner(walk, id),
                _ => return walk.skip(wire),
            };
            *pick = Some(walk.integer(wire)?);
            Ok(())
        })?;
        Ok((header, compact.position()))
    }

    /// The structure for one form of page: 5 is a data page, 7 a dictionary, 8 a data page of the
    /// second version.
    fn inner(&mut self, walk: &mut Compact<'_>, form: i64) -> Result<(), Broken> {
        walk.structure(|walk, id, wire| {
            let pick = match (form, id) {
                (_, 1) => &mut self.values,
                (5 | 7, 2) | (8, 4) => &mut self.encoding,
                (5, 3) => &mut self.definition_encoding,
                (8, 5) => &mut self.definition,
                (8, 6) => &mut self.repetition,
                (8, 7) => {
                    self.is_compressed = wire.boolean();
                    return walk.skip(wire);
                }
                _ => return walk.skip(wire),
            };
            *pick = Some(walk.integer(wire)?);
            Ok(())
        })
    }

    /// The page that it describes, whose body begins at `start` in a column of `end` bytes.
    fn page(&self, start: usize, end: usize, physical: Physical) -> Result<PageInfo, String> {
        let number = |field: Option<i64>, what: &str| -> Result<u32, String> {
            let value = field.ok_or_else(|| format!("a page does not say its {what}"))?;
            let positive = i32::try_from(value)
                .ok()
                .and_then(|v| u32::try_from(v).ok());
            positive.ok_or_else(|| format!("a page says that its {what} is {value}"))
        };
        let body = number(self.compressed, "size")? as usize;
        if body > end - start {
            return Err(format!(
                "a page of {body} bytes is longer than what is left"
            ));
        }
        let uncompressed = number(self.uncompressed, "size")?;
        let values = number(self.values, "number of values")?;
        let form = match self.form {
            Some(2) => Form::Dictionary,
            Some(0) => Form::V1,
            Some(3) => Form::V2 {
                definition: number(self.definition, "length of levels")?,
                compressed: self.is_compressed.unwrap_or(true),
            },
            other => return Err(format!("a page is of the unknown form {other:?}")),
        };
        if let Form::V2 { definition, .. } = form {
            if self.repetition.is_some_and(|length| length != 0) {
                return Err("a page has repetition levels, and no column is a list".to_owned());
            }
            if definition > uncompressed || definition as usize > body {
                return Err("a page's levels are longer than the page".to_owned());
            }
        }
        if form == Form::V1
            && self
                .definition_encoding
                .is_some_and(|encoding| encoding != 3)
        {
            return Err("a page has levels that are not RLE".to_owned());
        }
        let encoding = match (self.encoding, form) {
            (Some(0 | 2), Form::Dictionary) | (Some(0), _) => Encoding::Plain,
            (Some(2 | 8), Form::V1 | Form::V2 { .. }) if physical != Physical::BOOLEAN => {
                Encoding::Dictionary
            }
            (Some(3), Form::V1 | Form::V2 { .. }) if physical == Physical::BOOLEAN => Encoding::Rle,
            _ => {
                return Err(
                    "a page has an encoding that is not read here; write it PLAIN or with a \
                     dictionary"
                        .to_owned(),
                );
            }
        };
        let largest = match form {
            Form::Dictionary => LARGEST_DICTIONARY,
            Form::V1 | Form::V2 { .. } => LARGEST_PAGE,
        };
        if u64::from(uncompressed) > largest {
            return Err(format!(
                "a page of {uncompressed} bytes; at most {largest} are read"
            ));
        }
        Ok(PageInfo {
            body: start..start + body,
            uncompressed: uncompressed as usize,
            values,
            encoding,
            form,
        })
    }
}

impl Compact<'_> {
    /// A field that must be an integer.
    fn integer(&mut self, wire: Wire) -> Result<i64, Broken> {
        if wire.is_integer() {
            self.number()
        } else {
            Err(Broken::Garbage)
        }
    }
}
