use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::get_column_reader;

use super::footer::Footer;
use super::pages::Pages;
use super::rows::{Rows, Texts};
use crate::cell::{Get, Value, Wrong};
use crate::column::Column;
use crate::{Error, Event, Metadata, Place};

/// Rows that are decoded at a time.
const ROWS: usize = 8_192;
/// Most memory that the pages of one row group may take while they are read.
const LARGEST_FOOTPRINT: usize = 1 << 30;

/// Reads a trace file, event by event; it holds one row group as it is in the file (ours have a
/// few MiB), a page of each column, and some 8,000 events decoded.
///
/// An error ends it. About 2 million memory events a second are usual.
pub struct Reader<R> {
    source: R,
    footer: Footer,
    next_group: usize,
    group_rows_left: u64,
    /// The number of the row that comes next.
    row: u64,
    decoded: Decoded,
    texts: Texts,
    ended: bool,
}

/// Some rows. Not generic over where the file is, so that making events of them is compiled once, here.
struct Decoded {
    /// By column; `None` where the file has no such column.
    columns: Vec<Option<Rows>>,
    /// By column, whether any of these rows has a value there: most columns have none.
    any: Vec<bool>,
    /// How many rows these are, and which of them comes next.
    rows: usize,
    next: usize,
}

impl Decoded {
    /// Makes an event of the row that comes next.
    fn event(&self) -> Result<Event, Wrong> {
        Event::from_cells(self)
    }
}

impl Get for Decoded {
    #[inline]
    fn get(&self, column: Column) -> Option<Value<'_>> {
        if !self.any[column as usize] {
            return None;
        }
        self.columns[column as usize].as_ref()?.get(self.next)
    }
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
            group_rows_left: 0,
            row: 0,
            decoded: Decoded {
                columns: Column::ALL.iter().map(|_| None).collect(),
                any: vec![false; Column::ALL.len()],
                rows: 0,
                next: 0,
            },
            texts: Texts::default(),
            ended: false,
        })
    }

    /// Returns the trace's description of itself.
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
        while self.decoded.next == self.decoded.rows {
            if self.group_rows_left == 0 {
                if self.next_group == self.footer.groups() {
                    return Ok(None);
                }
                self.open_group()?;
            } else {
                self.decode()?;
            }
        }
        let event = self.decoded.event();
        let event = event.map_err(|wrong| Error::new(Place::Row(self.row), wrong.0))?;
        self.decoded.next += 1;
        self.row += 1;
        Ok(Some(event))
    }

    fn open_group(&mut self) -> Result<(), Error> {
        let row = self.row;
        let wrong = |why: String| Error::new(Place::Row(row), why);
        let (rows, chunks) = self.footer.group(self.next_group).map_err(wrong)?;
        self.next_group += 1;
        self.decoded.columns.fill_with(|| None);
        let mut footprint = 0;
        for (file, chunk) in self.footer.columns.iter().zip(chunks) {
            let in_column = |why: String| wrong(format!("column {}: {why}", file.column.name()));
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
            let reader = get_column_reader(Arc::clone(&file.descriptor), Box::new(pages));
            self.decoded.columns[file.column as usize] = Some(Rows::new(file.column, reader));
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

    /// Decodes the next rows of all columns.
    fn decode(&mut self) -> Result<(), Error> {
        let rows = usize::try_from(self.group_rows_left).map_or(ROWS, |left| left.min(ROWS));
        for column in self.decoded.columns.iter_mut().flatten() {
            column.fill(rows, &mut self.texts).map_err(|why| {
                let name = column.column().name();
                let why = format!("column {name}, in this row or the {rows} from it: {why}");
                Error::new(Place::Row(self.row), why)
            })?;
        }
        let any = self.decoded.any.iter_mut().zip(&self.decoded.columns);
        any.for_each(|(any, column)| *any = column.as_ref().is_some_and(Rows::is_any));
        (self.decoded.next, self.decoded.rows) = (0, rows);
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
