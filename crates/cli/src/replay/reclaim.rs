//! `stopgap replay reclaim`: what memory that must stay costs everyone else, were it held or released in another way.

use std::process::ExitCode;

use stopgap_events::question::Question;
use stopgap_events::reclaim::Load;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_models::reclaim::{
    self as model, Kernel, Lru, Policy, Prices, Release, Setting, advice, mail, not_validated,
    prices, row,
};
use stopgap_report::replay as tables;
use stopgap_report::text::plain;
use stopgap_stats::replay::{ReclaimSetting, Replay, Row, SCHEMA};

use super::measured::measured;
use crate::args::ReplayReclaim;
use crate::failure::Failure;
use crate::{output, places, session};

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
    let question = Question::Reclaim;
    let path = flags.beside.as_deref();
    let beside = path.map(|path| measured(path, question)).transpose()?;
    let directory = places::records(flags.record.output.as_deref())?;
    let started = Linux.unix_seconds();
    let bar = session::progress_bar();
    let gem = settings
        .iter()
        .any(|setting| setting.load == Load::GemSyslatency);
    let repetitions = flags.runs.unwrap_or(if gem { 1 } else { RUNS });
    let mut rows = Vec::new();
    for setting in &settings {
        if signals::interrupted() {
            break;
        }
        let outcome = model::runs(
            setting,
            costs(setting.load),
            (flags.seed, repetitions),
            &signals::interrupted,
        )
        .map_err(|error| Failure::error(error.to_string()))?;
        if !signals::interrupted() {
            rows.push(row(setting, &outcome, beside.as_ref()));
        }
        bar.set_position((rows.len() * 1_000 / settings.len()) as u64);
    }
    bar.finish_and_clear();
    let Some(load) = settings
        .first()
        .map(|setting| setting.load)
        .filter(|_| !rows.is_empty())
    else {
        return Err(Failure::error("interrupted before anything was measured"));
    };
    let replay = Replay {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        question,
        seed: flags.seed,
        repetitions,
        clock_ns: None,
        interrupted: signals::interrupted(),
        growth: Vec::new(),
        mail: None,
        chunks: None,
        roundtrip: None,
        reclaim: Some(ReclaimSetting {
            lru: flags.lru.to_string(),
            not_validated: not_validated(flags.lru),
            prices: prices(costs(load)),
            advice: advice(&rows),
            mail: mail(&rows),
            beside: path.map(|path| path.display().to_string()),
        }),
        rows: rows.into_iter().map(Row::Reclaim).collect(),
    };
    let name = output::name("replay-reclaim", started);
    output::document(
        &replay.to_json(),
        &name,
        &directory,
        flags.record.json,
        |place| {
            let screen = tables::screen(&replay, session::style());
            format!("{screen}record {}\n", plain(place))
        },
    )
}

/// The mail's load at the mail's prices.
fn costs(load: Load) -> &'static Prices {
    match load {
        Load::GemSyslatency => &Prices::MAIL,
        _ => &Prices::RECENT,
    }
}

/// The policies that were asked for, each once, and all of them where none was.
fn policies(words: &[String]) -> Result<Vec<Policy>, Failure> {
    let mut asked = Vec::new();
    for word in words.iter().filter(|word| *word != "all") {
        let policy = word.parse::<Policy>();
        asked.push(policy.map_err(|error| Failure::error(format!("{error}, all")))?);
    }
    let every = asked.is_empty() || words.iter().any(|word| word == "all");
    let wanted = |policy: &Policy| every || asked.contains(policy);
    Ok(Policy::ALL.iter().copied().filter(wanted).collect())
}

fn or<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual } else { given }.to_vec()
}

/// All combinations, each once: which way a policy that has one way is released is no parameter.
fn settings(flags: &ReplayReclaim) -> Result<Vec<Setting>, Failure> {
    let gem = |load: &Load| *load == Load::GemSyslatency;
    if flags.load.iter().any(gem) && !flags.load.iter().all(gem) {
        return Err(Failure::error(
            "gem-syslatency has prices of its own: replay it alone",
        ));
    }
    if flags.lru == Lru::Mglru && flags.kernel == Some(Kernel::Linux4_19) {
        return Err(Failure::error(
            "linux-4.19 has no multi-generational lists: leave out --kernel, or take --lru classic",
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
        let releases = or(
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
            Load::GemSyslatency if flags.lru == Lru::Classic => Kernel::Linux4_19,
            _ => Kernel::Linux6_12,
        };
        for pinned in or(&flags.pinned, &[usual]) {
            for policy in policies(&flags.policy)? {
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
                        lru: flags.lru,
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
