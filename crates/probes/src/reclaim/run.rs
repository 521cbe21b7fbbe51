//! The plan and the run: in which order, with how much memory and time, and where.

use std::path::PathBuf;

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{self, MemoryGroup, Site};
use stopgap_kernel::holds::Way;
use stopgap_kernel::swap;
use stopgap_kernel::tasks::ChildLimits;
use stopgap_stats::record::Answer;

use super::cost::{self, Task, memlock_limit};
use super::gather::{Gathered, RATIO, REFAULT, load_parameters, lru};
use super::parameters::{Mode, Reclaim, RefaultParameters};
use super::refault::{self, Load};
use crate::contract::{Context, Measured, Plan, Probe, ProbeError};
use crate::load;

/// What one mode's memory is as root, and without.
const ROOT_BYTES: Bytes = Bytes::mib(32);
const USER_BYTES: Bytes = Bytes::mib(4);
/// Time that the cost experiment takes.
const COST_TIME: Nanos = Nanos::millis(1_500);
/// Time that a load needs beside its run: the group, the file, the set, the first round.
const AROUND_A_LOAD: Nanos = Nanos::millis(120);
/// What a child needs beside its memory.
const CHILD: Bytes = Bytes::mib(32);

/// Where the refault load would run, or why it cannot.
fn refault_site(context: &Context<'_>, asked: &RefaultParameters) -> Result<Site, String> {
    if context.privilege != Privilege::Root {
        return Err("no memory cgroup: no pressure could be made (needs root)".to_owned());
    }
    let use_at_most = asked.limit + CHILD;
    if use_at_most > context.budget {
        return Err(format!(
            "a limit of {} is beyond the memory budget of {}: lower it or raise the budget",
            asked.limit, context.budget
        ));
    }
    let kind = cgroup::file_system(context.system, context.scratch);
    let kind = kind.map_err(|e| e.to_string())?;
    if matches!(kind.as_str(), "tmpfs" | "ramfs") {
        return Err(format!(
            "{} is on {kind}, whose pages are never given back: name a scratch folder on a disk",
            context.scratch.display()
        ));
    }
    Site::find(context.system).map_err(|e| format!("{e}: no pressure could be made"))
}

/// A group for the cost experiment: only for what the group alone can tell.
fn cost_group(
    context: &Context<'_>,
    tasks: &[(usize, Task)],
    out: &mut Gathered,
) -> Option<MemoryGroup> {
    if context.privilege != Privilege::Root {
        return None;
    }
    let largest = tasks.iter().map(|(_, task)| task.bytes).max()?;
    let limit = Bytes(largest.0 * 2) + CHILD;
    let name = format!("stopgap-{}-cost", context.system.pid());
    let made = Site::find(context.system)
        .and_then(|site| MemoryGroup::make(context.system, context.journal, &site, &name, limit));
    made.map_err(|error| {
        let what = "cost of a forced reclaim";
        out.missing.push(Missing::new(what, error.to_string()));
    })
    .ok()
}

impl Reclaim {
    fn tasks(&self, context: &Context<'_>) -> Vec<Task> {
        let root = context.privilege == Privilege::Root;
        let page = context.system.page_size();
        let usual = if root { ROOT_BYTES } else { USER_BYTES };
        let most = Bytes(context.budget.0 / 4).max(page);
        let limit = memlock_limit(context.system).filter(|_| !root);
        let size = |mode: Mode| match self.bytes {
            Some(bytes) => bytes.page_aligned(page),
            None => {
                let charged = matches!(mode, Mode::Held(way) if way.is_charged());
                // Less than a page cannot be asked for: the kernel's refusal is then the answer.
                let limit = limit.filter(|limit| charged && *limit >= page);
                let bytes = usual.min(most).min(limit.unwrap_or(usual));
                Bytes(bytes.0 / page.0 * page.0)
            }
        };
        let task = |&mode: &Mode| Task {
            mode,
            bytes: size(mode),
            passes: self.passes,
        };
        self.modes.iter().map(task).collect()
    }

