//! Answers from the samples, without a system.

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_kernel::holds::Way;
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::record::{Answer, Figure, Parameter, Series, parameters};
use stopgap_stats::separation::Separation;
use stopgap_stats::verdict::{Verdict, Word};

use super::evidence::Evidence;
use super::evidence::{ANONYMOUS, LOAD, RATIO, STEADY};
use super::shrinker::SCAN;
use super::{Mode, Reclaim};
use crate::contract::{Judgement, Measured, Parameters, list};

/// From what ratio on scanning more than beside nothing is an excess: the runs of one mode that is off the
/// lists differ by a hundredth, a set that is met in the way makes it 1.2 between storms and 2 with them.
const EXCESS: f64 = 1.1;

/// A mode beside none.
struct Comparison {
    mode: Mode,
    /// The set.
    pinned: Bytes,
    /// Scanned per reclaimed, as a ratio.
    ratio: Option<Interval>,
    /// The same between storms.
    steady: Option<Interval>,
    separated: bool,
    /// Whether reclaim met the set at all, or why it did not.
    met: Result<(), String>,
}

impl Comparison {
    fn of_mode(
        evidence: &Evidence<'_>,
        pinned: Bytes,
        mode: Mode,
        seed: u64,
    ) -> Option<Comparison> {
        let beside = |name| {
            let none = evidence.find(name, Mode::None, pinned)?;
            let held = evidence.find(name, mode, pinned)?;
            let pairs: Vec<(f64, f64)> = held
                .blocks
                .iter()
                .filter_map(|block| {
                    let beside = none.blocks.iter().find(|other| other.run == block.run)?;
                    Some((block.value, beside.value))
                })
                .collect();
            (!pairs.is_empty()).then_some(pairs)
        };
        let pairs = beside(RATIO)?;
        let over = |pairs: &[(f64, f64)]| {
            let logarithm = over_runs(pairs, seed, |runs| {
                let sum: f64 = runs.iter().map(|(held, none)| (held / none).ln()).sum();
                Some(sum / runs.len() as f64)
            });
            logarithm.map(|i| Interval {
                value: i.value.exp(),
                low: i.low.exp(),
                high: i.high.exp(),
            })
        };
        let (held, none): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        Some(Comparison {
            mode,
            pinned,
            ratio: over(&pairs),
            steady: beside(STEADY).and_then(|pairs| over(&pairs)),
            separated: Separation::between(&held, &none, seed).is_some_and(|one| one.separates()),
            met: met(evidence, mode, pinned),
        })
    }

    fn is_excess(&self) -> bool {
        let above = |interval: Option<Interval>| interval.is_some_and(|i| i.low > EXCESS);
        above(self.ratio) || (self.separated && above(self.steady))
    }
}

/// Whether reclaim met what is held. Anonymous memory is on lists that reclaim scans only where there is
/// swap to write it to.
fn met(evidence: &Evidence<'_>, mode: Mode, pinned: Bytes) -> Result<(), String> {
    match evidence.swap() {
        Some("none") => {
            let why = "no swap, so anonymous lists are not scanned: memory that is held \
                       costs nothing here that could be seen";
            return Err(why.to_owned());
        }
        Some("unknown") | None => return Err("whether there is swap is not known".to_owned()),
        Some(_) => {}
    }
    if !mode.pins() {
        return Ok(()); // off the lists: not to be met is what locking is for
    }
    let page = evidence.measured.facts.get("page_size").copied();
    let pages = pinned.0 as f64 / page.unwrap_or(4096.0);
    let scanned = evidence
        .find(ANONYMOUS, mode, pinned)
        .and_then(Series::median);
    match scanned {
        Some(scanned) if scanned >= pages => Ok(()),
        Some(scanned) => Err(format!(
            "{scanned:.0} anonymous pages were scanned beside {pages:.0} held: reclaim did \
             not meet them all; give it more time"
        )),
        None => Err("whether reclaim met what is held is not known".to_owned()),
    }
}

fn interval(ratio: &Interval) -> String {
    let digits = if ratio.value < 1.5 { 2 } else { 1 };
    format!(
        "{:.digits$}x ({:.digits$}..{:.digits$})",
        ratio.value, ratio.low, ratio.high
    )
}

/// `; locked (mlock) 1.0x`, for what is not the subject.
fn others(comparisons: &[Comparison], subject: &Comparison) -> String {
    let same = |other: &&Comparison| other.pinned == subject.pinned && other.mode != subject.mode;
    let text = comparisons.iter().filter(same).filter_map(|other| {
        let ratio = other.ratio?;
        Some(format!("; {} {:.1}x", other.mode.words(), ratio.value))
    });
    text.collect()
}

