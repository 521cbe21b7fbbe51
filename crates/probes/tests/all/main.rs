//! Probes on the running kernel and on a fake one.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::journal::Journal;
use stopgap_probes::Context;

mod chunks;
mod placement;
mod roundtrip;
mod wakeup;

/// Lets one test at a time measure on the machine's CPUs or set its knobs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a journal whose folder is never made: for what changes no setting.
fn no_changes(system: &dyn System) -> Journal<'_> {
    Journal::new(system, Path::new("/nonexistent/stopgap"))
}

/// Returns what a probe is run with where a test asks for nothing else.
fn context<'a>(system: &'a dyn System, journal: &'a Journal<'a>) -> Context<'a> {
    Context {
        system,
        journal,
        budget: Bytes::mib(512),
        time: Nanos::secs(60),
        seed: 7,
        privilege: Privilege::None,
        scratch: Path::new("/nonexistent"),
        progress: &|_, _| {},
        interrupted: &|| false,
    }
}
