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
    metadata: Metadata,
    batches: Batches<R>,
    /// The number of the row that comes next.
    row: u64,
    decoded: Decoded,
    kept: Texts,
    ended: bool,
}

/// Where rows are decoded.
enum Batches<R> {
    Here(Box<Columns<R>>),
    Ahead(Ahead),
}

/// Takes rows that are read and returns the next ones, as [`Columns::next`] does.
pub type Ahead = Box<dyn FnMut(Batch) -> Option<Result<Batch, Error>>>;

/// Decodes the rows of a file column by column, some 500 at a time. It can be sent to another thread than its [`Reader`].
pub struct Columns<R> {
    source: R,
    footer: Footer,
    next_group: usize,
    /// The columns of the row group, as far as they are not decoded.
    columns: Vec<Rows>,
    group_rows_left: u64,
    /// The number of the row that comes next.
    row: u64,
    ended: bool,
}

/// Some rows, decoded by column.
#[derive(Default)]
pub struct Batch {
    /// By column; empty where the file has no such column, or these rows have no value there.
    cells: Vec<Cells>,
    rows: usize,
}

/// Some rows. Not generic over where the file is, so that making events of them is compiled once, here.
struct Decoded {
    batch: Batch,
    texts: Vec<OfColumn>,
    /// The row that comes next.
    next: usize,
}

impl Decoded {
    /// Makes an event of the row that comes next.
    fn event(&self) -> Result<Event, Wrong> {
        Event::from_cells(self)
    }

    /// Makes the texts of the rows.
    fn read_texts(&mut self, kept: &mut Texts) -> Result<(), (Column, String)> {
        let columns = Column::ALL.iter().zip(&self.batch.cells);
        for ((&column, cells), texts) in columns.zip(&mut self.texts) {
            if column.column_type() == ColumnType::Text {
                texts.read(cells, kept).map_err(|why| (column, why))?;
            }
        }
        Ok(())
    }
}

impl Get for Decoded {
    // Where the column is known, little is left of this.
    #[inline(always)]
    fn get(&self, column: Column) -> Option<Value<'_>> {
        let cells = self.batch.cells.get(column as usize)?;
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
        let cells = self.batch.cells.get(column as usize);
        cells.is_some_and(|cells| cells.valid.get(self.next).is_some_and(|&valid| valid != 0))
    }
}

/// The error of a column, somewhere in `rows` rows from `row` on.
fn within(row: u64, rows: usize, column: Column, why: &str) -> Error {
    let name = column.name();
    let why = format!("column {name}, in this row or the {rows} from it: {why}");
    Error::new(Place::Row(row), why)
}

impl<R: Read + Seek> Reader<R> {
    /// Reads what the file says of itself.
    ///
    /// # Errors
    /// Where it is no Parquet file, is cut off, has no column `time_ns` or `kind`, has one of our
    /// columns with another type, or a schema of another version; and what the operating system
    /// says of reading.
    pub fn new(mut source: R) -> Result<Reader<R>, Error> {
        let mut footer = Footer::read(&mut source)?;
        Ok(Reader {
            metadata: std::mem::take(&mut footer.metadata),
            batches: Batches::Here(Box::new(Columns {
                source,
                footer,
                next_group: 0,
                columns: Vec::new(),
                group_rows_left: 0,
                row: 0,
                ended: false,
            })),
            row: 0,
            decoded: Decoded {
                batch: Batch::default(),
                texts: Column::ALL.iter().map(|_| OfColumn::default()).collect(),
                next: 0,
            },
            kept: Texts::default(),
            ended: false,
        })
    }

    /// Hands the decoding of columns over to `start`, which may do it in another thread. Events are made of them here.
    #[must_use]
    pub fn ahead(self, start: impl FnOnce(Columns<R>) -> Ahead) -> Reader<R> {
        let batches = match self.batches {
            Batches::Here(columns) => Batches::Ahead(start(*columns)),
            ahead @ Batches::Ahead(_) => ahead,
        };
        Reader { batches, ..self }
    }

    /// Returns the trace's description of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The row of the event that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Row(self.row.saturating_sub(1))
    }

    /// Decodes more rows where all are read. Returns whether there is one.
    fn fill(&mut self) -> Result<bool, Error> {
        while self.decoded.next == self.decoded.batch.rows {
            self.decoded.next = 0;
            let read = std::mem::take(&mut self.decoded.batch);
            let batch = match &mut self.batches {
                Batches::Here(columns) => columns.next(read),
                Batches::Ahead(next) => next(read),
            };
            let Some(batch) = batch.transpose()? else {
                return Ok(false);
            };
            self.decoded.batch = batch;
            let texts = self.decoded.read_texts(&mut self.kept);
            texts
                .map_err(|(column, why)| within(self.row, self.decoded.batch.rows, column, &why))?;
        }
        Ok(true)
    }
}

impl<R: Read + Seek> Columns<R> {
    /// Decodes the next rows in place of those in `batch`. Returns `None` after the last ones, and after an error.
    pub fn next(&mut self, mut batch: Batch) -> Option<Result<Batch, Error>> {
        if self.ended {
            return None;
        }
        let step = self.step(&mut batch);
        self.ended = !matches!(step, Ok(true));
        step.map(|more| more.then_some(batch)).transpose()
    }

    /// Returns whether there were more rows.
    fn step(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        while self.group_rows_left == 0 {
            if self.next_group == self.footer.groups() {
                return Ok(false);
            }
            self.open_group()?;
        }
        self.decode(batch)?;
        Ok(true)
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
    fn decode(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let rows = usize::try_from(self.group_rows_left).map_or(ROWS, |left| left.min(ROWS));
        batch.cells.resize_with(Column::ALL.len(), Cells::default);
        for column in &mut self.columns {
            let cells = &mut batch.cells[column.column() as usize];
            let read = column.fill(rows, cells);
            read.map_err(|why| within(self.row, rows, column.column(), &why))?;
        }
        batch.rows = rows;
        self.row += rows as u64;
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
        let row = match self.fill() {
            Ok(true) => self.decoded.event(),
            Ok(false) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        };
        Some(match row {
            Ok(event) => {
                self.decoded.next += 1;
                self.row += 1;
                Ok(event)
            }
            Err(wrong) => {
                self.ended = true;
                Err(Error::new(Place::Row(self.row), wrong.0))
            }
        })
    }
}
