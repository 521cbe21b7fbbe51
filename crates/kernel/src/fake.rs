//! A machine in memory, on a virtual clock, for the tests of the crates above.
//!
//! Each part of the seam is in a file of its own, as in `linux/`. Time passes only when
//! something costs time: a call charges its cost to the clock, so that a test is exact and
//! takes no time at all.

mod clock;
mod devices;
mod files;
mod holds;
mod ipc;
mod memory;
mod program;
mod realtime;
mod refusal;
mod tasks;
mod x11;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stopgap_events::units::Nanos;

pub use devices::{FakeMaker, FakeVfio};
pub use holds::HoldCosts;
pub use memory::Search;
pub use program::{install, script};
pub use refusal::refuse_switch_records;

/// A machine in memory. [`Fake::new`] gives one with nothing in it; add files with
/// [`Fake::with_file`].
#[derive(Debug)]
pub struct Fake {
    state: Mutex<State>,
    search: Search,
}

#[derive(Debug, Default)]
struct State {
    now_ns: u64,
    /// Part of `now_ns` in which the thread was not on a CPU.
    waited_ns: u64,
    files: BTreeMap<PathBuf, files::Node>,
    refused_writes: Vec<PathBuf>,
    refused_reads: Vec<(PathBuf, i32)>,
    waiting_reads: Vec<(PathBuf, Nanos)>,
    failing_writes: Vec<files::Failing>,
    later: Vec<files::Change>,
    memory: memory::Space,
    holds: holds::Ledger,
    devices: devices::FakeDevices,
    ordinary: bool,
    neighbour: Option<Range<u64>>,
}

impl State {
    /// A call on memory takes this many ns of the virtual clock, more beside a neighbour.
    fn spend(&mut self, ns: u64) {
        let busy = self
            .neighbour
            .as_ref()
            .is_some_and(|while_| while_.contains(&self.now_ns));
        self.now_ns += if busy { NEIGHBOUR * ns } else { ns };
    }
}

/// How many times as long a call on memory takes beside a neighbour.
const NEIGHBOUR: u64 = 3;

impl Default for Fake {
    fn default() -> Fake {
        Fake::new(Search::Constant)
    }
}

impl Fake {
    /// A machine whose kernel places mappings by `search`.
    #[must_use]
    pub fn new(search: Search) -> Fake {
        let fake = Fake {
            state: Mutex::new(State::default()),
            search,
        };
        fake.with_file(
            "/proc/1/stat",
            "1 (fake) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0",
        )
        .with_file("/proc/sys/vm/max_map_count", "65530\n")
    }

    /// With a neighbour that slows each call on memory down while the virtual clock is between these, in ns.
    #[must_use]
    pub fn with_neighbour(self, between: Range<u64>) -> Fake {
        self.state().neighbour = Some(between);
        self
    }

    /// With this file. Directories on the way are made.
    #[must_use]
    pub fn with_file(self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Fake {
        self.put(path, content);
        self
    }

    /// With no file at `path` and below it.
    #[must_use]
    pub fn without(self, path: impl AsRef<Path>) -> Fake {
        let path = path.as_ref();
        self.state().files.retain(|file, _| !file.starts_with(path));
        self
    }

    /// With writes to `path` and below it refused (`EACCES`).
    #[must_use]
    pub fn read_only(self, path: impl AsRef<Path>) -> Fake {
        self.refuse_writes(path);
        self
    }

    /// From now on refuses writes to `path` and below it.
    pub fn refuse_writes(&self, path: impl AsRef<Path>) {
        self.state().refused_writes.push(path.as_ref().to_owned());
    }

    /// With so many writes to `path` and below it failing with this error number, and those after them carried out.
    #[must_use]
    pub fn failing_writes(self, path: impl AsRef<Path>, errno: i32, times: u32) -> Fake {
        let path = path.as_ref().to_owned();
        self.state()
            .failing_writes
            .push(files::Failing { path, errno, times });
        self
    }

    /// Puts a file there, or another content into it.
    pub fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        self.state().put(path.as_ref(), content.as_ref());
    }

    /// Returns what a file holds now.
    #[must_use]
    pub fn content(&self, path: impl AsRef<Path>) -> Option<String> {
        use crate::files::Files;
        let bytes = self.read(path.as_ref()).ok()?;
        String::from_utf8(bytes).ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
