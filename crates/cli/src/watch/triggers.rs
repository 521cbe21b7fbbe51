//! The triggers that are no waits: pressure, a request. And all triggers in words.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use stopgap_events::order::Inserted as _;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::PressureTrigger;
use stopgap_kernel::{Linux, pressure, signals};
use stopgap_stats::watch::{Trigger, TriggerKind};

use crate::args::Resource;
use crate::session::tell;

/// A look comes so much later than it should, at most, and still counts as one of the window.
const JITTER: Nanos = Nanos::millis(50);

/// One file of pressure with its trigger.
struct Source {
    kind: TriggerKind,
    path: PathBuf,
    /// Whether the file belongs to a cgroup; otherwise to the system.
    group: bool,
    stall: Nanos,
    window: Nanos,
    /// The kernel's; `None` where it refuses it: then we look ourselves.
    trigger: Option<PressureTrigger>,
    /// When it last fired by our own looks.
    fired: Option<Nanos>,
    /// When, and how long some task had waited by then, over the last window.
    totals: VecDeque<(Nanos, Nanos)>,
}

/// Everything that can fire.
pub(super) struct Triggers {
    sources: Vec<Source>,
}

impl Triggers {
    /// Those of `pressures` (what, for how long, within which window), for the system, for the groups
    /// of `pids` and for `groups`. Reports a kernel that keeps no pressure; the others still fire.
    pub(super) fn new(
        pressures: &[(Resource, Nanos, Nanos)],
        pids: &[u32],
        groups: &[PathBuf],
    ) -> Triggers {
        let mut sources = Vec::new();
        for &(resource, stall, window) in pressures {
            let (word, kind) = match resource {
                Resource::Memory => ("memory", TriggerKind::MemoryPressure),
                Resource::Io => ("io", TriggerKind::IoPressure),
            };
            let mut paths = vec![(pressure::global(word), false)];
            let of_pids = pids.iter();
            let of_pids = of_pids.filter_map(|&pid| pressure::of_group(&Linux, pid, word).ok()?);
            let named = groups
                .iter()
                .map(|group| group.join(format!("{word}.pressure")));
            let of_groups: BTreeSet<PathBuf> =
                of_pids.chain(named.filter(|path| path.exists())).inserted();
            paths.extend(of_groups.into_iter().map(|path| (path, true)));
            for (path, group) in paths {
                let trigger = match PressureTrigger::new(&path, stall, window) {
                    Ok(trigger) => Some(trigger),
                    // Root without CAP_SYS_RESOURCE, as in a container, may have windows of whole 2 s
                    // alone; what we read at each look tells the same, up to 250 ms later.
                    Err(error) if error.is_invalid() || error.is_refused() => None,
                    Err(error) => {
                        tell(&format!(
                            "{word} pressure does not fire: {error}; a kernel keeps it with CONFIG_PSI, booted with psi=1"
                        ));
                        continue;
                    }
                };
                sources.push(Source {
                    kind,
                    path,
                    group,
                    stall,
                    window,
                    trigger,
                    fired: None,
                    totals: VecDeque::new(),
                });
            }
        }
        Triggers { sources }
    }

    /// Describes each source in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let one = |source: &Source| {
            let group = if source.group { " (its cgroup)" } else { "" };
            format!(
                "{}{group} {}/{}",
                word(source.kind),
                source.stall,
                source.window
            )
        };
        self.sources.iter().map(one).collect()
    }

    /// Waits up to `longest`, or until `end` is readable. Returns what has fired.
    pub(super) fn wait(&mut self, end: Option<BorrowedFd<'_>>, longest: Nanos) -> Vec<Trigger> {
        let sources = self.sources.iter();
        let triggers: Vec<&PressureTrigger> = sources.filter_map(|s| s.trigger.as_ref()).collect();
        let mut fired = PressureTrigger::wait(&triggers, end, longest).into_iter();
        let now = Linux.now();
        let mut all = Vec::new();
        for source in &mut self.sources {
            let measured = source.measure(now);
            let fires = match &source.trigger {
                Some(_) => fired.next() == Some(true),
                None => source.exceeds(now, measured),
            };
            if fires {
                all.push(source.fire(now, measured));
            }
        }
        if signals::requested() {
            all.push(Trigger::new(TriggerKind::Request, now.0));
        }
        all
    }
}

