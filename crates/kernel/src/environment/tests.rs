//! Against the running kernel, by system calls instead of files.

use std::time::Duration;

use stopgap_events::units::Bytes;

use super::*;
use crate::Linux;

#[test]
fn it_agrees_with_what_system_calls_say() {
    // Not the time: others may have the CPU.
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let start = Duration::try_from(used()).unwrap();
    let e = read(&Linux);
    let took = Duration::try_from(used()).unwrap() - start;
    let uname = rustix::system::uname();
    let text = |word: &std::ffi::CStr| Some(word.to_str().unwrap().to_owned());
    assert_eq!(e.host, text(uname.nodename()));
    assert_eq!(e.kernel, text(uname.release()));
    assert_eq!(e.architecture, text(uname.machine()));
    assert_eq!(e.page_size, Bytes(rustix::param::page_size() as u64));
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    assert_eq!(e.memory, Some(Bytes(info.totalram * unit)));
    assert_eq!(e.swap_size > Some(Bytes(0)), info.totalswap > 0);
    assert!(info.uptime.cast_unsigned().abs_diff(e.uptime_s.unwrap()) <= 2);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    assert_eq!(e.memlock_limit, limit.current.map(Bytes));
    assert!(e.memory_available <= e.memory);
    assert!(!e.cpus.is_empty());
    // 2 ms; a hundred times that beside others that evict our caches.
    assert!(took.as_millis() < 200, "{took:?}");
}

#[test]
fn what_is_unknown_has_a_reason_and_only_that() {
    let e = read(&Linux);
    let reasons = |what: &str| e.missing.iter().filter(|one| one.what == what).count();
    for (what, unknown) in [
        ("preemption model", e.preemption.is_none()),
        ("frequency governor", e.governor.is_none()),
        ("security modules", e.lsm.is_none()),
        ("swap", e.swap.is_none()),
        ("IOMMU", e.iommu.is_none()),
        ("CPU model", e.cpu.is_none()),
        ("microcode", e.microcode.is_none()),
        ("perf_event_paranoid", e.perf_event_paranoid.is_none()),
        ("memory cgroup", e.memory_cgroup.is_none()),
    ] {
        assert_eq!(
            reasons(what),
            usize::from(unknown),
            "{what}: {:?}",
            e.missing
        );
    }
}
