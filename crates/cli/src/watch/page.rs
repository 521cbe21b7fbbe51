//! A window that was taken out becomes a trace file, a page, and a line. In a process of its own, at
//! the lowest priority: the machine has just stalled, and a watch of weeks must not grow.

use std::fs;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;
use stopgap_explain::{Explainer, Findings, Options, around};
use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::LocalTime;
use stopgap_report::Style;
use stopgap_report::explain::{Show, screen, why};
use stopgap_report::text::{command_line, plain, wrap};
use stopgap_stats::explain::Waiting;
use stopgap_stats::history::doing;
use stopgap_stats::verdict::Word;
use stopgap_stats::watch::{Cause, Document, MappedBy, Page, Stall, Told, Trigger, TriggerKind};
use stopgap_trace::{Metadata, file};
use stopgap_tracer::perf::ElfNames;
use stopgap_tracer::spool::Spool;
use stopgap_tracer::waits::mappers;

use super::folder::{PAGE, TRACE, bound, stall_of};
use super::triggers::words;
use crate::failure::{DONE, ERROR, Failure};
use crate::output;
use crate::record::symbols;
use crate::session::{tell, tell_error};
use crate::whole_file::{self, WholeFile};

/// The file of when and why, beside the pages.
pub(super) const STALL: &str = "stall.json";
/// The most bytes that it has.
const LARGEST: u64 = 16 << 20;
/// Slow operations that are kept, so that those within the stall are among them.
const CANDIDATES: usize = 500;
/// Most stacks of code that maps on the page.
const STACKS: usize = 5;
/// Frames of such a stack in the line.
const INNERMOST: usize = 4;
/// Columns of the page, which is a file.
const WIDTH: u16 = 100;
/// Most slow operations on the page.
const SHOWN: usize = 10;

/// Makes the files of the window in `folder`, beside it, and says the line. All stalls there take `disk` at most.
pub(super) fn finish(folder: &Path, disk: Bytes, json: bool) -> Result<ExitCode, Failure> {
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
    let stall: Stall = serde_json::from_slice(&why).map_err(|error| wrong(&error))?;
    let stall_name = folder.file_name().and_then(stall_of);
    let (name, _) = stall_name.ok_or_else(|| wrong(&"its folder is none of a stall"))?;
    let directory = folder.parent().unwrap_or_else(|| Path::new("."));

    let path = directory.join(name);
    let trace = path.with_extension(TRACE);
    let (mut findings, waiting, written) = explain(&spool, &stall, &trace)?;
    let mut whole = true;
    let mut said = |what: &Path, result: Result<(), String>| match result {
        Ok(()) => Some(what.display().to_string()),
        Err(why) => {
            tell_error(&format!("cannot write {}: {why}", what.display()));
            whole = false;
            None
        }
    };
    let trace = said(&trace, written);
    let mapped_by = mapped_by(&spool, &stall);
    let (causes, (trigger, cause)) = match grows(&stall, &mapped_by) {
        // It shares its page with no other trigger.
        Some((trigger, cause)) => (vec![Some(cause.clone())], (Some(trigger), cause)),
        None => {
            let causes = around::causes(&stall, &waiting);
            let leads = around::headline(&stall, &causes);
            (causes, leads)
        }
    };
    let line = line(&stall, trigger, &cause);
    let leads = verdict(&stall, trigger, &cause);
    inside_first(&mut findings, &stall);
    let page = path.with_extension(PAGE);
    let text = text(
        &stall,
        &leads,
        (&cause, &causes),
        trace.as_deref(),
        &mapped_by,
        &findings,
    );
    let written = whole_file::write(&page, &text).map_err(|error| error.to_string());
    let page = said(&page, written);
    let place = page.clone();
    if json {
        let told = Told::Stall(Page {
            stall,
            cause,
            causes,
            trace,
            page,
            mapped_by,
            findings,
        });
        output::print(&Document::new(env!("CARGO_PKG_VERSION"), told).to_line())?;
    } else {
        let place = place.map_or(String::new(), |place| format!("  -> {place}"));
        output::screen(&format!("{}{place}", plain(&line)))?;
    }
    // With a full disk the pages are no more use than the room that they take.
    opened
        .remove(STALL.as_ref())
        .map_err(|error| wrong(&error))?;
    spool.remove()?;
    match bound(directory, disk) {
        Ok(0) => {}
        Ok(count) => tell(&format!(
            "{count} of the oldest stalls removed: all take {disk} at most"
        )),
        Err(error) => tell_error(&format!("{}: {error}", directory.display())),
    }
    Ok(ExitCode::from(if whole { DONE } else { ERROR }))
}

