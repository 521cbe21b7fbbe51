//! Answers from the samples, without a system.

use stopgap_events::machine::Privilege;
use stopgap_events::order::SortRows;
use stopgap_events::question::Question;
use stopgap_events::roundtrip::{Cell, ClientPolicy, ClientWait, Cpus, Reply};
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{median, quantile};
use stopgap_stats::record::{Answer, Figure, Parameter, Series, parameters};
use stopgap_stats::roundtrip::parameters as cell_parameters;
use stopgap_stats::verdict::{Verdict, Word, format_interval, runs_text};

use super::meter::RECORDS;
use super::run::{
    CLIENT_INVOLUNTARY, CLIENT_VOLUNTARY, CPU, LATENCY, MISSED, OTHERS, PER_ROUND_TRIP, PERIODS,
    SERVER_INVOLUNTARY, SERVER_VOLUNTARY, SWITCHES,
};
use super::{EXCESS, LEAST, Roundtrip};
use crate::contract::{Judgement, Measured, Parameters, list};

/// Per cent by which two means of counting may differ without a note.
const DIFFERENT: f64 = 2.0;
/// Per cent at which neither is believed.
const CONTRADICTORY: f64 = 10.0;

/// Per cent of the CPU that others may have without a note. A task that is woken then
/// waits for them instead of pre-empting its peer, which hides switches.
const DISTURBED: f64 = 20.0;
/// A cell and what it took.
struct Result {
    cell: Cell,
    /// Switch-outs a round trip.
    switches: Counts,
    latency: Histogram,
    /// CPU time of both a round trip, median of the runs, ns.
    cpu: Option<f64>,
    /// How much of a shared CPU others had, median of the runs, per cent.
    others: Option<f64>,
}

const SHARES: [&str; 4] = [
    CLIENT_VOLUNTARY,
    CLIENT_INVOLUNTARY,
    SERVER_VOLUNTARY,
    SERVER_INVOLUNTARY,
];

pub(super) fn judge(
    probe: &Roundtrip,
    measured: Measured,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let mut results: Vec<Result> = probe
        .cells
        .iter()
        .filter_map(|cell| result(cell, &measured.series, seed))
        .collect();
    // What one request and one reply cost leads: that a write for each of many replies costs
    // many switches is the pattern's doing on any kernel.
    results.sort_rows(|a, b| {
        let each = |result: &Result| result.cell.reply == Reply::Each;
        let most = b.switches.all.value.total_cmp(&a.switches.all.value);
        each(a).cmp(&each(b)).then(most)
    });
    let agreement = agreement(&measured.series);
    let (verdict, figure) = match measured.without_figures() {
        Some(nothing) => (nothing, None),
        None => verdict(&results, agreement.as_ref(), &measured.series),
    };
    let judgement = Judgement {
        verdict,
        figure,
        evidence: evidence(&results, agreement.as_ref(), &measured),
        advice: advice(&results),
    };
    let parameters = parameters([
        ("cells", Parameter::Number(probe.cells.len() as u64)),
        ("cpu-list", list(&probe.cpus, ",").into()),
        ("runs", probe.runs.into()),
        ("round-trips", probe.round_trips.into()),
        ("seed", seed.into()),
    ]);
    measured.into_answer(Question::Roundtrip, parameters, privilege, judgement)
}

/// Returns the series of that name which belongs to a cell with these parameters.
pub(super) fn find<'m>(
    series: &'m [Series],
    name: &str,
    parameters: &Parameters,
) -> Option<&'m Series> {
    series
        .iter()
        .find(|series| series.name == name && series.parameters == *parameters)
}

/// Returns what the series say of a cell; `None` with too few runs for an interval.
fn result(cell: &Cell, series: &[Series], seed: u64) -> Option<Result> {
    let parameters = cell_parameters(cell);
    let find = |name: &str| find(series, name, &parameters);
    let values = |name: &str| find(name).map(Series::values).unwrap_or_default();
    Some(Result {
        cell: *cell,
        switches: Counts::new(&values(SWITCHES), SHARES.map(values), seed)?,
        latency: find(LATENCY).map(Series::pooled).unwrap_or_default(),
        cpu: median(values(CPU)),
        others: median(values(OTHERS)),
    })
}

