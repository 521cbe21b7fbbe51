//! EEVDF, Linux 6.12, kernel/sched/fair.c: `pick_eevdf()`, `place_entity()`, `update_entity_lag()`,
//! `dequeue_entity()`, `requeue_delayed_entity()`, `check_preempt_wakeup_fair()`.
//!
//! Whose virtual run time is not beyond the average of the queue is *eligible*; of the eligible, the earliest virtual
//! deadline runs. The running task is protected until its deadline, as long as it is eligible (RUN_TO_PARITY). What a
//! task is behind the average when it goes to sleep is its *lag*: it comes back as far behind (PLACE_LAG). One that
//! sleeps while it is beyond the average stays on the queue, *delayed*, until it is picked or woken
//! (DELAY_DEQUEUE), and comes back at most even (DELAY_ZERO).
//!
//! Since the lag of a sleeper stands still, one that is behind stays behind through any number of short sleeps, and each
//! of its wake-ups pre-empts. Only its own running while the other waits makes it even; only the other's running while
//! it waits puts it behind. That is the mechanism of the blocking reader: see docs/questions/roundtrip.md.
//!
//! 6.18 keeps the protected end in a field of its own (`vprot`), with the same value for equal slices.

use super::{GiveWay, RunQueue, Setting};

/// `sysctl_sched_base_slice` of a machine with two CPUs, as that of the probe's figures: 0.7 ms times
/// 1 + log2(CPUs).
const SLICE: i64 = 1_400_000;
/// How much lag a sleeper keeps at most: two slices, or a tick of HZ=250 where that is more.
const MOST_LAG: i64 = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    Queued,
    /// Asleep, and still on the queue.
    Delayed,
}

#[derive(Debug, Clone, Copy)]
struct Entity {
    state: State,
    vruntime: i64,
    deadline: i64,
    lag: i64,
}

pub(super) struct Eevdf {
    setting: Setting,
    /// By task.
    entities: Vec<Entity>,
    running: Option<usize>,
    /// Until when the running task was charged.
    charged: u64,
    /// Until what virtual run time the running task is protected.
    protected: i64,
    /// Where a task goes that finds the queue empty.
    base: i64,
}

impl Eevdf {
    pub(super) fn new(setting: Setting) -> Eevdf {
        let asleep = Entity {
            state: State::Asleep,
            vruntime: 0,
            deadline: 0,
            lag: 0,
        };
        Eevdf {
            entities: vec![asleep; setting.batch.len()],
            setting,
            running: None,
            charged: 0,
            protected: 0,
            base: 0,
        }
    }

    fn queued(&self) -> impl Iterator<Item = (usize, &Entity)> {
        let entities = self.entities.iter().enumerate();
        entities.filter(|(_, entity)| entity.state != State::Asleep)
    }

    /// Sum of virtual run times on the queue, and how many.
    fn sum(&self) -> (i64, i64) {
        self.queued().fold((0, 0), |(sum, n), (_, entity)| {
            (sum + entity.vruntime, n + 1)
        })
    }

    fn average(&self) -> i64 {
        match self.sum() {
            (_, 0) => self.base,
            (sum, n) => sum.div_euclid(n),
        }
    }

    fn eligible(&self, task: usize) -> bool {
        let (sum, n) = self.sum();
        self.entities[task].vruntime * n <= sum
    }

    /// `update_curr()`: whether the running task's slice is over while another is queued.
    fn charge(&mut self, now: u64) -> GiveWay {
        let ran = (now - self.charged).cast_signed();
        self.charged = now;
        let Some(running) = self.running else {
            return GiveWay::No;
        };
        let entity = &mut self.entities[running];
        entity.vruntime += ran;
        let over = entity.vruntime >= entity.deadline;
        if over {
            entity.deadline = entity.vruntime + SLICE;
        }
        self.base = self.base.max(self.average());
        if over && self.queued().count() > 1 {
            GiveWay::SliceOver
        } else {
            GiveWay::No
        }
    }

