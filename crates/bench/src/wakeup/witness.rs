//! A thread above the load that does nothing but wake up: what holds it up is neither tool's nor the load's doing.
//!
//! ```text
//! witness  PRIORITY + 15   .   .   .   .   .                  .   .    late by what was held up
//! load     PRIORITY + 10    ####    ####                   ####
//! a tool   PRIORITY       |    |||||    ||                     |||
//! the machine             -----------------XXXXXXXXXXXXXXXX-------    the host, or interrupts off
//! ```
//!
//! A host may hold a whole virtual machine up for tens of milliseconds and say nothing of it in `steal`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::realtime::Realtime;
use stopgap_kernel::tasks::Tasks;

/// Above the tools' threads and the load.
const PRIORITY: u32 = super::PRIORITY + 15;
/// Between two wake-ups; not a multiple of the tools', which it would meet each time.
const PERIOD: Nanos = Nanos::micros(1_900);

/// A witness at work; dropped, it ends.
pub(super) struct Witness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Nanos>>,
}

impl Witness {
    /// Watches `cpu`.
    pub(super) fn start(cpu: u32) -> Result<Witness, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, told) = mpsc::channel();
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let made = Linux
                .set_cpus(&[cpu])
                .and_then(|()| Linux.set_fifo(PRIORITY));
            let begin = made.is_ok();
            let _ = ready.send(made); // who waits for it is there
            let mut longest = Nanos(0);
            let mut next = Linux.now() + PERIOD;
            while begin && !seen.load(Ordering::Relaxed) {
                Linux.sleep_until(next);
                let now = Linux.now();
                longest = longest.max(now.saturating_sub(next));
                next = now + PERIOD;
            }
            longest
        });
        let witness = Witness {
            stop,
            thread: Some(thread),
        };
        let made = told
            .recv()
            .map_err(|_| Failure::error("the witness's thread is gone"))?;
        made.map(|()| witness)
            .map_err(|error| Failure::error(error.to_string()))
    }

    /// The longest that it was held up.
    pub(super) fn end(mut self) -> Nanos {
        self.join()
    }

    fn join(&mut self) -> Nanos {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread.map_or(Nanos(0), |thread| thread.join().unwrap_or(Nanos(u64::MAX)))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::*;

    /// The load takes the CPU for 60 ms and holds no witness up; a thread above the witness does.
    #[test]
    fn the_load_holds_it_up_never_and_what_is_above_it_does() {
        if let Err(why) = super::super::load::possible() {
            return stopgap_kernel::fake::skipped(format!("{why:?}"));
        }
        let cpu = *Linux.cpus().unwrap().last().unwrap();
        let beside = |above: bool| {
            let witness = Witness::start(cpu).unwrap();
            let taken = Nanos::millis(60);
            if above {
                std::thread::spawn(move || {
                    Linux.set_cpus(&[cpu]).unwrap();
                    Linux.set_fifo(PRIORITY + 1).unwrap();
                    Linux.spin(taken);
                })
                .join()
                .unwrap();
            } else {
                let load = Load::once(cpu, Linux.now() + Nanos::millis(20), taken).unwrap();
                Linux.sleep_until(Linux.now() + Nanos::millis(150));
                drop(load);
            }
            witness.end()
        };
        assert!(beside(true) >= Nanos::millis(50), "{:?}", beside(true));
        // The host may hold it up in one of them.
        let least = (0..10).map(|_| beside(false)).min().unwrap();
        assert!(least < Nanos::millis(10), "{least:?}");
    }
}
