//! Boots kernels and compares them: everything that `stopgap kernels` does between its flags and its record.
//!
//! Boots go by layouts, both repetitions of all kernels before the next layout, so that Ctrl-C leaves whole layouts. Each
//! kernel is tried once before: one that does not boot costs one time limit, not ten.

use std::path::Path;
use std::time::Duration;

use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_guest::protocol::{Cell, Plan};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};

use crate::judge::{
    self, AGAIN, Booted, Kernel, Kernels, Measured, REPETITIONS, Standing, Word, judge,
};
use crate::qemu::Qemu;
use crate::workloads::{self, Driver};
use crate::{
    Boot, End, Error, Image, Initramfs, Machine, Module, Result, booted, guest_program, profiled,
    run_all,
};

/// Which kernels are compared, and how.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The kernels as the user named them, the earlier one first; at least two.
    pub kernels: Vec<String>,
    /// The workloads of each guest.
    pub cells: Vec<Cell>,
    /// How many layout samples; each is two boots of each kernel.
    pub seeds: u64,
    /// How many guests run side by side.
    pub jobs: u16,
    /// How long a guest may take, by the host's clock.
    pub limit: Nanos,
    /// By what share a later kernel may be longer and still pass the gate.
    pub margin: f64,
    /// Whether one more boot of each kernel says which functions differ.
    pub functions: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// An event while kernels are compared.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// A line for the user.
    Line(&'a str),
    /// So many boots of all that are planned have ended.
    Boots {
        /// How many have ended.
        done: usize,
        /// How many are planned.
        all: usize,
    },
}

/// A finished comparison.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The record.
    pub record: Kernels,
    /// Errors in lines for the user: guests that did not come to their end, figures that do not repeat.
    pub faults: Vec<String>,
    /// What the gate makes of all kernels together. With a fault it is an error: no gate is passed or failed by it.
    pub standing: Standing,
}

/// A kernel, ready to be booted.
pub(crate) struct Ready {
    pub(crate) image: Image,
    initramfs: Initramfs,
    pub(crate) modules: Vec<Module>,
    /// Drivers that it seems to lack, and why.
    absent: Vec<(Driver, String)>,
    /// The workloads that run in it.
    cells: Vec<Cell>,
}