const SUBJECT: &str = "pages scanned per page reclaimed";

/// The verdict over the load, and its figure.
fn decide(comparisons: &[Comparison], evidence: &Evidence<'_>) -> (Verdict, Option<Figure>) {
    let bounded = || comparisons.iter().filter_map(|c| Some((c, c.ratio?)));
    let by_ratio = |(_, a): &(&Comparison, Interval), (_, b): &(&Comparison, Interval)| {
        a.value.total_cmp(&b.value)
    };
    let worst = bounded().max_by(by_ratio);
    let excess = bounded().filter(|(c, _)| c.is_excess()).max_by(by_ratio);
    // Where nothing is in excess the question is about what is pinned.
    let pinned = bounded().find(|(c, _)| c.mode.pins());
    let Some((subject, ratio)) = excess.or(pinned).or(worst) else {
        let why = "fewer than 3 runs succeeded: no interval can be given";
        return (Verdict::inconclusive(why), None);
    };
    let figure = Figure::new(ratio.value, "x").within(ratio.low, ratio.high);
    let shown = interval(&ratio);
    let beside = format!(
        "while {} of {} are {}",
        subject.pinned,
        evidence.asked.map_or(Bytes(0), |asked| asked.limit),
        subject.mode.words()
    );
    let steady = subject.steady.map_or(String::new(), |steady| {
        format!(", {} between storms", interval(&steady))
    });
    let rest = others(comparisons, subject);
    let machine = evidence.machine_words();
    let verdict = if subject.is_excess() {
        let swapless = match evidence.swap() {
            Some("none") => "; and that without swap, where anonymous lists should not be scanned",
            _ => "",
        };
        let text = format!("excess {shown} {SUBJECT} {beside}{steady}{rest}{swapless}{machine}");
        Verdict::new(Word::Excess, text)
    } else if let Some(why) = comparisons.iter().find_map(|c| c.met.as_ref().err()) {
        Verdict::inconclusive(&format!("{why} ({shown} {SUBJECT} {beside}){machine}"))
    } else if comparisons
        .iter()
        .all(|c| c.ratio.is_some_and(|ratio| ratio.high <= EXCESS))
    {
        let text = format!("clean {shown} {SUBJECT} {beside}{rest}{machine}");
        Verdict::new(Word::Clean, text)
    } else {
        let why = format!(
            "{shown} {SUBJECT} {beside}: too wide an interval, give it more time or runs{machine}"
        );
        Verdict::inconclusive(&why)
    };
    (verdict, Some(figure))
}

/// The verdict and the figure where no pressure could be made: what was measured of costs.
fn without_pressure(evidence: &Evidence<'_>, why: &str) -> (Verdict, Option<Figure>) {
    // That memory can be populated says nothing about holding it.
    let series = &evidence.measured.series;
    let has_cost = series
        .iter()
        .any(|s| s.unit == "ns/page" && s.name != "populate" && !s.blocks.is_empty());
    if !has_cost {
        let reason = series.iter().find_map(|s| s.error.clone());
        let why = reason.map_or(why.to_owned(), |reason| format!("{why}; {reason}"));
        return (Verdict::unsupported(&why), None);
    }
    let pins = [Way::Vmsplice, Way::IoUring];
    let figure = pins.iter().find_map(|way| evidence.later_pass(way.word()));
    let figure = figure.map(|value| Figure::new(value, "ns/page a later pass"));
    (Verdict::inconclusive(why), figure)
}

