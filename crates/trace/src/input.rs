use std::collections::VecDeque;
use std::io::{BufReader, Read, Seek, SeekFrom};

use stopgap_events::units::Nanos;

use super::{Error, Event, Metadata, Place, Waits, file, lines, text};

/// A trace in any of its forms: Parquet if it begins as such, the text of `perf script` or of ftrace if its first line
/// is one of theirs, JSON lines otherwise. Its switches and wake-ups come as waits ([`Waits`]).
///
/// An error ends it, after the waits that are not over.
///
/// ```
/// use stopgap_trace::Input;
/// let text = "{\"time_ns\":5,\"kind\":\"unmap\",\"id\":3}\n{\"time_ns\":6}\n";
/// let mut input = Input::new(std::io::Cursor::new(text)).unwrap();
/// assert_eq!(input.next().unwrap().unwrap().kind.word(), "unmap");
/// let error = input.next().unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "line 2: column kind is null");
/// ```
pub struct Input<R: Read> {
    rows: Rows<R>,
    /// `None`: it is over.
    waits: Option<Waits>,
    as_recorded: bool,
    ready: VecDeque<Event>,
    error: Option<Error>,
    end: Nanos,
    late: u64,
}

/// The rows as they stand.
enum Rows<R: Read> {
    File(Box<file::Reader<R>>),
    Lines(Box<lines::Reader<BufReader<R>>>),
    Text(Box<text::Reader<BufReader<R>>>),
}

/// Bytes that are read at a time.
const BUFFER: usize = 64 << 10;

impl<R: Read + Seek> Input<R> {
    /// Looks at how it begins, and reads what it says of itself. A text of another tool is read to its end for that:
    /// what it lost stands where it was lost.
    ///
    /// # Errors
    /// Where it is empty, or none of these, and those of [`file::Reader::new`] and [`lines::Reader::new`].
    pub fn new(source: R) -> Result<Input<R>, Error> {
        Ok(Input {
            rows: Rows::new(source)?,
            waits: Some(Waits::default()),
            as_recorded: false,
            ready: VecDeque::new(),
            error: None,
            end: Nanos(0),
            late: 0,
        })
    }

    /// Gives the rows as they stand, switches and wake-ups too: for readers that do not read waits yet.
    #[must_use]
    pub fn as_recorded(self) -> Input<R> {
        Input {
            as_recorded: true,
            ..self
        }
    }

    /// Hands the decoding of a Parquet file's columns over to `start`: see [`file::Reader::ahead`]. Other forms are read as before.
    #[must_use]
    pub fn ahead(self, start: impl FnOnce(file::Columns<R>) -> file::Ahead) -> Input<R> {
        let rows = match self.rows {
            Rows::File(reader) => Rows::File(Box::new(reader.ahead(start))),
            rows @ (Rows::Lines(_) | Rows::Text(_)) => rows,
        };
        Input { rows, ..self }
    }

    /// Returns the trace's description of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        match &self.rows {
            Rows::File(reader) => reader.metadata(),
            Rows::Lines(reader) => reader.metadata(),
            Rows::Text(reader) => reader.metadata(),
        }
    }

    /// Returns how many rows so far were earlier than one before them. A wait that is made of such a row is in order all the same.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Where the row stands that was read last, for errors about what an event means.
    #[must_use]
    pub fn place(&self) -> Place {
        match &self.rows {
            Rows::File(reader) => reader.place(),
            Rows::Lines(reader) => reader.place(),
            Rows::Text(reader) => reader.place(),
        }
    }
}

/// Says whether a file that begins like this is a trace: Parquet, the text of another tool, or JSON lines.
#[must_use]
pub fn is_trace(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    let lines = line.starts_with(b"{") && (has(b"\"stopgap.trace/") || has(b"\"time_ns\""));
    head.starts_with(&file::MAGIC[..]) || lines || text::is_text(head)
}

