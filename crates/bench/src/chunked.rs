//! `stopgap-bench chunked`: the library's chunked buffer beside base pages and beside what the kernel does by itself.
//!
//! ```text
//! whole memory    probe's strategies | chunked ......... | again, in the other order      IOMMU entries
//! fragmented      fresh state: chunked, base, direct in random order | fresh state: ...   the longest 2 MiB
//! ```
//!
//! Each buffer is taken in a child of its own. A block is 2 MiB, without the time in which its child was ready to run and had no CPU.
//! Knobs are set for each side and put back after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stopgap_arena::chunked::{Buffer, Entries, Knobs, Request};
use stopgap_chunks::iommu::{self, PageSizes, Run};
use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::{Advice, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::thp::{Thp, defrag_knob};
use stopgap_kernel::{Linux, hugetlb, own, pagemap, shortage, signals};
use stopgap_probes::Probe;
use stopgap_probes::chunks::fragment::recipe::Recipe;
use stopgap_probes::chunks::fragment::{Fragment, Maker, Ratio, fresh};
use stopgap_probes::chunks::{Chunks, Strategy};
use stopgap_report::table::join;
use stopgap_stats::record::Series;

use crate::common::{
    Bounds, context, failed, in_child, in_scope, journal, map, middle, table, text,
};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Fresh fragmented states; 0: none. Each takes about half a minute.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    states: u32,
    /// Rounds in memory as it is; 0: none.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: u32,
    /// A buffer.
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    size: Bytes,
    /// Memory that may be used at most, for a time: fragmenting takes up most of what is free.
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    memory: Bytes,
    /// No state and no round begins after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// `defrag` while the chunked buffer is taken.
    #[arg(long, value_name = "WORD", default_value = "never", value_parser = ["never", "defer"])]
    defrag: String,
    /// Seed of the orders.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// How many times the best strategy's entries a chunked buffer may need.
const MOST_ENTRIES: f64 = 1.05;
/// How much longer than that of base pages the longest block of a chunked buffer may be.
const MOST_WORST: f64 = 2.0;
/// How many states in all may not come about before it is given up: others use memory as well.
const REFUSALS: u32 = 10;
/// Time for others to give memory back before a state is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Bytes between two looks at the clock.
const BLOCK: u64 = 1 << 21;

/// IOMMUs for which entries are counted.
const IOMMUS: [PageSizes; 3] = [
    PageSizes::K4_M2_G1,
    PageSizes::K4_K64_M1_M16,
    PageSizes::K4_K64_M2,
];
/// Sizes that the default policy asks for.
const WANTED: [Bytes; 3] = [Bytes::mib(2), Bytes::mib(1), Bytes::kib(64)];

/// Rows of chunked buffers in memory as it is.
const ALLOWED: &str = "chunked";
const AS_IT_IS: &str = "chunked, knobs as they stand";
const POOL: &str = "chunked, a pool of half of it";
/// Sides in fragmented memory.
const SIDES: [&str; 3] = ["chunked", "base pages", "thp-direct"];

/// The flags and resources of all parts.
struct Bench<'a> {
    flags: &'a Flags,
    journal: &'a Journal<'a>,
    end: Nanos,
}

/// Runs, prints both tables and a line for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    if Linux.uid() != 0 {
        return Err(Failure::error(
            "chunked needs root: knobs of huge pages, page frames",
        ));
    }
    if flags.size.0 < BLOCK || flags.size > Bytes::gib(1) {
        return Err(Failure::error("--size: from 2M to 1G"));
    }
    let journal = &journal()?;
    let end = Linux.now() + Nanos::secs(flags.seconds);
    let bench = Bench {
        flags,
        journal,
        end,
    };
    let mut bounds = Bounds::default();
    in_scope(journal, || {
        if flags.rounds > 0 {
            bench.whole(&mut bounds)?;
        }
        if flags.states > 0 {
            bench.fragmented(&mut bounds)?;
        }
        Ok(())
    })?;
    let status = bounds.print()?;
    if signals::interrupted() {
        return Err(Failure::error("interrupted: fewer rounds and states"));
    }
    Ok(status)
}

