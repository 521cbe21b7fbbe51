//! How a command fails: one line that says what and what to do, and the exit status.

use std::process::ExitCode;

use stopgap_probes::ProbeError;

use crate::session::tell_error;

/// 0: done.
pub(crate) const DONE: u8 = 0;
/// 1: an error.
pub(crate) const ERROR: u8 = 1;
/// 2: a regression, where a gate was asked for.
pub(crate) const REGRESSION: u8 = 2;
/// 4: nothing proven, where a gate was asked for.
pub(crate) const CANNOT_TELL: u8 = 4;
/// 1: the later side is bad, for `git bisect run`.
pub(crate) const BISECT_BAD: u8 = 1;
/// 125: `git bisect run` skips the commit.
pub(crate) const BISECT_SKIP: u8 = 125;
/// 125: a command whose status would be ours was to be run, and stopgap itself failed. As timeout(1) has it, 126: the command
/// cannot be run, 127: it is not found.
pub(crate) const NOT_THE_COMMAND: u8 = 125;
/// 126: the command is there and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// 127: the command is not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// 3: unsupported here; of `check`: not one question could be answered.
pub(crate) const UNSUPPORTED: u8 = 3;

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// The message goes to standard error.
    Told {
        /// The failure and what to do about it, in one line.
        message: String,
        /// The exit status.
        status: u8,
    },
    /// The output is already printed (help, version).
    Silent {
        /// The exit status.
        status: u8,
    },
}

impl Failure {
    /// An error: exit status 1.
    pub fn error(message: impl Into<String>) -> Failure {
        Failure::Told {
            message: message.into(),
            status: ERROR,
        }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Failure {
        Failure::Told {
            message: message.into(),
            status: UNSUPPORTED,
        }
    }

    /// Returns the same failure with the status of one that is not the command's.
    pub(crate) fn not_of_the_command(mut self) -> Failure {
        let (Failure::Told { status, .. } | Failure::Silent { status }) = &mut self;
        if ![DONE, CANNOT_RUN, NOT_FOUND].contains(status) {
            *status = NOT_THE_COMMAND;
        }
        self
    }

    /// The line that [`Failure::report`] prints; empty where the output is already printed.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Failure::Told { message, .. } => message,
            Failure::Silent { .. } => String::new(),
        }
    }

    /// Prints the message to standard error and returns the exit status.
    #[must_use]
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Told { message, status } => {
                tell_error(&message);
                ExitCode::from(status)
            }
            Failure::Silent { status } => ExitCode::from(status),
        }
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Failure {
        match error {
            ProbeError::Unsupported(_) => Failure::unsupported(error.to_string()),
            ProbeError::System(error) => error.into(),
            _ => Failure::error(error.to_string()),
        }
    }
}

impl From<stopgap_kernel::Error> for Failure {
    fn from(error: stopgap_kernel::Error) -> Failure {
        match error {
            stopgap_kernel::Error::Unsupported { .. } => Failure::unsupported(error.to_string()),
            _ => Failure::error(error.to_string()),
        }
    }
}
