//! The sum that identifies a file in a record.

use sha2::{Digest, Sha256};

/// SHA-256 as 64 hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('?'));
            }
            text
        })
}
