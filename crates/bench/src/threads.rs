//! `stopgap-bench threads`: how much more is done once a second thread places on a second CPU.
//!
//! Speed-up is operations in a time by the wall clock, of two threads over one. The driver alone gets what
//! the machine gives (two hardware threads of one core are not two cores), so all else is held against it.

mod front;
mod run;

use std::fmt::Write as _;
use std::process::ExitCode;

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::workload::Frag;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Error, Linux, signals};
use stopgap_placement::{Range, Space};
use stopgap_report::text::thousands;
use stopgap_stats::quantile::median;

use front::Front;
use run::{Load, Took};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Repetitions; each runs everything once, in rotating order.
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Seed of the first thread's operations; the second thread has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Timed operations of a thread: some milliseconds, so that neighbours leave some runs alone.
const OPERATIONS: u64 = 200_000;
/// Of the driver's speed-up, what `Shared` must reach at least.
const LEAST_SHARE: f64 = 0.85;
/// The share of its time for which a thread that waits for nothing is off its CPU, from which on others
/// are to blame for too much.
const DISTURBED: f64 = 0.05;

/// What one front took in one repetition.
#[derive(Debug, Clone, Copy)]
struct Pair {
    one: Took,
    two: Took,
}

impl Pair {
    fn speed_up(&self) -> f64 {
        rate(&self.two) / rate(&self.one)
    }
}

/// Operations per ns.
fn rate(took: &Took) -> f64 {
    took.operations / took.wall_ns
}

/// One repetition: a pair for each of [`Front::ALL`].
type Repetition = [Pair; Front::ALL.len()];

/// Measures and prints; status 1 where `Shared` does not reach its bound on an undisturbed machine.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let cpus = two_of(&Linux.cpus()?)?;
    println!(
        "frag, {} ranges a thread, a random half freed, {} operations timed; seeds {} and {}; CPUs {} and {}",
        thousands(u64::from(Frag::USUAL_N)),
        thousands(OPERATIONS),
        flags.seed,
        flags.seed.wrapping_add(1),
        cpus[0],
        cpus[1],
    );
    let frag = |seed| Frag::new(Frag::USUAL_N, OPERATIONS, seed);
    let frags = [frag(flags.seed), frag(flags.seed.wrapping_add(1))];
    let bar = progress_bar();
    let repetitions = measure(&frags, cpus, flags.repetitions, |done| {
        bar.set_position(u64::from(done) * 1_000 / u64::from(flags.repetitions));
        !signals::interrupted()
    });
    bar.finish_and_clear();
    let repetitions = repetitions.map_err(Failure::error)?;
    if repetitions.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    if signals::interrupted() {
        tell("interrupted: fewer repetitions");
    }
    let (text, good) = table(&repetitions);
    print!("{text}");
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The first two of the CPUs that may be used.
fn two_of(cpus: &[u32]) -> Result<[u32; 2], Error> {
    match *cpus {
        [first, second, ..] => Ok([first, second]),
        _ => Err(Error::unsupported(
            "the speed-up of a second thread",
            format!("it needs two CPUs, and this process may use CPUs {cpus:?}"),
        )),
    }
}

/// As many repetitions as asked, or fewer if `told`, which hears how many are done, says so.
fn measure(
    frags: &[Frag; 2],
    cpus: [u32; 2],
    repetitions: u32,
    told: impl Fn(u32) -> bool,
) -> Result<Vec<Repetition>, String> {
    // All that a 64-bit task has, but for the lowest pages.
    let space = Space::new(Range::new(0x1_0000, (1 << 47) - 0x1000), 0x1000);
    let space = space.map_err(|error| error.to_string())?;
    let loads = [Load::new(space, &frags[0])?, Load::new(space, &frags[1])?];
    let mut all = Vec::new();
    for done in 0..repetitions {
        if !told(done) {
            break;
        }
        let mut order = [0, 1, 2, 3];
        order.rotate_left(done as usize % Front::ALL.len());
        let mut pairs = [None; Front::ALL.len()];
        for at in order {
            let run = |threads: usize| {
                let front = Front::ALL[at];
                let took = front.run(space, &loads[..threads], &cpus[..threads]);
                took.map_err(|what| format!("{}: {what}", front.name()))
            };
            pairs[at] = Some(Pair {
                one: run(1)?,
                two: run(2)?,
            });
        }
        if let [Some(driver), Some(apart), Some(shared), Some(mutex)] = pairs {
            all.push([driver, apart, shared, mutex]);
        }
    }
    Ok(all)
}

/// A figure's median, least and greatest over repetitions.
struct Figure {
    median: f64,
    low: f64,
    high: f64,
}

impl Figure {
    fn over(repetitions: &[Repetition], of: impl Fn(&Repetition) -> f64) -> Figure {
        let figures: Vec<f64> = repetitions.iter().map(of).collect();
        Figure {
            low: figures.iter().copied().fold(f64::NAN, f64::min),
            high: figures.iter().copied().fold(f64::NAN, f64::max),
            median: median(figures).unwrap_or(f64::NAN),
        }
    }

    fn text(&self, digits: usize) -> String {
        let Figure { median, low, high } = self;
        format!("{median:.digits$} ({low:.digits$}..{high:.digits$})")
    }
}

