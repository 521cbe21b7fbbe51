//! Thrift's compact protocol, as far as it takes to walk through a structure and pick numbers out
//! of it. Nothing is allocated and nothing believed.

/// Structures within structures; a Parquet footer has six.
const DEEPEST: u32 = 16;

/// A fault in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// They end too early.
    Short,
    /// They are no compact Thrift.
    Garbage,
    /// A list declares more elements than it may.
    LongList(u64),
}

pub(super) struct Compact<'a> {
    bytes: &'a [u8],
    position: usize,
    longest_list: u64,
}

/// The type of a field's value, as the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wire(u8);

impl Wire {
    const TRUE: u8 = 1;
    const FALSE: u8 = 2;
    const BYTE: u8 = 3;
    const DOUBLE: u8 = 7;
    const BINARY: u8 = 8;
    const LIST: u8 = 9;
    const SET: u8 = 10;
    const MAP: u8 = 11;
    const STRUCT: u8 = 12;

    pub(super) fn is_struct(self) -> bool {
        self.0 == Wire::STRUCT
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.0, 4..=6)
    }
}

impl<'a> Compact<'a> {
    /// From the first of `bytes` on; lists of more than `longest_list` elements are refused.
    pub(super) fn new(bytes: &'a [u8], longest_list: u64) -> Compact<'a> {
        Compact {
            bytes,
            position: 0,
            longest_list,
        }
    }

    /// Bytes walked through so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn byte(&mut self) -> Result<u8, Broken> {
        let byte = *self.bytes.get(self.position).ok_or(Broken::Short)?;
        self.position += 1;
        Ok(byte)
    }

    fn over(&mut self, count: u64) -> Result<(), Broken> {
        let left = (self.bytes.len() - self.position) as u64;
        if count > left {
            return Err(Broken::Short);
        }
        self.position += count as usize;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Garbage)
    }

    /// A number of a 16, 32 or 64-bit field.
    pub(super) fn number(&mut self) -> Result<i64, Broken> {
        let raw = self.varint()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Calls `field` for each field of a structure, which must walk over the field's value; ends
    /// behind the structure.
    pub(super) fn structure(
        &mut self,
        mut field: impl FnMut(&mut Compact<'a>, i64, Wire) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let mut id = 0i64;
        loop {
            let header = self.byte()?;
            if header == 0 {
                return Ok(());
            }
            id = match header >> 4 {
                0 => self.number()?,
                delta => id + i64::from(delta),
            };
            if !(0..=i64::from(i16::MAX)).contains(&id) {
                return Err(Broken::Garbage);
            }
            field(self, id, Wire(header & 0xf))?;
        }
    }

    /// Calls `element` for each element of a list, which must walk over it.
    pub(super) fn list(
        &mut self,
        wire: Wire,
        mut element: impl FnMut(&mut Compact<'a>, Wire) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        if !matches!(wire.0, Wire::LIST | Wire::SET) {
            return Err(Broken::Garbage);
        }
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        if count > self.longest_list {
            return Err(Broken::LongList(count));
        }
        (0..count).try_for_each(|_| element(self, Wire(header & 0xf)))
    }

    /// Walks over a value.
    pub(super) fn skip(&mut self, wire: Wire) -> Result<(), Broken> {
        self.skip_within(wire, DEEPEST)
    }

    fn skip_within(&mut self, wire: Wire, deeper: u32) -> Result<(), Broken> {
        let deeper = deeper.checked_sub(1).ok_or(Broken::Garbage)?;
        match wire.0 {
            Wire::TRUE | Wire::FALSE => Ok(()),
            Wire::BYTE => self.over(1),
            4..=6 => self.varint().map(|_| ()),
            Wire::DOUBLE => self.over(8),
            Wire::BINARY => {
                let length = self.varint()?;
                self.over(length)
            }
            Wire::LIST | Wire::SET => {
                self.list(wire, |walk, element| walk.skip_element(element, deeper))
            }
            Wire::MAP => {
                let count = self.varint()?;
                if count > self.longest_list {
                    return Err(Broken::LongList(count));
                }
                if count == 0 {
                    return Ok(());
                }
                let types = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(Wire(types >> 4), deeper)?;
                    self.skip_element(Wire(types & 0xf), deeper)
                })
            }
            Wire::STRUCT => self.structure(|walk, _, wire| walk.skip_within(wire, deeper)),
            _ => Err(Broken::Garbage),
        }
    }

    /// In a list a boolean has a byte of its own.
    fn skip_element(&mut self, wire: Wire, deeper: u32) -> Result<(), Broken> {
        match wire.0 {
            Wire::TRUE | Wire::FALSE => self.over(1),
            _ => self.skip_within(wire, deeper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> Result<usize, Broken> {
        let mut compact = Compact::new(bytes, 100);
        compact.skip(Wire(Wire::STRUCT))?;
        Ok(compact.position())
    }

    #[test]
    fn numbers_and_structures() {
        // Field 1: i32 -3; field 3: binary "ab"; field 20 (long form): true; end.
        let bytes = [0x15, 0x05, 0x28, 2, b'a', b'b', 0x01, 40, 0];
        let mut seen = Vec::new();
        let mut compact = Compact::new(&bytes, 100);
        let walked = compact.structure(|walk, id, wire| {
            seen.push(id);
            if id == 1 {
                assert_eq!(walk.number(), Ok(-3));
                return Ok(());
            }
            walk.skip(wire)
        });
        assert_eq!(walked, Ok(()));
        assert_eq!(seen, [1, 3, 20]);
        assert_eq!(walk(&bytes), Ok(bytes.len()));
        for end in 0..bytes.len() {
            assert_eq!(walk(&bytes[..end]), Err(Broken::Short));
        }
    }

    #[test]
    fn lies_are_refused() {
        // A binary of 2^63 bytes; a list of 2^31 bytes; structures without end.
        let long = [0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(walk(&long), Err(Broken::Short));
        let list = [0x19, 0xf3, 0x80, 0x80, 0x80, 0x80, 0x08];
        assert_eq!(walk(&list), Err(Broken::LongList(1 << 31)));
        assert_eq!(walk(&[0x1c; 100]), Err(Broken::Garbage));
        assert_eq!(walk(&[0x1f, 0]), Err(Broken::Garbage));
    }
}
