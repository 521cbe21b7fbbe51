//! Readers for the text files of `/proc` that [`crate::now`] and [`crate::environment`] ask
//! for, a file of `/proc` each. They take the file's content, so that broken content can be
//! tried; an error names the file and the line.
//!
//! `procfs-core` reads most of these files too, but it ends the program on a short line (its
//! pressure records) or refuses the whole file for one field that this kernel lacks (its
//! status), and what cannot be read must here be `unknown` field by field.

pub(crate) mod buddyinfo;
pub(crate) mod maps;
pub(crate) mod pagetypeinfo;
pub(crate) mod pressure;
pub(crate) mod status;
pub(crate) mod vmstat;
pub(crate) mod zoneinfo;

use stopgap_events::units::Bytes;

/// An amount of memory, printed in kB.
pub(crate) fn memory(text: &str, name: &str) -> Option<Bytes> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// What follows `name:` on its line, without the white space around it.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.map(str::trim)
}

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
