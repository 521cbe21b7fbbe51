//! The crates depend on each other as the table in ARCHITECTURE.md says, and on nothing else of ours.

use std::collections::{BTreeMap, BTreeSet};

use crate::{PURE, root};

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The last and the first column of the table under `## Crates`.
fn documented() -> Arrows {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once("\n## Crates\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| crate "))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let allowed = cells[2].split(", ").filter(|word| !word.is_empty());
            (cells[0].to_owned(), allowed.map(str::to_owned).collect())
        })
        .collect()
}

/// Arrows between our own crates, test dependencies left out.
fn actual() -> Arrows {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".to_owned()])
        .exec()
        .unwrap();
    let short = |name: &str| name.strip_prefix("stopgap-").map(str::to_owned);
    metadata
        .packages
        .iter()
        .filter_map(|package| {
            let ours = package
                .dependencies
                .iter()
                .filter(|d| d.kind != cargo_metadata::DependencyKind::Development)
                .filter_map(|dependency| short(&dependency.name))
                .collect();
            Some((short(package.name.as_ref())?, ours))
        })
        .collect()
}

#[test]
fn crates_depend_only_as_documented() {
    let (documented, actual) = (documented(), actual());
    assert!(documented.len() > 3, "the table was not found");
    for (name, uses) in &actual {
        let allowed = documented
            .get(name)
            .unwrap_or_else(|| panic!("crate {name} is not in ARCHITECTURE.md's table"));
        let forbidden: Vec<_> = uses.difference(allowed).collect();
        assert!(
            forbidden.is_empty(),
            "{name} must not depend on {forbidden:?}"
        );
    }
    for name in documented.keys() {
        assert!(actual.contains_key(name), "crate {name} does not exist");
    }
}

#[test]
fn pure_crates_reach_no_system() {
    let actual = actual();
    for pure in PURE {
        let mut reached = BTreeSet::new();
        let mut open = vec![pure.to_owned()];
        while let Some(name) = open.pop() {
            if reached.insert(name.clone()) {
                open.extend(actual[&name].iter().cloned());
            }
        }
        for impure in ["kernel", "tracer", "probes", "arena"] {
            assert!(!reached.contains(impure), "{pure} reaches {impure}");
        }
    }
}
