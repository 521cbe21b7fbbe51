//! `stopgap replay QUESTION`: what if. Each question says which rows there are and how one is carried out; the rest is
//! the same for all.

pub(crate) mod chunks;
mod measured;
mod memory_events;
pub(crate) mod placement;
pub(crate) mod reclaim;
pub(crate) mod roundtrip;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use stopgap_events::question::Question;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_report::replay as tables;
use stopgap_report::text::plain;
use stopgap_stats::document::Document;
use stopgap_stats::replay::Replay;

use crate::args::Place;
use crate::failure::Failure;
use crate::output::Printed;
use crate::{output, progress, session, voice};

pub use placement::run as placement;

pub use crate::args::{ReplayPlacement as Flags, count};

/// Where and when a command writes its record.
pub(crate) struct Destination {
    /// `None`: no record is wanted.
    directory: Option<PathBuf>,
    /// When the command began, in seconds since 1970.
    started: u64,
    json: bool,
}

impl Destination {
    /// Finds the directory for the record, before any work is done.
    pub(crate) fn new(place: &Place, json: bool) -> Result<Destination, Failure> {
        Ok(Destination {
            directory: place.directory()?,
            started: Linux.unix_seconds(),
            json,
        })
    }

    /// Writes the record `text` and prints it, or `screen` of it.
    pub(crate) fn write(
        &self,
        what: &str,
        text: &str,
        screen: impl FnOnce() -> String,
    ) -> Result<ExitCode, Failure> {
        let name = output::name(what, self.started);
        let (directory, printed) = (self.directory.as_deref(), Printed::with(self.json));
        output::document(text, &name, directory, printed, |place| {
            let place = place.map(|place| format!("record {}\n", plain(place)));
            screen() + &place.unwrap_or_default()
        })
    }

    fn replay(&self, replay: &Replay) -> Result<ExitCode, Failure> {
        let what = format!("replay-{}", replay.question);
        self.write(&what, &replay.to_json(), || {
            tables::screen(replay, voice::style())
        })
    }
}

/// Returns a record of this command without rows.
fn record(question: Question) -> Replay {
    Replay::new(question, env!("CARGO_PKG_VERSION"), session::command())
}

/// Carries out each of `items` in turn, with a progress bar, until Ctrl-C. `row` gives the rows of an item; it may tell
/// what share of the item is done. Fails where no item gave a row.
fn rows<I, R>(
    items: &[I],
    title: impl Fn(&I) -> String,
    mut row: impl FnMut(&I, &dyn Fn(f64)) -> Result<Vec<R>, Failure>,
) -> Result<Vec<R>, Failure> {
    let bar = progress::progress_bar();
    let mut rows = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if signals::interrupted() {
            break;
        }
        bar.set_message(title(item));
        let progress = |share: f64| {
            bar.set_position(((index as f64 + share) / items.len() as f64 * 1_000.0) as u64);
        };
        rows.extend(row(item, &progress)?);
        progress(1.0);
    }
    bar.finish_and_clear();
    if rows.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    Ok(rows)
}

/// Returns the policies that `words` name, each once, in the order of `all`; all of them where no word or `all` is given.
fn policies<T>(words: &[String], all: &[T]) -> Result<Vec<T>, Failure>
where
    T: Copy + PartialEq + FromStr<Err = String>,
{
    let mut asked = Vec::new();
    for word in words.iter().filter(|word| *word != "all") {
        let policy = word.parse::<T>();
        asked.push(policy.map_err(|error| Failure::error(format!("{error}, all")))?);
    }
    let every = asked.is_empty() || words.iter().any(|word| word == "all");
    let wanted = |policy: &T| every || asked.contains(policy);
    Ok(all.iter().copied().filter(wanted).collect())
}

/// Returns what was given, or `usual` where nothing was.
fn given_or<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual } else { given }.to_vec()
}
