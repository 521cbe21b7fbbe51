//! Merges files of a time that is over into one with fewer rows, and removes what is too old or too much. In a process of its own at the
//! lowest priority; it holds the rows of one step.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{FlockOperation, flock};
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_stats::history::Key;
use stopgap_trace::{Metadata, Text};

use super::files::{self, ID, MADE_OF, MOST, Name};
use super::keep::{PARTIAL, Writer};
use super::rows::{self, Row};
use crate::failure::{DONE, ERROR, Failure};
use crate::session::{tell, tell_error};

/// The file whose lock says who thins.
const LOCK: &str = ".thin";

/// Thins the history in the folder `path`.
pub(in crate::watch) fn thin(path: &Path) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::error(format!(
            "the history in {} cannot be thinned: {error}",
            path.display()
        ))
    };
    if let Err(error) = Linux.be_nice() {
        tell(&format!(
            "the history is thinned at ordinary priority: {error}"
        ));
    }
    let folder = Folder::open(path).map_err(failed)?;
    if folder.find(LOCK.as_ref()).map_err(failed)?.is_none() {
        let _ = folder.create(LOCK.as_ref(), 0o600); // where another was first, its file will do
    }
    let lock = folder.read(LOCK.as_ref()).map_err(failed)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(ExitCode::from(DONE)); // another process does it
    }
    let whole = thin_at(&folder, Linux.unix_seconds(), MOST);
    Ok(ExitCode::from(if whole { DONE } else { ERROR }))
}

/// Thins what is due at a time, and bounds the bytes. Returns whether nothing failed.
pub(super) fn thin_at(folder: &Folder, now_s: u64, most: Bytes) -> bool {
    let mut whole = true;
    let mut told = |what: &dyn std::fmt::Display, why: &dyn std::fmt::Display| {
        tell_error(&format!("history: {what}: {why}"));
        whole = false;
    };
    // Files of a process that was killed.
    for name in folder.names() {
        let shown = name.to_string_lossy();
        if shown.starts_with('.') && shown.ends_with(PARTIAL) && !shown.starts_with(".part-") {
            let _ = folder.remove(&name);
        }
    }
    let all = files::names(folder);
    let (names, _) = files::not_merged(folder, all.clone());
    for merged in all.iter().filter(|name| !names.contains(name)) {
        if let Err(error) = folder.remove(&merged.os()) {
            told(merged, &error);
        }
    }
    let (merges, gone) = files::due(&names, now_s);
    for (into, of) in merges {
        match merge(folder, &into, &of) {
            Ok(merged) => {
                for name in merged {
                    if let Err(error) = folder.remove(&name.os()) {
                        told(&name, &error);
                    }
                }
            }
            Err(why) => told(&into, &why),
        }
    }
    for name in gone {
        if let Err(error) = folder.remove(&name.os()) {
            told(&name, &error);
        }
    }
    match bound(folder, most) {
        Ok(0) => {}
        Ok(count) => tell(&format!(
            "history: {count} of the oldest files removed: all take {most} at most"
        )),
        Err(error) => told(&"bound", &error),
    }
    whole
}

/// Writes the rows of `of` into a new file. Returns those that are in it: what cannot be read, or is of another machine, stays.
fn merge(folder: &Folder, into: &Name, of: &[Name]) -> Result<Vec<Name>, String> {
    let (mut merged, mut ids) = (Vec::new(), Vec::<String>::new());
    let mut metadata: Option<Metadata> = None;
    for name in of {
        let Ok(found) = rows::metadata(folder, name) else {
            continue;
        };
        if metadata
            .as_ref()
            .is_none_or(|first| first.host == found.host)
        {
            merged.push(name.clone());
            ids.extend(found.labels.get(ID).cloned());
            metadata.get_or_insert(found);
        }
    }
    let Some(mut metadata) = metadata else {
        return Ok(Vec::new());
    };
    let step = into.level.step().0;
    let mut writer = Writer::new(folder, into).map_err(|error| error.to_string())?;
    let mut window = Window::default();
    let mut failed = None;
    let mut written = |rows: Vec<Row>| {
        for row in rows {
            if let Err(error) = writer.put(row) {
                failed.get_or_insert(error.to_string());
            }
        }
    };
    for name in &merged {
        let read = rows::read(folder, name, |row| match row.begin.checked_div(step) {
            None => written(vec![row]),
            Some(number) => {
                if number != window.number {
                    written(std::mem::take(&mut window).into_rows());
                    window.number = number;
                }
                window.add(row);
            }
        });
        // Its footer was right, and its rows up to here are in the new file: what is behind is lost anyway.
        if let Err(why) = read {
            tell_error(&format!("history: {name}: {why}"));
        }
    }
    written(window.into_rows());
    if let Some(why) = failed {
        return Err(why);
    }
    metadata.labels.insert(MADE_OF.to_owned(), ids.join(" "));
    writer
        .finish(&metadata)
        .map_err(|error| error.to_string())?;
    Ok(merged)
}

/// Rows of one step.
#[derive(Debug, Default)]
struct Window {
    number: u64,
    rows: BTreeMap<(Option<Text>, Key), Row>,
}

impl Window {
    fn add(&mut self, row: Row) {
        match self.rows.get_mut(&(row.boot.clone(), row.key.clone())) {
            Some(there) => {
                there.begin = there.begin.min(row.begin);
                if row.end >= there.end {
                    (there.end, there.uptime) = (row.end, row.uptime);
                }
                there.sum.add(&row.sum);
            }
            None => drop(self.rows.insert((row.boot.clone(), row.key.clone()), row)),
        }
    }

    /// All rows of a step have the same time, that of the step's first and last moment.
    fn into_rows(self) -> Vec<Row> {
        let begin = self.rows.values().map(|row| row.begin).min().unwrap_or(0);
        let last = self.rows.values().max_by_key(|row| row.end);
        let (end, uptime) = last.map_or((0, None), |row| (row.end, row.uptime));
        let rows = self.rows.into_values().map(|row| Row {
            begin,
            end,
            uptime: if row.end == end { uptime } else { row.uptime },
            ..row
        });
        rows.collect()
    }
}

/// Removes the oldest files until the others take no more than `most`. Returns how many.
fn bound(folder: &Folder, most: Bytes) -> std::io::Result<usize> {
    let mut sizes = Vec::new();
    for name in files::names(folder) {
        let found = folder.find(&name.os())?;
        sizes.push((found.map_or(0, |found| found.length), name));
    }
    let mut sum: u64 = sizes.iter().map(|(length, _)| length).sum();
    let mut removed = 0;
    for (length, name) in sizes {
        if sum <= most.0 {
            break;
        }
        folder.remove(&name.os())?;
        sum -= length;
        removed += 1;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
