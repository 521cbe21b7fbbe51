//! `stopgap replay reclaim`: what memory that must stay costs everyone else, were it held or released in another way.

use std::process::ExitCode;

use stopgap_events::question::Question;
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::signals;
use stopgap_models::reclaim::{
    self as model, Kernel, LRU, Policy, Prices, Release, Setting, advice, mail, row,
};
use stopgap_stats::replay::{ReclaimSetting, Replay, Row};

use super::measured::measured;
use super::{Destination, given_or, policies, record};
use crate::args::ReplayReclaim;
use crate::failure::Failure;

/// Most rows: more are no table, and each takes seconds.
const MOST_ROWS: usize = 500;
/// Runs of a row, as the probe makes.
const RUNS: u32 = 6;
/// Most modelled memory of a row: 48 bytes a page are 768 MiB.
const MOST_MEMORY: Bytes = Bytes::gib(64);

/// Replays what `flags` say, writes the record and prints it.
pub(crate) fn run(flags: &ReplayReclaim) -> Result<ExitCode, Failure> {
    signals::install();
    let settings = settings(flags)?;
    let path = flags.beside.as_deref();
    let beside = path
        .map(|path| measured(path, Question::Reclaim))
        .transpose()?;
    let destination = Destination::new(&flags.record.place, flags.record.json)?;
    let gem = settings
        .iter()
        .any(|setting| setting.load == Load::GemSyslatency);
    let repetitions = flags.runs.unwrap_or(if gem { 1 } else { RUNS });
    let rows = super::rows(
        &settings,
        |_| String::new(),
        |setting, _| {
            let outcome = model::runs(
                setting,
                costs(setting.load),
                (flags.seed, repetitions),
                &signals::interrupted,
            )
            .map_err(|error| Failure::error(error.to_string()))?;
            let whole = !signals::interrupted();
            Ok(Vec::from_iter(
                whole.then(|| row(setting, &outcome, beside.as_ref())),
            ))
        },
    )?;
    let load = settings.first().map_or(Load::Mixed, |setting| setting.load);
    destination.replay(&Replay {
        seed: flags.seed,
        repetitions,
        interrupted: signals::interrupted(),
        reclaim: Some(ReclaimSetting {
            lru: LRU.to_owned(),
            not_validated: None,
            prices: costs(load).assumptions(),
            advice: advice(&rows),
            mail: mail(&rows),
            beside: path.map(|path| path.display().to_string()),
        }),
        rows: rows.into_iter().map(Row::Reclaim).collect(),
        ..record(Question::Reclaim)
    })
}

/// The mail's load at the mail's prices.
fn costs(load: Load) -> &'static Prices {
    match load {
        Load::GemSyslatency => &Prices::MAIL,
        _ => &Prices::RECENT,
    }
}

/// All combinations, each once: which way a policy that has one way is released is no parameter.
fn settings(flags: &ReplayReclaim) -> Result<Vec<Setting>, Failure> {
    let gem = |load: &Load| *load == Load::GemSyslatency;
    if flags.load.iter().any(gem) && !flags.load.iter().all(gem) {
        return Err(Failure::error(
            "gem-syslatency has prices of its own: replay it without other loads",
        ));
    }
    if flags.limit > MOST_MEMORY {
        return Err(Failure::error(format!(
            "a limit of {}: give at most {MOST_MEMORY}",
            flags.limit
        )));
    }
    let mut settings = Vec::new();
    for &load in &flags.load {
        let releases = given_or(
            &flags.release,
            if gem(&load) {
                Release::ALL
            } else {
                &[Release::BatchResched]
            },
        );
        let usual = match load {
            Load::GemSyslatency => Bytes(flags.limit.0 / 32 * 29),
            _ => Bytes(flags.limit.0 / 2),
        };
        let kernel = match load {
            Load::GemSyslatency => Kernel::Linux4_19,
            _ => Kernel::Linux6_12,
        };
        for pinned in given_or(&flags.pinned, &[usual]) {
            for policy in policies(&flags.policy, Policy::ALL)? {
                for &release in if policy.marks() {
                    &releases[..]
                } else {
                    &releases[..1]
                } {
                    let setting = Setting {
                        policy,
                        release,
                        pinned,
                        limit: flags.limit,
                        load,
                        file: flags.file,
                        swap: if flags.no_swap { Bytes(0) } else { flags.swap },
                        swappiness: flags.swappiness,
                        kernel: flags.kernel.unwrap_or(kernel),
                        statistics: flags.statistics,
                        time: flags.time,
                        folio: flags.folio,
                        warm_up: gem(&load).then_some(Nanos(flags.time.0 / 3)),
                    };
                    setting
                        .validate()
                        .map_err(|error| Failure::error(error.to_string()))?;
                    if !settings.contains(&setting) {
                        settings.push(setting);
                    }
                }
            }
        }
    }
    match settings.len() {
        0..=MOST_ROWS => Ok(settings),
        many => Err(Failure::error(format!(
            "{many} combinations: give shorter lists, {MOST_ROWS} rows in all at most"
        ))),
    }
}
