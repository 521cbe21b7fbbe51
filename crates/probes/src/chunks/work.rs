//! Counts of reclaim and compaction while buffers were taken.
//!
//! `/proc/vmstat` counts for the whole machine, and `memory.stat` of our own cgroup (version 2) the
//! pages of that group alone: both together tell whose pages were in the way. A counter that the
//! kernel does not have is not among the figures, never 0.

use std::collections::BTreeMap;

use stopgap_kernel::{System, cgroup};

/// A figure and the counters whose sum it is.
pub(super) struct Work {
    /// Name of its series.
    pub(super) name: &'static str,
    /// Its unit, a buffer.
    pub(super) unit: &'static str,
    counters: &'static [&'static str],
    /// Those that a kernel thread did.
    daemon: &'static [&'static str],
    /// Whether it counts our own cgroup; else the machine.
    own: bool,
}

const fn machine(
    name: &'static str,
    unit: &'static str,
    counters: &'static [&'static str],
) -> Work {
    Work {
        name,
        unit,
        counters,
        daemon: &[],
        own: false,
    }
}

/// All figures. Names of counters: `mm/vmstat.c`, `mm/memcontrol.c`, Linux 6.12.
pub(super) const WORK: [Work; 8] = [
    machine(
        "scanned by direct reclaim",
        "pages/buffer",
        &["pgscan_direct"],
    ),
    machine("reclaimed directly", "pages/buffer", &["pgsteal_direct"]),
    machine("direct compactions", "times/buffer", &["compact_stall"]),
    machine(
        "direct compactions that failed",
        "times/buffer",
        &["compact_fail"],
    ),
    Work {
        name: "scanned by compaction",
        unit: "pages/buffer",
        counters: &["compact_migrate_scanned", "compact_free_scanned"],
        daemon: &[
            "compact_daemon_migrate_scanned",
            "compact_daemon_free_scanned",
        ],
        own: false,
    },
    machine("moved", "pages/buffer", &["pgmigrate_success"]),
    Work {
        name: "scanned in the own cgroup",
        unit: "pages/buffer",
        counters: &["pgscan"],
        daemon: &[],
        own: true,
    },
    Work {
        name: "reclaimed in the own cgroup",
        unit: "pages/buffer",
        counters: &["pgsteal"],
        daemon: &[],
        own: true,
    },
];

/// Counters at one time.
pub(super) struct Counted {
    machine: BTreeMap<String, u64>,
    own: BTreeMap<String, u64>,
}

impl Counted {
    /// Reads both files; what cannot be read has no counter.
    pub(super) fn read(system: &dyn System) -> Counted {
        Counted {
            machine: cgroup::counters(system, "/proc/vmstat").unwrap_or_default(),
            own: cgroup::own_counters(system).unwrap_or_default(),
        }
    }

    /// Returns the growth since `earlier`, by the name of the figure.
    pub(super) fn since(&self, earlier: &Counted) -> BTreeMap<String, u64> {
        let figure = |work: &Work| {
            let (now, then) = match work.own {
                true => (&self.own, &earlier.own),
                false => (&self.machine, &earlier.machine),
            };
            let since = |name: &&str| Some(now.get(*name)?.saturating_sub(*then.get(*name)?));
            let sum = work.counters.iter().map(since).sum::<Option<u64>>()?;
            // Before 4.12 kcompactd's part was not counted by itself.
            let daemon: u64 = work.daemon.iter().filter_map(since).sum();
            Some((work.name.to_owned(), sum.saturating_sub(daemon)))
        };
        WORK.iter().filter_map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    #[test]
    fn what_the_kernel_does_not_count_is_no_figure() {
        let at = |text: &str| Counted::read(&Fake::default().with_file("/proc/vmstat", text));
        let before = at(
            "pgscan_direct 10\ncompact_migrate_scanned 1\ncompact_free_scanned 2\n\
             compact_daemon_migrate_scanned 0\n",
        );
        let after = at(
            "pgscan_direct 14\ncompact_migrate_scanned 8\ncompact_free_scanned 9\n\
             compact_daemon_migrate_scanned 3\n",
        );
        let since = after.since(&before);
        let expected = [
            ("scanned by compaction", 11),
            ("scanned by direct reclaim", 4),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(since, BTreeMap::from(expected));
        assert!(after.since(&at("")).is_empty());
    }
}
