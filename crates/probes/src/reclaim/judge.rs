//! The answer, from samples alone.

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_kernel::holds::Way;
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::record::{Answer, Figure, Series};
use stopgap_stats::verdict::{Verdict, Word};

use super::gather::{ANONYMOUS, BLOCK, RATIO, REFAULT, STALLED, SYSTEM_CPU};
use super::parameters::{Mode, Reclaim};
use super::series::Parameters;
use crate::contract::Measured;

/// From what ratio on scanning more than beside nothing is an excess: the runs of one mode
/// differ by a tenth, a set that is really met in the way makes it 2.
const EXCESS: f64 = 1.3;

/// A way beside none: scanned per reclaimed, as a ratio.
struct Comparison {
    way: Way,
    held: Bytes,
    ratio: Option<Interval>,
    /// Whether reclaim met the set at all, or why it did not.
    met: Result<(), String>,
}

struct Evidence<'a> {
    measured: &'a Measured,
    seed: u64,
}

impl Evidence<'_> {
    fn find(&self, name: &str, mode: &str) -> Option<&Series> {
        let wanted = |s: &&Series| s.name == name && s.word("mode") == Some(mode);
        self.measured.series.iter().find(wanted)
    }

    /// The median thread CPU time a page of a step of the cost experiment.
    fn cost(&self, step: &str, mode: &str) -> Option<f64> {
        let wanted = |s: &&Series| {
            s.name == step && s.word("mode") == Some(mode) && s.word("clock") == Some("thread CPU")
        };
        self.measured.series.iter().find(wanted)?.median()
    }

    /// The cost of the last pass, and which one it was.
    fn later_pass(&self, mode: &str) -> Option<f64> {
        let passes = (2..).map_while(|pass| self.cost(&format!("pass {pass}"), mode));
        passes.last()
    }

    fn swap(&self) -> Option<&str> {
        self.measured.series.iter().find_map(|s| s.word("swap"))
    }

    fn compare(&self, way: Way) -> Option<Comparison> {
        let none = self.find(RATIO, "none")?;
        let held = self.find(RATIO, way.word())?;
        let pairs: Vec<(f64, f64)> = held
            .blocks
            .iter()
            .filter_map(|block| {
                let beside = none.blocks.iter().find(|other| other.run == block.run)?;
                Some((block.value, beside.value))
            })
            .collect();
        if pairs.is_empty() {
            return None;
        }
        #[allow(clippy::cast_precision_loss)] // a handful of runs
        let logarithm = over_runs(&pairs, self.seed, |runs| {
            let sum: f64 = runs.iter().map(|(held, none)| (held / none).ln()).sum();
            Some(sum / runs.len() as f64)
        });
        let bytes = Bytes(held.number("held").unwrap_or(0));
        Some(Comparison {
            way,
            held: bytes,
            ratio: logarithm.map(|i| Interval {
                value: i.value.exp(),
                low: i.low.exp(),
                high: i.high.exp(),
            }),
            met: self.met(way, bytes),
        })
    }

    /// Anonymous memory is on lists that reclaim scans only where there is swap to write it to.
    #[allow(clippy::cast_precision_loss)]
    fn met(&self, way: Way, held: Bytes) -> Result<(), String> {
        match self.swap() {
            Some("none") => {
                let why = "no swap, so anonymous lists are not scanned: memory that is held \
                           costs nothing here that could be seen";
                return Err(why.to_owned());
            }
            Some("unknown") | None => return Err("whether there is swap is not known".to_owned()),
            Some(_) => {}
        }
        if way.locks() {
            return Ok(()); // off the lists: not to be met is what locking is for
        }
        let page = self
            .measured
            .facts
            .get("page_size")
            .copied()
            .unwrap_or(4096.0);
        let pages = held.0 as f64 / page;
        let scanned = self.find(ANONYMOUS, way.word()).and_then(Series::median);
        match scanned {
            Some(scanned) if scanned >= pages => Ok(()),
            Some(scanned) => Err(format!(
                "{scanned:.0} anonymous pages were scanned beside {pages:.0} held: reclaim did \
                 not meet them all; give it more time"
            )),
            None => Err("whether reclaim met what is held is not known".to_owned()),
        }
    }

    /// One line a mode: what it costs a page.
    fn cost_lines(&self, modes: &[Mode]) -> Vec<String> {
        let line = |mode: &Mode| {
            let name = mode.word();
            let mut parts = Vec::new();
            let mut say = |cost: Option<f64>, what: &str| {
                if let Some(cost) = cost {
                    parts.push(format!("{} {what}", nanos(cost)));
                }
            };
            say(self.cost("take", name), "to take");
            say(self.cost("release", name), "to release");
            say(self.cost("pass 1", name), "for the first pass of reclaim");
            say(self.later_pass(name), "for each later pass");
            say(
                self.cost("forced reclaim", name),
                "for a forced reclaim of its group",
            );
            let what = match mode {
                Mode::Plain => "not held",
                Mode::Held(way) => way.words(),
            };
            (!parts.is_empty()).then(|| format!("{what}: ns a page: {}", parts.join(", ")))
        };
        // What is pinned is what the question is about.
        let mut modes = modes.to_vec();
        modes.sort_by_key(|mode| match mode {
            Mode::Held(way) => u8::from(way.locks()),
            Mode::Plain => 2,
        });
        modes.iter().filter_map(line).collect()
    }

    /// What a bystander paid, beside each way and beside none.
    fn bystander_lines(&self, ways: &[Way]) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, words, unit) in [
            (STALLED, "memory stall (PSI, some)", "ms per GiB read"),
            (SYSTEM_CPU, "system CPU", "ms per GiB read"),
        ] {
            let Some(none) = self.find(name, "none").and_then(Series::median) else {
                continue;
            };
            let mut parts = vec![format!("{none:.1} beside none")];
            for way in ways {
                if let Some(value) = self.find(name, way.word()).and_then(Series::median) {
                    parts.push(format!("{value:.1} beside {}", way.words()));
                }
            }
            lines.push(format!("{words}: {} {unit}", parts.join(", ")));
        }
        let longest = |mode: &str| {
            let blocks = &self.find(BLOCK, mode)?.blocks;
            blocks
                .iter()
                .filter_map(|b| b.histogram.as_ref()?.max())
                .max()
        };
        if let Some(none) = longest("none") {
            #[allow(clippy::cast_precision_loss)]
            let ms = |ns: u64| ns as f64 / 1e6;
            let mut parts = vec![format!("{:.1} ms beside none", ms(none))];
            for way in ways {
                if let Some(ns) = longest(way.word()) {
                    parts.push(format!("{:.1} ms beside {}", ms(ns), way.words()));
                }
            }
            lines.push(format!(
                "longest wait to populate a block: {}",
                parts.join(", ")
            ));
        }
        lines
    }

    fn machine_line(&self) -> Option<String> {
        let series = self.measured.series.first()?;
        let (lru, swap) = (series.word("lru")?, series.word("swap")?);
        let swapless = if swap == "none" {
            ": a pass of reclaim can only look at anonymous pages and put them back"
        } else {
            ""
        };
        Some(format!("{lru} LRU, swap: {swap}{swapless}"))
    }
}

