//! Tasks: where they run, children under guard, and how often they gave up the CPU.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stopgap_events::units::Nanos;

use crate::error::{Error, Result};
use crate::files::{Files, read_lossy};
use crate::proc::switches_of;
use crate::switches::SwitchEvents;

/// Limits of a load child.
#[derive(Debug, Clone, Default)]
pub struct ChildLimits {
    /// It is killed when it runs longer.
    pub time: Nanos,
    /// Directory of a cgroup that it enters before it does anything.
    pub cgroup: Option<std::path::PathBuf>,
}

impl ChildLimits {
    /// Limits only the time.
    #[must_use]
    pub const fn within(time: Nanos) -> ChildLimits {
        ChildLimits { time, cgroup: None }
    }
}

/// Outcome of a load child.
#[derive(Debug)]
pub struct ChildOutcome {
    /// Bytes that its body returned.
    pub output: Vec<u8>,
    /// Its peak resident memory in bytes.
    pub peak_resident: u64,
}

/// What a load child does. It owns what it needs: the parent drops its copy as soon as the
/// child has begun, and every child drops those of its siblings, so that of a socket pair
/// each end is open in one process only and its death is seen by the other.
pub type ChildBody<'b> = Box<dyn FnOnce() -> Vec<u8> + 'b>;

/// A guarded child at work beside us. Dropped, it is killed.
pub struct Running {
    #[allow(clippy::type_complexity)] // an end, and what it gives
    end: Option<Box<dyn FnOnce(End) -> Result<ChildOutcome>>>,
}

/// How a [`Running`] child ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or when its time is over.
    ByItself,
    /// At once.
    Killed,
}

impl Running {
    pub(crate) fn new(end: impl FnOnce(End) -> Result<ChildOutcome> + 'static) -> Running {
        Running {
            end: Some(Box::new(end)),
        }
    }

    /// Waits until it ends by itself or its time is over.
    ///
    /// # Errors
    /// As [`Tasks::run_children`].
    pub fn finish(mut self) -> Result<ChildOutcome> {
        match self.end.take() {
            Some(end) => end(End::ByItself),
            None => Err(Error::child("has ended before")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end(End::Killed); // nobody asks how
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

/// Voluntary and involuntary context switches, counted when the task leaves the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// It blocked.
    pub voluntary: u64,
    /// It was pre-empted.
    pub involuntary: u64,
}

impl Switches {
    /// Both together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// Tasks.
pub trait Tasks {
    /// CPUs on which the calling thread may run, ascending.
    ///
    /// # Errors
    /// As sched_getaffinity(2).
    fn cpus(&self) -> Result<Vec<u32>>;

    /// Binds the calling thread, and what it starts later, to `cpus`.
    ///
    /// # Errors
    /// As sched_setaffinity(2): `EINVAL` where none of them exists or is allowed.
    fn set_cpus(&self, cpus: &[u32]) -> Result<()>;

    /// Runs `body` in a guarded child process: [`Tasks::run_children`] with one of them.
    ///
    /// # Errors
    /// As there.
    fn run_child(
        &self,
        limits: &ChildLimits,
        body: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<ChildOutcome> {
        let outcomes = self.run_children(limits, vec![Box::new(body)]);
        outcomes
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(Error::child("was not started")))
    }

    /// Runs each of `bodies` in a guarded child process of its own, all at once, and waits for
    /// them; the outcomes are in the order of the bodies. A child dies with the thread that
    /// called (`PR_SET_PDEATHSIG`), is the first that the kernel kills when memory ends
    /// (`oom_score_adj` 1000, where [`Tasks::oom_score_fixed`] says nothing), and is killed when its time is over. What `body` returns comes
    /// back through a pipe. The child sees this process's memory as it was, keeps the handler
    /// of Ctrl-C, and ends without running destructors.
    ///
    /// A body must not print and must not need a lock that another thread of this process may
    /// hold now; memory allocation is safe (glibc makes it so across fork(2)). A child that
    /// waits for another must see its end by itself, as by a socket's end of file.
    ///
    /// # Errors
    /// One a body: as fork(2); [`crate::Error::Child`] where it was killed or ran out of time.
    fn run_children(
        &self,
        limits: &ChildLimits,
        bodies: Vec<ChildBody<'_>>,
    ) -> Vec<Result<ChildOutcome>>;

    /// Starts `body` in a guarded child as [`Tasks::run_children`] does, and goes on beside it. Its
    /// time counts from now; it is seen to be over when [`Running::finish`] is called, or two
    /// seconds later by the child's own alarm. What it sends before that must fit into a pipe
    /// (64 KiB): nobody reads it until then. It has a copy of every file that is open here, so it
    /// never sees the end of a socket whose other end is ours: tell it by a byte.
    ///
    /// # Errors
    /// As fork(2).
    fn start_child(&self, limits: &ChildLimits, body: ChildBody<'_>) -> Result<Running>;

    /// Why a child is *not* the first that the kernel kills when memory ends; `None` where it is. A
    /// process that is not dumpable may not write to its own `/proc/self` (proc_pid(5)): one whose
    /// binary its user cannot read, or that changed its user.
    fn oom_score_fixed(&self) -> Option<Error>;

    /// How often the calling thread left its CPU since it began, by getrusage(2)
    /// (`RUSAGE_THREAD`). [`status_switches`] and [`SwitchEvents`] count the same otherwise.
    ///
    /// # Errors
    /// As getrusage(2).
    fn switches(&self) -> Result<Switches>;

    /// Counts switches of the calling thread by the kernel's records of them. It begins
    /// stopped.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no such records (before 4.3) or refuses them
    /// to us, as with `kernel.perf_event_paranoid` at 3 and above.
    fn switch_events(&self) -> Result<SwitchEvents>;

    /// Puts the calling thread under `SCHED_BATCH`: a wake-up of it pre-empts nobody.
    ///
    /// # Errors
    /// As sched_setscheduler(2).
    fn set_batch(&self) -> Result<()>;

    /// From now on the calling thread's sleeps end at most `slack` late by the kernel's own
    /// choice; usual is 50 us, in favour of fewer interrupts. `Nanos(0)` counts as 1 ns.
    ///
    /// # Errors
    /// As prctl(2).
    fn set_timer_slack(&self, slack: Nanos) -> Result<()>;

    /// Effective user id.
    fn uid(&self) -> u32;

    /// This process's id.
    fn pid(&self) -> u32;
}

/// How often the calling thread left its CPU since it began, by `/proc/thread-self/status`
/// (Linux 3.17).
///
/// # Errors
/// Where the file cannot be read or has no such lines.
pub fn status_switches<F: Files + ?Sized>(files: &F) -> Result<Switches> {
    let path = Path::new("/proc/thread-self/status");
    let text = read_lossy(files, path)?;
    switches_of(&text).ok_or_else(|| {
        let reason = "no counts 'voluntary_ctxt_switches' and 'nonvoluntary_ctxt_switches'";
        Error::parse(path.display(), reason)
    })
}
