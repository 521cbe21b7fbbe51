//! Which function grew: two more boots of each kernel, under the first two layouts, with the plugin that counts by function. What
//! differs between the two boots of one kernel is the layout's, not the code's.
//!
//! The figures of the record are from boots without it. This boot's plan asks for the kernel's symbols as well, so it has an
//! initramfs of its own.

use stopgap_events::machine::Missing;
use stopgap_guest::mark::Operation;
use stopgap_guest::protocol::{Cell, Plan, Transcript};
use stopgap_helpers::{Helper, Place};
use stopgap_kernel::{folder, signals};

use crate::counted::{Counted, Symbols};
use crate::judge::{Kernels, Profiled};
use crate::run::Ready;
use crate::{Architecture, Boot, Error, Folder, Initramfs, Module, Plugin, Result};

/// Where a guest has the symbols of its kernel.
const SYMBOLS: &str = "/proc/kallsyms";

/// The most that is read of what the plugin wrote: a line for each function of each operation.
const LARGEST_COUNTS: u64 = 256 << 20;

/// Layouts that are counted by function, where so many are sampled.
const LAYOUTS: usize = 2;

/// A guest is slower with the plugin.
const SLOWER: u32 = 4;

/// Finds the plugin, before anything is booted.
pub(crate) fn plugin(architecture: Architecture) -> Result<Place> {
    if architecture != Architecture::X86_64 {
        return Err(Error::unsupported(format!(
            "--functions: the plugin reads x86-64 instructions, the kernels are for {architecture}"
        )));
    }
    let refuse = |why: &str| Error::unsupported(format!("--functions: {why}"));
    match Helper::Plugin.find() {
        None => Err(refuse(&Helper::Plugin.missing())),
        Some(Place::Named(path)) if !path.is_file() => Err(refuse(&format!(
            "no {} at {} (named by {}): {}",
            Helper::Plugin.file(),
            path.display(),
            Helper::Plugin.variable(),
            Helper::Plugin.advice()
        ))),
        Some(place) => Ok(place),
    }
}

/// Adds functions and their stacks to the record, and reasons where they are missing. Skips kernels that gave no figures.
/// Returns the tool's own faults: operations of which plugin and guest counted differently in the same boot.
pub(crate) fn add(
    record: &mut Kernels,
    cells: &[Cell],
    program: &[u8],
    plugin: &Place,
    ready: &[Ready],
    seeds: &[u64],
) -> Result<Vec<String>> {
    let (mut by_layout, mut faults) = (Vec::new(), Vec::new());
    for &seed in seeds.iter().take(LAYOUTS) {
        let mut profiles = Vec::new();
        for (number, ready) in ready.iter().enumerate() {
            if signals::interrupted() || record.kernels[number].cells.is_empty() {
                continue;
            }
            let (boot, counts) = boot(cells, program, plugin, ready, seed)?;
            let what = format!(
                "{}: which functions, layout {seed}",
                ready.machine.image.name
            );
            match of_boot(number, cells, &boot, counts) {
                Ok((of, differ)) => {
                    profiles.extend(of);
                    for (of, why) in differ {
                        let what = format!("{what}, {of}");
                        faults.push(format!("{what}: {why}"));
                        record.missing.push(Missing::new(what, why));
                    }
                }
                Err(why) => record.missing.push(Missing::new(what, why)),
            }
        }
        by_layout.push(profiles);
    }
    record.take_profiles(by_layout);
    Ok(faults)
}

/// Boots a kernel with the plugin. Returns what the plugin wrote, too.
fn boot(
    cells: &[Cell],
    program: &[u8],
    plugin: &Place,
    ready: &Ready,
    seed: u64,
) -> Result<(Boot, std::io::Result<Vec<u8>>)> {
    let mut plan = Plan::new(cells.to_vec());
    plan.modules = ready.modules.iter().map(Module::path).collect();
    plan.symbols = true;
    // The plugin opens it by its name: in a folder where nobody else may make one.
    let scratch = Folder::new()?;
    let counts = scratch.path().join("functions");
    let library = match plugin.path() {
        // QEMU looks for a relative path from its own folder.
        Ok(path) => path.canonicalize(),
        Err(bytes) => {
            let copy = scratch.path().join(Helper::Plugin.file());
            std::fs::write(&copy, bytes).map(|()| copy)
        }
    };
    let library =
        library.map_err(|error| Error::new(format!("--functions: the plugin: {error}")))?;
    let mut machine = ready.machine.clone();
    machine.initramfs = Initramfs::build(program, &plan.to_json(), &ready.modules, &[])?;
    machine.limit = machine.limit.saturating_mul(SLOWER);
    machine.seed = seed;
    machine.plugin = Some(Plugin {
        library,
        arguments: vec![format!("out={}", counts.display())],
    });
    let boot = machine.run(signals::flag())?;
    let counts = folder::read(&counts, LARGEST_COUNTS);
    Ok((boot, counts))
}

