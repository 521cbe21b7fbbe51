//! CFS, Linux 2.6.35, kernel/sched_fair.c: `place_entity()`, `wakeup_preempt_entity()`, `check_preempt_tick()`.
//!
//! The task with the least virtual run time runs. A sleeper comes back at most half a latency behind, which is credit;
//! a wake-up pre-empts where the running task is more than a granularity ahead.
//!
//! The constants are those of one CPU, as in the mail's telephone; the kernel doubles them on two, where each of our
//! tasks is alone and none matters. The buddies (`next`, `last`) take three runnable tasks, so they are not here.

use super::{GiveWay, RunQueue, Setting};

/// `sysctl_sched_latency`: the time in which each of up to three runnable tasks runs once.
const LATENCY: i64 = 6_000_000;
/// `sysctl_sched_wakeup_granularity`.
const WAKEUP_GRANULARITY: i64 = 1_000_000;
/// `sysctl_sched_min_granularity`.
const MIN_GRANULARITY: i64 = 2_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Entity {
    vruntime: i64,
    queued: bool,
}

pub(super) struct Cfs {
    setting: Setting,
    /// By task.
    entities: Vec<Entity>,
    running: Option<usize>,
    /// Until when the running task was charged.
    charged: u64,
    /// When it was picked.
    picked: u64,
    /// Never goes back: `min_vruntime`.
    least: i64,
}

impl Cfs {
    pub(super) fn new(setting: Setting) -> Cfs {
        Cfs {
            entities: vec![Entity::default(); setting.batch.len()],
            setting,
            running: None,
            charged: 0,
            picked: 0,
            least: 0,
        }
    }

    fn charge(&mut self, now: u64) {
        if let Some(running) = self.running {
            self.entities[running].vruntime += (now - self.charged).cast_signed();
        }
        self.charged = now;
        self.advance();
    }

    fn advance(&mut self) {
        if let Some(leftmost) = self.leftmost() {
            self.least = self.least.max(self.entities[leftmost].vruntime);
        }
    }

    fn leftmost(&self) -> Option<usize> {
        (0..self.entities.len())
            .filter(|&task| self.entities[task].queued)
            .min_by_key(|&task| self.entities[task].vruntime)
    }
}

impl RunQueue for Cfs {
    fn wake(&mut self, now: u64, task: usize) -> GiveWay {
        self.charge(now);
        let woken = &mut self.entities[task];
        woken.vruntime = woken.vruntime.max(self.least - LATENCY / 2);
        woken.queued = true;
        let woken = woken.vruntime;
        let Some(running) = self.running else {
            return GiveWay::No;
        };
        let ahead = self.entities[running].vruntime - woken;
        if self.setting.preempt && !self.setting.batch[task] && ahead > WAKEUP_GRANULARITY {
            GiveWay::ToTheWoken
        } else {
            GiveWay::No
        }
    }

    fn sleep(&mut self, now: u64) {
        self.charge(now);
        if let Some(running) = self.running.take() {
            self.entities[running].queued = false;
        }
        self.advance();
    }

    fn pick(&mut self, now: u64) -> Option<usize> {
        self.charge(now);
        self.running = self.leftmost();
        self.picked = now;
        self.running
    }

    /// `do_task_delta_exec()` adds what is not charged yet, and charges nothing.
    fn read_clock(&mut self, _: u64) -> GiveWay {
        GiveWay::No
    }

    fn tick(&mut self, now: u64) -> GiveWay {
        self.charge(now);
        let runnable = self.entities.iter().filter(|entity| entity.queued).count();
        let (Some(running), Some(leftmost)) = (self.running, self.leftmost()) else {
            return GiveWay::No;
        };
        if runnable < 2 {
            return GiveWay::No;
        }
        let ran = (now - self.picked).cast_signed();
        let share = LATENCY / runnable.cast_signed() as i64;
        let ahead = self.entities[running].vruntime - self.entities[leftmost].vruntime;
        let behind = self.setting.preempt && ran >= MIN_GRANULARITY && ahead > share;
        if ran > share || behind {
            GiveWay::SliceOver
        } else {
            GiveWay::No
        }
    }
}
