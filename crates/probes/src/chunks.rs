//! `chunks`: does building a big buffer stall, and can the IOMMU map it well?
//!
//! Buffers of each size are taken by each strategy ([`Strategy`]): mapped, and every page
//! touched for the first time, PMD-size block by PMD-size block. The longest block is the
//! stall that a driver's buffer allocation would meet. With root the physical pages are read
//! from pagemap and turned into IOMMU entries.
//!
//! A run takes all strategies once, in random order, each buffer size in a child of its own,
//! because what one strategy leaves behind is the next one's starting point. The knobs of a
//! strategy are set before its children start and put back after.
//!
//! **Warm memory.** In a virtual machine the first use of a page of guest memory costs the
//! host's fault, about 3 us a base page, which is not our kernel's. So as much as is used is
//! first taken once as base pages; and where huge pages are at hand (unusable index below
//! [`FRAGMENTED`]), each child of the first run takes its buffers once before it measures.
//! Where they are not, it does not: that would pay for the compaction that is to be measured,
//! and such memory has been used before. Cold memory may still turn up; so a long block counts
//! against the allocator only where the kernel counted direct reclaim or compaction meanwhile.
//!
//! **On purpose.** With [`Chunks::fragment`] each strategy of each run takes its buffers from
//! memory that was made fragmented just before ([`fragment`]): what one strategy leaves behind is
//! then nobody's starting point. Such a state is not the same twice, so sizes differ between runs
//! and the answer has only what all runs agree on.
//!
//! What it leaves out: drivers allocate in the kernel and unmovable; we take movable memory
//! through page faults. Time that a task was ready to run and had no CPU is not part of a
//! block.

pub mod fragment;
mod judge;
mod knobs;
mod series;
mod session;
mod take;
pub mod vfio;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fragment::recipe::Recipe;
use session::Session;
use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::files::read_text;
use stopgap_kernel::hugetlb;
use stopgap_kernel::thp::{Thp, follower};
use stopgap_stats::record::{Answer, parameters};

use crate::contract::{Context, Measured, Plan, Probe, ProbeError, list, refuse};

pub use {fragment::Fragment, fragment::Ratio};
pub use {judge::APART, judge::FRAGMENTED, judge::Ranking};
pub use {series::STALL_FLOOR, series::STALL_TIMES};

/// Memory that one child holds at once, where a single buffer is not larger.
const HELD: Bytes = Bytes::mib(128);

/// The probe and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Buffer sizes; whole base pages.
    pub sizes: Vec<Bytes>,
    /// Strategies.
    pub strategies: Vec<Strategy>,
    /// Runs; an interval needs three. Fewer are made where time ends.
    pub runs: u32,
    /// Buffers of each size that a child holds at once; fewer where they would be more than
    /// 128 MiB together.
    pub buffers: u32,
    /// Whether knobs may be set, where we are root; else they are used as they stand.
    pub knobs: bool,
    /// Make memory fragmented first, for each strategy of each run anew (root).
    pub fragment: Option<Fragment>,
}

impl Chunks {
    /// As `check` asks; `quick` with fewer runs.
    #[must_use]
    pub fn check(quick: bool) -> Chunks {
        Chunks {
            sizes: vec![Bytes::mib(4), Bytes::mib(64)],
            strategies: Strategy::ALL.to_vec(),
            runs: if quick { 3 } else { 5 },
            buffers: if quick { 1 } else { 8 },
            knobs: true,
            fragment: None,
        }
    }

