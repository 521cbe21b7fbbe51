//! `stopgap snapshot`: this machine's physical memory, as input for a replay.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_events::snapshot::Snapshot;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals, snapshot};
use stopgap_models::chunks::scenario::snapshot::Frames;
use stopgap_report::snapshot::screen;

use crate::args;
use crate::failure::{DONE, Failure};
use crate::input_file::stop_if_interrupted;
use crate::whole_file::WholeFile;
use crate::{output, places, progress, voice};

pub(crate) fn run(args: &args::Snapshot) -> Result<ExitCode, Failure> {
    signals::install();
    if args.output.as_deref() == Some(Path::new("-")) {
        output::written_out(
            write(&take()?, output::stdout()).and_then(|()| stop_if_interrupted()),
        )?;
        return Ok(ExitCode::from(DONE));
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => usual_place()?,
    };
    let name = path.display().to_string();
    // Before the work, so that an error about the place comes at once.
    let whole = WholeFile::private(&path).map_err(|error| cannot(&name, &error))?;
    let snapshot = take()?;
    write(&snapshot, whole.file())
        .and_then(|()| stop_if_interrupted())
        .and_then(|()| whole.finish())
        .map_err(|error| cannot(&name, &error))?;
    output::screen(&screen(&snapshot, &name, voice::style()))?;
    if let Some(why) = no_model(&snapshot) {
        output::screen(&format!("note: {why}\n"))?;
    }
    Ok(ExitCode::from(DONE))
}

/// Returns why no replay can start from the snapshot; `None` where one can.
fn no_model(snapshot: &Snapshot) -> Option<String> {
    let why = Frames::from_snapshot(snapshot).err()?;
    Some(format!("replay chunks cannot start from it: {why}"))
}

/// Writes a snapshot that a probe took to `path`.
pub(crate) fn save(snapshot: &Snapshot, path: &Path) -> Result<(), Failure> {
    let name = path.display().to_string();
    let whole = WholeFile::private(path).map_err(|error| cannot(&name, &error))?;
    write(snapshot, whole.file())
        .and_then(|()| whole.finish())
        .map_err(|error| cannot(&name, &error))
}

fn cannot(name: &str, error: &io::Error) -> Failure {
    Failure::error(format!("cannot write {name}: {error}"))
}

/// A file of its own in the directory of the records.
fn usual_place() -> Result<PathBuf, Failure> {
    let name = output::name("snapshot", Linux.unix_seconds());
    Ok(places::records(None)?.join(name))
}

fn take() -> Result<Snapshot, Failure> {
    let bar = progress::progress_bar();
    bar.set_message("reading page frames");
    let mut progress = |share: f64| {
        bar.set_position((share * 1_000.0) as u64);
        !signals::interrupted()
    };
    let taken = snapshot::take(&Linux, env!("CARGO_PKG_VERSION"), &mut progress);
    bar.finish_and_clear();
    taken?.ok_or_else(interrupted)
}

fn interrupted() -> Failure {
    Failure::error("interrupted: nothing was written")
}

fn write(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    snapshot.write(&mut out)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_model_holds_is_said_when_it_is_taken() {
        let said = |pages: u64| {
            let text = format!(
                r#"{{"schema":"stopgap.snapshot/1","version":"0","taken_unix_s":1,"kernel":null,
                "page_bytes":4096,"pageblock_order":9,"zones":[{{"node":0,"name":"Normal",
                "start_frame":134217728,"pages":{pages},"present":{pages},"managed":{pages},
                "watermarks":{{"min":1,"low":2,"high":3}},"per_cpu":null,"free_blocks":[1],
                "by_type":null,"layout":null,"mapped":null}}],"missing":[]}}"#
            );
            no_model(&Snapshot::from_json(text.as_bytes()).unwrap())
        };
        assert_eq!(said(1 << 24), None);
        let why = said((1 << 24) + 1).unwrap();
        assert!(
            why.contains("replay chunks cannot") && why.contains("64 GiB"),
            "{why}"
        );
    }
}
