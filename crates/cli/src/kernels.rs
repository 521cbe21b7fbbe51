//! `stopgap kernels`: kernels booted in emulation, their guest instructions compared; and the gate.
//!
//! * `workloads`: what is run, and what a kernel needs for it.
//! * `guest`: the program that is the guest's /init.
//! * `boots`: a boot's lines to what is judged.
//! * `functions`: one more boot of each kernel, with the plugin that counts by function.
//!
//! Boots go by layouts, both repetitions of all kernels before the next one, so that Ctrl-C leaves whole layouts. Each kernel
//! is tried once before: one that does not boot costs one time limit, not ten.

mod boots;
mod functions;
mod guest;
pub(crate) mod workloads;

use std::process::ExitCode;
use std::time::Duration;

use stopgap_emulate::qemu::Qemu;
use stopgap_emulate::{Boot, End, Image, Initramfs, Machine, Module, run_all};
use stopgap_events::guest::{Cell, Plan};
use stopgap_events::machine::Missing;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_report::kernels::screen;
use stopgap_stats::kernels::{
    self, AGAIN, Booted, Kernel, Kernels, Measured, REPETITIONS, Standing, Word, judge,
};

use self::workloads::Driver;
use crate::args;
use crate::failure::{BISECT_BAD, BISECT_SKIP, CANNOT_TELL, DONE, ERROR, Failure, REGRESSION};
use crate::session::{progress_bar, tell};
use crate::{output, places, session};

/// A kernel, ready to be booted.
struct Ready {
    image: Image,
    initramfs: Initramfs,
    modules: Vec<Module>,
    /// Drivers that it seems to lack, and why.
    absent: Vec<(Driver, String)>,
    /// What is run in it.
    cells: Vec<Cell>,
}

