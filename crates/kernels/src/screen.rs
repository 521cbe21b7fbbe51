//! A comparison of kernels, for people: the answer, a row each operation, and what it cannot tell.

pub(crate) mod dma;

use crate::judge::{Against, Cause, Figure, Kernel, Kernels, Row, Word};

use stopgap_report::Style;
use stopgap_report::table::{Table, known};
use stopgap_report::text::{plain, thousands, wrap};
use stopgap_stats::quantile::low_median;

/// Wider lines are not read.
const WIDEST: u16 = 120;

/// Options that are shown; the record has all.
const OPTIONS: usize = 8;

/// A guest's last lines that are shown; the record has more.
const LAST_LINES: usize = 12;

/// Missing measurements that are shown.
const MISSING: usize = 12;

/// Functions that are shown.
const FUNCTIONS: usize = 12;

/// The text of a comparison of kernels; `place` is where the record is.
#[must_use]
pub fn screen(record: &Kernels, place: &str, style: Style) -> String {
    let style = Style {
        width: style.width.min(WIDEST),
        ..style
    };
    let say = |line: &str, indent: usize| wrap(&plain(line), style.width, indent);
    let mut text = String::new();
    for (number, kernel) in record.kernels.iter().enumerate() {
        text.push_str(&say(&named(number, kernel), 4));
    }
    for (number, kernel) in record.kernels.iter().enumerate() {
        let ended = ended(number, kernel, record.interrupted);
        for line in set_aside(number, kernel).iter().chain(&ended) {
            text.push_str(&say(line, 4));
        }
    }
    for against in &record.against {
        text.push('\n');
        text.push_str(&one(record, against, style));
    }
    if record.kernels.len() > 2 {
        text.push('\n');
        text.push_str(&all(record, style));
    }
    text.push_str(&for_dma(record, style));
    text.push('\n');
    for missing in record.missing.iter().take(MISSING) {
        text.push_str(&say(
            &format!("not measured: {}: {}", missing.what, missing.why),
            4,
        ));
    }
    if let Some(more) = more(record.missing.len(), MISSING) {
        text.push_str(&format!("not measured: {more}\n"));
    }
    text.push_str("what this cannot tell\n");
    for missing in &record.cannot_tell {
        text.push_str(&say(&format!("  {}: {}", missing.what, missing.why), 2));
    }
    let emulator = &record.emulator;
    let unknown = || "unknown".to_owned();
    let layouts = record.seeds.len();
    let s = if layouts == 1 { "" } else { "s" };
    let how = format!(
        "{layouts} layout{s}, each booted {} times; QEMU {}, CPU {}",
        record.repetitions,
        emulator.qemu.clone().unwrap_or_else(unknown),
        emulator.cpu.clone().unwrap_or_else(unknown)
    );
    text.push_str(&say(&how, 2));
    text.push_str(&say(&format!("record {place}"), 2));
    text
}

/// `A`, `B`, ...; beyond the alphabet its number.
fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(small @ 0..26) => char::from(b'A' + small).to_string(),
        _ => format!("#{}", number + 1),
    }
}

fn named(number: usize, kernel: &Kernel) -> String {
    let release = kernel.release.as_deref().unwrap_or("release unknown");
    let sum: String = kernel.sha256.chars().take(12).collect();
    format!(
        "{} {}, {release}, {}, sha256 {sum}",
        letter(number),
        kernel.name,
        kernel.architecture
    )
}

/// Boots of a kernel that were set aside.
fn set_aside(number: usize, kernel: &Kernel) -> Vec<String> {
    let these: Vec<_> = kernel.boots.iter().filter(|boot| boot.set_aside).collect();
    let [first, ..] = &these[..] else {
        return Vec::new();
    };
    vec![format!(
        "{}: {} of {} boots set aside, the first under layout {}: its counts are not those of the layout's others, which are \
         the same. They count for nothing",
        letter(number),
        these.len(),
        kernel.boots.len(),
        first.seed
    )]
}

/// Describes the boots of a kernel that gave no result: the end, and the last lines.
fn ended(number: usize, kernel: &Kernel, interrupted: bool) -> Vec<String> {
    let bad: Vec<_> = kernel.boots.iter().filter(|boot| !boot.whole).collect();
    let [first, ..] = &bad[..] else {
        return Vec::new();
    };
    let letter = letter(number);
    if interrupted {
        return vec![format!("{letter}: {} boots were interrupted", bad.len())];
    }
    let mut lines = vec![format!(
        "{letter}: {} of {} boots gave no result; layout {}: {}",
        bad.len(),
        kernel.boots.len(),
        first.seed,
        first.end
    )];
    let skip = first.last_lines.len().saturating_sub(LAST_LINES);
    lines.extend(
        first.last_lines[skip..]
            .iter()
            .map(|line| format!("  | {line}")),
    );
    lines
}