    /// How long one load takes, warm-up included.
    fn load_time(&self, context: &Context<'_>, asked: &RefaultParameters) -> Nanos {
        let loads = (asked.ways.len() as u64 + 1) * u64::from(asked.runs);
        let cost = if self.modes.is_empty() {
            Nanos(0)
        } else {
            COST_TIME
        };
        let each = context.time.saturating_sub(cost).0 / loads;
        let left = Nanos(each).saturating_sub(AROUND_A_LOAD);
        let longest = Nanos::secs(4);
        let shortest = if self.swap.is_some() {
            longest
        } else {
            Nanos::millis(250)
        };
        asked.time.unwrap_or(left.clamp(shortest, longest))
    }

    fn swap_file(&self, context: &Context<'_>) -> Option<(PathBuf, Bytes)> {
        let name = format!("stopgap-{}-swap", context.system.pid());
        Some((context.scratch.join(name), self.swap?))
    }

    fn check_parameters(&self, context: &Context<'_>) -> Result<(), ProbeError> {
        if let Some(wrong) = self.wrong() {
            return Err(ProbeError::Parameter(wrong));
        }
        if let Some(bytes) = self.bytes.filter(|bytes| *bytes + CHILD > context.budget) {
            return Err(ProbeError::Parameter(format!(
                "{bytes} a mode are beyond the memory budget of {}: give less or raise the budget",
                context.budget
            )));
        }
        if self.swap.is_some() && context.privilege != Privilege::Root {
            let why = "a swap file needs root: run as root or leave it out";
            return Err(ProbeError::Unsupported(why.to_owned()));
        }
        Ok(())
    }

    fn measure_costs(&self, context: &Context<'_>, out: &mut Gathered) {
        let mut tasks: Vec<_> = self.tasks(context).into_iter().enumerate().collect();
        if tasks.is_empty() {
            return;
        }
        let system = context.system;
        let scope = context.journal.scope();
        let group = cost_group(context, &tasks, out);
        let mut random = Random::new(context.seed);
        let by_number: Vec<Task> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let begun = system.now();
        for run in 0..self.runs {
            if out.stop(context) || out.over(context, "cost", begun, run, self.runs) {
                break;
            }
            let done = f64::from(run) / f64::from(self.runs);
            (context.progress)(0.1 * done, "cost of holding memory");
            random.shuffle(&mut tasks);
            let limits = ChildLimits {
                time: Nanos::secs(60),
                cgroup: group.as_ref().map(|group| group.path().to_owned()),
            };
            let child = load::child(system, &limits, || {
                cost::carry_out(system, group.as_ref(), &tasks)
            });
            match child {
                Ok((rows, peak)) => {
                    out.peak = out.peak.max(peak);
                    for row in rows {
                        out.keep_cost(system, run, &by_number[row.task], &row);
                    }
                }
                Err(error) => out
                    .missing
                    .push(Missing::new(format!("cost, run {run}"), error.to_string())),
            }
        }
        out.left_behind(scope.undo());
    }

