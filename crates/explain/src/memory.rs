//! Mappings over time, and reclaim by task.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use stopgap_events::memory::MemoryEvent;
use stopgap_events::order::SortRows;
use stopgap_stats::explain::{Live, Memory, Reclaim};
use stopgap_trace::{Metadata, Text};

use crate::interval::What;
use crate::space::Spaces;

/// Most points of a curve. If there are more, each point stands for twice as much time.
const POINTS: usize = 256;
/// Most counters of mappings that are kept.
const PROCESSES: usize = 1024;

/// A curve with a bounded number of points: the largest value of each stretch of time.
#[derive(Debug, Default)]
struct Curve {
    points: Vec<(u64, i64)>,
    /// Length of a stretch in nanoseconds, a power of two.
    stretch: u64,
}

impl Curve {
    fn add(&mut self, at: u64, value: i64) {
        self.stretch = self.stretch.max(1);
        add(&mut self.points, self.stretch, (at, value));
        while self.points.len() > POINTS {
            self.stretch *= 2;
            for point in std::mem::take(&mut self.points) {
                add(&mut self.points, self.stretch, point);
            }
        }
    }
}

/// Adds a point. If two points are in one stretch of time, the larger stays.
fn add(points: &mut Vec<(u64, i64)>, stretch: u64, point: (u64, i64)) {
    match points.last_mut() {
        Some(last) if last.0 / stretch == point.0 / stretch => {
            if point.1 > last.1 {
                *last = point;
            }
        }
        _ => points.push(point),
    }
}

/// Counts of maps, unmaps and reclaim.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Whether the trace is from a recorder. Then its memory events are the mappings that existed when it began.
    recorded: bool,
    /// Maps and unmaps by memory events.
    events: Option<(u64, u64)>,
    /// Maps and unmaps by system calls that succeeded.
    calls: Option<(u64, u64)>,
    live: i64,
    of_events: Followed,
    /// Counters by name and process.
    counters: BTreeMap<(Text, Option<u32>), Followed>,
    reclaim: BTreeMap<(Text, &'static str, Option<Text>), Sum>,
}

#[derive(Default)]
pub(crate) struct Followed {
    curve: Curve,
    first: Option<i64>,
    last: i64,
    most: i64,
}

#[derive(Default)]
struct Sum {
    count: u64,
    wall: u64,
    most: u64,
    scanned: Option<u64>,
    reclaimed: Option<u64>,
}

impl Followed {
    pub(crate) fn add(&mut self, at: u64, value: i64) {
        self.most = self.first.map_or(value, |_| self.most.max(value));
        self.first.get_or_insert(value);
        self.last = value;
        self.curve.add(at, value);
    }

    pub(crate) fn to_record(&self, source: &str) -> Option<Live> {
        Some(Live {
            source: source.to_owned(),
            first: self.first?,
            last: self.last,
            most: self.most,
            points: self.curve.points.clone(),
        })
    }
}

/// Recorded events that include every call that maps or unmaps: if none came, there was no such call.
const ALL_CALLS: [&str; 2] = ["bpf:sys_munmap", "bpf:sys_exit"];

impl Mappings {
    /// Creates counts for the trace that `metadata` describes.
    pub(crate) fn new(metadata: &Metadata) -> Mappings {
        let mut events = metadata.events.iter().flatten();
        Mappings {
            recorded: metadata.events.is_some(),
            calls: events
                .any(|event| ALL_CALLS.contains(&event.as_str()))
                .then_some((0, 0)),
            ..Mappings::default()
        }
    }

    /// Returns the number of counters and kinds of reclaim that are kept.
    pub(crate) fn len(&self) -> usize {
        self.counters.len() + self.reclaim.len()
    }

    /// Takes a memory event, `at` nanoseconds after the first event.
    pub(crate) fn event(&mut self, at: u64, event: &MemoryEvent) {
        let (maps, unmaps) = match event {
            MemoryEvent::Map { .. } => (1, 0),
            MemoryEvent::Unmap { .. } => (0, 1),
            _ => return,
        };
        if !self.recorded {
            let events = self.events.get_or_insert((0, 0));
            events.0 += maps;
            events.1 += unmaps;
        }
        self.live += if maps > 0 { 1 } else { -1 };
        self.of_events.add(at, self.live);
    }

    /// Takes a system call that has ended.
    pub(crate) fn call(&mut self, name: &str, result: Option<i64>) {
        let (maps, unmaps) = match name {
            "mmap" | "mmap2" => (1, 0),
            "munmap" => (0, 1),
            _ => return,
        };
        let calls = self.calls.get_or_insert((0, 0));
        // Only results in the last page are errors. Addresses above 2^63 are not.
        if result.is_none_or(|result| !(-4095..0).contains(&result)) {
            calls.0 += maps;
            calls.1 += unmaps;
        }
    }

