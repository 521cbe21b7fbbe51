//! Files' mappings in the window.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::Inner;
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::threads::{self, Inside};
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Instead};

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
        let own = inside.number().unwrap_or(0) % self.shards.len();
        let mut answer = Err(Error::NoRoom {
            bytes: pages << self.window.shift,
        });
        for at in 0..self.shards.len() {
            let shard = &self.shards[(own + at) % self.shards.len()];
            answer = shard.place_map(&self.window, pages, || self.is_given_up());
            if !matches!(answer, Err(Error::NoRoom { .. })) {
                break;
            }
        }
        let page = answer?;
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
}
