//! `stopgap export`: a trace or a built-in workload, as a trace file or as JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use stopgap_events::trace::{Clock, Event, Input, Metadata, SCHEMA, file, lines};
use stopgap_events::units::Bytes;
use stopgap_events::words;
use stopgap_events::workload::Workload;
use stopgap_kernel::signals;

use crate::args;
use crate::failure::{DONE, Failure};
use crate::input_file;
use crate::output;
use crate::whole_file::WholeFile;

/// In what form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The trace file.
    Trace,
    /// JSON lines.
    Jsonl,
}

words!(Form, "form", Trace "trace", Jsonl "jsonl");

/// Events between two looks at whether to stop.
const STRIDE: u64 = 4_096;

pub(crate) fn run(args: &args::Export) -> Result<ExitCode, Failure> {
    signals::install();
    let workload = args.input.to_str().and_then(|word| word.parse().ok());
    match workload {
        Some(workload) => of_workload(workload, args),
        None => of_file(args),
    }
}

fn of_workload(workload: Workload, args: &args::Export) -> Result<ExitCode, Failure> {
    let n = match args.n {
        Some(_) if !workload.n_may_be_chosen() => {
            let own = workload.default_n();
            return Err(Failure::error(format!(
                "{workload} always has {own} mappings; leave --n out"
            )));
        }
        Some(n) => {
            let most = Workload::LARGEST_N;
            let fits = u32::try_from(n).ok().filter(|&n| n <= most);
            fits.ok_or_else(|| {
                Failure::error(format!("an N of {n} is too large; give at most {most}"))
            })?
        }
        None => workload.default_n(),
    };
    let operations = args.ops.unwrap_or_else(|| workload.default_operations());
    let seed = args.seed.unwrap_or(1);
    let metadata = Metadata {
        clock: Some(Clock::Order),
        source: Some(format!(
            "workload {workload}, n {n}, operations {operations}, seed {seed}"
        )),
        page_size: Some(Bytes::kib(4)),
        window: Some(workload.window(n, operations, seed)),
        losses: Some(Vec::new()),
        ..Metadata::default()
    };
    let events = workload.events(n, operations, seed).zip(0..);
    let events = events.map(|(event, index)| Ok(Event::of_workload(index, event)));
    write(events, &metadata, None, args)
}

fn of_file(args: &args::Export) -> Result<ExitCode, Failure> {
    if args.n.is_some() || args.ops.is_some() || args.seed.is_some() {
        return Err(Failure::error(
            "--n, --ops and --seed are of built-in workloads; a file has its own",
        ));
    }
    let name = args.input.display();
    let wrong = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    let file = input_file::open(&args.input).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return wrong(&error);
        }
        let workloads = Workload::ALL.iter().map(|workload| workload.word());
        let workloads = workloads.collect::<Vec<_>>().join(", ");
        wrong(&format!(
            "there is no such file, and no such workload; there are {workloads}"
        ))
    })?;
    let same = file.try_clone().map_err(|error| wrong(&error))?;
    let input = Input::new(file).map_err(|error| wrong(&error))?;
    let metadata = input.metadata().clone();
    let events = input.map(|event| event.map_err(|error| wrong(&error)));
    write(events, &metadata, Some(&same), args)
}

/// Writes `events` where and as the flags say.
fn write(
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    input: Option<&File>,
    args: &args::Export,
) -> Result<ExitCode, Failure> {
    let to_stdout = args.output == Path::new("-");
    if to_stdout && args.to == Form::Jsonl {
        jsonl(events, metadata, io::stdout().lock(), "standard output")?;
        return Ok(ExitCode::from(DONE));
    }
    if to_stdout {
        return Err(Failure::error(
            "a trace file does not go to standard output; name one with -o, or say --to jsonl",
        ));
    }
    let name = args.output.display().to_string();
    let wrong = |error: io::Error| Failure::error(format!("cannot write {name}: {error}"));
    let (whole, file) = WholeFile::create(&args.output, input).map_err(wrong)?;
    let count = match args.to {
        Form::Jsonl => jsonl(events, metadata, &file, &name)?,
        Form::Trace => trace(events, metadata, &file, &name)?,
    };
    whole.finish(&file).map_err(wrong)?;
    output::print(&format!("{name}: {count} events, schema {SCHEMA}"))?;
    Ok(ExitCode::from(DONE))
}

fn trace(
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    file: &File,
    name: &str,
) -> Result<u64, Failure> {
    let wrong = |error| Failure::error(format!("cannot write {name}: {error}"));
    let mut writer = file::Writer::new(file).map_err(wrong)?;
    let mut count = 0;
    for event in events {
        writer.write(&event?).map_err(wrong)?;
        count += 1;
        stop_if_asked(count)?;
    }
    writer.finish(metadata).map_err(wrong)?;
    Ok(count)
}

fn jsonl(
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    out: impl Write,
    name: &str,
) -> Result<u64, Failure> {
    let wrong = |error| Failure::error(format!("cannot write {name}: {error}"));
    let out = BufWriter::with_capacity(64 << 10, out);
    let mut writer = lines::Writer::new(out, metadata).map_err(wrong)?;
    let mut count = 0;
    for event in events {
        writer.write(&event?).map_err(wrong)?;
        count += 1;
        stop_if_asked(count)?;
    }
    writer.finish().map_err(wrong)?;
    Ok(count)
}

fn stop_if_asked(count: u64) -> Result<(), Failure> {
    if count.is_multiple_of(STRIDE) && signals::interrupted() {
        return Err(Failure::error("interrupted"));
    }
    Ok(())
}
