//! Runs by machine, and measurements of one quantity under one set of parameters by side.

use std::collections::BTreeSet;

use stopgap_events::machine::Environment;
use stopgap_events::order::{Inserted as _, SortRows};
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Block, Run, Series};

use super::words;
use crate::details;
use crate::screen::on_or_off;
use crate::table::{join, known_or};
use crate::text::thousands;

/// Runs of one machine in one state of its settings.
#[derive(Debug)]
pub(super) struct Side<'a> {
    /// Host and kernel, after a letter where there are several sides.
    pub(super) name: String,
    /// What is appended to the titles of its charts: its name where there are several sides.
    pub(super) of: String,
    /// Settings of the machine.
    pub(super) facts: Vec<(&'static str, String)>,
    /// Records with their names.
    pub(super) runs: Vec<(&'a str, &'a Run)>,
}

impl<'a> Side<'a> {
    /// Returns the answers of its runs to a question, each with its run and the name of its record.
    pub(super) fn answers(
        &self,
        question: Question,
    ) -> impl Iterator<Item = (&'a str, &'a Run, &'a Answer)> {
        self.runs.iter().flat_map(move |&(name, run)| {
            let asked = run.answers.iter().filter(move |a| a.question == question);
            asked.map(move |answer| (name, run, answer))
        })
    }
}

/// Returns what a machine is, as rows of a table; what changes by itself (uptime, free memory) is not in it.
fn facts(e: &Environment) -> Vec<(&'static str, String)> {
    let word = |word: &Option<String>| known_or("unknown", word.as_ref());
    let size = |size: Option<Bytes>| known_or("unknown", size);
    let count = |count: Option<u64>| known_or("unknown", count.map(thousands));
    vec![
        ("host", word(&e.host)),
        ("kernel", word(&e.kernel)),
        ("architecture", word(&e.architecture)),
        ("command line", word(&e.command_line)),
        ("configuration, hash", word(&e.config_hash)),
        ("preemption", word(&e.preemption)),
        ("timer interrupts, Hz", known_or("unknown", e.hz)),
        (
            "multi-generational LRU",
            known_or("unknown", e.mglru.map(on_or_off)),
        ),
        ("base page", e.page_size.to_string()),
        ("PMD page", size(e.pmd_size)),
        ("THP enabled", word(&e.thp_enabled)),
        ("THP defrag", word(&e.thp_defrag)),
        (
            "compaction_proactiveness",
            count(e.compaction_proactiveness.map(u64::from)),
        ),
        ("max_map_count", count(e.max_map_count)),
        ("swap", word(&e.swap)),
        ("swap size", size(e.swap_size)),
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
        ("memory", size(e.memory)),
        ("privilege", format!("{:?}", e.privilege).to_lowercase()),
    ]
}

/// Returns runs by machine and settings, in the order in which they come.
pub(super) fn sides<'a>(runs: &[(&'a str, &'a Run)]) -> Vec<Side<'a>> {
    let mut sides: Vec<Side<'a>> = Vec::new();
    for &(name, run) in runs {
        let facts = facts(&run.environment);
        match sides.iter_mut().find(|side| side.facts == facts) {
            Some(side) => side.runs.push((name, run)),
            None => sides.push(Side {
                name: format!("{}, Linux {}", facts[0].1, facts[1].1),
                of: String::new(),
                facts,
                runs: vec![(name, run)],
            }),
        }
    }
    if sides.len() > 1 {
        for (index, side) in sides.iter_mut().enumerate() {
            // After Z by number.
            let letter = u8::try_from(index).ok().filter(|index| *index < 26);
            let letter = letter.map(|index| char::from(b'A' + index));
            side.name = format!(
                "{}: {}",
                known_or(&(index + 1).to_string(), letter),
                side.name
            );
            side.of = format!(", {}", side.name);
        }
    }
    sides
}

/// One quantity under one set of parameters, of all sides.
#[derive(Debug, Clone)]
pub(super) struct Measured<'a> {
    /// A series that it is in: name, unit, parameters.
    pub(super) series: &'a Series,
    /// In what it differs from others of its group.
    pub(super) label: String,
    /// Runs by side, of all its records.
    pub(super) blocks: Vec<Vec<&'a Block>>,
}

