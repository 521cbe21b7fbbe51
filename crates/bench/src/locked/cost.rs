//! The cost of each way to lock memory, per page.
//!
//! ```text
//!                 take     fill      reclaim meets it    forced      give back
//!  one memory:   |----|  |------|   |---- if needed ----|  |------|  |---------|
//!                               ^ unevictable?          ^ unevictable?
//!  another:      |----|  |------|  |unlock|
//! ```
//!
//! *Until off the lists* is take, plus what filling it costs more than filling the same kind of memory that nobody locks (both
//! in turn, MiB by MiB; nothing where it was filled before, and less than nothing where taking fills it), plus the passes of reclaim
//! (`MADV_PAGEOUT`) that it takes until its pages are on the unevictable list, which is read from the group.

use std::cell::Cell;
use std::ops::Range;

use stopgap_arena::locked::{Held, Options, Set};
use stopgap_cli::{Failure, print};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::tasks::{ChildLimits, Tasks};

use super::Flags;
use super::memory::{Peer, fill, page_out, populate};
use crate::common::{Bounds, middle, put_back, rounds, table, text};

/// Least share of a memory's pages on the unevictable list; the kernel adds per-CPU counts up late.
const OFF: f64 = 0.95;
/// Memory that a child needs for itself.
const CHILD: Bytes = Bytes::mib(32);
/// Bytes that are filled at a time, in turn with as many that nobody locks.
const PIECE: usize = 1 << 20;
/// Passes of reclaim before it is given up.
const PASSES: usize = 3;
/// The most time that taking memory of the set may need, over that of mlock(2).
const TAKE: f64 = 0.1;

/// How memory is locked.
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

/// The ways, in the order of their declaration.
const WAYS: [(Way, &str); 8] = [
    (Way::Segment, "nothing: segment"),
    (Way::Memfd, "nothing: memfd"),
    (Way::SetSegment, "set: segment (take)"),
    (Way::SetPopulated, "set: segment, populated"),
    (Way::SetMemfd, "set: memfd (take_shareable)"),
    (Way::SetAgain, "set: segment, late (keep)"),
    (Way::Mlock, "mlock(2) of a filled memfd"),
    (Way::MlockEmpty, "mlock(2) of an empty memfd"),
];

impl Way {
    /// The same memory that nobody locks.
    fn unlocked(self) -> Way {
        match self {
            Way::Segment | Way::SetSegment | Way::SetPopulated | Way::SetAgain => Way::Segment,
            Way::Memfd | Way::SetMemfd | Way::Mlock | Way::MlockEmpty => Way::Memfd,
        }
    }

    fn is_locked(self) -> bool {
        self != self.unlocked()
    }
}

/// CPU time, ns a page; and the share of pages that are off the lists. In this order on the way from the child.
#[derive(Debug, Clone, Copy)]
enum Cost {
    Take,
    Fill,
    /// Cost of filling it, less the cost of filling memory that nobody locks.
    More,
    /// Passes of reclaim until it was off the lists; NaN: it never was.
    Passes,
    /// Share of its pages on the unevictable list when it was filled and taken.
    AtOnce,
    Forced,
    Unlock,
    GiveBack,
}

type Costs = [f64; 8];

/// Runs each way and prints a line for each.
pub(super) fn measure(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
    bounds: &mut Bounds,
) -> Result<(), Failure> {
    let bytes = flags.bytes.page_aligned(Linux.page_size());
    let all = rounds(flags.runs, &[WAYS.len()], |_, way| {
        one(journal, site, WAYS[way], bytes)
    })?;
    let figure =
        |way: Way, cost: Cost| middle(all[0].side(way as usize).map(|costs| costs[cost as usize]));
    let total = |way| figure(way, Cost::Take) + figure(way, Cost::More) + figure(way, Cost::Passes);
    let rows = WAYS.iter().map(|&(way, words)| {
        let or = |value: f64, digits: usize| match way.is_locked() {
            true => format!("{value:.digits$}"),
            false => "-".to_owned(),
        };
        let at_once = or(figure(way, Cost::AtOnce) * 100.0, 1);
        vec![
            words.to_owned(),
            or(figure(way, Cost::Take), 2),
            format!("{:.1}", figure(way, Cost::Fill)),
            or(figure(way, Cost::More), 1),
            if way.is_locked() {
                at_once + " %"
            } else {
                at_once
            },
            or(figure(way, Cost::Passes), 1),
            or(total(way), 1),
            or(figure(way, Cost::Forced), 1),
            or(figure(way, Cost::Unlock), 1),
            format!("{:.1}", figure(way, Cost::GiveBack)),
        ]
    });
    let head = "way|take|fill|(more)|off at once|reclaim until off|total until off|forced reclaim|unlock|give back";
    print(&format!(
        "{bytes} each, {} runs in turn: median CPU time, ns a page\n{}\
         taken again and then met by reclaim: {:.1} ns a page, {:.2}x of mlock(2)'s {:.1}; no bound, since what is given up before never pays",
        flags.runs,
        table(head, rows),
        total(Way::SetAgain),
        total(Way::SetAgain) / total(Way::Mlock),
        total(Way::Mlock)
    ))?;
    let mlock = figure(Way::Mlock, Cost::Take);
    for (what, way) in [("take", Way::SetSegment), ("take again", Way::SetAgain)] {
        let (take, times) = (figure(way, Cost::Take), figure(way, Cost::Take) / mlock);
        let what = format!(
            "{what}: a segment of the set {take:.2} ns a page, mlock(2) {mlock:.1}: {times:.4}x ({TAKE}x)"
        );
        bounds.add(take <= TAKE * mlock, what);
    }
    // Like beside like: filled by touching, and by the kernel in one call a piece.
    for (what, ours, theirs) in [
        ("touched", Way::SetSegment, Way::Mlock),
        ("populated", Way::SetPopulated, Way::MlockEmpty),
    ] {
        let at_once = figure(ours, Cost::AtOnce);
        let what = format!(
            "total until off the lists, {what}: a segment of the set {:.1} ns a page beside the same that nobody locks, {:.1} % of it \
             off at once; mlock(2) {:.1} (not more)",
            total(ours),
            at_once * 100.0,
            total(theirs)
        );
        bounds.add(total(ours) <= total(theirs) && at_once >= OFF, what);
    }
    Ok(())
}

