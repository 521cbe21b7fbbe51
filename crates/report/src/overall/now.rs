//! RIGHT NOW: the state of the machine before any load, a row a resource, with the limit of each warning.

use stopgap_events::machine::{Environment, LogKind, LogLine, Missing, Now, Pressure, SwapUse};
use stopgap_events::units::Bytes;
use stopgap_stats::overall::{Row, State};

use super::{row, then, unknown};
use crate::text::{number, thousands, uptime};

/// Per cent of 10 s in which some thread waited for a CPU. A machine with as many busy threads as CPUs stays below.
const CPU: f64 = 50.0;
/// Per cent of the CPU time that a hypervisor kept for others.
const STEAL: f64 = 10.0;
/// The same, where it stops everything for tenths of a second.
const STEAL_CAUSE: f64 = 30.0;
/// Per cent of 10 s in which every thread that had work waited for a disk. Idle machines write their journals: up to 3.
const DISK_FULL: f64 = 5.0;
/// The same as a cause: a second of 5 is lost.
const DISK_CAUSE: f64 = 20.0;
/// Per cent of 10 s in which some thread waited for a disk while others ran.
const DISK_SOME: f64 = 20.0;
/// Mean milliseconds a request. Seeking disks under a light load take 20.
const DISK_MS: f64 = 100.0;
/// Per cent of 10 s in which every thread that had work waited for memory; 0 where memory is at hand.
const MEMORY_FULL: f64 = 1.0;
/// The same as a cause.
const MEMORY_CAUSE: f64 = 10.0;
/// Per cent of 10 s in which some thread waited for memory.
const MEMORY_SOME: f64 = 5.0;
/// Per cent of the interval in which some task of a control group waited for memory.
const GROUP_SOME: f64 = 5.0;
/// How often within the interval a control group met its limit.
const GROUP_LIMIT: u64 = 50;
/// Share of free memory in blocks below order 4 (64 KiB with pages of 4 KiB), which drivers and the network ask for
/// every day. Above one half, such a request more often finds nothing than something near at hand.
const FRAGMENTED: f64 = 0.5;
const FRAGMENTED_ORDER: u32 = 4;
/// Memory of programs that lies in swap on a disk: who touches it waits for the disk.
const SWAPPED: Bytes = Bytes::mib(64);
/// Share of zram that is used.
const ZRAM: f64 = 0.5;
/// Bytes per second that are read back from swap.
const SWAP_IN: f64 = 1_048_576.0;
/// Share of `vm.max_map_count` that a process holds: at the limit mmap fails.
const MAPPINGS_SHARE: f64 = 0.5;
/// Mappings of one page of one file: mail 000 felt it from 5,000 on.
const ONE_PAGE: u64 = 5_000;
/// For how long a line of the kernel log counts.
const LOG_SECONDS: u64 = 3_600;

/// Characters of a sentence that fit its line on 80 columns.
const ROOM: usize = 64;

/// Per cent of 10 s below which nobody waited: it would be shown as 0.0.
const SHOWN: f64 = 0.05;

/// Returns a row for each resource.
pub(super) fn rows(now: &Now, environment: &Environment) -> Vec<Row> {
    let mut rows = vec![cpu(now), disk(now), memory(now, environment)];
    rows.extend(now.swap.filter(|swap| swap.total.0 > 0).map(swapped));
    rows.push(mappings(now));
    rows.push(tasks(now));
    rows.extend(process(now));
    rows.push(log(now));
    rows
}

/// A trace is its owner's: root reads it, too.
pub(super) const RECORD: &str =
    "sudo stopgap record -a -d 10s -o t.parquet && sudo stopgap explain t.parquet";
const WHO_WAITS: &str = "See who waits, and for what:";

/// Returns why something is not known.
fn why<'n>(now: &'n Now, what: &str) -> &'n str {
    let about = |one: &&Missing| one.what.contains(what);
    now.missing
        .iter()
        .find(about)
        .map_or("not read", |one| &one.why)
}

