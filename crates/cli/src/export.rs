//! `stopgap export`: a trace or a built-in workload, in another form.

mod salt;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use stopgap_events::units::Bytes;
use stopgap_events::words;
use stopgap_events::workload::Workload;
use stopgap_explain::chain::Graph;
use stopgap_kernel::signals;
use stopgap_trace::export::{self, Export, ExportError};
use stopgap_trace::{Anonymous, Clock, Event, Input, Metadata, SCHEMA, file, lines};
use stopgap_tracer::counters;

use crate::args;
use crate::failure::{DONE, Failure};
use crate::input_file;
use crate::output;
use crate::session::tell;
use crate::whole_file::WholeFile;

/// In what form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The trace file.
    Trace,
    /// JSON lines.
    Jsonl,
    /// Perfetto's protobuf, for ui.perfetto.dev.
    Perfetto,
    /// JSON that chrome://tracing opens.
    Chrome,
    /// Comma-separated values.
    Csv,
}

words!(
    Form, "form",
    Trace "trace",
    Jsonl "jsonl",
    Perfetto "perfetto",
    Chrome "chrome",
    Csv "csv",
);

impl Form {
    /// Whether a terminal or a pipe to a text tool can take it.
    fn is_text(self) -> bool {
        !matches!(self, Form::Trace | Form::Perfetto)
    }

