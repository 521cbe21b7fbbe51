//! The table of IOMMU readings: a row a workload and kernel.

use crate::judge::Kernels;
use stopgap_events::units::Bytes;
use stopgap_guest::protocol::Dma;

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
            let of = kernel.dma.iter().find(|of| of.cell == cell);
            let samples = of.map_or(&[][..], |of| &of.seeds);
            // The values of all layouts: one where they agree.
            let mut values: [Vec<String>; 4] = Default::default();
            for dma in samples.iter().map(|sample| &sample.dma) {
                let each = shown(dma).into_iter().zip(&mut values).zip(&HEAD[2..]);
                for ((value, values), what) in each {
                    let value = value.unwrap_or_else(|why| {
                        let line = format!("{}, {what}: {why}", name(number));
                        if !unknown.contains(&line) {
                            unknown.push(line);
                        }
                        "unknown".to_owned()
                    });
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
            let values = values.map(|values| match &values[..] {
                // Refused, or other data than was sent: it stands under what was not measured.
                [] => "-".to_owned(),
                [value] => value.clone(),
                // The first of several values, because lines have an end; the record has all.
                [first, more @ ..] => format!("{first} or {} more", more.len()),
            });
            rows.push(
                [cell.to_owned(), name(number)]
                    .into_iter()
                    .chain(values)
                    .collect(),
            );
        }
    }
    (rows, unknown)
}

/// The readings as the columns show them: `1,024 of 4 KiB (computed)`, or why they are unknown.
fn shown(dma: &Dma) -> [Result<String, &str>; 4] {
    let entries = dma.entries.get().map(|entries| {
        let sizes = entries.by_size.iter();
        let sizes = sizes.map(|(&size, &count)| format!("{} of {}", thousands(count), Bytes(size)));
        let all = sizes.collect::<Vec<_>>().join(", ");
        format!("{all} ({})", entries.source)
    });
    let copied = dma.copied_bytes.get();
    [
        entries,
        dma.physical_runs.get().map(|&runs| thousands(runs)),
        dma.table_pages.get().map(|&pages| thousands(pages)),
        copied.map(|&bytes| format!("{}, as sent", Bytes(bytes))),
    ]
}
