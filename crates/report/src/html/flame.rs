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
//! reading. Here widths are per cent of whatever the page has and letters keep their size: a frame is an `svg` within the
//! `svg`, which cuts its own text. Nothing zooms; each frame says its figures when pointed at, and the table beside has them.

use std::fmt::Write as _;

use super::write::{attribute, escaped, short};

/// Height of a frame, in CSS pixels.
const ROW: usize = 18;
/// The least share of the width that a frame is drawn with: a pixel and a half of a narrow screen.
pub const LEAST: f64 = 0.004;
/// The least share that gets a text: three letters of a wide screen.
const LEAST_TEXT: f64 = 0.02;
/// Frames below one another that are drawn.
pub const MOST_ROWS: usize = 60;
/// Frames of a picture: what they come to in bytes is some hundred times this.
pub const MOST_FRAMES: usize = 1_500;

/// A frame to be drawn.
#[derive(Debug)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its width, of the picture's.
    pub share: f64,
    /// Its colour, a class of the style sheet.
    pub class: &'static str,
    /// How strong the colour is, up to 1.
    pub strength: f64,
    /// The text that a browser shows when somebody points at the frame.
    pub about: String,
    /// The frames below it.
    pub calls: Vec<Frame>,
}

/// Draws `frames` beside each other; `label` is the picture's text for people who cannot see it. Returns the picture, and
/// whether frames were left out because there are too many.
#[must_use]
pub fn svg(frames: &[Frame], label: &str) -> (String, bool) {
    let mut drawing = Drawing::default();
    drawing.row(frames, 0.0, 0);
    let height = drawing.rows.max(1) * ROW;
    let svg = format!(
        "<svg class=\"flame\" role=\"img\" aria-label=\"{}\" height=\"{height}\">{}</svg>",
        attribute(label),
        drawing.frames,
    );
    (svg, drawing.drawn >= MOST_FRAMES)
}

#[derive(Default)]
struct Drawing {
    frames: String,
    drawn: usize,
    rows: usize,
}

impl Drawing {
    /// Draws `frames` beside each other, from `left` on, and below each what it called.
    fn row(&mut self, frames: &[Frame], left: f64, row: usize) {
        let mut left = left;
        for frame in frames {
            if frame.share >= LEAST && self.drawn < MOST_FRAMES {
                self.frame(frame, left, row);
                self.row(&frame.calls, left, row + 1);
            }
            left += frame.share;
        }
    }

    fn frame(&mut self, frame: &Frame, left: f64, row: usize) {
        self.drawn += 1;
        self.rows = self.rows.max(row + 1);
        let text = if frame.share >= LEAST_TEXT {
            format!(
                "<text x=\"4\" y=\"13\">{}</text>",
                escaped(&short(&frame.name, 60))
            )
        } else {
            String::new()
        };
        // A string takes what is written to it.
        let _ = write!(
            self.frames,
            "<svg x=\"{:.3}%\" y=\"{}\" width=\"{:.3}%\" height=\"{ROW}\"><title>{}</title>\
             <rect class=\"{}\" width=\"100%\" height=\"100%\" fill-opacity=\"{:.2}\"/>{text}</svg>",
            left * 100.0,
            row * ROW,
            frame.share * 100.0,
            escaped(&frame.about),
            frame.class,
            frame.strength,
        );
    }
}
