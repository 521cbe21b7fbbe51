//! stress-ng's stressors of mappings, with their own verification, a fixed number of steps each.

use crate::preload_soak::place::{Place, finish, which};
use crate::preload_soak::programs::Program;

/// Some stressors.
pub(super) struct Stressor {
    name: &'static str,
    words: &'static [&'static str],
    /// What stands for it where this stress-ng does not know its first word.
    instead: Option<&'static [&'static str]>,
}

pub(super) const MMAP: Stressor = Stressor {
    name: "stress-ng-mmap",
    words: &[
        "--mmap",
        "1",
        "--mmap-ops",
        "8",
        "--mmap-bytes",
        "32m",
        "--verify",
    ],
    instead: None,
};

/// Debian 12's 0.15.06 has none.
pub(super) const VMA: Stressor = Stressor {
    name: "stress-ng-vma",
    words: &["--vma", "1", "--vma-ops", "20000", "--verify"],
    instead: Some(&[
        "--mmapaddr",
        "1",
        "--mmapaddr-ops",
        "20000",
        "--mmapfixed",
        "1",
        "--mmapfixed-ops",
        "100",
        "--mremap",
        "1",
        "--mremap-ops",
        "60",
        "--mremap-bytes",
        "8m",
        "--verify",
    ]),
};

pub(super) const MMAPMANY: Stressor = Stressor {
    name: "stress-ng-mmapmany",
    words: &["--mmapmany", "1", "--mmapmany-ops", "60000", "--verify"],
    instead: None,
};

impl Stressor {
    /// The words for the stress-ng that is here, and whether they stand for others.
    fn words(&self) -> (&'static [&'static str], bool) {
        let known = |word: &str| {
            let path = which("stress-ng")?;
            let help = std::process::Command::new(path)
                .arg("--help")
                .output()
                .ok()?;
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            Some(help.split_whitespace().any(|other| other == word))
        };
        match (self.instead, self.words.first()) {
            (Some(instead), Some(first)) if known(first) == Some(false) => (instead, true),
            _ => (self.words, false),
        }
    }
}

impl Program for Stressor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packages(&self) -> &'static str {
        "stress-ng"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["stress-ng"]
    }

    fn remark(&self) -> Option<String> {
        let (words, instead) = self.words();
        let named = words
            .iter()
            .filter(|word| word.starts_with("--m") && !word.contains("-ops"));
        let named: Vec<&str> = named
            .filter(|word| !word.ends_with("-bytes"))
            .copied()
            .collect();
        instead.then(|| {
            format!(
                "this stress-ng has no --vma: {} stand for it",
                named.join(", ")
            )
        })
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let mut command = place.command("stress-ng");
        command.args(self.words().0).args(["--timeout", "100"]);
        command.args(["--temp-path".as_ref(), place.run().as_os_str()]);
        let said = finish(command, &place.run())?.both();
        match said.contains("successful run completed") && !said.contains("fail:") {
            true => Ok(()),
            false => Err(format!("stress-ng: {}", said.trim())),
        }
    }
}
