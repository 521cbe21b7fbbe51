//! `stopgap report`: records of any kind in, one HTML file out, or a short form on the terminal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;
use stopgap_events::bounded;
use stopgap_events::units::Bytes;
use stopgap_report::html::{self, Document, Source};
use stopgap_report::terminal;
use stopgap_report::text::plain;
use stopgap_stats::compare::{self, moved};
use stopgap_stats::record::Run;
use stopgap_stats::{change_points, explain, history, record, replay};

use crate::args;
use crate::failure::{DONE, Failure};
use crate::session::tell;
use crate::{input_file, output, voice, whole_file};

/// Bytes of all records of a report: what they decode to must fit into memory.
const LARGEST_ALL: Bytes = Bytes::mib(512);

/// Records of one report. Who has more asks `compare`, which holds sides against each other.
const MOST: usize = 200;

pub(crate) fn run(args: &args::Report) -> Result<ExitCode, Failure> {
    if args.records.len() > MOST {
        return Err(Failure::error(format!(
            "{} records; a report shows at most {MOST}",
            args.records.len()
        )));
    }
    let mut sources = Vec::new();
    let mut left = LARGEST_ALL;
    for (index, path) in args.records.iter().enumerate() {
        if args.records[..index].iter().any(|other| same(other, path)) {
            tell(&format!(
                "{}: named twice; it is shown once",
                path.display()
            ));
            continue;
        }
        let wrong = |why: String| Failure::error(format!("{}: {why}", path.display()));
        let text = text(path, left).map_err(wrong)?;
        left = left - Bytes(text.len() as u64);
        let document = document(&text, &name(path)).map_err(wrong)?;
        sources.push(Source {
            name: name(path),
            document,
        });
    }
    if args.terminal {
        let text = terminal::screen(&sources, voice::style());
        output::print(&output::in_locale(&text))?;
        return Ok(ExitCode::from(DONE));
    }
    let place = match &args.output {
        Some(path) => path.clone(),
        None => beside(&args.records[0], sources.len()),
    };
    for path in &args.records {
        if place != Path::new("-") && same(path, &place) {
            return Err(Failure::error(format!(
                "{}: it is one of the records; give another file with -o",
                place.display()
            )));
        }
    }
    if args.output.is_some() && is_no_page(&place) {
        return Err(Failure::error(format!(
            "{}: report writes an HTML page; name it x.html (a browser prints it as PDF)",
            place.display()
        )));
    }
    put(&place, &html::page(&sources))?;
    Ok(ExitCode::from(DONE))
}

/// Whether the name ends as that of another kind of file, whose programs cannot show HTML.
fn is_no_page(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    end.is_some_and(|end| {
        ["pdf", "png", "svg", "md", "txt", "csv", "json", "parquet"]
            .iter()
            .any(|other| end.eq_ignore_ascii_case(other))
    })
}

/// Writes a page to `place` and says where it is; `-` is standard output.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn put(place: &Path, page: &str) -> Result<(), Failure> {
    if place == Path::new("-") {
        output::print(page)?;
    } else {
        write(place, page)?;
        output::screen(&line(place))?;
    }
    Ok(())
}

/// Writes the page of one run beside its record; gives its path.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn of_run(run: &Run, directory: &Path, record: &str) -> Result<PathBuf, Failure> {
    let source = Source {
        name: record.to_owned(),
        document: Document::Run(Box::new(run.clone())),
    };
    let place = directory.join(record).with_extension("html");
    write(&place, &html::page(&[source]))?;
    Ok(place)
}

/// Where the page is, as a line. A path may hold anything.
pub(crate) fn line(place: &Path) -> String {
    format!("report {}\n", plain(&place.display().to_string()))
}

/// Records tell of their machine: a page that is new is its owner's.
fn write(place: &Path, text: &str) -> Result<(), Failure> {
    whole_file::write(place, text).map_err(|error| {
        Failure::error(format!(
            "cannot write {}: {error}; give another place with -o",
            place.display()
        ))
    })
}

fn same(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false, // what is not there yet is no record
    }
}

/// Returns the name of a record in a report: that of its file.
fn name(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str());
    file.to_string_lossy().into_owned()
}

/// Where a report goes of itself: beside the record, of several beside the first.
fn beside(first: &Path, records: usize) -> PathBuf {
    match records {
        1 => first.with_extension("html"),
        _ => first.with_file_name("report.html"),
    }
}

/// Reads a record's text, of at most `left` bytes.
fn text(path: &Path, left: Bytes) -> Result<String, String> {
    let file = input_file::open_once(path).map_err(|error| error.to_string())?;
    let there = file.metadata().map_err(|error| error.to_string())?;
    if there.is_dir() {
        return Err("it is a directory; name the records in it, as DIR/*.json".to_owned());
    }
    let most = input_file::LARGEST_RECORD.min(left);
    let bytes = bounded::read(file, most).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge if most == left => format!(
            "with it, the records have more than {LARGEST_ALL}; a report shows fewer or smaller ones"
        ),
        _ => error.to_string(),
    })?;
    if stopgap_trace::is_trace(&bytes) {
        return Err(
            "it is a trace; a report is made of records: stopgap explain TRACE --json > explained.json"
                .to_owned(),
        );
    }
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "it is no text (byte {}); a report is made of records, which are JSON",
            error.utf8_error().valid_up_to()
        )
    })
}

/// Reads a record, called `name`, by the schema that it names.
fn document(text: &str, name: &str) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    if text.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    let named = serde_json::from_str(text);
    let Named { schema } = named.map_err(|error: serde_json::Error| match error.is_data() {
        true => "not a record of stopgap's: it names no schema".to_owned(),
        false => format!("not a record of stopgap's: {error}"),
    })?;
    let wrong = |error: serde_json::Error| format!("not a record of '{schema}': {error}");
    Ok(match schema.as_str() {
        record::SCHEMA => {
            let run = Run::from_json(text).map_err(|error| error.to_string())?;
            Document::Run(Box::new(run))
        }
        replay::SCHEMA => Document::Replay(serde_json::from_str(text).map_err(wrong)?),
        explain::SCHEMA => Document::Explain(serde_json::from_str(text).map_err(wrong)?),
        compare::SCHEMA => Document::Compare(serde_json::from_str(text).map_err(wrong)?),
        moved::SCHEMA => {
            let moved = serde_json::from_str(text).map_err(wrong)?;
            Document::Other(Box::new(html::moved::record(&moved, name)))
        }
        history::SCHEMA => Document::History(serde_json::from_str(text).map_err(wrong)?),
        change_points::SCHEMA => {
            let record = serde_json::from_str(text).map_err(wrong)?;
            Document::Other(Box::new(html::change_points(&record, name)))
        }
        stopgap_kernels::SCHEMA => {
            let record = stopgap_kernels::report(text, name).map_err(wrong)?;
            Document::Other(Box::new(record))
        }
        "stopgap.explain/1" => {
            return Err(format!(
                "its schema is 'stopgap.explain/1', of an earlier version; since {} every call is an operation and waits are \
                 followed to their causes: explain the trace again",
                explain::SCHEMA
            ));
        }
        other => {
            let other: String = other.chars().take(80).collect();
            return Err(format!(
                "its schema is '{other}'; a report is made of {}, {}, {}, {}, {}, {}, {} and {}",
                record::SCHEMA,
                replay::SCHEMA,
                explain::SCHEMA,
                compare::SCHEMA,
                moved::SCHEMA,
                history::SCHEMA,
                change_points::SCHEMA,
                stopgap_kernels::SCHEMA
            ));
        }
    })
}
