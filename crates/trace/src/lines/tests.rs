//! Lines that are well, and lines that are not.

use super::*;
use crate::Clock;
use crate::tests::{mixed, of_every_kind};

fn read(text: &str) -> Result<Vec<Event>, Error> {
    Reader::new(text.as_bytes())?.collect()
}

fn written(events: &[Event], metadata: &Metadata) -> String {
    let mut writer = Writer::new(Vec::new(), metadata).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

#[test]
fn every_kind_reads_back() {
    let metadata = Metadata {
        clock: Some(Clock::Boottime),
        source: Some("a \"test\"".to_owned()),
        ..Metadata::default()
    };
    let mut events = of_every_kind();
    events.extend(mixed(500, 2));
    let text = written(&events, &metadata);
    assert_eq!(text.lines().count(), events.len() + 1);
    let reader = Reader::new(text.as_bytes()).unwrap();
    assert_eq!(*reader.metadata(), metadata);
    let back: Vec<Event> = reader.map(Result::unwrap).collect();
    assert_eq!(back, events);
}

/// What a script prints: no first line, spaces, names of its own, nulls, blank lines.
#[test]
fn lines_of_others() {
    let text = concat!(
        "{ \"kind\": \"unmap\", \"time_ns\": 1, \"id\": 7, \"why\": {\"deep\": [1, {}]} }\n",
        "\r\n",
        "{\"time_ns\":2,\"kind\":\"exit\",\"priority\":null,\"tid\":5}"
    );
    let events = read(text).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].tid, Some(5));
    assert_eq!(read(""), Ok(Vec::new()));
    assert_eq!(read("\n \n"), Ok(Vec::new()));
}

#[test]
fn a_fault_is_told_with_its_line() {
    let good = "{\"time_ns\":1,\"kind\":\"touch\",\"id\":7}\n";
    for (line, words) in [
        (
            "{\"time_ns\":1,\"kind\":\"touch\"",
            "EOF while parsing an object at byte 27",
        ),
        ("{\"time_ns\":1,\"kind\":\"touch\"}", "column id is null"),
        ("{\"time_ns\":1,\"id\":7}", "column kind is null"),
        ("{\"kind\":\"touch\",\"id\":7}", "column time_ns is null"),
        (
            "{\"time_ns\":-1,\"kind\":\"touch\",\"id\":7}",
            "expected uint64 for time_ns",
        ),
        (
            "{\"time_ns\":1.5,\"kind\":\"touch\",\"id\":7}",
            "expected uint64 for time_ns",
        ),
        (
            "{\"time_ns\":\"1\",\"kind\":\"touch\",\"id\":7}",
            "expected uint64 for time_ns",
        ),
        (
            "{\"time_ns\":99999999999999999999,\"kind\":\"touch\"}",
            "expected uint64",
        ),
        (
            "{\"time_ns\":1,\"kind\":\"touch\",\"id\":4294967296}",
            "column id: 4294967296 does not fit",
        ),
        ("{\"time_ns\":1,\"kind\":\"jump\"}", "unknown kind 'jump'"),
        ("{\"time_ns\":1,\"time_ns\":1}", "time_ns is given twice"),
        (
            "{\"time_ns\":1,\"kind\":\"begin\",\"phase\":\"end\"}",
            "layout, steady, round",
        ),
        ("[1]", "expected an event, as {\"time_ns\""),
        ("12", "expected an event"),
        ("{} {}", "trailing characters"),
        ("\u{7f}", "expected value"),
        (
            "{\"time_ns\":1,\"kind\":\"unmap\",\"id\":1,\"address\":18446744073709551615,\"length_bytes\":2}",
            "leaves the address space",
        ),
    ] {
        let error = read(&format!("{good}\n{line}\n{good}"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("line 3: "), "{error}");
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn the_first_line_may_be_wrong_too() {
    for (line, words) in [
        (
            "{\"schema\":\"stopgap.trace/9\"}",
            "line 1: its schema is 'stopgap.trace/9'",
        ),
        ("{\"schema\":1}", "line 1: invalid type"),
        (
            "{\n  \"schema\": \"stopgap.run/1\"\n}\n",
            "it is JSON over several lines",
        ),
        (
            "{\"schema\":\"stopgap.trace/2\",\"clock\":\"sundial\"}",
            "line 1: unknown variant",
        ),
    ] {
        let error = read(line).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

/// A line without an end does not fill the memory, nesting does not fill the stack.
#[test]
fn endless_lines() {
    struct Endless;
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'[');
            Ok(buffer.len())
        }
    }
    let Err(error) = Reader::new(io::BufReader::new(Endless)) else {
        panic!("it has an end?");
    };
    assert_eq!(error.to_string(), "line 1: it has more than 1048576 bytes");
    let deep = format!("{{\"x\":{}}}", "[".repeat(100_000));
    let error = read(&deep).unwrap_err().to_string();
    assert!(error.contains("expected value"), "{error}");
}