/// Returns the pressure of a resource over 10 s and over the interval, where both are known. A stall of 9 s ago that
/// is over does not count: what stopgap itself did before would.
fn pressure<'n>(now: &'n Now, resource: &str) -> Option<(&'n Pressure, f64, f64)> {
    let ten = now.pressure.iter().find(|one| one.resource == resource)?;
    let just = now.waited.iter().find(|one| one.resource == resource);
    let goes_on = |avg10: f64, just: Option<f64>| match just {
        Some(0.0) => 0.0,
        _ => avg10,
    };
    let some = goes_on(ten.some.avg10, just.map(|one| one.some));
    let full = ten.full.map_or(0.0, |full| full.avg10);
    let full = goes_on(full, just.and_then(|one| one.full));
    Some((ten, some, full))
}

fn cpu(now: &Now) -> Row {
    let kept = |steal: f64, limit: f64| {
        format!(
            "the hypervisor kept {} % of the CPU time (warns at {limit} %)",
            number(steal)
        )
    };
    let steal = now.steal.unwrap_or(0.0);
    if steal >= STEAL_CAUSE {
        return row("cpu", State::Cause, kept(steal, STEAL));
    }
    if steal >= STEAL {
        return row("cpu", State::Look, kept(steal, STEAL));
    }
    let Some((ten, some, _)) = pressure(now, "cpu") else {
        return unknown("cpu", why(now, "pressure"));
    };
    let text = format!(
        "threads waited for a CPU {} % of the last 10 s",
        per_cent(some)
    );
    if some >= CPU {
        let row = row("cpu", State::Look, format!("{text} (warns at {CPU} %)"));
        return then(row, "See which threads have the CPUs:", RECORD);
    }
    match ten.some.avg10 >= SHOWN {
        true => row("cpu", State::Ok, text),
        false => row("cpu", State::Ok, "nobody waited for one in the last 10 s"),
    }
}

fn per_cent(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 10.0 => format!("{value:.1}"),
        // 19.9 is below a limit of 20.
        _ => format!("{:.0}", value.floor()),
    }
}

/// Returns `waited for 3.3 % of the last 10 s`, whether threads still wait or not. What stands behind it fits the line, too.
fn waited(ten: &Pressure, just: f64) -> String {
    match ten.some.avg10 {
        ten if ten < SHOWN => "nobody waited for it in the last 10 s".to_owned(),
        ten if just < SHOWN => format!("waited for {} % of 10 s, not now", per_cent(ten)),
        ten => format!("waited for {} % of the last 10 s", per_cent(ten)),
    }
}

fn disk(now: &Now) -> Row {
    let look = |state, text: String| then(row("disk", state, text), WHO_WAITS, RECORD);
    // Some kernels lose count of open requests; a thread that waits for one shows in the pressure.
    let io = now.waited.iter().find(|one| one.resource == "io");
    let waiting = io.is_none_or(|one| one.some > 0.0);
    let silent = now.disks.iter().find(|disk| waiting && disk.completed == 0);
    if let Some(disk) = silent {
        let text = format!(
            "{} completed none of {} open requests for {} ms",
            disk.name, disk.in_flight, now.interval_ms
        );
        return look(State::Cause, text);
    }
    let pressure = pressure(now, "io");
    if let Some((_, _, full)) = pressure
        && full >= DISK_FULL
    {
        let state = match full >= DISK_CAUSE {
            true => State::Cause,
            false => State::Look,
        };
        let text = format!(
            "everything waited for it {} % of the last 10 s (warns at {DISK_FULL} %)",
            per_cent(full)
        );
        return look(state, text);
    }
    if let Some((_, some, _)) = pressure
        && some >= DISK_SOME
    {
        let text = format!(
            "threads waited for it {} % of the last 10 s (warns at {DISK_SOME} %)",
            per_cent(some)
        );
        return look(State::Look, text);
    }
    let slow = now
        .disks
        .iter()
        .find(|disk| disk.mean_ms.is_some_and(|ms| ms >= DISK_MS));
    if let Some(disk) = slow {
        let text = format!(
            "{} takes {} ms a request (warns at {DISK_MS} ms)",
            disk.name,
            number(disk.mean_ms.unwrap_or(0.0))
        );
        return look(State::Look, text);
    }
    let Some((ten, some, _)) = pressure else {
        return unknown("disk", why(now, "pressure"));
    };
    let latency = now.disks.first().and_then(|disk| {
        let ms = disk.mean_ms?;
        Some(format!("; {} {} ms a request", disk.name, number(ms)))
    });
    let latency = latency.unwrap_or_default();
    row("disk", State::Ok, waited(ten, some) + &latency)
}

