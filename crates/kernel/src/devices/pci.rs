//! PCI devices in `/sys`: what there is, which driver has them, and how one is handed to `vfio-pci`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::files::{Files, list_if_there};

/// Where `/sys` lists them.
const DEVICES: &str = "/sys/bus/pci/devices";
/// The file that hands a device to the driver it names.
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// The driver that hands devices to programs.
pub const VFIO_PCI: &str = "vfio-pci";

/// Where a device sits: `0000:00:04.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<PciAddress, String> {
        let parse = || {
            let (place, function) = text.split_once('.')?;
            let mut parts = place.rsplitn(3, ':');
            let (device, bus) = (parts.next()?, parts.next()?);
            let domain = parts.next().unwrap_or("0"); // as lspci(8) leaves it out
            let hex = |part: &str, most: u32| {
                let plain = part.bytes().all(|byte| byte.is_ascii_hexdigit());
                let value = u32::from_str_radix(part, 16).ok()?;
                (plain && value <= most).then_some(value)
            };
            Some(PciAddress {
                domain: hex(domain, u32::MAX)?,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 0x1f)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().ok_or_else(|| format!("'{text}' is no PCI address as 0000:00:04.0"))
    }
}

/// A device as `/sys` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u32,
    /// Device id, the vendor's own.
    pub device: u32,
    /// The driver that has it; `None`: none.
    pub driver: Option<String>,
    /// Its IOMMU group; `None`: no IOMMU is at work for it.
    pub group: Option<u32>,
}

fn place(address: PciAddress, file: &str) -> PathBuf {
    Path::new(DEVICES).join(address.to_string()).join(file)
}

fn hexadecimal<S: Files + ?Sized>(system: &S, path: &Path) -> Result<u32> {
    let bytes = system.read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).map_err(|error| Error::parse(path.display(), error))
}

/// The last part of where a link points; `None` where there is no such link.
fn link_name<S: Files + ?Sized>(system: &S, path: &Path) -> Result<Option<String>> {
    match system.link(path) {
        Ok(target) => Ok(target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns one device as `/sys` shows it.
///
/// # Errors
/// Where there is none at this address, or `/sys` reads otherwise than expected.
pub fn device<S: Files + ?Sized>(system: &S, address: PciAddress) -> Result<PciDevice> {
    let group = link_name(system, &place(address, "iommu_group"))?;
    Ok(PciDevice {
        address,
        vendor: hexadecimal(system, &place(address, "vendor"))?,
        device: hexadecimal(system, &place(address, "device"))?,
        driver: link_name(system, &place(address, "driver"))?,
        group: group.and_then(|number| number.parse().ok()),
    })
}

/// All devices, by address; none on a machine without PCI.
///
/// # Errors
/// Those of [`device`].
pub fn devices<S: Files + ?Sized>(system: &S) -> Result<Vec<PciDevice>> {
    let names = list_if_there(system, DEVICES)?;
    let mut addresses: Vec<PciAddress> =
        names.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort_unstable();
    addresses
        .into_iter()
        .map(|address| device(system, address))
        .collect()
}

/// Hands a device that no driver has to `vfio-pci`. For a guest of ours alone: on a machine of somebody's it is for its
/// owner to say which device a program may have.
///
/// # Errors
/// Where a driver has it, the module is not loaded, or root's files refuse.
pub fn hand_over<S: Files + ?Sized>(system: &S, address: PciAddress) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::unsupported(
            format!("handing {address} to {VFIO_PCI}"),
            why,
        ))
    };
    match device(system, address)?.driver.as_deref() {
        Some(VFIO_PCI) => return Ok(()),
        Some(driver) => return refuse(&format!("the driver {driver} has it")),
        None => {}
    }
    system.write(&place(address, "driver_override"), VFIO_PCI.as_bytes())?;
    system.write(Path::new(PROBE), address.to_string().as_bytes())?;
    match device(system, address)?.driver.as_deref() {
        Some(VFIO_PCI) => Ok(()),
        _ => refuse("the module vfio-pci is not loaded, or refused it"),
    }
}
