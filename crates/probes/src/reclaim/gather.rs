//! Adds what the children measured to the series and counters.

use stopgap_kernel::files::read_number;
use stopgap_kernel::{System, environment, swap};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::{Block, parameters};

use super::PressureParameters;
use super::cost::{Row, Task};
use super::pressure::{Beside, Sample};
use crate::contract::{Measured, Parameters};

/// The kernel's LRU as a word, and whether it is the multi-generational one.
pub(super) fn lru(system: &dyn System) -> (&'static str, Option<bool>) {
    match environment::mglru(system) {
        Ok(true) => ("multi-generational", Some(true)),
        Ok(false) => ("classic", Some(false)),
        Err(_) => ("unknown", None),
    }
}

/// Returns facts of the machine, as words on every series.
fn machine(system: &dyn System) -> Parameters {
    let swap = swap::in_use(system).map_or("unknown".to_owned(), |(kind, _)| kind);
    parameters([("swap", swap.into()), ("lru", lru(system).0.into())])
}

/// Names of what the load gives; the judgement, and a replay that stands beside it, look for them.
pub(super) const LOAD: &str = "load";
/// The fact that says which version of the cgroup interface there is.
pub(super) const CGROUP: &str = "cgroup_version";
pub(super) const RATIO: &str = "scanned per reclaimed";
pub(super) const STEADY: &str = "steady scanned per reclaimed";
pub(super) const SCANNED: &str = "pages scanned";
pub(super) const RECLAIMED: &str = "pages reclaimed";
pub(super) const UNEVICTABLE: &str = "unevictable at the end";
pub(super) const CULLED: &str = "culled by reclaim";
pub(super) const WAKE_REALTIME: &str = "wake-up of a real-time thread";
pub(super) const WAKE_ORDINARY: &str = "wake-up of an ordinary thread";
pub(super) const STALLED: &str = "memory stall per GiB read";
pub(super) const SYSTEM_CPU: &str = "system CPU per GiB read";
pub(super) const ANONYMOUS: &str = "anonymous pages scanned";
pub(super) const BLOCK: &str = "populate a block";

/// Returns the conditions of a load. `limit` is its group's: for `none` it is lower by the missing set, so
/// that `room` is the same for all modes of one share.
pub(super) fn load_parameters(system: &dyn System, beside: &Beside) -> Parameters {
    let mut parameters = machine(system);
    parameters.extend(stopgap_stats::record::parameters([
        ("mode", beside.mode.word().into()),
        ("load", beside.load.word().into()),
        ("pinned", beside.set().0.into()),
        ("limit", beside.limit().0.into()),
        ("room", beside.room.0.into()),
        ("file", beside.file.0.into()),
        ("block", beside.block.0.into()),
    ]));
    let machines = read_number::<_, u32>(system, "/proc/sys/vm/swappiness").ok();
    if let Some(swappiness) = beside.swappiness.or(machines) {
        parameters.insert("swappiness".to_owned(), swappiness.into());
    }
    parameters
}

/// Notes what the journal could not put back.
pub(super) fn note_left(measured: &mut Measured, errors: Vec<stopgap_kernel::Error>) {
    for error in errors {
        let why = format!("{error}; `stopgap restore` tries again");
        measured.note("putting everything back", why);
    }
}

/// Adds a figure of the cost experiment.
pub(super) fn keep_cost(
    measured: &mut Measured,
    system: &dyn System,
    run: u32,
    task: &Task,
    row: &Row,
) {
    let pages = task.bytes.pages(system.page_size()).0;
    let mut parameters = machine(system);
    parameters.insert("mode".to_owned(), task.mode.word().into());
    parameters.insert("bytes".to_owned(), task.bytes.0.into());
    for clock in ["thread CPU", "elapsed"] {
        parameters.insert("clock".to_owned(), clock.into());
        match &row.value {
            Ok((cpu, elapsed)) => {
                let value = if clock == "elapsed" { elapsed } else { cpu };
                let block = Block::number(run, row.start_ns, pages, *value);
                measured.block(&row.name, "ns/page", &parameters, [block]);
            }
            Err(why) => measured.fail(&row.name, "ns/page", &parameters, why),
        }
    }
}

