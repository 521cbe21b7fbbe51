//! Calls of this library's own that fail because a test says so (feature `inject`): one of every `STOPGAP_INJECT`, with
//! ENOMEM.
//!
//! What the program asked for is never made to fail here: to it nothing may be different.

use crate::kernel::Result;

#[cfg(not(feature = "inject"))]
#[inline]
pub(crate) fn before() -> Result<()> {
    Ok(())
}

#[cfg(feature = "inject")]
pub(crate) fn before() -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::kernel::Errno;
    use crate::setup;

    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static EVERY: AtomicUsize = AtomicUsize::new(usize::MAX);
    let mut every = EVERY.load(Ordering::Relaxed);
    if every == usize::MAX {
        every = setup::inject();
        EVERY.store(every, Ordering::Relaxed);
    }
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let fails = every != 0 && call.is_multiple_of(every);
    if fails {
        Err(Errno(libc::ENOMEM))
    } else {
        Ok(())
    }
}
