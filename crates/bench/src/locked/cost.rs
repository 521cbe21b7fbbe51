//! What each way costs, a page.
//!
//! ```text
//!                 take     fill      reclaim meets it    forced      give back
//!  one memory:   |----|  |------|   |---- if needed ----|  |------|  |---------|
//!                               ^ unevictable?          ^ unevictable?
//!  another:      |----|  |------|  |unlock|
//! ```
//!
//! *Until off the lists* is take, plus what filling it costs more than filling the same kind of memory that nobody locks (both
//! in turn, MiB by MiB; nothing where it was filled before, and less than nothing where taking fills it), plus the passes of reclaim (`MADV_PAGEOUT`) that it takes until its pages are on the unevictable list, which is read from
//! the group.

use std::cell::Cell;
use std::ops::Range;

use stopgap_arena::locked::{Held, Options, Set};
use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::tasks::{ChildLimits, Tasks};
use stopgap_kernel::{Linux, signals};
use stopgap_stats::quantile::median;

use super::memory::{Peer, fill_part, page_out, populate_part};
use super::{Bound, Flags};

/// Of a memory's pages, how many must be on the unevictable list; the kernel adds per-CPU counts up late.
const OFF: f64 = 0.95;
/// What a child needs beside its memory.
const CHILD: Bytes = Bytes::mib(32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nobody locks it.
    Segment,
    Memfd,
    /// The set's.
    SetSegment,
    /// The same, filled by the kernel in one call a piece (`MADV_POPULATE_WRITE`).
    SetPopulated,
    SetMemfd,
    /// A segment of the set that was released, unlocked, and taken again.
    SetAgain,
    /// mlock(2) on a memfd that is filled.
    Mlock,
    /// mlock(2) on one that is not, which fills it.
    MlockEmpty,
}

impl Way {
    const ALL: [Way; 8] = [
        Way::Segment,
        Way::Memfd,
        Way::SetSegment,
        Way::SetPopulated,
        Way::SetMemfd,
        Way::SetAgain,
        Way::Mlock,
        Way::MlockEmpty,
    ];

    fn words(self) -> &'static str {
        match self {
            Way::Segment => "nothing: segment",
            Way::Memfd => "nothing: memfd",
            Way::SetSegment => "set: segment (take)",
            Way::SetPopulated => "set: segment, populated",
            Way::SetMemfd => "set: memfd (take_shareable)",
            Way::SetAgain => "set: segment, late (keep)",
            Way::Mlock => "mlock(2) of a filled memfd",
            Way::MlockEmpty => "mlock(2) of an empty memfd",
        }
    }

    /// The same memory that nobody locks.
    fn unlocked(self) -> Way {
        match self {
            Way::Segment | Way::SetSegment | Way::SetPopulated | Way::SetAgain => Way::Segment,
            Way::Memfd | Way::SetMemfd | Way::Mlock | Way::MlockEmpty => Way::Memfd,
        }
    }
}

/// CPU time, ns a page. In this order on the way from the child.
#[derive(Debug, Clone, Copy)]
struct Costs {
    take: f64,
    fill: f64,
    /// What filling costs more than that of memory that nobody locks.
    more: f64,
    /// Passes of reclaim until it was off the lists; `NAN`: it never was.
    passes: f64,
    /// Share of its pages on the unevictable list when it was filled and taken.
    at_once: f64,
    forced: f64,
    unlock: f64,
    give_back: f64,
}

impl Costs {
    fn text(self) -> String {
        let Costs {
            take,
            fill,
            more,
            passes,
            at_once,
            forced,
            unlock,
            give_back,
        } = self;
        [take, fill, more, passes, at_once, forced, unlock, give_back]
            .map(|one| one.to_string())
            .join(" ")
    }

    fn read(text: &str) -> Option<Costs> {
        let figures: Vec<f64> = text
            .split(' ')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let [take, fill, more, passes, at_once, forced, unlock, give_back] = figures[..] else {
            return None;
        };
        Some(Costs {
            take,
            fill,
            more,
            passes,
            at_once,
            forced,
            unlock,
            give_back,
        })
    }
}

