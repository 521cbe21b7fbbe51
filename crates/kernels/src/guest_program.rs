//! The program that is the guest's /init: found, and looked at before anything is booted with it.

use std::borrow::Cow;

use stopgap_events::units::Bytes;
use stopgap_helpers::{Helper, Place};

use crate::Architecture;
use crate::{Error, Result, elf};

/// How to build the program for arm64 where this program is for x86-64.
const CROSS_BUILD: &str = "checks/aarch64-guest/build FOLDER, on Debian 12";

/// Larger is no guest program.
const LARGEST: Bytes = Bytes::mib(64);

/// Reads the program and checks that a guest of this architecture can run it.
///
/// # Errors
/// Where the program is missing or cannot be run in a guest ([`Error::is_unsupported`]): which file, why, and what to do.
pub fn read(architecture: Architecture) -> Result<Cow<'static, [u8]>> {
    let advice = match architecture {
        Architecture::Aarch64 if cfg!(target_arch = "x86_64") => format!(
            "build it ({CROSS_BUILD}), or name it with {}=FILE",
            Helper::Guest.variable()
        ),
        _ => Helper::Guest.advice(),
    };
    let Some(place) = Helper::Guest.find() else {
        return Err(Error::unsupported(Helper::Guest.missing()));
    };
    let shown = match &place {
        Place::Named(path) => format!("{} (named by {})", path.display(), Helper::Guest.variable()),
        Place::BuiltIn(_) => "built into this command".to_owned(),
        Place::Beside(path) | Place::Library(path) => path.display().to_string(),
    };
    let refuse =
        |why: &str| Error::unsupported(format!("the guest's program {shown}: {why}; {advice}"));
    if let Ok(path) = place.path() {
        let file = std::fs::metadata(path).map_err(|error| refuse(&error.to_string()))?;
        if !file.is_file() || file.len() > LARGEST.0 {
            return Err(refuse("it is no program"));
        }
    }
    let bytes = place.read(LARGEST.0);
    let bytes = bytes.map_err(|error| refuse(&error.to_string()))?;
    check(&bytes, architecture).map_err(|why| refuse(&why))?;
    Ok(bytes)
}

/// A static ELF program of 64 bits for that architecture: a guest has no libraries to load.
fn check(bytes: &[u8], architecture: Architecture) -> std::result::Result<(), String> {
    if !bytes.starts_with(elf::MAGIC) {
        return Err("it is no ELF program of 64 bits".to_owned());
    }
    let machine = match elf::number_at::<2>(bytes, 18) {
        Some(62) => "x86_64",
        Some(183) => "aarch64",
        _ => "another architecture",
    };
    if machine != architecture.name() {
        return Err(format!(
            "it is for {machine}, the kernels for {architecture}"
        ));
    }
    match elf::is_dynamic(bytes) {
        Some(false) => Ok(()),
        Some(true) => Err("it is not static".to_owned()),
        None => Err("it is truncated".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one program header of this kind.
    fn elf(machine: u8, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = machine;
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
    }

    #[test]
    fn only_a_static_program_of_the_architecture_will_do() {
        use Architecture::{Aarch64, X86_64};
        // Tables that end beyond all that 64 bits can name.
        let mut far = elf(62, 1);
        far[32..40].fill(0xff);
        far[54..58].fill(0xff);
        for (bytes, architecture, expected) in [
            (elf(62, 1), X86_64, ""),
            (elf(183, 1), Aarch64, ""),
            (elf(62, 3), X86_64, "it is not static"),
            (
                elf(183, 1),
                X86_64,
                "it is for aarch64, the kernels for x86_64",
            ),
            (
                elf(3, 1),
                X86_64,
                "it is for another architecture, the kernels for x86_64",
            ),
            (
                b"#!/bin/sh\n".to_vec(),
                X86_64,
                "it is no ELF program of 64 bits",
            ),
            (Vec::new(), X86_64, "it is no ELF program of 64 bits"),
            (far, X86_64, "it is truncated"),
        ] {
            let why = check(&bytes, architecture).err().unwrap_or_default();
            assert_eq!(why, expected);
        }
        let whole = elf(62, 1);
        for end in 0..whole.len() - 56 + 4 {
            assert!(check(&whole[..end], X86_64).is_err(), "{end}");
        }
        // This test's own program loads libraries.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let told = check(&own, X86_64).or(check(&own, Aarch64));
        assert_eq!(told.is_ok(), cfg!(target_feature = "crt-static"));
    }
}