/// The findings of a trace; the waits within the window of each trigger; and whether the trace could be written.
type Explained = (Findings, Vec<Vec<Waiting>>, Result<(), String>);

/// Writes the events of the stall's trace to `path`, and explains them. That they could not be written does
/// not keep them from being explained.
fn explain(spool: &Spool, stall: &Stall, path: &Path) -> Result<Explained, Failure> {
    let mut trace = spool.trace(&symbols(spool))?;
    let options = Options {
        top: CANDIDATES,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(&trace.metadata(), options);
    explainer.watch(&around::windows(stall));
    let mut out = create(path);
    while let Some(event) = trace.next_event()? {
        if let Ok((_, writer)) = &mut out
            && let Err(error) = writer.write(&event)
        {
            out = Err(error.to_string()); // the incomplete file goes
        }
        explainer.row(event);
    }
    let written = out.and_then(|out| finish_trace(out, &trace.metadata()));
    let (findings, waiting) = explainer.finish_watched();
    Ok((findings, waiting, written))
}

/// Returns the code that mapped while the mappings of a process grew; nothing of another stall.
fn mapped_by(spool: &Spool, stall: &Stall) -> Vec<MappedBy> {
    let growth = |trigger: &&Trigger| trigger.kind == TriggerKind::MapGrowth;
    let trigger = stall.triggers.iter().find(growth);
    let Some(pid) = trigger.and_then(|trigger| trigger.pid) else {
        return Vec::new();
    };
    let found = mappers(spool, pid, Box::new(ElfNames::new(None)));
    let found = found.unwrap_or_else(|error| {
        tell(&format!("who maps is unknown: {error}"));
        Vec::new()
    });
    let by = found.into_iter().map(|mapper| MappedBy {
        calls: mapper.calls,
        frames: mapper.stack.frames().map(str::to_owned).collect(),
    });
    by.collect()
}

/// The trigger and cause of mappings that grow; `None` of another stall.
fn grows<'s>(stall: &'s Stall, mapped_by: &[MappedBy]) -> Option<(&'s Trigger, Cause)> {
    let mut triggers = stall.triggers.iter();
    let trigger = triggers.find(|trigger| trigger.kind == TriggerKind::MapGrowth)?;
    let growth = trigger.growth?;
    let calls: u64 = mapped_by.iter().map(|by| by.calls).sum();
    let by = mapped_by.first().map_or_else(
        || "by whom is unknown: nothing mapped while it was looked at".to_owned(),
        |by| {
            let from = by.frames.len().saturating_sub(INNERMOST);
            let frames = by.frames[from..].join(" > ");
            format!("by {frames} ({} of {calls} calls)", by.calls)
        },
    );
    let cause = Cause {
        word: "map-growth".to_owned(),
        text: format!(
            "{} mappings of {}, {} more per hour, {by}",
            growth.maps, growth.limit, growth.per_hour
        ),
        share: None,
        culprit: None,
        waiting: Vec::new(),
    };
    Some((trigger, cause))
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
        .sort_rows_by_key(|slow| outside(slow.begin_ns, slow.length_ns));
    findings.slow.truncate(SHOWN);
}

