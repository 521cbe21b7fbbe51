//! A plan, cell by cell.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::{Hello, Line, Plan, VERSION};
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::memory::Memory;

use crate::cell;
use crate::counter::Counter;
use crate::layout::Layout;
use crate::mark;

/// The argument before an [`Order`].
pub const CELL: &str = "--cell";

/// The order to the process of one cell, as JSON behind [`CELL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The plan's file.
    pub plan: PathBuf,
    /// The cell's place in it.
    pub number: u32,
    /// The number of the layout sample.
    pub seed: u64,
    /// The counter as it was found; each process finding out by itself might find another one.
    pub counter: Counter,
}

impl Order {
    /// Carries it out in this process: its layout is taken, what came is printed.
    ///
    /// # Errors
    /// The system's refusal, in one line.
    pub fn carry_out(&self) -> Result<(), String> {
        let _anchors = Layout::of(self.seed)
            .take()
            .map_err(|error| error.to_string())?;
        let plan = read(&self.plan)?;
        let cell = plan.cells.get(self.number as usize).ok_or("no such cell")?;
        mark::cell(self.number);
        let lines = cell::carry_out(cell, self.seed, &self.counter)?;
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(|error| error.to_string())
    }
}

/// A plan from its file.
///
/// # Errors
/// Where it cannot be read or is none.
pub fn read(path: &Path) -> Result<Plan, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Plan::from_json(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Describes this kernel, machine and counter.
#[must_use]
pub fn hello(seed: u64, counter: &Counter) -> Hello {
    let name = rustix::system::uname();
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, field: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(field))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field(&text("/proc/meminfo"), "MemTotal");
    let kib = memory.and_then(|text| text.split(' ').next()?.parse().ok());
    Hello {
        version: VERSION,
        release: name.release().to_string_lossy().into_owned(),
        build: name.version().to_string_lossy().into_owned(),
        architecture: name.machine().to_string_lossy().into_owned(),
        cpu: field(&text("/proc/cpuinfo"), "model name"),
        command_line: text("/proc/cmdline").trim().to_owned(),
        seed,
        unit: counter.unit,
        overhead: counter.overhead,
        page_size: Linux.page_size(),
        memory: Bytes::kib(kib.unwrap_or(0)),
        first_process: std::process::id() == 1,
    }
}

/// Carries a plan's cells out, each in a process of its own after the plan's settling, and hands over what each said.
/// A cell that fails is a line; the next ones are carried out.
pub fn cells(plan: &Plan, path: &Path, seed: u64, counter: &Counter, mut take: impl FnMut(Line)) {
    for (number, cell) in (0..).zip(&plan.cells) {
        std::thread::sleep(Duration::from_nanos(plan.settle.0));
        let order = Order {
            plan: path.to_owned(),
            number,
            seed,
            counter: *counter,
        };
        match one(&order) {
            Ok(lines) => lines.into_iter().for_each(&mut take),
            Err(why) => take(Line::Failed {
                name: cell.name.clone(),
                why,
            }),
        }
    }
}

/// Carries an order out in a process of its own.
fn one(order: &Order) -> Result<Vec<Line>, String> {
    let layout = Layout::of(order.seed);
    let words = serde_json::to_string(order).map_err(|error| error.to_string())?;
    let output = Command::new(crate::program())
        .args([CELL, &words])
        .arg(layout.argument(Linux.page_size()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("its process: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        return Err(format!("{}: {last}", ended(output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter_map(Line::parse);
    lines.collect()
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}
