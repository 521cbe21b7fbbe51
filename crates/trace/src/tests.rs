//! Events of every kind, and `docs/trace.md` held against the definitions.

use super::*;
use stopgap_events::memory::{MapId, Merge, Phase, Placing, Protection};
use stopgap_events::random::Random;
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Pages};

/// An event of each kind with every field, and of each kind with no field that may be left out.
pub(super) fn of_every_kind() -> Vec<Event> {
    let text = |word: &str| Some(Text::from(word));
    let stack = || Stack::new(["main", "read", "vfs_read_[k]"]);
    let range = AddressRange::new(0x7000_0000_0000, Bytes(8_192));
    let limits = Some(AddressRange {
        start: 65_536,
        end: 1 << 32,
    });
    let placing = Placing {
        alignment: Bytes(16_384),
        offset: Bytes(4_096),
        limits,
        hint: Some(u64::MAX),
    };
    let id = MapId(u32::MAX);
    let map = |placing| MemoryEvent::Map {
        id,
        length: Bytes(8_192),
        protection: Protection::Write,
        merge: Merge::Never,
        placing,
    };
    let protect = MemoryEvent::Protect {
        id,
        length: Bytes(8_192),
        protection: Protection::None,
    };
    let mut kinds = Vec::new();
    for range in [range, None] {
        let memory = |event| Kind::Memory { event, range };
        kinds.extend([
            memory(map(placing)),
            memory(map(Placing::ANYWHERE)),
            memory(protect),
            memory(MemoryEvent::Touch { id }),
            memory(MemoryEvent::Unmap { id }),
        ]);
    }
    kinds.extend([
        MemoryEvent::Begin(Phase::Layout).into(),
        MemoryEvent::Begin(Phase::Steady).into(),
        MemoryEvent::Begin(Phase::Round).into(),
    ]);
    let (order, node) = (Some(9), Some(1));
    for by in Reclaimer::ALL {
        kinds.push(Kind::ReclaimBegin {
            by: *by,
            order,
            gfp: text("GFP_KERNEL|__GFP_NORETRY"),
            node,
            shrinker: text("i915_gem_shrinker_scan"),
        });
    }
    kinds.extend([
        Kind::Switch {
            state: text("D"),
            preempted: Some(true),
            priority: Some(-1),
            next_tid: Some(0),
            next_comm: text("swapper/0"),
            next_priority: Some(120),
            stack: Some(stack()),
        },
        Kind::Waking {
            target_tid: 812,
            target_comm: text("Xorg"),
            target_priority: Some(120),
            target_cpu: Some(3),
        },
        Kind::New {
            target_tid: 813,
            target_comm: text("a \"quoted\"\nname\u{1}"),
            target_priority: Some(139),
            target_cpu: Some(0),
        },
        Kind::Fork {
            target_tid: 814,
            target_pid: Some(814),
            target_comm: text("sh"),
        },
        Kind::Exec {
            filename: text("/bin/true"),
            old_tid: Some(814),
        },
        Kind::Exit {
            priority: Some(i32::MIN),
        },
        Kind::SyscallEnter {
            number: 9,
            name: text("mmap"),
            arguments: [
                Some(0),
                Some(u64::MAX),
                None,
                Some(1 << 63),
                Some(4),
                Some(5),
            ],
        },
        Kind::SyscallExit {
            number: 9,
            name: text("mmap"),
            result: Some(-12),
        },
        Kind::UnmappedArea {
            address: Some(4_096),
            length: Bytes(4_096),
            limits,
            alignment: Some(Bytes(1 << 21)),
            offset: Some(Bytes(0)),
            top_down: Some(false),
            total: Some(Pages(77)),
            result: Some(i64::MIN),
        },
        Kind::UnmappedArea {
            address: None,
            length: Bytes(1),
            limits: None,
            alignment: None,
            offset: None,
            top_down: None,
            total: None,
            result: None,
        },
        Kind::PageFault {
            address: 0,
            instruction_pointer: Some(1),
            error_code: Some(6),
            user: Some(true),
        },
        Kind::ReclaimEnd {
            by: Reclaimer::Throttled,
            order,
            node,
            scanned: Some(32),
            reclaimed: Some(0),
            shrinker: text("x"),
            reason: text("VMSCAN_THROTTLE_WRITEBACK"),
            duration: Some(Nanos::millis(100)),
        },
        Kind::CompactionBegin {
            order,
            gfp: text("GFP_TRANSHUGE"),
            node,
            synchronous: Some(false),
        },
        Kind::CompactionEnd {
            order,
            node,
            status: text("no_suitable_page"),
        },
        Kind::Extfrag {
            frame: Some(1 << 40),
            order: 0,
            fallback_order: Some(10),
            migrate_type: text("unmovable"),
            fallback_migrate_type: text("movable"),
            changed_ownership: Some(true),
        },
        Kind::LockBegin {
            lock: text("mmap"),
            address: Some(5),
            write: Some(true),
        },
        Kind::LockEnd {
            lock: text("MUTEX"),
            address: Some(5),
            write: Some(false),
            result: Some(0),
        },
        Kind::LockRelease {
            lock: text("mmap"),
            address: Some(5),
            write: Some(true),
        },
        Kind::BlockIssue {
            device: "8:0".into(),
            sector: 2_048,
            length: Some(Bytes(512)),
            operation: text("RA"),
        },
        Kind::BlockComplete {
            device: "8:0".into(),
            sector: 2_048,
            length: Some(Bytes(512)),
            operation: text("RA"),
            result: Some(-5),
        },
        Kind::FenceWaitBegin {
            driver: text("i915"),
            timeline: text("rcs0"),
            context: Some(1),
            seqno: Some(u64::MAX),
        },
        Kind::FenceWaitEnd {
            driver: None,
            timeline: None,
            context: None,
            seqno: None,
        },
        Kind::Sample { stack: stack() },
        Kind::Counter {
            name: "mappings".into(),
            value: 9_412,
        },
        Kind::Mark {
            name: "frame".into(),
        },
    ]);
    let whole = |(index, kind): (usize, Kind)| Event {
        time: Nanos(u64::MAX - index as u64),
        cpu: Some(1),
        pid: Some(812),
        tid: Some(813),
        comm: text("Xorg"),
        kind,
    };
    let bare = |kind: &Kind| Event {
        kind: kind.clone(),
        ..Event::of_workload(0, MemoryEvent::Begin(Phase::Round))
    };
    let bares: Vec<Event> = kinds.iter().map(bare).collect();
    kinds
        .into_iter()
        .enumerate()
        .map(whole)
        .chain(bares)
        .collect()
}

