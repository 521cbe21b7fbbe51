//! What a cell does, each kind in a file of its own. All are called in a process of their own, its layout taken.

mod command;
mod device;
mod fork;
mod placement;
mod reuse;
mod roundtrip;
mod vfio;

use crate::protocol::{Cell, Line, Work};

use crate::counter::Counter;

/// Carries a cell out. The argument that makes this program end at once is [`fork::NOTHING`].
///
/// # Errors
/// The system's refusal, in one line.
pub fn carry_out(cell: &Cell, seed: u64, counter: &Counter) -> Result<Vec<Line>, String> {
    match &cell.work {
        Work::Placement {
            workload,
            n,
            operations,
        } => placement::run(&cell.name, *workload, *n, *operations, seed, counter),
        Work::Roundtrip { requests } => roundtrip::run(&cell.name, *requests, counter),
        Work::Fork {
            children,
            exec,
            pages,
        } => fork::run(&cell.name, *children, *exec, *pages, counter),
        Work::Command { argv, files, limit } => command::run(&cell.name, argv, files, *limit),
        Work::Device {
            device,
            n,
            operations,
        } => device::run(&cell.name, *device, *n, *operations, seed, counter),
        Work::Reuse {
            device,
            length,
            operations,
        } => reuse::run(&cell.name, *device, *length, *operations, counter),
        Work::Vfio {
            length,
            page_size,
            operations,
        } => vfio::run(&cell.name, *length, *page_size, *operations, counter),
    }
}

pub use fork::NOTHING;

/// A number of operations as a length.
fn length(count: u64) -> Result<usize, String> {
    usize::try_from(count).map_err(|_| format!("{count} are too many"))
}
