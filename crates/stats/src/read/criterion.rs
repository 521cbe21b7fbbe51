//! `sample.json` of criterion (0.3.4 to 0.8), in `target/criterion/NAME/new`: `iters` and `times` of each sample. A sample's figure
//! is its time by its iterations. Criterion's other files have estimates of all samples together.
//!
//! The file says neither the benchmark's name nor the unit, which is nanoseconds unless the benchmark has a measurement of its
//! own.

use serde::Deserialize;

use super::{Format, Read, ReadError};
use crate::compare::{MOST_RUNS, Run};

#[derive(Deserialize)]
struct Document {
    iters: Vec<f64>,
    times: Vec<f64>,
}

pub(super) fn read(text: &str) -> Result<Read, ReadError> {
    let document: Document = serde_json::from_str(text)
        .map_err(|error| ReadError::json("criterion's sample.json", &error))?;
    let (iterations, times) = (document.iters, document.times);
    if iterations.len() != times.len() {
        return Err(ReadError::whole(format!(
            "{} numbers of iterations, and {} times: it is damaged",
            iterations.len(),
            times.len()
        )));
    }
    if times.len() > MOST_RUNS {
        let many = times.len();
        return Err(ReadError::whole(format!(
            "{many} samples, at most {MOST_RUNS}"
        )));
    }
    let mut read = Read::new(Format::Criterion);
    read.question = Some("time of an iteration".to_owned());
    read.number_unit = "ns".to_owned();
    for (number, (&iterations, &time)) in (1..).zip(iterations.iter().zip(&times)) {
        let each = time / iterations;
        if iterations < 1.0 || time < 0.0 || !each.is_finite() {
            return Err(ReadError::whole(format!(
                "sample {number}: {iterations} iterations took {time} ns"
            )));
        }
        let name = format!("sample {number}");
        read.runs.push(Run::of_number(name, "iteration", each));
    }
    Ok(read)
}
