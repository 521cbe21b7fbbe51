//! Puts back what was changed: on exit, on a signal, and after a SIGKILL by the next run.
//!
//! **Contract.** Every change of a setting, every cgroup, swap file and scratch file goes
//! through a [`Journal`]. It is written to the disk *before* the change is made, so that at
//! each moment either nothing was changed or the journal says how to undo it. Undoing goes
//! backwards, and undoing twice does no harm: a run that was killed while it undid is undone
//! again by [`restore`].
//!
//! ```text
//! journal:  [write e1] ........ [write e1,e2] ........ [write e1] .. [remove]
//! system:   ......... [change 1] ............ [change 2] [undo 2] [undo 1]
//! killed here:  ^ undo 1 finds nothing to do     ^ undo 2, undo 1
//! ```
//!
//! One file a run, `PID.json`, and one `PID-TAG.json` for each output file on its way, with the process's start time, so that a run in progress is
//! told from a dead one whose id was used again. After a reboot settings and cgroups are gone
//! by themselves; files are still removed. A run in another PID namespace (a container that
//! shares the folder) is left alone: here its id says nothing. While one run has settings
//! changed, no other may: of two the one that ends last would put the other's value "back".
//!
//! What it leaves out: a setting that somebody else changed meanwhile is put back to what *we*
//! found.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use stopgap_events::units::Nanos;

use crate::System;
use crate::error::{Error, Result};
use crate::files::{Files, read_choice, read_text};
use crate::{thp, tracefs};

const SCHEMA: &str = "stopgap.journal/1";

/// One change and how to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
enum Change {
    /// A setting had this value before.
    Setting { path: PathBuf, before: String },
    /// A directory was made: a cgroup.
    Directory { path: PathBuf },
    /// An instance of tracefs was made, wherever that is mounted.
    TraceInstance { name: String },
    /// A file was created.
    File { path: PathBuf },
    /// A file was created and put into use as swap.
    Swap { path: PathBuf },
}

impl Change {
    fn describe(&self) -> String {
        match self {
            Change::Setting { path, before } => {
                format!("{} back to '{before}'", path.display())
            }
            Change::Directory { path } => format!("{} removed", path.display()),
            Change::TraceInstance { name } => format!("trace instance {name} removed"),
            Change::File { path } => format!("{} removed", path.display()),
            Change::Swap { path } => format!("swap {} switched off, removed", path.display()),
        }
    }

    /// Whether a reboot undoes it.
    fn ends_with_the_boot(&self) -> bool {
        matches!(
            self,
            Change::Setting { .. } | Change::Directory { .. } | Change::TraceInstance { .. }
        )
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    schema: String,
    pid: u32,
    start_time: u64,
    boot: String,
    /// Of the process id.
    #[serde(default)]
    namespace: String,
    changes: Vec<Change>,
}

/// The journal of this run. Nothing is written before the first change.
pub struct Journal<'s> {
    system: &'s dyn System,
    directory: PathBuf,
    /// What its file is called besides the process id, where this process has several.
    tag: String,
    changes: Mutex<Vec<Change>>,
    /// Whether there was anything to write yet: a folder that is not ours is not touched.
    written: AtomicBool,
}

