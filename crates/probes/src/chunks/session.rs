//! The probe at work: runs, knobs, children.

use std::collections::BTreeMap;

use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::environment::uptime;
use stopgap_kernel::hugetlb;
use stopgap_kernel::memory::Advice;
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::thp::Thp;

use super::judge::{self, FRAGMENTED};
use super::knobs;
use super::series::{self, Cell, Cells, Manner};
use super::strategy::Strategy;
use super::take::{self, How, Taken, Task};
use super::{Chunks, Machine};
use crate::contract::{Context, Measured};
use crate::runner;

/// What was made of the first fragmented state: one frame in so many kept, and bytes.
pub(super) const FRAGMENT_COUNTERS: [&str; 4] = [
    judge::KEPT_ONE_IN,
    "split_bytes",
    "kept_bytes",
    "pinned_bytes",
];

/// What the judgement needs of the machine. What cannot be read is not among the facts.
pub(super) fn facts(context: &Context<'_>, machine: &Machine) -> BTreeMap<String, f64> {
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
    if let Ok(seconds) = uptime(system) {
        facts.insert("uptime_s".to_owned(), seconds as f64);
    }
    facts
}

/// A probe at work.
pub(super) struct Session<'a> {
    pub(super) probe: &'a Chunks,
    pub(super) context: &'a Context<'a>,
    pub(super) machine: Machine,
    pub(super) facts: BTreeMap<String, f64>,
    pub(super) cells: Cells,
    pub(super) measured: Measured,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        probe: &'a Chunks,
        context: &'a Context<'a>,
        machine: Machine,
    ) -> Session<'a> {
        Session {
            probe,
            context,
            facts: facts(context, &machine),
            machine,
            cells: Cells::default(),
            measured: Measured::default(),
        }
    }

    pub(super) fn run(&mut self) {
        let context = self.context;
        let start = context.system.now();
        self.warm();
        let mut random = Random::new(context.seed);
        let mut order = self.machine.strategies.clone();
        let mut last = Nanos(0);
        let planned = f64::from(self.probe.runs) * order.len() as f64;
        for run in 0..self.probe.runs {
            let begun = context.system.now();
            // The first run took everything twice, to warm it.
            let next = if run == 1 { Nanos(last.0 / 2) } else { last };
            if run > 0 && begun.saturating_sub(start) + next > context.time {
                let left = format!("{} of {} runs", self.probe.runs - run, self.probe.runs);
                return self.measured.missing.push(context.left_out(left));
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
            last = context.system.now().saturating_sub(begun);
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
        // A failure here comes again where it is measured, and is reported there.
        let _ = self.child(&task);
    }

    /// Whether PMD-size blocks are scarce, as far as it is known.
    fn fragmented(&self) -> bool {
        let index = self.facts.get(&judge::index_fact(self.pmd_order()));
        index.is_some_and(|&index| index >= FRAGMENTED)
    }

    pub(super) fn strategy(&mut self, run: u32, strategy: Strategy, sizes: &[Bytes]) {
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
        self.measured.note_left(scope.undo());
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
    /// as they stand. Not where another run has them changed: it puts them back meanwhile.
    fn prepare(&self, strategy: Strategy) -> Result<knobs::Setup, String> {
        let Machine { page, may_set, .. } = &self.machine;
        let journal = self.context.journal;
        if *may_set && !matches!(strategy, Strategy::Base | Strategy::Collapse) {
            journal.alone()?;
        }
        // Not as they were at the start: another run may have ended since.
        let thp = Thp::read(self.context.system)?;
        let setup = knobs::setup(strategy, thp.as_ref(), *page, *may_set)?;
        let half = journal.scope();
        let mut set = setup
            .changes
            .iter()
            .map(|(knob, word)| journal.set(knob, word));
        let Some(error) = set.find_map(Result::err) else {
            std::mem::forget(half); // all set: the caller's scope puts them back
            return Ok(setup);
        };
        drop(half);
        if error.is_busy() {
            return Err(error.to_string());
        }
        knobs::setup(strategy, thp.as_ref(), *page, false).map_err(|why| format!("{why}: {error}"))
    }

    fn hugetlb(&mut self, run: u32, sizes: &[Bytes]) -> Result<(), String> {
        let before = self.machine.pool(self.context)?;
        let pool = self.fill_pool(before)?;
        for &size in sizes {
            let strategy = Strategy::Hugetlb;
            let cell = Cell { size, strategy };
            let pages = size.0.div_ceil(pool.page.0);
            let buffers = self
                .probe
                .buffers_of(size, self.context.budget)
                .min(pool.free / pages);
            if buffers == 0 && pool.page <= size {
                let free = pool.free;
                self.fail(
                    cell,
                    &format!("a buffer needs {pages} huge pages, the pool has {free}"),
                );
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
            let available = meminfo(system, "MemAvailable")?;
            if available.0 < 2 * held.0 {
                return Err(format!(
                    "{none}, and too little memory to raise it: {available}"
                ));
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
            let chunk = manner.chunk.short();
            return self.fail(
                cell,
                &format!("a page of {chunk} is larger than the buffer"),
            );
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
            warm: run == 0 && self.probe.fragment.is_none() && !self.fragmented(),
            // A stall may be long: what it delayed is given up, what was seen of it is kept.
            deadline: system.now() + Nanos::secs(1).max(Nanos(self.context.time.0 / 4)),
        };
        let taken = match self.child(&task) {
            Ok(taken) => taken,
            Err(why) => return self.fail(cell, &why),
        };
        if let Some(why) = &taken.error {
            self.fail(cell, why);
        } else if taken.takes.is_empty() {
            let why = "time was over before one buffer was taken: give more time or fewer buffers";
            self.fail(cell, why);
        }
        let entry = self.cells.runs.entry(cell);
        let (_, runs) = entry.or_insert_with(|| (manner.clone(), Vec::new()));
        runs.push((run, taken));
    }

    fn child(&mut self, task: &Task) -> Result<Taken, String> {
        let system = self.context.system;
        let limits =
            ChildLimits::within(task.deadline.saturating_sub(system.now()) + Nanos::secs(10));
        let (taken, peak) = runner::child(system, &limits, || take::carry_out(system, task))?;
        self.measured.keep_peak(peak);
        Ok(taken)
    }

    fn fail(&mut self, cell: Cell, why: &str) {
        let errors = &mut self.cells.errors;
        errors.entry(cell).or_insert_with(|| why.to_owned());
    }

    /// Returns what was measured.
    pub(super) fn finish(self) -> Measured {
        let mut measured = self.measured;
        measured.series = series::series(&self.cells);
        measured.facts = self.facts;
        let children = || self.cells.runs.values().flat_map(|(_, runs)| runs);
        type Why = fn(&Taken) -> &Option<String>;
        let unknown: [(&str, Why); 3] = [
            ("physical layout and IOMMU entries", |taken| &taken.hidden),
            (
                "direct reclaim and compaction (every long block counts as a stall)",
                |taken| &taken.uncounted,
            ),
            (
                "time without a CPU (it counts as part of a block)",
                |taken| &taken.unseen_wait,
            ),
        ];
        for (what, why) in unknown {
            if let Some(why) = children().find_map(|(_, taken)| why(taken).clone()) {
                measured.note(what, why);
            }
        }
        // Failed in some runs, or after a part: its series hold the rest, and no error.
        for (cell, why) in &self.cells.errors {
            if let Some((_, runs)) = self.cells.runs.get(cell) {
                let taken = runs.iter().any(|(_, taken)| !taken.takes.is_empty());
                let when = if taken { " in some runs" } else { "" };
                let what = format!("{} by {}{when}", cell.size.short(), cell.strategy);
                measured.note(what, why.as_str());
            }
        }
        let sum = |of: fn(&Taken) -> u64| children().map(|(_, taken)| of(taken)).sum();
        let waited = sum(|taken| taken.waited_ns / 1_000);
        measured.count("ready to run without a CPU while taking, us", waited);
        for name in FRAGMENT_COUNTERS {
            if let Some(value) = measured.facts.get(name).map(|&value| value as u64) {
                measured.count(name, value);
            }
        }
        let cut = sum(|taken| taken.unfinished);
        measured.lose("buffers cut short by the time limit", cut);
        measured
    }
}