/// Profiles, and cells and operations without one because plugin and guest differ, with the reason.
type OfBoot = (Vec<Profiled>, Vec<(String, String)>);

/// Combines a boot's lines with the plugin's file.
fn of_boot(
    kernel: usize,
    cells: &[Cell],
    boot: &Boot,
    counts: std::io::Result<Vec<u8>>,
) -> std::result::Result<OfBoot, String> {
    if !boot.is_whole() {
        return Err(format!("with the plugin {}", boot.why));
    }
    let transcript = Transcript::read(&boot.lines)?;
    let symbols = transcript.files.get(&(None, SYMBOLS.to_owned()));
    let symbols = symbols.ok_or_else(|| format!("the guest sent no {SYMBOLS}"))?;
    let symbols = Symbols::parse(&String::from_utf8_lossy(symbols))?;
    let written = counts.map_err(|error| format!("the plugin's file: {error}"))?;
    let counted = Counted::parse(&String::from_utf8_lossy(&written))?;
    let (mut profiles, mut faults) = (Vec::new(), Vec::new());
    if counted.astray > 0 {
        let astray = counted.astray;
        let why = format!("{astray} operations ended that the plugin did not see begin");
        faults.push(("all".to_owned(), why));
    }
    for (place, cell) in (0u32..).zip(cells) {
        // The guest writes no counts of a cell that it did not carry out to its end: there is nothing to profile.
        if transcript.failed.iter().any(|(name, _)| *name == cell.name) {
            continue;
        }
        // Nothing is the cost of counting, which the guest measures before its first cell.
        let operations = Operation::ALL
            .iter()
            .filter(|&&one| one != Operation::Nothing);
        for &operation in operations {
            let (mark, operation) = (operation as u8, operation.word());
            let said = transcript.counts(&cell.name, operation);
            if let Err(why) = counted.agrees(place, mark, said) {
                faults.push((format!("{}, {operation}", cell.name), why));
                continue;
            }
            let profile = counted.profile(place, mark, &symbols);
            profiles.extend(profile.map(|profile| Profiled {
                kernel,
                cell: cell.name.clone(),
                operation: operation.to_owned(),
                profile,
            }));
        }
    }
    Ok((profiles, faults))
}

#[cfg(test)]
mod tests {
    use stopgap_guest::protocol::{Line, Unit, chosen};

    use super::*;
    use crate::testing;

    /// One round trip of 20 instructions, 8 of them in `do_mmap`; and what counting costs, which no cell counts.
    const COUNTED: &str = "stopgap.plugin/2\nwindow 0 4\ntook 20 1\nran 4 - ffffffff81000000 5 5\nwindow 0 11\ntook 2 80\nend 6\n";

    fn boot(counts: &str, failed: bool) -> Boot {
        let mut lines = vec![testing::hello(1, Unit::Instructions { per_tick: 1 })];
        let name = "roundtrip".to_owned();
        lines.push(if failed {
            let why = "socket: refused".to_owned();
            Line::Failed { name, why }
        } else {
            testing::counted(&name, "round trip", counts)
        });
        lines.extend(Line::file(None, SYMBOLS, b"ffffffff81000000 T do_mmap\n"));
        lines.push(Line::Done {
            lines: lines.len() as u64,
        });
        testing::boot(1, &lines)
    }

    fn of(boot: &Boot, counted: &str) -> OfBoot {
        let cells = chosen(&["roundtrip"]).unwrap();
        of_boot(0, &cells, boot, Ok(counted.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn the_plugins_windows_are_those_that_the_guest_counted_or_the_tool_is_at_fault() {
        let same = of(&boot("22x1", false), COUNTED);
        assert!(same.1.is_empty(), "{:?}", same.1);
        let [profiled] = &same.0[..] else {
            panic!("{same:?}")
        };
        assert_eq!(profiled.profile.functions()["do_mmap"], 8);
        for (counts, says) in [
            ("22x2", "the plugin saw 1 operations, the guest 2"),
            ("99x1", "the tool is at fault"),
        ] {
            let other = of(&boot(counts, false), COUNTED);
            let [(what, why)] = &other.1[..] else {
                panic!("{other:?}")
            };
            assert_eq!(what, "roundtrip, round trip");
            assert!(why.contains(says), "{why}");
            assert!(other.0.is_empty());
        }
        let astray = COUNTED.replace("end 6", "astray 2\nend 7");
        let astray = of(&boot("22x1", false), &astray);
        assert_eq!(astray.1[0].0, "all");
        // The guest reports a cell that failed.
        let failed = of(&boot("", true), COUNTED);
        assert!(failed.1.is_empty() && failed.0.is_empty(), "{failed:?}");
    }
}
