//! The sentences beside the verdict.

use std::collections::BTreeSet;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::record::Series;

use super::{COSTLY_ORDER, KEPT_ONE_IN, Ranking, Seen, Stalled, size_of, strategy_of, worst};
use crate::chunks::series::{PHYSICAL_RUNS, TAKE, entries_name};
use crate::chunks::strategy::Strategy;
use crate::chunks::take::IOMMUS;

impl Seen<'_> {
    /// `2 MiB block 148 ms (THP with direct reclaim)`
    pub(super) fn worst_words(&self) -> String {
        let rows = self.rows.iter();
        let blocks = rows.flat_map(|row| row.blocks.iter().map(move |block| (worst(block), row)));
        let longest = blocks.max_by_key(|&(worst, _)| worst);
        longest.map_or(String::new(), |(worst, row)| {
            format!(
                "{} block {} ({})",
                row.block,
                Nanos(worst),
                row.strategy.words()
            )
        })
    }

    /// Most telling first.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut evidence: Vec<String> = self.made().into_iter().collect();
        let sizes: BTreeSet<Bytes> = self.measured.series.iter().filter_map(size_of).collect();
        for &size in sizes.iter().rev() {
            let took = self.medians(TAKE, size);
            let base = took
                .iter()
                .find(|(strategy, _)| *strategy == Strategy::Base);
            let huge = took
                .iter()
                .find(|(strategy, _)| *strategy == Strategy::ThpDirect);
            if let (Some((_, base)), Some((_, huge))) = (base, huge) {
                evidence.push(format!(
                    "{size} takes {} in base pages, {} in THP ({:.2}x){}",
                    nanos(*base),
                    nanos(*huge),
                    huge / base,
                    self.entries_of_both(size).unwrap_or_default()
                ));
            }
        }
        if !self.rows.is_empty() {
            evidence.push(format!("the worst block: {}", self.worst_words()));
        }
        evidence.extend(self.long());
        evidence.extend(
            self.stalls()
                .iter()
                .skip(1)
                .map(|s| format!("also {}", s.words())),
        );
        for &size in sizes.iter().rev() {
            let took = self.medians(TAKE, size);
            if let (Some(_), Some(ranking)) = (
                self.fact(KEPT_ONE_IN),
                Ranking::of(&self.measured.series, size),
            ) {
                evidence.push(ranking.words(size));
            } else if !took.is_empty() {
                let list: Vec<String> = took
                    .iter()
                    .map(|(strategy, ns)| format!("{strategy} {}", nanos(*ns)))
                    .collect();
                evidence.push(format!("{} took: {}", size.short(), list.join(", ")));
            }
        }
        evidence.extend(sizes.iter().filter_map(|&size| self.neighbours(size)));
        evidence.extend(sizes.iter().filter_map(|&size| self.entries(size)));
        evidence
    }

    /// `made: 1/4 of 20.7 GiB kept, pinned; unusable index at least 0.99 at order 4, 1.00 at order 9; 15.1 GiB free`
    fn made(&self) -> Option<String> {
        let bytes = |name: &str| Some(Bytes(self.fact(name)? as u64));
        let one_in = self.fact(KEPT_ONE_IN)?;
        let pinned = match bytes("pinned_bytes")? {
            Bytes(0) => "movable",
            _ => "pinned",
        };
        let indices: Vec<String> = [Some(COSTLY_ORDER), self.pmd_order()]
            .into_iter()
            .flatten()
            .filter_map(|order| Some(format!("{:.2} at order {order}", self.index(order)?)))
            .collect();
        Some(format!(
            "made: 1/{one_in} of {} kept, {pinned}; unusable index at least {}; {} free",
            bytes("split_bytes")?,
            indices.join(", "),
            bytes("free_bytes")?,
        ))
    }

    /// What an x86 IOMMU needs for base pages and for THP, where the layout could be read.
    fn entries_of_both(&self, size: Bytes) -> Option<String> {
        let entries = self.medians(&entries_name(0), size);
        let of = |wanted| entries.iter().find(|(strategy, _)| *strategy == wanted);
        let (_, base) = of(Strategy::Base)?;
        let (_, huge) = of(Strategy::ThpDirect)?;
        let sizes = &IOMMUS[0];
        Some(format!(
            "; {base:.0} and {huge:.0} IOMMU entries of {sizes}"
        ))
    }

    /// `4M of base pages: 1,024 pages lie in 37 physical runs, 27.7 neighbours each by chance`
    fn neighbours(&self, size: Bytes) -> Option<String> {
        let runs = self.medians(PHYSICAL_RUNS, size);
        let (_, runs) = runs
            .iter()
            .find(|(strategy, runs)| *strategy == Strategy::Base && *runs > 0.0)?;
        let pages = size.0 as f64 / self.fact("page_bytes")?;
        Some(format!(
            "{} of base pages: {pages:.0} pages lie in {runs:.0} physical runs, {:.1} neighbours each by chance",
            size.short(),
            pages / runs
        ))
    }

    /// `4M needs entries of {..}/{..}/{..}: base 1024/1020/1020, ...`
    fn entries(&self, size: Bytes) -> Option<String> {
        let sets = IOMMUS.map(|sizes| sizes.to_string()).join("/");
        let counts: Vec<_> = (0..IOMMUS.len())
            .map(|at| self.medians(&entries_name(at), size))
            .collect();
        let list: Vec<String> = counts[0]
            .iter()
            .map(|(strategy, _)| {
                let of = |medians: &Vec<(Strategy, f64)>| {
                    let found = medians.iter().find(|(of, _)| of == strategy);
                    found.map_or("?".to_owned(), |(_, count)| format!("{count:.0}"))
                };
                let by_set: Vec<String> = counts.iter().map(of).collect();
                format!("{strategy} {}", by_set.join("/"))
            })
            .collect();
        let size = size.short();
        (!list.is_empty()).then(|| format!("{size} needs entries of {sets}: {}", list.join(", ")))
    }

    /// Median over runs of a series at this buffer size, by strategy.
    fn medians(&self, name: &str, size: Bytes) -> Vec<(Strategy, f64)> {
        let of = |series: &Series| {
            let same = series.name == name && size_of(series) == Some(size);
            same.then_some(())?;
            Some((strategy_of(series)?, series.median()?))
        };
        self.measured.series.iter().filter_map(of).collect()
    }

    /// A setting that the evidence shows to help.
    pub(super) fn advice(&self, stalled: &Stalled) -> Option<String> {
        let helps = Strategy::ThpNoReclaim;
        let measured = self.rows.iter().any(|row| row.strategy == helps);
        let stalls = self.stalls().iter().any(|other| other.strategy == helps);
        let by_fault = matches!(
            stalled.strategy,
            Strategy::ThpDirect | Strategy::Mthp(_) | Strategy::MthpUpTo(_)
        );
        (by_fault && measured && !stalls).then(|| {
            "echo defer > /sys/kernel/mm/transparent_hugepage/defrag: huge pages are then made \
             in the background, and without direct reclaim no block stalled here"
                .to_owned()
        })
    }
}

fn nanos(ns: f64) -> Nanos {
    Nanos(ns as u64)
}
