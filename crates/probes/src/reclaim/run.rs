//! The plan and the run: in which order, with how much memory and time, and where.

use std::path::PathBuf;

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{self, MemoryGroup, Site, Version};
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::{System, budget, swap};
use stopgap_stats::record::Answer;

use super::cost::{self, Task, memlock_limit};
use super::evidence::{
    CGROUP, LOAD, RATIO, finish, keep_cost, keep_sample, load_parameters, lru, note_left,
};
use super::pressure::{self, Beside};
use super::shrinker;
use super::{Mode, PressureParameters, Reclaim};
use crate::contract::{Context, LEAST_RUNS, Measured, Plan, Probe, ProbeError, refuse};
use crate::runner;

/// Memory of one mode as root, and without.
const ROOT_BYTES: Bytes = Bytes::mib(32);
const USER_BYTES: Bytes = Bytes::mib(4);
/// Time that the cost experiment takes.
const COST_TIME: Nanos = Nanos::millis(1_500);
/// Time that a load needs beside its run: the group, the file, the set, filling its room.
const AROUND_A_LOAD: Nanos = Nanos::millis(300);
/// Memory that a child needs beside its set.
const CHILD: Bytes = Bytes::mib(32);

/// Why `bytes` would be more than this host, or the group that we run in, can spare: of what is available
/// one half stays for everybody else, with any budget.
fn too_much(system: &dyn System, bytes: Bytes) -> Option<String> {
    let host = budget::meminfo(system, "MemAvailable").ok();
    let group = cgroup::left_in_own(system).ok().flatten();
    let (left, whose) = match (host, group) {
        (Some(host), Some(group)) if group < host => (group, "the memory cgroup that this runs in"),
        (None, Some(group)) => (group, "the memory cgroup that this runs in"),
        (Some(host), _) => (host, "this host"),
        (None, None) => return Some("how much memory is available is not known".to_owned()),
    };
    (bytes.0 > left.0 / 2).then(|| {
        format!("{bytes} are more than half of the {left} that {whose} has left: lower --limit or --bytes")
    })
}

/// Where the load would run, or why it cannot.
fn load_site(
    context: &Context<'_>,
    asked: &PressureParameters,
    makes_swap: bool,
) -> Result<Site, String> {
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
    if let Some(why) = too_much(context.system, use_at_most) {
        return Err(why);
    }
    let kind = cgroup::file_system(context.system, context.scratch)?;
    if matches!(kind.as_str(), "tmpfs" | "ramfs") {
        return Err(format!(
            "{} is on {kind}, whose pages are never given back: name a scratch folder on a disk",
            context.scratch.display()
        ));
    }
    let swapless =
        !makes_swap && swap::in_use(context.system).is_ok_and(|(kind, _)| kind == "none");
    if asked.load == Load::Populate && swapless {
        let why = "no swap: blocks alone, of which nothing can be reclaimed, would end out of memory; make \
                   some with --swap, or take another load";
        return Err(why.to_owned());
    }
    Site::find(context.system).map_err(|e| format!("{e}: no pressure could be made"))
}

/// Every share with what stands beside it, [`Mode::None`] included.
fn cells(asked: &PressureParameters, time: Nanos) -> Vec<Beside> {
    let mut modes = vec![Mode::None];
    modes.extend(asked.modes.iter().filter(|mode| **mode != Mode::None));
    let beside = |pinned: Bytes, mode: Mode| Beside {
        load: asked.load,
        mode,
        pinned,
        room: asked.room(pinned),
        file: asked.file_size(pinned),
        block: asked.block,
        time,
        swappiness: asked.swappiness,
    };
    let mut cells = Vec::new();
    for &pinned in &asked.pinned {
        cells.extend(modes.iter().map(|&mode| beside(pinned, mode)));
    }
    cells
}

/// A group for the cost experiment: only for what the group alone can tell.
fn cost_group(
    context: &Context<'_>,
    tasks: &[(usize, Task)],
    measured: &mut Measured,
) -> Option<MemoryGroup> {
    if context.privilege != Privilege::Root {
        return None;
    }
    let largest = tasks.iter().map(|(_, task)| task.bytes).max()?;
    let limit = Bytes(largest.0 * 2) + CHILD;
    let name = format!("stopgap-{}-cost", context.system.pid());
    let made = Site::find(context.system)
        .and_then(|site| MemoryGroup::make(context.system, context.journal, &site, &name, limit));
    made.map_err(|error| measured.note("cost of a forced reclaim", error))
        .ok()
}

