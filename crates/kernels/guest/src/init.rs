//! The guest's first process: it makes the system that cells need, and ends it.
//!
//! Nothing is undone here: the system ends with this process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::protocol::{Line, PLAN, Plan, Work};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use stopgap_events::machine::Missing;

use crate::counter::Counter;
use crate::run;
use crate::voice::Voice;

/// File systems: kind, place, and for whom.
const MOUNTS: [(&str, &str, Use); 6] = [
    ("proc", "/proc", Use::All),
    ("sysfs", "/sys", Use::All),
    ("devtmpfs", "/dev", Use::Devices),
    ("tmpfs", "/tmp", Use::Commands),
    ("tracefs", "/sys/kernel/tracing", Use::Commands),
    ("cgroup2", "/sys/fs/cgroup", Use::Commands),
];

/// Which cells a file system is of use to. A small kernel lacks some of them, which is worth a line only where a cell
/// could have used it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Whatever is done.
    All,
    /// Buffer objects, devices, programs.
    Devices,
    /// Programs of the initramfs, of which nobody knows what they look at.
    Commands,
}

impl Use {
    fn is_in(self, plan: &Plan) -> bool {
        plan.cells.iter().any(|cell| match &cell.work {
            Work::Command { .. } => true,
            Work::Device { .. } | Work::Reuse { .. } | Work::Vfio { .. } => self != Use::Commands,
            Work::Placement { .. } | Work::Roundtrip { .. } | Work::Fork { .. } => self == Use::All,
        })
    }
}

/// Settings of the kernel: file, value.
const SETTINGS: [(&str, &str); 2] = [
    // More than any workload has. The kernel's own limit is 65,530.
    ("/proc/sys/vm/max_map_count", "1000000"),
    // Layouts are the seed's; on the kernel's command line it stands, too, for what came before.
    ("/proc/sys/kernel/randomize_va_space", "0"),
];

/// The kernel's setting for messages on the console.
const PRINTK: &str = "/proc/sys/kernel/printk";

/// Does all that a guest does, and powers off. It comes back only where it is not the first process or may not power off.
///
/// # Errors
/// Where the console cannot be written to, or the kernel does not power off.
pub fn run() -> io::Result<()> {
    let (mut missing, unmounted) = prepare();
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let seed = Plan::seed(&command_line);
    let counter = Counter::calibrate();
    let console = io::stdout();
    raw(&console);

    let mut voice = Voice::new(io::stdout());
    let hello = run::hello(seed.clone().ok().flatten().unwrap_or(0), &counter);
    quietly(|| voice.say(&Line::Hello(hello)))?;

    // What comes is kept until all is counted: a byte on the serial port is an interrupt.
    let mut lines = Vec::new();
    match seed.and_then(|seed| Ok((seed.unwrap_or(0), run::read(Path::new(PLAN))?))) {
        Ok((seed, plan)) => {
            let of_use = unmounted.into_iter().filter(|(of, _)| of.is_in(&plan));
            missing.extend(of_use.map(|(_, line)| line));
            missing.extend(modules(&plan));
            run::cells(&plan, Path::new(PLAN), seed, &counter, |line| {
                lines.push(line);
            });
            if plan.symbols {
                lines.extend(symbols());
            }
        }
        Err(why) => lines.push(Line::Failed {
            name: "plan".to_owned(),
            why,
        }),
    }
    quietly(|| {
        missing
            .iter()
            .chain(&lines)
            .try_for_each(|line| voice.say(line))?;
        voice.done()?;
        // The port is empty before the machine goes.
        tcdrain(&console).or(Ok(()))
    })?;
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff)?;
    Ok(())
}

/// Mounts and sets what cells need; what could not be set, as lines, and what could not be mounted, with whom that is of
/// use to.
fn prepare() -> (Vec<Line>, Vec<(Use, Line)>) {
    let (mut missing, mut unmounted) = (Vec::new(), Vec::new());
    for (kind, place, of) in MOUNTS {
        // Inside sysfs the kernel makes the directories.
        let made = fs::create_dir_all(place);
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let flags = if place == "/tmp" {
            MountFlags::empty()
        } else {
            flags
        };
        if let Err(error) = mount(kind, place, kind, flags, None) {
            // A kernel without the file system lacks its directory in sysfs too, and nobody may make one.
            let why = if made.is_err() || error == rustix::io::Errno::NODEV {
                format!("the kernel has no {kind}")
            } else {
                error.to_string()
            };
            unmounted.push((of, lacking(place, &why)));
        }
    }
    for (path, value) in SETTINGS {
        if let Err(error) = fs::write(path, value) {
            missing.push(lacking(path, &error.to_string()));
        }
    }
    (missing, unmounted)
}

