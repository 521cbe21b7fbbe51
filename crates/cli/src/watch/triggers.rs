//! The triggers: pressure, slow calls, a request.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::files::read_lossy;
use stopgap_kernel::linux::PressureTrigger;
use stopgap_kernel::{Linux, pressure, signals};
use stopgap_stats::watch::{Trigger, TriggerKind};
use stopgap_tracer::slow_calls::{SlowCall, SlowCalls};

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
pub(super) struct Triggers<'j, 's> {
    sources: Vec<Source>,
    slow: Option<SlowCalls<'j, 's>>,
}

impl<'j, 's> Triggers<'j, 's> {
    /// Those of `pressures` (what, for how long, within which window), for the system and for the group
    /// of `pid`. Reports a kernel that keeps no pressure; the others still fire.
    pub(super) fn new(
        pressures: &[(Resource, Nanos, Nanos)],
        pid: Option<u32>,
        slow: Option<SlowCalls<'j, 's>>,
    ) -> Triggers<'j, 's> {
        let mut sources = Vec::new();
        for &(resource, stall, window) in pressures {
            let (word, kind) = match resource {
                Resource::Memory => ("memory", TriggerKind::MemoryPressure),
                Resource::Io => ("io", TriggerKind::IoPressure),
            };
            let mut paths = vec![(pressure::global(word), false)];
            if let Some(pid) = pid
                && let Ok(Some(path)) = pressure::of_group(&Linux, pid, word)
            {
                paths.push((path, true));
            }
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
        Triggers { sources, slow }
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
        if let Some(slow) = &mut self.slow {
            match slow.look() {
                Ok(calls) => all.extend(calls.into_iter().map(|call| of_call(call, now))),
                Err(error) => {
                    tell(&format!("slow calls do not fire any more: {error}"));
                    self.slow = None;
                }
            }
        }
        if signals::requested() {
            all.push(Trigger {
                kind: TriggerKind::Request,
                at_ns: now.0,
                ..nothing()
            });
        }
        all
    }

    /// Ends them; what could not be removed is an error.
    pub(super) fn stop(self) -> stopgap_tracer::Result<()> {
        self.slow.map_or(Ok(()), SlowCalls::stop)
    }
}

impl Source {
    /// How long some task has waited within the last window, as near as our looks are.
    fn measure(&mut self, now: Nanos) -> Option<Nanos> {
        let total = pressure::total(&Linux, &self.path).ok()?;
        Some(self.add(now, total))
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
            kind: self.kind,
            at_ns: now.0,
            measured_ns: measured.map(|ns| ns.0),
            threshold_ns: Some(self.stall.0),
            window_ns: Some(self.window.0),
            group: self.group.then(|| self.path.display().to_string()),
            ..nothing()
        }
    }
}

fn nothing() -> Trigger {
    Trigger {
        kind: TriggerKind::Request,
        at_ns: 0,
        measured_ns: None,
        threshold_ns: None,
        window_ns: None,
        group: None,
        call: None,
        tid: None,
        task: None,
        open: false,
    }
}

fn of_call(call: SlowCall, now: Nanos) -> Trigger {
    let comm = read_lossy(&Linux, Path::new(&format!("/proc/{}/comm", call.tid)));
    Trigger {
        kind: TriggerKind::SlowCall,
        at_ns: if call.open {
            now.0
        } else {
            (call.begin + call.length).0
        },
        measured_ns: Some(call.length.0),
        threshold_ns: Some(call.limit.0),
        call: Some(call.call),
        tid: Some(call.tid),
        task: comm.ok().map(|comm| comm.trim_end().to_owned()),
        open: call.open,
        ..nothing()
    }
}

fn word(kind: TriggerKind) -> &'static str {
    match kind {
        TriggerKind::MemoryPressure => "memory pressure",
        TriggerKind::IoPressure => "I/O pressure",
        TriggerKind::SlowCall => "slow call",
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
        TriggerKind::SlowCall => {
            let call = trigger.call.as_deref().unwrap_or("a call");
            let task = trigger.task.as_deref().unwrap_or("a thread");
            let tid = trigger.tid.map(|tid| format!(" ({tid})"));
            let open = if trigger.open { " and going on" } else { "" };
            format!(
                "{call} of {task}{} {measured}{open}",
                tid.unwrap_or_default()
            )
        }
        TriggerKind::Request => "on request".to_owned(),
    }
}

#[cfg(test)]
mod tests {
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
            kind: TriggerKind::MemoryPressure,
            measured_ns: Some(162_400_000),
            threshold_ns: Some(150_000_000),
            window_ns: Some(1_000_000_000),
            ..nothing()
        };
        assert_eq!(words(&pressure), "memory pressure 162 ms in 1 s");
        let call = SlowCall {
            call: "mmap".to_owned(),
            tid: u32::MAX,
            begin: Nanos::millis(5),
            length: Nanos::millis(31),
            limit: Nanos::millis(10),
            open: true,
        };
        let told = words(&of_call(call, Nanos::millis(36)));
        assert_eq!(told, "mmap of a thread (4294967295) 31 ms and going on");
        assert_eq!(words(&nothing()), "on request");
    }
}
