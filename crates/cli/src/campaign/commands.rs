//! The commands of a plan, run by `sh -c`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use rustix::fs::{MemfdFlags, memfd_create};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::{Conditions, Held};
use stopgap_kernel::{Linux, signals};

use crate::input_file::LARGEST_RECORD;

/// How often it is looked at whether to stop.
const STEP: Nanos = Nanos::millis(200);

/// How long a command that is asked to end may take.
const PATIENCE: Nanos = Nanos::secs(2);

/// Sleeps for a time, shorter on Ctrl-C.
pub(super) fn sleep(time: Nanos) {
    let until = Linux.now() + time;
    while Linux.now() < until && !signals::interrupted() {
        let next = Linux.now() + STEP;
        Linux.sleep_until(next.min(until));
    }
}

/// Runs the commands of an occasion, which find its side and number in their environment.
pub(super) struct Shell {
    environment: Vec<(String, String)>,
}

impl Shell {
    pub(super) fn of(side: &str, occasion: usize) -> Shell {
        let environment = [
            ("STOPGAP_SIDE", side.to_owned()),
            ("STOPGAP_OCCASION", (occasion + 1).to_string()),
        ];
        Shell {
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        }
    }

    /// Runs a command that changes something, also after Ctrl-C. The error says how it failed.
    pub(super) fn change(&self, line: &str, limit: Nanos) -> Result<(), String> {
        self.run(line, limit, None, false)
    }

    /// Runs a command that measures; returns what it printed.
    pub(super) fn measure(&self, line: &str, limit: Nanos) -> Result<Vec<u8>, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("its output: {error}");
        // In memory: a disk would be part of what is measured.
        let printed = memfd_create("stopgap-output", MemfdFlags::CLOEXEC);
        let printed = File::from(printed.map_err(|error| wrong(&error))?);
        let mut kept = printed.try_clone().map_err(|error| wrong(&error))?;
        self.run(line, limit, Some(printed), true)?;
        let mut bytes = Vec::new();
        let read = kept
            .seek(SeekFrom::Start(0))
            .and_then(|_| kept.read_to_end(&mut bytes));
        read.map_err(|error| wrong(&error))?;
        Ok(bytes)
    }

    fn run(
        &self,
        line: &str,
        limit: Nanos,
        output: Option<File>,
        ends: bool,
    ) -> Result<(), String> {
        let failed = |error: stopgap_kernel::Error| format!("'{line}': {error}");
        let printed = output.as_ref().map(File::try_clone).transpose();
        let printed = printed.map_err(|error| format!("'{line}': {error}"))?;
        let conditions = Conditions {
            output: output.map(Into::into),
            environment: self.environment.clone(),
            group: true,
            ..Conditions::default()
        };
        let script = format!("exec </dev/null\n{line}");
        let words = ["sh".into(), "-c".into(), script.into()];
        let held = Held::start_under(&words, &conditions).map_err(failed)?;
        let guard = held.guarded().map_err(failed)?;
        let child = held.release().map_err(failed)?;
        let until = Linux.now() + limit;
        let why = loop {
            if child.watched().ends_within(STEP) {
                break None;
            }
            let large = |file: &File| {
                file.metadata()
                    .is_ok_and(|of| Bytes(of.len()) > LARGEST_RECORD)
            };
            if ends && signals::interrupted() {
                break Some("was interrupted".to_owned());
            } else if Linux.now() >= until {
                break Some(format!("was not done after {limit}"));
            } else if printed.as_ref().is_some_and(large) {
                break Some(format!("printed more than {LARGEST_RECORD}"));
            }
        };
        let ended = child.end(if why.is_some() { PATIENCE } else { Nanos(0) });
        drop(guard);
        let how = match (why, ended.map_err(failed)?.map(|ended| ended.how)) {
            (Some(why), _) => why,
            (None, Some(Ok(0))) => return Ok(()),
            (None, Some(Ok(status))) => format!("failed with exit status {status}"),
            (None, Some(Err(signal))) => format!("was killed by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        };
        Err(format!("'{line}' {how}"))
    }
}