/// Runs each way and prints a line for each; the bounds.
pub(super) fn measure(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
) -> Result<Vec<Bound>, Failure> {
    let page = Linux.page_size();
    let bytes = flags.bytes.page_aligned(page);
    println!(
        "{bytes} each, {} runs in turn: median CPU time, ns a page",
        flags.runs
    );
    let bar = progress_bar();
    let mut all: Vec<Vec<Costs>> = vec![Vec::new(); Way::ALL.len()];
    for run in 0..flags.runs {
        for turn in 0..Way::ALL.len() {
            if signals::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            let at = (turn + run as usize) % Way::ALL.len();
            all[at].push(one(journal, site, Way::ALL[at], bytes)?);
        }
        bar.set_position(u64::from(run + 1) * 1_000 / u64::from(flags.runs));
    }
    bar.finish_and_clear();
    let figure = |way: Way, of: fn(&Costs) -> f64| {
        let costs = &all[way as usize];
        median(costs.iter().map(of).collect()).unwrap_or(f64::NAN)
    };
    let more_fill = |way: Way| figure(way, |c| c.more);
    let total = |way: Way| figure(way, |c| c.take) + more_fill(way) + figure(way, |c| c.passes);
    println!(
        "way                            take    fill   (more)  off at once  reclaim until off  total until off  forced reclaim  unlock  give back"
    );
    for way in Way::ALL {
        let locked = way != way.unlocked();
        let or = |value: f64, width: usize, digits: usize| {
            if locked {
                format!("{value:width$.digits$}")
            } else {
                format!("{:>width$}", "-")
            }
        };
        println!(
            "{:27} {} {:7.1} {} {} {} {} {} {} {:10.1}",
            way.words(),
            or(figure(way, |c| c.take), 7, 2),
            figure(way, |c| c.fill),
            or(more_fill(way), 8, 1),
            or(figure(way, |c| c.at_once) * 100.0, 10, 1) + if locked { " %" } else { "  " },
            or(figure(way, |c| c.passes), 18, 1),
            or(total(way), 16, 1),
            or(figure(way, |c| c.forced), 14, 1),
            or(figure(way, |c| c.unlock), 7, 1),
            figure(way, |c| c.give_back),
        );
    }
    println!(
        "taken again and then met by reclaim: {:.1} ns a page, {:.2}x of mlock(2)'s {:.1}; no bound, since what is given up before never pays",
        total(Way::SetAgain),
        total(Way::SetAgain) / total(Way::Mlock),
        total(Way::Mlock)
    );
    let take = |way| figure(way, |c: &Costs| c.take);
    // Like beside like: filled by touching, and by the kernel in one call a piece.
    let against = |what: &str, ours: Way, theirs: Way| {
        let at_once = figure(ours, |c| c.at_once);
        Bound {
            holds: total(ours) <= total(theirs) && at_once >= OFF,
            text: format!(
                "total until off the lists, {what}: a segment of the set {:.1} ns a page beside the same that nobody locks, {:.1} % of it \
                 off at once; mlock(2) {:.1} (not more)",
                total(ours),
                at_once * 100.0,
                total(theirs)
            ),
        }
    };
    Ok(vec![
        Bound {
            holds: take(Way::SetSegment) * 10.0 <= take(Way::Mlock),
            text: format!(
                "take: a segment of the set {:.2} ns a page (making it included), mlock(2) {:.1}: {:.4}x (0.1x)",
                take(Way::SetSegment),
                take(Way::Mlock),
                take(Way::SetSegment) / take(Way::Mlock)
            ),
        },
        Bound {
            holds: take(Way::SetAgain) * 10.0 <= take(Way::Mlock),
            text: format!(
                "take again: {:.2} ns a page, mlock(2) {:.1}: {:.4}x (0.1x)",
                take(Way::SetAgain),
                take(Way::Mlock),
                take(Way::SetAgain) / take(Way::Mlock)
            ),
        },
        against("touched", Way::SetSegment, Way::Mlock),
        against("populated", Way::SetPopulated, Way::MlockEmpty),
    ])
}

/// One way in a child and a group of its own.
fn one(journal: &Journal<'_>, site: &Site, way: Way, bytes: Bytes) -> Result<Costs, Failure> {
    let scope = journal.scope();
    let name = format!("stopgap-{}-locked", Linux.pid());
    let group = MemoryGroup::make(&Linux, journal, site, &name, Bytes(bytes.0 * 3) + CHILD)?;
    let limits = ChildLimits {
        time: Nanos::secs(60),
        cgroup: Some(group.path().to_owned()),
    };
    let outcome = Linux.run_child(&limits, &mut || match body(&group, way, bytes) {
        Ok(costs) => costs.text().into_bytes(),
        Err(error) => error.into_bytes(),
    });
    for error in scope.undo() {
        tell(&error.to_string());
    }
    let text = String::from_utf8_lossy(&outcome?.output).into_owned();
    Costs::read(&text).ok_or_else(|| Failure::error(format!("{}: {text}", way.words())))
}

