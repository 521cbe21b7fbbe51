//! The rule by which a policy is chosen.
//!
//! **The cost of a buffer's life** is what it takes to build it, once, and what the IOMMU's page-table walks
//! take while the device goes over it:
//!
//! ```text
//! life(policy) = build + passes x walks of a pass        walks of a pass = accesses x misses x walk
//! ```
//!
//! Both terms are milliseconds. So for any two policies there is a number of passes below which the one that is
//! cheaper to build wins, and above which the one that maps better wins. Walks are charged in full, as if the device
//! waited for each: an upper bound for a device that reads ahead. The cost of a pass without walks is the same for
//! all policies and is left out.
//!
//! A policy that costs at most [`AS_GOOD`] more is as good, because prices are not known better. Among these, the
//! policy is used that would try least if no two free pages were adjacent, because memory may become worse.
//!
//! **Bystanders are a constraint, not a cost**: nobody can say how many milliseconds a dropped packet is worth. A
//! policy is set aside if a bystander fails clearly more often beside it than alone (by more than [`BYSTANDERS`] and
//! by more than two standard errors). The advice says so, and names the policy without that constraint. A policy that
//! could not build all buffers is set aside, too. If memory is so bad that bystanders fail alone, no policy is
//! blamed.
//!
//! **Sensitivity.** Costs are compared again with each assumption halved and doubled. If the chosen policy then costs
//! more than twice [`AS_GOOD`] above the least, the answer is `inconclusive`.
//!
//! The same rule chooses every policy that is named by passes or under an assumption. Only the runner-up is simply
//! the cheapest of the policies that are not as good.
//!
//! Pure arithmetic on rows. Cost: policies^3 a variant.

use std::collections::BTreeSet;

use stopgap_events::order::SortRows;

use crate::replay::chunks::{Bystander, Sensitivity};
use crate::replay::{ChunksRow, ChunksSetting};

use super::{Advice, AdviceVerdict, Candidate, Stretch, Variant, sentence};

/// Share by which a policy may cost more and still be as good.
pub const AS_GOOD: f64 = 0.05;

/// Share of its tries by which a bystander may fail more often beside a policy than without one.
pub const BYSTANDERS: f64 = 0.01;

/// The largest break-even that is shown, in passes: a century at 60 per second.
const MOST_PASSES: f64 = 2e11;

/// Chooses among `rows` for a device that goes over each buffer `passes` times in the pattern `access`. `setting` has
/// the bystanders' failures without any buffer.
#[must_use]
pub fn advise(rows: &[ChunksRow], setting: &ChunksSetting, access: &str, passes: u64) -> Advice {
    let aside = set_aside(rows, &setting.bystanders_alone);
    let usable = |row: &&ChunksRow| !aside.iter().any(|(policy, _)| *policy == row.policy);
    let usable: Vec<&ChunksRow> = rows.iter().filter(usable).collect();
    let lines = lines(&usable, access, None);
    let Some(best) = choice(&lines, passes) else {
        let candidates = candidates(rows, access, passes, &aside);
        return no_choice(sentence::nobody(setting), candidates, passes);
    };
    let life = least(&lines, passes).map_or(0.0, |line| line.life(passes));
    let (as_good, others): (Vec<Line<'_>>, Vec<Line<'_>>) = lines
        .iter()
        .filter(|line| line.policy != best.policy)
        .partition(|line| is_as_good(line.life(passes), life));
    let runner_up = least(&others, passes);
    let able: Vec<&ChunksRow> = rows.iter().filter(|row| row.failures == 0).collect();
    let able = self::lines(&able, access, None);
    let cheaper = least(&able, passes).filter(|line| !is_as_good(life, line.life(passes)));
    let without_bystanders = cheaper.and_then(|_| choice(&able, passes));
    let word = |line: &Line<'_>| line.policy.to_owned();
    let mut advice = Advice {
        verdict: sentence::nobody(setting),
        passes,
        policy: Some(word(&best)),
        as_good: as_good.iter().map(word).collect(),
        runner_up: runner_up.map(|line| word(&line)),
        without_bystanders: without_bystanders.map(|line| word(&line)),
        stretches: stretches(&lines),
        candidates: candidates(rows, access, passes, &aside),
        variants: variants(&usable, access, passes, best.policy),
    };
    advice.verdict = sentence::verdict(&advice, setting, access);
    advice
}

