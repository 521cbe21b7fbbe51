use stopgap_events::machine::Missing;

use crate::System;
use crate::error::{Error, Result};
use crate::files::read_text;

/// Collects what could not be read while the rest is.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) missing: Vec<Missing>,
}

impl Notes {
    /// The value, or a note that `what` is not known and why.
    pub(crate) fn keep<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        self.keep_or(what, "", result)
    }

    /// As [`Notes::keep`]; `absent` says what it means that the file does not exist.
    pub(crate) fn keep_or<T>(&mut self, what: &str, absent: &str, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(what, why(&error, absent));
                None
            }
        }
    }

    /// The text of a small file, or a note that `what` is not known and why.
    pub(crate) fn text(&mut self, what: &str, files: &dyn System, path: &str) -> Option<String> {
        self.keep(what, read_text(files, path))
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.missing.push(Missing::new(what, why));
    }
}

fn why(error: &Error, absent: &str) -> String {
    if error.is_absent() && !absent.is_empty() {
        absent.to_owned()
    } else if error.is_refused() {
        format!("{error}: root can")
    } else {
        error.to_string()
    }
}
