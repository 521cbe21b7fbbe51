//! Flags of `ministat`: the original's, read as it reads them.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = EXIT)]
pub(crate) struct Ministat {
    /// Only the figures and the tests, no picture.
    #[arg(short = 'A')]
    pub(crate) no_plot: bool,
    /// Which column of the files, from 1.
    #[arg(
        short = 'C',
        value_name = "COLUMN",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub(crate) column: String,
    /// Confidence of the test in per cent: 80, 90, 95, 98, 99 or 99.5 (which is 99.8, as in the
    /// original).
    #[arg(
        short = 'c',
        value_name = "CONFIDENCE",
        default_value = "95",
        allow_hyphen_values = true
    )]
    pub(crate) confidence: String,
    /// Characters that part columns [default: space and tab].
    #[arg(short = 'd', value_name = "DELIMITERS", allow_hyphen_values = true)]
    pub(crate) delimiters: Option<String>,
    /// Only the figures: no picture, no tests.
    #[arg(short = 'n')]
    pub(crate) only_figures: bool,
    /// Neither the sets' names nor the head of the figures.
    #[arg(short = 'q')]
    pub(crate) quiet: bool,
    /// Bars of mean, median and standard deviation on a line of their own each.
    #[arg(short = 's')]
    pub(crate) separate_bars: bool,
    /// Columns of the picture, from 2 to 10000 [default: the terminal's, else 74].
    #[arg(short = 'w', value_name = "WIDTH", allow_hyphen_values = true)]
    pub(crate) width: Option<String>,
    /// Up to seven files, a number a line; - or none: standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

const EXIT: &str = "Exit status, as the original's: 0 whatever the verdict; 1 a file cannot be read; 2 wrong flags, \
                    a field that is no number, fewer than three numbers. What differs: docs/compare.md";
