//! `stopgap advise QUESTION`: which policy to use, and why.

use std::process::ExitCode;

use stopgap_events::question::Question;
use stopgap_kernel::signals;
use stopgap_models::chunks::experiment::Device;
use stopgap_report::advise as screen;
use stopgap_stats::advise::{Advise, SCHEMA, rule};
use stopgap_stats::document::Document;

use crate::args::AdviseChunks;
use crate::failure::Failure;
use crate::replay::chunks;
use crate::{session, voice};

/// Builds what `flags` say by every policy, chooses one, writes the record and prints it.
pub(crate) fn chunks(flags: &AdviseChunks) -> Result<ExitCode, Failure> {
    signals::install();
    let device = Device {
        sizes: flags.device,
        access: vec![flags.access],
    };
    let outcome = chunks::outcome(&flags.input, &device)?;
    let (rows, setting) = (&outcome.rows, &outcome.setting);
    let access = flags.access.word();
    let advice = if outcome.interrupted {
        rule::interrupted(rows, setting, access, flags.passes, outcome.compared)
    } else {
        rule::advise(rows, setting, access, flags.passes)
    };
    let advise = Advise {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        question: Question::Chunks,
        seed: flags.input.seed,
        interrupted: outcome.interrupted,
        advice,
        chunks: outcome.setting,
        rows: outcome.rows,
    };
    outcome
        .destination
        .write("advise-chunks", &advise.to_json(), || {
            screen::screen(&advise, voice::style())
        })
}