/// What is printed, and whether `Shared` keeps its bound, or nobody can tell.
fn table(repetitions: &[Repetition]) -> (String, bool) {
    let mut text = format!(
        "medians of {} repetitions (least..greatest), ns by the wall clock\n\
         {:<20} {:>22} {:>22} {:>20} {:>20} {:>14}\n",
        repetitions.len(),
        "",
        "ns/op, one thread",
        "ns/op, two threads",
        "speed-up",
        "of the driver's",
        "off CPU, two",
    );
    let (mut held, mut disturbed) = (f64::NAN, 0.0_f64);
    for (at, front) in Front::ALL.into_iter().enumerate() {
        let figure = |of: fn(&Pair) -> f64| Figure::over(repetitions, |all| of(&all[at]));
        let share = Figure::over(repetitions, |all| all[at].speed_up() / all[0].speed_up());
        let off = [
            figure(|pair| pair.one.off_cpu),
            figure(|pair| pair.two.off_cpu),
        ];
        if front == Front::Shared {
            held = share.median;
        }
        if !front.waits() {
            disturbed = off.iter().fold(disturbed, |most, off| most.max(off.median));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<20} {:>22} {:>22} {:>20} {:>20} {:>12.0} %",
            front.name(),
            figure(|pair| 1.0 / rate(&pair.one)).text(1),
            figure(|pair| 1.0 / rate(&pair.two)).text(1),
            figure(Pair::speed_up).text(2),
            if at == 0 {
                "-".to_owned()
            } else {
                share.text(2)
            },
            off[1].median * 100.0,
        );
    }
    let holds = held >= LEAST_SHARE;
    let doubtful = disturbed > DISTURBED;
    let _ = writeln!(
        text,
        "Shared is held to {LEAST_SHARE} of the driver's speed-up at least, and gets {held:.2}: {}{}",
        if doubtful { "doubtful, " } else { "" },
        if holds { "holds" } else { "does not hold" },
    );
    if doubtful {
        let _ = writeln!(
            text,
            "doubtful: others had the CPU for {:.0} % of the time of threads that wait for nothing",
            disturbed * 100.0
        );
    }
    (text, holds || doubtful)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(threads: f64, ns_each: f64, off_cpu: f64) -> Took {
        Took {
            operations: 1_000.0 * threads,
            wall_ns: 1_000.0 * ns_each,
            off_cpu,
        }
    }

    /// One thread takes 10 ns an operation, two take `ns` each.
    fn pair(ns: f64, off_cpu: f64) -> Pair {
        Pair {
            one: took(1.0, 10.0, 0.0),
            two: took(2.0, ns, off_cpu),
        }
    }

    #[test]
    fn the_share_is_of_what_the_driver_gets() {
        // The driver 1.6, Shared 20 / 16 = 1.25 of it 0.78; then 20 / 14 and 0.89.
        for (ns, share, good) in [(16.0, "0.78", false), (14.0, "0.89", true)] {
            let all = [
                pair(12.5, 0.0),
                pair(12.5, 0.0),
                pair(ns, 0.4),
                pair(100.0, 0.5),
            ];
            let (text, held) = table(&[all; 3]);
            assert_eq!(held, good, "{text}");
            assert!(
                text.contains(&format!(
                    "gets {share}: {}",
                    if good { "holds" } else { "does not hold" }
                )),
                "{text}"
            );
            assert!(text.contains("1.60 (1.60..1.60)"), "{text}");
            assert!(
                text.contains("0.20 (0.20..0.20)"),
                "of one under a lock: {text}"
            );
            assert!(
                !text.contains("doubtful"),
                "waiting is its own doing: {text}"
            );
        }
    }

    #[test]
    fn a_median_is_no_mean_and_the_spread_is_all() {
        let with = |ns| {
            [
                pair(10.0, 0.0),
                pair(10.0, 0.0),
                pair(ns, 0.0),
                pair(100.0, 0.0),
            ]
        };
        let (text, held) = table(&[with(10.0), with(40.0), with(10.0)]);
        assert!(held && text.contains("1.00 (0.25..1.00)"), "{text}");
    }

    #[test]
    fn neighbours_make_it_doubtful() {
        let all = [
            pair(10.0, 0.0),
            pair(12.0, 0.12),
            pair(40.0, 0.0),
            pair(100.0, 0.0),
        ];
        let (text, held) = table(&[all; 3]);
        assert!(
            held && text.contains("gets 0.25: doubtful, does not hold"),
            "{text}"
        );
        assert!(text.contains("for 12 % of the time"), "{text}");
    }

    #[test]
    fn one_cpu_is_said_to_be_too_few() {
        assert_eq!(two_of(&[3, 5, 6]).unwrap(), [3, 5]);
        let error = two_of(&[3]).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains("CPUs [3]"), "{error}");
    }

    /// On whatever CPUs there are: twice the same where there is one. No figure is looked at but counts.
    #[test]
    fn all_fronts_carry_all_operations_out() {
        let cpus = Linux.cpus().unwrap();
        let two = two_of(&cpus).unwrap_or([cpus[0]; 2]);
        let frags = [Frag::new(300, 2_000, 1), Frag::new(300, 2_000, 2)];
        let all = measure(&frags, two, 5, |_| true).unwrap();
        assert_eq!(all.len(), 5);
        for pair in all.iter().flatten() {
            assert_eq!(
                (pair.one.operations, pair.two.operations),
                (2_000.0, 4_000.0)
            );
            assert!(
                pair.speed_up() > 0.0 && (0.0..=1.0).contains(&pair.two.off_cpu),
                "{pair:?}"
            );
        }
        let stopped = measure(&frags, two, 5, |done| done < 1).unwrap();
        assert_eq!(stopped.len(), 1);
    }
}