fn verdict(
    results: &[Result],
    agreement: Option<&(f64, String)>,
    series: &[Series],
) -> (Verdict, Option<Figure>) {
    let Some(most) = results.first() else {
        let runs = series.iter().map(|series| series.blocks.len()).max();
        let why = format!("{}; an interval takes 3", runs_text(runs.unwrap_or(0)));
        return (Verdict::inconclusive(&why), None);
    };
    if let Some((_, sentence)) = agreement.filter(|(per_cent, _)| *per_cent > CONTRADICTORY) {
        return (Verdict::inconclusive(sentence), None);
    }
    let excess = results.iter().find(|result| result.switches.exceeds());
    let undecided = results.iter().find(|result| !result.switches.is_clean());
    match (excess, undecided) {
        (Some(worst), _) => {
            let (times, why) = (worst.switches.times(), worst.explain(results));
            let verdict = Verdict::new(Word::Excess, format!("excess {times}: {why}"));
            (verdict, Some(worst.switches.figure()))
        }
        (None, Some(result)) => {
            let why = format!(
                "{}: {}; more runs decide",
                result.per_round_trip(),
                result.cell
            );
            (Verdict::inconclusive(&why), Some(result.switches.figure()))
        }
        (None, None) if disturbance(results) > DISTURBED => {
            let why = format!("{}; ask on a quiet machine", disturbed(results));
            (Verdict::inconclusive(&why), Some(most.switches.figure()))
        }
        (None, None) => {
            let text = format!("clean {}", most.per_round_trip());
            (
                Verdict::new(Word::Clean, text),
                Some(most.switches.figure()),
            )
        }
    }
}

/// The most that others had of a CPU in any cell, per cent.
fn disturbance(results: &[Result]) -> f64 {
    let others = results.iter().filter_map(|result| result.others);
    others.fold(0.0, f64::max)
}

fn disturbed(results: &[Result]) -> String {
    let others = disturbance(results);
    format!(
        "others had up to {others:.0} % of the CPU, which hides switches; those of this session count most, and \
         `setsid -w stopgap probe roundtrip` leaves them behind (autogroup)"
    )
}

impl Result {
    fn per_round_trip(&self) -> String {
        self.switches.text(PER_ROUND_TRIP)
    }

    /// Returns which switches are too many, in which process, and what removes them.
    fn explain(&self, all: &[Result]) -> String {
        let both = self.switches.by_side();
        let what = if self.cell.reply == Reply::Each && self.cell.batch > 1 {
            format!(
                "{:.0} switches for {} replies by a write each ({both})",
                self.switches.all.value, self.cell.batch
            )
        } else if self.cell.client == ClientWait::Read && self.switches.shares[0] > 1.2 {
            // It blocks more than once for one reply, which only a wake-up without one does.
            format!("blocking-read client woken by the server's read ({both})")
        } else {
            let most = self.switches.largest([
                "the client blocks more than once",
                "the client is pre-empted",
                "the server blocks more than once",
                "the server is pre-empted",
            ]);
            format!("{most} ({both})")
        };
        match self.remedies(all).first() {
            Some((remedy, result)) => {
                let removed = result.switches.is_clean();
                let verb = if removed { "removes" } else { "lowers" };
                let left = result.switches.all.value;
                format!("{what}; {remedy} {verb} it ({left:.2})")
            }
            None => what,
        }
    }

