//! Divides the time of an operation by cause once it is over, using the waits and the activities of its thread.

use crate::interval::{Holding, Interval};
use crate::thread::{State, WokenBy};
use crate::why::Why;

/// One time off the CPU within an operation.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    pub(crate) left: u64,
    /// When the first state ends: when the thread was woken, or at the end if there is no second state.
    pub(crate) woken: u64,
    pub(crate) ran: u64,
    /// The states before and after the thread was woken.
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
    /// The thread that woke it.
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

/// A part of the time, with one cause.
pub(crate) struct Piece {
    pub(crate) why: Why,
    pub(crate) state: State,
    /// Index of the stay that contains it.
    pub(crate) stay: Option<usize>,
    pub(crate) ns: u64,
}

/// Divides the time from `from` to `to`, and passes each part to `each` once. Between the `stays`, which are in the
/// order of time, the thread is in the state `between`.
pub(crate) fn take_apart(
    (from, to): (u64, u64),
    stays: &[Stay],
    intervals: &[Interval],
    between: State,
    mut each: impl FnMut(Piece),
) {
    // Most operations consist of one wait.
    if let ([stay], []) = (stays, intervals)
        && stay.left <= stay.woken
        && stay.woken <= stay.ran
    {
        let cuts = [from, stay.left, stay.woken, stay.ran, to];
        let states = [between, stay.states.0, stay.states.1, between];
        let mut at = from;
        for (part, (&until, state)) in cuts[1..].iter().zip(states).enumerate() {
            let until = until.clamp(at, to);
            if until > at {
                let stay = Some(stay).filter(|_| part == 1 || part == 2);
                each(Piece {
                    why: why(state, stay, Holding::default()),
                    state,
                    stay: stay.map(|_| 0),
                    ns: until - at,
                });
                at = until;
            }
        }
        return;
    }
    let of_stays = stays
        .iter()
        .flat_map(|stay| [stay.left, stay.woken, stay.ran]);
    let of_intervals = intervals.iter().flat_map(|i| [i.begin, i.end]);
    let inside = of_stays
        .chain(of_intervals)
        .filter(|&at| from < at && at < to);
    let mut cuts: Vec<u64> = [from, to].into_iter().chain(inside).collect();
    if !cuts.is_sorted() {
        cuts.sort_unstable();
    }
    // For each interval, the earliest begin of it and all later ones.
    let mut first = u64::MAX;
    let mut begins: Vec<u64> = (intervals.iter().rev())
        .map(|interval| {
            first = first.min(interval.begin);
            first
        })
        .collect();
    begins.reverse();
    let (mut at, mut over) = (0, 0);
    for two in cuts.windows(2).filter(|two| two[0] < two[1]) {
        let moment = (two[0], two[1]);
        while stays.get(at).is_some_and(|stay| stay.ran <= moment.0) {
            at += 1;
        }
        // Intervals are in the order of their ends.
        while (intervals.get(over)).is_some_and(|interval| interval.end <= moment.0) {
            over += 1;
        }
        let holding = Holding::new((&intervals[over..], &begins[over..]), moment);
        let stay = stays.get(at).filter(|stay| stay.left <= moment.0);
        let state = match stay {
            Some(stay) if moment.0 < stay.woken => stay.states.0,
            Some(stay) => stay.states.1,
            None => between,
        };
        each(Piece {
            why: why(state, stay, holding),
            state,
            stay: stay.map(|_| at),
            ns: moment.1 - moment.0,
        });
    }
}

/// Returns the cause of time in a state. `holding` are the activities at that moment.
fn why(state: State, stay: Option<&Stay>, holding: Holding<'_>) -> Why {
    let otherwise = |why| holding.memory().or_else(|| holding.wait()).unwrap_or(why);
    match (state, stay) {
        (State::Runnable, Some(stay)) if stay.throttled => Why::CpuQuota,
        (State::Runnable, _) => Why::RunQueue,
        (State::Blocked, Some(stay)) => stay.why_asleep(holding),
        (State::Running, _) => otherwise(Why::OnCpu),
        (State::Unknown | State::Blocked, _) => otherwise(Why::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interval::What;

    fn stay(left: u64, woken: u64, ran: u64) -> Stay {
        Stay {
            left,
            woken,
            ran,
            states: (State::Blocked, State::Runnable),
            stack: None,
            deep: false,
            for_io: false,
            otherwise: Why::Answer,
            throttled: false,
            waker: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// The shortcut for a single wait gives the same parts as the general way, which an earlier interval selects.
        #[test]
        fn one_wait_is_taken_apart_as_several_are(mut at in prop::array::uniform5(0..12_u64), shuffled: bool) {
            let [left, woken, ran] = [at[1], at[3], at[4]];
            at.sort_unstable();
            let stay = if shuffled { stay(left, woken, ran) } else { stay(at[1], at[2], at[3]) };
            let apart = |intervals: &[Interval]| {
                let mut pieces = Vec::new();
                let window = (at[0] + 1, at[4] + 1);
                take_apart(window, std::slice::from_ref(&stay), intervals, State::Running, |piece| {
                    pieces.push((piece.why, piece.state, piece.stay, piece.ns));
                });
                pieces
            };
            let before = Interval { what: What::Fence, begin: 0, end: 0 };
            prop_assert_eq!(apart(&[]), apart(&[before]));
        }

        /// An activity that begins later than a moment is not looked at.
        #[test]
        fn intervals_that_begin_later_change_nothing(
            times in prop::collection::vec((0..30_u64, 0..30_u64, 0..4_u8), 0..12),
            from in 0..30_u64,
        ) {
            let mut intervals: Vec<Interval> = (times.iter())
                .map(|&(one, other, what)| Interval {
                    what: match what {
                        0 => What::Fence,
                        1 => What::Compaction,
                        2 => What::Block,
                        _ => What::Lock(true, None),
                    },
                    begin: one.min(other),
                    end: one.max(other),
                })
                .collect();
            intervals.sort_by_key(|interval| interval.end);
            let moment = (from, from + 1);
            let first = |at| intervals[at..].iter().map(|interval| interval.begin).min();
            let begins: Vec<u64> = (0..intervals.len()).filter_map(first).collect();
            let every = vec![0; intervals.len()];
            let some = Holding::new((&intervals, &begins), moment);
            let all = Holding::new((&intervals, &every), moment);
            prop_assert_eq!(some.memory(), all.memory());
            prop_assert_eq!(some.wait(), all.wait());
            prop_assert_eq!(some.block(), all.block());
        }
    }
}
