//! A comparison of kernels, for people: the answer, a row each operation, and what it cannot tell.

pub(crate) mod dma;

use crate::judge::{Against, Cause, Figure, Kernels, Row, Word};

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

/// Returns the headline of a comparison, and the sentence below it.
pub(crate) fn headline(against: &Against) -> (&'static str, &str) {
    let head = match against.verdict.word {
        Word::Longer => "RUNS MORE INSTRUCTIONS",
        Word::Shorter => "RUNS FEWER INSTRUCTIONS",
        Word::Identical => "RUNS THE SAME INSTRUCTIONS",
        Word::Mixed => "RUNS MORE INSTRUCTIONS HERE, FEWER THERE",
        Word::NoDifferenceProven => "CANNOT TELL WHETHER IT DIFFERS",
        Word::Inconclusive => "CANNOT TELL",
        Word::Void => "CANNOT TELL: THIS TOOL'S COUNTS DO NOT REPEAT",
    };
    let text = &against.verdict.text;
    (head, text.split_once(": ").map_or(text, |(_, text)| text))
}

/// The text of a comparison of kernels; `place` is where the record is, if one was written.
#[must_use]
pub fn screen(record: &Kernels, place: Option<&str>, style: Style) -> String {
    let style = Style {
        width: style.width.min(WIDEST),
        ..style
    };
    let mut screen = Screen {
        text: String::new(),
        record,
        style,
    };
    for against in &record.against {
        screen.verdict(against);
    }
    screen.kernels();
    for against in &record.against {
        screen.text.push('\n');
        screen.against(against);
    }
    if record.kernels.len() > 2 {
        screen.text.push('\n');
        screen.side_by_side();
    }
    screen.dma();
    screen.text.push('\n');
    for missing in record.missing.iter().take(MISSING) {
        let line = format!("not measured: {}: {}", missing.what, missing.why);
        screen.say(4, &line);
    }
    if let Some(more) = more(record.missing.len(), MISSING) {
        screen.text.push_str(&format!("not measured: {more}\n"));
    }
    if style.verbose {
        screen.text.push_str("what this cannot tell\n");
        for missing in &record.cannot_tell {
            screen.say(2, &format!("  {}: {}", missing.what, missing.why));
        }
    } else if !record.cannot_tell.is_empty() {
        let names: Vec<&str> = record.cannot_tell.iter().map(|one| &*one.what).collect();
        let line = format!(
            "Counts in emulation do not tell: {}. Why: --verbose",
            names.join("; ")
        );
        screen.say(2, &line);
    }
    let layouts = record.seeds.len();
    let s = if layouts == 1 { "" } else { "s" };
    let known = |text: &Option<String>| text.clone().unwrap_or("unknown".to_owned());
    let (qemu, cpu) = (known(&record.emulator.qemu), known(&record.emulator.cpu));
    let times = record.repetitions;
    screen.say(
        2,
        &format!("{layouts} layout{s}, each booted {times} times; QEMU {qemu}, CPU {cpu}"),
    );
    if let Some(place) = place {
        screen.say(2, &format!("record {place}"));
    }
    screen.text
}

struct Screen<'r> {
    text: String,
    record: &'r Kernels,
    style: Style,
}

