//! mremap: out of the window, into it and within it.

use std::ffi::c_int;

use super::{Arena, concerns, files, locked, note, refused, reserve_hole};
use crate::kernel::{self, PAGE, Result};
use crate::notes::Kind;
use crate::report::{Count, count};
use crate::window::Span;

/// mremap(2).
pub(crate) fn mremap(
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: usize,
) -> Result<usize> {
    let at = remap(old, old_length, new_length, flags, new)?;
    files::remapped(old, old_length, new_length, flags, at);
    Ok(at)
}

fn remap(
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: usize,
) -> Result<usize> {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let source = concerns(old, old_length.max(1));
    let target = if fixed {
        concerns(new, new_length)
    } else {
        None
    };
    let call = |old| kernel::mremap(old, old_length, new_length, flags, new);
    if source.is_none() && target.is_none() {
        return call(old);
    }
    let done =
        locked(|arena| arena.remap(source, target, [old, old_length, new_length], flags, call));
    done.unwrap_or_else(|why| {
        refused(why);
        let result = call(old);
        if result.is_ok() {
            // Where it was may be a hole now that the kernel fills: it stays live, and so does where it is.
            for span in [source, target].into_iter().flatten() {
                note(Kind::Changed, span);
            }
            if let Some(target) = target {
                note(Kind::Claimed, target);
            }
        }
        result
    })
}

impl Arena {
    fn remap(
        &mut self,
        source: Option<Span>,
        target: Option<Span>,
        [old, old_length, new_length]: [usize; 3],
        flags: c_int,
        call: impl Fn(usize) -> Result<usize>,
    ) -> Result<usize> {
        let Some(from) = source else {
            // From outside into the window.
            target.into_iter().for_each(|target| self.evict(target));
            let done = call(old);
            self.arrived(done, target);
            return done;
        };
        let window = self.window.span();
        let starts_in = from.start >= window.start;
        let first = Span::new(from.start, from.start + PAGE);
        if starts_in && self.window.live(first).is_empty() {
            // To the program nothing is there; nor is it at address 0.
            target.into_iter().for_each(|target| self.evict(target));
            let done = call(0);
            self.arrived(done, target);
            return done;
        }
        let wanted = new_length.checked_next_multiple_of(PAGE);
        let gaps = self.window.gaps(from);
        if flags & !libc::MREMAP_MAYMOVE == 0
            && old_length > 0
            && new_length > 0
            && let Some(wanted) = wanted
        {
            if wanted < from.length() {
                // Shrinking unmaps the end.
                self.unmap(Span::new(from.start + wanted, from.end))?;
                return Ok(old);
            }
            if wanted > from.length()
                && flags == 0
                && gaps.is_empty()
                && let Some(end) = from.start.checked_add(wanted)
                && let Some(done) = self.grow(Span::new(from.end, end), || call(old))
            {
                return done;
            }
        }
        let whole = wanted == Some(from.length());
        target.into_iter().for_each(|target| self.evict(target));
        // Only what keeps its size may have holes (since 6.17; before, the kernel refuses it). To the kernel a hole may
        // look like one map with what lies beside it.
        let done = call(if gaps.is_empty() || whole { old } else { 0 });
        self.arrived(done, target);
        let Ok(at) = done else {
            self.look_again(from);
            return done;
        };
        self.changed(from);
        if at == old {
            return done;
        }
        if flags & libc::MREMAP_DONTUNMAP == 0 && old_length > 0 {
            self.look_again(from);
        }
        if target.is_none()
            && let Some(span) = concerns(at, new_length)
        {
            // The kernel chose a place in the window: there was a hole.
            self.claim(span);
        }
        // Holes that went along as reservations of ours are holes there, too.
        for gap in gaps.iter().filter(|gap| gap.end <= from.end) {
            let there = at + (gap.start - from.start);
            self.unmap(Span::new(there, there + gap.length()))?;
        }
        done
    }

    /// After a call that puts something at `target`, or unmaps what is there and fails.
    fn arrived(&mut self, done: Result<usize>, target: Option<Span>) {
        let Some(target) = target else { return };
        count(Count::into_window, 1);
        match done {
            Ok(_) => self.claim(target),
            Err(_) => self.look_again(target),
        }
    }

    /// Grows a map in its place into `room`, if nothing is there; `None`: something is, let the kernel say so.
    fn grow(&mut self, room: Span, call: impl Fn() -> Result<usize>) -> Option<Result<usize>> {
        if !self.window.span().contains(room) || !self.window.live(room).is_empty() {
            return None;
        }
        self.evict(room);
        // For a moment it is a hole; whoever maps something there meanwhile has it.
        if kernel::munmap(room.start, room.length()).is_err() {
            return None;
        }
        let done = call();
        if done.is_ok() || !reserve_hole(room) {
            self.claim(room);
        }
        Some(done)
    }
}
