//! Output of `stopgap watch --history`, JSON `stopgap.history/1`: waits of hours or days, added up by cause.
//!
//! All times are UTC; lengths are nanoseconds.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use stopgap_events::order::SortRows;

/// Name and version of the document's format.
pub const SCHEMA: &str = "stopgap.history/1";

/// The cause of waits for work, for a time or for a child: nobody loses time by them.
pub const IDLE: &str = "idle";

/// Most kinds of a document. The waits of other kinds are in its causes.
const MOST_KINDS: usize = 2_000;
/// Most kinds that are distinguished while rows are added up.
const MOST_KNOWN: usize = 100_000;
/// Number of periods of the picture.
const BINS: u64 = 48;
/// Nanoseconds: a longer time without a row is a gap, in which nobody watched. Rows of an old day span 10 minutes
/// each.
const GAP_NS: u64 = 30_000_000_000;
/// Most gaps that a document lists.
const MOST_GAPS: usize = 100;
const SECOND: u64 = 1_000_000_000;

/// Waits, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sum {
    /// Number of waits. A sleep and the time without a CPU after it are two.
    pub waits: u64,
    /// Sum of their lengths.
    pub ns: u64,
    /// Length of the longest wait.
    pub longest_ns: u64,
    /// Number of waits by length: at least this many nanoseconds, and less than the next key.
    #[serde(deserialize_with = "numbered")]
    pub buckets: BTreeMap<u64, u64>,
}

/// Reads a map with numbers as keys. JSON has them as text. serde reads a text as a number only if no `flatten` is
/// above it.
fn numbered<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u64, u64>, D::Error> {
    let texts: BTreeMap<String, u64> = BTreeMap::deserialize(from)?;
    let mut numbers = BTreeMap::new();
    for (begin, waits) in texts {
        numbers.insert(begin.parse().map_err(D::Error::custom)?, waits);
    }
    Ok(numbers)
}

impl Sum {
    /// Adds other waits.
    pub fn add(&mut self, other: &Sum) {
        self.waits = self.waits.saturating_add(other.waits);
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (&begin, &waits) in &other.buckets {
            let all = self.buckets.entry(begin).or_default();
            *all = all.saturating_add(waits);
        }
    }

    /// Returns the begin of the bucket of the wait that a share `q` of all waits do not exceed.
    #[must_use]
    pub fn at(&self, q: f64) -> Option<u64> {
        let all: u64 = self.buckets.values().sum();
        let rank = ((all as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let mut buckets = self.buckets.iter();
        buckets
            .find(|(_, waits)| {
                seen += *waits;
                seen >= rank
            })
            .map(|(&begin, _)| begin)
    }

    /// Returns the buckets in the format of the column `buckets` of a trace file: `1024:5 1280:2`.
    #[must_use]
    pub fn buckets_text(&self) -> String {
        let buckets = self.buckets.iter();
        let each: Vec<String> = buckets
            .map(|(begin, waits)| format!("{begin}:{waits}"))
            .collect();
        each.join(" ")
    }

    /// Reads the output of [`Sum::buckets_text`]; `None` for other text.
    #[must_use]
    pub fn buckets_of(text: &str) -> Option<BTreeMap<u64, u64>> {
        let mut buckets = BTreeMap::new();
        for pair in text.split_whitespace() {
            let (begin, waits) = pair.split_once(':')?;
            buckets.insert(begin.parse().ok()?, waits.parse().ok()?);
        }
        Some(buckets)
    }
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The history.
    #[serde(flatten)]
    pub history: History,
}

/// The kind of event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Begin of the requested time, in seconds since 1970.
    pub asked_from_unix_s: u64,
    /// Begin of the first row; the same as `to_unix_s` without rows.
    pub from_unix_s: u64,
    /// End of the history: now.
    pub to_unix_s: u64,
    /// How long was watched between the two.
    pub watched_ns: u64,
    /// Names of the machines.
    pub hosts: BTreeSet<String>,
    /// Number of boots.
    pub boots: u64,
    /// The result in one sentence.
    pub verdict: String,
    /// Time that all threads lost together: all waits except idle ones.
    pub lost_ns: u64,
    /// Waits by cause, the most time first; idle waits last.
    pub causes: Vec<OfCause>,
    /// Waits by cause, process and call, the most time first; idle waits last.
    pub kinds: Vec<OfKind>,
    /// Number of kinds that are not listed.
    pub kinds_left_out: u64,
    /// Lost time by period; all periods have the same length.
    pub bins: Vec<Bin>,
    /// Times in which nobody watched.
    pub gaps: Vec<Gap>,
    /// Rows that are later than now: the clock was set back.
    pub rows_of_the_future: u64,
    /// Files of which all rows, or the last rows, could not be read.
    pub unread: Vec<Unread>,
}

/// Waits of one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfCause {
    /// The cause, a word of `explain`, or `idle`.
    pub cause: String,
    /// The waits.
    #[serde(flatten)]
    pub sum: Sum,
}

