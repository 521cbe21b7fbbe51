//! `placement`: does mapping memory slow down as mappings pile up?
//!
//! **Contract.** pbobench of mail 000 over a ladder of N: N one-page mappings that can never
//! merge are laid out, then 100 slots are mapped, touched and unmapped at random. Map, first
//! touch and unmap are timed apart, each call. Each N of each run is a load child of its own,
//! with a fresh address space, in random order. In every run, over the same ladder, the
//! **positive control**: the time to read `/proc/self/maps` beside N mappings of one memfd,
//! which is linear in N on every kernel. A run that cannot see *that* growth may not say
//! `flat`.
//!
//! Beside it: agua and freegap of mail 003, and N threads that map at once while one only
//! faults, because today's stall is mmap_lock and the TLB shootdown rather than the search.
//!
//! A backend may also be a device's buffer objects (`vgem`, `dma-heap`, `udmabuf`, `gl`), which are what the mail is
//! about: made, mapped, touched, unmapped and destroyed, each timed apart ([`churn`]), or a character device that is
//! mapped itself (`device:PATH`). What is not on this machine is `unsupported`, with what to load or install.
//!
//! What it leaves out: address-space randomisation is as the system has it; one NUMA node.

mod execute;
mod judge;
mod objects;
mod run;

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::workload::{Agua, Pbobench};
use stopgap_kernel::devices::Maker;
use stopgap_kernel::files::read_number;
use stopgap_kernel::{Error, System};
use stopgap_stats::record::Answer;

use crate::contract::{Context, Measured, Plan, Probe, ProbeError, list, refuse};

pub use execute::beside;
pub use execute::{Backend, Buffers, Mapped, Named};
pub use objects::{churn, room as room_for_objects};

/// From what length on a map, touch or unmap counts as a stall.
pub const STALL: Nanos = Nanos::millis(10);

/// The ladder of N unless told otherwise; the last count is added from `vm.max_map_count`.
pub const LADDER: [u32; 5] = [100, 1_000, 10_000, 20_000, 40_000];

/// Mappings left for the process itself, the slots of pbobench and its threads' stacks.
const MARGIN: u64 = 1_000;

/// Open files left for the process itself and the slots of pbobench.
const FILES: u64 = 200;

/// No count above this is chosen unasked, however large `vm.max_map_count` is: each mapping
/// takes some 10 us to lay out, to list and to give back, in every run of every backend.
const LAST_RUNG: u64 = 250_000;
/// The same where few counts are asked for, which is where little time is: what the usual
/// `vm.max_map_count` has room for (Fedora and Ubuntu 24.04 have raised it to 1,048,576).
const LAST_OF_FEW: u64 = 64_000;

/// Memory that a load child needs beside its mappings.
const CHILD: Bytes = Bytes::mib(16);

/// The probe with its parameters.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Numbers of mappings; empty: [`LADDER`] and one just under `vm.max_map_count`.
    pub ladder: Vec<u32>,
    /// With an empty ladder: leave out the counts between 10,000 and the last, and let that be
    /// 64,000 at most.
    pub few: bool,
    /// With an empty ladder: one more count, the number of mappings of a process that was asked
    /// about, or as many as there is room for.
    pub also: Option<u32>,
    /// Backings of the mappings.
    pub backends: Vec<Backend>,
    /// Steps of pbobench at each N; half of them map.
    pub steps: u64,
    /// Runs, each in fresh children.
    pub runs: u32,
    /// Numbers of threads, one of which only faults; empty: none.
    pub threads: Vec<u32>,
    /// Loops of agua, 0: none.
    pub agua_loops: u32,
    /// Mappings that agua keeps live at most; `None`: its 200,000, or what fits.
    pub agua_live: Option<u32>,
    /// Mappings that agua drops when there are more; `None`: its share, 35,000 of 200,000.
    pub agua_drop: Option<u32>,
    /// Rounds of each form of freegap, 0: none.
    pub freegap_rounds: u64,
}

