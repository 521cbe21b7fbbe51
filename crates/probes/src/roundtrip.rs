//! Does a request and its reply cost more context switches than they must?
//!
//! A client and a server, each a process of its own, talk over a Unix stream socket. On one
//! CPU a round trip takes two switches: the client blocks, the server blocks. What is counted
//! is *switch-outs* of client plus server a round trip; a row of `sched_switch` for each
//! would count twice on two CPUs. More than two is excess, and one of these:
//!
//! * The server's read(2) frees the request's buffer and so tells the client that there is
//!   room to write (`unix_write_space()`, net/unix/af_unix.c). A client that waits in poll(2)
//!   for input is not disturbed (keyed wake-ups, 67426b756c4d, Linux 2.6.37); one that blocks
//!   in read(2) wakes, pre-empts the server, finds nothing and blocks again.
//! * A reply written by itself wakes the client, which pre-empts the server on its way out of
//!   write(2); the next reply does it again.
//!
//! Two is not a strict floor where both run at once on two CPUs: who finds his answer there
//! before he blocks does not switch.
//!
//! Others on the same CPU hide excess: who is woken waits for them and pre-empts nobody. How
//! much they had is measured beside, and a busy machine is never `clean`.
//!
//! `client` has the work of the two processes, `meter` counts their switches, `run` starts them, `judge` answers. `prices`
//! times their steps, and has them do a given number of round trips for a caller that measures something else by it. `x11`
//! asks the same of a real X server.

mod client;
mod judge;
mod meter;
mod prices;
mod run;
mod x11;

use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::System;
use stopgap_kernel::ipc::{MOST_GATHERED, MOST_SELECTED};
use stopgap_stats::record::Answer;

pub use prices::{Cost, fixed};
pub use stopgap_events::roundtrip::{
    Cell, ClientPolicy, ClientWait, Cpus, Kernel, Matrix, Reply, Wait,
};
pub use x11::X11;

use crate::contract::{Context, Measured, Plan, Probe, ProbeError, list, refuse};

/// From what latency on a round trip counts as a stall.
pub const STALL: Nanos = Nanos::millis(10);
/// Switch-outs a round trip that one CPU needs: the client blocks, the server blocks.
pub const LEAST: f64 = 2.0;
/// From how many on it is excess: what a timer's pre-emptions add stays below a tenth.
pub const EXCESS: f64 = 2.2;

/// CPU time that a round trip may take at most, so that it is one and not a computation.
const MOST_WORK: Nanos = Nanos::secs(1);
/// Open files of a server beside those that it waits for.
const OTHER_FILES: u64 = 64;

/// The probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roundtrip {
    /// Cells to measure; [`Roundtrip::check`] and [`Matrix::cells`] give some.
    pub cells: Vec<Cell>,
    /// CPUs to use, the server's first; empty: those that we may use, from the last one down,
    /// because the first one has most of the interrupts.
    pub cpus: Vec<u32>,
    /// Runs of each cell, each in fresh processes. An interval takes 3.
    pub runs: u32,
    /// Round trips in each phase of a run at most; there are fewer where the time is short.
    pub round_trips: u64,
}

impl Roundtrip {
    /// What `check` asks: the patterns that cost switches, each beside the one that does not.
    #[must_use]
    pub fn check(quick: bool) -> Roundtrip {
        let plain = Cell::PLAIN;
        let working = Cell {
            work: Nanos::micros(50),
            ..plain
        };
        let reading = Cell {
            client: ClientWait::Read,
            ..working
        };
        // With work, so that the client has taken a reply before the next is written: see docs/questions/roundtrip.md.
        let many = Cell {
            batch: 32,
            work: Nanos::micros(20),
            ..plain
        };
        let each = Cell {
            reply: Reply::Each,
            ..many
        };
        Roundtrip {
            cells: vec![
                plain,
                working,
                reading,
                Cell {
                    client: ClientWait::Epoll,
                    ..working
                },
                Cell {
                    server: Wait::Select,
                    descriptors: 500,
                    ..plain
                },
                many,
                each,
                Cell {
                    policy: ClientPolicy::Batch,
                    ..each
                },
                Cell {
                    cpus: Cpus::Two,
                    ..working
                },
                Cell {
                    cpus: Cpus::Two,
                    ..reading
                },
            ],
            cpus: Vec::new(),
            runs: if quick { 3 } else { 5 },
            round_trips: 20_000,
        }
    }

