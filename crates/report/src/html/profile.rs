//! Where CPU time went: a flame graph by thread, state and function, and its figures.

use stopgap_stats::profile::{Mode, Profile};

use super::flame::{self, Look, Node};
use super::stack;
use super::write::escaped;
use crate::profile::{mode, whole};
use crate::table::Table;
use crate::text::{share, thousands};

/// Frames before the first function: the thread and its state.
const HEAD: usize = 2;
/// How strong a frame's colour is: its text is read on it.
const STRENGTH: f64 = 0.4;

/// Returns the picture and its table; `None` where there is no sample.
pub(super) fn figure(profile: &Profile) -> Option<String> {
    if profile.samples == 0 {
        return None;
    }
    let mut root = Node::default();
    for stack in &profile.stacks {
        root.add(&stack.frames, 0.0, stack.samples as f64);
    }
    let look = |name: &str, node: &Node<'_>, row: usize| {
        let class = match Mode::of(name) {
            _ if row < HEAD => "thread",
            Mode::User => "user",
            Mode::Kernel => "kernel",
            Mode::Unnamed => "unnamed",
        };
        // Counts of samples are whole.
        let [all, own] = [node.after as u64, node.own() as u64];
        Look {
            class,
            strength: if class == "unnamed" { 1.0 } else { STRENGTH },
            about: format!(
                "{} % of the CPU time with all it calls ({} samples), {} % its own",
                share(all, profile.samples),
                thousands(all),
                share(own, profile.samples),
            ),
        }
    };
    let title = "Where the CPU time went";
    let samples = thousands(profile.samples);
    let label =
        format!("{title}: flame graph of {samples} samples; the table below has the figures");
    let (frames, cut) = flame::html(&root, &look, &label);
    let mut table = Table::new("function | what it is | its own, % | with calls, % | samples");
    for one in &profile.functions {
        let of_all = |samples| share(samples, profile.samples);
        let (own, with_calls) = (of_all(one.own_samples), of_all(one.with_calls_samples));
        let (kind, count) = (mode(one.mode), thousands(one.own_samples));
        table.row(&[&one.function, &kind, &own, &with_calls, &count]);
    }
    Some(format!(
        "<figure><figcaption><b>{title}</b></figcaption>{frames}<p class=\"about\">{} Width: share of the samples. A function \
         stands below its caller. <span class=\"thread\">Green</span>: thread and state; <span \
         class=\"user\">blue</span>: a program's or library's function; <span class=\"kernel\">orange</span>, ending in _[k]: \
         the kernel's; grey: code without a name.{cut}</p><details><summary>Functions</summary>{}</details></figure>\n",
        escaped(&whole(profile)),
        table.html("Functions by CPU time"),
    ))
}

/// Returns what threads did while they were sampled.
pub(super) fn states(profile: &Profile) -> stack::Given<'static> {
    let rows = profile.threads.iter().map(|thread| {
        let states = thread.states.iter();
        let parts = states.map(|state| (state.state.clone(), state.samples as f64));
        (thread.task.clone(), parts.collect())
    });
    stack::Given {
        title: "What threads did on the CPU".to_owned(),
        about: "Samples of CPU time by thread and state.",
        axis: ("CPU time", "samples"),
        row: "thread",
        rows: rows.collect(),
    }
}
