//! What the kernel's own delay accounting says of a thread (taskstats over generic netlink).
//!
//! | field | counts time in | since |
//! |---|---|---|
//! | `freepages` | direct reclaim, of the whole system or of a memory cgroup (`do_try_to_free_pages`, mm/vmscan.c) | 2.6.27 |
//! | `thrashing` | faults on pages that were reclaimed a short time ago (mm/filemap.c, mm/memory.c) | 4.20 |
//! | `compact` | direct compaction (`__alloc_pages_direct_compact`, mm/page_alloc.c) | 5.17 |
//! | `swapin` | reading from swap (`do_swap_page`) | 2.6.18 |
//!
//! It counts for threads that were made while [`SETTING`] was 1 (5.14 on; before, the kernel's command
//! line decides), and answers root alone (`CAP_NET_ADMIN`). The messages are four, so they are written
//! here: netlink crates bring more code than this module has.

use stopgap_events::units::Nanos;

use crate::error::{Error, Result};

/// The setting that switches delay accounting on.
pub const SETTING: &str = "/proc/sys/kernel/task_delayacct";

/// How often, and how long all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// How often.
    pub count: u64,
    /// How long; wall-clock time.
    pub total: Nanos,
}

impl Delay {
    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Delay) -> Delay {
        Delay {
            count: self.count.saturating_sub(earlier.count),
            total: self.total.saturating_sub(earlier.total),
        }
    }
}

/// Delays of a thread since it began. `None` where the kernel does not count them yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delays {
    /// Reading from swap.
    pub swapin: Delay,
    /// Direct reclaim.
    pub freepages: Option<Delay>,
    /// Faults on pages that were reclaimed a short time ago.
    pub thrashing: Option<Delay>,
    /// Direct compaction.
    pub compact: Option<Delay>,
}

impl Delays {
    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Delays) -> Delays {
        let both = |now: Option<Delay>, then: Option<Delay>| {
            now.zip(then).map(|(now, then)| now.since(then))
        };
        Delays {
            swapin: self.swapin.since(earlier.swapin),
            freepages: both(self.freepages, earlier.freepages),
            thrashing: both(self.thrashing, earlier.thrashing),
            compact: both(self.compact, earlier.compact),
        }
    }
}

/// The thread's delays.
///
/// # Errors
/// [`Error::Unsupported`] where the kernel has no taskstats, or the version whose fields lie elsewhere
/// (15: Linux 6.14 and 6.15); [`Error::NoProcess`] where there is no such thread; as sendmsg(2) and
/// recvmsg(2): `EPERM` without `CAP_NET_ADMIN`.
pub fn of_thread(tid: u32) -> Result<Delays> {
    crate::linux::taskstats::of_thread(tid)
}

/// The only version whose fields do not follow those of the earlier ones.
const DISORDERED: u16 = 15;

/// Reads `struct taskstats` (include/uapi/linux/taskstats.h). Later versions only add at its end.
pub(crate) fn parse(stats: &[u8]) -> Result<Delays> {
    let bad = |why: &str| Error::parse("taskstats", why);
    let version = stats
        .first_chunk()
        .map(|&bytes| u16::from_ne_bytes(bytes))
        .ok_or_else(|| bad("too short for a version"))?;
    if version == DISORDERED {
        return Err(Error::unsupported(
            "taskstats version 15",
            "its fields lie elsewhere than those of all other versions; Linux 6.16 has 16",
        ));
    }
    let number = |at: usize| {
        let bytes = stats.get(at..at + 8)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    };
    // A count, and after it the total.
    let delay = |at: usize, since: u16| {
        let (count, total) = number(at).zip(number(at + 8))?;
        let total = Nanos(total);
        (version >= since).then_some(Delay { count, total })
    };
    Ok(Delays {
        swapin: delay(48, 1).ok_or_else(|| bad("too short for its first fields"))?,
        freepages: delay(312, 7),
        thrashing: delay(328, 9),
        compact: delay(352, 11),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct of that version whose numbers are their own places.
    fn stats(version: u16, length: usize) -> Vec<u8> {
        let mut all: Vec<u8> = (0..length as u64 / 8)
            .flat_map(|word| (word * 8).to_ne_bytes())
            .collect();
        all[..2].copy_from_slice(&version.to_ne_bytes());
        all
    }

    #[test]
    fn fields_are_where_the_header_has_them() {
        let delay = |count: u64| Delay {
            count,
            total: Nanos(count + 8),
        };
        let all = parse(&stats(16, 432)).unwrap();
        assert_eq!(all.swapin, delay(48));
        assert_eq!(all.freepages, Some(delay(312)));
        assert_eq!(all.thrashing, Some(delay(328)));
        assert_eq!(all.compact, Some(delay(352)));
        // A delay that an old kernel does not count is `None`, not 0.
        let old = parse(&stats(8, 328)).unwrap();
        assert_eq!((old.freepages, old.thrashing), (Some(delay(312)), None));
        let unknown = parse(&stats(1, 80)).unwrap();
        assert_eq!(unknown.freepages, None);
    }

    #[test]
    fn what_is_too_short_or_in_disorder_is_said() {
        assert!(parse(&[]).is_err());
        assert!(parse(&stats(16, 48)).is_err());
        let error = parse(&stats(15, 432)).unwrap_err();
        assert!(error.to_string().contains("6.16"), "{error}");
    }

    #[test]
    fn what_came_between() {
        let at = |count| Delays {
            swapin: Delay {
                count,
                total: Nanos(count * 10),
            },
            freepages: Some(Delay {
                count,
                total: Nanos(count),
            }),
            ..Delays::default()
        };
        let between = at(7).since(at(3));
        assert_eq!(between.swapin.total, Nanos(40));
        assert_eq!(between.freepages.unwrap().count, 4);
        assert_eq!(between.compact, None);
    }

    /// As root: of this thread. Elsewhere, the refusal says why.
    #[test]
    fn our_own_thread_is_known() {
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        match of_thread(tid) {
            Ok(delays) => {
                assert!(delays.freepages.is_some());
                let gone = of_thread(u32::MAX).unwrap_err();
                assert!(matches!(gone, Error::NoProcess { .. }), "{gone}");
            }
            Err(error) => assert!(
                error.is_refused() || matches!(error, Error::Unsupported { .. }),
                "{error}"
            ),
        }
    }
}
