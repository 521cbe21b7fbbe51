//! `overhead --parts`: what each part of the capture costs, held against the same pair not recorded.
//!
//! The capture is prepared as `record` does; before it starts, the parts that are not asked for are switched off in its
//! instance of tracefs. The events that are left are those of the part and the scheduler's.

use std::fmt::Write as _;

use stopgap_cli::{Failure, progress_bar};
use stopgap_kernel::files::Files;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::Cell;
use stopgap_report::text::thousands;
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::quantile::median;
use stopgap_tracer::capture::instance_of;
use stopgap_tracer::events::EventSet;

use super::recording::{Recorder, Run};

/// When a switch leaves a stack.
#[derive(Clone, Copy)]
enum Stacks {
    Never,
    /// As `record` has it.
    Usual,
    /// At each wait.
    Each,
}

/// What is switched on.
struct Part {
    name: &'static str,
    /// System calls, and whether only those that `record` chooses.
    calls: Option<bool>,
    /// Memory, locks, block I/O and fences.
    rest: bool,
    stacks: Stacks,
}

const PARTS: [Part; 7] = [
    Part {
        name: "scheduling",
        calls: None,
        rest: false,
        stacks: Stacks::Never,
    },
    Part {
        name: "scheduling, stacks at each wait",
        calls: None,
        rest: false,
        stacks: Stacks::Each,
    },
    Part {
        name: "scheduling, system calls",
        calls: Some(true),
        rest: false,
        stacks: Stacks::Never,
    },
    Part {
        name: "the same, calls not filtered",
        calls: Some(false),
        rest: false,
        stacks: Stacks::Never,
    },
    Part {
        name: "all but stacks",
        calls: Some(true),
        rest: true,
        stacks: Stacks::Never,
    },
    Part {
        name: "all: what record does",
        calls: Some(true),
        rest: true,
        stacks: Stacks::Usual,
    },
    Part {
        name: "all, stacks at each wait",
        calls: Some(true),
        rest: true,
        stacks: Stacks::Each,
    },
];

/// For intervals: the same runs give the same ones for ever.
const SEED: u64 = 1;

impl Part {
    /// Switches off, in the instance of this process, what is not of the part.
    fn choose(&self) -> Result<(), Failure> {
        let events = Linux
            .tracefs()?
            .instance(&instance_of(Linux.pid()))
            .join("events");
        let write = |file: &str, text: &str| Linux.write(&events.join(file), text.as_bytes());
        let mut others: Vec<&str> = EventSet::All.events().map(|event| event.system).collect();
        others.dedup();
        for system in others {
            let on = match system {
                "sched" | "task" => true,
                "raw_syscalls" => self.calls.is_some(),
                _ => self.rest,
            };
            if !on {
                match write(&format!("{system}/enable"), "0") {
                    Err(error) if error.is_absent() => {}
                    other => other?,
                }
            }
        }
        if self.calls == Some(false) {
            for event in ["sys_enter", "sys_exit"] {
                write(&format!("raw_syscalls/{event}/filter"), "0")?;
            }
        }
        let trigger = "sched/sched_switch/trigger";
        if !matches!(self.stacks, Stacks::Usual) {
            write(trigger, "!stacktrace")?;
        }
        if matches!(self.stacks, Stacks::Each) {
            write(trigger, "stacktrace if prev_state & 3")?;
        }
        Ok(())
    }
}

/// As many repetitions, each with a run without and one of each part, in rotating order.
pub(super) fn run(recorder: &Recorder<'_>, repetitions: u32) -> Result<String, Failure> {
    let mut all: Vec<Vec<Run>> = Vec::new();
    let bar = progress_bar();
    for done in 0..repetitions {
        bar.set_position(u64::from(done) * 1_000 / u64::from(repetitions));
        let mut runs = vec![None; PARTS.len() + 1];
        for step in 0..runs.len() {
            let at = (done as usize + step) % runs.len();
            if signals::interrupted() {
                break;
            }
            let run = match at.checked_sub(1) {
                None => recorder.run(&Cell::PLAIN, None),
                Some(part) => {
                    recorder.run_with(&Cell::PLAIN, EventSet::All, || PARTS[part].choose())
                }
            };
            match run {
                Ok(run) => runs[at] = Some(run),
                Err(_) if signals::interrupted() => break, // Ctrl-C ends the pair too
                Err(failure) => return Err(failure),
            }
        }
        all.extend(runs.into_iter().collect::<Option<Vec<Run>>>());
    }
    bar.finish_and_clear();
    if all.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    Ok(text(recorder.round_trips(), &all))
}

fn text(round_trips: u64, all: &[Vec<Run>]) -> String {
    let mut text = format!(
        "{}: {} round trips a run, medians of {} pairs (95 % interval over pairs)\n{:<34}{:>12}{:>24}{:>14}{:>8}\n",
        Cell::PLAIN,
        thousands(round_trips),
        all.len(),
        "captured",
        "CPU ns/rt",
        "CPU, of not recorded",
        "bytes/rt",
        "lost",
    );
    let names = std::iter::once("not recorded").chain(PARTS.iter().map(|part| part.name));
    for (at, name) in names.enumerate() {
        let of = |figure: &dyn Fn(&Run) -> f64| {
            median(all.iter().map(|runs| figure(&runs[at])).collect()).unwrap_or(f64::NAN)
        };
        let ratios: Vec<f64> = all
            .iter()
            .map(|runs| runs[at].cpu() / runs[0].cpu())
            .collect();
        let interval = over_runs(&ratios, SEED, |drawn| {
            median(drawn.iter().map(|&&ratio| ratio).collect())
        });
        let interval = interval.map_or(String::new(), |interval| {
            format!(" ({:.2}..{:.2})", interval.low, interval.high)
        });
        let ratio = match at {
            0 => "-".to_owned(),
            _ => format!("{:.2}x{interval}", median(ratios).unwrap_or(f64::NAN)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<34}{:>12.0}{ratio:>24}{:>14.0}{:>8}",
            of(&Run::cpu),
            of(&Run::bytes),
            all.iter().map(|runs| runs[at].lost).sum::<u64>(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::units::Nanos;
    use stopgap_kernel::tasks::Switches;
    use stopgap_probes::roundtrip::Cost;

    #[test]
    fn a_part_is_held_against_the_run_beside_it() {
        let run = |us: u64| Run {
            cost: Cost {
                round_trips: 1_000,
                elapsed: Nanos(us),
                cpu: Nanos(us * 1_000_000),
                switches: Switches {
                    voluntary: 2_000,
                    involuntary: 0,
                },
            },
            recorder: Nanos(0),
            lost: 1,
            bytes: 300_000,
        };
        // A neighbour slows a whole repetition, not one of its runs.
        let repetition = |us: u64| (10..18).map(|part| run(part * us)).collect::<Vec<Run>>();
        let text = text(1_000, &[repetition(1), repetition(7), repetition(1)]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), PARTS.len() + 1);
        assert!(
            rows[0].starts_with("not recorded") && rows[0].contains(" - "),
            "{text}"
        );
        assert!(rows[1].contains("1.10x (1.10..1.10)"), "{text}");
        assert!(
            rows[7].contains("1.70x") && rows[7].ends_with("300       3"),
            "{text}"
        );
    }
}
