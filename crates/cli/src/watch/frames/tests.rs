//! Threads with a rhythm, and without.

use super::*;

const MS: u64 = 1_000_000;
const PACING: Place = (Some(230), 0x1000, 0x7000);
const WORKER: Place = (Some(202), 0x2000, 0x6000);
const TID: u32 = 7;

fn of(who: FrameOf, period: Option<Nanos>) -> Frames {
    let mut frames = Frames::new(vec![Frame { of: who, period }], None);
    frames.follow(TID, TID, ["game", "game"]);
    frames
}

fn game() -> Frames {
    of(FrameOf::Name("game".to_owned()), None)
}

fn sleep(place: Place, left: u64, woken: u64) -> Sleep {
    Sleep {
        place,
        call: "clock_nanosleep".to_owned(),
        left,
        woken,
        by_thread: place == WORKER,
        idle: place == PACING,
    }
}

/// A thread that works for `work` from each beat on, a period apart.
struct Loop {
    at: u64,
    period: u64,
}

impl Loop {
    fn new(period: u64) -> Loop {
        let at = 1_000 * MS;
        Loop { at, period }
    }

    /// A frame of this length. What fires when the thread sleeps until the next beat after it.
    fn frame(&mut self, frames: &mut Frames, work: u64) -> Vec<Trigger> {
        let left = self.at + work;
        let beats = work / self.period + 1;
        self.at += beats * self.period;
        frames.slept(TID, sleep(PACING, left, self.at), self.at + MS / 10);
        frames.until(self.at + MS)
    }

    fn frames(&mut self, frames: &mut Frames, count: usize, work: u64) {
        for _ in 0..count {
            assert_eq!(self.frame(frames, work), []);
        }
    }
}

#[test]
fn a_frame_that_takes_longer_than_two_periods_fires() {
    for (hz, period) in [(30, 33_333_333), (60, 16_666_667), (144, 6_944_444)] {
        let mut frames = game();
        let mut game = Loop::new(period);
        game.frames(&mut frames, 60, period / 3);
        assert_eq!(
            frames.said(),
            [format!("frames of game (7): {hz}.0 Hz, by clock_nanosleep")]
        );
        game.frames(&mut frames, 1, period * 19 / 10);
        let begin = game.at;
        let fired = game.frame(&mut frames, 100 * MS);
        assert_eq!(fired.len(), 1, "{hz}");
        let trigger = &fired[0];
        let times = (trigger.begin_ns, trigger.at_ns);
        assert_eq!(times, (Some(begin), begin + 100 * MS));
        assert_eq!(trigger.measured_ns, Some(100 * MS - period));
        assert_eq!(trigger.threshold_ns, Some(period));
        assert_eq!(trigger.window_ns, Some(period));
        game.frames(&mut frames, 60, period / 3);
        let told = &frames.rhythms()[0];
        assert_eq!((told.late, told.latest_ns), (1, Some(100 * MS - period)));
        assert_eq!(told.frames, 60 + 62 - 17);
        assert_eq!(frames.oldest_open(), None);
    }
}

#[test]
fn a_limit_replaces_the_period() {
    let mut frames = game();
    frames.late = Some(3 * MS);
    let mut game = Loop::new(16 * MS);
    game.frames(&mut frames, 30, 5 * MS);
    game.frames(&mut frames, 1, 18 * MS);
    assert_eq!(
        game.frame(&mut frames, 20 * MS)[0].measured_ns,
        Some(4 * MS)
    );
}

/// No frame is due while it sleeps, nor when an event wakes it.
#[test]
fn a_compositor_that_sleeps_while_nothing_happens_misses_nothing() {
    let mut frames = game();
    let mut game = Loop::new(16 * MS);
    for _ in 0..3 {
        game.frames(&mut frames, 40, 2 * MS);
        game.frames(&mut frames, 1, 2 * MS);
        let left = game.at + MS;
        game.at += 5_000 * MS;
        frames.slept(TID, sleep(PACING, left, game.at), game.at);
        assert_eq!(frames.until(game.at), []);
        game.frames(&mut frames, 1, 300 * MS);
    }
    assert_eq!(
        game.frame(&mut frames, 300 * MS).len(),
        1,
        "but in its rhythm"
    );
}

#[test]
fn beats_may_be_uneven_but_not_any() {
    let mut frames = game();
    let mut game = Loop::new(16 * MS);
    for n in 0..60 {
        game.period = 16 * MS + n * 7 % 5 * MS / 2;
        game.frames(&mut frames, 1, 5 * MS);
    }
    assert_eq!(frames.said().len(), 1);
    let mut frames = self::game();
    for n in 0..200 {
        game.period = (5 + n * n * 31 % 83) * MS;
        game.frames(&mut frames, 1, 4 * MS);
    }
    assert_eq!(frames.said().len(), 0);
    assert_eq!(game.frame(&mut frames, 900 * MS), []);
}

