use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stopgap_events::machine::Missing;

use super::{Counted, Counts, Hello, Line, Place, Ran, VERSION};

/// The largest file that a guest may send, unpacked.
const MOST_BYTES: usize = 64 << 20;

/// All that a guest said, put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

impl Transcript {
    /// Reads the lines of a console, kernel messages among them.
    ///
    /// # Errors
    /// A torn line; lines that were lost, contradict each other, or are of another version; no end.
    pub fn read<T: AsRef<str>>(console: impl IntoIterator<Item = T>) -> Result<Transcript, String> {
        let mut said = Transcript::default();
        // Packed files until all parts have come, and how many came of how many.
        let mut parts: BTreeMap<(Option<String>, String), (u32, u32)> = BTreeMap::new();
        let (mut lines, mut done) = (0, false);
        for line in console {
            let Some(line) = Line::parse(line.as_ref()) else {
                continue;
            };
            match line? {
                _ if done => return contradiction("a line after the last one"),
                Line::Hello(hello) if lines == 0 && hello.version != VERSION => {
                    return Err(format!(
                        "the guest's program speaks version {}, not {VERSION}; build both from the same source",
                        hello.version
                    ));
                }
                Line::Hello(hello) if lines == 0 => said.hello = hello,
                Line::Hello(_) => return contradiction("two first lines"),
                _ if lines == 0 => return contradiction("the first line is missing"),
                Line::Counts(Counted {
                    name, operation, ..
                }) if said.counts(&name, &operation).is_some() => {
                    return contradiction(&format!("{name}: '{operation}' was counted twice"));
                }
                Line::Counts(counted) => said.counted.push(counted),
                Line::Failed { name, why } => said.failed.push((name, why)),
                Line::Missing(missing) => said.missing.push(missing),
                Line::Ran(ran) => said.ran.push(ran),
                Line::File {
                    cell,
                    name,
                    place: Place { part, parts: of },
                    base64,
                } => {
                    let key = (cell, name);
                    let (came, before) = parts.entry(key.clone()).or_default();
                    if part != *came || of <= part {
                        return contradiction(&format!("part {part} of {} came at {came}", key.1));
                    }
                    if part > 0 && *before != of {
                        return contradiction(&format!("{} has {before} parts, or {of}", key.1));
                    }
                    (*came, *before) = (part + 1, of);
                    let bytes = STANDARD.decode(&base64);
                    let bytes =
                        bytes.or_else(|error| contradiction(&format!("{}: {error}", key.1)));
                    said.files.entry(key).or_default().extend(bytes?);
                }
                Line::Done { lines: all } if all != lines => {
                    return Err(format!("{lines} of {all} lines of the guest came"));
                }
                Line::Done { .. } => done = true,
            }
            lines += 1;
        }
        if lines == 0 {
            return Err("the guest's program said nothing".to_owned());
        }
        if !done {
            return Err(format!(
                "the guest's program did not come to its end ({lines} lines came)"
            ));
        }
        for (key, (came, of)) in parts {
            if came != of {
                return contradiction(&format!("{}: {came} of {of} parts came", key.1));
            }
        }
        for ((_, name), bytes) in &mut said.files {
            *bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, MOST_BYTES)
                .or_else(|error| contradiction(&format!("{name}: {error}")))?;
        }
        Ok(said)
    }

    /// The counts of an operation of a cell.
    #[must_use]
    pub fn counts(&self, name: &str, operation: &str) -> Option<&Counts> {
        let mut all = self.counted.iter();
        let one = all.find(|one| one.name == name && one.operation == operation)?;
        Some(&one.counts)
    }
}

fn contradiction<T>(what: &str) -> Result<T, String> {
    Err(format!("the guest's lines contradict each other: {what}"))
}
