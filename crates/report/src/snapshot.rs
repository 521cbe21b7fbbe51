//! A snapshot of physical memory, for people: zones, free blocks by order, what pages are.

use std::collections::BTreeMap;

use stopgap_events::machine::OrderIndex;
use stopgap_events::order::SortRows;
use stopgap_events::snapshot::{Kind, Snapshot, Zone, unusable_index};
use stopgap_events::units::{Bytes, Pages};

use crate::table::{Screen, Style, Table, join, known_or};
use crate::text::{number, thousands};

/// Returns the text; `place` says where the whole snapshot is.
#[must_use]
pub fn screen(snapshot: &Snapshot, place: &str, style: Style) -> String {
    let all = |pages: fn(&Zone) -> Pages| bytes(snapshot, snapshot.zones.iter().map(pages).sum());
    let mut screen = Screen::new(style);
    let free = all(free_pages);
    screen.say_bold(format!(
        "{free} of memory are free{}",
        in_large_blocks(snapshot)
    ));
    screen.line(format!(
        "physical memory of Linux {}, {} pages: {} present, {free} free",
        snapshot.kernel.as_deref().unwrap_or("unknown"),
        snapshot.page_bytes,
        all(|zone| zone.present),
    ));
    screen.add("\n");
    screen.table(&zones(snapshot));
    screen.add("\n");
    screen.table(&orders(snapshot));
    screen.add(
        "unusable: share of free memory in blocks too small for the order; per CPU: free, but in no block\n",
    );
    if let Some(line) = pages(snapshot) {
        screen.add("\n");
        screen.say(line);
    }
    screen.unknown(&snapshot.missing);
    screen.line(format!("snapshot {place}"));
    screen.finish()
}

/// Returns `, 40.0 % of it in blocks of 2 MiB or more`: of a pageblock, else of the largest order.
fn in_large_blocks(snapshot: &Snapshot) -> String {
    let index = snapshot.unusable_index();
    let order =
        |one: &&OrderIndex| Some(u64::from(one.order)) == snapshot.pageblock_order.map(u64::from);
    let Some(large) = index.iter().find(order).or(index.last()) else {
        return String::new();
    };
    let block = Bytes(snapshot.page_bytes.0.saturating_mul(1 << large.order));
    let share = number((1.0 - large.index) * 100.0);
    format!(", {share} % of it in blocks of {block} or more")
}

fn bytes(snapshot: &Snapshot, pages: Pages) -> Bytes {
    Bytes(pages.0.saturating_mul(snapshot.page_bytes.0))
}

fn free_pages(zone: &Zone) -> Pages {
    let blocks = zone.free_blocks.iter().zip(0u32..);
    blocks.map(|(&count, order)| Pages(count << order)).sum()
}

/// Returns `Normal`, or of several nodes `1/Normal`.
fn name(snapshot: &Snapshot, zone: &Zone) -> String {
    let one_node = snapshot.zones.iter().all(|other| other.node == zone.node);
    match one_node {
        true => zone.name.clone(),
        false => format!("{}/{}", zone.node, zone.name),
    }
}

fn zones(snapshot: &Snapshot) -> Table {
    let mut table =
        Table::new("zone | >present | >managed | >free | >per CPU | >min | >low | >high");
    for zone in &snapshot.zones {
        let marks = &zone.watermarks;
        let free = free_pages(zone);
        let mut row = vec![name(snapshot, zone)];
        let known = [zone.present, zone.managed, free].map(Some);
        let marks = [marks.min, marks.low, marks.high].map(Some);
        let amounts = known.into_iter().chain([zone.per_cpu]).chain(marks);
        let bytes = |pages| bytes(snapshot, pages);
        row.extend(amounts.map(|pages| known_or("unknown", pages.map(bytes))));
        table.rows.push(row);
    }
    table
}

/// Returns a row for each order: free blocks of each zone, and the index over all of them.
fn orders(snapshot: &Snapshot) -> Table {
    let layout = snapshot.free_blocks_of_layout();
    let layout = layout.map(|blocks| unusable_index(&blocks));
    let names = snapshot.zones.iter().map(|zone| name(snapshot, zone));
    let mut head: Vec<String> = ["order", "block"].map(str::to_owned).into();
    head.extend(names.chain(["unusable".to_owned()]));
    head.extend(layout.iter().map(|_| "by layout".to_owned()));
    let mut table = Table::with_heads(head.iter().map(|head| format!(">{head}")));
    for OrderIndex { order, index } in snapshot.unusable_index() {
        let place = order as usize;
        let block = Bytes(snapshot.page_bytes.0.saturating_mul(1 << order));
        let mut row = vec![order.to_string(), block.to_string()];
        let counts = snapshot
            .zones
            .iter()
            .map(|zone| zone.free_blocks.get(place));
        row.extend(counts.map(|count| known_or("", count.map(|&count| thousands(count)))));
        let by_layout = layout.iter().filter_map(|layout| layout.get(place));
        let by_layout = by_layout.map(|one| one.index);
        row.extend(
            [index]
                .into_iter()
                .chain(by_layout)
                .map(|index| format!("{index:.2}")),
        );
        table.rows.push(row);
    }
    table
}

/// Returns what the pages are, most first; `None` where that is not known.
fn pages(snapshot: &Snapshot) -> Option<String> {
    let mut amounts: BTreeMap<Kind, Pages> = BTreeMap::new();
    for zone in &snapshot.zones {
        for run in zone.runs()? {
            *amounts.entry(run.kind).or_default() += run.pages;
        }
    }
    amounts.remove(&Kind::Hole);
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_rows_by_key(|&(_, pages)| std::cmp::Reverse(pages));
    let amounts = amounts.into_iter();
    let amounts = amounts.map(|(kind, pages)| format!("{kind} {}", bytes(snapshot, pages)));
    let mut line = format!("pages: {}", join(amounts, ", "));
    let mapped = snapshot.zones.iter().map(|zone| zone.mapped);
    if let Some(mapped) = mapped.sum::<Option<Pages>>() {
        line += &format!("; mapped {}", bytes(snapshot, mapped));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style {
        width: 100,
        colour: false,
        verbose: false,
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
40 KiB of memory are free, 40.0 % of it in blocks of 16 KiB or more
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
