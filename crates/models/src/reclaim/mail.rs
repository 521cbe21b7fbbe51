//! Mail 004's figures beside the model's.

use stopgap_events::reclaim::Load;
use stopgap_stats::replay::ReclaimRow;

use super::{Policy, Release};

/// Mean of a 2 MiB allocation in mail 004, in microseconds, by how memory is held. `lock_vma` is [`Policy::Mlock`], `tip`
/// is [`Policy::Held`], `mapping` is [`Policy::Mapping`] with [`Release::SecondPass`].
const MEANS: [(Policy, f64); 4] = [
    (Policy::None, 778.8),
    (Policy::Mlock, 1_416.0),
    (Policy::Held, 9_579.5),
    (Policy::Mapping, 14_654.8),
];

/// Compares the order of the mail's means with the order of the model's; `None` unless the four rows of the mail are there.
#[must_use]
pub fn mail(rows: &[ReclaimRow]) -> Option<String> {
    let mean = |policy: Policy| {
        let release = policy.marks().then(|| Release::SecondPass.to_string());
        let same = |row: &&ReclaimRow| {
            row.workload == Load::GemSyslatency.word()
                && row.policy == policy.word()
                && row.release == release
        };
        Some(rows.iter().find(same)?.allocation.as_ref()?.mean_us)
    };
    let modelled: Vec<f64> = MEANS
        .iter()
        .map(|(policy, _)| mean(*policy))
        .collect::<Option<_>>()?;
    let factor = |means: &[f64]| means[3] / means[2];
    let (here, there) = (factor(&modelled), factor(&MEANS.map(|(_, us)| us)));
    let verdict = if modelled.is_sorted() {
        "the order is mail 004's"
    } else {
        "CONTRADICTS mail 004"
    };
    let all: Vec<String> = MEANS
        .iter()
        .zip(&modelled)
        .map(|((policy, mail), us)| format!("{policy} {us:.0} ({mail:.0})"))
        .collect();
    Some(format!(
        "{verdict}: mapping released by second-pass takes {here:.2} times as long as held, in the mail {there:.2} times; \
         means in us, in brackets the mail's: {}; see docs/questions/reclaim.md",
        all.join(", ")
    ))
}