    /// `update_entity_lag()`.
    fn keep_lag(&mut self, task: usize) {
        let lag = self.average() - self.entities[task].vruntime;
        self.entities[task].lag = lag.clamp(-MOST_LAG, MOST_LAG);
    }

    /// `place_entity()`: onto the queue, as far from the average *with it* as its lag says; the average moves with
    /// it, so from the average without it the way is longer.
    fn place(&mut self, task: usize) {
        let (_, others) = self.sum();
        let average = self.average();
        let entity = &mut self.entities[task];
        let lag = match others {
            0 => 0,
            n => entity.lag * (n + 1) / n,
        };
        entity.vruntime = average - lag;
        entity.deadline = entity.vruntime + SLICE;
        entity.state = State::Queued;
    }

    /// `pick_eevdf()`.
    fn choose(&self) -> Option<usize> {
        let mut queued = self.queued();
        let only = queued.next()?.0;
        if queued.next().is_none() {
            return Some(only);
        }
        let running = self.running.filter(|&task| self.eligible(task));
        if let Some(task) = running
            && self.entities[task].vruntime < self.protected
        {
            return running;
        }
        let others = self
            .queued()
            .filter(|(task, _)| self.running != Some(*task));
        let best = others
            .filter(|(task, _)| self.eligible(*task))
            .min_by_key(|(_, entity)| entity.deadline);
        match (best, running) {
            (Some((_, best)), Some(task)) if self.entities[task].deadline < best.deadline => {
                Some(task)
            }
            (Some((task, _)), _) => Some(task),
            (None, running) => running,
        }
    }
}

impl RunQueue for Eevdf {
    fn wake(&mut self, now: u64, task: usize) -> GiveWay {
        let mut give_way = GiveWay::No;
        match self.entities[task].state {
            State::Queued => return GiveWay::No,
            State::Asleep => {
                give_way = self.charge(now);
                self.place(task);
            }
            // The running task is not charged first: requeue_delayed_entity() sees it where it last was.
            State::Delayed => {
                self.keep_lag(task);
                if self.entities[task].lag > 0 {
                    self.entities[task].state = State::Asleep;
                    self.entities[task].lag = 0;
                    self.place(task);
                }
                self.entities[task].state = State::Queued;
            }
        }
        if self.running.is_none() || give_way != GiveWay::No {
            return give_way;
        }
        give_way = self.charge(now);
        let may = self.setting.preempt && !self.setting.batch[task];
        if give_way == GiveWay::No && may && self.choose() == Some(task) {
            give_way = GiveWay::ToTheWoken;
        }
        give_way
    }

    fn sleep(&mut self, now: u64) {
        self.charge(now);
        let Some(running) = self.running else {
            return;
        };
        if self.eligible(running) {
            self.keep_lag(running);
            self.entities[running].state = State::Asleep;
        } else {
            self.entities[running].state = State::Delayed;
        }
        self.running = None;
    }

    fn pick(&mut self, now: u64) -> Option<usize> {
        self.charge(now);
        loop {
            let Some(next) = self.choose() else {
                self.running = None;
                return None;
            };
            let entity = self.entities[next];
            if entity.state == State::Delayed {
                // It is its turn, and it sleeps: gone, with no credit.
                self.keep_lag(next);
                let entity = &mut self.entities[next];
                entity.lag = entity.lag.min(0);
                entity.state = State::Asleep;
                continue;
            }
            if self.running != Some(next) {
                self.running = Some(next);
                self.protected = entity.deadline;
            }
            return self.running;
        }
    }

    /// `task_sched_runtime()` calls `update_curr()`: what a delayed sleeper's wake-up sees of the running task is
    /// then its account of now, not of when it was picked.
    fn read_clock(&mut self, now: u64) -> GiveWay {
        self.charge(now)
    }

    fn tick(&mut self, now: u64) -> GiveWay {
        self.charge(now)
    }
}