/// Boots the kernels and compares them, until Ctrl-C ([`signals`]).
///
/// # Errors
/// A file that is no kernel, a program or QEMU that is missing ([`Error::is_unsupported`]), and what the system refuses. A
/// kernel that does not boot is no error here: the record says how it ended.
pub fn run(flags: &Flags, tell: &mut dyn FnMut(Progress<'_>)) -> Result<Compared> {
    let started_unix_s = Linux.unix_seconds();
    let images = open(&flags.kernels)?;
    let architecture = images[0].architecture;
    let qemu = Qemu::find(architecture)?;
    let program = guest_program::read(architecture)?;
    let plugin = match flags.functions {
        true => Some(profiled::plugin(architecture)?),
        false => None,
    };
    let ready = images
        .into_iter()
        .map(|image| Ready::new(image, &program, &flags.cells))
        .collect::<Result<Vec<_>>>()?;

    let seeds: Vec<u64> = (1..=flags.seeds).collect();
    let boots = boot(flags, &ready, &qemu, &seeds, tell)?;
    let interrupted = signals::interrupted();
    if interrupted && boots.iter().flatten().all(|(_, boot)| !boot.is_whole()) {
        return Err(Error::new("interrupted before a guest had ended"));
    }
    let plan = judge::Plan {
        command: flags.command.clone(),
        started_unix_s,
        interrupted,
        margin: flags.margin,
        seeds,
        cells: flags.cells.iter().map(|cell| cell.name.clone()).collect(),
        emulator: judge::Emulator {
            qemu: Some(qemu.version().to_owned()),
            cpu: boots
                .iter()
                .flatten()
                .map(|(_, boot)| boot.cpu.clone())
                .next(),
        },
    };
    let measured = ready
        .iter()
        .zip(boots)
        .map(|(ready, boots)| ready.measured(&boots));
    let mut record = judge(&plan, measured.collect());
    let mut faults = Vec::new();
    if let Some(plugin) = plugin {
        faults = profiled::add(&mut record, flags, &program, &plugin, &ready, &qemu)?;
    }
    Ok(Compared::new(record, faults))
}

impl Compared {
    fn new(record: Kernels, mut faults: Vec<String>) -> Compared {
        for kernel in &record.kernels {
            // Ctrl-C's are not the kernel's fault.
            let bad = kernel.boots.iter().find(|boot| !boot.whole);
            if let Some(boot) = bad.filter(|_| !record.interrupted) {
                faults.push(format!("{}: {}", kernel.name, boot.end));
            }
        }
        let mut against = record.against.iter();
        let void = against.find(|against| against.verdict.word == Word::Void);
        faults.extend(void.map(|against| against.verdict.text.clone()));
        let standing = record.against.iter().map(|against| against.gate.standing);
        let standing = match faults.is_empty() {
            true => standing.max().unwrap_or(Standing::CannotTell),
            false => Standing::Error,
        };
        Compared {
            record,
            faults,
            standing,
        }
    }

    /// Returns the gate's line for each later kernel.
    #[must_use]
    pub fn gates(&self) -> Vec<String> {
        let line = |against: &judge::Against| {
            let name = &self.record.kernels[against.after].name;
            format!("{name}: {}", against.gate.text)
        };
        self.record.against.iter().map(line).collect()
    }
}

/// Says what [`run`] would boot; `records` is where the record would go.
#[must_use]
pub fn dry_run(flags: &Flags, records: &Path) -> String {
    let boots = flags.seeds * u64::from(REPETITIONS) * flags.kernels.len() as u64;
    let mut text = format!(
        "would boot {boots} guests, {} at a time, each of {} MiB and at most {}: {} layouts, each twice, of\n",
        flags.jobs,
        crate::machine::MEMORY_MIB,
        flags.limit,
        flags.seeds
    );
    for kernel in &flags.kernels {
        text.push_str(&format!("  {}\n", stopgap_report::text::plain(kernel)));
    }
    text.push_str("workloads\n");
    for cell in &flags.cells {
        text.push_str(&format!("  {}\n", cell.name));
    }
    let modules = workloads::modules(&flags.cells);
    if !modules.is_empty() {
        text.push_str(&format!("modules {}\n", modules.join(", ")));
    }
    text.push_str(&format!(
        "packages would be unpacked below {}; nothing is installed\nrecord in {}\n",
        std::env::temp_dir().display(),
        records.display()
    ));
    text
}

/// Opens all kernels, which must be of one architecture.
fn open(names: &[String]) -> Result<Vec<Image>> {
    let mut images: Vec<Image> = Vec::new();
    for name in names {
        if signals::interrupted() {
            return Err(Error::new("interrupted before the first boot"));
        }
        let image = Image::open(name)?;
        if let Some(first) = images.first()
            && first.architecture != image.architecture
        {
            return Err(Error::new(format!(
                "{} is for {}, {} for {}: kernels of two architectures have no path in common",
                first.name, first.architecture, image.name, image.architecture
            )));
        }
        images.push(image);
    }
    Ok(images)
}

impl Ready {
    fn new(image: Image, program: &[u8], cells: &[Cell]) -> Result<Ready> {
        let names = workloads::modules(cells);
        let resolved = image.modules.resolve(&names, image.release.as_deref())?;
        let mut absent: Vec<(Driver, String)> = Vec::new();
        for &driver in cells.iter().flat_map(workloads::drivers) {
            let known = absent.iter().any(|(of, _)| *of == driver);
            if !known && resolved.missing.iter().any(|name| name == driver.module) {
                let why = driver.why_absent(image.option(driver.option));
                absent.extend(why.map(|why| (driver, why)));
            }
        }
        let mut plan = Plan::new(cells.to_vec());
        plan.modules = resolved.modules.iter().map(Module::path).collect();
        let initramfs = Initramfs::build(program, &plan.to_json(), &resolved.modules, &[])?;
        Ok(Ready {
            modules: resolved.modules,
            image,
            initramfs,
            absent,
            cells: cells.to_vec(),
        })
    }

    /// The guest of this kernel under a layout sample.
    pub(crate) fn machine(&self, flags: &Flags, qemu: &Qemu, seed: u64) -> Machine {
        let (image, initramfs) = (self.image.clone(), self.initramfs.clone());
        let mut machine = Machine::new(qemu.clone(), image, initramfs, seed);
        machine.devices = workloads::emulated(&flags.cells);
        machine.limit = Duration::from_nanos(flags.limit.0);
        machine
    }

    /// Returns missing drivers. A driver whose cells gave figures is not missing, even if the lists lack it.
    fn lacking(&self, booted: &[&Booted]) -> Vec<Missing> {
        let lacks = |driver: &Driver| {
            let mut cells = self.cells.iter();
            cells.any(|cell| {
                let mut said = booted.iter().flat_map(|booted| &booted.said);
                workloads::drivers(cell).contains(driver)
                    && !said.any(|said| said.cell == cell.name)
            })
        };
        let absent = self.absent.iter().filter(|(driver, _)| lacks(driver));
        absent
            .map(|(driver, why)| Missing::new(format!("module {}", driver.module), why.clone()))
            .collect()
    }

    fn measured(&self, boots: &[(u32, Boot)]) -> Measured {
        let mut booted: Vec<_> = boots
            .iter()
            .map(|(repetition, boot)| booted::read(boot, *repetition))
            .collect();
        let lacking = self.lacking(&booted.iter().map(|read| &read.booted).collect::<Vec<_>>());
        if let Some(first) = booted.first_mut() {
            first.booted.missing.extend(lacking);
        }
        let said = booted.iter().find_map(|read| read.release.clone());
        let command_line = boots.iter().map(|(_, boot)| &boot.command_line);
        let command_line = command_line.into_iter().find(|words| !words.is_empty());
        Measured {
            kernel: Kernel {
                name: self.image.name.clone(),
                release: said.or_else(|| self.image.release.clone()),
                architecture: self.image.architecture.to_string(),
                sha256: self.image.sha256.clone(),
                initramfs_sha256: self.initramfs.sha256().to_owned(),
                config_from: self.image.config_from.clone(),
                modules: self
                    .modules
                    .iter()
                    .map(|module| module.name.clone())
                    .collect(),
                command_line: command_line.map_or_else(Vec::new, |words| {
                    booted::pinned(words, self.image.is_unpacked())
                }),
                boots: Vec::new(),
                cells: Vec::new(),
                dma: Vec::new(),
            },
            config: self.image.config.clone(),
            boots: booted.into_iter().map(|read| read.booted).collect(),
        }
    }
}

/// A boot that is planned: which kernel, which layout sample, which repetition.
type Planned = (usize, u64, u32);

/// Boots all, until Ctrl-C. Returns each kernel's boots with the number of the repetition.
fn boot(
    flags: &Flags,
    ready: &[Ready],
    qemu: &Qemu,
    seeds: &[u64],
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Vec<(u32, Boot)>>> {
    let mut order: Vec<Planned> = Vec::new();
    for &seed in seeds {
        for repetition in 0..REPETITIONS {
            order.extend((0..ready.len()).map(|kernel| (kernel, seed, repetition)));
        }
    }
    let (all, kernels, layouts, jobs) = (order.len(), ready.len(), seeds.len(), flags.jobs);
    let s = if layouts == 1 { "" } else { "s" };
    tell(Progress::Line(&format!(
        "{all} boots: {kernels} kernels under {layouts} layout{s}, twice each, {jobs} at a time"
    )));
    tell(Progress::Boots { done: 0, all });
    let mut boots: Vec<Vec<(u32, Boot)>> = ready.iter().map(|_| Vec::new()).collect();
    let mut run = |those: &[Planned], boots: &mut [Vec<(u32, Boot)>], line: Option<String>| {
        if let Some(line) = line {
            tell(Progress::Line(&line));
        }
        let mut done: usize = boots.iter().map(Vec::len).sum();
        let machine = |&(kernel, seed, _): &Planned| ready[kernel].machine(flags, qemu, seed);
        let machines: Vec<Machine> = those.iter().map(machine).collect();
        let jobs = usize::from(jobs);
        let ended = run_all(&machines, jobs, signals::flag(), &mut |_, _| {
            done += 1;
            tell(Progress::Boots { done, all });
        })?;
        for (&(kernel, _, repetition), boot) in those.iter().zip(ended) {
            boots[kernel].push((repetition, boot));
        }
        Ok::<(), Error>(())
    };
    let (trial, rest) = order.split_at(kernels);
    run(trial, &mut boots, None)?;
    for (_, boot) in boots.iter().flatten() {
        if let End::QemuUnsupported { reason } = &boot.end {
            return Err(Error::unsupported(format!(
                "unsupported: {} does not do what is asked: {reason}",
                qemu.program().display()
            )));
        }
    }
    let whole = |boots: &Vec<(u32, Boot)>| boots.iter().all(|(_, boot)| boot.is_whole());
    let fine: Vec<bool> = boots.iter().map(whole).collect();
    // Without the first there is nothing to compare with, and without a second nothing to compare.
    if fine[0] && fine.iter().filter(|fine| **fine).count() > 1 {
        let rest: Vec<Planned> = rest.iter().copied().filter(|of| fine[of.0]).collect();
        run(&rest, &mut boots, None)?;
        let again = again(&boots);
        if !again.is_empty() && !signals::interrupted() {
            let n = again.len();
            let line = format!("{n} boots more: two of a layout did not give the same counts");
            run(&again, &mut boots, Some(line))?;
        }
    }
    for boots in &mut boots {
        // Ctrl-C came before these began.
        boots.retain(|(_, boot)| !boot.command_line.is_empty());
    }
    Ok(boots)
}

/// Boots to tell which one differs, where two of a layout do.
fn again(boots: &[Vec<(u32, Boot)>]) -> Vec<Planned> {
    let mut again = Vec::new();
    for (kernel, boots) in boots.iter().enumerate() {
        let read = |(repetition, boot): &(u32, Boot)| booted::read(boot, *repetition).booted;
        for seed in judge::differ(&boots.iter().map(read).collect::<Vec<_>>()) {
            again.extend((REPETITIONS..REPETITIONS + AGAIN).map(|n| (kernel, seed, n)));
        }
    }
    again
}
