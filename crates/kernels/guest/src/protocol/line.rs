use std::fmt;

use serde::{Deserialize, Serialize};

use super::Counts;
use stopgap_events::machine::Missing;
use stopgap_events::units::Bytes;

/// The mark at the beginning of each line, before a space.
pub const MARKER: &str = "@stopgap";
/// Bytes of a file in one line, before they are encoded.
const PART: usize = 48 << 10;
/// Characters of a torn line in an error.
const LONGEST: usize = 80;

/// A line that a guest writes to its serial port.
///
/// ```text
/// @stopgap 3f56b244 {"line":"done","lines":3}
///          crc32    of the JSON text, which holds no line break
/// ```
///
/// [`Display`](fmt::Display) writes it without a line break at its end, [`Line::parse`] reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The first: who speaks.
    Hello(Hello),
    /// The counts of one operation of a cell.
    Counts(Counted),
    /// A cell was not carried out to its end; what it counted until then is not said.
    Failed {
        /// The cell.
        name: String,
        /// The error.
        why: String,
    },
    /// The guest lacks something: a module that does not load, a device, a file.
    Missing(Missing),
    /// How the program of a [`super::Work::Command`] ended.
    Ran(Ran),
    /// A part of a file; see [`Line::file`].
    File {
        /// The cell that it belongs to; none of `/proc/kallsyms`.
        cell: Option<String>,
        /// `stdout`, `stderr`, or the file's path in the guest.
        name: String,
        /// Where this part belongs.
        place: Place,
        /// Its bytes.
        base64: String,
    },
    /// The last.
    Done {
        /// How many lines came before this one.
        lines: u64,
    },
}

/// The counts of one operation of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The cell.
    pub name: String,
    /// Which operation; see [`super::Work`].
    pub operation: String,
    /// In the unit that [`Hello`] says.
    #[serde(with = "super::counts::in_pairs")]
    pub counts: Counts,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// The cell.
    pub name: String,
    /// Its exit status, where it ended of itself.
    pub status: Option<i32>,
    /// The signal that ended it, otherwise.
    pub signal: Option<i32>,
}

/// The guest: its kernel, its machine and its counter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`super::VERSION`].
    pub version: u32,
    /// The kernel's release: `uname -r`.
    pub release: String,
    /// Its build: `uname -v`.
    pub build: String,
    /// `x86_64`, `aarch64`: `uname -m`.
    pub architecture: String,
    /// The CPU model's name as the kernel tells it, where it does.
    pub cpu: Option<String>,
    /// The kernel's command line.
    pub command_line: String,
    /// The number of the layout sample.
    pub seed: u64,
    /// The unit of counts.
    pub unit: Unit,
    /// What an operation that does nothing takes, in the counter's ticks; it is taken off each count.
    pub overhead: u64,
    /// The size of a base page.
    pub page_size: Bytes,
    /// Memory that the kernel has.
    pub memory: Bytes,
    /// Whether this is a guest's first process; otherwise an ordinary program, for checking.
    pub first_process: bool,
}

/// The unit of counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Guest instructions: a run of known length took, each time, exactly as many ticks as the ratio says.
    Instructions {
        /// Instructions of one tick of the counter: 1 with rdtscp under `icount shift=0`. Counts are already in
        /// instructions; where this is not 1, they are multiples of it.
        per_tick: u64,
    },
    /// Ticks of the CPU's counter, which say nothing about instructions: a machine that does not count them.
    #[default]
    Ticks,
}

/// A part's place: number `part`, counted from 0, of `parts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Which.
    pub part: u32,
    /// How many there are; at least 1.
    pub parts: u32,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters, line breaks too, are escaped by JSON.
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        write!(
            f,
            "{MARKER} {:08x} {text}",
            crc32fast::hash(text.as_bytes())
        )
    }
}

impl Line {
    /// Parses a line of the console. Returns `None` for a kernel message. Ignores text before the marker: a kernel message
    /// that was interrupted.
    ///
    /// # Errors
    /// Where the marker is there and what follows is cut, changed, or no line of this version. The text shows its beginning.
    #[must_use]
    pub fn parse(console: &str) -> Option<Result<Line, String>> {
        let at = console.find(MARKER)?;
        let torn = |why: String| {
            let line = beginning(&console[at..]);
            format!("a line of the guest is torn ({why}): {line}")
        };
        Some(Line::read(&console[at + MARKER.len()..]).map_err(torn))
    }

    /// Reads the text behind the marker.
    fn read(rest: &str) -> Result<Line, String> {
        let rest = rest.strip_suffix('\n').unwrap_or(rest);
        let rest = rest.strip_suffix('\r').unwrap_or(rest);
        let (said, text) = rest
            .strip_prefix(' ')
            .and_then(|rest| rest.split_once(' '))
            .ok_or("it ends in its first words")?;
        let has = format!("{:08x}", crc32fast::hash(text.as_bytes()));
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if said.len() != 8 || !said.bytes().all(digit) {
            return Err("its checksum is no eight digits".to_owned());
        }
        if said != has {
            return Err(format!("its checksum is {said}, of what came {has}"));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The lines that carry a file, at least one. It is compressed, because a serial port is slow; `Transcript` puts it
    /// together again.
    #[must_use]
    pub fn file(cell: Option<&str>, name: &str, bytes: &[u8]) -> Vec<Line> {
        use base64::Engine;
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(bytes, 3);
        let chunks: Vec<&[u8]> = packed.chunks(PART).collect();
        let parts = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        (0u32..)
            .zip(chunks)
            .map(|(part, bytes)| Line::File {
                cell: cell.map(str::to_owned),
                name: name.to_owned(),
                place: Place { part, parts },
                base64: base64::engine::general_purpose::STANDARD.encode(bytes),
            })
            .collect()
    }
}

/// The first characters of `line`, fit to be shown.
fn beginning(line: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut text: String = line.chars().take(LONGEST).map(shown).collect();
    if line.chars().nth(LONGEST).is_some() {
        text.push_str("...");
    }
    text
}
