//! Runs by machine, and measurements of one quantity under one set of parameters by side.

use std::collections::BTreeSet;

use stopgap_events::machine::Environment;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Block, Parameter, Run, Series};

use crate::details;
use crate::text::{plain, thousands};

/// Runs of one machine in one state of its settings.
#[derive(Debug)]
pub(super) struct Side<'a> {
    /// What it is called: host and kernel, with a letter where there are several.
    pub(super) name: String,
    /// Records with their names.
    pub(super) runs: Vec<(&'a str, &'a Run)>,
}

impl<'a> Side<'a> {
    /// Answers of its runs to a question.
    pub(super) fn answers(
        &self,
        question: Question,
    ) -> impl Iterator<Item = (&'a Run, &'a Answer)> {
        self.runs.iter().flat_map(move |&(_, run)| {
            let asked = run.answers.iter().filter(move |a| a.question == question);
            asked.map(move |answer| (run, answer))
        })
    }
}

/// What a machine is, as rows of a table; what changes by itself (uptime, free memory) is not in it.
pub(super) fn facts(environment: &Environment) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let word = |word: &Option<String>| word.clone().unwrap_or_else(unknown);
    let size = |size: &Option<Bytes>| size.map_or_else(unknown, |size| size.to_string());
    let count = |count: Option<u64>| count.map_or_else(unknown, thousands);
    let e = environment;
    vec![
        ("host", word(&e.host)),
        ("kernel", word(&e.kernel)),
        ("architecture", word(&e.architecture)),
        ("command line", word(&e.command_line)),
        ("configuration, hash", word(&e.config_hash)),
        ("preemption", word(&e.preemption)),
        (
            "timer interrupts, Hz",
            e.hz.map_or_else(unknown, |hz| hz.to_string()),
        ),
        (
            "multi-generational LRU",
            e.mglru
                .map_or_else(unknown, |on| if on { "on" } else { "off" }.to_owned()),
        ),
        ("base page", e.page_size.to_string()),
        ("PMD page", size(&e.pmd_size)),
        ("THP enabled", word(&e.thp_enabled)),
        ("THP defrag", word(&e.thp_defrag)),
        (
            "compaction_proactiveness",
            count(e.compaction_proactiveness.map(u64::from)),
        ),
        ("max_map_count", count(e.max_map_count)),
        ("swap", word(&e.swap)),
        ("swap size", size(&e.swap_size)),
        ("memory cgroup", word(&e.memory_cgroup)),
        ("security modules", word(&e.lsm)),
        ("IOMMU", word(&e.iommu)),
        ("CPU", word(&e.cpu)),
        ("CPUs allowed", e.cpus.len().to_string()),
        ("microcode", word(&e.microcode)),
        ("governor", word(&e.governor)),
        ("mitigations", e.mitigations.join("; ")),
        ("clock source", word(&e.clock_source)),
        ("hypervisor", word(&e.hypervisor)),
        ("memory", size(&e.memory)),
        ("privilege", format!("{:?}", e.privilege).to_lowercase()),
    ]
}

/// Runs by machine and settings, in the order in which they come.
pub(super) fn sides<'a>(runs: &[(&'a str, &'a Run)]) -> Vec<Side<'a>> {
    let mut found: Vec<(Vec<(&str, String)>, Side<'a>)> = Vec::new();
    for &(name, run) in runs {
        let facts = facts(&run.environment);
        match found.iter_mut().find(|(known, _)| *known == facts) {
            Some((_, side)) => side.runs.push((name, run)),
            None => found.push((
                facts,
                Side {
                    name: String::new(),
                    runs: vec![(name, run)],
                },
            )),
        }
    }
    let several = found.len() > 1;
    let mut sides: Vec<Side<'a>> = found.into_iter().map(|(_, side)| side).collect();
    for (index, side) in sides.iter_mut().enumerate() {
        let environment = &side.runs[0].1.environment;
        let word =
            |word: &Option<String>| word.as_deref().map_or_else(|| "unknown".to_owned(), plain);
        let machine = format!(
            "{}, Linux {}",
            word(&environment.host),
            word(&environment.kernel)
        );
        side.name = if several {
            format!("{}: {machine}", letter(index))
        } else {
            machine
        };
    }
    sides
}

/// A, B, C, and after Z by number.
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
        _ => (index + 1).to_string(),
    }
}

/// One quantity under one set of parameters, of all sides.
#[derive(Debug, Clone)]
pub(super) struct Measured<'a> {
    /// A series that it is in: name, unit, parameters.
    pub(super) series: &'a Series,
    /// In what it differs from others of its group.
    pub(super) label: String,
    /// The names of what its label says, in order.
    pub(super) told_by: String,
    /// Runs by side, of all its records.
    pub(super) blocks: Vec<Vec<&'a Block>>,
}

