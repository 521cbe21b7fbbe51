//! The probe at work on memory that is made fragmented for each strategy anew.

use std::path::Path;

use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::files::read_text;
use stopgap_kernel::snapshot;

use super::fragment::recipe::Recipe;
use super::fragment::state::State;
use super::fragment::{Maker, fresh};
use super::judge;
use super::knobs;
use super::session::{FRAGMENT_COUNTERS, Session, facts};

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
