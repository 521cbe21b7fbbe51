//! NOW: the state of the machine before any load, in numbers. What they mean: [`crate::overall`].

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
}

/// Returns the rows of NOW.
#[must_use]
pub fn rows(now: &Now) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |about, text| rows.push(Row { about, text });
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
        add("process", text);
    }
    for (index, process) in now.mappings.iter().enumerate() {
        let about = if index == 0 { "mappings" } else { "" };
        let limit = now.max_map_count;
        add(about, mappings(process, limit));
    }
    let up = now.uptime_s.map(uptime);
    if !now.unusable_index.is_empty() {
        let orders = now.unusable_index.iter();
        let orders = join(
            orders.map(|one| format!("{}:{:.2}", one.order, one.index)),
            " ",
        );
        let up = known_or("", up.map(|up| format!(", up {up}")));
        add(
            "free memory",
            format!("unusable index by order {orders}{up}"),
        );
    } else if let Some(up) = up {
        add("uptime", up);
    }
    if let Some(text) = since_boot(now) {
        add("since boot", text);
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
        add("pressure", text);
    }
    let held = [("unevictable", now.unevictable), ("mlocked", now.mlocked)];
    let held = held
        .into_iter()
        .filter_map(|(name, size)| Some(format!("{name} {}", size?)));
    let held = join(held, ", ");
    if !held.is_empty() {
        add("held", held);
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
            add("switches/s", format!("{kind}: {busy}"));
        }
    }
    let disks = now.disks.iter().map(|disk| {
        let ms = known_or(
            "none completed",
            disk.mean_ms
                .map(|ms| format!("{} ms a request", number(ms))),
        );
        format!(
            "{} {ms}, {} completed, {} open",
            disk.name, disk.completed, disk.in_flight
        )
    });
    let disks = join(disks, "; ");
    if !disks.is_empty() {
        add("disks", format!("{disks} (in {} ms)", now.interval_ms));
    }
    if let Some(swap) = now.swap.filter(|swap| swap.total.0 > 0) {
        let rate = |per_s: f64| number(per_s / 1_048_576.0);
        let (used, total) = (swap.used, swap.total);
        let (read, written) = (rate(swap.in_per_s), rate(swap.out_per_s));
        add(
            "swap",
            format!("{used} of {total} used; {read} MiB/s read back, {written} MiB/s written"),
        );
    }
    let groups = now
        .groups
        .iter()
        .map(|group| match (group.some, group.at_limit) {
            (Some(some), _) => format!("{} waited {} %", group.path, number(some)),
            (_, times) => format!(
                "{} at its limit {} times",
                group.path,
                known_or("some", times)
            ),
        });
    let groups = join(groups, ", ");
    if !groups.is_empty() {
        add(
            "memory groups",
            format!("{groups} (of {} ms)", now.interval_ms),
        );
    }
    if let Some(kills) = now.oom_kills {
        let steal = known_or("unknown", now.steal.map(number));
        add(
            "machine",
            format!(
                "{} killed for lack of memory since boot; the hypervisor kept {steal} % of the CPU time",
                thousands(kills)
            ),
        );
    }
    for task in &now.stuck {
        let function = known_or("unknown", task.function.as_ref());
        add(
            "state D",
            format!("{} ({}/{}) in {function}", task.name, task.pid, task.tid),
        );
    }
    for line in now.kernel_log.iter().flatten().take(5) {
        add(
            "kernel log",
            format!("{} ago: {}", uptime(line.seconds_ago), line.text),
        );
    }
    for missing in &now.missing {
        add("unknown", format!("{}: {}", missing.what, missing.why));
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

/// Returns counters of stalls since boot.
fn since_boot(now: &Now) -> Option<String> {
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
    Some(join(shown.chain(zero), ", "))
}

fn switches(task: &TaskRate) -> String {
    let thread = match task.tid == task.pid {
        true => task.pid.to_string(),
        false => format!("{}/{}", task.pid, task.tid),
    };
    format!("{} ({thread}) {}", task.name, number(task.per_second))
}