/// Something that is filled, and how it is locked, unlocked and given back.
enum One {
    Peer(Peer),
    Held(Set, Held),
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
fn words(error: impl ToString) -> String {
    error.to_string()
}

fn body(group: &MemoryGroup, way: Way, bytes: Bytes) -> Result<Costs, String> {
    let page = Linux.page_size();
    let pages = bytes.pages(page).0 as f64;
    let timed = |step: &mut dyn FnMut() -> Result<(), String>| {
        let start = Linux.thread_cpu();
        step()?;
        Ok::<f64, String>(Linux.thread_cpu().saturating_sub(start).0 as f64 / pages)
    };
    let off = |before: f64| -> Result<f64, String> {
        let stat = group.stat(&Linux).map_err(words)?;
        let bytes = stat
            .get("unevictable")
            .ok_or("the group does not count unevictable pages")?;
        Ok((*bytes as f64 / page.0 as f64 - before) / pages)
    };
    // The first touch of memory that a host lends takes longer: a round that is not counted.
    let warm = Peer::memfd(bytes).map_err(words)?;
    warm.fill(0..usize::try_from(bytes.0).map_err(words)?);
    warm.give_back().map_err(words)?;

    let before = off(0.0)? * pages;
    let (one, (take, filled, more)) = taken(way, bytes, &timed)?;
    let at_once = off(before)?;
    let mut passes = 0.0;
    let locked = way != way.unlocked();
    let mut there = at_once;
    for _ in 0..3 {
        let One::Held(_, held) = &one else { break };
        if there >= OFF {
            break;
        }
        passes += timed(&mut || page_out(held).map_err(words))?;
        there = off(before)?;
    }
    if locked && there < OFF && matches!(one, One::Held(..)) {
        passes = f64::NAN;
    }
    let forced = if locked {
        timed(&mut || group.reclaim(&Linux, bytes).map_err(words))?
    } else {
        f64::NAN
    };
    let give_back = given_back(one, &timed)?;
    let unlock = if locked {
        let (one, ..) = taken(way, bytes, &timed)?;
        unlocked(one, &timed)?
    } else {
        f64::NAN
    };
    Ok(Costs {
        take,
        fill: filled,
        more,
        passes,
        at_once,
        forced,
        unlock,
        give_back,
    })
}

type Timed<'a> = &'a dyn Fn(&mut dyn FnMut() -> Result<(), String>) -> Result<f64, String>;

/// What is filled at a time, in turn with the same of what nobody locks.
const PIECE: usize = 1 << 20;

/// Makes memory, takes and fills it in the order of its way; what taking and filling cost, and the latter more than filling
/// what nobody locks.
fn taken(way: Way, bytes: Bytes, timed: Timed<'_>) -> Result<(One, (f64, f64, f64)), String> {
    let length = usize::try_from(bytes.0).map_err(words)?;
    let pieces = || {
        (0..length)
            .step_by(PIECE)
            .map(|at| at..length.min(at + PIECE))
    };
    let peer = || match way.unlocked() {
        Way::Segment => Peer::segment(bytes).map_err(words),
        _ => Peer::memfd(bytes).map_err(words),
    };
    let done = |work: &dyn Fn()| {
        timed(&mut || {
            work();
            Ok(())
        })
    };
    let other = peer()?;
    // What `ours` gives for each piece, and how much more that is than filling the same of `other`.
    let in_turn =
        |ours: &dyn Fn(Range<usize>) -> Result<f64, String>| -> Result<(f64, f64), String> {
            let (mut sum, mut differences) = (0.0, Vec::new());
            for (turn, piece) in pieces().enumerate() {
                let theirs = || done(&|| other.fill(piece.clone()));
                let (ours, theirs) = if turn % 2 == 0 {
                    let ours = ours(piece.clone())?;
                    (ours, theirs()?)
                } else {
                    let theirs = theirs()?;
                    (ours(piece.clone())?, theirs)
                };
                sum += ours;
                differences.push(ours - theirs);
            }
            let count = differences.len() as f64;
            Ok((sum, median(differences).unwrap_or(0.0) * count))
        };
    let taken = match way {
        Way::Segment | Way::Memfd => {
            let peer = peer()?;
            let (fill, more) = in_turn(&|piece| done(&|| peer.fill(piece.clone())))?;
            (One::Peer(peer), (0.0, fill, more))
        }
        Way::SetSegment | Way::SetPopulated | Way::SetMemfd | Way::SetAgain => {
            let set = Set::new(Options {
                budget: bytes.0,
                batch: 0,
                ..Options::default()
            })
            .map_err(words)?;
            let mut held = None;
            let mut take = timed(&mut || {
                let made = if way == Way::SetMemfd {
                    set.take_shareable(length)
                } else {
                    set.take(length)
                };
                held = Some(made.map_err(words)?);
                Ok(())
            })?;
            let held = held.ok_or("not taken")?;
            if held.instead().is_some() {
                return Err(format!("no segment: {:?}", held.instead()));
            }
            let (fill, mut more) = in_turn(&|piece| {
                timed(&mut || {
                    if way == Way::SetPopulated {
                        populate_part(&held, piece.clone()).map_err(words)?;
                    }
                    fill_part(&held, piece.clone());
                    Ok(())
                })
            })?;
            if way == Way::SetAgain {
                held.release().map_err(words)?;
                set.flush().map_err(words)?;
                take = timed(&mut || held.keep().map(drop).map_err(words))?;
                more = 0.0;
            }
            (One::Held(set, held), (take, fill, more))
        }
        Way::Mlock => {
            let peer = peer()?;
            let fill = done(&|| peer.fill(0..length))?;
            let take = timed(&mut || peer.mlock(0..length).map_err(words))?;
            (One::Peer(peer), (take, fill, 0.0))
        }
        Way::MlockEmpty => {
            let peer = peer()?;
            let (take, fill) = (Cell::new(0.0), Cell::new(0.0));
            let (_, more) = in_turn(&|piece| {
                let locked = timed(&mut || peer.mlock(piece.clone()).map_err(words))?;
                let filled = done(&|| peer.fill(piece.clone()))?;
                take.set(take.get() + locked);
                fill.set(fill.get() + filled);
                Ok(locked + filled)
            })?;
            // `more` holds what locking took: that is `take` already.
            (One::Peer(peer), (take.get(), fill.get(), more - take.get()))
        }
    };
    other.give_back().map_err(words)?;
    Ok(taken)
}

fn given_back(one: One, timed: Timed<'_>) -> Result<f64, String> {
    match one {
        One::Peer(peer) => {
            let mut peer = Some(peer);
            timed(&mut || {
                peer.take()
                    .map_or(Ok(()), |peer| peer.give_back().map_err(words))
            })
        }
        One::Held(set, held) => {
            let mut held = Some(held);
            let cost = timed(&mut || {
                drop(held.take());
                Ok(())
            });
            drop(set);
            cost
        }
    }
}

fn unlocked(one: One, timed: Timed<'_>) -> Result<f64, String> {
    match one {
        One::Peer(peer) => {
            let cost = timed(&mut || peer.munlock().map_err(words))?;
            peer.give_back().map_err(words)?;
            Ok(cost)
        }
        One::Held(set, held) => timed(&mut || {
            held.release().map_err(words)?;
            set.flush().map(drop).map_err(words)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_come_back_as_they_were_sent() {
        let costs = Costs {
            take: 1.5,
            fill: 2.0,
            more: -3.25,
            passes: f64::NAN,
            at_once: 0.5,
            forced: 4.0,
            unlock: 5.0,
            give_back: 6.0,
        };
        let back = Costs::read(&costs.text()).unwrap();
        assert_eq!(back.text(), costs.text());
        assert!(back.passes.is_nan());
        assert!(Costs::read("no segment: EINVAL").is_none() && Costs::read("1 2 3").is_none());
    }

    #[test]
    fn ways_are_found_by_their_place() {
        for (place, way) in Way::ALL.into_iter().enumerate() {
            assert_eq!(way as usize, place);
            assert_eq!(way.unlocked().unlocked(), way.unlocked());
        }
    }
}
