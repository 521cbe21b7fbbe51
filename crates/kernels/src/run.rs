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
    End, Error, Image, Initramfs, Machine, Module, Result, booted, guest_program, profiled, run_all,
};

/// Which kernels are compared, and how.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The kernels as the user named them, the earlier one first; at least two.
    pub kernels: Vec<String>,
    /// More words for the kernels' command lines: none, one text for all kernels, or one for each.
    pub append: Vec<String>,
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
    /// Whether two more boots of each kernel say which functions differ.
    pub functions: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl Flags {
    /// Returns what is added to the command line of the kernel at this place.
    fn appended(&self, at: usize) -> &str {
        match &self.append[..] {
            [] => "",
            [all] => all.trim(),
            each => each.get(at).map_or("", |words| words.trim()),
        }
    }

    /// Refuses another number of command lines than of kernels.
    fn appends_fit(&self) -> Result<()> {
        let (appends, kernels) = (self.append.len(), self.kernels.len());
        match appends {
            0 | 1 => Ok(()),
            _ if appends == kernels => Ok(()),
            _ => Err(Error::new(format!(
                "{appends} times --append for {kernels} kernels: give it once for all, or once for each, '' for none"
            ))),
        }
    }
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
    /// Its guest under the first layout sample.
    pub(crate) machine: Machine,
    pub(crate) modules: Vec<Module>,
    /// Drivers that it seems to lack, and why.
    absent: Vec<(Driver, String)>,
}