impl Bench<'_> {
    /// Whether to stop; `what` there are fewer of then.
    fn over(&self, what: &str) -> bool {
        let over = signals::interrupted() || Linux.now() >= self.end;
        if over {
            tell(&format!("time is over: fewer {what}"));
        }
        over
    }

    /// Counts entries in memory as it is, beside those of each strategy of `probe chunks`.
    fn whole(&self, bounds: &mut Bounds) -> Result<(), Failure> {
        // By name: for each IOMMU, the entries of each round.
        let mut rows: BTreeMap<String, [Vec<f64>; IOMMUS.len()]> = BTreeMap::new();
        let mut got = BTreeMap::new();
        let bar = progress_bar();
        let mut done = 0;
        while done < self.flags.rounds && !self.over("rounds") {
            bar.set_position(u64::from(done) * 1_000 / u64::from(self.flags.rounds));
            // The strategies first, or the buffers.
            for step in [done % 2, 1 - done % 2] {
                if step == 0 {
                    for series in self.probe(done)? {
                        let is_of = |sizes: &PageSizes| series.name == format!("entries {sizes}");
                        let at = IOMMUS.iter().position(is_of);
                        if let (Some(at), Some(strategy)) = (at, series.word("strategy")) {
                            let row = rows.entry(strategy.to_owned()).or_default();
                            row[at].extend(series.values());
                        }
                    }
                    continue;
                }
                for name in [ALLOWED, AS_IT_IS, POOL] {
                    let side = self.chunked(name)?;
                    let entries = side.entries.as_ref();
                    let entries =
                        entries.ok_or_else(|| Failure::error("page frames are hidden"))?;
                    let row = rows.entry(name.to_owned()).or_default();
                    for (all, &count) in row.iter_mut().zip(entries) {
                        all.push(count as f64);
                    }
                    got.insert(name, side.got);
                }
            }
            done += 1;
        }
        bar.finish_and_clear();
        let medians: BTreeMap<String, [f64; IOMMUS.len()]> = rows
            .into_iter()
            .map(|(name, row)| (name, row.map(middle)))
            .collect();
        let lines = medians.iter().map(|(name, row)| {
            let cells = row.iter().map(ToString::to_string);
            std::iter::once(name.clone()).chain(cells).collect()
        });
        let head = format!("|{}", join(IOMMUS, "|"));
        print!(
            "memory as it is; {}, entries, median of {done} rounds\n{}",
            self.flags.size,
            table(&head, lines)
        );
        for (name, got) in got {
            println!("{name}: {}", got.replace('\n', "\n  "));
        }
        for (at, sizes) in IOMMUS.iter().enumerate() {
            let strategies = medians
                .iter()
                .filter(|(name, _)| !name.starts_with(ALLOWED));
            let best = strategies
                .map(|(name, row)| (row[at], name))
                .filter(|(entries, _)| !entries.is_nan())
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let (Some((best, name)), Some(ours)) = (best, medians.get(ALLOWED)) else {
                return Err(Failure::error("no strategy and no buffer to compare"));
            };
            let what = format!("entries {sizes}, chunked over the best strategy's ({name})");
            bounds.at_most(what, ours[at] / best, MOST_ENTRIES);
        }
        Ok(())
    }

    /// Takes a chunked buffer in memory as it is.
    fn chunked(&self, name: &str) -> Result<Side, Failure> {
        in_scope(self.journal, || {
            if name != AS_IT_IS {
                allow(self.journal, &self.flags.defrag)?;
            }
            let pools = if name == POOL {
                hugetlb::pools(&Linux)?
            } else {
                Vec::new()
            };
            if let Some(pool) = pools.iter().find(|pool| pool.page == Bytes::mib(2)) {
                let pages = pool.total + self.flags.size.0 / 2 / pool.page.0;
                self.journal
                    .set(&hugetlb::knob(pool.page), &pages.to_string())?;
            }
            let hugetlb = name != ALLOWED;
            take(How::Chunked { hugetlb }, self.flags.size)
        })
    }

    /// Carries out all strategies of the probe, once.
    fn probe(&self, round: u32) -> Result<Vec<Series>, Failure> {
        let probe = Chunks {
            sizes: vec![self.flags.size],
            strategies: Strategy::ALL.to_vec(),
            runs: 1,
            buffers: 1,
            knobs: true,
            fragment: None,
        };
        let seed = self.flags.seed + u64::from(round);
        let (memory, time) = (self.flags.memory, Nanos::secs(60));
        let context = context(self.journal, Path::new("/"), memory, time, seed);
        Ok(probe.run(&context).map_err(failed("probe chunks"))?.series)
    }

    /// Measures the longest block in memory that is fragmented and pinned.
    fn fragmented(&self, bounds: &mut Bounds) -> Result<(), Failure> {
        let mut random = Random::new(self.flags.seed);
        let bar = progress_bar();
        let mut states: Vec<[Side; 3]> = Vec::new();
        let mut refusals = 0;
        println!(
            "\nfragmented, 1/4 of the frames kept and pinned; {} each, `defrag` = {}\n\
             state  order                              chunked ms: all, worst  base: all, worst  direct: all, worst  worst/base",
            self.flags.size, self.flags.defrag
        );
        for number in 0..self.flags.states {
            bar.set_position(u64::from(number) * 1_000 / u64::from(self.flags.states));
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            let sides = loop {
                if self.over("states") {
                    break None;
                }
                match self.state(order) {
                    Ok(sides) => break Some(sides),
                    Err(why) if refusals >= REFUSALS => return Err(why),
                    // Others took memory meanwhile, or gave large blocks back.
                    Err(why) => {
                        refusals += 1;
                        let _ = why.report();
                    }
                }
                std::thread::sleep(AGAIN);
            };
            let Some(sides) = sides else { break };
            let ms = |ns: u64| ns as f64 / 1e6;
            let times = sides
                .each_ref()
                .map(|side| format!(" {:>9.1} {:>8.2}", ms(side.total), ms(side.worst)));
            let [chunked, base, direct] = sides.each_ref().map(|side| side.direct);
            let line = format!(
                "{number:>5}  {:<34}{}  {:>6.2}  {chunked}, {base}, {direct}",
                order.map(|at| SIDES[at]).join(", "),
                times.concat(),
                sides[0].worst_over(&sides[1])
            );
            bar.suspend(|| println!("{line}"));
            states.push(sides);
        }
        bar.finish_and_clear();
        let Some([chunked, ..]) = states.last() else {
            return Err(Failure::error("not one state was made"));
        };
        println!(
            "the last one got: {}",
            chunked.got.replace('\n', "\n                  ")
        );
        let worst =
            |side: usize| middle(states.iter().map(|sides| sides[side].worst_over(&sides[1])));
        println!(
            "median of {}: thp-direct's worst is {:.1} times that of base pages",
            states.len(),
            worst(2)
        );
        let count = states.len();
        let what = format!("median of {count} states, worst 2 MiB of chunked over base pages'");
        bounds.at_most(what, worst(0), MOST_WORST);
        Ok(())
    }

    /// Makes a fresh state, and takes all sides in it in this order.
    fn state(&self, order: [usize; 3]) -> Result<[Side; 3], Failure> {
        let fragment = Fragment {
            keep: Ratio::new(4).ok_or_else(|| Failure::error("no ratio"))?,
            pinned: true,
        };
        let [free, available, total] =
            ["MemFree", "MemAvailable", "MemTotal"].map(|name| meminfo(&Linux, name));
        let recipe = Recipe::new(fragment, free?, available?, total?).map_err(Failure::error)?;
        let need = recipe.peak() + self.flags.size;
        if need > self.flags.memory {
            let most = Bytes::gib(need.0.div_ceil(1 << 30)).short();
            return Err(Failure::error(format!(
                "a fragmented state takes up to {need} for a time: allow it with --memory {most}"
            )));
        }
        let maker = Maker {
            system: &Linux,
            journal: self.journal,
            time: Nanos::secs(180),
            interrupted: &signals::interrupted,
        };
        let mut left = Vec::new();
        let state = fresh(&maker, &recipe, &mut left);
        if let Some(why) = left.first() {
            return Err(Failure::error(format!("putting a knob back: {why}")));
        }
        let state = state.map_err(Failure::error)?;
        let mut sides: [Side; 3] = Default::default();
        let done = order.into_iter().try_for_each(|at| {
            sides[at] = self.side(at)?;
            Ok(())
        });
        state.release();
        done.map(|()| sides)
    }

    /// Takes a buffer of one of [`SIDES`].
    fn side(&self, which: usize) -> Result<Side, Failure> {
        let how = match which {
            0 => How::Chunked { hugetlb: false },
            1 => How::Touch(Advice::NoHugePage),
            _ => How::Touch(Advice::HugePage),
        };
        in_scope(self.journal, || {
            match which {
                0 => allow(self.journal, &self.flags.defrag)?,
                1 => {}
                _ => direct(self.journal)?,
            }
            take(how, self.flags.size)
        })
    }
}

