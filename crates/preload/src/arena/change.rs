//! The calls that change maps and leave them where they are: mprotect, mlock, madvise.

use std::ffi::c_int;

use super::{Arena, NOWHERE, READ_WRITE, concerns, locked, note, refused, reserve_hole};
use crate::kernel::{self, Errno, PAGE, Result};
use crate::notes::Kind;
use crate::window::Span;

/// What mprotect(2) does until the first gap.
pub(crate) fn mprotect(address: usize, length: usize, protection: c_int) -> Result<()> {
    if let Some(span) = concerns(address, length)
        && valid(protection)
    {
        let changed = protection != READ_WRITE;
        let down = protection & libc::PROT_GROWSDOWN != 0;
        return until_gap(span, changed, down, |span| {
            kernel::mprotect(span.start, span.length(), protection)
        });
    }
    kernel::mprotect(address, length, protection)
}

/// Whether the kernel looks at the addresses at all; where not, it has the error.
fn valid(protection: c_int) -> bool {
    const BOTH: c_int = libc::PROT_GROWSDOWN | libc::PROT_GROWSUP;
    protection & !KNOWN == 0 && protection & BOTH != BOTH
}

const KNOWN: c_int = libc::PROT_READ
    | libc::PROT_WRITE
    | libc::PROT_EXEC
    | 8 // PROT_SEM
    | libc::PROT_GROWSDOWN
    | libc::PROT_GROWSUP;

/// `pkey_mprotect(2)`.
pub(crate) fn pkey_mprotect(
    address: usize,
    length: usize,
    protection: c_int,
    key: c_int,
) -> Result<()> {
    if let Some(span) = concerns(address, length)
        && valid(protection)
    {
        let down = protection & libc::PROT_GROWSDOWN != 0;
        return until_gap(span, true, down, |span| {
            kernel::pkey_mprotect(span.start, span.length(), protection, key)
        });
    }
    kernel::pkey_mprotect(address, length, protection, key)
}

/// mlock(2), mlock2(2).
pub(crate) fn mlock(
    address: usize,
    length: usize,
    call: impl Fn(usize, usize) -> Result<()>,
) -> Result<()> {
    // It takes any address, and locks the pages that it lies in.
    let down = address % PAGE;
    if let Some(span) = length
        .checked_add(down)
        .and_then(|length| concerns(address - down, length))
    {
        let done = locked(|arena| arena.lock_pages(span, &call));
        return done.unwrap_or_else(|why| {
            refused(why);
            let result = call(span.start, span.length());
            note(Kind::Changed, span);
            result
        });
    }
    call(address, length)
}

impl Arena {
    /// The kernel flags maps up to the first hole, says ENOMEM there, and only where there is none makes the pages
    /// present. No other call does the first without the second, so it must meet a hole.
    fn lock_pages(&mut self, span: Span, call: &impl Fn(usize, usize) -> Result<()>) -> Result<()> {
        let gaps = self.window.gaps(span);
        let Some(gap) = gaps.first() else {
            self.changed(span);
            return call(span.start, span.length());
        };
        if gap.start == span.start {
            return call(NOWHERE, PAGE);
        }
        let hole = Span::new(gap.start, gap.start + PAGE);
        self.changed(Span::new(span.start, gap.start));
        self.evict(hole);
        kernel::munmap(hole.start, PAGE)?;
        let done = call(span.start, span.length());
        if !reserve_hole(hole) {
            // Somebody was quicker: all of it may have been locked, what is ours, too.
            self.claim(hole);
            for gap in self.window.gaps(span) {
                let _ = kernel::munlock(gap.start, gap.length());
            }
        }
        done
    }
}

/// A call that works its way up to the first hole, and says ENOMEM there. `down`: it begins with the first map,
/// wherever that is (`PROT_GROWSDOWN`).
fn until_gap(
    mut span: Span,
    changed: bool,
    down: bool,
    call: impl Fn(Span) -> Result<()>,
) -> Result<()> {
    let done = locked(|arena| {
        if down
            && let Some(first) = arena.window.live(span).first()
            && arena.window.span().start <= span.start
        {
            span.start = first.start;
        }
        let gap = arena.window.gaps(span).first().copied();
        let until = gap.map_or(span.end, |gap| gap.start);
        let part = Span::new(span.start, until);
        if part.length() == 0 {
            // Other errors come first.
            call(Span::new(NOWHERE, NOWHERE + PAGE))?;
        } else {
            if changed {
                arena.changed(part);
            }
            call(part)?;
        }
        match gap {
            Some(_) => Err(Errno(libc::ENOMEM)),
            None => Ok(()),
        }
    });
    done.unwrap_or_else(|why| {
        refused(why);
        let result = call(span);
        note(Kind::Changed, span);
        result
    })
}

/// Advice that is not heeded beyond the first hole.
fn stops_at_gap(advice: c_int) -> bool {
    matches!(advice, libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE)
}

/// Advice that changes no property of a map, only its pages.
fn of_pages(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_DONTNEED
            | libc::MADV_FREE
            | libc::MADV_WILLNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
            | libc::MADV_POPULATE_WRITE
    )
}

/// madvise(2): goes over holes, and says ENOMEM in the end.
pub(crate) fn madvise(address: usize, length: usize, advice: c_int) -> Result<()> {
    let Some(span) = concerns(address, length) else {
        return kernel::madvise(address, length, advice);
    };
    let done = locked(|arena| {
        // Whether it is any advice at all; nothing is done to nothing.
        kernel::madvise(span.start, 0, advice)?;
        if !of_pages(advice) {
            arena.changed(span);
        }
        let gaps = arena.window.gaps(span);
        let mut from = span.start;
        let mut missed = Ok(());
        for gap in gaps.iter().copied().chain([Span::new(span.end, span.end)]) {
            if from < gap.start {
                match kernel::madvise(from, gap.start - from, advice) {
                    Err(Errno(libc::ENOMEM)) => missed = Err(Errno(libc::ENOMEM)),
                    other => other?,
                }
            }
            if gap.length() > 0 {
                missed = Err(Errno(libc::ENOMEM));
                if stops_at_gap(advice) {
                    return missed;
                }
            }
            from = gap.end;
        }
        missed
    });
    done.unwrap_or_else(|why| {
        refused(why);
        let result = kernel::madvise(span.start, span.length(), advice);
        note(Kind::Changed, span);
        result
    })
}
