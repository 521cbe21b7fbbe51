//! What the kernel counts about this process and this thread, without any privilege.

use stopgap_events::units::{Bytes, Nanos};

use crate::error::{Error, Result};
use crate::files::{Files, read_lossy, read_text};
use crate::proc::{memory, stat_fields};

/// Page faults of this process so far that needed no disk: for fresh anonymous memory, the
/// number of pieces (base pages, mTHP, huge pages) in which the kernel gave it.
///
/// `/proc/self/stat`, field `minflt` (proc_pid_stat(5)).
///
/// # Errors
/// Where the file cannot be read or has no such field.
pub fn minor_faults(files: &(impl Files + ?Sized)) -> Result<u64> {
    stat_field(files, 10)
}

/// Returns field `number` of `/proc/self/stat`, counted from 1.
fn stat_field(files: &(impl Files + ?Sized), number: usize) -> Result<u64> {
    let path = "/proc/self/stat";
    let text = read_text(files, path)?;
    let word = stat_fields(&text)
        .get(number - 3)
        .and_then(|word| word.parse().ok());
    word.ok_or_else(|| Error::parse(path, format!("no field {number} in '{text}'")))
}

/// The most memory that this process has had resident so far.
///
/// `/proc/self/status`, field `VmHWM`.
///
/// # Errors
/// Where the file cannot be read or has no such field.
pub fn peak_resident(files: &(impl Files + ?Sized)) -> Result<Bytes> {
    let path = "/proc/self/status";
    let text = read_lossy(files, path)?;
    memory(&text, "VmHWM").ok_or_else(|| Error::parse(path, "no line 'VmHWM: ... kB'"))
}

/// CPU time that this process, all its threads together, has spent inside the kernel so far; in
/// steps of 10 ms.
///
/// `/proc/self/stat`, field `stime` (proc_pid_stat(5)), in ticks of `USER_HZ`: 100 a second on
/// every architecture that Rust's standard library runs on.
///
/// # Errors
/// Where the file cannot be read or has no such field.
pub fn system_time(files: &(impl Files + ?Sized)) -> Result<Nanos> {
    const TICK: u64 = 10_000_000;
    Ok(Nanos(stat_field(files, 15)?.saturating_mul(TICK)))
}

/// How long this thread has been ready to run and waited for a CPU so far.
///
/// `/proc/thread-self/schedstat`, second number (Documentation/scheduler/sched-stats.rst).
///
/// # Errors
/// Where there is no such file (a kernel without `CONFIG_SCHED_INFO`), or all its numbers are
/// 0: such a kernel does not count.
pub fn waited_for_cpu(files: &(impl Files + ?Sized)) -> Result<Nanos> {
    let path = "/proc/thread-self/schedstat";
    let text = read_text(files, path)?;
    if text == "0 0 0" {
        return Err(Error::unsupported(
            "time waited for a CPU",
            "this kernel does not count it (CONFIG_SCHED_INFO)",
        ));
    }
    text.split_ascii_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .map(Nanos)
        .ok_or_else(|| Error::parse(path, format!("no second number in '{text}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        use crate::fake::Fake;
        let fake = Fake::default()
            .with_file(
                "/proc/self/stat",
                "7 (a) b (c) R 1 2 3 0 -1 4194304 2852 6542 0 0 34",
            )
            .with_file("/proc/thread-self/schedstat", "10 2500 3\n");
        assert_eq!(minor_faults(&fake).unwrap(), 2852);
        assert_eq!(waited_for_cpu(&fake).unwrap(), Nanos(2500));
        fake.put("/proc/self/stat", "7 (a) R 1 2");
        fake.put("/proc/thread-self/schedstat", "0 0 0\n");
        assert!(minor_faults(&fake).is_err());
        assert!(waited_for_cpu(&fake).is_err());
    }

    #[test]
    fn time_in_the_kernel_is_read_past_any_name() {
        use crate::fake::Fake;
        let stat = "7 (a ) 1 2) S 1 7 7 0 -1 0 1 2 3 4 500 21 0 0 20 0 1 0 9";
        let fake = Fake::default().with_file("/proc/self/stat", stat);
        assert_eq!(system_time(&fake).unwrap(), Nanos::millis(210));
        let fake = Fake::default().with_file("/proc/self/stat", "7 (a) S 1");
        assert!(system_time(&fake).is_err());
    }

    #[test]
    fn our_own_peak_is_more_than_nothing() {
        assert!(peak_resident(&crate::Linux).unwrap() > Bytes::kib(100));
    }

    #[test]
    fn first_touches_are_counted() {
        use crate::Linux;
        use crate::memory::{Advice, MapKind, MapRequest, Memory};

        let page = Linux.page_size();
        let request = MapRequest::writable(Bytes(500 * page.0), MapKind::Anonymous);
        let mapping = Linux.map(&request).unwrap();
        let _ = Linux.advise(&mapping, Bytes(0), request.length, Advice::NoHugePage);
        let before = minor_faults(&Linux).unwrap();
        Linux.touch(&mapping, Bytes(0), request.length).unwrap();
        let faults = minor_faults(&Linux).unwrap() - before;
        assert!(faults >= 500, "{faults}"); // other tests' threads fault too
        Linux.unmap(mapping).unwrap();
    }
}
