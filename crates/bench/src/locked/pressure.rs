//! A purgeable object where memory gets short: how long until it gives way.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use stopgap_arena::locked::{Contents, Options, Pressure, Set};
use stopgap_cli::{Failure, tell};
use stopgap_events::memory::Protection;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::{MapKind, MapRequest, Memory};
use stopgap_kernel::tasks::Tasks;

use super::{Bound, memory};

/// What the task may have, what it locks of that, and what it touches again and again.
const LIMIT: Bytes = Bytes::mib(64);
const LOCKED: usize = 16 << 20;
const TOUCHED: Bytes = Bytes::mib(96);
/// From when on it does not react.
const LONGEST: Nanos = Nanos::secs(20);

#[derive(clap::Args)]
pub(crate) struct PressureFlags {
    /// The cgroup to enter.
    group: PathBuf,
}

/// Runs the task in a group and says what it found.
pub(super) fn measure(journal: &Journal<'_>, site: &Site) -> Result<Bound, Failure> {
    let scope = journal.scope();
    let name = format!("stopgap-{}-pressure", Linux.pid());
    let group = MemoryGroup::make(&Linux, journal, site, &name, LIMIT)?;
    let own =
        std::env::current_exe().map_err(|error| Failure::error(format!("own path: {error}")))?;
    let output = Command::new(own)
        .arg("locked-pressure")
        .arg(group.path())
        .output();
    for error in scope.undo() {
        tell(&error.to_string());
    }
    let output = output.map_err(|error| Failure::error(format!("the task: {error}")))?;
    let mut text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let _ = write!(
            text,
            "{} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(Bound {
        holds: output.status.success(),
        text: format!("pressure: {text}"),
    })
}

/// The task: a set with an object in use and a purgeable one, then more memory than there is.
pub(crate) fn task(flags: &PressureFlags) -> Result<ExitCode, Failure> {
    let file = flags.group.join("cgroup.procs");
    std::fs::write(&file, Linux.pid().to_string())
        .map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    let failed = |error: stopgap_arena::Error| Failure::error(error.to_string());
    let set = Set::new(Options {
        budget: 2 * LOCKED as u64,
        pressure: Some(Pressure::default()),
        ..Options::default()
    });
    let set = set.map_err(failed)?;
    let kept = set.take(LOCKED / 4).map_err(failed)?;
    let purgeable = set.take(LOCKED).map_err(failed)?;
    memory::fill(&kept);
    memory::fill(&purgeable);
    purgeable.purgeable().map_err(failed)?;
    let more = Linux.map(&MapRequest {
        length: TOUCHED,
        protection: Protection::Write,
        kind: MapKind::Anonymous,
        align: Bytes(0),
    })?;
    let start = Linux.now();
    let step = Bytes::mib(1);
    let (mut at, mut asked) = (Bytes(0), 0);
    while Linux.now().saturating_sub(start) < LONGEST {
        Linux.touch(&more, at, step)?;
        at = Bytes((at.0 + step.0) % TOUCHED.0);
        asked += 1;
        let Some(purged) = set.poll_pressure().map_err(failed)? else {
            continue;
        };
        let took = Linux.now().saturating_sub(start);
        let lost = purgeable.keep().map_err(failed)? == Contents::Lost;
        let good = lost
            && purged.objects == 1
            && memory::is_filled(&kept)
            && !memory::is_filled(&purgeable);
        println!(
            "after {took} of touching {TOUCHED} in a group of {LIMIT} the trigger fired (asked {asked} times), {} purgeable went and \
             is told as {}; what was in use stayed",
            Bytes(purged.bytes),
            if lost { "Lost" } else { "Kept" },
        );
        return Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    println!("no reaction in {LONGEST}");
    Ok(ExitCode::FAILURE)
}
