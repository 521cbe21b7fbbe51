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

use std::ops::Range;

use serde::{Deserialize, Serialize};
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
use crate::common::{Bounds, in_child, in_scope, middle, rounds, table, text};

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
}

/// CPU time, ns a page.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Costs {
    take: f64,
    fill: f64,
    /// Cost of filling it, less the cost of filling memory that nobody locks.
    more: f64,
    /// Passes of reclaim until it was off the lists; `None`: it never was.
    passes: Option<f64>,
    /// Share of its pages on the unevictable list when it was filled and taken.
    at_once: f64,
    forced: f64,
    unlock: f64,
    give_back: f64,
}

/// Runs each way and prints a line for each.
pub(super) fn measure(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
    bounds: &mut Bounds,
) -> Result<(), Failure> {
    let bytes = flags.bytes.page_aligned(Linux.page_size());
    let name = format!("stopgap-{}-locked", Linux.pid());
    // Each way in a child and a group of its own.
    let all = rounds(flags.runs, &[WAYS.len()], |_, at| {
        in_scope(journal, || {
            let limit = Bytes(bytes.0 * 3) + CHILD;
            let group = MemoryGroup::make(&Linux, journal, site, &name, limit)?;
            let limits = ChildLimits {
                time: Nanos::secs(60),
                cgroup: Some(group.path().to_owned()),
            };
            let (way, words) = WAYS[at];
            in_child(&limits, || {
                costs(&group, way, bytes).map_err(|error| format!("{words}: {error}"))
            })
        })
    })?;
    let figure = |way: Way, figure: fn(&Costs) -> f64| all[0].median(way as usize, figure);
    let take = |way| figure(way, |costs| costs.take);
    let at_once = |way| figure(way, |costs| costs.at_once * 100.0);
    let passes = |costs: &Costs| costs.passes.unwrap_or(f64::NAN);
    let total = |way| take(way) + figure(way, |costs| costs.more) + figure(way, passes);
    let rows = WAYS.iter().map(|&(way, words)| {
        let or = |value: f64, digits: usize, unit: &str| match way == way.unlocked() {
            true => "-".to_owned(),
            false => format!("{value:.digits$}{unit}"),
        };
        vec![
            words.to_owned(),
            or(take(way), 2, ""),
            format!("{:.1}", figure(way, |costs| costs.fill)),
            or(figure(way, |costs| costs.more), 1, ""),
            or(at_once(way), 1, " %"),
            or(figure(way, passes), 1, ""),
            or(total(way), 1, ""),
            or(figure(way, |costs| costs.forced), 1, ""),
            or(figure(way, |costs| costs.unlock), 1, ""),
            format!("{:.1}", figure(way, |costs| costs.give_back)),
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
    let mlock = take(Way::Mlock);
    for (what, way) in [("take", Way::SetSegment), ("take again", Way::SetAgain)] {
        let (take, times) = (take(way), take(way) / mlock);
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
        let (at_once, ours, theirs) = (at_once(ours), total(ours), total(theirs));
        let what = format!(
            "total until off the lists, {what}: a segment of the set {ours:.1} ns a page beside the same that nobody locks, \
             {at_once:.1} % of it off at once; mlock(2) {theirs:.1} (not more)"
        );
        bounds.add(ours <= theirs && at_once >= OFF * 100.0, what);
    }
    Ok(())
}

/// Memory that is filled, and how it is locked, unlocked and given back.
enum One {
    Peer(Peer),
    Held(Set, Held),
}

/// Returns the thread CPU time of a step.
fn timed<E: std::fmt::Display>(step: impl FnOnce() -> Result<(), E>) -> Result<f64, String> {
    let start = Linux.thread_cpu();
    step().map_err(text)?;
    Ok(Linux.thread_cpu().saturating_sub(start).0 as f64)
}

/// Carries out one way.
fn costs(group: &MemoryGroup, way: Way, bytes: Bytes) -> Result<Costs, String> {
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
    let mut passes = Some(0.0);
    if let One::Held(_, held) = &one {
        let (mut sum, mut now) = (0.0, at_once);
        for _ in 0..PASSES {
            if now < OFF {
                sum += timed(|| page_out(held))?;
                now = off()?;
            }
        }
        passes = (now >= OFF).then_some(sum);
    }
    let is_locked = way != way.unlocked();
    let forced = match is_locked {
        true => timed(|| group.reclaim(&Linux, bytes).map(drop))?,
        false => 0.0,
    };
    let give_back = match one {
        One::Peer(peer) => timed(|| peer.give_back())?,
        One::Held(_set, held) => timed(|| {
            drop(held);
            Ok::<(), String>(())
        })?,
    };
    let unlock = match is_locked.then(|| taken(way, bytes)).transpose()? {
        None => 0.0,
        Some((One::Peer(peer), _)) => {
            let cost = timed(|| peer.munlock())?;
            peer.give_back().map_err(text)?;
            cost
        }
        Some((One::Held(set, held), _)) => {
            timed(|| held.release().and_then(|()| set.flush().map(drop)))?
        }
    };
    Ok(Costs {
        take: take / pages,
        fill: fill / pages,
        more: more / pages,
        passes: passes.map(|passes| passes / pages),
        at_once,
        forced: forced / pages,
        unlock: unlock / pages,
        give_back: give_back / pages,
    })
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
            Ok::<(), String>(())
        })
    };
    let other = peer()?;
    // What `ours` takes for each piece, and how much more that is than filling the same of `other`.
    let in_turn = |ours: &mut dyn FnMut(Range<usize>) -> Result<f64, String>| {
        let (mut sum, mut differences) = (0.0, Vec::new());
        for (turn, start) in (0..length).step_by(PIECE).enumerate() {
            let piece = start..length.min(start + PIECE);
            let mut theirs = 0.0;
            if turn % 2 == 1 {
                theirs = filled(&other, piece.clone())?;
            }
            let ours = ours(piece.clone())?;
            if turn % 2 == 0 {
                theirs = filled(&other, piece)?;
            }
            sum += ours;
            differences.push(ours - theirs);
        }
        let count = differences.len() as f64;
        Ok::<_, String>((sum, middle(differences) * count))
    };
    let taken = match way {
        Way::Segment | Way::Memfd => {
            let peer = peer()?;
            let (fill, more) = in_turn(&mut |piece| filled(&peer, piece))?;
            (One::Peer(peer), [0.0, fill, more])
        }
        Way::SetSegment | Way::SetPopulated | Way::SetMemfd | Way::SetAgain => {
            let options = Options {
                budget: bytes.0,
                batch: 0,
                ..Options::default()
            };
            let set = Set::new(options).map_err(text)?;
            let mut held = None;
            let mut take = timed(|| {
                let made = match way {
                    Way::SetMemfd => set.take_shareable(length),
                    _ => set.take(length),
                };
                made.map(|made| held = Some(made))
            })?;
            let held = held.ok_or("not taken")?;
            if let Some(why) = held.instead() {
                return Err(format!("no segment: {why:?}"));
            }
            let (cost, mut more) = in_turn(&mut |piece| {
                timed(|| {
                    if way == Way::SetPopulated {
                        populate(&held, piece.clone()).map_err(text)?;
                    }
                    fill(&held, piece);
                    Ok::<(), String>(())
                })
            })?;
            if way == Way::SetAgain {
                held.release().map_err(text)?;
                set.flush().map_err(text)?;
                take = timed(|| held.keep().map(drop))?;
                more = 0.0;
            }
            (One::Held(set, held), [take, cost, more])
        }
        Way::Mlock => {
            let peer = peer()?;
            let fill = filled(&peer, 0..length)?;
            let take = timed(|| peer.mlock(0..length))?;
            (One::Peer(peer), [take, fill, 0.0])
        }
        Way::MlockEmpty => {
            let peer = peer()?;
            let (mut take, mut fill) = (0.0, 0.0);
            let (_, more) = in_turn(&mut |piece| {
                let locked = timed(|| peer.mlock(piece.clone()))?;
                let filled = filled(&peer, piece)?;
                take += locked;
                fill += filled;
                Ok(locked + filled)
            })?;
            // `more` holds what locking took: that is `take` already.
            (One::Peer(peer), [take, fill, more - take])
        }
    };
    other.give_back().map_err(text)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_found_by_their_place() {
        for (place, (way, _)) in WAYS.into_iter().enumerate() {
            assert_eq!(way as usize, place);
            assert_eq!(way.unlocked().unlocked(), way.unlocked());
        }
    }
}
