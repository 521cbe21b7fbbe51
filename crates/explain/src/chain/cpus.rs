//! Finds the threads that had a CPU while another thread waited for it. Recent turns are exact, older ones are sums
//! of stretches.

use super::history::{Line, Piece};

/// Arrivals on a CPU that are kept one by one, and how many of the oldest become a stretch when there are more.
const EXACT: usize = 128;
const FOLDED: usize = 32;
/// Most stretches of one size. If there are more, the two oldest become one of twice the size. So the number of
/// stretches grows with the logarithm of the arrivals.
const MOST_OF_A_SIZE: usize = 8;
/// Most threads of a stretch: those that had the CPU for longest.
const MOST_THREADS: usize = 8;
/// Most threads that are summed before the longest are chosen.
const MOST_SUMMED: usize = 24;
/// Most threads of the older part of a wait.
const MOST_OLDER: usize = 16;
/// Most CPUs that a trace may name.
const MOST_CPUS: usize = 1 << 16;
/// Stands for a thread's number where the thread that had the CPU is unknown.
pub(super) const UNKNOWN: u32 = u32::MAX;
/// Stands for the time of leaving where the thread was not seen to leave.
const NOT_SEEN: u64 = u64::MAX;

/// A thread that gets a CPU.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    time: u64,
    /// When the thread left. This is known only when the thread runs again.
    left: u64,
    tid: u32,
    /// The thread that had the CPU before; 0 is the idle task.
    previous: u32,
}

impl Arrival {
    /// Passes the threads that had the CPU from `from` to `to`, latest first, to `push`. At `to`, `previous` lost the
    /// CPU. `guess`: if the trace does not say who had it, the thread of this arrival counts.
    #[inline]
    fn share(
        self,
        (from, to): (u64, u64),
        previous: u32,
        guess: bool,
        mut push: impl FnMut(u32, u64),
    ) {
        if previous == self.tid {
            return push(self.tid, to - from);
        }
        let left = match self.left {
            NOT_SEEN if guess && previous == UNKNOWN => to,
            NOT_SEEN => from,
            left => left.clamp(from, to),
        };
        push(previous, to - left);
        push(self.tid, left - from);
    }
}

/// Sums by thread. Threads that find no room are left out.
struct Had {
    count: usize,
    pieces: [Piece; MOST_SUMMED],
}

impl Had {
    fn new() -> Had {
        Had {
            count: 0,
            pieces: [Piece { path: 0, ns: 0 }; MOST_SUMMED],
        }
    }

    fn push(&mut self, tid: u32, ns: u64) {
        if ns == 0 || tid == UNKNOWN {
            return;
        }
        let known = &mut self.pieces[..self.count];
        if let Some(piece) = known.iter_mut().find(|piece| piece.path == tid) {
            piece.ns += ns;
        } else if let Some(free) = self.pieces.get_mut(self.count) {
            *free = Piece { path: tid, ns };
            self.count += 1;
        }
    }

    /// Returns the threads that had the CPU for longest.
    fn longest(mut self) -> [Piece; MOST_THREADS] {
        if self.count > MOST_THREADS {
            let longest = |piece: &Piece| (std::cmp::Reverse(piece.ns), piece.path);
            self.pieces
                .select_nth_unstable_by_key(MOST_THREADS, longest);
        }
        std::array::from_fn(|at| self.pieces[at])
    }
}

/// How long each thread had a CPU from `begin` to `end`. For the rest of that time the thread is unknown.
#[derive(Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    /// How often merging doubled it. Larger stretches come before smaller ones.
    doubled: u8,
    /// Each thread once. Unused entries have no time.
    had: [Piece; MOST_THREADS],
}

impl Stretch {
    /// Appends the least time that each thread had the CPU, within `wanted` nanoseconds somewhere in the stretch.
    fn share(&self, wanted: u64, out: &mut Line) {
        let elsewhere = (self.end - self.begin) - wanted;
        let mut known = 0;
        for piece in &self.had {
            let ns = piece.ns.saturating_sub(elsewhere);
            out.push(piece.path, ns);
            known += ns;
        }
        out.push(UNKNOWN, wanted - known);
    }
}

#[derive(Debug, Default)]
struct Cpu {
    arrivals: Vec<Arrival>,
    /// Number of arrivals that are in `older` by now; it wraps.
    folded: u32,
    /// Sums of older turns. Each begins where the one before ends, and the last one ends at the first of `arrivals`.
    older: Vec<Stretch>,
    /// The thread that had the CPU before the very first arrival.
    first: u32,
}

