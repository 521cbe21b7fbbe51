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
//! [`FRAGMENTED`]), each child takes its buffers once before it measures. Where they are not,
//! it does not: that would pay for the compaction that is to be measured, and such memory has
//! been used before.
//!
//! What it leaves out: drivers allocate in the kernel and unmovable; we take movable memory
//! through page faults. Time that a task was ready to run and had no CPU is not part of a
//! block.

mod judge;
mod knobs;
mod series;
mod strategy;
mod take;

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_events::machine::{Counter, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::buddyinfo::fragmentation;
use stopgap_kernel::files::read_text;
use stopgap_kernel::hugetlb;
use stopgap_kernel::memory::Advice;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::thp::Thp;
use stopgap_stats::record::{Answer, Parameter};

use crate::contract::{Context, Measured, Plan, Probe, ProbeError};
use series::{Cell, Cells, Manner};
use take::{How, Taken, Task};

pub use judge::FRAGMENTED;
pub use series::{STALL_FLOOR, STALL_TIMES};
pub use strategy::{Strategy, parse_size, short_size};

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
        }
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
        let wrong = |what: String| Err(ProbeError::Parameter(what));
        if self.sizes.is_empty() || self.strategies.is_empty() {
            return wrong("chunks needs at least one buffer size and one strategy".to_owned());
        }
        if self.runs == 0 || self.buffers == 0 {
            return wrong("chunks needs at least one run and one buffer".to_owned());
        }
        for &size in &self.sizes {
            if size.0 == 0 || !size.0.is_multiple_of(page.0) {
                let size = short_size(size);
                return wrong(format!("a buffer of {size} is not whole pages of {page}"));
            }
        }
        if let Some(least) = self.sizes.iter().min()
            && *least > context.budget
        {
            let (least, budget) = (short_size(*least), context.budget);
            return wrong(format!(
                "a buffer of {least} is larger than the memory budget of {budget}: \
                 ask for smaller buffers or allow more memory"
            ));
        }
        Ok(())
    }

    fn machine(&self, context: &Context<'_>) -> Result<Machine, ProbeError> {
        let thp = Thp::read(context.system)?;
        let page = context.system.page_size();
        // A table of the page's size with 8-byte entries: so on every 64-bit machine whose
        // page tables are full.
        let pmd = thp.as_ref().map_or(Bytes(page.0 * (page.0 / 8)), |thp| thp.pmd_size);
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

/// What the probe works with here.
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
        let pools = hugetlb::pools(context.system).map_err(|error| error.to_string())?;
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
                    let text = touches.entry(knob).or_insert_with(String::new);
                    let set = format!("'{word}'");
                    if text.is_empty() {
                        *text = format!("set to {set} and put back");
                    } else if !text.contains(&set) {
                        *text = text.replacen("set to ", &format!("set to {set}, to "), 1);
                    }
                }
            }
        }
        let list = |words: Vec<String>| words.join(", ");
        let strategies = list(machine.strategies.iter().map(ToString::to_string).collect());
        let sizes = list(self.sizes.iter().map(|&size| short_size(size)).collect());
        let mut missing = Vec::new();
        if context.privilege != Privilege::Root {
            missing.push(Missing::new(
                "physical layout and IOMMU entries",
                "needs root (CAP_SYS_ADMIN)",
            ));
        }
        Ok(Plan {
            what: format!(
                "takes and releases buffers of {sizes} by {strategies}; {} runs",
                self.runs
            ),
            touches: touches
                .into_iter()
                .map(|(knob, text)| format!("{}: {text}", knob.display()))
                .collect(),
            memory: self.held(context.budget),
            time: context.time,
            missing,
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.check_parameters(context)?;
        let machine = self.machine(context)?;
        let mut session = Session {
            probe: self,
            context,
            facts: facts(context, &machine),
            machine,
            cells: Cells::default(),
            measured: Measured::default(),
        };
        session.run();
        Ok(session.finish())
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        let list = |words: Vec<String>| Parameter::from(words.join(","));
        let sizes = self.sizes.iter().map(|&size| short_size(size)).collect();
        let strategies = self.strategies.iter().map(ToString::to_string).collect();
        let parameters = BTreeMap::from([
            ("size".to_owned(), list(sizes)),
            ("strategy".to_owned(), list(strategies)),
            ("runs".to_owned(), self.runs.into()),
            ("buffers".to_owned(), self.buffers.into()),
            ("knobs".to_owned(), if self.knobs { "yes" } else { "no" }.into()),
        ]);
        judge::judge(measured, parameters, seed, privilege)
    }
}

