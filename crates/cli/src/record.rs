//! `stopgap record`: a program's scheduling, system calls, memory, locks and I/O as a trace file.
//!
//! The pages of the kernel's buffers are spooled to a folder beside the file; the file is made of
//! them at the end, or later by `--recover`.

mod conditions;
mod converter;
pub(crate) mod spools;
mod summary;
pub(crate) mod targets;
mod way;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::{Files, read_text};
use stopgap_kernel::folder::Folder;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::{Child, Ended, Guard, Held, Watched};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, budget, signals};
use stopgap_tracer::capture::Options;
use stopgap_tracer::description::Subject;
use stopgap_tracer::events::{CaptureSource, EventSet};
use stopgap_tracer::spool::{DESCRIPTION, End, Spool};
use stopgap_tracer::symbols::Symbols;

use crate::args;
use crate::failure::{CANNOT_RUN, DONE, ERROR, Failure, NOT_FOUND, NOT_THE_COMMAND};
use crate::session::{tell, tell_error};
use crate::whole_file::{self, WholeFile};
use crate::{input_file, output, places, progress};
use conditions::Before;
use converter::{Converter, Written};
use spools::SPOOL;
use targets::{Asked, Others};
use way::Way;

/// A suspend takes longer.
const SUSPENDED: Nanos = Nanos::millis(10);
/// Longest wait between two looks at the buffers.
const STEP: Nanos = Nanos::millis(100);

/// The target of a recording.
enum Target {
    Command {
        child: Child,
        /// Ends the command where we are killed.
        _guard: Guard,
    },
    Others(Others),
}

impl Target {
    /// The process whose end is waited for.
    fn watched(&self) -> Option<&Watched> {
        match self {
            Target::Command { child, .. } => Some(child.watched()),
            Target::Others(others) => others.watched(),
        }
    }
}

/// How a recording ended.
enum Finish {
    /// The command or the process ended. Only a parent learns how a process ended.
    Ended(Option<Ended>),
    /// The time limit was reached.
    Time,
    /// Ctrl-C.
    Interrupted,
    /// An error stopped it.
    Cut(String),
}

/// A recording that has ended.
struct Done {
    finish: Finish,
    took: Nanos,
    /// The command's process, where it runs still.
    goes_on: Option<u32>,
}

pub(crate) fn run(args: &args::Record) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.convert {
        return converter::run(folder);
    }
    if args.command.is_empty() {
        return record(args);
    }
    let status = record(args).map_err(Failure::not_of_the_command);
    // The status is the command's, whether or not somebody reads the summary.
    output::reader_is_not_needed();
    status
}

/// Exit status of the command, as a shell has it; `None` where nobody waited for its end.
fn status_of_command(done: Option<&Done>) -> Option<u8> {
    let Some(Finish::Ended(Some(ended))) = done.map(|done| &done.finish) else {
        return None;
    };
    let status = ended.how.unwrap_or_else(|signal| 128 + signal);
    Some(u8::try_from(status).unwrap_or(u8::MAX))
}

