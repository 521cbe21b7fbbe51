//! The processor, and how its vulnerabilities are met.

use crate::System;
use crate::error::Error;
use crate::files::{read_lossy, read_text};
use crate::notes::Notes;
use crate::proc::field;

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

/// The first CPU by `/proc/cpuinfo` and `/sys`.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) model: Option<String>,
    pub(super) microcode: Option<String>,
    pub(super) mitigations: Vec<String>,
    /// Whether the CPU says that it runs under a hypervisor; only x86 has a word for it.
    pub(super) guest: Option<bool>,
}

pub(super) fn read(system: &dyn System, notes: &mut Notes) -> Cpu {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_names_its_model_otherwise() {
        let x86 =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(model(x86).as_deref(), Some("AMD EPYC"));
        let arm =
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        assert_eq!(model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";
        assert_eq!(model(power).as_deref(), Some("POWER9, altivec supported"));
        assert_eq!(model("processor\t: 0\n"), None);
    }
}
