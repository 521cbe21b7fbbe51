use std::io::{Read, Seek, SeekFrom};

use bytes::Bytes;

use super::footer::Footer;
use super::pages::Pages;
use super::rows::{Cells, Rows};
use super::texts::{OfColumn, Texts};
use crate::cell::{Get, Value, Wrong};
use crate::column::{Column, ColumnType};
use crate::{Error, Event, Metadata, Place};

/// Rows that are decoded at a time: what they take stays in a CPU's caches.
const ROWS: usize = 512;
/// Most memory that the pages of one row group may take while they are read.
const LARGEST_FOOTPRINT: usize = 1 << 30;

/// Reads a trace file, event by event; it holds one row group as it is in the file (ours have a
/// few MiB), a page of each column, and some 500 events decoded.
///
/// An error ends it. About 2 million memory events a second are usual.
pub struct Reader<R> {
    source: R,
    footer: Footer,
    next_group: usize,
    /// The columns of the row group, as far as they are not decoded.
    columns: Vec<Rows>,
    group_rows_left: u64,
    /// The number of the row that comes next.
    row: u64,
    decoded: Decoded,
    kept: Texts,
    ended: bool,
}

/// Some rows. Not generic over where the file is, so that making events of them is compiled once, here.
struct Decoded {
    /// By column; empty where the file has no such column, or these rows have no value there.
    cells: Vec<Cells>,
    texts: Vec<OfColumn>,
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
    // Where the column is known, little is left of this.
    #[inline(always)]
    fn get(&self, column: Column) -> Option<Value<'_>> {
        let cells = self.cells.get(column as usize)?;
        if *cells.valid.get(self.next)? == 0 {
            return None;
        }
        let value = *cells.values.get(self.next)?;
        Some(match column.column_type() {
            ColumnType::Bool => Value::Bool(value != 0),
            ColumnType::Text => Value::Text(self.texts[column as usize].get(value)?),
            _ if cells.signed => Value::Signed(value.cast_signed()),
            _ => Value::Unsigned(value),
        })
    }

    #[inline(always)]
    fn has(&self, column: Column) -> bool {
        let cells = self.cells.get(column as usize);
        cells.is_some_and(|cells| cells.valid.get(self.next).is_some_and(|&valid| valid != 0))
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
            columns: Vec::new(),
            group_rows_left: 0,
            row: 0,
            decoded: Decoded {
                cells: Column::ALL.iter().map(|_| Cells::default()).collect(),
                texts: Column::ALL.iter().map(|_| OfColumn::default()).collect(),
                rows: 0,
                next: 0,
            },
            kept: Texts::default(),
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
        self.columns.clear();
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
            let physical = file.descriptor.physical_type();
            self.columns.push(Rows::new(file.column, physical, pages));
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
        for column in &mut self.columns {
            let at = column.column() as usize;
            let (cells, texts) = (&mut self.decoded.cells[at], &mut self.decoded.texts[at]);
            let read = column.fill(rows, cells);
            let is_text = column.column().column_type() == ColumnType::Text;
            let read = read.and_then(|()| match is_text {
                true => texts.read(cells, &mut self.kept),
                false => Ok(()),
            });
            read.map_err(|why| {
                let name = column.column().name();
                let why = format!("column {name}, in this row or the {rows} from it: {why}");
                Error::new(Place::Row(self.row), why)
            })?;
        }
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
