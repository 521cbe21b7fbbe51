//! Then and now: what the five mails measured, beside what these records did. Sources: `docs/mails.md`, `docs/questions`.

use stopgap_events::question::Question;
use stopgap_events::units::Nanos;

use super::side::{Measured, Side, named};
use super::write::{Section, escaped};
use crate::table::{Table, known_or};
use crate::text::{number, thousands};

/// Mail 000, 2.6.35, radeon: microseconds a step through OpenGL, by mappings.
const MAIL_000: [(u64, f64); 5] = [
    (100, 17.3),
    (1_000, 19.9),
    (10_000, 88.5),
    (20_000, 205.0),
    (40_000, 406.0),
];

/// Mail 001: what, the mail's times, and the strategy that is measured now.
const MAIL_001: [[&str; 3]; 3] = [
    [
        "large chunks first, with reclaim (now: THP)",
        "24 s usual, 120 s worst",
        "thp-direct",
    ],
    ["single pages", "0.25 s", "base"],
    [
        "large chunks without reclaim (now: THP)",
        "",
        "thp-noreclaim",
    ],
];

/// Mail 004: what was held, the mail's mean, and the mode that is measured now.
const MAIL_004: [[&str; 3]; 4] = [
    [
        "page references held (stock; now: vmsplice)",
        "9.6 ms",
        "vmsplice",
    ],
    ["mapping flagged (now: SHM_LOCK)", "14.7 ms", "shm-lock"],
    ["mlock", "1.4 ms", "mlock"],
    ["nothing held (mail: idle)", "0.8 ms", "none"],
];

/// A row: what, the mail's figure, and a figure for each side where it was measured.
type Row = (String, String, Vec<Option<String>>);

/// Adds the table of a question with its words; nothing where no side has a figure to stand beside the mail's.
pub(super) fn add(
    question: Question,
    groups: &[Vec<Measured<'_>>],
    sides: &[Side<'_>],
    section: &mut Section,
) {
    let (what, mail, words, rows) = match question {
        Question::Placement => (
            "mappings, N",
            "mail 000, Linux 2.6.35",
            "Mail 000 (r6144, 2011) mapped and unmapped buffers through OpenGL on a radeon. stopgap maps, touches and unmaps one \
             mapping without OpenGL. Compare how the times grow with N, not how long they are.",
            placement(groups, sides),
        ),
        Question::Roundtrip => (
            "what",
            "mail 002, 2010",
            "Mail 002 (Nieminen, 2010) counted the context switches per frame of a phone's compositor. stopgap counts switches \
             per round trip; the table has its highest and its lowest median. A frame has several round trips.",
            roundtrip(groups, sides),
        ),
        Question::Chunks => (
            "a 4 MiB buffer",
            "mail 001, ARM, 2015, fragmented",
            "Mail 001 (Anderson, Murphy and others, 2015) measured on fragmented memory with Linux 3.14. Where the memory here was \
             not fragmented, today's times say nothing about that stall.",
            by_word(&MAIL_001, named(groups, "take"), sides, |one, strategy| {
                one.series.word("size") == Some("4M")
                    && one.series.word("strategy") == Some(strategy)
            }),
        ),
        Question::Reclaim => (
            "2 MiB allocations",
            "mail 004, i915, 2018, mean",
            "Mail 004 (Wilson, 2018) gave means beside a graphics load. stopgap gives the median time to populate a block beside \
             a reader in a small memory cgroup.",
            by_word(
                &MAIL_004,
                named(groups, "populate a block"),
                sides,
                |one, mode| one.series.word("mode") == Some(mode),
            ),
        ),
        Question::Wakeup => return, // no mail measured it
    };
    if rows
        .iter()
        .all(|(_, _, now)| now.iter().all(Option::is_none))
    {
        return;
    }
    let head = sides.iter().map(|side| match sides.len() {
        1 => "now, median of runs".to_owned(),
        _ => format!("now, {}", side.name),
    });
    let mut table = Table::with_heads([what, mail].map(str::to_owned).into_iter().chain(head));
    for (what, mail, now) in rows {
        let mail = Some(mail).filter(|mail| !mail.is_empty());
        let figures = [mail]
            .into_iter()
            .chain(now)
            .map(|cell| known_or("not measured", cell));
        table.rows.push([what].into_iter().chain(figures).collect());
    }
    let table = table.html(&format!("The mail's figures on {question} beside these"));
    section.fold("Then and now", &format!("<p>{}</p>{table}", escaped(words)));
}

fn time(ns: f64) -> String {
    Nanos(ns.max(0.0).round() as u64).to_string()
}

/// Returns a row for each N, with the sum of what a mapping costs.
fn placement(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Row> {
    let at = |name: &str, n: u64, side: usize| {
        let of_mail = |one: &&Measured<'_>| {
            one.series.number("n") == Some(n)
                && one.series.word("workload").is_none_or(|w| w == "pbobench")
        };
        named(groups, name).iter().find(of_mail)?.median(side)
    };
    let measured = named(groups, "map")
        .iter()
        .filter_map(|one| one.series.number("n"));
    let mut all: Vec<u64> = MAIL_000.iter().map(|(n, _)| *n).chain(measured).collect();
    all.sort_unstable();
    all.dedup();
    let row = |n| {
        let mail = MAIL_000.iter().find(|(known, _)| *known == n);
        let parts = ["map", "first touch", "unmap"];
        let now = |side| {
            parts
                .iter()
                .map(|name| at(name, n, side))
                .sum::<Option<f64>>()
                .map(time)
        };
        let mail = known_or("", mail.map(|(_, us)| format!("{us} us")));
        (thousands(n), mail, (0..sides.len()).map(now).collect())
    };
    all.into_iter().map(row).collect()
}

fn roundtrip(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Row> {
    let row = |what: &str, mail: &str, most: bool| {
        let now = |side| {
            let middles = named(groups, "switches")
                .iter()
                .filter_map(|one| one.median(side));
            middles
                .reduce(|a, b| if (a > b) == most { a } else { b })
                .map(number)
        };
        (
            what.to_owned(),
            mail.to_owned(),
            (0..sides.len()).map(now).collect(),
        )
    };
    vec![
        row("highest", "20 to 30 switches per frame", true),
        row("lowest", "fewer than 10 per frame would do", false),
    ]
}

/// Returns a row for each of the mail's, with the median of the series that `is` it by the row's word.
fn by_word(
    mail: &[[&str; 3]],
    group: &[Measured<'_>],
    sides: &[Side<'_>],
    is: impl Fn(&Measured<'_>, &str) -> bool,
) -> Vec<Row> {
    let row = |[what, mail, word]: &[&str; 3]| {
        let one = group.iter().find(|one| is(one, word));
        let now = (0..sides.len()).map(|side| Some(time(one?.median(side)?)));
        ((*what).to_owned(), (*mail).to_owned(), now.collect())
    };
    mail.iter().map(row).collect()
}
