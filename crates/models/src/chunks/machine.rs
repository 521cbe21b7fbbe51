//! A memory, a kernel, and the other tasks on it: where policies build buffers and what that costs.
//!
//! **Contract.** A [`Machine`] is a [`Source`] of chunks: unmovable ones, as buffers of devices are. [`Machine::build`]
//! lets time pass until nothing of the buffer before is felt but the memory that it holds, builds one, clears it, and lets the
//! bystanders try. The same scenario, setting and calls give the same answers.
//!
//! **Cost.** About 0.1 us a page that is reclaimed or moved; a pass of compaction reads each page's byte.

use stopgap_chunks::policy::{BuildError, Built, Chunk, Effort, Name, Request, Source};
use stopgap_events::random::Random;
use thiserror::Error;

use super::buddy::{Buddy, BuddyError, Mobility, PageState, Use};
use super::bystanders::{self, Bystander, Fared};
use super::compaction::Compaction;
use super::cost::{ByCause, CostError, Costs, Counts};
use super::kernel::Kernel;
use super::reclaim::Lru;
use super::walkers::{Walkers, WalkersError};
use super::watermarks::Watermarks;
use super::zone::{Mark, Zone};

/// The request as the buddy memory sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asks {
    /// From which blocks it comes.
    pub(super) mobility: Mobility,
    /// Use of its pages then.
    pub(super) of: Use,
    /// The first zone that it may have, in the order of [`Machine::zones`]; it may have all that follow.
    pub(super) first_zone: usize,
}

impl Asks {
    /// A buffer of a device: unmovable, and from any zone (`__iommu_alloc_buffer` of 3.14 sets `__GFP_HIGHMEM`).
    const DEVICE: Asks = Asks {
        mobility: Mobility::Unmovable,
        of: Use::Unmovable,
        first_zone: 0,
    };

    /// User memory that can be reclaimed again.
    pub(super) const USER: Asks = Asks {
        mobility: Mobility::Movable,
        of: Use::Reclaimable,
        first_zone: 0,
    };
}

/// Choices of a caller for a machine; the scenario decides the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Whose rules.
    pub kernel: Kernel,
    /// Prices of its work.
    pub costs: Costs,
    /// Seed of all random choices.
    pub seed: u64,
    /// Bytes of a base page: a power of two from 4 KiB to 256 KiB.
    pub page: u64,
}

impl Default for Setting {
    /// Mail 001's machine, seed 1, pages of 4 KiB.
    fn default() -> Setting {
        Setting {
            kernel: Kernel::V3_14,
            costs: Costs::THREAD,
            seed: 1,
            page: 4096,
        }
    }
}

/// Why there is no machine, or no buffer on it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The memory.
    #[error(transparent)]
    Memory(#[from] BuddyError),
    /// A cost.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The walkers.
    #[error(transparent)]
    Walkers(#[from] WalkersError),
    /// A base page that no kernel has.
    #[error("a base page of {page} bytes: it has to be a power of two from 4 KiB to 256 KiB")]
    Page {
        /// Its bytes.
        page: u64,
    },
    /// The request counts in other pages than the machine has.
    #[error("a buffer in pages of {asked} bytes on a machine whose pages have {page}")]
    OtherPage {
        /// The request's base page, bytes.
        asked: u64,
        /// The machine's, bytes.
        page: u64,
    },
    /// The buffer is larger than the memory.
    #[error("a buffer of {pages} pages in a memory of {memory}")]
    TooLarge {
        /// The buffer's pages.
        pages: u64,
        /// The memory's pages.
        memory: u64,
    },
    /// A snapshot that cannot be used.
    #[error("snapshot: {0}")]
    Snapshot(String),
    /// An assumption that nothing can satisfy.
    #[error("{0}")]
    Assumption(String),
    /// The policy's error, which may be that memory is used up.
    #[error("{0}")]
    Build(BuildError),
    /// The caller of [`Machine::build_until`] wanted no more.
    #[error("stopped within a buffer")]
    Stopped,
}

/// A buffer, and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Its chunks, and the tries for them.
    pub built: Built,
    /// Nanoseconds, all causes together.
    pub time_ns: f64,
    /// The same by cause.
    pub by_cause: ByCause,
    /// The same as counts.
    pub counts: Counts,
    /// By how many blocks of order 3 free memory is poorer ([`Machine::free_of_order_3`]); below 0 where reclaim and
    /// compaction made more than were taken.
    pub large_blocks: i64,
    /// How the bystanders fared while it was built and right after.
    pub bystanders: Fared,
}