/// Carries out one way in a child and a group of its own.
fn one(
    journal: &Journal<'_>,
    site: &Site,
    (way, words): (Way, &str),
    bytes: Bytes,
) -> Result<Costs, Failure> {
    let scope = journal.scope();
    let name = format!("stopgap-{}-locked", Linux.pid());
    let group = MemoryGroup::make(&Linux, journal, site, &name, Bytes(bytes.0 * 3) + CHILD)?;
    let limits = ChildLimits {
        time: Nanos::secs(60),
        cgroup: Some(group.path().to_owned()),
    };
    let outcome = Linux.run_child(&limits, &mut || match body(&group, way, bytes) {
        Ok(costs) => costs.map(|cost| cost.to_string()).join(" ").into_bytes(),
        Err(error) => error.into_bytes(),
    });
    put_back(scope);
    let said = String::from_utf8_lossy(&outcome?.output).into_owned();
    costs(&said).ok_or_else(|| Failure::error(format!("{words}: {said}")))
}

/// Reads costs as a child sends them.
fn costs(said: &str) -> Option<Costs> {
    let costs: Result<Vec<f64>, _> = said.split(' ').map(str::parse).collect();
    costs.ok()?.try_into().ok()
}

/// Memory that is filled, and how it is locked, unlocked and given back.
enum One {
    Peer(Peer),
    Held(Set, Held),
}

/// Returns the thread CPU time of a step.
fn timed(step: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let start = Linux.thread_cpu();
    step()?;
    Ok(Linux.thread_cpu().saturating_sub(start).0 as f64)
}

fn body(group: &MemoryGroup, way: Way, bytes: Bytes) -> Result<Costs, String> {
    let page = Linux.page_size();
    let pages = bytes.pages(page).0 as f64;
    let unevictable = || -> Result<f64, String> {
        let stat = group.stat(&Linux).map_err(text)?;
        let bytes = stat
            .get("unevictable")
            .ok_or("the group does not count unevictable pages")?;
        Ok(*bytes as f64 / page.0 as f64)
    };
    // The first touch of memory that a host lends takes longer: a round that is not counted.
    let warm = Peer::memfd(bytes).map_err(text)?;
    warm.fill(0..usize::try_from(bytes.0).map_err(text)?);
    warm.give_back().map_err(text)?;

    let before = unevictable()?;
    let off = || Ok::<f64, String>((unevictable()? - before) / pages);
    let (one, [take, fill, more]) = taken(way, bytes)?;
    let at_once = off()?;
    let mut passes = 0.0;
    if let One::Held(_, held) = &one {
        let mut now = at_once;
        for _ in 0..PASSES {
            if now < OFF {
                passes += timed(|| page_out(held).map_err(text))?;
                now = off()?;
            }
        }
        if now < OFF {
            passes = f64::NAN;
        }
    }
    let (mut forced, mut unlock) = (f64::NAN, f64::NAN);
    if way.is_locked() {
        forced = timed(|| group.reclaim(&Linux, bytes).map_err(text))?;
    }
    let give_back = match one {
        One::Peer(peer) => timed(|| peer.give_back().map_err(text))?,
        One::Held(set, held) => {
            let cost = timed(|| {
                drop(held);
                Ok(())
            })?;
            drop(set);
            cost
        }
    };
    if way.is_locked() {
        unlock = match taken(way, bytes)?.0 {
            One::Peer(peer) => {
                let cost = timed(|| peer.munlock().map_err(text))?;
                peer.give_back().map_err(text)?;
                cost
            }
            One::Held(set, held) => timed(|| {
                held.release().map_err(text)?;
                set.flush().map(drop).map_err(text)
            })?,
        };
    }
    let mut costs =
        [take, fill, more, passes, at_once, forced, unlock, give_back].map(|cost| cost / pages);
    costs[Cost::AtOnce as usize] = at_once;
    Ok(costs)
}