    /// Cells that differ from this one in one choice that a program or its user has, and take
    /// clearly fewer switches; first those that remove the excess, and of these the change
    /// to the program that causes it.
    fn remedies<'r>(&self, all: &'r [Result]) -> Vec<(String, &'r Result)> {
        let mine = &self.cell;
        let mut remedies: Vec<(bool, u8, String, &Result)> = Vec::new();
        for other in all {
            let cell = &other.cell;
            let reply = match cell.reply {
                Reply::Together => "one writev",
                Reply::Each => "a write per reply",
            };
            let policy = match cell.policy {
                ClientPolicy::Batch => "SCHED_BATCH for the client",
                ClientPolicy::Other => "the usual policy for the client",
            };
            let cpus = match cell.cpus {
                Cpus::One => "one CPU for both",
                Cpus::Two => "a CPU for each",
                Cpus::Free => "free placement",
            };
            let choices = [
                (cell.reply != mine.reply, 0, reply.to_owned()),
                (
                    cell.client != mine.client,
                    1 + cell.client as u8,
                    format!("{} instead", cell.client),
                ),
                (cell.policy != mine.policy, 10, policy.to_owned()),
                (cell.cpus != mine.cpus, 11, cpus.to_owned()),
                (
                    cell.server != mine.server,
                    12,
                    format!("{} in the server", cell.server),
                ),
            ];
            let back = Cell {
                work: cell.work,
                batch: cell.batch,
                descriptors: cell.descriptors,
                ..*mine
            };
            let mut differ = choices.into_iter().filter(|(differs, ..)| *differs);
            if let (Some((_, rank, what)), None) = (differ.next(), differ.next())
                && back == *mine
                && self.switches.is_beaten_by(&other.switches)
            {
                remedies.push((!other.switches.is_clean(), rank, what, other));
            }
        }
        remedies.sort_rows_by_key(|&(remains, rank, _, _)| (remains, rank));
        remedies
            .into_iter()
            .map(|(_, _, what, result)| (what, result))
            .collect()
    }
}

/// How far two means of counting agree in the cell where they do so least: per cent, and a sentence.
fn agreement(series: &[Series]) -> Option<(f64, String)> {
    let of_cell = |records: &Series| {
        let rusage = find(series, SWITCHES, &records.parameters)?;
        let (mut by_rusage, mut by_records) = (0.0, 0.0);
        for block in &records.blocks {
            // The same round trips by both means.
            if let Some(same) = rusage.blocks.iter().find(|b| b.run == block.run) {
                let round_trips = block.samples as f64;
                by_records += block.value * round_trips;
                by_rusage += same.value * round_trips;
            }
        }
        let most: f64 = by_rusage.max(by_records);
        let per_cent = 100.0 * (by_rusage - by_records).abs() / most;
        (most > 0.0).then_some((per_cent, by_rusage, by_records))
    };
    let records = series.iter().filter(|series| series.name == RECORDS);
    let worst = records.filter_map(of_cell).reduce(|worst, one| {
        // The first of equal ones stays.
        if one.0 > worst.0 { one } else { worst }
    });
    let (per_cent, rusage, records) = worst?;
    let sentence = format!(
        "rusage and PERF_RECORD_SWITCH differ by at most {per_cent:.1} % ({rusage:.0} and {records:.0} switch-outs in \
         the cell where they differ most)"
    );
    Some((per_cent, sentence))
}

fn evidence(
    results: &[Result],
    agreement: Option<&(f64, String)>,
    measured: &Measured,
) -> Vec<String> {
    let mut evidence = Vec::new();
    let mut exceeding = results.iter().filter(|result| result.switches.exceeds());
    let worst = exceeding.next();
    let mut others: Vec<&Result> = exceeding.collect();
    others.sort_rows(|a, b| b.switches.all.value.total_cmp(&a.switches.all.value));
    for result in others {
        let (cell, count) = (&result.cell, result.per_round_trip());
        evidence.push(format!("{cell}: {count}; {}", result.explain(results)));
    }
    // The verdict has explained the worst, and the first sentence stands beside it.
    let worst = worst.map(|worst| format!("{}: {}", worst.cell, worst.per_round_trip()));
    evidence.extend(worst);
    for result in results.iter().filter(|result| !result.switches.exceeds()) {
        evidence.push(format!("{}: {}", result.cell, result.per_round_trip()));
    }
    evidence.extend(agreement.map(|(per_cent, sentence)| {
        let doubtful = if *per_cent > DIFFERENT {
            "doubtful: "
        } else {
            ""
        };
        format!("{doubtful}{sentence}")
    }));
    if disturbance(results) > DISTURBED {
        evidence.push(format!("doubtful: {}", disturbed(results)));
    }
    evidence.extend(backlog(measured));
    for result in results {
        evidence.extend(cost(result));
    }
    evidence
}

