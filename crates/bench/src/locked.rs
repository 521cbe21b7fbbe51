//! `stopgap-bench locked`: the arena's locked set beside mlock(2) and beside nothing.
//!
//! Three experiments:
//!
//! * **cost** of each way, thread CPU time a page, each in a child and a memory cgroup of its own, in turn: to take, what
//!   filling it costs more than filling what is not locked, what it costs until it is off the lists, to unlock, and to
//!   give back;
//! * the probe's **refault load** in a memory cgroup with the set in it, beside the same load with nothing, in turn: pages
//!   scanned for each page reclaimed;
//! * **pressure**: a group too small for what its task touches, a purgeable object in the task's set, and how long it takes
//!   until that is gone.

mod cost;
mod memory;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use stopgap_arena::locked::{Contents, Options, Pressure, Set};
use stopgap_cli::{Failure, print, records, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::cgroup::{MemoryGroup, Site};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::memory::Memory;
use stopgap_kernel::tasks::Tasks;
use stopgap_probes::reclaim::{Hold, Scanned, Way, beside_held};

use crate::common::{
    Bounds, context, enter, failed, in_scope, journal, map, middle, own_program, rounds, swap_file,
    table, text,
};
use memory::Peer;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each way's cost.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Memory of one.
    #[arg(long, value_name = "SIZE", default_value = "32M")]
    bytes: Bytes,
    /// Loads of each mode; 0: none.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    loads: u32,
    /// How long each load runs from its first page reclaimed on.
    #[arg(long, value_name = "TIME", default_value = "4s")]
    each: Nanos,
    /// Seed of the orders.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
pub(crate) struct PressureFlags {
    /// The cgroup to enter.
    group: PathBuf,
}

/// Memory that the load may use beside the set.
const ROOM: Bytes = Bytes::mib(64);
/// Locked beside the load.
const HELD: Bytes = Bytes::mib(64);
/// Without swap the lists of shared memory are not scanned, and nothing would be shown.
const SWAP: Bytes = Bytes::mib(512);
/// What a load beside locked memory may scan, of what one beside nothing does. A load beside page references must be above it.
const SCANNED: f64 = 1.1;

/// Pressure: what the task may have, what it locks of that, and what it touches again and again.
const LIMIT: Bytes = Bytes::mib(64);
const LOCKED: usize = 16 << 20;
const TOUCHED: Bytes = Bytes::mib(96);
/// From when on the task does not react.
const LONGEST: Nanos = Nanos::secs(20);

/// What lies beside the load: nothing, the set, memory under mlock(2), and page references, which the load must be able to see.
const BESIDE: [&str; 4] = ["nothing", "set (SysV)", "mlock", "vmsplice"];

/// Makes what lies beside the load.
fn hold(beside: usize) -> Result<Box<dyn std::any::Any>, String> {
    match beside {
        0 => Ok(Box::new(())),
        1 => {
            let set = Set::new(Options {
                budget: HELD.0,
                ..Options::default()
            });
            let length = usize::try_from(HELD.0).map_err(text)?;
            let held = set.and_then(|set| set.take(length)).map_err(text)?;
            memory::fill(&held, 0..length);
            Ok(Box::new(held))
        }
        2 => Peer::held(HELD, Way::Mlock).map_err(text),
        _ => Peer::held(HELD, Way::Vmsplice).map_err(text),
    }
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let journal = journal()?;
    let records = records(None)?;
    let mut bounds = Bounds::default();
    in_scope(&journal, || {
        let site = Site::find(&Linux)?;
        swap_file(&journal, &records, SWAP)?;
        cost::measure(flags, &journal, &site, &mut bounds)?;
        if flags.loads > 0 {
            loads(flags, &journal, &site, &records, &mut bounds)?;
            pressure(&journal, &site, &mut bounds)?;
        }
        Ok(())
    })?;
    bounds.print()
}

fn loads(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
    scratch: &Path,
    bounds: &mut Bounds,
) -> Result<(), Failure> {
    let time = Nanos::secs(3600);
    let context = context(journal, scratch, Bytes::mib(512), time, flags.seed);
    let mut random = Random::new(flags.seed);
    let (mut number, mut order) = (0, [0, 1, 2, 3]);
    let found = rounds(flags.loads, &[BESIDE.len()], |_, turn| {
        if number % 4 == 0 {
            random.shuffle(&mut order);
        }
        number += 1;
        let beside = order[turn];
        let hold: Hold<'_> = &|| hold(beside);
        let held = (if beside == 0 { Bytes(0) } else { HELD }, hold);
        let (scanned, left) = beside_held(&context, site, number, (ROOM, flags.each), held)?;
        left.iter().for_each(|error| tell(&error.to_string()));
        Ok((beside, scanned))
    })?;
    let of = |beside: usize| {
        let all = found[0]
            .0
            .iter()
            .flatten()
            .filter(move |one| one.0 == beside);
        all.map(|(_, scanned)| scanned)
    };
    let ratios = |beside: usize| of(beside).filter_map(Scanned::ratio);
    let rows = BESIDE.iter().enumerate().map(|(beside, word)| {
        let all: Vec<String> = ratios(beside).map(|ratio| format!("{ratio:.3}")).collect();
        let off = of(beside).filter_map(|one| one.unevictable).min();
        vec![
            (*word).to_owned(),
            format!("{:.3}", middle(ratios(beside))),
            all.join(" "),
            format!("{:.3}", middle(of(beside).filter_map(|one| one.steady))),
            off.map_or("unknown".to_owned(), |pages| pages.to_string()),
        ]
    });
    let head = "beside|median|all|steady|unevictable pages";
    print(&format!(
        "\nrefault load in a room of {ROOM}, {HELD} beside it, {} loads of {} each: pages scanned for each reclaimed\n{}",
        flags.loads,
        flags.each,
        table(head, rows).trim_end()
    ))?;
    let [set, mlock, pinned] = [1, 2, 3].map(|beside| middle(ratios(beside)) / middle(ratios(0)));
    let what = format!(
        "load: beside the set {set:.3}x of what is scanned for each page reclaimed beside nothing ({SCANNED}x); mlock {mlock:.3}x"
    );
    bounds.add(set <= SCANNED, what);
    let what = format!(
        "control: beside page references {pinned:.2}x; what is not off the lists can be seen (above {SCANNED}x)"
    );
    bounds.add(pinned > SCANNED, what);
    Ok(())
}

/// Runs the task in a group too small for it, and says what it found.
fn pressure(journal: &Journal<'_>, site: &Site, bounds: &mut Bounds) -> Result<(), Failure> {
    let output = in_scope(journal, || {
        let name = format!("stopgap-{}-pressure", Linux.pid());
        let group = MemoryGroup::make(&Linux, journal, site, &name, LIMIT)?;
        let mut task = Command::new(own_program()?);
        task.arg("locked-pressure").arg(group.path());
        task.output().map_err(failed("the task"))
    })?;
    let mut said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        said += &format!("{} {}", output.status, errors.trim());
    }
    bounds.add(output.status.success(), format!("pressure: {said}"));
    Ok(())
}

