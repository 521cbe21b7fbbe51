//! A trace without the names of its machine: each is a hash instead, with a salt that the reader of the trace does not have.
//!
//! Hashed are the host, the boot, models of machine and devices, command lines, labels, paths, cgroups, names of processes and threads,
//! marks, fences' timelines, and functions of programs; the same name has the same hash everywhere. What is left are numbers, times,
//! addresses, system calls, and words and functions of the kernel. A text column that is not known here is hashed.

use std::collections::HashMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;

use super::cell::{Get, Put, Value};
use super::column::{Column, ColumnType};
use super::{Event, Loss, Machine, Metadata, Place, Text};

/// Bytes of a hash that are kept, 12 digits: among 100,000 names two are alike in one trace of 56,000.
const KEPT: usize = 6;
/// Hashes that are remembered.
const MOST: usize = 1 << 16;

/// Hashes names with a salt.
pub struct Anonymous {
    salt: [u8; 32],
    /// Names of counters that tell nothing of a machine.
    counters: &'static [&'static str],
    known: HashMap<Text, Text>,
}

impl Anonymous {
    /// Names of counters that are in `counters` are left as they are.
    #[must_use]
    pub fn new(salt: [u8; 32], counters: &'static [&'static str]) -> Anonymous {
        Anonymous {
            salt,
            counters,
            known: HashMap::new(),
        }
    }

    /// Returns the hash of a name; of an empty one the empty one.
    fn hash(&self, name: &str) -> String {
        if name.is_empty() {
            return String::new();
        }
        let mut sha = Sha256::new();
        // The salt has a length of its own, so that no name continues it.
        sha.update(self.salt);
        sha.update(name.as_bytes());
        let mut hash = "n".to_owned();
        for byte in &sha.finalize()[..KEPT] {
            let _ = write!(hash, "{byte:02x}"); // into a string
        }
        hash
    }

    /// Hashes each piece of a text between `separator`s, but for those that may stay.
    fn pieces(&self, text: &str, separator: char, stays: impl Fn(&str) -> bool) -> String {
        let pieces = text.split(separator).map(|piece| match stays(piece) {
            true => piece.to_owned(),
            false => self.hash(piece),
        });
        let mut all = String::with_capacity(text.len());
        for (index, piece) in pieces.enumerate() {
            if index > 0 {
                all.push(separator);
            }
            all.push_str(&piece);
        }
        all
    }

    /// Returns the text as it may be given away.
    fn text(&mut self, column: Column, kind: &str, text: &Text) -> Text {
        let rule = rule(column, kind);
        let stays = match rule {
            Rule::Stays => true,
            Rule::Counter => self.counters.contains(&&**text),
            _ => false,
        };
        if stays {
            return Text::clone(text);
        }
        // A name is hashed alike by all rules, unless it has a separator or may be a frame that stays.
        let plain = rule != Rule::Stack && !text.contains('/');
        if plain && let Some(known) = self.known.get(text) {
            return Text::clone(known);
        }
        let hashed: Text = match rule {
            Rule::Path => self.pieces(text, '/', |_| false),
            Rule::Stack => self.pieces(text, ';', is_of_the_kernel),
            _ => self.hash(text),
        }
        .into();
        if plain && self.known.len() < MOST {
            self.known.insert(Text::clone(text), Text::clone(&hashed));
        }
        hashed
    }

    /// Returns the metadata without names. What was missing, and why, are sentences that may have any: only their number is left.
    #[must_use]
    pub fn metadata(&self, metadata: &Metadata) -> Metadata {
        let hash = |name: &Option<String>| name.as_deref().map(|name| self.hash(name));
        let (labels, disks) = (metadata.labels.iter(), metadata.disks.iter());
        let devices = metadata.devices.iter();
        let losses = |losses: &Vec<Loss>| {
            let loss = |loss: &Loss| Loss {
                what: match is_own_loss(&loss.what) {
                    true => loss.what.clone(),
                    false => self.hash(&loss.what),
                },
                count: loss.count,
            };
            losses.iter().map(loss).collect()
        };
        let is_event = |name: &&String| {
            let word = |c: char| c.is_ascii_alphanumeric() || "_:-".contains(c);
            name.chars().all(word)
        };
        let events = |events: &Vec<String>| events.iter().filter(is_event).cloned().collect();
        let missing = metadata.missing.iter();
        Metadata {
            host: hash(&metadata.host),
            boot_id: hash(&metadata.boot_id),
            source: hash(&metadata.source),
            program: hash(&metadata.program),
            labels: labels
                .map(|(key, value)| (self.hash(key), self.hash(value)))
                .inserted(),
            disks: disks
                .map(|(number, name)| (number.clone(), self.hash(name)))
                .inserted(),
            devices: devices
                .map(|(name, model)| (self.hash(name), self.hash(model)))
                .inserted(),
            machine: metadata.machine.clone().map(|machine| Machine {
                model: hash(&machine.model),
                ..machine
            }),
            losses: metadata.losses.as_ref().map(losses),
            events: metadata.events.as_ref().map(events),
            missing: missing
                .map(|missing| {
                    Missing::new(self.hash(&missing.what), "not said in an anonymous trace")
                })
                .collect(),
            // A build id names a program, too, to everybody who has that program.
            files: Vec::new(),
            ..metadata.clone()
        }
    }

    /// Returns the event without names.
    ///
    /// # Errors
    /// Where the event is none that could be read back.
    // Inlined into another crate, it would have the reading of cells compiled there once more.
    #[inline(never)]
    pub fn event(&mut self, event: &Event) -> Result<Event, super::Error> {
        let mut cells = Cells {
            anonymous: self,
            kind: event.kind.word(),
            values: vec![None; Column::ALL.len()],
        };
        event.put_cells(&mut (&mut cells as &mut dyn Put));
        Event::from_cells(&(&cells as &dyn Get))
            .map_err(|why| super::Error::new(Place::File, why.0))
    }
}

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The kernel's own words.
    Stays,
    /// A name.
    Name,
    /// Names between slashes.
    Path,
    /// Frames.
    Stack,
    /// The name of a counter.
    Counter,
}

