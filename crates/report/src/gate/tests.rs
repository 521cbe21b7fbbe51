//! Each form is read back by its reader or its grammar, with names that try to break out of it.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_stats::compare::{Comparison, Options, Run, Side, Word, compare};

use super::{annotations, junit, ktap, openmetrics};

const HOSTILE: &str = "a#b \"c\" <d> & 'e' \\ %f,g:h\n::error::i\u{1b}[31m ]]> \u{fffe}";

/// Sides of 12 runs: one number becomes `effect` times as large, another is noise, one is on one side only.
fn comparison(effect: f64) -> Comparison {
    let side = |name: &str, effect: f64| Side {
        name: name.to_owned(),
        runs: (0..12u32)
            .map(|run| {
                let jitter = 1.0 + f64::from(run * 7 % 12) / 100.0;
                let wild = 1.0 + f64::from(run * 5 % 12);
                let mut one = Run::new(format!("{run}"));
                one.numbers.insert(HOSTILE.to_owned(), effect * jitter);
                one.numbers.insert("noise".to_owned(), wild);
                if run < 3 && effect > 1.0 {
                    one.numbers.insert("some have it".to_owned(), 1.0);
                }
                one
            })
            .collect(),
    };
    let options = Options {
        number_unit: "ms".to_owned(),
        permutations: 999,
        resamples: 200,
        ..Options::default()
    };
    let mut comparison = compare(&side(HOSTILE, 1.0), &side("after", effect), &options);
    comparison.warnings.push(format!("hostile: {HOSTILE}"));
    comparison
}

fn nothing() -> Comparison {
    compare(&Side::default(), &Side::default(), &Options::default())
}

/// `<result> <number> [<description>][ # [<directive>] [<diagnostic data>]]`.
fn result(line: &str) -> (bool, usize, &str, &str) {
    let (ok, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ").expect(line)),
    };
    let (number, rest) = rest.split_once(' ').expect(line);
    let (name, data) = rest.split_once(" # ").expect(line);
    assert!(!name.contains('#'), "{line}");
    (ok, number.parse().expect(line), name, data)
}

#[test]
fn ktap_follows_its_grammar() {
    for (effect, ok, skipped) in [(1.5, false, false), (0.5, true, false), (1.0, true, true)] {
        let comparison = comparison(effect);
        let text = ktap(&comparison);
        let mut lines = text.lines().filter(|line| !line.starts_with("# "));
        assert_eq!(lines.next(), Some("KTAP version 1"));
        assert_eq!(lines.next(), Some("1..1"));
        let nested: Vec<&str> = lines
            .by_ref()
            .map_while(|line| line.strip_prefix("  "))
            .collect();
        let rows = comparison.endpoints.len();
        assert_eq!(nested[..2], ["KTAP version 1", "# Subtest: compare"]);
        assert_eq!(nested[2], format!("1..{rows}"));
        assert_eq!(nested.len(), 3 + rows);
        for (number, line) in (1..).zip(&nested[3..]) {
            assert_eq!(result(line).1, number);
        }
        // `by_ref` took the line after the nested ones.
        let last = text.lines().last().expect("a result");
        let (was_ok, number, name, data) = result(last);
        assert_eq!((was_ok, number, name), (ok, 1, "compare"), "{text}");
        assert_eq!(data.starts_with("SKIP "), skipped, "{text}");
        assert_eq!(
            text.lines().count(),
            3 + 3 + rows + comparison.warnings.len()
        );
    }
    assert!(
        ktap(&nothing())
            .ends_with("ok 1 compare # SKIP inconclusive: there is nothing to compare\n")
    );
}

#[test]
fn junit_is_read_by_an_xml_reader() {
    for (effect, bad) in [(1.5, true), (0.5, false), (1.0, false)] {
        let comparison = comparison(effect);
        let text = junit(&comparison);
        let document = roxmltree::Document::parse(&text).expect(&text);
        let of = |name: &str| -> Vec<roxmltree::Node<'_, '_>> {
            let all = document.descendants();
            all.filter(|node| node.has_tag_name(name)).collect()
        };
        let suite = of("testsuite")[0];
        let count = |name| suite.attribute(name).and_then(|n| n.parse().ok());
        assert_eq!(count("tests"), Some(of("testcase").len()));
        assert_eq!(count("failures"), Some(of("failure").len()));
        assert_eq!(count("skipped"), Some(of("skipped").len()));
        assert_eq!(of("testcase").len(), comparison.endpoints.len() + 1);
        let verdict = of("testcase").into_iter().last().expect("the verdict");
        assert_eq!(verdict.attribute("name"), Some("verdict"));
        let failed =
            |node: roxmltree::Node<'_, '_>| node.children().any(|c| c.has_tag_name("failure"));
        assert_eq!(failed(verdict), bad);
        // The reader gets the hostile text back; characters that XML cannot hold come escaped.
        let shown = crate::text::plain(HOSTILE).replace('\u{fffe}', "\\u{fffe}");
        let before = of("property")[0].attribute("value");
        assert_eq!(before, Some(&*shown));
        assert!(
            of("testcase")
                .iter()
                .any(|case| case.attribute("name") == Some(&*shown))
        );
    }
    assert!(roxmltree::Document::parse(&junit(&nothing())).is_ok());
}

