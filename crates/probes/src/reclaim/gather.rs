//! What the children gave, as series, counters and words.

use stopgap_events::machine::{Counter, Missing};
use stopgap_events::units::Nanos;
use stopgap_kernel::files::read_number;
use stopgap_kernel::{System, environment, swap};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::Parameter;

use super::cost::{Row, Task};
use super::parameters::PressureParameters;
use super::pressure::{Beside, Sample};
use super::series::{Collector, Parameters};
use crate::contract::{Context, Measured};

/// The kernel's LRU as a word, and whether it is the multi-generational one.
pub(super) fn lru(system: &dyn System) -> (&'static str, Option<bool>) {
    match environment::mglru(system) {
        Ok(true) => ("multi-generational", Some(true)),
        Ok(false) => ("classic", Some(false)),
        Err(_) => ("unknown", None),
    }
}

/// What the machine is, as words on every series.
fn machine(system: &dyn System) -> Parameters {
    let swap = swap::in_use(system).map_or("unknown".to_owned(), |(kind, _)| kind);
    let mut parameters = Parameters::new();
    parameters.insert("swap".to_owned(), swap.into());
    parameters.insert("lru".to_owned(), lru(system).0.into());
    parameters
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

/// Under what a load ran. `limit` is its group's: of `none` it is lower by the set that is not there, so
/// that `room` is the same for all modes of one share.
pub(super) fn load_parameters(system: &dyn System, beside: &Beside) -> Parameters {
    let mut parameters = machine(system);
    for (name, value) in [
        ("mode", Parameter::from(beside.mode.word())),
        ("load", beside.load.word().into()),
        ("pinned", beside.set().0.into()),
        ("limit", beside.limit().0.into()),
        ("room", beside.room.0.into()),
        ("file", beside.file.0.into()),
        ("block", beside.block.0.into()),
    ] {
        parameters.insert(name.to_owned(), value);
    }
    let machines = read_number::<_, u32>(system, "/proc/sys/vm/swappiness").ok();
    if let Some(swappiness) = beside.swappiness.or(machines) {
        parameters.insert("swappiness".to_owned(), swappiness.into());
    }
    parameters
}

/// What has been measured so far.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) collector: Collector,
    pub(super) missing: Vec<Missing>,
    loads: u32,
    totals: [u64; 3],
    pub(super) peak: u64,
    pub(super) facts: std::collections::BTreeMap<String, f64>,
    interrupted: bool,
}

impl Gathered {
    pub(super) fn stop(&mut self, context: &Context<'_>) -> bool {
        self.interrupted |= (context.interrupted)();
        self.interrupted
    }

    /// Whether the probe's time has passed since `begun` and enough runs are made, or it is overdue; says what is
    /// left out then.
    pub(super) fn over(
        &mut self,
        context: &Context<'_>,
        what: &str,
        begun: Nanos,
        made: u32,
        asked: u32,
    ) -> bool {
        let over = context.enough(begun, made) || context.overdue(begun);
        if over {
            let left = format!("{what}, {} of {asked} runs", asked - made);
            self.missing.push(context.left_out(left));
        }
        over
    }

    pub(super) fn left_behind(&mut self, errors: Vec<stopgap_kernel::Error>) {
        for error in errors {
            let why = format!("{error}; `stopgap restore` tries again");
            self.missing
                .push(Missing::new("putting everything back", why));
        }
    }

    pub(super) fn missing_once(&mut self, what: &str, why: &str) {
        if self.missing.iter().all(|missing| missing.what != what) {
            self.missing.push(Missing::new(what, why));
        }
    }

    pub(super) fn keep_cost(&mut self, system: &dyn System, run: u32, task: &Task, row: &Row) {
        let pages = task.bytes.pages(system.page_size()).0;
        let mut parameters = machine(system);
        parameters.insert("mode".to_owned(), task.mode.word().into());
        parameters.insert("bytes".to_owned(), task.bytes.0.into());
        for clock in ["thread CPU", "elapsed"] {
            parameters.insert("clock".to_owned(), clock.into());
            match &row.value {
                Ok((cpu, elapsed)) => {
                    let value = if clock == "elapsed" { elapsed } else { cpu };
                    let block = (run, row.start_ns, pages);
                    self.collector
                        .number(&row.name, "ns/page", &parameters, block, *value);
                }
                Err(why) => self.collector.fail(&row.name, "ns/page", &parameters, why),
            }
        }
    }

