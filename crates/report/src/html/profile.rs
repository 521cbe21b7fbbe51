//! Where CPU time went: a flame graph by thread, state and function, and its figures.

use std::collections::BTreeMap;

use stopgap_stats::profile::{Mode, Profile};

use super::chart::Chart;
use super::flame::{self, Frame, MOST_ROWS};
use super::stack;
use super::write::{Table, escaped};
use crate::profile::{mode, share, whole};
use crate::text::{number, thousands};

/// Frames before the first function: the thread and its state.
const HEAD: usize = 2;
/// How strong a frame's colour is: its text is read on it.
const STRENGTH: f64 = 0.4;

#[derive(Default)]
struct Node<'a> {
    all: u64,
    own: u64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn add(&mut self, frames: &'a [String], samples: u64) {
        self.all += samples;
        let mut node = self;
        for name in frames.iter().take(MOST_ROWS) {
            node = node.calls.entry(name).or_default();
            node.all += samples;
        }
        node.own += samples;
    }

    fn frames(&self, samples: u64, row: usize) -> Vec<Frame> {
        let calls = self.calls.iter();
        calls
            .map(|(name, node)| node.frame(name, samples, row))
            .collect()
    }

    fn frame(&self, name: &str, samples: u64, row: usize) -> Frame {
        let class = match Mode::of(name) {
            _ if row < HEAD => "thread",
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Unnamed => "unnamed",
        };
        let per_cent = |some| share(some, samples);
        Frame {
            name: name.to_owned(),
            share: self.all as f64 / samples as f64,
            class,
            strength: if class == "unnamed" { 1.0 } else { STRENGTH },
            about: format!(
                "{name}: {} of the CPU time with all it calls ({} samples), {} its own",
                per_cent(self.all),
                thousands(self.all),
                per_cent(self.own),
            ),
            calls: self.frames(samples, row + 1),
        }
    }
}

/// The picture and its table; `None` where there is no sample.
pub(super) fn figure(profile: &Profile) -> Option<String> {
    if profile.samples == 0 {
        return None;
    }
    let mut root = Node::default();
    for stack in &profile.stacks {
        root.add(&stack.frames, stack.samples);
    }
    let title = "Where the CPU time went";
    let samples = thousands(profile.samples);
    let label =
        format!("{title}: flame graph of {samples} samples; the table below has the figures");
    let (svg, cut) = flame::svg(&root.frames(profile.samples, 0), &label);
    let cut = if cut {
        " Smaller frames are left out."
    } else {
        ""
    };
    let mut table = Table::new(&[
        "function",
        "what it is",
        "its own, %",
        "with calls, %",
        "samples",
    ]);
    for function in &profile.functions {
        table.rows.push(vec![
            function.function.clone(),
            mode(function.mode).to_owned(),
            per_cent(function.own_samples, profile.samples),
            per_cent(function.with_calls_samples, profile.samples),
            thousands(function.own_samples),
        ]);
    }
    Some(format!(
        "<figure><figcaption><b>{title}</b></figcaption>{svg}<p class=\"about\">{} Width: share of the samples. What is \
         called stands below its caller. <span class=\"thread\">Green</span>: thread and state; <span \
         class=\"user\">blue</span>: a program's or library's function; <span class=\"kernel\">orange</span>, ending in _[k]: \
         the kernel's; grey: code without a name.{cut}</p><details><summary>Functions</summary>{}</details></figure>\n",
        escaped(&whole(profile)),
        table.html("Functions by CPU time"),
    ))
}

/// What threads did while they were sampled.
pub(super) fn states(profile: &Profile) -> Option<Chart> {
    let rows: Vec<stack::Row> = profile
        .threads
        .iter()
        .map(|thread| {
            let parts = thread.states.iter();
            let parts = parts.map(|state| (state.state.clone(), state.samples as f64));
            (thread.task.clone(), parts.collect())
        })
        .collect();
    let words = stack::Words {
        title: "What threads did on the CPU",
        about: "Samples of CPU time by thread and state.",
        axis: "CPU time",
        unit: "samples",
        row: "a row a thread's name",
    };
    stack::chart(&words, &rows)
}

fn per_cent(some: u64, all: u64) -> String {
    number(some as f64 / all.max(1) as f64 * 100.0)
}
