use super::{Kind, Mark, kind};

fn nop(displacement: u32) -> Vec<u8> {
    let mut bytes = vec![0x0f, 0x1f, 0x80];
    bytes.extend(displacement.to_le_bytes());
    bytes
}

#[test]
fn marks() {
    assert_eq!(kind(&nop(0x5709_0100)), Kind::Mark(Mark::Begin(0)));
    assert_eq!(kind(&nop(0x5709_01ff)), Kind::Mark(Mark::Begin(255)));
    assert_eq!(kind(&nop(0x5709_0200)), Kind::Mark(Mark::End));
    assert_eq!(kind(&nop(0x5709_0300)), Kind::Mark(Mark::Cell));
    assert_eq!(kind(&nop(0x5709_040f)), Kind::Mark(Mark::Digit(15)));
    for mark in [Mark::Begin(11), Mark::End, Mark::Cell, Mark::Digit(0)] {
        assert_eq!(Mark::of(mark.displacement()), Some(mark));
    }
}

/// A compiler's own padding, other displacements, other registers, and bytes that are cut.
#[test]
fn other_nops_are_no_marks() {
    for displacement in [
        0,
        0x5709_0000,
        0x5709_0201,
        0x5709_0301,
        0x5709_0410,
        0x5709_0500,
        0x5708_0100,
        0x0957_0001,
    ] {
        assert_eq!(kind(&nop(displacement)), Kind::Other, "{displacement:08x}");
    }
    assert_eq!(kind(&[0x0f, 0x1f, 0x81, 0, 1, 0x09, 0x57]), Kind::Other);
    assert_eq!(kind(&nop(0x5709_0100)[..6]), Kind::Other);
    assert_eq!(kind(&[]), Kind::Other);
    assert_eq!(kind(&[0x2e]), Kind::Other);
}

/// Encodings as objdump(1) shows them in a kernel.
#[test]
fn calls_and_returns() {
    let calls: [&[u8]; 6] = [
        &[0xe8, 1, 2, 3, 4],             // call rel32
        &[0x2e, 0xe8, 1, 2, 3, 4],       // cs call
        &[0xff, 0xd0],                   // call *%rax
        &[0x41, 0xff, 0xd3],             // call *%r11
        &[0xff, 0x15, 1, 2, 3, 4],       // call *x(%rip)
        &[0x3e, 0xff, 0x14, 0xc5, 0, 0], // notrack call *x(,%rax,8)
    ];
    for call in calls {
        assert_eq!(kind(call), Kind::Call, "{call:02x?}");
    }
    for ret in [&[0xc3][..], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0xc2, 8, 0]] {
        assert_eq!(kind(ret), Kind::Return, "{ret:02x?}");
    }
    for leave in [
        &[0x48, 0xcf][..],
        &[0xcf],
        &[0x48, 0x0f, 0x07],
        &[0x0f, 0x07],
        &[0x48, 0x0f, 0x35],
    ] {
        assert_eq!(kind(leave), Kind::Leave, "{leave:02x?}");
    }
    let others: [&[u8]; 6] = [
        &[0xff, 0xe0],       // jmp *%rax
        &[0xff, 0x1d, 0, 0], // lcall *x(%rip)
        &[0xff, 0x30],       // push (%rax)
        &[0xff, 0xc0],       // inc %eax
        &[0x0f, 0x05],       // syscall
        &[0xcb],             // lret
    ];
    for other in others {
        assert_eq!(kind(other), Kind::Other, "{other:02x?}");
    }
}
