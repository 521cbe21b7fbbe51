//! `placement`: pbobench's buffers from the arena instead of mmap.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use stopgap_arena::{Arena, Config};
use stopgap_events::memory::{MapId, Merge, Protection};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Pbobench;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::{Error, Linux, Result};
use stopgap_probes::placement::{Backend, Buffers, Mapped, Named, beside};
use stopgap_stats::fix::Fix;

use super::{Allowed, CHILD};

/// Buffers that stay.
const N: u32 = 1_000;

/// Buffers that the arena gives out.
struct FromArena {
    arena: Arena,
    live: Named<(NonNull<u8>, usize)>,
    page: usize,
}

fn refused(error: stopgap_arena::Error) -> Error {
    Error::call(
        "the arena",
        "a buffer",
        std::io::Error::from_raw_os_error(error.errno()),
    )
}

impl FromArena {
    fn free(&self, (start, length): (NonNull<u8>, usize)) -> Result<()> {
        // SAFETY: it was given out so long, is taken out of `live`, and nothing else knows it.
        unsafe { self.arena.free(start, length) }.map_err(refused)
    }
}

impl Buffers for FromArena {
    fn map(&mut self, id: MapId, length: Bytes, _: Protection, _: Merge) -> Result<()> {
        let length = length.0 as usize;
        let start = self.arena.alloc(length, self.page).map_err(refused)?;
        self.live.keep(id, (start, length));
        Ok(())
    }

    fn touch(&mut self, id: MapId) -> Result<()> {
        let &mut (start, length) = self.live.get(id)?;
        for offset in (0..length).step_by(self.page) {
            // SAFETY: within the buffer, which is ours and writable.
            unsafe { start.add(offset).write_volatile(1) };
        }
        Ok(())
    }

    fn protect(&mut self, _: MapId, _: Bytes, _: Protection) -> Result<()> {
        Err(Error::unsupported("protection", "pbobench changes none"))
    }

    fn unmap(&mut self, id: MapId) -> Result<()> {
        let buffer = self.live.take(id)?;
        self.free(buffer)
    }

    fn clear(&mut self) -> Result<()> {
        let left: Vec<_> = self.live.drain().collect();
        left.into_iter().try_for_each(|buffer| self.free(buffer))
    }
}

/// The arena keeps at most so much freed memory where less is in use.
const KEPT: Bytes = Bytes::mib(64);

/// The arena beside mmap of a memfd.
pub(super) fn arena(allowed: Allowed) -> Fix {
    let config = Config {
        window: 1 << 30,
        ..Config::default()
    };
    // Bytes that stay on either side, the largest buffer that comes and goes, and the bytes that the arena keeps.
    let buffers = Linux.page_size().0 * u64::from(N) + Pbobench::LARGEST;
    let need = CHILD + KEPT + Bytes(2 * buffers);
    if let Some(why) = allowed.refuses(need) {
        return Fix::untried("arena", &why);
    }
    let measured = super::in_child(|| {
        let arena = Arena::new(&config).map_err(|error| error.to_string())?;
        let page = Linux.page_size().0 as usize;
        let ours = FromArena {
            arena,
            live: Named::default(),
            page,
        };
        let mapped = Mapped::new(&Linux, Backend::Memfd, Pbobench::peak(N));
        let sides = (mapped.map_err(|error| error.to_string())?, ours);
        let turns = allowed.turns();
        beside(
            &Linux,
            sides,
            N,
            turns,
            allowed.seed,
            &stopgap_kernel::signals::interrupted,
        )
        .map_err(|error| error.to_string())
    });
    match measured {
        Ok(ns) => {
            let us = ns.into_iter().map(|pair| pair.map(|ns| ns / 1e3)).collect();
            let what = format!("a map, touch and unmap beside {N} buffers");
            Fix::tried("arena", &what, "us", us, allowed.seed)
                .but(format!("keeps up to {KEPT} of freed memory for a second"))
                .command(
                    "docs/fixes/arena.md; without rebuilding, for programs that map and unmap the same sizes many \
                     thousand times a second, as CPython does: stopgap run --fix arena-keep -- CMD",
                )
        }
        Err(why) => Fix::untried("arena", &why),
    }
}