impl<R: Read + Seek> Rows<R> {
    fn new(mut source: R) -> Result<Rows<R>, Error> {
        let system = |error: std::io::Error| Error::new(Place::File, error.to_string());
        let mut head = Vec::new();
        source
            .by_ref()
            .take(text::HEAD)
            .read_to_end(&mut head)
            .map_err(system)?;
        source.seek(SeekFrom::Start(0)).map_err(system)?;
        if head.starts_with(&file::MAGIC[..]) {
            return file::Reader::new(source).map(|reader| Rows::File(Box::new(reader)));
        }
        if text::is_text(&head) {
            let metadata = text::survey(BufReader::with_capacity(BUFFER, &mut source));
            source.seek(SeekFrom::Start(0)).map_err(system)?;
            let source = BufReader::with_capacity(BUFFER, source);
            return Ok(Rows::Text(Box::new(text::Reader::new(source, metadata))));
        }
        let wrong = |why: &str| Err(Error::new(Place::File, why));
        match head.trim_ascii_start().first() {
            None if head.is_empty() => return wrong("it is empty"),
            None | Some(b'{') => {}
            Some(_) if head.starts_with(b"PERFILE2") => {
                return wrong(
                    "it is perf's own file; perf script --ns -i FILE > perf.txt makes a text of it, which is read here",
                );
            }
            Some(_) => {
                return wrong(
                    "it is no trace: neither Parquet, nor JSON lines, nor text of perf script, trace-cmd report or ftrace",
                );
            }
        }
        let reader = lines::Reader::new(BufReader::with_capacity(BUFFER, source))?;
        Ok(Rows::Lines(Box::new(reader)))
    }

    fn next(&mut self) -> Option<Result<Event, Error>> {
        match self {
            Rows::File(reader) => reader.next(),
            Rows::Lines(reader) => reader.next(),
            Rows::Text(reader) => reader.next(),
        }
    }
}

impl<R: Read + Seek> Iterator for Input<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let Some(waits) = &mut self.waits else {
                return self.error.take().map(Err);
            };
            if self.as_recorded {
                let row = self.rows.next();
                if !matches!(row, Some(Ok(_))) {
                    self.waits = None;
                }
                return row;
            }
            // An event is returned as it came, where it can be: it has 176 bytes.
            let row = self.rows.next();
            if let Some(Ok(event)) = &row {
                self.late += u64::from(event.time < self.end);
                self.end = self.end.max(event.time);
                if waits.passes(event) {
                    return row;
                }
            }
            match row {
                Some(Ok(event)) => waits.event(event, &mut self.ready),
                over => {
                    self.error = over.and_then(Result::err);
                    if let Some(waits) = self.waits.take() {
                        waits.finish(self.end, &mut self.ready);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// Rows before a wrong one are read, and waits that are not over with them.
    #[test]
    fn an_error_comes_after_the_open_waits() {
        let text = concat!(
            "{\"time_ns\":5,\"kind\":\"switch\",\"cpu\":0,\"tid\":7,\"state\":\"S\",\"next_tid\":0}\n",
            "{\"time_ns\":9,\"kind\":\"mark\",\"name\":\"m\"}\n",
            "{\"time_ns\":10}\n",
            "{\"time_ns\":11,\"kind\":\"mark\",\"name\":\"m\"}\n",
        );
        let source = || Input::new(std::io::Cursor::new(text)).unwrap();
        let mut input = source();
        let words = |kind: &Kind| kind.word();
        assert_eq!(
            input.next().map(|row| words(&row.unwrap().kind)),
            Some("mark")
        );
        let wait = input.next().unwrap().unwrap();
        let Kind::Wait(open) = &wait.kind else {
            panic!("{wait:?}")
        };
        assert_eq!((wait.time, open.left, open.ran), (Nanos(9), Nanos(5), None));
        let error = input.next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "line 3: column kind is null");
        assert_eq!(input.place(), Place::Line(3));
        assert!(input.next().is_none() && input.next().is_none());

        let mut rows = source().as_recorded();
        assert_eq!(
            rows.next().map(|row| words(&row.unwrap().kind)),
            Some("switch")
        );
        assert!(rows.nth(1).unwrap().is_err());
        assert!(rows.next().is_none());
    }
}
