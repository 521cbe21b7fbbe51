//! What all probes run by: load children, and runs of cells in random order until the time is over.
//!
//! A load child sends what it measured through its pipe as JSON. [`child`] returns it as it is, [`measure`] adds it to
//! [`Measured`], and notes a failure there.

use serde::Serialize;
use serde::de::DeserializeOwned;

use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::tasks::{ChildLimits, ChildOutcome};
use stopgap_kernel::{Error, System};

use crate::contract::{Context, Measured, ProbeError};

/// Returns a load child's message. It consists of numbers and texts, which always have a JSON form.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a load child's message.
///
/// # Errors
/// Where the message cannot be read.
pub(crate) fn decode<T: DeserializeOwned>(outcome: &ChildOutcome) -> Result<T, Error> {
    serde_json::from_slice(&outcome.output)
        .map_err(|error| Error::parse("what the load child sent", error))
}

/// Runs `body` in a load child; returns its message and the child's peak resident memory in bytes.
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

/// Time that no part of a probe needs unless something is badly wrong.
const TIME_LIMIT: Nanos = Nanos::secs(60);

/// Runs `body` in a load child and adds what it measured to `measured`. A child that fails leaves a `missing` under the
/// name `what`; what it had measured before it failed is kept.
pub(crate) fn measure(
    context: &Context<'_>,
    measured: &mut Measured,
    what: &str,
    body: impl Fn(&mut Measured) -> Result<(), String>,
) {
    let limits = ChildLimits::within(TIME_LIMIT.max(context.time));
    let outcome = child(context.system, &limits, || {
        let mut report = Measured::default();
        if let Err(error) = body(&mut report) {
            report.note(what, error);
        }
        report
    });
    match outcome {
        Ok((report, peak)) => measured.merge(report, peak),
        // Ctrl-C reaches the child too; what it did not report is what was cut off.
        Err(_) if (context.interrupted)() => {}
        Err(error) => measured.note(what, error),
    }
}

/// Returns the message of one of several children and keeps its peak; notes a failure under the name `what`.
pub(crate) fn report<T: DeserializeOwned>(
    context: &Context<'_>,
    measured: &mut Measured,
    what: &str,
    outcome: Result<ChildOutcome, Error>,
) -> Option<T> {
    let message = outcome.and_then(|outcome| {
        measured.keep_peak(outcome.peak_resident);
        decode(&outcome)
    });
    match message {
        Ok(message) => Some(message),
        Err(_) if (context.interrupted)() => None,
        Err(error) => {
            measured.note(what, error);
            None
        }
    }
}

/// Measures all cells `runs` times by `measure`, each time in random order, until it is interrupted or the time is over.
/// `name` gives a cell's progress line, `end_of_run` measures what belongs to a run as a whole.
///
/// # Errors
/// Those of `measure`: nothing can be measured here at all.
pub(crate) fn rotate<C>(
    context: &Context<'_>,
    measured: &mut Measured,
    runs: u32,
    cells: &mut [C],
    name: impl Fn(&C) -> String,
    mut measure: impl FnMut(&mut Measured, u32, &C) -> Result<(), ProbeError>,
    end_of_run: impl Fn(&mut Measured, u32),
) -> Result<(), ProbeError> {
    let begun = context.system.now();
    let total = (cells.len() * runs as usize).max(1) as f64;
    let mut random = Random::new(context.seed);
    for run in 0..runs {
        random.shuffle(cells);
        for (index, cell) in cells.iter().enumerate() {
            if (context.interrupted)() {
                measured.interrupted = true;
                return Ok(());
            }
            if context.overdue(begun) {
                let left = format!("{} of {runs} runs, or parts of them", runs - run);
                measured.missing.push(context.left_out(left));
                return Ok(());
            }
            let done = (run as usize * cells.len() + index) as f64;
            (context.progress)(done / total, &name(cell));
            measure(measured, run, cell)?;
        }
        end_of_run(measured, run);
        if context.enough(begun, run + 1) && run + 1 < runs {
            let left = format!("runs {} to {runs}", run + 2);
            measured.missing.push(context.left_out(left));
            return Ok(());
        }
    }
    Ok(())
}
