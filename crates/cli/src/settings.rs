//! `stopgap.toml`: what a project has chosen once, so that every run of its gate asks the same.

use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use stopgap_events::units::{Bytes, Nanos};

use crate::args::{CannotTell, margin, time};
use crate::failure::Failure;

/// The file, in the directory where the command is run.
pub(crate) const FILE: &str = "stopgap.toml";

/// More is no settings.
const LARGEST: Bytes = Bytes(1 << 16);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    compare: Compare,
}

/// Settings of `compare`. A flag goes before its setting.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Compare {
    /// Names of the numbers that are tested.
    pub(crate) endpoint: Vec<String>,
    margin: Option<String>,
    pub(crate) cannot_tell: Option<CannotTell>,
    max_time: Option<String>,
}

impl Compare {
    pub(crate) fn margin(&self) -> Result<Option<f64>, Failure> {
        self.margin
            .as_deref()
            .map(margin)
            .transpose()
            .map_err(wrong)
    }

    pub(crate) fn max_time(&self) -> Result<Option<Nanos>, Failure> {
        self.max_time
            .as_deref()
            .map(time)
            .transpose()
            .map_err(wrong)
    }
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::error(format!("{FILE}: {why}"))
}

/// Reads the settings of `compare` in the directory where the command is run; none where there is no file.
pub(crate) fn of_compare() -> Result<Compare, Failure> {
    let text = match crate::input_file::whole(Path::new(FILE), LARGEST) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| wrong("it is no UTF-8"))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Compare::default()),
        Err(error) => return Err(wrong(error)),
    };
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<Compare, basic_toml::Error> {
    basic_toml::from_str::<Document>(text).map(|document| document.compare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_chooses_once() {
        let text = "[compare]\nendpoint = [\"elapsed time\"]\nmargin = \"2%\"\ncannot-tell = \"pass\"\nmax-time = \"90s\"\n";
        let settings = parse(text).unwrap();
        assert_eq!(settings.endpoint, ["elapsed time"]);
        assert_eq!(settings.margin().unwrap(), Some(0.02));
        assert_eq!(settings.max_time().unwrap(), Some(Nanos::secs(90)));
        assert_eq!(settings.cannot_tell, Some(CannotTell::Pass));
        assert_eq!(parse("").unwrap(), Compare::default());
        for wrong in [
            "[compare]\nmargins = 1\n",
            "[compere]\n",
            "[compare]\ncannot-tell = \"maybe\"\n",
            "compare =",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(
            parse("[compare]\nmargin = \"much\"\n")
                .unwrap()
                .margin()
                .is_err()
        );
    }
}
