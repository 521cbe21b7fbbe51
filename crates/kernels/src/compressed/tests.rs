use proptest::prelude::*;

use super::*;
use crate::testing::packed;

#[test]
fn each_compression_is_told_by_its_first_bytes_and_read() {
    let text: Vec<u8> = (0..200_000_u32)
        .flat_map(|n| (n / 7).to_le_bytes())
        .collect();
    for (how, is) in [
        ("", Compression::None),
        ("gz", Compression::Gzip),
        ("xz", Compression::Xz),
        ("zst", Compression::Zstd),
    ] {
        let bytes = packed(how, &text);
        assert_eq!(Compression::of(&bytes), is);
        assert!(all(&bytes, 1 << 20).unwrap() == text, "{how}");
    }
}

#[test]
fn what_is_cut_or_changed_is_an_error() {
    let text: Vec<u8> = (0..50_000_u32)
        .flat_map(|n| (n * 31).to_le_bytes())
        .collect();
    for how in ["gz", "xz", "zst"] {
        let bytes = packed(how, &text);
        for cut in [bytes.len() - 1, bytes.len() / 2, 20] {
            let read = all(&bytes[..cut], 1 << 20);
            assert!(
                read.is_err(),
                "{how} cut at {cut} gave {} bytes",
                read.unwrap().len()
            );
        }
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 0x10;
        assert!(
            all(&changed, 1 << 20).map_or(true, |read| read != text),
            "{how} changed"
        );
    }
}

#[test]
fn more_than_the_limit_is_an_error_and_not_read_to_its_end() {
    let bytes = packed("gz", &vec![0; 1 << 20]);
    let error = all(&bytes, (1 << 20) - 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(all(&bytes, 1 << 20).unwrap().len(), 1 << 20);
}

#[test]
fn several_frames_of_zstd_are_one_file() {
    let mut bytes = packed("zst", b"first ");
    bytes.extend_from_slice(&packed("zst", b"second"));
    assert_eq!(all(&bytes, 100).unwrap(), b"first second");
}

#[test]
fn a_compression_that_is_not_read_is_named() {
    let error = all(b"BZh9 whatever", 100).unwrap_err();
    assert!(error.to_string().contains("bzip2"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// Any bytes after any mark: an error or bytes, never a panic, and never without bound.
    #[test]
    fn garbage_never_panics(which in 0..4_usize, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let marks: [&[u8]; 4] = [&[0x1f, 0x8b, 8, 0], b"\xfd7zXZ\0\0\x04", &[0x28, 0xb5, 0x2f, 0xfd], b""];
        let mut input = marks[which].to_vec();
        input.extend_from_slice(&bytes);
        let _ = all(&input, 1 << 20);
    }

    /// One changed byte of a real stream.
    #[test]
    fn a_changed_byte_never_panics(how in 0..3_usize, at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = packed(["gz", "xz", "zst"][how], b"the quick brown fox jumps over the lazy dog ".repeat(20).as_slice());
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = all(&bytes, 1 << 20);
    }
}
