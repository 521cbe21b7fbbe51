//! Advice in a sentence.

use crate::replay::ChunksSetting;

use super::{Advice, AdviceVerdict, AdviceWord, Candidate, Stretch, Variant};

/// Returns the sentence for an empty list of policies.
pub(super) fn nobody(setting: &ChunksSetting) -> AdviceVerdict {
    let why = setting
        .too_much()
        .map_or_else(String::new, |why| format!(" ({why})"));
    AdviceVerdict {
        word: AdviceWord::Inconclusive,
        text: format!(
            "inconclusive: no policy built all buffers{why}, so there is nothing to choose from"
        ),
    }
}

/// Returns the sentence for a comparison that lacks policies.
pub(super) fn interrupted(compared: usize, planned: usize) -> AdviceVerdict {
    AdviceVerdict {
        word: AdviceWord::Inconclusive,
        text: format!("inconclusive: interrupted, {compared} of {planned} policies compared"),
    }
}

/// Returns the sentence of an advice: `use list: 312 ms in a buffer's life of 60 passes (rotate-90), 250 ms to build it and 62 ms of walks;
/// runner-up one-page, 410 ms; by passes: one-page, list from 12`.
pub(super) fn verdict(advice: &Advice, setting: &ChunksSetting, access: &str) -> AdviceVerdict {
    let Some(policy) = &advice.policy else {
        return nobody(setting);
    };
    let of = |policy: &str| advice.candidates.iter().find(|one| one.policy == policy);
    let life = |one: &Candidate| ms(one.life_ms.unwrap_or_default());
    let mut parts = Vec::new();
    if let Some(one) = of(policy) {
        let build = one.build_ms.unwrap_or_default();
        parts.push(format!(
            "{} in a buffer's life of {} ({access}), {} to build it and {} of walks",
            life(one),
            passes(advice.passes),
            ms(build),
            ms(one.life_ms.unwrap_or_default() - build)
        ));
    }
    if !advice.as_good.is_empty() {
        parts.push(format!("as good: {}", advice.as_good.join(", ")));
    }
    if let Some(one) = advice.runner_up.as_deref().and_then(of) {
        parts.push(format!("runner-up {}, {}", one.policy, life(one)));
    }
    if advice.stretches.len() > 1 {
        parts.push(format!("by passes: {}", by_passes(&advice.stretches)));
    }
    if let Some(one) = advice.without_bystanders.as_deref().and_then(of) {
        parts.push(format!(
            "without regard to bystanders {}, {}",
            one.policy,
            life(one)
        ));
    }
    let overturned: Vec<String> = advice
        .variants
        .iter()
        .filter(|variant| !variant.holds)
        .map(|variant| format!("{} with {}", variant.policy, change(variant)))
        .collect();
    let (word, start) = if overturned.is_empty() {
        (AdviceWord::Use, format!("use {policy}"))
    } else {
        parts.insert(0, format!("but {}", overturned.join(", ")));
        (AdviceWord::Inconclusive, format!("inconclusive: {policy}"))
    };
    let parts = parts.join("; ");
    AdviceVerdict {
        word,
        text: format!("{start}: {parts}"),
    }
}

/// Returns a number of passes in words: `60 passes`, `1 pass`.
#[must_use]
pub fn passes(passes: u64) -> String {
    format!("{passes} pass{}", if passes == 1 { "" } else { "es" })
}

/// Returns the policy to use by number of passes: `one-page, list from 12`.
#[must_use]
pub fn by_passes(stretches: &[Stretch]) -> String {
    let texts = stretches.iter().map(|one| match one.from_passes {
        0 => one.policy.clone(),
        from => format!("{} from {from}", one.policy),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Returns a changed assumption in words: `IOMMU TLB entries x1/2`.
#[must_use]
pub fn change(variant: &Variant) -> String {
    let assumption = &variant.assumption;
    match variant.factor {
        None => assumption.clone(),
        Some(factor) if factor < 1.0 => format!("{assumption} x1/{}", 1.0 / factor),
        Some(factor) => format!("{assumption} x{factor}"),
    }
}

/// Formats milliseconds to three digits; 1,000 and more as seconds.
fn ms(ms: f64) -> String {
    if ms >= 1_000.0 {
        format!("{:.2} s", ms / 1_000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.2} ms")
    }
}
