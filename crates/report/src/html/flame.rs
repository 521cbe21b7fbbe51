//! Flame graphs: callers above what they call, each as wide as its share.
//!
//! ```text
//! [ entry_SYSCALL_64                                                     ]
//! [ do_syscall_64                                              ]
//! [ ksys_mmap_pgoff                                 ] [ do_munm ]
//! [ do_mmap          ] [ mas_...]
//! ```
//!
//! Drawn by ourselves. `inferno`, the crate for it, makes a page of its own: a script fits its texts to their frames and
//! zooms, and our page runs none; without it texts run over their neighbours and a narrow screen shrinks them past
//! reading. Here widths are per cent of the page's width and letters keep their size: a frame is an `svg` within the
//! `svg`, which cuts its own text. Nothing zooms; each frame says its figures when pointed at, and the table beside has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::write::{escaped, short};

/// Height of a frame, in CSS pixels.
const ROW: usize = 18;
/// The least share of the width that a frame is drawn with: a pixel and a half of a narrow screen.
const LEAST: f64 = 0.004;
/// The least share that gets a text: three letters of a wide screen.
const LEAST_TEXT: f64 = 0.02;
/// Frames below one another that are drawn.
pub const MOST_ROWS: usize = 60;
/// Frames of a picture: what they come to in bytes is some hundred times this.
pub const MOST_FRAMES: usize = 1_500;

/// Amounts of a function and of all that it called, and what it called. The picture is of `after`.
#[derive(Debug, Default)]
pub struct Node<'a> {
    /// The amount on the earlier side.
    pub before: f64,
    /// The amount that is drawn.
    pub after: f64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

/// How a frame looks.
#[derive(Debug)]
pub struct Look {
    /// Its colour, a class of the style sheet.
    pub class: &'static str,
    /// How strong the colour is, up to 1.
    pub strength: f64,
    /// The text that a browser shows when somebody points at the frame.
    pub about: String,
}

impl<'a> Node<'a> {
    /// Adds amounts of a stack, outermost function first.
    pub fn add(&mut self, frames: &'a [String], before: f64, after: f64) {
        let mut node = self;
        node.before += before;
        node.after += after;
        for name in frames.iter().take(MOST_ROWS) {
            node = node.calls.entry(name).or_default();
            node.before += before;
            node.after += after;
        }
    }

    /// Returns the function's own amount, without what it called.
    #[must_use]
    pub fn own(&self) -> f64 {
        let called: f64 = self.calls.values().map(|node| node.after).sum();
        (self.after - called).max(0.0)
    }

    /// Returns by how much more there is of it after than before.
    #[must_use]
    pub fn differs(&self) -> f64 {
        self.after - self.before
    }

    /// Returns the largest difference of a frame that is drawn; `whole` is the picture's amount.
    #[must_use]
    pub fn most(&self, whole: f64) -> f64 {
        let drawn = self
            .calls
            .values()
            .filter(|node| node.after >= LEAST * whole);
        let most = drawn.map(|node| node.differs().abs().max(node.most(whole)));
        most.fold(0.0, f64::max)
    }
}

/// Draws all below `root`; `look` says how a frame looks by name, node and row, and `label` is the picture's text for people who
/// cannot see it. Returns the picture, and a sentence where frames were left out because there are too many.
pub fn svg(
    root: &Node<'_>,
    look: &dyn Fn(&str, &Node<'_>, usize) -> Look,
    label: &str,
) -> (String, &'static str) {
    let mut drawing = Drawing {
        frames: String::new(),
        drawn: 0,
        rows: 1,
        whole: root.after,
        look,
    };
    drawing.row(root, 0.0, 0);
    let svg = format!(
        "<svg class=\"flame\" role=\"img\" aria-label=\"{}\" height=\"{}\">{}</svg>",
        escaped(label),
        drawing.rows * ROW,
        drawing.frames,
    );
    let cut = drawing.drawn >= MOST_FRAMES;
    (
        svg,
        if cut {
            " Smaller frames are left out."
        } else {
            ""
        },
    )
}

struct Drawing<'l> {
    frames: String,
    drawn: usize,
    rows: usize,
    whole: f64,
    look: &'l dyn Fn(&str, &Node<'_>, usize) -> Look,
}

impl Drawing<'_> {
    /// Draws what `node` called, from `left` on, and below each frame what it called.
    fn row(&mut self, node: &Node<'_>, mut left: f64, row: usize) {
        for (name, node) in &node.calls {
            let share = node.after / self.whole;
            if share >= LEAST && self.drawn < MOST_FRAMES {
                self.frame(name, node, left, row);
                self.row(node, left, row + 1);
            }
            left += share;
        }
    }

    fn frame(&mut self, name: &str, node: &Node<'_>, left: f64, row: usize) {
        self.drawn += 1;
        self.rows = self.rows.max(row + 1);
        let share = node.after / self.whole;
        let text = match share >= LEAST_TEXT {
            true => format!(
                "<text x=\"4\" y=\"13\">{}</text>",
                escaped(&short(name, 60))
            ),
            false => String::new(),
        };
        let look = (self.look)(name, node, row);
        // A string takes what is written to it.
        let _ = write!(
            self.frames,
            "<svg x=\"{:.3}%\" y=\"{}\" width=\"{:.3}%\" height=\"{ROW}\"><title>{}</title>\
             <rect class=\"{}\" width=\"100%\" height=\"100%\" fill-opacity=\"{:.2}\"/>{text}</svg>",
            left * 100.0,
            row * ROW,
            share * 100.0,
            escaped(&look.about),
            look.class,
            look.strength,
        );
    }
}
