//! QEMU's teaching device `edu`: a DMA engine that copies between memory and a buffer of its own.
//!
//! Registers of BAR 0 (`docs/specs/edu.rst`, QEMU 7.2): 0 identification, 0x80 source, 0x88 destination, 0x90 count, 0x98
//! command (bit 0 starts, and reads 1 while it runs; bit 1: from the device to memory). Its buffer is 4 KiB at 0x40000. A
//! transfer takes 100 ms of the machine's clock, so it is waited for by sleeping. With the default of its DMA mask it sees 28
//! bits of a device address.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::devices::{Region, Vfio};
use stopgap_kernel::memory::Mapping;
use stopgap_kernel::{Error, System};

/// Its vendor and device.
pub const EDU: (u32, u32) = (0x1234, 0x11e8);
/// The device address below which the device sees all of memory that is mapped for it.
pub(super) const SEES: u64 = 1 << 28;

const IDENTIFICATION: u64 = 0x00;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const COMMAND: u64 = 0x98;
const START: u32 = 1;
const TO_MEMORY: u32 = 2;
const BUFFER: u32 = 0x40000;
/// Bytes of a transfer: half of its buffer, because QEMU up to 7.2 ends itself where one reaches the buffer's end.
const PIECE: u64 = 2048;
/// Bytes of a page whose pieces are checked.
const PAGE: u64 = 4096;
/// How long a transfer may take: ten times what it does.
const LIMIT: Nanos = Nanos::secs(1);
const PAUSE: Nanos = Nanos::millis(5);

/// `PCI_COMMAND`, its bits for memory and for being bus master.
const PCI_COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u32 = 2 | 4;

/// Why nothing is known of what a device did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The device came back with other data.
    #[error("the device wrote {found:#04x} at byte {at} where {expected:#04x} was expected")]
    Differs {
        /// Where in the buffer, bytes.
        at: u64,
        /// Expected byte.
        expected: u8,
        /// Byte found.
        found: u8,
    },
    /// It did not end.
    #[error("a transfer did not end within {LIMIT}")]
    Hangs,
    /// It is no such device.
    #[error("the device says it is {0:#010x}, not QEMU's edu")]
    NotEdu(u32),
    /// The system refused.
    #[error(transparent)]
    System(#[from] Error),
}

/// Has the device copy pages of the first half of `mapping`, which is mapped for it from `iova` on, to the second
/// half, and compares. `pages` of each half, spread over it: the first and the last among them. Whole pages are
/// copied; the pattern has another byte at each place and in each page, so a page in another's place is found out, and
/// the second half holds other bytes before.
///
/// Bytes that came back right.
///
/// # Errors
/// [`TransferError`]: what came back differs first.
pub fn transfer(
    system: &dyn System,
    vfio: &mut dyn Vfio,
    mapping: &Mapping,
    iova: u64,
    pages: u64,
) -> Result<Bytes, TransferError> {
    let id = vfio.read_register(Region::Bar0, IDENTIFICATION)?;
    // 0xRRrr00ed: its version stands above.
    if id & 0xffff != 0x00ed {
        return Err(TransferError::NotEdu(id));
    }
    let command = vfio.read_register(Region::Config, PCI_COMMAND)? & 0xffff;
    vfio.write_register(Region::Config, PCI_COMMAND, command | MEMORY_AND_MASTER)?;

    let half = mapping.range().length().0 / 2 / PAGE * PAGE;
    let all = half / PAGE;
    let chosen = pages.clamp(1, all.max(1));
    let spread = (0..chosen).map(|index| match chosen {
        1 => 0,
        _ => (all - 1) * index / (chosen - 1),
    });
    let offsets: Vec<u64> = spread.map(|page| page * PAGE).filter(|_| all > 0).collect();
    for &offset in &offsets {
        system.store(mapping, Bytes(offset), &pattern(offset))?;
        let other: Vec<u8> = pattern(offset).iter().map(|byte| !byte).collect();
        system.store(mapping, Bytes(half + offset), &other)?;
    }
    for &offset in &offsets {
        for piece in (0..PAGE).step_by(PIECE as usize) {
            let at = offset + piece;
            copy(system, vfio, (iova + at, u64::from(BUFFER)), START)?;
            copy(
                system,
                vfio,
                (u64::from(BUFFER), iova + half + at),
                START | TO_MEMORY,
            )?;
        }
    }
    for &offset in &offsets {
        let mut found = [0; PAGE as usize];
        system.load(mapping, Bytes(half + offset), &mut found)?;
        let wrong = (0..)
            .zip(pattern(offset))
            .zip(found)
            .find(|((_, expected), found)| expected != found);
        if let Some(((at, expected), found)) = wrong {
            return Err(TransferError::Differs {
                at: half + offset + at,
                expected,
                found,
            });
        }
    }
    Ok(Bytes(offsets.len() as u64 * PAGE))
}