#[test]
fn annotations_are_a_line_each() {
    for (effect, level) in [(1.5, "error"), (0.5, "notice"), (1.0, "warning")] {
        let comparison = comparison(effect);
        let text = annotations(&comparison);
        for line in text.lines() {
            let (head, message) = line
                .strip_prefix("::")
                .and_then(|rest| rest.split_once("::"))
                .expect(line);
            let (level, title) = head.split_once(" title=").expect(line);
            assert!(["error", "warning", "notice"].contains(&level), "{line}");
            assert!(!title.contains([':', ',']), "{line}");
            assert!(!message.contains('\u{1b}'), "{line}");
            for text in [title, message] {
                let mut after = text.split('%').skip(1);
                assert!(
                    after.all(|rest| ["25", "3A", "2C"].contains(&&rest[..2])),
                    "{line}"
                );
            }
        }
        let last = text.lines().last().expect("a verdict");
        assert!(
            last.starts_with(&format!("::{level} title=stopgap compare::")),
            "{last}"
        );
        let errors = text
            .lines()
            .filter(|line| line.starts_with("::error"))
            .count();
        assert_eq!(errors, if effect > 1.0 { 3 } else { 0 }, "{text}");
    }
}

/// Name, labels, value of a sample line.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (name, rest) = line.split_once('{').expect(line);
    let mut labels = BTreeMap::new();
    let mut chars = rest.chars();
    loop {
        let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
        assert!(label.chars().all(|c| c.is_ascii_lowercase()), "{line}");
        assert_eq!(chars.next(), Some('"'), "{line}");
        let mut value = String::new();
        loop {
            match chars.next().expect(line) {
                '"' => break,
                '\\' => value.push(match chars.next().expect(line) {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    c => panic!("\\{c} in {line}"),
                }),
                c => value.push(c),
            }
        }
        assert!(labels.insert(label, value).is_none(), "{line}");
        match chars.next().expect(line) {
            ',' => {}
            '}' => break,
            c => panic!("{c} in {line}"),
        }
    }
    let value = chars.as_str().strip_prefix(' ').expect(line);
    (name.to_owned(), labels, value.parse().expect(line))
}

#[test]
fn openmetrics_follows_its_rules() {
    for comparison in [comparison(1.5), comparison(1.0), nothing()] {
        let text = openmetrics(&comparison, "gate");
        let body = text.strip_suffix("# EOF\n").expect("an end");
        let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut family = String::new();
        for line in body.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ');
                let (kind, name) = (words.next(), words.next().expect(line));
                match kind {
                    Some("TYPE") => {
                        assert_eq!(words.next(), Some("gauge"));
                        // All of a family stand together.
                        assert!(families.insert(name.to_owned()), "{line}");
                        name.clone_into(&mut family);
                    }
                    // A unit is the end of its metric's name.
                    Some("UNIT") => {
                        assert!(name.ends_with(&format!("_{}", words.next().expect(line))));
                    }
                    Some("HELP") => assert_eq!(name, family),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (name, labels, value) = sample(line);
            assert_eq!(name, family, "{line}");
            assert_eq!(labels["comparison"], "gate");
            // Names that change from run to run would make a new series each time.
            let named = labels.get("before").map(String::as_str);
            let own = (name == "stopgap_compare_info").then_some(&*comparison.before.name);
            assert_eq!(named, own, "{line}");
            assert!(!value.is_nan(), "{line}");
            assert!(seen.insert((name, labels)), "twice: {line}");
        }
        assert!(families.contains("stopgap_compare_verdict"));
        let holds =
            |line: &&str| line.starts_with("stopgap_compare_verdict") && line.ends_with(" 1");
        let words: Vec<_> = body.lines().filter(holds).map(sample).collect();
        assert_eq!(words.len(), 1);
        assert_eq!(words[0].1["word"], comparison.verdict.word.to_string());
    }
    // Milliseconds come as seconds.
    let text = openmetrics(&comparison(1.5), "gate");
    let level = text.lines().find(|line| {
        line.starts_with("stopgap_compare_level_seconds") && line.contains("side=\"after\"")
    });
    let (_, _, value) = sample(level.expect("a level"));
    assert!((0.0015..0.0017).contains(&value), "{value}");
    assert_eq!(comparison(1.5).verdict.word, Word::Regression);
}
