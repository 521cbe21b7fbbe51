//! A buffer for a device behind an IOMMU: mapped and unmapped by VFIO, each call counted; then looked at, and copied through
//! by QEMU's `edu`. The probe's own code, counted by instructions instead of a clock.
//!
//! Here alone a device is handed to `vfio-pci`: the machine is ours, and ends with the plan.

use std::path::Path;

use crate::protocol::{DMA, Dma, Entries, Line};
use stopgap_events::units::Bytes;
use stopgap_kernel::devices::{Devices, pci};
use stopgap_kernel::files::Files;
use stopgap_kernel::{Linux, Result};
use stopgap_probes::chunks::vfio::{
    EDU, Reached, buffer, cycles, device_address, look, table_pages,
};
use stopgap_probes::meter::Step;

use super::device::Steps;
use super::length;
use crate::counter::Counter;

/// Maps `bytes` in pages of `page` so many times.
///
/// # Errors
/// A missing device or a refusal; a transfer that gave back other data; pages that are smaller than asked for.
pub(super) fn run(
    name: &str,
    bytes: Bytes,
    page: Bytes,
    operations: u64,
    counter: &Counter,
) -> std::result::Result<Vec<Line>, String> {
    let said = |error: stopgap_kernel::Error| error.to_string();
    let devices = pci::devices(&Linux).map_err(said)?;
    let edu = devices
        .iter()
        .find(|found| (found.vendor, found.device) == EDU);
    let edu = edu.ok_or("no PCI device edu (1234:11e8): start QEMU with -device edu")?;
    pci::hand_over(&Linux, edu.address).map_err(said)?;
    let mut vfio = Linux.vfio(edu.address).map_err(said)?;

    let mut set = |knob: &Path, word: &str| -> Result<()> { Linux.write(knob, word.as_bytes()) };
    let mapping = buffer(&Linux, bytes, page, Some(&mut set))?;
    let iova = device_address(&*vfio, bytes, true).map_err(said)?;
    let before = table_pages(&Linux);
    let mut steps = Steps::of(
        &[Step::DmaMap, Step::DmaUnmap],
        length(operations)?,
        counter,
    );
    cycles(&mut *vfio, &mapping, iova, operations, &mut steps, &|| {
        false
    })
    .map_err(said)?;
    let reached = look(&Linux, &mut *vfio, edu, &mapping, iova, before).map_err(said)?;
    let dma = report(reached)?;
    let mut lines = steps.lines(name);
    lines.extend(Line::file(Some(name), DMA, dma.to_json().as_bytes()));
    Ok(lines)
}

/// Collects the readings, and of missing ones the reason.
fn report(reached: Reached) -> std::result::Result<Dma, String> {
    let entries = reached.entries.map(|entries| Entries {
        by_size: entries.by_size,
        source: entries.source.word().to_owned(),
    });
    let copied = match reached.transferred {
        Some(copied) => Ok(copied.map_err(|error| format!("the transfer: {error}"))?.0),
        None => Err("the device cannot copy".to_owned()),
    };
    Ok(Dma {
        entries: entries.into(),
        physical_runs: reached.runs.into(),
        table_pages: reached.table_pages.into(),
        copied_bytes: copied.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Unit;
    use stopgap_kernel::devices::pci::PciAddress;
    use stopgap_probes::chunks::vfio::{Source, TransferError};

    fn reached() -> Reached {
        Reached {
            entries: Ok(stopgap_probes::chunks::vfio::Entries {
                by_size: [(4096, 3), (2 << 20, 1)].into(),
                source: Source::Computed,
            }),
            runs: Ok(4),
            table_pages: Err("this kernel does not \"count\" them".to_owned()),
            transferred: Some(Ok(Bytes::kib(32))),
        }
    }

    #[test]
    fn what_is_known_is_said_and_of_the_rest_why_not() {
        assert_eq!(
            report(reached()).unwrap().to_json(),
            "{\"entries\":{\"by_size\":{\"4096\":3,\"2097152\":1},\"source\":\"computed\"},\"physical_runs\":4,\
             \"table_pages\":{\"unknown\":\"this kernel does not \\\"count\\\" them\"},\"copied_bytes\":32768}\n"
        );
    }

    #[test]
    fn other_data_is_a_failure_of_the_cell() {
        let differs = TransferError::Differs {
            at: 7,
            expected: 1,
            found: 2,
        };
        let wrong = Reached {
            transferred: Some(Err(differs)),
            ..reached()
        };
        assert!(report(wrong).unwrap_err().contains("at byte 7"));
    }

    #[test]
    fn a_machine_without_the_device_says_so() {
        let edu = |found: &pci::PciDevice| (found.vendor, found.device) == EDU;
        let devices = pci::devices(&Linux).unwrap();
        let none: Option<PciAddress> = devices
            .iter()
            .find(|found| edu(found))
            .map(|found| found.address);
        if none.is_some() {
            return; // a machine with the device: not to be handed over by a test
        }
        let counter = Counter {
            overhead: 0,
            unit: Unit::Ticks,
        };
        let error = run("a", Bytes::mib(4), Bytes::kib(4), 1, &counter).unwrap_err();
        assert!(error.contains("-device edu"), "{error}");
    }
}