/// What the judgement needs of the machine. What cannot be read is not among the facts.
#[allow(clippy::cast_precision_loss)] // sizes of memory
fn facts(context: &Context<'_>, machine: &Machine) -> BTreeMap<String, f64> {
    let system = context.system;
    let mut facts = BTreeMap::from([
        ("page_bytes".to_owned(), machine.page.0 as f64),
        ("pmd_bytes".to_owned(), machine.pmd.0 as f64),
    ]);
    for order in fragmentation(system).unwrap_or_default() {
        facts.insert(judge::index_fact(order.order), order.index);
    }
    if let Ok(free) = meminfo(system, "MemFree") {
        facts.insert("free_bytes".to_owned(), free.0 as f64);
    }
    let uptime = read_text(system, Path::new("/proc/uptime")).ok();
    let seconds = uptime.and_then(|text| text.split_whitespace().next()?.parse().ok());
    if let Some(seconds) = seconds {
        facts.insert("uptime_s".to_owned(), seconds);
    }
    facts
}

/// A probe at work.
struct Session<'a> {
    probe: &'a Chunks,
    context: &'a Context<'a>,
    machine: Machine,
    facts: BTreeMap<String, f64>,
    cells: Cells,
    measured: Measured,
}

impl Session<'_> {
    fn run(&mut self) {
        let context = self.context;
        let start = context.system.now();
        self.warm();
        let mut random = Random::new(context.seed);
        let mut order = self.machine.strategies.clone();
        let mut longest = Nanos(0);
        let planned = f64::from(self.probe.runs) * order.len() as f64;
        for run in 0..self.probe.runs {
            let begun = context.system.now();
            if run > 0 && begun.saturating_sub(start) + longest > context.time {
                self.measured.missing.push(Missing::new(
                    format!("runs {} to {}", run + 1, self.probe.runs),
                    format!("the time of {} was over", context.time),
                ));
                return;
            }
            random.shuffle(&mut order);
            for (number, &strategy) in order.iter().enumerate() {
                if (context.interrupted)() {
                    self.measured.interrupted = true;
                    return;
                }
                let done = f64::from(run) * order.len() as f64 + number as f64;
                (context.progress)(done / planned, &strategy.words());
                let mut sizes = self.probe.sizes.clone();
                random.shuffle(&mut sizes);
                self.strategy(run, strategy, &sizes);
            }
            longest = longest.max(context.system.now().saturating_sub(begun));
        }
    }

    /// Uses as much memory once as will be held.
    fn warm(&mut self) {
        let held = self.probe.held(self.context.budget);
        let advice = self.machine.thp.as_ref().map(|_| Advice::NoHugePage);
        let task = Task {
            how: How::Fault(advice),
            size: held,
            buffers: 1,
            block: self.machine.pmd.min(held),
            warm: false,
            deadline: self.context.system.now() + Nanos(self.context.time.0 / 4),
        };
        // What goes wrong here goes wrong again where it is measured, and is said there.
        let _ = self.child(&task);
    }

    /// Whether PMD-size blocks are scarce, as far as it is known.
    fn fragmented(&self) -> bool {
        let order = self.machine.pmd.0.ilog2() - self.machine.page.0.ilog2();
        let index = self.facts.get(&judge::index_fact(order));
        index.is_some_and(|&index| index >= FRAGMENTED)
    }

    fn strategy(&mut self, run: u32, strategy: Strategy, sizes: &[Bytes]) {
        // Knobs stay as they are set until the last size is done.
        let scope = self.context.journal.scope();
        let done = match strategy {
            Strategy::Hugetlb => self.hugetlb(run, sizes),
            _ => self.faulting(run, strategy, sizes),
        };
        if let Err(why) = done {
            for &size in sizes {
                self.fail(Cell { size, strategy }, &why);
            }
        }
        for error in scope.undo() {
            let why = error.to_string();
            self.measured.missing.push(Missing::new("putting a knob back", why));
        }
    }

    fn faulting(&mut self, run: u32, strategy: Strategy, sizes: &[Bytes]) -> Result<(), String> {
        let setup = self.prepare(strategy)?;
        for &size in sizes {
            let how = match strategy {
                Strategy::Collapse => How::Collapse(setup.advice),
                _ => How::Fault(setup.advice),
            };
            let manner = Manner {
                chunk: setup.chunk,
                block: self.machine.pmd.min(size),
                buffers: self.probe.buffers_of(size, self.context.budget),
                direct: setup.direct,
                defrag: setup.defrag.clone(),
                set: !setup.changes.is_empty(),
            };
            self.cell(run, Cell { size, strategy }, how, &manner);
        }
        Ok(())
    }

    /// Sets the knobs; where that is refused although we are root (a container), they are used
    /// as they stand.
    fn prepare(&self, strategy: Strategy) -> Result<knobs::Setup, String> {
        let Machine {
            thp, page, may_set, ..
        } = &self.machine;
        let setup = knobs::setup(strategy, thp.as_ref(), *page, *may_set)?;
        let journal = self.context.journal;
        let half = journal.scope();
        let mut set = setup.changes.iter().map(|(knob, word)| journal.set(knob, word));
        let Some(error) = set.find_map(Result::err) else {
            std::mem::forget(half); // all set: the caller's scope puts them back
            return Ok(setup);
        };
        drop(half);
        knobs::setup(strategy, thp.as_ref(), *page, false).map_err(|why| format!("{why}: {error}"))
    }

    fn hugetlb(&mut self, run: u32, sizes: &[Bytes]) -> Result<(), String> {
        let before = self.machine.pool(self.context)?;
        let pool = self.fill_pool(before)?;
        for &size in sizes {
            let strategy = Strategy::Hugetlb;
            let cell = Cell { size, strategy };
            let pages = size.0.div_ceil(pool.page.0);
            let buffers = self.probe.buffers_of(size, self.context.budget).min(pool.free / pages);
            if buffers == 0 && pool.page <= size {
                let free = pool.free;
                self.fail(cell, &format!("a buffer needs {pages} huge pages, the pool has {free}"));
                continue;
            }
            let manner = Manner {
                chunk: pool.page,
                block: self.machine.pmd.max(pool.page).min(size),
                buffers,
                direct: false,
                defrag: None,
                set: pool.total != before.total,
            };
            self.cell(run, cell, How::Hugetlb(pool.page), &manner);
        }
        Ok(())
    }

    /// The pool, with what the buffers need in it where it may be raised.
    fn fill_pool(&self, pool: hugetlb::Pool) -> Result<hugetlb::Pool, String> {
        let held = self.probe.held(self.context.budget);
        let need = held.0.div_ceil(pool.page.0);
        let none = "no huge pages in the pool";
        if pool.free >= need {
            return Ok(pool);
        }
        if self.machine.may_set {
            let system = self.context.system;
            let available = meminfo(system, "MemAvailable").map_err(|error| error.to_string())?;
            if available.0 < 2 * held.0 {
                return Err(format!("{none}, and too little memory to raise it: {available}"));
            }
            let total = (pool.total + need - pool.free).to_string();
            let set = self.context.journal.set(&hugetlb::knob(pool.page), &total);
            set.map_err(|error| format!("{none}: {error}"))?;
        }
        let pool = self.machine.pool(self.context)?;
        match pool.free {
            0 => Err(none.to_owned()),
            _ => Ok(pool),
        }
    }

    fn cell(&mut self, run: u32, cell: Cell, how: How, manner: &Manner) {
        if manner.chunk > cell.size {
            let chunk = short_size(manner.chunk);
            return self.fail(cell, &format!("a page of {chunk} is larger than the buffer"));
        }
        if manner.buffers == 0 {
            let budget = self.context.budget;
            return self.fail(cell, &format!("larger than the memory budget of {budget}"));
        }
        let system = self.context.system;
        let task = Task {
            how,
            size: cell.size,
            buffers: manner.buffers,
            block: manner.block,
            warm: !self.fragmented(),
            // A stall may be long: what it delayed is given up, what was seen of it is kept.
            deadline: system.now() + Nanos::secs(1).max(Nanos(self.context.time.0 / 4)),
        };
        let taken = match self.child(&task) {
            Ok(taken) => taken,
            Err(why) => return self.fail(cell, &why),
        };
        if let Some(why) = &taken.error {
            self.fail(cell, why);
        }
        let entry = self.cells.runs.entry(cell);
        let (_, runs) = entry.or_insert_with(|| (manner.clone(), Vec::new()));
        runs.push((run, taken));
    }

    fn child(&mut self, task: &Task) -> Result<Taken, String> {
        let system = self.context.system;
        let limits = ChildLimits {
            time: task.deadline.saturating_sub(system.now()) + Nanos::secs(10),
            cgroup: None,
        };
        let mut body = || serde_json::to_vec(&take::carry_out(system, task)).unwrap_or_default();
        let outcome = system.run_child(&limits, &mut body).map_err(|e| e.to_string())?;
        let peak = &mut self.measured.peak_resident;
        *peak = outcome.peak_resident.max(*peak);
        serde_json::from_slice(&outcome.output)
            .map_err(|error| format!("what the load child sent cannot be read: {error}"))
    }

    fn fail(&mut self, cell: Cell, why: &str) {
        let errors = &mut self.cells.errors;
        errors.entry(cell).or_insert_with(|| why.to_owned());
    }

    fn finish(self) -> Measured {
        let mut measured = self.measured;
        measured.series = series::series(&self.cells);
        measured.facts = self.facts;
        let children = || self.cells.runs.values().flat_map(|(_, runs)| runs);
        let first = |of: fn(&Taken) -> &Option<String>| {
            children().find_map(|(_, taken)| of(taken).clone())
        };
        if let Some(why) = first(|taken| &taken.hidden) {
            let what = "physical layout and IOMMU entries";
            measured.missing.push(Missing::new(what, why));
        }
        if let Some(why) = first(|taken| &taken.unseen_wait) {
            let what = "time without a CPU (it counts as part of a block)";
            measured.missing.push(Missing::new(what, why));
        }
        // Failed in some runs only: its series holds the others.
        for (cell, why) in &self.cells.errors {
            let runs = self.cells.runs.get(cell);
            if runs.is_some_and(|(_, runs)| runs.iter().any(|(_, t)| !t.takes.is_empty())) {
                let what = format!("{} by {} in some runs", short_size(cell.size), cell.strategy);
                measured.missing.push(Missing::new(what, why.as_str()));
            }
        }
        let sum = |of: fn(&Taken) -> u64| children().map(|(_, taken)| of(taken)).sum();
        measured.counters.push(Counter {
            name: "ready to run without a CPU while taking, us".to_owned(),
            value: sum(|taken| taken.waited_ns / 1_000),
        });
        measured.losses.push(Counter {
            name: "buffers cut short by the time limit".to_owned(),
            value: sum(|taken| taken.unfinished),
        });
        measured
    }
}

#[cfg(test)]
mod tests;
