//! The table of IOMMU readings: a row a workload and kernel.

use std::fmt::Display;

use crate::judge::{DmaCell, Kernels};
use stopgap_events::units::Bytes;
use stopgap_guest::protocol::{Dma, Entries};

use stopgap_report::text::thousands;

/// The head of the table.
pub(crate) const HEAD: [&str; 6] = [
    "for DMA",
    "kernel",
    "IOMMU entries",
    "physical runs",
    "table pages",
    "transfer",
];

/// The rows, by workload and then by kernel, and under them why something is not known. Nothing where no kernel's guests
/// mapped anything for DMA.
pub(crate) fn rows(
    record: &Kernels,
    name: impl Fn(usize) -> String,
) -> (Vec<Vec<String>>, Vec<String>) {
    let mut cells: Vec<&str> = Vec::new();
    for of in record.kernels.iter().flat_map(|kernel| &kernel.dma) {
        if !cells.contains(&&*of.cell) {
            cells.push(&of.cell);
        }
    }
    let (mut rows, mut unknown) = (Vec::new(), Vec::new());
    for cell in cells {
        for (number, kernel) in record.kernels.iter().enumerate() {
            let mut row = vec![cell.to_owned(), name(number)];
            match kernel.dma.iter().find(|of| of.cell == cell) {
                // Refused, or other data than was sent: it stands under what was not measured.
                None => row.extend(["-"; 4].map(str::to_owned)),
                Some(of) => {
                    row.extend([
                        over(of, |dma| shown(dma.entries.get(), entries)),
                        over(of, |dma| {
                            shown(dma.physical_runs.get(), |&runs| thousands(runs))
                        }),
                        over(of, |dma| {
                            shown(dma.table_pages.get(), |&pages| thousands(pages))
                        }),
                        over(of, |dma| {
                            shown(dma.copied_bytes.get(), |&bytes| {
                                format!("{}, as sent", Bytes(bytes))
                            })
                        }),
                    ]);
                    why(of, &name(number), &mut unknown);
                }
            }
            rows.push(row);
        }
    }
    (rows, unknown)
}

fn shown<T>(known: Result<&T, &str>, show: impl Fn(&T) -> String) -> String {
    known.map_or("unknown".to_owned(), show)
}

/// `1,024 of 4 KiB (computed)`.
fn entries(entries: &Entries) -> String {
    let sizes = entries.by_size.iter();
    let sizes = sizes.map(|(&size, &count)| format!("{} of {}", thousands(count), Bytes(size)));
    let all = sizes.collect::<Vec<_>>().join(", ");
    format!("{all} ({})", entries.source)
}

/// Formats the value of all layouts: one value where they agree.
fn over(of: &DmaCell, show: impl Fn(&Dma) -> String) -> String {
    let mut values: Vec<String> = Vec::new();
    for sample in &of.seeds {
        let value = show(&sample.dma);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    // The first of several values, because lines have an end; the record has all.
    let more = values.len().saturating_sub(1);
    let mut text = values.into_iter().next().unwrap_or_default();
    if more > 0 {
        text.push_str(&format!(" or {more} more"));
    }
    text
}

/// Adds the reasons of unknown readings, each once.
fn why(of: &DmaCell, kernel: &str, unknown: &mut Vec<String>) {
    for sample in &of.seeds {
        let dma = &sample.dma;
        let each: [(&dyn Display, Option<&str>); 4] = [
            (&HEAD[2], dma.entries.get().err()),
            (&HEAD[3], dma.physical_runs.get().err()),
            (&HEAD[4], dma.table_pages.get().err()),
            (&HEAD[5], dma.copied_bytes.get().err()),
        ];
        for (what, why) in each {
            let line = why.map(|why| format!("{kernel}, {what}: {why}"));
            unknown.extend(line.filter(|line| !unknown.contains(line)));
        }
    }
}