    fn measure_refault(&self, context: &Context<'_>, out: &mut Gathered) {
        let Some(asked) = &self.refault else {
            return;
        };
        let site = match refault_site(context, asked) {
            Ok(site) => site,
            Err(why) => return out.missing.push(Missing::new(REFAULT, why)),
        };
        let time = self.load_time(context, asked);
        // Without swap the steady state is there as soon as the room is full. With it the
        // scanning of a pinned set sets in late, and in bursts: few of them must be missed.
        let swapless = swap::in_use(context.system).is_ok_and(|(kind, _)| kind == "none");
        let warm_up = Nanos(time.0 / if swapless { 5 } else { 4 });
        let mut ways: Vec<_> = std::iter::once(None)
            .chain(asked.ways.iter().copied().map(Some))
            .collect();
        let mut random = Random::new(context.seed ^ 1);
        let loads = ways.len() * asked.runs as usize;
        let mut number = 0;
        let begun = context.system.now();
        for run in 0..asked.runs {
            if out.over(context, REFAULT, begun, run, asked.runs) {
                return;
            }
            random.shuffle(&mut ways);
            for way in ways.clone() {
                if out.stop(context) {
                    return;
                }
                #[allow(clippy::cast_precision_loss)]
                let done = 0.1 + 0.9 * f64::from(number) / loads as f64;
                let held = way.map_or("nothing held", Way::words);
                (context.progress)(done, &format!("memory pressure, {held}"));
                let load = Load {
                    way,
                    held: asked.held,
                    room: asked.room(),
                    file: asked.file_size(),
                    block: asked.block,
                    warm_up,
                    time: time.saturating_sub(warm_up),
                };
                number += 1;
                match refault::run(context, &site, number, &load) {
                    Ok((sample, peak, left)) => {
                        out.peak = out.peak.max(peak);
                        out.left_behind(left);
                        out.keep_sample(context.system, run, asked, &load, &sample);
                    }
                    Err(stopgap_kernel::Error::Child { ended }) => {
                        // What cannot be held now will not be in the next run either.
                        ways.retain(|other| *other != way || way.is_none());
                        let parameters = load_parameters(context.system, &load);
                        out.collector.fail(RATIO, "pages/page", &parameters, &ended);
                    }
                    Err(error) => {
                        let why = format!("{error}: no pressure could be made");
                        return out.missing.push(Missing::new(REFAULT, why));
                    }
                }
            }
        }
    }
}

impl Probe for Reclaim {
    fn question(&self) -> Question {
        Question::Reclaim
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        self.check_parameters(context)?;
        let mut plan = Plan {
            what: "Takes, reclaims and releases memory that is locked, pinned or neither, and \
                   times each step."
                .to_owned(),
            ..Plan::default()
        };
        let site = Site::find(context.system).ok();
        let pid = context.system.pid();
        let root = context.privilege == Privilege::Root;
        if let Some((path, size)) = self.swap_file(context) {
            plan.touches
                .push(format!("swap file {} of {size}", path.display()));
        }
        let tasks = self.tasks(context);
        if let Some(largest) = tasks.iter().map(|task| task.bytes).max() {
            plan.memory = largest + CHILD;
            plan.time += COST_TIME;
            if let Some(site) = site.filter(|_| root) {
                let group = site.parent.join(format!("stopgap-{pid}-cost"));
                plan.touches
                    .push(format!("memory cgroup {}", group.display()));
            }
        }
        let Some(asked) = &self.refault else {
            return Ok(plan);
        };
        match refault_site(context, asked) {
            Ok(site) => {
                let loads = (asked.ways.len() as u64 + 1) * u64::from(asked.runs);
                let each = self.load_time(context, asked) + AROUND_A_LOAD;
                plan.time += Nanos(each.0.saturating_mul(loads));
                plan.memory = plan.memory.max(asked.limit + CHILD);
                plan.what.push_str(
                    " Then makes memory short in a cgroup of its own, beside held memory and \
                     beside none.",
                );
                let group = site.parent.join(format!("stopgap-{pid}-*"));
                plan.touches.push(format!(
                    "memory cgroup {}, one a load, limit {}",
                    group.display(),
                    asked.limit
                ));
                let file = context.scratch.join(format!("stopgap-{pid}-*"));
                plan.touches.push(format!(
                    "sparse file {}, one a load, {} (no block on the disk)",
                    file.display(),
                    asked.file_size()
                ));
            }
            Err(why) => plan.missing.push(Missing::new(REFAULT, why)),
        }
        Ok(plan)
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.check_parameters(context)?;
        let scope = context.journal.scope();
        if let Some((path, size)) = self.swap_file(context) {
            swap::make(context.system, context.journal, &path, size)?;
        }
        let mut out = Gathered::default();
        if lru(context.system).1.is_none() {
            out.missing_once("kind of LRU", "/sys/kernel/mm/lru_gen/enabled does not say");
        }
        self.measure_costs(context, &mut out);
        self.measure_refault(context, &mut out);
        out.left_behind(scope.undo());
        Ok(out.finish(context.system))
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        super::judge::judge(self, measured, seed, privilege)
    }
}