/// Waits with one cause, in one call, of the processes of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfKind {
    /// The cause.
    pub cause: String,
    /// The name of the processes; null for others, for which there was no room.
    pub process: Option<String>,
    /// Their cgroup, where it is known.
    pub cgroup: Option<String>,
    /// The call, or `fault` for a page fault; null outside of both.
    pub call: Option<String>,
    /// The waits.
    #[serde(flatten)]
    pub sum: Sum,
}

/// A period of the picture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Its begin.
    pub unix_s: u64,
    /// Its length.
    pub length_ns: u64,
    /// How long was watched in it.
    pub watched_ns: u64,
    /// Time that threads lost, by cause.
    pub lost_ns: BTreeMap<String, u64>,
}

/// A time in which nobody watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Begin.
    pub from_unix_s: u64,
    /// End.
    pub to_unix_s: u64,
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// Its name.
    pub file: String,
    /// The reason.
    pub why: String,
}

/// The cause, processes and call of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The cause.
    pub cause: String,
    /// The name of the processes.
    pub process: Option<String>,
    /// Their cgroup.
    pub cgroup: Option<String>,
    /// The call.
    pub call: Option<String>,
}

/// Adds up rows.
#[derive(Debug)]
pub struct Adder {
    asked: u64,
    to: u64,
    windows: BTreeSet<(u64, u64)>,
    boots: BTreeSet<String>,
    causes: BTreeMap<String, Sum>,
    kinds: BTreeMap<Key, Sum>,
    /// Lost time by period and cause.
    lost: BTreeMap<((u64, u64), String), u64>,
    future: u64,
}

impl Adder {
    /// Creates an empty sum, for rows between the two times in nanoseconds since 1970.
    #[must_use]
    pub fn new(from: u64, to: u64) -> Adder {
        Adder {
            asked: from,
            to,
            windows: BTreeSet::new(),
            boots: BTreeSet::new(),
            causes: BTreeMap::new(),
            kinds: BTreeMap::new(),
            lost: BTreeMap::new(),
            future: 0,
        }
    }

    /// Adds a row of waits that ended between `begin` and `end`, nanoseconds since 1970.
    pub fn add(&mut self, (begin, end): (u64, u64), boot: Option<&str>, key: Key, sum: &Sum) {
        if end <= self.asked {
            return;
        }
        // Clocks are read to the second.
        if begin > self.to + SECOND {
            self.future += 1;
            return;
        }
        self.windows.insert((begin, end.max(begin)));
        if let Some(boot) = boot
            && !self.boots.contains(boot)
        {
            self.boots.insert(boot.to_owned());
        }
        let cause = key.cause.clone();
        self.causes.entry(cause.clone()).or_default().add(sum);
        if cause != IDLE {
            let lost = self.lost.entry(((begin, end), cause.clone())).or_default();
            *lost = lost.saturating_add(sum.ns);
        }
        // When there is no more room, only the cause is kept.
        let key = match self.kinds.len() >= MOST_KNOWN && !self.kinds.contains_key(&key) {
            true => Key {
                cause,
                process: None,
                cgroup: None,
                call: None,
            },
            false => key,
        };
        self.kinds.entry(key).or_default().add(sum);
    }