/// A cost with as many digits as it deserves.
fn nanos(cost: f64) -> String {
    if cost < 10.0 {
        format!("{cost:.1}")
    } else {
        format!("{cost:.0}")
    }
}

fn interval(ratio: &Interval) -> String {
    format!("{:.1}x ({:.1}..{:.1})", ratio.value, ratio.low, ratio.high)
}

/// `; locked (mlock) 1.0x`, for what is not the subject.
fn others(comparisons: &[Comparison], subject: Way) -> String {
    let other = comparisons.iter().filter(|other| other.way != subject);
    let text = other.filter_map(|other| {
        let ratio = other.ratio?;
        Some(format!("; {} {:.1}x", other.way.words(), ratio.value))
    });
    text.collect()
}

const SUBJECT: &str = "pages scanned per page reclaimed";

/// The verdict over the refault load, and its figure.
fn decide(comparisons: &[Comparison]) -> (Verdict, Option<Figure>) {
    let bounded = || comparisons.iter().filter_map(|c| Some((c, c.ratio?)));
    let worst = bounded().max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
    // Where nothing is in excess the question is about what is pinned.
    let pinned = bounded().find(|(c, _)| !c.way.locks());
    let Some((subject, ratio)) = worst.filter(|(_, r)| r.low > EXCESS).or(pinned).or(worst) else {
        let why = "fewer than 3 runs succeeded: no interval can be given";
        return (Verdict::inconclusive(why), None);
    };
    let figure = Figure {
        value: ratio.value,
        unit: "x".to_owned(),
        low: Some(ratio.low),
        high: Some(ratio.high),
    };
    let shown = interval(&ratio);
    let beside = format!("while {} are {}", subject.held, subject.way.words());
    let rest = others(comparisons, subject.way);
    let verdict = if ratio.low > EXCESS {
        Verdict::new(
            Word::Excess,
            format!("excess {shown} {SUBJECT} {beside}{rest}"),
        )
    } else if let Some(why) = comparisons.iter().find_map(|c| c.met.as_ref().err()) {
        Verdict::inconclusive(&format!("{why} ({shown} {SUBJECT} {beside})"))
    } else if comparisons
        .iter()
        .all(|c| c.ratio.is_some_and(|ratio| ratio.high <= EXCESS))
    {
        Verdict::new(
            Word::Clean,
            format!("clean {shown} {SUBJECT} {beside}{rest}"),
        )
    } else {
        let why =
            format!("{shown} {SUBJECT} {beside}: too wide an interval, give it more time or runs");
        Verdict::inconclusive(&why)
    };
    (verdict, Some(figure))
}

