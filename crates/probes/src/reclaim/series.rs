//! Gathers what the runs gave into series.

use std::collections::BTreeMap;

use stopgap_stats::record::{Block, Parameter, Series};

/// Under what parameters something was measured.
pub(super) type Parameters = BTreeMap<String, Parameter>;

/// Series in the order in which they first came.
#[derive(Debug, Default)]
pub(super) struct Collector {
    series: Vec<Series>,
}

impl Collector {
    fn at(&mut self, name: &str, unit: &str, parameters: &Parameters) -> &mut Series {
        let same = |s: &Series| s.name == name && s.parameters == *parameters;
        let place = self.series.iter().position(same).unwrap_or_else(|| {
            self.series.push(Series {
                name: name.to_owned(),
                unit: unit.to_owned(),
                parameters: parameters.clone(),
                blocks: Vec::new(),
                error: None,
            });
            self.series.len() - 1
        });
        &mut self.series[place]
    }

    /// One run's block.
    pub(super) fn add(&mut self, name: &str, unit: &str, parameters: &Parameters, block: Block) {
        self.at(name, unit, parameters).blocks.push(block);
    }

    /// One run's number.
    pub(super) fn number(
        &mut self,
        name: &str,
        unit: &str,
        parameters: &Parameters,
        (run, start_ns, samples): (u32, u64, u64),
        value: f64,
    ) {
        let block = Block {
            run,
            start_ns,
            samples,
            value,
            histogram: None,
            stalls: None,
        };
        self.add(name, unit, parameters, block);
    }

    /// A run that gave no number. The first reason stays.
    pub(super) fn fail(&mut self, name: &str, unit: &str, parameters: &Parameters, error: &str) {
        let series = self.at(name, unit, parameters);
        if series.error.is_none() {
            series.error = Some(error.to_owned());
        }
    }

    /// The series; and those in which only some runs failed, in words. A series that has an
    /// error has no number: the numbers of its other runs stay, its error goes to the words.
    pub(super) fn finish(mut self) -> (Vec<Series>, Vec<(String, String)>) {
        let mut partly = Vec::new();
        for series in &mut self.series {
            if series.blocks.is_empty() {
                continue;
            }
            if let Some(error) = series.error.take() {
                partly.push((format!("some runs of '{}'", series.name), error));
            }
        }
        (self.series, partly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_stands_beside_a_number() {
        let mut collector = Collector::default();
        let none = Parameters::new();
        collector.number("take", "ns/page", &none, (0, 1, 2), 3.0);
        collector.fail("take", "ns/page", &none, "ENOMEM");
        collector.fail("release", "ns/page", &none, "EPERM");
        let (series, partly) = collector.finish();
        assert_eq!(series.len(), 2);
        assert_eq!(
            (series[0].blocks.len(), series[0].error.as_deref()),
            (1, None)
        );
        assert_eq!(
            (series[1].blocks.len(), series[1].error.as_deref()),
            (0, Some("EPERM"))
        );
        assert_eq!(partly.len(), 1);
        assert_eq!(series[0].median(), Some(3.0));
        assert_eq!(series[1].median(), None);
    }
}