fn memory(now: &Now, environment: &Environment) -> Row {
    let look = |state, text: String| then(row("memory", state, text), WHO_WAITS, RECORD);
    let pressure = pressure(now, "memory");
    if let Some((_, _, full)) = pressure
        && full >= MEMORY_CAUSE
    {
        let text = format!(
            "everything waited for it {} % of the last 10 s (warns at {MEMORY_FULL} %)",
            per_cent(full)
        );
        return look(State::Cause, text);
    }
    // The group says where; the machine's figures include it.
    let short = now.groups.first().and_then(|group| {
        let name = innermost(&group.path);
        if let Some(some) = group.some.filter(|some| *some >= GROUP_SOME) {
            let some = per_cent(some);
            return Some(format!(
                "{name} waited {some} % of the time (warns at {GROUP_SOME} %)"
            ));
        }
        let times = group.at_limit.filter(|times| *times >= GROUP_LIMIT)?;
        let times = thousands(times);
        Some(format!(
            "{name} met its limit {times} times (warns at {GROUP_LIMIT})"
        ))
    });
    if let Some(text) = short {
        return look(State::Look, text);
    }
    if let Some((_, some, full)) = pressure {
        if full >= MEMORY_FULL {
            let text = format!(
                "everything waited for it {} % of the last 10 s (warns at {MEMORY_FULL} %)",
                per_cent(full)
            );
            return look(State::Look, text);
        }
        if some >= MEMORY_SOME {
            let text = format!(
                "threads waited for it {} % of the last 10 s (warns at {MEMORY_SOME} %)",
                per_cent(some)
            );
            return look(State::Look, text);
        }
    }
    let index = now
        .unusable_index
        .iter()
        .find(|one| one.order == FRAGMENTED_ORDER);
    if let Some(one) = index.filter(|one| one.index >= FRAGMENTED) {
        let text = format!(
            "fragmented: {:.0} % of free in blocks under {} (warns at 50 %)",
            one.index * 100.0,
            Bytes(environment.page_size.0 << FRAGMENTED_ORDER)
        );
        let row = row("memory", State::Look, text);
        return then(
            row,
            "See what large buffers cost:",
            "sudo stopgap probe chunks",
        );
    }
    let Some((ten, some, _)) = pressure else {
        return unknown("memory", why(now, "pressure"));
    };
    let mut text = waited(ten, some);
    if index.is_some() {
        text += "; not fragmented";
    }
    if environment.swap.as_deref() == Some("none") {
        text += "; no swap";
    }
    row("memory", State::Ok, text)
}

/// Returns `group .../build.scope` of a control group's path: a line has room for the innermost name, cut off in the middle where
/// it is longer.
fn innermost(path: &str) -> String {
    const MOST: usize = 12;
    let path = crate::text::plain(path);
    let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let above = if above.is_empty() { "/" } else { ".../" };
    let all: Vec<char> = name.chars().collect();
    if all.len() <= MOST {
        return format!("group {above}{name}");
    }
    let half = MOST / 2 - 1;
    let begin: String = all[..half].iter().collect();
    let end: String = all[all.len() - half..].iter().collect();
    format!("group {above}{begin}..{end}")
}