impl Screen<'_> {
    /// Adds a line; what does not fit continues with `indent` spaces in front.
    fn say(&mut self, indent: usize, line: &str) {
        self.text
            .push_str(&wrap(&plain(line), self.style.width, indent));
    }

    /// Says whether a later kernel runs more instructions than the first, and whether a gate would fail.
    fn verdict(&mut self, against: &Against) {
        let (before, after) = (letter(against.before), letter(against.after));
        let (head, text) = headline(against);
        let begin = self.text.len();
        self.say(2, &format!("{after} against {before}: {head}"));
        if self.style.colour {
            let verdict = self.text.split_off(begin);
            self.text
                .push_str(&format!("\u{1b}[1m{}\u{1b}[0m\n", verdict.trim_end()));
        }
        self.say(2, text);
        let margin = self.record.margin * 100.0;
        self.say(
            2,
            &format!("gate, margin {margin} %: {}", against.gate.text),
        );
    }

    /// The kernels, and of each the boots that count for nothing.
    fn kernels(&mut self) {
        let record = self.record;
        for (number, kernel) in record.kernels.iter().enumerate() {
            let release = kernel.release.as_deref().unwrap_or("release unknown");
            let sum: String = kernel.sha256.chars().take(12).collect();
            let (letter, name, architecture) = (letter(number), &kernel.name, &kernel.architecture);
            self.say(
                4,
                &format!("{letter} {name}, {release}, {architecture}, sha256 {sum}"),
            );
        }
        for (number, kernel) in record.kernels.iter().enumerate() {
            let (letter, all) = (letter(number), kernel.boots.len());
            let aside: Vec<_> = kernel.boots.iter().filter(|boot| boot.set_aside).collect();
            if let [first, ..] = &aside[..] {
                let line = format!(
                    "{letter}: {} of {all} boots set aside, the first under layout {}: its counts are not those of the \
                     layout's others, which are the same. They count for nothing",
                    aside.len(),
                    first.seed
                );
                self.say(4, &line);
            }
            let bad: Vec<_> = kernel.boots.iter().filter(|boot| !boot.whole).collect();
            let [first, ..] = &bad[..] else { continue };
            if record.interrupted {
                self.say(
                    4,
                    &format!("{letter}: {} boots were interrupted", bad.len()),
                );
                continue;
            }
            let (bad, seed, end) = (bad.len(), first.seed, &first.end);
            let line =
                format!("{letter}: {bad} of {all} boots gave no result; layout {seed}: {end}");
            self.say(4, &line);
            let skip = first.last_lines.len().saturating_sub(LAST_LINES);
            for line in &first.last_lines[skip..] {
                self.say(4, &format!("  | {line}"));
            }
        }
    }

    /// A later kernel against the first.
    fn against(&mut self, against: &Against) {
        let (before, after) = (letter(against.before), letter(against.after));
        if self.record.against.len() > 1 {
            self.say(2, &format!("{after} against {before}"));
        }
        self.say(2, &cause(self.record, against));
        self.text.push('\n');
        let mut table = Table::new(&format!(
            "guest instructions of | >{before} | >{after} | >change | >% | >spread | >modes | word"
        ));
        table.rows = against.rows.iter().map(row).collect();
        self.text.push_str(&table.text(self.style));
        // Each explanation stands once, below the rows.
        let mut whys: Vec<(&str, Vec<String>)> = Vec::new();
        for row in against.rows.iter().filter(|row| !row.why.is_empty()) {
            match whys.iter_mut().find(|(why, _)| *why == row.why) {
                Some((_, names)) => names.push(row.name()),
                None => whys.push((&row.why, vec![row.name()])),
            }
        }
        for (why, names) in whys {
            self.say(2, &format!("  {}: {why}", names.join("; ")));
        }
        self.functions(against);
    }

    /// Which functions explain what is proven to differ; where none does, those that differ most.
    fn functions(&mut self, against: &Against) {
        let (of, explain) = self.record.functions_of(against);
        if of.is_empty() {
            return;
        }
        let shown = match explain {
            0 => FUNCTIONS,
            _ => explain.min(FUNCTIONS),
        };
        let (before, after) = (letter(against.before), letter(against.after));
        let mut table = Table::new(&format!(
            "mean guest instructions of | function | >{before} | >{after} | >change | >layouts"
        ));
        for of in of.iter().take(shown) {
            let [before, after] =
                [of.before, of.after].map(|value| known(value.map(|value| format!("{value:.1}"))));
            let change = signed(of.difference, |value| format!("{value:.1}"));
            let name = format!("{} {}", of.cell, of.operation);
            let layouts = known(of.between_layouts.map(|most| format!("{most:.1}")));
            table.row(&[&name, &of.function, &before, &after, &change, &layouts]);
        }
        self.text.push_str(&format!("\n{}", table.text(self.style)));
        self.text.push_str(match explain {
            0 => {
                "  layouts: what differs between two layouts of one kernel. No function of a row that is longer or shorter differs by\n  more, interrupts and threads of the kernel left out; above stands what differs most\n"
            }
            _ => {
                "  layouts: what differs between two layouts of one kernel. Above stands what differs by more than that in a row that\n  is longer or shorter, interrupts and threads of the kernel left out\n"
            }
        });
        if let Some(more) = more(of.len(), shown) {
            self.text.push_str(&format!("  {more} in the record\n"));
        }
    }

    /// The table of IOMMU readings of all kernels, where something was mapped for DMA.
    fn dma(&mut self) {
        let (rows, unknown) = dma::rows(self.record, letter);
        if rows.is_empty() {
            return;
        }
        let [what, kernel, entries, runs, tables, transfer] = dma::HEAD;
        let mut table = Table::new(&format!(
            "{what} | {kernel} | {entries} | >{runs} | >{tables} | {transfer}"
        ));
        table.rows = rows;
        self.text.push_str(&format!("\n{}", table.text(self.style)));
        for why in unknown {
            self.say(2, &format!("  unknown: {why}"));
        }
    }

    /// All kernels side by side.
    fn side_by_side(&mut self) {
        let Some(first) = self.record.against.first() else {
            return;
        };
        let letters = (0..self.record.kernels.len()).map(|number| format!(">{}", letter(number)));
        let head = ["median guest instructions".to_owned()].into_iter();
        let mut table = Table::with_heads(head.chain(letters));
        for row in &first.rows {
            let name = |one: &&Row| one.cell == row.cell && one.operation == row.operation;
            let before = row
                .median
                .as_ref()
                .map(|figure| count(middle(&figure.before)));
            let mut cells = vec![row.name(), before.unwrap_or("-".to_owned())];
            for against in &self.record.against {
                let same = against.rows.iter().find(name);
                let shown = same.and_then(|row| {
                    let figure = row.median.as_ref()?;
                    let after = count(middle(&figure.after));
                    let called = matches!(row.word, Word::Longer | Word::Shorter);
                    Some(match figure.share.filter(|_| called) {
                        None => after,
                        Some(share) => {
                            let share = signed(share * 100.0, |share| format!("{share:.1}"));
                            format!("{after} ({share} %)")
                        }
                    })
                });
                cells.push(shown.unwrap_or("-".to_owned()));
            }
            table.rows.push(cells);
        }
        self.text.push_str(&table.text(self.style));
    }
}

