//! Tasks: where they run, children under guard, and how often they gave up the CPU.

use stopgap_events::units::Nanos;

use crate::error::Result;

/// What a load child is bound to.
#[derive(Debug, Clone, Default)]
pub struct ChildLimits {
    /// It is killed when it runs longer.
    pub time: Nanos,
    /// Directories of memory cgroups that it enters before it does anything.
    pub cgroup: Option<std::path::PathBuf>,
}

/// What a load child left behind.
#[derive(Debug)]
pub struct ChildOutcome {
    /// What its body returned.
    pub output: Vec<u8>,
    /// Its peak resident memory in bytes.
    pub peak_resident: u64,
}

/// Voluntary and involuntary context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

    /// What came since `earlier`.
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

    /// Binds the calling thread, and what it starts from now on, to `cpus`.
    ///
    /// # Errors
    /// As sched_setaffinity(2): `EINVAL` where none of them exists or is allowed.
    fn set_cpus(&self, cpus: &[u32]) -> Result<()>;

    /// Runs `body` in a guarded child process and waits for it: it dies with its parent
    /// (`PR_SET_PDEATHSIG`), is the first that the kernel kills when memory ends
    /// (`oom_score_adj` 1000), and is killed when its time is over. What `body` returns comes
    /// back through a pipe. The child sees this process's memory as it was, keeps the handler
    /// of Ctrl-C, and ends without running destructors.
    ///
    /// `body` must not print and must not need a lock that another thread of this process may
    /// hold now; memory allocation is safe (glibc makes it so across fork(2)).
    ///
    /// # Errors
    /// As fork(2); [`crate::Error::Child`] where it was killed or ran out of time.
    fn run_child(
        &self,
        limits: &ChildLimits,
        body: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<ChildOutcome>;

    /// Effective user id.
    fn uid(&self) -> u32;

    /// This process's id.
    fn pid(&self) -> u32;
}
