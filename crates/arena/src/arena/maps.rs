//! Files' mappings in the window; and mappings outside it, for signal handlers that interrupted a call and for children
//! of unknown state.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::MapFlags;

use super::Inner;
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::threads::{self, Inside};
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Instead, Span};

impl Inner {
    pub(super) fn map(&self, len: usize, instead: &Instead<'_>) -> Result<NonNull<u8>> {
        let pages = self.window.pages_for(len)?;
        threads::inside(
            |inside| {
                if self.state.load(Ordering::Relaxed) != SERVING {
                    return self.stray(pages, 1, Some(instead));
                }
                self.tick(inside);
                self.map_in_window(inside, pages, instead)
            },
            || self.stray(pages, 1, Some(instead)),
        )
    }

    fn map_in_window(
        &self,
        inside: &Inside<'_>,
        pages: usize,
        instead: &Instead<'_>,
    ) -> Result<NonNull<u8>> {
        let page = self.in_some_shard(inside, pages, |ranges| {
            ranges.place_map(&self.window, pages)
        })?;
        let marks = self.window.marks();
        let held = Mark::new(Kind::HeldMap, pages);
        marks.set(page, held);
        let span = self.window.span_of(page, pages);
        // SAFETY: reserved, of no access, and ours.
        if let Err(error) = unsafe { sys::replace(span, instead) } {
            // Before 6.12 a mapping that a driver refuses leaves a hole, which must be nobody else's. Where the
            // reservation is still there, this changes nothing.
            let _ = sys::fill(span, &self.window.reserved(page));
            self.put(page, held, false);
            return Err(error);
        }
        self.maps.fetch_add(1, Ordering::Relaxed);
        marks.set(page, Mark::new(Kind::Mapped, pages));
        self.window.pointer(page)
    }

    /// Takes a file's mapping back, whose mark is held.
    pub(super) fn free_map(&self, page: usize, mark: Mark) -> Result<()> {
        let marks = self.window.marks();
        let span = self.window.span_of(page, mark.pages());
        // SAFETY: the caller of `free` says that nothing uses it.
        if let Err(error) = unsafe { sys::replace(span, &self.window.reserved(page)) } {
            marks.set(page, Mark::new(Kind::Mapped, mark.pages()));
            return Err(error);
        }
        self.maps.fetch_sub(1, Ordering::Relaxed);
        let held = Mark::new(Kind::HeldMap, mark.pages());
        threads::inside(
            |_| {
                if self.state.load(Ordering::Relaxed) == SERVING {
                    self.put(page, held, false);
                } else {
                    marks.set(page, Mark::new(Kind::Free, mark.pages()));
                }
            },
            || self.deferred.push(&marks, page),
        );
        Ok(())
    }

    /// A mapping outside the window.
    #[cold]
    pub(super) fn stray(
        &self,
        pages: usize,
        align: usize,
        instead: Option<&Instead<'_>>,
    ) -> Result<NonNull<u8>> {
        if self.window.file.is_some() && instead.is_none() {
            return Err(Error::unsupported(
                "a memfd's buffer for a signal handler that interrupted a call of the arena",
                "take it before, or make the arena anonymous",
            ));
        }
        let bytes = pages << self.window.shift;
        let no_room = Error::NoRoom { bytes };
        let span = sys::map_aligned(bytes, align, instead.is_none(), MapFlags::NORESERVE)?;
        let noted = match instead {
            // SAFETY: mapped above, and nobody knows of it.
            Some(instead) => unsafe { sys::replace(span, instead) },
            None => Ok(()),
        }
        .and_then(|()| {
            let noted = self.window.strays().add(span.start, bytes);
            noted.then_some(()).ok_or(no_room)
        });
        if let Err(error) = noted {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(span) };
            return Err(error);
        }
        self.strays.fetch_add(1, Ordering::Relaxed);
        let pointer = std::ptr::with_exposed_provenance_mut(span.start);
        NonNull::new(pointer).ok_or(no_room)
    }

    #[cold]
    pub(super) unsafe fn free_stray(&self, address: usize, len: usize) -> Result<()> {
        let strays = self.window.strays();
        let Some(bytes) = strays.bytes(address) else {
            return Err(Error::Foreign { address });
        };
        if len.checked_next_multiple_of(1 << self.window.shift) != Some(bytes) || len == 0 {
            return Err(Error::invalid("not the length that was given out"));
        }
        if !strays.remove(address, bytes) {
            return Err(Error::Freed { address });
        }
        let start = address;
        // SAFETY: it was a stray, of which one call alone takes the note away; and as the caller says.
        unsafe { sys::unmap(Span { start, bytes }) }.inspect_err(|_| {
            // There is a place: one was just given up; and if others took it the mapping stays, and is nobody's.
            let _ = strays.add(address, bytes);
        })
    }
}