/// A later kernel against the first.
fn one(record: &Kernels, against: &Against, style: Style) -> String {
    let say = |line: &str, indent: usize| wrap(&plain(line), style.width, indent);
    let (before, after) = (letter(against.before), letter(against.after));
    let verdict = say(
        &format!("{after} against {before}: {}", against.verdict.text),
        2,
    );
    let mut text = if style.colour {
        format!("\u{1b}[1m{}\u{1b}[0m\n", verdict.trim_end())
    } else {
        verdict
    };
    text.push_str(&say(&cause(record, against), 2));
    text.push_str(&say(
        &format!(
            "gate, margin {} %: {}",
            record.margin * 100.0,
            against.gate.text
        ),
        2,
    ));
    text.push('\n');
    let mut table = Table::new(&format!(
        "guest instructions of | >{before} | >{after} | >change | >% | >spread | >modes | word"
    ));
    table.rows = against.rows.iter().map(row).collect();
    text.push_str(&table.text(style));
    // Each explanation stands once, below the rows.
    let mut whys: Vec<(&str, Vec<String>)> = Vec::new();
    for row in against.rows.iter().filter(|row| !row.why.is_empty()) {
        match whys.iter_mut().find(|(why, _)| *why == row.why) {
            Some((_, names)) => names.push(row.name()),
            None => whys.push((&row.why, vec![row.name()])),
        }
    }
    for (why, names) in whys {
        text.push_str(&say(&format!("  {}: {why}", names.join("; ")), 2));
    }
    text.push_str(&functions(record, against, style));
    text
}

fn row(row: &Row) -> Vec<String> {
    let name = if row.operation.is_empty() || row.operation == row.cell {
        row.cell.clone()
    } else {
        format!("{} {}", row.cell, row.operation)
    };
    let modes = match row.modes {
        [0 | 1, 0 | 1] => String::new(),
        [before, after] => format!("{before}, {after}"),
    };
    let mut cells = vec![plain(&name)];
    match row.leading() {
        None => cells.extend(["-", "-", "-", "-", "-"].map(str::to_owned)),
        Some(figure) => cells.extend(figures(figure)),
    }
    cells.push(modes);
    let mut word = row.word.to_string();
    // Which of the two figures stands in the row.
    if row.mean.is_some() && row.mean.as_ref() == row.leading() && row.median != row.mean {
        word.push_str(" (mean)");
    }
    cells.push(word);
    cells
}

fn figures(figure: &Figure) -> [String; 5] {
    [
        count(middle(&figure.before)),
        count(middle(&figure.after)),
        signed(figure.change, count),
        figure.share.map_or_else(
            || "-".to_owned(),
            |share| signed(share * 100.0, |share| format!("{share:.2}")),
        ),
        count(figure.spread),
    ]
}

/// A number of guest instructions: whole where it is, and with what follows the point where a mean has that.
fn count(value: f64) -> String {
    let size = value.abs();
    if size.fract() == 0.0 && size < 9e15 {
        let whole = size as u64;
        return thousands(whole);
    }
    // saturates, which no guest reaches
    let (whole, tenths) = (size.trunc() as u64, (size.fract() * 10.0).floor() as u64);
    format!("{}.{tenths}", thousands(whole))
}

fn signed(value: f64, shown: impl Fn(f64) -> String) -> String {
    let sign = if value < 0.0 {
        "-"
    } else if value > 0.0 {
        "+"
    } else {
        ""
    };
    format!("{sign}{}", shown(value.abs()))
}

fn middle(values: &[f64]) -> f64 {
    low_median(values.to_vec()).unwrap_or_default()
}