/// Said where so many periods were missed that latencies are those of a backlog. Counts of
/// switches do not depend on it: they are taken in another phase.
fn backlog(measured: &Measured) -> Option<String> {
    let missed = measured.losses.iter().find(|loss| loss.name == MISSED);
    let missed = missed.map_or(0, |missed| missed.value);
    let periods = measured.counted(PERIODS);
    (missed * 10 > periods).then(|| {
        format!(
            "latencies are doubtful: {missed} of {periods} periods were missed, because others \
             had the CPU or a round trip stalled"
        )
    })
}

/// `...: latency 71.3 us, p99 180.2 us (paced); 62.1 us CPU a round trip`.
fn cost(result: &Result) -> Option<String> {
    let micros = |ns: u64| format!("{:.1} us", ns as f64 / 1_000.0);
    let median = micros(result.latency.median()?);
    let tail = quantile(&result.latency, 0.99).map_or_else(|_| "n too small".to_owned(), micros);
    let cpu = result.cpu.map_or_else(String::new, |ns| {
        format!("; {:.1} us CPU a round trip", ns / 1_000.0)
    });
    Some(format!(
        "{}: latency {median}, p99 {tail}, from the intended start{cpu}",
        result.cell
    ))
}

fn advice(results: &[Result]) -> Vec<String> {
    let mut advice = Vec::new();
    for result in results.iter().filter(|result| result.switches.exceeds()) {
        for (remedy, other) in result.remedies(results) {
            advice.push(format!(
                "{remedy}: {:.1} -> {:.1} switches/rt ({})",
                result.switches.all.value, other.switches.all.value, result.cell
            ));
        }
    }
    advice
}

// Switch-outs for a round trip, or for a flush of an X client: how many, in which process, and whether they are too many.

/// A change is named where it leaves less than this share of the switches.
const WORTHWHILE: f64 = 0.9;

pub(super) struct Counts {
    /// Client and server together: the median of the runs.
    pub(super) all: Interval,
    /// Medians of client blocked, client pre-empted, server blocked, server pre-empted.
    pub(super) shares: [f64; 4],
}

impl Counts {
    /// Returns the counts of these runs; `None` with too few of them for an interval.
    pub(super) fn new(runs: &[f64], shares: [Vec<f64>; 4], seed: u64) -> Option<Counts> {
        let all = over_runs(runs, seed, |runs| {
            median(runs.iter().copied().copied().collect())
        })?;
        Some(Counts {
            all: Interval {
                low: all.low.max(0.0), // a count
                ..all
            },
            shares: shares.map(|values| median(values).unwrap_or(f64::NAN)),
        })
    }

    /// Returns whether there are certainly more than needed.
    pub(super) fn exceeds(&self) -> bool {
        self.all.low > EXCESS
    }

    /// Returns whether there are certainly not more than needed.
    pub(super) fn is_clean(&self) -> bool {
        self.all.high <= EXCESS
    }

    /// Returns how many times the needed number there are, and the interval.
    pub(super) fn figure(&self) -> Figure {
        let [value, low, high] = [self.all.value, self.all.low, self.all.high].map(|n| n / LEAST);
        Figure::new(value, "x").within(low, high)
    }

    /// Returns the figure as `1.9x (1.8..2.0)`.
    pub(super) fn times(&self) -> String {
        let [value, low, high] = [self.all.value, self.all.low, self.all.high].map(|n| n / LEAST);
        format_interval(value, low, high, "x")
    }

    /// Returns the number with its interval in this unit.
    pub(super) fn text(&self, unit: &str) -> String {
        format_interval(self.all.value, self.all.low, self.all.high, unit)
    }

    /// Returns whether `other` has clearly fewer.
    pub(super) fn is_beaten_by(&self, other: &Counts) -> bool {
        other.all.high < self.all.low * WORTHWHILE
    }

    /// Returns `client 1.0, server 2.9`.
    pub(super) fn by_side(&self) -> String {
        let [a, b, c, d] = self.shares;
        format!("client {:.1}, server {:.1}", a + b, c + d)
    }

    /// Returns the one of four words, in the order of the shares, whose share is most above what is needed.
    pub(super) fn largest<'w>(&self, words: [&'w str; 4]) -> &'w str {
        let [a, b, c, d] = self.shares;
        let above = [a - 1.0, b, c - 1.0, d].into_iter().zip(words);
        above
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or("", |(_, word)| word)
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