fn swapped(swap: SwapUse) -> Row {
    let mib = |bytes: f64| number(bytes / 1_048_576.0);
    if swap.in_per_s >= SWAP_IN {
        let text = format!(
            "{} MiB/s are read back from it (warns at 1 MiB/s)",
            mib(swap.in_per_s)
        );
        return then(row("swap", State::Look, text), WHO_WAITS, RECORD);
    }
    if swap.on_disk && swap.used >= SWAPPED {
        let text = format!(
            "{} of programs lie in it on a disk (warns at {SWAPPED})",
            swap.used
        );
        let row = row("swap", State::Look, text);
        let why = "Who touches swapped memory waits. See whose it is:";
        return then(
            row,
            why,
            "grep VmSwap /proc/[0-9]*/status | sort -nk2 | tail -5",
        );
    }
    if !swap.on_disk && swap.used.0 as f64 >= ZRAM * swap.total.0 as f64 {
        let text = format!(
            "{} of {} of zram are full (warns at half)",
            swap.used, swap.total
        );
        return then(row("swap", State::Look, text), WHO_WAITS, RECORD);
    }
    let text = match swap.used.0 {
        0 => "unused".to_owned(),
        _ => format!("{} of {} used, hardly any read back", swap.used, swap.total),
    };
    row("swap", State::Ok, text)
}

fn mappings(now: &Now) -> Row {
    let Some(busiest) = now.mappings.first() else {
        return unknown("mappings", why(now, "mappings"));
    };
    let (count, name) = (
        thousands(busiest.mappings),
        crate::text::plain(&busiest.name),
    );
    let who = format!("{name} ({})", busiest.pid);
    // With -p, placement is tested with as many mappings as the process has: its own row has the answer.
    let check = |row: Row| match (now.process.is_some(), busiest.pid) {
        (true, pid) => then(
            row,
            "See which files they map:",
            format!(
                "sudo awk '{{print $6}}' /proc/{pid}/maps | sort | uniq -c | sort -n | tail -5"
            ),
        ),
        (false, pid) => then(
            row,
            "Test with as many mappings as it has:",
            format!("sudo stopgap check -p {pid}"),
        ),
    };
    let limit = now.max_map_count;
    let share = limit.map(|limit| busiest.mappings as f64 / limit.max(1) as f64);
    if let Some(limit) = limit
        && share >= Some(MAPPINGS_SHARE)
    {
        let text = format!("{who} has {count} of {} (warns at half)", thousands(limit));
        return check(row("mappings", State::Look, text));
    }
    // The row tells of the process that is nearest to trouble: one of many one-page mappings may have fewer in all.
    for process in &now.mappings {
        let file = process
            .backing
            .iter()
            .find(|file| file.file != "anonymous" && file.one_page >= ONE_PAGE);
        if let Some(file) = file {
            let text = format!(
                "{} ({}): {} of one page of a file (warns at {})",
                crate::text::plain(&process.name),
                process.pid,
                thousands(file.one_page),
                thousands(ONE_PAGE)
            );
            return check(row("mappings", State::Look, text));
        }
    }
    let of = limit.map_or(String::new(), |limit| format!(" of {}", thousands(limit)));
    let hidden = |one: &Missing| one.what.strip_prefix("mappings of ").map(str::to_owned);
    let text = match (now.process.is_some(), now.missing.iter().find_map(hidden)) {
        (true, _) => format!("{who} has {count}{of}"),
        (false, None) => format!("busiest program has {count}{of}"),
        (false, Some(hidden)) => format!("busiest program has {count}{of}; {hidden} unreadable"),
    };
    row("mappings", State::Ok, text)
}

fn tasks(now: &Now) -> Row {
    let Some(first) = now.stuck.first() else {
        return row(
            "tasks",
            State::Ok,
            "none stood still in state D (uninterruptible)",
        );
    };
    let name = crate::text::plain(&first.name);
    let function = first.function.as_ref();
    let at = function.map_or(String::new(), |at| {
        format!(" in {}", crate::text::plain(at))
    });
    let more = |before: &str, after: &str| match now.stuck_count {
        0 | 1 => String::new(),
        count => format!("{before}{}{after}", thousands(count - 1)),
    };
    let who = |more: &str| format!("{name} ({}){more}: state D{at}", first.tid);
    let time = format!(" for {} ms and more", now.interval_ms);
    let fits = |text: &String| text.chars().count() <= ROOM;
    let long = [who(&more(", ", " more")) + &time, who(&more(", ", " more"))];
    let text = long.into_iter().find(fits);
    let text = text.unwrap_or_else(|| who(&more(" +", "")));
    let command = format!("sudo cat /proc/{}/task/{}/stack", first.pid, first.tid);
    then(
        row("tasks", State::Look, text),
        "See where it waits in the kernel:",
        command,
    )
}

