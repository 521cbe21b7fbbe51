//! A cell of `probe roundtrip` as parameters of a record's series, and back.

use std::collections::BTreeMap;

use stopgap_events::roundtrip::Cell;

use crate::record::{Parameter, Series};

/// Returns the cell's parameters, by the names of the probe's flags.
#[must_use]
pub fn parameters(cell: &Cell) -> BTreeMap<String, Parameter> {
    [
        ("client", cell.client.word().into()),
        ("server", cell.server.word().into()),
        ("k", cell.descriptors.into()),
        ("work", cell.work.short().into()),
        ("batch", cell.batch.into()),
        ("reply", cell.reply.word().into()),
        ("on", cell.cpus.word().into()),
        ("policy", cell.policy.word().into()),
    ]
    .map(|(name, value): (&str, Parameter)| (name.to_owned(), value))
    .into()
}

/// Returns the cell that a series was measured of; `None` where a parameter is missing or unknown.
#[must_use]
pub fn cell(series: &Series) -> Option<Cell> {
    let number = |name| u32::try_from(series.number(name)?).ok();
    Some(Cell {
        client: series.word("client")?.parse().ok()?,
        server: series.word("server")?.parse().ok()?,
        descriptors: number("k")?,
        work: series.word("work")?.parse().ok()?,
        batch: number("batch")?,
        reply: series.word("reply")?.parse().ok()?,
        cpus: series.word("on")?.parse().ok()?,
        policy: series.word("policy")?.parse().ok()?,
        ..Cell::PLAIN
    })
}
