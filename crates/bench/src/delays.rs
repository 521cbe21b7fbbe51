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
use stopgap_explain::{Explainer, Options};
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::linux::Held;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::taskstats::{Delay, SETTING, of_thread};
use stopgap_kernel::{Linux, signals};
use stopgap_tracer::capture::{self, Capture};
use stopgap_tracer::events::EventSet;
use stopgap_tracer::spool::Spool;
use stopgap_tracer::symbols::Symbols;

use crate::common::{
    BROKEN, INCONCLUSIVE, enter, failed, journal, map, own_program, put_back, swap_file,
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

/// The figures of one run.
struct Found {
    /// Direct and memcg reclaim by `explain`.
    explained: Delay,
    /// Events that were lost.
    lost: Option<u64>,
    freepages: Delay,
    swapin: Delay,
    thrashing: Option<Delay>,
    /// `some` of the cgroup, or on version 1 of the machine.
    pressure: Option<Nanos>,
}

impl Found {
    /// Returns the time by `explain` over the time by taskstats.
    fn ratio(&self) -> f64 {
        self.explained.total.0 as f64 / self.freepages.total.0 as f64
    }

    fn row(&self, run: u32) -> String {
        let ms = |time: Nanos| format!("{:.2}", time.0 as f64 / 1e6);
        let or = |time: Option<Nanos>| time.map_or("-".to_owned(), ms);
        format!(
            "{run:3}  {:17}  {:>8}  {:20}  {:>8}  {:6.3}  {:>8}  {:>9}  {:>8}",
            self.explained.count,
            ms(self.explained.total),
            self.freepages.count,
            ms(self.freepages.total),
            self.ratio(),
            ms(self.swapin.total),
            or(self.thrashing.map(|delay| delay.total)),
            or(self.pressure),
        )
    }
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let journal = journal()?;
    let records = records(None)?;
    let scope = journal.scope();
    journal.set(Path::new(SETTING), "1")?;
    let site = Site::find(&Linux)?;
    let pid = Linux.pid();
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
        let one = journal.scope();
        let name = format!("stopgap-{pid}-{run}");
        let group = MemoryGroup::make(&Linux, &journal, &site, &name, LIMIT)?;
        let found = measure(&journal, &group, &records)?;
        put_back(one);
        println!("{}", found.row(run));
        if (found.ratio() - 1.0).abs() > TOLERANCE || found.ratio().is_nan() {
            status = status.max(BROKEN);
        }
        if found.lost != Some(0) {
            tell(&format!("run {run}: events were lost"));
            status = status.max(INCONCLUSIVE);
        }
    }
    put_back(scope);
    Ok(ExitCode::from(status))
}

/// Records one task.
fn measure(journal: &Journal<'_>, group: &MemoryGroup, records: &Path) -> Result<Found, Failure> {
    let folder = tempfile::tempdir_in(records).map_err(failed("a folder"))?;
    let answer = folder.path().join("answer");
    let options = capture::Options {
        events: EventSet::All,
        buffer: None,
        spool: folder.path().join("spool"),
        source: "stopgap-bench delays".to_owned(),
    };
    let mut capture = Capture::prepare(&Linux, journal, &options)?;
    let words = [
        own_program()?.into(),
        "delays-task".into(),
        group.path().as_os_str().to_owned(),
        answer.clone().into(),
    ];
    let before = group.stalled(&Linux).ok();
    let held = Held::start(&words)?;
    capture.start(held.pid())?;
    let child = held.release()?;
    let deadline = Linux.now() + LONGEST;
    let ended = loop {
        capture.pump(Some(child.watched()), Nanos::millis(100))?;
        if let Some(ended) = child.ended()? {
            break ended;
        }
        if Linux.now() > deadline {
            return Err(Failure::error("the task does not end"));
        }
    };
    let pressure = group.stalled(&Linux).ok().zip(before);
    let spool = capture.stop(None)?;
    if ended.how != Ok(0) {
        return Err(Failure::error(format!(
            "the task ended with {:?}",
            ended.how
        )));
    }
    let (explained, lost) = explain(&spool)?;
    let text = std::fs::read_to_string(&answer).map_err(failed("the task's answer"))?;
    let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let delays: Vec<Delay> = numbers
        .chunks_exact(2)
        .map(|pair| Delay {
            count: pair[0],
            total: Nanos(pair[1]),
        })
        .collect();
    let [freepages, swapin, rest @ ..] = delays.as_slice() else {
        return Err(Failure::error(format!(
            "the task answered '{}'",
            text.trim()
        )));
    };
    Ok(Found {
        explained,
        lost,
        freepages: *freepages,
        swapin: *swapin,
        thrashing: rest.first().copied(),
        pressure: pressure.map(|(after, before)| after.saturating_sub(before)),
    })
}

/// Returns the direct and memcg reclaim of a recording, and how many events were lost. kswapd is another task, and a shrinker's time
/// lies within.
fn explain(spool: &Spool) -> Result<(Delay, Option<u64>), Failure> {
    // No symbols are read: reclaim has events of its own.
    let mut trace = spool.trace(Symbols::default())?;
    let mut events = Vec::new();
    while let Some(event) = trace.next_event()? {
        events.push(event);
    }
    let options = Options {
        top: 1,
        frame_marker: None,
    };
    let mut explainer = Explainer::new(&trace.metadata(), options);
    events.iter().for_each(|event| explainer.event(event));
    let findings = explainer.finish();
    let rows = findings.memory.reclaim.iter().flatten();
    let own = rows.filter(|row| matches!(&*row.by, "direct" | "memcg"));
    let sum = own.fold(Delay::default(), |sum, row| Delay {
        count: sum.count + row.count,
        total: sum.total + Nanos(row.wall_ns),
    });
    Ok((sum, findings.losses.lost))
}

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
    let words = all.into_iter().flatten();
    let words = words.map(|delay| format!("{} {} ", delay.count, delay.total.0));
    let text: String = words.collect();
    std::fs::write(&flags.answer, text).map_err(failed(flags.answer.display()))?;
    Ok(ExitCode::SUCCESS)
}
