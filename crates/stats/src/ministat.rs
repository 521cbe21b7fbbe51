//! ministat: whether the means of columns of numbers differ, as FreeBSD's program of that name says it.
//!
//! # Contract
//!
//! Columns of text in ([`Set::read`]), the text that ministat prints out ([`Report`], a [`Display`](fmt::Display)): the same
//! figures to the last digit, the same verdict lines, the same picture. The test of two sets from summary figures alone is
//! [`Student::new`]. Every later set is tested against the *first* one only, by a pooled t-test of their means.
//!
//! # Lineage
//!
//! Poul-Henning Kamp, FreeBSD `usr.bin/ministat`, 2006; behaviour as of 2012 (r243079) and of Debian's package
//! 20150715-1, found from outside: a test compares with that program. The -q of [`Options::quiet`] is FreeBSD 13's.
//!
//! # What differs
//!
//! * The picture has its full height: Debian's program cuts it to that of the last set.
//! * [`Misfit`]: one more line after a verdict whose t-test does not fit the data, with the answer by ranks.
//! * NaN and infinity are refused, hexadecimal numbers are not read.
//! * Where the sum of squares is beyond what a number holds (from some 1e154 on), there is a note for a picture; the
//!   original crashes.
//!
//! A comparison of runs is better asked of [`compare`](crate::compare), which tests more than means.

mod fit;
mod general;
mod plot;
mod set;
mod student;

use std::fmt;

pub use fit::{FAR, Misfit, Ranks, SPREAD};
pub use set::{Column, LEAST, Set, SetError};
pub use student::{Confidence, Figures, Student};

use general::General;
use plot::{Plot, symbol};

/// Sets that there are symbols for.
pub const MOST_SETS: usize = 7;

/// Columns of a picture where nothing else is asked for.
pub const WIDTH: usize = 74;

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Confidence of the test.
    pub confidence: Confidence,
    /// Columns of the picture, from [`Options::WIDTHS`]; `None` for no picture.
    pub plot: Option<usize>,
    /// A line of bars for each set.
    pub separate_bars: bool,
    /// Neither names of sets nor the head of the figures.
    pub quiet: bool,
    /// The tests of later sets against the first.
    pub relative: bool,
}

impl Options {
    /// Widths that a picture may have. The original takes any, and crashes with 1 and 0.
    pub const WIDTHS: std::ops::RangeInclusive<usize> = 2..=10_000;
}

impl Default for Options {
    /// All of it, at 95 %, [`WIDTH`] columns wide.
    fn default() -> Options {
        Options {
            confidence: Confidence::default(),
            plot: Some(WIDTH),
            separate_bars: false,
            quiet: false,
            relative: true,
        }
    }
}

/// What ministat prints of some sets. Writing it takes a line of memory, however high the picture is.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    sets: &'a [Set],
    options: Options,
}

impl Report<'_> {
    /// Draws at most [`MOST_SETS`] sets and leaves the rest out. A width outside [`Options::WIDTHS`] is moved into it.
    #[must_use]
    pub fn new(sets: &[Set], options: Options) -> Report<'_> {
        let (least, most) = (*Options::WIDTHS.start(), *Options::WIDTHS.end());
        Report {
            sets: &sets[..sets.len().min(MOST_SETS)],
            options: Options {
                plot: options.plot.map(|width| width.clamp(least, most)),
                ..options
            },
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            confidence,
            plot,
            separate_bars,
            quiet,
            relative,
        } = self.options;
        if !quiet {
            for (set, number) in self.sets.iter().zip(1..) {
                writeln!(f, "{} {}", symbol(number), set.name())?;
            }
        }
        if let Some(width) = plot {
            match Plot::new(self.sets, width, separate_bars) {
                Ok(plot) => plot.fmt(f)?,
                Err(note) => f.write_str(note)?,
            }
        }
        if !quiet {
            writeln!(
                f,
                "    N           Min           Max        Median           Avg        Stddev"
            )?;
        }
        for (set, number) in self.sets.iter().zip(1..) {
            write!(f, "{} {:3}", symbol(number), set.values().len())?;
            for figure in [
                set.min(),
                set.max(),
                set.median(),
                set.mean(),
                set.deviation(),
            ] {
                write!(f, " {:>13}", General::new(figure, 8))?;
            }
            writeln!(f)?;
            if relative && number > 1 {
                let first = &self.sets[0];
                Student::new(&first.figures(), &set.figures(), confidence).fmt(f)?;
                if let Some(misfit) = Misfit::between(first, set, confidence) {
                    misfit.fmt(f)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
