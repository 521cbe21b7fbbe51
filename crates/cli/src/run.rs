//! `stopgap run --fix`: a program that nobody may rebuild, with a fix.
//!
//! The fixes are put into the environment and the scheduling policy of this process, which then becomes the command:
//! its signals, its output and its exit status are its own. `measure` runs it with and without them instead.

mod fix;
mod measure;
pub(crate) mod program;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use stopgap_arena::Error;
use stopgap_arena::sched::batch_client;
use stopgap_helpers::{Helper, Place};
use stopgap_kernel::Linux;

use crate::args;
use crate::failure::{CANNOT_RUN, Failure, NOT_FOUND};
use crate::session::tell;

pub(crate) use fix::Fix;
#[cfg(test)]
pub(crate) use measure::RunFixed;
use program::Reason;

/// Most bytes of freed maps that keep their pages; what `arena-keep` asks for where the user does not.
const KEEP: &str = "STOPGAP_KEEP";
const KEPT: &str = "32M";

/// Warning that `arena-keep` prints before anything else.
const UNSAFE: &str = "arena-keep is unsafe for programs whose memory the kernel or another process still uses after \
    munmap (vmsplice, O_DIRECT, io_uring or MSG_ZEROCOPY in flight, shmat with SHM_REMAP, mbind, userfaultfd, ...): it \
    corrupts their data. docs/fixes/run.md has the list; arena is safe";

/// Changes to a command that make the fixes work.
struct Fixed {
    /// Variables of the environment.
    variables: Vec<(&'static str, OsString)>,
    /// Whether under `SCHED_BATCH`.
    batch: bool,
    /// The library, where a fix needs it.
    library: Option<PathBuf>,
}

pub(crate) fn run(args: &args::RunFix) -> Result<ExitCode, Failure> {
    let fix_without_library = args.fix.contains(&Fix::BatchClient);
    if let (
        false,
        Some(Reason {
            why,
            is_static: true,
        }),
    ) = (fix_without_library, reason(args))
    {
        return Err(Failure::unsupported(format!(
            "{why}: a library cannot be put under it; if it starts a dynamic program, name that one"
        )));
    }
    match args.measure {
        true => run_fixed(args),
        false => run_fixed(args).map_err(Failure::not_of_the_command),
    }
}

fn run_fixed(args: &args::RunFix) -> Result<ExitCode, Failure> {
    let fixed = Fixed::of(&args.fix)?;
    if args.fix.contains(&Fix::ArenaKeep) {
        tell(UNSAFE);
    }
    if fixed.library.is_some()
        && let Some(Reason { why, .. }) = reason(args)
    {
        tell(&format!("{why}; it runs without the fix"));
    }
    // A policy of its own choice would be lost: refused, with --measure, too.
    let batch = fixed.batch.then(batch_client).transpose();
    let batch = batch.map_err(|error| match error {
        Error::Unsupported { .. } => Failure::unsupported(format!("batch-client: {error}")),
        other => Failure::error(format!("batch-client: {other}")),
    })?;
    if args.measure {
        drop(batch);
        return measure::run(args, &fixed);
    }
    if let Some(batch) = batch {
        batch.stay();
    }
    let (program, words) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::error("no command"))?;
    let mut command = Command::new(program);
    command.args(words).envs(fixed.variables);
    let error = command.exec();
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    };
    Err(Failure::Told {
        message: format!("{}: {error}", program.to_string_lossy()),
        status,
    })
}

/// Why the library will not be in the command, and whose file is meant.
fn reason(args: &args::RunFix) -> Option<Reason> {
    let word = args.command.first()?;
    let mut reason = program::passes_through(word)?;
    let word = word.to_string_lossy();
    // The file may be the interpreter of a script.
    if !reason.why.starts_with(&*word) {
        reason.why = format!("{word}: {}", reason.why);
    }
    Some(reason)
}

