//! Text into a buffer of C's, as `snprintf` would write it.

use std::ffi::{c_char, c_int};
use std::fmt::{Arguments, Write};

use crate::{Failure, Result};

/// Takes what fits and counts the rest.
pub(crate) struct Text {
    buffer: *mut u8,
    size: usize,
    length: c_int,
}

impl Text {
    /// Writes `what`, cut where there is no more room, and a NUL; gives the length of all of it without the NUL.
    ///
    /// # Safety
    /// `buffer` is NULL, or `size` bytes can be written there.
    pub(crate) unsafe fn write(
        buffer: *mut c_char,
        size: usize,
        what: Arguments<'_>,
    ) -> Result<c_int> {
        if buffer.is_null() && size > 0 {
            return Err(Failure::Null { what: "the text" });
        }
        let mut text = Text {
            buffer: buffer.cast(),
            size,
            length: 0,
        };
        text.write_fmt(what).map_err(|_| Failure::Argument {
            what: "a text longer than an int can count",
        })?;
        if let Some(end) = size.checked_sub(1) {
            // SAFETY: within the buffer's size.
            unsafe { text.buffer.add(end.min(text.length as usize)).write(0) };
        }
        Ok(text.length)
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for &byte in text.as_bytes() {
            // The last one is for the NUL.
            if (self.length as usize).saturating_add(1) < self.size {
                // SAFETY: within the buffer's size.
                unsafe { self.buffer.add(self.length as usize).write(byte) };
            }
            self.length = self.length.checked_add(1).ok_or(std::fmt::Error)?;
        }
        Ok(())
    }
}
