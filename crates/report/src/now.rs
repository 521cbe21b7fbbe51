//! What the machine shows before any load, and what of it to watch.

use stopgap_events::machine::{Now, Pressure, ProcessMappings, TaskRate};

use crate::text::{number, plain, thousands, uptime};

/// A row: what it is about, what it says, whether to watch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is about; empty where it goes on from the row before.
    pub about: &'static str,
    /// What it says.
    pub text: String,
    /// Whether it is a sign of trouble. The rules stand beside the constants of this module.
    pub watch: bool,
}

/// Watch a process that holds this share of `vm.max_map_count`: at the limit mmap fails.
pub const WATCH_MAPPINGS_SHARE: f64 = 0.5;
/// Watch a process with this many one-page mappings of one file: mail 000 felt it from 5,000.
pub const WATCH_ONE_PAGE: u64 = 5_000;
/// Watch order 4 and its like: more than this share of free memory is of no use to it. Above
/// one half, a request of that order more often finds nothing than something near at hand.
pub const WATCH_UNUSABLE: f64 = 0.5;
/// Orders up to this one are what drivers and the network ask for every day (64 KiB with
/// pages of 4 KiB); larger ones are expected to be scarce.
pub const WATCH_ORDER: u32 = 4;
/// Watch a resource for which all tasks waited this per cent of the last 5 minutes or 10 s.
pub const WATCH_FULL: f64 = 1.0;
/// Watch this many direct-reclaim or direct-compaction stalls an hour of uptime.
pub const WATCH_STALLS_PER_HOUR: f64 = 60.0;

/// The rows of NOW.
#[must_use]
pub fn rows(now: &Now) -> Vec<Row> {
    let mut rows = Vec::new();
    process(now, &mut rows);
    mappings(now, &mut rows);
    fragmentation(now, &mut rows);
    since_boot(now, &mut rows);
    pressure(&now.pressure, &mut rows);
    held(now, &mut rows);
    switches("voluntary", &now.voluntary, &mut rows);
    switches("involuntary", &now.involuntary, &mut rows);
    rows.extend(now.missing.iter().map(|missing| Row {
        about: "unknown",
        text: format!("{}: {}", plain(&missing.what), plain(&missing.why)),
        watch: false,
    }));
    rows
}

fn process(now: &Now, rows: &mut Vec<Row>) {
    let Some(process) = &now.process else { return };
    let size = |name: &str, size: Option<stopgap_events::units::Bytes>| match size {
        Some(size) => format!("{name} {size}"),
        None => format!("{name} unknown"),
    };
    let threads = process
        .threads
        .map_or_else(|| "unknown".to_owned(), thousands);
    rows.push(Row {
        about: "process",
        text: format!(
            "{} ({}): threads {threads}, {}, {}, {}, {}",
            plain(&process.name),
            process.pid,
            size("resident", process.resident),
            size("locked", process.locked),
            size("pinned", process.pinned),
            size("swapped", process.swapped),
        ),
        watch: false,
    });
}

