use super::*;
use crate::devices::pci::{self, PciAddress};
use crate::fake::Fake;
use stopgap_testing::assert_contains;

#[test]
fn names_read_back() {
    let path = Maker::Path("/dev/stopgap_walk".into());
    for maker in Maker::NAMED.into_iter().chain([path]) {
        assert_eq!(maker.to_string().parse(), Ok(maker));
    }
    let error = "drm".parse::<Maker>().unwrap_err();
    assert_contains(&error, &["vgem, dma-heap, udmabuf, gl, device:PATH"]);
    assert_contains("device:null".parse::<Maker>().unwrap_err(), &["whole path"]);
}

#[test]
fn addresses_read_back() {
    for text in ["0000:00:04.0", "0001:ff:1f.7", "10000:e1:00.0"] {
        assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
    }
    assert_eq!("00:04.0".parse::<PciAddress>(), "0000:00:04.0".parse());
    for wrong in [
        "",
        "04.0",
        "00:04",
        "00:20.0",
        "00:04.8",
        "0:100:04.0",
        "g0:04.0",
        "+0:04.0",
        "a:b:c:d.0",
    ] {
        assert!(wrong.parse::<PciAddress>().is_err(), "{wrong}");
    }
}

fn machine() -> Fake {
    Fake::default()
        .with_file("/sys/bus/pci/devices/0000:00:04.0/vendor", "0x1234\n")
        .with_file("/sys/bus/pci/devices/0000:00:04.0/device", "0x11e8\n")
        .with_file(
            "/sys/bus/pci/devices/0000:00:04.0/driver_override",
            "(null)\n",
        )
        .with_file("/sys/bus/pci/drivers_probe", "")
}

#[test]
fn a_device_without_driver_and_iommu_is_shown_so() {
    let found = pci::devices(&machine()).unwrap();
    let expected = pci::PciDevice {
        address: "0000:00:04.0".parse().unwrap(),
        vendor: 0x1234,
        device: 0x11e8,
        driver: None,
        group: None,
    };
    assert_eq!(found, [expected]);
    assert_eq!(pci::devices(&Fake::default()).unwrap(), []);
}

/// A driver that does not take it is no success.
#[test]
fn handing_over_is_checked() {
    let machine = machine();
    let address = "0000:00:04.0".parse().unwrap();
    let error = pci::hand_over(&machine, address).unwrap_err().to_string();
    assert!(error.contains("module vfio-pci is not loaded"), "{error}");
    let asked = machine.content("/sys/bus/pci/devices/0000:00:04.0/driver_override");
    assert_eq!(asked.as_deref(), Some("vfio-pci"));
    let refusing = self::machine().read_only("/sys/bus/pci/drivers_probe");
    assert!(pci::hand_over(&refusing, address).unwrap_err().is_refused());
}
