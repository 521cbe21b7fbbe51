//! What must hold of any bytes that are read as the text of perf or ftrace. Shared by the fuzz target and by
//! `crates/trace/tests/all/text_bytes.rs`, which runs it on changed texts.

use std::io::Cursor;

use stopgap_trace::{Event, Input, Metadata, lines};

/// So begins a text whatever follows.
const FIRST: &[u8] = b"# tracer: nop\n";

/// Reads `bytes` as a text. It ends with events or with one line; a line makes few events (a switch ends a wait of each of
/// its threads, and each thread may have one that is open at the end); another reading
/// says the same; and what was read comes back from JSON lines. Gives back whether all of it could be read.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let text = [FIRST, bytes].concat();
    let (events, metadata, whole) = read(&text);
    let lines = text.split(|&byte| byte == b'\n').count();
    assert!(
        events.len() <= 6 * lines,
        "{} events of {lines} lines",
        events.len()
    );
    assert_eq!(read(&text), (events.clone(), metadata.clone(), whole));
    let mut back = lines::Writer::new(Vec::new(), &metadata).unwrap();
    for event in &events {
        back.write(event).unwrap();
    }
    let back = back.finish().unwrap();
    let back = Input::new(Cursor::new(&back)).unwrap();
    assert_eq!(back.metadata(), &metadata);
    assert!(back.map(Result::unwrap).eq(events));
    whole
}

fn read(text: &[u8]) -> (Vec<Event>, Metadata, bool) {
    let input = Input::new(Cursor::new(text)).unwrap();
    let metadata = input.metadata().clone();
    let mut whole = true;
    let mut events = Vec::new();
    for event in input {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control));
                whole = false;
            }
        }
    }
    (events, metadata, whole)
}