pub(crate) fn run(args: &args::Kernels) -> Result<ExitCode, Failure> {
    if args.bisect && args.kernels.len() != 2 {
        let n = args.kernels.len();
        return Err(Failure::error(format!(
            "--bisect compares two kernels, the good one first; {n} were given"
        )));
    }
    signals::install();
    let cells = workloads::of(&args.workloads);
    if args.dry_run {
        return dry_run(args, &cells);
    }
    let directory = places::records(args.output.as_deref())?;
    let started_unix_s = Linux.unix_seconds();
    let images = open(&args.kernels)?;
    let architecture = images[0].architecture;
    let qemu = Qemu::find(architecture)?;
    let program = guest::program(architecture)?;
    let plugin = args
        .functions
        .then(|| functions::library(architecture))
        .transpose()?;
    let ready = images
        .into_iter()
        .map(|image| Ready::new(image, &program, &cells))
        .collect::<Result<Vec<_>, _>>()?;

    let seeds: Vec<u64> = (1..=args.seeds).collect();
    let boots = boot(args, &ready, &qemu, &cells, &seeds)?;
    let interrupted = signals::interrupted();
    if interrupted && boots.iter().flatten().all(|(_, boot)| !boot.is_whole()) {
        return Err(Failure::error("interrupted before a guest had ended"));
    }
    let plan = kernels::Plan {
        command: session::command(),
        started_unix_s,
        interrupted,
        margin: args.margin,
        seeds,
        cells: cells.iter().map(|cell| cell.name.clone()).collect(),
        emulator: kernels::Emulator {
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
        .map(|(ready, boots)| ready.measured(&boots))
        .collect();
    let mut record = judge(&plan, measured);
    let mut faults = Vec::new();
    if let Some(library) = plugin {
        let asked = functions::Asked {
            cells: &cells,
            program: &program,
            library: &library,
        };
        faults = functions::add(&mut record, &asked, &ready, &qemu, args)?;
    }
    report(args, &record, &directory, faults)
}

/// Opens all kernels, which must be of one architecture.
fn open(names: &[String]) -> Result<Vec<Image>, Failure> {
    let mut images: Vec<Image> = Vec::new();
    for name in names {
        if signals::interrupted() {
            return Err(Failure::error("interrupted before the first boot"));
        }
        let image = Image::open(name)?;
        if let Some(first) = images.first()
            && first.architecture != image.architecture
        {
            return Err(Failure::error(format!(
                "{} is for {}, {} for {}: kernels of two architectures have no path in common",
                first.name, first.architecture, image.name, image.architecture
            )));
        }
        images.push(image);
    }
    Ok(images)
}

impl Ready {
    fn new(image: Image, program: &[u8], cells: &[Cell]) -> Result<Ready, Failure> {
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

    /// Drivers that are not there: of what gave figures none is missing, whatever the lists say.
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
            .map(|(repetition, boot)| boots::read(boot, *repetition))
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
                    boots::pinned(words, self.image.is_unpacked())
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

/// Boots all, until Ctrl-C; gives each kernel's boots with the number of the repetition.
fn boot(
    args: &args::Kernels,
    ready: &[Ready],
    qemu: &Qemu,
    cells: &[Cell],
    seeds: &[u64],
) -> Result<Vec<Vec<(u32, Boot)>>, Failure> {
    let machine = |kernel: usize, seed: u64| {
        let Ready {
            image, initramfs, ..
        } = &ready[kernel];
        let mut machine = Machine::new(qemu.clone(), image.clone(), initramfs.clone(), seed);
        machine.devices = workloads::emulated(cells);
        machine.limit = Duration::from_nanos(args.limit.0);
        machine
    };
    let all = seeds.len() * REPETITIONS as usize * ready.len();
    let (kernels, layouts, jobs) = (ready.len(), seeds.len(), args.jobs);
    let s = if layouts == 1 { "" } else { "s" };
    tell(&format!(
        "{all} boots: {kernels} kernels under {layouts} layout{s}, twice each, {jobs} at a time"
    ));
    let mut progress = Progress::new(all);
    let mut run = |those: &[(usize, u64, u32)]| {
        let machines: Vec<Machine> = those
            .iter()
            .map(|&(kernel, seed, _)| machine(kernel, seed))
            .collect();
        run_all(
            &machines,
            usize::from(args.jobs),
            signals::flag(),
            &mut |_, _| progress.step(),
        )
    };
    let mut order = Vec::new();
    for &seed in seeds {
        for repetition in 0..REPETITIONS {
            order.extend((0..ready.len()).map(|kernel| (kernel, seed, repetition)));
        }
    }
    let (trial, rest) = order.split_at(ready.len());
    let mut boots: Vec<Vec<(u32, Boot)>> = ready.iter().map(|_| Vec::new()).collect();
    let mut keep = |those: &[(usize, u64, u32)], ended: Vec<Boot>| {
        for (&(kernel, _, repetition), boot) in those.iter().zip(ended) {
            boots[kernel].push((repetition, boot));
        }
    };
    let tried = run(trial)?;
    let fine: Vec<bool> = tried.iter().map(Boot::is_whole).collect();
    let unsupported = tried.iter().find_map(|boot| match &boot.end {
        End::QemuUnsupported { reason } => Some(reason.clone()),
        _ => None,
    });
    if let Some(reason) = unsupported {
        return Err(Failure::unsupported(format!(
            "unsupported: {} does not do what is asked: {reason}",
            qemu.program().display()
        )));
    }
    keep(trial, tried);
    // Without the first there is nothing to compare with, and without a second nothing to compare.
    if fine[0] && fine.iter().filter(|fine| **fine).count() > 1 {
        let rest: Vec<_> = rest.iter().copied().filter(|of| fine[of.0]).collect();
        let ended = run(&rest)?;
        keep(&rest, ended);
        let again = again(&boots);
        if !again.is_empty() && !signals::interrupted() {
            tell(&format!(
                "{} boots more: two of a layout did not give the same counts",
                again.len()
            ));
            for (&(kernel, _, repetition), boot) in again.iter().zip(run(&again)?) {
                boots[kernel].push((repetition, boot));
            }
        }
    }
    progress.bar.finish_and_clear();
    for boots in &mut boots {
        // What Ctrl-C did not let begin is not a boot.
        boots.retain(|(_, boot)| !boot.command_line.is_empty());
    }
    Ok(boots)
}

/// Boots to tell which one differs, where two of a layout do.
fn again(boots: &[Vec<(u32, Boot)>]) -> Vec<(usize, u64, u32)> {
    let mut again = Vec::new();
    for (kernel, boots) in boots.iter().enumerate() {
        let read = |(repetition, boot): &(u32, Boot)| boots::read(boot, *repetition).booted;
        for seed in kernels::differ(&boots.iter().map(read).collect::<Vec<_>>()) {
            again.extend((REPETITIONS..REPETITIONS + AGAIN).map(|n| (kernel, seed, n)));
        }
    }
    again
}

fn dry_run(args: &args::Kernels, cells: &[Cell]) -> Result<ExitCode, Failure> {
    let boots = args.seeds * u64::from(REPETITIONS) * args.kernels.len() as u64;
    let mut text = format!(
        "would boot {boots} guests, {} at a time, each of {} MiB and at most {}: {} layouts, each twice, of\n",
        args.jobs,
        stopgap_emulate::machine::MEMORY_MIB,
        args.limit,
        args.seeds
    );
    for kernel in &args.kernels {
        text.push_str(&format!("  {}\n", stopgap_report::text::plain(kernel)));
    }
    text.push_str("workloads\n");
    for cell in cells {
        text.push_str(&format!("  {}\n", cell.name));
    }
    let modules = workloads::modules(cells);
    if !modules.is_empty() {
        text.push_str(&format!("modules {}\n", modules.join(", ")));
    }
    text.push_str(&format!(
        "packages would be unpacked below {}; nothing is installed\nrecord in {}\n",
        std::env::temp_dir().display(),
        places::would_be(args.output.as_deref()).display()
    ));
    output::print(&text)?;
    Ok(ExitCode::from(DONE))
}

fn report(
    args: &args::Kernels,
    record: &Kernels,
    directory: &std::path::Path,
    mut faults: Vec<String>,
) -> Result<ExitCode, Failure> {
    let name = output::name("kernels", record.started_unix_s);
    output::document(&record.to_json(), &name, directory, args.json, |place| {
        screen(record, place, session::style())
    })?;
    for kernel in &record.kernels {
        // Ctrl-C's are not the kernel's fault.
        let bad = kernel.boots.iter().find(|boot| !boot.whole);
        if let Some(boot) = bad.filter(|_| !record.interrupted) {
            faults.push(format!("{}: {}", kernel.name, boot.end));
        }
    }
    let void = record
        .against
        .iter()
        .find(|against| against.verdict.word == Word::Void);
    faults.extend(void.map(|against| against.verdict.text.clone()));
    for fault in &faults {
        tell(fault);
    }
    let standing = record.against.iter().map(|against| against.gate.standing);
    let standing = standing.max().unwrap_or(Standing::CannotTell);
    if args.gate || args.bisect {
        for against in &record.against {
            tell(&format!(
                "{}: {}",
                record.kernels[against.after].name, against.gate.text
            ));
        }
    }
    Ok(ExitCode::from(status(args, !faults.is_empty(), standing)))
}

/// A guest that did not come to its end, and figures that do not repeat, are errors: no gate is passed by them, none failed.
fn status(args: &args::Kernels, fault: bool, standing: Standing) -> u8 {
    let (bad, cannot_tell, error) = match (args.bisect, args.gate) {
        (true, _) => (BISECT_BAD, BISECT_SKIP, BISECT_SKIP),
        (_, true) => (REGRESSION, CANNOT_TELL, ERROR),
        (false, false) => (DONE, DONE, ERROR),
    };
    match standing {
        _ if fault => error,
        Standing::Error => error,
        Standing::Fail => bad,
        Standing::CannotTell => cannot_tell,
        Standing::Pass => DONE,
    }
}

impl From<stopgap_emulate::Error> for Failure {
    fn from(error: stopgap_emulate::Error) -> Failure {
        if error.is_unsupported() {
            Failure::unsupported(error.to_string())
        } else {
            Failure::error(error.to_string())
        }
    }
}

/// How far it is, on standard error where that is a terminal.
struct Progress {
    bar: indicatif::ProgressBar,
    done: usize,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Progress {
        let bar = progress_bar();
        bar.set_message(format!("{all} boots"));
        bar.set_position(0);
        Progress { bar, done: 0, all }
    }

    fn step(&mut self) {
        self.done += 1;
        let (done, all) = (self.done, self.all);
        self.bar
            .set_position(1_000 * done as u64 / all.max(1) as u64);
        self.bar.set_message(format!("boot {done} of {all}"));
    }
}
