//! The state of a followed process between two readings.

use std::collections::HashMap;

use stopgap_kernel::tasks::Switches;

/// A process that is followed.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// When it began, once that was read: another one may get its id.
    pub(super) start: Option<u64>,
    /// Each thread's counts, as last read.
    threads: HashMap<u32, Switches>,
    /// Counts of ended threads, as last read.
    ended: Switches,
}

impl Process {
    /// These are its threads now.
    pub(super) fn has(&mut self, tids: &[u32]) {
        let ended = &mut self.ended;
        self.threads.retain(|tid, switches| {
            let alive = tids.contains(tid);
            if !alive {
                add(ended, *switches);
            }
            alive
        });
    }

    /// A thread was read. Where it has fewer than before it is another one of the same id.
    pub(super) fn thread(&mut self, tid: u32, switches: Switches) {
        if let Some(before) = self.threads.insert(tid, switches)
            && before.total() > switches.total()
        {
            add(&mut self.ended, before);
        }
    }

    /// Sums over all its threads.
    pub(super) fn switches(&self) -> Switches {
        let mut sum = self.ended;
        for &switches in self.threads.values() {
            add(&mut sum, switches);
        }
        sum
    }
}

fn add(sum: &mut Switches, more: Switches) {
    sum.voluntary = sum.voluntary.saturating_add(more.voluntary);
    sum.involuntary = sum.involuntary.saturating_add(more.involuntary);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(voluntary: u64, involuntary: u64) -> Switches {
        Switches {
            voluntary,
            involuntary,
        }
    }

    #[test]
    fn threads_that_are_gone_still_count_and_a_new_one_of_their_id_too() {
        let mut process = Process::default();
        process.thread(7, switches(10, 1));
        process.thread(8, switches(5, 0));
        process.thread(7, switches(12, 1));
        assert_eq!(process.switches(), switches(17, 1));
        process.has(&[7]);
        process.thread(7, switches(1, 0));
        assert_eq!(process.switches(), switches(18, 1));
        process.has(&[]);
        assert_eq!(process.switches(), switches(18, 1));
    }
}
