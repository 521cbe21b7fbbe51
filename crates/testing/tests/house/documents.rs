//! The documents for readers: short, and their links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// Returns the Markdown files in a folder and below it, without links to others.
fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            markdown(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// Returns a document without its blocks of code.
fn prose(text: &str) -> String {
    let mut code = false;
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    let lines: Vec<&str> = text.lines().filter(is_prose).collect();
    lines.join("\n")
}

/// Returns the anchors that GitHub makes of a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the targets of a document's links.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut found = Vec::new();
    markdown(root(), &mut found);
    let (mut lost, mut followed) = (Vec::new(), 0);
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            followed += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                _ => path.parent().unwrap().join(file),
            };
            let there = target.exists()
                && (heading.is_empty()
                    || anchors(&fs::read_to_string(&target).unwrap()).contains(heading));
            if !there {
                lost.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(followed > 100, "{followed} links");
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Pages that commands write, and schemas, do not count.
#[test]
fn the_documents_are_short() {
    let generated = ["mails", "mails.md", "model-live.md", "schema", "screens"];
    let docs = root().join("docs");
    let mut found = Vec::new();
    markdown(&docs, &mut found);
    found.retain(|path| {
        !generated
            .iter()
            .any(|name| path.starts_with(docs.join(name)))
    });
    let words = |path: &PathBuf| fs::read_to_string(path).unwrap().split_whitespace().count();
    let all: usize = found.iter().map(words).sum();
    assert!((1_000..=25_000).contains(&all), "{all} words in {found:#?}");
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.lines().count() <= 120,
        "README.md: {} lines",
        readme.lines().count()
    );
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# A `b c`: d-e?\n```sh\n# no\n```\n## Two  words\n";
    let expected = BTreeSet::from(["a-b-c-d-e".to_owned(), "two--words".to_owned()]);
    assert_eq!(anchors(text), expected);
    assert_eq!(links("[a](b.md#c) `x`\n```\n[d](e)\n```\n"), ["b.md#c"]);
}