/// The bytes of the page at `offset` of the buffer.
fn pattern(offset: u64) -> Vec<u8> {
    let mut random = stopgap_events::random::Random::new(offset);
    (0..PAGE / 8)
        .flat_map(|_| random.bits().to_le_bytes())
        .collect()
}

/// One transfer of a piece, waited for.
fn copy(
    system: &dyn System,
    vfio: &mut dyn Vfio,
    (source, destination): (u64, u64),
    command: u32,
) -> Result<(), TransferError> {
    let low = |address: u64| {
        u32::try_from(address).map_err(|error| Error::parse("a device address", error))
    };
    vfio.write_register(Region::Bar0, SOURCE, low(source)?)?;
    vfio.write_register(Region::Bar0, DESTINATION, low(destination)?)?;
    vfio.write_register(Region::Bar0, COUNT, low(PIECE)?)?;
    vfio.write_register(Region::Bar0, COMMAND, command)?;
    let limit = system.now() + LIMIT;
    while vfio.read_register(Region::Bar0, COMMAND)? & START != 0 {
        if system.now() >= limit {
            return Err(TransferError::Hangs);
        }
        system.sleep_until(system.now() + PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stopgap_kernel::devices::Devices;
    use stopgap_kernel::fake::{Fake, FakeVfio};
    use stopgap_kernel::memory::{MapKind, MapRequest, Memory};

    use super::*;

    const AT: &str = "0000:00:04.0";

    fn attempt(fake: FakeVfio, iova: u64, pages: u64) -> Result<Bytes, TransferError> {
        let machine = Fake::default().with_vfio(AT, fake);
        let mut vfio = machine.vfio(AT.parse().unwrap()).unwrap();
        let request = MapRequest::writable(Bytes::kib(64), MapKind::AnonymousAlone);
        let mapping = machine.map(&request).unwrap();
        vfio.map_dma(iova, &mapping).unwrap();
        transfer(&machine, &mut *vfio, &mapping, iova, pages)
    }

    #[test]
    fn what_comes_back_right_is_counted() {
        assert_eq!(
            attempt(FakeVfio::default(), 1 << 20, 3).unwrap(),
            Bytes::kib(12)
        );
        assert_eq!(
            attempt(FakeVfio::default(), 1 << 20, 1_000).unwrap(),
            Bytes::kib(32)
        );
        assert_eq!(
            attempt(FakeVfio::default(), 1 << 20, 0).unwrap(),
            Bytes::kib(4)
        );
    }

    /// One wrong byte of all, wherever it is.
    #[test]
    fn a_device_that_writes_something_else_is_found_out() {
        for wrong in [0, 1, 2_047, 2_048, 4_096, 32_767] {
            let fake = FakeVfio {
                wrong_byte: Some(wrong),
                ..FakeVfio::default()
            };
            let error = attempt(fake, 1 << 20, 1_000).unwrap_err();
            match error {
                TransferError::Differs { at, .. } => assert_eq!(at, 32_768 + wrong),
                other => panic!("{other}"),
            }
        }
    }

    /// A device that sees fewer bits of the address than are mapped writes elsewhere.
    #[test]
    fn an_address_beyond_what_the_device_sees_is_found_out() {
        let error = attempt(FakeVfio::default(), SEES + (1 << 20), 3).unwrap_err();
        assert!(matches!(error, TransferError::Differs { .. }), "{error}");
    }

    #[test]
    fn a_device_that_hangs_is_not_waited_for_for_ever() {
        let fake = FakeVfio {
            ends: false,
            ..FakeVfio::default()
        };
        let error = attempt(fake, 1 << 20, 1).unwrap_err();
        assert!(matches!(error, TransferError::Hangs), "{error}");
    }
}
