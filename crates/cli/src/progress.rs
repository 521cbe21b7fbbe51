//! Progress bars on standard error. None is drawn where that is no terminal, the terminal only prints lines (`TERM=dumb`), or
//! `--quiet` is given. They start no thread: load children are made by fork(2).

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;

use crate::{library, voice};

/// Length of every bar.
const ALL: u64 = 1_000;

/// Share of a question's time that its probe takes where fixes are tried, too.
const PROBING: f64 = 0.8;

/// The plan alone tells the remaining time until this much of it is done.
const SETTLED: Nanos = Nanos::secs(3);

/// Makes a bar for work of unknown length. Its length is 1,000.
#[must_use]
pub fn progress_bar() -> ProgressBar {
    bar("{bar:24} {elapsed} {wide_msg}")
}

fn bar(template: &str) -> ProgressBar {
    if library::is_caller() || voice::quiet() || voice::dumb() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(ALL), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(match voice::has_unicode() {
            true => style,
            false => style.progress_chars("#-"),
        });
    }
    bar
}

/// Returns where a [`progress_bar`] stands when `done` of `all` is done.
pub(crate) fn thousandths(done: u64, all: u64) -> u64 {
    let share = u128::from(done.min(all)) * u128::from(ALL) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(ALL)
}

/// One bar for all questions of a run, with the time that remains.
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Nanos,
    /// The planned time of all questions.
    all: Cell<Nanos>,
    /// The planned time of the questions that are answered.
    done: Cell<Nanos>,
    /// The planned time of the question that is asked now.
    current: Cell<Nanos>,
    /// The share of it that its probe takes.
    probing: Cell<f64>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            bar: bar("{bar:20} {prefix} {wide_msg}"),
            began: Linux.now(),
            all: Cell::default(),
            done: Cell::default(),
            current: Cell::default(),
            probing: Cell::new(1.0),
        }
    }

    /// Sets the time that all questions together are planned to take, and whether fixes are tried within it.
    pub(crate) fn plan(&self, all: Nanos, fixes: bool) {
        self.all.set(all);
        self.probing.set(if fixes { PROBING } else { 1.0 });
    }

    /// Goes on to the next question.
    pub(crate) fn next(&self, time: Nanos) {
        self.done.set(self.done.get() + self.current.get());
        self.current.set(time);
    }

    /// Shows that this share of the probe is done, and what it does.
    pub(crate) fn probes(&self, share: f64, what: &str) {
        self.show(share.clamp(0.0, 1.0) * self.probing.get(), what);
    }

    /// Shows that the probe is done and fixes are tried.
    pub(crate) fn tries_fixes(&self, what: &str) {
        self.show(self.probing.get(), what);
    }

    fn show(&self, share: f64, what: &str) {
        let current = Nanos((self.current.get().0 as f64 * share) as u64);
        let done = self.done.get() + current;
        let took = Linux.now().saturating_sub(self.began);
        let left = remaining(self.all.get(), done, took);
        self.bar.set_position(thousandths(done.0, self.all.get().0));
        self.bar.set_prefix(left_in_words(left));
        self.bar.set_message(what.to_owned());
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the time that remains of a plan of `all`, of which `done` took `took`: the rest goes on at the same pace.
fn remaining(all: Nanos, done: Nanos, took: Nanos) -> Nanos {
    let rest = all.saturating_sub(done);
    if done < SETTLED {
        return rest;
    }
    Nanos((rest.0 as f64 * (took.0 as f64 / done.0 as f64)) as u64)
}

fn left_in_words(left: Nanos) -> String {
    match left.0.div_ceil(Nanos::secs(1).0) {
        seconds @ ..100 => format!("about {seconds} s left"),
        seconds => format!("about {} min left", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_goes_on_at_the_pace_of_what_is_done() {
        let s = Nanos::secs;
        assert_eq!(remaining(s(60), s(0), s(0)), s(60));
        assert_eq!(remaining(s(60), s(1), s(9)), s(59));
        assert_eq!(remaining(s(60), s(20), s(10)), s(20));
        assert_eq!(remaining(s(60), s(20), s(40)), s(80));
        assert_eq!(remaining(s(60), s(70), s(40)), s(0));
        assert_eq!(left_in_words(Nanos::millis(1_200)), "about 2 s left");
        assert_eq!(left_in_words(s(99)), "about 99 s left");
        assert_eq!(left_in_words(s(540)), "about 9 min left");
    }

    #[test]
    fn a_share_of_nothing_is_no_division_by_zero() {
        assert_eq!(thousandths(0, 0), 0);
        assert_eq!(thousandths(1, 3), 333);
        assert_eq!(thousandths(u64::MAX, u64::MAX), 1_000);
    }
}