impl std::fmt::Debug for Journal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("directory", &self.directory)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl<'s> Journal<'s> {
    /// A journal in `directory`, which is made when it is first needed (its parent must exist).
    #[must_use]
    pub fn new(system: &'s dyn System, directory: &Path) -> Journal<'s> {
        Journal::tagged(system, directory, "")
    }

    /// One journal more of this process, in `PID-TAG.json`.
    #[must_use]
    pub fn aside(system: &'s dyn System, directory: &Path, tag: &str) -> Journal<'s> {
        Journal::tagged(system, directory, &format!("-{tag}"))
    }

    fn tagged(system: &'s dyn System, directory: &Path, tag: &str) -> Journal<'s> {
        Journal {
            system,
            directory: directory.to_owned(),
            tag: tag.to_owned(),
            changes: Mutex::new(Vec::new()),
            written: AtomicBool::new(false),
        }
    }

    /// Changes a setting. A value that is already there is not written.
    ///
    /// # Errors
    /// [`Error::Busy`] as [`Journal::alone`]; where the setting cannot be read or written, or
    /// the journal cannot be written. Nothing was changed then.
    pub fn set(&self, path: &Path, value: &str) -> Result<()> {
        self.alone()?;
        let before = current(self.system, path)?;
        if before == value {
            return Ok(());
        }
        // Announced first, so that it is put back last: putting the knob back moves it once more.
        let kept = match thp::follower(path) {
            Some(follower) => self.keep(follower)?,
            None => false,
        };
        let found = before.clone();
        let change = Change::Setting {
            path: path.to_owned(),
            before,
        };
        // Two who begin at once both look at the other's journal after writing their own, so
        // that one of them at least sees the other; and what was found must still stand.
        let check = || {
            self.alone()?;
            if current(self.system, path)? == found {
                return Ok(());
            }
            Err(Error::Busy {
                what: format!("{}: somebody else has just changed it", path.display()),
            })
        };
        let made = self.change(change, check, || self.system.write(path, value.as_bytes()));
        if made.is_err() && kept {
            // Another run may have it changed: then it is that run's to put back.
            let mut changes = self.lock();
            changes.pop();
            self.write(&changes)?;
        }
        made
    }

    /// Announces a setting that the kernel may change while we change others: it is put back as if we had. Whether it
    /// was not announced before.
    fn keep(&self, path: &Path) -> Result<bool> {
        let kept =
            |change: &Change| matches!(change, Change::Setting { path: of, .. } if of == path);
        if self.lock().iter().any(kept) {
            return Ok(false);
        }
        let before = match current(self.system, path) {
            Err(error) if error.is_absent() => return Ok(false),
            before => before?,
        };
        let path = path.to_owned();
        self.change(Change::Setting { path, before }, || Ok(()), || Ok(()))?;
        Ok(true)
    }

    /// Whether no other run has settings changed: what we found in them would be its, to be put
    /// back when it has ended. Files and cgroups of others are no matter.
    ///
    /// # Errors
    /// [`Error::Busy`], naming the other run.
    pub fn alone(&self) -> Result<()> {
        let own = self.file();
        // A folder that is not there, a journal that has just gone or cannot be understood:
        // nobody that we could name.
        for name in self.system.list(&self.directory).unwrap_or_default() {
            let path = self.directory.join(&name);
            if path == own || !name.ends_with(".json") {
                continue;
            }
            let Ok(content) = read(self.system, &path) else {
                continue;
            };
            let sets = |change: &Change| matches!(change, Change::Setting { .. });
            if content.boot == boot(self.system) && content.changes.iter().any(sets) {
                let pid = content.pid;
                return Err(Error::Busy {
                    what: format!(
                        "process {pid} has settings changed: wait for its end; was it killed: \
                         stopgap restore"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Makes an instance of tracefs that undoing switches off and removes. Its pipes must be closed
    /// by then: an open one keeps it there.
    ///
    /// # Errors
    /// Where there is no tracefs, or it or the journal cannot be written.
    pub fn make_trace_instance(&self, name: &str) -> Result<()> {
        let tracefs = self.system.tracefs()?;
        self.change(
            Change::TraceInstance {
                name: name.to_owned(),
            },
            || Ok(()),
            || self.system.make_dir(&tracefs.instance(name)),
        )
    }

    /// Makes a directory that undoing removes: a cgroup.
    ///
    /// # Errors
    /// Where it or the journal cannot be written.
    pub fn make_dir(&self, path: &Path) -> Result<()> {
        self.change(
            Change::Directory {
                path: path.to_owned(),
            },
            || Ok(()),
            || self.system.make_dir(path),
        )
    }

    /// Announces a file that `make` creates and undoing removes.
    ///
    /// # Errors
    /// Where the journal cannot be written, or what `make` says.
    pub fn make_file(&self, path: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.change(
            Change::File {
                path: path.to_owned(),
            },
            || Ok(()),
            make,
        )
    }

    /// Announces a swap file that `make` creates; puts it into use.
    ///
    /// # Errors
    /// Where the journal cannot be written, what `make` says, or as swapon(2).
    pub fn make_swap(&self, path: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.change(
            Change::Swap {
                path: path.to_owned(),
            },
            || Ok(()),
            || {
                make()?;
                self.system.swap(path, true)
            },
        )
    }

    /// From now on: everything changed while the scope lives is undone when it is dropped.
    #[must_use]
    pub fn scope(&self) -> Scope<'_, 's> {
        Scope {
            journal: self,
            mark: self.lock().len(),
        }
    }

    /// Undoes everything, last change first; what could not be undone stays in the journal
    /// and is returned.
    pub fn undo(&self) -> Vec<Error> {
        self.undo_to(0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Change>> {
        // A panic between two pushes leaves a valid list.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `check` is asked when the change is announced and not yet made.
    fn change(
        &self,
        change: Change,
        check: impl FnOnce() -> Result<()>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut changes = self.lock();
        changes.push(change);
        if let Err(error) = self.write(&changes) {
            changes.pop();
            return Err(error);
        }
        if let Err(error) = check() {
            changes.pop();
            self.write(&changes)?;
            return Err(error);
        }
        let made = make();
        if made.as_ref().is_err_and(Error::is_taken) {
            changes.pop(); // somebody else's of that name: not ours to undo
            self.write(&changes)?;
        } else if made.is_err() {
            // Half made is undone at once; an undo that finds nothing is no error.
            drop(changes);
            let last = self.lock().len() - 1;
            let _ = self.undo_to(last);
        }
        made
    }

    fn undo_to(&self, mark: usize) -> Vec<Error> {
        let mut changes = self.lock();
        let mut failed = Vec::new();
        let mut kept = Vec::new();
        while changes.len() > mark {
            // Not popped before it is undone: killed here, the next run undoes it.
            let Some(change) = changes.last().cloned() else {
                break;
            };
            if let Err(error) = undo(self.system, &change) {
                kept.push(change);
                failed.push(error);
            }
            changes.pop();
        }
        changes.extend(kept.into_iter().rev());
        if self.written.load(Ordering::Relaxed)
            && let Err(error) = self.write(&changes)
        {
            failed.push(error);
        }
        failed
    }

    fn file(&self) -> PathBuf {
        self.directory
            .join(format!("{}{}.json", self.system.pid(), self.tag))
    }

    /// Says which directory must exist, where that is why this journal's cannot be made.
    fn without_parent(&self, error: Error) -> Error {
        match self.directory.parent() {
            Some(parent) if error.is_absent() => Error::unsupported(
                "changing settings of this machine",
                format!(
                    "what must be put back is kept in {}, and there is no directory {}; create it",
                    self.directory.display(),
                    parent.display()
                ),
            ),
            _ => error,
        }
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let file = self.file();
        if changes.is_empty() {
            return ignore_absent(self.system.remove_file(&file));
        }
        self.written.store(true, Ordering::Relaxed);
        if self.system.list(&self.directory).is_err() {
            let made = self.system.make_dir(&self.directory);
            made.map_err(|error| self.without_parent(error))?;
        }
        check_private(self.system, &self.directory)?;
        let pid = self.system.pid();
        let content = Content {
            schema: SCHEMA.to_owned(),
            pid,
            start_time: start_time(self.system, pid)?,
            boot: boot(self.system),
            namespace: namespace(self.system),
            changes: changes.to_vec(),
        };
        let text = serde_json::to_vec_pretty(&content)
            .map_err(|e| Error::parse(file.display(), format!("cannot be written: {e}")))?;
        // A reader must see the old list or the new one, never half of one.
        let fresh = file.with_extension("new");
        // Left by one who was killed here and had our id.
        ignore_absent(self.system.remove_file(&fresh))?;
        let written = self.system.create(&fresh, &text);
        let written = written.and_then(|()| self.system.rename(&fresh, &file));
        if written.is_err() {
            let _ = self.system.remove_file(&fresh); // half of one, as on a full disk
        }
        written
    }
}

impl Drop for Journal<'_> {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Undoes, when dropped, what was changed since it was made.
#[derive(Debug)]
pub struct Scope<'j, 's> {
    journal: &'j Journal<'s>,
    mark: usize,
}

impl Scope<'_, '_> {
    /// Undoes now, and says what could not be undone.
    pub fn undo(self) -> Vec<Error> {
        self.journal.undo_to(self.mark)
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        self.journal.undo_to(self.mark);
    }
}

/// What [`restore`] did about the runs that ended without undoing.
#[derive(Debug, Default)]
pub struct Restored {
    /// What was put back, in words.
    pub done: Vec<String>,
    /// What could not be put back; its journal is kept.
    pub failed: Vec<String>,
}

/// Undoes what dead runs left in `directory`; a directory that does not exist holds nothing.
///
/// # Errors
/// Where the directory cannot be read, or somebody else could have written to it: such a
/// journal would have us write to files of their choice.
pub fn restore(system: &dyn System, directory: &Path) -> Result<Restored> {
    let mut restored = Restored::default();
    let names = match system.list(directory) {
        Err(error) if error.is_absent() => return Ok(restored),
        names => names?,
    };
    check_private(system, directory)?;
    for name in names {
        let path = directory.join(&name);
        let result = match name.rsplit_once('.') {
            Some((_, "json")) => restore_one(system, &path, &mut restored),
            // Killed before the list was in force: its change was not made. One that belongs
            // to a run in progress, here or elsewhere, is renamed within a moment.
            Some((run, "new"))
                if run
                    .split('-')
                    .next()
                    .and_then(|pid| pid.parse().ok())
                    .is_some_and(|pid| start_time(system, pid).is_err())
                    && shows_processes(system)
                    && !read(system, &path).is_ok_and(|content| is_elsewhere(system, &content)) =>
            {
                ignore_absent(system.remove_file(&path))
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            restored.failed.push(error.to_string());
        }
    }
    Ok(restored)
}

fn read(system: &dyn System, path: &Path) -> Result<Content> {
    let text = system.read_own(path)?;
    let content: Content =
        serde_json::from_slice(&text).map_err(|e| Error::parse(path.display(), e))?;
    if content.schema == SCHEMA {
        return Ok(content);
    }
    let reason = format!("is of the form '{}', not '{SCHEMA}'", content.schema);
    Err(Error::parse(path.display(), reason))
}

/// Whether its process id says nothing here: it is of another PID namespace.
fn is_elsewhere(system: &dyn System, content: &Content) -> bool {
    content.boot == boot(system) && content.namespace != namespace(system)
}

fn restore_one(system: &dyn System, path: &Path, restored: &mut Restored) -> Result<()> {
    let content = match read(system, path) {
        Err(error) if error.is_absent() => return Ok(()), // its run has just ended
        content => content?,
    };
    let unknown = |before: &str, now: String| !before.is_empty() && now.is_empty();
    if unknown(&content.boot, boot(system)) || unknown(&content.namespace, namespace(system)) {
        let reason = format!(
            "process {} made it and may still run, which nobody can tell without /proc: mount it (mount -t proc proc \
             /proc) and run stopgap restore again",
            content.pid
        );
        return Err(Error::parse(path.display(), reason));
    }
    let same_boot = content.boot == boot(system);
    if is_elsewhere(system, &content) {
        let reason = "its run has another PID namespace, so that we cannot tell whether it lives: \
                      run stopgap restore there; is that gone: remove the file";
        return Err(Error::parse(path.display(), reason));
    }
    let alive = start_time(system, content.pid).is_ok_and(|time| time == content.start_time);
    if same_boot && alive {
        return Ok(());
    }
    let mut all = true;
    for change in content.changes.iter().rev() {
        if !same_boot && change.ends_with_the_boot() {
            continue;
        }
        match undo(system, change) {
            Ok(()) => restored.done.push(change.describe()),
            Err(error) => {
                all = false;
                restored.failed.push(error.to_string());
            }
        }
    }
    if all {
        ignore_absent(system.remove_file(path))?;
    }
    Ok(())
}

fn undo(system: &dyn System, change: &Change) -> Result<()> {
    match change {
        Change::Setting { path, before } => {
            if current(system, path)? == *before {
                return Ok(());
            }
            system.write(path, before.as_bytes())
        }
        Change::Directory { path } => {
            // A cgroup's last process may still be on its way out: they are killed with us,
            // not by us, so wait a little.
            let deadline = system.now() + Nanos::secs(3);
            loop {
                match ignore_absent(system.remove_dir(path)) {
                    Err(error) if error.errno() == Some(libc::EBUSY) && system.now() < deadline => {
                        system.sleep_until(system.now() + Nanos::millis(20));
                    }
                    other => return other,
                }
            }
        }
        Change::TraceInstance { name } => tracefs::remove(system, name),
        Change::File { path } => ignore_absent(system.remove_file(path)),
        Change::Swap { path } => {
            match system.swap(path, false) {
                // Not a swap area (any more): it was never switched on. Nor was it by one who
                // may not; were it in use after all, the kernel would not let it be removed.
                Err(error) if error.is_invalid() || error.is_absent() || error.is_refused() => {}
                other => other?,
            }
            ignore_absent(system.remove_file(path))
        }
    }
}

/// A setting's value: the word in brackets where there is one, else the text.
fn current(system: &dyn System, path: &Path) -> Result<String> {
    let choice = read_choice(system, path);
    match choice {
        Err(Error::Parse { .. }) => read_text(system, path),
        other => other,
    }
}

fn ignore_absent(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_absent() => Ok(()),
        other => other,
    }
}

fn check_private(system: &dyn System, directory: &Path) -> Result<()> {
    if system.is_private(directory)? {
        return Ok(());
    }
    let refused = io::Error::new(
        io::ErrorKind::PermissionDenied,
        "not ours alone (owner, or others may write to it): remove it or mend its mode",
    );
    Err(Error::call("journal in", directory.display(), refused))
}

fn boot(system: &dyn System) -> String {
    read_text(system, "/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Whether `/proc` is there and has processes in it.
fn shows_processes(system: &dyn System) -> bool {
    let names = system.list(Path::new("/proc")).unwrap_or_default();
    names.iter().any(|name| name.parse::<u32>().is_ok())
}

/// Where our process ids mean something; empty where `/proc` does not say.
fn namespace(system: &dyn System) -> String {
    let link = system.link(Path::new("/proc/self/ns/pid"));
    link.map_or(String::new(), |name| name.display().to_string())
}

/// When a running process started, in clock ticks after boot: with the id it names a process
/// for good. One that has ended and was not yet waited for (state Z or X; in a container
/// without an init it stays for ever) runs no more.
fn start_time(files: &(impl Files + ?Sized), pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = read_text(files, &path)?;
    // The name in parentheses may hold anything; the fields follow its last one.
    let mut fields = text
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_whitespace();
    match fields.next() {
        Some("Z" | "X") => Err(Error::parse(&path, "it has ended")),
        _ => fields
            .nth(18)
            .and_then(|time| time.parse().ok())
            .ok_or_else(|| Error::parse(&path, "has no start time")),
    }
}

#[cfg(test)]
mod tests;