impl Measured<'_> {
    /// The runs' figures of a side that a picture can hold.
    pub(super) fn values(&self, side: usize) -> Vec<f64> {
        let values = self.blocks[side].iter().map(|block| block.value);
        values.filter(|value| value.is_finite()).collect()
    }

    /// Whether any side has a run.
    pub(super) fn any(&self) -> bool {
        self.blocks.iter().any(|blocks| !blocks.is_empty())
    }
}

/// Quantities of a question: groups of one name and unit, in the order in which they come; each by parameter.
pub(super) fn measured<'a>(sides: &[Side<'a>], question: Question) -> Vec<Vec<Measured<'a>>> {
    let mut groups: Vec<Vec<Measured<'a>>> = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        for series in side
            .answers(question)
            .flat_map(|(_, answer)| &answer.series)
        {
            let same = |group: &Vec<Measured<'a>>| {
                group[0].series.name == series.name && group[0].series.unit == series.unit
            };
            let group = match groups.iter().position(same) {
                Some(at) => &mut groups[at],
                None => {
                    groups.push(Vec::new());
                    let last = groups.len() - 1;
                    &mut groups[last]
                }
            };
            let known = group
                .iter()
                .position(|one| one.series.parameters == series.parameters);
            let at = known.unwrap_or_else(|| {
                group.push(Measured {
                    series,
                    label: String::new(),
                    told_by: String::new(),
                    blocks: vec![Vec::new(); sides.len()],
                });
                group.len() - 1
            });
            group[at].blocks[index].extend(&series.blocks);
        }
    }
    for group in &mut groups {
        label(group);
    }
    groups
}

/// Parameters that people know a measurement by, best known first.
const KNOWN_BY: [&str; 10] = [
    "strategy", "mode", "workload", "size", "n", "client", "server", "work", "reply", "batch",
];

/// Keys that tell the members of a group apart, as few as it takes: a row has room for a few words.
fn telling<'k>(group: &[Measured<'_>], keys: &'k BTreeSet<String>) -> Vec<&'k str> {
    let known = |key: &&str| KNOWN_BY.iter().position(|known| known == key);
    let mut all: Vec<&str> = keys.iter().map(String::as_str).collect();
    all.sort_by_key(|key| known(key).unwrap_or(KNOWN_BY.len()));
    let apart = |keys: &[&str]| {
        let of = |one: &Measured<'_>| -> Vec<String> {
            let word = |key: &&str| one.series.parameters.get(*key).map(details::word);
            keys.iter()
                .map(|key| word(key).unwrap_or_default())
                .collect()
        };
        group.iter().map(of).collect::<BTreeSet<_>>().len()
    };
    let mut chosen = Vec::new();
    for key in all {
        let before = apart(&chosen);
        chosen.push(key);
        if apart(&chosen) == before {
            chosen.pop();
        }
    }
    chosen
}

/// Sorts a group by what its members differ in, and calls them by that.
fn label(group: &mut [Measured<'_>]) {
    let keys: BTreeSet<String> = group
        .iter()
        .flat_map(|one| one.series.parameters.keys().cloned())
        .collect();
    let keys = telling(group, &keys);
    group.sort_by(|a, b| details::compare(a.series, b.series, &keys));
    let told_by: Vec<String> = keys.iter().map(|key| plain(key)).collect();
    for one in group.iter_mut() {
        let value = |key: &&str| {
            let value = one.series.parameters.get(*key)?;
            let shown = details::word(value);
            // A word mostly says what it is; a number and a yes do not.
            let alone = matches!(value, Parameter::Word(word) if word != "yes" && word != "no");
            Some(if alone {
                shown
            } else {
                format!("{} {shown}", plain(key))
            })
        };
        let words: Vec<String> = keys.iter().filter_map(value).collect();
        one.label = match words.is_empty() {
            true => plain(&one.series.name),
            false => words.join(", "),
        };
        one.told_by = told_by.join(", ");
    }
}

/// The median of some runs' figures with its interval over runs; `None` below three runs.
pub(super) fn interval(values: &[f64], seed: u64) -> Option<Interval> {
    let positive = values.iter().all(|&value| value > 0.0);
    let of = |value: f64| if positive { value.ln() } else { value };
    let back = |value: f64| if positive { value.exp() } else { value };
    let interval = over_runs(values, seed, |drawn| {
        median(drawn.iter().map(|v| of(**v)).collect())
    })?;
    Some(Interval {
        value: back(interval.value),
        low: back(interval.low),
        high: back(interval.high),
    })
}
