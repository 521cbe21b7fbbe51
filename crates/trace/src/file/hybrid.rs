//! Parquet's hybrid of run lengths and bit packing.
//!
//! ```text
//! header (varint) even: header / 2 times the value that follows in whole bytes
//! header (varint) odd:  header / 2 groups of eight values follow, lowest bits first
//! ```

use bytes::Bytes;

use super::pages::SHORT;

/// Small numbers of one width. Nothing is read before it is asked for.
pub(super) struct Hybrid {
    bytes: Bytes,
    at: usize,
    width: u8,
    /// Values of the run that are still to come.
    left: u64,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    Of(u32),
    /// Packed, from this bit on.
    Packed(usize),
}

impl Hybrid {
    /// Numbers of `width` bits, 32 at most.
    pub(super) fn new(bytes: Bytes, width: u8) -> Hybrid {
        Hybrid {
            bytes,
            at: 0,
            width,
            left: 0,
            run: Run::Of(0),
        }
    }

    /// Passes over the next `count` values and returns which it is, where one run has them all.
    pub(super) fn run(&mut self, count: usize) -> Result<Option<u32>, String> {
        while self.left == 0 {
            self.open()?;
        }
        match self.run {
            Run::Of(value) if self.left >= count as u64 => {
                self.left -= count as u64;
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    /// Appends what `of` makes of each of the next `count` values.
    #[inline]
    pub(super) fn append<T: Copy>(
        &mut self,
        count: usize,
        out: &mut Vec<T>,
        of: impl Fn(u64) -> T,
    ) -> Result<(), String> {
        let mut wanted = count;
        while wanted > 0 {
            if self.left == 0 {
                self.open()?;
                continue;
            }
            let some = self.left.min(wanted as u64) as usize;
            match &mut self.run {
                Run::Of(value) => out.extend(std::iter::repeat_n(of(u64::from(*value)), some)),
                Run::Packed(bit) => {
                    let width = usize::from(self.width);
                    let (begin, end) = (*bit, *bit + some * width);
                    if end > 8 * self.bytes.len() {
                        return Err(SHORT.to_owned());
                    }
                    unpack(&self.bytes, (begin, width, some), out, &of);
                    *bit = end;
                }
            }
            self.left -= some as u64;
            wanted -= some;
        }
        Ok(())
    }

    /// Appends the next `count` values, 1 where they are not 0. For numbers of one bit.
    pub(super) fn bits(&mut self, count: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let mut wanted = count;
        while wanted > 0 {
            if self.left == 0 {
                self.open()?;
                continue;
            }
            let mut some = self.left.min(wanted as u64) as usize;
            let groups = some / 8;
            if let Run::Packed(bit) = &mut self.run
                && groups > 0
                && *bit % 8 == 0
                && let Some(bytes) = self.bytes.get(*bit / 8..*bit / 8 + groups)
            {
                bytes
                    .iter()
                    .for_each(|&byte| out.extend_from_slice(&spread(byte)));
                some = 8 * groups;
                *bit += some;
                self.left -= some as u64;
            } else {
                self.append(some, out, |bit| u8::from(bit != 0))?;
            }
            wanted -= some;
        }
        Ok(())
    }

    /// Reads the header of the next run.
    fn open(&mut self) -> Result<(), String> {
        let mut header = 0;
        for shift in (0..).step_by(7) {
            if shift > 28 {
                return Err("a page has a run that is longer than any may be".to_owned());
            }
            let byte = *self.bytes.get(self.at).ok_or(SHORT)?;
            self.at += 1;
            header |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let run = header >> 1;
        if header & 1 == 1 {
            self.left = run * 8;
            self.run = Run::Packed(8 * self.at);
            // Writers may cut off the last group.
            let length = run.saturating_mul(u64::from(self.width));
            let rest = self.bytes.len() - self.at;
            self.at += usize::try_from(length).map_or(rest, |length| length.min(rest));
        } else {
            let length = usize::from(self.width).div_ceil(8);
            let value = self.bytes.get(self.at..self.at + length).ok_or(SHORT)?;
            let mut word = [0; 4];
            word[..length].copy_from_slice(value);
            self.at += length;
            self.left = run;
            self.run = Run::Of(u32::from_le_bytes(word));
        }
        Ok(())
    }
}

/// Appends what `of` makes of `count` numbers of `width` bits, 32 at most, which lie in `bytes` from bit `begin` on.
#[inline]
fn unpack<T>(
    bytes: &[u8],
    (begin, width, count): (usize, usize, usize),
    out: &mut Vec<T>,
    of: impl Fn(u64) -> T,
) {
    let mask = (1_u64 << width) - 1;
    // A word is read at the begin of each number, for which there is no room at the last ones.
    let words = (bytes.len() * 8).saturating_sub(begin + 63);
    let whole = words
        .checked_div(width)
        .map_or(count, |whole| whole.min(count));
    let place = |number| begin + number * width;
    out.extend((0..whole).map(|number| {
        let at = place(number);
        let word = bytes.get(at / 8..at / 8 + 8).and_then(<[u8]>::first_chunk);
        of(word.map_or(0, |word| u64::from_le_bytes(*word)) >> (at % 8) & mask)
    }));
    out.extend((whole..count).map(|number| {
        let at = place(number);
        let (mut word, rest) = ([0; 8], bytes.get(at / 8..).unwrap_or_default());
        let some = rest.len().min(8);
        word[..some].copy_from_slice(&rest[..some]);
        of(u64::from_le_bytes(word) >> (at % 8) & mask)
    }));
}

/// Gives each bit of a byte one of its own, the lowest first.
fn spread(byte: u8) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let bits = (u64::from(byte) * EACH) & 0x8040_2010_0804_0201;
    // A byte that is not 0 carries into its highest bit.
    ((bits + 0x7f * EACH) >> 7 & EACH).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &'static [u8], width: u8, count: usize) -> Result<Vec<u64>, String> {
        let mut values = Vec::new();
        let mut hybrid = Hybrid::new(Bytes::from_static(bytes), width);
        hybrid.append(count, &mut values, |value| value)?;
        Ok(values)
    }

    #[test]
    fn runs_and_groups_are_read_as_far_as_they_are_asked_for() {
        assert_eq!(
            all(&[0x03, 0b0101_0101], 1, 5),
            Ok(vec![1, 0, 1, 0, 1]),
            "a group"
        );
        assert_eq!(
            all(&[0x06, 7, 0x03, 0x88, 0xc6, 0xfa], 3, 11),
            Ok(vec![7, 7, 7, 0, 1, 2, 3, 4, 5, 6, 7]),
            "a run, then the group of the format's description"
        );
        assert_eq!(all(&[0x04, 0x34, 0x12], 16, 2), Ok(vec![0x1234; 2]));
        assert_eq!(all(&[0x08], 0, 3), Ok(vec![0; 3]), "no bits: one value");
        assert_eq!(all(&[0x05, 0xff], 1, 8), Ok(vec![1; 8]));
        assert!(all(&[0x05, 0xff], 1, 9).is_err(), "a group is cut off");
        assert!(all(&[0x10], 1, 8).is_err() && all(&[], 1, 1).is_err());
        assert_eq!(all(&[], 1, 0), Ok(vec![]), "nothing is asked for");
        assert!(all(&[0xff; 12], 1, 8).is_err(), "no run is so long");
    }

    #[test]
    fn bits_are_those_of_each() {
        // 24 packed bits, then a run, then a group that begins within a byte of what is asked for.
        let bytes = || Bytes::from_static(&[0x07, 0x81, 0x7e, 0xa5, 0x06, 1, 0x05, 0x0f, 0xf0]);
        for (first, second) in [(0, 43), (3, 40), (8, 35), (24, 19), (26, 17), (40, 3)] {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let mut hybrid = Hybrid::new(bytes(), 1);
            hybrid.bits(first, &mut one).unwrap();
            hybrid.bits(second, &mut one).unwrap();
            let mut hybrid = Hybrid::new(bytes(), 1);
            hybrid
                .append(first + second, &mut other, |bit| bit as u8)
                .unwrap();
            assert_eq!(one, other, "{first}");
        }
    }

    #[test]
    fn a_run_is_passed_over_where_it_is_long_enough() {
        let mut hybrid = Hybrid::new(Bytes::from_static(&[0x0a, 1, 0x03, 0xf0]), 1);
        assert_eq!(hybrid.run(3), Ok(Some(1)));
        assert_eq!(hybrid.run(3), Ok(None), "two of the run are left");
        let mut values = Vec::new();
        hybrid.append(4, &mut values, |value| value).unwrap();
        assert_eq!(values, [1, 1, 0, 0]);
        assert_eq!(hybrid.run(2), Ok(None), "these are packed");
    }
}