    /// Takes a counter, and follows it if it counts mappings.
    pub(crate) fn counter(&mut self, at: u64, name: &Text, pid: Option<u32>, value: i64) {
        let key = (Text::clone(name), pid);
        let room = self.counters.len() < PROCESSES;
        if name.contains("mappings") && (room || self.counters.contains_key(&key)) {
            self.counters.entry(key).or_default().add(at, value);
        }
    }

    /// Returns the counter that reached the highest value.
    fn of_counter(&self) -> Option<Live> {
        let most = self.counters.iter().max_by_key(|((name, pid), followed)| {
            // If several counters have that value, always the same one.
            (followed.most, Reverse(pid), Reverse(name))
        });
        let ((name, pid), followed) = most?;
        let of = pid.map_or(String::new(), |pid| format!(" of process {pid}"));
        followed.to_record(&format!("{name}{of}"))
    }

    /// Takes a reclaim or a compaction that took `wall` ns.
    pub(crate) fn reclaimed(
        &mut self,
        task: Text,
        what: &What,
        wall: u64,
        scanned: Option<u64>,
        reclaimed: Option<u64>,
    ) {
        let (by, function) = match what {
            What::Reclaim(by, function) => (by.word(), function.clone()),
            What::Compaction => ("compaction", None),
            What::Lock(..) | What::Fence | What::Page | What::Block => return,
        };
        let sum = self.reclaim.entry((task, by, function)).or_default();
        sum.count += 1;
        sum.wall = sum.wall.saturating_add(wall);
        sum.most = sum.most.max(wall);
        for (sum, more) in [(&mut sum.scanned, scanned), (&mut sum.reclaimed, reclaimed)] {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
    }

    /// Returns the record without the fields about slow operations.
    pub(crate) fn to_record(
        &self,
        duration_ns: Option<u64>,
        reclaim_seen: bool,
        spaces: &Spaces,
    ) -> Memory {
        // If the trace has calls, its memory events are what was mapped before.
        let counted = self.calls.or(self.events);
        let seconds = duration_ns.filter(|&ns| ns > 0).map(|ns| ns as f64 / 1e9);
        let rate = |count: u64| seconds.map(|seconds| count as f64 / seconds);
        let live = self.of_counter().or_else(|| spaces.live());
        let mut reclaim: Vec<Reclaim> = self.reclaim.iter().map(sum_to_record).collect();
        reclaim.sort_rows_by_key(|reclaim| std::cmp::Reverse(reclaim.wall_ns));
        Memory {
            maps: counted.map(|(maps, _)| maps),
            unmaps: counted.map(|(_, unmaps)| unmaps),
            maps_per_s: counted.and_then(|(maps, _)| rate(maps)),
            unmaps_per_s: counted.and_then(|(_, unmaps)| rate(unmaps)),
            live: live.or_else(|| self.of_events.to_record("memory events")),
            reclaim: reclaim_seen.then_some(reclaim),
            explained_by: None,
            search_at_most_ns: None,
            slow: None,
            spaces: spaces.to_record(),
        }
    }

    /// Returns whether the trace has anything that counts maps.
    pub(crate) fn counted(&self) -> bool {
        self.events.or(self.calls).is_some()
    }
}

fn sum_to_record(
    ((task, by, function), sum): (&(Text, &'static str, Option<Text>), &Sum),
) -> Reclaim {
    Reclaim {
        task: task.to_string(),
        by: (*by).to_owned(),
        function: function.as_deref().map(str::to_owned),
        count: sum.count,
        wall_ns: sum.wall,
        most_ns: sum.most,
        scanned: sum.scanned,
        reclaimed: sum.reclaimed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_few_points_and_the_peak() {
        let mut curve = Curve::default();
        for at in 0..100_000_u64 {
            curve.add(
                at * 1_000,
                if at == 70_001 {
                    9_999
                } else {
                    (at % 50).cast_signed()
                },
            );
        }
        assert!(curve.points.len() <= POINTS);
        assert!(curve.points.iter().any(|&(_, value)| value == 9_999));
        assert!(curve.points.is_sorted());
    }

    #[test]
    fn failed_calls_map_nothing() {
        let mut mappings = Mappings::default();
        mappings.call("mmap", Some(-12));
        mappings.call("mmap", Some(0x7f00_0000_0000));
        mappings.call("munmap", Some(0));
        mappings.call("munmap", Some(-22));
        let memory = mappings.to_record(Some(2_000_000_000), false, &Spaces::new(None));
        assert_eq!((memory.maps, memory.unmaps), (Some(1), Some(1)));
        assert_eq!(memory.maps_per_s, Some(0.5));
        assert_eq!((memory.live, memory.reclaim), (None, None));
    }
}
