//! `stopgap check`: this machine, now and under test.

use std::collections::BTreeMap;
use std::process::ExitCode;

use stopgap_events::question::{FACTS, Facts, Question};
use stopgap_events::units::Nanos;
use stopgap_kernel::{now, signals};
use stopgap_probes::{CheckOptions, Probe, ProbeError};
use stopgap_report::{overall, screen};
use stopgap_stats::record::Answer;
use stopgap_stats::verdict::Verdict;

use crate::args;
use crate::failure::{DONE, Failure, UNSUPPORTED};
use crate::output;
use crate::places;
use crate::report;
use crate::session::Session;
use crate::voice;

pub(crate) fn run(args: &args::Check) -> Result<ExitCode, Failure> {
    let mut session = Session::begin(&args.common)?;
    let options = now::Options {
        pid: args.pid,
        ..now::Options::default()
    };
    if args.common.dry_run {
        return dry_run(&session, args);
    }
    let shown = now::read(session.system(), &options)?;
    let mappings = shown.process.as_ref().and_then(|process| process.mappings);
    session.run.now = Some(shown);
    if !args.passive {
        let probes = probes(&session, args, mappings);
        let all = probes.iter().fold(Nanos(0), |all, (_, time)| all + *time);
        session.expect(all, true);
        for (probe, time) in probes {
            if signals::interrupted() {
                break;
            }
            let question = probe.question();
            if let Err(error) = session.ask(probe.as_ref(), time) {
                let privilege = session.environment().privilege;
                session.add(unanswered(question, &error, privilege));
            }
            session.try_fixes(args.quick);
        }
    }
    session.end();
    session.run.verdict = Some(overall::judge(&session.run));
    let none = !args.passive && !session.run.answers.iter().any(Answer::answered);
    let record = output::name("check", session.run.started_unix_s);
    let directory = session.records.as_deref();
    let report = directory
        .map(|directory| report::of_run(&session.run, directory, &record))
        .transpose();
    let status = output::finish(
        &session.run,
        "check",
        directory,
        args.common.json,
        |run, place| {
            let style = voice::style();
            let report = report.as_ref().ok().and_then(Option::as_deref);
            let report = report.map(places::short);
            let mut text = screen::first(run, style) + &screen::more(run, report.as_deref(), style);
            if style.verbose {
                let evidence = screen::evidence(run, style);
                text += &format!("\n{evidence}{}", screen::foot(run, place));
            }
            text
        },
    )?;
    report?;
    if none {
        return Err(Failure::Silent {
            status: UNSUPPORTED,
        });
    }
    Ok(status)
}

/// Returns the probes in the order in which they are asked, with the time that each may take.
fn probes(
    session: &Session,
    args: &args::Check,
    mappings: Option<u64>,
) -> Vec<(Box<dyn Probe>, Nanos)> {
    let options = CheckOptions {
        system: session.system(),
        quick: args.quick,
        mappings: mappings.and_then(|n| u32::try_from(n).ok()),
    };
    let asked = |facts: &&Facts| match args.only.is_empty() {
        true => facts.in_check,
        false => args.only.contains(&facts.question),
    };
    let make = |facts: &Facts| {
        let time = match args.quick {
            true => facts.quick_time,
            false => facts.check_time,
        };
        (stopgap_probes::for_check(facts.question, &options), time)
    };
    FACTS.iter().filter(asked).map(make).collect()
}

/// The answer where the probe could not even begin.
fn unanswered(
    question: Question,
    error: &ProbeError,
    privilege: stopgap_events::machine::Privilege,
) -> Answer {
    Answer {
        question,
        parameters: BTreeMap::new(),
        verdict: Verdict::unsupported(&error.to_string()),
        figure: None,
        evidence: Vec::new(),
        advice: Vec::new(),
        privilege,
        series: Vec::new(),
        counters: Vec::new(),
        losses: Vec::new(),
        missing: Vec::new(),
        fixes: Vec::new(),
    }
}

/// Prints what would be touched and used.
fn dry_run(session: &Session, args: &args::Check) -> Result<ExitCode, Failure> {
    let mut text = String::from("RIGHT NOW reads /proc and /sys and changes nothing\n");
    if !args.passive {
        for (probe, time) in probes(session, args, None) {
            text.push_str(&crate::probe::describe(session, probe.as_ref(), time)?);
        }
    }
    output::print(&text)?;
    Ok(ExitCode::from(DONE))
}
