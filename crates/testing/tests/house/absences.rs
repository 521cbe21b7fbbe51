//! Words that must not stand in the product code of a crate: each absence that ARCHITECTURE.md states.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{PURE, root};

/// In these crates no line of product code has one of these words. Files may be excepted.
struct Absence {
    crates: &'static [&'static str],
    words: &'static [&'static str],
    excepted: &'static [&'static str],
}

const ABSENCES: [Absence; 5] = [
    // Pure crates take what they read, and clocks, from their callers.
    Absence {
        crates: &PURE,
        words: &[
            "std::fs",
            "File::open",
            "Instant::now",
            "SystemTime::now",
            "std::process",
            "std::env::var",
            "libc::",
            "rustix::",
        ],
        excepted: &[],
    },
    // Load children are made by fork(2); threads are theirs. The arena's thread watches memory pressure for a locked set, those of
    // `watch` write to a disk that may hang, that of `explain` decodes.
    Absence {
        crates: &[
            "events",
            "trace",
            "placement",
            "chunks",
            "models",
            "stats",
            "explain",
            "report",
            "kernel",
            "capture",
            "tracer",
            "arena",
            "capi",
            "preload",
            "cli",
        ],
        words: &["thread::spawn", "thread::scope", "thread::Builder"],
        excepted: &[
            "arena/src/locked/pressure.rs",
            "arena/src/channel/loom.rs",
            "cli/src/explain/ahead.rs",
            "cli/src/watch/aside.rs",
        ],
    },
    // A probe runs against the fake kernel, too: all that it needs of the system is a method of the seam.
    Absence {
        crates: &["probes"],
        words: &[
            "unsafe",
            "libc::",
            "rustix::",
            "std::fs",
            "std::process::Command",
        ],
        excepted: &[],
    },
    // report calls stats where a picture needs a median; it has no statistics of its own.
    Absence {
        crates: &["report"],
        words: &["fn mean(", "fn quantile(", "len() / 2", ".sqrt()"],
        excepted: &[],
    },
    // stats hands out records; report makes the tables.
    Absence {
        crates: &["stats"],
        words: &["comfy_table", "println!", "eprintln!"],
        excepted: &[],
    },
];

/// Returns the sources below `folder`, without modules of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let of_tests =
            name.trim_end_matches(".rs").ends_with("tests") || name.starts_with("oracle");
        match path.is_dir() {
            _ if of_tests => (),
            true => sources(&path, found),
            false if name.ends_with(".rs") => found.push(path),
            false => (),
        }
    }
}

/// Returns the lines of product code with their numbers: no comment, nothing from the first `#[cfg(test)]` that a module follows.
fn product(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let end = (0..lines.len())
        .find(|&at| {
            lines[at].starts_with("#[cfg(") && lines[at].contains("test") && {
                let next = lines.get(at + 1).unwrap_or(&"");
                next.starts_with("mod ") && next.ends_with('{')
            }
        })
        .unwrap_or(lines.len());
    lines[..end]
        .iter()
        .enumerate()
        .map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
        .collect()
}

#[test]
fn no_crate_has_what_it_must_not_have() {
    let crates = root().join("crates");
    let mut faults = Vec::new();
    let mut files = 0;
    for absence in &ABSENCES {
        for name in absence.crates {
            let mut found = Vec::new();
            sources(&crates.join(name).join("src"), &mut found);
            files += found.len();
            for path in found {
                let short = path.strip_prefix(&crates).unwrap().display().to_string();
                if absence.excepted.contains(&short.as_str()) {
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                for (at, line) in product(&text) {
                    for word in absence.words.iter().filter(|word| line.contains(**word)) {
                        faults.push(format!("{short}:{at}: {word}: {}", line.trim()));
                    }
                }
            }
        }
    }
    assert!(files > 100, "only {files} sources were found");
    assert!(
        faults.is_empty(),
        "ARCHITECTURE.md says that these are absent:\n{}",
        faults.join("\n")
    );
}

#[test]
fn comments_and_tests_are_no_product_code() {
    let text = "let a = 1; // unsafe\n#[cfg(test)]\nmod tests {\nunsafe {}\n}\n";
    assert_eq!(product(text), [(1, "let a = 1; ")]);
}
