//! Reads what must be in memory as a whole, and never more of it than the caller allows.

use std::io::{self, Read};

use crate::units::Bytes;

/// Reads `from` to its end.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] where there are more than `most` bytes; at most one more than that is read. What
/// the operating system says of reading.
///
/// ```
/// use stopgap_events::{bounded, units::Bytes};
/// assert_eq!(bounded::read(&b"abc"[..], Bytes(3)).unwrap(), b"abc");
/// let error = bounded::read(std::io::repeat(0), Bytes::mib(1)).unwrap_err();
/// assert_eq!(error.to_string(), "it has more than 1 MiB, the most that is read of such a file");
/// ```
pub fn read(from: impl Read, most: Bytes) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.0.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most.0 {
        return Err(too_large(most));
    }
    Ok(bytes)
}

/// Reads `from`, a file that has `length` bytes now: one that is too large is not read at all, and one that fits takes
/// no more memory than it has bytes.
///
/// # Errors
/// As [`read`].
pub fn read_file(mut from: impl Read, length: u64, most: Bytes) -> io::Result<Vec<u8>> {
    if length > most.0 {
        return Err(too_large(most));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    from.by_ref().take(length).read_to_end(&mut bytes)?;
    // It has grown meanwhile, or is a file of the kernel's that says no length.
    match read(from, Bytes(most.0 - length)) {
        Ok(mut more) => bytes.append(&mut more),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(too_large(most)),
        Err(error) => return Err(error),
    }
    Ok(bytes)
}

fn too_large(most: Bytes) -> io::Error {
    let why = format!("it has more than {most}, the most that is read of such a file");
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_shorter_or_longer_than_it_said() {
        for length in [0, 2, 3, 4] {
            let read = read_file(&b"abc"[..], length, Bytes(4)).unwrap();
            assert_eq!(read, b"abc", "{length}");
        }
        for (length, most) in [(0, 2), (2, 2), (3, 2), (9, 8)] {
            let error = read_file(&b"abc"[..], length, Bytes(most)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{length}");
        }
    }
}
