//! The part of a line before an event's own fields: thread, CPU, time, and which event.
//!
//! ```text
//! perf script       comm   pid[/tid] [cpu] secs.frac: [period] [system:]event: fields
//! trace-cmd report  comm-pid [cpu] secs.frac: event: fields
//! trace             comm-pid (tgid) [cpu] flags secs.frac: event: fields
//! ```
//!
//! A thread's name may hold anything, so that a line is read around its time: what ends in a colon and is a number of
//! seconds with a fraction.

use stopgap_events::units::Nanos;

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// `perf script`: the thread's id is a word of its own.
    Perf,
    /// `trace-cmd report`, and the kernel's own `trace` file: the thread's id is joined to its name.
    Ftrace,
}

/// A line that begins an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header<'l> {
    pub(super) tool: Tool,
    /// The name that is printed; perf's is of then, ftrace's the last that the thread had.
    pub(super) comm: Option<&'l str>,
    pub(super) tid: Option<u32>,
    /// The process, where it is printed.
    pub(super) pid: Option<u32>,
    pub(super) cpu: Option<u32>,
    pub(super) time: Nanos,
    /// Whether the time was printed in nanoseconds.
    pub(super) exact: bool,
    /// The event's name, without its system and without a sample's modifiers.
    pub(super) event: &'l str,
    /// The text after the name.
    pub(super) fields: &'l str,
}

impl<'l> Header<'l> {
    /// The header of `line`, if it is one.
    pub(super) fn parse(line: &'l str) -> Option<Header<'l>> {
        tokens(line).find_map(|(at, token)| {
            let (time, exact) = time(token.strip_suffix(':')?)?;
            let mut header = before(line[..at].trim())?;
            header.time = time;
            header.exact = exact;
            let after = line[at + token.len()..].trim();
            (header.event, header.fields) = event(after)?;
            Some(header)
        })
    }
}

/// The words of a line, each with where it begins.
fn tokens(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_ascii_whitespace()
        .map(|token| (token.as_ptr() as usize - line.as_ptr() as usize, token))
}

/// `33758.116531`: seconds and their fraction, of up to nine digits; whether there are nine.
fn time(token: &str) -> Option<(Nanos, bool)> {
    const DIGITS: usize = 9;
    let (whole, fraction) = token.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > DIGITS {
        return None;
    }
    let scale = 10_u64.pow((DIGITS - fraction.len()) as u32);
    let ns = fraction.parse::<u64>().ok()? * scale;
    let seconds = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    Some((Nanos(seconds.checked_add(ns)?), fraction.len() == DIGITS))
}

/// Parses the part before the time.
fn before(text: &str) -> Option<Header<'_>> {
    let mut header = Header {
        tool: Tool::Perf,
        comm: None,
        tid: None,
        pid: None,
        cpu: None,
        time: Nanos(0),
        exact: false,
        event: "",
        fields: "",
    };
    let mut text = text;
    // The kernel's flags (`d..2.`) come after the CPU.
    if !text.ends_with(']')
        && let Some((rest, _flags)) = text.rsplit_once(char::is_whitespace)
        && rest.trim_end().ends_with(']')
    {
        text = rest.trim_end();
    }
    if let Some(rest) = text.strip_suffix(']') {
        let (rest, cpu) = rest.rsplit_once('[')?;
        header.cpu = Some(cpu.parse().ok()?);
        text = rest.trim_end();
    }
    if let Some(rest) = text.strip_suffix(')') {
        let (rest, process) = rest.rsplit_once('(')?;
        header.pid = process.trim().parse().ok(); // dashes where it is not known
        text = rest.trim_end();
    }
    let (name, ids) = text.rsplit_once(char::is_whitespace).unwrap_or(("", text));
    let comm = match perf_ids(ids) {
        Some((pid, tid)) => {
            header.pid = pid.or(header.pid);
            header.tid = tid;
            name.trim()
        }
        None => {
            let (name, tid) = text.rsplit_once('-')?;
            header.tool = Tool::Ftrace;
            header.tid = Some(tid.parse().ok()?);
            name.trim()
        }
    };
    // A thread without a known name is `<...>` or `:812`; and `<idle>` is no name of the kernel's.
    let unnamed = |name: &str| {
        let number = name.strip_prefix(':');
        number.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let known = !matches!(comm, "" | "<...>" | "<idle>") && !unnamed(comm);
    header.comm = known.then_some(comm);
    Some(header)
}

/// `tid` or `pid/tid`; -1 is nobody.
fn perf_ids(word: &str) -> Option<(Option<u32>, Option<u32>)> {
    let id = |word: &str| match word {
        "-1" => Some(None),
        _ => word.parse::<u32>().ok().map(Some),
    };
    match word.split_once('/') {
        Some((pid, tid)) => Some((id(pid)?, id(tid)?)),
        None => Some((None, id(word)?)),
    }
}

/// The event's name and its fields, from what stands after the time.
fn event(text: &str) -> Option<(&str, &str)> {
    let split = |text: &'_ str| -> (usize, usize) {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        (end, text.len())
    };
    let mut text = text;
    let (end, length) = split(text);
    // perf prints a sample's period before its name.
    if end < length && text[..end].bytes().all(|b| b.is_ascii_digit()) {
        text = text[end..].trim_start();
    }
    if text.starts_with("<stack trace") {
        return Some(("kernel_stack", text));
    }
    if text.starts_with("<user stack trace") {
        return Some(("user_stack", text));
    }
    let (end, _) = split(text);
    let (word, fields) = (&text[..end], text[end..].trim_start());
    if word.is_empty() {
        return None;
    }
    // The kernel's own text of system calls: `sys_write(fd: 3, ...)`, `sys_write -> 0x20`.
    if let Some((name, _)) = word.split_once('(')
        && name.starts_with("sys_")
    {
        return Some((name, text));
    }
    if fields.starts_with("->") && word.starts_with("sys_") {
        return Some((word, fields));
    }
    Some((base(word.strip_suffix(':').unwrap_or(word)), fields))
}

