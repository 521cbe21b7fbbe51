//! Finds measured figures again and puts them into lines.

use stopgap_events::units::Bytes;
use stopgap_kernel::holds::Way;
use stopgap_stats::record::Series;
use stopgap_stats::separation::Separation;

use super::gather::{
    ANONYMOUS, BLOCK, CGROUP, CULLED, RATIO, STALLED, STEADY, SYSTEM_CPU, UNEVICTABLE,
    WAKE_ORDINARY, WAKE_REALTIME,
};
use super::{Mode, PressureParameters};
use crate::contract::Measured;

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
        modes.sort_by_key(|mode| match mode {
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

/// What is said of no set and of each mode, between commas; `None` where nothing is.
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
