//! How rows grow over N.

use stopgap_stats::bootstrap::LEAST_RUNS;
use stopgap_stats::growth::{LEAST_POINTS, Point, Shape, fit, verdict_without_control};
use stopgap_stats::replay::{Growth, Quantity};
use stopgap_stats::verdict::{Verdict, Word};

use super::rows::Measured;

/// Growth of each workload and policy that has figures at three N or more, in the order of the rows:
/// of work, which is counted exactly, and apart from it of time, which is measured.
#[must_use]
pub fn growth(rows: &[Measured], seed: u64) -> Vec<Growth> {
    let mut ladders: Vec<(&str, &str, Vec<&Measured>)> = Vec::new();
    for measured in rows {
        let row = &measured.row;
        let same = ladders
            .iter_mut()
            .find(|(workload, policy, _)| *workload == row.workload && *policy == row.policy);
        match same {
            Some((.., ladder)) => ladder.push(measured),
            None => ladders.push((&row.workload, &row.policy, vec![measured])),
        }
    }
    let mut all = Vec::new();
    for (workload, policy, ladder) in ladders {
        let work = ladder.iter().filter_map(|measured| point_of_work(measured));
        let time = ladder.iter().filter_map(|measured| point_of_time(measured));
        let quantities = [
            (Quantity::WorkPerMap, work.collect::<Vec<Point>>()),
            (Quantity::Time, time.collect()),
        ];
        for (quantity, points) in quantities {
            if points.len() >= LEAST_POINTS {
                all.push(one(workload, policy, quantity, &points, seed));
            }
        }
    }
    all
}

fn one(workload: &str, policy: &str, quantity: Quantity, points: &[Point], seed: u64) -> Growth {
    let (verdict, exponent) = match fit(points, seed) {
        Ok(growth) => {
            let mut verdict = verdict_without_control(&growth);
            if growth.shape == Shape::Log && verdict.word != Word::Inconclusive {
                verdict.text.push_str(", as log N");
            }
            (verdict, growth.exponent)
        }
        Err(error) => (Verdict::inconclusive(&error.to_string()), None),
    };
    Growth {
        workload: workload.to_owned(),
        policy: policy.to_owned(),
        quantity,
        word: verdict.word,
        exponent,
        text: verdict.text,
    }
}

/// Counts are exact: each repetition has the same.
fn point_of_work(measured: &Measured) -> Option<Point> {
    let cost = 1.0 + measured.row.work_per_map?;
    Some(Point {
        n: measured.row.n? as f64,
        runs: vec![cost; LEAST_RUNS],
    })
}

fn point_of_time(measured: &Measured) -> Option<Point> {
    let n = measured.row.n? as f64;
    let runs = measured.runs.clone();
    (!runs.is_empty()).then_some(Point { n, runs })
}
