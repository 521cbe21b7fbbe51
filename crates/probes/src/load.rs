//! Load children: what one measures comes back as series, what fails as an error in a series.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::Error;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_stats::record::{Block, Parameter, Series};

use crate::contract::{Context, Measured};

/// What a load child reports to its parent, through a pipe.
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
    body: &mut dyn FnMut(&mut LoadReport) -> Result<(), Error>,
) {
    let limits = ChildLimits {
        time: TIME_LIMIT.max(context.time),
        cgroup: None,
    };
    let outcome = context.system.run_child(&limits, &mut || {
        let mut report = LoadReport::default();
        if let Err(error) = body(&mut report) {
            report.missing.push(Missing::new(what, error.to_string()));
        }
        // Series and texts always have a JSON form.
        serde_json::to_vec(&report).unwrap_or_default()
    });
    let report = match outcome {
        Ok(outcome) => {
            measured.peak_resident = measured.peak_resident.max(outcome.peak_resident);
            serde_json::from_slice(&outcome.output).map_err(|error| error.to_string())
        }
        // Ctrl-C reaches the child too; what it did not report is what was cut off.
        Err(_) if (context.interrupted)() => return,
        Err(error) => Err(error.to_string()),
    };
    match report {
        Ok::<LoadReport, _>(report) => {
            for series in report.series {
                measured.add(series);
            }
            for missing in report.missing {
                if !measured.missing.contains(&missing) {
                    measured.missing.push(missing);
                }
            }
        }
        Err(why) => measured.missing.push(Missing::new(what, why)),
    }
}
