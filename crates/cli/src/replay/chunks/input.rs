//! Buffers that a replay of chunks builds, and the memory they come from.

use std::io::Read;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::snapshot::{self as snapshot_file, Snapshot};
use stopgap_events::units::Bytes;
use stopgap_models::chunks::buddy::{Buddy, Use};
use stopgap_models::chunks::bystanders;
use stopgap_models::chunks::experiment::{Device, Step, mail, videos};
use stopgap_models::chunks::kernel::Kernel;
use stopgap_models::chunks::machine::{Machine, Setting};
use stopgap_models::chunks::scenario::snapshot::{self, Assumptions, BlockRule};
use stopgap_models::chunks::scenario::{Scenario, UNMOVABLE_BLOCKS, UNMOVABLE_SHARE};
use stopgap_models::chunks::walkers::Walkers;
use stopgap_report::text::thousands;

use super::trace;
use crate::args::ChunksInput;
use crate::failure::Failure;
use crate::{input_file, prices};

/// Default number of buffers that each policy builds, and how many are held at a time: a page with four
/// videos.
const BUFFERS: u64 = 50;
const LIVE: u32 = 4;

/// More buffers than anybody can wait for.
const MOST_BUFFERS: u64 = 1_000_000;

/// Bytes of the buffers of mail 001.
const SIZE: Bytes = Bytes::mib(4);

/// Bytes of a base page, in the scenarios and in every snapshot that is taken: the prices are for such pages.
pub(super) const PAGE: u64 = 4_096;

/// Text near the start of a snapshot's file.
const SNAPSHOT: &[u8] = b"stopgap.snapshot/";

/// Text at the start of a trace of JSON lines.
const TRACE: &[u8] = b"stopgap.trace/";

/// Text in each event.
const EVENT: &[u8] = b"\"kind\"";

/// Kinds of input, for messages.
const EITHER: &str = "give a snapshot (stopgap.snapshot/1) or a trace (stopgap.trace/2)";

/// The replay's input.
pub(super) struct Input {
    /// Its name in rows.
    pub(super) workload: String,
    pub(super) memory: Memory,
    pub(super) steps: Vec<Step>,
    /// Bytes of each buffer; `None` where a trace gives each its own.
    pub(super) size: Option<u64>,
    /// Buffers held at a time; `None` where a trace says when.
    pub(super) live: Option<u64>,
    /// Whether its times may stand beside mail 001's.
    pub(super) beside_mail: bool,
    /// Events that its figures lack, and why.
    pub(super) missing: Vec<Missing>,
}

impl Input {
    /// Buffers that are asked for.
    pub(super) fn buffers(&self) -> u64 {
        let builds = |step: &&Step| matches!(step, Step::Build { .. });
        self.steps.iter().filter(builds).count() as u64
    }
}

/// Returns what the flags name: a scenario, or else a file.
pub(super) fn input(flags: &ChunksInput, device: &Device) -> Result<Input, Failure> {
    let word = flags.input.to_string_lossy();
    let scenario = word.parse::<Scenario>();
    if let Ok(scenario) = scenario {
        let memory = Memory::of_scenario(scenario, flags)?;
        memory.check(device)?;
        return memory.videos(flags, scenario == Scenario::Thread);
    }
    let path = Path::new(&flags.input);
    // Opening reports a file that exists but cannot be read.
    if let (Ok(false), Err(unknown)) = (path.try_exists(), scenario) {
        return Err(Failure::error(format!(
            "{unknown}; and there is no such file"
        )));
    }
    let form = form(path).map_err(|error| Failure::error(format!("{word}: {error}")))?;
    if form == Form::Snapshot {
        let memory = Memory::of_snapshot(path, &word, flags)?;
        memory.check(device)?;
        return memory.videos(flags, false);
    }
    if flags.size.is_some() || flags.buffers.is_some() {
        return Err(Failure::error(format!(
            "{word} is a trace, whose mappings are the buffers; leave out --size and --buffers"
        )));
    }
    let memory = Memory::of_scenario(Scenario::Thread, flags)?;
    memory.check(device)?;
    let (steps, missing) = trace::read(path, PAGE, memory.bytes)?;
    Ok(Input {
        workload: word.into_owned(),
        steps,
        size: None,
        live: None,
        beside_mail: false,
        missing,
        memory,
    })
}

/// Kind of file.
#[derive(PartialEq)]
enum Form {
    Snapshot,
    /// Or nothing that is known: its reader tells.
    Trace,
}