/// Returns the advice if only `compared` of `planned` policies were compared completely: none, because a missing
/// policy may be the best. `rows` may have one more, incomplete row.
#[must_use]
pub fn interrupted(
    rows: &[ChunksRow],
    setting: &ChunksSetting,
    access: &str,
    passes: u64,
    (compared, planned): (usize, usize),
) -> Advice {
    let aside = set_aside(rows, &setting.bystanders_alone);
    let candidates = candidates(rows, access, passes, &aside);
    no_choice(sentence::interrupted(compared, planned), candidates, passes)
}

/// Returns advice without a policy.
fn no_choice(verdict: AdviceVerdict, candidates: Vec<Candidate>, passes: u64) -> Advice {
    Advice {
        verdict,
        passes,
        policy: None,
        as_good: Vec::new(),
        runner_up: None,
        without_bystanders: None,
        stretches: Vec::new(),
        candidates,
        variants: Vec::new(),
    }
}

/// A policy's cost by number of passes.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    policy: &'a str,
    /// Milliseconds at 0 passes.
    build: f64,
    /// Milliseconds per pass.
    pass: f64,
    /// Tries if memory is at its worst.
    tries: u64,
}

impl Line<'_> {
    fn life(&self, passes: u64) -> f64 {
        self.build + passes as f64 * self.pass
    }
}

/// An assumption's name and its factor.
type Changed<'a> = (&'a str, Option<f64>);

/// Returns the costs of the `rows` that have both figures, with one assumption changed.
fn lines<'a>(rows: &[&'a ChunksRow], access: &str, changed: Option<Changed<'_>>) -> Vec<Line<'a>> {
    let line = |row: &&'a ChunksRow| {
        let tlb = row.tlb.iter().find(|tlb| tlb.access == access)?;
        let otherwise = |quantity: &str, access: Option<&str>| {
            let (assumption, factor) = changed?;
            let same = |one: &&Sensitivity| {
                one.assumption == assumption
                    && one.factor == factor
                    && one.quantity == quantity
                    && one.access.as_deref() == access
            };
            row.sensitivity.iter().find(same).map(|one| one.value)
        };
        Some(Line {
            policy: &row.policy,
            build: otherwise("time_ms", None).or(row.time_ms)?,
            pass: otherwise("pass_ms", Some(access)).unwrap_or(tlb.pass_ms),
            tries: row.tries_per_buffer_at_worst,
        })
    };
    rows.iter().filter_map(line).collect()
}

/// Returns the line with the least cost; the first of equal ones.
fn least<'a>(lines: &[Line<'a>], passes: u64) -> Option<Line<'a>> {
    let cheaper = |a: &&Line<'_>, b: &&Line<'_>| a.life(passes).total_cmp(&b.life(passes));
    lines.iter().min_by(cheaper).copied()
}

/// Returns, among the lines that are as good as the cheapest, the one with the fewest tries at worst; among equal
/// ones the cheapest, then the one with the cheaper pass.
fn choice<'a>(lines: &[Line<'a>], passes: u64) -> Option<Line<'a>> {
    let least = least(lines, passes)?.life(passes);
    let good = lines
        .iter()
        .filter(|line| is_as_good(line.life(passes), least));
    let better = |a: &&Line<'_>, b: &&Line<'_>| {
        let tries = a.tries.cmp(&b.tries);
        let cost = a.life(passes).total_cmp(&b.life(passes));
        tries.then(cost).then(a.pass.total_cmp(&b.pass))
    };
    good.min_by(better).copied()
}

fn is_as_good(cost: f64, least: f64) -> bool {
    cost <= least * (1.0 + AS_GOOD)
}

/// Returns the policies that must not be used, with reasons.
fn set_aside<'a>(rows: &'a [ChunksRow], alone: &[Bystander]) -> Vec<(&'a str, String)> {
    let why = |row: &ChunksRow| {
        if row.failures > 0 {
            let (failed, all) = (row.failures, row.operations);
            return Some(format!("could not build {failed} of {all} buffers"));
        }
        row.bystanders.iter().find_map(|one| {
            let before = alone.iter().find(|other| other.name == one.name)?;
            is_harmed(one, before).then(|| {
                format!(
                    "{} (order {}) fails in {:.1} % of its tries, alone in {:.1} %",
                    one.name,
                    one.order,
                    failing(one) * 100.0,
                    failing(before) * 100.0
                )
            })
        })
    };
    rows.iter()
        .filter_map(|row| Some((row.policy.as_str(), why(row)?)))
        .collect()
}

