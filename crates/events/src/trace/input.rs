use std::io::{BufReader, Read, Seek, SeekFrom};

use super::{Error, Event, Metadata, Place, file, lines};

/// A trace in either form: Parquet if it begins as such, JSON lines otherwise.
///
/// ```
/// use stopgap_events::trace::Input;
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
}

impl<R: Read + Seek> Input<R> {
    /// Looks at how it begins, and reads what it says of itself.
    ///
    /// # Errors
    /// Those of [`file::Reader::new`] and [`lines::Reader::new`].
    pub fn new(mut source: R) -> Result<Input<R>, Error> {
        let system = |error: std::io::Error| Error::new(Place::File, error.to_string());
        let mut magic = Vec::new();
        source
            .by_ref()
            .take(4)
            .read_to_end(&mut magic)
            .map_err(system)?;
        source.seek(SeekFrom::Start(0)).map_err(system)?;
        if magic == file::MAGIC {
            return file::Reader::new(source).map(|reader| Input::File(Box::new(reader)));
        }
        let reader = lines::Reader::new(BufReader::with_capacity(64 << 10, source))?;
        Ok(Input::Lines(Box::new(reader)))
    }

    /// What the trace says of itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        match self {
            Input::File(reader) => reader.metadata(),
            Input::Lines(reader) => reader.metadata(),
        }
    }

    /// Where the event stands that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Input::File(reader) => reader.place(),
            Input::Lines(reader) => reader.place(),
        }
    }
}

impl<R: Read + Seek> Iterator for Input<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        match self {
            Input::File(reader) => reader.next(),
            Input::Lines(reader) => reader.next(),
        }
    }
}
