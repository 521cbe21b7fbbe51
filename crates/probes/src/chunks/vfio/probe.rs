//! The probe on a machine that has the devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Error;
use stopgap_kernel::devices::pci::{PciAddress, PciDevice};
use stopgap_kernel::tasks::ChildLimits;
use stopgap_kernel::thp::Thp;
use stopgap_stats::record::{Answer, Block, Parameter, Series};

use super::super::knobs;
use super::super::series::STALL_FLOOR;
use super::{
    Source, TransferError, buffer, cycles, device, device_address, judge, look, table_pages,
};
use crate::contract::{Context, Measured, Plan, Probe, ProbeError};
use crate::load;
use crate::meter::{Clock, Step};

/// Names of series.
pub(super) const ENTRIES: &str = "entries";
pub(super) const RUNS: &str = "physical runs";
pub(super) const TABLES: &str = "pages of IOMMU tables";
pub(super) const COPIED: &str = "copied and compared";
/// What is missing where the device gave back other data.
pub(super) const WRONG: &str = "the data of a transfer";

/// Memory that a child needs beside its buffer.
const CHILD: Bytes = Bytes::mib(16);

/// The probe and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfioProbe {
    /// The device; `None`: the first `edu` that is bound to `vfio-pci`, else the first of all that are.
    pub device: Option<PciAddress>,
    /// Bytes of the buffer.
    pub size: Bytes,
    /// Pages that it is made of.
    pub pages: Vec<Bytes>,
    /// How often each run maps and unmaps it.
    pub operations: u64,
    /// Runs, each in fresh children.
    pub runs: u32,
    /// Whether knobs may be set, where we are root; else they are used as they stand.
    pub knobs: bool,
}

impl Default for VfioProbe {
    fn default() -> VfioProbe {
        VfioProbe {
            device: None,
            size: Bytes::mib(4),
            pages: vec![Bytes::kib(4), Bytes::kib(64), Bytes::mib(2)],
            operations: 100,
            runs: 10,
            knobs: true,
        }
    }
}

/// What a child sends.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    blocks: Vec<(String, Block)>,
    entries: Option<(u64, Source)>,
    runs: Option<u64>,
    table_pages: Option<u64>,
    copied: Option<u64>,
    /// What is not known, and why.
    missing: Vec<Missing>,
    error: Option<String>,
}

fn unsupported(error: Error) -> ProbeError {
    match error {
        Error::Unsupported { .. } => ProbeError::Unsupported(format!("unsupported: {error}")),
        error => error.into(),
    }
}

impl VfioProbe {
    fn check(&self, context: &Context<'_>) -> Result<PciDevice, ProbeError> {
        let wrong = |what: String| Err(ProbeError::Parameter(what));
        if self.runs == 0 || self.operations == 0 || self.pages.is_empty() {
            return wrong(
                "0 runs, operations or sizes of page measure nothing; give at least 1".to_owned(),
            );
        }
        let base = context.system.page_size();
        for page in self.pages.iter().copied().chain([base]) {
            if self.size.0 == 0 || !self.size.0.is_multiple_of(page.0) {
                let (size, page) = (self.size.short(), page.short());
                return wrong(format!("a buffer of {size} is not whole pages of {page}"));
            }
        }
        let device = device(context.system, self.device).map_err(unsupported)?;
        // Opened and closed: what is not permitted or not there is said before anything is measured.
        context.system.vfio(device.address).map_err(unsupported)?;
        Ok(device)
    }

    fn may_set(&self, context: &Context<'_>) -> bool {
        self.knobs && context.privilege == Privilege::Root
    }

    /// In the load child: one run with pages of `page`.
    fn measure(&self, context: &Context<'_>, device: &PciDevice, page: Bytes, run: u32) -> Report {
        let mut report = Report::default();
        if let Err(why) = self.try_measure(context, device, page, run, &mut report) {
            report.error = Some(why);
        }
        report
    }

