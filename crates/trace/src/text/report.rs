//! A text's description of itself, and its gaps.

use std::collections::BTreeMap;

use super::context::Context;
use super::header::{Header, Tool};
use crate::{Loss, Metadata};
use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;

/// Unknown events that are named one by one; the rest is counted together.
const NAMES: usize = 20;
/// Names that are kept.
const MOST: usize = 4_096;

#[derive(Default)]
pub(super) struct TextReport {
    tool: Option<Tool>,
    command: Option<String>,
    /// Events overwritten, as the kernel's own text begins with.
    overwritten: Option<u64>,
    lost: BTreeMap<String, u64>,
    lost_unknown: bool,
    unknown: BTreeMap<String, u64>,
    unknown_more: u64,
    unparsed: u64,
    no_stack: u64,
    coarse: bool,
    no_process: bool,
}

impl TextReport {
    pub(super) fn header(&mut self, header: &Header<'_>) {
        self.tool.get_or_insert(header.tool);
        self.coarse |= !header.exact;
    }

    pub(super) fn process(&mut self, pid: Option<u32>) {
        self.no_process |= pid.is_none();
    }

    /// A line that begins with `#`.
    pub(super) fn comment(&mut self, line: &str) {
        let text = line.trim_start_matches('#').trim();
        if let Some(command) = text.strip_prefix("cmdline :") {
            self.command = Some(command.trim().to_owned());
        } else if let Some(counts) = text.strip_prefix("entries-in-buffer/entries-written:") {
            let counts = counts.split_ascii_whitespace().next().unwrap_or("");
            let count = |text: &str| text.parse::<u64>().ok();
            if let Some((kept, written)) = counts.split_once('/') {
                let lost = count(written).zip(count(kept));
                self.overwritten = lost.and_then(|(written, kept)| written.checked_sub(kept));
            }
        }
    }

    /// A line `CPU:1 [LOST 12 EVENTS]`, `CPU:1 [12 EVENTS DROPPED]`, `CPU:1 [LOST EVENTS]`; whether it is one.
    pub(super) fn loss(&mut self, line: &str) -> bool {
        let Some((cpu, rest)) = line
            .strip_prefix("CPU:")
            .and_then(|line| line.split_once('['))
        else {
            return false;
        };
        let rest = rest.trim_end_matches(']');
        if !rest.contains("LOST") && !rest.contains("DROPPED") {
            return false;
        }
        let count = rest.split_ascii_whitespace().find_map(|w| w.parse().ok());
        let cpu: Option<u32> = cpu.trim().parse().ok();
        let place = cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        self.lose(place, count);
        true
    }

    /// `count` events were lost.
    pub(super) fn lose(&mut self, place: String, count: Option<u64>) {
        self.lost_unknown |= count.is_none();
        if let Some(count) = count
            && (self.lost.len() < MOST || self.lost.contains_key(&place))
        {
            let sum = self.lost.entry(place).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// An event that is not known here.
    pub(super) fn skipped(&mut self, event: &str) {
        if let Some(count) = self.unknown.get_mut(event) {
            *count += 1;
        } else if self.unknown.len() < MOST {
            self.unknown.insert(event.to_owned(), 1);
        } else {
            self.unknown_more += 1;
        }
    }

    pub(super) fn unparsed(&mut self) {
        self.unparsed += 1;
    }

    pub(super) fn without_stack(&mut self) {
        self.no_stack += 1;
    }

    /// All of it.
    pub(super) fn metadata(self, context: &Context) -> Metadata {
        let tool = self.tool.unwrap_or(Tool::Ftrace);
        let what = match tool {
            Tool::Perf => "text of perf script",
            Tool::Ftrace => "text of ftrace",
        };
        let source = match &self.command {
            Some(command) => format!("{what}: {command}"),
            None => what.to_owned(),
        };
        let mut losses: Vec<Loss> = self.lost.iter().map(loss).collect();
        if let Some(count) = self.overwritten.filter(|&count| count > 0) {
            losses.push(loss((&"overwritten in the buffer".to_owned(), &count)));
        }
        // perf prints losses only where it is asked for them; ftrace's text has them where they were.
        let known = tool == Tool::Ftrace || !losses.is_empty();
        Metadata {
            source: Some(source),
            losses: known.then_some(losses),
            missing: self.missing(tool, context),
            ..Metadata::default()
        }
    }

    fn missing(self, tool: Tool, context: &Context) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut say = |says: bool, what: &str, why: &str| {
            if says {
                missing.push(Missing::new(what, why));
            }
        };
        say(
            true,
            "the clock",
            "the text does not say which; times are its own",
        );
        say(
            self.coarse,
            "nanoseconds",
            match tool {
                Tool::Perf => "times are in microseconds; perf script --ns prints all digits",
                Tool::Ftrace => "times are in microseconds; trace-cmd report -t prints all digits",
            },
        );
        say(
            self.no_process,
            "processes of some threads",
            match tool {
                Tool::Perf => {
                    "the text has threads; perf script -F comm,pid,tid,cpu,time,event,trace prints processes"
                }
                Tool::Ftrace => {
                    "the text has threads; task:task_newtask recorded too, or the option record-tgid, tells processes"
                }
            },
        );
        let arch = std::env::consts::ARCH;
        say(
            context.numbers,
            "which architecture's numbers the system calls have",
            &format!(
                "the text does not say; they are taken as {arch}'s, as this program is built for"
            ),
        );
        say(
            self.lost_unknown,
            "how many events were lost",
            "a line of the text says that some were, not how many",
        );
        say(
            self.no_stack > 0,
            &format!("{} samples", self.no_stack),
            "they have no stack; record with -g",
        );
        say(
            self.unparsed > 0,
            &format!("{} events", self.unparsed),
            "the tool that printed them could not read them ([FAILED TO PARSE])",
        );
        let mut unknown: Vec<(&String, &u64)> = self.unknown.iter().collect();
        unknown.sort_rows_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let rest: u64 = unknown.iter().skip(NAMES).map(|(_, count)| **count).sum();
        for (name, count) in unknown.iter().take(NAMES) {
            let what = format!("{count} events {name}");
            missing.push(Missing::new(what, "a trace has no kind for them"));
        }
        if rest + self.unknown_more > 0 {
            let what = format!("{} events more", rest + self.unknown_more);
            missing.push(Missing::new(
                what,
                "of other names that a trace has no kind for",
            ));
        }
        missing
    }
}

fn loss((what, count): (&String, &u64)) -> Loss {
    Loss {
        what: what.clone(),
        count: *count,
    }
}