/// Adds what one load gave.
pub(super) fn keep_sample(
    measured: &mut Measured,
    system: &dyn System,
    run: u32,
    asked: &PressureParameters,
    beside: &Beside,
    sample: &Sample,
) {
    let parameters = load_parameters(system, beside);
    let mut add = |name: &str, unit: &str, samples: u64, value: Result<f64, &str>| match value {
        Ok(value) => {
            let block = Block::number(run, sample.start_ns, samples, value);
            measured.block(name, unit, &parameters, [block]);
        }
        Err(why) => measured.fail(name, unit, &parameters, why),
    };
    for (name, pages) in [
        (SCANNED, Some(sample.scanned)),
        (RECLAIMED, Some(sample.reclaimed)),
        (ANONYMOUS, sample.anonymous),
        (CULLED, sample.culled),
        (UNEVICTABLE, sample.unevictable),
    ] {
        let pages = pages.map(|pages| pages as f64);
        let pages = pages.ok_or("this kernel does not count them");
        add(name, "pages", 1, pages);
    }
    let ratio = (sample.reclaimed > 0).then(|| sample.scanned as f64 / sample.reclaimed as f64);
    let ratio = ratio.ok_or("nothing was reclaimed: no pressure came about");
    add(RATIO, "pages/page", sample.reclaimed, ratio);
    let few = "the room was never reclaimed once over: give it more time";
    add(
        STEADY,
        "pages/page",
        sample.turnovers,
        sample.steady.ok_or(few),
    );
    let times = [
        (STALLED, &sample.stalled_ns),
        (SYSTEM_CPU, &sample.system_ns),
    ];
    if asked.load.reads() {
        let gib = sample.read as f64 / (1u64 << 30) as f64;
        add(
            "read",
            "GiB/s",
            1,
            Ok(gib / (sample.length_ns as f64 / 1e9)),
        );
        for (name, time) in times {
            let value = match time {
                Ok(_) if gib == 0.0 => Err("nothing was read"),
                Ok(ns) => Ok(*ns as f64 / 1e6 / gib),
                Err(why) => Err(why.as_str()),
            };
            add(name, "ms/GiB", 1, value);
        }
        for (name, time) in times {
            if let Err(why) = time {
                missing_once(measured, name, why);
            }
        }
    }
    let populated = asked
        .load
        .populates()
        .then_some((BLOCK, Ok(&sample.blocks)));
    let woken = [
        (WAKE_REALTIME, sample.realtime.as_ref()),
        (WAKE_ORDINARY, Ok(&sample.ordinary)),
    ];
    for (name, lengths) in populated.into_iter().chain(woken) {
        let block = lengths.map_err(String::as_str).and_then(|lengths| {
            let mut recorder = Recorder::new(asked.stall.0);
            for &(start, length) in lengths {
                recorder.record(start, length);
            }
            let block = recorder.into_block(run, sample.start_ns);
            block.ok_or("not once in the time that was counted")
        });
        match block {
            Ok(block) => measured.block(name, "ns", &parameters, [block]),
            Err(why) => measured.fail(name, "ns", &parameters, why),
        }
    }
    measured.count("pages_scanned", sample.scanned);
    measured.count("pages_reclaimed", sample.reclaimed);
    measured.count("bytes_read", sample.read);
}

/// Notes what could not be measured; the first reason stays.
pub(super) fn missing_once(measured: &mut Measured, what: &str, why: &str) {
    if measured.missing.iter().all(|missing| missing.what != what) {
        measured.note(what, why);
    }
}

/// Returns all that was measured, errors of single runs among what is missing.
pub(super) fn finish(mut measured: Measured, system: &dyn System) -> Measured {
    measured.settle_errors();
    let page = system.page_size().0 as f64;
    measured.facts.insert("page_size".to_owned(), page);
    measured
}