/// A mixture, for tests that need many.
pub(super) fn mixed(count: usize, seed: u64) -> Vec<Event> {
    let kinds = of_every_kind();
    let mut random = Random::new(seed);
    let event = |time| Event {
        time: Nanos(time as u64 * 1_000),
        ..kinds[random.index(kinds.len())].clone()
    };
    (0..count).map(event).collect()
}

#[test]
fn the_examples_are_of_every_kind() {
    let events = of_every_kind();
    for (word, _, _) in KINDS {
        assert!(
            events.iter().any(|event| event.kind.word() == *word),
            "{word}"
        );
    }
}

/// What a kind puts is what [`KINDS`] says that it uses; and each column is used by one.
#[test]
fn kinds_use_the_columns_that_they_name() {
    struct Seen(Vec<Column>);
    impl Put for Seen {
        fn put(&mut self, column: Column, _: Value<'_>) {
            assert!(!self.0.contains(&column), "{} is put twice", column.name());
            self.0.push(column);
        }
    }
    for event in of_every_kind() {
        let mut seen = Seen(Vec::new());
        event.kind.put(&mut seen);
        let word = event.kind.word();
        let (_, _, uses) = KINDS.iter().find(|kind| kind.0 == word).unwrap();
        for column in seen.0 {
            assert!(uses.contains(&column), "{word} puts {}", column.name());
        }
    }
    for column in &Column::ALL[6..] {
        let used = KINDS.iter().any(|(_, _, uses)| uses.contains(column));
        assert!(used, "{} is used by no kind", column.name());
    }
}

