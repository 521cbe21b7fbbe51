//! Waits on their way from a CPU's batch into its ring. A batch goes into the ring when it is full. Until then the
//! reader takes its waits from the batch itself, so that no wait comes late, and skips them when they come through
//! the ring.

use std::borrow::Cow;

use crate::record::WAIT;

/// Most waits of a batch, as `BATCH_OF` of `bpf/waits.bpf.c`.
const MOST: usize = 32;
/// Bytes before the waits: kind, CPU, and one word with the count and the batch's number.
const HEAD: usize = 16;
/// Bits of the count in that word.
const COUNT_BITS: u32 = 8;
/// Bytes of a batch.
pub(crate) const BYTES: usize = HEAD + MOST * WAIT;
/// Kind of a batch's record.
pub(crate) const KIND: u8 = 11;

/// The number of the batch that a CPU fills, and how many of its waits were taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    number: u64,
    waits: usize,
}

/// A batch as the kernel has it.
pub(crate) struct Batch<'a> {
    pub(crate) number: u64,
    waits: Cow<'a, [u8]>,
}

impl<'a> Batch<'a> {
    /// Reads a batch; `None` if the bytes are none.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Batch<'a>> {
        let filled = u64::from_le_bytes(bytes.get(8..HEAD)?.try_into().ok()?);
        let (number, count) = (filled >> COUNT_BITS, filled as u8);
        let waits = bytes.get(HEAD..HEAD + usize::from(count).min(MOST) * WAIT)?;
        let waits = Cow::Borrowed(waits);
        Some(Batch { number, waits })
    }

    /// Returns a batch that was read twice while its CPU filled it: as many waits as the first reading counts, with
    /// the content of the second reading. A counted wait is written, but the first reading may have passed its bytes
    /// before the CPU wrote them. `None` if the batch has another number by now.
    pub(crate) fn read_twice(before: &[u8], after: &[u8]) -> Option<Batch<'static>> {
        let (before, after) = (Batch::parse(before)?, Batch::parse(after)?);
        let number = Some(after.number).filter(|&number| number == before.number)?;
        let waits = Cow::Owned(after.waits.get(..before.waits.len())?.to_vec());
        Some(Batch { number, waits })
    }

    /// Returns the CPU whose batch a record in a ring is.
    pub(crate) fn cpu(bytes: &[u8]) -> usize {
        let cpu = bytes.get(2..4).and_then(|cpu| cpu.try_into().ok());
        usize::from(u16::from_le_bytes(cpu.unwrap_or_default()))
    }
}

impl Taken {
    /// Gives `each` the waits of a batch that came through the ring, without the waits that were taken before.
    pub(crate) fn whole(&mut self, batch: &Batch<'_>, each: impl FnMut(&[u8])) {
        self.open(batch, each);
        *self = Taken {
            number: batch.number + 1,
            waits: 0,
        };
    }

    /// Gives `each` the waits of a batch that is being filled, without the waits that were taken before.
    pub(crate) fn open(&mut self, batch: &Batch<'_>, each: impl FnMut(&[u8])) {
        if batch.number < self.number {
            return; // it has come through the ring meanwhile
        }
        let had = match batch.number == self.number {
            true => self.waits,
            false => 0,
        };
        batch.waits.chunks_exact(WAIT).skip(had).for_each(each);
        *self = Taken {
            number: batch.number,
            waits: had.max(batch.waits.len() / WAIT),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a batch whose waits differ in their first byte.
    fn batch(number: u64, waits: &[u8]) -> Vec<u8> {
        let mut bytes = vec![KIND, 0, 3, 0, 0, 0, 0, 0];
        let count = u64::try_from(waits.len()).unwrap();
        bytes.extend((number << COUNT_BITS | count).to_le_bytes());
        for &wait in waits {
            bytes.extend([wait; WAIT]);
        }
        bytes
    }

    #[test]
    fn a_wait_comes_once_whether_the_batch_or_the_ring_has_it_first() {
        let mut taken = Taken::default();
        let mut came = Vec::new();
        let mut each = |wait: &[u8]| came.push(wait[0]);
        taken.open(&Batch::parse(&batch(0, &[1, 2])).unwrap(), &mut each);
        taken.open(&Batch::parse(&batch(0, &[1, 2, 3])).unwrap(), &mut each);
        taken.whole(&Batch::parse(&batch(0, &[1, 2, 3, 4])).unwrap(), &mut each);
        // This was read before the ring was, so it has nothing new.
        taken.open(&Batch::parse(&batch(0, &[1, 2, 3])).unwrap(), &mut each);
        taken.open(&Batch::parse(&batch(1, &[5])).unwrap(), &mut each);
        // The ring had no room for 1 and 2.
        taken.open(&Batch::parse(&batch(3, &[6])).unwrap(), &mut each);
        taken.whole(&Batch::parse(&batch(3, &[6, 7])).unwrap(), &mut each);
        assert_eq!(came, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Batch::cpu(&batch(0, &[])), 3);
    }

    #[test]
    fn a_batch_that_is_filled_meanwhile_has_what_both_readings_have() {
        let read = |before: &[u8], after: &[u8]| {
            Batch::read_twice(before, after).map(|batch| batch.waits.to_vec())
        };
        // The second wait was counted before the reader could see it.
        let (stale, fresh) = (batch(7, &[1, 0]), batch(7, &[1, 2, 3]));
        assert_eq!(read(&stale, &fresh), Some([[1; WAIT], [2; WAIT]].concat()));
        assert_eq!(read(&stale, &batch(8, &[4, 5])), None);
        assert_eq!(read(&fresh, &stale), None, "it went backwards");
    }

    #[test]
    fn bytes_that_are_no_batch_have_no_waits() {
        let whole = batch(0, &[1, 2]);
        for length in 0..whole.len() {
            assert!(Batch::parse(&whole[..length]).is_none(), "{length}");
        }
        let mut many = batch(0, &[1; MOST]);
        many[8] = 0xff;
        assert_eq!(Batch::parse(&many).unwrap().waits.len(), MOST * WAIT);
    }
}
