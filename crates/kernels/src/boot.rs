//! Runs guests side by side to their ends.
//!
//! One loop polls the pipes of all QEMU processes; there is no thread. Each process leads a process group of its own, so that a
//! Ctrl-C reaches us and not it. It dies with us: `PR_SET_PDEATHSIG` is set before its exec, and the loop kills and reaps what still
//! runs on every way out.
//!
//! ```text
//! QEMU --stdout--> serial port --> lines: marked ones in order, of the others the last
//!      --stderr--> what QEMU itself says
//!      --exit----> how it ended: [`End`]
//! ```

mod console;
mod process;

use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::folder::Folder;
use crate::machine::Machine;
use crate::{Error, Result};

pub(crate) use process::ask;

use console::Console;
use process::{Process, exit_text};

/// After its last line, or a panic, a guest has so long to end itself.
const GRACE: Duration = Duration::from_secs(3);
/// The loop looks so often at what makes no pipe readable.
const TICK: Duration = Duration::from_millis(50);

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The guest said that it was done, and ended. Only this one is a result.
    PoweredOff,
    /// The guest ended before it said that it was done.
    PoweredOffEarly,
    /// The guest's kernel panicked.
    Panicked,
    /// Not one byte came from the serial port.
    Silent,
    /// The limit came first.
    TimeLimit,
    /// The guest wrote without end.
    Flooded,
    /// The caller asked for it.
    Stopped,
    /// QEMU itself failed.
    QemuFailed,
    /// QEMU cannot do what is asked: too old, or built without the emulator.
    QemuUnsupported {
        /// QEMU's words.
        reason: String,
    },
}

/// A boot that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// How.
    pub end: End,
    /// The same in a sentence, with what is known of the cause. Empty of [`End::PoweredOff`].
    pub why: String,
    /// The guest's marked lines (`@stopgap ...`), in the order in which it wrote them.
    pub lines: Vec<String>,
    /// The last of its other lines, at most 60; control characters taken out.
    pub console: Vec<String>,
    /// The emulated CPU, as on QEMU's command line.
    pub cpu: String,
    /// QEMU's command line, with paths of temporary files. Empty of a guest that was not started.
    pub command_line: Vec<String>,
    /// The layout sample.
    pub seed: u64,
    /// How long it took by the host's clock. It says nothing about the guest.
    pub host_time: Duration,
}

impl Boot {
    /// Whether it is a result.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.end == End::PoweredOff
    }
}

/// Boots `machines`, at most `jobs` at a time (0 counts as 1). Returns their ends in the same order, and calls `ended` at each.
/// A bad end is a [`Boot`], too. Once `stop` is set, what runs is killed and what has not begun ends as [`End::Stopped`].
///
/// # Errors
///
/// Where the initramfs cannot be written, QEMU cannot be started or does not emulate the kernel's architecture. No guest is
/// left then either.
pub fn run_all(
    machines: &[Machine],
    jobs: usize,
    stop: &AtomicBool,
    ended: &mut dyn FnMut(usize, &Boot),
) -> Result<Vec<Boot>> {
    let folder = Folder::new()?;
    let mut boots: Vec<Option<Boot>> = machines.iter().map(|_| None).collect();
    let mut waiting = machines.iter().enumerate();
    // Dropped on every way out, and with it each process.
    let mut guests: Vec<Guest<'_>> = Vec::new();
    loop {
        while guests.len() < jobs.max(1) && !stop.load(Ordering::Relaxed) {
            let Some((number, machine)) = waiting.next() else {
                break;
            };
            guests.push(Guest::start(number, machine, &folder)?);
        }
        if guests.is_empty() {
            break;
        }
        process::wait(guests.iter_mut().map(|guest| &mut guest.process), TICK)?;
        let stopped = stop.load(Ordering::Relaxed);
        let mut at = 0;
        while at < guests.len() {
            if let Some(boot) = guests[at].turn(stopped)? {
                let guest = guests.remove(at);
                ended(guest.number, &boot);
                boots[guest.number] = Some(boot);
            } else {
                at += 1;
            }
        }
    }
    let boots = boots.into_iter().zip(machines);
    let boots = boots.map(|(boot, machine)| {
        boot.unwrap_or_else(|| Boot {
            end: End::Stopped,
            why: "stopped before it began".to_owned(),
            lines: Vec::new(),
            console: Vec::new(),
            cpu: machine.cpu().to_owned(),
            command_line: Vec::new(),
            seed: machine.seed,
            host_time: Duration::ZERO,
        })
    });
    Ok(boots.collect())
}

