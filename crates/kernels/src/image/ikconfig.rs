//! The configuration that a kernel carries (`CONFIG_IKCONFIG`): gzip between two marks.
//!
//! Lineage: Linux kernel/configs.c; scripts/extract-ikconfig looks for the same mark.

use super::{compressed, find};

/// No configuration is larger, in bytes.
pub(crate) const LARGEST: u64 = 8 << 20;

/// The text, or why there is none.
pub(super) fn text(kernel: &[u8]) -> Result<String, String> {
    const BEGIN: &[u8] = b"IKCFG_ST";
    const END: &[u8] = b"IKCFG_ED";
    let at =
        find(kernel, BEGIN).ok_or("the kernel was built without CONFIG_IKCONFIG=y")? + BEGIN.len();
    let rest = &kernel[at..];
    let end = find(rest, END).ok_or("the configuration in the kernel has no end")?;
    let text = compressed::all(&rest[..end], LARGEST)
        .map_err(|e| format!("the configuration in the kernel: {e}"))?;
    String::from_utf8(text).map_err(|_| "the configuration in the kernel is not text".to_owned())
}
