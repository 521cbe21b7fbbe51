//! What takes one call at a time. A second one meanwhile is refused and does not wait: so neither a signal handler,
//! nor a child forked in the middle of a call, nor a thread that came by mistake waits for ever.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::{Failure, Result};

#[derive(Debug)]
pub(crate) struct Solo<T>(Mutex<T>);

impl<T> Solo<T> {
    pub(crate) const fn new(value: T) -> Self {
        Solo(Mutex::new(value))
    }

    /// The only use of it as long as the guard lives.
    pub(crate) fn take(&self) -> Result<MutexGuard<'_, T>> {
        self.0.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::Busy,
            TryLockError::Poisoned(_) => Failure::Broken,
        })
    }

    pub(crate) fn into_inner(self) -> Result<T> {
        self.0.into_inner().map_err(|_| Failure::Broken)
    }
}
