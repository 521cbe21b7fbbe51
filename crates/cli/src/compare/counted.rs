//! What is counted of a command where it is asked for: system calls and instructions.

use std::ffi::OsString;
use std::fs;

use stopgap_kernel::Linux;
use stopgap_kernel::linux::Held;
use stopgap_kernel::linux::perf::Counter;
use stopgap_stats::gather::{EMULATED, INSTRUCTIONS, Measured, SYSTEM_CALLS};

use crate::failure::Failure;
use crate::run::program;

/// Counters of every run.
pub(super) struct Counted {
    system_calls: bool,
    instructions: bool,
    /// Where valgrind writes its counts, a file a process.
    emulated: Option<stopgap_kernels::Folder>,
}

/// The counts of a run.
pub(super) struct Counting {
    system_calls: Option<Counter>,
    instructions: Option<Counter>,
}

/// How the files of a run's processes begin; one unit of runs is there at a time.
fn prefix(run: usize) -> String {
    format!("{run}-")
}

impl Counted {
    /// Returns what the endpoints need; the error says what is missing here.
    pub(super) fn of(endpoints: &[String]) -> Result<Counted, Failure> {
        let asks = |name: &str| endpoints.iter().any(|endpoint| endpoint == name);
        let emulated = match (asks(EMULATED), endpoints.len()) {
            (false, _) => None,
            (true, 1) => {
                if program::find("valgrind".as_ref()).is_none() {
                    return Err(Failure::error(format!(
                        "{EMULATED}: valgrind counts them, and it is not installed"
                    )));
                }
                Some(stopgap_kernels::Folder::new()?)
            }
            (true, _) => {
                return Err(Failure::error(format!(
                    "{EMULATED} must be the only --endpoint: under valgrind every other figure is of valgrind"
                )));
            }
        };
        Ok(Counted {
            system_calls: asks(SYSTEM_CALLS),
            instructions: asks(INSTRUCTIONS),
            emulated,
        })
    }

    /// Returns the words that run `script`, as the run of this number in its unit.
    pub(super) fn words(&self, script: String, run: usize) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(folder) = &self.emulated {
            words.extend(
                [
                    "valgrind",
                    "--tool=cachegrind",
                    "--cache-sim=no",
                    "--trace-children=yes",
                    "--cachegrind-out-file=/dev/null",
                ]
                .map(OsString::from),
            );
            let mut log = OsString::from("--log-file=");
            log.push(folder.path().join(prefix(run)));
            log.push("%p");
            words.push(log);
        }
        words.extend(["sh".into(), "-c".into(), script.into()]);
        words
    }

    /// Begins to count at the exec of the command that is held.
    pub(super) fn begin(&self, held: &Held) -> Result<Counting, Failure> {
        let counter = |asked: bool, open: fn(&Linux, &Held) -> stopgap_kernel::Result<Counter>| {
            asked.then(|| open(&Linux, held)).transpose()
        };
        let instructions = counter(self.instructions, Counter::instructions).map_err(|error| {
            Failure::error(format!(
                "{error}; --endpoint '{EMULATED}' counts them under valgrind, some 30 times slower"
            ))
        })?;
        Ok(Counting {
            system_calls: counter(self.system_calls, Counter::system_calls)?,
            instructions,
        })
    }

    /// Adds the counts of a run that has ended.
    pub(super) fn end(
        &self,
        counting: &Counting,
        run: usize,
        measured: &mut Measured,
    ) -> Result<(), Failure> {
        let read = |counter: &Option<Counter>| counter.as_ref().map(Counter::read).transpose();
        measured.system_calls = read(&counting.system_calls)?;
        measured.instructions = read(&counting.instructions)?;
        if let Some(folder) = &self.emulated {
            measured.emulated_instructions = Some(logged(folder, run)?);
        }
        Ok(())
    }
}

/// Returns the sum of what valgrind wrote of a run's processes, and removes it.
fn logged(folder: &stopgap_kernels::Folder, run: usize) -> Result<u64, Failure> {
    let failed = |error| Failure::error(format!("valgrind's counts: {error}"));
    let mut sum = None;
    for file in fs::read_dir(folder.path()).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&prefix(run)) {
            let text = fs::read_to_string(&path).map_err(failed)?;
            if let Some(count) = refs(&text) {
                sum = Some(sum.unwrap_or(0) + count);
            }
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    sum.ok_or_else(|| {
        Failure::error("valgrind counted no instructions: what it runs ended otherwise")
    })
}

/// Returns the count of a log: `==7== I   refs:      2,232,445`. Where a process went on as another program, that of the last one.
fn refs(text: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| {
        let (before, count) = line.split_once("refs:")?;
        before.trim_end().ends_with('I').then_some(count)
    })?;
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valgrinds_counts_are_read_of_old_and_new_versions() {
        assert_eq!(
            refs("==7== Command: x\n==7== I   refs:      2,232,445\n"),
            Some(2_232_445)
        );
        assert_eq!(
            refs("==7== I refs:        187,443\n==7== \n"),
            Some(187_443)
        );
        assert_eq!(refs("==7== D refs:  5\n==7== Command: ls I refs\n"), None);
        assert_eq!(refs(""), None);
    }

    #[test]
    fn emulated_instructions_stand_alone() {
        let endpoints = [EMULATED.to_owned(), "CPU time".to_owned()];
        assert!(matches!(
            Counted::of(&endpoints),
            Err(Failure::Told { message, .. }) if message.contains("must be the only --endpoint")
        ));
    }
}
