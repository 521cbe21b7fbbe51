//! Advice, for people: the sentence, the policies by what a buffer's life costs, and what would change
//! the choice.

use stopgap_stats::advise::rule::AS_GOOD;
use stopgap_stats::advise::sentence::{by_passes, change, passes};
use stopgap_stats::advise::{Advice, Advise};

use crate::replay::chunks::{assumptions, failing, named, nothing_built, scene, time};
use crate::screen::{Style, plain_table};
use crate::text::{plain, wrap};

/// The whole record.
#[must_use]
pub fn screen(advise: &Advise, style: Style) -> String {
    let advice = &advise.advice;
    let mut text = wrap(&plain(&advice.verdict.text), style.width, 2);
    if let Some(row) = advise.rows.first() {
        text.push_str(&wrap(&scene(row, &advise.chunks), style.width, 2));
    }
    text.push('\n');
    text.push_str(&candidates(advise, style));
    if !advice.variants.is_empty() {
        text.push('\n');
        text.push_str(&variants(advise, style));
    }
    text.push('\n');
    text.push_str(&legend(advise, style));
    text
}

fn candidates(advise: &Advise, style: Style) -> String {
    let Advice {
        candidates,
        passes: over,
        ..
    } = &advise.advice;
    let others = advise.rows.first().map_or(&[][..], |row| &row.bystanders);
    let mut head = vec![
        "policy".to_owned(),
        "to build".to_owned(),
        "walks a pass".to_owned(),
        passes(*over),
    ];
    head.extend(others.iter().map(|other| format!("{} %", named(other))));
    head.push(String::new());
    let mut cells: Vec<Vec<String>> = candidates
        .iter()
        .map(|one| {
            let mut cells = vec![
                plain(&one.policy),
                time(one.build_ms),
                time(one.pass_ms),
                time(one.life_ms),
            ];
            let row = advise.rows.iter().find(|row| row.policy == one.policy);
            cells.extend(row.iter().flat_map(|row| &row.bystanders).map(failing));
            cells.push(
                one.set_aside
                    .as_ref()
                    .map_or_else(String::new, |why| format!("no: {}", plain(why))),
            );
            cells
        })
        .collect();
    if !others.is_empty() {
        cells.push(nothing_built(&advise.chunks, 4, head.len()));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let last = head.len() - 1;
    let right: Vec<bool> = (0..=last)
        .map(|column| (1..last).contains(&column))
        .collect();
    plain_table(&head, cells, &right, true, style)
}

fn variants(advise: &Advise, style: Style) -> String {
    let head = ["were it otherwise", "use", "advice", "by passes"];
    let cells = advise.advice.variants.iter().map(|variant| {
        vec![
            plain(&change(variant)),
            plain(&variant.policy),
            if variant.holds {
                "stands"
            } else {
                "OVERTURNED"
            }
            .to_owned(),
            plain(&by_passes(&variant.stretches)),
        ]
    });
    plain_table(&head, cells.collect(), &[], true, style)
}

fn legend(advise: &Advise, style: Style) -> String {
    let others = advise.rows.first().map_or(&[][..], |row| &row.bystanders);
    let names: Vec<String> = others
        .iter()
        .map(|other| format!("{} %", named(other)))
        .collect();
    let others = if names.is_empty() {
        String::new()
    } else {
        format!(
            " {}: failures in 100 tries of others at that order, (nothing): without any buffer; a policy beside which \
             they fail clearly more often than that is not used.",
            names.join(", ")
        )
    };
    let mut text = format!(
        "A buffer's life: to build it, and the page-table walks of all passes over it ({}). Up to {:.0} % more than the \
         least is as good; of what is as good, that is used which would try least were no two free pages adjacent, by \
         passes and under each assumption too. stands: what is advised costs at most {:.0} % more than the least \
         then.{others} Modelled, not measured; assumed: {}. seed {}",
        advise.chunks.access.join(", "),
        AS_GOOD * 100.0,
        2.0 * AS_GOOD * 100.0,
        assumptions(&advise.chunks),
        advise.seed
    );
    if advise.interrupted {
        text.push_str(
            ". Interrupted: not every policy was compared, and the last may be cut short",
        );
    }
    wrap(&text, style.width, 0)
}

#[cfg(test)]
mod tests;
