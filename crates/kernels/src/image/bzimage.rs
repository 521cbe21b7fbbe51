//! The x86 boot protocol's header: what the kernel is, before it is unpacked.
//!
//! Lineage: Linux Documentation/arch/x86/boot.rst. Offsets are from the start of the file.

use super::{Compression, text_at, unpack};
use crate::elf::number_at;

/// Sectors of the setup code, 512 bytes each; 0 stands for 4.
const SETUP_SECTS: usize = 0x1f1;
/// Length of the protected-mode code in paragraphs of 16 bytes.
const SYSSIZE: usize = 0x1f4;
const BOOT_FLAG: usize = 0x1fe;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
/// Where the version's text is, less 0x200.
const KERNEL_VERSION: usize = 0x20e;
const LOADFLAGS: usize = 0x211;
const XLOADFLAGS: usize = 0x236;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Whether it is meant to be one: the boot sector's mark and the header's.
pub(super) fn is(bytes: &[u8]) -> bool {
    number_at::<2>(bytes, BOOT_FLAG) == Some(0xaa55) && bytes.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
}

fn setup_bytes(bytes: &[u8]) -> usize {
    let sectors = match bytes.get(SETUP_SECTS).copied().unwrap_or(0) {
        0 => 4,
        sectors => usize::from(sectors),
    };
    (sectors + 1) * 512
}

/// Checks the header. Returns the text of the kernel's version, `6.12.117+deb12-cloud-amd64 (debian-kernel@...) #1 SMP ...`.
pub(super) fn version(bytes: &[u8]) -> Result<Option<String>, String> {
    let cut = || "truncated: the header is not whole".to_owned();
    let protocol = number_at::<2>(bytes, VERSION).ok_or_else(cut)?;
    if protocol < 0x020c {
        return Err(format!(
            "boot protocol {}.{:02}, older than 2.12 (Linux 3.8)",
            protocol >> 8,
            protocol & 0xff
        ));
    }
    let flags = *bytes.get(LOADFLAGS).ok_or_else(cut)?;
    if flags & 1 == 0 {
        return Err("a zImage, loaded low: give a bzImage".to_owned());
    }
    let xflags = number_at::<2>(bytes, XLOADFLAGS).ok_or_else(cut)?;
    if xflags & 1 == 0 {
        return Err("a 32-bit x86 kernel: only 64-bit ones run the guest program".to_owned());
    }
    let code = number_at::<4>(bytes, SYSSIZE).ok_or_else(cut)? * 16;
    let whole = setup_bytes(bytes) as u64 + code;
    // The last paragraph need not be full.
    if (bytes.len() as u64) + 15 < whole {
        return Err(format!("truncated: {} of {whole} bytes", bytes.len()));
    }
    let at = number_at::<2>(bytes, KERNEL_VERSION).ok_or_else(cut)? as usize;
    Ok((at != 0).then(|| text_at(bytes, at + 0x200, 512)).flatten())
}

/// The kernel proper (an ELF file), unpacked.
pub(super) fn payload(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let part = || {
        let at = setup_bytes(bytes).checked_add(number_at::<4>(bytes, PAYLOAD_OFFSET)? as usize)?;
        let length = number_at::<4>(bytes, PAYLOAD_LENGTH)? as usize;
        bytes.get(at..at.checked_add(length)?)
    };
    let part = part().ok_or("the header's payload lies outside of the file")?;
    match Compression::of(part) {
        // gzip's own trailer ends in the length of the kernel, so nothing follows it.
        Compression::Gzip => unpack(part),
        // The other programs' files do not end in it, and the build appends it (`size_append` in scripts/Makefile.lib);
        // zstd would take it for another frame.
        Compression::Zstd | Compression::Xz => {
            unpack(part.get(..part.len().saturating_sub(4)).unwrap_or(part))
        }
        Compression::None => Ok(part.to_vec()),
        Compression::Other(name) => Err(format!(
            "the kernel is compressed by {name}, which is not read here"
        )),
    }
}