fn lacking(what: &str, why: &str) -> Line {
    Line::Missing(Missing::new(what, why))
}

/// Loads the plan's modules; which did not load, as lines.
fn modules(plan: &Plan) -> Vec<Line> {
    let load = |path: &String| {
        let parameters = plan.parameters.iter().filter(|(of, _)| of == path);
        let words: Vec<&str> = parameters.map(|(_, words)| words.as_str()).collect();
        let words = std::ffi::CString::new(words.join(" "))?;
        let file = File::open(path)?;
        match finit_module(&file, &words, 0) {
            // It is there already, or built in.
            Err(rustix::io::Errno::EXIST) => Ok(()),
            result => Ok::<(), io::Error>(result?),
        }
    };
    let failed = |path: &String| Some(lacking(path, &load(path).err()?.to_string()));
    plan.modules.iter().filter_map(failed).collect()
}

/// Sends the kernel's symbols of code. Symbols of data are more, and nobody counts by them.
fn symbols() -> Vec<Line> {
    const PATH: &str = "/proc/kallsyms";
    match fs::write("/proc/sys/kernel/kptr_restrict", "0").and_then(|()| fs::read_to_string(PATH)) {
        Ok(text) => Line::file(None, PATH, code(&text).as_bytes()),
        Err(error) => vec![lacking(PATH, &error.to_string())],
    }
}

/// The lines of code in a list of symbols: `ffffffff81000000 T _stext`, with a module's name behind or not.
fn code(symbols: &str) -> String {
    let is_code = |line: &&str| {
        let kind = line.split(' ').nth(1);
        kind.is_some_and(|kind| matches!(kind, "t" | "T" | "w" | "W"))
    };
    let lines: Vec<&str> = symbols.lines().filter(is_code).collect();
    lines.join("\n")
}

/// Bytes go through the console as they are. Where it is no terminal, they do anyway.
fn raw(console: &io::Stdout) {
    if let Ok(mut settings) = tcgetattr(console) {
        settings.make_raw();
        let _ = tcsetattr(console, OptionalActions::Now, &settings);
    }
}

/// Says something while no kernel message may come in between; but for a panic, which always may.
fn quietly<T>(say: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = fs::read_to_string(PRINTK).unwrap_or_default();
    let level = |text: &str| {
        // A kernel without that file prints as it likes; the checksum shows a line that it tears.
        let _ = File::options()
            .write(true)
            .open(PRINTK)
            .and_then(|mut file| file.write_all(text.as_bytes()));
    };
    level("1");
    let result = say();
    if let Some(before) = before.split_ascii_whitespace().next() {
        level(before);
    }
    result
}

#[cfg(test)]
mod tests {
    use crate::protocol::{devices, standard};
    use stopgap_events::units::Nanos;

    use super::*;

    /// A kernel without tracefs is nothing to speak of where nothing could have used it.
    #[test]
    fn a_file_system_is_missed_only_by_who_uses_it() {
        let program = crate::protocol::Cell {
            name: "a".to_owned(),
            work: Work::Command {
                argv: vec!["/bin/true".to_owned()],
                files: Vec::new(),
                limit: Nanos::secs(1),
            },
        };
        let of_use = |cells| {
            let plan = Plan::new(cells);
            let kinds = MOUNTS.iter().filter(|(_, _, of)| of.is_in(&plan));
            kinds.map(|(kind, _, _)| *kind).collect::<Vec<_>>()
        };
        assert_eq!(of_use(standard()), ["proc", "sysfs"]);
        assert_eq!(of_use(devices()), ["proc", "sysfs", "devtmpfs"]);
        assert_eq!(of_use(vec![program]).len(), MOUNTS.len());
    }

    #[test]
    fn symbols_of_code_are_kept() {
        let text =
            "ffff1 T _stext\nffff2 D data\nffff3 t local\t[vgem]\nffff4 w weak\nffff5 W weak\nx\n";
        assert_eq!(
            code(text),
            "ffff1 T _stext\nffff3 t local\t[vgem]\nffff4 w weak\nffff5 W weak"
        );
    }
}
