//! What the machine is: one line on the first screen, and in every run record so that two runs
//! can be compared.
//!
//! It only reads, about 100 small files; on Linux 6.18 it takes 1.4 ms. Where a file lacks
//! or cannot be read the field is `None` and `missing` says why.

mod config;
mod cpu;
mod platform;
pub(crate) mod privilege;
pub(crate) mod swap;

pub use privilege::memlock_limit;

use std::path::Path;

use stopgap_events::machine::{Environment, Missing, Pressure};
use stopgap_events::units::Bytes;

use crate::System;
use crate::budget::meminfo;
use crate::error::{Error, Result};
use crate::files::{Files, read_choice, read_lossy, read_number, read_text};
use crate::notes::Notes;
use crate::proc;
use crate::tasks::Tasks;

pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Reads what the machine is. It never fails; `pressure_before` is filled, `pressure_after`
/// is left empty for the end of the run.
#[must_use]
pub fn read(system: &dyn System) -> Environment {
    let mut notes = Notes::default();
    let kernel = notes.text("kernel release", system, "/proc/sys/kernel/osrelease");
    let command_line = notes.keep("command line", read_lossy(system, "/proc/cmdline"));
    let command_line = command_line.map(|line| line.trim().to_owned());
    let config = config::read(system, kernel.as_deref());
    let config = notes.keep("kernel configuration", config);
    let hz = config
        .as_ref()
        .and_then(|config| config.value("CONFIG_HZ")?.parse().ok());
    let preemption = config::preemption(system, command_line.as_deref(), config.as_ref());
    let (thp_enabled, thp_defrag, pmd_size) = transparent_huge_pages(system, &mut notes);
    let swap = notes.keep("swap", swap::read(system));
    let held = privilege::read(system, &mut notes);
    let cpu = cpu::read(system, &mut notes);
    let (pressure_before, no_pressure) = pressure(system);
    notes.missing.extend(no_pressure);
    if hz.is_none() && config.is_some() {
        let why = "no CONFIG_HZ in the kernel configuration";
        notes.add("timer frequency", why);
    }

    Environment {
        host: notes.text("host name", system, "/proc/sys/kernel/hostname"),
        kernel,
        architecture: Some(platform::architecture(system)),
        command_line,
        config_hash: config.as_ref().map(config::Config::hash),
        preemption: notes.keep("preemption model", preemption),
        hz,
        mglru: notes.keep("multi-generational LRU", mglru(system)),
        page_size: system.page_size(),
        pmd_size,
        thp_enabled,
        thp_defrag,
        compaction_proactiveness: notes.keep_or(
            "compaction_proactiveness",
            "not in this kernel (5.9 on, CONFIG_COMPACTION)",
            read_number(system, "/proc/sys/vm/compaction_proactiveness"),
        ),
        max_map_count: notes.keep(
            "max_map_count",
            read_number(system, "/proc/sys/vm/max_map_count"),
        ),
        swap: swap.as_ref().map(|swap| swap.kind.clone()),
        swap_size: swap.map(|swap| swap.size),
        memory_cgroup: notes.keep("memory cgroup", memory_cgroup(system)),
        lsm: notes.keep_or(
            "security modules",
            "no /sys/kernel/security/lsm: securityfs is not mounted or not in this kernel",
            read_text(system, "/sys/kernel/security/lsm"),
        ),
        iommu: notes.keep("IOMMU", platform::iommu(system)),
        cpu: cpu.model,
        cpus: notes
            .keep("allowed CPUs", Tasks::cpus(system))
            .unwrap_or_default(),
        microcode: cpu.microcode,
        governor: notes.keep_or(
            "frequency governor",
            "no cpufreq driver",
            read_text(
                system,
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            ),
        ),
        mitigations: cpu.mitigations,
        clock_source: notes.text(
            "clock source",
            system,
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        hypervisor: notes.keep("hypervisor", platform::hypervisor(system, cpu.guest)),
        memory: notes.keep("memory", meminfo(system, "MemTotal")),
        memory_available: notes.keep("available memory", meminfo(system, "MemAvailable")),
        uptime_s: notes.keep("uptime", uptime(system)),
        boot_id: notes.text("boot id", system, "/proc/sys/kernel/random/boot_id"),
        privilege: held.privilege,
        capabilities: held.capabilities,
        perf_event_paranoid: notes.keep_or(
            "perf_event_paranoid",
            "this kernel has no perf events",
            read_number(system, "/proc/sys/kernel/perf_event_paranoid"),
        ),
        memlock_limit: notes
            .keep("RLIMIT_MEMLOCK", privilege::memlock_limit(system))
            .flatten(),
        pressure_before,
        pressure_after: Vec::new(),
        missing: notes.missing,
    }
}

/// CPU, memory and I/O pressure now, and what of it cannot be read. Three small files.
pub fn pressure(system: &dyn System) -> (Vec<Pressure>, Vec<Missing>) {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for resource in ["cpu", "memory", "io"] {
        let why = match proc::pressure::read(system, resource) {
            Ok(pressure) => {
                all.push(pressure);
                continue;
            }
            // PSI that is compiled in but off by default: the files are there, reading them
            // gives EOPNOTSUPP (`psi_show()`).
            Err(error) if error.is_absent() || error.errno() == Some(libc::EOPNOTSUPP) => {
                NO_PSI.to_owned()
            }
            Err(error) => error.to_string(),
        };
        missing.push(Missing::new(format!("{resource} pressure"), why));
    }
    // One reason, said once.
    if missing.len() == 3 && missing.iter().all(|one| one.why == NO_PSI) {
        missing = vec![Missing::new("pressure", NO_PSI)];
    }
    (all, missing)
}

const NO_PSI: &str = "no PSI: boot with psi=1 (needs CONFIG_PSI, Linux 4.20)";

/// Uptime in whole seconds.
///
/// # Errors
/// Where `/proc/uptime` cannot be read or does not begin with a number.
pub fn uptime(files: &(impl Files + ?Sized)) -> Result<u64> {
    let path = "/proc/uptime";
    let text = read_text(files, path)?;
    let seconds = text
        .split(['.', ' '])
        .next()
        .and_then(|word| word.parse().ok());
    seconds.ok_or_else(|| Error::parse(path, format!("'{text}' is no uptime")))
}

fn transparent_huge_pages(
    system: &dyn System,
    notes: &mut Notes,
) -> (Option<String>, Option<String>, Option<Bytes>) {
    let directory = Path::new(THP);
    if system.list(directory).is_err_and(|error| error.is_absent()) {
        let why = "not in this kernel (CONFIG_TRANSPARENT_HUGEPAGE)";
        notes.add("transparent huge pages", why);
        return (None, None, None);
    }
    let pmd = read_number(system, directory.join("hpage_pmd_size")).map(Bytes);
    let enabled = read_choice(system, directory.join("enabled"));
    let defrag = read_choice(system, directory.join("defrag"));
    (
        notes.keep("THP enabled", enabled),
        notes.keep("THP defrag", defrag),
        notes.keep_or("PMD size", "this kernel does not show hpage_pmd_size", pmd),
    )
}

/// Whether MGLRU is in use: bit 0 of `lru_gen/enabled`, a hexadecimal number
/// (`mm/vmscan.c`, 6.1 on). A kernel whose `/sys/kernel/mm` lacks it does not have it.
///
/// # Errors
/// Where the file, or without it `/sys/kernel/mm`, cannot be read, or it is no bit mask.
pub fn mglru(system: &dyn System) -> Result<bool> {
    let path = "/sys/kernel/mm/lru_gen/enabled";
    let text = match read_text(system, path) {
        Err(error) if error.is_absent() => {
            return system.list("/sys/kernel/mm".as_ref()).map(|_| false);
        }
        text => text?,
    };
    let bits = text
        .strip_prefix("0x")
        .and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let bits = bits.ok_or_else(|| Error::parse(path, format!("'{text}' is no bit mask")))?;
    Ok(bits & 1 != 0)
}

/// `cgroup1` where a hierarchy with the memory controller is mounted, `cgroup2` where the
/// unified hierarchy has it, `none` otherwise. A hybrid machine has the controller in one.
pub(crate) fn memory_cgroup(system: &dyn System) -> Result<String> {
    let mounts = read_lossy(system, "/proc/self/mounts")?;
    let mut unified = None;
    for line in mounts.lines() {
        let mut words = line.split_whitespace().skip(1);
        match (words.next(), words.next(), words.next()) {
            (_, Some("cgroup"), Some(options)) if options.split(',').any(|o| o == "memory") => {
                return Ok("cgroup1".to_owned());
            }
            (Some(at), Some("cgroup2"), Some(_)) => {
                unified.get_or_insert(Path::new(at));
            }
            _ => {}
        }
    }
    let Some(root) = unified else {
        return Ok("none".to_owned());
    };
    let controllers = read_text(system, root.join("cgroup.controllers"))?;
    let has_memory = controllers.split_whitespace().any(|name| name == "memory");
    Ok(if has_memory { "cgroup2" } else { "none" }.to_owned())
}

#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod tests;