impl Reclaim {
    fn tasks(&self, context: &Context<'_>) -> Vec<Task> {
        let root = context.privilege == Privilege::Root;
        let page = context.system.page_size();
        let usual = if root { ROOT_BYTES } else { USER_BYTES };
        let beside = context.budget.saturating_sub(CHILD);
        let most = Bytes(context.budget.0 / 4).min(beside).max(page);
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
    fn load_time(&self, context: &Context<'_>, asked: &PressureParameters) -> Nanos {
        let loads = cells(asked, Nanos(0)).len() as u64 * u64::from(asked.runs);
        let cost = if self.modes.is_empty() {
            Nanos(0)
        } else {
            COST_TIME
        };
        let each = context.time.saturating_sub(cost).0 / loads;
        let left = Nanos(each).saturating_sub(AROUND_A_LOAD);
        asked
            .time
            .unwrap_or(left.clamp(Nanos::millis(250), Nanos::secs(4)))
    }

    fn swap_file(&self, context: &Context<'_>) -> Option<(PathBuf, Bytes)> {
        let name = format!("stopgap-{}-swap", context.system.pid());
        Some((context.scratch.join(name), self.swap?))
    }

    fn check_parameters(&self, context: &Context<'_>) -> Result<(), ProbeError> {
        if let Some(wrong) = self.wrong() {
            return refuse(wrong);
        }
        let largest = self.tasks(context).iter().map(|task| task.bytes).max();
        let beyond = largest.filter(|bytes| *bytes + CHILD > context.budget);
        if let Some(bytes) = beyond.filter(|_| self.shrinker.is_none()) {
            return refuse(format!(
                "{bytes} a mode and {CHILD} for the rest of a load child are beyond the memory budget of {}: give less \
                 (--bytes) or raise the budget (--memory)",
                context.budget
            ));
        }
        if let Some(size) = self.swap.filter(|size| *size < swap::least(context.system)) {
            return refuse(format!(
                "a swap file of {size}: give at least {}, ten pages, the least that mkswap(8) makes",
                swap::least(context.system)
            ));
        }
        let too_much = largest.and_then(|largest| too_much(context.system, largest + CHILD));
        if let Some(why) = too_much.filter(|_| self.shrinker.is_none()) {
            return Err(ProbeError::Unsupported(why));
        }
        if self.swap.is_some() && context.privilege != Privilege::Root {
            let why = "a swap file needs root: run as root or leave it out";
            return Err(ProbeError::Unsupported(why.to_owned()));
        }
        Ok(())
    }

    fn measure_costs(&self, context: &Context<'_>, measured: &mut Measured) {
        let mut tasks: Vec<_> = self.tasks(context).into_iter().enumerate().collect();
        if tasks.is_empty() {
            return;
        }
        let system = context.system;
        let scope = context.journal.scope();
        let group = cost_group(context, &tasks, measured);
        let mut random = Random::new(context.seed);
        let by_number: Vec<Task> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let begun = system.now();
        for run in 0..self.runs {
            let made = (run, self.runs);
            if context.stops(measured) || context.over(measured, "cost", begun, made) {
                break;
            }
            let done = f64::from(run) / f64::from(self.runs);
            (context.progress)(0.1 * done, "cost of holding memory");
            random.shuffle(&mut tasks);
            let limits = ChildLimits {
                time: Nanos::secs(60),
                cgroup: group.as_ref().map(|group| group.path().to_owned()),
            };
            let child = runner::child(system, &limits, || {
                cost::carry_out(system, group.as_ref(), &tasks)
            });
            match child {
                Ok((rows, peak)) => {
                    measured.keep_peak(peak);
                    for row in rows {
                        keep_cost(measured, system, run, &by_number[row.task], &row);
                    }
                }
                Err(error) => measured.note(format!("cost, run {run}"), error),
            }
        }
        note_left(measured, scope.undo());
    }

    fn measure_load(&self, context: &Context<'_>, measured: &mut Measured) {
        let Some(asked) = &self.pressure else {
            return;
        };
        let site = match load_site(context, asked, self.swap.is_some()) {
            Ok(site) => site,
            Err(why) => return measured.note(LOAD, why),
        };
        let version = match site.version {
            Version::V1 => 1.0,
            Version::V2 => 2.0,
        };
        measured.facts.insert(CGROUP.to_owned(), version);
        let mut cells = cells(asked, self.load_time(context, asked));
        let mut random = Random::new(context.seed ^ 1);
        let loads = cells.len() * asked.runs as usize;
        let mut number = 0;
        let begun = context.system.now();
        for run in 0..asked.runs {
            if context.over(measured, LOAD, begun, (run, asked.runs)) {
                return;
            }
            random.shuffle(&mut cells);
            let mut failed = Vec::new();
            for beside in &cells {
                if context.stops(measured) {
                    return;
                }
                if context.overdue(begun) {
                    let left = format!(
                        "{LOAD}, {} of {} runs, or parts of them",
                        asked.runs - run,
                        asked.runs
                    );
                    return measured.missing.push(context.left_out(left));
                }
                let done = 0.1 + 0.9 * f64::from(number) / loads as f64;
                let doing = format!("memory pressure, {}", beside.mode.words());
                (context.progress)(done, &doing);
                number += 1;
                match pressure::run(context, &site, number, beside) {
                    Ok((sample, peak, left)) => {
                        measured.keep_peak(peak);
                        note_left(measured, left);
                        keep_sample(measured, context.system, run, asked, beside, &sample);
                    }
                    Err(stopgap_kernel::Error::Child { ended }) => {
                        let parameters = load_parameters(context.system, beside);
                        measured.fail(RATIO, "pages/page", &parameters, &ended);
                        failed.push((beside.mode, beside.pinned));
                    }
                    Err(error) => {
                        let why = format!("{error}: no pressure could be made");
                        return measured.note(LOAD, why);
                    }
                }
            }
            // A set that cannot be held now will not be in the next run either.
            cells.retain(|cell| {
                cell.mode == Mode::None || !failed.contains(&(cell.mode, cell.pinned))
            });
        }
    }
}

impl Probe for Reclaim {
    fn question(&self) -> Question {
        Question::Reclaim
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        self.check_parameters(context)?;
        if let Some(name) = &self.shrinker {
            let folders = shrinker::find(context, name)?;
            let touch = |folder: &PathBuf| {
                format!("{}: frees what it holds (not put back)", folder.display())
            };
            return Ok(Plan {
                what: "Has a shrinker scan all that it has, once, and times it.".to_owned(),
                touches: folders.iter().map(touch).collect(),
                ..Plan::default()
            });
        }
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
        let Some(asked) = &self.pressure else {
            return Ok(plan);
        };
        match load_site(context, asked, self.swap.is_some()) {
            Ok(site) => {
                let cells = cells(asked, self.load_time(context, asked));
                let each: u64 = cells.iter().map(|cell| (cell.time + AROUND_A_LOAD).0).sum();
                let of = |runs: u32| Nanos(each.saturating_mul(u64::from(runs)));
                // Runs that the time does not hold are left out.
                let held = of(asked.runs.min(LEAST_RUNS)).max(context.time);
                plan.time += of(asked.runs).min(held);
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
                let largest = cells.iter().map(|cell| cell.file).max().unwrap_or_default();
                plan.touches.push(format!(
                    "sparse file {}, one a load, {largest} (no block on the disk)",
                    file.display(),
                ));
            }
            Err(why) => plan.missing.push(Missing::new(LOAD, why)),
        }
        Ok(plan)
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.check_parameters(context)?;
        if let Some(name) = &self.shrinker {
            let folders = shrinker::find(context, name)?;
            let mut measured = Measured::default();
            shrinker::measure(context, &folders, &mut measured);
            return Ok(finish(measured, context.system));
        }
        let scope = context.journal.scope();
        if let Some((path, size)) = self.swap_file(context) {
            swap::make(context.system, context.journal, &path, size)?;
        }
        let mut measured = Measured::default();
        if lru(context.system).1.is_none() {
            measured.note("kind of LRU", "/sys/kernel/mm/lru_gen/enabled does not say");
        }
        self.measure_costs(context, &mut measured);
        self.measure_load(context, &mut measured);
        note_left(&mut measured, scope.undo());
        Ok(finish(measured, context.system))
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        super::judge::judge(self, measured, seed, privilege)
    }
}
