//! The probe at work: runs, knobs, children.

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::environment::uptime;
use stopgap_kernel::files::read_text;
use stopgap_kernel::memory::Advice;
use stopgap_kernel::shortage::fragmentation;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::thp::Thp;
use stopgap_kernel::{hugetlb, snapshot};
use stopgap_stats::record::{Parameter, parameters};

use super::Strategy;
use super::fragment::recipe::Recipe;
use super::fragment::state::State;
use super::fragment::{Maker, fresh};
use super::judge::{self, FRAGMENTED};
use super::series::{Cell, Runs};
use super::take::{self, How, Taken, Task};
use super::{Chunks, Machine, knobs};
use crate::contract::{Context, Measured, Parameters};
use crate::runner;

/// What was made of the first fragmented state: one frame in so many kept, and bytes.
pub(super) const FRAGMENT_COUNTERS: [&str; 4] = [
    judge::KEPT_ONE_IN,
    "split_bytes",
    "kept_bytes",
    "pinned_bytes",
];

/// Facts of buffers that a child may not learn.
const UNKNOWN: [&str; 3] = [
    "physical layout and IOMMU entries",
    "direct reclaim and compaction (every long block counts as a stall)",
    "time without a CPU (it counts as part of a block)",
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
    cells: BTreeMap<Cell, Runs>,
    /// Why [`UNKNOWN`] are not known.
    unknown: [Option<String>; 3],
    waited_us: u64,
    unfinished: u64,
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
            cells: BTreeMap::new(),
            unknown: Default::default(),
            waited_us: 0,
            unfinished: 0,
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
            chunk: self.machine.page,
            block: self.machine.pmd.min(held),
            knobs: Parameters::new(),
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
                self.fail((size, strategy), &why);
            }
        }
        self.measured.note_left(scope.undo());
    }

    fn faulting(&mut self, run: u32, strategy: Strategy, sizes: &[Bytes]) -> Result<(), String> {
        let setup = self.prepare(strategy)?;
        let how = match strategy {
            Strategy::Collapse => How::Collapse(setup.advice),
            _ => How::Fault(setup.advice),
        };
        let mut knobs = knobs_as_set(setup.direct, !setup.changes.is_empty());
        if let Some(defrag) = setup.defrag {
            knobs.insert("defrag".to_owned(), defrag.into());
        }
        for &size in sizes {
            let task = Task {
                how,
                size,
                buffers: self.probe.buffers_of(size, self.context.budget),
                chunk: setup.chunk,
                block: self.machine.pmd.min(size),
                knobs: knobs.clone(),
                warm: false,
                deadline: Nanos(0),
            };
            self.cell(run, strategy, task);
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
            let pages = size.0.div_ceil(pool.page.0);
            let most = self.probe.buffers_of(size, self.context.budget);
            let buffers = most.min(pool.free / pages);
            if buffers == 0 && pool.page <= size {
                let free = pool.free;
                let why = format!("a buffer needs {pages} huge pages, the pool has {free}");
                self.fail((size, Strategy::Hugetlb), &why);
                continue;
            }
            let task = Task {
                how: How::Hugetlb(pool.page),
                size,
                buffers,
                chunk: pool.page,
                block: self.machine.pmd.max(pool.page).min(size),
                knobs: knobs_as_set(false, pool.total != before.total),
                warm: false,
                deadline: Nanos(0),
            };
            self.cell(run, Strategy::Hugetlb, task);
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

    /// Takes the buffers of a task, which begins and ends now.
    fn cell(&mut self, run: u32, strategy: Strategy, mut task: Task) {
        let cell = (task.size, strategy);
        if task.chunk > task.size {
            let chunk = task.chunk.short();
            return self.fail(
                cell,
                &format!("a page of {chunk} is larger than the buffer"),
            );
        }
        if task.buffers == 0 {
            let budget = self.context.budget;
            return self.fail(cell, &format!("larger than the memory budget of {budget}"));
        }
        task.warm = run == 0 && self.probe.fragment.is_none() && !self.fragmented();
        // A stall may be long: what it delayed is given up, what was seen of it is kept.
        let longest = Nanos::secs(1).max(Nanos(self.context.time.0 / 4));
        task.deadline = self.context.system.now() + longest;
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
        let runs = self.cells.entry(cell).or_default();
        runs.keep(run, &task, strategy, &taken);
        let whys = [taken.hidden, taken.uncounted, taken.unseen_wait];
        for (known, why) in self.unknown.iter_mut().zip(whys) {
            *known = known.take().or(why);
        }
        self.waited_us += taken.waited_ns / 1_000;
        self.unfinished += taken.unfinished;
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
        let error = &mut self.cells.entry(cell).or_default().error;
        error.get_or_insert_with(|| why.to_owned());
    }

    /// Returns what was measured, smallest buffer first.
    pub(super) fn finish(self) -> Measured {
        let mut measured = self.measured;
        measured.facts = self.facts;
        for (what, why) in UNKNOWN.into_iter().zip(self.unknown) {
            if let Some(why) = why {
                measured.note(what, why);
            }
        }
        for ((size, strategy), runs) in self.cells {
            // Failed in some runs, or after a part: its series hold the rest, and no error.
            if let ((true, whole), Some(why)) = (runs.taken(), &runs.error) {
                let when = if whole { " in some runs" } else { "" };
                let what = format!("{} by {strategy}{when}", size.short());
                measured.note(what, why.as_str());
            }
            measured.series.extend(runs.series((size, strategy)));
        }
        let waited = "ready to run without a CPU while taking, us";
        measured.count(waited, self.waited_us);
        for name in FRAGMENT_COUNTERS {
            if let Some(value) = measured.facts.get(name).map(|&value| value as u64) {
                measured.count(name, value);
            }
        }
        measured.lose("buffers cut short by the time limit", self.unfinished);
        measured
    }
}

fn knobs_as_set(direct: bool, set: bool) -> Parameters {
    let yes_no = |yes: bool| Parameter::from(if yes { "yes" } else { "no" });
    parameters([
        ("direct-reclaim", yes_no(direct)),
        ("knobs-set", yes_no(set)),
    ])
}

// The probe at work on memory that is made fragmented for each strategy anew.

impl Session<'_> {
    /// All strategies in random order, each from a fresh state, run by run, as long as the time
    /// lasts.
    pub(super) fn run_fragmented(&mut self, recipe: Recipe) {
        let context = self.context;
        let scope = context.journal.scope();
        let proactive = Path::new(knobs::PROACTIVE);
        if read_text(context.system, proactive).is_ok()
            && let Err(error) = context.journal.set(proactive, "0")
        {
            return self.measured.note("memory that is fragmented", error);
        }
        self.run_states(&recipe);
        self.measured.note_left(scope.undo());
    }

    fn run_states(&mut self, recipe: &Recipe) {
        let context = self.context;
        let start = context.system.now();
        let mut random = Random::new(context.seed);
        let mut order = self.machine.strategies.clone();
        let planned = u64::from(self.probe.runs) * order.len() as u64;
        let (mut done, mut longest) = (0, Nanos(0));
        for run in 0..self.probe.runs {
            random.shuffle(&mut order);
            for &strategy in &order {
                let begun = context.system.now();
                if done > 0 && begun.saturating_sub(start) + longest > context.time {
                    let left = format!("{} of {planned} strategies of all runs", planned - done);
                    return self.measured.missing.push(context.left_out(left));
                }
                (context.progress)(done as f64 / planned as f64, &strategy.words());
                let state = match self.state(recipe) {
                    Ok(state) => state,
                    Err(_) if (context.interrupted)() => {
                        self.measured.interrupted = true;
                        return;
                    }
                    Err(why) if done == 0 => {
                        let what = "memory that is fragmented";
                        return self.measured.note(what, why);
                    }
                    Err(why) => {
                        let what = format!("{strategy} in run {}", run + 1);
                        self.measured.note(what, why);
                        done += 1;
                        continue;
                    }
                };
                self.note(recipe, &state, done == 0);
                if done == 0 {
                    self.snapshot("before");
                }
                let mut sizes = self.probe.sizes.clone();
                random.shuffle(&mut sizes);
                self.strategy(run, strategy, &sizes);
                if done == 0 {
                    self.snapshot("after");
                }
                let peak = state.release().unwrap_or(0);
                self.measured.keep_peak(peak);
                done += 1;
                longest = longest.max(context.system.now().saturating_sub(begun));
                if (context.interrupted)() {
                    self.measured.interrupted = true;
                    return;
                }
            }
        }
    }

    /// A fresh state that is fragmented enough.
    fn state(&mut self, recipe: &Recipe) -> Result<State, String> {
        let context = self.context;
        let maker = Maker {
            system: context.system,
            journal: context.journal,
            time: context.time,
            interrupted: context.interrupted,
        };
        let mut left = Vec::new();
        let state = fresh(&maker, recipe, &mut left);
        self.measured.note_left(left);
        state
    }

    /// Looks at all of physical memory, `when` the first strategy takes its buffers: about ten
    /// seconds for 24 GiB.
    fn snapshot(&mut self, when: &str) {
        let context = self.context;
        (context.progress)(0.0, "a snapshot of physical memory");
        let go_on = &mut |_: f64| !(context.interrupted)();
        match snapshot::take(context.system, env!("CARGO_PKG_VERSION"), go_on) {
            Ok(Some(snapshot)) => self.measured.snapshots.push(snapshot),
            Ok(None) => {} // interrupted, which is seen next
            Err(error) => {
                let what = format!("snapshot of memory {when} the first strategy");
                self.measured.note(what, error);
            }
        }
    }

    /// What the judgement needs of the state: the first one's figures, and of all of them the
    /// least fragmented.
    fn note(&mut self, recipe: &Recipe, state: &State, first: bool) {
        let now = facts(self.context, &self.machine);
        if first {
            let built = &state.built;
            self.facts.clone_from(&now);
            let values = [
                recipe.fragment.keep.one_in(),
                built.split,
                built.kept,
                built.pinned,
            ];
            for (name, value) in FRAGMENT_COUNTERS.into_iter().zip(values) {
                self.facts.insert(name.to_owned(), value as f64);
            }
        }
        for order in [judge::COSTLY_ORDER, self.pmd_order()] {
            let name = judge::index_fact(order);
            if let (Some(have), Some(&now)) = (self.facts.get_mut(&name), now.get(&name)) {
                *have = have.min(now);
            }
        }
    }

    /// Order of a page of PMD size.
    pub(super) fn pmd_order(&self) -> u32 {
        self.machine.pmd.0.ilog2() - self.machine.page.0.ilog2()
    }
}
