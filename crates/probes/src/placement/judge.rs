//! Answers from the samples, without a system.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::order::{Inserted as _, SortRows};
use stopgap_events::question::Question;
use stopgap_events::workload::Form;
use stopgap_stats::growth::{self, Growth, Point};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{median, quantile};
use stopgap_stats::record::{Answer, Figure, Parameter, Series, parameters};
use stopgap_stats::replay::Loops;
use stopgap_stats::verdict::{Verdict, Word};

use super::Placement;
use super::execute::Backend;
use super::run::CONTROL;
use crate::contract::{Judgement, Measured, Parameters, list};
use crate::meter::Step;

pub(super) fn judge(
    probe: &Placement,
    measured: Measured,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let of_backend = |backend: &Backend| -> BackendAnswer {
        let mut missing = measured.missing.iter();
        match missing.find(|missing| missing.what == backend.to_string()) {
            Some(Missing { what, why }) => (
                Verdict::unsupported(&format!("{what}: {why}")),
                None,
                Vec::new(),
            ),
            None => judge_backend(&measured.series, backend, seed),
        }
    };
    let mut answers: Vec<BackendAnswer> = probe.backends.iter().map(of_backend).collect();
    // The worst answer leads; of equals the first, which is the one most like a driver.
    answers.sort_rows_by_key(|(verdict, ..)| match verdict.word {
        Word::Grows => 0,
        Word::Inconclusive => 1,
        Word::Unsupported => 3,
        _ => 2,
    });
    let mut evidence: Vec<String> = answers.iter().flat_map(|a| a.2.clone()).collect();
    evidence.extend(workload_evidence(&measured.series));
    evidence.extend(thread_evidence(&measured.series));
    evidence.extend(tail_evidence(&measured.series));
    let (verdict, figure) = match (measured.without_figures(), answers.into_iter().next()) {
        (Some(verdict), _) => (verdict, None),
        (None, Some((verdict, figure, _))) => (verdict, figure),
        (None, None) => (Verdict::inconclusive("no backend was measured"), None),
    };
    let advice = if verdict.word == Word::Grows {
        vec![
            "map fewer, larger areas: reserve once and place buffers inside".to_owned(),
            "see which process holds the mappings: stopgap check --passive".to_owned(),
        ]
    } else {
        Vec::new()
    };
    let judgement = Judgement {
        verdict,
        figure,
        evidence,
        advice,
    };
    let parameters = given(probe, seed);
    measured.into_answer(Question::Placement, parameters, privilege, judgement)
}

/// Returns what was asked, for the record.
fn given(probe: &Placement, seed: u64) -> Parameters {
    let number = |given: Option<u32>| given.map_or_else(|| "default".into(), Parameter::from);
    parameters([
        ("n", list(&probe.ladder, ",").into()),
        ("backend", list(&probe.backends, ",").into()),
        ("steps", probe.steps.into()),
        ("runs", probe.runs.into()),
        ("threads", list(&probe.threads, ",").into()),
        ("agua-loops", probe.agua_loops.into()),
        ("agua-live", number(probe.agua_live)),
        ("agua-drop", number(probe.agua_drop)),
        ("freegap-rounds", probe.freegap_rounds.into()),
        ("seed", seed.into()),
    ])
}

/// Returns the series of that name whose parameters include all of `wanted`.
fn find<'m>(series: &'m [Series], name: &str, wanted: &[(&str, Parameter)]) -> Option<&'m Series> {
    series.iter().find(|series| series.is(name, wanted))
}

/// Verdict, figure and evidence.
type BackendAnswer = (Verdict, Option<Figure>, Vec<String>);

/// Whether more runs could say what these do not, of some backend: there is growth to judge, over a ladder that is long
/// enough, and its interval or the control's holds too much.
pub(super) fn is_open(series: &[Series], backends: &[Backend], seed: u64) -> bool {
    let control = control(series, seed);
    backends.iter().any(|backend| {
        growth::fit(&cost(series, backend), seed).is_ok_and(|growth| {
            growth.largest_n / growth.reference_n >= growth::LEAST_SPAN
                && growth::verdict(&growth, control.as_ref()).word == Word::Inconclusive
        })
    })
}

