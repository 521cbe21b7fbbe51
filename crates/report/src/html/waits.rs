//! Where waiting time went: who waited, for what, and who or what was behind it.

use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Chains, Idleness, Link};

use super::flame::{self, Look, Node};
use crate::table::Table;
use crate::text::share;

/// How strong a box's colour is: its text is read on it.
const STRENGTH: f64 = 0.4;
/// Ends of chains that the table has.
const ROWS: usize = 40;

/// Returns the picture of all waits that lost time, and its table; `None` where none did.
pub(super) fn figure(chains: &Chains) -> Option<String> {
    let mut stacks: Vec<(Vec<String>, u64)> = Vec::new();
    let lost = |idleness| idleness == Idleness::Stalled;
    for waiting in chains.waiting.iter().filter(|w| lost(w.idleness)) {
        let from = vec![waiting.task.clone(), waiting.text.clone()];
        ends(&from, &waiting.links, &mut stacks);
    }
    let whole: u64 = stacks.iter().map(|(_, ns)| ns).sum();
    if whole == 0 {
        return None;
    }
    stacks.sort_rows(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
    let mut root = Node::default();
    for (frames, ns) in &stacks {
        root.add(frames, 0.0, *ns as f64);
    }
    let look = |_: &str, node: &Node<'_>, row: usize| Look {
        class: match row {
            0 => "thread",
            1 => "user",
            _ => "kernel",
        },
        strength: STRENGTH,
        about: format!(
            "{}, {} % of the lost time",
            Nanos(node.after as u64),
            share(node.after as u64, whole)
        ),
    };
    let title = "Why threads waited";
    let lost = Nanos(whole);
    let label = format!("{title}: {lost} of waits; the table below has the figures");
    let (frames, cut) = flame::html(&root, &look, &label);
    let mut table = Table::new("thread | lost | share, % | chain");
    for (frames, ns) in stacks.iter().take(ROWS) {
        let (time, of_all) = (Nanos(*ns), share(*ns, whole));
        table.row(&[&frames[0], &time, &of_all, &frames[1..].join(" > ")]);
    }
    Some(format!(
        "<figure><figcaption><b>{title}</b></figcaption>{frames}<p class=\"about\">Threads lost {lost} in waits; idle waits \
         do not count. Width: share of that time. <span class=\"thread\">Green</span>: the thread that waited; <span \
         class=\"user\">blue</span>: what it waited for; <span class=\"kernel\">orange</span>: the thread or device that it waited \
         for, and what that one waited for.{cut}</p><details><summary>Chains</summary>{}</details></figure>\n",
        table.html("Chains by lost time"),
    ))
}

/// Appends the chains below `from`.
fn ends(from: &[String], links: &[Link], stacks: &mut Vec<(Vec<String>, u64)>) {
    for link in links {
        let mut at = from.to_owned();
        at.push(link.text.clone());
        if link.links.is_empty() {
            stacks.push((at, link.ns));
        } else {
            ends(&at, &link.links, stacks);
        }
    }
}
