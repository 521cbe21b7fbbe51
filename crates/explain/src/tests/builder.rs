//! Builds traces: events one after the other, at given times or with steps of time.

use std::collections::VecDeque;

use stopgap_events::units::Nanos;
use stopgap_stats::explain::{Cause, CauseKind, Findings, Task};
use stopgap_trace::{Event, Kind, Loss, Metadata, Reclaimer, Stack, Text, Waits};

use crate::{Explainer, Options};

/// A trace that is being built. Names of threads are `thread(tid)`.
pub(super) struct Builder {
    pub(super) now: u64,
    cpu: u32,
    pub(super) events: Vec<Event>,
    pub(super) metadata: Metadata,
}

pub(super) const CLIENT: u32 = 11;
pub(super) const SERVER: u32 = 12;

pub(super) fn name(tid: u32) -> Text {
    match tid {
        CLIENT => "client".into(),
        SERVER => "server".into(),
        0 => "swapper".into(),
        _ => format!("t{tid}").into(),
    }
}

pub(super) fn options() -> Options {
    Options {
        top: 10,
        frame_marker: None,
        request: None,
    }
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            now: 1_000,
            cpu: 0,
            events: Vec::new(),
            metadata: Metadata {
                losses: Some(Vec::new()),
                ..Metadata::default()
            },
        }
    }

    pub(super) fn lost(&mut self, count: u64) {
        let what = "cpu 0".to_owned();
        self.metadata.losses = Some(vec![Loss { what, count }]);
    }

    /// Lets time pass.
    pub(super) fn after(&mut self, ns: u64) -> &mut Builder {
        self.now += ns;
        self
    }

    pub(super) fn on(&mut self, cpu: u32) -> &mut Builder {
        self.cpu = cpu;
        self
    }

    pub(super) fn event(&mut self, tid: u32, kind: Kind) -> &mut Builder {
        self.events.push(Event {
            time: Nanos(self.now),
            cpu: Some(self.cpu),
            pid: None,
            tid: Some(tid),
            comm: Some(name(tid)),
            kind,
        });
        self
    }

    pub(super) fn switch(&mut self, from: u32, state: &str, to: u32) -> &mut Builder {
        self.switch_at(from, state, to, None)
    }

    pub(super) fn switch_at(
        &mut self,
        from: u32,
        state: &str,
        to: u32,
        stack: Option<&str>,
    ) -> &mut Builder {
        self.event(
            from,
            Kind::Switch {
                state: Some(state.into()),
                preempted: None,
                priority: None,
                next_tid: Some(to),
                next_comm: Some(name(to)),
                next_priority: None,
                stack: stack.map(|stack| Stack(stack.into())),
            },
        )
    }

    pub(super) fn wake(&mut self, by: u32, target: u32) -> &mut Builder {
        self.event(
            by,
            Kind::Waking {
                target_tid: target,
                target_comm: Some(name(target)),
                target_priority: None,
                target_cpu: None,
                waker_context: None,
            },
        )
    }

    pub(super) fn enter(&mut self, tid: u32, call: &str, first: u64) -> &mut Builder {
        // A poll here waits for one descriptor.
        let second = if call == "poll" { 1 } else { 4_096 };
        let arguments = [Some(first), Some(second), None, None, None, None];
        self.enters(tid, call, arguments)
    }

    /// Enters a call with these arguments; the others are 0.
    pub(super) fn enter_with(&mut self, tid: u32, call: &str, arguments: &[u64]) -> &mut Builder {
        let all = arguments.iter().copied().chain([0; 6]).map(Some);
        let all: Vec<Option<u64>> = all.take(6).collect();
        self.enters(tid, call, all.try_into().unwrap())
    }

    fn enters(&mut self, tid: u32, call: &str, arguments: [Option<u64>; 6]) -> &mut Builder {
        let name = Some(call.into());
        let kind = Kind::SyscallEnter {
            number: 0,
            name,
            arguments,
        };
        self.event(tid, kind)
    }

    /// Adds a switch as perf records it, which shows one side: the thread that leaves and whether it was pre-empted,
    /// or the thread that comes.
    pub(super) fn one_side(&mut self, leaves: Option<(u32, bool)>, comes: Option<u32>) {
        let kind = Kind::Switch {
            state: None,
            preempted: leaves.map(|(_, preempted)| preempted),
            priority: None,
            next_tid: comes,
            next_comm: comes.map(name),
            next_priority: None,
            stack: None,
        };
        self.event(leaves.map_or(0, |(tid, _)| tid), kind);
        let event = self.events.last_mut().unwrap();
        event.tid = leaves.map(|(tid, _)| tid);
        event.comm = event.tid.map(name);
    }

    pub(super) fn exit(&mut self, tid: u32, call: &str, result: i64) -> &mut Builder {
        self.event(
            tid,
            Kind::SyscallExit {
                number: 0,
                name: Some(call.into()),
                result: Some(result),
            },
        )
    }

    pub(super) fn fault(&mut self, tid: u32) -> &mut Builder {
        self.event(
            tid,
            Kind::PageFault {
                address: 4_096,
                instruction_pointer: None,
                error_code: None,
                user: Some(true),
            },
        )
    }

    pub(super) fn reclaim(
        &mut self,
        tid: u32,
        by: Reclaimer,
        shrinker: Option<&str>,
    ) -> &mut Builder {
        self.event(
            tid,
            Kind::ReclaimBegin {
                by,
                order: None,
                gfp: None,
                node: None,
                shrinker: shrinker.map(Text::from),
            },
        )
    }

    pub(super) fn reclaimed(
        &mut self,
        tid: u32,
        by: Reclaimer,
        shrinker: Option<&str>,
        duration: Option<u64>,
    ) -> &mut Builder {
        self.event(
            tid,
            Kind::ReclaimEnd {
                by,
                order: None,
                node: None,
                scanned: Some(64),
                reclaimed: Some(32),
                shrinker: shrinker.map(Text::from),
                reason: None,
                duration: duration.map(Nanos),
            },
        )
    }

    pub(super) fn lock(&mut self, tid: u32, lock: &str, address: u64) -> &mut Builder {
        self.event(
            tid,
            Kind::LockBegin {
                lock: Some(lock.into()),
                address: Some(address),
                write: None,
            },
        )
    }

    pub(super) fn locked(&mut self, tid: u32, lock: &str, address: u64) -> &mut Builder {
        self.event(
            tid,
            Kind::LockEnd {
                lock: Some(lock.into()),
                address: Some(address),
                write: None,
                result: Some(0),
            },
        )
    }

    pub(super) fn explain(&self) -> Findings {
        self.explain_with(options())
    }

    pub(super) fn explain_with(&self, options: Options) -> Findings {
        explain(&self.events, &self.metadata, options)
    }
}

pub(super) fn explain(events: &[Event], metadata: &Metadata, options: Options) -> Findings {
    let mut explainer = Explainer::new(metadata, options);
    for event in events {
        explainer.row(event.clone());
    }
    explainer.finish()
}

/// Returns the events with waits in place of switches and wake-ups.
pub(super) fn with_waits(events: &[Event]) -> VecDeque<Event> {
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    for event in events {
        waits.event(event.clone(), &mut out);
    }
    waits.finish(Nanos(0), &mut out);
    out
}

/// Returns the number of switch-outs of a task with a kind of cause.
pub(super) fn count(findings: &Findings, task: &str, kind: CauseKind) -> u64 {
    let of = |cause: &&Cause| cause.task == task && cause.kind == kind;
    let causes = findings.switches.causes.iter();
    causes.filter(of).map(|cause| cause.count).sum()
}

/// Returns the row of the threads of a name.
pub(super) fn task<'f>(findings: &'f Findings, name: &str) -> &'f Task {
    let mut tasks = findings.tasks.iter();
    tasks.find(|task| task.task == name).unwrap()
}
