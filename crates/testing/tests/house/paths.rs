//! Files that ARCHITECTURE.md names are there.

use std::fs;

use crate::root;

#[test]
fn files_that_architecture_names_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let named: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || "`()[],;:".contains(letter))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.contains('/') && (word.ends_with(".rs") || word.ends_with(".md")))
        .collect();
    assert!(named.len() > 15, "only {named:?}");
    let lost: Vec<&&str> = named
        .iter()
        .filter(|path| !root().join(path).exists() && !root().join("crates").join(path).exists())
        .collect();
    assert!(
        lost.is_empty(),
        "ARCHITECTURE.md names files that are not there: {lost:?}"
    );
}

#[test]
fn architecture_is_under_200_lines() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() < 200, "{} lines", text.lines().count());
}