/// Is the task: a set with an object in use and a purgeable one, then more memory than there is.
pub(crate) fn task(flags: &PressureFlags) -> Result<ExitCode, Failure> {
    enter(&flags.group)?;
    let failed = |error: stopgap_arena::Error| Failure::error(error.to_string());
    let set = Set::new(Options {
        budget: 2 * LOCKED as u64,
        pressure: Some(Pressure::default()),
        ..Options::default()
    });
    let set = set.map_err(failed)?;
    let kept = set.take(LOCKED / 4).map_err(failed)?;
    let purgeable = set.take(LOCKED).map_err(failed)?;
    for held in [&kept, &purgeable] {
        memory::fill(held, 0..held.len());
    }
    purgeable.purgeable().map_err(failed)?;
    let more = map(TOUCHED, Bytes(0))?;
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
        let contents = memory::is_filled(&kept) && !memory::is_filled(&purgeable);
        println!(
            "after {took} of touching {TOUCHED} in a group of {LIMIT} the trigger fired (asked {asked} times), {} purgeable went and \
             is told as {}; what was in use stayed",
            Bytes(purged.bytes),
            if lost { "Lost" } else { "Kept" },
        );
        return Ok(match lost && purged.objects == 1 && contents {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    println!("no reaction in {LONGEST}");
    Ok(ExitCode::FAILURE)
}
