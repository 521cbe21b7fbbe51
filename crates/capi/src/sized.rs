//! Structs that begin with their size, as in `openat2(2)` and `clone3(2)`: a program that was built against another
//! version of the header hands over a shorter or a longer one, and both are understood.
//!
//! A shorter one means 0 for all it lacks, and 0 is always the default. A longer one is taken if all that this
//! version does not know is 0; else the program asks for something that would silently not happen, and that is an
//! error.

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use crate::{Failure, Result};

/// More than any version will have: what claims to be longer was never filled in.
const LONGEST: usize = 4096;

/// A struct of the header.
///
/// # Safety
/// `repr(C)`, begins with the size (a `size_t`), any bytes are a value of it, and it has no padding.
pub(crate) unsafe trait Struct: Copy {
    /// Its size in the version that first had it; a shorter one is none.
    const FIRST: usize;
}

/// The struct at `at`, with zeros for what it is too short for. `None` for NULL: all defaults.
///
/// # Safety
/// `at` is NULL, or a `size_t` can be read there and as many bytes as it says.
pub(crate) unsafe fn read<T: Struct>(at: *const T) -> Result<Option<T>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the struct begins with its size, which the caller filled in. It may lie anywhere.
    let bytes = unsafe { at.cast::<usize>().read_unaligned() };
    check::<T>(bytes)?;
    let known = size_of::<T>();
    for i in known..bytes {
        // SAFETY: within the size that the caller stated.
        if unsafe { at.cast::<u8>().add(i).read() } != 0 {
            return Err(Failure::Newer { bytes, known });
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the source has `bytes`, the target `known`; every byte pattern is a value (`Struct`).
    unsafe {
        ptr::copy_nonoverlapping(at.cast::<u8>(), value.as_mut_ptr().cast(), bytes.min(known));
        Ok(Some(value.assume_init()))
    }
}

/// Fills in the struct at `at`, which says itself how long it is: as much as it has room for, zeros where it is
/// longer. Its size stays as it is.
///
/// # Safety
/// `at` is NULL, or a `size_t` can be read there and as many bytes as it says can be written.
pub(crate) unsafe fn write<T: Struct>(at: *mut T, value: &T, what: &'static str) -> Result<()> {
    if at.is_null() {
        return Err(Failure::Null { what });
    }
    // SAFETY: as in `read`.
    let bytes = unsafe { at.cast::<usize>().read_unaligned() };
    check::<T>(bytes)?;
    let (known, head) = (size_of::<T>(), size_of::<usize>());
    // SAFETY: the target has `bytes` and the source `known`; the size at the head of both is skipped.
    unsafe {
        let (to, from) = (at.cast::<u8>(), ptr::from_ref(value).cast::<u8>());
        ptr::copy_nonoverlapping(from.add(head), to.add(head), bytes.min(known) - head);
        if bytes > known {
            ptr::write_bytes(to.add(known), 0, bytes - known);
        }
    }
    Ok(())
}

fn check<T: Struct>(bytes: usize) -> Result<()> {
    if bytes < T::FIRST || bytes > LONGEST {
        return Err(Failure::Argument {
            what: "the size at the head of the struct is not that of any version: set it with sizeof",
        });
    }
    Ok(())
}