#[test]
fn a_stack_reads_back() {
    let stack = Stack::new(["main", "operator;", "0x4f"]);
    assert_eq!(
        stack.frames().collect::<Vec<_>>(),
        ["main", "operator:", "0x4f"]
    );
    assert_eq!(Stack::new([]).frames().count(), 0);
}

#[test]
fn a_reason_is_one_short_line() {
    let error = Error::new(
        Place::Row(3),
        "a\nb\u{1b}[31m".to_owned() + &"x".repeat(10_000),
    );
    let line = error.to_string();
    assert!(line.starts_with("row 3: a\\u{a}b\\u{1b}[31mxxx") || line.starts_with("row 3: a\\nb"));
    assert!(
        !line.contains(char::is_control) && line.len() < 400,
        "{line}"
    );
}

/// The cells of one event.
struct Cells(std::collections::HashMap<Column, (Text, Option<i128>)>);

impl Put for Cells {
    fn put(&mut self, column: Column, value: Value<'_>) {
        let cell = match value {
            Value::Unsigned(number) => ("".into(), Some(i128::from(number))),
            Value::Signed(number) => ("".into(), Some(i128::from(number))),
            Value::Bool(value) => ("".into(), Some(i128::from(value))),
            Value::Text(text) => (Text::clone(text), None),
            Value::Word(word) => (word.into(), None),
        };
        self.0.insert(column, cell);
    }
}

impl Get for Cells {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        let (text, number) = self.0.get(&column)?;
        Some(match (column.column_type(), number) {
            (ColumnType::Bool, Some(number)) => Value::Bool(*number != 0),
            (ColumnType::U32 | ColumnType::U64, Some(number)) => {
                Value::Unsigned(u64::try_from(*number).unwrap())
            }
            (_, Some(number)) => Value::Signed(i64::try_from(*number).unwrap()),
            (_, None) => Value::Text(text),
        })
    }
}

/// Whether the events of a kind cannot do without a column.
fn is_needed(word: &str, column: Column) -> bool {
    let of_kind = |event: &Event| event.kind.word() == word;
    of_every_kind()
        .iter()
        .filter(|event| of_kind(event))
        .all(|event| {
            let mut cells = Cells(std::collections::HashMap::new());
            event.put(&mut cells);
            assert_eq!(Event::take(&cells).as_ref(), Ok(event));
            cells.0.remove(&column).is_some() && Event::take(&cells).is_err()
        })
}

/// The tables of docs/trace.md, as the definitions have them.
fn tables() -> String {
    use std::fmt::Write;
    let mut text = String::new();
    writeln!(text, "| kind | what | columns of its own |\n|---|---|---|").unwrap();
    for (word, what, uses) in KINDS {
        let name = |&column: &Column| match is_needed(word, column) {
            true => format!("**`{}`**", column.name()),
            false => format!("`{}`", column.name()),
        };
        let uses: Vec<String> = uses.iter().map(name).collect();
        writeln!(text, "| `{word}` | {what} | {} |", uses.join(", ")).unwrap();
    }
    writeln!(
        text,
        "\n| column | type | unit | kinds | what |\n|---|---|---|---|---|"
    )
    .unwrap();
    for column in Column::ALL {
        let used: Vec<String> = KINDS
            .iter()
            .filter(|(_, _, uses)| uses.contains(column))
            .map(|(word, _, _)| format!("`{word}`"))
            .collect();
        let kinds = if used.is_empty() {
            "all".to_owned()
        } else {
            used.join(", ")
        };
        writeln!(
            text,
            "| `{}` | {} | {} | {kinds} | {} |",
            column.name(),
            column.column_type().word(),
            column.unit(),
            column.what(),
        )
        .unwrap();
    }
    text
}

/// `UPDATE_SCHEMA=1` writes them.
#[test]
fn the_document_has_these_tables() {
    const BEGIN: &str = "<!-- tables: made from the code by a test -->\n";
    const END: &str = "<!-- end of tables -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let tables = tables();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{tables}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, tables, "UPDATE_SCHEMA=1 cargo test -p stopgap-trace");
    assert!(document.contains(SCHEMA));
}