/// `14:02:11 memory pressure 162 ms in 1 s: memcg-reclaim, 71 % of ...`.
fn line(stall: &Stall, trigger: Option<&Trigger>, cause: &Cause) -> String {
    let trigger = trigger.map_or_else(String::new, words);
    format!("{} {trigger}: {}", clock(stall), cause.text)
}

/// Returns the headline of a page, when and by whom how much was lost for what, and what to try first.
fn verdict(stall: &Stall, trigger: Option<&Trigger>, cause: &Cause) -> [Option<String>; 3] {
    let lost = trigger.and_then(|trigger| trigger.measured_ns);
    let lost = lost.map_or(String::new(), |ns| format!(" {:.0} ms", ns as f64 / 1e6));
    let what = match trigger.map(|trigger| trigger.kind) {
        Some(TriggerKind::MemoryPressure) => format!("PROGRAMS WAITED{lost} FOR MEMORY"),
        Some(TriggerKind::IoPressure) => format!("PROGRAMS WAITED{lost} FOR THE DISK"),
        Some(TriggerKind::SlowCall) => match &*cause.word {
            "idle" | "may-be-idle" => format!("A THREAD WAITED{lost} IN A CALL"),
            _ => format!("A THREAD LOST{lost} IN A CALL"),
        },
        Some(TriggerKind::RunQueue) => format!("A THREAD WAS READY{lost} AND GOT NO CPU"),
        Some(TriggerKind::Blocked) => format!("A THREAD WAS IN STATE D{lost}"),
        Some(TriggerKind::CpuQuota) => format!("A CPU QUOTA STOPPED A THREAD{lost}"),
        Some(TriggerKind::Stopped) => format!("A SIGNAL STOPPED A PROGRAM{lost}"),
        Some(TriggerKind::MapGrowth) => "A PROCESS NEARS ITS LIMIT OF MAPPINGS".to_owned(),
        Some(TriggerKind::Mark) => "A PROGRAM MARKED A MOMENT".to_owned(),
        Some(TriggerKind::Frame) => format!("A FRAME CAME{lost} LATE"),
        Some(TriggerKind::CutOff) => "THE LAST SECONDS BEFORE THE WATCH WAS CUT OFF".to_owned(),
        Some(TriggerKind::Request) | None => "WRITTEN ON REQUEST".to_owned(),
    };
    // The sentence below names the cause where these words already have it, or where somebody asked for the trace.
    let kind = trigger.map(|trigger| trigger.kind);
    let asked = matches!(
        kind,
        Some(TriggerKind::Request | TriggerKind::CutOff | TriggerKind::Mark) | None
    );
    let why = match (&*cause.word, kind) {
        _ if asked => String::new(),
        ("unknown", _) => ": CANNOT TELL WHY".to_owned(),
        ("idle", _) => ", FOR WORK OR ON PURPOSE".to_owned(),
        ("may-be-idle", _) => ", PERHAPS FOR WORK".to_owned(),
        ("run-queue", Some(TriggerKind::RunQueue))
        | ("cpu-quota", Some(TriggerKind::CpuQuota))
        | ("stopped", Some(TriggerKind::Stopped))
        | ("io", Some(TriggerKind::IoPressure))
        | ("on-cpu" | "map-growth", _) => String::new(),
        (word, _) => format!(", {}", doing(word).to_uppercase()),
    };
    let trigger = trigger.map_or_else(String::new, |trigger| format!(", {}", words(trigger)));
    // The first line has the word.
    let text = cause.text.strip_prefix(&*cause.word);
    let text = text.and_then(|text| text.strip_prefix(", ").or(text.strip_prefix(": ")));
    let text = text.unwrap_or(&cause.text);
    let first = around::advice(cause).filter(|_| !asked);
    [
        Some(format!("{what}{why}")),
        Some(format!("{}{trigger}. {text}.", clock(stall))),
        first.map(|first| format!("Try first: {}.", first.text)),
    ]
}

/// Returns the time of day of a stall.
fn clock(stall: &Stall) -> String {
    LocalTime::at(stall.unix_s).map_or_else(|| stall.unix_s.to_string(), LocalTime::clock)
}

