//! The names of slices and points.

use super::Label;
use crate::{Activity, Event, Kind, Reclaimer, Span, Text};

/// The label of what begins, or is, with this event.
pub(super) fn label(event: &Event) -> Label {
    let word = event.kind.word();
    let (name, category) = match &event.kind {
        Kind::SyscallEnter { number, name, .. } => (syscall(*number, name.as_ref()), "syscall"),
        Kind::SyscallExit { number, name, .. } => {
            let ends = format!("{} ends", syscall(*number, name.as_ref()));
            (ends, "syscall")
        }
        Kind::ReclaimBegin { by, shrinker, .. } => (reclaim(*by, shrinker.as_ref()), "reclaim"),
        Kind::ReclaimEnd {
            by: Reclaimer::Throttled,
            reason,
            ..
        } => (after("throttled", reason.as_ref()), "reclaim"),
        Kind::ReclaimEnd { by, shrinker, .. } => {
            let ends = format!("{} ends", reclaim(*by, shrinker.as_ref()));
            (ends, "reclaim")
        }
        Kind::CompactionBegin { .. } => ("compaction".to_owned(), "compaction"),
        Kind::CompactionEnd { .. } => ("compaction ends".to_owned(), "compaction"),
        Kind::LockBegin { lock, .. } => (after("wait for lock", lock.as_ref()), "lock"),
        Kind::LockEnd { .. } | Kind::LockRelease { .. } => (word.to_owned(), "lock"),
        Kind::FenceWaitBegin { timeline, .. } => {
            (after("wait for fence", timeline.as_ref()), "fence")
        }
        Kind::FenceWaitEnd { .. } => (word.to_owned(), "fence"),
        Kind::BlockIssue { operation, .. } => (after("block", operation.as_ref()), "block"),
        Kind::BlockComplete { .. } => (word.to_owned(), "block"),
        Kind::Memory { .. }
        | Kind::UnmappedArea { .. }
        | Kind::PageFault { .. }
        | Kind::Extfrag { .. } => (word.to_owned(), "memory"),
        Kind::Span(span) => self::span(span),
        Kind::Exec { filename, .. } => (after("exec", filename.as_ref()), "process"),
        Kind::Mark { name } => (name.to_string(), "mark"),
        _ => (word.to_owned(), "process"),
    };
    Label { name, category }
}

fn span(span: &Span) -> (String, &'static str) {
    use Activity::*;
    let detail = [&span.name, &span.shrinker, &span.lock, &span.operation];
    let detail = detail.into_iter().find_map(|detail| detail.as_ref());
    let category = match span.what {
        DirectReclaim | MemcgReclaim | Throttled | Shrinker => "reclaim",
        Compaction => "compaction",
        Lock | MmapLock => "lock",
        Fence => "fence",
        PageFault | PageLock | Writeback => "memory",
        Block => "block",
        Softirq | Interrupt | Work => "interrupt",
    };
    (after(span.what.word(), detail), category)
}

fn syscall(number: u32, name: Option<&Text>) -> String {
    match name {
        Some(name) => name.to_string(),
        None => format!("syscall {number}"),
    }
}

fn reclaim(by: Reclaimer, shrinker: Option<&Text>) -> String {
    match by {
        Reclaimer::Shrinker => after("shrinker", shrinker),
        Reclaimer::Throttled => "throttled".to_owned(),
        by => format!("{by} reclaim"),
    }
}

fn after(what: &str, name: Option<&Text>) -> String {
    match name {
        Some(name) => format!("{what} {name}"),
        None => what.to_owned(),
    }
}
