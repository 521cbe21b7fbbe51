//! Which strategy is quicker than which, as far as all runs agree.
//!
//! A state that was fragmented on purpose is not the same twice, and times differ by factors between
//! repeats. So two strategies are *apart* only if the medians of their runs differ by [`APART`] or
//! more; and where they are, each run in which both were measured must put them in the same order,
//! at least two runs of them: else repeats disagree, and there is no order.

use std::fmt::Write;

use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Block, Series};

use super::{size_of, strategy_of};
use crate::chunks::Strategy;
use crate::chunks::series::BLOCK;

/// Strategies whose medians differ by less than this factor are alike.
pub const APART: f64 = 1.5;

/// Strategies by the time that one buffer size took, quickest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// With the median over runs, in nanoseconds.
    pub places: Vec<(Strategy, f64)>,
    /// The first two that are apart and that runs do not put in the same order.
    pub disagree: Option<(Strategy, Strategy)>,
}

/// Each run's number and its nanoseconds a buffer.
type Runs = Vec<(u32, f64)>;

impl Ranking {
    /// Ranks the buffers of this size; `None` where fewer than two strategies took one.
    #[must_use]
    pub fn of(series: &[Series], size: Bytes) -> Option<Ranking> {
        let blocks = |series: &&Series| series.name == BLOCK && size_of(series) == Some(size);
        let mut rows: Vec<(Strategy, f64, Runs)> = series
            .iter()
            .filter(blocks)
            .filter_map(|series| {
                let runs = runs(series)?;
                let times = runs.iter().map(|&(_, time)| time).collect();
                Some((strategy_of(series)?, median(times)?, runs))
            })
            .collect();
        rows.sort_rows(|a, b| a.1.total_cmp(&b.1));
        (rows.len() > 1).then(|| Ranking {
            disagree: rows.iter().enumerate().find_map(|(at, quick)| {
                let slow = rows[at + 1..].iter().find(|slow| {
                    slow.1 >= quick.1 * APART && !same_order_always(&quick.2, &slow.2)
                })?;
                Some((quick.0, slow.0))
            }),
            places: rows.iter().map(|row| (row.0, row.1)).collect(),
        })
    }

    /// The first pair that is apart here and the other way round in `other`, times of the same
    /// strategies from elsewhere.
    #[must_use]
    pub fn contradicted(&self, other: &[(Strategy, f64)]) -> Option<(Strategy, Strategy)> {
        let of = |strategy| other.iter().find(|(of, _)| *of == strategy).map(|of| of.1);
        self.places
            .iter()
            .enumerate()
            .find_map(|(at, &(quick, time))| {
                let slow = self.places[at + 1..].iter().find(|&&(slow, longer)| {
                    let there = of(quick).zip(of(slow));
                    longer >= time * APART
                        && there.is_some_and(|(quick, slow)| quick >= slow * APART)
                })?;
                Some((quick, slow.0))
            })
    }

    /// One line: the order with its times, or between whom repeats disagree.
    #[must_use]
    pub fn words(&self, size: Bytes) -> String {
        let mut text = format!("{} by time: ", size.short());
        if let Some((one, other)) = self.disagree {
            let _ = write!(text, "inconclusive: repeats disagree on {one} and {other}");
            return text;
        }
        let mut last = None;
        for (strategy, ns) in &self.places {
            let sign = match last {
                None => "",
                Some(before) if *ns >= before * APART => " < ",
                Some(_) => " ~ ",
            };
            last = Some(*ns);
            let time = Nanos(*ns as u64);
            let _ = write!(text, "{sign}{strategy} {time}");
        }
        text
    }
}

/// Those of one strategy.
fn runs(series: &Series) -> Option<Runs> {
    let buffers = series.number("buffers")?.max(1) as f64;
    let time = |block: &Block| {
        let mean = block.histogram.as_ref()?.mean()?;
        Some((block.run, mean * block.samples as f64 / buffers))
    };
    Some(series.blocks.iter().filter_map(time).collect())
}

