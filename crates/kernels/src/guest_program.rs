//! The program that is the guest's /init: found, and looked at before anything is booted with it.

use std::path::PathBuf;

use crate::Architecture;
use stopgap_events::units::Bytes;
use stopgap_kernel::folder;

use crate::{Error, Result, elf};

/// Names the program, where it is not beside this one.
const VARIABLE: &str = "STOPGAP_GUEST";
const FILE: &str = "stopgap-guest";
const BUILD: &str =
    "cargo rustc --release -p stopgap-guest --bin stopgap-guest -- -C target-feature=+crt-static";
/// For arm64, where this program is for x86-64.
const CROSS_BUILD: &str = "checks/aarch64-guest/build FOLDER, on Debian 12";

/// Larger is no guest program.
const LARGEST: Bytes = Bytes::mib(64);

/// The file that an environment variable names, or the one beside this program.
pub(crate) fn named_or_beside(variable: &str, file: &str) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(file));
    std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(beside)
}

/// The program's bytes.
pub(crate) fn read(architecture: Architecture) -> Result<Vec<u8>> {
    let path = named_or_beside(VARIABLE, FILE);
    let place = match std::env::var_os(VARIABLE) {
        Some(_) => format!(" (named by {VARIABLE})"),
        None => String::new(),
    };
    let shown = path
        .as_ref()
        .map_or(FILE.to_owned(), |path| path.display().to_string());
    let build = match architecture {
        Architecture::Aarch64 if cfg!(target_arch = "x86_64") => CROSS_BUILD,
        _ => BUILD,
    };
    let refuse = |why: &str| {
        Error::unsupported(format!(
            "the guest's program {shown}{place}: {why}; build it ({build}), or name it with {VARIABLE}=FILE"
        ))
    };
    let path = path.ok_or_else(|| refuse("this program's own folder is not known"))?;
    let file = std::fs::metadata(&path).map_err(|error| refuse(&error.to_string()))?;
    if !file.is_file() || file.len() > LARGEST.0 {
        return Err(refuse("it is no program"));
    }
    let bytes = folder::read(&path, LARGEST.0).map_err(|error| refuse(&error.to_string()))?;
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