/// What the file is by its start. JSON that is neither, not even an event without a header, is refused here: a trace's
/// reader would look for events in it.
fn form(path: &Path) -> std::io::Result<Form> {
    let mut start = Vec::new();
    input_file::open(path)?
        .take(4_096)
        .read_to_end(&mut start)?;
    let names = |schema: &[u8]| start.windows(schema.len()).any(|window| window == schema);
    if names(SNAPSHOT) {
        return Ok(Form::Snapshot);
    }
    let refuse = |why: &str| Err(std::io::Error::other(format!("{why}; {EITHER}")));
    match start.trim_ascii_start().first() {
        None => refuse("it is empty"),
        Some(b'[') => refuse("it is JSON of another kind"),
        Some(b'{') if !names(TRACE) && !names(EVENT) => refuse("it is JSON of another kind"),
        Some(_) => Ok(Form::Trace),
    }
}

/// A file of prices, and the prices that it has.
type PriceFile = (String, Vec<String>);

/// A memory to build buffers from.
pub(super) struct Memory {
    /// Whose it is: a scenario's name, or a snapshot's file.
    pub(super) name: String,
    /// As every policy finds it.
    pub(super) machine: Machine,
    /// The same memory, were something else assumed of it, and what.
    pub(super) otherwise: Vec<(String, Machine)>,
    pub(super) kernel: Kernel,
    /// Bytes of all that is memory.
    pub(super) bytes: u64,
    /// Assumptions about it, each in a sentence.
    pub(super) assumed: Vec<String>,
    /// Unknown properties, and why.
    missing: Vec<Missing>,
    prices: Option<PriceFile>,
}

impl Memory {
    /// Where a price of the kernel's work comes from, if from a file.
    pub(super) fn price_from(&self, name: &str) -> Option<String> {
        let (file, names) = self.prices.as_ref()?;
        let given = names.iter().any(|given| given == name);
        given.then(|| format!("fitted by probe chunks: {file}"))
    }

    /// `setting` with the prices that the flags name, and which they are.
    fn priced(
        setting: Setting,
        flags: &ChunksInput,
    ) -> Result<(Setting, Option<PriceFile>), Failure> {
        let Some(path) = &flags.prices else {
            return Ok((setting, None));
        };
        let prices = prices::read(path, PAGE)?;
        let names = prices.prices.iter().map(|price| price.name.clone());
        let names = names.collect();
        let costs = prices::applied(setting.costs, &prices);
        let from = (path.display().to_string(), names);
        Ok((Setting { costs, ..setting }, Some(from)))
    }

    fn of_scenario(scenario: Scenario, flags: &ChunksInput) -> Result<Memory, Failure> {
        let mut setting = scenario.setting(flags.seed);
        setting.kernel = flags.kernel.unwrap_or(setting.kernel);
        let mails = matches!(scenario, Scenario::Thread | Scenario::NoContiguous);
        if let Some(path) = flags.prices.as_ref().filter(|_| mails) {
            let path = path.display();
            return Err(Failure::error(format!(
                "--prices {path}: {scenario} is mail 001's machine, which has prices of its own; name a snapshot, \
                 unfragmented, kept-1/4 or aged"
            )));
        }
        let (setting, prices) = Memory::priced(setting, flags)?;
        let machine = scenario
            .machine(&setting)
            .map_err(|error| Failure::error(format!("{scenario}: {error}")))?;
        let assumed = match scenario {
            Scenario::Thread => vec![
                format!("one page in {UNMOVABLE_SHARE} can neither be moved nor reclaimed"),
                format!("one 2 MiB block in {UNMOVABLE_BLOCKS} is of unmovable type"),
                format!(
                    "drivers ask every {} s and after each buffer",
                    bystanders::EVERY_NS / 1e9
                ),
                format!(
                    "{} walkers take a page in {} us each",
                    Walkers::THREAD.tasks,
                    Walkers::THREAD.fault_ns / 1e3
                ),
            ],
            _ => Vec::new(),
        };
        Ok(Memory {
            assumed,
            prices,
            ..Memory::new(scenario.to_string(), machine, setting.kernel)
        })
    }

