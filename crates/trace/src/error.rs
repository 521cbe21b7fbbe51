use std::fmt;

/// Where in a trace something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the file as a whole.
    File,
    /// In a row of the Parquet file, counted from 0.
    Row(u64),
    /// In a line of JSON lines, counted from 1.
    Line(u64),
    /// In the event of that number, counted from 0.
    Event(u64),
}

/// Characters of a reason.
const LONGEST: usize = 300;

/// A fault in a trace and its place, in one line. The name of the file is not in it: whoever
/// opened it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    place: Place,
    why: String,
}

impl Error {
    /// One line: control characters of a file's words are escaped.
    #[must_use]
    pub fn new(place: Place, why: impl Into<String>) -> Error {
        let mut why: String = why.into();
        if why.chars().any(char::is_control) || why.len() > LONGEST {
            let line = why.chars().take(LONGEST).flat_map(|c| {
                let escaped = c.is_control().then(|| c.escape_default());
                let plain = escaped.is_none().then_some(c);
                escaped.into_iter().flatten().chain(plain)
            });
            why = line.collect();
        }
        Error { place, why }
    }

    /// Where.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::File => {}
            Place::Row(row) => write!(f, "row {row}: ")?,
            Place::Line(line) => write!(f, "line {line}: ")?,
            Place::Event(event) => write!(f, "event {event}: ")?,
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for Error {}
