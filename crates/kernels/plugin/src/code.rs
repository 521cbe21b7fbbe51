//! The few instructions that matter, recognised by their bytes: marks, calls, returns.

/// What the guest says by a NOP: `0f 1f 80 imm32`, seven bytes that do nothing and read nothing. The displacement is
/// `5709`, a byte that says what, and a byte's value; `stopgap_guest::mark` has the table, and is where it is from.
///
/// A displacement is part of the code, so a number that is known only at run time comes digit by digit.
/// The windows themselves cost one instruction at either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    /// With the next instruction a window begins, of this operation.
    Begin(u8),
    /// With the last instruction it ended.
    End,
    /// The number of the cell begins anew, at 0.
    Cell,
    /// Its next digit, 0 to 15, the highest first.
    Digit(u8),
}

/// An instruction that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Mark(Mark),
    /// A near call: stores the address that it comes back to.
    Call,
    /// A near return: loads it.
    Return,
    /// A return to a program, or to what an interrupt came upon: `iret`, `sysret`, `sysexit`.
    Leave,
    Other,
}

/// Which of them an instruction of x86-64 is.
///
/// Prefixes that change nothing of it are skipped: segments (`cs call` is how a retpoline's call is padded), operand
/// and address size, `repz ret`, `bnd`, REX. Far calls and returns are none of them.
pub(crate) fn kind(bytes: &[u8]) -> Kind {
    if let [0x0f, 0x1f, 0x80, displacement @ ..] = bytes
        && let Ok(displacement) = <[u8; 4]>::try_from(displacement)
        && let Some(mark) = Mark::of(u32::from_le_bytes(displacement))
    {
        return Kind::Mark(mark);
    }
    let prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let at = bytes
        .iter()
        .position(|byte| !prefix(byte))
        .unwrap_or(bytes.len());
    match bytes[at..] {
        [0xe8, ..] => Kind::Call,
        // The second operand of group 5 is the near call.
        [0xff, operand, ..] if operand >> 3 & 7 == 2 => Kind::Call,
        [0xc3 | 0xc2, ..] => Kind::Return,
        [0xcf, ..] | [0x0f, 0x07 | 0x35, ..] => Kind::Leave,
        _ => Kind::Other,
    }
}

impl Mark {
    /// The mark of a displacement.
    pub(crate) fn of(displacement: u32) -> Option<Mark> {
        match displacement.to_be_bytes() {
            [0x57, 0x09, 1, operation] => Some(Mark::Begin(operation)),
            [0x57, 0x09, 2, 0] => Some(Mark::End),
            [0x57, 0x09, 3, 0] => Some(Mark::Cell),
            [0x57, 0x09, 4, digit @ 0..=15] => Some(Mark::Digit(digit)),
            _ => None,
        }
    }

    /// Its displacement.
    pub(crate) fn displacement(self) -> u32 {
        u32::from_be_bytes(match self {
            Mark::Begin(operation) => [0x57, 0x09, 1, operation],
            Mark::End => [0x57, 0x09, 2, 0],
            Mark::Cell => [0x57, 0x09, 3, 0],
            Mark::Digit(digit) => [0x57, 0x09, 4, digit],
        })
    }
}

#[cfg(test)]
mod tests;
