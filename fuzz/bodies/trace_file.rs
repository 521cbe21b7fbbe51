//! What must hold of any bytes that are read as a trace. Shared by the fuzz target and by
//! `crates/trace/tests/all/trace_bytes.rs`, which runs it on changed files.

use std::io::Cursor;

use stopgap_trace::{Check, Event, Input, Metadata, file, lines};

/// A few bytes can rightly be billions of equal events: more than these are not looked at.
const MOST: usize = 50_000;

/// Reads `bytes` as a trace. It ends with events or with one line, and what was read comes back
/// from a trace file and from JSON lines as it was. Gives back whether all of it could be read.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let input = match Input::new(Cursor::new(bytes)) {
        Ok(input) => input,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control));
            return false;
        }
    };
    let metadata = input.metadata().clone();
    let mut events = Vec::new();
    let mut whole = true;
    let mut check = Check::new();
    for event in input.take(MOST) {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control));
                whole = false;
            }
        }
    }
    for event in &events {
        if let Some(memory) = event.kind.memory() {
            let _ = check.event(stopgap_trace::Place::File, &memory);
        }
    }
    comes_back(&events, &metadata);
    whole
}

fn comes_back(events: &[Event], metadata: &Metadata) {
    let mut file = file::Writer::new(Vec::new()).unwrap();
    let mut text = lines::Writer::new(Vec::new(), metadata).unwrap();
    for event in events {
        file.write(event).unwrap();
        text.write(event).unwrap();
    }
    for bytes in [file.finish(metadata).unwrap(), text.finish().unwrap()] {
        let back = Input::new(Cursor::new(&bytes)).unwrap();
        assert_eq!(back.metadata(), metadata);
        let back: Vec<Event> = back.map(Result::unwrap).collect();
        assert_eq!(back, events);
    }
}