    fn of_snapshot(path: &Path, word: &str, flags: &ChunksInput) -> Result<Memory, Failure> {
        let fail = |why: &dyn std::fmt::Display| Failure::error(format!("{word}: {why}"));
        let file = input_file::open(path).map_err(|error| fail(&error))?;
        let snapshot = Snapshot::read(file).map_err(|error| match error {
            snapshot_file::Error::Json(why) if why.starts_with("EOF ") => {
                fail(&format_args!("a snapshot that is cut short: {why}"))
            }
            error => fail(&error),
        })?;
        if snapshot.page_bytes != Bytes(PAGE) {
            return Err(fail(&format_args!(
                "a snapshot of {} pages; the model knows {} pages only",
                snapshot.page_bytes,
                Bytes(PAGE)
            )));
        }
        // A machine of today, as the synthetic memories have it.
        let mut setting = Scenario::Unfragmented.setting(flags.seed);
        setting.kernel = flags.kernel.unwrap_or(setting.kernel);
        let (setting, prices) = Memory::priced(setting, flags)?;
        let machine = |assumptions: &Assumptions| {
            snapshot::machine(&snapshot, assumptions, &setting).map_err(|error| fail(&error))
        };
        let usual = Assumptions::default();
        let otherwise = [
            (
                "one movable page in ten pinned",
                Assumptions {
                    pinned_share: 0.1,
                    ..usual.clone()
                },
            ),
            (
                "anonymous memory can be reclaimed",
                Assumptions {
                    swap: true,
                    ..usual.clone()
                },
            ),
            (
                "2 MiB blocks with one unmovable page are unmovable",
                Assumptions {
                    block_rule: BlockRule::Any,
                    ..usual.clone()
                },
            ),
        ];
        let otherwise = otherwise
            .iter()
            .map(|(what, assumptions)| Ok(((*what).to_owned(), machine(assumptions)?)))
            .collect::<Result<_, Failure>>()?;
        Ok(Memory {
            otherwise,
            assumed: usual.told(),
            missing: snapshot.missing.clone(),
            prices,
            ..Memory::new(word.to_owned(), machine(&usual)?, setting.kernel)
        })
    }

    fn new(name: String, machine: Machine, kernel: Kernel) -> Memory {
        let memory = |buddy: &Buddy| buddy.pages() - buddy.used_pages(Use::Hole);
        let pages: u64 = machine.memories().map(memory).sum();
        Memory {
            name,
            bytes: pages * PAGE, // at most 64 GiB
            machine,
            otherwise: Vec::new(),
            kernel,
            assumed: Vec::new(),
            missing: Vec::new(),
            prices: None,
        }
    }

    /// Whether a base page is the smallest that the device can map.
    fn check(&self, device: &Device) -> Result<(), Failure> {
        let smallest = device.sizes.smallest();
        if smallest == PAGE {
            return Ok(());
        }
        if smallest < PAGE {
            return Err(Failure::error(format!(
                "--device {}: the model knows no pages below {}, and no IOMMU of such is known",
                device.sizes,
                Bytes(PAGE).short()
            )));
        }
        Err(Failure::error(format!(
            "--device {}: without {} among them it could not map a single base page of {}",
            device.sizes,
            Bytes(PAGE).short(),
            self.name
        )))
    }

    /// Buffers of one size, some of them held at a time.
    fn videos(self, flags: &ChunksInput, thread: bool) -> Result<Input, Failure> {
        let size = flags.size.unwrap_or(SIZE);
        if size.0 == 0 {
            return Err(Failure::error("--size 0: a buffer needs at least one page"));
        }
        if !size.0.is_multiple_of(PAGE) {
            return Err(Failure::error(format!(
                "--size {}: no whole pages of {}",
                size.short(),
                Bytes(PAGE)
            )));
        }
        if size.0 > self.bytes {
            return Err(Failure::error(format!(
                "--size {}: {} has {} of memory",
                size.short(),
                self.name,
                Bytes(self.bytes)
            )));
        }
        let buffers = flags.buffers.unwrap_or(BUFFERS);
        let count = u32::try_from(buffers).ok();
        let Some(count) = count.filter(|_| (1..=MOST_BUFFERS).contains(&buffers)) else {
            return Err(Failure::error(format!(
                "--buffers {buffers}: at least 1 and at most {}",
                thousands(MOST_BUFFERS)
            )));
        };
        let pages = size.0 / PAGE;
        let mails = self.kernel == Kernel::V3_14 && (pages, PAGE) == mail::BUFFER;
        Ok(Input {
            workload: self.name.clone(),
            steps: videos(pages, count, LIVE),
            size: Some(size.0),
            live: Some(u64::from(LIVE).min(buffers)),
            beside_mail: thread && mails,
            missing: self.missing.clone(),
            memory: self,
        })
    }
}
