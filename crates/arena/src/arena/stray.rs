//! Mappings outside the window: for signal handlers that interrupted a call, and for children of unknown state.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::MapFlags;

use super::Inner;
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Instead, Span};

impl Inner {
    /// A mapping outside the window.
    #[cold]
    pub(super) fn stray(
        &self,
        pages: usize,
        align: usize,
        instead: Option<&Instead<'_>>,
    ) -> Result<NonNull<u8>> {
        if self.window.file.is_some() && instead.is_none() {
            return Err(Error::Unsupported {
                what: "a memfd's buffer for a signal handler that interrupted a call of the arena",
                advice: "take it before, or make the arena anonymous",
            });
        }
        let bytes = pages << self.window.shift;
        let no_room = Error::NoRoom { bytes };
        let spare = align.saturating_sub(1 << self.window.shift);
        let whole = sys::map(
            bytes.checked_add(spare).ok_or(no_room)?,
            instead.is_none(),
            MapFlags::NORESERVE,
        )?;
        // Within what was mapped: `spare` makes room for it.
        let start = whole.start.next_multiple_of(align.max(1));
        let end = start + bytes;
        let parts = [
            (whole.start, start - whole.start),
            (end, whole.start + whole.bytes - end),
        ];
        for (start, bytes) in parts {
            if bytes > 0 {
                // SAFETY: mapped above, and nobody knows of it. Where it fails it stays mapped, and is nobody's.
                let _ = unsafe { sys::unmap(Span { start, bytes }) };
            }
        }
        let span = Span { start, bytes };
        let noted = match instead {
            // SAFETY: mapped above, and nobody knows of it.
            Some(instead) => unsafe { sys::replace(span, instead) },
            None => Ok(()),
        }
        .and_then(|()| {
            let noted = self.window.strays().add(start, bytes);
            noted.then_some(()).ok_or(no_room)
        });
        if let Err(error) = noted {
            // SAFETY: as above.
            let _ = unsafe { sys::unmap(span) };
            return Err(error);
        }
        self.strays.fetch_add(1, Ordering::Relaxed);
        let pointer = std::ptr::with_exposed_provenance_mut(start);
        NonNull::new(pointer).ok_or(no_room)
    }

    #[cold]
    pub(super) unsafe fn free_stray(&self, address: usize, len: usize) -> Result<()> {
        let strays = self.window.strays();
        let Some(bytes) = strays.bytes(address) else {
            return Err(Error::Foreign { address });
        };
        if len.checked_next_multiple_of(1 << self.window.shift) != Some(bytes) || len == 0 {
            return Err(Error::Invalid {
                what: "not the length that was given out",
            });
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
