//! The names of slices and points.

use super::Label;
use crate::{Activity, Event, Kind, Span, Text};

/// The label of what begins, or is, with this event.
pub(super) fn label(event: &Event) -> Label {
    let word = event.kind.word();
    let (name, category) = match &event.kind {
        Kind::SyscallEnter { number, name, .. } => (syscall(*number, name.as_ref()), "syscall"),
        Kind::SyscallExit { number, name, .. } => {
            let ends = format!("{} ends", syscall(*number, name.as_ref()));
            (ends, "syscall")
        }
        Kind::FenceInit { .. } => (word.to_owned(), "fence"),
        Kind::LockRelease { .. } | Kind::FileLock { .. } => (word.to_owned(), "lock"),
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
        DirectReclaim | MemcgReclaim | Kswapd | Throttled | Shrinker => "reclaim",
        Compaction => "compaction",
        Lock | MmapLock | FileLock => "lock",
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

fn after(what: &str, name: Option<&Text>) -> String {
    match name {
        Some(name) => format!("{what} {name}"),
        None => what.to_owned(),
    }
}
