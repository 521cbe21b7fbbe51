//! Which function grew: one more boot of each kernel, under the first layout, with the plugin that counts by function.
//!
//! The figures of the record are from boots without it. This boot's plan asks for the kernel's symbols as well, so it has an
//! initramfs of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stopgap_emulate::functions::{Counted, Symbols};
use stopgap_emulate::qemu::Qemu;
use stopgap_emulate::{Architecture, Boot, Initramfs, Machine, Module, Plugin, run_all};
use stopgap_events::guest::{Cell, OPERATIONS, Plan, Transcript};
use stopgap_events::machine::Missing;
use stopgap_kernel::signals;
use stopgap_stats::kernels::{Kernels, Profiled};

use super::{Ready, workloads};
use crate::args;
use crate::failure::Failure;
use crate::places;

/// Names the library, where it is not beside this program.
const VARIABLE: &str = "STOPGAP_PLUGIN";
const FILE: &str = "libstopgap_plugin.so";
const BUILD: &str = "cargo build --release -p stopgap-plugin";

/// Where a guest has the symbols of its kernel.
const SYMBOLS: &str = "/proc/kallsyms";

/// A guest is slower with the plugin.
const SLOWER: u32 = 4;

/// What the boots are made of.
pub(super) struct Asked<'a> {
    pub(super) cells: &'a [Cell],
    pub(super) program: &'a [u8],
    pub(super) library: &'a Path,
    /// A folder of ours, for what the plugin writes.
    pub(super) scratch: &'a Path,
}

/// Where the library is.
pub(super) fn library(architecture: Architecture) -> Result<PathBuf, Failure> {
    if architecture != Architecture::X86_64 {
        return Err(Failure::unsupported(format!(
            "--functions: the plugin reads x86-64 instructions, the kernels are for {architecture}"
        )));
    }
    let given = std::env::var_os(VARIABLE).map(PathBuf::from);
    let beside = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.join(FILE))
    };
    let found = given.or_else(beside);
    // QEMU looks for it from its own folder.
    let path = found.and_then(|path| path.canonicalize().ok());
    path.filter(|path| path.is_file()).ok_or_else(|| {
        Failure::unsupported(format!(
            "--functions: no {FILE} beside this command: build it ({BUILD}), or name it with {VARIABLE}=FILE"
        ))
    })
}

/// Adds functions and their stacks to the record; what cannot be had is said there. A kernel that gave no figures has none here.
pub(super) fn add(
    record: &mut Kernels,
    asked: &Asked<'_>,
    ready: &[Ready],
    qemu: &Qemu,
    args: &args::Kernels,
) -> Result<(), Failure> {
    let mut profiles = Vec::new();
    for (number, ready) in ready.iter().enumerate() {
        if signals::interrupted() || record.kernels[number].cells.is_empty() {
            continue;
        }
        match of_kernel(number, asked, ready, qemu, args)? {
            Ok(of) => profiles.extend(of),
            Err(why) => {
                let what = format!("{}: which functions", ready.image.name);
                record.missing.push(Missing::new(what, why));
            }
        }
    }
    record.take_profiles(profiles);
    Ok(())
}

fn of_kernel(
    number: usize,
    asked: &Asked<'_>,
    ready: &Ready,
    qemu: &Qemu,
    args: &args::Kernels,
) -> Result<Result<Vec<Profiled>, String>, Failure> {
    let mut plan = Plan::new(asked.cells.to_vec());
    plan.modules = ready.modules.iter().map(Module::path).collect();
    plan.symbols = true;
    let initramfs = Initramfs::build(asked.program, &plan.to_json(), &ready.modules, &[])?;
    let counts = Scratch::new(asked.scratch, number)?;
    let mut machine = Machine::new(qemu.clone(), ready.image.clone(), initramfs, 1);
    machine.devices = workloads::emulated(asked.cells);
    machine.limit = Duration::from_nanos(args.limit.0).saturating_mul(SLOWER);
    machine.plugin = Some(Plugin {
        library: asked.library.to_owned(),
        arguments: vec![format!("out={}", counts.0.display())],
    });
    let boots = run_all(&[machine], 1, signals::flag(), &mut |_, _| {})?;
    Ok(match boots.first() {
        Some(boot) => profiles(number, asked.cells, boot, &counts.0),
        None => Err("it was not booted".to_owned()),
    })
}

/// What a boot said and what the plugin wrote of it, put together.
fn profiles(
    kernel: usize,
    cells: &[Cell],
    boot: &Boot,
    counts: &Path,
) -> Result<Vec<Profiled>, String> {
    if !boot.is_whole() {
        return Err(format!("with the plugin {}", boot.why));
    }
    let transcript = Transcript::read(&boot.lines).map_err(|wrong| wrong.to_string())?;
    let symbols = transcript.files.get(&(None, SYMBOLS.to_owned()));
    let symbols = symbols.ok_or_else(|| format!("the guest sent no {SYMBOLS}"))?;
    let symbols = Symbols::parse(&String::from_utf8_lossy(symbols))?;
    let written =
        fs::read_to_string(counts).map_err(|error| format!("the plugin's file: {error}"))?;
    let counted = Counted::parse(&written)?;
    let mut profiles = Vec::new();
    for (place, cell) in (0u32..).zip(cells) {
        for (mark, operation) in (0u8..).zip(OPERATIONS) {
            let profile = counted.profile(place, mark, &symbols);
            profiles.extend(profile.map(|profile| Profiled {
                kernel,
                cell: cell.name.clone(),
                operation: operation.to_owned(),
                profile,
            }));
        }
    }
    Ok(profiles)
}

/// A file that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: &Path, number: usize) -> Result<Scratch, Failure> {
        let path = folder.join(format!(".functions-{}-{number}", std::process::id()));
        let made = places::create(&path);
        made.map_err(|error| Failure::error(format!("{}: {error}", path.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // of no use to anybody
    }
}
