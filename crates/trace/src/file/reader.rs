use std::io::{Read, Seek, SeekFrom};

use bytes::Bytes;

use super::decoded::Decoded;
use super::footer::Footer;
use super::pages::Pages;
use super::texts::Texts;
use super::values::ColumnValues;
use crate::column::Column;
use crate::{Error, Event, Metadata, Place};

/// Rows that are decoded at a time.
const ROWS: usize = 8_192;
/// Most memory that the pages of one row group may take while they are read.
const LARGEST_FOOTPRINT: u64 = 1 << 30;

/// Reads a trace file, event by event; it holds one row group as it is in the file (ours have a
/// few MiB), a page of each column, and some 8,000 events decoded.
///
/// An error ends it. About 2 million memory events a second are usual.
pub struct Reader<R> {
    source: R,
    footer: Footer,
    next_group: usize,
    group: Vec<Open>,
    group_rows_left: u64,
    /// The number of the row that comes next.
    row: u64,
    decoded: Decoded,
    texts: Texts,
    ended: bool,
}

/// A column of the row group that is read.
struct Open {
    column: Column,
    values: ColumnValues,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads what the file says of itself.
    ///
    /// # Errors
    /// Where it is no Parquet file, is cut off, has no column `time_ns` or `kind`, has one of our
    /// columns with another type, or a schema of another version; and what the operating system
    /// says of reading.
    pub fn new(mut source: R) -> Result<Reader<R>, Error> {
        let footer = Footer::read(&mut source)?;
        Ok(Reader {
            source,
            footer,
            next_group: 0,
            group: Vec::new(),
            group_rows_left: 0,
            row: 0,
            decoded: Decoded::new(),
            texts: Texts::default(),
            ended: false,
        })
    }

    /// What the trace says of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.footer.metadata
    }

    /// The row of the event that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Row(self.row.saturating_sub(1))
    }

    fn step(&mut self) -> Result<Option<Event>, Error> {
        while self.decoded.is_empty() {
            if self.group_rows_left == 0 {
                if self.next_group == self.footer.groups() {
                    return Ok(None);
                }
                self.open_group()?;
            } else {
                self.decode()?;
            }
        }
        let event = Event::take(&self.decoded);
        let event = event.map_err(|wrong| Error::new(Place::Row(self.row), wrong.0))?;
        self.decoded.advance();
        self.row += 1;
        Ok(Some(event))
    }

    fn open_group(&mut self) -> Result<(), Error> {
        let row = self.row;
        let wrong = |why: String| Error::new(Place::Row(row), why);
        let (rows, chunks) = self.footer.group(self.next_group).map_err(wrong)?;
        self.next_group += 1;
        self.group.clear();
        let mut footprint = 0;
        for (file, chunk) in self.footer.columns.iter().zip(chunks) {
            let name = file.column.name();
            let in_column = |why: String| wrong(format!("column {name}: {why}"));
            let mut bytes = Vec::new();
            self.source
                .seek(SeekFrom::Start(chunk.start))
                .and_then(|_| {
                    let mut part = self.source.by_ref().take(chunk.length);
                    part.read_to_end(&mut bytes)
                })
                .map_err(|error| in_column(error.to_string()))?;
            let pages = Pages::survey(Bytes::from(bytes), chunk.codec, &file.descriptor, rows);
            let pages = pages.map_err(in_column)?;
            footprint += pages.footprint();
            self.group.push(Open {
                column: file.column,
                values: ColumnValues::new(file.descriptor.physical_type(), pages),
            });
        }
        if footprint > LARGEST_FOOTPRINT {
            return Err(wrong(format!(
                "reading a row group would take {footprint} bytes; at most {LARGEST_FOOTPRINT} \
                 are taken, so write smaller pages"
            )));
        }
        self.group_rows_left = rows;
        Ok(())
    }

    fn decode(&mut self) -> Result<(), Error> {
        let rows = usize::try_from(self.group_rows_left).map_or(ROWS, |left| left.min(ROWS));
        for open in &mut self.group {
            self.decoded
                .fill(open.column, &mut open.values, rows, &mut self.texts)
                .map_err(|(index, why)| {
                    let place = Place::Row(self.row + index as u64);
                    Error::new(place, format!("column {}: {why}", open.column.name()))
                })?;
        }
        self.decoded.begin(rows);
        self.group_rows_left -= rows as u64;
        Ok(())
    }
}

impl<R: Read + Seek> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}
