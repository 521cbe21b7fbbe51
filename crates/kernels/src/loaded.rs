//! What of a program is loaded when it is executed: the rest (symbols, what debuggers read) need not be unpacked by each guest.
//!
//! A release build with debug information is ten times as long as what runs of it, and a guest copies its initramfs twice.

/// Where an ELF header of 64 bits has what is read here.
const PHOFF: usize = 32;
const SHOFF: std::ops::Range<usize> = 40..48;
const PHENTSIZE: usize = 54;
const PHNUM: usize = 56;
/// `e_shnum` and `e_shstrndx`.
const SHNUM: std::ops::Range<usize> = 60..64;
/// Of a program header: where a segment is in the file, and its length there.
const OFFSET: usize = 8;
const FILESZ: usize = 32;

/// The program up to the end of its last segment, without the table of sections. What is no little-endian ELF file of 64 bits, or
/// has segments outside of itself, is given back as it is: the guest's kernel says what it thinks of it.
#[must_use]
pub(crate) fn loaded(program: &[u8]) -> Vec<u8> {
    let Some(end) = end(program) else {
        return program.to_vec();
    };
    let mut cut = program[..end].to_vec();
    cut[SHOFF].fill(0);
    cut[SHNUM].fill(0);
    cut
}

/// The end of the segments, of their table and of the header; none where that is not in the file.
fn end(program: &[u8]) -> Option<usize> {
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = usize::try_from(word(program, PHOFF)?).ok()?;
    let size = usize::from(half(program, PHENTSIZE)?);
    let count = usize::from(half(program, PHNUM)?);
    let mut end = SHNUM.end.max(table.checked_add(size.checked_mul(count)?)?);
    for number in 0..count {
        let header = table + number * size;
        let offset = word(program, header.checked_add(OFFSET)?)?;
        let length = word(program, header.checked_add(FILESZ)?)?;
        end = end.max(usize::try_from(offset.checked_add(length)?).ok()?);
    }
    (count > 0 && end <= program.len()).then_some(end)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(part.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
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
                    bytes[PHOFF..PHOFF + 8].copy_from_slice(&64_u64.to_le_bytes());
                    bytes[PHENTSIZE..PHENTSIZE + 4].copy_from_slice(&[56, 0, 1, 0]);
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