/// Returns the share of its tries that failed; 0 without tries.
fn failing(one: &Bystander) -> f64 {
    one.failures as f64 / one.tries.max(1) as f64
}

/// Returns whether it fails more often than `alone`, by more than [`BYSTANDERS`] and by more than two standard errors
/// of the difference.
fn is_harmed(one: &Bystander, alone: &Bystander) -> bool {
    let tries = [one.tries.max(1) as f64, alone.tries.max(1) as f64];
    let both = (one.failures + alone.failures) as f64 / (tries[0] + tries[1]);
    let error = (both * (1.0 - both) * (1.0 / tries[0] + 1.0 / tries[1])).sqrt();
    failing(one) - failing(alone) > BYSTANDERS.max(2.0 * error)
}

fn candidates(
    rows: &[ChunksRow],
    access: &str,
    passes: u64,
    aside: &[(&str, String)],
) -> Vec<Candidate> {
    let candidate = |row: &ChunksRow| {
        let line = lines(&[row], access, None).pop();
        let why = aside.iter().find(|(policy, _)| *policy == row.policy);
        Candidate {
            policy: row.policy.clone(),
            build_ms: row.time_ms,
            pass_ms: line.map(|line| line.pass),
            life_ms: line.map(|line| line.life(passes)),
            bystanders_failing: share(row.bystander_failures, row.bystander_tries),
            set_aside: why.map(|(_, why)| why.clone()),
        }
    };
    let mut all: Vec<Candidate> = rows.iter().map(candidate).collect();
    all.sort_rows(|a, b| {
        let cost = |one: &Candidate| one.life_ms.unwrap_or(f64::INFINITY);
        let aside = a.set_aside.is_some().cmp(&b.set_aside.is_some());
        aside.then(cost(a).total_cmp(&cost(b)))
    });
    all
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the [`choice`] by passes, starting with 0. It can change only where two costs are equal, or where one is
/// the last time as good as the other. So it is computed for the first whole number of passes at and after each of
/// these.
fn stretches(lines: &[Line<'_>]) -> Vec<Stretch> {
    let mut turns = BTreeSet::from([0]);
    for (one, other) in lines.iter().flat_map(|a| lines.iter().map(move |b| (a, b))) {
        for share in [1.0, 1.0 + AS_GOOD] {
            let passes = (share * other.build - one.build) / (one.pass - share * other.pass);
            // Lines that never meet give no number, or an infinite one.
            if (0.0..=MOST_PASSES).contains(&passes) {
                turns.extend([passes.ceil() as u64, passes.floor() as u64 + 1]);
            }
        }
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    for from_passes in turns {
        let Some(policy) = choice(lines, from_passes).map(|line| line.policy) else {
            break;
        };
        if stretches.last().is_none_or(|last| last.policy != policy) {
            stretches.push(Stretch {
                from_passes,
                policy: policy.to_owned(),
            });
        }
    }
    stretches
}

/// Returns the choice under each change that the rows allow.
fn variants(rows: &[&ChunksRow], access: &str, passes: u64, chosen: &str) -> Vec<Variant> {
    let mut changes: Vec<Changed<'_>> = Vec::new();
    for one in rows.iter().flat_map(|row| &row.sensitivity) {
        let change = (one.assumption.as_str(), one.factor);
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    let variant = |change: Changed<'_>| {
        let lines = lines(rows, access, Some(change));
        let (best, least) = (choice(&lines, passes)?, least(&lines, passes)?);
        let ours = lines.iter().find(|line| line.policy == chosen)?;
        Some(Variant {
            assumption: change.0.to_owned(),
            factor: change.1,
            policy: best.policy.to_owned(),
            // The choice itself may already cost that much more than the least.
            holds: ours.life(passes) <= least.life(passes) * (1.0 + 2.0 * AS_GOOD),
            stretches: stretches(&lines),
        })
    };
    changes.into_iter().filter_map(variant).collect()
}

#[cfg(test)]
mod tests;
