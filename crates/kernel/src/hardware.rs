//! What a machine is made of, in the words of its firmware and drivers: its model, its disks, its GPUs.
//!
//! Some 20 small files of `/sys`, which every user may read: no serial number is among them.

use std::collections::BTreeMap;

use stopgap_events::order::Inserted as _;

use crate::files::{Files, list_if_there, read_text};

/// Firmware says this, in lower case, where its maker filled nothing in.
const NOT_FILLED_IN: [&str; 9] = [
    "to be filled by o.e.m.",
    "o.e.m.",
    "oem",
    "system manufacturer",
    "system product name",
    "default string",
    "not specified",
    "none",
    "unknown",
];

/// Returns maker and model of the machine: of DMI, or of the device tree; `None` where neither says.
pub fn model<F: Files + ?Sized>(files: &F) -> Option<String> {
    let dmi = |name: &str| said(files, &format!("/sys/class/dmi/id/{name}"));
    let maker = dmi("sys_vendor");
    // Lenovo's product name is an order number, of which a model has many.
    let product = match maker.as_deref() {
        Some("LENOVO") => dmi("product_version").or_else(|| dmi("product_name")),
        _ => dmi("product_name"),
    };
    match (maker, product) {
        (Some(maker), Some(product)) if !product.starts_with(&maker) => {
            Some(format!("{maker} {product}"))
        }
        (_, Some(product)) => Some(product),
        _ => said(files, "/proc/device-tree/model"),
    }
}

/// Returns models of disks and drivers of GPUs, by the kernel's names: `nvme0n1` is `Samsung SSD 980 PRO 1TB`, `card0` is `amdgpu 1002:73BF`.
/// A disk without a model has its driver; what has neither is left out.
pub fn devices<F: Files + ?Sized>(files: &F) -> BTreeMap<String, String> {
    let names = |folder: &str| list_if_there(files, folder).unwrap_or_default();
    let disks = names("/sys/block").into_iter().filter_map(|name| {
        let device = format!("/sys/block/{name}/device");
        // SCSI, ATA and NVMe have a model, memory cards a name.
        let model = ["model", "name"]
            .iter()
            .find_map(|file| said(files, &format!("{device}/{file}")))
            .or_else(|| property(files, &device, "DRIVER"))?;
        Some((name, model))
    });
    let gpus = names("/sys/class/drm").into_iter().filter_map(|name| {
        // Others are connectors (card0-HDMI-A-1) and the same GPU once more (renderD128).
        let number = name.strip_prefix("card")?;
        let _: u32 = number.parse().ok()?;
        let device = format!("/sys/class/drm/{name}/device");
        let driver = property(files, &device, "DRIVER")?;
        let chip = property(files, &device, "PCI_ID")
            .or_else(|| property(files, &device, "OF_COMPATIBLE_0"));
        Some(match chip {
            Some(chip) => (name, format!("{driver} {chip}")),
            None => (name, driver),
        })
    });
    disks.chain(gpus).inserted()
}

/// Returns a line of text without blanks around it; `None` where it says nothing.
fn said<F: Files + ?Sized>(files: &F, path: &str) -> Option<String> {
    let text = read_text(files, path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let nothing = text.is_empty() || NOT_FILLED_IN.contains(&text.to_lowercase().as_str());
    (!nothing && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// Returns what a device's `uevent` says of a property.
fn property<F: Files + ?Sized>(files: &F, device: &str, name: &str) -> Option<String> {
    let text = read_text(files, format!("{device}/uevent")).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn dmi(maker: &str, product: &str) -> Fake {
        Fake::default()
            .with_file("/sys/class/dmi/id/sys_vendor", format!("{maker}\n"))
            .with_file("/sys/class/dmi/id/product_name", format!("{product}\n"))
    }

    #[test]
    fn models_of_machines() {
        let of = |fake: Fake| model(&fake);
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(of(Fake::default()), None);
        assert_eq!(
            of(dmi("Dell Inc.", "XPS 13 9310")),
            said("Dell Inc. XPS 13 9310")
        );
        assert_eq!(of(dmi("HP", "HP EliteBook 840 ")), said("HP EliteBook 840"));
        assert_eq!(of(dmi("System manufacturer", "System Product Name")), None);
        assert_eq!(of(dmi("", "Standard PC")), said("Standard PC"));
        let order_number = dmi("LENOVO", "20XW0026GE");
        assert_eq!(of(order_number), said("LENOVO 20XW0026GE"));
        let lenovo = dmi("LENOVO", "20XW0026GE").with_file(
            "/sys/class/dmi/id/product_version",
            "ThinkPad X1 Carbon Gen 9\n",
        );
        assert_eq!(of(lenovo), said("LENOVO ThinkPad X1 Carbon Gen 9"));
        let board =
            Fake::default().with_file("/proc/device-tree/model", "Raspberry Pi 5 Model B\0");
        assert_eq!(of(board), said("Raspberry Pi 5 Model B"));
    }

    #[test]
    fn disks_and_gpus() {
        assert!(devices(&Fake::default()).is_empty());
        let fake = Fake::default()
            .with_file(
                "/sys/block/nvme0n1/device/model",
                "Samsung SSD 980 PRO 1TB                 \n",
            )
            .with_file("/sys/block/mmcblk0/device/name", "SD64G\n")
            .with_file(
                "/sys/block/vda/device/uevent",
                "DRIVER=virtio_blk\nMODALIAS=virtio:d2v0\n",
            )
            .with_file("/sys/block/loop0/ro", "0\n")
            .with_file(
                "/sys/class/drm/card0/device/uevent",
                "DRIVER=amdgpu\nPCI_ID=1002:73BF\n",
            )
            .with_file("/sys/class/drm/card1/device/uevent", "DRIVER=vgem\n")
            .with_file("/sys/class/drm/card0-HDMI-A-1/device/uevent", "DRIVER=no\n")
            .with_file("/sys/class/drm/version", "drm 1.1.0\n");
        let told: Vec<(String, String)> = devices(&fake).into_iter().collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(name, what)| (&**name, &**what)).collect();
        assert_eq!(
            told,
            [
                ("card0", "amdgpu 1002:73BF"),
                ("card1", "vgem"),
                ("mmcblk0", "SD64G"),
                ("nvme0n1", "Samsung SSD 980 PRO 1TB"),
                ("vda", "virtio_blk"),
            ]
        );
    }
}