/// Returns the row of the one process that was asked about.
fn process(now: &Now) -> Option<Row> {
    let process = now.process.as_ref()?;
    let size = |size: Option<Bytes>| size.map_or("unknown".to_owned(), |size| size.to_string());
    let name = crate::text::plain(&process.name);
    let on_disk = now.swap.is_none_or(|swap| swap.on_disk);
    if let Some(swapped) = process
        .swapped
        .filter(|swapped| on_disk && *swapped >= SWAPPED)
    {
        let text = format!("{name} has {swapped} in swap on a disk (warns at {SWAPPED})");
        return Some(then(row("process", State::Look, text), WHO_WAITS, RECORD));
    }
    let text = format!(
        "{name}: {} resident, {} in swap",
        size(process.resident),
        size(process.swapped)
    );
    Some(match (process.resident, process.swapped) {
        (None, _) | (_, None) => unknown("process", why(now, "of process")),
        _ => row("process", State::Ok, text),
    })
}

fn log(now: &Now) -> Row {
    let Some(lines) = &now.kernel_log else {
        return unknown("log", "the kernel log is not readable: needs root");
    };
    let recent = |line: &&LogLine| line.seconds_ago < LOG_SECONDS;
    // A kill within one control group says nothing of the machine.
    let weight = |line: &&LogLine| match line.kind {
        LogKind::OomKill => u8::from(!line.text.contains("cgroup")),
        _ => 1,
    };
    let worst = lines
        .iter()
        .filter(recent)
        .max_by_key(|line| (weight(line), std::cmp::Reverse(line.seconds_ago)));
    let Some(line) = worst else {
        return row(
            "log",
            State::Ok,
            "no kill for lack of memory, hung task or GPU hang in an hour",
        );
    };
    let ago = uptime(line.seconds_ago);
    let text = match line.kind {
        LogKind::OomKill => {
            let killed = line
                .text
                .split_once("rocess ")
                .map_or("a process", |(_, rest)| rest);
            let killed = killed.split_once(')').map_or(killed, |(name, _)| name);
            let end = if killed.contains('(') { ")" } else { "" };
            let of_kind = |one: &&LogLine| one.kind == line.kind && weight(one) == weight(&line);
            let kills = lines.iter().filter(recent).filter(of_kind).count();
            match (kills, weight(&line)) {
                (0 | 1, 0) => {
                    format!("killed {killed}{end} for its group's memory limit {ago} ago")
                }
                (0 | 1, _) => format!("killed {killed}{end} for lack of memory {ago} ago"),
                (_, 0) => format!(
                    "{kills} kills for a group's memory limit; the last: {killed}{end} {ago} ago"
                ),
                (..) => {
                    format!("{kills} kills for lack of memory; the last: {killed}{end} {ago} ago")
                }
            }
        }
        LogKind::HungTask => {
            let text = line
                .text
                .split_once("INFO: ")
                .map_or(&*line.text, |(_, rest)| rest);
            let (text, ago) = (text.trim_end_matches('.'), format!(" ({ago} ago)"));
            short(text, ROOM.saturating_sub(ago.len())) + &ago
        }
        LogKind::GpuHang => format!("a GPU hung {ago} ago: {}", line.text),
        LogKind::Lockup => format!("a CPU was stuck {ago} ago: {}", line.text),
        LogKind::DiskError => format!("a disk failed or was late {ago} ago: {}", line.text),
    };
    let text = short(&text, ROOM);
    let state = match weight(&line) {
        0 => State::Look,
        _ => State::Cause,
    };
    let text = crate::text::plain(&text);
    then(
        row("log", state, text),
        "Read it in the kernel log:",
        "sudo dmesg -T | grep -iE 'out of mem|blocked for|hang|error' | tail",
    )
}

/// Returns the beginning of a line of more than so many characters.
fn short(text: &str, most: usize) -> String {
    const CUT: &str = "...";
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(CUT.len())).collect();
    kept.trim_end().to_owned() + CUT
}
