//! What the machine is: one line on the first screen, and in every run record so that two runs
//! can be compared.
//!
//! It only reads, about 100 small files; on Linux 6.18 it takes 1.4 ms. Where a file lacks
//! or cannot be read the field is `None` and `missing` says why.

mod config;

use std::collections::BTreeSet;
use std::path::Path;

use stopgap_events::machine::{Environment, Missing, Pressure, Privilege};
use stopgap_events::units::Bytes;

use crate::System;
use crate::budget::meminfo;
use crate::error::{Error, Result};
use crate::files::{Files, list_if_there, read_choice, read_lossy, read_number, read_text};
use crate::notes::Notes;
use crate::proc::{self, each_line, field};
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
    let swap = notes.keep("swap", read_swap(system));
    let held = read_privilege(system, &mut notes);
    let cpu = read_cpu(system, &mut notes);
    let (pressure_before, no_pressure) = pressure(system);
    notes.missing.extend(no_pressure);
    if hz.is_none() && config.is_some() {
        let why = "no CONFIG_HZ in the kernel configuration";
        notes.add("timer frequency", why);
    }

    Environment {
        host: notes.text("host name", system, "/proc/sys/kernel/hostname"),
        kernel,
        architecture: Some(architecture(system)),
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
        iommu: notes.keep("IOMMU", iommu(system)),
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
        hypervisor: notes.keep("hypervisor", hypervisor(system, cpu.guest)),
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
            .keep("RLIMIT_MEMLOCK", memlock_limit(system))
            .flatten(),
        pressure_before,
        pressure_after: Vec::new(),
        conditions: None,
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

// Platform around the CPU: machine name, IOMMU, hypervisor.

const GROUPS: &str = "/sys/kernel/iommu_groups";

/// As `uname -m`. Kernels before 6.1 have no file for it; then it is what we were built for.
fn architecture(system: &dyn System) -> String {
    read_text(system, "/proc/sys/kernel/arch").unwrap_or_else(|_| std::env::consts::ARCH.to_owned())
}

/// The domain types of all IOMMU groups (`DMA`, `DMA-FQ`, `identity`), joined by commas;
/// `none` where there is neither a group nor an IOMMU.
fn iommu(system: &dyn System) -> Result<String> {
    system.list("/sys/kernel".as_ref())?; // without sysfs nothing is known
    // A kernel without IOMMU support has neither directory.
    let groups = list_if_there(system, GROUPS)?;
    if groups.is_empty() {
        let mut units = list_if_there(system, "/sys/class/iommu")?;
        units.sort_unstable();
        return match units.as_slice() {
            [] => Ok("none".to_owned()),
            units => Err(Error::unsupported(
                format!("an IOMMU is there ({})", units.join(", ")),
                "but no device is in a group of it",
            )),
        };
    }
    let mut types = BTreeSet::new();
    for group in &groups {
        types.insert(read_text(system, format!("{GROUPS}/{group}/type"))?);
    }
    Ok(types.into_iter().collect::<Vec<_>>().join(","))
}

/// The hypervisor's name, `none` on bare metal, `unknown hypervisor` where the CPU says that
/// there is one and nothing names it. `guest` is what the CPU says; not every one does.
fn hypervisor(system: &dyn System, guest: Option<bool>) -> Result<String> {
    if let Ok(kind) = read_text(system, "/sys/hypervisor/type") {
        return Ok(kind);
    }
    let dmi = |name: &str| read_text(system, format!("/sys/class/dmi/id/{name}")).ok();
    let words: Vec<String> = ["sys_vendor", "product_name"]
        .into_iter()
        .filter_map(dmi)
        .collect();
    let name = words.join(" ");
    match guest {
        Some(false) => Ok("none".to_owned()),
        Some(true) if name.is_empty() => Ok("unknown hypervisor".to_owned()),
        Some(true) => Ok(name),
        // Firmware of virtual machines names itself so.
        None if [
            "QEMU",
            "KVM",
            "VMware",
            "Virtual",
            "Amazon EC2",
            "Google Compute",
        ]
        .iter()
        .any(|maker| name.contains(maker)) =>
        {
            Ok(name)
        }
        None => Err(Error::unsupported(
            "not said",
            "this CPU does not tell whether it is virtual",
        )),
    }
}

// The processor, and how its vulnerabilities are met.

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

/// The first CPU by `/proc/cpuinfo` and `/sys`.
#[derive(Debug, Default)]
struct Cpu {
    model: Option<String>,
    microcode: Option<String>,
    mitigations: Vec<String>,
    /// Whether the CPU says that it runs under a hypervisor; only x86 has a word for it.
    guest: Option<bool>,
}

fn read_cpu(system: &dyn System, notes: &mut Notes) -> Cpu {
    let mut cpu = Cpu {
        mitigations: mitigations(system, notes),
        ..Cpu::default()
    };
    let Some(info) = notes.keep("CPU", read_lossy(system, "/proc/cpuinfo")) else {
        return cpu;
    };
    cpu.model = model(&info);
    if cpu.model.is_none() {
        let error = Error::parse("/proc/cpuinfo", "no model name, CPU part, cpu or uarch");
        notes.add("CPU model", error.to_string());
    }
    cpu.microcode = field(&info, "microcode")
        .map(str::to_owned)
        .or_else(|| read_text(system, "/sys/devices/system/cpu/cpu0/microcode/version").ok());
    if cpu.microcode.is_none() {
        notes.add(
            "microcode",
            "the kernel does not show a revision for this CPU",
        );
    }
    cpu.guest = field(&info, "flags").map(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    cpu
}

/// The model as each architecture names it: x86 and others in words, arm64 by the numbers of
/// designer and part, powerpc and riscv by their own lines.
fn model(info: &str) -> Option<String> {
    if let Some(part) = field(info, "CPU part") {
        let implementer = field(info, "CPU implementer").unwrap_or("unknown");
        return Some(format!("implementer {implementer} part {part}"));
    }
    let line = ["model name", "cpu model", "cpu", "uarch"]
        .into_iter()
        .find_map(|name| field(info, name));
    line.map(str::to_owned)
}

fn mitigations(system: &dyn System, notes: &mut Notes) -> Vec<String> {
    let names = system.list(VULNERABILITIES.as_ref());
    let names = notes.keep_or("mitigations", "this kernel does not list them", names);
    let mut names = names.unwrap_or_default();
    names.sort_unstable();
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let state = read_text(system, format!("{VULNERABILITIES}/{name}"));
        let state = notes.keep(&format!("mitigation of {name}"), state);
        all.extend(state.map(|state| format!("{name}: {state}")));
    }
    all
}

// Privilege of this process.

/// The capabilities that matter here and their numbers (`include/uapi/linux/capability.h`).
const CAPABILITIES: [(&str, u32); 8] = [
    ("CAP_SYS_ADMIN", 21),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
    ("CAP_SYSLOG", 34),
    ("CAP_SYS_NICE", 23),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_RESOURCE", 24),
];

/// Privilege of this process, and the capabilities that it stands on.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) privilege: Privilege,
    pub(crate) capabilities: Vec<String>,
}

