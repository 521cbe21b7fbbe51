//! Statistics and page of `stopgap.fleet`: those of `compare` and `report`, with a host as the unit of evidence.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use stopgap_cli::library;
use stopgap_report::html::{self, OtherAnswer, OtherRecord, Source};
use stopgap_stats::bootstrap::{Interval, median_over_runs, over_runs};
use stopgap_stats::compare::{self, Endpoint, LEVEL, Options, Paired, Run, Side};
use stopgap_stats::document::Document as _;

use crate::call::guarded;

/// An estimate with the ends of its 95 % interval.
type Estimate = (f64, f64, f64);

fn estimate(interval: Interval) -> Estimate {
    (interval.value, interval.low, interval.high)
}

/// Compares the means over hosts of several figures, as `stopgap compare` does with runs: permutations of hosts, Holm's adjustment.
///
/// `before` and `after` have a list of figures a host, in the order of `names`. Returns JSON, `stopgap.compare/1`.
#[pyfunction]
pub(crate) fn compare_hosts(
    py: Python<'_>,
    names: Vec<String>,
    before: Vec<Vec<f64>>,
    after: Vec<Vec<f64>>,
    unit: String,
    seed: u64,
) -> PyResult<String> {
    guarded(py, || {
        let side = |name: &str, hosts: Vec<Vec<f64>>| Side {
            name: name.to_owned(),
            runs: (hosts.into_iter())
                .map(|figures| {
                    let mut run = Run::new("");
                    run.numbers = names.iter().cloned().zip(figures).collect();
                    run
                })
                .collect(),
        };
        let [before, after] = [side("before", before), side("after", after)];
        let options = Options {
            seed,
            endpoints: names.into_iter().map(Endpoint::Mean).collect(),
            // Hosts have no order.
            in_order: false,
            number_unit: unit,
            ..Options::default()
        };
        Ok(compare::compare(&before, &after, &options).to_json())
    })
}

/// Compares the same hosts on both sides, listed in the same order, by exchanging the sides of pairs at random.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 makes a list's values anew, and hands them over
pub(crate) fn compare_pairs(
    py: Python<'_>,
    before: Vec<Vec<f64>>,
    after: Vec<Vec<f64>>,
    seed: u64,
) -> PyResult<String> {
    #[derive(serde::Serialize)]
    struct Told {
        level: f64,
        endpoints: Vec<Paired>,
    }
    guarded(py, || {
        let count = before.first().map_or(0, Vec::len);
        let column = |side: &[Vec<f64>], at: usize| side.iter().map(|host| host[at]).collect();
        let figures: Vec<[Vec<f64>; 2]> = (0..count)
            .map(|at| [column(&before, at), column(&after, at)])
            .collect();
        let options = Options {
            seed,
            ..Options::default()
        };
        let told = Told {
            level: LEVEL,
            endpoints: compare::paired(&figures, &options),
        };
        serde_json::to_string(&told).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    })
}

/// Returns whether so many hosts on both sides can prove a change.
#[pyfunction]
pub(crate) fn pairs_suffice(hosts: usize) -> bool {
    compare::pairs_suffice(hosts)
}

/// Returns the sum of `amounts` per sum of `hours` with its 95 % interval over hosts; `None` from fewer than 3 hosts.
#[pyfunction]
pub(crate) fn ratio_over_hosts(
    py: Python<'_>,
    amounts: Vec<f64>,
    hours: Vec<f64>,
    seed: u64,
) -> PyResult<Option<Estimate>> {
    guarded(py, || {
        let hosts: Vec<(f64, f64)> = amounts.into_iter().zip(hours).collect();
        let ratio = |drawn: &[&(f64, f64)]| {
            let sum = |of: fn(&(f64, f64)) -> f64| drawn.iter().map(|host| of(host)).sum::<f64>();
            let hours = sum(|host| host.1);
            (hours > 0.0).then(|| sum(|host| host.0) / hours)
        };
        // By logarithm, which knows that a rate is not negative; a rare cause is in no host of many draws, and has none.
        let by_logarithm = over_runs(&hosts, seed, |drawn| Some(ratio(drawn)?.ln()));
        let (value, low, high) = match by_logarithm {
            Some(interval) => {
                let (value, low, high) = estimate(interval);
                (value.exp(), low.exp(), high.exp())
            }
            None => match over_runs(&hosts, seed, ratio) {
                Some(interval) => estimate(interval),
                None => return Ok(None),
            },
        };
        Ok(Some((value, low.max(0.0), high)))
    })
}

/// Returns which share of `hosts` hosts `with` are, with its 95 % interval: Wilson's, which has a width where all hosts are alike. If 0 of
/// 10 hosts were helped, up to 28 % of such a fleet may be.
#[pyfunction]
pub(crate) fn share_of_hosts(py: Python<'_>, with: u32, hosts: u32) -> PyResult<Estimate> {
    const Z: f64 = 1.959_964;
    guarded(py, || {
        let (with, n) = (f64::from(with), f64::from(hosts.max(1)));
        let share = with / n;
        let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half =
            Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        Ok((share, (middle - half).max(0.0), (middle + half).min(1.0)))
    })
}

/// Returns the median over hosts with its 95 % interval; `None` from fewer than 3 hosts.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 makes a list's values anew, and hands them over
pub(crate) fn median_over_hosts(
    py: Python<'_>,
    figures: Vec<f64>,
    seed: u64,
) -> PyResult<Option<Estimate>> {
    guarded(py, || Ok(median_over_runs(&figures, seed).map(estimate)))
}

/// Returns the page of `stopgap report` around a section of HTML: `answers` are a class (`bad`, `good`, `open`), a headline, and a
/// sentence each.
#[pyfunction]
pub(crate) fn page(
    py: Python<'_>,
    name: String,
    section: String,
    answers: Vec<(String, String, String)>,
    command: Vec<String>,
) -> PyResult<String> {
    guarded(py, || {
        let answers = answers.into_iter().map(|(class, head, text)| OtherAnswer {
            class: match &*class {
                "bad" => "bad",
                "good" => "good",
                _ => "open",
            },
            text: format!("{head}: {text}"),
            about: text,
            head,
        });
        let record = OtherRecord {
            kind: "fleet",
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            html: section,
            answers: answers.collect(),
            missing: Vec::new(),
            line: name.clone(),
        };
        let document = html::Document::Other(Box::new(record));
        Ok(html::page(&[Source { name, document }]))
    })
}

/// Keeps each later call of this process to one CPU: several processes share the CPUs.
#[pyfunction]
pub(crate) fn keep_to_one_cpu() {
    library::keep_to_one_cpu();
}

/// Returns the version, which results of a fleet are of.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
