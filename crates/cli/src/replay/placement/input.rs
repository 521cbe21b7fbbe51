//! What a replay carries out: built-in workloads, each at its N, or a trace file.

use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::workload::{Agua, Workload};
use stopgap_models::placement::experiment::Events;
use stopgap_models::placement::mail::MAIL_000;
use stopgap_placement::{Direction, Range, Space};
use stopgap_report::text::thousands;

use super::Flags;
use crate::failure::Failure;

/// Bytes of a page in the models: what all kernels that they follow had on x86-64.
pub(super) const PAGE: u64 = 4_096;

/// Default number of operations at each N where there are several: twice what a p99.99 needs.
const OPERATIONS: u64 = 200_000;

/// One workload at one N, or a trace.
pub(super) struct Input {
    /// Its name in rows.
    pub(super) workload: String,
    /// Its size; `None` for a trace.
    pub(super) n: Option<u64>,
    /// Where it is placed.
    pub(super) space: Space,
    /// How often it is repeated: as [`super::REPETITIONS`] says, but once where its loops are the samples.
    pub(super) repetitions: u32,
    /// Mappings live at a time at most; `None` where only reading it tells.
    pub(super) live: Option<u64>,
    /// Events that the trace has lost, which its figures lack.
    pub(super) missing: Vec<Missing>,
    /// Its events, from the start.
    pub(super) events: Box<dyn Fn() -> Result<Events, String>>,
}

impl Input {
    /// For the progress bar.
    pub(super) fn title(&self) -> String {
        match self.n {
            Some(n) => format!("{} N={}", self.workload, thousands(n)),
            None => self.workload.clone(),
        }
    }
}

/// Returns the inputs that the flags name.
pub(super) fn inputs(flags: &Flags) -> Result<Vec<Input>, Failure> {
    let word = flags.input.to_string_lossy();
    let workloads = match &*word {
        "all" => Workload::ALL.to_vec(),
        "freegap" | "tight" => {
            let form = |w: &Workload| w.word().starts_with(&format!("{word}-"));
            Workload::ALL.iter().copied().filter(form).collect()
        }
        _ => word.parse().into_iter().collect(),
    };
    if workloads.is_empty() {
        return trace(flags, &word);
    }
    if flags.pid.is_some() {
        return Err(Failure::error(format!(
            "{word} is a workload, which has no processes; leave out --pid"
        )));
    }
    if flags.n.contains(&0) {
        return Err(Failure::error("N of 0: lay out at least one mapping"));
    }
    if flags.ops == Some(0) {
        return Err(Failure::error("--ops 0: carry out at least 1"));
    }
    if !flags.n.is_empty() && !workloads.iter().any(|w| w.n_may_be_chosen()) {
        return Err(Failure::error(format!(
            "the N of {word} is its definition; leave out --n"
        )));
    }
    let mut inputs = Vec::new();
    for workload in workloads {
        let ladder = ladder(workload, &flags.n)?;
        let usual = if ladder.len() > 1 {
            OPERATIONS
        } else {
            workload.default_operations()
        };
        let operations = flags.ops.unwrap_or(usual);
        for n in ladder {
            inputs.push(built_in(workload, n, operations, flags.seed)?);
        }
    }
    Ok(inputs)
}

/// The N of a workload, each once, in the order given.
fn ladder(workload: Workload, given: &[u64]) -> Result<Vec<u32>, Failure> {
    if !workload.n_may_be_chosen() {
        return Ok(vec![workload.default_n()]);
    }
    if given.is_empty() {
        return Ok(match workload {
            Workload::Pbobench => MAIL_000.map(|(n, _)| n).to_vec(),
            other => vec![other.default_n()],
        });
    }
    let mut ladder = Vec::new();
    for &n in given {
        let n = u32::try_from(n).ok().filter(|&n| n <= Workload::LARGEST_N);
        let n = n.ok_or_else(|| {
            Failure::error(format!(
                "an N above {} is more than a replay is made for",
                thousands(u64::from(Workload::LARGEST_N))
            ))
        })?;
        if !ladder.contains(&n) {
            ladder.push(n);
        }
    }
    Ok(ladder)
}

fn built_in(workload: Workload, n: u32, operations: u64, seed: u64) -> Result<Input, Failure> {
    let window = workload.window(n, operations, seed);
    let space = Space::new(Range::new(window.start, window.end), PAGE)
        .map_err(|why| Failure::error(format!("{workload} at N={n}: {why}")))?;
    let more = match workload {
        Workload::Agua => Agua::PER_LOOP,
        // Slots and what is between a free and a map.
        _ => 1_000,
    };
    Ok(Input {
        workload: workload.word().to_owned(),
        n: Some(u64::from(n)),
        space,
        repetitions: match workload {
            Workload::Agua => 1,
            _ => super::REPETITIONS,
        },
        live: Some(u64::from(n) + more),
        missing: Vec::new(),
        events: Box::new(move || Ok(Box::new(workload.events(n, operations, seed).map(Ok)))),
    })
}

/// Takes any other word as the file of a trace.
fn trace(flags: &Flags, word: &str) -> Result<Vec<Input>, Failure> {
    let path = Path::new(&flags.input);
    // Opening reports a file that exists but cannot be read.
    if let Ok(false) = path.try_exists() {
        let words: Vec<&str> = Workload::ALL.iter().map(|w| w.word()).collect();
        return Err(Failure::error(format!(
            "unknown workload '{word}', and there is no such file; there are {}, freegap, tight, all",
            words.join(", ")
        )));
    }
    if !flags.n.is_empty() || flags.ops.is_some() {
        return Err(Failure::error(format!(
            "{word} is a trace, which has its own N and operations; leave out --n and --ops"
        )));
    }
    let direction = flags.direction.unwrap_or(Direction::Any);
    super::trace::input(path, direction, flags.pid).map(|input| vec![input])
}