/// What one scan of a shrinker says: a time an object is neither good nor bad by itself.
fn of_shrinker(measured: &Measured) -> (Verdict, Option<Figure>) {
    let scanned = measured.series.iter().filter(|s| s.name == SCAN);
    let slowest = scanned
        .filter_map(|s| Some((s.word("shrinker")?, s.median()?)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    let Some((name, value)) = slowest else {
        let error = measured.series.iter().find_map(|s| s.error.clone());
        let missing = measured
            .missing
            .first()
            .map(|m| format!("{}: {}", m.what, m.why));
        let why = missing
            .or(error)
            .unwrap_or_else(|| "nothing was scanned".to_owned());
        return (Verdict::inconclusive(&why), None);
    };
    let why = format!(
        "shrinker {name} took {value:.0} ns an object, in one scan: there is nothing to compare it with"
    );
    let figure = Figure::new(value, "ns/object");
    (Verdict::inconclusive(&why), Some(figure))
}

/// Returns what was asked, for the record.
fn given(probe: &Reclaim) -> Parameters {
    let mut given = parameters([
        ("modes", list(&probe.modes, ",").into()),
        ("runs", probe.runs.into()),
        ("passes", probe.passes.into()),
    ]);
    if let Some(asked) = &probe.pressure {
        let pinned: Vec<u64> = asked.pinned.iter().map(|size| size.0).collect();
        given.extend(parameters([
            ("mode", list(&asked.modes, ",").into()),
            ("load", asked.load.word().into()),
            ("limit", asked.limit.0.into()),
            ("pinned", list(&pinned, ",").into()),
            ("block", asked.block.0.into()),
            ("load-runs", asked.runs.into()),
            ("stall-ns", asked.stall.0.into()),
        ]));
    }
    let asked = probe.pressure.as_ref();
    let optional: [(&str, Option<Parameter>); 6] = [
        ("bytes", probe.bytes.map(|bytes| bytes.0.into())),
        ("swap", probe.swap.map(|swap| swap.0.into())),
        ("shrinker", probe.shrinker.as_deref().map(Parameter::from)),
        ("file", asked.and_then(|asked| Some(asked.file?.0.into()))),
        (
            "each-ns",
            asked.and_then(|asked| Some(asked.time?.0.into())),
        ),
        (
            "swappiness",
            asked.and_then(|asked| Some(asked.swappiness?.into())),
        ),
    ];
    let optional = optional.into_iter();
    given.extend(optional.filter_map(|(name, value)| Some((name.to_owned(), value?))));
    given
}

/// Why there is nothing to compare.
fn no_pressure(measured: &Measured) -> String {
    let missing = measured.missing.iter().find(|missing| missing.what == LOAD);
    let failed = measured
        .series
        .iter()
        .find(|s| s.name == RATIO && s.error.is_some());
    match (missing, failed.and_then(|s| s.error.clone())) {
        (Some(missing), _) => missing.why.clone(),
        (None, Some(error)) => error,
        (None, None) if measured.interrupted => "interrupted before pressure was made".to_owned(),
        (None, None) => "the load was not asked for".to_owned(),
    }
}

/// Everything that stands beside everything else.
fn compare(evidence: &Evidence<'_>, seed: u64) -> Vec<Comparison> {
    let mut all = Vec::new();
    if let Some(asked) = evidence.asked {
        for &pinned in &asked.pinned {
            let modes = asked.modes.iter().filter(|mode| **mode != Mode::None);
            all.extend(modes.filter_map(|&mode| Comparison::of_mode(evidence, pinned, mode, seed)));
        }
    }
    all
}

/// The answer.
pub(super) fn judge(
    probe: &Reclaim,
    measured: Measured,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let evidence = Evidence {
        measured: &measured,
        asked: probe.pressure.as_ref(),
        seed,
    };
    let comparisons = compare(&evidence, seed);
    let mut advice = Vec::new();
    let (verdict, figure) = if probe.shrinker.is_some() {
        of_shrinker(&measured)
    } else if comparisons.is_empty() {
        if privilege != Privilege::Root {
            advice
                .push("run as root: a memory cgroup of our own then makes memory short".to_owned());
        }
        without_pressure(&evidence, &no_pressure(&measured))
    } else {
        decide(&comparisons, &evidence)
    };
    if verdict.word == Word::Excess {
        advice.push(
            "lock what need not stay at its physical address (mlock, SHM_LOCK) instead of \
             pinning it: locked pages leave the scanned lists"
                .to_owned(),
        );
    }
    if verdict.word == Word::Inconclusive
        && evidence.swap() == Some("none")
        && !comparisons.is_empty()
    {
        advice.push("as root, with --swap 2G: a swap file for the time of the probe".to_owned());
    }
    let asked = probe.pressure.as_ref().filter(|_| probe.shrinker.is_none());
    let mut lines = asked.map_or(Vec::new(), |asked| evidence.load_lines(asked));
    lines.extend(evidence.cost_lines(&probe.modes));
    lines.extend(evidence.failed_lines());
    lines.extend(evidence.machine_line());
    let judgement = Judgement {
        verdict,
        figure,
        evidence: lines,
        advice,
    };
    measured.into_answer(Question::Reclaim, given(probe), privilege, judgement)
}
