//! Then and now: what the five mails measured, beside what these records did. Sources: `docs/mails.md`, `docs/questions`.

use stopgap_events::question::Question;
use stopgap_events::units::Nanos;
use stopgap_stats::quantile::median;

use super::questions::named;
use super::side::{Measured, Side};
use super::write::{Table, escaped};
use crate::text::{number, thousands};

/// Mail 000, 2.6.35, radeon: microseconds a step through OpenGL, by mappings.
const MAIL_000: [(u64, f64); 5] = [
    (100, 17.3),
    (1_000, 19.9),
    (10_000, 88.5),
    (20_000, 205.0),
    (40_000, 406.0),
];

/// The table of a question, with its words; empty where no side has a figure to stand beside it.
pub(super) fn section(
    question: Question,
    groups: &[Vec<Measured<'_>>],
    sides: &[Side<'_>],
) -> String {
    let (words, mut table) = match question {
        Question::Placement => placement(groups, sides),
        Question::Roundtrip => roundtrip(groups, sides),
        Question::Chunks => chunks(groups, sides),
        Question::Reclaim => reclaim(groups, sides),
        Question::Wakeup => return String::new(), // no mail measured it
    };
    if table
        .rows
        .iter()
        .all(|row| row[2..].iter().all(String::is_empty))
    {
        return String::new();
    }
    for cell in table
        .rows
        .iter_mut()
        .flatten()
        .filter(|cell| cell.is_empty())
    {
        *cell = "not measured".to_owned();
    }
    format!(
        "<div class=\"mails\"><h3>Then and now</h3><p>{}</p>{}</div>\n",
        escaped(words),
        table.html(&format!("The mail's figures on {question} beside these"))
    )
}

fn head(what: &str, mail: &str, sides: &[Side<'_>]) -> Table {
    let mut table = Table::new(&[what, mail]);
    table
        .head
        .extend(sides.iter().map(|side| match sides.len() {
            1 => "now, median of runs".to_owned(),
            _ => format!("now, {}", side.name),
        }));
    table
}

/// The sum of some quantities' medians, where all of them are there.
fn sum(parts: &[Option<f64>]) -> Option<f64> {
    parts.iter().copied().sum()
}

fn nanoseconds(value: Option<f64>) -> String {
    value.map_or_else(String::new, |ns| {
        Nanos(ns.max(0.0).round() as u64).to_string()
    })
}

fn placement(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> (&'static str, Table) {
    let mut table = head("mappings, N", "mail 000, 2.6.35, a step", sides);
    let at = |name: &str, n: u64, side: usize| {
        let found = named(groups, name);
        let one = found.into_iter().find(|one| {
            one.series.number("n") == Some(n)
                && one.series.word("workload").is_none_or(|w| w == "pbobench")
        });
        one.and_then(|one| median(one.values(side)))
    };
    let mut ladder: Vec<u64> = MAIL_000.iter().map(|(n, _)| *n).collect();
    let measured = named(groups, "map")
        .into_iter()
        .filter_map(|one| one.series.number("n"));
    ladder.extend(measured);
    ladder.sort_unstable();
    ladder.dedup();
    for n in ladder {
        let mail = MAIL_000.iter().find(|(known, _)| *known == n);
        let mut row = vec![
            thousands(n),
            mail.map_or_else(String::new, |(_, us)| format!("{us} us")),
        ];
        row.extend((0..sides.len()).map(|side| {
            nanoseconds(sum(&[
                at("map", n, side),
                at("first touch", n, side),
                at("unmap", n, side),
            ]))
        }));
        table.rows.push(row);
    }
    (
        "Mail 000 (r6144, 2011) mapped and unmapped through OpenGL on a radeon, a step of about half a pair; now is mmap, \
         first touch and munmap of one mapping without OpenGL. Compare how they grow, not how long they are.",
        table,
    )
}

fn roundtrip(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> (&'static str, Table) {
    let mut table = head("what", "mail 002, 2010", sides);
    let extreme = |side: usize, most: bool| {
        let values = named(groups, "switches").into_iter();
        let middles = values.filter_map(|one| median(one.values(side)));
        let chosen = middles.reduce(|a, b| if (a > b) == most { a } else { b });
        chosen.map_or_else(String::new, number)
    };
    let mut row = |what: &str, mail: &str, most: bool| {
        let mut cells = vec![what.to_owned(), mail.to_owned()];
        cells.extend((0..sides.len()).map(|side| extreme(side, most)));
        table.rows.push(cells);
    };
    row("most", "20 to 30 switches a frame", true);
    row("least", "fewer than 10 a frame would do", false);
    (
        "Mail 002 (Nieminen, 2010) counted switches a frame of a phone's compositor; now is switches a round trip, of the \
         worst and of the best cell that was measured. A frame has several round trips.",
        table,
    )
}

fn chunks(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> (&'static str, Table) {
    let mut table = head("a 4 MiB buffer", "mail 001, ARM, 2015, fragmented", sides);
    let take = |strategy: &str, side: usize| {
        let found = named(groups, "take").into_iter();
        let mut of = found.filter(|one| {
            one.series.word("size") == Some("4M") && one.series.word("strategy") == Some(strategy)
        });
        nanoseconds(of.next().and_then(|one| median(one.values(side))))
    };
    for (what, mail, strategy) in [
        (
            "large chunks first, with reclaim (now: THP)",
            "24 s usual, 120 s worst",
            "thp-direct",
        ),
        ("single pages", "0.25 s", "base"),
        (
            "large chunks without reclaim (now: THP)",
            "",
            "thp-noreclaim",
        ),
    ] {
        let mut row = vec![what.to_owned(), mail.to_owned()];
        row.extend((0..sides.len()).map(|side| take(strategy, side)));
        table.rows.push(row);
    }
    (
        "Mail 001 (Anderson, Murphy and others, 2015) measured on fragmented memory with 3.14; the stall needs that. The \
         verdict says whether this memory was fragmented: where it was not, the times now say nothing about the stall.",
        table,
    )
}

fn reclaim(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> (&'static str, Table) {
    let mut table = head("2 MiB allocations", "mail 004, i915, 2018, mean", sides);
    let block = |mode: &str, side: usize| {
        let found = named(groups, "populate a block").into_iter();
        let mut of = found.filter(|one| one.series.word("mode") == Some(mode));
        nanoseconds(of.next().and_then(|one| median(one.values(side))))
    };
    for (what, mail, mode) in [
        (
            "page references held (stock; now: vmsplice)",
            "9.6 ms",
            "vmsplice",
        ),
        ("mapping flagged (now: SHM_LOCK)", "14.7 ms", "shm-lock"),
        ("mlock", "1.4 ms", "mlock"),
        ("nothing held (mail: idle)", "0.8 ms", "none"),
    ] {
        let mut row = vec![what.to_owned(), mail.to_owned()];
        row.extend((0..sides.len()).map(|side| block(mode, side)));
        table.rows.push(row);
    }
    (
        "Mail 004 (Wilson, 2018) gave means beside a graphics load; now is the median of populating a block beside a \
         reader in a small memory cgroup. Longest waits and scan ratios, above, show more than this does.",
        table,
    )
}