impl Source {
    /// How long some task has waited within the last window, as near as our looks are.
    fn measure(&mut self, now: Nanos) -> Option<Nanos> {
        let total = match &self.trigger {
            Some(trigger) => trigger.total(),
            None => pressure::total(&Linux, &self.path),
        };
        Some(self.add(now, total.ok()?))
    }

    /// `total` is how long some task had waited by `now`.
    fn add(&mut self, now: Nanos, total: Nanos) -> Nanos {
        self.totals.push_back((now, total));
        let longest = self.window + JITTER;
        while now.saturating_sub(self.totals[0].0) > longest {
            self.totals.pop_front();
        }
        total.saturating_sub(self.totals[0].1)
    }

    /// Whether it fires by our own looks: as the kernel does, once a window at most.
    fn exceeds(&mut self, now: Nanos, measured: Option<Nanos>) -> bool {
        let lately = self.fired.is_some_and(|fired| now < fired + self.window);
        let fires = !lately && measured.is_some_and(|measured| measured >= self.stall);
        if fires {
            self.fired = Some(now);
        }
        fires
    }

    fn fire(&self, now: Nanos, measured: Option<Nanos>) -> Trigger {
        Trigger {
            measured_ns: measured.map(|ns| ns.0),
            threshold_ns: Some(self.stall.0),
            window_ns: Some(self.window.0),
            group: self.group.then(|| self.path.display().to_string()),
            ..Trigger::new(self.kind, now.0)
        }
    }
}

fn word(kind: TriggerKind) -> &'static str {
    match kind {
        TriggerKind::MemoryPressure => "memory pressure",
        TriggerKind::IoPressure => "I/O pressure",
        TriggerKind::SlowCall => "slow call",
        TriggerKind::RunQueue => "run queue",
        TriggerKind::Blocked => "state D",
        TriggerKind::CpuQuota => "CPU quota",
        TriggerKind::Stopped => "stop",
        TriggerKind::MapGrowth => "map growth",
        TriggerKind::Mark => "mark",
        TriggerKind::Frame => "frame",
        TriggerKind::CutOff => "cut off",
        TriggerKind::Request => "request",
    }
}

/// A trigger in words: `memory pressure 162 ms in 1 s`, `mmap of Xorg (812) 31 ms`.
pub(super) fn words(trigger: &Trigger) -> String {
    let ms = |ns: u64| format!("{:.0} ms", ns as f64 / 1e6);
    let measured = trigger.measured_ns.map(ms).unwrap_or_default();
    match trigger.kind {
        TriggerKind::MemoryPressure | TriggerKind::IoPressure => {
            let window = trigger.window_ns.map(|ns| format!(" in {}", Nanos(ns)));
            let group = trigger.group.as_ref().map(|path| format!(" ({path})"));
            format!(
                "{} {measured}{}{}",
                word(trigger.kind),
                window.unwrap_or_default(),
                group.unwrap_or_default()
            )
        }
        TriggerKind::Request => "on request".to_owned(),
        TriggerKind::CutOff => "the last seconds before the watch was cut off".to_owned(),
        TriggerKind::MapGrowth => {
            let task = trigger.task.as_deref().unwrap_or("a process");
            let pid = trigger.pid.map(|pid| format!(" ({pid})"));
            let left = trigger.measured_ns.map(|ns| ahead(Nanos(ns)));
            format!(
                "mappings of {task}{}: at this rate vm.max_map_count in {}",
                pid.unwrap_or_default(),
                left.unwrap_or_default()
            )
        }
        TriggerKind::Mark => {
            let mark = trigger.mark.as_deref().unwrap_or_default();
            format!("mark {mark} of {}", thread(trigger))
        }
        TriggerKind::Frame => {
            let hz = trigger
                .window_ns
                .map(|ns| format!(" at {}", super::frames::hz(ns)));
            let open = if trigger.open { " and going on" } else { "" };
            let hz = hz.unwrap_or_default();
            format!("frame of {}{hz}, {measured} late{open}", thread(trigger))
        }
        TriggerKind::SlowCall => {
            let call = match trigger.call.as_deref() {
                Some("fault") => "page fault",
                Some(call) => call,
                None => "a call",
            };
            let open = if trigger.open { " and going on" } else { "" };
            format!("{call} of {}, {measured} lost{open}", thread(trigger))
        }
        kind => {
            let open = if trigger.open { " and going on" } else { "" };
            let call = trigger.call.as_deref();
            let call = call.map_or(String::new(), |call| format!(" in {call}"));
            let by = trigger.stopped_by.as_ref().map(|by| {
                let task = by.task.as_deref().unwrap_or("a thread");
                format!(", signal {} by {task} ({})", by.signal, by.tid)
            });
            format!(
                "{} of {}{call} {measured}{open}{}",
                word(kind),
                thread(trigger),
                by.unwrap_or_default()
            )
        }
    }
}

