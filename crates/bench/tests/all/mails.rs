//! `docs/mails.md` and its pages hold what the commands print, and other documents name the command beside a comparison.

use std::path::{Path, PathBuf};

use crate::{said, stopgap_is_missing};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

const MAILS: [&str; 5] = ["000", "001", "002", "003", "004"];
const VERDICTS: [&str; 3] = ["agrees", "differs", "cannot be tested here"];

fn committed(mail: &str) -> String {
    std::fs::read_to_string(docs().join(format!("mails/{mail}.md"))).unwrap()
}

/// A claim on a page: its heading, `001.3 title: verdict`, and what stands below it.
fn claims(page: &str) -> Vec<(&str, &str)> {
    let sections = page.split("\n## ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .collect()
}

fn verdict(heading: &str) -> &str {
    heading.rsplit_once(": ").unwrap().1
}

#[test]
fn pages_agree_with_what_quick_commands_print_now() {
    if stopgap_is_missing() {
        return;
    }
    let (now, status) = said(&["mails", "--quick"]);
    assert_eq!(status, Some(0));
    let mut compared = 0;
    for (heading, text) in claims(&now) {
        let page = committed(&heading[..3]);
        let claims = claims(&page);
        let id = heading.split(' ').next().unwrap();
        let old = claims
            .iter()
            .find(|(old, _)| old.split(' ').next() == Some(id));
        let (old, old_text) = old.unwrap_or_else(|| panic!("docs/mails has no claim {id}"));
        assert_eq!(
            &heading, old,
            "write docs/mails.md anew: stopgap-bench mails"
        );
        // One trial here, several there: what the first one printed stands in both.
        for line in text.lines().filter_map(|line| line.strip_prefix("  * ")) {
            let printed = line.split_once(": ").map_or(line, |(_, printed)| printed);
            assert!(
                old_text.contains(printed),
                "{heading}: now {printed:?}, the page has {old_text}; write docs/mails.md anew: stopgap-bench mails"
            );
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared} claims were compared");
}

#[test]
fn the_pages_are_whole() {
    let pages = MAILS.map(committed);
    let headings: Vec<&str> = pages
        .iter()
        .flat_map(|page| claims(page))
        .map(|(heading, _)| heading)
        .collect();
    assert!(headings.len() >= 60, "{} claims", headings.len());
    for heading in &headings {
        assert!(VERDICTS.contains(&verdict(heading)), "{heading}");
    }
    let agree = headings
        .iter()
        .filter(|h| verdict(h) == VERDICTS[0])
        .count();
    assert!(agree >= 30, "{agree} agree");
    let overview = std::fs::read_to_string(docs().join("mails.md")).unwrap();
    let all = format!("| all | {} | {agree} |", headings.len());
    assert!(
        overview.contains(&all),
        "docs/mails.md does not count {all}"
    );
    for page in &pages {
        let first = page.lines().nth(2).unwrap();
        assert!(
            first.trim_start_matches('*').starts_with("Conclusion "),
            "{first}"
        );
    }
}

/// The paragraphs, tables and code blocks of a document, with their first lines' numbers.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut code) = (vec![(1, String::new())], false);
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() && !code {
            blocks.push((at + 2, String::new()));
            continue;
        }
        code ^= line.starts_with("```");
        let block = &mut blocks.last_mut().unwrap().1;
        *block += line;
        *block += "\n";
    }
    blocks.retain(|(_, block)| !block.is_empty());
    blocks
}

/// Whether a block sets figures of a model beside those of a mail or of a measurement.
fn compares(block: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| block.contains(word));
    let figures = block
        .split("mail 00")
        .map(|part| part.get(1..).unwrap_or(""));
    !block.starts_with("```")
        && has(&["model"])
        && has(&["mail", "measured", " live", "probe"])
        && figures.flat_map(str::chars).any(|c| c.is_ascii_digit())
}

#[test]
fn sentences_that_compare_name_a_command() {
    let folders = [docs(), docs().join("questions"), docs().join("fixes")];
    let mut bare = Vec::new();
    let mut seen = 0;
    for entry in folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
    {
        let path = entry.unwrap().path();
        let written_by_us = path.ends_with("mails.md");
        if written_by_us || path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = blocks(&text);
        for (at, (line, block)) in blocks.iter().enumerate() {
            if !compares(block) {
                continue;
            }
            seen += 1;
            let near = &blocks[at.saturating_sub(1)..(at + 2).min(blocks.len())];
            let named = |(_, block): &(usize, String)| {
                ["stopgap ", "stopgap-bench ", "`--", "mails/"]
                    .iter()
                    .any(|word| block.contains(word))
            };
            if !near.iter().any(named) {
                bare.push(format!("{}:{line}", path.display()));
            }
        }
    }
    assert!(seen >= 5, "{seen} comparisons were found");
    assert!(
        bare.is_empty(),
        "no command beside the comparison in {bare:#?}"
    );
}