    fn sizes_text(&self, comma: &str) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(|size| size.short()).collect();
        sizes.join(comma)
    }

    fn buffers_of(&self, size: Bytes, budget: Bytes) -> u64 {
        let room = HELD.0.min(budget.0) / size.0;
        let one = u64::from(size <= budget);
        room.max(one).min(u64::from(self.buffers))
    }

    /// Most memory that a child holds at once.
    fn held(&self, budget: Bytes) -> Bytes {
        let held = |&size: &Bytes| Bytes(size.0 * self.buffers_of(size, budget));
        self.sizes.iter().map(held).max().unwrap_or(Bytes(0))
    }

    fn check_parameters(&self, context: &Context<'_>) -> Result<(), ProbeError> {
        let page = context.system.page_size();
        if self.sizes.is_empty() || self.strategies.is_empty() {
            return refuse("chunks needs at least one buffer size and one strategy");
        }
        if self.runs == 0 || self.buffers == 0 {
            return refuse("chunks needs at least one run and one buffer");
        }
        for &size in &self.sizes {
            if size.0 == 0 || !size.0.is_multiple_of(page.0) {
                let size = size.short();
                return refuse(format!("a buffer of {size} is not whole pages of {page}"));
            }
        }
        if let Some(least) = self.sizes.iter().min()
            && *least > context.budget
        {
            let (least, budget) = (least.short(), context.budget);
            return refuse(format!(
                "a buffer of {least} is larger than the memory budget of {budget}: \
                 ask for smaller buffers or allow more memory"
            ));
        }
        Ok(())
    }

    /// Returns the state of memory to make before each strategy; `None`: as it is.
    fn recipe(
        &self,
        context: &Context<'_>,
        machine: &Machine,
    ) -> Result<Option<Recipe>, ProbeError> {
        let Some(fragment) = self.fragment else {
            return Ok(None);
        };
        if context.privilege != Privilege::Root {
            let why = "fragmenting memory needs root: page frames and knobs of huge pages";
            return Err(ProbeError::Unsupported(why.to_owned()));
        }
        if machine.thp.is_none() || !machine.may_set {
            let why = "fragmenting memory needs THP and its knobs: large blocks are taken by them";
            return Err(ProbeError::Unsupported(why.to_owned()));
        }
        let free = meminfo(context.system, "MemFree")?;
        let available = meminfo(context.system, "MemAvailable")?;
        let total = meminfo(context.system, "MemTotal")?;
        let recipe =
            Recipe::new(fragment, free, available, total).map_err(ProbeError::Unsupported)?;
        let need = recipe.peak() + self.held(context.budget);
        if need > context.budget {
            let budget = context.budget;
            let most = Bytes::gib(need.0.div_ceil(1 << 30)).short();
            let fits = recipe.fitting_ratio(budget.saturating_sub(self.held(budget)));
            let fits = fits.map_or_else(String::new, |ratio| format!(", or ask for {ratio}"));
            return refuse(format!(
                "fragmenting {} of {free} free memory holds up to {need}, the memory budget is {budget}: \
                 allow it with --memory {most}{fits}",
                fragment.keep
            ));
        }
        Ok(Some(recipe))
    }

    fn machine(&self, context: &Context<'_>) -> Result<Machine, ProbeError> {
        let thp = Thp::read(context.system)?;
        let page = context.system.page_size();
        // A table of the page's size with 8-byte entries: so on every 64-bit machine whose
        // page tables are full.
        let pmd = thp
            .as_ref()
            .map_or(Bytes(page.0 * (page.0 / 8)), |thp| thp.pmd_size);
        let mut strategies = Vec::new();
        for &strategy in &self.strategies {
            match (strategy, &thp) {
                (Strategy::EveryMthp, Some(thp)) => {
                    let small = thp.sizes.iter().filter(|size| size.page < pmd);
                    strategies.extend(small.map(|size| Strategy::Mthp(size.page)));
                }
                _ => strategies.push(strategy),
            }
        }
        strategies.sort_unstable();
        strategies.dedup();
        Ok(Machine {
            thp,
            page,
            pmd,
            strategies,
            may_set: self.knobs && context.privilege == Privilege::Root,
        })
    }
}

/// Sizes and strategies that the probe measures here.
struct Machine {
    thp: Option<Thp>,
    page: Bytes,
    pmd: Bytes,
    /// Sizes of mTHP one by one.
    strategies: Vec<Strategy>,
    may_set: bool,
}

impl Machine {
    fn pool(&self, context: &Context<'_>) -> Result<hugetlb::Pool, String> {
        let pools = hugetlb::pools(context.system)?;
        let pmd = pools.iter().find(|pool| pool.page == self.pmd);
        let pool = pmd.or(pools.first()).copied();
        pool.ok_or_else(|| "this kernel has no hugetlb".to_owned())
    }
}