/// See the module's head.
#[derive(Clone)]
pub struct Machine {
    /// As the kernel looks through them (`zonelist`): the highest first. At least one.
    pub(super) zones: Vec<Zone>,
    /// The first zone that drivers beside may have: high memory is not for them.
    pub(super) drivers_zone: usize,
    pub(super) kernel: Kernel,
    pub(super) costs: Costs,
    page: u64,
    pub(super) asks: Asks,
    pub(super) walkers: Option<Walkers>,
    pub(super) kswapd_woken: bool,
    /// Pages that the walkers, or kswapd where there are none, are behind with: below 1 between two steps.
    pub(super) owed: f64,
    pub(super) bystanders: Vec<Bystander>,
    pub(super) fared: Fared,
    /// Modelled time since the beginning.
    pub(super) clock_ns: f64,
    /// When the bystanders tried last.
    pub(super) stood_by_ns: f64,
    pub(super) counts: Counts,
}

impl Setting {
    /// # Errors
    /// A base page that no kernel has, and a cost that nothing can have.
    pub fn check(&self) -> Result<(), MachineError> {
        let page = self.page;
        if !page.is_power_of_two() || !(1 << 12..=1 << 18).contains(&page) {
            return Err(MachineError::Page { page });
        }
        self.costs.check()?;
        Ok(())
    }
}

impl Machine {
    /// A machine whose memory is `buddy`, with mail 001's bystanders, without walkers.
    ///
    /// # Errors
    /// Those of [`Setting::check`].
    pub fn new(buddy: Buddy, setting: &Setting) -> Result<Machine, MachineError> {
        let marks = Watermarks::for_memory(setting.kernel, buddy.pages(), setting.page);
        Machine::of_zones(vec![(buddy, marks, 0)], setting)
    }

    /// A machine of several zones, the highest first: the memory of each, its watermarks, and the pages that are
    /// reserved in it against requests for a higher one.
    ///
    /// # Errors
    /// Those of [`Setting::check`].
    pub(super) fn of_zones(
        zones: Vec<(Buddy, Watermarks, u64)>,
        setting: &Setting,
    ) -> Result<Machine, MachineError> {
        setting.check()?;
        let &Setting {
            kernel,
            costs,
            seed,
            page,
        } = setting;
        let mut random = Random::new(seed);
        let mut base: u64 = zones.iter().map(|(buddy, ..)| buddy.pages()).sum();
        let zone = |(buddy, marks, reserve): (Buddy, Watermarks, u64)| {
            let pages = buddy.pages();
            base -= pages;
            Zone {
                base,
                marks,
                reserve,
                lru: Lru::new(pages, &mut random),
                compaction: Compaction::new(pages),
                buddy: if kernel.is_old() {
                    buddy.of_3_14()
                } else {
                    buddy
                },
            }
        };
        Ok(Machine {
            drivers_zone: zones.len().saturating_sub(1),
            zones: zones.into_iter().map(zone).collect(),
            kernel,
            costs,
            page,
            asks: Asks::DEVICE,
            walkers: None,
            kswapd_woken: false,
            owed: 0.0,
            bystanders: bystanders::THREAD.to_vec(),
            fared: Fared::default(),
            clock_ns: 0.0,
            stood_by_ns: 0.0,
            counts: Counts::default(),
        })
    }

    /// The same with other watermarks of its first zone.
    #[must_use]
    pub fn with_marks(mut self, marks: Watermarks) -> Machine {
        self.zones[0].marks = marks;
        self
    }

    /// The same with drivers that may have any zone, as where no memory is high memory.
    pub(super) fn with_drivers_anywhere(self) -> Machine {
        Machine {
            drivers_zone: 0,
            ..self
        }
    }

