//! Names of counters: [`NAMES`] and the table in `docs/trace.md` are held against each other.

pub(super) const MAPPINGS: &str = "mappings";
pub(super) const MINOR_FAULTS: &str = "minor faults";
pub(super) const MAJOR_FAULTS: &str = "major faults";
pub(super) const RESIDENT: &str = "resident bytes";
pub(super) const VOLUNTARY: &str = "voluntary switches";
pub(super) const INVOLUNTARY: &str = "involuntary switches";

/// A resource's pressure: its name, and its counters of `some` and `full`.
pub(super) const PRESSURE: [(&str, &str, &str); 3] = [
    ("cpu", "cpu pressure some us", "cpu pressure full us"),
    (
        "memory",
        "memory pressure some us",
        "memory pressure full us",
    ),
    ("io", "io pressure some us", "io pressure full us"),
];

pub(crate) const RUSAGE_VOLUNTARY: &str = "rusage voluntary switches";
pub(crate) const RUSAGE_INVOLUNTARY: &str = "rusage involuntary switches";
pub(super) const RUSAGE_MINOR_FAULTS: &str = "rusage minor faults";
pub(super) const RUSAGE_MAJOR_FAULTS: &str = "rusage major faults";
pub(super) const RUSAGE_RESIDENT: &str = "rusage most resident bytes";
pub(super) const RUSAGE_USER: &str = "rusage user ns";
pub(super) const RUSAGE_SYSTEM: &str = "rusage system ns";

/// All names.
pub const NAMES: [&str; 19] = [
    MAPPINGS,
    MINOR_FAULTS,
    MAJOR_FAULTS,
    RESIDENT,
    VOLUNTARY,
    INVOLUNTARY,
    PRESSURE[0].1,
    PRESSURE[0].2,
    PRESSURE[1].1,
    PRESSURE[1].2,
    PRESSURE[2].1,
    PRESSURE[2].2,
    RUSAGE_VOLUNTARY,
    RUSAGE_INVOLUNTARY,
    RUSAGE_MINOR_FAULTS,
    RUSAGE_MAJOR_FAULTS,
    RUSAGE_RESIDENT,
    RUSAGE_USER,
    RUSAGE_SYSTEM,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_each_name_and_no_other() {
        let text = include_str!("../../../../docs/trace.md");
        let (_, section) = text.split_once("## Counters\n").expect("a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let names: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('|').next())
            .flat_map(|cell| cell.split('`').step_by(2))
            .filter(|name| !name.trim().is_empty())
            .collect();
        assert_eq!(names, NAMES);
    }
}