/// A time that is to come, as near as a forecast is: `3.2 h`, `12 min`, `40 s`.
fn ahead(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// A thread by name and number.
fn thread(trigger: &Trigger) -> String {
    let task = trigger.task.as_deref().unwrap_or("a thread");
    let tid = trigger.tid.map(|tid| format!(" ({tid})"));
    format!("{task}{}", tid.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use stopgap_stats::watch::Sender;

    use super::*;

    /// ```text
    /// s        0    0.25  0.5   0.75  1     1.25  ... 2
    /// waited   0    0     100   160   160   160       160   ms altogether
    ///                           fires                       not again
    /// ```
    #[test]
    fn our_own_looks_fire_once_a_window() {
        let mut source = Source {
            kind: TriggerKind::MemoryPressure,
            path: PathBuf::new(),
            group: false,
            stall: Nanos::millis(150),
            window: Nanos::secs(1),
            trigger: None,
            fired: None,
            totals: VecDeque::new(),
        };
        let mut look = |at: u64, total: u64| {
            let now = Nanos::millis(at);
            let measured = source.add(now, Nanos::millis(total));
            let fires = source.exceeds(now, Some(measured));
            (measured.0 / 1_000_000, fires, source.totals.len())
        };
        assert_eq!(
            look(0, 5_000),
            (0, false, 1),
            "what was before does not count"
        );
        assert_eq!(look(250, 5_000), (0, false, 2));
        assert_eq!(look(500, 5_100), (100, false, 3));
        assert_eq!(look(750, 5_160), (160, true, 4));
        assert_eq!(look(1_000, 5_160), (160, false, 5));
        assert_eq!(
            look(1_260, 5_160),
            (160, false, 5),
            "as many as a window has"
        );
        assert_eq!(look(2_000, 5_160), (0, false, 3));
        assert_eq!(look(2_200, 5_400), (240, true, 3));
    }

    #[test]
    fn triggers_read_as_sentences() {
        let pressure = Trigger {
            measured_ns: Some(162_400_000),
            threshold_ns: Some(150_000_000),
            window_ns: Some(1_000_000_000),
            ..Trigger::new(TriggerKind::MemoryPressure, 0)
        };
        assert_eq!(words(&pressure), "memory pressure 162 ms in 1 s");
        let call = Trigger {
            call: Some("mmap".to_owned()),
            tid: Some(12),
            measured_ns: Some(31_000_000),
            open: true,
            ..Trigger::new(TriggerKind::SlowCall, 0)
        };
        let told = words(&call);
        assert_eq!(told, "mmap of a thread (12), 31 ms lost and going on");
        let queue = Trigger {
            kind: TriggerKind::RunQueue,
            call: None,
            open: false,
            task: Some("gcc".to_owned()),
            ..call
        };
        assert_eq!(words(&queue), "run queue of gcc (12) 31 ms");
        let stop = Trigger {
            kind: TriggerKind::Stopped,
            open: true,
            stopped_by: Some(Sender {
                signal: 19,
                tid: 7,
                task: Some("kill".to_owned()),
            }),
            ..queue
        };
        let told = words(&stop);
        assert_eq!(
            told,
            "stop of gcc (12) 31 ms and going on, signal 19 by kill (7)"
        );
        assert_eq!(words(&Trigger::new(TriggerKind::Request, 0)), "on request");
        let growth = |seconds| Trigger {
            measured_ns: Some(Nanos::secs(seconds).0),
            pid: Some(812),
            task: Some("Xorg".to_owned()),
            ..Trigger::new(TriggerKind::MapGrowth, 0)
        };
        assert_eq!(
            words(&growth(10_800)),
            "mappings of Xorg (812): at this rate vm.max_map_count in 3.0 h"
        );
        assert!(words(&growth(600)).ends_with("10 min") && words(&growth(9)).ends_with("9 s"));
    }
}
