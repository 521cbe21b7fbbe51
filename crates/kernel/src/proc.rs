//! Readers for the text files of `/proc` that [`crate::now`] and [`crate::environment`] ask
//! for, a file of `/proc` each. They take the file's content, so that broken content can be
//! tried; an error names the file and the line.
//!
//! `procfs-core` (0.18) serves where its faults do not matter: mounts and cgroups of a process ([`crate::cgroup`]). By hand
//! are, because an unknown field must stay `unknown` alone and an error must name file, line and reason:
//!
//! | file | why not `procfs-core` |
//! |---|---|
//! | status | the whole file is refused for one field that this kernel lacks |
//! | pressure | a short line panics; a line without `full` is an error |
//! | maps | allocates a path for each line; of 60,000 lines two numbers and the most frequent paths are needed |
//! | zoneinfo | not read |
//! | pagetypeinfo | `>100000`, a list that was not counted to its end, is an error |
//! | buddyinfo, vmstat | errors do not name the line |

pub(crate) mod buddyinfo;
pub(crate) mod maps;
pub(crate) mod pagetypeinfo;
pub(crate) mod pressure;
pub(crate) mod vmstat;
pub(crate) mod zoneinfo;

use stopgap_events::units::Bytes;

use crate::error::{Error, Result};
use crate::tasks::Switches;

/// An amount of memory, printed in kB.
pub(crate) fn memory(text: &str, name: &str) -> Option<Bytes> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Returns what follows `name:` on its line, without the white space around it.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.map(str::trim)
}

/// Hands each line to `read`; its reason becomes an error that names `file` and the line.
///
/// # Errors
/// The first one of `read`.
pub(crate) fn each_line<'t>(
    file: &str,
    text: &'t str,
    mut read: impl FnMut(&'t str) -> std::result::Result<(), String>,
) -> Result<()> {
    for (number, line) in (1..).zip(text.lines()) {
        read(line).map_err(|why| Error::parse(file, format!("line {number}: {why}")))?;
    }
    Ok(())
}

/// Returns the fields of a `/proc/PID/stat` from the third, the state, on. The name before may hold blanks and
/// parentheses; the fields begin after the last one (proc_pid_stat(5)).
pub(crate) fn stat_fields(text: &str) -> Vec<&str> {
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_ascii_whitespace().collect()
}

/// What a file says of a zone: node, name, and that.
pub(crate) type OfZone<T> = (u32, String, T);

/// Node, zone and what follows of a line such as `Node 0, zone   Normal   12 7`.
pub(crate) fn zone_of_line(line: &str) -> std::result::Result<(u32, &str, &str), String> {
    let (node, rest) = line
        .split_once(", zone")
        .ok_or_else(|| format!("no zone in '{line}'"))?;
    let node = node.strip_prefix("Node").map(str::trim);
    let node = node.and_then(|node| node.parse().ok());
    let node = node.ok_or_else(|| format!("no node number in '{line}'"))?;
    let rest = rest.trim_start();
    let length = rest.find(|c: char| c == ',' || c.is_whitespace());
    let (name, rest) = rest.split_at(length.unwrap_or(rest.len()));
    if name.is_empty() {
        return Err("no zone name".to_owned());
    }
    Ok((node, name, rest))
}

/// Context switches of a task since it began. `None` where the kernel does not print them.
pub(crate) fn switches_of(status: &str) -> Option<Switches> {
    Some(Switches {
        voluntary: number_of(status, "voluntary_ctxt_switches")?,
        involuntary: number_of(status, "nonvoluntary_ctxt_switches")?,
    })
}

/// A plain number.
pub(crate) fn number_of(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.parse().ok()
}

/// The task's name (`comm`).
pub(crate) fn name_of(status: &str) -> String {
    field(status, "Name").unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tX org\nTgid:\t7\nPid:\t7\nVmLck:\t      12 kB\nVmPin:\tx kB\n\
        voluntary_ctxt_switches:\t151\nnonvoluntary_ctxt_switches:\t12\n";

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let all = switches_of(STATUS).unwrap();
        assert_eq!((all.voluntary, all.involuntary), (151, 12));
        assert_eq!(memory(STATUS, "VmLck"), Some(Bytes::kib(12)));
        assert_eq!(name_of(STATUS), "X org");
    }

    #[test]
    fn what_is_not_there_or_broken_is_unknown() {
        assert_eq!(switches_of("Name:\ta\nvoluntary_ctxt_switches:\t1\n"), None);
        assert_eq!(memory(STATUS, "VmPin"), None);
        assert_eq!(memory(STATUS, "VmSwap"), None);
        let too_much = format!("VmSwap:\t{} kB", u64::MAX);
        assert_eq!(memory(&too_much, "VmSwap"), None);
    }
}