impl Placement {
    /// Returns the probe of `check`: all of it, or with `quick` only pbobench on memfd.
    #[must_use]
    pub fn check(system: &dyn System, quick: bool) -> Placement {
        let cpus = system.cpus().map_or(1, |cpus| cpus.len());
        // From two on, doubled, and all of them.
        let all = u32::try_from(cpus).unwrap_or(u32::MAX);
        let doubled = std::iter::successors(Some(2u32), |n| n.checked_mul(2));
        let mut threads: Vec<u32> = doubled.take_while(|&n| n < all).collect();
        threads.extend((all > 1).then_some(all));
        Placement {
            ladder: Vec::new(),
            few: quick,
            also: None,
            backends: if quick {
                vec![Backend::Memfd]
            } else {
                Backend::ALL.to_vec()
            },
            steps: if quick { 3_000 } else { 5_000 },
            runs: 5,
            threads: if quick { Vec::new() } else { threads },
            agua_loops: if quick { 0 } else { 20 },
            agua_live: None,
            agua_drop: None,
            freegap_rounds: if quick { 0 } else { 20_000 },
        }
    }

    /// Memory that one mapping takes: by the dearest backend.
    fn a_mapping(&self, page: Bytes) -> Bytes {
        let all = self.backends.iter().map(|backend| backend.a_mapping(page));
        all.max().unwrap_or(Bytes(0))
    }

    /// The numbers of mappings to measure, ascending. Those that nobody asked for by number fit
    /// into `budget`.
    fn counts(&self, system: &dyn System, budget: Bytes) -> Result<Vec<u32>, ProbeError> {
        let room = room(system)?;
        // Objects that are open files end where those do.
        let files = self.files(system);
        let mut counts = self.ladder.clone();
        if counts.is_empty() {
            let paid = budget.saturating_sub(CHILD).0 / self.a_mapping(system.page_size()).0.max(1);
            if paid == 0 {
                return refuse(format!(
                    "a budget of {budget} does not hold one load child; give a larger --memory"
                ));
            }
            let room = room.min(paid).min(files.unwrap_or(u64::MAX));
            let wanted = |n: u32| u64::from(n) <= room && !(self.few && n > 10_000);
            counts.extend(LADDER.into_iter().filter(|&n| wanted(n)));
            // Just under the limit, in whole thousands where there are any.
            let last = room.min(if self.few { LAST_OF_FEW } else { LAST_RUNG });
            let last = if last > 1_000 {
                last / 1_000 * 1_000
            } else {
                last
            };
            counts.extend(u32::try_from(last));
            let also = self.also.filter(|&n| n > 0).map(|n| room.min(n.into()));
            counts.extend(also.and_then(|n| u32::try_from(n).ok()));
        }
        counts.sort_unstable();
        counts.dedup();
        for &n in &counts {
            if n == 0 {
                return refuse("N of 0: there is nothing to pile up; give at least 1".to_owned());
            }
            if u64::from(n) > room {
                let (limit, needed) = (room + MARGIN, u64::from(n) + MARGIN);
                return refuse(format!(
                    "N of {n} does not fit into vm.max_map_count = {limit}; as root: sysctl \
                     vm.max_map_count={needed}"
                ));
            }
            if let Some(most) = files.filter(|&most| u64::from(n) > most) {
                return refuse(format!(
                    "N of {n} objects that are open files does not fit into RLIMIT_NOFILE: {most} do; as root: \
                     prlimit --nofile={} --pid $$",
                    u64::from(n) + FILES
                ));
            }
        }
        Ok(counts)
    }

    /// How many objects the limit of open files has room for; `None`: no backend's objects are files, or there is no
    /// limit.
    fn files(&self, system: &dyn System) -> Option<u64> {
        let mut makers = self.backends.iter().filter_map(Backend::maker);
        let most = system
            .most_files()
            .filter(|_| makers.any(Maker::has_files))?;
        Some(most.saturating_sub(FILES))
    }

    /// agua at the size that fits here, and what was scaled, in words.
    fn agua(&self, system: &dyn System) -> Result<(Agua, Option<String>), ProbeError> {
        let room = room(system)?.saturating_sub(Agua::PER_LOOP);
        let wanted = self.agua_live.map_or(Agua::ORIGINAL_CEILING, u64::from);
        if self.agua_live.is_some() && wanted > room {
            return refuse(format!(
                "agua with {wanted} live maps does not fit: {room} do here; as root: sysctl \
                 vm.max_map_count={}",
                wanted + Agua::PER_LOOP + MARGIN
            ));
        }
        let ceiling = wanted.min(room) as u32;
        let agua = match self.agua_drop {
            Some(drop) => Agua::with_drop(self.agua_loops, ceiling, drop),
            None => Agua::new(self.agua_loops, ceiling),
        };
        let scaled = (wanted > room).then(|| {
            format!(
                "scaled to at most {room} live maps instead of {wanted}: vm.max_map_count allows \
                 no more"
            )
        });
        Ok((agua, scaled))
    }

