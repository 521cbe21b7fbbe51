//! The kernel's configuration and what follows from it.

use std::io::Read;

use crate::error::{Error, Result};
use crate::files::{Files, read_text};

/// No configuration is longer (6.18: about 300 KiB).
const LONGEST: u64 = 16 << 20;

/// The text of the kernel's configuration.
#[derive(Debug)]
pub(super) struct Config {
    text: Vec<u8>,
}

/// From `/proc/config.gz`, else from where distributions put it. A file of another kernel
/// cannot be taken for this one's: its name holds the release.
pub(super) fn read(files: &(impl Files + ?Sized), release: Option<&str>) -> Result<Config> {
    let packed = "/proc/config.gz";
    if let Ok(bytes) = files.read(packed.as_ref()) {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice())
            .take(LONGEST)
            .read_to_end(&mut text)
            .map_err(|error| Error::parse(packed, error))?;
        return Ok(Config { text });
    }
    let release = release.unwrap_or("unknown");
    let places = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
    ];
    let found = places
        .iter()
        .find_map(|path| files.read(path.as_ref()).ok());
    let advice = format!(
        "neither {packed} nor {} nor {} can be read",
        places[0], places[1]
    );
    found
        .map(|text| Config { text })
        .ok_or_else(|| Error::unsupported("no configuration", advice))
}

impl Config {
    /// FNV-1a, 64 bits, of the text, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = self.text.iter().fold(0xcbf2_9ce4_8422_2325, step);
        format!("{hash:016x}")
    }

    /// Returns the value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let lines = self.text.split(|&byte| byte == b'\n');
        lines
            .filter_map(|line| std::str::from_utf8(line).ok())
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .map(str::trim)
    }

    /// The preemption model that the kernel was built with, under `PREEMPT_DYNAMIC` the one it
    /// boots with unless told otherwise (`kernel/Kconfig.preempt`).
    fn preemption(&self) -> Option<&'static str> {
        [
            ("CONFIG_PREEMPT_RT", "rt"),
            ("CONFIG_PREEMPT_NONE", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
            ("CONFIG_PREEMPT_LAZY", "lazy"),
            ("CONFIG_PREEMPT", "full"),
        ]
        .into_iter()
        .find_map(|(name, model)| (self.value(name) == Some("y")).then_some(model))
    }
}

/// The preemption model in use: what debugfs says (root), which can be changed at any time;
/// else what the kernel was booted with (`preempt=`); else what it was built with.
pub(super) fn preemption(
    files: &(impl Files + ?Sized),
    command_line: Option<&str>,
    config: Option<&Config>,
) -> Result<String> {
    // `none voluntary (full) lazy`: the one in parentheses (kernel/sched/debug.c).
    if let Ok(text) = read_text(files, "/sys/kernel/debug/sched/preempt") {
        let words = text.split_whitespace();
        let mut chosen = words.filter_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        if let Some(word) = chosen.next() {
            return Ok(word.to_owned());
        }
    }
    let version = read_text(files, "/proc/sys/kernel/version")?;
    let flag = |name: &str| version.split_whitespace().any(|word| word == name);
    if flag("PREEMPT_RT") {
        return Ok("rt".to_owned());
    }
    if flag("PREEMPT_DYNAMIC") {
        let options = command_line.unwrap_or_default().split_whitespace();
        let given = options.filter_map(|word| word.strip_prefix("preempt="));
        let known = |word: &&str| ["none", "voluntary", "full", "lazy"].contains(word);
        if let Some(word) = given.rev().find(known) {
            return Ok(word.to_owned());
        }
    }
    config
        .and_then(Config::preemption)
        .map(str::to_owned)
        .ok_or_else(|| {
            Error::unsupported(
                format!("the kernel's version says only '{version}'"),
                "root sees it where debugfs is mounted, in /sys/kernel/debug/sched/preempt",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config {
            text: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Vectors of the algorithm's authors (draft-eastlake-fnv).
        for (text, hash) in [
            ("", "cbf29ce484222325"),
            ("a", "af63dc4c8601ec8c"),
            ("foobar", "85944171f73967e8"),
        ] {
            assert_eq!(config(text).hash(), hash);
        }
    }

    #[test]
    fn options_are_found_by_their_whole_name() {
        let text =
            "# CONFIG_HZ_100 is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\nCONFIG_PREEMPT_BUILD=y\n";
        assert_eq!(config(text).value("CONFIG_HZ"), Some("250"));
        assert_eq!(config(text).value("CONFIG_HZ_100"), None);
        assert_eq!(config(text).preemption(), None);
        assert_eq!(config("CONFIG_PREEMPT=y\n").preemption(), Some("full"));
        assert_eq!(config("CONFIG_PREEMPT_LAZY=y\n").preemption(), Some("lazy"));
    }
}
