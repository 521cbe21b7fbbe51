//! Events of every kind, and the page of kinds and columns held against the definitions.

use super::*;
use stopgap_events::random::Random;
use stopgap_events::wait::State;

/// Events of each kind: with every column, in each word that a column may have, and with those alone that it needs.
pub(super) fn of_every_kind() -> Vec<Event> {
    const VARIANTS: usize = Activity::ALL.len();
    let mut events = Vec::new();
    for (word, _, uses) in KINDS {
        let columns = || Column::ALL[..6].iter().chain(*uses);
        let cells = |variant| Cells(columns().map(|&c| (c, cell(c, word, variant))).collect());
        let mut bare = cells(0);
        // A task's name cannot stand without its number, which comes before.
        for column in columns().collect::<Vec<_>>().into_iter().rev() {
            let cell = bare.0.remove(column).unwrap();
            if Event::from_cells(&bare).is_err() {
                bare.0.insert(*column, cell);
            }
        }
        let variants = (0..VARIANTS).map(cells).chain([bare]);
        events.extend(variants.map(|cells| Event::from_cells(&cells).unwrap()));
    }
    events
}

/// A value for a column: its words one after the other, large numbers, texts that must be escaped.
fn cell(column: Column, kind: &str, variant: usize) -> (Text, Option<i128>) {
    let number = variant as i128;
    let one_of = |words: &[&str]| (words[variant % words.len()].into(), None);
    match (column, column.column_type()) {
        (Column::Kind, _) => (kind.into(), None),
        (Column::SyscallName, _) => ("mmap".into(), None),
        (Column::Protection, _) => one_of(&["none", "read", "write"]),
        (Column::Merge, _) => one_of(&["may", "never"]),
        (Column::Phase, _) => one_of(&["layout", "steady", "round"]),
        (Column::Reclaim, _) => one_of(
            &Reclaimer::ALL
                .iter()
                .map(|by| by.word())
                .collect::<Vec<_>>(),
        ),
        (Column::State, _) if kind == "wait" => one_of(
            &State::ALL
                .iter()
                .map(|state| state.word())
                .collect::<Vec<_>>(),
        ),
        (Column::Within, _) => one_of(&["call", "user", "kernel", "new"]),
        (Column::What, _) => one_of(
            &Activity::ALL
                .iter()
                .map(|what| what.word())
                .collect::<Vec<_>>(),
        ),
        (Column::Moment, _) => one_of(&["begin", "new", "renamed", "exit", "end"]),
        (Column::WakerContext, _) => one_of(&["task", "softirq", "interrupt"]),
        (Column::Stack | Column::UserStack, _) => one_of(&["main;read;vfs_read_[k]", "0x4f"]),
        (_, ColumnType::Text) => one_of(&["word", "a \"quoted\"\nname\u{1}", "\u{e4}", ""]),
        // Ranges, which must not leave the address space.
        (Column::Address | Column::LimitStart, _) => ("".into(), Some(0x7000_0000_0000 + number)),
        (Column::LengthBytes, _) => ("".into(), Some(8_192)),
        (_, ColumnType::U32) => ("".into(), Some(i128::from(u32::MAX) - number)),
        (_, ColumnType::U64) => ("".into(), Some(i128::from(u64::MAX) - number)),
        (_, ColumnType::I32) => ("".into(), Some(i128::from(i32::MIN) + number)),
        (_, ColumnType::I64) => ("".into(), Some(i128::from(i64::MIN) + number)),
        (_, ColumnType::Bool) => ("".into(), Some(number % 2)),
    }
}

/// An event of a thread.
pub(super) fn row(pid: u32, tid: u32, kind: Kind) -> Event {
    Event {
        time: Nanos(1),
        cpu: None,
        pid: Some(pid),
        tid: Some(tid),
        comm: None,
        kind,
    }
}

/// The begin of a system call; arguments that are not given are 0.
pub(super) fn enter(name: &str, arguments: &[u64]) -> Kind {
    let mut all = [Some(0); 6];
    for (to, from) in all.iter_mut().zip(arguments) {
        *to = Some(*from);
    }
    Kind::SyscallEnter {
        number: 9,
        name: Some(name.into()),
        arguments: all,
    }
}

/// The end of a system call.
pub(super) fn leave(name: &str, result: i64) -> Kind {
    Kind::SyscallExit {
        number: 9,
        name: Some(name.into()),
        result: Some(result),
    }
}

/// A mixture, for tests that need many.
pub(super) fn mixed(count: usize, seed: u64) -> Vec<Event> {
    let kinds = of_every_kind();
    let mut random = Random::new(seed);
    let event = |number| {
        let mut event = kinds[random.index(kinds.len())].clone();
        event.time = Nanos(number as u64 * 1_000);
        if let Kind::Wait(wait) = &mut event.kind {
            wait.left = Nanos(0);
            wait.woken = wait.woken.map(|_| Nanos(0));
            wait.ran = wait.ran.map(|_| event.time);
        }
        if let Kind::Span(span) = &mut event.kind {
            span.begin = Nanos(0);
            span.issued = span.issued.map(|_| Nanos(0));
        }
        event
    };
    (0..count).map(event).collect()
}

/// What a kind puts is what [`KINDS`] says that it uses; and each column is used by one.
#[test]
fn kinds_use_the_columns_that_they_name() {
    struct Seen(Vec<Column>);
    impl Put for Seen {
        fn put_cell(&mut self, column: Column, _: Value<'_>) {
            assert!(!self.0.contains(&column), "{} is put twice", column.name());
            self.0.push(column);
        }
    }
    for event in of_every_kind() {
        let mut seen = Seen(Vec::new());
        event.kind.put_cells(&mut seen);
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
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
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
            event.put_cells(&mut cells);
            assert_eq!(Event::from_cells(&cells).as_ref(), Ok(event));
            cells.0.remove(&column).is_some() && Event::from_cells(&cells).is_err()
        })
}

/// Returns the tables of docs/schema/stopgap.trace-2.md, made from the definitions.
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
fn the_page_has_these_tables() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/schema/stopgap.trace-2.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let head = page.find("| kind |").expect("the table of kinds");
    let (head, found) = page.split_at(head);
    let tables = tables();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, format!("{head}{tables}")).unwrap();
        return;
    }
    assert_eq!(found, tables, "UPDATE_SCHEMA=1 cargo test -p stopgap-trace");
    assert!(head.contains(SCHEMA));
}
