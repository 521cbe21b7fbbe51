//! A flame graph of guest instructions, coloured by how two kernels differ.

use std::collections::BTreeMap;

use stopgap_report::html::escaped;
use stopgap_report::html::flame::{Frame, LEAST, MOST_ROWS, svg};
use stopgap_report::text::thousands;

use crate::functions::Profile;

/// One of a node's two figures.
type Side<'a> = for<'n> fn(&'n mut Node<'a>) -> &'n mut f64;

#[derive(Default)]
struct Node<'a> {
    /// Instructions an operation of it and all that it called, on either kernel.
    before: f64,
    after: f64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn add(&mut self, frames: &'a [String], amount: f64, side: Side<'a>) {
        *side(self) += amount;
        let mut node = self;
        for name in frames.iter().take(MOST_ROWS) {
            node = node.calls.entry(name).or_default();
            *side(node) += amount;
        }
    }

    fn add_all(&mut self, profile: &'a Profile, side: Side<'a>) {
        if profile.operations == 0 {
            return;
        }
        for stack in &profile.stacks {
            let each = stack.instructions as f64 / profile.operations as f64;
            self.add(&stack.frames, each, side);
        }
    }

    fn differs(&self) -> f64 {
        self.after - self.before
    }

    /// The largest difference of a frame that is drawn.
    fn most(&self, whole: f64) -> f64 {
        let drawn = self
            .calls
            .values()
            .filter(|node| node.after >= LEAST * whole);
        drawn
            .map(|node| node.differs().abs().max(node.most(whole)))
            .fold(0.0, f64::max)
    }

    /// Returns its callees as frames; `most` is the largest difference of all.
    fn frames(&self, whole: f64, most: f64) -> Vec<Frame> {
        let calls = self.calls.iter();
        calls
            .map(|(name, node)| node.frame(name, whole, most))
            .collect()
    }

    fn frame(&self, name: &str, whole: f64, most: f64) -> Frame {
        let called: f64 = self.calls.values().map(|node| node.after).sum();
        let own = (self.after - called).max(0.0);
        let differs = self.differs();
        // Figures are whole numbers over a count of operations: what is smaller is rounding.
        let (class, strength) = if differs.abs() <= 1e-6 * (1.0 + self.after) {
            ("same", 1.0)
        } else {
            let strength = 0.2 + 0.6 * (differs.abs() / most).min(1.0);
            (if differs > 0.0 { "grew" } else { "shrank" }, strength)
        };
        let sign = if differs > 0.0 { "+" } else { "" };
        Frame {
            name: name.to_owned(),
            share: self.after / whole,
            class,
            strength,
            about: format!(
                "{name}: {} guest instructions an operation with all it calls, {} its own; {sign}{} to before",
                instructions(self.after),
                instructions(own),
                instructions(differs),
            ),
            calls: self.frames(whole, most),
        }
    }
}

/// The picture of `after`, coloured by what it differs from `before`; `None` where nothing was executed.
pub(crate) fn figure(title: &str, before: &Profile, after: &Profile) -> Option<String> {
    let mut root = Node::default();
    root.add_all(before, |node| &mut node.before);
    root.add_all(after, |node| &mut node.after);
    if root.after <= 0.0 || before.operations == 0 {
        return None;
    }
    let frames = root.frames(root.after, root.most(root.after));
    let (old, new) = (instructions(root.before), instructions(root.after));
    let label = format!(
        "{title}: flame graph of {new} guest instructions an operation; the table below has the figures"
    );
    let (svg, cut) = svg(&frames, &label);
    let cut = if cut {
        " Smaller frames are left out."
    } else {
        ""
    };
    Some(format!(
        "<figure><figcaption><b>{}</b></figcaption>{svg}\
         <p class=\"about\">Width: guest instructions an operation on the later kernel, {new} in all (earlier: {old}). What is \
         called stands below its caller. <span class=\"grew\">Orange</span>: more than on the earlier kernel along the same \
         calls, <span class=\"shrank\">blue</span>: fewer, the stronger the more; grey: the same. What only the earlier kernel \
         executed has no width here; the table has it.{cut}</p></figure>\n",
        escaped(title),
    ))
}

/// Guest instructions with two decimals at most.
fn instructions(amount: f64) -> String {
    let rounded = (amount * 100.0).round() / 100.0;
    let whole = rounded.abs().trunc();
    let rest = rounded.abs() - whole;
    // whole, not negative, of a guest's counts
    let text = thousands(whole as u64);
    let decimals = if rest < 0.005 {
        String::new()
    } else {
        format!("{rest:.2}")[1..].trim_end_matches('0').to_owned()
    };
    let sign = if rounded < 0.0 { "-" } else { "" };
    format!("{sign}{text}{decimals}")
}

#[cfg(test)]
mod tests;
