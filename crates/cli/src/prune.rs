//! `stopgap prune`: deletes old records, reports and traces where records go by default. Nothing else deletes any; only `watch`
//! keeps its stalls within a size.
//!
//! A file counts where its name is one that this program gives, its content begins as that program writes it, and it is a regular
//! file of this user. A link is none.

use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;
use stopgap_events::order::SortRows as _;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::folder::Folder;
use stopgap_report::text::{plain, uptime};

use crate::args;
use crate::failure::{DONE, ERROR, Failure};
use crate::session::tell_error;
use crate::{output, places, voice};

/// Commands and what they keep, as the names of files begin.
const KINDS: [&str; 19] = [
    "check",
    "probe-placement",
    "probe-roundtrip",
    "probe-chunks",
    "probe-reclaim",
    "probe-wakeup",
    "replay-placement",
    "replay-roundtrip",
    "replay-chunks",
    "replay-reclaim",
    "advise-chunks",
    "compare",
    "gather",
    "moved",
    "kernels",
    "run-fix",
    "prices",
    "snapshot",
    "trace",
];

/// How much of a file's beginning and end is looked at.
const LOOK: u64 = 64 << 10;

/// A file that stopgap wrote.
pub(crate) struct Kept {
    folder: PathBuf,
    name: std::ffi::OsString,
    pub(crate) length: Bytes,
    /// The time since it was last written to.
    pub(crate) age: Duration,
}

pub(crate) fn run(args: &args::Prune) -> Result<ExitCode, Failure> {
    let limit = Duration::from_nanos(args.older.0);
    let (mut old, mut new) = (Count::default(), Count::default());
    let mut failed = false;
    for folder in places::of_records() {
        let opened = Folder::open(&folder);
        let opened =
            opened.map_err(|error| Failure::error(format!("{}: {error}", folder.display())))?;
        for kept in files(&opened) {
            if kept.age < limit {
                new.add(&kept);
                continue;
            }
            let path = kept.folder.join(&kept.name);
            if !args.dry_run
                && let Err(error) = opened.remove(&kept.name)
            {
                tell_error(&format!("cannot delete {}: {error}", path.display()));
                failed = true;
                continue;
            }
            old.add(&kept);
            if args.dry_run || voice::style().verbose {
                let path = path.display().to_string();
                output::screen(&format!("{}  {}", plain(&path), kept.length))?;
            }
        }
    }
    let done = if args.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    let stay = match new.files {
        0 => "none stay".to_owned(),
        _ => format!("{} newer than {} stay", new.text(), in_days(limit)),
    };
    output::screen(&format!("{done} {}; {stay}", old.text()))?;
    Ok(ExitCode::from(if failed { ERROR } else { DONE }))
}

/// A number of files, and their bytes.
#[derive(Default)]
pub(crate) struct Count {
    files: u64,
    bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, kept: &Kept) {
        self.files += 1;
        self.bytes += kept.length.0;
    }

    pub(crate) fn text(&self) -> String {
        let s = if self.files == 1 { "" } else { "s" };
        format!("{} file{s} ({})", self.files, Bytes(self.bytes))
    }
}

/// Returns the files in `folder` that stopgap wrote.
pub(crate) fn files(folder: &Folder) -> Vec<Kept> {
    let mut names = folder.names();
    names.sort_rows(Ord::cmp);
    names
        .into_iter()
        .filter_map(|name| {
            let ending = ending(&name)?;
            let found = folder.find(&name).ok()??;
            if found.kind != FileType::RegularFile || !found.is_ours() {
                return None;
            }
            let mut file = folder.read(&name).ok()?;
            let about = file.metadata().ok()?;
            has_our_content(ending, &mut file, found.length)
                .ok()?
                .then_some(())?;
            // A time in the future is no age.
            let age = SystemTime::now().duration_since(about.modified().ok()?);
            Some(Kept {
                folder: folder.path().to_owned(),
                name,
                length: Bytes(found.length),
                age: age.unwrap_or_default(),
            })
        })
        .collect()
}

