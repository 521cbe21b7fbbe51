//! An operation's time, taken apart once it is over: its thread's waits, and what it was in the midst of.

use crate::interval::{Holding, Interval};
use crate::thread::{State, WokenBy};
use crate::why::Why;

/// One stay off the CPU within an operation.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    pub(crate) left: u64,
    /// When the first state ends: the thread was woken, or there is no second one.
    pub(crate) woken: u64,
    pub(crate) ran: u64,
    /// The state until it was woken, and from then on.
    pub(crate) states: (State, State),
    /// The cause by its stack.
    pub(crate) stack: Option<Why>,
    /// Whether the sleep was not interruptible.
    pub(crate) deep: bool,
    /// Whether the kernel counts the sleep as one for I/O.
    pub(crate) for_io: bool,
    /// The purpose of the sleep, by its call and the thread that ended it.
    pub(crate) otherwise: Why,
    /// Whether its cgroup had used up its CPU quota.
    pub(crate) throttled: bool,
    /// Who woke it.
    pub(crate) waker: Option<WokenBy>,
}

impl Stay {
    fn why_asleep(&self, holding: Holding<'_>) -> Why {
        if self.stack == Some(Why::Throttled) || holding.throttled() {
            return Why::Throttled;
        }
        let of_stack = || self.stack.clone().filter(|why| !why.is_idle());
        (holding.memory())
            .or_else(|| of_stack().filter(Why::is_reclaim))
            .or_else(|| holding.wait())
            .or_else(of_stack)
            .or_else(|| (self.for_io || self.deep && holding.block()).then_some(Why::Io))
            .unwrap_or_else(|| self.otherwise.clone())
    }
}

/// Some time of one cause.
pub(crate) struct Piece {
    pub(crate) why: Why,
    pub(crate) state: State,
    /// Index of the stay that it lies in.
    pub(crate) stay: Option<usize>,
    pub(crate) ns: u64,
}

/// Takes the time from `from` to `to` apart: `each` gets every part of it once. Between the `stays`, which stand in the
/// order of time, the thread is in the state `between`.
pub(crate) fn take_apart(
    (from, to): (u64, u64),
    stays: &[Stay],
    intervals: &[Interval],
    between: State,
    mut each: impl FnMut(Piece),
) {
    // Most operations are one wait.
    let mut few;
    let mut many;
    let cuts: &mut [u64] = if let ([stay], []) = (stays, intervals) {
        few = [from, stay.left, stay.woken, stay.ran, to];
        few.iter_mut().for_each(|at| *at = (*at).clamp(from, to));
        &mut few
    } else {
        let of_stays = stays
            .iter()
            .flat_map(|stay| [stay.left, stay.woken, stay.ran]);
        let of_intervals = intervals.iter().flat_map(|i| [i.begin, i.end]);
        let inside = of_stays
            .chain(of_intervals)
            .filter(|&at| from < at && at < to);
        many = [from, to].into_iter().chain(inside).collect::<Vec<u64>>();
        &mut many
    };
    if !cuts.is_sorted() {
        cuts.sort_unstable();
    }
    let (mut at, mut over) = (0, 0);
    for two in cuts.windows(2).filter(|two| two[0] < two[1]) {
        let moment = (two[0], two[1]);
        while stays.get(at).is_some_and(|stay| stay.ran <= moment.0) {
            at += 1;
        }
        // What ends first stands first.
        while (intervals.get(over)).is_some_and(|interval| interval.end <= moment.0) {
            over += 1;
        }
        let holding = Holding::new(&intervals[over..], moment);
        let otherwise = |why| holding.memory().or_else(|| holding.wait()).unwrap_or(why);
        let stay = stays.get(at).filter(|stay| stay.left <= moment.0);
        let state = match stay {
            Some(stay) if moment.0 < stay.woken => stay.states.0,
            Some(stay) => stay.states.1,
            None => between,
        };
        let why = match (state, stay) {
            (State::Runnable, Some(stay)) if stay.throttled => Why::CpuQuota,
            (State::Runnable, _) => Why::RunQueue,
            (State::Blocked, Some(stay)) => stay.why_asleep(holding),
            (State::Running, _) => otherwise(Why::OnCpu),
            (State::Unknown | State::Blocked, _) => otherwise(Why::Unknown),
        };
        each(Piece {
            why,
            state,
            stay: stay.map(|_| at),
            ns: moment.1 - moment.0,
        });
    }
}
