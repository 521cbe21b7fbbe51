//! A machine in memory, on a virtual clock, for the tests of the crates above.
//!
//! Parts of the seam that do much are files of their own, as in `linux/`. Time passes only when
//! something costs time: a call charges its cost to the clock, so that a test is exact and
//! takes no time at all.

mod devices;
mod files;
mod holds;
mod memory;
mod program;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stopgap_events::units::Nanos;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::ipc::{Endpoint, Ipc};
use crate::realtime::{Awake, CPU_LATENCY, Realtime};
use crate::switches::SwitchEvents;
use crate::tasks::{ChildBody, ChildLimits, ChildOutcome, Running, Switches, Tasks};
use crate::x11::{X11, XServer};

pub use devices::{FakeMaker, FakeVfio};
pub use holds::HoldCosts;
pub use memory::Search;
pub use program::{install, refuse_bpf, refuse_bpf_command, refuse_switch_records, script};

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

impl Fake {
    /// Lets time pass.
    pub fn pass(&self, time: Nanos) {
        let mut state = self.state();
        state.now_ns += time.0;
        state.change_due_files();
    }
}

impl Clock for Fake {
    fn now(&self) -> Nanos {
        Nanos(self.state().now_ns)
    }

    fn thread_cpu(&self) -> Nanos {
        // The only thread spends all time, except what it waited for.
        let state = self.state();
        Nanos(state.now_ns - state.waited_ns)
    }

    fn sleep_until(&self, deadline: Nanos) {
        let mut state = self.state();
        state.now_ns = state.now_ns.max(deadline.0);
        state.change_due_files();
    }

    fn spin(&self, work: Nanos) {
        self.pass(work);
    }

    fn suspended(&self) -> Nanos {
        Nanos(0)
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000 + self.now().0 / 1_000_000_000
    }
}

impl Ipc for Fake {
    /// Refused: who waits here waits for ever, since there is only one process.
    fn stream_pair(&self) -> Result<(Endpoint, Endpoint)> {
        Err(Error::unsupported(
            "a pair of sockets",
            "the fake machine has one process, which would wait for itself",
        ))
    }

    fn allow_files(&self, _count: u64) -> Result<()> {
        Ok(())
    }

    fn most_files(&self) -> Option<u64> {
        None
    }
}

impl Fake {
    /// A user without privilege: neither real-time priority nor locked memory.
    #[must_use]
    pub fn ordinary(self) -> Fake {
        self.state().ordinary = true;
        self
    }

    fn permitted(&self, call: &'static str, target: String) -> Result<()> {
        if self.state().ordinary {
            return Err(Error::refusal(call, target, libc::EPERM));
        }
        Ok(())
    }
}

impl Realtime for Fake {
    fn set_fifo(&self, priority: u32) -> Result<()> {
        self.permitted("sched_setscheduler", format!("SCHED_FIFO {priority}"))
    }

    fn lock_memory(&self) -> Result<()> {
        self.permitted("mlockall", "this process".to_owned())
    }

    /// Where the file is.
    fn stay_awake(&self) -> Result<Awake> {
        self.write(CPU_LATENCY.as_ref(), &0i32.to_ne_bytes())?;
        Ok(Awake { _file: None })
    }
}

// A machine without X.

fn absent<T>() -> Result<T> {
    let advice = "install xvfb and x11-utils";
    Err(Error::unsupported("an X server", advice))
}

impl X11 for Fake {
    fn x_programs(&self) -> Result<()> {
        absent()
    }

    fn start_x(&self, _: u32, _: &[u32]) -> Result<Box<dyn XServer>> {
        absent()
    }
}

impl Tasks for Fake {
    fn cpus(&self) -> Result<Vec<u32>> {
        Ok(vec![0])
    }

    fn set_cpus(&self, cpus: &[u32]) -> Result<()> {
        if cpus.contains(&0) {
            return Ok(());
        }
        Err(Error::refusal(
            "sched_setaffinity",
            format!("{cpus:?}"),
            libc::EINVAL,
        ))
    }

    /// Runs the bodies here, one after the other: there is only one process.
    fn run_children(
        &self,
        _limits: &ChildLimits,
        bodies: Vec<ChildBody<'_>>,
    ) -> Vec<Result<ChildOutcome>> {
        bodies
            .into_iter()
            .map(|body| {
                Ok(ChildOutcome {
                    output: body(),
                    peak_resident: 0,
                })
            })
            .collect()
    }

    /// Refused: there is only one process.
    fn start_child(&self, _limits: &ChildLimits, _body: ChildBody<'_>) -> Result<Running> {
        Err(Error::refusal("fork", "load child", libc::ENOSYS))
    }

    fn oom_score_fixed(&self) -> Option<Error> {
        None
    }

    /// None: there is nobody to switch to.
    fn switches(&self) -> Result<Switches> {
        Ok(Switches::default())
    }

    /// Refused, for what its `kernel.perf_event_paranoid` says.
    fn switch_events(&self) -> Result<SwitchEvents> {
        Err(crate::switches::refused(self, libc::EACCES))
    }

    fn set_batch(&self) -> Result<()> {
        Ok(())
    }

    fn set_timer_slack(&self, _slack: Nanos) -> Result<()> {
        Ok(())
    }

    fn uid(&self) -> u32 {
        0
    }

    fn pid(&self) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::status_switches;
    use stopgap_testing::assert_contains;

    #[test]
    fn switch_records_are_refused_with_the_setting_that_does_it() {
        let fake = Fake::default().with_file("/proc/sys/kernel/perf_event_paranoid", "3\n");
        let error = fake.switch_events().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_contains(error.to_string(), &["perf_event_paranoid is 3"]);
    }

    #[test]
    fn status_is_read_and_what_is_wrong_with_it_is_said() {
        let path = "/proc/thread-self/status";
        let fake = Fake::default().with_file(
            path,
            "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n",
        );
        let expected = Switches {
            voluntary: 12,
            involuntary: 3,
        };
        assert_eq!(status_switches(&fake).unwrap(), expected);
        fake.put(path, "voluntary_ctxt_switches:\tmany\n");
        let error = status_switches(&fake).unwrap_err().to_string();
        assert!(
            error.contains(path) && error.contains("'voluntary_ctxt"),
            "{error}"
        );
    }
}