    fn try_measure(
        &self,
        context: &Context<'_>,
        device: &PciDevice,
        page: Bytes,
        run: u32,
        report: &mut Report,
    ) -> Result<(), String> {
        let said = |error: Error| error.to_string();
        let system = context.system;
        let mut vfio = system.vfio(device.address).map_err(said)?;
        // The knobs are set already, where they may be.
        let mapping = buffer(system, self.size, page, None)?;
        let is_edu = (device.vendor, device.device) == super::EDU;
        let iova = device_address(&*vfio, self.size, is_edu).map_err(said)?;
        let before = table_pages(system);
        let start = system.now();
        let mut clock = Clock::new(system, STALL_FLOOR);
        cycles(
            &mut *vfio,
            &mapping,
            iova,
            self.operations,
            &mut clock,
            context.interrupted,
        )
        .map_err(said)?;
        for (step, recorder) in clock.recorders {
            let block = recorder.into_block(run, start.0);
            report
                .blocks
                .extend(block.map(|block| (step.word().to_owned(), block)));
        }
        // What is the same in every run is looked at in the first.
        if run == 0 {
            let reached = look(system, &mut *vfio, device, &mapping, iova, before).map_err(said)?;
            let mut missing =
                |what: &str, why: String| report.missing.push(Missing::new(what, why));
            match reached.entries {
                Ok(entries) => report.entries = Some((entries.total(), entries.source)),
                Err(why) => missing("IOMMU entries", why),
            }
            match reached.runs {
                Ok(runs) => report.runs = Some(runs),
                Err(why) => missing(RUNS, why),
            }
            match reached.table_pages {
                Ok(pages) => report.table_pages = Some(pages),
                Err(why) => missing(TABLES, why),
            }
            match reached.transferred {
                Some(Ok(copied)) => report.copied = Some(copied.0),
                Some(Err(error @ TransferError::Differs { .. })) => {
                    missing(WRONG, error.to_string());
                }
                Some(Err(error)) => missing("a DMA transfer", error.to_string()),
                None => missing(
                    "a DMA transfer",
                    "only QEMU's edu is known well enough to be asked to copy".to_owned(),
                ),
            }
        }
        system.unmap(mapping).map_err(said)
    }

    /// One page size of one run, with its knobs set and put back.
    fn cell(
        &self,
        context: &Context<'_>,
        device: &PciDevice,
        page: Bytes,
        run: u32,
        measured: &mut Measured,
    ) {
        let scope = context.journal.scope();
        let report = self.prepare(context, page).and_then(|()| {
            let limits = ChildLimits {
                time: Nanos::secs(30).max(context.time),
                cgroup: None,
            };
            let child = load::child(context.system, &limits, || {
                self.measure(context, device, page, run)
            });
            let (report, peak) = child.map_err(|error| error.to_string())?;
            measured.peak_resident = measured.peak_resident.max(peak);
            Ok(report)
        });
        for error in scope.undo() {
            measured
                .missing
                .push(Missing::new("putting a knob back", error.to_string()));
        }
        match report {
            Ok(report) => self.take(measured, page, run, report),
            Err(_) if (context.interrupted)() => {}
            Err(why) => self.fail(measured, page, &why),
        }
    }

