//! Finds measured figures again and puts them into lines.

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;
use stopgap_kernel::files::read_number;
use stopgap_kernel::holds::Way;
use stopgap_kernel::{System, environment, swap};
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::{Block, Series, parameters};
use stopgap_stats::separation::Separation;

use super::cost::{Row, Task};
use super::pressure::{Beside, Sample};
use super::{Mode, PressureParameters};
use crate::contract::{Measured, Parameters};

/// What tells modes apart, or does not: the series, what it is, its unit, and what its numbers are divided
/// by to be shown so.
const METRICS: [(&str, &str, &str, f64); 7] = [
    (RATIO, "pages scanned per page reclaimed", "", 1.0),
    (STEADY, "the same between storms", "", 1.0),
    (STALLED, "memory stall (PSI, some)", " ms per GiB read", 1.0),
    (SYSTEM_CPU, "system CPU", " ms per GiB read", 1.0),
    (BLOCK, "median wait to populate a block", " ms", 1e6),
    (
        WAKE_REALTIME,
        "median wake-up of a real-time thread",
        " us",
        1e3,
    ),
    (
        WAKE_ORDINARY,
        "median wake-up of an ordinary thread",
        " us",
        1e3,
    ),
];

pub(super) struct Evidence<'a> {
    pub(super) measured: &'a Measured,
    /// The load that was asked for.
    pub(super) asked: Option<&'a PressureParameters>,
    pub(super) seed: u64,
}