fn rule(column: Column, kind: &str) -> Rule {
    match column {
        Column::Kind
        | Column::Protection
        | Column::Merge
        | Column::Phase
        | Column::State
        | Column::Within
        | Column::WakerContext
        | Column::WakerSyscallName
        | Column::SyscallName
        | Column::Reclaim
        | Column::Gfp
        | Column::Shrinker
        | Column::Reason
        | Column::Status
        | Column::MigrateType
        | Column::FallbackMigrateType
        | Column::Lock
        | Column::Device
        | Column::Operation
        | Column::Driver
        | Column::What
        | Column::Moment
        | Column::Cause
        | Column::Buckets => Rule::Stays,
        Column::Filename | Column::Cgroup => Rule::Path,
        Column::Stack | Column::UserStack => Rule::Stack,
        Column::Name if kind == "span" => Rule::Stays,
        Column::Name if kind == "counter" => Rule::Counter,
        _ => Rule::Name,
    }
}

/// Whether a frame is a function of the kernel, or an address.
fn is_of_the_kernel(frame: &str) -> bool {
    let address = frame.strip_prefix("0x");
    frame.ends_with("_[k]")
        || address.is_some_and(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit()))
}

/// Whether a loss is named as stopgap names its own: `CPU 3`, `rings of BPF`.
fn is_own_loss(what: &str) -> bool {
    let words = ["CPU", "records", "of", "perf", "rings", "BPF"];
    what.split([' ', ','])
        .all(|word| words.contains(&word) || word.chars().all(|digit| digit.is_ascii_digit()))
}

/// The cells of one event, names hashed.
struct Cells<'a> {
    anonymous: &'a mut Anonymous,
    kind: &'static str,
    values: Vec<Option<Owned>>,
}

#[derive(Debug, Clone)]
enum Owned {
    Unsigned(u64),
    Signed(i64),
    Bool(bool),
    Text(Text),
    Word(&'static str),
}

impl Put for Cells<'_> {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        debug_assert!(
            matches!(value, Value::Text(_) | Value::Word(_))
                == (column.column_type() == ColumnType::Text)
        );
        self.values[column as usize] = Some(match value {
            Value::Unsigned(number) => Owned::Unsigned(number),
            Value::Signed(number) => Owned::Signed(number),
            Value::Bool(value) => Owned::Bool(value),
            Value::Text(text) => Owned::Text(self.anonymous.text(column, self.kind, text)),
            Value::Word(word) => Owned::Word(word),
        });
    }
}

