//! Load children: what one measured comes back through its pipe as JSON. [`child`] gives it as
//! it is; [`run`] takes it as series, and what failed as a `missing`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::tasks::{ChildLimits, ChildOutcome};
use stopgap_kernel::{Error, System};
use stopgap_stats::record::{Block, Parameter, Series};

use crate::contract::{Context, Measured};

/// What a child sends: it consists of numbers and texts, which always have a JSON form.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// What a child sent.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn decode<T: DeserializeOwned>(outcome: &ChildOutcome) -> Result<T, Error> {
    serde_json::from_slice(&outcome.output)
        .map_err(|error| Error::parse("what the load child sent", error))
}

/// Carries `body` out in a load child: what it gives, and the child's peak resident memory in
/// bytes.
///
/// # Errors
/// As [`stopgap_kernel::tasks::Tasks::run_child`] and [`decode`].
pub(crate) fn child<T: Serialize + DeserializeOwned>(
    system: &dyn System,
    limits: &ChildLimits,
    body: impl Fn() -> T,
) -> Result<(T, u64), Error> {
    let outcome = system.run_child(limits, &mut || encode(&body()))?;
    Ok((decode(&outcome)?, outcome.peak_resident))
}

/// What a load child reports to its parent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    series: Vec<Series>,
    missing: Vec<Missing>,
}

impl LoadReport {
    /// Adds a block to the series of that name and parameters; no block, no series.
    pub(crate) fn block(
        &mut self,
        name: &str,
        unit: &str,
        parameters: &BTreeMap<String, Parameter>,
        block: Option<Block>,
    ) {
        if let Some(block) = block {
            self.series.push(Series {
                name: name.to_owned(),
                unit: unit.to_owned(),
                parameters: parameters.clone(),
                blocks: vec![block],
                error: None,
            });
        }
    }
}

/// Time that no part of a probe needs unless something is badly wrong.
const TIME_LIMIT: Nanos = Nanos::secs(60);

/// Carries `body` out in a load child and adds what it reports to `measured`. A child that
/// fails leaves a `missing` that says why, under the name `what`; what it had measured before
/// it failed is kept.
pub(crate) fn run(
    context: &Context<'_>,
    measured: &mut Measured,
    what: &str,
    body: impl Fn(&mut LoadReport) -> Result<(), Error>,
) {
    let limits = ChildLimits {
        time: TIME_LIMIT.max(context.time),
        cgroup: None,
    };
    let outcome = child(context.system, &limits, || {
        let mut report = LoadReport::default();
        if let Err(error) = body(&mut report) {
            report.missing.push(Missing::new(what, error.to_string()));
        }
        report
    });
    match outcome {
        Ok((report, peak)) => {
            measured.peak_resident = measured.peak_resident.max(peak);
            for series in report.series {
                measured.add(series);
            }
            for missing in report.missing {
                if !measured.missing.contains(&missing) {
                    measured.missing.push(missing);
                }
            }
        }
        // Ctrl-C reaches the child too; what it did not report is what was cut off.
        Err(_) if (context.interrupted)() => {}
        Err(error) => measured.missing.push(Missing::new(what, error.to_string())),
    }
}
