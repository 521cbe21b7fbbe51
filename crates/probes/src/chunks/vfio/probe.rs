//! The probe on a machine that has the devices.

use std::collections::BTreeMap;

use stopgap_events::machine::Privilege;
use stopgap_events::order::Inserted as _;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_kernel::Error;
use stopgap_kernel::devices::pci::{PciAddress, PciDevice};
use stopgap_kernel::thp::Thp;
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Block, Figure, Parameter, Series, parameters};
use stopgap_stats::verdict::{Verdict, Word, format_interval};

use super::super::knobs;
use super::super::series::STALL_FLOOR;
use super::{TransferError, buffer, cycles, device, device_address, look, table_pages};
use crate::contract::{Context, Judgement, Measured, Parameters, Plan, Probe, ProbeError, refuse};
use crate::meter::{Clock, Step};
use crate::runner::{self, rotate};

/// Names of series.
pub(super) const ENTRIES: &str = "entries";
pub(super) const RUNS: &str = "physical runs";
pub(super) const TABLES: &str = "pages of IOMMU tables";
pub(super) const COPIED: &str = "copied and compared";
/// Name of what is missing where the device gave back other data.
pub(super) const WRONG: &str = "the data of a transfer";

/// The same where it copied nothing.
const TRANSFER: &str = "a DMA transfer";

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

fn unsupported(error: Error) -> ProbeError {
    match error {
        Error::Unsupported { .. } => ProbeError::Unsupported(format!("unsupported: {error}")),
        error => error.into(),
    }
}

impl VfioProbe {
    fn check(&self, context: &Context<'_>) -> Result<PciDevice, ProbeError> {
        if self.runs == 0 || self.operations == 0 || self.pages.is_empty() {
            return refuse("0 runs, operations or sizes of page measure nothing; give at least 1");
        }
        let base = context.system.page_size();
        for page in self.pages.iter().copied().chain([base]) {
            if self.size.0 == 0 || !self.size.0.is_multiple_of(page.0) {
                let (size, page) = (self.size.short(), page.short());
                return refuse(format!("a buffer of {size} is not whole pages of {page}"));
            }
        }
        let device = device(context.system, self.device).map_err(unsupported)?;
        // Opened and closed: a missing or refused device is reported before anything is measured.
        context.system.vfio(device.address).map_err(unsupported)?;
        Ok(device)
    }

    fn pages_text(&self, comma: &str) -> String {
        let pages: Vec<String> = self.pages.iter().map(|page| page.short()).collect();
        pages.join(comma)
    }

    fn may_set(&self, context: &Context<'_>) -> bool {
        self.knobs && context.privilege == Privilege::Root
    }

    /// Measures one run with pages of `page`, in the load child.
    fn measure(
        &self,
        context: &Context<'_>,
        device: &PciDevice,
        (page, run): (Bytes, u32),
        report: &mut Measured,
    ) -> Result<(), String> {
        let system = context.system;
        let mut vfio = system.vfio(device.address)?;
        // The knobs are set already, where they may be.
        let mapping = buffer(system, self.size, page, None)?;
        let is_edu = (device.vendor, device.device) == super::EDU;
        let iova = device_address(&*vfio, self.size, is_edu)?;
        let before = table_pages(system);
        let start = system.now();
        let mut clock = Clock::new(system, STALL_FLOOR);
        let (times, stop) = (self.operations, context.interrupted);
        cycles(&mut *vfio, &mapping, iova, times, &mut clock, stop)?;
        let parameters = self.parameters(page);
        clock.keep(report, &parameters, run, start);
        // The first run looks at what is the same in every run.
        if run == 0 {
            let reached = look(system, &mut *vfio, device, &mapping, iova, before)?;
            let entries = reached.entries.map(|entries| {
                let source = entries.source.word();
                let mut parameters = parameters.clone();
                parameters.insert("source".to_owned(), source.into());
                (parameters, entries.total())
            });
            let plain = |count: Result<u64, String>| Ok((parameters.clone(), count?));
            let copied = match reached.transferred {
                Some(Ok(bytes)) => Ok(bytes.0),
                Some(Err(error @ TransferError::Differs { .. })) => Err((WRONG, error.to_string())),
                Some(Err(error)) => Err((TRANSFER, error.to_string())),
                None => {
                    let why = "only QEMU's edu is known well enough to be asked to copy";
                    Err((TRANSFER, why.to_owned()))
                }
            };
            let unknown = copied.as_ref().map_or_else(|(what, _)| *what, |_| TRANSFER);
            let copied = plain(copied.map_err(|(_, why)| why));
            for (name, unit, unknown, counted) in [
                (ENTRIES, "entries/buffer", "IOMMU entries", entries),
                (RUNS, "runs/buffer", RUNS, plain(reached.runs)),
                (TABLES, "pages/buffer", TABLES, plain(reached.table_pages)),
                (COPIED, "bytes", unknown, copied),
            ] {
                match counted {
                    Ok((parameters, count)) => {
                        let block = Block::number(run, 0, 1, count as f64);
                        report.block(name, unit, &parameters, [block]);
                    }
                    Err(why) => report.note(format!("{unknown}, {} pages", page.short()), why),
                }
            }
        }
        system.unmap(mapping)?;
        Ok(())
    }

