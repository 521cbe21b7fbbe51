//! A mapped object that is used again: mapped and unmapped each time, or kept mapped by a cache. The first use of each is not
//! counted: it makes the object's pages.

#![allow(unsafe_code)] // maps objects, and writes to them

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use stopgap_arena::descriptors::{Cache, DmaHeap, DumbBuffers, Maker, Object, Udmabuf};
use stopgap_arena::{Error, Result};
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;

use crate::counter::Counter;
use crate::mark::{self, Operation};
use crate::protocol::{Device, Line};
use crate::samples::{Samples, words};

use super::length;

/// Counts `operations` uses of an object of `bytes`, mapped each time, and as many of one that stays mapped.
///
/// # Errors
/// A missing device, or its refusal.
pub(super) fn run(
    name: &str,
    device: Device,
    bytes: Bytes,
    operations: u64,
    counter: &Counter,
) -> std::result::Result<Vec<Line>, String> {
    let bytes = length(bytes.0)?;
    let each = length(operations)?;
    let said = |error: Error| error.to_string();
    match device {
        Device::DmaHeap => {
            let heap = DmaHeap::open("/dev/dma_heap/system").map_err(said)?;
            uses(name, heap, bytes, each, counter).map_err(said)
        }
        Device::Udmabuf => {
            let device = Udmabuf::open().map_err(said)?;
            uses(name, device, bytes, each, counter).map_err(said)
        }
        Device::Vgem => {
            let card = Linux.vgem_card().map_err(|error| error.to_string())?;
            uses(name, DumbBuffers::of(card), bytes, each, counter).map_err(said)
        }
    }
}

fn uses<M: Maker>(
    name: &str,
    maker: M,
    bytes: usize,
    each: usize,
    counter: &Counter,
) -> Result<Vec<Line>> {
    use Operation::{Give, Map, Take, Touch, TouchAgain, Unmap};
    let operations = words([Map, Touch, Unmap, Take, TouchAgain, Give]);
    let mut samples = Samples::of(&operations, each);
    let mut push = |number: usize, place: usize, counts: [u64; 3]| {
        if number > 0 {
            let places = (place..).zip(counts);
            places.for_each(|(place, count)| samples.push(place, count));
        }
    };

    let object = maker.make(bytes)?;
    for number in 0..=each {
        mark::counted(number > 0);
        let (map, mapped) = counter.count::<{ Map as u8 }, _>(|| {
            let both = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel chooses an address that nothing else uses.
            unsafe {
                let (file, at) = (object.file(), object.offset());
                mmap(ptr::null_mut(), bytes, both, MapFlags::SHARED, file, at)
            }
        });
        let address = mapped.map_err(|errno| Error::Call {
            call: "mmap",
            errno,
        })?;
        let (touch, ()) = counter.count::<{ Touch as u8 }, _>(|| {
            // SAFETY: `bytes` were mapped there, and nobody else has the address.
            unsafe { write(address.cast(), bytes) }
        });
        // SAFETY: mapped above; nothing refers to it any more.
        let (unmap, unmapped) =
            counter.count::<{ Unmap as u8 }, _>(|| unsafe { munmap(address, bytes) });
        unmapped.map_err(|errno| Error::Call {
            call: "munmap",
            errno,
        })?;
        push(number, 0, [map, touch, unmap]);
    }
    drop(object);

    let cache = Cache::new(maker)?;
    for number in 0..=each {
        mark::counted(number > 0);
        let (take, taken) = counter.count::<{ Take as u8 }, _>(|| cache.take(bytes));
        let buffer = taken?;
        let address: NonNull<u8> = buffer.address();
        let (touch, ()) = counter.count::<{ TouchAgain as u8 }, _>(|| {
            // SAFETY: the buffer has `bytes` there, and nobody else has it.
            unsafe { write(address.as_ptr(), bytes) }
        });
        let (give, ()) = counter.count::<{ Give as u8 }, _>(|| {
            // SAFETY: no device, no other process was given it.
            unsafe { cache.give(buffer) }
        });
        push(number, 3, [take, touch, give]);
    }
    Ok(samples.lines(name))
}

/// Writes a byte of each page.
///
/// # Safety
/// `bytes` are mapped there, to be written, and no reference to them is used.
unsafe fn write(address: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(rustix::param::page_size()) {
        // SAFETY: the caller's promise.
        unsafe { address.add(at).write_volatile(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Unit;
    use stopgap_arena::descriptors::Memfd;

    /// An object that every machine has: each of the six is counted as often as was asked, and the cache made one object.
    #[test]
    fn each_use_is_counted_but_the_first() {
        let counter = Counter {
            overhead: 0,
            unit: Unit::Ticks,
        };
        let lines = uses("a", Memfd, 1 << 16, 5, &counter).unwrap();
        let names: Vec<(String, u64)> = lines
            .into_iter()
            .map(|line| match line {
                Line::Counts(counted) => (counted.operation, counted.counts.operations()),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = ["map", "first touch", "unmap", "take", "touch", "give"];
        assert_eq!(names, expected.map(|name| (name.to_owned(), 5)));
    }

    #[test]
    fn a_maker_that_refuses_is_an_error() {
        let none = |_: usize| -> Result<std::os::fd::OwnedFd> {
            Err(Error::Call {
                call: "ioctl",
                errno: rustix::io::Errno::NODEV,
            })
        };
        let counter = Counter {
            overhead: 0,
            unit: Unit::Ticks,
        };
        assert!(uses("a", none, 4_096, 1, &counter).is_err());
    }
}
