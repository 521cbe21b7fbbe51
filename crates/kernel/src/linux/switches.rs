//! Records of the switches of the calling thread, in a ring of their own.

use crate::error::Result;
use crate::files::{Files, read_number};
use crate::memory::Memory;
use crate::switches::refused;

use super::perf::Ring;
use super::perf::attr::{Attr, CONTEXT_SWITCH};

/// The ring's size where the limit allows: 16,384 records.
const USUAL: usize = 128 << 10;

/// Opens the records of the calling thread, stopped, with a ring of [`USUAL`] size.
pub(super) fn open<S: Files + Memory>(system: &S) -> Result<Ring> {
    open_sized(system, USUAL)
}

/// The same with a ring of at most `most` bytes, at least a page.
fn open_sized<S: Files + Memory>(system: &S, most: usize) -> Result<Ring> {
    let attr = Attr::dummy(CONTEXT_SWITCH);
    let event = attr
        .open(0, None)
        .map_err(|errno| refused(system, errno.raw_os_error()))?;
    let page = system.page_size().0 as usize;
    let size = size(
        page,
        read_number(system, "/proc/sys/kernel/perf_event_mlock_kb").ok(),
        most,
    );
    Ring::map(event, page, size).map_err(|_| Ring::no_room(page, size))
}

/// Bytes of data: two rings, a client's and a server's, must fit into what a user may lock.
fn size(page: usize, mlock_kib: Option<usize>, most: usize) -> usize {
    let each = mlock_kib.unwrap_or(516).saturating_mul(1024) / 2;
    let most = each.saturating_sub(page).min(most).max(page);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::clock::Clock;
    use crate::error::Error;
    use crate::switches::SwitchEvents;
    use crate::tasks::{Tasks, status_switches};
    use stopgap_events::units::Nanos;
    use stopgap_testing::{Skip, skip};

    #[test]
    fn the_ring_fits_into_the_limit() {
        assert_eq!(size(4096, Some(516), USUAL), USUAL);
        assert_eq!(size(4096, None, USUAL), USUAL);
        assert_eq!(size(65536, Some(516), USUAL), USUAL);
        assert_eq!(size(4096, Some(64), USUAL), 16 << 10);
        assert_eq!(size(4096, Some(0), USUAL), 4096);
        assert_eq!(size(4096, Some(516), 1), 4096);
    }

    /// Records of this thread in a ring of one page; `None` where they are refused.
    fn small() -> Option<SwitchEvents> {
        match open_sized(&Linux, 1) {
            Ok(ring) => Some(SwitchEvents::new(ring)),
            Err(error) => {
                skip(&Skip::machine(error));
                None
            }
        }
    }

    /// Three means, one truth: a thread that sleeps 600 times, which goes round the ring twice.
    #[test]
    fn three_means_count_the_same() {
        let Some(mut events) = small() else { return };
        let status = || status_switches(&Linux).unwrap();
        let (status_before, before) = (status(), Linux.switches().unwrap());
        events.start().unwrap();
        // Not 600 calls: where we are pre-empted between the clock and the call, its deadline is past and it sleeps not.
        while Linux.switches().unwrap().since(before).voluntary < 600 {
            Linux.sleep_until(Linux.now() + Nanos::micros(20));
            events.read();
        }
        events.stop().unwrap();
        let by_rusage = Linux.switches().unwrap().since(before);
        let by_status = status().since(status_before);
        let by_records = events.read();
        Linux.sleep_until(Linux.now() + Nanos::micros(20));
        assert_eq!(events.read(), by_records, "counted while stopped");
        assert_eq!(by_records.lost, 0);
        println!("{by_rusage:?} {by_status:?} {by_records:?}");
        // A busy machine may pre-empt us between two readings.
        assert!(by_status.total().abs_diff(by_rusage.total()) <= 6);
        assert!(by_records.switches.total().abs_diff(by_rusage.total()) <= 6);
        assert!(by_records.switches.voluntary.abs_diff(by_rusage.voluntary) <= 6);
    }

    #[test]
    fn what_does_not_fit_is_counted_as_lost() {
        let Some(mut events) = small() else { return };
        let before = Linux.switches().unwrap();
        events.start().unwrap();
        let room = events.room() as u64;
        while Linux.switches().unwrap().since(before).total() < room {
            Linux.sleep_until(Linux.now() + Nanos::micros(20));
        }
        events.read();
        // The record of the loss comes with the next record that fits.
        Linux.sleep_until(Linux.now() + Nanos::millis(1));
        events.stop().unwrap();
        let seen = events.read();
        let truth = Linux.switches().unwrap().since(before);
        assert!(seen.lost > 0);
        let records = seen.switches.total() * 2 + seen.lost;
        assert!(
            records.abs_diff(truth.total() * 2) <= 8,
            "{seen:?} {truth:?}"
        );
    }

    #[test]
    fn a_kernel_that_refuses_is_named() {
        // The filter lasts as long as its thread.
        std::thread::spawn(|| {
            crate::fake::refuse_switch_records().unwrap();
            let error = Linux.switch_events().unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains("refuses"), "{error}");
        })
        .join()
        .unwrap();
    }
}