/// Whether each run that has both puts the first before the second, two runs at least.
fn same_order_always(quick: &[(u32, f64)], slow: &[(u32, f64)]) -> bool {
    let both = quick.iter().filter_map(|&(run, time)| {
        let &(_, other) = slow.iter().find(|(other, _)| *other == run)?;
        Some(time < other)
    });
    let orders: Vec<bool> = both.collect();
    orders.len() >= 2 && orders.iter().all(|&order| order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::histogram::Recorder;
    use stopgap_stats::record::parameters;
    use stopgap_testing::assert_contains;

    /// Two buffers of two blocks each a run, together `ms` a buffer.
    fn blocks(strategy: Strategy, ms: &[f64]) -> Series {
        let block = |(run, ms): (usize, &f64)| {
            let mut recorder = Recorder::new(u64::MAX);
            for at in 0..4 {
                recorder.record(at, (ms * 0.5e6) as u64);
            }
            recorder.into_block(u32::try_from(run).unwrap(), 0).unwrap()
        };
        let parameters = parameters([
            ("size", "64M".into()),
            ("strategy", strategy.to_string().into()),
            ("buffers", 2u64.into()),
        ]);
        let blocks: Vec<Block> = ms.iter().enumerate().map(block).collect();
        Series::new(BLOCK, "ns", &parameters, blocks)
    }

    fn ranking(rows: &[(Strategy, &[f64])]) -> Ranking {
        let series: Vec<_> = rows.iter().map(|(of, ms)| blocks(*of, ms)).collect();
        Ranking::of(&series, Bytes::mib(64)).unwrap()
    }

    #[test]
    fn what_all_runs_agree_on_is_an_order() {
        let ranking = ranking(&[
            (Strategy::ThpDirect, &[1_036.0, 7_300.0, 233.0]),
            (Strategy::Base, &[18.0, 19.0, 18.0]),
            (Strategy::ThpNoReclaim, &[17.0, 20.0, 19.0]), // alike: no order is needed
        ]);
        assert_eq!(ranking.disagree, None);
        assert_eq!(
            ranking.words(Bytes::mib(64)),
            "64M by time: base 18.0 ms ~ thp-noreclaim 19.0 ms < thp-direct 1.04 s"
        );
    }

    #[test]
    fn repeats_that_disagree_are_no_order() {
        let ranking = ranking(&[
            (Strategy::ThpDirect, &[12.0, 233.0, 100.0]),
            (Strategy::Base, &[18.0, 19.0, 18.0]),
        ]);
        assert_eq!(
            ranking.disagree,
            Some((Strategy::Base, Strategy::ThpDirect))
        );
        let text = ranking.words(Bytes::mib(64));
        assert_contains(
            &text,
            &["inconclusive: repeats disagree on base and thp-direct"],
        );
    }

    #[test]
    fn one_run_is_no_order() {
        let one = ranking(&[(Strategy::ThpDirect, &[100.0]), (Strategy::Base, &[18.0])]);
        assert!(one.disagree.is_some());
        let series = [blocks(Strategy::Base, &[1.0])];
        assert_eq!(Ranking::of(&series, Bytes::mib(64)), None);
    }

    #[test]
    fn another_order_contradicts_only_where_both_are_apart() {
        let ours = ranking(&[
            (Strategy::Base, &[18.0, 18.0]),
            (Strategy::ThpDirect, &[100.0, 100.0]),
        ]);
        let other = |base, direct| [(Strategy::Base, base), (Strategy::ThpDirect, direct)];
        assert_eq!(ours.contradicted(&other(1.0, 1.2)), None);
        assert_eq!(ours.contradicted(&other(1.2, 1.0)), None, "alike there");
        let pair = Some((Strategy::Base, Strategy::ThpDirect));
        assert_eq!(ours.contradicted(&other(2.0, 1.0)), pair);
        assert_eq!(ours.contradicted(&[]), None);
    }
}
