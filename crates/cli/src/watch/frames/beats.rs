//! The rhythm of a thread, learned from the ends of its sleeps or from its marks.

/// Intervals of which a rhythm is learned.
const INTERVALS: usize = 16;
/// So many of them are as long as the one in the middle, within a fifth.
const STEADY: usize = 12;
/// Where fewer are whole periods, the rhythm is over.
const KEPT: usize = 8;
/// Periods that are learned.
const SHORTEST: u64 = 4_000_000;
const LONGEST: u64 = 100_000_000;
/// A longer interval is a pause, and not learned from.
const PAUSE: u64 = 1_500_000_000;
/// Places of a thread that are remembered; of more the one goes where it has not slept for longest.
const MOST_PLACES: usize = 16;
/// With each sleep, one part in so many of the time asleep at a place is forgotten.
const FORGOTTEN: u64 = 16;

/// A place in a program where a thread sleeps: call, next instruction, stack pointer.
pub(in crate::watch) type Place = (Option<u32>, u64, u64);

/// A sleep that is over.
#[derive(Debug, Clone)]
pub(in crate::watch) struct Sleep {
    pub(in crate::watch) place: Place,
    /// The call's name.
    pub(in crate::watch) call: String,
    pub(in crate::watch) left: u64,
    pub(in crate::watch) woken: u64,
    /// Whether a thread ended it; otherwise a timer or a device did.
    pub(in crate::watch) by_thread: bool,
    /// Whether it was for work.
    pub(in crate::watch) idle: bool,
}

/// The last intervals between beats.
#[derive(Debug, Default)]
pub(super) struct Beats {
    last: Option<u64>,
    intervals: [u64; INTERVALS],
    count: usize,
}

impl Beats {
    /// A beat at `at`. Returns whether there are intervals enough to learn from.
    pub(super) fn beat(&mut self, at: u64) -> bool {
        let last = self.last.replace(at).unwrap_or(at);
        let interval = at.saturating_sub(last);
        if (1..=PAUSE).contains(&interval) {
            self.intervals[self.count % INTERVALS] = interval;
            self.count += 1;
        }
        self.count >= INTERVALS
    }

    /// No interval ends with the next beat.
    pub(super) fn pause(&mut self) {
        self.last = None;
    }

    fn middle(&self) -> u64 {
        let mut sorted = self.intervals;
        sorted.sort_unstable();
        sorted[INTERVALS / 2]
    }

    /// Returns the period of steady beats.
    pub(super) fn steady(&self) -> Option<u64> {
        let middle = self.middle();
        let same = |interval: &&u64| interval.abs_diff(middle) <= middle / 5;
        let steady = self.intervals.iter().filter(same).count() >= STEADY;
        (steady && (SHORTEST..=LONGEST).contains(&middle)).then_some(middle)
    }

    /// Whether half of the beats come about as often as `period` says: a loop that often misses is slower.
    fn fit(&self, period: u64) -> bool {
        self.middle().abs_diff(period) <= period / 4
    }

    /// Whether half of the beats are whole periods apart.
    pub(super) fn keep(&self, period: u64) -> bool {
        let whole = |interval: &&u64| {
            let beats = (**interval + period / 2) / period;
            beats > 0 && interval.abs_diff(beats * period) <= period / 5
        };
        self.intervals.iter().filter(whole).count() >= KEPT
    }
}

/// A place, and what ends the sleeps there.
#[derive(Debug)]
struct Spot {
    place: Place,
    call: String,
    /// Ended by timers and devices; by threads.
    beats: [Beats; 2],
    /// Time asleep here lately.
    asleep: u64,
    last: u64,
}

/// The places where a thread sleeps, and the one where it waits for its next beat.
#[derive(Debug, Default)]
pub(super) struct Places {
    spots: Vec<Spot>,
    /// The period, the place, and whether threads end the sleeps.
    pace: Option<(u64, Place, bool)>,
}

impl Places {
    /// Takes a sleep. Returns the period and the place of the thread's rhythm, if it has one: where timers or devices end its sleeps
    /// rather than threads, then where it sleeps longest. A `given` period needs no steady beats.
    pub(super) fn slept(&mut self, sleep: &Sleep, given: Option<u64>) -> Option<(u64, Place)> {
        let at = self.spot(sleep);
        let spot = &mut self.spots[at];
        let asleep = sleep.woken.saturating_sub(sleep.left);
        spot.asleep = spot.asleep - spot.asleep / FORGOTTEN + asleep;
        spot.last = sleep.woken;
        let by = sleep.by_thread;
        let beats = &mut spot.beats[usize::from(by)];
        if beats.beat(sleep.woken) {
            let period = match given {
                Some(period) => Some(period).filter(|&period| beats.fit(period)),
                None => beats.steady(),
            };
            let own = |pace: &(u64, Place, bool)| (pace.1, pace.2) == (sleep.place, by);
            match (self.pace, period) {
                (Some(pace), None) if own(&pace) => {
                    self.pace = Some(pace).filter(|pace| beats.keep(pace.0));
                }
                (Some(pace), Some(period)) if !own(&pace) && !self.is_better(at, by, pace) => {
                    let _ = period; // of another place
                }
                (_, Some(period)) => self.pace = Some((period, sleep.place, by)),
                (_, None) => {}
            }
        }
        self.pace.map(|(period, place, _)| (period, place))
    }

    /// Whether the rhythm of spot `at` is that of frames, and `pace` is another one of the thread.
    fn is_better(&self, at: usize, by_thread: bool, pace: (u64, Place, bool)) -> bool {
        if by_thread != pace.2 {
            return pace.2;
        }
        let other = self.spots.iter().find(|spot| spot.place == pace.1);
        other.is_none_or(|other| self.spots[at].asleep > 2 * other.asleep)
    }

    /// Returns the number of the sleep's spot, which is made.
    fn spot(&mut self, sleep: &Sleep) -> usize {
        let there = self.spots.iter().position(|spot| spot.place == sleep.place);
        if let Some(there) = there {
            return there;
        }
        if self.spots.len() >= MOST_PLACES {
            let oldest = self.spots.iter().enumerate();
            let oldest = oldest.min_by_key(|(_, spot)| spot.last);
            if let Some((oldest, _)) = oldest {
                self.spots.swap_remove(oldest);
            }
        }
        self.spots.push(Spot {
            place: sleep.place,
            call: sleep.call.clone(),
            beats: Default::default(),
            asleep: 0,
            last: sleep.woken,
        });
        self.spots.len() - 1
    }

    /// Returns the name of the call at a place.
    pub(super) fn call(&self, place: Place) -> Option<String> {
        let spot = self.spots.iter().find(|spot| spot.place == place);
        spot.map(|spot| spot.call.clone())
    }

    /// No interval ends with the next beats.
    pub(super) fn pause(&mut self) {
        for beats in self.spots.iter_mut().flat_map(|spot| &mut spot.beats) {
            beats.pause();
        }
    }
}
