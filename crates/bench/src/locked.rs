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
mod pressure;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use stopgap_arena::locked::{Options, Set};
use stopgap_cli::{Failure, journal, progress_bar, put_back, records, tell};
use stopgap_events::machine::Privilege;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::Site;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals, swap};
use stopgap_probes::Context;
use stopgap_probes::reclaim::{Hold, Scanned, Way, beside_held};
use stopgap_stats::quantile::median;

use memory::Peer;

pub(crate) use pressure::{PressureFlags, task as pressure};

/// What the load may use beside the set.
const ROOM: Bytes = Bytes::mib(64);
/// Locked beside the load.
const HELD: Bytes = Bytes::mib(64);
/// Without swap the lists of shared memory are not scanned, and nothing would be shown.
const SWAP: Bytes = Bytes::mib(512);
/// A bound is broken.
const BROKEN: u8 = 2;

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

/// Something that must be true.
struct Bound {
    holds: bool,
    text: String,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds { "holds " } else { "BROKEN" };
        write!(f, "{word}  {}", self.text)
    }
}

/// What lies beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Set,
    Mlock,
    /// Page references: what the load must be able to see.
    Pinned,
}

impl Beside {
    const ALL: [Beside; 4] = [Beside::Nothing, Beside::Set, Beside::Mlock, Beside::Pinned];

    fn word(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing",
            Beside::Set => "set (SysV)",
            Beside::Mlock => "mlock",
            Beside::Pinned => "vmsplice",
        }
    }

    fn bytes(self) -> Bytes {
        if self == Beside::Nothing {
            Bytes(0)
        } else {
            HELD
        }
    }

    fn hold(self) -> Result<Box<dyn std::any::Any>, String> {
        let length = usize::try_from(HELD.0).map_err(|e| e.to_string())?;
        let peer = |way| Peer::held(HELD, way).map_err(|e| e.to_string());
        match self {
            Beside::Nothing => Ok(Box::new(())),
            Beside::Set => {
                let options = Options {
                    budget: HELD.0,
                    ..Options::default()
                };
                let held = Set::new(options)
                    .and_then(|set| set.take(length))
                    .map_err(|e| e.to_string())?;
                memory::fill(&held);
                Ok(Box::new(held))
            }
            Beside::Mlock => peer(Way::Mlock),
            Beside::Pinned => peer(Way::Vmsplice),
        }
    }
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let folder = journal(None)?;
    put_back(&Linux, &folder);
    let records = records(None)?;
    let journal = Journal::new(&Linux, &folder);
    let scope = journal.scope();
    let site = Site::find(&Linux)?;
    let (_, there) = swap::in_use(&Linux)?;
    if there < SWAP {
        let path = records.join(format!("stopgap-{}-swap", Linux.pid()));
        swap::make(&Linux, &journal, &path, SWAP)?;
    }
    let measured = measure(flags, &journal, &site, &records);
    for error in scope.undo() {
        tell(&error.to_string());
    }
    let bounds = measured?;
    for bound in &bounds {
        println!("{bound}");
    }
    Ok(if bounds.iter().all(|bound| bound.holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}

fn measure(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
    records: &Path,
) -> Result<Vec<Bound>, Failure> {
    let mut bounds = cost::measure(flags, journal, site)?;
    if flags.loads > 0 {
        bounds.extend(loads(flags, journal, site, records)?);
        bounds.push(pressure::measure(journal, site)?);
    }
    Ok(bounds)
}

fn loads(
    flags: &Flags,
    journal: &Journal<'_>,
    site: &Site,
    scratch: &Path,
) -> Result<Vec<Bound>, Failure> {
    let context = Context {
        system: &Linux,
        journal,
        budget: Bytes::mib(512),
        time: Nanos::secs(3600),
        seed: flags.seed,
        privilege: Privilege::Root,
        scratch,
        progress: &|_, _| {},
        interrupted: &signals::interrupted,
    };
    println!(
        "\nrefault load in a room of {ROOM}, {HELD} beside it, {} loads of {} each: pages scanned for each reclaimed",
        flags.loads, flags.each
    );
    let bar = progress_bar();
    let mut random = Random::new(flags.seed);
    let mut found: [Vec<Scanned>; 4] = Default::default();
    for round in 0..flags.loads {
        let mut order = Beside::ALL;
        random.shuffle(&mut order);
        for (turn, beside) in order.into_iter().enumerate() {
            if signals::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            let number = round * 4 + u32::try_from(turn).unwrap_or(0);
            bar.set_position(u64::from(number) * 1_000 / u64::from(flags.loads * 4));
            let hold: Hold<'_> = &|| beside.hold();
            let held = (beside.bytes(), hold);
            let (scanned, left) = beside_held(&context, site, number, (ROOM, flags.each), held)?;
            for error in left {
                tell(&error.to_string());
            }
            found[beside as usize].push(scanned);
        }
    }
    bar.finish_and_clear();
    println!(
        "beside        median  all                                      steady  unevictable pages"
    );
    let middle = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
    let ratios = |beside: Beside| -> Vec<f64> {
        found[beside as usize]
            .iter()
            .filter_map(Scanned::ratio)
            .collect()
    };
    for beside in Beside::ALL {
        let all: Vec<String> = ratios(beside)
            .iter()
            .map(|ratio| format!("{ratio:.3}"))
            .collect();
        let steady = found[beside as usize]
            .iter()
            .filter_map(|one| one.steady)
            .collect();
        let off = found[beside as usize]
            .iter()
            .filter_map(|one| one.unevictable)
            .min();
        println!(
            "{:12}  {:6.3}  {:40} {:6.3}  {}",
            beside.word(),
            middle(ratios(beside)),
            all.join(" "),
            middle(steady),
            off.map_or_else(|| "unknown".to_owned(), |pages| pages.to_string()),
        );
    }
    let [nothing, set, mlock, pinned] = Beside::ALL.map(|beside| middle(ratios(beside)));
    Ok(vec![
        Bound {
            holds: set / nothing <= 1.1,
            text: format!(
                "load: beside the set {:.3}x of what is scanned for each page reclaimed beside nothing (1.1x); mlock {:.3}x",
                set / nothing,
                mlock / nothing
            ),
        },
        Bound {
            holds: pinned / nothing > 1.1,
            text: format!(
                "control: beside page references {:.2}x; what is not off the lists can be seen (above 1.1x)",
                pinned / nothing
            ),
        },
    ])
}