/// A guest that runs.
struct Guest<'a> {
    number: usize,
    machine: &'a Machine,
    arguments: Vec<String>,
    process: Process,
    console: Console,
    began: Instant,
    /// When we began to end it, and why.
    ending: Option<(Instant, Reason)>,
    /// When it said that it was done, or panicked.
    last_word: Option<Instant>,
}

/// Why we end a guest that has not ended itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Limit,
    Stop,
    Flood,
    /// It has had its say, and does not power off.
    LastWord,
}

impl<'a> Guest<'a> {
    fn start(number: usize, machine: &'a Machine, folder: &Folder) -> Result<Guest<'a>> {
        let (kernel, emulated) = (machine.image.architecture, machine.qemu.architecture());
        if kernel != emulated {
            let why = format!(
                "a kernel for {kernel}; {} emulates {emulated}",
                machine.qemu.program().display()
            );
            return Err(Error::about(&machine.image.name, why));
        }
        let name = format!("initramfs-{}", machine.initramfs.sha256());
        let path = folder.path().join(&name);
        if !path.exists() {
            folder.write(&name, machine.initramfs.bytes())?;
        }
        let arguments = machine.arguments(&path);
        let process = Process::start(machine.qemu.program(), &arguments)?;
        let program = machine.qemu.program().display().to_string();
        let words = arguments
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        Ok(Guest {
            number,
            machine,
            arguments: std::iter::once(program).chain(words).collect(),
            process,
            console: Console::default(),
            began: Instant::now(),
            ending: None,
            last_word: None,
        })
    }

    /// Takes what has come; gives the boot when it has ended.
    fn turn(&mut self, stopped: bool) -> Result<Option<Boot>> {
        // Before the reading, so that what it wrote before its end is there to be read.
        let exit = self.process.exited()?;
        let console = &mut self.console;
        self.process.read(|bytes| console.take(bytes))?;
        let now = Instant::now();
        if let Some(exit) = exit {
            self.process.read_rest(|bytes| console.take(bytes))?;
            console.finish();
            let (end, why) = self.judge(exit);
            let console = std::mem::take(&mut self.console);
            return Ok(Some(Boot {
                end,
                why,
                lines: console.marked,
                console: console.tail.into(),
                cpu: self.machine.cpu().to_owned(),
                command_line: std::mem::take(&mut self.arguments),
                seed: self.machine.seed,
                host_time: self.began.elapsed(),
            }));
        }
        if self.last_word.is_none() && (console.done || console.panic.is_some()) {
            self.last_word = Some(now);
        }
        let flooded = console.taken > console::MOST;
        let since = |at: Instant| now.duration_since(at);
        match self.ending {
            None if stopped => self.end(now, Reason::Stop),
            None if flooded => self.end(now, Reason::Flood),
            None if self.last_word.is_some_and(|at| since(at) >= GRACE) => {
                self.end(now, Reason::LastWord);
            }
            None if since(self.began) >= self.machine.limit => self.end(now, Reason::Limit),
            // In order took too long, or the stop came meanwhile.
            Some((at, Reason::LastWord)) if stopped || since(at) >= GRACE => self.process.kill(),
            _ => {}
        }
        Ok(None)
    }

    fn end(&mut self, now: Instant, reason: Reason) {
        self.ending = Some((now, reason));
        match reason {
            // A plugin writes its counts when QEMU ends in order.
            Reason::LastWord => self.process.terminate(),
            _ => self.process.kill(),
        }
    }

    /// Judges an end.
    fn judge(&self, exit: ExitStatus) -> (End, String) {
        let console = &self.console;
        let silent = console.taken == 0;
        let seconds = self.machine.limit.as_secs_f64();
        match (self.ending.map(|(_, reason)| reason), &console.panic) {
            (Some(Reason::Stop), _) => (End::Stopped, "stopped".to_owned()),
            _ if console.done => (End::PoweredOff, String::new()),
            (_, Some(panic)) => {
                let why = format!("the kernel panicked: {panic}{}", self.hint(panic));
                (End::Panicked, why)
            }
            (Some(Reason::Flood), _) => {
                let why = format!("the guest wrote more than {} MiB", console::MOST >> 20);
                (End::Flooded, why)
            }
            (Some(Reason::Limit), _) if silent => {
                let (used, cause) = (self.used(), self.silence());
                let why =
                    format!("not one byte on the serial port in {seconds:.1} s{used}: {cause}");
                (End::Silent, why)
            }
            (Some(Reason::Limit), _) => {
                let (used, lines) = (self.used(), console.marked.len());
                let why = format!(
                    "it had not ended after {seconds:.1} s{used} ({lines} lines of results)"
                );
                (End::TimeLimit, why)
            }
            _ if !exit.success() => {
                let said = self.process.said();
                let reason = match said.trim() {
                    "" => exit_text(exit),
                    said => format!("{}: {said}", exit_text(exit)),
                };
                let why = format!("QEMU failed: {reason}");
                match is_unsupported(&said) {
                    true => (End::QemuUnsupported { reason }, why),
                    false => (End::QemuFailed, why),
                }
            }
            _ if silent => {
                let cause = self.silence();
                let why = format!("it ended without one byte on the serial port: {cause}");
                (End::Silent, why)
            }
            _ => {
                let why = "the guest powered off or reset before it was done".to_owned();
                (End::PoweredOffEarly, why)
            }
        }
    }

    /// On a busy host a limit can be too short for a guest that does nothing wrong: what it had says so.
    fn used(&self) -> String {
        self.process.used().map_or(String::new(), |used| {
            format!(", of which it had a CPU for {:.1} s", used.as_secs_f64())
        })
    }

    /// Explains a panic's text.
    fn hint(&self, panic: &str) -> &'static str {
        let says = |text| panic.contains(text);
        if says("Unable to mount root fs") || says("No working init found") {
            return match self.machine.image.option("CONFIG_BLK_DEV_INITRD") {
                Some("y") => " (it did not start /init from the initramfs)",
                Some(_) => " (no initramfs support: CONFIG_BLK_DEV_INITRD is not set)",
                None => " (no initramfs support? CONFIG_BLK_DEV_INITRD=y is needed)",
            };
        }
        match says("Attempted to kill init") {
            true => " (the guest program ended)",
            false => "",
        }
    }

    /// Why nothing came, as far as the configuration tells.
    fn silence(&self) -> String {
        let option = match self.machine.image.architecture {
            crate::Architecture::X86_64 => "CONFIG_SERIAL_8250_CONSOLE",
            crate::Architecture::Aarch64 => "CONFIG_SERIAL_AMBA_PL011_CONSOLE",
        };
        match self.machine.image.option(option) {
            Some("y") => {
                "it has a serial console; it hung or reset before it could write".to_owned()
            }
            Some(_) => format!("a kernel without a serial console ({option} is not set)"),
            None => format!(
                "a kernel without a serial console ({option}=y is needed), or one that hung or reset early"
            ),
        }
    }
}

/// Whether QEMU refused a flag: a version without it, or a build without the emulator.
fn is_unsupported(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    let property = said.contains("property '") && said.contains("not found");
    property
        || ["icount", "invalid accelerator", "invalid option"]
            .iter()
            .any(|word| said.contains(word))
}

#[cfg(test)]
mod tests;