fn record(args: &args::Record) -> Result<ExitCode, Failure> {
    signals::install();
    let others = Others::open(&Asked {
        pids: &args.pid,
        names: &args.comm,
        groups: &args.cgroup,
        all: args.all,
    })?;
    if args.recover.is_none() && others.is_none() && args.command.is_empty() {
        return Err(Failure::error(
            "nothing to record: give a command after --, processes with -p, --comm or --cgroup, or -a for all",
        ));
    }
    if args.pid.contains(&std::process::id()) {
        return Err(Failure::error(
            "that is this recorder itself, which does not record what it does; name another process",
        ));
    }
    if args.only
        && args
            .source
            .is_some_and(|source| source != CaptureSource::Bpf)
    {
        return Err(Failure::error(
            "--only belongs to --source bpf: the other sources record no threads of other processes",
        ));
    }
    if args.duration == Some(Nanos(0)) {
        return Err(Failure::error(
            "in no time nothing is recorded; give -d a longer one",
        ));
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(Failure::error(
            "a trace file is no stream; name a file, and let stopgap export write that to standard output",
        ));
    }
    if let Some(other) = (args.output.as_deref()).and_then(another_form) {
        return Err(Failure::error(format!(
            "{}: record writes Parquet; name it x.parquet, and stopgap export x.parquet -o x.{other} makes that of it",
            args.output.as_deref().unwrap_or(Path::new("")).display()
        )));
    }
    let beside = args.recover.as_deref().and_then(spools::file_of);
    let path = match args.output.clone().or(beside) {
        Some(path) => path,
        None => {
            let name = output::name("trace", Linux.unix_seconds());
            let name = Path::new(&name).with_extension("parquet");
            places::records(None)?.join(name)
        }
    };
    let recovered = args.recover.as_deref().map(recover).transpose()?;
    // Before the work, so that an error about the place comes at once.
    let whole = WholeFile::private(&path).map_err(|error| cannot_write(&path, &error))?;
    let (mut spool, done, converter) = match recovered {
        Some(spool) => (spool, None, None),
        None => {
            let (spool, done, converter) = capture(args, others, &path, whole.file())?;
            (spool, Some(done), converter)
        }
    };
    let bar = progress::progress_bar();
    bar.set_message("writing the trace");
    let converted = converter.and_then(|converter| {
        let told = |why: &String| {
            tell(&format!(
                "the trace was not written meanwhile ({why}); writing it now"
            ));
        };
        converter.finish(whole.file()).inspect_err(told).ok()
    });
    let (shown, all) = (bar.clone(), spool.bytes());
    let recovers = args.recover.is_some();
    spool.watch(move |read| {
        shown.set_position(progress::thousandths(read, all));
        // The first Ctrl-C ended the recording; the writing goes on.
        match recovers {
            true => input_file::stop_if_interrupted(),
            false => Ok(()),
        }
    });
    let written = match converted {
        Some(written) => Ok(written),
        None => write(&spool, whole.file()),
    };
    let written = written.and_then(|written| {
        let finished = whole.finish();
        finished
            .map_err(|error| error.to_string())
            .map(|()| written)
    });
    bar.finish_and_clear();
    let Written { metadata, counts } = written.map_err(|why| {
        let folder = spool.folder().display();
        let file = path.display();
        Failure::error(format!(
            "cannot write {file}: {why}; what was recorded is in {folder}: stopgap record \
             --recover {folder} -o {file}"
        ))
    })?;
    let absent = told_absent(&spool);
    if !absent && let Err(error) = spool.remove() {
        tell_error(&format!("the trace is written; its pages stay: {error}"));
    }
    let cut = matches!(done.as_ref().map(|done| &done.finish), Some(Finish::Cut(_)));
    output::screen(&summary::text(&metadata, &counts, done.as_ref(), &path))?;
    Ok(ExitCode::from(
        match (cut || absent, args.command.is_empty()) {
            (true, true) => ERROR,
            (true, false) => NOT_THE_COMMAND,
            (false, _) => status_of_command(done.as_ref()).unwrap_or(DONE),
        },
    ))
}

/// Says which CPUs' events are not in the trace because their files are not in the folder; whether there are any.
fn told_absent(spool: &Spool) -> bool {
    let absent = spool.absent();
    let Some((_, first)) = absent.first() else {
        return false;
    };
    let mut cpus: Vec<String> = absent.iter().map(|(cpu, _)| cpu.to_string()).collect();
    cpus.dedup();
    let (these, folder) = (cpus.join(", "), spool.folder().display());
    tell_error(&format!(
        "{folder}: {first} is not there, so the trace lacks events of CPU {these}; the folder stays: put the file \
         back and recover again, or remove the folder"
    ));
    true
}

/// Refuses buffers that would leave no memory for what is recorded.
pub(crate) fn affordable(buffer: Option<Bytes>) -> Result<(), Failure> {
    let Some(buffer) = buffer else {
        return Ok(());
    };
    let cpus = Linux.cpus()?.len().max(1) as u64;
    let memory = budget::meminfo(&Linux, "MemTotal")?;
    let most = Bytes(memory.0 / 2 / cpus);
    if buffer <= most {
        return Ok(());
    }
    Err(Failure::error(format!(
        "--buffer {buffer}: each of {cpus} CPUs has one, and memory is {memory}; at most {most}"
    )))
}