/// `A`, `B`, ...; beyond the alphabet its number.
fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(small @ 0..26) => char::from(b'A' + small).to_string(),
        _ => format!("#{}", number + 1),
    }
}

fn row(row: &Row) -> Vec<String> {
    let name = match row.operation.is_empty() || row.operation == row.cell {
        true => row.cell.clone(),
        false => format!("{} {}", row.cell, row.operation),
    };
    let mut cells = vec![plain(&name)];
    match row.leading() {
        None => cells.extend(["-", "-", "-", "-", "-"].map(str::to_owned)),
        Some(figure) => cells.extend(figures(figure)),
    }
    cells.push(match row.modes {
        [0 | 1, 0 | 1] => String::new(),
        [before, after] => format!("{before}, {after}"),
    });
    // Which of the two figures stands in the row.
    let of_mean =
        row.mean.is_some() && row.mean.as_ref() == row.leading() && row.median != row.mean;
    cells.push(match of_mean {
        true => format!("{} (mean)", row.word),
        false => row.word.to_string(),
    });
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

pub(crate) fn signed(value: f64, shown: impl Fn(f64) -> String) -> String {
    let sign = match value {
        ..0.0 => "-",
        0.0 => "",
        _ => "+",
    };
    format!("{sign}{}", shown(value.abs()))
}

fn middle(values: &[f64]) -> f64 {
    low_median(values.to_vec()).unwrap_or_default()
}

/// Describes the possible causes of a difference, with the first options that differ.
pub(crate) fn cause(record: &Kernels, against: &Against) -> String {
    match against.cause {
        Cause::SameImage => {
            let [before, after] =
                [against.before, against.after].map(|side| &record.kernels[side].command_line);
            match before == after {
                true => "one and the same image on both sides".to_owned(),
                false => "a difference is of the command lines: one image on both sides".to_owned(),
            }
        }
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
            let options = &against.config;
            let both = options
                .iter()
                .filter(|option| option.before.is_some() && option.after.is_some());
            let both = both.count();
            let value = |value: &Option<String>| value.clone().unwrap_or("(not there)".to_owned());
            let each = options.iter().take(OPTIONS).map(|option| {
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

#[cfg(test)]
mod tests;
