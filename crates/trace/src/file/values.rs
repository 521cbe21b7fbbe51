use bytes::{Buf, Bytes};
use parquet::basic::Type as Physical;

use super::hybrid::Hybrid;
use super::pages::{Encoding, Page, Pages};
use super::texts::Texts;
use crate::Text;

/// Values of one column, one vector after the other: which has them, the column's type says.
#[derive(Default)]
pub(super) struct Values {
    pub(super) int32s: Vec<i32>,
    pub(super) int64s: Vec<i64>,
    pub(super) bools: Vec<bool>,
    pub(super) texts: Vec<Text>,
    /// For each row the number of its value, or [`Values::NULL`].
    pub(super) of_row: Vec<u32>,
}

impl Values {
    pub(super) const NULL: u32 = u32::MAX;

    pub(super) fn clear(&mut self) {
        self.int32s.clear();
        self.int64s.clear();
        self.bools.clear();
        self.texts.clear();
        self.of_row.clear();
    }

    fn count(&self) -> usize {
        self.int32s.len() + self.int64s.len() + self.bools.len() + self.texts.len()
    }

    /// Appends the value of that number `times` times to `to`.
    fn repeat(&self, number: usize, times: usize, to: &mut Values) -> Option<()> {
        fn one<T: Clone>(from: &[T], number: usize, times: usize, to: &mut Vec<T>) -> Option<()> {
            to.extend(std::iter::repeat_n(from.get(number)?, times).cloned());
            Some(())
        }
        if !self.texts.is_empty() {
            one(&self.texts, number, times, &mut to.texts)
        } else if !self.int64s.is_empty() {
            one(&self.int64s, number, times, &mut to.int64s)
        } else {
            one(&self.int32s, number, times, &mut to.int32s)
        }
    }
}

/// Decodes a column of a row group, some rows at a time.
///
/// The `parquet` crate does this too, but as of 60.1 it panics where a page has fewer texts than it
/// says, or a run an over-long header.
pub(super) struct ColumnValues {
    physical: Physical,
    pages: Pages,
    dictionary: Values,
    page: Option<Current>,
}

/// The page that is decoded.
struct Current {
    left: u64,
    levels: Option<Hybrid>,
    source: Source,
}

/// Where its values come from.
enum Source {
    Plain(Bytes),
    /// Booleans, and the number of the one that comes next.
    Bits(Bytes, u64),
    Dictionary(Hybrid),
    Runs(Hybrid),
}

const SHORT: &str = "a page has fewer values than it says";

impl ColumnValues {
    pub(super) fn new(physical: Physical, pages: Pages) -> ColumnValues {
        ColumnValues {
            physical,
            pages,
            dictionary: Values::default(),
            page: None,
        }
    }

    /// Appends the next `rows` rows to `values`. An error shows at the row after those that are in
    /// `values.of_row`.
    pub(super) fn read(
        &mut self,
        rows: usize,
        values: &mut Values,
        texts: &mut Texts,
    ) -> Result<(), String> {
        while values.of_row.len() < rows {
            let Some(page) = self.page.as_mut().filter(|page| page.left > 0) else {
                self.next_page(texts)?;
                continue;
            };
            let wanted = page.left.min((rows - values.of_row.len()) as u64);
            let (defined, count) = match &mut page.levels {
                None => (1, wanted),
                Some(levels) => levels.next(wanted).ok_or(SHORT)?,
            };
            page.left -= count;
            if defined == 0 {
                let end = values.of_row.len() + count as usize;
                values.of_row.resize(end, Values::NULL);
                continue;
            }
            let first = values.count() as u32;
            let taken = match &mut page.source {
                Source::Plain(body) => plain(self.physical, body, count as usize, values, texts),
                Source::Bits(body, next) => bits(body, next, count, &mut values.bools),
                Source::Runs(runs) => each(runs, count, |value, times| {
                    let end = values.bools.len() + times;
                    values.bools.resize(end, value != 0);
                    Some(())
                }),
                Source::Dictionary(numbers) => each(numbers, count, |number, times| {
                    self.dictionary.repeat(number as usize, times, values)
                }),
            };
            values.of_row.extend(first..values.count() as u32);
            taken?;
        }
        Ok(())
    }