    /// Returns the sums.
    #[must_use]
    pub fn finish(self, hosts: BTreeSet<String>, unread: Vec<Unread>) -> History {
        let first = self.windows.first().map_or(self.to, |window| window.0);
        let from = first.max(self.asked);
        let mut watched = 0;
        let mut gaps = Vec::new();
        // End of the time that is known to be watched so far.
        let mut at = first;
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for &(begin, end) in &self.windows {
            if begin > at.saturating_add(GAP_NS) {
                gaps.push(Gap {
                    from_unix_s: at / SECOND,
                    to_unix_s: begin / SECOND,
                });
            }
            let new = begin.max(at);
            if end > new {
                watched += end - new;
                spans.push((new, end));
            }
            at = at.max(end);
        }
        if !self.windows.is_empty() && self.to > at.saturating_add(GAP_NS) {
            gaps.push(Gap {
                from_unix_s: at / SECOND,
                to_unix_s: self.to / SECOND,
            });
        }
        gaps.truncate(MOST_GAPS);
        let lost_ns = self
            .lost
            .values()
            .fold(0, |all: u64, ns| all.saturating_add(*ns));
        let bins = bins((from, self.to.max(at)), &spans, &self.lost);
        let idle_last = |cause: &str, sum: &Sum| (cause == IDLE, u64::MAX - sum.ns);
        let causes = self.causes.into_iter();
        let mut causes: Vec<OfCause> = causes.map(|(cause, sum)| OfCause { cause, sum }).collect();
        causes.sort_rows_by_key(|of| idle_last(&of.cause, &of.sum));
        let kinds = self.kinds.into_iter().map(|(key, sum)| OfKind {
            cause: key.cause,
            process: key.process,
            cgroup: key.cgroup,
            call: key.call,
            sum,
        });
        let mut kinds: Vec<OfKind> = kinds.collect();
        kinds.sort_rows_by_key(|of| idle_last(&of.cause, &of.sum));
        let verdict = verdict(watched, lost_ns, &causes, &kinds);
        let left_out = kinds.len().saturating_sub(MOST_KINDS);
        kinds.truncate(MOST_KINDS);
        History {
            asked_from_unix_s: self.asked / SECOND,
            from_unix_s: from / SECOND,
            to_unix_s: self.to / SECOND,
            watched_ns: watched,
            hosts,
            boots: self.boots.len() as u64,
            verdict,
            lost_ns,
            causes,
            kinds,
            kinds_left_out: left_out as u64,
            bins,
            gaps,
            rows_of_the_future: self.future,
            unread,
        }
    }
}

/// Distributes lost time over periods of the same length.
fn bins(
    (from, to): (u64, u64),
    spans: &[(u64, u64)],
    lost: &BTreeMap<((u64, u64), String), u64>,
) -> Vec<Bin> {
    // A period is a whole number of seconds, and no shorter than a row.
    let length = (to.saturating_sub(from) / BINS)
        .next_multiple_of(SECOND)
        .max(10 * SECOND);
    let count = to.saturating_sub(from).div_ceil(length).min(BINS);
    let mut bins: Vec<Bin> = (0..count)
        .map(|bin| Bin {
            unix_s: (from + bin * length) / SECOND,
            length_ns: length,
            ..Bin::default()
        })
        .collect();
    // Returns the parts of a window that are in each period.
    let pieces = |(begin, end): (u64, u64)| {
        let (begin, end) = (begin.max(from), end.min(to).max(from));
        let (first, last) = ((begin - from) / length, (end - from) / length);
        (first..=last).map(move |bin| {
            let (low, high) = (from + bin * length, from + (bin + 1) * length);
            let piece = end.min(high).saturating_sub(begin.max(low));
            (usize::try_from(bin).unwrap_or(usize::MAX), piece)
        })
    };
    for &span in spans {
        for (bin, piece) in pieces(span) {
            if let Some(bin) = bins.get_mut(bin) {
                bin.watched_ns += piece;
            }
        }
    }
    for (((begin, end), cause), ns) in lost {
        let whole = end.min(&to).saturating_sub((*begin).max(from)).max(1);
        for (bin, piece) in pieces((*begin, *end)) {
            let Some(bin) = bins.get_mut(bin) else {
                continue;
            };
            let part = (*ns as f64 * piece as f64 / whole as f64) as u64;
            *bin.lost_ns.entry(cause.clone()).or_default() += part;
        }
    }
    bins
}

/// Returns a length in words: `41 min`.
#[must_use]
pub fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// Returns the names of a process and a call: `postgres in fdatasync`.
#[must_use]
pub fn name_of(kind: &OfKind) -> String {
    let process = kind.process.as_deref().unwrap_or("others");
    match kind.call.as_deref() {
        Some("fault") => format!("{process} in page faults"),
        Some(call) => format!("{process} in {call}"),
        None => process.to_owned(),
    }
}

/// Returns in words what threads do that lose time for a cause.
#[must_use]
pub fn doing(cause: &str) -> &str {
    match cause {
        "run-queue" => "waiting for a CPU",
        "cpu-quota" => "waiting for a new CPU quota",
        "io" => "waiting for the disk",
        "lock" => "waiting for a lock",
        "mmap_lock" => "waiting for an address space (mmap_lock)",
        "answer" => "waiting for an answer of another thread",
        "child" => "waiting for a child or a joined thread",
        "fence" => "waiting for a device (fence)",
        "rcu" => "waiting for RCU",
        "direct-reclaim" => "freeing memory (direct reclaim)",
        "memcg-reclaim" => "freeing memory of their control group",
        "compaction" => "moving memory together (compaction)",
        "shrinker" => "freeing memory of drivers and caches (shrinkers)",
        "throttled" => "held back by reclaim (throttled)",
        "stopped" => "stopped by a signal",
        "unknown" => "asleep, and nothing says why",
        other => other,
    }
}