impl Cpu {
    /// Turns the oldest arrivals into a stretch.
    #[cold]
    fn fold(&mut self) {
        let mut had = Had::new();
        for pair in self.arrivals[..=FOLDED].windows(2) {
            let (one, next) = (pair[0], pair[1]);
            let push = |tid, ns| had.push(tid, ns);
            one.share((one.time, next.time), next.previous, false, push);
        }
        self.older.push(Stretch {
            begin: self.arrivals[0].time,
            end: self.arrivals[FOLDED].time,
            doubled: 0,
            had: had.longest(),
        });
        self.arrivals.drain(..FOLDED);
        self.folded = self.folded.wrapping_add(FOLDED as u32);
        let mut end = self.older.len();
        for doubled in 0..u8::MAX {
            let of_it = |older: &&Stretch| older.doubled == doubled;
            let begin = end - self.older[..end].iter().rev().take_while(of_it).count();
            if end - begin <= MOST_OF_A_SIZE {
                break;
            }
            let later = self.older.remove(begin + 1);
            let earlier = &mut self.older[begin];
            earlier.end = later.end;
            earlier.doubled += 1;
            let mut had = Had::new();
            for piece in earlier.had.iter().chain(&later.had) {
                had.push(piece.path, piece.ns);
            }
            earlier.had = had.longest();
            end = begin + 1;
        }
    }