    fn next_page(&mut self, texts: &mut Texts) -> Result<(), String> {
        let page = self
            .pages
            .next()
            .ok_or("it has fewer pages than it says")??;
        if page.is_dictionary {
            let (mut body, count) = (page.body, page.values as usize);
            self.dictionary.clear();
            return plain(self.physical, &mut body, count, &mut self.dictionary, texts);
        }
        self.page = Some(Current {
            left: u64::from(page.values),
            source: source(&page, self.physical)?,
            levels: page.levels.map(|levels| Hybrid::new(levels, 1)),
        });
        Ok(())
    }
}

fn source(page: &Page, physical: Physical) -> Result<Source, String> {
    let mut body = page.body.clone();
    Ok(match (page.encoding, physical) {
        (Encoding::Plain, Physical::BOOLEAN) => Source::Bits(body, 0),
        (Encoding::Plain, _) => Source::Plain(body),
        (Encoding::Dictionary, _) => {
            // Where all are null there may be nothing at all.
            let width = if body.is_empty() { 0 } else { body.get_u8() };
            if width > 32 {
                return Err(format!("a page has dictionary numbers of {width} bits"));
            }
            Source::Dictionary(Hybrid::new(body, u32::from(width)))
        }
        (Encoding::Rle, _) => {
            let length = body.try_get_u32_le().unwrap_or(0) as usize;
            body.truncate(length);
            Source::Runs(Hybrid::new(body, 1))
        }
    })
}

/// Takes `count` values that stand one after the other.
fn plain(
    physical: Physical,
    body: &mut Bytes,
    count: usize,
    values: &mut Values,
    texts: &mut Texts,
) -> Result<(), String> {
    let fixed = |body: &mut Bytes, width: usize| {
        let length = count
            .checked_mul(width)
            .filter(|&length| length <= body.len());
        length.map(|length| body.split_to(length)).ok_or(SHORT)
    };
    match physical {
        Physical::INT32 => {
            let bytes = fixed(body, 4)?;
            let (chunks, _) = bytes.as_chunks();
            values
                .int32s
                .extend(chunks.iter().map(|&c| i32::from_le_bytes(c)));
        }
        Physical::INT64 => {
            let bytes = fixed(body, 8)?;
            let (chunks, _) = bytes.as_chunks();
            values
                .int64s
                .extend(chunks.iter().map(|&c| i64::from_le_bytes(c)));
        }
        _ => {
            for _ in 0..count {
                let length = body.try_get_u32_le().map_err(|_| SHORT)? as usize;
                if length > body.len() {
                    return Err(SHORT.to_owned());
                }
                values.texts.push(texts.get(&body.split_to(length))?);
            }
        }
    }
    Ok(())
}

/// Takes `count` booleans of a bit each.
fn bits(body: &Bytes, next: &mut u64, count: u64, bools: &mut Vec<bool>) -> Result<(), String> {
    for _ in 0..count {
        let byte = usize::try_from(*next / 8).ok().and_then(|at| body.get(at));
        bools.push(byte.ok_or(SHORT)? >> (*next % 8) & 1 != 0);
        *next += 1;
    }
    Ok(())
}

/// Hands `count` values of a hybrid on, equal ones together.
fn each(
    hybrid: &mut Hybrid,
    count: u64,
    mut take: impl FnMut(u32, usize) -> Option<()>,
) -> Result<(), String> {
    let mut left = count;
    while left > 0 {
        let (value, times) = hybrid.next(left).ok_or(SHORT)?;
        left -= times;
        take(value, times as usize).ok_or("a page uses what is not in the dictionary")?;
    }
    Ok(())
}
