//! What C hands over: structs that begin with their size, bytes, places for answers, and file descriptors.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt::{self, Arguments, Write};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use std::{ptr, slice};

use crate::failure::{Failure, Result};

/// A longer struct than any version will have: one that claims to be longer was never filled in.
const LONGEST: usize = 4096;

/// A struct of the header, which begins with its size, as in `openat2(2)` and `clone3(2)`.
///
/// A program that was built with another version of the header hands over a shorter or a longer one. A shorter one
/// means 0 for all it lacks, and 0 is always the default. A longer one is taken if all that this version does not know
/// is 0; else the program asks for something that would silently not happen, and that is an error.
///
/// # Safety
/// `repr(C)`, begins with the size (a `size_t`), any bytes are a value of it, and it has no padding.
pub(crate) unsafe trait Struct: Copy {
    /// Its size in the version that first had it; a shorter one is none.
    const FIRST: usize;
}

/// Defines structs of the header: the bytes of the first version, then the fields of 8 bytes after `size`. `from`: all
/// fields are counters, copied from those of the same names.
macro_rules! structs {
    ($($name:ident, $first:literal $(from $source:ty)?: $($field:ident: $type:ty,)*;)*) => {
        $(
            #[derive(Debug, Clone, Copy)]
            #[repr(C)]
            #[allow(non_camel_case_types)]
            pub(crate) struct $name {
                pub(crate) size: usize,
                $(pub(crate) $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == 8 $(+ { let _: [u8; 8] = [0; size_of::<$type>()]; 8 })*);

            // SAFETY: integers or pointers of 8 bytes each, the size first.
            unsafe impl $crate::given::Struct for $name {
                const FIRST: usize = $first;
            }

            #[cfg(test)]
            impl $name {
                /// Its size and the offsets of its fields, as C writes them.
                pub(crate) fn layout() -> Vec<(String, usize)> {
                    let name = stringify!($name);
                    let mut all = vec![
                        (format!("sizeof(struct {name})"), size_of::<$name>()),
                        (format!("offsetof(struct {name}, size)"), 0),
                    ];
                    $(all.push((
                        format!("offsetof(struct {name}, {})", stringify!($field)),
                        std::mem::offset_of!($name, $field),
                    ));)*
                    // Every version after the first adds fields; the first is this one.
                    assert_eq!(<$name as $crate::given::Struct>::FIRST, size_of::<$name>());
                    all
                }
            }

            $crate::given::structs!(@from $name, $($source)?, $($field)*);
        )*
    };
    (@from $name:ident, , $($field:ident)*) => {};
    (@from $name:ident, $source:ty, $($field:ident)*) => {
        impl From<$source> for $name {
            fn from(counters: $source) -> $name {
                $name { size: 0, $($field: counters.$field,)* }
            }
        }
    };
}
pub(crate) use structs;

/// Reads the struct at `at`, with zeros for what it is too short for; all zeros, which are the defaults, for NULL.
///
/// # Safety
/// `at` is NULL, or a `size_t` can be read there and as many bytes as it says.
pub(crate) unsafe fn read<T: Struct>(at: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !at.is_null() {
        // SAFETY: the caller's promise.
        let (bytes, known) = (unsafe { size_at(at) }?, size_of::<T>());
        for i in known..bytes {
            // SAFETY: within the size that the caller stated.
            if unsafe { at.cast::<u8>().add(i).read() } != 0 {
                return Err(Failure::Newer { bytes, known });
            }
        }
        // SAFETY: the source has `bytes`, the target `known`.
        unsafe {
            ptr::copy_nonoverlapping(at.cast::<u8>(), value.as_mut_ptr().cast(), bytes.min(known));
        }
    }
    // SAFETY: every byte pattern is a value (`Struct`).
    Ok(unsafe { value.assume_init() })
}

/// Fills in the struct at `at`, which states how long it is: as much as it has room for, zeros where it is longer. Its
/// size stays as it is.
///
/// # Safety
/// `at` is NULL, or a `size_t` can be read there and as many bytes as it says can be written.
pub(crate) unsafe fn write<T: Struct>(at: *mut T, value: &T, what: &'static str) -> Result<()> {
    if at.is_null() {
        return Err(Failure::Null(what));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { size_at(at) }?;
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

/// # Safety
/// A `size_t` can be read at `at`, which may lie anywhere.
unsafe fn size_at<T: Struct>(at: *const T) -> Result<usize> {
    // SAFETY: the struct begins with its size, which the caller filled in.
    let bytes = unsafe { at.cast::<usize>().read_unaligned() };
    if bytes < T::FIRST || bytes > LONGEST {
        return Err(Failure::argument(
            "the size at the head of the struct is not that of any version: set it with sizeof",
        ));
    }
    Ok(bytes)
}

/// Sets an option, unless the caller left it 0.
pub(crate) fn set<T: PartialEq + Default>(ours: &mut T, theirs: T) {
    if theirs != T::default() {
        *ours = theirs;
    }
}

/// The same for a time in nanoseconds.
pub(crate) fn set_time(ours: &mut Duration, theirs: u64) {
    set(ours, Duration::from_nanos(theirs));
}

/// Writes an answer to `at`, unless the caller wants none.
///
/// # Safety
/// `at` is NULL or can be written to.
pub(crate) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller's promise.
        unsafe { at.write(value) };
    }
}

/// Returns `length` bytes at `at`. No bytes may lie anywhere, at NULL too.
///
/// # Safety
/// They can be read as long as the slice is used, and nobody writes there meanwhile.
pub(crate) unsafe fn bytes<'a>(
    at: *const c_void,
    length: usize,
    what: &'static str,
) -> Result<&'a [u8]> {
    if !check_bytes(at.is_null(), length, what)? {
        return Ok(&[]);
    }
    // SAFETY: not NULL, no longer than a slice may be; else the caller's promise.
    Ok(unsafe { slice::from_raw_parts(at.cast(), length) })
}

