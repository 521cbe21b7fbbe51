//! Exact counts of what a command and its children did.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::attr::{Attr, INHERIT};
use crate::error::{Error, Result};
use crate::files::{Files, read_number};
use crate::linux::Held;
use crate::switches::open_refused;

/// Says of a refused counter what perf_event_paranoid allows.
const LEVELS: &str = "up to 2 a user's own processes are counted; CAP_PERFMON may";

/// Where tracefs has the number of the tracepoint at the entry of system calls.
const SYS_ENTER: &str = "events/raw_syscalls/sys_enter/id";

/// Counts from the exec of a command on, in it and in all that it starts.
#[derive(Debug)]
pub struct Counter {
    what: &'static str,
    event: OwnedFd,
}

impl Counter {
    /// Counts instructions by the CPU's own counter: in user mode and in the kernel, or in user mode alone where
    /// `perf_event_paranoid` hides the kernel.
    ///
    /// # Errors
    /// Where the machine shows no such counter (most virtual machines), and as perf_event_open(2).
    pub fn instructions<F: Files + ?Sized>(files: &F, held: &Held) -> Result<Counter> {
        const WHAT: &str = "counting instructions";
        let attr = Attr::instructions(INHERIT);
        let opened = match attr.open(held.pid(), None) {
            Err(Errno::ACCESS | Errno::PERM) => attr.without_kernel().open(held.pid(), None),
            other => other,
        };
        match opened {
            Ok(event) => Ok(Counter { what: WHAT, event }),
            Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV) => Err(Error::unsupported(
                WHAT,
                "this machine shows no counter of instructions, as most virtual machines"
                    .to_owned(),
            )),
            Err(errno) => Err(open_refused(files, errno.raw_os_error(), WHAT, LEVELS)),
        }
    }

    /// Counts system calls by the tracepoint `raw_syscalls:sys_enter`, which makes each about 0.1 us longer.
    ///
    /// # Errors
    /// Without `CAP_PERFMON` and tracefs, and as perf_event_open(2).
    pub fn system_calls<F: Files + ?Sized>(files: &F, held: &Held) -> Result<Counter> {
        const WHAT: &str = "counting system calls";
        // Mounted for this process alone where nobody mounted it.
        let tracefs = files.tracefs();
        let id = tracefs.and_then(|tracefs| read_number(files, tracefs.path().join(SYS_ENTER)));
        let id: u64 = id.map_err(|error| {
            Error::unsupported(WHAT, format!("it needs root and tracefs ({error})"))
        })?;
        match Attr::tracepoint(id, INHERIT).open(held.pid(), None) {
            Ok(event) => Ok(Counter { what: WHAT, event }),
            Err(errno) => Err(open_refused(files, errno.raw_os_error(), WHAT, LEVELS)),
        }
    }

    /// Returns the count so far; of those that ended, all of it.
    ///
    /// # Errors
    /// As read(2), and where the counter was lent to somebody else meanwhile: it then saw a part.
    pub fn read(&self) -> Result<u64> {
        let mut bytes = [0; 24];
        let failed = |e| Error::call("read", self.what, e);
        let read = rustix::io::read(&self.event, &mut bytes).map_err(failed)?;
        let at = |n: usize| {
            let bytes = bytes[n * 8..n * 8 + 8].try_into();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        let [count, enabled, running] = [at(0), at(1), at(2)];
        if read != bytes.len() || running < enabled {
            return Err(Error::unsupported(
                self.what,
                format!("others used the counter, too: it ran {running} of {enabled} ns"),
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::linux::Conditions;
    use stopgap_events::units::Nanos;
    use stopgap_testing::{Skip, skip};

    fn counted(script: &str) -> Result<u64> {
        let held = Held::start_under(
            &["sh".into(), "-c".into(), script.into()],
            &Conditions::default(),
        )?;
        let counter = Counter::system_calls(&Linux, &held)?;
        let child = held.release()?;
        assert!(child.watched().ends_within(Nanos::secs(10)));
        let count = counter.read();
        child.end(Nanos(0))?;
        count
    }

    #[test]
    fn each_system_call_of_a_child_counts_once() {
        if !rustix::process::geteuid().is_root() {
            return skip(&Skip::root("counting system calls"));
        }
        let of = |blocks: u32| {
            counted(&format!(
                "dd if=/dev/zero of=/dev/null bs=1 count={blocks} 2>/dev/null"
            ))
            .unwrap()
        };
        // dd reads and writes each block: 2 calls.
        let (few, many) = (of(100), of(1_100));
        assert_eq!(many - few, 2_000, "{few} and {many}");
        assert!(few > 200);
    }
}
