//! Files that are well, and files that are not.

use std::io::Cursor;

use super::*;
use crate::tests::{mixed, of_every_kind};
use crate::{Check, Clock, Conditions, Error, Event, Loss, Machine, Metadata, Place};
use stopgap_events::machine::{Pressure, PressureLine};
use stopgap_events::units::Nanos;
use stopgap_events::workload::Workload;

fn metadata() -> Metadata {
    Metadata {
        clock: Some(Clock::Monotonic),
        boot_id: Some("4fd9".to_owned()),
        kernel: Some("6.18.44-amd64 #1 SMP PREEMPT_DYNAMIC".to_owned()),
        losses: Some(vec![Loss {
            what: "CPU 1".to_owned(),
            count: 3,
        }]),
        labels: [("rack".to_owned(), "\"7\"".to_owned())].into(),
        devices: [("nvme0n1".to_owned(), "Samsung SSD 980".to_owned())].into(),
        machine: Some(Machine {
            model: Some("LENOVO ThinkPad X1".to_owned()),
            cpus: Some(2),
            ..Machine::default()
        }),
        conditions: Some(Conditions {
            pressure_before: vec![Pressure {
                resource: "cpu".to_owned(),
                some: PressureLine {
                    avg10: 0.12,
                    avg60: 99.99,
                    avg300: 0.0,
                    total_us: u64::MAX,
                },
                full: None,
            }],
            others_ns: Some(Nanos(7)),
            ..Conditions::default()
        }),
        ..Metadata::default()
    }
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.finish(&metadata()).unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    Reader::new(Cursor::new(bytes))?.collect()
}

#[test]
fn every_kind_reads_back() {
    let events = of_every_kind();
    let bytes = written(&events);
    let reader = Reader::new(Cursor::new(&bytes)).unwrap();
    assert_eq!(*reader.metadata(), metadata());
    let back: Vec<Event> = reader.map(Result::unwrap).collect();
    assert_eq!(back, events);
    assert_eq!(read(&written(&[])), Ok(Vec::new()));
}

/// Several row groups, and batches within them that are full, partly null, and all null.
#[test]
fn many_events_read_back_in_order() {
    let mut events = mixed(70_000, 1);
    events.extend(
        Workload::Limits
            .events(20_000, 100_000, 1)
            .enumerate()
            .map(|(index, event)| Event::of_workload(index as u64, event)),
    );
    let bytes = written(&events);
    let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
    for (row, event) in events.iter().enumerate() {
        assert_eq!(reader.next().unwrap().as_ref(), Ok(event), "row {row}");
        assert_eq!(reader.place(), Place::Row(row as u64));
    }
    assert!(reader.next().is_none());
}

/// Columns that another thread decodes make the same events, and end with the same error.
#[test]
fn columns_may_be_decoded_in_another_thread() {
    let elsewhere = |bytes: &[u8]| -> Result<Vec<Event>, Error> {
        let reader = Reader::new(Cursor::new(bytes.to_vec()))?;
        let reader = reader.ahead(|mut columns| {
            let (sends, ready) = std::sync::mpsc::sync_channel(2);
            std::thread::spawn(move || {
                while let Some(batch) = columns.next(Batch::default()) {
                    if sends.send(batch).is_err() {
                        break;
                    }
                }
            });
            Box::new(move |_| ready.recv().ok())
        });
        reader.collect()
    };
    let bytes = written(&mixed(3_000, 5));
    assert_eq!(elsewhere(&bytes).map(|events| events.len()), Ok(3_000));
    let mut wrong = 0;
    for at in (4..bytes.len()).step_by(bytes.len() / 60) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let here = read(&damaged);
        wrong += usize::from(here.is_err());
        assert_eq!(elsewhere(&damaged), here, "byte {at}");
    }
    assert!(wrong > 10, "{wrong}");
}

/// A workload is what it was, sensible and small.
#[test]
fn a_workload_survives_the_file() {
    let events = || Workload::Frag.events(5_000, 20_000, 7);
    let all: Vec<Event> = events()
        .enumerate()
        .map(|(index, event)| Event::of_workload(index as u64, event))
        .collect();
    let bytes = written(&all);
    assert!(
        bytes.len() < 12 * all.len() + 20_000,
        "{} bytes",
        bytes.len()
    );
    let back = read(&bytes).unwrap();
    let mut check = Check::new();
    for (row, (event, original)) in back.iter().zip(events()).enumerate() {
        assert_eq!(event.kind.memory(), Some(original));
        check.event(Place::Row(row as u64), &original).unwrap();
    }
    assert_eq!(back.len(), events().count());
}

#[test]
fn what_is_no_trace() {
    let told = |bytes: &[u8], words: &str| {
        let error = read(bytes).unwrap_err();
        assert_eq!(error.place(), Place::File);
        assert!(error.to_string().contains(words), "{error}");
    };
    told(b"", "0 bytes are no Parquet file");
    told(b"PAR1PAR1", "8 bytes are no Parquet file");
    told(b"hello hello hello", "does not begin");
    told(
        b"PAR1 and so on, but no end",
        "cut off, or still being written",
    );
    told(b"PAR1\xff\xff\xff\x7fPAR1", "longer than the file");
    told(b"PAR1\0\0\0\0PAR1", "footer");
}