    /// Appends the threads that had the CPU from `from` to `to`, a time before all kept arrivals.
    #[cold]
    fn behind(&self, from: u64, to: u64, out: &mut Line) {
        let mut line = Line::default();
        let mut to = to;
        for stretch in self.older.iter().rev() {
            if to <= from {
                break;
            }
            let begin = stretch.begin.clamp(from, to);
            stretch.share(to - begin, &mut line);
            to = begin;
        }
        line.push(self.first, to - from);
        if !line.shorten(MOST_OLDER, UNKNOWN) {
            line.sums();
        }
        for piece in &line.0 {
            out.push(piece.path, piece.ns);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Cpus(Vec<Cpu>);

impl Cpus {
    /// Notes that `tid` gets `cpu`. Returns the thread that got it before that, and the number of this arrival for
    /// [`Cpus::leaves`].
    pub(super) fn arrives(
        &mut self,
        cpu: u32,
        time: u64,
        tid: u32,
        previous: Option<u32>,
    ) -> (Option<u32>, u32) {
        let cpu = cpu as usize;
        if cpu >= MOST_CPUS {
            return (None, 0);
        }
        if cpu >= self.0.len() {
            self.0.resize_with(cpu + 1, Cpu::default);
        }
        let cpu = &mut self.0[cpu];
        let previous = previous.unwrap_or(UNKNOWN);
        let (before, time) = match cpu.arrivals.last() {
            Some(last) => (Some(last.tid), last.time.max(time)),
            None => {
                cpu.first = previous;
                (None, time)
            }
        };
        if cpu.arrivals.len() >= EXACT + FOLDED {
            cpu.fold();
        }
        let number = cpu.folded.wrapping_add(cpu.arrivals.len() as u32);
        cpu.arrivals.push(Arrival {
            time,
            left: NOT_SEEN,
            tid,
            previous,
        });
        (before, number)
    }

    /// Notes that `tid` left `cpu` at `time`. `number` is that of its arrival.
    pub(super) fn leaves(&mut self, cpu: u32, number: u32, tid: u32, time: u64) {
        if let Some(cpu) = self.0.get_mut(cpu as usize)
            && let Some(arrival) = (cpu.arrivals).get_mut(number.wrapping_sub(cpu.folded) as usize)
            && arrival.tid == tid
        {
            arrival.left = time;
        }
    }

    /// Appends the threads that had `cpu` from `from` to `to`, latest first. At `to`, another thread got the CPU from
    /// `previous`, which is [`UNKNOWN`] where the trace does not say. For older times, sums by thread are appended.
    /// `out` holds a thread's number in place of a chain.
    pub(super) fn behind(
        &self,
        cpu: Option<u32>,
        (from, mut to): (u64, u64),
        mut previous: u32,
        out: &mut Line,
    ) {
        let cpu = cpu.and_then(|cpu| self.0.get(cpu as usize));
        let Some(cpu) = cpu.filter(|cpu| !cpu.arrivals.is_empty()) else {
            return out.push(previous, to.saturating_sub(from));
        };
        let mut guess = true;
        for arrival in cpu.arrivals.iter().rev() {
            if to <= from {
                return;
            }
            let begin = arrival.time.clamp(from, to);
            let push = |tid, ns| out.push(tid, ns);
            arrival.share((begin, to), previous, guess, push);
            // This includes a thread that came and went within one tick of the clock.
            (to, previous, guess) = (begin, arrival.previous, false);
        }
        if from < to {
            cpu.behind(from, to, out);
        }
    }

    /// Returns the thread that got `cpu` last, unless it had left by `time`.
    pub(super) fn last_on(&self, cpu: u32, time: u64) -> Option<u32> {
        let last = self.0.get(cpu as usize)?.arrivals.last()?;
        (last.left > time).then_some(last.tid)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Threads that have CPU 0 in turn, each from its time to the next one's. Before the first, the CPU was idle.
    struct Turns(Vec<(u64, u32)>);

    impl Turns {
        /// Returns how long each thread had the CPU.
        fn truth(&self, from: u64, to: u64) -> BTreeMap<u32, u64> {
            let mut had = BTreeMap::from([(0, self.0[0].0.saturating_sub(from))]);
            let ends = self.0.iter().skip(1).map(|turn| turn.0).chain([to]);
            for (&(begin, tid), end) in self.0.iter().zip(ends) {
                *had.entry(tid).or_default() += end.min(to).saturating_sub(begin.max(from));
            }
            had
        }

        /// Returns the CPU as a trace shows it. The thread before each `hidden` turn is unknown, and only threads of
        /// `left` turns are seen to leave.
        fn seen(&self, hidden: impl Fn(usize) -> bool, left: impl Fn(usize) -> bool) -> Cpus {
            let mut cpus = Cpus::default();
            let mut before = None;
            for (at, &(time, tid)) in self.0.iter().enumerate() {
                let previous = (at.checked_sub(1)).map_or(0, |before| self.0[before].1);
                let (_, number) = cpus.arrives(0, time, tid, (!hidden(at)).then_some(previous));
                if let Some(before) = before.filter(|_| left(at)) {
                    cpus.leaves(0, before, self.0[at - 1].1, time);
                }
                before = Some(number);
            }
            cpus
        }
    }

    fn behind(cpus: &Cpus, from: u64, to: u64, previous: u32) -> BTreeMap<u32, u64> {
        let mut line = Line::default();
        cpus.behind(Some(0), (from, to), previous, &mut line);
        let mut had = BTreeMap::new();
        for piece in &line.0 {
            *had.entry(piece.path).or_default() += piece.ns;
        }
        had
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Waits of any age add up, and no thread gets more time than it had the CPU. With few threads, most of the
        /// time is known.
        #[test]
        fn nobody_had_it_for_longer_than_it_had(
            turns in prop::collection::vec((0..1_000_u64, 0..1_000_000_u32), 1..3_000),
            (threads, hidden, left) in (2..200_u32, 0..4_usize, 0..3_usize),
            from in prop_oneof![Just(0), 0..1_000_u64],
        ) {
            let mut now = 0;
            let turns = Turns(turns.into_iter().map(|(ns, tid)| {
                now += ns;
                (now, tid % threads + 1)
            }).collect());
            let hides = |at: usize| hidden > 0 && at.is_multiple_of(hidden + 2);
            let leaves = |at: usize| left > 0 && !at.is_multiple_of(left + 1);
            let cpus = turns.seen(hides, leaves);
            let (from, to) = (now * from / 1_000, now + 50);
            let truth = turns.truth(from, to);
            let found = behind(&cpus, from, to, turns.0[turns.0.len() - 1].1);
            prop_assert_eq!(found.values().sum::<u64>(), to - from);
            for (tid, ns) in found.iter().filter(|(tid, _)| **tid != UNKNOWN) {
                let had = truth.get(tid).copied().unwrap_or(0);
                prop_assert!(*ns <= had, "{} of {}: {:?}", ns, had, tid);
            }
            let idle = found.get(&0).copied().unwrap_or(0);
            prop_assert!(hidden > 0 || turns.0.len() > EXACT || idle == truth[&0]);
            let unknown = found.get(&UNKNOWN).copied().unwrap_or(0);
            if hidden == 0 && threads < MOST_THREADS as u32 {
                prop_assert!(unknown * 4 <= to - from, "{} of {}", unknown, to - from);
            }
            let cpu = &cpus.0[0];
            prop_assert!(cpu.arrivals.len() <= EXACT + FOLDED);
            prop_assert!(cpu.older.len() <= MOST_OF_A_SIZE * 8);
        }
    }

    /// A thread has the CPU for 1 of each 10 us and is not always seen to leave. The thread that has the CPU after it
    /// is hidden.
    #[test]
    fn who_left_does_not_have_what_is_hidden() {
        for (count, one_in) in [(20, 1), (1_000, 1), (20, 2), (1_000, 2)] {
            let mut cpus = Cpus::default();
            let mut last = 0;
            for at in 0..count {
                (_, last) = cpus.arrives(0, at * 10_000, 7, None);
                if at % one_in == 0 && at + 1 < count {
                    cpus.leaves(0, last, 7, at * 10_000 + 1_000);
                }
            }
            let end = count * 10_000;
            let found = behind(&cpus, 0, end, UNKNOWN);
            let most = count / one_in * 1_000;
            assert!(found[&7] <= most + 10_000, "{found:?}");
            assert_eq!(cpus.last_on(0, end), Some(7));
            cpus.leaves(0, last, 7, end - 9_000);
            assert_eq!(cpus.last_on(0, end), None);
            let found = behind(&cpus, 0, end, UNKNOWN);
            assert!(found[&7] <= most + 1_000, "{found:?}");
            assert!(found[&7] * 4 >= most * 3, "{found:?}");
            assert_eq!(found[&7] + found[&UNKNOWN], end);
        }
    }
}
