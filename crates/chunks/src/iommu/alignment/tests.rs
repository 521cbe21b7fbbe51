use super::*;

const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M1: u64 = 1 << 20;
const M8: u64 = 1 << 23;

#[test]
fn both_round_up_and_arm_stops_at_256_pages() {
    // Mail 001's Juno: 1,875 pages are mapped at a multiple of 8 MiB.
    assert_eq!(Alignment::IommuDma.bytes(1875 * K4, K4), Some(M8));
    assert_eq!(Alignment::Arm.bytes(1875 * K4, K4), Some(M1));
    for rule in [Alignment::IommuDma, Alignment::Arm] {
        assert_eq!(rule.bytes(1, K4), Some(K4));
        assert_eq!(rule.bytes(3 * K64, K64), Some(4 * K64));
    }
    assert_eq!(Alignment::Arm.bytes(1 << 40, K64), Some(K64 << 8));
}

#[test]
fn what_cannot_be_rounded_up_is_none() {
    assert_eq!(Alignment::IommuDma.bytes(u64::MAX, K4), None);
    assert_eq!(Alignment::IommuDma.bytes(1 << 63, K4), Some(1 << 63));
    assert_eq!(Alignment::IommuDma.bytes((1 << 63) + 1, K4), None);
    assert_eq!(Alignment::Arm.bytes(u64::MAX, K4), Some(M1));
    assert_eq!(iova_alignment(1875 * K4), Some(M8));
}
