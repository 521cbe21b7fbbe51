//! What must hold of all runs together.

use std::collections::BTreeMap;
use std::fmt;

use stopgap_stats::quantile::median;

use super::recorded::Recorded;
use crate::bound::Bound;

/// By what share the trace's switches may differ from the kernel's, in any run.
const OFF: f64 = 0.02;
/// Involuntary switches of the server that the share of causes needs.
const ENOUGH: u64 = 200;
/// Of them, what must be put down to the answer that it wrote.
const ATTRIBUTED: f64 = 0.95;
/// How many times the switches of SCHED_BATCH the default takes.
const RATIO: f64 = 1.8;
/// Switches a flush from which on `explain` advises.
const WORTH_ADVICE: f64 = 2.2;

/// Medians of the default and of SCHED_BATCH; `None` of too few.
struct Ratio(Option<[f64; 2]>);

impl Ratio {
    fn of([usual, batch]: [Vec<f64>; 2]) -> Ratio {
        Ratio(median(usual).zip(median(batch)).map(<[f64; 2]>::from))
    }

    fn is_enough(&self) -> bool {
        self.0.is_some_and(|[usual, batch]| usual >= RATIO * batch)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some([usual, batch]) => write!(
                f,
                "default {usual:.2}, SCHED_BATCH {batch:.2}, {:.2}x",
                usual / batch
            ),
            None => f.write_str("not known"),
        }
    }
}

/// All bounds.
pub(super) fn of(usual: &[Recorded], batch: &[Recorded], unrecorded: &[Vec<f64>; 2]) -> Vec<Bound> {
    let all = || usual.iter().chain(batch);
    let bound = Bound::new;
    let off = all().map(Recorded::off).fold(0.0, f64::max);
    let odd = all()
        .filter(|run| run.flushes_agree() == Some(false))
        .count();
    let unsummed = all().filter(|run| {
        let (sum, total) = run.sum_of_causes();
        sum != total
    });
    let unsummed = unsummed.count();
    let pre_empted: u64 = usual.iter().map(Recorded::pre_empted).sum();
    let by_its_answer: u64 = usual.iter().map(Recorded::by_its_answer).sum();
    let share = by_its_answer as f64 / pre_empted.max(1) as f64;
    let recorded = [usual, batch].map(|runs| runs.iter().map(Recorded::per_flush).collect());
    let recorded = Ratio::of(recorded);
    let free = Ratio::of(unrecorded.clone());
    let costly = || usual.iter().filter(|run| run.per_flush() >= WORTH_ADVICE);
    let advised = costly().filter(|run| run.advice().next() == Some("sched-batch"));
    let (advised, costly) = (advised.count(), costly().count());
    vec![
        bound(
            off <= OFF,
            format!(
                "agreement: switches by trace and by rusage differ by at most {:.1} % in any run (2 %)",
                off * 100.0
            ),
        ),
        bound(
            odd == 0,
            format!("flushes: by trace and by /proc/PID/io they differ in {odd} runs (0)"),
        ),
        bound(
            unsummed == 0,
            format!("sums: causes do not add up to the total in {unsummed} runs (0)"),
        ),
        bound(
            pre_empted >= ENOUGH,
            format!("evidence: the server was pre-empted {pre_empted} times ({ENOUGH})"),
        ),
        bound(
            share >= ATTRIBUTED,
            format!(
                "attribution: {by_its_answer} of them, {:.1} %, on the way out of the writev that woke the client (95 %)",
                share * 100.0
            ),
        ),
        bound(
            free.is_enough(),
            format!(
                "ratio: medians of switches a flush, not recorded: {free} ({RATIO}x); recorded: {recorded}"
            ),
        ),
        bound(
            advised == costly,
            format!(
                "advice: sched-batch comes first in {advised} of the {costly} default runs with {WORTH_ADVICE} switches a flush or more (all)"
            ),
        ),
    ]
}

/// Causes of all runs together, the most frequent first.
pub(super) fn causes(name: &str, runs: &[Recorded]) -> String {
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for cause in runs.iter().flat_map(Recorded::causes) {
        *sums.entry((&cause.task, &cause.cause)).or_default() += cause.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut text = format!("{name}: why they left the CPU, all runs\n");
    for ((task, cause), count) in sums {
        text.push_str(&format!("{count:8}  {task}: {cause}\n"));
    }
    let mut longest: Vec<_> = runs.iter().map(Recorded::elapsed).collect();
    longest.sort_unstable();
    if let (Some(least), Some(most)) = (longest.first(), longest.last()) {
        text.push_str(&format!("a run took {least} to {most}\n"));
    }
    text
}
