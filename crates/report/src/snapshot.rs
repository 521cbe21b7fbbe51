//! A snapshot of physical memory, for people: zones, free blocks by order, what pages are.

use std::collections::BTreeMap;

use stopgap_events::machine::OrderIndex;
use stopgap_events::snapshot::{Kind, Snapshot, Zone, unusable_index};
use stopgap_events::units::{Bytes, Pages};

use crate::screen::{Style, plain_table};
use crate::text::{plain, thousands, wrap};

/// The text; `place` says where the whole of it is.
#[must_use]
pub fn screen(snapshot: &Snapshot, place: &str, style: Style) -> String {
    let kernel = snapshot.kernel.as_deref().unwrap_or("unknown");
    let mut text = format!(
        "physical memory of Linux {}, {} pages: {} present, {} free\n\n",
        plain(kernel),
        snapshot.page_bytes,
        bytes(
            snapshot,
            snapshot.zones.iter().map(|zone| zone.present).sum()
        ),
        bytes(snapshot, snapshot.zones.iter().map(free_pages).sum()),
    );
    text.push_str(&zones(snapshot, style));
    text.push('\n');
    text.push_str(&orders(snapshot, style));
    text.push_str(
        "unusable: share of free memory in blocks too small for the order; per CPU: free, but in no \
         block\n",
    );
    if let Some(line) = pages(snapshot) {
        text.push('\n');
        text.push_str(&wrap(&line, style.width, 2));
    }
    for missing in &snapshot.missing {
        let line = format!("unknown: {}: {}", plain(&missing.what), plain(&missing.why));
        text.push_str(&wrap(&line, style.width, 2));
    }
    text.push_str(&format!("snapshot {}\n", plain(place)));
    text
}

fn bytes(snapshot: &Snapshot, pages: Pages) -> String {
    Bytes(pages.0.saturating_mul(snapshot.page_bytes.0)).to_string()
}

fn free_pages(zone: &Zone) -> Pages {
    let orders = 0u32..;
    let blocks = zone.free_blocks.iter().zip(orders);
    blocks.map(|(&count, order)| Pages(count << order)).sum()
}

/// `Normal`; of several nodes `1/Normal`.
fn name(snapshot: &Snapshot, zone: &Zone) -> String {
    let one_node = snapshot.zones.iter().all(|other| other.node == zone.node);
    match one_node {
        true => plain(&zone.name),
        false => format!("{}/{}", zone.node, plain(&zone.name)),
    }
}

fn zones(snapshot: &Snapshot, style: Style) -> String {
    let head = [
        "zone", "present", "managed", "free", "per CPU", "min", "low", "high",
    ];
    let rows = snapshot.zones.iter().map(|zone| {
        let marks = &zone.watermarks;
        let amounts = [
            Some(zone.present),
            Some(zone.managed),
            Some(free_pages(zone)),
            zone.per_cpu,
            Some(marks.min),
            Some(marks.low),
            Some(marks.high),
        ];
        let amounts = amounts.into_iter().map(|pages| {
            pages.map_or_else(|| "unknown".to_owned(), |pages| bytes(snapshot, pages))
        });
        [name(snapshot, zone)].into_iter().chain(amounts).collect()
    });
    let right = [false, true, true, true, true, true, true, true];
    plain_table(&head, rows.collect(), &right, false, style)
}

/// A row an order: free blocks of each zone, and the index over all of them.
fn orders(snapshot: &Snapshot, style: Style) -> String {
    let names: Vec<String> = snapshot
        .zones
        .iter()
        .map(|zone| name(snapshot, zone))
        .collect();
    let mut head = vec!["order", "block"];
    head.extend(names.iter().map(String::as_str));
    head.push("unusable");
    let layout = snapshot.free_blocks_of_layout();
    let layout = layout.map(|blocks| unusable_index(&blocks));
    if layout.is_some() {
        head.push("by layout");
    }
    let rows = snapshot.unusable_index().into_iter().map(|of_order| {
        let OrderIndex { order, index } = of_order;
        let place = order as usize;
        let block = Bytes(snapshot.page_bytes.0.saturating_mul(1 << order));
        let mut row = vec![order.to_string(), block.to_string()];
        row.extend(snapshot.zones.iter().map(|zone| {
            let count = zone.free_blocks.get(place);
            count.map_or_else(String::new, |&count| thousands(count))
        }));
        row.push(format!("{index:.2}"));
        row.extend(
            layout
                .iter()
                .filter_map(|layout| layout.get(place))
                .map(|one| format!("{:.2}", one.index)),
        );
        row
    });
    let right = vec![true; head.len()];
    plain_table(&head, rows.collect(), &right, false, style)
}

/// What the pages are, most first; `None` where that is not known.
fn pages(snapshot: &Snapshot) -> Option<String> {
    let mut amounts: BTreeMap<Kind, Pages> = BTreeMap::new();
    for zone in &snapshot.zones {
        for run in zone.runs()? {
            *amounts.entry(run.kind).or_default() += run.pages;
        }
    }
    amounts.remove(&Kind::Hole);
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|&(_, pages)| std::cmp::Reverse(pages));
    let amounts = amounts
        .into_iter()
        .map(|(kind, pages)| format!("{kind} {}", bytes(snapshot, pages)));
    let mut line = format!("pages: {}", amounts.collect::<Vec<_>>().join(", "));
    let mapped = snapshot.zones.iter().map(|zone| zone.mapped);
    if let Some(mapped) = mapped.sum::<Option<Pages>>() {
        line.push_str(&format!("; mapped {}", bytes(snapshot, mapped)));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style {
        width: 100,
        colour: false,
    };

    fn snapshot(layout: &str) -> Snapshot {
        let text = format!(
            r#"{{"schema":"stopgap.snapshot/1","version":"0","taken_unix_s":1,"kernel":"6.12",
            "page_bytes":4096,"pageblock_order":null,"zones":[{{"node":0,"name":"Nor\u001bmal",
            "start_frame":16,"pages":16,"present":16,"managed":15,
            "watermarks":{{"min":1,"low":2,"high":3}},"per_cpu":1,"free_blocks":[4,1,1],
            "by_type":null,"layout":{layout},"mapped":4}}],
            "missing":[{{"what":"layout and free blocks of the same moment","why":"memory changed"}}]}}"#
        );
        Snapshot::from_json(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_snapshot_on_one_screen() {
        let expected = "\
physical memory of Linux 6.12, 4 KiB pages: 64 KiB present, 40 KiB free

zone          present  managed    free  per CPU    min    low    high
Nor\\u{1b}mal   64 KiB   60 KiB  40 KiB    4 KiB  4 KiB  8 KiB  12 KiB

order   block  Nor\\u{1b}mal  unusable  by layout
    0   4 KiB             4      0.00       0.00
    1   8 KiB             1      0.40       0.00
    2  16 KiB             1      0.60       0.20
unusable: share of free memory in blocks too small for the order; per CPU: free, but in no block

pages: free 40 KiB, anonymous 16 KiB, kernel 8 KiB; mapped 16 KiB
unknown: layout and free blocks of the same moment: memory changed
snapshot a/b
";
        assert_eq!(screen(&snapshot(r#"["f4a4k2f6"]"#), "a/b", STYLE), expected);
    }

    #[test]
    fn without_a_layout_nothing_is_said_of_pages() {
        let text = screen(&snapshot("null"), "a/b", STYLE);
        assert!(
            !text.contains("\npages: ") && !text.contains("by layout"),
            "{text}"
        );
    }
}
