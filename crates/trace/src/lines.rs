//! JSON lines: one event a line, an object with the names of [`super::Column`]; null columns may be
//! left out. The first line may be the trace's own description instead: [`Metadata`] and
//! `"schema":"stopgap.trace/2"`.
//!
//! ```text
//! {"schema":"stopgap.trace/2","clock":"monotonic"}
//! {"time_ns":81230045,"kind":"unmap","pid":812,"tid":812,"id":17}
//! ```
//!
//! It is the form for recordings of other tools: what a script can print can be replayed. Names
//! that are not ours are ignored.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::cell::{Get, Put, Value};
use super::column::{Column, ColumnType};
use super::metadata::check_schema;
use super::{Error, Event, Metadata, Place, SCHEMA, Text};

/// Longest line that is read.
const LONGEST: u64 = 1 << 20;

/// Says of a file whose first line opens an object, and no more, what it is instead. Records of stopgap look so.
const NO_LINES: &str = "it is JSON over several lines, and no trace; a trace has an object a line. A record of check, probe, compare or \
     explain is read by stopgap report";

/// The first line, where it is no event.
#[derive(Serialize, Deserialize)]
struct Header<S> {
    schema: S,
    #[serde(flatten)]
    metadata: Metadata,
}

/// Whether a line is one.
#[derive(Deserialize)]
struct Probe {
    #[serde(rename = "schema")]
    _schema: IgnoredAny,
}

/// Writes events as JSON lines. It buffers one line; give it a buffered writer.
pub struct Writer<W> {
    out: W,
    line: Object,
}

impl<W: Write> Writer<W> {
    /// Writes the first line: what the trace says of itself.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn new(mut out: W, metadata: &Metadata) -> io::Result<Writer<W>> {
        let header = Header {
            schema: SCHEMA,
            metadata: metadata.clone(),
        };
        serde_json::to_writer(&mut out, &header)?;
        out.write_all(b"\n")?;
        Ok(Writer {
            out,
            line: Object::default(),
        })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.line.0.clear();
        event.put_cells(&mut (&mut self.line as &mut dyn Put));
        self.out.write_all(self.line.closed())?;
        self.out.write_all(b"\n")
    }

    /// Flushes the lines so far.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Flushes, and returns the writer below.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Cells as a JSON object, on its way out.
#[derive(Default)]
pub(super) struct Object(Vec<u8>);

impl Object {
    /// All of it, once everything is put.
    pub(super) fn closed(&mut self) -> &[u8] {
        self.0
            .extend_from_slice(if self.0.is_empty() { b"{}" } else { b"}" });
        &self.0
    }
}

impl Put for Object {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let line = &mut self.0;
        line.extend_from_slice(if line.is_empty() { b"{\"" } else { b",\"" });
        line.extend_from_slice(column.name().as_bytes());
        line.extend_from_slice(b"\":");
        let written = match value {
            Value::Unsigned(number) => write!(line, "{number}"),
            Value::Signed(number) => write!(line, "{number}"),
            Value::Bool(value) => write!(line, "{value}"),
            Value::Text(text) => serde_json::to_writer(line, &**text).map_err(io::Error::from),
            Value::Word(word) => serde_json::to_writer(line, word).map_err(io::Error::from),
        };
        debug_assert!(written.is_ok(), "memory takes everything");
    }
}

/// Reads events from JSON lines. It holds one line, of up to 1 MiB. An error ends it.
pub struct Reader<R> {
    source: R,
    metadata: Metadata,
    buffer: Vec<u8>,
    /// Whether the buffer holds a line that was read and not taken.
    waiting: bool,
    line: u64,
    row: Row,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// Where it names a schema of another version, and what the operating system says of reading.
    pub fn new(source: R) -> Result<Reader<R>, Error> {
        let mut reader = Reader {
            source,
            metadata: Metadata::default(),
            buffer: Vec::new(),
            waiting: false,
            line: 0,
            row: Row::new(),
            ended: false,
        };
        if !reader.next_line()? {
            return Ok(reader);
        }
        let place = reader.place();
        if reader.buffer == b"{" {
            return Err(Error::new(Place::File, NO_LINES));
        }
        // An event has no schema; what is neither is an error of the line as an event.
        match serde_json::from_slice::<Probe>(&reader.buffer) {
            Err(_) => reader.waiting = true,
            Ok(_) => {
                let header: Header<String> = serde_json::from_slice(&reader.buffer)
                    .map_err(|error| Error::new(place, error_text(&error)))?;
                check_schema(place, &header.schema)?;
                reader.metadata = header.metadata;
            }
        }
        Ok(reader)
    }