/// How a buffer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The library's buffer, with pages of the pool or without.
    Chunked { hugetlb: bool },
    /// Mapped, advised, and every page touched.
    Touch(Advice),
}

/// The buffer that came, and its cost. Times are nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Side {
    total: u64,
    /// The longest block.
    worst: u64,
    /// Direct reclaims and compactions of all tasks that the kernel counted meanwhile.
    direct: u64,
    /// For each of [`IOMMUS`]; `None`: page frames are hidden.
    entries: Option<Vec<u64>>,
    /// The library's own description of it.
    got: String,
}

impl Side {
    fn worst_over(&self, other: &Side) -> f64 {
        self.worst as f64 / (other.worst as f64).max(1.0)
    }
}

fn thp() -> Result<Thp, Failure> {
    Thp::read(&Linux)?.ok_or_else(|| Failure::error("this kernel has no THP"))
}

/// Lets advised memory have pages of these sizes and no other.
fn allow_sizes(journal: &Journal<'_>, thp: &Thp, wanted: &[Bytes]) -> Result<(), Failure> {
    for size in &thp.sizes {
        let wanted = wanted.contains(&size.page);
        if wanted != thp.allows(size, true) {
            journal.set(&size.knob, if wanted { "madvise" } else { "never" })?;
        }
    }
    Ok(())
}

