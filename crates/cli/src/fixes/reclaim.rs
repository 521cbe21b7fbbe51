//! `reclaim`: memory that must stay, locked instead of pinned, and locked the cheap way.

#![allow(unsafe_code)]

use stopgap_arena::locked::{Options, Set, Way};
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::memory::Memory;
use stopgap_stats::fix::Fix;
use stopgap_stats::record::{Answer, Series};

use super::{Allowed, CHILD, pairs, us_since};

/// Bytes of what is locked: within the usual `RLIMIT_MEMLOCK` of 8 MiB.
const LENGTH: usize = 4 << 20;

/// What everybody else pays, where the probe could make memory short; then what its owner pays.
pub(super) fn fixes(answer: &Answer, allowed: Allowed) -> Vec<Fix> {
    let ratio = |mode: &str| {
        let of_mode = |series: &&Series| {
            series.name == "scanned per reclaimed" && series.word("mode") == Some(mode)
        };
        answer.series.iter().find(of_mode)
    };
    let everybody = match (ratio("vmsplice"), ratio("mlock")) {
        (Some(pinned), Some(locked)) if !pinned.blocks.is_empty() => {
            let what = "pages scanned per page reclaimed beside it, pinned and locked";
            let fix = Fix::tried("locked", what, "", pairs(pinned, locked), allowed.seed);
            fix.command("docs/fixes/locked.md")
        }
        _ => Fix::untried("locked", "no memory pressure was made"),
    };
    vec![everybody, to_take(allowed)]
}

/// Time to lock `LENGTH` bytes by `way`, to touch all of them and to release them, us.
fn cycle(way: Way) -> Result<f64, String> {
    let set = Set::new(Options {
        way,
        ..Options::default()
    });
    let set = set.map_err(|error| error.to_string())?;
    let start = Linux.now();
    let held = set.take(LENGTH).map_err(|error| error.to_string())?;
    if held.way() != way {
        return Err("this system gives no System V segment".to_owned());
    }
    let page = Linux.page_size().0 as usize;
    for offset in (0..held.len()).step_by(page) {
        // SAFETY: within what is held, which nothing else knows.
        unsafe { held.as_ptr().add(offset).write_volatile(1) };
    }
    held.release().map_err(|error| error.to_string())?;
    Ok(us_since(start))
}

/// `SHM_LOCK` of a segment beside mlock of a memfd.
fn to_take(allowed: Allowed) -> Fix {
    if let Some(why) = allowed.refuses(CHILD + Bytes(LENGTH as u64)) {
        return Fix::untried("locked (SHM_LOCK)", &why);
    }
    let measured = super::in_child(|| {
        let turns = 0..allowed.turns();
        turns
            .map(|_| Ok([cycle(Way::Memfd)?, cycle(Way::SysV)?]))
            .collect::<Result<Vec<[f64; 2]>, String>>()
    });
    let what = format!(
        "to lock, fill and release {}, by mlock and by SHM_LOCK",
        Bytes(LENGTH as u64)
    );
    match measured {
        Ok(us) => Fix::tried("locked (SHM_LOCK)", &what, "us", us, allowed.seed)
            .but("reclaim, where it meets a page of it, moves it once")
            .command("docs/fixes/locked.md"),
        Err(why) => Fix::untried("locked (SHM_LOCK)", &why),
    }
}
