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
//! zooms, and our page runs none. Here a frame is an element of the page: its place and width are per cent of the page's width,
//! letters keep their size, and the browser cuts a name that does not fit with an ellipsis. Nothing zooms. A frame says its whole
//! name and its figures when it is pointed at, or has the focus: tapped, or reached by keys. The table beside has them, too.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stopgap_events::order::SortRows;

use super::write::{escaped, short};

/// Letters of a name that a frame says; the longest symbols of C++ have more, and their figures follow.
const LONGEST: usize = 400;
/// Height of a frame, in CSS pixels.
const ROW: usize = 18;
/// The least share of the width that a frame is drawn with: a pixel and a half of a narrow screen.
const LEAST: f64 = 0.004;
/// The least share that gets a text: a letter and an ellipsis on a wide screen; and on a narrow one.
const LEAST_TEXT: f64 = 0.03;
const LEAST_TEXT_NARROW: f64 = 0.07;
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
    /// Whether its difference is proven.
    pub proven: bool,
    calls: BTreeMap<&'a str, Node<'a>>,
}

/// How a frame looks.
#[derive(Debug)]
pub struct Look {
    /// Its colour, a class of the style sheet.
    pub class: &'static str,
    /// How strong the colour is, up to 1.
    pub strength: f64,
    /// The figures, which follow the name when somebody points at the frame.
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

    /// Says whether the difference of the frame at the end of `frames` is proven.
    pub fn prove(&mut self, frames: &[String], proven: bool) {
        let mut node = self;
        for name in frames {
            let Some(below) = node.calls.get_mut(&**name) else {
                return;
            };
            node = below;
        }
        node.proven = proven;
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

/// Draws all below `root`, the widest first; `look` says how a frame looks by name, node and row, and `label` is the picture's
/// text for people who cannot see it. Returns the picture, and a sentence where frames were left out because there are too many.
pub fn html(
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
    let cut = drawing.drawn >= MOST_FRAMES;
    (
        container(label, drawing.rows * ROW, &drawing.frames),
        if cut {
            " Smaller frames are left out."
        } else {
            ""
        },
    )
}

/// Returns the element that holds frames; `height` is in CSS pixels.
pub(super) fn container(label: &str, height: usize, frames: &str) -> String {
    format!(
        "<div class=\"flame\" role=\"group\" aria-label=\"{}\" style=\"height:{height}px\">{frames}</div>",
        escaped(label)
    )
}

/// A box that says what it is, in per cent of the picture's width and, from above, in CSS pixels.
pub(super) struct Frame<'f> {
    pub(super) left: f64,
    pub(super) width: f64,
    pub(super) top: usize,
    pub(super) class: &'static str,
    pub(super) strength: f64,
    pub(super) name: &'f str,
    pub(super) about: &'f str,
}

impl Frame<'_> {
    /// Appends the frame to `html`. Keys reach frames that have a text; a tap reaches each.
    pub(super) fn write(&self, html: &mut String) {
        let (text, reached) = match self.width >= LEAST_TEXT * 100.0 {
            true => (escaped(&short(self.name, LONGEST)), 0),
            false => (String::new(), -1),
        };
        let thin = match self.width < LEAST_TEXT_NARROW * 100.0 && reached == 0 {
            true => " thin",
            false => "",
        };
        // A string takes what is written to it.
        let _ = write!(
            html,
            "<i tabindex=\"{reached}\" title=\"{}: {}\" style=\"--l:{:.3}%;--w:{:.3}%;--t:{}px;--s:{:.0}%\">\
             <b class=\"{}{thin}\">{text}</b></i>",
            escaped(&short(self.name, LONGEST)),
            escaped(self.about),
            self.left,
            self.width,
            self.top,
            self.strength * 100.0,
            self.class,
        );
    }
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
        let mut calls: Vec<_> = node.calls.iter().collect();
        calls.sort_rows(|(_, a), (_, b)| b.after.total_cmp(&a.after));
        for (name, node) in calls {
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
        let look = (self.look)(name, node, row);
        let frame = Frame {
            left: left * 100.0,
            width: node.after / self.whole * 100.0,
            top: row * ROW,
            class: look.class,
            strength: look.strength,
            name,
            about: &look.about,
        };
        frame.write(&mut self.frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(frames: &[(&str, f64)]) -> String {
        let stacks: Vec<(Vec<String>, f64)> = frames
            .iter()
            .map(|(name, amount)| (vec![(*name).to_owned()], *amount))
            .collect();
        let mut root = Node::default();
        for (stack, amount) in &stacks {
            root.add(stack, 0.0, *amount);
        }
        let look = |_: &str, node: &Node<'_>, _: usize| Look {
            class: "user",
            strength: 0.4,
            about: format!("{} samples", node.after),
        };
        html(&root, &look, "a label").0
    }

    #[test]
    fn the_widest_frame_stands_first() {
        let html = drawn(&[("a", 20.0), ("b", 50.0), ("c", 30.0)]);
        let names: Vec<&str> = html
            .split("<b class=\"user\">")
            .skip(1)
            .map(|rest| &rest[..1])
            .collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert!(html.contains("--l:50.000%;--w:30.000%"), "{html}");
    }

    #[test]
    fn a_frame_says_its_whole_name_and_then_its_figures() {
        let long = "std::vector<int>::".repeat(10);
        let html = drawn(&[(&long, 99.0), ("narrow", 1.0)]);
        let shown = escaped(&long);
        assert!(
            html.contains(&format!("title=\"{shown}: 99 samples\"")),
            "{html}"
        );
        assert!(
            html.contains(&format!("<b class=\"user\">{shown}</b>")),
            "{html}"
        );
        // Nothing of it can be read in a frame so narrow, and no key stops there.
        assert!(
            html.contains("<i tabindex=\"-1\" title=\"narrow: 1 samples\""),
            "{html}"
        );
        assert!(html.contains("<b class=\"user\"></b>"), "{html}");
    }

    #[test]
    fn a_name_of_4000_letters_leaves_room_for_the_figures() {
        let html = drawn(&[(&"<\u{202e}\n".repeat(1_400), 7.0)]);
        assert!(html.contains("\u{2026}: 7 samples\""), "{html}");
        assert!(!html.contains('\u{202e}') && !html.contains('\n'), "{html}");
        assert!(html.len() < 12_000, "{}", html.len());
    }
}