/// Lets advised memory have pages of the sizes that the default policy asks for, without reclaim.
fn allow(journal: &Journal<'_>, defrag: &str) -> Result<(), Failure> {
    let thp = thp()?;
    allow_sizes(journal, &thp, &WANTED)?;
    if thp.defrag != defrag {
        journal.set(&defrag_knob(), defrag)?;
    }
    Ok(())
}

/// Lets advised memory have pages of PMD size alone, and reclaims and compacts for them.
fn direct(journal: &Journal<'_>) -> Result<(), Failure> {
    let thp = thp()?;
    allow_sizes(journal, &thp, &[thp.pmd_size])?;
    if !Thp::direct(&thp.defrag, true) {
        journal.set(&defrag_knob(), "madvise")?;
    }
    Ok(())
}

/// Takes a buffer in a child, looks at it, and gives it back.
fn take(how: How, size: Bytes) -> Result<Side, Failure> {
    in_child(&ChildLimits::within(Nanos::secs(60)), || taken(how, size))
}

/// The time of blocks, without that of looking at it.
struct Watch {
    from: Nanos,
    waited: Nanos,
    side: Side,
}

impl Watch {
    fn start() -> Result<Watch, String> {
        let waited = own::waited_for_cpu(&Linux).map_err(text)?;
        Ok(Watch {
            from: Linux.now(),
            waited,
            side: Side::default(),
        })
    }

    fn block(&mut self) {
        let wall = Linux.now().saturating_sub(self.from);
        let waited = own::waited_for_cpu(&Linux).unwrap_or(self.waited);
        let took = wall.saturating_sub(waited.saturating_sub(self.waited)).0;
        self.side.total += took;
        self.side.worst = self.side.worst.max(took);
        self.waited = waited;
        self.from = Linux.now();
    }
}

fn taken(how: How, size: Bytes) -> Result<Side, String> {
    let before = shortage::direct_reclaims(&Linux).map_err(text)?;
    let after = || shortage::direct_reclaims(&Linux).map_or(0, |now| now.saturating_sub(before));
    let mut watch = Watch::start()?;
    match how {
        How::Chunked { hugetlb } => {
            let length = usize::try_from(size.0).map_err(text)?;
            let request = Request {
                hugetlb,
                ..Request::new(length)
            };
            let buffer = Buffer::with(&request, &Knobs::read(), &mut |_| watch.block());
            let buffer = buffer.map_err(text)?;
            watch.side.direct = after();
            let physical = buffer.physical().map_err(text)?;
            let count = |&sizes: &PageSizes| match physical.entries(sizes) {
                Ok(Some(Entries::Exactly(count))) => Some(count),
                _ => None,
            };
            watch.side.entries = IOMMUS.iter().map(count).collect();
            watch.side.got = buffer.got().to_string();
        }
        How::Touch(advice) => {
            let mapping = map(size, Bytes(BLOCK)).map_err(text)?;
            Linux
                .advise(&mapping, Bytes(0), size, advice)
                .map_err(text)?;
            for at in (0..size.0).step_by(BLOCK as usize) {
                let length = Bytes(BLOCK.min(size.0 - at));
                Linux.touch(&mapping, Bytes(at), length).map_err(text)?;
                watch.block();
            }
            watch.side.direct = after();
            let layout = pagemap::layout(&Linux, mapping.range()).map_err(text)?;
            watch.side.entries = layout.runs.and_then(|runs| {
                let runs = runs.iter().map(|range| Run {
                    start: range.start,
                    length: range.length().0,
                });
                let runs: Vec<Run> = runs.collect();
                let iova = iommu::iova_alignment(size.0)?;
                let count = |&sizes: &PageSizes| {
                    Some(iommu::entries(&runs, sizes, iova).ok()?.values().sum())
                };
                IOMMUS.iter().map(count).collect()
            });
            Linux.unmap(mapping).map_err(text)?;
        }
    }
    Ok(watch.side)
}