    /// Returns the trace's description of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The line of the event that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Line(self.line)
    }

    /// Reads a line that is not blank; whether there is one.
    fn next_line(&mut self) -> Result<bool, Error> {
        loop {
            self.line += 1;
            self.buffer.clear();
            let read = self
                .source
                .by_ref()
                .take(LONGEST + 1)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| Error::new(self.place(), error.to_string()))?;
            if read == 0 {
                return Ok(false);
            }
            if read as u64 > LONGEST {
                let why = format!("it has more than {LONGEST} bytes");
                return Err(Error::new(self.place(), why));
            }
            let text = self.buffer.trim_ascii_end().len();
            self.buffer.truncate(text);
            if text > 0 {
                return Ok(true);
            }
        }
    }

    fn step(&mut self) -> Result<Option<Event>, Error> {
        if !std::mem::take(&mut self.waiting) && !self.next_line()? {
            return Ok(None);
        }
        let wrong = |why: String| Error::new(Place::Line(self.line), why);
        self.row.clear();
        let mut json = serde_json::Deserializer::from_slice(&self.buffer);
        (&mut self.row)
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| wrong(error_text(&error)))?;
        Event::from_cells(&(&self.row as &dyn Get))
            .map(Some)
            .map_err(|why| wrong(why.0))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = matches!(step, Some(Err(_)));
        step
    }
}

/// Returns a JSON error of one line with its byte: its line is always the first.
fn error_text(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line 1 column ") {
        Some((why, column)) => format!("{why} at byte {column}"),
        None => text,
    }
}

/// The cells of one line.
struct Row {
    cells: Vec<Option<Cell>>,
}

enum Cell {
    Unsigned(u64),
    Signed(i64),
    Bool(bool),
    Text(Text),
}

impl Row {
    fn new() -> Row {
        Row {
            cells: Column::ALL.iter().map(|_| None).collect(),
        }
    }

    fn clear(&mut self) {
        self.cells.fill_with(|| None);
    }
}

impl Get for Row {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        Some(match self.cells[column as usize].as_ref()? {
            Cell::Unsigned(number) => Value::Unsigned(*number),
            Cell::Signed(number) => Value::Signed(*number),
            Cell::Bool(value) => Value::Bool(*value),
            Cell::Text(text) => Value::Text(text),
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Row {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Row {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event, as {\"time_ns\":1,\"kind\":\"unmap\",\"id\":0}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(ColumnName)? {
            let Some(column) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let cell = map.next_value_seed(ColumnValue(column))?;
            let place = &mut self.cells[column as usize];
            if place.is_some() {
                let name = column.name();
                return Err(serde::de::Error::custom(format!("{name} is given twice")));
            }
            *place = cell;
        }
        Ok(())
    }
}

/// A name, which may be a column's.
struct ColumnName;

impl<'de> DeserializeSeed<'de> for ColumnName {
    type Value = Option<Column>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Column>, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for ColumnName {
    type Value = Option<Column>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<Column>, E> {
        Ok(Column::named(name))
    }
}

/// The value of a column.
struct ColumnValue(Column);

impl<'de> DeserializeSeed<'de> for ColumnValue {
    type Value = Option<Cell>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Cell>, D::Error> {
        from.deserialize_any(self)
    }
}

impl ColumnValue {
    fn is(&self, types: &[ColumnType]) -> bool {
        types.contains(&self.0.column_type())
    }
}

impl Visitor<'_> for ColumnValue {
    type Value = Option<Cell>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ColumnValue(column) = self;
        write!(f, "{} for {}", column.column_type().word(), column.name())
    }

    fn visit_unit<E>(self) -> Result<Option<Cell>, E> {
        Ok(None)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Option<Cell>, E> {
        if self.is(&[ColumnType::U32, ColumnType::U64]) {
            return Ok(Some(Cell::Unsigned(number)));
        }
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_type(
                serde::de::Unexpected::Unsigned(number),
                &self,
            )),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Option<Cell>, E> {
        if self.is(&[ColumnType::I32, ColumnType::I64]) {
            return Ok(Some(Cell::Signed(number)));
        }
        Err(E::invalid_type(
            serde::de::Unexpected::Signed(number),
            &self,
        ))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Option<Cell>, E> {
        if self.is(&[ColumnType::Bool]) {
            return Ok(Some(Cell::Bool(value)));
        }
        Err(E::invalid_type(serde::de::Unexpected::Bool(value), &self))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<Cell>, E> {
        if self.is(&[ColumnType::Text]) {
            return Ok(Some(Cell::Text(text.into())));
        }
        Err(E::invalid_type(serde::de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests;
