//! The figures of one explained trace, under names that another trace of the same program has, too.

use std::collections::BTreeMap;

use crate::explain::{Chains, Findings, Idleness, Link, WindowKind};
use stopgap_events::order::Inserted as _;

use super::{Family, Per};

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Kind of the figure.
    pub family: Family,
    /// Its name; for a chain each hop.
    pub path: Vec<String>,
}

/// The sums of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    /// The trace's name.
    pub name: String,
    /// From its first event to its last, nanoseconds.
    pub length_ns: Option<u64>,
    /// The life of the recorded program's first thread, where the trace shows it from begin to end.
    pub run_ns: Option<u64>,
    /// Number of operations, if they are compared.
    pub operations: Option<u64>,
    /// Times in milliseconds, and counts. A missing figure is 0, unless its family is in [`Account::lacks`].
    pub figures: BTreeMap<Key, f64>,
    /// Families that the trace does not show, with the reason.
    pub lacks: BTreeMap<Family, &'static str>,
    /// Whether the trace has every call, not only those that waited or woke a thread.
    pub all_calls: bool,
    /// Milliseconds of waits that are or may be for work, by call.
    pub idle: BTreeMap<String, f64>,
    /// Milliseconds of CPU time by stack, outermost function first.
    pub cpu: BTreeMap<Vec<String>, f64>,
    /// Reason why its figures are doubtful.
    pub doubt: Option<String>,
}

/// Name of the recorder's thread. Waits behind it are no news about the program.
const RECORDER: &str = "stopgap";

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Account {
    /// Adds up an explained trace.
    #[must_use]
    pub fn new(name: String, found: &Findings, per: Option<&Per>) -> Account {
        let mut account = Account {
            name,
            length_ns: found.trace.duration_ns.filter(|&ns| ns > 0),
            all_calls: found.short_calls.is_some(),
            ..Account::default()
        };
        match &found.chains {
            Some(chains) => account.chains(chains, found),
            None => {
                for family in Family::OF_WAITS {
                    account.lacks.insert(family, "scheduling events");
                }
                account.lacks.insert(Family::Waits, "scheduling events");
            }
        }
        let windows = found.chains.iter().flat_map(|chains| &chains.windows);
        let count = |kind| {
            let of_it = windows.clone().filter(move |windows| windows.kind == kind);
            of_it.map(|windows| windows.count).sum::<u64>()
        };
        account.operations = match per {
            Some(Per::Roundtrip) => found.switches.roundtrips,
            Some(Per::Request(_)) => Some(count(WindowKind::Request)),
            _ => None,
        };
        // Without rows of calls, the calls that waited still have names if the trace has switches, wakings and calls.
        if account.all_calls || found.switches.roundtrips.is_some() {
            for calls in &found.calls {
                let path = || vec![calls.kind.clone()];
                account.add(Family::Call, path(), ms(calls.total_ns));
                if calls.kind != "computing" {
                    account.add(Family::Count, path(), calls.count as f64);
                }
            }
        } else {
            for family in [Family::Call, Family::Count] {
                account.lacks.insert(family, "system calls");
            }
        }
        match (
            &found.profile,
            found.profile.as_ref().and_then(|all| all.period_ns),
        ) {
            (Some(profile), Some(period)) => {
                for one in &profile.functions {
                    let path = || vec![one.function.clone()];
                    account.add(Family::Own, path(), ms(one.own_samples * period));
                    account.add(Family::Below, path(), ms(one.with_calls_samples * period));
                }
                for stack in &profile.stacks {
                    let frames = stack.frames.iter().zip(0..);
                    let named = |(frame, at): (&String, u32)| match at {
                        0 => stem(frame),
                        _ => frame.clone(),
                    };
                    let path: Vec<String> = frames.map(named).collect();
                    *account.cpu.entry(path).or_default() += ms(stack.samples * period);
                }
            }
            _ => {
                for family in [Family::Own, Family::Below] {
                    account.lacks.insert(family, "samples of CPU time");
                }
            }
        }
        let share = found.losses.share.unwrap_or(0.0);
        account.doubt = match &found.trace.cut_short {
            Some(why) => Some(why.clone()),
            None if share > found.losses.limit => {
                Some(format!("{:.1} % of its events were lost", share * 100.0))
            }
            None => None,
        };
        account
    }

    /// Renames the threads of a name: two builds of a program may have different names.
    pub fn rename(&mut self, thread: &str, name: &str) {
        let thread = stem(thread);
        let renamed = |mut path: Vec<String>| {
            if path.first() == Some(&thread) {
                name.clone_into(&mut path[0]);
            }
            path
        };
        let figures = std::mem::take(&mut self.figures);
        self.figures = (figures.into_iter())
            .map(|(key, amount)| match key.family {
                Family::Chain => (
                    Key {
                        path: renamed(key.path),
                        ..key
                    },
                    amount,
                ),
                _ => (key, amount),
            })
            .inserted();
        let cpu = std::mem::take(&mut self.cpu);
        self.cpu = cpu
            .into_iter()
            .map(|(path, ms)| (renamed(path), ms))
            .inserted();
    }

    fn add(&mut self, family: Family, path: Vec<String>, amount: f64) {
        if amount > 0.0 && amount.is_finite() {
            *self.figures.entry(Key { family, path }).or_default() += amount;
        }
    }

    fn chains(&mut self, chains: &Chains, found: &Findings) {
        self.run_ns = (chains.critical_path.as_ref())
            .map(|path| path.window_ns)
            .filter(|&ns| ns > 0);
        if let Some(ns) = self.run_ns {
            self.add(Family::Total, vec!["length of the run".to_owned()], ms(ns));
        }
        let running = found.tasks.iter().map(|task| task.running_ns).sum();
        self.add(Family::Total, vec!["on a CPU".to_owned()], ms(running));
        // If no wait has a place, stacks of programs were not recorded.
        let placed = chains.waiting.iter().any(|waiting| waiting.place.is_some());
        if !placed && !chains.waiting.is_empty() {
            self.lacks.insert(Family::Waits, "stacks of programs");
        }
        let lost = |idleness| idleness == Idleness::Stalled;
        for waiting in chains.waiting.iter().filter(|w| !lost(w.idleness)) {
            if let Some(call) = &waiting.call {
                *self.idle.entry(call.clone()).or_default() += ms(waiting.total_ns);
            }
        }
        for waiting in chains.waiting.iter().filter(|w| lost(w.idleness)) {
            let time = ms(waiting.total_ns);
            self.add(Family::Total, vec!["lost in waits".to_owned()], time);
            let task = stem(&waiting.task);
            self.add(Family::Chain, vec![task.clone()], time);
            let path = vec![task, stem(&waiting.text)];
            self.add(Family::Chain, path.clone(), time);
            if let Some(place) = waiting.place.as_deref().filter(|_| placed) {
                let innermost = place.rsplit(" > ").next().unwrap_or(place);
                self.add(Family::Waits, vec![innermost.to_owned()], time);
            }
            self.links(&path, &waiting.links);
        }
        for blame in &chains.blame {
            if blame.task.as_deref() == Some(RECORDER) {
                continue;
            }
            // The figure names the thread that had the CPU. Chains name the threads that waited behind it.
            let by = blame.task.as_deref().filter(|_| blame.cause == "run-queue");
            let text = match by {
                Some(task) => format!("{} had the CPU", stem(task)),
                None => stem(&blame.text),
            };
            self.add(Family::Blame, vec![text], ms(blame.ns));
        }
    }

    fn links(&mut self, before: &[String], links: &[Link]) {
        for link in links {
            let mut path = before.to_owned();
            path.push(stem(&link.text));
            if link.task.as_deref() != Some(RECORDER) {
                self.add(Family::Chain, path.clone(), ms(link.ns));
            }
            match link.links.is_empty() {
                true => self.add(Family::Cause, vec![end(link).to_owned()], ms(link.ns)),
                false => self.links(&path, &link.links),
            }
        }
    }
}