    /// Sets the knobs for pages of this size, where that may be.
    fn prepare(&self, context: &Context<'_>, page: Bytes) -> Result<(), String> {
        if !self.may_set(context) || page == context.system.page_size() {
            return Ok(());
        }
        context.journal.alone().map_err(|error| error.to_string())?;
        let thp = Thp::read(context.system).map_err(|error| error.to_string())?;
        let strategy = super::strategy(thp.as_ref(), context.system.page_size(), page);
        let setup = knobs::setup(strategy, thp.as_ref(), context.system.page_size(), true)?;
        for (knob, word) in &setup.changes {
            context
                .journal
                .set(knob, word)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn parameters(&self, page: Bytes) -> BTreeMap<String, Parameter> {
        BTreeMap::from([
            ("backend".to_owned(), "vfio".into()),
            ("size".to_owned(), self.size.short().into()),
            ("page".to_owned(), page.short().into()),
        ])
    }

    fn take(&self, measured: &mut Measured, page: Bytes, run: u32, report: Report) {
        let mut add = |name: &str, unit: &str, block: Block, more: Option<(&str, Parameter)>| {
            let mut parameters = self.parameters(page);
            parameters.extend(more.map(|(name, value)| (name.to_owned(), value)));
            measured.add(Series {
                name: name.to_owned(),
                unit: unit.to_owned(),
                parameters,
                blocks: vec![block],
                error: None,
            });
        };
        for (name, block) in report.blocks {
            add(&name, "ns", block, None);
        }
        if let Some((entries, source)) = report.entries {
            add(
                ENTRIES,
                "entries/buffer",
                count(run, entries),
                Some(("source", source.word().into())),
            );
        }
        if let Some(runs) = report.runs {
            add(RUNS, "runs/buffer", count(run, runs), None);
        }
        if let Some(pages) = report.table_pages {
            add(TABLES, "pages/buffer", count(run, pages), None);
        }
        if let Some(bytes) = report.copied {
            add(COPIED, "bytes", count(run, bytes), None);
        }
        for mut missing in report.missing {
            missing.what = format!("{}, {} pages", missing.what, page.short());
            if !measured.missing.contains(&missing) {
                measured.missing.push(missing);
            }
        }
        if let Some(why) = report.error {
            self.fail(measured, page, &why);
        }
    }

    fn fail(&self, measured: &mut Measured, page: Bytes, why: &str) {
        let missing = Missing::new(
            format!("{} in pages of {}", self.size.short(), page.short()),
            why,
        );
        if !measured.missing.contains(&missing) {
            measured.missing.push(missing);
        }
    }
}

/// A count that is no time.
fn count(run: u32, value: u64) -> Block {
    Block {
        run,
        start_ns: 0,
        samples: 1,
        value: value as f64,
        histogram: None,
        stalls: None,
    }
}

impl Probe for VfioProbe {
    fn question(&self) -> Question {
        Question::Chunks
    }

    fn plan(&self, context: &Context<'_>) -> Result<Plan, ProbeError> {
        let device = self.check(context)?;
        let memory = self.size + CHILD;
        if memory > context.budget {
            return Err(ProbeError::Parameter(format!(
                "a buffer of {} needs about {memory}, more than the budget of {}; give a larger --memory",
                self.size.short(),
                context.budget
            )));
        }
        let mut touches = vec![format!(
            "{}: reset when it is opened and closed",
            device.address
        )];
        if self.may_set(context) {
            touches.push(format!(
                "knobs in {}: set and put back",
                stopgap_kernel::thp::DIRECTORY
            ));
        }
        let pages: Vec<String> = self.pages.iter().map(|page| page.short()).collect();
        Ok(Plan {
            what: format!(
                "maps {} in pages of {} for {} ({:04x}:{:04x}) and unmaps it, {} times in each of {} runs",
                self.size.short(),
                pages.join(", "),
                device.address,
                device.vendor,
                device.device,
                self.operations,
                self.runs
            ),
            touches,
            memory,
            time: context.time,
            missing: Vec::new(),
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        let device = self.check(context)?;
        let mut measured = Measured::default();
        let begun = context.system.now();
        let mut random = Random::new(context.seed);
        let mut pages = self.pages.clone();
        'runs: for run in 0..self.runs {
            random.shuffle(&mut pages);
            for &page in &pages {
                if (context.interrupted)() {
                    measured.interrupted = true;
                    break 'runs;
                }
                let done = f64::from(run) / f64::from(self.runs);
                (context.progress)(done, &format!("pages of {}", page.short()));
                self.cell(context, &device, page, run, &mut measured);
            }
            if context.enough(begun, run + 1) && run + 1 < self.runs {
                let left = format!("{} of {} runs", self.runs - run - 1, self.runs);
                measured.missing.push(context.left_out(left));
                break;
            }
        }
        Ok(measured)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        let pages: Vec<String> = self.pages.iter().map(|page| page.short()).collect();
        let device = self
            .device
            .map_or_else(|| "default".to_owned(), |address| address.to_string());
        let parameters = BTreeMap::from([
            ("backend".to_owned(), Parameter::from("vfio")),
            ("device".to_owned(), device.into()),
            ("size".to_owned(), self.size.short().into()),
            ("page".to_owned(), pages.join(",").into()),
            ("operations".to_owned(), self.operations.into()),
            ("runs".to_owned(), self.runs.into()),
        ]);
        judge::judge(self, measured, parameters, seed, privilege)
    }
}

/// The steps whose sum is what a mapping costs.
pub(super) const STEPS: [Step; 2] = [Step::DmaMap, Step::DmaUnmap];