fn verdict(watched: u64, lost: u64, causes: &[OfCause], kinds: &[OfKind]) -> String {
    let worst = causes
        .first()
        .filter(|of| of.cause != IDLE && of.sum.ns > 0);
    let Some(worst) = worst else {
        return match watched {
            0 => "nothing was watched in this time".to_owned(),
            _ => format!("no thread lost time in {} of watching", time(watched)),
        };
    };
    let of_it = kinds.iter().find(|of| of.cause == worst.cause);
    let most = of_it.map_or(String::new(), |of| {
        format!(", most of it {}: {}", name_of(of), time(of.sum.ns))
    });
    format!(
        "threads lost most time {}: {:.0} % of the {} that all lost in {} of watching{most}",
        doing(&worst.cause),
        worst.sum.ns as f64 / lost.max(1) as f64 * 100.0,
        time(lost),
        time(watched),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cause: &str, process: &str) -> Key {
        Key {
            cause: cause.to_owned(),
            process: Some(process.to_owned()),
            cgroup: None,
            call: Some("read".to_owned()),
        }
    }

    fn sum(waits: u64, each: u64) -> Sum {
        Sum {
            waits,
            ns: waits * each,
            longest_ns: each,
            buckets: [(each, waits)].into(),
        }
    }

    const S: u64 = SECOND;

    #[test]
    fn rows_add_up_by_cause_process_and_time() {
        let mut adder = Adder::new(1_000 * S, 2_000 * S);
        let boot = Some("b");
        adder.add((990 * S, 1_000 * S), boot, key("io", "old"), &sum(1, S));
        adder.add((1_000 * S, 1_010 * S), boot, key("io", "db"), &sum(3, S));
        adder.add(
            (1_000 * S, 1_010 * S),
            boot,
            key("idle", "db"),
            &sum(9, 9 * S),
        );
        adder.add((1_010 * S, 1_020 * S), boot, key("io", "web"), &sum(2, S));
        adder.add(
            (1_100 * S, 1_110 * S),
            boot,
            key("run-queue", "db"),
            &sum(1, S),
        );
        adder.add((2_100 * S, 2_110 * S), boot, key("io", "db"), &sum(1, S));
        let history = adder.finish(BTreeSet::new(), Vec::new());
        assert_eq!(
            history.verdict,
            "threads lost most time waiting for the disk: 83 % of the 6.0 s that all lost in 30.0 s of watching, most of it db in read: 3.0 s"
        );
        let causes: Vec<(&str, u64)> = history
            .causes
            .iter()
            .map(|of| (&*of.cause, of.sum.ns / S))
            .collect();
        assert_eq!(causes, [("io", 5), ("run-queue", 1), ("idle", 81)]);
        assert_eq!(
            (history.from_unix_s, history.rows_of_the_future),
            (1_000, 1)
        );
        assert_eq!(history.boots, 1);
        let gaps: Vec<(u64, u64)> = history
            .gaps
            .iter()
            .map(|gap| (gap.from_unix_s, gap.to_unix_s))
            .collect();
        assert_eq!(gaps, [(1_020, 1_100), (1_110, 2_000)]);
        let in_bins: u64 = history
            .bins
            .iter()
            .flat_map(|bin| bin.lost_ns.values())
            .sum();
        assert!((6 * S - 10..=6 * S).contains(&in_bins), "{in_bins}");
        let watched: u64 = history.bins.iter().map(|bin| bin.watched_ns).sum();
        assert_eq!(watched, 30 * S);
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let history = Adder::new(0, 100 * S).finish(BTreeSet::new(), Vec::new());
        assert_eq!(history.verdict, "nothing was watched in this time");
        assert!(history.gaps.is_empty());
    }

    #[test]
    fn buckets_read_back() {
        let mut all = sum(5, 1_024);
        all.add(&sum(2, 1_280));
        assert_eq!(all.buckets_text(), "1024:5 1280:2");
        assert_eq!(Sum::buckets_of("1024:5 1280:2").unwrap(), all.buckets);
        assert_eq!(Sum::buckets_of("").unwrap(), BTreeMap::new());
        for wrong in ["1024", "x:1", "1:-1", "1:1:1"] {
            assert_eq!(Sum::buckets_of(wrong), None, "{wrong}");
        }
        assert_eq!(
            (all.at(0.5), all.at(0.9), Sum::default().at(0.5)),
            (Some(1_024), Some(1_280), None)
        );
    }
}