    fn validate(&self, system: &dyn System) -> Result<(), ProbeError> {
        let cpus = system.cpus()?.len();
        if self.runs == 0 || self.steps == 0 {
            return refuse("0 runs or 0 steps measure nothing; give at least 1".to_owned());
        }
        if let Some(&n) = self.threads.iter().find(|&&n| n < 2 || n as usize > cpus) {
            return refuse(format!(
                "{n} threads: one of them only faults, so give 2 to {cpus} (this process may \
                 use {cpus} CPUs)"
            ));
        }
        Ok(())
    }
}

impl Probe for Placement {
    fn question(&self) -> Question {
        Question::Placement
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        self.validate(context.system)?;
        self.agua(context.system)?;
        let counts = self.counts(context.system, context.budget)?;
        let most = counts.last().copied().unwrap_or(0);
        let memory = Bytes(u64::from(most) * self.a_mapping(context.system.page_size()).0) + CHILD;
        if memory > context.budget {
            return refuse(format!(
                "N of {most} needs about {memory}, more than the budget of {}; give a smaller N \
                 or a larger --memory",
                context.budget
            ));
        }
        Ok(Plan {
            what: format!(
                "maps, touches and unmaps beside N = {} mappings of {}, in load children",
                list(&counts, ", "),
                list(&self.backends, " and "),
            ),
            memory,
            time: context.time,
            ..Plan::default()
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        self.validate(context.system)?;
        let counts = self.counts(context.system, context.budget)?;
        run::run(self, &counts, context)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        judge::judge(self, measured, seed, privilege)
    }
}

/// Mappings that a process may have at most, those of the process itself and of pbobench's slots
/// left out.
fn room(system: &dyn System) -> Result<u64, Error> {
    let limit: u64 = read_number(system, "/proc/sys/vm/max_map_count")?;
    Ok(limit.saturating_sub(MARGIN))
}

/// Names that pbobench uses beside `n` mappings.
fn names(n: u32) -> u64 {
    Pbobench::peak(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    fn counts(limit: &str, budget: Bytes) -> Vec<u32> {
        let fake = Fake::default().with_file("/proc/sys/vm/max_map_count", limit);
        Placement::check(&fake, false)
            .counts(&fake, budget)
            .unwrap()
    }

    /// Who asks without numbers on a small machine gets a shorter ladder, not a refusal.
    #[test]
    fn the_ladder_fits_limit_and_budget() {
        let usual = [100, 1_000, 10_000, 20_000, 40_000, 64_000];
        assert_eq!(counts("65530", Bytes::gib(1)), usual);
        assert_eq!(counts("1048576", Bytes::gib(1)).last(), Some(&250_000));
        assert_eq!(
            counts("65530", Bytes::mib(64)),
            [100, 1_000, 10_000, 20_000, 24_000]
        );
        assert_eq!(counts("1048576", Bytes::mib(64)).last(), Some(&24_000));
    }

    #[test]
    fn a_raised_limit_does_not_make_the_quick_check_long() {
        let fake = Fake::default().with_file("/proc/sys/vm/max_map_count", "1048576\n");
        let counts = Placement::check(&fake, true).counts(&fake, Bytes::gib(1));
        assert_eq!(counts.unwrap(), [100, 1_000, 10_000, 64_000]);
    }

    #[test]
    fn a_process_at_the_limit_is_followed_as_far_as_there_is_room() {
        let counts = |also| {
            let fake = Fake::default();
            let probe = Placement {
                also: Some(also),
                ..Placement::check(&fake, true)
            };
            probe.counts(&fake, Bytes::gib(1)).unwrap()
        };
        assert_eq!(counts(9_412), [100, 1_000, 9_412, 10_000, 64_000]);
        assert_eq!(counts(65_400).last(), Some(&64_530));
    }

    #[test]
    fn an_n_beyond_the_limit_is_refused_with_the_one_to_set() {
        let fake = Fake::default();
        let probe = Placement {
            ladder: vec![64_531],
            ..Placement::check(&fake, true)
        };
        let error = probe.counts(&fake, Bytes::gib(1)).unwrap_err().to_string();
        assert!(
            error.contains("= 65530") && error.ends_with("=65531"),
            "{error}"
        );
    }
}
