use std::collections::BTreeMap;

use super::{Counts, Hello, Line, VERSION};
use stopgap_events::machine::Missing;

/// The largest file that a guest may send, unpacked.
const MOST_BYTES: usize = 64 << 20;

/// All that a guest said, put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The guest.
    pub hello: Hello,
    /// The counts, in the order of the plan.
    pub counted: Vec<Counted>,
    /// Cells that were not carried out, and why.
    pub failed: Vec<(String, String)>,
    /// Modules, devices and files that the guest lacked.
    pub missing: Vec<Missing>,
    /// How the programs ended.
    pub ran: Vec<Ran>,
    /// Files by cell (none of `/proc/kallsyms`) and name.
    pub files: BTreeMap<(Option<String>, String), Vec<u8>>,
}

/// The counts of one operation of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The cell.
    pub name: String,
    /// Which operation.
    pub operation: String,
    /// In the unit that [`Hello`] says.
    pub counts: Counts,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The cell.
    pub name: String,
    /// Its exit status, where it ended of itself.
    pub status: Option<i32>,
    /// The signal that ended it, otherwise.
    pub signal: Option<i32>,
}

impl Transcript {
    /// Reads the lines of a console, kernel messages among them.
    ///
    /// # Errors
    /// A torn line; lines that were lost, contradict each other, or are of another version; no end.
    pub fn read<T: AsRef<str>>(console: impl IntoIterator<Item = T>) -> Result<Transcript, String> {
        let mut reader = Reader::default();
        for line in console {
            if let Some(line) = Line::parse(line.as_ref()) {
                reader.take(line?)?;
            }
        }
        reader.finish()
    }

    /// The counts of an operation of a cell.
    #[must_use]
    pub fn counts(&self, name: &str, operation: &str) -> Option<&Counts> {
        let mut all = self.counted.iter();
        let one = all.find(|one| one.name == name && one.operation == operation)?;
        Some(&one.counts)
    }
}

/// Parts of a file that came until now, packed, and of how many.
#[derive(Default)]
struct Parts {
    came: u32,
    of: u32,
    packed: Vec<u8>,
}

#[derive(Default)]
struct Reader {
    hello: Option<Hello>,
    counted: Vec<Counted>,
    failed: Vec<(String, String)>,
    missing: Vec<Missing>,
    ran: Vec<Ran>,
    parts: BTreeMap<(Option<String>, String), Parts>,
    lines: u64,
    done: bool,
}

impl Reader {
    fn take(&mut self, line: Line) -> Result<(), String> {
        let against = |what: String| Err(contradiction(&what));
        if self.done {
            return against("a line after the last one".to_owned());
        }
        match (line, &self.hello) {
            (Line::Hello(hello), None) if hello.version != VERSION => {
                return Err(format!(
                    "the guest's program speaks version {}, not {VERSION}; build both from the same source",
                    hello.version
                ));
            }
            (Line::Hello(hello), None) => self.hello = Some(hello),
            (Line::Hello(_), Some(_)) => return against("two first lines".to_owned()),
            (_, None) => return against("the first line is missing".to_owned()),
            (
                Line::Counts {
                    name,
                    operation,
                    counts,
                },
                _,
            ) => {
                let mut before = self.counted.iter();
                if before.any(|one| one.name == name && one.operation == operation) {
                    return against(format!("{name}: '{operation}' was counted twice"));
                }
                self.counted.push(Counted {
                    name,
                    operation,
                    counts,
                });
            }
            (Line::Failed { name, why }, _) => self.failed.push((name, why)),
            (Line::Missing { what, why }, _) => self.missing.push(Missing { what, why }),
            (
                Line::Ran {
                    name,
                    status,
                    signal,
                },
                _,
            ) => self.ran.push(Ran {
                name,
                status,
                signal,
            }),
            (
                Line::File {
                    cell,
                    name,
                    place,
                    base64,
                },
                _,
            ) => {
                use base64::Engine;
                let parts = self.parts.entry((cell, name.clone())).or_default();
                if place.part != parts.came || place.parts <= place.part {
                    return against(format!(
                        "part {} of {name} came at {}",
                        place.part, parts.came
                    ));
                }
                if parts.came > 0 && parts.of != place.parts {
                    return against(format!("{name} has {} parts, or {}", parts.of, place.parts));
                }
                let bytes = base64::engine::general_purpose::STANDARD.decode(&base64);
                let bytes = bytes.map_err(|error| contradiction(&format!("{name}: {error}")))?;
                parts.packed.extend(bytes);
                (parts.came, parts.of) = (place.part + 1, place.parts);
            }
            (Line::Done { lines }, _) if lines != self.lines => {
                return Err(format!("{} of {lines} lines of the guest came", self.lines));
            }
            (Line::Done { .. }, _) => self.done = true,
        }
        self.lines += 1;
        Ok(())
    }

    fn finish(self) -> Result<Transcript, String> {
        let hello = self.hello.ok_or("the guest's program said nothing")?;
        if !self.done {
            return Err(format!(
                "the guest's program did not come to its end ({} lines came)",
                self.lines
            ));
        }
        let unpack = |((cell, name), parts): ((Option<String>, String), Parts)| {
            let wrong = |why: String| contradiction(&format!("{name}: {why}"));
            if parts.came != parts.of {
                return Err(wrong(format!("{} of {} parts came", parts.came, parts.of)));
            }
            let bytes =
                miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&parts.packed, MOST_BYTES)
                    .map_err(|error| wrong(error.to_string()))?;
            Ok(((cell, name), bytes))
        };
        Ok(Transcript {
            hello,
            counted: self.counted,
            failed: self.failed,
            missing: self.missing,
            ran: self.ran,
            files: self
                .parts
                .into_iter()
                .map(unpack)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn contradiction(what: &str) -> String {
    format!("the guest's lines contradict each other: {what}")
}