    /// Sets the knobs for pages of this size, where that may be.
    fn prepare(&self, context: &Context<'_>, page: Bytes) -> Result<(), String> {
        if !self.may_set(context) || page == context.system.page_size() {
            return Ok(());
        }
        context.journal.alone()?;
        let thp = Thp::read(context.system)?;
        let strategy = super::strategy(thp.as_ref(), context.system.page_size(), page);
        let setup = knobs::setup(strategy, thp.as_ref(), context.system.page_size(), true)?;
        for (knob, word) in &setup.changes {
            context.journal.set(knob, word)?;
        }
        Ok(())
    }

    fn parameters(&self, page: Bytes) -> Parameters {
        parameters([
            ("backend", "vfio".into()),
            ("size", self.size.short().into()),
            ("page", page.short().into()),
        ])
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
            return refuse(format!(
                "a buffer of {} needs about {memory}, more than the budget of {}; give a larger --memory",
                self.size.short(),
                context.budget
            ));
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
        Ok(Plan {
            what: format!(
                "maps {} in pages of {} for {} ({:04x}:{:04x}) and unmaps it, {} times in each of {} runs",
                self.size.short(),
                self.pages_text(", "),
                device.address,
                device.vendor,
                device.device,
                self.operations,
                self.runs
            ),
            touches,
            memory,
            time: context.time,
            ..Plan::default()
        })
    }

    fn run(&self, context: &Context<'_>) -> Result<Measured, ProbeError> {
        let device = self.check(context)?;
        let mut measured = Measured::default();
        let measure = |measured: &mut Measured, run, page: &Bytes| {
            let what = format!("{} in pages of {}", self.size.short(), page.short());
            let scope = context.journal.scope();
            match self.prepare(context, *page) {
                Ok(()) => runner::measure(context, measured, &what, |report| {
                    self.measure(context, &device, (*page, run), report)
                }),
                Err(_) if (context.interrupted)() => {}
                Err(why) => measured.note(what, why),
            }
            measured.note_left(scope.undo());
            Ok(())
        };
        let name = |page: &Bytes| format!("pages of {}", page.short());
        let mut pages = self.pages.clone();
        rotate(
            context,
            &mut measured,
            self.runs,
            &mut pages,
            name,
            measure,
            |_, _| {},
        )?;
        Ok(measured)
    }

    fn judge(&self, measured: Measured, seed: u64, privilege: Privilege) -> Answer {
        let device = self
            .device
            .map_or_else(|| "default".to_owned(), |address| address.to_string());
        let parameters = parameters([
            ("backend", "vfio".into()),
            ("device", device.into()),
            ("size", self.size.short().into()),
            ("page", self.pages_text(",").into()),
            ("operations", self.operations.into()),
            ("runs", self.runs.into()),
        ]);
        judge(self, measured, parameters, seed, privilege)
    }
}

/// The steps whose sum is what a mapping costs.
pub(super) const STEPS: [Step; 2] = [Step::DmaMap, Step::DmaUnmap];

// Samples -> the answer. Pure.
//
// | seen | verdict |
// |---|---|
// | the device gave back other data | `inconclusive`: what was mapped is not what it reached |
// | the smallest pages cost at least twice the largest, in all of the interval | `excess` |
// | their interval ends below 2 | `clean` |
// | else | `inconclusive` |

/// From what factor on small pages cost more than they must.
const EXCESS: f64 = 2.0;

