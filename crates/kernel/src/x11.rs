//! An X server of our own, and what a client asks of it.
//!
//! The pattern of mail 002, on real programs: `Xvfb` holds a tree of windows, `xwininfo -root -tree` asks for
//! all of it. The client gathers requests and sends many at a time (a *flush*), the server writes each
//! reply by itself.

use serde::{Deserialize, Serialize};
use stopgap_events::units::Nanos;

use crate::error::Result;
use crate::tasks::Switches;

/// Where the two programs of a run are put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placing {
    /// CPUs of the server; at least one.
    pub server: Vec<u32>,
    /// CPUs of the client; at least one.
    pub client: Vec<u32>,
    /// Whether the client is under `SCHED_BATCH`.
    pub batch: bool,
    /// A command that runs the client, which is added to its words; empty: it is run by itself. It should exec, so that
    /// no process of its own is counted with the client.
    pub through: Vec<std::ffi::OsString>,
}

/// Costs of one client's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XRun {
    /// The client's switches, by wait4(2), from its exec to its end.
    pub client: Switches,
    /// The server's in that time and until it slept again, by `/proc/PID/task/*/status`.
    pub server: Switches,
    /// How often the client sent: its write calls (`/proc/PID/io`, `syscw`) less those to its output. `None`
    /// where the kernel does not count them or lets us not look.
    pub flushes: Option<u64>,
    /// Windows that the client named.
    pub windows: u64,
    /// From the client's exec to its end.
    pub elapsed: Nanos,
}

/// A server that runs. Dropped, it is ended, and its socket and lock are gone.
pub trait XServer {
    /// Its process.
    fn pid(&self) -> u32;

    /// Runs a client and counts. `held` is given the client's process before it does anything.
    ///
    /// # Errors
    /// As fork(2) and sched_setaffinity(2); what `held` says; [`crate::Error::Child`] where the client
    /// failed or took more than 30 s, or the server ended.
    fn ask(&self, placing: &Placing, held: &mut dyn FnMut(u32) -> Result<()>) -> Result<XRun>;
}

/// X servers.
pub trait X11 {
    /// Whether the programs are here.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`]: which are not, and what to install.
    fn x_programs(&self) -> Result<()>;

    /// Starts a server on `cpus` (empty: ours), on a display of its own, which only we may enter, and makes `windows` windows in it: up
    /// to 10 in each child of the root. It ends with the thread that called.
    ///
    /// # Errors
    /// As [`X11::x_programs`]; [`crate::Error::Child`] where it does not begin to serve within 20 s.
    fn start_x(&self, windows: u32, cpus: &[u32]) -> Result<Box<dyn XServer>>;
}