/// The verdict and the figure where no pressure could be made: what was measured of costs.
fn without_pressure(evidence: &Evidence<'_>, why: &str) -> (Verdict, Option<Figure>) {
    // That memory can be populated says nothing about holding it.
    let is_cost = |s: &Series| s.unit == "ns/page" && s.name != "populate" && !s.blocks.is_empty();
    if !evidence.measured.series.iter().any(is_cost) {
        let reason = evidence
            .measured
            .series
            .iter()
            .find_map(|s| s.error.clone());
        let why = reason.map_or(why.to_owned(), |reason| format!("{why}; {reason}"));
        return (Verdict::unsupported(&why), None);
    }
    let pins = [Way::Vmsplice, Way::IoUring];
    let figure = pins.iter().find_map(|way| evidence.later_pass(way.word()));
    let figure = figure.map(|value| Figure {
        value,
        unit: "ns/page a later pass".to_owned(),
        low: None,
        high: None,
    });
    (Verdict::inconclusive(why), figure)
}

fn parameters(probe: &Reclaim) -> Parameters {
    let list = |words: Vec<&str>| words.join(",");
    let mut parameters = Parameters::new();
    let mut put = |name: &str, value: stopgap_stats::record::Parameter| {
        parameters.insert(name.to_owned(), value);
    };
    put(
        "modes",
        list(probe.modes.iter().map(|m| m.word()).collect()).into(),
    );
    put("runs", probe.runs.into());
    put("passes", probe.passes.into());
    if let Some(bytes) = probe.bytes {
        put("bytes", bytes.0.into());
    }
    if let Some(swap) = probe.swap {
        put("swap", swap.0.into());
    }
    if let Some(refault) = &probe.refault {
        put(
            "ways",
            list(refault.ways.iter().map(|w| w.word()).collect()).into(),
        );
        put("limit", refault.limit.0.into());
        put("held", refault.held.0.into());
        put("file", refault.file_size().0.into());
        put("block", refault.block.0.into());
        put("refault-runs", refault.runs.into());
        put("stall-ns", refault.stall.0.into());
        if let Some(time) = refault.time {
            put("refault-time-ns", time.0.into());
        }
    }
    parameters
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
        seed,
    };
    let ways: &[Way] = probe.refault.as_ref().map_or(&[], |refault| &refault.ways);
    let comparisons: Vec<_> = ways
        .iter()
        .filter_map(|way| evidence.compare(*way))
        .collect();
    let mut advice = Vec::new();
    let (verdict, figure) = if comparisons.is_empty() {
        let missing = measured
            .missing
            .iter()
            .find(|missing| missing.what == REFAULT);
        let failed = measured
            .series
            .iter()
            .find(|s| s.name == RATIO && s.error.is_some());
        let why = match (missing, failed.and_then(|s| s.error.clone())) {
            (Some(missing), _) => missing.why.clone(),
            (None, Some(error)) => error,
            (None, None) if measured.interrupted => {
                "interrupted before pressure was made".to_owned()
            }
            (None, None) => "the refault load was not asked for".to_owned(),
        };
        if privilege != Privilege::Root {
            advice
                .push("run as root: a memory cgroup of our own then makes memory short".to_owned());
        }
        without_pressure(&evidence, &why)
    } else {
        decide(&comparisons)
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
    let mut lines = evidence.bystander_lines(ways);
    lines.extend(evidence.cost_lines(&probe.modes));
    lines.extend(evidence.machine_line());
    Answer {
        question: Question::Reclaim,
        parameters: parameters(probe),
        verdict,
        figure,
        evidence: lines,
        advice,
        privilege,
        series: measured.series,
        counters: measured.counters,
        losses: measured.losses,
        missing: measured.missing,
    }
}