impl Get for Cells<'_> {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        Some(match self.values[column as usize].as_ref()? {
            Owned::Unsigned(number) => Value::Unsigned(*number),
            Owned::Signed(number) => Value::Signed(*number),
            Owned::Bool(value) => Value::Bool(*value),
            Owned::Text(text) => Value::Text(text),
            Owned::Word(word) => Value::Word(word),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::of_every_kind;

    fn anonymous(salt: u8) -> Anonymous {
        Anonymous::new([salt; 32], &["mappings"])
    }

    #[test]
    fn the_same_name_has_the_same_hash_and_another_salt_gives_another() {
        let (one, two) = (anonymous(1), anonymous(2));
        assert_eq!(one.hash("redis"), one.hash("redis"));
        assert_ne!(one.hash("redis"), one.hash("redis2"));
        assert_ne!(one.hash("redis"), two.hash("redis"));
        assert_eq!(one.hash("redis").len(), 13);
        assert_eq!(one.hash(""), "");
    }

    #[test]
    fn kernel_frames_and_addresses_stay() {
        let mut anonymous = anonymous(1);
        let stack: Text = "main;handle_request;0x7f00;poll;schedule_[k]".into();
        let hashed = anonymous.text(Column::Stack, "sample", &stack);
        let frames: Vec<&str> = hashed.split(';').collect();
        assert_eq!(frames.len(), 5);
        assert_eq!((frames[2], frames[4]), ("0x7f00", "schedule_[k]"));
        assert_eq!(frames[0], anonymous.hash("main"));
        assert_eq!(frames[3], anonymous.hash("poll"));
        let path = anonymous.text(Column::Cgroup, "task", &"/kubepods/pod1".into());
        let pieces: Vec<&str> = path.split('/').collect();
        assert_eq!(pieces[0], "");
        assert_eq!(pieces[1], anonymous.hash("kubepods"));
    }

    /// Every kind of event keeps its numbers and words, and is another one only where it has names.
    #[test]
    fn every_kind_of_event_is_read_back() {
        let mut anonymous = anonymous(3);
        for event in of_every_kind() {
            let hashed = anonymous.event(&event).unwrap();
            assert_eq!(hashed.kind.word(), event.kind.word());
            assert_eq!((hashed.time, hashed.pid), (event.time, event.pid));
            let comm = event.comm.as_deref().map(|comm| anonymous.hash(comm));
            assert_eq!(hashed.comm.as_deref(), comm.as_deref());
            assert_eq!(anonymous.event(&event).unwrap(), hashed);
        }
    }

    #[test]
    fn metadata_says_numbers_and_no_names() {
        let metadata = Metadata {
            host: Some("db-17".into()),
            source: Some("postgres -D /data".into()),
            program: Some("postgres".into()),
            kernel: Some("6.12.1".into()),
            labels: [("team".to_owned(), "payments".to_owned())].into(),
            devices: [("nvme0n1".to_owned(), "ACME-7 SSD".to_owned())].into(),
            machine: Some(Machine {
                model: Some("ACME-7 Gateway".to_owned()),
                cpu: Some("Cortex-A76".to_owned()),
                ..Machine::default()
            }),
            losses: Some(vec![
                Loss {
                    what: "rings of BPF".into(),
                    count: 3,
                },
                Loss {
                    what: "buffer of db-17".into(),
                    count: 1,
                },
            ]),
            events: Some(vec!["bpf:sched_switch".into(), "uprobe /data/x".into()]),
            missing: vec![Missing::new("threads of postgres", "/data: gone")],
            ..Metadata::default()
        };
        let hashed = anonymous(1).metadata(&metadata);
        let text = serde_json::to_string(&hashed).unwrap();
        for name in [
            "db-17", "postgres", "/data", "team", "payments", "gone", "ACME-7", "nvme0n1",
        ] {
            assert!(!text.contains(name), "{name} in {text}");
        }
        for left in ["6.12.1", "rings of BPF", "bpf:sched_switch", "Cortex-A76"] {
            assert!(text.contains(left), "{left} not in {text}");
        }
    }
}