/// A given period needs no steady beats, but such a loop.
#[test]
fn a_period_may_be_given() {
    for (given, learned) in [(17, true), (40, false)] {
        let name = FrameOf::Name("game".to_owned());
        let mut frames = of(name, Some(Nanos::millis(given)));
        let mut game = Loop::new(16 * MS);
        for n in 0..60 {
            game.period = [13, 14, 16, 18, 27, 28][n % 6] * MS;
            game.frames(&mut frames, 1, 5 * MS);
        }
        assert_eq!(frames.said().len(), usize::from(learned));
        assert_eq!(frames.rhythms().len(), usize::from(learned));
        if learned {
            let told = frames.rhythms().remove(0);
            assert_eq!(told.period_ns, given * MS);
        }
    }
}

/// Each frame has a sleep that a worker ends: it is a part of the frame, also where it is longer than the one before the beat.
#[test]
fn a_wait_for_another_thread_is_a_part_of_the_frame() {
    let mut frames = game();
    let mut at = 1_000 * MS;
    let mut frame = |frames: &mut Frames, worker: u64| {
        let (left, done) = (at + MS, at + MS + worker);
        let beat = (done / (16 * MS) + 1) * 16 * MS;
        frames.slept(TID, sleep(WORKER, left, done), done);
        frames.slept(TID, sleep(PACING, done + MS, beat), beat);
        at = beat;
        frames.until(beat)
    };
    for _ in 0..60 {
        assert_eq!(frame(&mut frames, 12 * MS), []);
    }
    let fired = frame(&mut frames, 120 * MS);
    assert_eq!(fired[0].measured_ns, Some((122 - 16) * MS));
}

/// From its loop a thread may go to another one, and come back.
#[test]
fn another_loop_is_no_frame() {
    let mut frames = game();
    let mut game = Loop::new(16 * MS);
    game.frames(&mut frames, 60, 2 * MS);
    for _ in 0..100 {
        let menu = Sleep {
            idle: true,
            ..sleep(WORKER, game.at + MS, game.at + 700 * MS)
        };
        game.at += 700 * MS;
        frames.slept(TID, menu, game.at);
        assert_eq!(frames.until(game.at), []);
        assert_eq!(frames.look(&HashMap::new(), game.at), []);
    }
    game.frames(&mut frames, 60, 2 * MS);
    assert_eq!(game.frame(&mut frames, 300 * MS).len(), 1);
}

#[test]
fn a_frame_that_goes_on_fires_at_the_second_look_and_at_its_end() {
    let mut frames = game();
    let mut game = Loop::new(16 * MS);
    game.frames(&mut frames, 60, 2 * MS);
    let (begin, nobody) = (game.at, HashMap::new());
    assert_eq!(frames.look(&nobody, begin + 500 * MS), []);
    let fired = frames.look(&nobody, begin + 1_500 * MS);
    assert_eq!((fired.len(), fired[0].open), (1, true));
    assert_eq!(fired[0].measured_ns, Some((1_500 - 16) * MS));
    assert_eq!(frames.look(&nobody, begin + 2_500 * MS), [], "once");
    assert_eq!(frames.oldest_open(), Some(begin));
    let fired = game.frame(&mut frames, 3_000 * MS);
    assert_eq!((fired.len(), fired[0].open), (1, false));
    assert_eq!(fired[0].begin_ns, Some(begin));
    assert_eq!(frames.oldest_open(), None);
    // It sleeps for its next beat, which does not come: the frame before is over.
    let begin = game.at;
    let asleep = HashMap::from([(TID, (PACING, begin + 100 * MS, true))]);
    let fired = frames.look(&asleep, begin + 900 * MS);
    assert_eq!(fired[0].at_ns, begin + 100 * MS);
    for later in [1_900, 2_900] {
        assert_eq!(frames.look(&asleep, begin + later * MS), []);
    }
}