fn mappings(now: &Now, rows: &mut Vec<Row>) {
    for (index, process) in now.mappings.iter().enumerate() {
        rows.push(Row {
            about: if index == 0 { "mappings" } else { "" },
            text: one_process(process, now.max_map_count),
            watch: watch_process(process, now.max_map_count),
        });
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn one_process(process: &ProcessMappings, limit: Option<u64>) -> String {
    let of = match limit {
        Some(limit) => format!(" of {}", thousands(limit)),
        None => String::new(),
    };
    let backing = process.backing.first().map(|first| {
        let pages = if first.one_page > 0 {
            format!(
                ", {:.0} % of them one page",
                100.0 * share(first.one_page, first.mappings)
            )
        } else {
            String::new()
        };
        format!(
            "; {:.0} % {}{pages}",
            100.0 * share(first.mappings, process.mappings),
            plain(&first.file)
        )
    });
    format!(
        "{} ({}) {}{of}{}",
        plain(&process.name),
        process.pid,
        thousands(process.mappings),
        backing.unwrap_or_default()
    )
}

fn watch_process(process: &ProcessMappings, limit: Option<u64>) -> bool {
    let near = limit.is_some_and(|limit| share(process.mappings, limit) >= WATCH_MAPPINGS_SHARE);
    let glyphs = process
        .backing
        .iter()
        .any(|backing| backing.file != "anonymous" && backing.one_page >= WATCH_ONE_PAGE);
    near || glyphs
}

fn fragmentation(now: &Now, rows: &mut Vec<Row>) {
    let up = now
        .uptime_s
        .map(|seconds| format!(", up {}", uptime(seconds)))
        .unwrap_or_default();
    if now.unusable_index.is_empty() {
        rows.extend(now.uptime_s.map(|seconds| Row {
            about: "uptime",
            text: uptime(seconds),
            watch: false,
        }));
        return;
    }
    let orders: Vec<String> = now
        .unusable_index
        .iter()
        .map(|one| format!("{}:{:.2}", one.order, one.index))
        .collect();
    rows.push(Row {
        about: "free memory",
        text: format!("unusable index by order {}{up}", orders.join(" ")),
        watch: now
            .unusable_index
            .iter()
            .any(|one| one.order <= WATCH_ORDER && one.index >= WATCH_UNUSABLE),
    });
}

fn since_boot(now: &Now, rows: &mut Vec<Row>) {
    if now.since_boot.is_empty() {
        return;
    }
    // These three always; of the others those that ever counted.
    let always = ["allocstall", "compact_stall", "compact_fail"];
    let (shown, zero): (Vec<_>, Vec<_>) = now
        .since_boot
        .iter()
        .partition(|counter| counter.value > 0 || always.contains(&counter.name.as_str()));
    let mut parts: Vec<String> = shown
        .iter()
        .map(|counter| format!("{} {}", plain(&counter.name), thousands(counter.value)))
        .collect();
    if !zero.is_empty() {
        parts.push("other compact_* 0".to_owned());
    }
    let stalls: u64 = now
        .since_boot
        .iter()
        .filter(|counter| ["allocstall", "compact_stall"].contains(&counter.name.as_str()))
        .map(|counter| counter.value)
        .sum();
    let per_hour = now
        .uptime_s
        .map(|seconds| stalls as f64 / (seconds.max(3_600) as f64 / 3_600.0));
    rows.push(Row {
        about: "since boot",
        text: parts.join(", "),
        watch: per_hour.is_some_and(|rate| rate >= WATCH_STALLS_PER_HOUR),
    });
}

fn pressure(pressure: &[Pressure], rows: &mut Vec<Row>) {
    if pressure.is_empty() {
        return;
    }
    let parts: Vec<String> = pressure
        .iter()
        .map(|one| {
            let full = one
                .full
                .map(|full| format!(" full {:.1}/{:.1}", full.avg10, full.avg300))
                .unwrap_or_default();
            let some = one.some;
            format!(
                "{} some {:.1}/{:.1}{full}",
                one.resource, some.avg10, some.avg300
            )
        })
        .collect();
    rows.push(Row {
        about: "pressure",
        text: format!("{} (% of 10 s/300 s)", parts.join(", ")),
        watch: pressure
            .iter()
            .filter_map(|one| one.full)
            .any(|full| full.avg10 >= WATCH_FULL || full.avg300 >= WATCH_FULL),
    });
}

fn held(now: &Now, rows: &mut Vec<Row>) {
    let parts: Vec<String> = [("unevictable", now.unevictable), ("mlocked", now.mlocked)]
        .into_iter()
        .filter_map(|(name, size)| Some(format!("{name} {}", size?)))
        .collect();
    if !parts.is_empty() {
        rows.push(Row {
            about: "held",
            text: parts.join(", "),
            watch: false,
        });
    }
}

fn switches(kind: &'static str, tasks: &[TaskRate], rows: &mut Vec<Row>) {
    let busy: Vec<String> = tasks
        .iter()
        .filter(|task| task.per_second > 0.0)
        .map(|task| {
            let thread = if task.tid == task.pid {
                task.pid.to_string()
            } else {
                format!("{}/{}", task.pid, task.tid)
            };
            format!(
                "{} ({thread}) {}",
                plain(&task.name),
                number(task.per_second)
            )
        })
        .collect();
    if !busy.is_empty() {
        rows.push(Row {
            about: "switches/s",
            text: format!("{kind}: {}", busy.join(", ")),
            watch: false,
        });
    }
}