pub(super) fn judge(
    probe: &VfioProbe,
    measured: Measured,
    parameters: Parameters,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let costs: Vec<(Bytes, BTreeMap<u32, f64>)> = {
        let mut pages = probe.pages.clone();
        pages.sort_unstable();
        let of = pages
            .into_iter()
            .map(|page| (page, cost(&measured.series, page)));
        of.filter(|(_, runs)| !runs.is_empty()).collect()
    };
    let (mut verdict, figure) = compare(probe, &costs, seed);
    if let Some(wrong) = measured
        .missing
        .iter()
        .find(|missing| missing.what.starts_with(WRONG))
    {
        let why = format!(
            "{}: {}: the device did not reach what was mapped",
            wrong.what, wrong.why
        );
        verdict = Verdict::inconclusive(&why);
    }
    let evidence = costs
        .iter()
        .map(|(page, runs)| sentence(&measured.series, *page, runs))
        .collect();
    let advice = match verdict.word {
        Word::Excess => vec![
            "take buffers for devices in the largest pages that you can get: stopgap advise chunks"
                .to_owned(),
        ],
        _ => Vec::new(),
    };
    let judgement = Judgement {
        verdict: measured.without_figures().unwrap_or(verdict),
        figure,
        evidence,
        advice,
    };
    measured.into_answer(Question::Chunks, parameters, privilege, judgement)
}

fn is_of(series: &Series, name: &str, page: Bytes) -> bool {
    series.is(name, &[("page", page.short().into())])
}

/// What mapping and unmapping cost in pages of this size: the sum of both medians, by run, of runs that have both.
fn cost(series: &[Series], page: Bytes) -> BTreeMap<u32, f64> {
    let mut runs: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
    for step in STEPS {
        for one in series.iter().filter(|one| is_of(one, step.word(), page)) {
            for block in &one.blocks {
                let (sum, parts) = runs.entry(block.run).or_default();
                *sum += block.value;
                *parts += 1;
            }
        }
    }
    let whole = runs
        .into_iter()
        .filter(|(_, (_, parts))| *parts == STEPS.len());
    whole.map(|(run, (sum, _))| (run, sum)).inserted()
}

/// The smallest pages against the largest, run by run.
fn compare(
    probe: &VfioProbe,
    costs: &[(Bytes, BTreeMap<u32, f64>)],
    seed: u64,
) -> (Verdict, Option<Figure>) {
    let [(small, of_small), .., (large, of_large)] = costs else {
        return (
            Verdict::inconclusive("fewer than two sizes of page could be measured"),
            None,
        );
    };
    let ratios: Vec<f64> = of_small
        .iter()
        .filter_map(|(run, small)| Some(small / of_large.get(run)?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    let Some(value) = median(ratios.clone()) else {
        return (Verdict::inconclusive("no run has both"), None);
    };
    let interval = over_runs(&ratios, seed, |runs| {
        median(runs.iter().map(|ratio| ratio.ln()).collect())
    });
    let figure = Figure {
        low: interval.map(|interval| interval.low.exp()),
        high: interval.map(|interval| interval.high.exp()),
        ..Figure::new(value, "x")
    };
    let what = format!(
        "{} for DMA in pages of {} cost that of pages of {}",
        probe.size.short(),
        small.short(),
        large.short()
    );
    let verdict = match (figure.low, figure.high) {
        (Some(low), Some(high)) => {
            let times = format_interval(value, low, high, "x");
            match (low >= EXCESS, high < EXCESS) {
                (true, _) => Verdict::new(Word::Excess, format!("excess {times}: {what}")),
                (_, true) => Verdict::new(Word::Clean, format!("clean: {what}, {times}")),
                _ => Verdict::inconclusive(&format!("{what}, {times}")),
            }
        }
        _ => Verdict::inconclusive(&format!(
            "{what}, {value:.1}x, in too few runs for an interval"
        )),
    };
    (verdict, Some(figure))
}

/// `pages of 4K: 812.3 us to map and unmap 4M, 1024 entries (computed), 3 pages of tables, 32 KiB copied and compared`.
fn sentence(series: &[Series], page: Bytes, runs: &BTreeMap<u32, f64>) -> String {
    let us = median(runs.values().copied().collect()).unwrap_or(f64::NAN) / 1_000.0;
    let first = |name: &str| series.iter().find(|one| is_of(one, name, page));
    let number = |one: &Series| one.blocks.first().map(|block| block.value);
    let mut text = format!("pages of {}: {us:.1} us to map and unmap", page.short());
    match first(ENTRIES).and_then(|one| Some((number(one)?, one.parameters.get("source")?))) {
        Some((entries, Parameter::Word(source))) => {
            text.push_str(&format!(", {entries} IOMMU entries ({source})"));
        }
        _ => text.push_str(", IOMMU entries unknown"),
    }
    if let Some(runs) = first(RUNS).and_then(number) {
        text.push_str(&format!(", {runs} {RUNS}"));
    }
    if let Some(pages) = first(TABLES).and_then(number) {
        text.push_str(&format!(", {pages} {TABLES}"));
    }
    if let Some(bytes) = first(COPIED).and_then(number) {
        text.push_str(&format!(", {} {COPIED}", Bytes(bytes as u64)));
    }
    text
}
