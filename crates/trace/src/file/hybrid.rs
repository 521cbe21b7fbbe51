use bytes::Bytes;

/// Parquet's hybrid of run lengths and bit packing, in which levels, dictionary numbers and some
/// booleans are written: runs of one value, and groups of eight values packed into `width` bits
/// each. It gives what the bytes have and ends with them, whatever they say.
///
/// ```text
/// header (varint) even: header / 2 times the value that follows in whole bytes
/// header (varint) odd:  header / 2 groups of eight values follow, lowest bits first
/// ```
pub(super) struct Hybrid {
    bytes: Bytes,
    at: usize,
    width: u32,
    run: Run,
}

enum Run {
    Same { value: u32, left: u64 },
    Packed { start: usize, next: u64, end: u64 },
}

impl Hybrid {
    /// Values of `width` bits, up to 32.
    pub(super) fn new(bytes: Bytes, width: u32) -> Hybrid {
        Hybrid {
            bytes,
            at: 0,
            width: width.min(32),
            run: Run::Same { value: 0, left: 0 },
        }
    }

    /// The next value and how often it comes in a row, at most `most` times; `None` at the end.
    pub(super) fn next(&mut self, most: u64) -> Option<(u32, u64)> {
        loop {
            match &mut self.run {
                Run::Same { value, left } if *left > 0 => {
                    let count = most.min(*left);
                    *left -= count;
                    return Some((*value, count));
                }
                Run::Packed { start, next, end } if *next < *end => {
                    let bit = *next * u64::from(self.width);
                    *next += 1;
                    let value = unpack(self.bytes.get(*start..)?, bit, self.width)?;
                    return Some((value, 1));
                }
                Run::Same { .. } | Run::Packed { .. } => self.begin()?,
            }
        }
    }

    /// Reads the header of the next run.
    fn begin(&mut self) -> Option<()> {
        let mut header = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            header |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            if shift == 28 {
                return None; // longer than any run may be
            }
        }
        if header & 1 == 1 {
            let groups = header >> 1;
            self.run = Run::Packed {
                start: self.at,
                next: 0,
                end: groups * 8,
            };
            // Writers may cut off the last group: what is missing shows when it is read.
            let length = usize::try_from(groups * u64::from(self.width)).ok()?;
            self.at = self.at.saturating_add(length).min(self.bytes.len());
            return Some(());
        }
        let length = self.width.div_ceil(8) as usize;
        let bytes = self.bytes.get(self.at..self.at + length)?;
        let mut value = [0; 4];
        value[..length].copy_from_slice(bytes);
        self.at += length;
        self.run = Run::Same {
            value: u32::from_le_bytes(value),
            left: header >> 1,
        };
        Some(())
    }
}

/// The `width` bits from `bit` on; `None` where they are not all there.
fn unpack(bytes: &[u8], bit: u64, width: u32) -> Option<u32> {
    let first = usize::try_from(bit / 8).ok()?;
    let shift = u32::try_from(bit % 8).ok()?;
    let length = (shift + width).div_ceil(8) as usize;
    let mut window = [0; 8];
    window[..length].copy_from_slice(bytes.get(first..first + length)?);
    let bits = u64::from_le_bytes(window) >> shift & ((1 << width) - 1);
    u32::try_from(bits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], width: u32) -> Vec<u32> {
        let mut hybrid = Hybrid::new(Bytes::copy_from_slice(bytes), width);
        let mut values = Vec::new();
        while let Some((value, count)) = hybrid.next(1_000 - values.len() as u64) {
            values.extend((0..count).map(|_| value));
            if values.len() == 1_000 {
                break;
            }
        }
        values
    }

    /// The format's own example: 0 to 7 in three bits each.
    #[test]
    fn runs_and_groups() {
        let packed = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(all(&packed, 3), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(all(&[6, 5, 4, 1, 0x03, 0xff], 8), [5, 5, 5, 1, 1, 0xff]);
        assert_eq!(all(&[4, 0x34, 0x12], 13), [0x1234, 0x1234]);
        assert_eq!(all(&[6], 0), [0, 0, 0]);
        assert_eq!(
            all(&[3, 1, 0, 0, 0x80], 32),
            [0x8000_0001],
            "the rest is cut off"
        );
        assert_eq!(all(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 9], 4).len(), 1_000);
    }

    #[test]
    fn nonsense_ends() {
        for bytes in [&[0xff; 20][..], &[0; 20], &[0x80; 20], &[5], &[4], &[]] {
            for width in [0, 1, 7, 32] {
                assert!(all(bytes, width).len() <= 1_000);
            }
        }
    }
}
