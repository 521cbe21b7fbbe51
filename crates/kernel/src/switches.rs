//! Switches by the kernel's own records of them: `PERF_RECORD_SWITCH` (Linux 4.3).
//!
//! A software counter of context switches would be simpler and is a trap: with
//! `exclude_kernel`, which an ordinary user must set, it always reads 0, because a switch
//! happens in the kernel. The records are written nevertheless (`perf_event_switch()` in
//! `kernel/events/core.c` does not look at the mode), so an event that counts nothing is opened
//! for their sake.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::{Files, read_number};
use crate::linux::Ring;
use crate::tasks::Switches;

/// The setting that says who may open events.
pub const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Counts by the records since they were first started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SwitchRecords {
    /// Records of leaving the CPU; involuntary ones say that the task was pre-empted.
    pub switches: Switches,
    /// Records that the kernel could not write because the ring was full: that many switches,
    /// to the CPU or from it, are not in the count.
    pub lost: u64,
}

/// Counts the switches of one thread by their records. It belongs to the thread that opened it
/// and counts between [`SwitchEvents::start`] and [`SwitchEvents::stop`].
#[derive(Debug)]
pub struct SwitchEvents {
    ring: Ring,
    seen: SwitchRecords,
}

impl SwitchEvents {
    pub(crate) fn new(ring: Ring) -> SwitchEvents {
        SwitchEvents {
            ring,
            seen: SwitchRecords::default(),
        }
    }

    /// From now on switches are recorded.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn start(&mut self) -> Result<()> {
        self.ring.enable(true)
    }

    /// From now on they are not.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn stop(&mut self) -> Result<()> {
        self.ring.enable(false)
    }

    /// Takes the records out of the ring and gives the count so far. To be called before the
    /// ring is full: it holds at least [`SwitchEvents::room`] records, two a switch.
    pub fn read(&mut self) -> SwitchRecords {
        count(self.ring.drain(), &mut self.seen);
        self.seen
    }

    /// How many records of switches the ring holds.
    #[must_use]
    pub fn room(&self) -> usize {
        self.ring.size() / HEADER
    }
}

/// Length of a record's header, and of a whole record of a switch: type (4 bytes), misc (2),
/// length (2).
const HEADER: usize = 8;
/// `PERF_RECORD_LOST`: an id and how many were lost, 8 bytes each, follow the header.
const LOST: u32 = 2;
/// `PERF_RECORD_SWITCH`.
const SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`: from the CPU, not to it.
const OUT: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT` (Linux 4.17): the task could have gone on.
const PREEMPTED: u16 = 1 << 14;

/// Counts whole records, one after the other; those of another type do not matter.
fn count(mut records: &[u8], seen: &mut SwitchRecords) {
    while let Some(header) = records.first_chunk::<HEADER>() {
        let [t0, t1, t2, t3, m0, m1, l0, l1] = *header;
        let misc = u16::from_ne_bytes([m0, m1]);
        match u32::from_ne_bytes([t0, t1, t2, t3]) {
            SWITCH if misc & OUT != 0 => {
                if misc & PREEMPTED == 0 {
                    seen.switches.voluntary += 1;
                } else {
                    seen.switches.involuntary += 1;
                }
            }
            LOST => {
                let lost = records.get(16..).and_then(<[u8]>::first_chunk::<8>);
                seen.lost += lost.map_or(0, |&lost| u64::from_ne_bytes(lost));
            }
            _ => {}
        }
        let length = usize::from(u16::from_ne_bytes([l0, l1])).max(HEADER);
        records = records.get(length..).unwrap_or_default();
    }
}

/// Returns the error of a perf_event_open(2) for `what` that failed with `errno`, with what there is to do; `levels` says
/// what a level of perf_event_paranoid allows.
pub(crate) fn open_refused<F: Files + ?Sized>(
    files: &F,
    errno: i32,
    what: &'static str,
    levels: &str,
) -> Error {
    let cause = std::io::Error::from_raw_os_error(errno);
    let advice = match (errno, read_number::<_, i32>(files, PARANOID)) {
        (libc::EACCES | libc::EPERM, Ok(level)) => {
            let level = format!("kernel.perf_event_paranoid is {level}");
            let colon = if levels.starts_with("at ") { "," } else { ":" };
            format!("the kernel refuses them ({cause}); {level}{colon} {levels}")
        }
        (libc::EACCES | libc::EPERM, Err(_)) => {
            format!("the kernel refuses them ({cause}); CAP_PERFMON may")
        }
        (libc::ENOSYS | libc::EINVAL | libc::ENOENT, _) => {
            format!("this kernel does not write them ({cause}); they came with Linux 4.3")
        }
        _ => return Error::call("perf_event_open", what, cause),
    };
    Error::unsupported(what, advice)
}

/// [`open_refused`] for records of switches.
pub(crate) fn refused<F: Files + ?Sized>(files: &F, errno: i32) -> Error {
    let levels = "at 3 and above (Debian's and Ubuntu's kernels) only CAP_PERFMON may";
    open_refused(files, errno, "PERF_RECORD_SWITCH", levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let length = u16::try_from(HEADER + body.len() * 8).unwrap();
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(misc.to_ne_bytes());
        record.extend(length.to_ne_bytes());
        for word in body {
            record.extend(word.to_ne_bytes());
        }
        record
    }

    #[test]
    fn only_switches_from_the_cpu_count() {
        let records = [
            record(SWITCH, OUT, &[]),
            record(SWITCH, 0, &[]),
            record(9, OUT, &[1, 2, 3]), // PERF_RECORD_SAMPLE
            record(SWITCH, OUT | PREEMPTED, &[]),
            record(LOST, 0, &[77, 5]),
            record(SWITCH, OUT, &[]),
        ];
        let mut seen = SwitchRecords::default();
        count(&records.concat(), &mut seen);
        assert_eq!((seen.switches.voluntary, seen.switches.involuntary), (2, 1));
        assert_eq!(seen.lost, 5);
    }

    #[test]
    #[cfg(feature = "fake")]
    fn a_kernel_that_lacks_them_is_told_from_a_limit() {
        let fake = crate::fake::Fake::default();
        let old = refused(&fake, libc::EINVAL);
        assert!(matches!(old, Error::Unsupported { .. }), "{old}");
        let full = refused(&fake, libc::EMFILE);
        assert_eq!(full.errno(), Some(libc::EMFILE), "{full}");
    }

    #[test]
    fn nonsense_ends() {
        let mut seen = SwitchRecords::default();
        count(&[0; 64], &mut seen); // length 0
        count(&record(SWITCH, 0, &[])[..5], &mut seen);
        count(&record(LOST, 0, &[]), &mut seen);
        assert_eq!(seen, SwitchRecords::default());
    }
}