/// Records until the end, whichever comes first.
fn capture(
    args: &args::Record,
    others: Option<Others>,
    path: &Path,
    file: &File,
) -> Result<(Spool, Done, Option<Converter>), Failure> {
    affordable(args.buffer)?;
    let journal = Journal::new(&Linux, &places::journal(None)?);
    let folder = spool_folder(path)?;
    spools::tell_of(folder.parent().unwrap_or(Path::new(".")));
    signals::leaves(&format!(
        "ended by a later signal, and a recorded command with it; what was recorded is in {0}: stopgap record --recover \
         {0}; stopgap restore puts back the rest",
        folder.display()
    ));
    let subject = Subject {
        labels: labels(&args.labels)?,
        ..match &others {
            Some(others) if args.command.is_empty() => others.subject(),
            _ => Subject {
                program: args.command.first().map(lossy),
                ..words(args).into()
            },
        }
    };
    let options = Options {
        events: args.events.unwrap_or(EventSet::All),
        buffer: args.buffer,
        spool: folder.clone(),
        subject,
    };
    let started = Way::prepare(&journal, &options, args)
        .map_err(Failure::from)
        .and_then(|(mut way, worse)| {
            let (target, pids) = start(&mut way, args, others)?;
            worse.iter().for_each(|line| tell(line));
            Ok((way, target, pids))
        });
    let (mut way, mut target, pids) = started.inspect_err(|_| {
        let _ = remove(&folder); // nothing is in it yet that anybody needs
    })?;
    let before = Before::read(&Linux, pids);
    let began = Linux.now();
    let suspended = Linux.suspended();
    let regular = file.metadata().is_ok_and(|about| about.is_file());
    let mut converter = match regular && way.drained().is_some() {
        // Without it, the file is made afterwards.
        true => Converter::start(&folder, file).ok(),
        false => None,
    };
    let finish = follow(&mut way, &mut target, args.duration, converter.as_mut());
    let took = Linux.now().saturating_sub(began);
    let ended = match &finish {
        Finish::Ended(ended) => ended.as_ref(),
        _ => None,
    };
    let mut end = End {
        conditions: Some(before.until_now(&Linux, ended)),
        ..End::default()
    };
    let cut = match &finish {
        Finish::Cut(why) => Some(why.clone()),
        Finish::Ended(Some(ended)) => {
            let kept = target
                .watched()
                .map_or(Ok(()), |watched| way.ended(watched.pid(), ended));
            kept.err().map(|error| error.to_string())
        }
        _ => None,
    };
    end.missing
        .extend(cut.map(|why| Missing::new("what came after", why)));
    if let Target::Others(others) = &target {
        end.missing.extend(others.never_came());
    }
    let suspended = Linux.suspended().saturating_sub(suspended);
    if suspended >= SUSPENDED {
        let why = format!("{suspended}, which no wait of the trace counts");
        end.missing
            .push(Missing::new("time in which the machine was suspended", why));
    }
    let spool = way.stop(end)?;
    let goes_on = match &target {
        Target::Command { child, .. } if matches!(child.ended(), Ok(None)) => {
            Some(child.watched().pid())
        }
        _ => None,
    };
    let done = Done {
        finish,
        took,
        goes_on,
    };
    Ok((spool, done, converter))
}

/// Starts the recording, then what is recorded. Returns the processes that are recorded.
fn start(
    way: &mut Way<'_, '_>,
    args: &args::Record,
    others: Option<Others>,
) -> Result<(Target, Vec<u32>), Failure> {
    if args.command.is_empty()
        && let Some(mut others) = others
    {
        if others.is_all() {
            way.start_everything()?;
            return Ok((Target::Others(others), Vec::new()));
        }
        for absent in others.absent() {
            tell(&format!("{absent}: one that comes is recorded"));
        }
        let given = others.given();
        let recorded = way.start_running(&given, &others.fresh())?;
        if let Some(&pid) = given.iter().find(|pid| !recorded.contains(pid)) {
            return Err(stopgap_kernel::Error::no_process(pid, "").into());
        }
        return Ok((Target::Others(others), recorded));
    }
    let held = Held::start(&args.command)?;
    let pid = held.pid();
    let all = if args.all {
        way.start_everything()
    } else {
        Ok(())
    };
    if let Err(error) = all.and_then(|()| way.start(pid)) {
        let _ = held.give_up(); // what is wrong with the recording is said
        return Err(error.into());
    }
    let guard = held.guarded()?;
    let released = held.release();
    released
        .map(|child| {
            let _guard = guard;
            (Target::Command { child, _guard }, vec![pid])
        })
        .map_err(|error| cannot_start(&args.command, &error))
}

