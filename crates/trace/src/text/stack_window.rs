//! Events that wait for their stack.
//!
//! perf prints a stack below its event. ftrace prints it as an event of its own, the next one of that CPU; events of
//! other CPUs may stand between. So a switch is held back until the next line of its CPU, and what comes after it
//! waits, too: the order stays.

use std::collections::VecDeque;

use super::header::Tool;
use crate::{Event, Kind, Stack};

/// Events that are held back at most.
const MOST: usize = 256;
/// Frames that are read of a stack; the kernel writes fewer.
const DEEPEST: usize = 512;
/// The function below which a stack at a switch is of interest.
const SCHEDULE: &str = "__schedule_[k]";

struct WaitingEvent {
    event: Event,
    line: u64,
    /// Whether a stack may still come.
    waits: bool,
}

#[derive(Default)]
pub(super) struct Window {
    queue: VecDeque<WaitingEvent>,
    /// Frames of the stack that is being read, innermost first, and how far from the end of the queue its event is.
    frames: Vec<String>,
    of: Option<usize>,
    /// Whether lines below the last event are its stack.
    pub(super) open: bool,
}

impl Window {
    /// A line that begins an event came: stacks before it are complete.
    pub(super) fn header(&mut self, tool: Tool, cpu: Option<u32>) {
        self.close();
        for held in &mut self.queue {
            if tool == Tool::Perf || held.event.cpu == cpu {
                held.waits = false;
            }
        }
    }

    pub(super) fn push(&mut self, tool: Tool, event: Event, line: u64) {
        let waits = match event.kind {
            Kind::Switch { .. } => true,
            Kind::Sample { .. } => tool == Tool::Perf,
            _ => false,
        };
        self.of = (tool == Tool::Perf && waits).then_some(0);
        self.queue.push_back(WaitingEvent { event, line, waits });
    }

    /// A stack of the thread `tid` on `cpu` begins: of the last event there, if that is its switch.
    pub(super) fn stack(&mut self, cpu: Option<u32>, tid: Option<u32>) {
        self.close();
        self.open = true;
        let mut back = self.queue.iter().rev();
        let last = back.position(|held| held.event.cpu == cpu);
        self.of = last.filter(|&back| {
            let held = &self.queue[self.queue.len() - 1 - back];
            held.waits && held.event.tid == tid
        });
    }

    pub(super) fn frame(&mut self, frame: impl FnOnce() -> String) {
        if self.of.is_some() && self.frames.len() < DEEPEST {
            self.frames.push(frame());
        }
    }

    /// The stack that is being read is complete.
    pub(super) fn close(&mut self) {
        self.open = false;
        let frames = std::mem::take(&mut self.frames);
        let back = self.of.take();
        let index = back.and_then(|back| self.queue.len().checked_sub(1 + back));
        let Some(held) = index.and_then(|index| self.queue.get_mut(index)) else {
            return;
        };
        held.waits = false;
        if frames.is_empty() {
            return;
        }
        match &mut held.event.kind {
            Kind::Switch { stack, .. } => {
                let own = frames.iter().position(|frame| frame == SCHEDULE);
                let frames = &frames[own.unwrap_or(0)..];
                *stack = Some(Stack::new(frames.iter().rev().map(String::as_str)));
            }
            Kind::Sample { stack } => {
                *stack = Stack::new(frames.iter().rev().map(String::as_str));
            }
            _ => {}
        }
    }

    /// The next event whose turn has come, with its line; `all` at the end of the text.
    pub(super) fn pop(&mut self, all: bool) -> Option<(Event, u64)> {
        if all {
            self.close();
        }
        let full = self.queue.len() > MOST;
        if !self
            .queue
            .front()
            .is_some_and(|held| all || full || !held.waits)
        {
            return None;
        }
        let held = self.queue.pop_front()?;
        if self.of.is_some_and(|back| back >= self.queue.len()) {
            self.of = None;
            self.frames.clear();
        }
        Some((held.event, held.line))
    }
}

/// A frame of perf: `ffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])`.
pub(super) fn perf_frame(line: &str) -> Option<String> {
    let (address, rest) = match line.trim().split_once(char::is_whitespace) {
        Some((address, rest)) => (address, rest.trim_start()),
        None => (line.trim(), ""),
    };
    if address.len() > 16 {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok()?;
    let symbol = rest.rsplit_once(" (").map_or(rest, |(symbol, _)| symbol);
    let name = symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name);
    let kernel = address >> 63 == 1; // as on every architecture of 64 bits
    let suffix = if kernel { "_[k]" } else { "" };
    Some(match name {
        "" | "[unknown]" => format!("{address:#x}{suffix}"),
        name => format!("{name}{suffix}"),
    })
}

/// A frame of ftrace: `=> __schedule (ffffffff821facd8)`, `=> __schedule+0x618/0x9a0`.
pub(super) fn ftrace_frame(line: &str) -> Option<String> {
    let word = line.trim().strip_prefix("=>")?.split_ascii_whitespace();
    let name = word.into_iter().next()?;
    let name = name.split_once("+0x").map_or(name, |(name, _)| name);
    Some(format!("{name}_[k]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_both_tools() {
        let perf = |line| perf_frame(line).unwrap();
        assert_eq!(
            perf("\tffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])"),
            "__schedule_[k]"
        );
        assert_eq!(
            perf("  f8350 a b::c<d>+0x10 (/usr/lib/libc.so.6)"),
            "a b::c<d>"
        );
        assert_eq!(perf("\t   7f2b [unknown] ([unknown])"), "0x7f2b");
        assert_eq!(perf_frame("\tschedule (x)"), None);
        assert_eq!(
            ftrace_frame(" => schedule"),
            Some("schedule_[k]".to_owned())
        );
        assert_eq!(
            ftrace_frame("=> schedule+0x2/0x3 (ffffffff821fb643)"),
            Some("schedule_[k]".to_owned())
        );
        assert_eq!(ftrace_frame("=>"), None);
    }
}
