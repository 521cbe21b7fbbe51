use stopgap_events::machine::{Backing, ProcessMappings};
use stopgap_events::units::Nanos;

use super::TOP;
use crate::System;
use crate::error::{Error, Result};
use crate::files::read_lossy;
use crate::notes::Notes;
use crate::proc::maps;

/// Returns what is needed to read another user's process (`ptrace_may_access()`).
fn advice(system: &dyn System) -> &'static str {
    if system.uid() == 0 {
        "refused even to root: by a security module, or CAP_SYS_PTRACE was taken away"
    } else {
        "not allowed: needs root (CAP_SYS_PTRACE)"
    }
}

/// The processes with the most mappings, most first. Lines are counted for every process, but
/// only one that is among the first so far is parsed. No further process is read after
/// `give_up`; a single huge one is read to its end (about 1 us a mapping).
pub(super) fn largest(
    system: &dyn System,
    pids: &[u32],
    give_up: Nanos,
    notes: &mut Notes,
) -> Vec<ProcessMappings> {
    let mut rows: Vec<ProcessMappings> = Vec::new();
    let mut refused = 0;
    let mut odd: Option<Error> = None;
    for (done, &pid) in pids.iter().enumerate() {
        if system.now() >= give_up {
            notes.add(
                format!(
                    "mappings of {} of {} processes",
                    pids.len() - done,
                    pids.len()
                ),
                "the time for it was up; ask about one process",
            );
            break;
        }
        let text = match system.read(format!("/proc/{pid}/maps").as_ref()) {
            Ok(text) => text,
            Err(error) if error.is_ended() => continue,
            Err(error) if error.is_refused() => {
                refused += u32::from(has_memory(system, pid));
                continue;
            }
            Err(error) => {
                odd.get_or_insert(error);
                continue;
            }
        };
        let mappings = maps::count(&text);
        let least = rows.get(TOP - 1).map_or(0, |row| row.mappings);
        if mappings > least {
            rows.push(row(system, pid, &text, notes));
            rows.sort_by_key(|row| std::cmp::Reverse(row.mappings)); // stable: lower pid first
            rows.truncate(TOP);
        }
    }
    if refused > 0 {
        let what = match refused {
            1 => "mappings of 1 process".to_owned(),
            many => format!("mappings of {many} processes"),
        };
        notes.add(what, advice(system));
    }
    if let Some(error) = odd {
        notes.add("mappings of some processes", error.to_string());
    }
    rows
}

/// The mappings of one process; `None`, with a note, where they cannot be read.
pub(super) fn read(system: &dyn System, pid: u32, notes: &mut Notes) -> Option<ProcessMappings> {
    let what = format!("mappings of process {pid}");
    match system.read(format!("/proc/{pid}/maps").as_ref()) {
        Ok(text) => Some(row(system, pid, &text, notes)),
        Err(error) if error.is_refused() => {
            notes.add(what, advice(system));
            None
        }
        Err(error) => {
            notes.add(what, error.to_string());
            None
        }
    }
}

fn row(system: &dyn System, pid: u32, text: &[u8], notes: &mut Notes) -> ProcessMappings {
    let backing: Result<Vec<Backing>> = maps::backings(text, system.page_size(), TOP)
        .map_err(|reason| Error::parse(format!("/proc/{pid}/maps"), reason));
    let name = read_lossy(system, format!("/proc/{pid}/comm"));
    ProcessMappings {
        pid,
        name: name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned()),
        mappings: maps::count(text),
        backing: notes
            .keep(&format!("backing files of process {pid}"), backing)
            .unwrap_or_default(),
    }
}

/// Whether a process has memory of its own: kernel threads have none, and nothing about them
/// is missing when they cannot be read. `statm` is readable by everyone.
fn has_memory(system: &dyn System, pid: u32) -> bool {
    let statm = read_lossy(system, format!("/proc/{pid}/statm"));
    statm.map_or(true, |text| !text.starts_with("0 "))
}