/// Describes the possible causes of a difference, with the first options that differ.
fn cause(record: &Kernels, against: &Against) -> String {
    match against.cause {
        Cause::SameImage => "one and the same image on both sides".to_owned(),
        Cause::Code => "a difference is of code: the configurations are the same".to_owned(),
        Cause::Unknown => {
            let sides = [against.before, against.after].map(|side| {
                let from = &record.kernels[side].config_from;
                format!("{} {from}", letter(side))
            });
            format!(
                "a difference is of code, and of configuration for all that is known: {}",
                sides.join("; ")
            )
        }
        Cause::ConfigAndCode => {
            let both = |option: &&crate::judge::OptionDiffers| {
                option.before.is_some() && option.after.is_some()
            };
            let both = against.config.iter().filter(both).count();
            let value = |value: &Option<String>| value.clone().unwrap_or("(not there)".to_owned());
            let each = against.config.iter().take(OPTIONS).map(|option| {
                let (before, after) = (value(&option.before), value(&option.after));
                format!("{} {before} -> {after}", option.option)
            });
            let mut each = each.collect::<Vec<_>>().join(", ");
            if let Some(more) = more(against.config.len(), OPTIONS) {
                each.push_str(&format!(", {more} in the record"));
            }
            format!(
                "a difference is of config + code: {} options differ, {} of which both know: {each}",
                thousands(against.config.len() as u64),
                thousands(both as u64)
            )
        }
    }
}

fn more(all: usize, shown: usize) -> Option<String> {
    let more = all.checked_sub(shown).filter(|&more| more > 0)?;
    Some(format!("and {} more", thousands(more as u64)))
}

/// Which functions grew most, a cell each.
fn functions(record: &Kernels, against: &Against, style: Style) -> String {
    let of = record.functions_of(against);
    if of.is_empty() {
        return String::new();
    }
    let (before, after) = (letter(against.before), letter(against.after));
    let mut table = Table::new(&format!(
        "mean guest instructions of | function | >{before} | >{after} | >change"
    ));
    for of in of.iter().take(FUNCTIONS) {
        let [before, after] =
            [of.before, of.after].map(|value| known(value.map(|value| format!("{value:.1}"))));
        let change = signed(of.difference, |value| format!("{value:.1}"));
        let name = format!("{} {}", of.cell, of.operation);
        table.row(&[&name, &of.function, &before, &after, &change]);
    }
    let mut text = format!("\n{}", table.text(style));
    if let Some(more) = more(of.len(), FUNCTIONS) {
        text.push_str(&format!("  {more} in the record\n"));
    }
    text
}

/// Formats the table of IOMMU readings of all kernels; empty where nothing was mapped for DMA.
fn for_dma(record: &Kernels, style: Style) -> String {
    let (rows, unknown) = dma::rows(record, letter);
    if rows.is_empty() {
        return String::new();
    }
    let right = [false, false, false, true, true, false].map(|right| if right { ">" } else { "" });
    let heads = right.iter().zip(dma::HEAD);
    let mut table = Table::with_heads(heads.map(|(right, head)| format!("{right}{head}")));
    table.rows = rows;
    let mut text = format!("\n{}", table.text(style));
    for why in unknown {
        text.push_str(&wrap(&plain(&format!("  unknown: {why}")), style.width, 2));
    }
    text
}

/// All kernels side by side.
fn all(record: &Kernels, style: Style) -> String {
    let Some(first) = record.against.first() else {
        return String::new();
    };
    let letters = (0..record.kernels.len()).map(letter);
    let heads = letters.map(|letter| format!(">{letter}"));
    let mut table = Table::with_heads(
        ["median guest instructions".to_owned()]
            .into_iter()
            .chain(heads),
    );
    table.rows.extend(first.rows.iter().map(|row| {
        let mut cells = vec![row.name()];
        for number in 0..record.kernels.len() {
            let of = record
                .against
                .iter()
                .find(|against| against.after == number);
            let same = |one: &&Row| one.cell == row.cell && one.operation == row.operation;
            let figure = match of {
                None => row.median.as_ref().map(|figure| (&figure.before, None)),
                Some(against) => against.rows.iter().find(same).and_then(|row| {
                    let called = matches!(row.word, Word::Longer | Word::Shorter);
                    let share = row.median.as_ref()?.share.filter(|_| called);
                    Some((&row.median.as_ref()?.after, share))
                }),
            };
            cells.push(match figure {
                None => "-".to_owned(),
                Some((values, None)) => count(middle(values)),
                Some((values, Some(share))) => {
                    let share = signed(share * 100.0, |share| format!("{share:.1}"));
                    format!("{} ({share} %)", count(middle(values)))
                }
            });
        }
        cells
    }));
    table.text(style)
}

#[cfg(test)]
mod tests;
