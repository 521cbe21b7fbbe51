//! A window that was taken out becomes a trace file, a page, and a line. In a process of its own, at
//! the lowest priority: the machine has just stalled, and a watch of weeks must not grow.

use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use stopgap_events::units::Nanos;
use stopgap_explain::{Explainer, Findings, Options, around};
use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::LocalTime;
use stopgap_report::explain::screen;
use stopgap_report::text::{plain, wrap};
use stopgap_stats::watch::{Cause, Document, Page, Stall, Told, Trigger, TriggerKind};
use stopgap_trace::{Metadata, file};
use stopgap_tracer::capture::complete_from;
use stopgap_tracer::spool::Spool;

use super::folder::{PAGE, TRACE, stall_of};
use super::triggers::words;
use crate::failure::{DONE, ERROR, Failure};
use crate::output;
use crate::record::symbols;
use crate::session::{style, tell};
use crate::whole_file::{self, WholeFile};

/// The file of when and why, beside the pages.
pub(super) const STALL: &str = "stall.json";
/// The most bytes that it has.
const LARGEST: u64 = 16 << 20;
/// Length of the trace before a stall, which had begun before it was felt.
const BEFORE: Nanos = Nanos::secs(10);
/// Slow operations that are looked at for the cause.
const CANDIDATES: usize = 500;
/// Most slow operations on the page.
const SHOWN: usize = 10;

/// Makes the files of the window in `spool`, beside it, and says the line.
pub(super) fn finish(folder: &Path, json: bool) -> Result<ExitCode, Failure> {
    if let Err(error) = Linux.be_nice() {
        tell(&format!("the page is made at ordinary priority: {error}"));
    }
    let spool = Spool::open(folder)?;
    let opened = Folder::open(folder)
        .map_err(|error| Failure::error(format!("{}: {error}", folder.display())))?;
    let wrong = |why: &dyn std::fmt::Display| {
        let place = folder.join(STALL);
        Failure::error(format!("{}: {why}", place.display()))
    };
    let why = opened.content(STALL.as_ref(), LARGEST);
    let why = why.map_err(|error| wrong(&error))?;
    let mut stall: Stall = serde_json::from_slice(&why).map_err(|error| wrong(&error))?;
    let stall_name = folder.file_name().and_then(stall_of);
    let (name, _) = stall_name.ok_or_else(|| wrong(&"its folder is none of a stall"))?;
    let directory = folder.parent().unwrap_or_else(|| Path::new("."));

    let complete = complete_from(&spool)?.unwrap_or(Nanos(0)).0;
    let begin = stall.begin_ns.saturating_sub(BEFORE.0);
    stall.from_ns = stall.from_ns.max(begin).max(complete);
    let path = directory.join(name);
    let trace = path.with_extension(TRACE);
    let (mut findings, written) = explain(&spool, &mut stall, &trace)?;
    let mut whole = true;
    let mut said = |what: &Path, result: Result<(), String>| match result {
        Ok(()) => Some(what.display().to_string()),
        Err(why) => {
            tell(&format!("cannot write {}: {why}", what.display()));
            whole = false;
            None
        }
    };
    let trace = said(&trace, written);
    let (trigger, cause) = around::headline(&findings, &stall);
    let line = line(&stall, trigger, &cause);
    inside_first(&mut findings, &stall);
    let page = path.with_extension(PAGE);
    let text = text(&stall, &line, &cause, trace.as_deref(), &findings);
    let written = whole_file::write(&page, &text).map_err(|error| error.to_string());
    let page = said(&page, written);
    let place = page.clone();
    if json {
        let told = Told::Stall(Page {
            stall,
            cause,
            trace,
            page,
            findings,
        });
        output::print(&Document::new(env!("CARGO_PKG_VERSION"), told).to_line())?;
    } else {
        let place = place.map_or(String::new(), |place| format!("  -> {place}"));
        output::print(&format!("{}{place}", plain(&line)))?;
    }
    // With a full disk the pages are no more use than the room that they take.
    opened
        .remove(STALL.as_ref())
        .map_err(|error| wrong(&error))?;
    spool.remove()?;
    Ok(ExitCode::from(if whole { DONE } else { ERROR }))
}