/// A Parquet file of somebody else.
#[test]
fn a_table_of_something_else() {
    use parquet::data_type::Int64Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    let file = |schema: &str, columns: usize| {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        if columns == 0 {
            return writer.into_inner().unwrap();
        }
        let mut group = writer.next_row_group().unwrap();
        for _ in 0..columns {
            let mut column = group.next_column().unwrap().unwrap();
            let one = column.typed::<Int64Type>();
            one.write_batch(&[1, 2], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.into_inner().unwrap()
    };
    let told = |schema: &str, columns: usize, words: &str| {
        let error = read(&file(schema, columns)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    told(
        "message m { required int64 price; }",
        1,
        "no trace: there is no column time_ns",
    );
    told("message m { required int64 time_ns; }", 1, "no column kind");
    told(
        "message m { required int64 time_ns; required int64 kind; }",
        2,
        "column kind: it is of type INT64, not text",
    );
    told(
        "message m { required int64 time_ns; required int64 time_ns; }",
        2,
        "two of it",
    );
    told(
        "message m { repeated int64 time_ns; required int64 kind; }",
        0,
        "list",
    );
}

/// Columns of others are ignored, and columns of ours may be absent.
#[test]
fn other_columns_are_ignored_and_few_are_enough() {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    let schema = "message m { optional double price; optional binary kind (UTF8);
                   optional int32 time_ns; optional int64 id; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let file = |kinds: &[&str], id: i64| {
        let (schema, properties) = (schema.clone(), properties.clone());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let full = [1, 1];
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<DoubleType>()
            .write_batch(&[1.5], Some(&[0, 1]), None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let kinds: Vec<ByteArray> = kinds.iter().map(|&kind| kind.into()).collect();
        column
            .typed::<ByteArrayType>()
            .write_batch(&kinds, Some(&full), None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int32Type>()
            .write_batch(&[5, 6], Some(&full), None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&[id, id], Some(&full), None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap()
    };
    let events = read(&file(&["touch", "unmap"], 9)).unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].time.0, 6);
    assert_eq!(events[1].kind.word(), "unmap");
    let told = |kinds: &[&str], id, words: &str| {
        let error = read(&file(kinds, id)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    told(&["touch", "jump"], 9, "row 1: unknown kind 'jump'");
    told(&["touch", "map"], 9, "row 1: column length_bytes is null");
    told(
        &["touch", "map"],
        1 << 32,
        "row 0: column id: 4294967296 does not fit",
    );
    told(&["touch", "map"], -1, "row 0: column id: -1 is negative");
}

#[test]
fn a_version_that_is_not_ours() {
    let of_version = |version: u8| {
        let mut bytes = written(&[]);
        let mut parts = bytes.windows(15);
        let at = parts.position(|part| part == b"stopgap.trace/2").unwrap();
        bytes[at + 14] = version;
        read(&bytes)
    };
    assert_eq!(of_version(b'1'), Ok(Vec::new()), "the version before");
    let error = of_version(b'3').unwrap_err().to_string();
    assert!(error.contains("'stopgap.trace/3'"), "{error}");
}

/// The end is where the footer is: no file that is cut off is read as a shorter one.
#[test]
fn a_file_that_is_cut_off() {
    let bytes = written(&mixed(2_000, 3));
    for end in (0..bytes.len()).step_by(bytes.len() / 300) {
        assert!(
            read(&bytes[..end]).is_err(),
            "{end} of {} bytes",
            bytes.len()
        );
    }
}

/// One wrong bit may be another time or another thread's number: then the wrong thread would be blamed.
#[test]
fn a_changed_bit_is_no_other_event() {
    let events = mixed(300, 4);
    let mut bytes = written(&events);
    let footer = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[footer..footer + 4].try_into().unwrap());
    let pages = footer - length as usize;
    let mut damaged = 0;
    for at in (4..pages).step_by(5) {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        match read(&bytes) {
            Ok(back) => assert_eq!(back, events, "bit {bit:#x} of byte {at}"),
            Err(error) => {
                damaged += u32::from(error.to_string().contains("differs from its checksum"));
            }
        }
        bytes[at] ^= bit;
    }
    // Most of a file are pages, the rest their headers.
    assert!(
        damaged as usize > (pages - 4) / 10,
        "{damaged} of {pages} bytes"
    );
}

/// Groups within groups: a reader that recurses runs out of stack.
#[test]
fn a_schema_without_a_bottom() {
    let mut footer = vec![0x15, 2, 0x19, 0xfc, 0xd0, 0x0f]; // version 1; a list of 2,000
    for _ in 0..2_000 {
        footer.extend([0x48, 1, b'g', 0x15, 2, 0]); // name "g"; one child
    }
    footer.push(0);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(&footer);
    bytes.extend(u32::try_from(footer.len()).unwrap().to_le_bytes());
    bytes.extend(MAGIC);
    let error = read(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "its footer is garbage");
}