impl Held {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.capabilities.iter().any(|held| held == name)
    }
}

/// Effective capabilities. Those that hold only inside a user namespace count as none: pagemap,
/// perf and `/proc` of others ask the first one.
pub(crate) fn read_privilege(system: &dyn System, notes: &mut Notes) -> Held {
    let mask = notes.keep("capabilities", effective(system)).unwrap_or(0);
    let mut capabilities: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| mask >> bit & 1 == 1)
        .map(|(name, _)| (*name).to_owned())
        .collect();
    if !capabilities.is_empty() && in_user_namespace(system) {
        let held = capabilities.join(" ");
        let why = format!("{held} hold only inside this user namespace");
        notes.add("capabilities", why);
        capabilities.clear();
    }
    let privilege = match capabilities.first().map(String::as_str) {
        Some("CAP_SYS_ADMIN") => Privilege::Root,
        Some(_) => Privilege::Some,
        None => Privilege::None,
    };
    Held {
        privilege,
        capabilities,
    }
}

fn effective(files: &(impl Files + ?Sized)) -> Result<u64> {
    let path = "/proc/self/status";
    let status = crate::files::read_lossy(files, path)?;
    let mask = field(&status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    mask.ok_or_else(|| Error::parse(path, "no line 'CapEff: ...'"))
}

/// The first user namespace maps every id to itself.
fn in_user_namespace(files: &(impl Files + ?Sized)) -> bool {
    let map = read_text(files, "/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().ne(["0", "0", "4294967295"]))
}

/// The soft limit on locked memory (`RLIMIT_MEMLOCK`); `None`: unlimited.
///
/// # Errors
/// Where `/proc/self/limits` cannot be read or does not have it.
pub fn memlock_limit(files: &(impl Files + ?Sized)) -> Result<Option<Bytes>> {
    let path = "/proc/self/limits";
    let text = read_text(files, path)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let word = line.and_then(|line| line.split_whitespace().next());
    if word == Some("unlimited") {
        return Ok(None);
    }
    let limit = word.and_then(|word| word.parse().ok()).map(Bytes);
    let none = || Error::parse(path, "no limit in the line 'Max locked memory'");
    limit.map(Some).ok_or_else(none)
}

// Swap, by kind.

const SWAPS: &str = "/proc/swaps";

/// All swap together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Swap {
    /// `none`, or the kinds joined by `+`.
    pub(crate) kind: String,
    pub(crate) size: Bytes,
}

pub(crate) fn read_swap(files: &(impl Files + ?Sized)) -> Result<Swap> {
    match read_lossy(files, SWAPS) {
        Ok(text) => parse_swap(&text),
        // A kernel without CONFIG_SWAP does not have the file and says that there is none.
        Err(error) if error.is_absent() && meminfo(files, "SwapTotal")? == Bytes(0) => {
            parse_swap("")
        }
        Err(error) => Err(error),
    }
}

fn parse_swap(text: &str) -> Result<Swap> {
    let mut kinds = BTreeSet::new();
    let mut size = Bytes(0);
    let mut is_head = true;
    each_line(SWAPS, text, |line| {
        if std::mem::take(&mut is_head) {
            return Ok(());
        }
        // Blanks in a name are printed as \040.
        let words: Vec<&str> = line.split_whitespace().collect();
        let broken = || format!("'{line}' is no swap");
        let [name, kind, kib, ..] = words[..] else {
            return Err(broken());
        };
        let bytes: Option<u64> = kib.parse().ok().and_then(|kib: u64| kib.checked_mul(1024));
        let sum = bytes.and_then(|bytes| bytes.checked_add(size.0));
        size = Bytes(sum.ok_or_else(broken)?);
        let zram = name.starts_with("/dev/zram");
        kinds.insert(if zram { "zram" } else { kind });
        Ok(())
    })?;
    let kind = match kinds.is_empty() {
        true => "none".to_owned(),
        false => kinds.into_iter().collect::<Vec<_>>().join("+"),
    };
    Ok(Swap { kind, size })
}

#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod tests;