/// Returns the ending of a name that this program gives to a file: `KIND-SECONDS-PID.ENDING`.
fn ending(name: &OsStr) -> Option<&str> {
    let (stem, ending) = name.to_str()?.rsplit_once('.')?;
    let (rest, pid) = stem.rsplit_once('-')?;
    let (kind, seconds) = rest.rsplit_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Snapshots of a probe are named for when they were taken.
    let known = KINDS.contains(&kind) || matches!(kind, "snapshot-before" | "snapshot-after");
    (known && is_number(pid) && is_number(seconds)).then_some(ending)
}

/// Returns whether a file of this ending and length begins, and a trace ends, as stopgap writes it.
fn has_our_content(
    ending: &str,
    file: &mut (impl Read + Seek),
    length: u64,
) -> std::io::Result<bool> {
    let mut look = |from: u64| -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.by_ref().take(LOOK).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let begin = look(0)?;
    Ok(match ending {
        "json" => begin.starts_with(b"{") && has(&begin, b"\"stopgap."),
        "html" => begin.starts_with(b"<!DOCTYPE html>") && has(&begin, b"<title>stopgap"),
        "parquet" => {
            begin.starts_with(b"PAR1")
                && has(&look(length.saturating_sub(LOOK))?, b"stopgap.trace/")
        }
        _ => false,
    })
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns what lies where records go, in words.
pub(crate) fn lies() -> String {
    let mut count = Count::default();
    let mut oldest = Duration::ZERO;
    let folders = places::of_records();
    for kept in folders
        .iter()
        .filter_map(|folder| Folder::open(folder).ok())
        .flat_map(|folder| files(&folder))
    {
        count.add(&kept);
        oldest = oldest.max(kept.age);
    }
    let places: Vec<String> = folders.iter().map(|folder| places::short(folder)).collect();
    match count.files {
        0 => "none".to_owned(),
        _ => format!(
            "{} in {}, the oldest from {} ago; stopgap prune deletes old ones",
            count.text(),
            places.join(" and "),
            match oldest.as_secs() / (24 * 3_600) {
                0 => uptime(oldest.as_secs()),
                _ => in_days(oldest),
            }
        ),
    }
}

fn in_days(age: Duration) -> String {
    match age.as_secs() / (24 * 3_600) {
        0 => Nanos::secs(age.as_secs()).to_string(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn names_are_those_that_commands_give() {
        for (name, of) in [
            ("check-1795353196-14980.json", Some("json")),
            ("check-1795353196-14980.html", Some("html")),
            ("snapshot-before-1795353196-1.json", Some("json")),
            ("trace-1795353196-1.parquet", Some("parquet")),
            ("check-1795353196-.json", None),
            ("check-1795353196-1x.json", None),
            ("check.json", None),
            ("mine-1795353196-1.json", None),
            ("-1795353196-1.json", None),
            ("check-1795353196-1", None),
        ] {
            assert_eq!(ending(OsStr::new(name)), of, "{name}");
        }
        for &question in stopgap_events::question::Question::ALL {
            assert!(KINDS.contains(&&*format!("probe-{question}")), "{question}");
        }
    }

    #[test]
    fn content_is_that_of_a_record() {
        let ours = |ending: &str, content: &str| {
            has_our_content(ending, &mut Cursor::new(content), content.len() as u64).unwrap()
        };
        assert!(ours("json", "{\n  \"schema\": \"stopgap.run/1\",\n"));
        assert!(!ours("json", "{\"schema\": \"another\"}"));
        assert!(!ours("json", ""));
        assert!(ours(
            "html",
            "<!DOCTYPE html>\n<html><title>stopgap: vm</title>"
        ));
        assert!(!ours("html", "<!DOCTYPE html>\n<html><title>mine</title>"));
        let long = "x".repeat(200_000);
        assert!(ours("parquet", &format!("PAR1{long}stopgap.trace/2 PAR1")));
        assert!(!ours(
            "parquet",
            &format!("PAR1 stopgap.trace/2 {long}PAR1")
        ));
        assert!(!ours("txt", "stopgap."));
    }
}
