//! What a thread needs that must wake on time, and that measures whether it does.

use std::os::fd::OwnedFd;

use crate::error::Result;

/// Where latencies of leaving idle are asked for (PM QoS, Linux 2.6.30;
/// `Documentation/power/pm_qos_interface.rst`).
pub const CPU_LATENCY: &str = "/dev/cpu_dma_latency";

/// CPUs leave idle at once as long as this lives; the kernel drops the demand with the file, also
/// when the process is killed.
#[derive(Debug)]
#[must_use = "a demand that is dropped is over"]
pub struct Awake {
    pub(crate) _file: Option<OwnedFd>,
}

/// Calls of a thread that must wake on time.
pub trait Realtime {
    /// Puts the calling thread under `SCHED_FIFO` with this priority, 1 to 99: it pre-empts every
    /// ordinary thread, and all that it starts inherits that.
    ///
    /// # Errors
    /// As sched_setscheduler(2): `EPERM` without CAP_SYS_NICE beyond `RLIMIT_RTPRIO`, or in a
    /// cgroup without real-time budget.
    fn set_fifo(&self, priority: u32) -> Result<()>;

    /// Keeps all memory of this process, and all that it gets later, resident: its own
    /// accesses never wait for a page. A process that is forked does not inherit it.
    ///
    /// # Errors
    /// As mlockall(2): `ENOMEM` or `EPERM` where `RLIMIT_MEMLOCK` is less than it has.
    fn lock_memory(&self) -> Result<()>;

    /// Demands that CPUs leave idle states at once ([`CPU_LATENCY`] at 0), as cyclictest does.
    ///
    /// # Errors
    /// As open(2) and write(2): `EACCES` without root.
    fn stay_awake(&self) -> Result<Awake>;
}
