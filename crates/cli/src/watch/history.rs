//! The history: waits that the kernel counts, read every ten seconds, kept for 30 days, and shown.
//!
//! ```text
//! kernel --every 10 s--> part-DAY-TIME --each hour--> hour-DAY-HH --after a day--> day-DAY --after a week--> old-DAY --after 30 days--> gone
//!                        rows of 10 s                 10 s                         1 min                     10 min
//! ```
//!
//! | module | what |
//! |---|---|
//! | `keep` | the rows of ten seconds into a file |
//! | `files` | names, times and bounds of the files |
//! | `rows` | a row as an event of a trace, and back |
//! | `thin` | files of a time that is over into one of fewer rows |
//!
//! Each file is a trace of rows of kind `waits`, complete when it has its name. Days are those of UTC.

mod files;
mod keep;
mod rows;
mod thin;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::LocalTime;
use stopgap_report::history::screen;
use stopgap_report::html::{self, Source};
use stopgap_stats::document::Document as _;
use stopgap_stats::history::{Adder, Document, SCHEMA, Unread};

use crate::failure::{CANNOT_TELL, DONE, Failure};
use crate::voice::style;
use crate::{args, input_file, output, places, report};
use files::Name;
pub(super) use keep::Keeper;
pub(super) use thin::thin;

/// The folder of the files, in the directory of the stalls.
pub(super) const FOLDER: &str = "history";

/// Prints what happened in the last `back`.
pub(super) fn show(args: &args::Watch, back: Nanos) -> Result<ExitCode, Failure> {
    let path = match &args.output {
        Some(directory) => directory.join(FOLDER),
        None => places::would_be(None).join("watch").join(FOLDER),
    };
    let to = Linux.unix_seconds().saturating_mul(1_000_000_000);
    let from = to.saturating_sub(back.0);
    let (adder, hosts, unread) = read(&path, from, to)?;
    let document = Document {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        history: adder.finish(hosts, unread),
    };
    let history = &document.history;
    // With the date where the time of day is not enough.
    let days = history.to_unix_s.saturating_sub(history.from_unix_s) > 20 * 3_600;
    let clock = |unix_s: u64| match LocalTime::at(unix_s) {
        None => unix_s.to_string(),
        Some(at) if days => format!(
            "{:04}-{:02}-{:02} {:02}:{:02}",
            at.year, at.month, at.day, at.hour, at.minute
        ),
        Some(at) => at.clock(),
    };
    if args.json {
        output::print(&document.to_json())?;
    } else if let Some(place) = &args.html {
        let [from, to] = [history.from_unix_s, history.to_unix_s].map(clock);
        let source = Source {
            name: format!("{from} to {to}"),
            document: html::Document::History(Box::new(document.clone())),
        };
        report::put(place, &html::page(&[source]))?;
    } else {
        output::screen(screen(history, &clock, style()).trim_end())?;
    }
    let known = !history.causes.is_empty();
    Ok(ExitCode::from(if known { DONE } else { CANNOT_TELL }))
}

/// Adds up the files' rows between two times.
fn read(
    path: &Path,
    from: u64,
    to: u64,
) -> Result<(Adder, BTreeSet<String>, Vec<Unread>), Failure> {
    let folder = open(path)?;
    let (mut adder, mut hosts, mut unread) = (Adder::new(from, to), BTreeSet::new(), Vec::new());
    let names = files::names(&folder);
    let (names, wrong) = files::not_merged(&folder, names);
    let mut told = |name: &Name, why: String| {
        unread.push(Unread {
            file: name.to_string(),
            why,
        });
    };
    for name in names
        .iter()
        .filter(|name| name.end_s().saturating_mul(1_000_000_000) > from)
    {
        input_file::stop_if_interrupted().map_err(|error| Failure::error(error.to_string()))?;
        if let Some(why) = wrong.get(name) {
            told(name, why.clone());
            continue;
        }
        let host = rows::read(&folder, name, |row| {
            let window = (row.begin, row.end);
            adder.add(window, row.boot.as_deref(), row.key, &row.sum);
        });
        match host {
            Ok(host) => hosts.extend(host),
            Err(why) => told(name, why),
        }
    }
    Ok((adder, hosts, unread))
}

/// Opens the folder of a history that must be there.
fn open(path: &Path) -> Result<Folder, Failure> {
    let shown = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    // A user who may not list a folder can still open it.
    let opened = std::fs::read_dir(path).and_then(|_| Folder::open(path));
    opened.map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "no watch has kept one in {}; start `stopgap watch`, or name its directory with -o (a service's is /var/lib/stopgap/watch)",
                shown.display()
            ),
            std::io::ErrorKind::PermissionDenied => {
                "run it as the user of the watch, mostly root".to_owned()
            }
            _ => "name the watch's directory with -o".to_owned(),
        };
        Failure::error(format!("no history: cannot open {}: {error}; {advice}", path.display()))
    })
}