    /// Names of files that are of this form end so.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Form::Trace => &["parquet"],
            Form::Jsonl => &["jsonl"],
            Form::Perfetto => &["perfetto", "pftrace"],
            Form::Chrome => &["json"],
            Form::Csv => &["csv"],
        }
    }

    /// Returns the form that the name of a file says.
    fn of_name(path: &Path) -> Option<Form> {
        let ending = path.extension()?.to_str()?;
        let mut all = Form::ALL.iter().copied();
        all.find(|form| form.endings().contains(&ending))
    }

    /// Returns the form to write: the one that is `asked` for, else the one that the name of the `output` says.
    ///
    /// # Errors
    /// Where neither says, and where they differ.
    fn choose(asked: Option<Form>, output: &Path) -> Result<Form, Failure> {
        let name = output.display();
        match (asked, Form::of_name(output)) {
            (Some(asked), Some(named)) if asked != named => Err(Failure::error(format!(
                "{name} is named as {named} and --to says {asked}: leave --to out, or name the file {}",
                output.with_extension(asked.endings()[0]).display()
            ))),
            (Some(form), _) | (None, Some(form)) => Ok(form),
            (None, None) if output == Path::new("-") => Err(Failure::error(
                "standard output has no name that says the form; add --to jsonl, chrome or csv",
            )),
            (None, None) => Err(Failure::error(format!(
                "{name} does not say the form; add --to, or name the file {}",
                Form::ALL
                    .iter()
                    .map(|form| format!("x.{}", form.endings()[0]))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// Whether it draws events at their times.
    fn needs_times(self) -> bool {
        matches!(self, Form::Perfetto | Form::Chrome)
    }
}

/// Says what an anonymous export has and what it lacks.
const LEFT: &str = "anonymous: left are numbers, times, addresses, system calls, words and functions of the kernel, its version, \
                    CPU model and memory; hashed is every other word. The salt stays in the state directory of this user";

/// Events between two looks at whether to stop.
const STRIDE: u64 = 4_096;

pub(crate) fn run(args: &args::Export) -> Result<ExitCode, Failure> {
    signals::install();
    let form = Form::choose(args.to, &args.output)?;
    let workload = args.input.to_str().and_then(|word| word.parse().ok());
    match workload {
        Some(_) if args.anonymous => Err(Failure::error(
            "--anonymous is for traces: a built-in workload has no names",
        )),
        Some(workload) => of_workload(workload, form, args),
        None => of_file(form, args),
    }
}

fn of_workload(workload: Workload, form: Form, args: &args::Export) -> Result<ExitCode, Failure> {
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
    write(events, &metadata, None, form, args)
}

fn of_file(form: Form, args: &args::Export) -> Result<ExitCode, Failure> {
    if args.n.is_some() || args.ops.is_some() || args.seed.is_some() {
        return Err(Failure::error(
            "--n, --ops and --seed are of built-in workloads; a file has its own",
        ));
    }
    let name = args.input.display();
    let wrong = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    // The bar would stand between the lines.
    let open = match args.output == Path::new("-") {
        true => input_file::quiet_trace,
        false => input_file::trace,
    };
    let file = open(&args.input).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return wrong(&error);
        }
        let workloads = Workload::ALL.iter().map(|workload| workload.word());
        let workloads = workloads.collect::<Vec<_>>().join(", ");
        wrong(&format!(
            "there is no such file, and no such workload; there are {workloads}"
        ))
    })?;
    let same = file.file().try_clone().map_err(|error| wrong(&error))?;
    let input = Input::new(file).map_err(|error| wrong(&error))?;
    let mut metadata = input.metadata().clone();
    let mut anonymous = match args.anonymous {
        true => Some(Anonymous::new(salt::get()?, &counters::NAMES)),
        false => None,
    };
    if let Some(anonymous) = &anonymous {
        metadata = anonymous.metadata(&metadata);
    }
    let input = match form.needs_times() {
        true => input,
        false => input.as_recorded(),
    };
    let events = input.map(|event| {
        let event = event.and_then(|event| match &mut anonymous {
            Some(anonymous) => anonymous.event(&event),
            None => Ok(event),
        });
        event.map_err(|error| match signals::interrupted() {
            true => Failure::error("interrupted"),
            false => wrong(&error),
        })
    });
    write(events, &metadata, Some(&same), form, args)
}

/// Writes `events` where and as the flags say.
fn write(
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    input: Option<&File>,
    form: Form,
    args: &args::Export,
) -> Result<ExitCode, Failure> {
    let from = args.input.display();
    if form.needs_times() && metadata.clock == Some(Clock::Order) {
        return Err(Failure::error(format!(
            "{from}: its events have an order and no times (clock order), so there is nothing to draw; \
             write it as csv: -o FILE.csv"
        )));
    }
    let mut events = events.peekable();
    if !matches!(form, Form::Trace | Form::Jsonl) && events.peek().is_none() {
        return Err(Failure::error(format!("{from}: it has no event")));
    }
    if args.output == Path::new("-") {
        if !form.is_text() {
            return Err(Failure::error(format!(
                "{form} is no text, so it does not go to standard output; name a file with -o"
            )));
        }
        let written = match to(form, events, metadata, &args.input, output::stdout()) {
            Err(Unwritten::Input(failure)) => return Err(failure),
            Err(Unwritten::Output(error)) => Err(error),
            Ok(_) => Ok(()),
        };
        output::written_out(written)?;
        if args.anonymous {
            tell(LEFT);
        }
        return Ok(ExitCode::from(DONE));
    }
    let name = args.output.display().to_string();
    let wrong = |error: io::Error| Failure::error(format!("cannot write {name}: {error}"));
    let whole = WholeFile::private_beside(&args.output, input).map_err(wrong)?;
    let written = match form {
        Form::Trace => trace(events, metadata, whole.file()),
        form => to(form, events, metadata, &args.input, whole.file()),
    };
    let written = written.map_err(|error| match error {
        Unwritten::Output(error) => wrong(error),
        Unwritten::Input(failure) => failure,
    })?;
    whole.finish().map_err(wrong)?;
    output::screen(&match form {
        Form::Trace | Form::Jsonl => format!("{name}: {written} events, schema {SCHEMA}"),
        form => format!("{name}: {written} events as {form}"),
    })?;
    if args.anonymous {
        output::screen(LEFT)?;
    }
    Ok(ExitCode::from(DONE))
}

/// Why not all was written.
enum Unwritten {
    /// Something is wrong with what is read, or Ctrl-C.
    Input(Failure),
    /// Something is wrong with where it goes.
    Output(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Unwritten {
        Unwritten::Output(error)
    }
}

/// Writes `events` as text or for Perfetto, and returns how many there were.
fn to(
    form: Form,
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    from: &Path,
    out: impl Write,
) -> Result<u64, Unwritten> {
    match form {
        Form::Csv => all(events, export::csv(out)?, from),
        Form::Chrome => all(events, export::chrome(out, metadata)?, from),
        Form::Perfetto => {
            let mut graph = Graph::of(metadata);
            graph.keep_lost();
            all_with(events, export::perfetto(out, metadata), from, Some(graph))
        }
        Form::Jsonl | Form::Trace => {
            let out = BufWriter::with_capacity(64 << 10, out);
            let mut writer = lines::Writer::new(out, metadata)?;
            let count = each(events, |event| Ok(writer.write(&event)?))?;
            writer.finish()?;
            Ok(count)
        }
    }
}

/// Writes `events` as a trace file, and returns how many there were.
fn trace(
    events: impl Iterator<Item = Result<Event, Failure>>,
    metadata: &Metadata,
    file: &File,
) -> Result<u64, Unwritten> {
    let wrong = |error: stopgap_trace::Error| Unwritten::Output(io::Error::other(error));
    // As all that write traces, so that there is one writer.
    let file = BufWriter::with_capacity(1 << 18, file.try_clone().map_err(Unwritten::Output)?);
    let mut writer = file::Writer::new(file).map_err(wrong)?;
    let count = each(events, |event| writer.write(&event).map_err(wrong))?;
    let file = writer.finish(metadata).map_err(wrong)?;
    file.into_inner()
        .map_err(|error| Unwritten::Output(error.into_error()))?;
    Ok(count)
}

fn all(
    events: impl Iterator<Item = Result<Event, Failure>>,
    form: Box<dyn Export + '_>,
    from: &Path,
) -> Result<u64, Unwritten> {
    all_with(events, form, from, None)
}

/// Writes `events`, and with `graph` who ended and caused the waits that lost time.
fn all_with(
    events: impl Iterator<Item = Result<Event, Failure>>,
    mut form: Box<dyn Export + '_>,
    from: &Path,
    mut graph: Option<Graph>,
) -> Result<u64, Unwritten> {
    let wrong = |error| match error {
        ExportError::Write(error) => Unwritten::Output(error),
        ExportError::Trace(error) => {
            Unwritten::Input(Failure::error(format!("{}: {error}", from.display())))
        }
    };
    let count = each(events, |event| {
        let mut lost = Vec::new();
        if let Some(graph) = &mut graph {
            graph.event(&event);
            lost = graph.take_lost(false);
        }
        form.write(event).map_err(wrong)?;
        lost.iter()
            .try_for_each(|lost| form.lost(lost).map_err(wrong))
    })?;
    let rest = graph.map_or_else(Vec::new, |mut graph| graph.take_lost(true));
    (rest.iter()).try_for_each(|lost| form.lost(lost).map_err(wrong))?;
    form.finish().map_err(wrong)?;
    Ok(count)
}

/// Calls `write` for each event, until Ctrl-C.
fn each(
    events: impl Iterator<Item = Result<Event, Failure>>,
    mut write: impl FnMut(Event) -> Result<(), Unwritten>,
) -> Result<u64, Unwritten> {
    let mut count = 0;
    for event in events {
        write(event.map_err(Unwritten::Input)?)?;
        count += 1;
        if count % STRIDE == 0 && signals::interrupted() {
            return Err(Unwritten::Input(Failure::error("interrupted")));
        }
    }
    Ok(count)
}
