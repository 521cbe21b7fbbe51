//! Threads that map at once while one only faults.
//!
//! ```text
//! thread 1     map touch unmap map touch unmap ...      beside N mappings
//! thread 2     map touch unmap ...
//! last thread  touch touch touch ... (throws all away)  touch ...
//! alone        the last thread's work without the others
//! ```
//!
//! What a mapper pays for others is mmap_lock and, at each unmap, telling the other CPUs to
//! forget the translation; what the faulting thread pays is waiting for a mapper's write lock
//! (per-VMA locks, Linux 6.4, took most of that away).

use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::workload::Pbobench;
use stopgap_kernel::memory::{Advice, MapKind, MapRequest};
use stopgap_kernel::{Error, System};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::parameters;

use super::execute::{Backend, Buffers, Mapped, apply, lay_out};
use super::{STALL, names, room};
use crate::contract::{Context, Measured};
use crate::meter::Clock;

/// Mappings that each mapper lays out before it begins, where `vm.max_map_count`, which all
/// threads share, has room for them.
const BESIDE: u32 = 5_000;
/// Bytes that the faulting thread walks over.
const FAULTED: Bytes = Bytes::mib(16);
/// How long the threads run together, and how long the faulting one runs by itself.
const TOGETHER: Nanos = Nanos::millis(150);

pub(super) fn run(
    threads: u32,
    run: u32,
    seed: u64,
    context: &Context<'_>,
    report: &mut Measured,
) -> Result<(), Error> {
    let system = context.system;
    let beside = beside(room(system)?, threads - 1);
    let start = system.now();

    let alone = fault_for(system, TOGETHER, &|| false)?;
    let series = |threads: u32| {
        parameters([
            ("workload", "threads".into()),
            ("threads", threads.into()),
            ("n", (beside * (threads - 1)).into()),
        ])
    };
    report.block("fault", "ns", &series(1), alone.into_block(run, start.0));

    let done = AtomicBool::new(false);
    let ready = std::sync::Barrier::new(threads as usize);
    let (faults, mappers) = std::thread::scope(|scope| {
        let mappers: Vec<_> = (0..threads - 1)
            .map(|number| {
                let (done, ready) = (&done, &ready);
                let seed = seed ^ u64::from(number);
                scope.spawn(move || map_until(system, beside, seed, ready, done))
            })
            .collect();
        ready.wait();
        let faults = fault_for(system, TOGETHER, context.interrupted);
        done.store(true, Ordering::Relaxed);
        let panicked = |_| Err(Error::unsupported("a mapping thread", "it panicked"));
        let joined = mappers
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        let mappers: Vec<_> = joined.collect();
        (faults, mappers)
    });
    let faults = faults?.into_block(run, start.0);
    report.block("fault", "ns", &series(threads), faults);
    // One mapper stands for all: they do the same, and a block is one run's figure.
    if let Some(first) = mappers.into_iter().next() {
        first?.keep(report, &series(threads), run, start);
    }
    Ok(())
}

/// Mappings for each of `mappers` to lay out, so that all of them and their slots fit into
/// `room`.
fn beside(room: u64, mappers: u32) -> u32 {
    let each = (room / u64::from(mappers.max(1))).saturating_sub(u64::from(Pbobench::SLOTS));
    u32::try_from(each).unwrap_or(u32::MAX).min(BESIDE)
}

/// Touches pages of its own for `time`, a sample a page.
fn fault_for(system: &dyn System, time: Nanos, stop: &dyn Fn() -> bool) -> Result<Recorder, Error> {
    let page = system.page_size();
    let mapping = system.map(&MapRequest::writable(FAULTED, MapKind::Anonymous))?;
    // Base pages, so that a sample is one fault everywhere. A kernel without THP refuses the
    // advice and has base pages anyway.
    let _ = system.advise(&mapping, Bytes(0), FAULTED, Advice::NoHugePage);
    let mut recorder = Recorder::new(STALL.0);
    let deadline = system.now() + time;
    'until: loop {
        for index in 0..FAULTED.0 / page.0 {
            let before = system.now();
            if before >= deadline || stop() {
                break 'until;
            }
            system.touch(&mapping, Bytes(index * page.0), page)?;
            recorder.record(before.0, system.now().saturating_sub(before).0);
        }
        system.advise(&mapping, Bytes(0), FAULTED, Advice::DontNeed)?;
    }
    system.unmap(mapping)?;
    Ok(recorder)
}

/// pbobench until `done`, its calls timed from the moment when all threads are ready.
fn map_until<'s>(
    system: &'s dyn System,
    beside: u32,
    seed: u64,
    ready: &std::sync::Barrier,
    done: &AtomicBool,
) -> Result<Clock<'s>, Error> {
    let mut buffers = Mapped::new(system, Backend::Memfd, names(beside));
    let laid_out = match &mut buffers {
        Ok(buffers) => lay_out(buffers, beside, seed, &|| false).map(drop),
        Err(_) => Ok(()),
    };
    ready.wait(); // also where laying out failed: the others must not wait for ever
    laid_out?;
    let mut buffers = buffers?;
    let mut calls = Clock::new(system, STALL);
    // The layout and the two marks around it are done.
    let steps = Pbobench::new(beside, u64::MAX, seed).events();
    for event in steps.skip(beside as usize + 2) {
        if done.load(Ordering::Relaxed) {
            break;
        }
        apply(&mut buffers, event, &mut calls)?;
    }
    buffers.clear()?;
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All threads of a process share its limit: with 5,000 each, 14 CPUs were too many.
    #[test]
    fn all_mappers_fit_into_the_limit_together() {
        assert_eq!(beside(64_530, 1), BESIDE);
        for mappers in [1, 15, 63, 255, 2_000] {
            let all = u64::from(mappers) * u64::from(beside(64_530, mappers) + Pbobench::SLOTS);
            assert!(
                all <= 64_530 || beside(64_530, mappers) == 0,
                "{mappers}: {all}"
            );
        }
        assert!(beside(64_530, 63) > 900);
    }
}
