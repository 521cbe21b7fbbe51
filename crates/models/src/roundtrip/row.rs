//! A cell's outcome as a row of the record.

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;
use stopgap_events::roundtrip::{Cell, Kernel};
use stopgap_stats::record::{Answer, Parameter, Series};
use stopgap_stats::replay::roundtrip::{Beside, RoundtripRow};
use stopgap_stats::roundtrip::{cell, parameters as probed};

use super::{Outcome, Rules, validate};

/// The probe's series of all switches, and those that tell them apart.
const SWITCHES: &str = "switches";
const SHARES: [&str; 4] = [
    "client blocked",
    "client pre-empted",
    "server blocked",
    "server pre-empted",
];

/// The row of `outcome`, beside what `measured` has of the same cell, where there is one.
#[must_use]
pub fn row(
    cell: &Cell,
    rules: Rules,
    outcome: &Outcome,
    measured: Option<&Answer>,
) -> RoundtripRow {
    let mean = outcome.mean();
    let mut missing = Vec::new();
    if mean.is_none() {
        missing.push(Missing::new(
            "switches_per_request",
            "interrupted before a round trip was counted",
        ));
    }
    let beside = measured.and_then(|answer| match beside(cell, answer, mean) {
        Ok(beside) => Some(beside),
        Err(why) => {
            missing.push(Missing::new("measured", why));
            None
        }
    });
    let causes = outcome
        .causes
        .iter()
        .filter_map(|(cause, &count)| Some((cause.to_string(), outcome.per_round_trip(count)?)));
    RoundtripRow {
        workload: cell.to_string(),
        policy: rules.word().to_owned(),
        n: None,
        operations: outcome.round_trips(),
        parameters: parameters(cell),
        switches_per_request: mean,
        switches_p50: outcome.quantile(0.5),
        switches_p90: outcome.quantile(0.9),
        causes: causes.inserted(),
        data_wakes: outcome.per_round_trip(outcome.data_wakes),
        room_wakes: outcome.per_round_trip(outcome.room_wakes),
        cpu_us: outcome.per_round_trip(outcome.cpu_ns).map(|ns| ns / 1e3),
        measured: beside,
        missing,
    }
}

/// By the names of the flags.
fn parameters(cell: &Cell) -> BTreeMap<String, Parameter> {
    let yes = |yes| if yes { "yes" } else { "no" };
    let own: [(&str, Parameter); 5] = [
        ("client-policy", cell.policy.word().into()),
        ("think", cell.think.short().into()),
        ("keyed", yes(cell.kernel.keyed).into()),
        ("preempt", yes(cell.kernel.preempt).into()),
        ("merge", yes(cell.kernel.merge).into()),
    ];
    let mut all = probed(cell);
    all.remove("policy");
    all.extend(own.map(|(name, value)| (name.to_owned(), value)));
    all
}

/// The cells that `answer` measured and the model has, in the record's order: all but those that are placed freely.
#[must_use]
pub fn cells(answer: &Answer) -> Vec<Cell> {
    let measured = answer
        .series
        .iter()
        .filter(|series| series.name == SWITCHES);
    let modelled = |series| cell(series).filter(|cell| validate(cell).is_ok());
    measured.filter_map(modelled).collect()
}

/// Notes both figures where a step that takes a tenth more or less changes the switches by half: the machine then
/// gives either, and any mean between. `outcomes` are of the prices, and of those with sleeping cheaper and dearer.
pub fn note_bistable(row: &mut RoundtripRow, outcomes: [&Outcome; 3]) {
    let means = outcomes.iter().filter_map(|outcome| outcome.mean());
    let (least, most) = means.fold((f64::INFINITY, 0.0_f64), |(least, most), mean| {
        (least.min(mean), most.max(mean))
    });
    if most > 1.5 * least {
        row.missing.push(Missing::new(
            "switches_per_request",
            format!(
                "bistable: {least:.1} or {most:.1}, as a reply takes the client 10 % more or less CPU time"
            ),
        ));
    }
}

/// Returns the probe's figures for `cell`, or why there are none.
fn beside(cell: &Cell, answer: &Answer, mean: Option<f64>) -> Result<Beside, &'static str> {
    if cell.think.0 > 0 || cell.kernel != Kernel::RECENT {
        return Err(
            "the probe's client does not think, and it measures the running kernel as it is",
        );
    }
    let parameters = probed(cell);
    let same = |series: &&Series| {
        parameters
            .iter()
            .all(|(name, value)| series.parameters.get(name) == Some(value))
    };
    let median = |name: &str| {
        let of = |series: &&Series| series.name == name && same(series);
        answer.series.iter().find(of)
    };
    let none = "the record has no figure of this cell";
    let series = median(SWITCHES).ok_or(none)?;
    let switches = series.median().ok_or(none)?;
    let (least, most) = series.range().ok_or(none)?;
    let shares = SHARES
        .iter()
        .filter_map(|&name| Some((name.to_owned(), median(name)?.median()?)));
    Ok(Beside {
        runs: series.blocks.len() as u64,
        switches,
        least,
        most,
        factor: mean.filter(|_| switches > 0.0).map(|mean| mean / switches),
        shares: shares.inserted(),
    })
}
