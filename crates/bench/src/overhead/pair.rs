//! The process that is recorded: it starts client and server and writes what they cost.

use std::path::Path;
use std::process::ExitCode;

use stopgap_cli::Failure;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::tasks::Tasks;
use stopgap_probes::roundtrip::{Cell, ClientWait, Cost, Cpus, fixed};

/// The word for a cell, as the process is told it.
pub(super) fn word(cell: &Cell) -> String {
    format!("{},{},{}", cell.client, cell.cpus, cell.work.0)
}

fn cell(word: &str) -> Option<Cell> {
    let mut words = word.split(',');
    let (client, cpus, work) = (words.next()?, words.next()?, words.next()?);
    Some(Cell {
        client: client.parse::<ClientWait>().ok()?,
        cpus: cpus.parse::<Cpus>().ok()?,
        work: Nanos(work.parse().ok()?),
        ..Cell::PLAIN
    })
}

/// Carries out the round trips of the cell in the first of `words`; the second is the file.
pub(super) fn run(words: &[String], round_trips: u64) -> Result<ExitCode, Failure> {
    let [what, file] = words else {
        return Err(Failure::error("--pair: give a cell and a file"));
    };
    let cell = cell(what).ok_or_else(|| Failure::error(format!("--pair: no cell {what}")))?;
    // From the last one down: the first has most of the interrupts.
    let mut cpus = Linux.cpus()?;
    cpus.reverse();
    let cost = fixed(&Linux, &cell, &cpus, round_trips)?;
    let failed = |error: std::io::Error| Failure::error(format!("{file}: {error}"));
    let text = serde_json::to_vec(&cost).map_err(|error| failed(error.into()))?;
    std::fs::write(file, text).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// What a process wrote into `file`.
pub(super) fn read(file: &Path) -> Result<Cost, Failure> {
    let wrong = |why: String| Failure::error(format!("the client and the server: {why}"));
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_told_by_its_word() {
        for told in super::super::CELLS {
            assert_eq!(cell(&word(&told)), Some(told));
        }
        let works = Cell {
            work: Nanos(500),
            ..Cell::PLAIN
        };
        assert_eq!(cell(&word(&works)), Some(works));
        for wrong in ["poll", "poll,one", "poll,here,0", "poll,one,x"] {
            assert_eq!(cell(wrong), None, "{wrong}");
        }
    }
}
