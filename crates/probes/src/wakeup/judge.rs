//! Answers from the samples, without a system.
//!
//! | what the runs show | verdict |
//! |---|---|
//! | stalls in two runs or more | `stalls` so many a second, with the interval over runs |
//! | stalls in one run | `inconclusive`: not repeated |
//! | none, in 3 runs or more | `clean`, and how many a second there are at most |

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::units::Nanos;
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{label, quantile};
use stopgap_stats::record::{Answer, Block, Figure, Series, parameters};
use stopgap_stats::verdict::{Verdict, Word, format_interval};

use super::{CPUS, LEAST_RUNS, MISSED, OF_A_CPU, Policy, SLEPT_FOR, WAKE_UP, Wakeup};
use super::{LOCKED, REALTIME};
use crate::contract::{Judgement, Measured};

/// Most CPUs that have a sentence each; with more, only the latest has one.
const CPUS_TOLD: usize = 8;

/// What `clean` may leave open at most, a second: of less than 300 ms of looking it would say nothing.
const MOST_UNSEEN: f64 = 10.0;

/// Where no event was seen in a time T, there are at most 3/T with 95 % confidence (the Poisson distribution's
/// -ln 0.05).
const RULE_OF_THREE: f64 = 3.0;

pub(super) fn judge(probe: &Wakeup, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
    let seen = Seen {
        probe,
        measured: &measured,
    };
    let (verdict, figure) = match measured.without_figures() {
        Some(nothing) => (nothing, None),
        None => seen.verdict(seed),
    };
    let judgement = Judgement {
        evidence: seen.evidence(),
        advice: seen.advice(verdict.word),
        verdict,
        figure,
    };
    let parameters = parameters([
        ("interval-ns", probe.interval.0.into()),
        ("asked-policy", probe.policy.word().into()),
        ("priority", probe.priority.into()),
        ("stall-ns", probe.stall.0.into()),
        ("runs", probe.runs.into()),
    ]);
    measured.into_answer(Question::Wakeup, parameters, privilege, judgement)
}

struct Seen<'a> {
    probe: &'a Wakeup,
    measured: &'a Measured,
}

