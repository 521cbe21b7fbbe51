//! Flags of `ministat`: the original's, read as it reads them.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = EXIT)]
pub(crate) struct Ministat {
    /// Print the figures and the tests, and no picture.
    #[arg(short = 'A')]
    pub(crate) no_plot: bool,
    /// Read this column of the files, counted from 1.
    #[arg(
        short = 'C',
        value_name = "COLUMN",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub(crate) column: String,
    /// Test at this confidence in per cent: 80, 90, 95, 98, 99 or 99.5 (which is 99.8, as in the
    /// original).
    #[arg(
        short = 'c',
        value_name = "CONFIDENCE",
        default_value = "95",
        allow_hyphen_values = true
    )]
    pub(crate) confidence: String,
    /// Split columns at these characters [default: space and tab].
    #[arg(short = 'd', value_name = "DELIMITERS", allow_hyphen_values = true)]
    pub(crate) delimiters: Option<String>,
    /// Print the figures only: no picture, no tests.
    #[arg(short = 'n')]
    pub(crate) only_figures: bool,
    /// Leave out the sets' names and the head of the figures.
    #[arg(short = 'q')]
    pub(crate) quiet: bool,
    /// Draw mean, median and standard deviation on a line each.
    #[arg(short = 's')]
    pub(crate) separate_bars: bool,
    /// Draw the picture in so many columns, 2 to 10000 [default: the terminal's, else 74].
    #[arg(short = 'w', value_name = "WIDTH", allow_hyphen_values = true)]
    pub(crate) width: Option<String>,
    /// Files with a number per line, at most seven; - or none is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

const EXIT: &str = "\
Exit status, as the original's: 0 compared, 1 a file cannot be read, 2 wrong
flags, a field that is no number, or fewer than three numbers. docs/compare.md
says what differs from the original.";