impl Probe for Chunks {
    fn question(&self) -> Question {
        Question::Chunks
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        self.check_parameters(context)?;
        let machine = self.machine(context)?;
        let mut touches = BTreeMap::new();
        // The words that each knob is set to, the last first.
        let mut words: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
        for &strategy in &machine.strategies {
            if !machine.may_set {
                break;
            }
            if strategy == Strategy::Hugetlb {
                if let Ok(pool) = machine.pool(context)
                    && pool.free < self.held(context.budget).0.div_ceil(pool.page.0)
                {
                    let most = pool.total + self.held(context.budget).0.div_ceil(pool.page.0);
                    let now = pool.total;
                    let text = format!("set to {most} at most (now {now}), put back");
                    touches.insert(hugetlb::knob(pool.page), text);
                }
            } else if let Ok(setup) =
                knobs::setup(strategy, machine.thp.as_ref(), machine.page, true)
            {
                for (knob, word) in setup.changes {
                    let words = words.entry(knob).or_default();
                    if !words.contains(&word) {
                        words.insert(0, word);
                    }
                }
            }
        }
        let recipe = self.recipe(context, &machine)?;
        if let Some(thp) = machine.thp.as_ref().filter(|_| recipe.is_some()) {
            let proactive = PathBuf::from(knobs::PROACTIVE);
            if read_text(context.system, &proactive).is_ok() {
                words.insert(proactive, vec!["0"]);
            }
            for (knob, word) in knobs::any_size_that_is_free(thp) {
                words.entry(knob).or_insert_with(|| vec![word]);
            }
        }
        touches.extend(words.into_iter().map(|(knob, words)| {
            let text = format!("set to '{}' and put back", words.join("', to '"));
            (knob, text)
        }));
        if let Some(follower) = touches.keys().find_map(|knob| follower(knob)) {
            let text = "the kernel sets it when huge pages are allowed or not, put back";
            touches.insert(follower.to_owned(), text.to_owned());
        }
        let strategies = list(&machine.strategies, ", ");
        let sizes = self.sizes_text(", ");
        let mut missing = Vec::new();
        if context.privilege != Privilege::Root {
            missing.push(Missing::new(
                "physical layout and IOMMU entries",
                "needs root (CAP_SYS_ADMIN)",
            ));
        }
        let mut what = format!(
            "takes and releases buffers of {sizes} by {strategies}; {} runs",
            self.runs
        );
        if let Some(recipe) = &recipe {
            what.push_str(&format!(
                "; before each strategy of each run takes up to {} of free memory in folios as large as there are, \
                 splits them and keeps {} of their pages{}",
                recipe.through,
                recipe.fragment.keep,
                if recipe.fragment.pinned {
                    ", pinned"
                } else {
                    ""
                },
            ));
        }
        let time = match &recipe {
            None => context.time,
            Some(recipe) => {
                let states = u64::from(self.runs) * machine.strategies.len() as u64;
                let fitting = recipe.fitting(states, context.time);
                let each = Nanos::secs(recipe.time().0.div_ceil(1_000_000_000));
                what.push_str(&format!("; {states} times, about {each} each"));
                if fitting < states {
                    what.push_str(&format!(": {fitting} of them in {}", context.time));
                }
                Nanos(each.0.saturating_mul(fitting))
            }
        };
        Ok(Plan {
            what,
            touches: touches
                .into_iter()
                .map(|(knob, text)| format!("{}: {text}", knob.display()))
                .collect(),
            memory: self.held(context.budget) + recipe.map_or(Bytes(0), |recipe| recipe.peak()),
            time,
            missing,
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.check_parameters(context)?;
        let machine = self.machine(context)?;
        let recipe = self.recipe(context, &machine)?;
        let mut session = Session::new(self, context, machine);
        match recipe {
            Some(recipe) => session.run_fragmented(recipe),
            None => session.run(),
        }
        Ok(session.finish())
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" };
        let mut parameters = parameters([
            ("size", self.sizes_text(",").into()),
            ("strategy", list(&self.strategies, ",").into()),
            ("runs", self.runs.into()),
            ("buffers", self.buffers.into()),
            ("knobs", yes_no(self.knobs).into()),
        ]);
        if let Some(fragment) = self.fragment {
            let pinned = yes_no(fragment.pinned);
            parameters.insert("fragment".to_owned(), fragment.keep.to_string().into());
            parameters.insert("pinned".to_owned(), pinned.into());
        }
        judge::judge(measured, parameters, seed, privilege)
    }
}

// By what pages a buffer is asked for.

/// How a buffer gets its physical memory. Its name (`Display`, `FromStr`) is the word for the
/// command line and the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// `base`: base pages alone (`MADV_NOHUGEPAGE`).
    Base,
    /// `mthp`: each size of [`Strategy::Mthp`] below the PMD's that the kernel has.
    EveryMthp,
    /// `mthp-64K`: transparent huge pages of this one size; faults reclaim directly, where we
    /// may set that.
    Mthp(Bytes),
    /// `mthp-to-64K`: transparent huge pages of every size up to this one, the largest that is to
    /// be had; faults reclaim directly for each size, where we may set that.
    MthpUpTo(Bytes),
    /// `thp-direct`: PMD-size transparent huge pages; a fault that finds none reclaims and
    /// compacts.
    ThpDirect,
    /// `thp-noreclaim`: PMD-size transparent huge pages; a fault that finds none takes base
    /// pages.
    ThpNoReclaim,
    /// `collapse`: filled with base pages, then `MADV_COLLAPSE`.
    Collapse,
    /// `hugetlb`: pages of PMD size from the pool that is set aside.
    Hugetlb,
}

impl Strategy {
    /// All that a probe takes unasked; sizes of mTHP stand under their common name.
    pub const ALL: [Strategy; 6] = [
        Strategy::Base,
        Strategy::EveryMthp,
        Strategy::ThpDirect,
        Strategy::ThpNoReclaim,
        Strategy::Collapse,
        Strategy::Hugetlb,
    ];

