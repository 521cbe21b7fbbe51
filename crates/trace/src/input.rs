use std::io::{BufReader, Read, Seek, SeekFrom};

use super::{Error, Event, Metadata, Place, file, lines, text};

/// A trace in any of its forms: Parquet if it begins as such, the text of `perf script` or of ftrace if its first line
/// is one of theirs, JSON lines otherwise.
///
/// ```
/// use stopgap_trace::Input;
/// let text = "{\"time_ns\":5,\"kind\":\"unmap\",\"id\":3}\n{\"time_ns\":6}\n";
/// let mut input = Input::new(std::io::Cursor::new(text)).unwrap();
/// assert_eq!(input.next().unwrap().unwrap().kind.word(), "unmap");
/// let error = input.next().unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "line 2: column kind is null");
/// ```
pub enum Input<R: Read> {
    /// A trace file.
    File(Box<file::Reader<R>>),
    /// JSON lines.
    Lines(Box<lines::Reader<BufReader<R>>>),
    /// Text of another tool.
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
    pub fn new(mut source: R) -> Result<Input<R>, Error> {
        let system = |error: std::io::Error| Error::new(Place::File, error.to_string());
        let mut head = Vec::new();
        source
            .by_ref()
            .take(text::HEAD)
            .read_to_end(&mut head)
            .map_err(system)?;
        source.seek(SeekFrom::Start(0)).map_err(system)?;
        if head.starts_with(&file::MAGIC[..]) {
            return file::Reader::new(source).map(|reader| Input::File(Box::new(reader)));
        }
        if text::is_text(&head) {
            let metadata = text::survey(BufReader::with_capacity(BUFFER, &mut source));
            source.seek(SeekFrom::Start(0)).map_err(system)?;
            let source = BufReader::with_capacity(BUFFER, source);
            return Ok(Input::Text(Box::new(text::Reader::new(source, metadata))));
        }
        let wrong = |why: &str| Err(Error::new(Place::File, why));
        match head.trim_ascii_start().first() {
            None if head.is_empty() => return wrong("it is empty"),
            None | Some(b'{') => {}
            Some(_) => {
                return wrong(
                    "it is no trace: neither Parquet, nor JSON lines, nor text of perf script, trace-cmd report or ftrace",
                );
            }
        }
        let reader = lines::Reader::new(BufReader::with_capacity(BUFFER, source))?;
        Ok(Input::Lines(Box::new(reader)))
    }

    /// Returns the trace's description of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        match self {
            Input::File(reader) => reader.metadata(),
            Input::Lines(reader) => reader.metadata(),
            Input::Text(reader) => reader.metadata(),
        }
    }

    /// Where the event stands that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Input::File(reader) => reader.place(),
            Input::Lines(reader) => reader.place(),
            Input::Text(reader) => reader.place(),
        }
    }
}

impl<R: Read + Seek> Iterator for Input<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        match self {
            Input::File(reader) => reader.next(),
            Input::Lines(reader) => reader.next(),
            Input::Text(reader) => reader.next(),
        }
    }
}
