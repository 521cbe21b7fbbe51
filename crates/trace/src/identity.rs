//! A trace's id: its file may be renamed, copied and moved.

use std::io::{self, Read, Seek, SeekFrom};

use sha2::{Digest as _, Sha256};

use crate::file::MAGIC;

/// Bytes of the digest that make an id: 128 bits, so that of a thousand million traces no two have one by chance.
const KEPT: usize = 16;

/// The end of a Parquet file: the footer's length, and [`MAGIC`].
const TAIL: u64 = 8;

/// Returns a trace's id, 32 hexadecimal digits, made from its content: the first 128 bits of a SHA-256.
///
/// The digest of a Parquet file is over its footer, length and magic included: the trace's description of itself, and of
/// every column's part its place, its size and how many values it has. Two recordings differ in these; a copy does not, and one
/// whose columns are damaged has the id of the recording that it was. So an id costs two small reads, wherever the file lies.
/// The digest of any other form is over the whole file.
///
/// # Errors
/// Those of reading. A file that begins as Parquet and does not end so is `InvalidData`.
pub fn trace_id<R: Read + Seek>(source: &mut R) -> io::Result<String> {
    let length = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    source
        .by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut head)?;
    let start = match head == MAGIC {
        true => footer(source, length)?,
        false => 0,
    };
    source.seek(SeekFrom::Start(start))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..count]);
    }
    let digest = digest.finalize();
    Ok(digest[..KEPT]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Where the footer of a Parquet file of this length begins.
fn footer<R: Read + Seek>(source: &mut R, length: u64) -> io::Result<u64> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "it ends before its footer does");
    let tail = length.checked_sub(TAIL).ok_or_else(wrong)?;
    source.seek(SeekFrom::Start(tail))?;
    let mut bytes = [0; TAIL as usize];
    source.read_exact(&mut bytes)?;
    let [a, b, c, d, magic @ ..] = bytes;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    let start = tail.checked_sub(footer).ok_or_else(wrong)?;
    (magic == MAGIC).then_some(start).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn id(bytes: &[u8]) -> io::Result<String> {
        trace_id(&mut Cursor::new(bytes))
    }

    /// A file with a footer of three bytes.
    fn parquet(columns: &[u8], footer: [u8; 3]) -> Vec<u8> {
        [&MAGIC[..], columns, &footer, &3_u32.to_le_bytes(), &MAGIC].concat()
    }

    #[test]
    fn it_is_the_footers_digest() {
        let one = id(&parquet(b"columns", *b"one")).unwrap();
        assert_eq!(one, id(&parquet(b"damaged", *b"one")).unwrap());
        assert_ne!(one, id(&parquet(b"columns", *b"two")).unwrap());
        let mut digest = Sha256::new();
        digest.update(b"one\x03\0\0\0PAR1");
        assert!(
            format!(
                "{:x}",
                u128::from_be_bytes(digest.finalize()[..16].try_into().unwrap())
            )
            .ends_with(one.trim_start_matches('0'))
        );
    }

    #[test]
    fn other_forms_are_read_whole() {
        assert_eq!(id(b"").unwrap(), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_ne!(
            id(b"{\"time_ns\":1}\n").unwrap(),
            id(b"{\"time_ns\":2}\n").unwrap()
        );
    }

    #[test]
    fn a_file_that_was_cut_off_has_none() {
        let whole = parquet(b"columns", *b"one");
        for length in 4..whole.len() {
            let error = id(&whole[..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
        let mut long = whole.clone();
        let at = long.len() - 8;
        long[at] = 200;
        assert!(id(&long).is_err());
    }
}
