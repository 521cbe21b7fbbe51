//! Lines and transcripts come back as they were written; torn, cut or changed ones are errors.

use proptest::prelude::*;

use super::*;
use stopgap_events::machine::Missing;
use stopgap_events::units::{Bytes, Nanos};

fn hello() -> Hello {
    Hello {
        version: VERSION,
        release: "6.12.0".to_owned(),
        command_line: "console=ttyS0 stopgap.seed=1".to_owned(),
        seed: 1,
        unit: Unit::Instructions { per_tick: 1 },
        page_size: Bytes::kib(4),
        ..Hello::default()
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,20}",
        ".{0,20}",
        Just("@stopgap 00000000 {}".to_owned()),
        Just("two\nlines\r\n".to_owned()),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let values = prop::collection::vec(0..u64::from(u32::MAX), 0..40);
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let status = any::<Option<i32>>;
    prop_oneof![
        Just(Line::Hello(hello())),
        (text(), text(), values).prop_map(|(name, operation, values)| {
            let counts = Counts::of(values);
            Line::Counts(Counted {
                name,
                operation,
                counts,
            })
        }),
        (text(), text()).prop_map(|(name, why)| Line::Failed { name, why }),
        (text(), text()).prop_map(|(what, why)| Line::Missing(Missing { what, why })),
        (text(), status(), status()).prop_map(|(name, status, signal)| Line::Ran(Ran {
            name,
            status,
            signal
        })),
        (prop::option::of(text()), text(), bytes).prop_map(|(cell, name, bytes)| Line::file(
            cell.as_deref(),
            &name,
            &bytes
        )
        .remove(0)),
        any::<u64>().prop_map(|lines| Line::Done { lines }),
    ]
}