/// Returns the end of a name that stands for another form of a trace: who gives it would read Parquet as JSON.
fn another_form(path: &Path) -> Option<&str> {
    let end = path.extension()?.to_str()?;
    ["json", "jsonl", "csv", "perfetto", "pftrace"]
        .contains(&end)
        .then_some(end)
}

/// Why there is no trace file, with what to do.
fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let advice = match error.kind() {
        ErrorKind::IsADirectory => "; name a file in it",
        ErrorKind::NotFound => "; the directory must exist",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; name another place with -o"
        }
        _ => "",
    };
    Failure::error(format!("cannot write {}: {error}{advice}", path.display()))
}

/// Why there is no command, with what to do.
fn cannot_start(command: &[std::ffi::OsString], error: &stopgap_kernel::Error) -> Failure {
    let name = command.first().map(|word| word.to_string_lossy());
    let name = name.unwrap_or_default();
    let path = if name.contains('/') { "" } else { " in $PATH" };
    if error.is_absent() {
        let quoted = match name.contains(' ') {
            true => "; the words of a command stand apart, without quotes around all of them",
            false => "",
        };
        return Failure::Told {
            message: format!("{error}: there is no such program{path}{quoted}"),
            status: NOT_FOUND,
        };
    }
    if error.is_refused() {
        let why = "it is a folder, or no program, or not yours to run";
        return Failure::Told {
            message: format!("{error}: {why}{path}"),
            status: CANNOT_RUN,
        };
    }
    Failure::Told {
        message: error.to_string(),
        status: CANNOT_RUN,
    }
}

fn follow(
    way: &mut Way<'_, '_>,
    target: &mut Target,
    duration: Option<Nanos>,
    mut converter: Option<&mut Converter>,
) -> Finish {
    let deadline = duration.map(|duration| Linux.now() + duration);
    loop {
        let now = Linux.now();
        let left = deadline.map_or(STEP, |deadline| deadline.saturating_sub(now));
        if left == Nanos(0) {
            return Finish::Time;
        }
        let wait = Nanos(left.0.min(STEP.0));
        if let Err(error) = way.pump(target.watched(), wait) {
            return Finish::Cut(error.to_string());
        }
        if let (Some(converter), Some(time)) = (&mut converter, way.drained()) {
            converter.reach(time);
        }
        if signals::interrupted() {
            return Finish::Interrupted;
        }
        match target {
            Target::Command { child, .. } => match child.ended() {
                Ok(None) => {}
                Ok(ended) => return Finish::Ended(ended),
                Err(error) => return Finish::Cut(error.to_string()),
            },
            Target::Others(others) if others.have_ended() => return Finish::Ended(None),
            Target::Others(others) => {
                let fresh = others.fresh();
                if !fresh.is_empty()
                    && let Err(error) = way.start_running(&[], &fresh)
                {
                    return Finish::Cut(error.to_string());
                }
            }
        }
    }
}

/// The spool of a recording that was cut off.
fn recover(folder: &Path) -> Result<Spool, Failure> {
    let description = folder.join(DESCRIPTION);
    if !description.exists() {
        return Err(Failure::error(format!(
            "{}: not the folder of a recording: it has no {}",
            folder.display(),
            description.display()
        )));
    }
    let spool = Spool::open(folder)?;
    if let Some(recorder) = spool.description().recorder
        && !spool.has_ended()
        && Folder::open(folder).is_ok_and(|spool| way::is_recorded_into(recorder, &spool))
    {
        let folder = folder.display();
        return Err(Failure::error(format!(
            "{folder}: process {recorder} still records into it; wait for its end"
        )));
    }
    if let Ok((beside, name)) = whole_file::folder_of(&folder.with_extension("partial")) {
        whole_file::remove_abandoned(&beside, &name);
    }
    Ok(spool)
}

