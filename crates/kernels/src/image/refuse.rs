//! Names a file that is no kernel for us by its first bytes.

use super::find;
use crate::elf::number_at;

/// Machines of ELF files, by `e_machine`.
const MACHINES: [(u64, &str); 11] = [
    (2, "SPARC"),
    (3, "32-bit x86"),
    (8, "MIPS"),
    (20, "32-bit PowerPC"),
    (21, "64-bit PowerPC"),
    (22, "s390"),
    (40, "32-bit Arm"),
    (43, "64-bit SPARC"),
    (62, "x86_64"),
    (183, "arm64"),
    (243, "RISC-V"),
];

/// The reason, with what to give instead.
pub(super) fn why(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "an empty file".to_owned();
    }
    if bytes.starts_with(b"\x7fELF") {
        return elf(bytes);
    }
    let named = match bytes {
        [0xed, 0xab, 0xee, 0xdb, ..] => "an RPM package: unpack it (rpm2cpio) and give its vmlinuz",
        [b'0', b'7', b'0', b'7', b'0', ..] => "an initramfs, not a kernel",
        [0x27, 0x05, 0x19, 0x56, ..] => {
            "a U-Boot image: give the Image or bzImage that it was made of"
        }
        [b'P', b'K', 3, 4, ..] => "a zip archive",
        [b'M', b'Z', ..] if find(bytes, b"Xen").is_some() => "a Xen hypervisor, not a Linux kernel",
        [b'M', b'Z', ..] => "an EFI program without a Linux kernel's header",
        _ if riscv(bytes) => "a kernel for RISC-V",
        _ if arm32(bytes) => "a kernel for 32-bit Arm",
        _ if text(bytes) => {
            "a text file, not a kernel: give a bzImage, a Debian linux-image package or \"host\""
        }
        _ if bytes.len() < 1024 => "too short for a kernel",
        _ => "neither a bzImage, nor an arm64 Image, nor a Debian package",
    };
    named.to_owned()
}

/// Whether its beginning is nothing but text.
fn text(bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(4096)];
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        // The last character may be cut.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&first[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

fn riscv(bytes: &[u8]) -> bool {
    bytes.get(56..60) == Some(b"RSC\x05")
}

fn arm32(bytes: &[u8]) -> bool {
    // zImage's mark.
    bytes.get(36..40) == Some(&[0x18, 0x28, 0x6f, 0x01])
}

fn elf(bytes: &[u8]) -> String {
    // Byte order matters: s390 and some others are big-endian.
    let machine = number_at::<2>(bytes, 18).map(|machine| match bytes.get(5) {
        Some(2) => machine.swap_bytes() >> 48,
        _ => machine,
    });
    let on = machine
        .and_then(|machine| MACHINES.iter().find(|(number, _)| *number == machine))
        .map_or("a machine that is not known here", |(_, name)| *name);
    // A kernel that can run under Xen has notes of that name, too, but its own banner as well.
    if find(bytes, b"Linux version ").is_some() {
        return match on {
            "x86_64" => "a vmlinux: give the bzImage beside it (arch/x86/boot/bzImage)".to_owned(),
            "arm64" => "a vmlinux: give the Image beside it (arch/arm64/boot/Image)".to_owned(),
            on => format!("a kernel for {on}"),
        };
    }
    if find(bytes, b"Xen").is_some() {
        return "a Xen hypervisor, not a Linux kernel".to_owned();
    }
    format!("an ELF file for {on}, not a kernel")
}
