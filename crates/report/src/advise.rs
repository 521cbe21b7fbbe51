//! Advice, for people: the sentence, the policies by what a buffer's life costs, and what would change
//! the choice.

use stopgap_stats::advise::sentence::{by_passes, change};
use stopgap_stats::advise::{Advise, Candidate};

use crate::replay::chunks::{assumptions, scene, time};
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, wrap};

/// Stands where something is not known.
const UNKNOWN: &str = "-";

/// The whole record.
#[must_use]
pub fn screen(advise: &Advise, style: Style) -> String {
    let advice = &advise.advice;
    let mut text = wrap(&plain(&advice.verdict.text), style.width, 2);
    if let Some(row) = advise.rows.first() {
        text.push_str(&wrap(&scene(row, &advise.chunks), style.width, 2));
    }
    text.push('\n');
    text.push_str(&candidates(&advice.candidates, advice.passes, style));
    if !advice.variants.is_empty() {
        text.push('\n');
        text.push_str(&variants(advise, style));
    }
    text.push('\n');
    text.push_str(&legend(advise, style));
    text
}

fn candidates(candidates: &[Candidate], passes: u64, style: Style) -> String {
    let life = format!("{passes} passes");
    let head = [
        "policy",
        "to build",
        "walks a pass",
        &life,
        "others fail %",
        "",
    ];
    let cells = candidates.iter().map(|one| {
        vec![
            plain(&one.policy),
            time(one.build_ms),
            time(one.pass_ms),
            time(one.life_ms),
            one.bystanders_failing
                .map_or_else(|| UNKNOWN.to_owned(), |share| number(share * 100.0)),
            one.set_aside
                .as_ref()
                .map_or_else(String::new, |why| format!("no: {}", plain(why))),
        ]
    });
    let right = [false, true, true, true, true, false];
    plain_table(&head, cells.collect(), &right, true, style)
}

fn variants(advise: &Advise, style: Style) -> String {
    let head = ["were it otherwise", "least", "advice", "by passes"];
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
    let mut text = format!(
        "A buffer's life: to build it, and the page-table walks of all passes over it ({}). Up to {:.0} % more is as \
         good. Beside a policy that is used, others fail hardly more often than alone. Modelled, not measured; \
         assumed: {}. seed {}",
        advise.chunks.access.join(", "),
        stopgap_stats::advise::rule::AS_GOOD * 100.0,
        assumptions(&advise.chunks),
        advise.seed
    );
    if advise.interrupted {
        text.push_str(". Interrupted: not every policy was compared");
    }
    wrap(&text, style.width, 0)
}

#[cfg(test)]
mod tests;
