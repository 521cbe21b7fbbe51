//! `stopgap explain`: what a recorded trace shows.

use std::path::Path;
use std::process::ExitCode;

use stopgap_explain::{Explainer, Options};
use stopgap_kernel::signals;
use stopgap_report::explain::{Show, screen};
use stopgap_stats::document::Document;
use stopgap_stats::explain::{Explain, Findings, SCHEMA, UNSEEN_CALLS, WindowKind};
use stopgap_trace::{Input, Metadata};

use crate::args;
use crate::failure::{DONE, ERROR, Failure};
use crate::session::tell;
use crate::{input_file, output, session, voice};

pub(crate) mod ahead;

/// Events between two looks at whether to stop.
const STRIDE: u64 = 4_096;

/// Slow operations that may be asked for.
const MOST: u64 = 10_000;

/// Reads the trace once and prints what it shows. What can be read of a damaged one is explained, too; the exit
/// status says that it was.
pub(crate) fn run(args: &args::Explain) -> Result<ExitCode, Failure> {
    signals::install();
    let (explain, damaged) = document(args)?;
    if args.json {
        output::print(&explain.to_json())?;
    } else {
        let style = voice::style();
        let show = match style.verbose {
            true => Show::All,
            false => Show::Story,
        };
        output::screen(&screen(&explain.findings, style, show))?;
    }
    let Some(damaged) = damaged else {
        return Ok(ExitCode::from(DONE));
    };
    let _ = damaged.report(); // the status is ours: what was printed is not the whole
    Ok(ExitCode::from(ERROR))
}

/// The document, and why the trace was not read to its end.
///
/// # Errors
/// Where there is nothing of it to explain, or a flag asks for what cannot be.
pub(crate) fn document(args: &args::Explain) -> Result<(Explain, Option<Failure>), Failure> {
    let top = usize::try_from(args.top.min(MOST)).unwrap_or(usize::MAX);
    if args.top > MOST {
        return Err(Failure::error(format!(
            "--top {}: at most {MOST}",
            args.top
        )));
    }
    let options = Options {
        top,
        frame_marker: args.frame_marker.clone(),
        request: args.request.clone(),
    };
    let Explained {
        findings, damaged, ..
    } = explained(&args.trace, options)?;
    let explain = Explain {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        findings,
    };
    let frames = explain.findings.switches.frames.as_ref();
    if let Some(frames) = frames.filter(|frames| frames.count == 0) {
        tell(&format!(
            "--frame-marker {}: it did not come twice, so there is no frame to explain",
            frames.marker
        ));
    }
    let windows = explain
        .findings
        .chains
        .iter()
        .flat_map(|chains| &chains.windows);
    let mut requests = windows.filter(|windows| windows.kind == WindowKind::Request);
    if let Some(request) = &args.request {
        let none = requests.all(|windows| windows.count == 0);
        let unseen = (explain.findings.missing.iter()).any(|missing| missing.what == UNSEEN_CALLS);
        let advice = "record with --events all for every call, or let the program write marks (docs/watch.md)";
        match (none, unseen && request.has_calls()) {
            (true, true) => tell(&format!(
                "--request {request}: found none. The trace has only calls in which a thread waited or woke another; {advice}"
            )),
            (true, false) => tell(&format!(
                "--request {request}: the trace has none from begin to end"
            )),
            (false, true) => tell(&format!(
                "--request {request}: some are missing, or two count as one: the trace has only calls in which a thread waited or \
                 woke another; {advice}"
            )),
            (false, false) => {}
        }
    }
    Ok((explain, damaged))
}

/// A trace, explained as far as it can be read.
pub(crate) struct Explained {
    pub(crate) metadata: Metadata,
    pub(crate) findings: Findings,
    /// Why it was not read to its end.
    pub(crate) damaged: Option<Failure>,
}

/// Reads a trace once, event by event.
///
/// # Errors
/// Where there is nothing of it to explain.
pub(crate) fn explained(trace: &Path, options: Options) -> Result<Explained, Failure> {
    let name = trace.display();
    let wrong = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
    let file = input_file::trace(trace).map_err(|error| wrong(&error))?;
    let mut input = ahead::decoded(Input::new(file).map_err(|error| wrong(&error))?);
    let metadata = input.metadata().clone();
    let mut explainer = Explainer::new(&metadata, options);
    let mut damaged = None;
    let mut events = 0_u64;
    for event in input.by_ref() {
        match event {
            Ok(event) => explainer.event(&event),
            Err(_) if signals::interrupted() => {
                damaged = Some(interrupted(&mut explainer));
                break;
            }
            Err(error) if events == 0 => {
                return Err(wrong(&format!(
                    "{error}; there is nothing before it to explain"
                )));
            }
            Err(error) => {
                explainer.cut_short(error.to_string());
                damaged = Some(wrong(&format!(
                    "{error}; what comes before it is explained"
                )));
                break;
            }
        }
        events += 1;
        if events.is_multiple_of(STRIDE)
            && let Some(why) = explainer.is_full()
        {
            explainer.cut_short(&*why);
            damaged = Some(wrong(&format!("{why}; what comes before is explained")));
            break;
        }
        if events.is_multiple_of(STRIDE) && signals::interrupted() {
            damaged = Some(interrupted(&mut explainer));
            break;
        }
    }
    explainer.out_of_order(input.late());
    drop(input); // and the bar, before anything is printed
    Ok(Explained {
        metadata,
        findings: explainer.finish(),
        damaged,
    })
}

fn interrupted(explainer: &mut Explainer) -> Failure {
    explainer.cut_short("interrupted");
    Failure::error("interrupted; what was read is explained")
}
