//! Direct I/O in flight: the device reads from the pages, or writes to them.

use crate::aio::{Context, READ, WRITE, direct_file};
use crate::raw::{Count, Map, PAGE, call, number};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("aio-read", || read_in_flight(60)),
    ("aio-write", || write_in_flight(20)),
];

/// The longest map that the library places: its I/O takes milliseconds.
pub(crate) const PAGES: usize = 2048;
const LENGTH: usize = PAGES * PAGE;

fn read_in_flight(rounds: usize) -> Seen {
    let file = direct_file(0xee, PAGES)?;
    let context = Context::new()?;
    let mut dirty = Count::default();
    for _ in 0..rounds {
        let map = Map::filled(PAGES, 0x11);
        context.submit(READ, &file, map)?;
        let map = map.again();
        assert_eq!(context.wait(), LENGTH as i64);
        dirty.add(!map.all(0));
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

fn write_in_flight(rounds: usize) -> Seen {
    let file = direct_file(0xee, PAGES)?;
    let context = Context::new()?;
    let mut changed = Count::default();
    let look = Map::bare(PAGES);
    for round in 0..rounds {
        let byte = 1 + round as u8;
        let map = Map::filled(PAGES, byte);
        context.submit(WRITE, &file, map)?;
        let map = map.again();
        map.fill(0xbb);
        assert_eq!(context.wait(), LENGTH as i64);
        map.unmap();
        let arguments = [number(&file), look.at, LENGTH, 0];
        assert_eq!(call(libc::SYS_pread64, &arguments), Ok(LENGTH));
        changed.add(!look.all(byte));
    }
    Ok(format!("{changed} files changed"))
}