impl Seen<'_> {
    fn series(&self, name: &str) -> Option<&Series> {
        let mut all = self.measured.series.iter();
        all.find(|series| series.name == name && !series.blocks.is_empty())
    }

    /// Seconds that a block looked, as a clock on the wall shows them.
    fn seconds(&self, block: &Block) -> f64 {
        let cpus = self.measured.facts.get(CPUS).copied().unwrap_or(1.0);
        block.samples as f64 * self.probe.interval.as_secs_f64() / cpus.max(1.0)
    }

    fn policy(&self) -> String {
        let series = self.series(WAKE_UP);
        match series.and_then(|series| series.word("policy")) {
            Some(word) if word == Policy::Fifo.word() => {
                format!("SCHED_FIFO {}", self.probe.priority)
            }
            _ => "SCHED_OTHER".to_owned(),
        }
    }

    fn verdict(&self, seed: u64) -> (Verdict, Option<Figure>) {
        let Some(series) = self.series(WAKE_UP) else {
            let failed = self.measured.series.iter().find_map(|s| s.error.clone());
            let why = failed.unwrap_or_else(|| "no thread woke once".to_owned());
            return (Verdict::unsupported(&why), None);
        };
        let runs: Vec<(f64, f64)> = series
            .blocks
            .iter()
            .map(|block| {
                let count = block.stalls.as_ref().map_or(0, |stalls| stalls.count);
                (count as f64, self.seconds(block))
            })
            .collect();
        let stalled = runs.iter().filter(|(count, _)| *count > 0.0).count();
        let count: f64 = runs.iter().map(|(count, _)| count).sum();
        let seconds: f64 = runs.iter().map(|(_, seconds)| seconds).sum();
        let late = format!("above {}", self.probe.stall);
        let longest = series.pooled().max().unwrap_or(0);
        let about = format!("longest {}, {}", Nanos(longest), self.policy());
        let figure = |value, low, high| {
            Some(Figure {
                low,
                high,
                ..Figure::new(value, "/s")
            })
        };
        match (stalled, runs.len()) {
            (0, many) if many < LEAST_RUNS as usize => {
                let runs = if many == 1 { "run is" } else { "runs are" };
                let why = format!("{many} {runs} too few to say that nothing stalls ({about})");
                (Verdict::inconclusive(&why), None)
            }
            (0, _) if seconds * MOST_UNSEEN < RULE_OF_THREE => {
                let ms = seconds * 1e3;
                let why = format!(
                    "no wake-up {late}, but {ms:.0} ms are too short a look: give it more time ({about})"
                );
                (Verdict::inconclusive(&why), None)
            }
            (0, many) => {
                let most = RULE_OF_THREE / seconds;
                let digits = usize::from(seconds < 0.95);
                let text = format!(
                    "clean: no wake-up {late} in {many} runs, {seconds:.digits$} s (at most {most:.2}/s); {about}"
                );
                (
                    Verdict::new(Word::Clean, text),
                    figure(0.0, None, Some(most)),
                )
            }
            (1, many) => {
                let s = if count < 1.5 { "" } else { "s" };
                let why = format!(
                    "{count:.0} stall{s} {late} in one run of {many}: not repeated ({about})"
                );
                (
                    Verdict::inconclusive(&why),
                    figure(count / seconds, None, None),
                )
            }
            _ => {
                let rate = |runs: &[&(f64, f64)]| {
                    let count: f64 = runs.iter().map(|run| run.0).sum();
                    let seconds: f64 = runs.iter().map(|run| run.1).sum();
                    Some(count / seconds)
                };
                let value = count / seconds;
                let ends = over_runs(&runs, seed, rate).map(|i| (i.low.max(0.0), i.high));
                let shown = ends.map_or(format!("{value:.2} /s"), |(low, high)| {
                    format_interval(value, low, high, "/s")
                });
                let text = format!("stalls {} {late}: {about}", shown.replacen(" /s", "/s", 1));
                let (low, high) = ends.unzip();
                (Verdict::new(Word::Stalls, text), figure(value, low, high))
            }
        }
    }

    fn evidence(&self) -> Vec<String> {
        let Some(all) = self.series(WAKE_UP) else {
            return Vec::new();
        };
        let pooled = all.pooled();
        let mut lines = vec![format!(
            "every {} under {}: {}",
            self.probe.interval,
            self.policy(),
            spread(&pooled)
        )];
        lines.push(self.missed(&pooled));
        let cpus: Vec<(&Series, Histogram)> = self
            .measured
            .series
            .iter()
            .filter(|series| series.name == OF_A_CPU && !series.blocks.is_empty())
            .map(|series| (series, series.pooled()))
            .collect();
        let line = |(series, histogram): &(&Series, Histogram)| {
            let cpu = series
                .number("cpu")
                .map_or("?".to_owned(), |cpu| cpu.to_string());
            format!("CPU {cpu}: {}", spread(histogram))
        };
        if cpus.len() <= CPUS_TOLD {
            lines.extend(cpus.iter().filter(|_| cpus.len() > 1).map(line));
        } else {
            let latest = cpus.iter().max_by_key(|(_, histogram)| histogram.max());
            lines.extend(latest.map(|one| format!("latest, {}", line(one))));
        }
        lines
    }

    /// Returns what cyclictest would have left out.
    fn missed(&self, all: &Histogram) -> String {
        let missed = self.measured.counted(MISSED);
        if missed == 0 {
            return "no period was missed: cyclictest would count the same".to_owned();
        }
        let slept = self.series(SLEPT_FOR).map(Series::pooled);
        let means = slept.and_then(|slept| {
            let (with, without) = (all.mean()?, slept.mean()?);
            let (with, without) = (time(with), time(without));
            Some(format!(": mean {with} instead of {without}"))
        });
        format!(
            "{missed} of {} periods passed while a thread still slept for an earlier one; each is a sample here, cyclictest \
             leaves them out{}",
            all.len(),
            means.unwrap_or_default()
        )
    }

    fn advice(&self, word: Word) -> Vec<String> {
        let lacks = |what: &str| self.measured.missing.iter().any(|one| one.what == what);
        let mut advice = Vec::new();
        if lacks(REALTIME) || lacks(LOCKED) {
            advice.push(
                "run as root (or with RLIMIT_RTPRIO and RLIMIT_MEMLOCK): SCHED_FIFO and locked memory then keep out what is \
                 this probe's own"
                    .to_owned(),
            );
        }
        if word == Word::Stalls {
            let watch = "stopgap watch (root): writes down what the machine did at the next stall, and names its cause";
            advice.push(watch.to_owned());
        }
        advice
    }
}

/// `mean 12.3 us, p50 5.10 us, p99 41.0 us, p99.9 80.2 us, longest 1.20 ms`; a quantile only where there are samples
/// enough.
fn spread(histogram: &Histogram) -> String {
    let mut parts: Vec<String> = histogram
        .mean()
        .map(|ns| format!("mean {}", time(ns)))
        .into_iter()
        .collect();
    parts.extend([0.5, 0.99, 0.999].into_iter().filter_map(|q| {
        let ns = quantile(histogram, q).ok()?;
        Some(format!("{} {}", label(q), Nanos(ns)))
    }));
    parts.extend(histogram.max().map(|ns| format!("longest {}", Nanos(ns))));
    parts.join(", ")
}

fn time(ns: f64) -> Nanos {
    Nanos(ns.round() as u64)
}