/// Returns the page: the verdict, why the threads of the stall waited, the triggers, where the trace is, and what the whole trace
/// comes to.
fn text(
    stall: &Stall,
    verdict: &[Option<String>],
    (cause, causes): (&Cause, &[Option<Cause>]),
    trace: Option<&str>,
    mapped_by: &[MappedBy],
    findings: &Findings,
) -> String {
    let style = Style {
        width: WIDTH,
        colour: false,
        verbose: false,
    };
    let into = |ns: u64| (ns as f64 - stall.from_ns as f64) / 1e9;
    let mut rows = vec![("CAUSE", cause.word.clone())];
    for (trigger, own) in stall.triggers.iter().zip(causes) {
        // The first line has that of the trigger that leads.
        let own = own.as_ref().filter(|own| own.text != cause.text);
        let why = own.map_or(String::new(), |own| format!(": {}", own.text));
        let at = into(trigger.at_ns);
        let row = format!("{}, {at:.1} s into the trace{why}", words(trigger));
        rows.push(("FIRED", row));
    }
    if stall.suppressed > 0 {
        let row = format!(
            "{} more times since the last trace, too soon after it for traces of their own",
            stall.suppressed
        );
        rows.push(("FIRED", row));
    }
    rows.push((
        "WINDOW",
        format!(
            "the trace covers {:.1} s; the stall lasts from {:.1} s to {:.1} s",
            into(stall.taken_ns),
            into(stall.begin_ns),
            into(stall.end_ns),
        ),
    ));
    let calls: u64 = mapped_by.iter().map(|by| by.calls).sum();
    for by in mapped_by.iter().take(STACKS) {
        let row = format!("{} of {calls} calls: {}", by.calls, by.frames.join(" > "));
        rows.push(("MAPPED", row));
    }
    match trace {
        Some(trace) => {
            let more = ["stopgap", "explain", trace, "--verbose"].map(str::to_owned);
            rows.push(("TRACE", trace.to_owned()));
            rows.push(("MORE", command_line(&more)));
        }
        None => rows.push(("TRACE", "not written".to_owned())),
    }
    let mut text = String::new();
    for line in verdict.iter().flatten() {
        text.push_str(&wrap(&plain(line), style.width, 2));
    }
    let why = why(&cause.waiting, style);
    if !why.is_empty() {
        text.push_str(&format!("\nWHY\n{why}"));
    }
    text.push('\n');
    for (word, row) in rows {
        text.push_str(&row_of(word, &row, style.width));
    }
    // The findings have nothing where there are waits only: the cause above is all that is known.
    if findings.verdict.word != Word::Unsupported {
        text.push_str("\nTHE WHOLE TRACE\n");
        let whole = screen(findings, style, Show::Story);
        // Where the waits of the stall tell why, those of all threads are left to `stopgap explain`.
        let whole = match why.is_empty() {
            true => &*whole,
            false => whole.split_inclusive("\n\n").next().unwrap_or_default(),
        };
        text.push_str(whole.trim_end());
        text.push('\n');
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::explain::{Idleness, Link};

    fn link(cause: &str, text: &str, task: &str, links: Vec<Link>) -> Link {
        Link {
            cause: cause.to_owned(),
            text: text.to_owned(),
            task: Some(task.to_owned()),
            tid: None,
            call: None,
            place: None,
            device: None,
            ns: 402_000_000,
            share: 1.0,
            links,
        }
    }

    fn stall(task: &str) -> Stall {
        let trigger = Trigger {
            measured_ns: Some(402_000_000),
            call: Some("recvfrom".to_owned()),
            tid: Some(812),
            task: Some(task.to_owned()),
            ..Trigger::new(TriggerKind::SlowCall, 7_000_000_000)
        };
        Stall {
            unix_s: 0,
            triggers: vec![trigger],
            begin_ns: 6_600_000_000,
            end_ns: 7_000_000_000,
            from_ns: 0,
            taken_ns: 8_000_000_000,
            suppressed: 0,
        }
    }

    /// A server's fsync behind another program's writes.
    fn cause(task: &str) -> Cause {
        let disk = link(
            "disk",
            "disk vda, behind requests of tar",
            "tar",
            Vec::new(),
        );
        let server = link("io", "server was in fsync", "server", vec![disk]);
        let waiting = Waiting {
            task: task.to_owned(),
            threads: 1,
            cause: "data".to_owned(),
            text: "was in recvfrom".to_owned(),
            call: Some("recvfrom".to_owned()),
            place: None,
            idleness: Idleness::Stalled,
            waits: 1,
            total_ns: 402_000_000,
            steps: Vec::new(),
            longest_ns: 402_000_000,
            longest_at_ns: 0,
            longest_tid: 812,
            links: vec![server],
        };
        Cause {
            word: "answer".to_owned(),
            text: "answer, 100 % of 402 ms: was in recvfrom > server was in fsync".to_owned(),
            share: Some(1.0),
            culprit: None,
            waiting: vec![waiting],
        }
    }

    fn page(stall: &Stall, cause: &Cause) -> String {
        let options = Options {
            top: 1,
            frame_marker: None,
            request: None,
        };
        let (findings, _) = Explainer::new(&Metadata::default(), options).finish_watched();
        let verdict = verdict(stall, stall.triggers.first(), cause);
        let causes = [Some(cause.clone())];
        text(
            stall,
            &verdict,
            (cause, &causes),
            Some("a.parquet"),
            &[],
            &findings,
        )
    }

    #[test]
    fn a_page_begins_with_what_happened_why_and_what_to_try() {
        let page = page(&stall("client"), &cause("client"));
        let joined = page.replace("\n  ", " ");
        let lines: Vec<&str> = joined.lines().collect();
        assert_eq!(
            lines[0],
            "A THREAD LOST 402 ms IN A CALL, WAITING FOR AN ANSWER OF ANOTHER THREAD"
        );
        let told = ", recvfrom of client (812), 402 ms lost. 100 % of 402 ms: was in recvfrom > server was in fsync.";
        assert!(lines[1].ends_with(told), "{page}");
        assert!(
            lines[2].starts_with("Try first: put what tar writes on another disk"),
            "{page}"
        );
        assert!(
            page.contains("\nWHY\n  client lost 402 ms in 1 wait"),
            "{page}"
        );
        assert!(page.contains("disk vda, behind requests of tar"), "{page}");
        assert!(
            page.contains("\nMORE    stopgap explain a.parquet --verbose\n"),
            "{page}"
        );
    }

    #[test]
    fn an_unknown_cause_is_said_in_the_first_line() {
        let unknown = Cause {
            word: "unknown".to_owned(),
            text: "unknown: no thread lost time within the stall".to_owned(),
            share: None,
            culprit: None,
            waiting: Vec::new(),
        };
        let page = page(&stall("client"), &unknown);
        let first = page.lines().next().unwrap();
        assert_eq!(first, "A THREAD LOST 402 ms IN A CALL: CANNOT TELL WHY");
        let told = ", recvfrom of client (812), 402 ms lost. no thread lost time within the stall.";
        assert!(page.contains(told), "{page}");
        assert!(
            !page.contains("Try first") && !page.contains("\nWHY\n"),
            "{page}"
        );
    }

    #[test]
    fn a_name_obeys_nobody_and_breaks_no_line() {
        let name = "\u{1b}[2J\n\u{202e}<b>";
        let page = page(&stall(name), &cause(name));
        assert!(page.contains("\\u{1b}[2J\\u{a}\\u{202e}<b>"), "{page}");
        assert!(
            page.chars()
                .all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
            "{page}"
        );
        assert!(
            page.lines()
                .all(|line| line.chars().count() <= usize::from(WIDTH)),
            "{page}"
        );
    }
}
