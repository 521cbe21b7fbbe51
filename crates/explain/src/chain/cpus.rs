//! Which threads had a CPU while another waited for it.

use std::collections::VecDeque;

use super::history::Line;

/// Arrivals on a CPU that are remembered.
const MOST_ARRIVALS: usize = 128;
/// CPUs that a trace may name.
const MOST_CPUS: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Arrival {
    time: u64,
    tid: u32,
    /// The thread that had the CPU before; 0 is idle.
    previous: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Cpus(Vec<VecDeque<Arrival>>);

impl Cpus {
    /// `tid` gets `cpu`. Returns the thread that got it last before that.
    pub(super) fn arrives(
        &mut self,
        cpu: u32,
        time: u64,
        tid: u32,
        previous: Option<u32>,
    ) -> Option<u32> {
        let cpu = cpu as usize;
        if cpu >= MOST_CPUS {
            return None;
        }
        if cpu >= self.0.len() {
            self.0.resize_with(cpu + 1, VecDeque::new);
        }
        let arrivals = &mut self.0[cpu];
        let before = arrivals.back().map(|arrival| arrival.tid);
        if arrivals.len() >= MOST_ARRIVALS {
            arrivals.pop_front();
        }
        arrivals.push_back(Arrival {
            time,
            tid,
            previous,
        });
        before
    }

    /// Appends, latest first, who had `cpu` from `from` to `to`, when a thread got it of `previous`. `out` takes a
    /// thread's number where a line has a chain.
    pub(super) fn behind(
        &self,
        cpu: Option<u32>,
        from: u64,
        to: u64,
        previous: u32,
        out: &mut Line,
    ) {
        let (mut to, mut had) = (to, previous);
        let arrivals = cpu.and_then(|cpu| self.0.get(cpu as usize));
        for arrival in arrivals
            .into_iter()
            .flat_map(|arrivals| arrivals.iter().rev())
        {
            if to <= from {
                return;
            }
            let begin = arrival.time.clamp(from, to);
            out.push(had, to - begin);
            to = begin;
            // A thread that came and went at one moment, too.
            let Some(previous) = arrival.previous else {
                break;
            };
            had = previous;
        }
        out.push(had, to.saturating_sub(from));
    }

    /// Returns the thread that got `cpu` last.
    pub(super) fn last_on(&self, cpu: u32) -> Option<u32> {
        let arrivals = self.0.get(cpu as usize)?;
        Some(arrivals.back()?.tid)
    }
}
