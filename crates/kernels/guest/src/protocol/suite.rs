use super::{Cell, Device, Work};
use stopgap_events::units::Bytes;
use stopgap_events::workload::Workload;

/// Mappings that stay, of the workloads that let them be chosen.
const N: [u32; 3] = [1_000, 10_000, 40_000];

/// The standard suite: pbobench and agua at N = 1,000, 10,000 and 40,000, the three forms of freegap, round
/// trips and fork. Its counts are chosen so that a boot with all of it ends within seconds.
#[must_use]
pub fn standard() -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in [Workload::Pbobench, Workload::Agua] {
        cells.extend(N.map(|n| placement(workload, n)));
    }
    for workload in [
        Workload::FreegapPosted,
        Workload::FreegapInnermprot,
        Workload::FreegapInnerremap,
    ] {
        cells.push(placement(workload, workload.default_n()));
    }
    cells.push(Cell {
        name: "roundtrip".to_owned(),
        work: Work::Roundtrip { requests: 1_000 },
    });
    for exec in [false, true] {
        let name = if exec { "fork-exec" } else { "fork" };
        cells.push(Cell {
            name: name.to_owned(),
            work: Work::Fork {
                children: 100,
                exec,
                pages: 256,
            },
        });
    }
    cells
}

/// Buffer objects of every device at N = 1,000, one of 4 MiB that is used again, and 4 MiB for DMA in pages of 4 KiB, 64 KiB and 2 MiB: what needs
/// modules and an emulated IOMMU.
#[must_use]
pub fn devices() -> Vec<Cell> {
    let objects = Device::ALL.iter().map(|&device| Cell {
        name: format!("{device} N=1000"),
        work: Work::Device {
            device,
            n: 1_000,
            operations: 500,
        },
    });
    let reuse = Device::ALL.iter().map(|&device| Cell {
        name: format!("reuse {device}"),
        work: Work::Reuse {
            device,
            length: Bytes::mib(4),
            operations: 20,
        },
    });
    let pages = [Bytes::kib(4), Bytes::kib(64), Bytes::mib(2)];
    let dma = pages.map(|page_size| Cell {
        name: format!("vfio {}", page_size.short()),
        work: Work::Vfio {
            length: Bytes::mib(4),
            page_size,
            operations: 20,
        },
    });
    objects.chain(reuse).chain(dma).collect()
}

/// The words that cells are chosen by, in the suites' order, each once.
#[must_use]
pub fn words() -> Vec<&'static str> {
    let mut words = Vec::new();
    for cell in standard().iter().chain(&devices()) {
        if !words.contains(&cell.work.word()) {
            words.push(cell.work.word());
        }
    }
    words
}

/// The cells of both suites that one of `chosen` names, by their word ([`Work::word`]) or in full
/// (`pbobench N=1000`), in the suites' order.
///
/// # Errors
/// A word that names nothing: the text names all that there are.
pub fn chosen<T: AsRef<str>>(chosen: &[T]) -> Result<Vec<Cell>, String> {
    let cells: Vec<Cell> = standard().into_iter().chain(devices()).collect();
    let names = |cell: &Cell, word: &str| cell.work.word() == word || cell.name == word;
    for word in chosen.iter().map(AsRef::as_ref) {
        if !cells.iter().any(|cell| names(cell, word)) {
            let known = words().join(", ");
            return Err(format!("unknown workload '{word}'; there are {known}"));
        }
    }
    let wanted = |cell: &Cell| chosen.iter().any(|word| names(cell, word.as_ref()));
    Ok(cells.into_iter().filter(wanted).collect())
}

fn placement(workload: Workload, n: u32) -> Cell {
    Cell {
        name: if workload.n_may_be_chosen() {
            format!("{workload} N={n}")
        } else {
            workload.to_string()
        },
        work: Work::Placement {
            workload,
            n,
            // More than one loop of agua, whose unmaps come last.
            operations: if workload == Workload::Agua {
                12_500
            } else {
                2_000
            },
        },
    }
}