/// `sched:sched_switch` without its system, `cpu-clock:ppp` without its modifiers.
fn base(name: &str) -> &str {
    match name.split_once(':') {
        Some((name, modifiers)) if modifiers.bytes().all(|b| b"ukhGHpPSDWe".contains(&b)) => name,
        Some((_, event)) => event,
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_lines_of_each_tool() {
        let header = |line| Header::parse(line).unwrap_or_else(|| panic!("{line}"));
        let perf = header(
            "     migration/0    18 [000] 33762.855977:       sched:sched_waking: comm=perf pid=1",
        );
        assert_eq!((perf.tool, perf.comm), (Tool::Perf, Some("migration/0")));
        assert_eq!((perf.tid, perf.pid, perf.cpu), (Some(18), None, Some(0)));
        assert_eq!((perf.time, perf.exact), (Nanos(33_762_855_977_000), false));
        assert_eq!(
            (perf.event, perf.fields),
            ("sched_waking", "comm=perf pid=1")
        );
        let perf = header("lto cgu.04 12/34 [001] 1.000000007: 250000 cpu-clock:ppp:  ");
        assert_eq!(
            (perf.comm, perf.pid, perf.tid),
            (Some("lto cgu.04"), Some(12), Some(34))
        );
        assert_eq!((perf.time, perf.exact), (Nanos(1_000_000_007), true));
        assert_eq!((perf.event, perf.fields), ("cpu-clock", ""));
        let perf = header(":77 77 5.25: syscalls:sys_exit_write: 0x20");
        assert_eq!((perf.comm, perf.tid, perf.cpu), (None, Some(77), None));
        assert_eq!(perf.event, "sys_exit_write");

        let report =
            header("      lto cgu.04-13320 [000] 33828.534535: sched_switch:         a:1 [120]");
        assert_eq!(
            (report.tool, report.comm),
            (Tool::Ftrace, Some("lto cgu.04"))
        );
        assert_eq!((report.tid, report.cpu), (Some(13_320), Some(0)));
        assert_eq!((report.event, report.fields), ("sched_switch", "a:1 [120]"));
        let own =
            header("   <idle>-0   (-------) [001] dN.4. 33809.468014: sys_write(fd: 3, buf: 0x7)");
        assert_eq!((own.tid, own.pid, own.comm), (Some(0), None, None));
        assert_eq!(
            (own.event, own.fields),
            ("sys_write", "sys_write(fd: 3, buf: 0x7)")
        );
        let own = header(" true-13205   (  13205) [000] ..... 33809.566423: sys_write -> 0x2");
        assert_eq!(
            (own.pid, own.event, own.fields),
            (Some(13_205), "sys_write", "-> 0x2")
        );
        let own = header("a-b-5 [000] d..2. 33809.468047: <stack trace>");
        assert_eq!((own.comm, own.event), (Some("a-b"), "kernel_stack"));
    }

    #[test]
    fn what_is_no_header() {
        for line in [
            "",
            "# tracer: nop",
            "cpus=2",
            "=> schedule (ffffffff821fb643)",
            "\tffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])",
            "5.5: event: x",
            "rt 1 [000] 5: event: x",
            "rt 1 [000] 5.1234567890: event: x",
            "rt 1 [000] 99999999999.5: event: x",
            "rt 1 [000] 5.5:",
            "rt 1 [zero] 5.5: event: x",
            "{\"time_ns\":5,\"kind\":\"unmap\",\"id\":3}",
        ] {
            assert_eq!(Header::parse(line), None, "{line}");
        }
    }
}