impl Measured<'_> {
    /// Returns the runs' figures of a side that a picture can hold.
    pub(super) fn values(&self, side: usize) -> Vec<f64> {
        let values = self.blocks[side].iter().map(|block| block.value);
        values.filter(|value| value.is_finite()).collect()
    }

    /// Returns the median of the runs of a side.
    pub(super) fn median(&self, side: usize) -> Option<f64> {
        median(self.values(side))
    }

    /// Returns the runs' figures of all sides that a picture can hold.
    pub(super) fn all_values(&self) -> impl Iterator<Item = f64> + Clone {
        let blocks = self.blocks.iter().flatten().map(|block| block.value);
        blocks.filter(|value| value.is_finite())
    }

    /// Returns all samples of a side.
    pub(super) fn pooled(&self, side: usize) -> Histogram {
        let mut pooled = Histogram::new();
        for histogram in self.blocks[side]
            .iter()
            .filter_map(|block| block.histogram.as_ref())
        {
            pooled.merge(histogram);
        }
        pooled
    }
}

/// Returns quantities of a question: groups of one name and unit, in the order in which they come; each by parameter.
pub(super) fn measured<'a>(sides: &[Side<'a>], question: Question) -> Vec<Vec<Measured<'a>>> {
    let mut groups: Vec<Vec<Measured<'a>>> = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        for series in side
            .answers(question)
            .flat_map(|(.., answer)| &answer.series)
        {
            let same_group = |group: &Vec<Measured<'_>>| {
                (&group[0].series.name, &group[0].series.unit) == (&series.name, &series.unit)
            };
            let group = groups.iter().position(same_group).unwrap_or_else(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            let group = &mut groups[group];
            let same = |one: &Measured<'_>| one.series.parameters == series.parameters;
            let at = group.iter().position(same).unwrap_or_else(|| {
                group.push(Measured {
                    series,
                    label: String::new(),
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

/// Returns the group of a name; empty where there is none.
pub(super) fn named<'g, 'a>(groups: &'g [Vec<Measured<'a>>], name: &str) -> &'g [Measured<'a>] {
    let group = groups.iter().find(|group| group[0].series.name == name);
    group.map_or(&[], Vec::as_slice)
}

/// Returns the measurements of the largest buffers among a group, labelled by what they differ in.
pub(super) fn largest<'a>(group: &[Measured<'a>]) -> Vec<Measured<'a>> {
    let size = |one: &Measured<'_>| one.series.word("size")?.parse::<Bytes>().ok();
    let most = group.iter().filter_map(size).max();
    let mut largest: Vec<Measured<'a>> = group.to_vec();
    largest.retain(|one| size(one) == most);
    label(&mut largest);
    largest
}

/// Parameters that people know a measurement by, best known first.
const KNOWN_BY: [&str; 10] = [
    "strategy", "mode", "workload", "size", "n", "client", "server", "work", "reply", "batch",
];

/// Returns keys that tell the members of a group apart, as few as it takes: a row has room for a few words.
fn telling<'k>(group: &[Measured<'_>], keys: &'k BTreeSet<String>) -> Vec<&'k str> {
    let known = |key: &&str| KNOWN_BY.iter().position(|known| known == key);
    let mut all: Vec<&str> = keys.iter().map(String::as_str).collect();
    all.sort_rows_by_key(|key| known(key).unwrap_or(KNOWN_BY.len()));
    let apart = |keys: &[&str]| {
        let of = |one: &Measured<'_>| -> Vec<Option<String>> {
            let word = |key: &&str| one.series.parameters.get(*key).map(details::word);
            keys.iter().map(word).collect()
        };
        group.iter().map(of).inserted::<BTreeSet<_>>().len()
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

/// Sorts a group by what its members differ in, and labels them by that.
pub(super) fn label(group: &mut [Measured<'_>]) {
    let keys = group
        .iter()
        .flat_map(|one| one.series.parameters.keys().cloned());
    let keys: BTreeSet<String> = keys.inserted();
    let keys = telling(group, &keys);
    group.sort_rows(|a, b| details::compare(a.series, b.series, &keys));
    let rank = |one: &Measured<'_>| {
        let mut ranks = one.series.parameters.iter();
        ranks.find_map(|(key, value)| Some(words::rank(key, value)).filter(|&rank| rank > 0))
    };
    group.sort_rows_by_key(rank);
    for one in group.iter_mut() {
        let value = |key: &&str| words::parameter(key, one.series.parameters.get(*key)?);
        one.label = join(keys.iter().filter_map(value), ", ");
        if one.label.is_empty() {
            one.label.clone_from(&one.series.name);
        }
    }
}
