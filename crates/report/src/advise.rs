//! Advice, for people: the sentence, the policies by what a buffer's life costs, and what would change
//! the choice.

use stopgap_stats::advise::Advise;
use stopgap_stats::advise::rule::AS_GOOD;
use stopgap_stats::advise::sentence::{by_passes, change, passes};

use crate::replay::chunks::{add_nothing_built, assumptions, failing, percent_of, scene, time};
use crate::table::{Screen, Style, Table, join, known_or};

/// Returns the text of the whole record.
#[must_use]
pub fn screen(advise: &Advise, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.say_bold(&advise.advice.verdict.text);
    if let Some(row) = advise.rows.first() {
        screen.say(scene(row, &advise.chunks));
    }
    screen.add("\n");
    screen.wrapped_table(&candidates(advise));
    let (stands, overturned): (Vec<_>, Vec<_>) =
        advise.advice.variants.iter().partition(|one| one.holds);
    if style.verbose && !advise.advice.variants.is_empty() {
        screen.add("\n");
        screen.wrapped_table(&variants(advise));
    } else if !advise.advice.variants.is_empty() {
        screen.add("\n");
        let (all, names) = (
            advise.advice.variants.len(),
            join(overturned.iter().map(|one| change(one)), ", "),
        );
        screen.say(match overturned.is_empty() {
            true => format!("the advice stands under each of {all} other assumptions, half or twice a price"),
            false => format!(
                "the advice stands under {} of {all} other assumptions, half or twice a price, not under: {names}",
                stands.len()
            ),
        });
    }
    screen.add("\n");
    screen.say_by(0, legend(advise, style.verbose));
    screen.finish()
}

fn candidates(advise: &Advise) -> Table {
    let others = advise.rows.first().map_or(&[][..], |row| &row.bystanders);
    let passes = passes(advise.advice.passes);
    let head = ["to build".to_owned(), "walks a pass".to_owned(), passes].into_iter();
    let head = head
        .chain(others.iter().map(percent_of))
        .map(|head| format!(">{head}"));
    let head = ["policy".to_owned()]
        .into_iter()
        .chain(head)
        .chain([String::new()]);
    let mut table = Table::with_heads(head);
    for one in &advise.advice.candidates {
        let mut cells = vec![one.policy.clone()];
        cells.extend([one.build_ms, one.pass_ms, one.life_ms].map(time));
        let row = advise.rows.iter().find(|row| row.policy == one.policy);
        cells.extend(row.iter().flat_map(|row| &row.bystanders).map(failing));
        cells.push(known_or(
            "",
            one.set_aside.as_ref().map(|why| format!("no: {why}")),
        ));
        table.rows.push(cells);
    }
    if !others.is_empty() {
        add_nothing_built(&mut table, &advise.chunks, 4);
    }
    table
}

fn variants(advise: &Advise) -> Table {
    let mut table = Table::new("were it otherwise | use | advice | by passes");
    for variant in &advise.advice.variants {
        let word = if variant.holds {
            "stands"
        } else {
            "OVERTURNED"
        };
        let (change, by_passes) = (change(variant), by_passes(&variant.stretches));
        table.row(&[&change, &variant.policy, &word, &by_passes]);
    }
    table
}

fn legend(advise: &Advise, all: bool) -> String {
    let others = advise.rows.first().map_or(&[][..], |row| &row.bystanders);
    let others = match others {
        [] => String::new(),
        others => format!(
            " {}: failures in 100 tries of others at that order, (nothing): without any buffer; a policy beside which \
             they fail clearly more often than that is not used.",
            join(others.iter().map(percent_of), ", ")
        ),
    };
    let interrupted = match advise.interrupted {
        true => ". Interrupted: not every policy was compared, and the last may be cut short",
        false => "",
    };
    let more = match all {
        true => format!(
            "Of what is as good, that is used which would try least were no two free pages adjacent, by passes and under \
             each assumption too. stands: what is advised costs at most {:.0} % more than the least then. Modelled, not \
             measured; assumed: {}. seed {}",
            2.0 * AS_GOOD * 100.0,
            assumptions(&advise.chunks),
            advise.seed
        ),
        false => "Modelled, not measured; --verbose adds what is assumed".to_owned(),
    };
    format!(
        "A buffer's life: to build it, and the page-table walks of all passes over it ({}). Up to {:.0} % more than the \
         least is as good.{others} {more}{interrupted}",
        advise.chunks.access.join(", "),
        AS_GOOD * 100.0,
    )
}

#[cfg(test)]
mod tests;
