//! Platform around the CPU: machine name, IOMMU, hypervisor.

use std::collections::BTreeSet;

use crate::System;
use crate::error::{Error, Result};
use crate::files::{list_if_there, read_text};

const GROUPS: &str = "/sys/kernel/iommu_groups";

/// As `uname -m`. Kernels before 6.1 have no file for it; then it is what we were built for.
pub(super) fn architecture(system: &dyn System) -> String {
    read_text(system, "/proc/sys/kernel/arch").unwrap_or_else(|_| std::env::consts::ARCH.to_owned())
}

/// The domain types of all IOMMU groups (`DMA`, `DMA-FQ`, `identity`), joined by commas;
/// `none` where there is neither a group nor an IOMMU.
pub(super) fn iommu(system: &dyn System) -> Result<String> {
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
    let types = groups
        .iter()
        .map(|group| read_text(system, format!("{GROUPS}/{group}/type")))
        .collect::<Result<BTreeSet<String>>>()?;
    Ok(types.into_iter().collect::<Vec<_>>().join(","))
}

/// The hypervisor's name, `none` on bare metal, `unknown hypervisor` where the CPU says that
/// there is one and nothing names it. `guest` is what the CPU says; not every one does.
pub(super) fn hypervisor(system: &dyn System, guest: Option<bool>) -> Result<String> {
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
