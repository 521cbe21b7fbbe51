//! `stopgap probe QUESTION`: one question in depth.

use std::process::ExitCode;

use stopgap_events::units::Nanos;
use stopgap_probes::Probe;
use stopgap_probes::chunks::{Chunks, Strategy};
use stopgap_probes::placement::Placement;
use stopgap_report::{details, screen};

use crate::args::{self, ChunksFlags, PlacementFlags, ProbeCommon, ProbeQuestion};
use crate::failure::{DONE, Failure, UNSUPPORTED};
use crate::output;
use crate::session::{self, Session};

pub(crate) fn run(args: args::Probe) -> Result<ExitCode, Failure> {
    match args.question {
        ProbeQuestion::Placement(flags) => {
            let common = flags.common.clone();
            ask(&common, |session| placement(flags, session))
        }
        ProbeQuestion::Chunks(flags) => {
            let common = flags.common.clone();
            ask(&common, |_| chunks(flags))
        }
    }
}

fn placement(flags: PlacementFlags, session: &Session) -> Box<dyn Probe> {
    let whole = Placement::check(session.system(), false);
    Box::new(Placement {
        ladder: flags.n,
        also: None,
        backends: flags.backend,
        steps: flags.steps,
        runs: flags.common.runs,
        threads: match flags.threads {
            None => whole.threads,
            Some(threads) => threads.into_iter().filter(|&n| n != 0).collect(),
        },
        agua_loops: flags.agua_loops,
        freegap_rounds: flags.freegap_rounds,
    })
}

fn chunks(flags: ChunksFlags) -> Box<dyn Probe> {
    Box::new(Chunks {
        sizes: flags.size,
        strategies: if flags.strategy.is_empty() {
            Strategy::ALL.to_vec()
        } else {
            flags.strategy
        },
        runs: flags.common.runs,
        buffers: flags.buffers,
        knobs: !flags.no_knobs,
    })
}

fn ask(
    flags: &ProbeCommon,
    probe: impl FnOnce(&Session) -> Box<dyn Probe>,
) -> Result<ExitCode, Failure> {
    let mut session = Session::begin(&flags.common)?;
    let probe = probe(&session);
    if flags.common.dry_run {
        output::print(&describe(&session, probe.as_ref(), flags.duration)?)?;
        return Ok(ExitCode::from(DONE));
    }
    session.ask(probe.as_ref(), flags.duration)?;
    session.end();
    let answered = session.run.answers.iter().all(|a| a.verdict.answered());
    let name = format!("probe-{}", probe.question());
    let status = output::finish(
        &session.run,
        &name,
        &session.records,
        flags.common.json,
        |run, place| {
            let style = session::style();
            let head = screen::environment_line(&run.environment);
            let answers = run.answers.iter().map(|a| details::answer(a, style));
            format!(
                "{head}\n{}\n{}",
                answers.collect::<String>(),
                screen::foot(run, place)
            )
        },
    )?;
    if answered {
        Ok(status)
    } else {
        Err(Failure::Silent {
            status: UNSUPPORTED,
        })
    }
}

/// What a probe would do, touch and use.
pub(crate) fn describe(
    session: &Session,
    probe: &dyn Probe,
    time: Nanos,
) -> Result<String, Failure> {
    let plan = session.plan(probe, time)?;
    let mut text = format!("{} {}\n", probe.question(), plan.what);
    text.push_str(&format!(
        "  uses at most {} of memory and about {}\n",
        plan.memory, plan.time
    ));
    if plan.touches.is_empty() {
        text.push_str("  changes no setting and leaves no file\n");
    }
    for touched in plan.touches {
        text.push_str(&format!("  touches and puts back {touched}\n"));
    }
    for missing in plan.missing {
        text.push_str(&format!("  unknown: {}: {}\n", missing.what, missing.why));
    }
    Ok(text)
}
