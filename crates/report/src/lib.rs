//! Records in, text and pages for people out. Pure: a record gives the same text on every machine.
//!
//! * [`screen`]: the first screen of `check`, in five parts.
//! * [`html`]: one self-contained page of any records, with pictures.
//! * [`now`]: what the machine shows before any load, and what of it to watch.
//! * [`details`]: one answer in depth, a row a series.
//! * [`advise`]: which policy to use, and why.
//! * [`compare`]: two sides of runs, held against each other.
//! * [`change_points`]: when a figure changed.
//! * [`doctor`]: what a machine allows.
//! * [`explain`]: a trace, explained.
//! * [`gate`]: a comparison for continuous integration: KTAP, JUnit, annotations, OpenMetrics.
//! * [`moved`]: what moved between traces of two sides.
//! * [`replay`]: a replay, as tables.
//! * [`snapshot`]: physical memory, its zones and free blocks.
//! * [`table`]: the table that screens and pages are made of.
//! * [`terminal`]: records of any kind in short.
//! * [`text`]: numbers and words as people write them.
//!
//! Every table, on a screen or in a page, is a [`table::Table`]; every line of a screen goes through a `table::Screen`.

pub mod advise;
pub mod change_points;
pub mod compare;
pub mod details;
pub mod doctor;
pub mod explain;
mod fix;
pub mod gate;
mod headline;
pub mod history;
pub mod html;
pub mod moved;
pub mod now;
pub mod overall;
mod profile;
pub mod replay;
pub mod screen;
pub mod snapshot;
mod story;
pub mod table;
pub mod terminal;
pub mod text;
mod windows;

pub use table::Style;