/// The folder of the pages: beside the file, or where the file is none, where records go.
fn spool_folder(path: &Path) -> Result<PathBuf, Failure> {
    let special = fs::metadata(path).is_ok_and(|there| !there.is_file());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = if special {
        places::records(None)?.join("spool")
    } else {
        path.to_owned()
    };
    let pid = std::process::id();
    let name_of = |tag: &str| place.with_file_name(format!(".{name}.{pid}{tag}{SPOOL}"));
    let folder = name_of("");
    match fs::symlink_metadata(&folder) {
        Err(_) => Ok(folder),
        Ok(there) if there.is_dir() && there.uid() == Linux.uid() => Err(Failure::error(format!(
            "{}: an earlier recording that was cut off; finish it with --recover, or remove it",
            folder.display()
        ))),
        // Somebody else has foreseen the name.
        Ok(_) => Ok(name_of(&format!(
            "-{:08x}",
            whole_file::random() & 0xffff_ffff
        ))),
    }
}

/// Removes a folder of ours with the files in it.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    let (beside, name) = whole_file::folder_of(folder)?;
    let own = beside.own(&name)?;
    for file in own.names() {
        own.remove(&file)?;
    }
    beside.remove_folder(&name)
}

fn words(args: &args::Record) -> String {
    let words: Vec<String> = args.command.iter().map(lossy).collect();
    words.join(" ")
}

#[allow(clippy::ptr_arg)] // for lists of words
fn lossy(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// The labels, each key once.
fn labels(given: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    let mut labels = BTreeMap::new();
    for (key, value) in given {
        if labels.insert(key.clone(), value.clone()).is_some() {
            let why =
                format!("--label {key}={value}: '{key}' is given twice; a label has one value");
            return Err(Failure::error(why));
        }
    }
    Ok(labels)
}

/// The command line of a process, or its number.
pub(crate) fn subject_of(pid: u32) -> Subject {
    let line = Linux.read(format!("/proc/{pid}/cmdline").as_ref());
    let line = line.unwrap_or_default();
    let words: Vec<_> = line
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    if words.is_empty() {
        // A kernel thread has no command line.
        let name = read_text(&Linux, format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("process {pid}: [{}]", name.trim()).into();
    }
    Subject {
        program: words.first().map(ToString::to_string),
        ..format!("process {pid}: {}", words.join(" ")).into()
    }
}

fn write(spool: &Spool, file: &File) -> Result<Written, String> {
    let trace = spool
        .trace(&symbols(spool))
        .map_err(|error| error.to_string())?;
    let file = file.try_clone().map_err(|error| error.to_string())?;
    let written = trace
        .write(BufWriter::with_capacity(1 << 18, file))
        .map_err(|error| error.to_string())?;
    let flushed = written.out.into_inner();
    flushed.map_err(|error| error.to_string())?;
    let counts = written.counts.into_iter();
    Ok(Written {
        metadata: written.metadata,
        counts: counts
            .map(|(kind, count)| (kind.to_owned(), count))
            .inserted(),
    })
}

/// Names of kernel functions, where the recording is of this boot.
pub(crate) fn symbols(spool: &Spool) -> Symbols {
    let boot = read_text(&Linux, "/proc/sys/kernel/random/boot_id").ok();
    // Two unknown boots cannot be called the same.
    if boot.is_none() || boot != spool.description().metadata.boot_id {
        return Symbols::default();
    }
    let text = Linux.read(Path::new("/proc/kallsyms")).unwrap_or_default();
    Symbols::parse(&String::from_utf8_lossy(&text))
}

impl From<stopgap_tracer::Error> for Failure {
    fn from(error: stopgap_tracer::Error) -> Failure {
        match error {
            stopgap_tracer::Error::System(error) => error.into(),
            _ => Failure::error(error.to_string()),
        }
    }
}
