//! `stopgap-bench delays`: the reclaim that `explain` sums of a recording, beside what the kernel's own
//! delay accounting says of the same task in the same time.
//!
//! ```text
//! memory cgroup, limit 128 MiB      task: before -> touches 192 MiB, twice -> after
//!                                         |  taskstats                         |
//! recorded:  reclaim-begin .. reclaim-end, each; explain adds them up
//! ```
//!
//! One task, so that nothing is a union over tasks; alone in its cgroup, so that it does its own reclaim.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_cli::{Failure, records, tell};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::taskstats::{Delay, SETTING, of_thread};
use stopgap_kernel::{Linux, signals};
use stopgap_report::table::known;
use stopgap_tracer::capture::Options;
use stopgap_tracer::events::EventSet;
use stopgap_tracer::symbols::Symbols;

use crate::common::{
    BROKEN, INCONCLUSIVE, enter, explained, failed, in_scope, journal, map, own_program, recorded,
    swap_file,
};

/// Limit of the task's cgroup.
const LIMIT: Bytes = Bytes::mib(128);
/// Memory that the task touches, each page twice.
const TOUCHED: Bytes = Bytes::mib(192);
/// Room for what is reclaimed of it.
const SWAP: Bytes = Bytes::mib(256);
/// By which the two figures may differ.
const TOLERANCE: f64 = 0.25;
/// A run that takes longer does not end.
const LONGEST: Nanos = Nanos::secs(120);

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs, each with a task of its own.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

#[derive(clap::Args)]
pub(crate) struct TaskFlags {
    /// The cgroup to enter.
    group: PathBuf,
    /// Where to say what was delayed.
    answer: PathBuf,
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let journal = journal()?;
    let records = records(None)?;
    in_scope(&journal, || {
        journal.set(Path::new(SETTING), "1")?;
        let site = Site::find(&Linux)?;
        swap_file(&journal, &records, SWAP)?;
        println!(
            "one task touches {TOUCHED} twice in a cgroup of {LIMIT}; wall-clock time in ms\n\
             run  explain: reclaims      time   taskstats freepages      time   ratio    swapin  thrashing  PSI some"
        );
        let mut status = 0;
        for run in 1..=flags.runs {
            if signals::interrupted() {
                break;
            }
            let found = in_scope(&journal, || {
                let name = format!("stopgap-{}-{run}", Linux.pid());
                let group = MemoryGroup::make(&Linux, &journal, &site, &name, LIMIT)?;
                measure(&journal, &group, &records, run)
            });
            status = status.max(found?);
        }
        Ok(ExitCode::from(status))
    })
}

/// Records one task and prints its line; returns the exit status for what was found.
fn measure(
    journal: &Journal<'_>,
    group: &MemoryGroup,
    records: &Path,
    run: u32,
) -> Result<u8, Failure> {
    let folder = tempfile::tempdir_in(records).map_err(failed("a folder"))?;
    let answer = folder.path().join("answer");
    let options = Options {
        events: EventSet::All,
        buffer: None,
        spool: folder.path().join("spool"),
        subject: "stopgap-bench delays".into(),
    };
    let words = [
        own_program()?.into(),
        "delays-task".into(),
        group.path().as_os_str().to_owned(),
        answer.clone().into(),
    ];
    let before = group.stalled(&Linux).ok();
    let (spool, _) = recorded(journal, &options, &words, LONGEST, || Ok(()))?;
    // `some` of the cgroup, or on version 1 of the machine.
    let pressure = group.stalled(&Linux).ok().zip(before);
    let pressure = pressure.map(|(after, before)| after.saturating_sub(before));
    // No symbols are read: reclaim has events of its own.
    let findings = explained(&spool, &Symbols::default(), |_| ())?;
    // kswapd is another task, and a shrinker's time lies within.
    let rows = findings.memory.reclaim.iter().flatten();
    let own = rows.filter(|row| matches!(&*row.by, "direct" | "memcg"));
    let (reclaims, explained) = own.fold((0, Nanos(0)), |(count, time), row| {
        (count + row.count, time + Nanos(row.wall_ns))
    });
    let text = std::fs::read(&answer).map_err(failed("the task's answer"))?;
    let delays: Answer = serde_json::from_slice(&text).map_err(failed("the task's answer"))?;
    let [freepages, swapin, thrashing] = delays;
    let (freepages, freed) = freepages.unwrap_or_default();
    let ratio = explained.0 as f64 / freed as f64;
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    println!(
        "{run:3}  {reclaims:17}  {:>8}  {freepages:20}  {:>8}  {ratio:6.3}  {:>8}  {:>9}  {:>8}",
        ms(explained.0),
        ms(freed),
        known(swapin.map(|(_, ns)| ms(ns))),
        known(thrashing.map(|(_, ns)| ms(ns))),
        known(pressure.map(|time| ms(time.0))),
    );
    if findings.losses.lost != Some(0) {
        tell(&format!("run {run}: events were lost"));
        return Ok(INCONCLUSIVE);
    }
    let near = (ratio - 1.0).abs() <= TOLERANCE;
    Ok(if near { 0 } else { BROKEN })
}

/// What was counted of the task, and for how many ns: `freepages`, `swapin`, `thrashing`, where the kernel counts it.
type Answer = [Option<(u64, u64)>; 3];

/// Is the task: enters its cgroup, makes memory short, says what the kernel has counted of that.
pub(crate) fn task(flags: &TaskFlags) -> Result<ExitCode, Failure> {
    enter(&flags.group)?;
    let memory = map(TOUCHED, Bytes(0))?;
    let own = Linux.pid(); // its only thread has the process's number
    let before = of_thread(own)?;
    for _ in 0..2 {
        Linux.touch(&memory, Bytes(0), TOUCHED)?;
    }
    let delays = of_thread(own)?.since(before);
    if delays.freepages.is_none() {
        return Err(Failure::error(
            "this kernel does not count the delay of reclaim",
        ));
    }
    let all = [delays.freepages, Some(delays.swapin), delays.thrashing];
    let answer: Answer = all.map(|delay| delay.map(|Delay { count, total }| (count, total.0)));
    let text = serde_json::to_vec(&answer).map_err(failed("the answer"))?;
    std::fs::write(&flags.answer, text).map_err(failed(flags.answer.display()))?;
    Ok(ExitCode::SUCCESS)
}