impl Fixed {
    fn of(fixes: &[Fix]) -> Result<Fixed, Failure> {
        let mut fixed = Fixed {
            variables: Vec::new(),
            batch: fixes.contains(&Fix::BatchClient),
            library: None,
        };
        if fixes.iter().any(|fix| *fix != Fix::BatchClient) {
            let library = library()?;
            fixed.variables.push(("LD_PRELOAD", preload(&library)?));
            fixed.library = Some(library);
        }
        if fixed.library.is_some() {
            // Without `arena-keep` it is 0, even inside another run that has set it: keeping can corrupt data.
            let keep = if fixes.contains(&Fix::ArenaKeep) {
                let given = std::env::var_os(KEEP).filter(|given| !given.is_empty());
                given.unwrap_or_else(|| KEPT.into())
            } else {
                "0".into()
            };
            fixed.variables.push((KEEP, keep));
            fixed.variables.push((ASAN.0, asan_options()));
        }
        let mut policies = fixes.iter().filter_map(|fix| match fix {
            Fix::Chunks(policy) => Some(policy),
            Fix::Arena | Fix::ArenaKeep | Fix::BatchClient => None,
        });
        if let Some(policy) = policies.next() {
            if let Some(other) = policies.find(|other| *other != policy) {
                return Err(Failure::error(format!(
                    "chunks={} and chunks={}: large maps take one policy",
                    policy.word(),
                    other.word()
                )));
            }
            let advice = fix::advice(*policy, &Linux)?;
            if let Some(why) = advice.instead {
                tell(&why);
            }
            fixed.variables.push(("STOPGAP_ADVICE", advice.word.into()));
        }
        Ok(fixed)
    }
}

/// The variable of AddressSanitizer's options, and the one that lets its runtime start where another library comes
/// first: ours, which hands it every call.
const ASAN: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order=0");

fn asan_options() -> OsString {
    let mut options = std::env::var_os(ASAN.0).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ASAN.1);
    options
}

/// Finds the library; writes it into a private file where it is built into the command.
fn library() -> Result<PathBuf, Failure> {
    let named = Helper::Preload.variable();
    match Helper::Preload.find() {
        Some(Place::Named(given)) => match given.canonicalize() {
            Ok(path) if path.is_file() => loadable(path),
            _ => Err(Failure::unsupported(format!(
                "no {} at {} (named by {named}): {}",
                Helper::Preload.file(),
                given.display(),
                Helper::Preload.advice()
            ))),
        },
        Some(Place::BuiltIn(bytes)) => {
            let written = stopgap_helpers::write_private(Helper::Preload.file(), bytes);
            written.map_err(|error| {
                Failure::unsupported(format!(
                    "cannot write {} to a private file ({error}); set XDG_CACHE_HOME to a directory of your own, or name a \
                     copy with {named}=FILE",
                    Helper::Preload.file()
                ))
            })
        }
        Some(Place::Beside(path) | Place::Library(path)) => loadable(path),
        None => Err(Failure::unsupported(Helper::Preload.missing())),
    }
}

/// Returns why ld.so could not load the file that `library` would take; `None` where it could, and where no file is there.
pub(crate) fn cannot_load() -> Option<String> {
    let place = Helper::Preload.find()?;
    let path = place.path().ok()?;
    let why = program::cannot_load(path)?;
    Some(format!("{} {why}", path.display()))
}

/// `library`, if ld.so could load it: it says otherwise in each process of the command, and runs that without.
fn loadable(library: PathBuf) -> Result<PathBuf, Failure> {
    match program::cannot_load(&library) {
        None => Ok(library),
        Some(why) => Err(Failure::unsupported(format!(
            "{} {why}: {}",
            library.display(),
            Helper::Preload
                .advice()
                .replacen("it", Helper::Preload.file(), 1)
        ))),
    }
}

/// `LD_PRELOAD` with the library first, once.
fn preload(library: &std::path::Path) -> Result<OsString, Failure> {
    let separates = |byte: &u8| *byte == b':' || *byte == b' ';
    use std::os::unix::ffi::OsStrExt;
    if library.as_os_str().as_bytes().iter().any(separates) {
        return Err(Failure::error(format!(
            "{}: a path with a colon or a space cannot be preloaded; copy the library elsewhere, or link to it",
            library.display()
        )));
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD") {
        let words = before.as_bytes().split(|byte| separates(byte));
        for word in words {
            let word = std::ffi::OsStr::from_bytes(word);
            let same = std::path::Path::new(word).canonicalize();
            if !word.is_empty() && same.map_or(true, |path| path != library) {
                all.push(":");
                all.push(word);
            }
        }
    }
    Ok(all)
}