/// Returns `length` bytes at `at`, to be written.
///
/// # Safety
/// They can be written as long as the slice is used, and nobody else uses them meanwhile. They may be uninitialised:
/// they are only handed to the kernel, or copied to.
pub(crate) unsafe fn room<'a>(
    at: *mut c_void,
    length: usize,
    what: &'static str,
) -> Result<&'a mut [u8]> {
    if !check_bytes(at.is_null(), length, what)? {
        return Ok(&mut []);
    }
    // SAFETY: as in `bytes`.
    Ok(unsafe { slice::from_raw_parts_mut(at.cast(), length) })
}

/// Returns whether there are any bytes, or why there cannot be.
pub(crate) fn check_bytes(null: bool, length: usize, what: &'static str) -> Result<bool> {
    if null && length > 0 {
        return Err(Failure::Null(what));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::argument("more bytes than there can be addresses"));
    }
    Ok(length > 0)
}

/// Returns a path.
///
/// # Safety
/// `path` is NULL or a string that ends with a NUL.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Failure::Null("the path"));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Duplicates a descriptor. Once the caller has closed its own, the number may be another file's; the duplicate is not.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let call = "fcntl";
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
        .map_err(|errno| Failure::from(stopgap_arena::Error::Call { call, errno }))
}

/// Returns the descriptor for the time of a call. One that is not open makes that call fail.
pub(crate) fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Failure::Call(libc::EBADF, "not a file descriptor"));
    }
    // SAFETY: not negative. Whoever calls from C says that it is open, and stays so during the call; where it is not,
    // the kernel says EBADF, and nothing here owns it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Closes a descriptor that the caller gave away.
///
/// # Safety
/// Nobody else uses it.
pub(crate) unsafe fn close(fd: c_int) {
    // SAFETY: the caller's promise. close(2) frees the number even where it fails.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Writes `what` into a buffer of C's as `snprintf` would: cut where there is no more room, and a NUL. Returns the
/// length of all of it without the NUL.
///
/// # Safety
/// `buffer` is NULL, or `size` bytes can be written there.
pub(crate) unsafe fn write_text(
    buffer: *mut c_char,
    size: usize,
    what: Arguments<'_>,
) -> Result<c_int> {
    if buffer.is_null() && size > 0 {
        return Err(Failure::Null("the text"));
    }
    let mut text = Text {
        buffer: buffer.cast(),
        size,
        length: 0,
    };
    let too_long = Failure::argument("a text longer than an int can count");
    text.write_fmt(what).map_err(|_| too_long)?;
    if let Some(end) = size.checked_sub(1) {
        // SAFETY: within the buffer's size.
        unsafe { text.buffer.add(end.min(text.length as usize)).write(0) };
    }
    Ok(text.length)
}

/// Takes what fits and counts the rest.
struct Text {
    buffer: *mut u8,
    size: usize,
    length: c_int,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            // The last one is for the NUL.
            if (self.length as usize).saturating_add(1) < self.size {
                // SAFETY: within the buffer's size.
                unsafe { self.buffer.add(self.length as usize).write(byte) };
            }
            self.length = self.length.checked_add(1).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}