    /// The CPUs to use, the server's first.
    fn cpus(&self, system: &dyn System) -> Result<Vec<u32>, ProbeError> {
        let mut allowed = system.cpus()?;
        if let Some(absent) = self.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return refuse(format!(
                "CPU {absent} does not exist or is not ours to use; give some of {}",
                list(&allowed, ", ")
            ));
        }
        if self.cpus.is_empty() {
            allowed.reverse();
            Ok(allowed)
        } else {
            Ok(self.cpus.clone())
        }
    }

    fn validate(&self, system: &dyn System) -> Result<(), ProbeError> {
        if self.cells.is_empty() || self.runs == 0 || self.round_trips == 0 {
            return refuse("no cells, 0 runs or 0 round trips measure nothing; give at least 1");
        }
        let mut cpus = self.cpus.clone();
        cpus.sort_unstable();
        if let Some(twice) = cpus.windows(2).find(|two| two[0] == two[1]) {
            return refuse(format!("CPU {} is given twice; give each once", twice[0]));
        }
        for cell in &self.cells {
            let files = u64::from(cell.descriptors) * 2 + OTHER_FILES;
            if cell.descriptors == 0 {
                return refuse("K of 0: a server waits for at least 1 descriptor");
            }
            if cell.server == Wait::Select && cell.descriptors as usize > MOST_SELECTED {
                return refuse(format!(
                    "K of {}: select takes at most {MOST_SELECTED} descriptors; use poll or epoll",
                    cell.descriptors
                ));
            }
            if system.most_files().is_some_and(|most| most < files) {
                return refuse(format!(
                    "K of {} needs {files} open files, more than the hard limit; raise it \
                     (ulimit -Hn) or give a smaller K",
                    cell.descriptors
                ));
            }
            if cell.batch == 0 || cell.batch as usize > MOST_GATHERED {
                return refuse(format!(
                    "a batch of {}: give 1 to {MOST_GATHERED}, the most that one writev takes",
                    cell.batch
                ));
            }
            if cell.work.0.saturating_mul(u64::from(cell.batch)) > MOST_WORK.0 {
                return refuse(format!(
                    "{} of work for each of {} requests: give at most {MOST_WORK} a round trip",
                    cell.work, cell.batch
                ));
            }
        }
        Ok(())
    }
}

/// Returns the cells that this many CPUs can run, and what is missing of the others.
fn possible<C: Copy + ToString>(
    cells: &[C],
    cpus: &[u32],
    takes_two: impl Fn(&C) -> bool,
) -> (Vec<C>, Vec<Missing>) {
    let (possible, others): (Vec<C>, Vec<C>) = cells
        .iter()
        .partition(|cell| cpus.len() > 1 || !takes_two(cell));
    let missing = others
        .iter()
        .map(|cell| Missing::new(cell.to_string(), "there is only one CPU to use"));
    (possible, missing.collect())
}

impl Probe for Roundtrip {
    fn question(&self) -> Question {
        Question::Roundtrip
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        let system = context.system;
        self.validate(system)?;
        let cpus = self.cpus(system)?;
        let (cells, mut missing) = possible(&self.cells, &cpus, |cell| cell.cpus == Cpus::Two);
        missing.extend(meter::Meter::new(system).missing());
        let most = cells.iter().map(|cell| cell.descriptors).max().unwrap_or(0);
        // Two processes' own, and a pair of sockets for each idle descriptor.
        let memory = Bytes::mib(16) + Bytes::kib(4 * u64::from(most));
        if memory > context.budget {
            return refuse(format!(
                "K of {most} needs about {memory}, more than the budget of {}; give a smaller K \
                 or a larger --memory",
                context.budget
            ));
        }
        Ok(Plan {
            what: format!(
                "a client and a server over a Unix socket, {} ways, {} runs each, in load \
                 children on CPUs {cpus:?}",
                cells.len(),
                self.runs
            ),
            memory,
            time: context.time,
            missing,
            ..Plan::default()
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.validate(context.system)?;
        let cpus = self.cpus(context.system)?;
        let (cells, missing) = possible(&self.cells, &cpus, |cell| cell.cpus == Cpus::Two);
        run::run(self, cells, &cpus, missing, context)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        judge::judge(self, measured, seed, privilege)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    #[test]
    fn a_matrix_has_all_combinations_once() {
        let matrix = Matrix {
            batches: vec![1, 32],
            replies: Reply::ALL.to_vec(),
            work: vec![Nanos(0), Nanos::micros(50)],
            ..Matrix::default()
        };
        let cells = matrix.cells();
        // 3 clients, 3 servers, 3 K, 2 of work, and (1 together, 32 together, 32 each).
        assert_eq!(cells.len(), 3 * 3 * 3 * 2 * 3);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{cell} twice");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_to_do() {
        let refused = |change: &dyn Fn(&mut Roundtrip)| {
            let mut probe = Roundtrip::check(true);
            change(&mut probe);
            let error = probe.validate(&Fake::default()).err();
            let error = error.or_else(|| probe.cpus(&Fake::default()).err());
            let text = error.expect("refused").to_string();
            assert!(!text.contains('\n'), "{text}");
            text
        };
        assert!(refused(&|p| p.cpus = vec![0, 99]).contains("CPU 99"));
        assert!(refused(&|p| p.cpus = vec![99]).ends_with("give some of 0"));
        assert!(refused(&|p| p.cpus = vec![0, 0]).contains("twice"));
        assert!(refused(&|p| p.runs = 0).contains("0 runs"));
        assert!(refused(&|p| p.cells[0].descriptors = 0).contains("K of 0"));
        assert!(refused(&|p| p.cells[0].batch = 1_025).contains("1 to 1024"));
        assert!(refused(&|p| p.cells[0].work = Nanos::secs(2)).contains("at most 1 s"));
        let many = |p: &mut Roundtrip| {
            p.cells[0].server = Wait::Select;
            p.cells[0].descriptors = 1_025;
        };
        assert!(refused(&many).contains("use poll or epoll"));
    }

    #[test]
    fn one_cpu_leaves_out_what_takes_two() {
        let (cells, missing) = possible(&Roundtrip::check(true).cells, &[0], |cell| {
            cell.cpus == Cpus::Two
        });
        assert!(cells.iter().all(|cell| cell.cpus != Cpus::Two));
        assert!(!missing.is_empty());
        assert!(missing[0].what.ends_with("two CPUs"), "{missing:?}");
    }
}
