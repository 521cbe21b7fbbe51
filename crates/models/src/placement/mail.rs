//! The model held against mails 000 and 003.
//!
//! Mail 000's author measured a step of pbobench on a 2.6.35 kernel, through OpenGL: microseconds.
//! The model counts what its kernel looked at: visits. One floor for everything that a step does
//! besides, and one cost a visit, turn visits into microseconds. Both are fitted, by least squares in
//! relative error, so two of the five figures are spent on them: what the table shows is whether the
//! other three agree, that is whether the *shape* is that of `linux-2.6.35`'s search.

use stopgap_stats::growth::line;
use stopgap_stats::replay::{Loops, Mail003, MailFit, MailPoint, PlacementRow};

/// The mail's N, and microseconds a step.
pub const MAIL_000: [(u32, f64); 5] = [
    (100, 17.3),
    (1_000, 19.9),
    (10_000, 88.5),
    (20_000, 205.0),
    (40_000, 406.0),
];

/// Mail 003's kernels: 3.5-rc3 without and with the patches; agua's "vanilla" is 3.4. Both search as
/// `linux-3.4` does.
const MAIL_003: [&str; 2] = ["linux-3.4", "van-riel-v1"];

/// Seconds of all of freegap on the two kernels: `posted` as mail 003 has it; the corrected forms from the
/// answer of its author to the second version of the patches, linux-mm, 22 June 2012.
const FREEGAP_S: [(&str, [f64; 2]); 3] = [
    ("freegap-posted", [0.802_003_266, 1.710_614_276]),
    ("freegap-innermprot", [8.02, 18.84]),
    ("freegap-innerremap", [4.99, 12.66]),
];

/// A loop of agua on the two kernels in mail 003: least, mean, longest, standard deviation, in milliseconds.
const AGUA_MS: [[f64; 4]; 2] = [[6.0, 294.0, 609.0, 113.1664], [14.0, 38.0, 60.0, 3.9312]];

/// Returns the figures of mail 003 for this policy on this workload.
#[must_use]
pub fn of_003(workload: &str, policy: &str) -> Option<Mail003> {
    let kernel = MAIL_003.iter().position(|&name| name == policy)?;
    if workload == "agua" {
        let [min_ms, avg_ms, max_ms, sd_ms] = AGUA_MS[kernel];
        return Some(Mail003 {
            elapsed_s: None,
            loops: Some(Loops {
                count: None,
                min_ms,
                avg_ms,
                max_ms,
                sd_ms,
            }),
        });
    }
    let form = FREEGAP_S.iter().find(|(form, _)| *form == workload)?;
    Some(Mail003 {
        elapsed_s: Some(form.1[kernel]),
        loops: None,
    })
}

/// The workload and the policy that mail 000 measured.
pub const MEASURED: (&str, &str) = ("pbobench", "linux-2.6.35");

/// The fit, where `rows` have pbobench through `linux-2.6.35` at all of the mail's N.
#[must_use]
pub fn fit(rows: &[&PlacementRow]) -> Option<MailFit> {
    let (workload, policy) = MEASURED;
    let mut visits = Vec::new();
    for (n, _) in MAIL_000 {
        let row = rows.iter().find(|row| {
            row.workload == workload && row.policy == policy && row.n == Some(n.into())
        })?;
        if row.operations == 0 {
            return None;
        }
        // An operation of pbobench is a step.
        visits.push(row.visited? as f64 / row.operations as f64);
    }
    let (floor_us, visit_us) = line(&MAIL_000.map(|(_, us)| us), &visits)?;
    let points = MAIL_000
        .iter()
        .zip(&visits)
        .map(|(&(n, mail_us), &visits)| {
            let model_us = floor_us + visit_us * visits;
            MailPoint {
                n: n.into(),
                visits_per_step: visits,
                mail_us,
                model_us,
                deviation: model_us / mail_us - 1.0,
            }
        });
    Some(MailFit {
        workload: workload.to_owned(),
        policy: policy.to_owned(),
        floor_us,
        visit_ns: visit_us * 1_000.0,
        points: points.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u32, visited: u64) -> PlacementRow {
        PlacementRow {
            workload: MEASURED.0.to_owned(),
            policy: MEASURED.1.to_owned(),
            n: Some(n.into()),
            operations: 1_000,
            visited: Some(visited),
            ..PlacementRow::default()
        }
    }

    /// An independent model of that kernel has 0.206 N finds a step. Within 25 % at all five.
    #[test]
    fn the_known_slope_lies_near_the_mail() {
        let rows: Vec<PlacementRow> = MAIL_000
            .iter()
            .map(|&(n, _)| row(n, 206 * u64::from(n)))
            .collect();
        let fit = fit(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert!((10.0..20.0).contains(&fit.floor_us), "{fit:?}");
        assert!((30.0..55.0).contains(&fit.visit_ns), "{fit:?}");
        for point in &fit.points {
            assert!(point.deviation.abs() < 0.25, "{point:?}");
        }
        // No other floor and cost are better.
        let error = |floor: f64, visit: f64| -> f64 {
            let off = |p: &MailPoint| (floor + visit * p.visits_per_step) / p.mail_us - 1.0;
            fit.points.iter().map(|p| off(p).powi(2)).sum()
        };
        let (floor, visit) = (fit.floor_us, fit.visit_ns / 1_000.0);
        let best = error(floor, visit);
        for (a, b) in [(1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)] {
            assert!(error(floor * a, visit * b) > best);
        }
    }

    #[test]
    fn a_flat_policy_has_no_such_fit() {
        let rows: Vec<PlacementRow> = MAIL_000.iter().map(|&(n, _)| row(n, 5_000)).collect();
        assert!(fit(&rows.iter().collect::<Vec<_>>()).is_none());
        let short: Vec<PlacementRow> = MAIL_000[1..]
            .iter()
            .map(|&(n, _)| row(n, n.into()))
            .collect();
        assert!(fit(&short.iter().collect::<Vec<_>>()).is_none());
    }
}