impl Evidence<'_> {
    /// A series of the load beside a mode, where `pinned` is held or missing.
    pub(super) fn find(&self, name: &str, mode: Mode, pinned: Bytes) -> Option<&Series> {
        let room = self.asked?.room(pinned).0.into();
        let wanted = [("mode", mode.word().into()), ("room", room)];
        let mut series = self.measured.series.iter();
        series.find(|series| series.is(name, &wanted))
    }

    /// The median thread CPU time a page of a step of the cost experiment.
    fn cost(&self, step: &str, mode: &str) -> Option<f64> {
        let wanted = |s: &&Series| {
            s.name == step && s.word("mode") == Some(mode) && s.word("clock") == Some("thread CPU")
        };
        self.measured.series.iter().find(wanted)?.median()
    }

    /// The cost of the last pass.
    pub(super) fn later_pass(&self, mode: &str) -> Option<f64> {
        let passes = (2..).map_while(|pass| self.cost(&format!("pass {pass}"), mode));
        passes.last()
    }

    /// Kind of the swap in use.
    pub(super) fn swap(&self) -> Option<&str> {
        self.measured.series.iter().find_map(|s| s.word("swap"))
    }

    fn lru(&self) -> Option<&str> {
        self.measured.series.iter().find_map(|s| s.word("lru"))
    }

    /// What of the machine must stand in the verdict: `; swap on zram; multi-generational LRU, ...`.
    pub(super) fn machine_words(&self) -> String {
        let mut words = String::new();
        if self.swap().is_some_and(|swap| swap.contains("zram")) {
            words.push_str("; swap on zram");
        }
        if self.lru() == Some("multi-generational") {
            words.push_str(
                "; multi-generational LRU: this probe was not validated on such a kernel",
            );
        }
        if self.measured.facts.get(CGROUP) == Some(&2.0) {
            words.push_str("; cgroup version 2: this probe was not validated on a live one");
        }
        words
    }

    /// One line a mode: what it costs a page.
    pub(super) fn cost_lines(&self, modes: &[Mode]) -> Vec<String> {
        let line = |mode: &Mode| {
            let name = mode.word();
            let mut parts = Vec::new();
            let mut say = |cost: Option<f64>, what: &str| {
                if let Some(cost) = cost {
                    parts.push(format!("{} {what}", nanos(cost)));
                }
            };
            say(self.cost("take", name), "to take");
            say(self.cost("release", name), "to release");
            say(self.cost("pass 1", name), "for the first pass of reclaim");
            say(self.later_pass(name), "for each later pass");
            say(
                self.cost("forced reclaim", name),
                "for a forced reclaim of its group",
            );
            (!parts.is_empty())
                .then(|| format!("{}: ns a page: {}", mode.words(), parts.join(", ")))
        };
        // Pinned memory is what the question is about.
        let mut modes = modes.to_vec();
        modes.sort_rows_by_key(|mode| match mode {
            mode if mode.pins() => 0,
            Mode::Held(_) => 1,
            _ => 2,
        });
        let lines = modes.iter().filter_map(line);
        self.proportions().into_iter().chain(lines).collect()
    }

    /// Returns a line for each mode of which a part gave nothing at all, with the reason: else nobody would miss it.
    pub(super) fn failed_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for series in &self.measured.series {
            let part = match series.name.as_str() {
                "take" | "memory" => "its cost",
                RATIO => "beside the load",
                _ => continue,
            };
            let mode = series
                .word("mode")
                .and_then(|word| word.parse::<Mode>().ok());
            if let (Some(mode), Some(why)) = (mode, &series.error) {
                let line = format!("{}, {part}: not measured: {why}", mode.words());
                if !lines.contains(&line) {
                    lines.push(line); // one for both clocks
                }
            }
        }
        lines
    }

    /// How the ways compare, in the words of mail 004.
    fn proportions(&self) -> Option<String> {
        let word = Way::word;
        let lock = self.cost("take", word(Way::Mlock))?;
        let flag = self.cost("take", word(Way::ShmLock))?;
        let lazily = self.cost("pass 1", word(Way::ShmLock))?;
        let culled = self.later_pass(word(Way::ShmLock))?;
        let pinned = self.later_pass(word(Way::Vmsplice))?;
        Some(format!(
            "flagging the mapping (SHM_LOCK) is {:.0} times cheaper to take than mlock, and pays {lazily:.0} ns a \
             page when reclaim first meets it; on later passes references cost {:.1} times what it costs",
            lock / flag.max(0.01),
            pinned / culled.max(0.01),
        ))
    }

    /// Returns what the load gave beside each mode, and which modes differ by it.
    pub(super) fn load_lines(&self, asked: &PressureParameters) -> Vec<String> {
        let mut lines = Vec::new();
        for &pinned in &asked.pinned {
            let title = match asked.pinned.len() {
                1 => String::new(),
                _ => format!("{pinned} of {}: ", asked.limit),
            };
            let metrics = METRICS.iter();
            let of_set = metrics
                .filter_map(|metric| self.line(metric, asked, pinned))
                .chain(self.longest(asked, pinned))
                .chain(self.lists(asked, pinned));
            lines.extend(of_set.map(|line| format!("{title}{line}")));
        }
        lines
    }

    fn line(
        &self,
        &(name, words, unit, divisor): &(&str, &str, &str, f64),
        asked: &PressureParameters,
        pinned: Bytes,
    ) -> Option<String> {
        let runs = |mode: Mode| -> Option<Vec<f64>> {
            let series = self.find(name, mode, pinned)?;
            (!series.blocks.is_empty()).then(|| series.blocks.iter().map(|b| b.value).collect())
        };
        let median = |mode: Mode| self.find(name, mode, pinned).and_then(Series::median);
        let digits = if matches!(name, RATIO | STEADY) { 2 } else { 1 };
        let parts = of_modes(asked, |mode| {
            let value = median(mode)? / divisor;
            Some(format!("{value:.digits$} {}", mode.word()))
        })?;
        let apart = |one: Mode, other: Mode| {
            let found = Separation::between(&runs(one)?, &runs(other)?, self.seed)?;
            let auc = found.auc;
            let word = if found.separates() {
                "separated"
            } else {
                "not separated"
            };
            Some(format!(
                "; {one} against {other} AUC {:.2} ({:.2}..{:.2}): {word}",
                auc.value, auc.low, auc.high
            ))
        };
        let pinned = asked.modes.iter().copied().filter(|mode| mode.pins());
        let lock = Mode::Held(Way::Mlock);
        let apart: String = pinned
            .map(|mode| (mode, lock))
            .chain([(Mode::Held(Way::ShmLock), lock)])
            .filter_map(|(one, other)| apart(one, other))
            .collect();
        Some(format!("{words}: {parts}{unit}{apart}"))
    }

    /// The longest wait of all runs, of each mode. A maximum separates nothing, and is felt.
    fn longest(&self, asked: &PressureParameters, pinned: Bytes) -> Option<String> {
        let longest = |mode: Mode| {
            let blocks = &self.find(BLOCK, mode, pinned)?.blocks;
            let most = blocks
                .iter()
                .filter_map(|b| b.histogram.as_ref()?.max())
                .max()?;
            let ms = most as f64 / 1e6;
            Some(format!("{ms:.1} {}", mode.word()))
        };
        let parts = of_modes(asked, longest)?;
        Some(format!("longest wait to populate a block: {parts} ms"))
    }

    /// Where the pages were, and what reclaim did about them.
    fn lists(&self, asked: &PressureParameters, pinned: Bytes) -> Option<String> {
        let parts = of_modes(asked, |mode| {
            let of = |name| self.find(name, mode, pinned).and_then(Series::median);
            let (scanned, culled) = (of(ANONYMOUS)?, of(CULLED)?);
            let last = of(UNEVICTABLE)?;
            Some(format!(
                "{} {scanned:.0}/{culled:.0}/{last:.0}",
                mode.word()
            ))
        })?;
        let what = "pages: anonymous scanned/culled meanwhile/unevictable at the end";
        Some(format!("{what}: {parts}"))
    }

    pub(super) fn machine_line(&self) -> Option<String> {
        let (lru, swap) = (self.lru()?, self.swap()?);
        let swapless = if swap == "none" {
            ": a pass of reclaim can only look at anonymous pages and put them back"
        } else {
            ""
        };
        let swappiness = self
            .measured
            .series
            .iter()
            .find_map(|s| s.number("swappiness"));
        let swappiness = swappiness.map_or(String::new(), |s| format!(", swappiness {s}"));
        Some(format!("{lru} LRU, swap: {swap}{swapless}{swappiness}"))
    }
}

/// Joins what `say` gives for no set and for each mode; `None` where it gives nothing.
fn of_modes(asked: &PressureParameters, say: impl Fn(Mode) -> Option<String>) -> Option<String> {
    let others = asked.modes.iter().filter(|mode| **mode != Mode::None);
    let modes = std::iter::once(&Mode::None).chain(others);
    let parts: Vec<String> = modes.filter_map(|mode| say(*mode)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A cost with as many digits as it deserves.
fn nanos(cost: f64) -> String {
    if cost < 10.0 {
        format!("{cost:.1}")
    } else {
        format!("{cost:.0}")
    }
}

// Adds what the children measured to the series and counters.

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