    /// What is taken unasked on memory that was fragmented on purpose, each from a fresh state.
    pub const FRAGMENTED: [Strategy; 5] = [
        Strategy::Base,
        Strategy::ThpNoReclaim,
        Strategy::Mthp(Bytes::kib(64)),
        Strategy::MthpUpTo(Bytes::kib(64)),
        Strategy::ThpDirect,
    ];

    /// In words, for a sentence.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Strategy::Base => "base pages".to_owned(),
            Strategy::EveryMthp => "mTHP".to_owned(),
            Strategy::Mthp(size) => format!("{size} mTHP"),
            Strategy::MthpUpTo(size) => format!("mTHP of every size up to {size}"),
            Strategy::ThpDirect => "THP with direct reclaim".to_owned(),
            Strategy::ThpNoReclaim => "THP without direct reclaim".to_owned(),
            Strategy::Collapse => "MADV_COLLAPSE".to_owned(),
            Strategy::Hugetlb => "hugetlb".to_owned(),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Base => f.pad("base"),
            Strategy::EveryMthp => f.pad("mthp"),
            Strategy::Mthp(size) => f.pad(&format!("mthp-{}", size.short())),
            Strategy::MthpUpTo(size) => f.pad(&format!("mthp-to-{}", size.short())),
            Strategy::ThpDirect => f.pad("thp-direct"),
            Strategy::ThpNoReclaim => f.pad("thp-noreclaim"),
            Strategy::Collapse => f.pad("collapse"),
            Strategy::Hugetlb => f.pad("hugetlb"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(word: &str) -> Result<Strategy, String> {
        if let Some(size) = word.strip_prefix("mthp-") {
            let (size, up_to) = match size.strip_prefix("to-") {
                Some(size) => (size, true),
                None => (size, false),
            };
            let size: Bytes = size.parse()?;
            return match size.0.is_power_of_two() {
                true if up_to => Ok(Strategy::MthpUpTo(size)),
                true => Ok(Strategy::Mthp(size)),
                false => Err(format!("'{word}': the size of a page is a power of two")),
            };
        }
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.to_string() == word)
            .ok_or_else(|| {
                let words = Strategy::ALL
                    .map(|strategy| strategy.to_string())
                    .join(", ");
                format!("unknown strategy '{word}'; there are {words}, one size as mthp-64K, sizes as mthp-to-64K")
            })
    }
}

#[cfg(test)]
mod tests;
