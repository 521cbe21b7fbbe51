//! Marks in the instruction stream, for a TCG plugin that looks at each instruction of the guest.
//!
//! One instruction each that does nothing, with a number in it that no compiler writes:
//!
//! | architecture | instruction | bytes |
//! |---|---|---|
//! | x86-64 | `nop dword ptr [rax + number]` | `0f 1f 80`, then the number, little endian |
//! | aarch64 | `movz xzr, #low half of number, lsl #48` | the word `0xd2e0001f \| low half << 5`, little endian |
//!
//! The number is [`MAGIC`] in its upper half, then a byte that says what, then a byte's value:
//!
//! | what | value | |
//! |---|---|---|
//! | 1 | the operation ([`Operation`]) | a counted operation begins with the next instruction |
//! | 2 | 0 | it ended with the last instruction |
//! | 3 | 0 | a cell's number begins: it is 0 until digits come |
//! | 4 | 0 to 15 | its next digit, from the highest on |
//!
//! So an operation costs its two marks; the cell's number, which no instruction can hold, comes before
//! the cell's first operation, and is counted nowhere. Operations that the cell does not count (its layout, what it warms
//! up with) are marked too, under [`NO_CELL`]. Marks do not nest.

#![allow(unsafe_code)] // instructions without effect

use std::sync::atomic::{AtomicU32, Ordering};

use stopgap_events::words;

/// The upper half of each mark's number.
pub const MAGIC: u16 = 0x5709;

/// A counted operation, between two marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A buffer is mapped.
    Map = 0,
    /// Each of its pages is used for the first time.
    Touch = 1,
    /// It is unmapped.
    Unmap = 2,
    /// Its protection is changed.
    Protect = 3,
    /// A request and its reply.
    Roundtrip = 4,
    /// fork(2) alone, in the parent.
    Fork = 5,
    /// The rest of a child's life until it is reaped.
    Wait = 6,
    /// A buffer object is made.
    Create = 7,
    /// It is destroyed.
    Destroy = 8,
    /// A buffer is mapped for DMA.
    DmaMap = 9,
    /// It is unmapped.
    DmaUnmap = 10,
    /// Nothing: what counting costs.
    Nothing = 11,
    /// A mapped object is taken from a cache.
    Take = 12,
    /// Each of its pages is used again.
    TouchAgain = 13,
    /// It is given back.
    Give = 14,
}

words!(
    Operation, "operation",
    Map "map", Touch "first touch", Unmap "unmap", Protect "protect", Roundtrip "round trip", Fork "fork", Wait "wait",
    Create "create", Destroy "destroy", DmaMap "dma map", DmaUnmap "dma unmap", Nothing "nothing",
    Take "take", TouchAgain "touch", Give "give"
);

/// The number of a mark.
#[must_use]
pub const fn number(what: u8, value: u8) -> u32 {
    (MAGIC as u32) << 16 | (what as u32) << 8 | value as u32
}

const BEGIN: u8 = 1;
const END: u8 = 2;
const CELL_BEGINS: u8 = 3;
const DIGIT: u8 = 4;

macro_rules! instruction {
    ($what:expr, $value:expr) => {
        // SAFETY: an instruction that reads and writes nothing: a no-operation by its encoding on x86-64, a move to
        // the register that is always zero on aarch64.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                ".byte 0x0f, 0x1f, 0x80",
                ".long {number}",
                number = const number($what, $value),
                options(nomem, nostack, preserves_flags)
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                ".inst {word}",
                word = const 0xd2e0_001f | (number($what, $value) & 0xffff) << 5,
                options(nomem, nostack, preserves_flags)
            );
        }
    };
}

/// An operation begins with the next instruction. `OPERATION` is an [`Operation`] as a number.
#[inline(always)]
pub fn begin<const OPERATION: u8>() {
    instruction!(BEGIN, OPERATION);
}

/// It ended.
#[inline(always)]
pub fn end() {
    instruction!(END, 0);
}

/// The number of no cell: operations that nobody asked for, which come before and between those that are counted.
pub const NO_CELL: u32 = u32::MAX;

/// The number of the cell that this process carries out.
static CELL: AtomicU32 = AtomicU32::new(NO_CELL);

/// This process carries out the cell of this number (its place in the plan). What follows is none of its operations
/// yet: it warms up.
pub fn cell(number: u32) {
    CELL.store(number, Ordering::Relaxed);
    said(NO_CELL);
}

/// Whether the operations that follow are among those that the cell counts.
pub fn counted(yes: bool) {
    said(if yes {
        CELL.load(Ordering::Relaxed)
    } else {
        NO_CELL
    });
}

fn said(number: u32) {
    instruction!(CELL_BEGINS, 0);
    for shift in (0..8).rev().map(|digit| 4 * digit) {
        digit(number >> shift & 15);
    }
}

fn digit(value: u32) {
    match value {
        0 => instruction!(DIGIT, 0),
        1 => instruction!(DIGIT, 1),
        2 => instruction!(DIGIT, 2),
        3 => instruction!(DIGIT, 3),
        4 => instruction!(DIGIT, 4),
        5 => instruction!(DIGIT, 5),
        6 => instruction!(DIGIT, 6),
        7 => instruction!(DIGIT, 7),
        8 => instruction!(DIGIT, 8),
        9 => instruction!(DIGIT, 9),
        10 => instruction!(DIGIT, 10),
        11 => instruction!(DIGIT, 11),
        12 => instruction!(DIGIT, 12),
        13 => instruction!(DIGIT, 13),
        14 => instruction!(DIGIT, 14),
        _ => instruction!(DIGIT, 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_their_place() {
        for (place, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, place);
        }
        assert_eq!(number(BEGIN, 3), 0x5709_0103);
    }

    /// The bytes as they stand in the program: what a plugin looks for.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_mark_is_one_instruction_of_seven_bytes() {
        #[inline(never)]
        extern "C" fn marked() {
            begin::<{ Operation::Unmap as u8 }>();
            end();
        }
        let code = marked as extern "C" fn() as *const u8;
        // SAFETY: the function is longer than what is looked at only where it is aligned to 16 bytes and padded, so
        // no more than the two marks, a prologue and a return are read: all of it is this program's text.
        let bytes = unsafe { std::slice::from_raw_parts(code, 14) };
        let expected = [0x0f, 0x1f, 0x80, 0x02, 0x01, 0x09, 0x57];
        let at = bytes.windows(7).position(|seven| seven == expected);
        assert!(at.is_some(), "{bytes:02x?}");
    }
}