/// Returns what a buffer of this backend costs in all, over N.
fn cost(series: &[Series], backend: &Backend) -> Vec<Point> {
    let pbobench = [
        ("workload", Parameter::from("pbobench")),
        ("backend", backend.to_string().into()),
    ];
    points(series, &pbobench, &backend.cycle())
}

/// How the positive control grew.
fn control(series: &[Series], seed: u64) -> Option<Growth> {
    let control = [("workload", Parameter::from("control"))];
    growth::fit(&points(series, &control, &[CONTROL]), seed).ok()
}

fn judge_backend(series: &[Series], backend: &Backend, seed: u64) -> BackendAnswer {
    let cost = cost(series, backend);
    let control = control(series, seed);
    match growth::fit(&cost, seed) {
        Ok(growth) => {
            let ratio = &growth.ratio;
            let figure = Figure::new(ratio.value, "x").within(ratio.low, ratio.high);
            let first = sentence(backend, &cost, &growth, control.as_ref());
            let steps = step_evidence(series, backend, growth.largest_n);
            (
                growth::verdict(&growth, control.as_ref()),
                Some(figure),
                std::iter::once(first).chain(steps).collect(),
            )
        }
        Err(error) => {
            let verdict = Verdict::inconclusive(&format!("{backend}: {error}"));
            (verdict, None, Vec::new())
        }
    }
}

/// `3.6 -> 4.1 us per map, touch and unmap, N 1,000..64,000, memfd (control ~N^1.00: ok)`.
fn sentence(
    backend: &Backend,
    cost: &[Point],
    growth: &Growth,
    control: Option<&Growth>,
) -> String {
    let control = match control.and_then(|control| control.exponent.as_ref()) {
        Some(exponent) => format!("control ~N^{:.2}", exponent.value),
        None => "control unknown".to_owned(),
    };
    let at = |n: f64| {
        let runs = cost.iter().find(|point| point.n.total_cmp(&n).is_eq());
        runs.and_then(|point| median(point.runs.clone()))
            .unwrap_or(f64::NAN)
            / 1_000.0
    };
    let cycle = match backend.cycle().len() {
        3 => "map, touch and unmap",
        _ => "create, map, touch, unmap and destroy",
    };
    format!(
        "{:.2} -> {:.2} us per {cycle}, N {}..{}, {backend} ({control})",
        at(growth.reference_n),
        at(growth.largest_n),
        growth.reference_n,
        growth.largest_n,
    )
}

/// `vgem at N 40000: create 3.1, map 1.2, first touch 0.9, unmap 1.4, destroy 2.0 us (/dev/dri/card0, vgem 1.0.0)`: of
/// objects, what each step of their life takes.
fn step_evidence(series: &[Series], backend: &Backend, n: f64) -> Option<String> {
    backend.maker()?;
    let wanted = [
        ("workload", Parameter::from("pbobench")),
        ("backend", backend.to_string().into()),
        ("n", (n as u64).into()),
    ];
    let mut steps = Vec::new();
    let mut device = None;
    for step in backend.cycle() {
        let one = find(series, step, &wanted)?;
        device = one.parameters.get("device");
        steps.push(format!("{step} {:.2}", micros(one.pooled().median()?)));
    }
    let device = match device {
        Some(Parameter::Word(name)) => format!(" ({name})"),
        _ => String::new(),
    };
    Some(format!(
        "{backend} at N {n}: {} us{device}",
        steps.join(", ")
    ))
}

