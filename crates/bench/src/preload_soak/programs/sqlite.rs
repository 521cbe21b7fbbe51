//! SQLite with its file mapped (`PRAGMA mmap_size`): the mapping grows with the file, by mremap.

use crate::preload_soak::place::{Place, failed, finish};
use crate::preload_soak::programs::Program;

pub(super) struct Sqlite;

const SCRIPT: &str = include_str!("../sources/tables.sql");
/// Rows that the script makes; it deletes those whose number 3 divides.
const ROWS: u64 = 300_000;

impl Program for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn packages(&self) -> &'static str {
        "sqlite3"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["sqlite3"]
    }

    fn prepare(&self, place: &Place) -> Result<(), String> {
        let path = place.shared().join("tables.sql");
        std::fs::write(&path, SCRIPT).map_err(|e| failed(&path, &e))
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let mut command = place.command("sqlite3");
        let script = place.shared().join("tables.sql");
        command
            .args(["-batch", "-bail"])
            .arg(place.run().join("db"));
        command.arg(format!(".read {}", script.display()));
        let said = finish(command, &place.run())?;
        let path = place.run().join("answers");
        std::fs::write(&path, said.out).map_err(|e| failed(&path, &e))
    }

    fn check(&self, place: &Place) -> Result<Vec<u8>, String> {
        let path = place.run().join("answers");
        let answers = std::fs::read_to_string(&path).map_err(|e| failed(&path, &e))?;
        let lines: Vec<&str> = answers.lines().collect();
        // Known without SQLite: the numbers up to ROWS but the multiples of 3, and their sum.
        let third = ROWS / 3;
        let count = ROWS - third;
        let sum = ROWS * (ROWS + 1) / 2 - 3 * third * (third + 1) / 2;
        let wanted = [format!("rows {count} {sum}"), "1073741824".to_owned()];
        for wanted in &wanted {
            if !lines.contains(&wanted.as_str()) {
                return Err(format!("no line '{wanted}' among {lines:?}"));
            }
        }
        if lines.iter().filter(|line| **line == "ok").count() != 2 {
            return Err(format!("integrity_check: {lines:?}"));
        }
        Ok(answers.into_bytes())
    }
}
