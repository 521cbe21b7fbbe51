use std::path::PathBuf;

use stopgap_events::machine::TaskRate;
use stopgap_events::units::Nanos;

use super::TOP;
use crate::System;
use crate::error::Error;
use crate::files::read_lossy;
use crate::notes::Notes;
use crate::proc::status;
use crate::tasks::Switches;

/// A task's counts at one point in time.
struct Sample {
    pid: u32,
    tid: u32,
    at: Nanos,
    switches: Switches,
}

/// Highest rates, highest first.
pub(super) struct Rates {
    pub(super) voluntary: Vec<TaskRate>,
    pub(super) involuntary: Vec<TaskRate>,
}

/// Switch rates of all threads of `pids` over `interval`, each over the time between its own
/// two readings. Nothing else is done meanwhile: what would use the CPU would show in the
/// figures of others. No further process is read after `give_up`.
pub(super) fn rates(
    system: &dyn System,
    pids: &[u32],
    interval: Nanos,
    give_up: Nanos,
    notes: &mut Notes,
) -> Rates {
    let before = samples(system, pids, give_up, notes);
    // The last task read is the one whose interval is the shortest.
    system.sleep_until(system.now() + interval);
    let mut all = Vec::with_capacity(before.len());
    for task in &before {
        let Ok(text) = read_lossy(system, task_file(task.pid, task.tid)) else {
            continue; // it has ended
        };
        let Some(now) = status::switches(&text) else {
            continue; // noted when it was read first
        };
        let seconds = system.now().saturating_sub(task.at).as_secs_f64();
        let more = now.since(task.switches);
        if seconds > 0.0 && more.total() > 0 {
            let rate = |count: u64| TaskRate {
                pid: task.pid,
                tid: task.tid,
                name: status::name(&text),
                per_second: count as f64 / seconds,
            };
            all.push((rate(more.voluntary), rate(more.involuntary)));
        }
    }
    let (voluntary, involuntary) = all.into_iter().unzip();
    Rates {
        voluntary: top(voluntary),
        involuntary: top(involuntary),
    }
}

fn task_file(pid: u32, tid: u32) -> PathBuf {
    format!("/proc/{pid}/task/{tid}/status").into()
}

fn samples(system: &dyn System, pids: &[u32], give_up: Nanos, notes: &mut Notes) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(pids.len() * 2);
    let mut broken: Option<Error> = None;
    for (done, &pid) in pids.iter().enumerate() {
        if system.now() >= give_up {
            notes.add(
                format!(
                    "switch rates of {} of {} processes",
                    pids.len() - done,
                    pids.len()
                ),
                "the time for it was up; ask about one process",
            );
            break;
        }
        // A thread that has ended by now is left out.
        let tids = system
            .list(format!("/proc/{pid}/task").as_ref())
            .unwrap_or_default();
        for tid in tids.iter().filter_map(|name| name.parse().ok()) {
            let file = task_file(pid, tid);
            let Ok(text) = read_lossy(system, &file) else {
                continue;
            };
            match status::switches(&text) {
                Some(switches) => samples.push(Sample {
                    pid,
                    tid,
                    at: system.now(),
                    switches,
                }),
                None => {
                    broken.get_or_insert_with(|| {
                        Error::parse(file.display(), "no counts of context switches")
                    });
                }
            }
        }
    }
    if let Some(error) = broken {
        notes.add("switch rates of some tasks", error.to_string());
    }
    samples
}

fn top(mut rates: Vec<TaskRate>) -> Vec<TaskRate> {
    rates.retain(|rate| rate.per_second > 0.0);
    rates.sort_by_key(|rate| rate.tid);
    rates.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    rates.truncate(TOP);
    rates
}