/// Writes the events of the stall's trace to `path`, and explains them. That they could not be written does
/// not keep them from being explained. Threads whose names were not known when they fired get them.
fn explain(
    spool: &Spool,
    stall: &mut Stall,
    path: &Path,
) -> Result<(Findings, Result<(), String>), Failure> {
    let mut trace = spool.trace(&symbols(spool))?;
    let options = Options {
        top: CANDIDATES,
        frame_marker: None,
    };
    let mut explainer = Explainer::new(&trace.metadata(), options);
    let from = stall.from_ns;
    // A call that fired may have begun before the trace.
    for trigger in &stall.triggers {
        let begin = (trigger.at_ns).saturating_sub(trigger.measured_ns.unwrap_or(0));
        if let (TriggerKind::SlowCall, Some(tid), Some(call)) =
            (trigger.kind, trigger.tid, &trigger.call)
            && begin < from
            && from < trigger.at_ns
        {
            explainer.is_in_call(tid, call, from);
        }
    }
    let mut nameless: Vec<&mut Trigger> = (stall.triggers.iter_mut())
        .filter(|trigger| trigger.tid.is_some() && trigger.task.is_none())
        .collect();
    let mut out = create(path);
    while let Some(event) = trace.next_event()? {
        for trigger in &mut nameless {
            if event.tid == trigger.tid
                && let Some(comm) = &event.comm
                && event.time.0 <= trigger.at_ns
                && trigger.task.as_deref() != Some(&**comm)
            {
                trigger.task = Some(comm.to_string());
            }
        }
        // The decoder has learned names from what came before.
        if event.time.0 >= from {
            explainer.event(&event);
            if let Ok((_, writer)) = &mut out
                && let Err(error) = writer.write(&event)
            {
                out = Err(error.to_string()); // the incomplete file goes
            }
        }
    }
    let written = out.and_then(|out| finish_trace(out, &trace.metadata()));
    Ok((explainer.finish(), written))
}

type Writer = file::Writer<BufWriter<fs::File>>;

/// Starts the trace file `path`.
fn create(path: &Path) -> Result<(WholeFile, Writer), String> {
    let whole = WholeFile::private(path).map_err(|e| e.to_string())?;
    let copy = whole.file().try_clone().map_err(|e| e.to_string())?;
    let writer = file::Writer::new(BufWriter::with_capacity(1 << 18, copy));
    Ok((whole, writer.map_err(|e| e.to_string())?))
}

fn finish_trace((whole, writer): (WholeFile, Writer), metadata: &Metadata) -> Result<(), String> {
    let out = writer.finish(metadata).map_err(|e| e.to_string())?;
    out.into_inner().map_err(|e| e.to_string())?;
    whole.finish().map_err(|e| e.to_string())
}

/// Slow operations that overlap the stall before the others; of both the slowest first.
fn inside_first(findings: &mut Findings, stall: &Stall) {
    let outside = |begin: u64, length: u64| {
        begin > stall.end_ns || begin.saturating_add(length) < stall.begin_ns
    };
    findings
        .slow
        .sort_by_key(|slow| outside(slow.begin_ns, slow.length_ns));
    findings.slow.truncate(SHOWN);
}

/// `14:02:11 memory pressure 162 ms in 1 s: memcg-reclaim, 71 % of ...`.
fn line(stall: &Stall, trigger: Option<&Trigger>, cause: &Cause) -> String {
    let clock =
        LocalTime::at(stall.unix_s).map_or_else(|| stall.unix_s.to_string(), LocalTime::clock);
    let trigger = trigger.map_or_else(String::new, words);
    format!("{clock} {trigger}: {}", cause.text)
}

/// The page.
fn text(
    stall: &Stall,
    line: &str,
    cause: &Cause,
    trace: Option<&str>,
    findings: &Findings,
) -> String {
    let style = stopgap_report::Style {
        colour: false,
        ..style()
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    let since = |ns: u64| ms(stall.taken_ns) - ms(ns);
    let mut rows = vec![("CAUSE", cause.word.clone())];
    for trigger in &stall.triggers {
        let before = since(trigger.at_ns).max(0.0);
        let row = format!("{}, {before:.0} ms before the end", words(trigger));
        rows.push(("FIRED", row));
    }
    if stall.suppressed > 0 {
        let row = format!(
            "{} times more since the window before, too near to it",
            stall.suppressed
        );
        rows.push(("FIRED", row));
    }
    rows.push((
        "WINDOW",
        format!(
            "the trace has the last {:.1} s; the stall is looked for from {:.0} ms to {:.0} ms before its end; \
             then nothing was traced for {:.1} ms",
            since(stall.from_ns) / 1e3,
            since(stall.begin_ns),
            since(stall.end_ns),
            ms(stall.gap_ns)
        ),
    ));
    rows.push(("TRACE", trace.unwrap_or("could not be written").to_owned()));
    let mut text = wrap(&plain(line), style.width, 2);
    text.push('\n');
    for (word, row) in rows {
        text.push_str(&row_of(word, &row, style.width));
    }
    text.push('\n');
    text.push_str(&screen(findings, style));
    text
}

/// A word and what it says, in two columns.
fn row_of(word: &str, row: &str, width: u16) -> String {
    let text = wrap(&plain(row), width.saturating_sub(8), 0);
    let mut lines = text.lines();
    let mut rows = format!("{word:<8}{}\n", lines.next().unwrap_or_default());
    for line in lines {
        rows.push_str(&format!("{:8}{line}\n", ""));
    }
    rows
}
