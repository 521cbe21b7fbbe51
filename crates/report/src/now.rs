//! NOW: the state of the machine before any load, with a mark on every sign of trouble.

use stopgap_events::machine::{Now, ProcessMappings, TaskRate};

use crate::table::{join, known_or};
use crate::text::{number, thousands, uptime};

/// A row of NOW. Its text comes from the machine as it is: control characters are not made visible yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its subject; empty where it continues the row before.
    pub about: &'static str,
    /// The finding.
    pub text: String,
    /// Whether it is a sign of trouble. The rules stand beside the constants of this module.
    pub watch: bool,
}

/// Watch a process that holds this share of `vm.max_map_count`: at the limit mmap fails.
pub const WATCH_MAPPINGS_SHARE: f64 = 0.5;
/// Watch a process with this many one-page mappings of one file: mail 000 felt it from 5,000.
pub const WATCH_ONE_PAGE: u64 = 5_000;
/// Watch order 4 and its like: more than this share of free memory cannot serve a request of that order. Above
/// one half, a request of that order more often finds nothing than something near at hand.
pub const WATCH_UNUSABLE: f64 = 0.5;
/// Orders up to this one are what drivers and the network ask for every day (64 KiB with
/// pages of 4 KiB); larger ones are expected to be scarce.
pub const WATCH_ORDER: u32 = 4;
/// Watch a resource for which all tasks waited this per cent of the last 5 minutes or 10 s.
pub const WATCH_FULL: f64 = 1.0;
/// Watch this many direct-reclaim or direct-compaction stalls an hour of uptime.
pub const WATCH_STALLS_PER_HOUR: f64 = 60.0;

/// Returns the rows of NOW.
#[must_use]
pub fn rows(now: &Now) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |about, text, watch| rows.push(Row { about, text, watch });
    if let Some(process) = &now.process {
        let sizes = [
            ("resident", process.resident),
            ("locked", process.locked),
            ("pinned", process.pinned),
            ("swapped", process.swapped),
        ];
        let size = |(name, size)| format!("{name} {}", known_or("unknown", size));
        let threads = known_or("unknown", process.threads.map(thousands));
        let (name, pid, sizes) = (&process.name, process.pid, join(sizes.map(size), ", "));
        let text = format!("{name} ({pid}): threads {threads}, {sizes}");
        add("process", text, false);
    }
    for (index, process) in now.mappings.iter().enumerate() {
        let about = if index == 0 { "mappings" } else { "" };
        let limit = now.max_map_count;
        add(about, mappings(process, limit), watch(process, limit));
    }
    let up = now.uptime_s.map(uptime);
    if !now.unusable_index.is_empty() {
        let orders = now.unusable_index.iter();
        let scarce = |one: &stopgap_events::machine::OrderIndex| {
            one.order <= WATCH_ORDER && one.index >= WATCH_UNUSABLE
        };
        let watch = orders.clone().any(scarce);
        let orders = join(
            orders.map(|one| format!("{}:{:.2}", one.order, one.index)),
            " ",
        );
        let up = known_or("", up.map(|up| format!(", up {up}")));
        add(
            "free memory",
            format!("unusable index by order {orders}{up}"),
            watch,
        );
    } else if let Some(up) = up {
        add("uptime", up, false);
    }
    if let Some((text, watch)) = since_boot(now) {
        add("since boot", text, watch);
    }
    if !now.pressure.is_empty() {
        let each = now.pressure.iter().map(|one| {
            let full = one
                .full
                .map(|full| format!(" full {:.1}/{:.1}", full.avg10, full.avg300));
            let (resource, some) = (&one.resource, one.some);
            let full = known_or("", full);
            format!("{resource} some {:.1}/{:.1}{full}", some.avg10, some.avg300)
        });
        let text = format!("{} (% of 10 s/300 s)", join(each, ", "));
        let mut full = now.pressure.iter().filter_map(|one| one.full);
        let watch = full.any(|full| full.avg10.max(full.avg300) >= WATCH_FULL);
        add("pressure", text, watch);
    }
    let held = [("unevictable", now.unevictable), ("mlocked", now.mlocked)];
    let held = held
        .into_iter()
        .filter_map(|(name, size)| Some(format!("{name} {}", size?)));
    let held = join(held, ", ");
    if !held.is_empty() {
        add("held", held, false);
    }
    for (kind, tasks) in [
        ("voluntary", &now.voluntary),
        ("involuntary", &now.involuntary),
    ] {
        let busy = tasks
            .iter()
            .filter(|task| task.per_second > 0.0)
            .map(switches);
        let busy = join(busy, ", ");
        if !busy.is_empty() {
            add("switches/s", format!("{kind}: {busy}"), false);
        }
    }
    for missing in &now.missing {
        add(
            "unknown",
            format!("{}: {}", missing.what, missing.why),
            false,
        );
    }
    rows
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns how many mappings a process has, and what the most of them are backed by.
fn mappings(process: &ProcessMappings, limit: Option<u64>) -> String {
    let of = known_or("", limit.map(|limit| format!(" of {}", thousands(limit))));
    let backing = process.backing.first().map(|first| {
        let percent = |part, whole| format!("{:.0} %", 100.0 * share(part, whole));
        let pages = match first.one_page {
            0 => String::new(),
            pages => format!(", {} of them one page", percent(pages, first.mappings)),
        };
        let share = percent(first.mappings, process.mappings);
        format!("; {share} {}{pages}", first.file)
    });
    let (name, pid, count) = (&process.name, process.pid, thousands(process.mappings));
    format!("{name} ({pid}) {count}{of}{}", known_or("", backing))
}

fn watch(process: &ProcessMappings, limit: Option<u64>) -> bool {
    let near = limit.is_some_and(|limit| share(process.mappings, limit) >= WATCH_MAPPINGS_SHARE);
    let mut files = process
        .backing
        .iter()
        .filter(|backing| backing.file != "anonymous");
    near || files.any(|file| file.one_page >= WATCH_ONE_PAGE)
}

/// Returns counters of stalls since boot, and whether they are a sign of trouble.
fn since_boot(now: &Now) -> Option<(String, bool)> {
    if now.since_boot.is_empty() {
        return None;
    }
    // These three always; of the others those that ever counted.
    let always = ["allocstall", "compact_stall", "compact_fail"];
    let (shown, zero): (Vec<_>, Vec<_>) = now
        .since_boot
        .iter()
        .partition(|counter| counter.value > 0 || always.contains(&&*counter.name));
    let shown = shown
        .iter()
        .map(|one| format!("{} {}", one.name, thousands(one.value)));
    let zero = (!zero.is_empty()).then(|| "other compact_* 0".to_owned());
    let stalls = now
        .since_boot
        .iter()
        .filter(|one| always[..2].contains(&&*one.name));
    let stalls: u64 = stalls.map(|counter| counter.value).sum();
    let per_hour = |seconds: u64| stalls as f64 / (seconds.max(3_600) as f64 / 3_600.0);
    let watch = now
        .uptime_s
        .is_some_and(|up| per_hour(up) >= WATCH_STALLS_PER_HOUR);
    Some((join(shown.chain(zero), ", "), watch))
}

fn switches(task: &TaskRate) -> String {
    let thread = match task.tid == task.pid {
        true => task.pid.to_string(),
        false => format!("{}/{}", task.pid, task.tid),
    };
    format!("{} ({thread}) {}", task.name, number(task.per_second))
}