/// Cost over N: at each N the sum of the medians of these series, a figure a run. Only runs
/// that measured all of it count.
fn points(series: &[Series], of: &[(&str, Parameter)], names: &[&str]) -> Vec<Point> {
    let mut by_n: BTreeMap<u64, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for one in series {
        let wanted = names.iter().any(|name| one.is(name, of));
        if let (true, Some(n)) = (wanted, one.number("n")) {
            for block in &one.blocks {
                let values = by_n.entry(n).or_default().entry(block.run).or_default();
                values.push(block.value);
            }
        }
    }
    let complete = |runs: &BTreeMap<u32, Vec<f64>>| -> BTreeSet<u32> {
        let whole = runs
            .iter()
            .filter(|(_, values)| values.len() == names.len());
        whole.map(|(&run, _)| run).inserted()
    };
    let in_all = by_n
        .values()
        .map(complete)
        .reduce(|all, these| &all & &these)
        .unwrap_or_default();
    by_n.into_iter()
        .map(|(n, runs)| Point {
            n: n as f64,
            runs: in_all.iter().map(|run| runs[run].iter().sum()).collect(),
        })
        .collect()
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

fn workload_evidence(series: &[Series]) -> Vec<String> {
    let mut evidence = Vec::new();
    let agua = [("workload", Parameter::from("agua"))];
    evidence.extend(find(series, "loop", &agua).and_then(agua_evidence));
    for &form in Form::ALL {
        let calls: &[Step] = match form {
            // A round protects twice.
            Form::Posted | Form::InnerMprotect => &[Step::Protect, Step::Protect],
            Form::InnerRemap => &[Step::Unmap, Step::Map],
        };
        let wanted = [
            ("workload", Parameter::from("freegap")),
            ("form", form.word().into()),
        ];
        let medians: Option<Vec<u64>> = calls
            .iter()
            .map(|call| find(series, call.word(), &wanted)?.pooled().median())
            .collect();
        if let Some(medians) = medians {
            let round = micros(medians.iter().sum());
            evidence.push(format!("freegap {form}: {round:.2} us a round"));
        }
    }
    evidence
}

/// Returns the lines of `agua_frag_test`, its verdict first.
fn agua_evidence(series: &Series) -> Option<String> {
    let loops = Loops::in_histogram(&series.pooled())?;
    let verdict = if loops.count < Some(2) {
        "inconclusive: one loop has no deviation".to_owned()
    } else if loops.is_steady() {
        "all checks pass".to_owned()
    } else {
        format!("standard deviation exceeds {} ms", Loops::MOST_SD_MS)
    };
    let live = series.number("live");
    let live = live.map_or_else(String::new, |live| format!(", at most {live} live"));
    Some(format!(
        "agua: {verdict}: min {:.1}, avg {:.1}, max {:.1}, sd {:.1} ms for the 10,000 maps of a loop ({} loops{live})",
        loops.min_ms,
        loops.avg_ms,
        loops.max_ms,
        loops.sd_ms,
        loops.count.unwrap_or(0),
    ))
}

fn thread_evidence(series: &[Series]) -> Vec<String> {
    let mut evidence = Vec::new();
    let with = |threads: u64| {
        let wanted = [
            ("workload", Parameter::from("threads")),
            ("threads", threads.into()),
        ];
        find(series, "fault", &wanted)
    };
    let Some(alone) = with(1).and_then(|series| series.pooled().median()) else {
        return evidence;
    };
    for one in series.iter().filter(|one| one.name == "fault") {
        if let Some(threads) = one.number("threads").filter(|&threads| threads > 1) {
            let beside = one.pooled();
            if let Some(median) = beside.median() {
                let tail = match quantile(&beside, 0.999) {
                    Ok(ns) => format!("{:.1} us", micros(ns)),
                    Err(few) => few.to_string(),
                };
                evidence.push(format!(
                    "a fault takes {:.2} us alone, {:.2} us beside {} mapping (p99.9 {tail})",
                    micros(alone),
                    micros(median),
                    threads - 1,
                ));
            }
        }
    }
    evidence.extend(shootdown_evidence(series));
    evidence
}

/// An unmap by a process that runs on one CPU, and by one that runs on several: the
/// difference is telling the other CPUs to forget the translation.
fn shootdown_evidence(series: &[Series]) -> Option<String> {
    let unmap = Step::Unmap.word();
    let alone = [
        ("workload", Parameter::from("pbobench")),
        ("backend", Backend::Memfd.to_string().into()),
    ];
    let threads = [("workload", Parameter::from("threads"))];
    let alone = find(series, unmap, &alone)?.pooled().median()?;
    let beside = find(series, unmap, &threads)?.pooled().median()?;
    Some(format!(
        "an unmap takes {:.2} us by the only thread, {:.2} us beside a thread that runs",
        micros(alone),
        micros(beside),
    ))
}

/// The longest single call, because it is the one that freezes something.
fn tail_evidence(series: &[Series]) -> Vec<String> {
    let calls = Step::OBJECT.map(Step::word);
    let (mut worst, mut stalls) = (None, 0);
    for one in series.iter().filter(|s| calls.contains(&s.name.as_str())) {
        for block in &one.blocks {
            let longest = block.histogram.as_ref().and_then(Histogram::max);
            worst = worst.max(longest.map(|ns| (ns, one.name.as_str())));
            stalls += block.stalls.as_ref().map_or(0, |stalls| stalls.count);
        }
    }
    worst
        .map(|(ns, name)| {
            format!(
                "longest single call: {name} {:.2} ms; {stalls} above {}",
                micros(ns) / 1_000.0,
                super::STALL
            )
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::record::Block;
    use stopgap_testing::assert_contains;

    fn series(name: &str, n: u64, values: &[f64]) -> Series {
        let parameters = parameters([
            ("workload", "pbobench".into()),
            ("backend", "memfd".into()),
            ("n", n.into()),
        ]);
        let blocks = (0u32..).zip(values);
        let blocks = blocks.map(|(run, &value)| Block::number(run, 0, 100, value));
        Series::new(name, "ns", &parameters, blocks)
    }

    #[test]
    fn a_run_that_lacks_a_part_does_not_count() {
        let measured = [
            series("map", 100, &[1.0, 2.0, 3.0]),
            series("unmap", 100, &[10.0, 20.0]),
            series("map", 1_000, &[4.0, 5.0, 6.0]),
            series("unmap", 1_000, &[40.0, 50.0, 60.0]),
        ];
        let points = points(&measured, &[("backend", "memfd".into())], &["map", "unmap"]);
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].runs, [11.0, 22.0]);
        assert_eq!(points[1].runs, [44.0, 55.0]);
    }

    /// As agua prints it: least, mean, longest and deviation, and what it says of them.
    #[test]
    fn agua_has_its_own_verdict() {
        let told = |ms: &[u64]| {
            let mut histogram = Histogram::new();
            ms.iter().for_each(|ms| histogram.record(ms * 1_000_000));
            let mut loops = series("loop", 5, &[1.0]);
            loops.blocks[0].histogram = Some(histogram);
            agua_evidence(&loops).unwrap()
        };
        let steady = told(&[30, 40, 50]);
        assert!(
            steady.starts_with("agua: all checks pass: min 30."),
            "{steady}"
        );
        assert_contains(&steady, &["max 50.", "(3 loops"]);
        let uneven = told(&[6, 300, 609]);
        assert!(uneven.contains("exceeds 10 ms: min 6."), "{uneven}");
        assert_contains(&uneven, &["avg 305.", "sd 246."]);
        assert!(told(&[30]).contains("inconclusive"), "{}", told(&[30]));
    }

    #[test]
    fn nothing_measured_is_inconclusive() {
        let probe = Placement::check(&stopgap_kernel::fake::Fake::default(), true);
        let answer = judge(&probe, Measured::default(), 1, Privilege::None);
        assert_eq!(answer.verdict.word, Word::Inconclusive);
        assert_eq!(answer.figure, None);
    }
}
