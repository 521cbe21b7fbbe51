//! Why the last call failed, in words; and which version this is.

use std::ffi::{CStr, c_char, c_int};

use crate::guard::{enter, last};
use crate::text::Text;

/// The version with the NUL that C needs.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a NUL in the version"),
    };

/// The library's version, `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Writes why the last call of this thread that failed did, as `snprintf` would.
///
/// # Safety
/// `buffer` is NULL with `size` 0, or `size` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_error_text(buffer: *mut c_char, size: usize) -> c_int {
    enter(|| {
        // SAFETY: the caller's promise.
        let write = |what| unsafe { Text::write(buffer, size, what) };
        match last() {
            Some(failure) => write(format_args!("{failure}")),
            None => write(format_args!("no call failed in this thread")),
        }
    })
}