/// Boots the kernels and compares them, until Ctrl-C ([`signals`]).
///
/// # Errors
/// A file that is no kernel, a program or QEMU that is missing ([`Error::is_unsupported`]), and what the system refuses. A
/// kernel that does not boot is no error here: the record says how it ended.
pub fn run(flags: &Flags, tell: &mut dyn FnMut(Progress<'_>)) -> Result<Compared> {
    let started_unix_s = Linux.unix_seconds();
    flags.appends_fit()?;
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
        .enumerate()
        .map(|(at, image)| Ready::new(flags, &qemu, &program, image, flags.appended(at)))
        .collect::<Result<Vec<_>>>()?;

    let seeds: Vec<u64> = (1..=flags.seeds).collect();
    let boots = boot(&ready, &seeds, flags.jobs, tell)?;
    let interrupted = signals::interrupted();
    if interrupted && boots.iter().flatten().all(|booted| !booted.boot.whole) {
        return Err(Error::new("interrupted before a guest had ended"));
    }
    let planned = Kernels {
        command: flags.command.clone(),
        started_unix_s,
        interrupted,
        margin: flags.margin,
        emulator: judge::Emulator {
            qemu: Some(qemu.version().to_owned()),
            cpu: Some(ready[0].machine.cpu().to_owned()),
        },
        seeds: seeds.clone(),
        ..Kernels::default()
    };
    let measured = ready.iter().zip(boots);
    let measured = measured.map(|(ready, boots)| ready.measured(&flags.cells, boots));
    let cells: Vec<String> = flags.cells.iter().map(|cell| cell.name.clone()).collect();
    let mut record = judge(planned, &cells, measured.collect());
    let mut faults = Vec::new();
    if let Some(plugin) = plugin {
        faults = profiled::add(&mut record, &flags.cells, &program, &plugin, &ready, &seeds)?;
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
    for (at, kernel) in flags.kernels.iter().enumerate() {
        let with = match flags.appended(at) {
            "" => String::new(),
            words => format!(" with {words}"),
        };
        let named = stopgap_report::text::plain(&format!("{kernel}{with}"));
        text.push_str(&format!("  {named}\n"));
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
    fn new(
        flags: &Flags,
        qemu: &Qemu,
        program: &[u8],
        mut image: Image,
        append: &str,
    ) -> Result<Ready> {
        if !append.is_empty() {
            image.name = format!("{} with {append}", image.name);
        }
        let names = workloads::modules(&flags.cells);
        let resolved = image.modules.resolve(&names, image.release.as_deref())?;
        let mut absent: Vec<(Driver, String)> = Vec::new();
        for &driver in flags.cells.iter().flat_map(workloads::drivers) {
            let known = absent.iter().any(|(of, _)| *of == driver);
            if !known && resolved.missing.iter().any(|name| name == driver.module) {
                let why = driver.why_absent(image.option(driver.option));
                absent.extend(why.map(|why| (driver, why)));
            }
        }
        let mut plan = Plan::new(flags.cells.clone());
        plan.modules = resolved.modules.iter().map(Module::path).collect();
        let initramfs = Initramfs::build(program, &plan.to_json(), &resolved.modules, &[])?;
        let mut machine = Machine::new(qemu.clone(), image, initramfs, 1);
        machine.devices = workloads::emulated(&flags.cells);
        machine.append = append.split_whitespace().map(str::to_owned).collect();
        machine.limit = Duration::from_nanos(flags.limit.0);
        Ok(Ready {
            machine,
            modules: resolved.modules,
            absent,
        })
    }

    /// Describes the kernel beside what its guests said.
    fn measured(&self, cells: &[Cell], mut boots: Vec<Booted>) -> Measured {
        // A driver whose cells gave figures is not missing, even if the lists lack it.
        let lacks = |driver: &Driver| {
            cells.iter().any(|cell| {
                let mut said = boots.iter().flat_map(|booted| &booted.said);
                workloads::drivers(cell).contains(driver)
                    && !said.any(|said| said.name == cell.name)
            })
        };
        let absent = self.absent.iter().filter(|(driver, _)| lacks(driver));
        let absent: Vec<Missing> = absent
            .map(|(driver, why)| Missing::new(format!("module {}", driver.module), why.clone()))
            .collect();
        if let Some(first) = boots.first_mut() {
            first.missing.extend(absent);
        }
        let image = &self.machine.image;
        let said = boots.iter().find_map(|booted| booted.release.clone());
        let modules = self.modules.iter().map(|module| module.name.clone());
        Measured {
            kernel: Kernel {
                name: image.name.clone(),
                release: said.or_else(|| image.release.clone()),
                architecture: image.architecture.to_string(),
                sha256: image.sha256.clone(),
                initramfs_sha256: self.machine.initramfs.sha256().to_owned(),
                config_from: image.config_from.clone(),
                modules: modules.collect(),
                command_line: self.machine.pinned_command_line(),
                ..Kernel::default()
            },
            config: image.config.clone(),
            boots,
        }
    }
}

/// A boot that is planned: which kernel, which layout sample, which repetition.
type Planned = (usize, u64, u32);

/// Boots all, until Ctrl-C. Returns what the guests of each kernel said.
fn boot(
    ready: &[Ready],
    seeds: &[u64],
    jobs: u16,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Vec<Booted>>> {
    let mut order: Vec<Planned> = Vec::new();
    for &seed in seeds {
        for repetition in 0..REPETITIONS {
            order.extend((0..ready.len()).map(|kernel| (kernel, seed, repetition)));
        }
    }
    let (all, kernels, layouts) = (order.len(), ready.len(), seeds.len());
    let s = if layouts == 1 { "" } else { "s" };
    tell(Progress::Line(&format!(
        "{all} boots: {kernels} kernels under {layouts} layout{s}, twice each, {jobs} at a time"
    )));
    tell(Progress::Boots { done: 0, all });
    let mut booted: Vec<Vec<Booted>> = vec![Vec::new(); kernels];
    let mut fine = vec![true; kernels];
    let mut done = 0;
    let mut run =
        |line: Option<String>, those: &[Planned], fine: &mut [bool], booted: &mut [Vec<Booted>]| {
            if let Some(line) = line {
                tell(Progress::Line(&line));
            }
            let machine = |&(kernel, seed, _): &Planned| Machine {
                seed,
                ..ready[kernel].machine.clone()
            };
            let machines: Vec<Machine> = those.iter().map(machine).collect();
            let ended = run_all(
                &machines,
                usize::from(jobs),
                signals::flag(),
                &mut |_, _| {
                    done += 1;
                    tell(Progress::Boots { done, all });
                },
            )?;
            for (&(kernel, _, repetition), boot) in those.iter().zip(ended) {
                if let End::QemuUnsupported { reason } = &boot.end {
                    let program = ready[kernel].machine.qemu.program().display();
                    let why = format!("unsupported: {program} does not do what is asked: {reason}");
                    return Err(Error::unsupported(why));
                }
                fine[kernel] &= boot.is_whole();
                // Ctrl-C came before the others began.
                if !boot.command_line.is_empty() {
                    booted[kernel].push(booted::read(&boot, repetition));
                }
            }
            Ok(())
        };
    let (trial, rest) = order.split_at(kernels);
    run(None, trial, &mut fine, &mut booted)?;
    // Without the first there is nothing to compare with, and without a second nothing to compare.
    if !fine[0] || fine.iter().filter(|fine| **fine).count() < 2 {
        return Ok(booted);
    }
    let rest: Vec<Planned> = rest.iter().copied().filter(|of| fine[of.0]).collect();
    run(None, &rest, &mut fine, &mut booted)?;
    // Boots to tell which one differs, where two of a layout do.
    let mut again = Vec::new();
    for (kernel, booted) in booted.iter().enumerate() {
        for seed in judge::differ(booted) {
            again.extend((REPETITIONS..REPETITIONS + AGAIN).map(|n| (kernel, seed, n)));
        }
    }
    if !again.is_empty() && !signals::interrupted() {
        let n = again.len();
        let line = format!("{n} boots more: two of a layout did not give the same counts");
        run(Some(line), &again, &mut fine, &mut booted)?;
    }
    Ok(booted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(kernels: &[&str], append: &[&str]) -> Flags {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Flags {
            kernels: owned(kernels),
            append: owned(append),
            cells: Vec::new(),
            seeds: 5,
            jobs: 2,
            limit: Nanos::secs(60),
            margin: 0.002,
            functions: false,
            command: Vec::new(),
        }
    }

    #[test]
    fn command_lines_go_to_their_kernels() {
        let text = |append: &[&str]| {
            let flags = flags(&["one", "other"], append);
            flags
                .appends_fit()
                .map(|()| dry_run(&flags, Path::new("/r")))
        };
        assert!(text(&[]).unwrap().contains("  one\n  other\n"));
        let both = text(&["a=1 b"]).unwrap();
        assert!(
            both.contains("  one with a=1 b\n  other with a=1 b\n"),
            "{both}"
        );
        let each = text(&["", "a=1"]).unwrap();
        assert!(each.contains("  one\n  other with a=1\n"), "{each}");
        let wrong = text(&["", "a", "b"]).unwrap_err().to_string();
        assert!(wrong.contains("3 times --append for 2 kernels"), "{wrong}");
    }
}