/// Records of two CPUs come one CPU after the other, and the last ones with the next reading.
#[test]
fn records_in_any_order_make_the_same_frames() {
    let mut frames = game();
    let sleeps: Vec<Sleep> = (1..=90)
        .map(|n| sleep(PACING, n * 16 * MS - 8 * MS, n * 16 * MS))
        .collect();
    for reading in sleeps.chunks(6) {
        let (even, odd): (Vec<_>, Vec<_>) = reading
            .iter()
            .partition(|sleep| sleep.woken % (32 * MS) == 0);
        for sleep in even.into_iter().chain(odd) {
            frames.slept(TID, sleep.clone(), sleep.woken);
        }
        assert_eq!(frames.until(reading[4].woken), []);
    }
    let told = &frames.rhythms()[0];
    assert_eq!((told.period_ns, told.late), (16 * MS, 0));
}

/// The sleep of a beat is missing: the thread may have slept.
#[test]
fn lost_records_are_no_late_frames() {
    let mut frames = game();
    let mut game = Loop::new(16 * MS);
    game.frames(&mut frames, 60, 2 * MS);
    game.at += 300 * MS;
    frames.lost();
    game.frames(&mut frames, 60, 2 * MS);
    assert_eq!(game.frame(&mut frames, 300 * MS).len(), 1);
}

#[test]
fn marks_end_frames_and_waits_for_work_are_not_counted() {
    let mut frames = Frames::new(
        vec![Frame {
            of: FrameOf::Mark("frame".to_owned()),
            period: None,
        }],
        None,
    );
    assert!(frames.are_by("frame") && !frames.are_by("late"));
    let mut at = 1_000 * MS;
    let mut frame = |frames: &mut Frames, idle: u64, work: u64| {
        frames.idled(TID, (at, at + idle), at + idle);
        at += idle + work;
        frames.marked("frame", TID, (TID, "game"), at);
        frames.until(at)
    };
    frame(&mut frames, 0, 0);
    for _ in 0..40 {
        assert_eq!(frame(&mut frames, 12 * MS, 4 * MS), []);
    }
    assert_eq!(
        frames.said(),
        ["frames of game (7): 62.5 Hz, by its mark frame"]
    );
    assert_eq!(frame(&mut frames, 900 * MS, 4 * MS), [], "nothing to draw");
    let fired = frame(&mut frames, 12 * MS, 90 * MS);
    assert_eq!(fired[0].measured_ns, Some((90 - 16) * MS));
    assert_eq!(
        (fired[0].mark.as_deref(), &fired[0].call),
        (Some("frame"), &None)
    );
    assert_eq!(
        summary(&frames.rhythms()[0]),
        "frames of game (7): 62.5 Hz, by its mark frame; 1 of 26 late, at most 74 ms"
    );
}

#[test]
fn frames_are_those_of_who_is_asked_for() {
    let mut frames = Frames::new(
        vec![
            Frame {
                of: FrameOf::Process(5),
                period: None,
            },
            Frame {
                of: FrameOf::Name("game".to_owned()),
                period: None,
            },
        ],
        None,
    );
    assert!(frames.follow(6, 5, ["render", "app"]));
    assert!(frames.follow(7, 7, ["game", "game"]) && frames.follow(8, 7, ["render", "game"]));
    assert!(!frames.follow(9, 9, ["shell", "shell"]));
    frames.ended(8, 5);
    frames.until(5);
    frames.retain(&HashSet::from([6]), 9);
    frames.until(9);
    assert_eq!(frames.threads.len(), 1);
}

/// A look at all threads finds it gone before its last sleeps are taken, or its end was lost.
#[test]
fn a_thread_that_has_ended_is_told_of() {
    for told in [true, false] {
        let mut frames = game();
        let mut game = Loop::new(16 * MS);
        game.frames(&mut frames, 60, 2 * MS);
        let ended = game.at + 300 * MS;
        frames.slept(TID, sleep(PACING, ended, ended + MS), ended + MS);
        if told {
            frames.ended(TID, ended + 2 * MS);
        }
        frames.retain(&HashSet::new(), ended + 3 * MS);
        let fired = frames.until(ended + 3 * MS);
        assert_eq!(
            (fired.len(), frames.threads.len()),
            (1, 0),
            "late, and gone"
        );
        let told = &frames.rhythms()[0];
        assert_eq!((told.period_ns, told.late), (16 * MS, 1));
    }
}

#[test]
fn a_name_that_no_thread_has_is_told() {
    assert_eq!(game().unmet(), Vec::<String>::new());
    let [told] = &of(FrameOf::Name("gmae".to_owned()), None).unmet()[..] else {
        panic!("one line");
    };
    assert!(told.contains("of the name gmae was seen"), "{told}");
    let mut marks = of(FrameOf::Mark("draw".to_owned()), None);
    assert_eq!(marks.unmet().len(), 1);
    marks.marked("draw", TID, (TID, "game"), MS);
    assert_eq!(marks.unmet(), Vec::<String>::new());
}
