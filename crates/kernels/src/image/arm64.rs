//! arm64's `Image`: as it is, in gzip, or in the EFI envelope (`CONFIG_EFI_ZBOOT`).
//!
//! Lineage: Linux Documentation/arch/arm64/booting.rst; drivers/firmware/efi/libstub/zboot-header.S.

use super::{Compression, find, text_at};
use crate::elf::number_at;

const MAGIC: usize = 56;
const IMAGE_SIZE: usize = 16;
const FLAGS: usize = 24;

fn is(bytes: &[u8]) -> bool {
    bytes.get(MAGIC..MAGIC + 4) == Some(b"ARM\x64")
}

/// The image itself; `None` where it is something else.
fn unpacked(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if is(bytes) {
        return Ok(Some(bytes.to_vec()));
    }
    // "MZ", then "zimg", where the payload lies, how long it is, and by what it is compressed.
    if bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg") {
        let part = || {
            let at = number_at::<4>(bytes, 8)? as usize;
            let length = number_at::<4>(bytes, 12)? as usize;
            bytes.get(at..at.checked_add(length)?)
        };
        let part =
            part().ok_or("truncated: the payload of the EFI envelope lies outside of the file")?;
        let kernel = match Compression::of(part) {
            Compression::None => {
                return Err("an EFI envelope of something that is not read here".to_owned());
            }
            Compression::Gzip | Compression::Xz | Compression::Zstd | Compression::Other(_) => {
                super::unpack(part)?
            }
        };
        return if is(&kernel) {
            Ok(Some(kernel))
        } else {
            Err("an EFI envelope, but not of an arm64 kernel".to_owned())
        };
    }
    if Compression::of(bytes) == Compression::Gzip {
        let kernel = super::unpack(bytes)
            .map_err(|why| format!("a gzip file that does not decompress: {why}"))?;
        return if is(&kernel) {
            Ok(Some(kernel))
        } else {
            Err(format!(
                "a gzip file of this: {}",
                super::refuse::why(&kernel)
            ))
        };
    }
    Ok(None)
}

/// As [`unpacked`], and whole, and little-endian.
pub(super) fn unpack(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(kernel) = unpacked(bytes)? else {
        return Ok(None);
    };
    let flags = number_at::<8>(&kernel, FLAGS).ok_or("truncated: the header is not whole")?;
    if flags & 1 == 1 {
        return Err("a big-endian arm64 kernel".to_owned());
    }
    // The size counts memory that the file need not have (bss); a file that is a tenth of it is cut.
    let size = number_at::<8>(&kernel, IMAGE_SIZE).ok_or("truncated: the header is not whole")?;
    if size != 0 && (kernel.len() as u64) < size / 10 {
        return Err(format!(
            "truncated: {} bytes of an image that takes {size}",
            kernel.len()
        ));
    }
    Ok(Some(kernel))
}

/// Returns the text behind `Linux version ` in the image.
pub(super) fn version(kernel: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"Linux version ";
    let mut from = 0;
    loop {
        let at = from + find(kernel.get(from..)?, BEFORE)? + BEFORE.len();
        // The same words stand in a format string, too.
        if kernel.get(at).is_some_and(u8::is_ascii_digit) {
            return text_at(kernel, at, 512);
        }
        from = at;
    }
}