/// Returns the last cause of a chain, in words without names.
fn end(link: &Link) -> &str {
    match &*link.cause {
        "running" => "another thread ran",
        "run-queue" => "waited for a CPU",
        "priority-inversion" => "priority inversion",
        "cpu-quota" => "CPU quota",
        "disk" | "io" => "disk",
        "timer" => "slept on purpose",
        "timeout" => "a timeout",
        "network" => "network",
        "delayed-ack" => "TCP's delayed acknowledgement",
        "interrupt" => "a device or a timer",
        "device" => "a device",
        "stopped" => "stopped by a signal or a cgroup",
        "held" => "lock held, its holder's doing unknown",
        "cycle" | "perhaps-cycle" => "deadlock",
        "unknown" | "left-out" => "not known",
        "other" => "smaller causes",
        other => other,
    }
}

/// Returns a text in which numbers that differ from run to run are `*`: those after a mark (`worker-3`,
/// `jbd2/vda1-8`, `kworker/1:2`) and hexadecimal ones (`0x7f12`). Numbers that belong to names stay: `python3`,
/// `pread64`.
pub(super) fn stem(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let marked = matches!(out.chars().last(), Some('-' | '/' | '#' | ':' | '_'));
        if c == '0' && rest.peek() == Some(&'x') && !out.ends_with(char::is_alphanumeric) {
            rest.next();
            while rest.next_if(char::is_ascii_hexdigit).is_some() {}
            out.push('*');
        } else if c.is_ascii_digit() && marked {
            let mut digits = String::from(c);
            while let Some(more) = rest.next_if(char::is_ascii_digit) {
                digits.push(more);
            }
            match rest.peek() {
                Some(next) if next.is_alphanumeric() && *next != 'H' => out += &digits,
                _ => out.push('*'),
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn numbers_that_differ_from_run_to_run_are_no_part_of_a_name() {
        for (text, name) in [
            ("python3 was in pread64", "python3 was in pread64"),
            ("worker-12", "worker-*"),
            ("jbd2/vda1-8 was in io", "jbd2/vda1-* was in io"),
            ("kworker/u8:3", "kworker/u8:*"),
            ("kworker/1:0H-kblockd", "kworker/*:*H-kblockd"),
            (
                "waited for the lock at 0x7f12ab",
                "waited for the lock at *",
            ),
            ("x86-64bit", "x86-64bit"),
            ("held back for 40 ms", "held back for 40 ms"),
            ("", ""),
        ] {
            assert_eq!(stem(text), name);
        }
    }
}
