//! What several tests make: packages, kernels and modules that never were built.

use std::io::Write;
use std::time::Duration;

use stopgap_guest::protocol::{Counted, Hello, Line, Unit, VERSION};

use crate::judge::{self, Booted, Kernel, Measured, Profile};
use crate::{Boot, End};

/// The first line of a guest of this layout, which counts in this unit.
pub(crate) fn hello(seed: u64, unit: Unit) -> Line {
    Line::Hello(Hello {
        version: VERSION,
        release: "6.12.0".to_owned(),
        seed,
        unit,
        ..Hello::default()
    })
}

/// A line with counts.
pub(crate) fn counted(name: &str, operation: &str, counts: &str) -> Line {
    Line::Counts(Counted {
        name: name.to_owned(),
        operation: operation.to_owned(),
        counts: counts.parse().unwrap(),
    })
}

/// A boot that came to its end and said these lines.
pub(crate) fn boot(seed: u64, lines: &[Line]) -> Boot {
    Boot {
        end: End::PoweredOff,
        why: String::new(),
        lines: lines.iter().map(ToString::to_string).collect(),
        console: vec!["a last line".to_owned()],
        cpu: String::new(),
        command_line: Vec::new(),
        seed,
        host_time: Duration::ZERO,
    }
}

/// A boot, read, whose guest counted these operations of a cell.
pub(crate) fn booted(seed: u64, repetition: u32, cell: &str, said: &[(&str, &str)]) -> Booted {
    let said = said.iter().map(|(operation, counts)| Counted {
        name: cell.to_owned(),
        operation: (*operation).to_owned(),
        counts: counts.parse().unwrap(),
    });
    Booted {
        boot: judge::Boot {
            seed,
            repetition,
            whole: true,
            end: "powered off".to_owned(),
            ..judge::Boot::default()
        },
        said: said.collect(),
        ..Booted::default()
    }
}

/// A kernel whose boots give the counts of `layouts` for an operation of a cell, in both repetitions.
pub(crate) fn measured(name: &str, cell: &str, operation: &str, layouts: &[&str]) -> Measured {
    let boots = layouts.iter().zip(1u64..).flat_map(|(counts, seed)| {
        (0..2).map(move |repetition| booted(seed, repetition, cell, &[(operation, counts)]))
    });
    Measured {
        kernel: Kernel {
            name: name.to_owned(),
            sha256: name.repeat(64),
            ..Kernel::default()
        },
        config: None,
        boots: boots.collect(),
    }
}

/// Checks that a text has all of these parts.
#[track_caller]
pub(crate) fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// A profile of stacks, their functions with spaces in between.
pub(crate) fn profile(operations: u64, stacks: &[(&str, u64)]) -> Profile {
    let frames = |text: &str| text.split(' ').map(str::to_owned).collect();
    let stacks = stacks
        .iter()
        .map(|&(text, instructions)| (frames(text), instructions));
    Profile::of(operations, stacks)
}

/// Compresses a stream as a suite of tests needs it.
pub(crate) fn packed(how: &str, bytes: &[u8]) -> Vec<u8> {
    match how {
        "gz" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "xz" => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "zst" => {
            ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
        }
        "" => bytes.to_vec(),
        how => panic!("{how}"),
    }
}

/// An ar archive.
pub(crate) fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, body) in members {
        let (zero, length) = (0, body.len());
        writeln!(
            out,
            "{name:<16}{zero:<12}{zero:<6}{zero:<6}{:<8}{length:<10}`",
            100_644
        )
        .unwrap();
        out.extend_from_slice(body);
        if body.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

/// A tar archive of regular files. Names are written as they are, also those that no archiver would write.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, body) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, *body).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A Debian package of these files.
pub(crate) fn deb(how: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    deb_of(how, &tar(files))
}

/// A Debian package of a tar archive.
pub(crate) fn deb_of(how: &str, tar: &[u8]) -> Vec<u8> {
    let name = match how {
        "" => "data.tar".to_owned(),
        how => format!("data.tar.{how}"),
    };
    ar(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", b"odd"),
        (&name, &packed(how, tar)),
    ])
}

/// A bzImage of nothing, with this version and this kernel proper, compressed as the kernel's build does it.
pub(crate) fn bzimage(version: &str, kernel: &[u8], how: &str) -> Vec<u8> {
    let mut payload = packed(how, kernel);
    // gzip's own trailer is the length of the kernel; arch/x86/boot/compressed/Makefile: `gzip`, but `xzkern_with_size`, `zstd22_with_size` and so on.
    if how != "gz" {
        payload.extend_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
    }
    bzimage_of(version, &payload)
}

/// A bzImage with this version and these bytes for its payload.
pub(crate) fn bzimage_of(version: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * 512];
    bytes[0x1f1] = 1;
    let paragraphs = u32::try_from(payload.len().div_ceil(16)).unwrap();
    bytes[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    bytes[0x211] = 1;
    bytes[0x236] = 1;
    bytes[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// An arm64 `Image` of nothing.
pub(crate) fn arm64(version: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[16..24].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[56..60].copy_from_slice(b"ARM\x64");
    // The format string first, as in a kernel.
    let text = format!("Linux version %s (%s)\n\0Linux version {version}\n\0");
    bytes[256..256 + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// A module with these strings in its `.modinfo`.
pub(crate) fn module(info: &[&str]) -> Vec<u8> {
    let strings = b"\0.shstrtab\0.modinfo\0";
    let body: Vec<u8> = info
        .iter()
        .flat_map(|text| text.bytes().chain([0]))
        .collect();
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let strings_at = bytes.len();
    bytes.extend_from_slice(strings);
    let body_at = bytes.len();
    bytes.extend_from_slice(&body);
    let table = bytes.len();
    let mut header = |name: u32, at: usize, length: usize| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(length as u64).to_le_bytes());
        bytes.extend_from_slice(&header);
    };
    header(0, 0, 0);
    header(1, strings_at, strings.len());
    header(11, body_at, body.len());
    bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
    bytes[60..62].copy_from_slice(&3_u16.to_le_bytes());
    bytes[62..64].copy_from_slice(&1_u16.to_le_bytes());
    bytes
}

/// A QEMU of this architecture that is a script, in `folder`. It answers `--version`.
pub(crate) fn qemu(
    architecture: crate::Architecture,
    script: &str,
    folder: &std::path::Path,
) -> crate::qemu::Qemu {
    let path = folder.join(format!("qemu-system-{architecture}"));
    let version =
        "[ \"$1\" = --version ] && { echo 'QEMU emulator version 7.2.0 (a script)'; exit; }";
    stopgap_kernel::fake::script(&path, format!("#!/bin/bash\n{version}\n{script}\n"));
    crate::qemu::Qemu::find_in(architecture, folder.as_os_str()).unwrap()
}