    /// The same with walkers.
    ///
    /// # Errors
    /// Those of [`Walkers::check`].
    pub fn with_walkers(self, walkers: Walkers) -> Result<Machine, MachineError> {
        walkers.check()?;
        Ok(Machine {
            walkers: (walkers.tasks > 0).then_some(walkers),
            ..self
        })
    }

    /// Builds a buffer.
    ///
    /// # Errors
    /// A request in other pages or larger than the memory, and those of the policy; nothing is held then, but time has
    /// passed for the memory.
    pub fn build(&mut self, policy: Name, request: &Request) -> Result<Outcome, MachineError> {
        self.build_until(policy, request, &|| false)
    }

    /// The same, given up as soon as `stop` says so, which is asked before each call of the allocator: on fragmented
    /// memory one buffer may take minutes of ours. It should cost no more than a look at a flag.
    ///
    /// # Errors
    /// As [`Machine::build`], and [`MachineError::Stopped`]; nothing is held then.
    pub fn build_until(
        &mut self,
        policy: Name,
        request: &Request,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, MachineError> {
        let &Request { pages, page, .. } = request;
        if page != self.page {
            let (asked, page) = (page, self.page);
            return Err(MachineError::OtherPage { asked, page });
        }
        let memory = self.memories().map(Buddy::pages).sum();
        if pages > memory {
            return Err(MachineError::TooLarge { pages, memory });
        }
        self.rest();
        let (before, fared) = (self.counts, self.fared);
        let large = self.free_of_order_3();
        self.stood_by_ns = self.clock_ns;
        let mut until = Until {
            machine: self,
            stop,
            stopped: false,
        };
        let built = policy.build(request, &mut until);
        let stopped = until.stopped;
        let built = match built {
            Err(_) if stopped => return Err(MachineError::Stopped),
            built => built.map_err(MachineError::Build)?,
        };
        self.clear(built.pages());
        let large_blocks = large.cast_signed() - self.free_of_order_3().cast_signed();
        self.stand_by();
        let counts = self.counts - before;
        let by_cause = ByCause::priced(&counts, &self.costs);
        Ok(Outcome {
            built,
            time_ns: by_cause.total_ns(),
            by_cause,
            counts,
            large_blocks,
            bystanders: self.fared - fared,
        })
    }

    /// Gives a buffer of this machine back.
    pub fn release(&mut self, built: &Built) {
        for chunk in built.chunks.iter().rev() {
            self.free(*chunk);
        }
    }

    /// Pins the used page `frame`: it can then be neither moved nor reclaimed. Whether it
    /// is a page that could be until now.
    pub fn pin(&mut self, frame: u64) -> bool {
        let Some((zone, frame)) = self.zone_of(frame) else {
            return false;
        };
        let buddy = &mut self.zones[zone].buddy;
        let movable = matches!(
            buddy.page(frame),
            Some(PageState::Used(Use::Movable | Use::Reclaimable))
        );
        movable && buddy.set_use(frame, Use::Pinned).is_ok()
    }

    /// How the bystanders fared after all buffers.
    #[must_use]
    pub fn bystanders(&self) -> Fared {
        self.fared
    }

    /// The memory of each zone, the highest first.
    pub fn memories(&self) -> impl Iterator<Item = &Buddy> {
        self.zones.iter().map(|zone| &zone.buddy)
    }

    /// The memory of the only zone.
    #[cfg(test)]
    pub(super) fn buddy(&self) -> &Buddy {
        let [zone] = &self.zones[..] else {
            panic!("{} zones", self.zones.len());
        };
        &zone.buddy
    }

    /// Returns the work done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The same with other costs.
    #[must_use]
    pub fn with_costs(self, costs: Costs) -> Machine {
        Machine { costs, ..self }
    }

    /// Returns the prices of the work.
    #[must_use]
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Bytes of a base page.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Blocks of order 3 that the free memory holds, each larger one counted for as many as fit in.
    #[must_use]
    pub fn free_of_order_3(&self) -> u64 {
        let large = |buddy: &Buddy| -> u64 {
            let blocks = |order| buddy.free_blocks(order) << (order - 3);
            (3..super::buddy::ORDERS as u32).map(blocks).sum()
        };
        self.memories().map(large).sum()
    }

    /// Whether 2^`order` pages may go down to `mark` in a zone, as this kernel tests it before compaction and reclaim:
    /// of old without the reserve (`compaction_suitable` of 3.14 asks for `classzone_idx` 0), since 4.7 with it.
    pub(super) fn is_ok(&self, zone: usize, order: u32, mark: u64) -> bool {
        let lower = zone > self.asks.first_zone && !self.kernel.is_old();
        let zone = &self.zones[zone];
        let reserve = if lower { zone.reserve } else { 0 };
        zone.is_ok(self.kernel, order, mark, reserve)
    }

    /// `get_page_from_freelist`: a free block from the first zone where the mark, and in a lower zone than was asked for
    /// the reserve, allow it.
    pub(super) fn grab(&mut self, order: u32, mark: Mark) -> Option<u64> {
        let Asks {
            mobility,
            of,
            first_zone,
        } = self.asks;
        for (place, zone) in self.zones.iter_mut().enumerate().skip(first_zone) {
            let reserve = if place > first_zone { zone.reserve } else { 0 };
            if zone.is_ok(self.kernel, order, zone.mark(mark), reserve)
                && let Some(frame) = zone.buddy.allocate(order, mobility, of)
            {
                return Some(zone.base + frame);
            }
        }
        None
    }

    /// The zones that a request for what is asked may have.
    pub(super) fn zones_asked(&self) -> std::ops::Range<usize> {
        self.asks.first_zone..self.zones.len()
    }

    /// The zones that direct reclaim takes pages from: of old each that the request may have; since 4.8 pages of all
    /// zones of a node are on one list (`shrink_zones`, mm/vmscan.c), which the zone with the most of them stands for.
    pub(super) fn zones_reclaimed(&self) -> Vec<usize> {
        let reclaimable = |&zone: &usize| self.zones[zone].buddy.used_pages(Use::Reclaimable);
        match self.kernel.is_old() {
            true => self.zones_asked().collect(),
            false => self
                .zones_asked()
                .max_by_key(reclaimable)
                .into_iter()
                .collect(),
        }
    }

    /// The zone that a frame is in, and the frame's number there.
    pub(super) fn zone_of(&self, frame: u64) -> Option<(usize, u64)> {
        let has = |zone: &Zone| (zone.base..zone.base + zone.buddy.pages()).contains(&frame);
        let zone = self.zones.iter().position(has)?;
        Some((zone, frame - self.zones[zone].base))
    }

    /// From now on this is asked for; what was before.
    pub(super) fn ask(&mut self, asks: Asks) -> Asks {
        std::mem::replace(&mut self.asks, asks)
    }

    /// A page fault that maps what was taken.
    pub(super) fn fault(&mut self) {
        self.counts.faults += 1;
    }

    /// Clears what was taken.
    pub(super) fn clear(&mut self, pages: u64) {
        self.counts.cleared += pages;
    }

    /// Frees what this machine took.
    pub(super) fn give_back(&mut self, frame: u64, order: u32) {
        if let Some((zone, frame)) = self.zone_of(frame) {
            let given = self.zones[zone].buddy.free(frame, order);
            debug_assert_eq!(given, Ok(()));
        }
    }
}

impl Source for Machine {
    /// For the task that builds a buffer.
    fn allocate(&mut self, order: u32, effort: Effort) -> Option<u64> {
        self.stand_by_in_time();
        self.counts.calls += 1;
        self.elapse(self.costs.call_ns);
        self.slow_or_fast(order, effort)
    }

    fn free(&mut self, chunk: Chunk) {
        self.give_back(chunk.frame, chunk.order);
    }
}

/// A machine that refuses every allocation after `stop`: the policy then soon gives up,
/// and gives back what it has.
struct Until<'a> {
    machine: &'a mut Machine,
    stop: &'a dyn Fn() -> bool,
    stopped: bool,
}

impl Source for Until<'_> {
    fn allocate(&mut self, order: u32, effort: Effort) -> Option<u64> {
        self.stopped = self.stopped || (self.stop)();
        if self.stopped {
            return None;
        }
        self.machine.allocate(order, effort)
    }

    fn free(&mut self, chunk: Chunk) {
        self.machine.free(chunk);
    }
}
