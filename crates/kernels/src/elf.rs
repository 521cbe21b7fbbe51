//! ELF files of 64 bits, little-endian: the parts of a program that are loaded, and sections by name.
//!
//! Lineage: ELF-64 object file format. Offsets are those of its headers.

/// The first bytes of such a file.
pub(crate) const MAGIC: &[u8] = b"\x7fELF\x02\x01";

/// Where the header has the place of the table of sections, and their number.
const SHOFF: std::ops::Range<usize> = 40..48;
const SHNUM: std::ops::Range<usize> = 60..64;

/// The little-endian number of `N` bytes at `at`.
pub(crate) fn number_at<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(value))
}

/// The same as a place in memory.
fn place<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(number_at::<N>(bytes, at)?).ok()
}

/// Returns where the headers of segments begin, and the end of their table.
fn segments(program: &[u8]) -> Option<(Vec<usize>, usize)> {
    let (table, size) = (place::<8>(program, 32)?, place::<2>(program, 54)?);
    let count = place::<2>(program, 56)?;
    let end = table.checked_add(size.checked_mul(count)?)?;
    Some((
        (0..count).map(|number| table + number * size).collect(),
        end,
    ))
}

/// Returns a program up to the end of its last segment, without the table of sections: a guest copies its initramfs twice, and
/// debug information is ten times as long as what runs. Anything but an ELF file whose segments lie in it comes back
/// unchanged, and the guest's kernel says what it thinks of it.
pub(crate) fn loaded(program: &[u8]) -> Vec<u8> {
    let end = || {
        let (headers, mut end) = segments(program).filter(|_| program.starts_with(MAGIC))?;
        for header in &headers {
            let offset = place::<8>(program, header.checked_add(8)?)?;
            let length = place::<8>(program, header.checked_add(32)?)?;
            end = end.max(offset.checked_add(length)?);
        }
        let end = end.max(SHNUM.end);
        (!headers.is_empty() && end <= program.len()).then_some(end)
    };
    let Some(end) = end() else {
        return program.to_vec();
    };
    let mut cut = program[..end].to_vec();
    cut[SHOFF].fill(0);
    cut[SHNUM].fill(0);
    cut
}

/// Returns whether a program names an interpreter, so that it is not static; `None` of a truncated one.
pub(crate) fn is_dynamic(program: &[u8]) -> Option<bool> {
    const INTERPRETER: u64 = 3;
    let (headers, _) = segments(program)?;
    let mut dynamic = false;
    for header in headers {
        dynamic |= number_at::<4>(program, header)? == INTERPRETER;
    }
    Some(dynamic)
}

/// Returns the section of this name.
///
/// # Errors
/// A file without it, and sections outside of the file.
pub(crate) fn section<'a>(bytes: &'a [u8], name: &str) -> Result<&'a [u8], String> {
    const HEADER: usize = 64;
    if !bytes.starts_with(MAGIC) {
        return Err("not a module: no 64-bit little-endian ELF file".to_owned());
    }
    let find = || {
        let (table, size) = (place::<8>(bytes, SHOFF.start)?, place::<2>(bytes, 58)?);
        let (count, strings) = (place::<2>(bytes, SHNUM.start)?, place::<2>(bytes, 62)?);
        if size < HEADER {
            return None;
        }
        bytes.get(table..table.checked_add(count.checked_mul(size)?)?)?; // all of it is there
        let body = |section: usize| {
            let header = table.checked_add(section.checked_mul(size)?)?;
            let at = place::<8>(bytes, header.checked_add(24)?)?;
            let length = place::<8>(bytes, header.checked_add(32)?)?;
            bytes.get(at..at.checked_add(length)?)
        };
        let strings = body(strings)?;
        for section in 0..count {
            let rest = strings.get(place::<4>(bytes, table + section * size)?..)?;
            if rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&0) {
                return Some(body(section));
            }
        }
        Some(None)
    };
    match find() {
        Some(Some(section)) => Ok(section),
        Some(None) => Err(format!("not a module: no {name} in it")),
        None => Err("damaged: its sections lie outside of the file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// This test's own program, which has debug information, lists its tests with it and without.
    #[test]
    fn what_is_cut_runs_as_before() {
        let own = std::env::current_exe().unwrap();
        let whole = std::fs::read(&own).unwrap();
        let cut = loaded(&whole);
        assert!(cut.len() < whole.len());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut");
        stopgap_kernel::fake::script(&path, &cut);
        let list = |program: &std::path::Path| {
            let output = std::process::Command::new(program).arg("--list").output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        assert_eq!(list(&path), list(&own));
        assert_eq!(loaded(&cut), cut, "cut again it is the same");
    }

    #[test]
    fn what_is_no_program_stays_as_it_is() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", &[0; 100]] {
            assert_eq!(loaded(bytes), bytes);
        }
        // A segment beyond the end: a truncated program is not made worse.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(loaded(&own[..5_000]), own[..5_000]);
    }

    proptest! {
        /// Nothing in a header makes it panic, and what it gives is a beginning but for the table of sections.
        #[test]
        fn any_header_is_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), elf in any::<bool>(), small in any::<bool>()) {
            if elf && bytes.len() > 70 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
                if small {
                    bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
                    bytes[54..58].copy_from_slice(&[56, 0, 1, 0]);
                }
            }
            let cut = loaded(&bytes);
            prop_assert!(cut.len() <= bytes.len());
            for (at, byte) in cut.iter().enumerate() {
                prop_assert!(SHOFF.contains(&at) || SHNUM.contains(&at) || *byte == bytes[at]);
            }
        }
    }
}