proptest! {
    #[test]
    fn a_line_comes_back_whatever_stands_before_it(line in line(), before in "[^@\n]{0,30}", end in "(\r?\n)?") {
        let said = line.to_string();
        prop_assert!(!said.contains(['\n', '\r']), "{said}");
        prop_assert_eq!(Line::parse(&format!("{before}{said}{end}")), Some(Ok(line)));
    }

    /// Whatever byte is lost, changed or comes between, the line is an error that shows its beginning.
    #[test]
    fn a_line_that_was_torn_is_an_error(line in line(), at in any::<prop::sample::Index>(), how in 0..3, by in "[!-~]") {
        let said = line.to_string();
        let (head, body) = said.split_at(MARKER.len());
        // Lines are of several bytes a character; the damage is done between characters.
        let places: Vec<usize> = body.char_indices().map(|(at, _)| at).collect();
        let at = places[at.index(places.len())];
        let length = body[at..].chars().next().map_or(0, char::len_utf8);
        let body = match how {
            0 => body[..at].to_owned(),
            1 => format!("{}{}", &body[..at], &body[at + length..]),
            _ => format!("{}{by}{}", &body[..at], &body[at + length..]),
        };
        let torn = format!("{head}{body}");
        prop_assume!(torn != said);
        let read = Line::parse(&torn).expect("the marker is there");
        let error = read.expect_err("a torn line was read");
        let (_, shown) = error.split_once("): ").expect("its beginning");
        prop_assert!(shown.starts_with(MARKER), "{error}");
        prop_assert!(shown.chars().count() <= 83 && !error.contains('\n'), "{error}");
    }

    /// A kernel message in the middle of a line.
    #[test]
    fn a_message_inside_a_line_is_an_error(line in line(), at in 9usize..40) {
        let said = line.to_string();
        let at = (at..said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(said.len());
        let (one, other) = said.split_at(at);
        let console = format!("{one}[    3.141593] random: crng init done\n{other}\n");
        let mut lines = console.lines();
        prop_assert!(lines.next().and_then(Line::parse).expect("the marker").is_err());
        // The rest is nothing, or torn itself where its text has the marker.
        prop_assert!(!matches!(lines.next().and_then(Line::parse), Some(Ok(_))));
    }

    #[test]
    fn files_come_back(name in text(), bytes in prop::collection::vec(any::<u8>(), 0..3_000), times in 1usize..20) {
        let bytes: Vec<u8> = bytes.repeat(times);
        let mut lines = vec![Line::Hello(hello())];
        lines.extend(Line::file(Some("cell"), &name, &bytes));
        let read = Transcript::read(ended(lines)).unwrap();
        prop_assert_eq!(&read.files[&(Some("cell".to_owned()), name)], &bytes);
    }

    #[test]
    fn counts_are_those_of_the_values(values in prop::collection::vec(0u64..50, 0..200)) {
        let once = values.iter().map(|&value| (value, 1)).collect();
        prop_assert_eq!(Counts::of(values), Counts::new(once).unwrap());
    }

    #[test]
    fn nothing_panics_on_what_a_guest_says(console in prop::collection::vec(".{0,80}", 0..20)) {
        let _ = Transcript::read(&console);
        let marked = console.iter().map(|line| format!("{MARKER}{line}"));
        let _ = Transcript::read(marked);
    }
}

/// The lines with their end, as a console has them.
fn ended(mut lines: Vec<Line>) -> Vec<String> {
    lines.push(Line::Done {
        lines: lines.len() as u64,
    });
    lines.iter().map(Line::to_string).collect()
}

fn counts(name: &str, operation: &str) -> Line {
    Line::Counts(Counted {
        name: name.to_owned(),
        operation: operation.to_owned(),
        counts: Counts::of(vec![2, 1, 2]),
    })
}

fn failed(name: &str, why: &str) -> Line {
    Line::Failed {
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

#[test]
fn the_form_is_pinned() {
    let line = Line::Done { lines: 3 };
    assert_eq!(
        line.to_string(),
        "@stopgap 3f56b244 {\"line\":\"done\",\"lines\":3}"
    );
    let line = counts("pbobench N=1000", "churn").to_string();
    let expected =
        r#"{"line":"counts","name":"pbobench N=1000","operation":"churn","counts":[[1,1],[2,2]]}"#;
    assert!(line.ends_with(expected), "{line}");
    // The published check value of CRC-32.
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_whole_transcript_is_put_together() {
    let ran = Ran {
        name: "c".to_owned(),
        status: Some(3),
        signal: None,
    };
    let mut console = ended(vec![
        Line::Hello(hello()),
        counts("a", "map"),
        counts("a", "unmap"),
        failed("b", "signal 11"),
        Line::Missing(Missing::new("vgem.ko", "ENOEXEC")),
        Line::Ran(ran.clone()),
    ]);
    console.insert(0, "[    0.000000] Linux version 6.12.0".to_owned());
    console[3].insert_str(0, "[    1.000000] half a mess");
    let read = Transcript::read(&console).unwrap();
    assert_eq!(read.hello, hello());
    assert_eq!(read.counts("a", "unmap").unwrap().median(), Some(2));
    assert_eq!(read.counts("a", "protect"), None);
    assert_eq!(read.failed, [("b".to_owned(), "signal 11".to_owned())]);
    assert_eq!(read.missing, [Missing::new("vgem.ko", "ENOEXEC")]);
    assert_eq!(read.ran, [ran]);
}

#[test]
fn what_is_lost_or_contradicts_is_said() {
    let mut other = hello();
    other.version = 9;
    let other = Line::Hello(other).to_string();
    let [hello, counts, done] = &ended(vec![Line::Hello(hello()), counts("a", "map")])[..] else {
        panic!("three lines")
    };
    for (lines, what) in [
        (vec![], "said nothing"),
        (
            vec![hello, counts],
            "did not come to its end (2 lines came)",
        ),
        (vec![hello, done], "1 of 2 lines"),
        (vec![counts, done], "the first line is missing"),
        (vec![hello, hello, done], "two first lines"),
        (vec![hello, counts, counts, done], "'map' was counted twice"),
        (vec![hello, counts, done, done], "after the last"),
        (vec![&other, done], "speaks version 9, not 1"),
    ] {
        let error = Transcript::read(lines).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    let part = |part, parts, base64: &str| Line::File {
        cell: None,
        name: "f".to_owned(),
        place: Place { part, parts },
        base64: base64.to_owned(),
    };
    for (parts, what) in [
        (vec![part(0, 2, "AAAA")], "1 of 2 parts"),
        (vec![part(1, 2, "AAAA")], "part 1"),
        (
            vec![part(0, 2, "AAAA"), part(1, 3, "AAAA")],
            "2 parts, or 3",
        ),
        (vec![part(0, 0, "AAAA")], "part 0"),
        (vec![part(0, 1, "!")], "Invalid"),
        (vec![part(0, 1, "AAAA")], "f: "),
    ] {
        let lines = [vec![Line::Hello(self::hello())], parts].concat();
        let error = Transcript::read(ended(lines)).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    // A file that unpacks to more than anybody sends.
    let large = Line::file(None, "f", &vec![0; (64 << 20) + 1]);
    let lines = [vec![Line::Hello(self::hello())], large].concat();
    let error = Transcript::read(ended(lines)).unwrap_err();
    assert!(error.contains("contradict each other: f: "), "{error}");
}

#[test]
fn counts_that_cannot_be_are_refused() {
    for (pairs, what) in [
        (vec![(1, 0)], "0 times"),
        (vec![(2, 1), (1, 1)], "1 after 2"),
        (vec![(1, 1), (1, 1)], "1 after 1"),
        (vec![(1, u64::MAX), (2, 1)], "more than"),
    ] {
        let error = Counts::ascending(pairs).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_plan_comes_back_and_what_is_wrong_is_named() {
    let mut cells = standard();
    cells.extend(devices());
    cells.push(Cell {
        name: "tool".to_owned(),
        work: Work::Command {
            argv: vec!["/bin/stopgap".to_owned(), "check".to_owned()],
            files: vec!["/tmp/run.json".to_owned()],
            limit: Nanos::secs(60),
        },
    });
    let mut plan = Plan::new(cells);
    plan.modules.push("/stopgap/vgem.ko".to_owned());
    assert_eq!(Plan::from_json(plan.to_json().as_bytes()), Ok(plan.clone()));

    let whole = plan.to_json();
    for (from, to, what) in [
        ("\"version\":1", "\"version\":2", "version 2"),
        ("pbobench N=10000", "", "\"\""),
        ("pbobench N=10000", "a\\nb", "\"a\\nb\""),
        ("pbobench N=10000", "pbobench N=1000", "two cells"),
        ("\"n\":1000,", "\"n\":200001,", "N = 200001"),
        ("\"operations\":2000", "\"operations\":0", "0 operations"),
        ("\"n\":1025", "\"n\":7", "it is 1025"),
        (
            "\"workload\":\"pbobench\"",
            "\"workload\":\"tight-1.03\"",
            "does not give",
        ),
        ("\"requests\":1000", "\"requests\":0", "0 requests"),
        ("\"length\":4194304", "\"length\":0", "0 bytes"),
        (
            "\"page_size\":4096",
            "\"page_size\":5000",
            "no power of two",
        ),
        ("/bin/stopgap", "stopgap", "no full path"),
    ] {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole, "{from}");
        let error = Plan::from_json(text.as_bytes()).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    for (text, what) in [
        ("{", "no plan"),
        (r#"{"version":1,"cells":[],"more":1}"#, "more"),
        (
            r#"{"version":1,"cells":[{"name":"a","work":{"placement":{"workload":"pbo","n":1,"operations":1}}}]}"#,
            "unknown workload 'pbo'",
        ),
    ] {
        let error = Plan::from_json(text.as_bytes()).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn the_seed_is_read_from_a_command_line() {
    assert_eq!(Plan::seed("quiet panic=-1\n"), Ok(None));
    assert_eq!(
        Plan::seed("quiet stopgap.seed=3 stopgap.seed=12\n"),
        Ok(Some(12))
    );
    for wrong in ["stopgap.seed=", "stopgap.seed=-1", "stopgap.seed=1x"] {
        assert!(Plan::seed(wrong).unwrap_err().contains(wrong));
    }
}

#[test]
fn cells_are_chosen_by_word_or_name() {
    let names = |chosen: &[&str]| -> Vec<String> {
        let cells = super::chosen(chosen).unwrap();
        cells.into_iter().map(|cell| cell.name).collect()
    };
    let three = [
        "pbobench N=1000",
        "pbobench N=10000",
        "pbobench N=40000",
        "roundtrip",
    ];
    assert_eq!(names(&["roundtrip", "pbobench"]), three);
    assert_eq!(
        names(&["pbobench N=10000", "vgem"]),
        ["pbobench N=10000", "vgem N=1000"]
    );
    assert_eq!(names(&words()).len(), standard().len() + devices().len());
    let error = super::chosen(&["pbo"]).unwrap_err();
    assert!(
        error.contains("freegap-posted") && error.contains("vfio"),
        "{error}"
    );
    assert_eq!(Plan::new(standard()).check(), Ok(()));
    assert_eq!(Plan::new(devices()).check(), Ok(()));
}
