//! In memory as it is: entries, beside those of each strategy of `probe chunks`.

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::hugetlb;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::chunks::{Chunks, Strategy};
use stopgap_probes::{Context, Probe};
use stopgap_stats::record::Parameter;

use super::side::{self, How, IOMMUS, Side};
use super::{Bench, Bound, median};

/// How many times the best strategy's entries a chunked buffer may need.
const MOST: f64 = 1.05;

const ALLOWED: &str = "chunked";
const AS_IT_IS: &str = "chunked, knobs as they stand";
const POOL: &str = "chunked, a pool of half of it";

/// By name: for each IOMMU, the entries of each round.
type Rows = BTreeMap<String, [Vec<f64>; IOMMUS.len()]>;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Bound>, Failure> {
    let mut rows = Rows::new();
    let mut got = BTreeMap::new();
    let bar = progress_bar();
    let mut done = 0;
    for round in 0..bench.flags.rounds {
        if bench.over() {
            tell("time is over: fewer rounds");
            break;
        }
        bar.set_position(u64::from(round) * 1_000 / u64::from(bench.flags.rounds));
        if round % 2 == 0 {
            probe(bench, round, &mut rows)?;
        }
        for name in [ALLOWED, AS_IT_IS, POOL] {
            let side = chunked(bench, name)?;
            let entries = side.entries.as_ref();
            let entries = entries.ok_or_else(|| Failure::error("page frames are hidden"))?;
            let row = rows.entry(name.to_owned()).or_default();
            for (all, &count) in row.iter_mut().zip(entries) {
                all.push(count as f64);
            }
            got.insert(name, side);
        }
        if round % 2 == 1 {
            probe(bench, round, &mut rows)?;
        }
        done += 1;
    }
    bar.finish_and_clear();
    println!(
        "memory as it is; {}, entries, median of {done} rounds",
        bench.flags.size
    );
    println!(
        "{:<32} {:>12} {:>16} {:>12}",
        "", IOMMUS[0], IOMMUS[1], IOMMUS[2]
    );
    for (name, row) in &rows {
        let [a, b, c] = medians(row);
        println!("{name:<32} {a:>12} {b:>16} {c:>12}");
    }
    for (name, side) in got {
        println!("{name}: {}", side.got.replace('\n', "\n  "));
    }
    bounds(&rows)
}

fn medians(row: &[Vec<f64>; IOMMUS.len()]) -> [String; IOMMUS.len()] {
    row.each_ref().map(|values| match median(values.clone()) {
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    })
}

/// Each IOMMU: the chunked buffer's entries over those of the best strategy.
pub(super) fn bounds(rows: &Rows) -> Result<Vec<Bound>, Failure> {
    let mut bounds = Vec::new();
    for (at, sizes) in IOMMUS.iter().enumerate() {
        let of = |name: &String| median(rows.get(name)?[at].clone());
        let strategies = rows.keys().filter(|name| !name.starts_with(ALLOWED));
        let best = strategies
            .filter_map(|name| Some((of(name)?, name)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((best, name)), Some(ours)) = (best, of(&ALLOWED.to_owned())) else {
            return Err(Failure::error("no strategy and no buffer to compare"));
        };
        bounds.push(Bound {
            what: format!("entries {sizes}, chunked over the best strategy's ({name})"),
            value: ours / best,
            most: MOST,
        });
    }
    Ok(bounds)
}

fn chunked(bench: &Bench<'_>, name: &str) -> Result<Side, Failure> {
    let size = bench.flags.size;
    let defrag = &bench.flags.defrag;
    let take = |hugetlb| side::take(How::Chunked { hugetlb }, size);
    match name {
        AS_IT_IS => take(true),
        POOL => bench.with_knobs(
            |journal| {
                side::allow(journal, defrag)?;
                let pools = hugetlb::pools(&Linux)?;
                if let Some(pool) = pools.iter().find(|pool| pool.page == Bytes::mib(2)) {
                    let more = size.0 / 2 / pool.page.0;
                    journal.set(&hugetlb::knob(pool.page), &(pool.total + more).to_string())?;
                }
                Ok(())
            },
            || take(true),
        ),
        _ => bench.with_knobs(|journal| side::allow(journal, defrag), || take(false)),
    }
}

/// All strategies of the probe, once.
fn probe(bench: &Bench<'_>, round: u32, rows: &mut Rows) -> Result<(), Failure> {
    let probe = Chunks {
        sizes: vec![bench.flags.size],
        strategies: Strategy::ALL.to_vec(),
        runs: 1,
        buffers: 1,
        knobs: true,
        fragment: None,
    };
    let context = Context {
        system: &Linux,
        journal: bench.journal,
        budget: bench.flags.memory,
        time: Nanos::secs(60),
        seed: bench.flags.seed + u64::from(round),
        privilege: Privilege::Root,
        scratch: Path::new("/"),
        progress: &|_, _| {},
        interrupted: &signals::interrupted,
    };
    let measured = probe
        .run(&context)
        .map_err(|error| Failure::error(error.to_string()))?;
    for series in &measured.series {
        let at = IOMMUS
            .iter()
            .position(|sizes| series.name == format!("entries {sizes}"));
        let (Some(at), Some(Parameter::Word(strategy))) = (at, series.parameters.get("strategy"))
        else {
            continue;
        };
        let row = rows.entry(strategy.clone()).or_default();
        row[at].extend(series.blocks.iter().map(|block| block.value));
    }
    Ok(())
}
