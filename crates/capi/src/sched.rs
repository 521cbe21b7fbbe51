//! `SCHED_BATCH` for the calling thread, and back.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;

use stopgap_arena::sched::{Batch, batch_client};

use crate::failure::{Failure, enter};

thread_local! {
    /// What goes back. Never dropped: a thread that ends has no policy to go back to.
    static BATCH: Cell<Option<ManuallyDrop<Batch>>> = const { Cell::new(None) };
}

/// Puts the calling thread under `SCHED_BATCH`.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_batch_client() -> c_int {
    enter(|| {
        let guard = match BATCH.take() {
            Some(guard) => guard,
            None => ManuallyDrop::new(batch_client()?),
        };
        BATCH.set(Some(guard));
        Ok(0)
    })
}

/// Puts the calling thread under the policy that it was under before.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_batch_client_end() -> c_int {
    enter(|| {
        let guard = BATCH.take().ok_or(Failure::Argument(
            "stopgap_batch_client was not called in this thread",
        ))?;
        ManuallyDrop::into_inner(guard).end()?;
        Ok(0)
    })
}
