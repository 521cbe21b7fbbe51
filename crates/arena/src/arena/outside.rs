//! Mappings outside the window, for signal handlers that interrupted a call and for children of unknown state.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::MapFlags;

use super::Inner;
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Span};

impl Inner {
    /// A mapping outside the window.
    #[cold]
    pub(super) fn stray(&self, pages: usize, align: usize) -> Result<NonNull<u8>> {
        if self.window.file.is_some() {
            return Err(Error::unsupported(
                "a memfd's buffer for a signal handler that interrupted a call of the arena",
                "take it before, or make the arena anonymous",
            ));
        }
        let bytes = pages << self.window.shift;
        let no_room = Error::NoRoom {
            bytes,
            largest: None,
        };
        let span = sys::map_aligned(bytes, align, true, MapFlags::NORESERVE)?;
        if !self.window.strays().add(span.start, bytes) {
            // SAFETY: mapped above, and nobody knows of it.
            let _ = unsafe { sys::unmap(span) };
            return Err(no_room);
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