/// Makes memory, takes and fills it in the order of its way. Returns what taking and filling cost, and how much more the latter than
/// filling what nobody locks.
fn taken(way: Way, bytes: Bytes) -> Result<(One, [f64; 3]), String> {
    let length = usize::try_from(bytes.0).map_err(text)?;
    let peer = || match way.unlocked() {
        Way::Segment => Peer::segment(bytes).map_err(text),
        _ => Peer::memfd(bytes).map_err(text),
    };
    let filled = |peer: &Peer, piece| {
        timed(|| {
            peer.fill(piece);
            Ok(())
        })
    };
    let other = peer()?;
    // What `ours` gives for each piece, and how much more that is than filling the same of `other`.
    let in_turn = |ours: &dyn Fn(Range<usize>) -> Result<f64, String>| {
        let (mut sum, mut differences) = (0.0, Vec::new());
        for (turn, start) in (0..length).step_by(PIECE).enumerate() {
            let piece = start..length.min(start + PIECE);
            let (ours, theirs) = if turn % 2 == 0 {
                let ours = ours(piece.clone())?;
                (ours, filled(&other, piece)?)
            } else {
                let theirs = filled(&other, piece.clone())?;
                (ours(piece)?, theirs)
            };
            sum += ours;
            differences.push(ours - theirs);
        }
        let count = differences.len() as f64;
        Ok::<_, String>((sum, middle(differences) * count))
    };
    let taken = match way {
        Way::Segment | Way::Memfd => {
            let peer = peer()?;
            let (fill, more) = in_turn(&|piece| filled(&peer, piece))?;
            (One::Peer(peer), [0.0, fill, more])
        }
        Way::SetSegment | Way::SetPopulated | Way::SetMemfd | Way::SetAgain => {
            let set = Set::new(Options {
                budget: bytes.0,
                batch: 0,
                ..Options::default()
            })
            .map_err(text)?;
            let mut held = None;
            let mut take = timed(|| {
                let made = match way {
                    Way::SetMemfd => set.take_shareable(length),
                    _ => set.take(length),
                };
                held = Some(made.map_err(text)?);
                Ok(())
            })?;
            let held = held.ok_or("not taken")?;
            if let Some(why) = held.instead() {
                return Err(format!("no segment: {why:?}"));
            }
            let (cost, mut more) = in_turn(&|piece| {
                timed(|| {
                    if way == Way::SetPopulated {
                        populate(&held, piece.clone()).map_err(text)?;
                    }
                    fill(&held, piece);
                    Ok(())
                })
            })?;
            if way == Way::SetAgain {
                held.release().map_err(text)?;
                set.flush().map_err(text)?;
                take = timed(|| held.keep().map(drop).map_err(text))?;
                more = 0.0;
            }
            (One::Held(set, held), [take, cost, more])
        }
        Way::Mlock => {
            let peer = peer()?;
            let fill = filled(&peer, 0..length)?;
            let take = timed(|| peer.mlock(0..length).map_err(text))?;
            (One::Peer(peer), [take, fill, 0.0])
        }
        Way::MlockEmpty => {
            let peer = peer()?;
            let (take, fill) = (Cell::new(0.0), Cell::new(0.0));
            let (_, more) = in_turn(&|piece| {
                let locked = timed(|| peer.mlock(piece.clone()).map_err(text))?;
                let filled = filled(&peer, piece)?;
                take.set(take.get() + locked);
                fill.set(fill.get() + filled);
                Ok(locked + filled)
            })?;
            // `more` holds what locking took: that is `take` already.
            (One::Peer(peer), [take.get(), fill.get(), more - take.get()])
        }
    };
    other.give_back().map_err(text)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_as_they_are_sent() {
        let back = costs("1.5 2 -3.25 NaN 0.5 4 5 6").unwrap();
        assert_eq!(
            (back[Cost::More as usize], back[Cost::GiveBack as usize]),
            (-3.25, 6.0)
        );
        assert!(back[Cost::Passes as usize].is_nan());
        assert!(costs("no segment: EINVAL").is_none() && costs("1 2 3").is_none());
    }

    #[test]
    fn ways_are_found_by_their_place() {
        for (place, (way, _)) in WAYS.into_iter().enumerate() {
            assert_eq!(way as usize, place);
            assert_eq!(way.unlocked().unlocked(), way.unlocked());
        }
    }
}