    pub(super) fn keep_sample(
        &mut self,
        system: &dyn System,
        run: u32,
        asked: &PressureParameters,
        beside: &Beside,
        sample: &Sample,
    ) {
        let parameters = load_parameters(system, beside);
        let block = |samples| (run, sample.start_ns, samples);
        let gib = sample.read as f64 / (1u64 << 30) as f64;
        let out = &mut self.collector;
        let mut pages = |name: &str, pages: Option<u64>| match pages {
            Some(pages) => out.number(name, "pages", &parameters, block(1), pages as f64),
            None => out.fail(
                name,
                "pages",
                &parameters,
                "this kernel does not count them",
            ),
        };
        pages(SCANNED, Some(sample.scanned));
        pages(RECLAIMED, Some(sample.reclaimed));
        pages(ANONYMOUS, sample.anonymous);
        pages(CULLED, sample.culled);
        pages(UNEVICTABLE, sample.unevictable);
        let ratio = (sample.reclaimed > 0).then(|| sample.scanned as f64 / sample.reclaimed as f64);
        let few = "the room was never reclaimed once over: give it more time";
        let nothing = "nothing was reclaimed: no pressure came about";
        for (name, samples, value, why) in [
            (RATIO, sample.reclaimed, ratio, nothing),
            (STEADY, sample.turnovers, sample.steady, few),
        ] {
            match value {
                Some(value) => out.number(name, "pages/page", &parameters, block(samples), value),
                None => out.fail(name, "pages/page", &parameters, why),
            }
        }
        if asked.load.reads() {
            let elapsed = sample.length_ns as f64 / 1e9;
            out.number("read", "GiB/s", &parameters, block(1), gib / elapsed);
            for (name, time) in [
                (STALLED, &sample.stalled_ns),
                (SYSTEM_CPU, &sample.system_ns),
            ] {
                match time {
                    Ok(_) if gib == 0.0 => {
                        out.fail(name, "ms/GiB", &parameters, "nothing was read");
                    }
                    Ok(ns) => {
                        let value = *ns as f64 / 1e6 / gib;
                        out.number(name, "ms/GiB", &parameters, block(1), value);
                    }
                    Err(why) => {
                        out.fail(name, "ms/GiB", &parameters, why);
                        if self.missing.iter().all(|missing| missing.what != name) {
                            self.missing.push(Missing::new(name, why));
                        }
                    }
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
            let mut recorder = Recorder::new(asked.stall.0);
            let lengths = match lengths {
                Ok(lengths) => lengths,
                Err(why) => {
                    out.fail(name, "ns", &parameters, why);
                    continue;
                }
            };
            for &(start, length) in lengths {
                recorder.record(start, length);
            }
            match recorder.into_block(run, sample.start_ns) {
                Some(block) => out.add(name, "ns", &parameters, block),
                None => out.fail(
                    name,
                    "ns",
                    &parameters,
                    "not once in the time that was counted",
                ),
            }
        }
        self.loads += 1;
        self.totals[0] += sample.scanned;
        self.totals[1] += sample.reclaimed;
        self.totals[2] += sample.read;
    }

    pub(super) fn finish(mut self, system: &dyn System) -> Measured {
        let (series, partly) = self.collector.finish();
        for (what, why) in partly {
            self.missing.push(Missing::new(what, why));
        }
        let mut facts = std::mem::take(&mut self.facts);
        facts.insert("page_size".to_owned(), system.page_size().0 as f64);
        let names = ["pages_scanned", "pages_reclaimed", "bytes_read"];
        // Where no load ran these are unknown, not 0.
        let names = if self.loads == 0 { &names[..0] } else { &names };
        let counters = names.iter().zip(self.totals).map(|(name, value)| Counter {
            name: (*name).to_owned(),
            value,
        });
        Measured {
            series,
            counters: counters.collect(),
            losses: Vec::new(),
            missing: self.missing,
            facts,
            snapshots: Vec::new(),
            peak_resident: self.peak,
            interrupted: self.interrupted,
        }
    }
}
