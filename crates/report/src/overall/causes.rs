//! FOUR KNOWN CAUSES, TESTED: an answer as a state and one sentence.

use stopgap_events::machine::Now;
use stopgap_events::question::Question;
use stopgap_events::units::Nanos;
use stopgap_stats::overall::{Row, State};
use stopgap_stats::record::{Answer, Run, Series};
use stopgap_stats::verdict::Word;

use super::{row, then, unknown};
use crate::text::{number, thousands};

/// A program with this many mappings feels a search that grows with them (mail 000).
const MANY_MAPPINGS: u64 = 5_000;
/// Times whose ratio is below this are alike to a reader.
const ALIKE: f64 = 1.25;
/// A block that takes this long is a freeze that a person sees.
const FREEZE: Nanos = Nanos::millis(100);
/// Switches more than Linux itself needs for the pattern, as a factor.
const MORE_THAN_LINUX: f64 = 1.1;

/// A reason of as many characters fits a line.
const CLAUSE: usize = 52;

/// Returns a row for each question that was asked.
pub(super) fn rows(run: &Run) -> Vec<Row> {
    let of = |answer| of(answer, run.now.as_ref());
    run.answers.iter().map(of).collect()
}

pub(super) fn of(answer: &Answer, now: Option<&Now>) -> Row {
    let about = answer.question.word();
    match answer.verdict.word {
        Word::Inconclusive | Word::Unsupported => return unknown(about, &reason(answer)),
        _ => {}
    }
    match answer.question {
        Question::Placement => placement(answer, now),
        Question::Roundtrip => roundtrip(answer),
        Question::Chunks => chunks(answer),
        Question::Reclaim => reclaim(answer),
        Question::Wakeup => wakeup(answer),
    }
}

/// Returns why a question has no answer: the first clause of its verdict, in plain words.
fn reason(answer: &Answer) -> String {
    let text = &answer.verdict.text;
    let why = text.split_once(": ").map_or(&**text, |(_, why)| why);
    if let Some(rest) = why.strip_prefix("not fragmented") {
        let up = rest
            .split_once("up ")
            .and_then(|(_, up)| up.split_once(')'));
        let up = up.map_or(String::new(), |(up, _)| format!(" (up {up})"));
        return format!("memory is not fragmented{up}");
    }
    if why.starts_with("fragmented") && why.contains("nothing had to be compacted") {
        return "enough large blocks are free: nothing was compacted".to_owned();
    }
    if why.contains("positive control") {
        return "the machine was too busy: even the test's control failed".to_owned();
    }
    if why.starts_with("no swap") {
        return "without swap no such stall can be made".to_owned();
    }
    if why.chars().count() <= CLAUSE && !why.contains('(') {
        return why.to_owned();
    }
    let end = why.find([';', ',', '(']).unwrap_or(why.len());
    let end = match why[..end].chars().count() > CLAUSE {
        true => why[..end].find(": ").unwrap_or(end),
        false => end,
    };
    why[..end].trim_end().to_owned()
}

/// Returns the fix that is proven to help, as what to do.
fn fix(answer: &Answer) -> Option<(&'static str, &'static str)> {
    let helps = answer.fixes.iter().find(|fix| fix.helps() == Some(true))?;
    match (answer.question, &*helps.name) {
        (Question::Placement, _) => Some((
            "Try the fix on your program:",
            "stopgap run --fix arena --measure -- YOUR PROGRAM",
        )),
        (Question::Roundtrip, "batch-client") => Some((
            "Try the fix on your client:",
            "stopgap run --fix batch-client --measure -- YOUR CLIENT",
        )),
        _ => None,
    }
}

/// Returns the verdict as it is: for measurements of another kind (a real X server, a device), which the sentences of this
/// module do not fit.
fn by_word(answer: &Answer) -> Row {
    let state = match answer.verdict.word {
        Word::Flat | Word::Clean => State::Ok,
        _ => State::Look,
    };
    row(answer.question.word(), state, &*answer.verdict.text)
}

fn found(answer: &Answer, state: State, sentence: String, otherwise: (&str, &str)) -> Row {
    let (why, command) = fix(answer).unwrap_or(otherwise);
    then(row(answer.question.word(), state, sentence), why, command)
}

// placement

/// Returns the median time of the calls of one mapping beside so many, in nanoseconds.
fn time_of_map(answer: &Answer, backend: &str, n: u64) -> Option<f64> {
    let calls = ["create", "map", "first touch", "unmap", "destroy"];
    let of = |series: &&Series| {
        calls.contains(&&*series.name)
            && series.word("workload") == Some("pbobench")
            && series.word("backend") == Some(backend)
            && series.number("n") == Some(n)
    };
    let times: Vec<f64> = answer
        .series
        .iter()
        .filter(of)
        .filter_map(Series::median)
        .collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

fn placement(answer: &Answer, now: Option<&Now>) -> Row {
    let maps = answer
        .series
        .iter()
        .filter(|series| series.word("workload") == Some("pbobench"));
    let mut backends: Vec<&str> = maps
        .clone()
        .filter_map(|series| series.word("backend"))
        .collect();
    backends.sort_unstable();
    backends.dedup();
    let mut sizes: Vec<u64> = maps.filter_map(|series| series.number("n")).collect();
    sizes.sort_unstable();
    let least = sizes.iter().copied().find(|n| *n >= 1_000);
    let (Some(few), Some(many)) = (least, sizes.last().copied()) else {
        return by_word(answer);
    };
    let ratio = |backend: &&str| {
        let (few, many) = (
            time_of_map(answer, backend, few)?,
            time_of_map(answer, backend, many)?,
        );
        Some(many / few.max(1.0))
    };
    let worst = backends.iter().filter_map(ratio).fold(f64::NAN, f64::max);
    let (few, many) = (thousands(few), thousands(many));
    if answer.verdict.word != Word::Grows {
        // Flat means a ratio below 2, which a reader need not take for equal.
        let text = match worst < ALIKE || worst.is_nan() {
            true => format!("mapping memory is as fast beside {many} mappings as beside {few}"),
            false => format!(
                "mapping memory takes {}x as long beside {many} mappings as beside {few}",
                number(worst)
            ),
        };
        return row("placement", State::Ok, text);
    }
    let busiest = now.and_then(|now| now.mappings.first());
    let state = match busiest.is_some_and(|process| process.mappings >= MANY_MAPPINGS) {
        true => State::Cause,
        false => State::Look,
    };
    let text = format!(
        "mapping memory takes {}x as long beside {many} mappings as beside {few}",
        number(worst)
    );
    found(
        answer,
        state,
        text,
        ("See how it grows:", "stopgap probe placement"),
    )
}

// roundtrip

/// Returns the switches that Linux needs for a request of this cell: two, four where the client's read blocks twice
/// (`unix_stream_read_generic()` wakes it once without data), two a reply where each has a write of its own.
fn needed(series: &Series) -> f64 {
    let replies = match series.word("reply") {
        Some("each") => series.number("batch").unwrap_or(1) as f64,
        _ => 1.0,
    };
    let reads = series.word("client") == Some("read");
    2.0 * replies * if reads { 2.0 } else { 1.0 }
}

fn roundtrip(answer: &Answer) -> Row {
    let cells: Vec<(&Series, f64)> = answer
        .series
        .iter()
        .filter(|series| series.name == "switches")
        .filter_map(|series| Some((series, series.median()?)))
        .collect();
    let beyond = |(series, switches): &&(&Series, f64)| {
        // Each run of it, so that one that was disturbed does not count.
        let least = series.values().into_iter().fold(f64::INFINITY, f64::min);
        least > needed(series) * MORE_THAN_LINUX && *switches > needed(series) * MORE_THAN_LINUX
    };
    let ratio = |(series, switches): &(&Series, f64)| switches / needed(series);
    let worst = cells
        .iter()
        .filter(beyond)
        .max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    if let Some((series, switches)) = worst {
        let text = format!(
            "a request costs {} task switches, where Linux needs {}",
            number(*switches),
            number(needed(series))
        );
        let depth = ("See who switches:", "stopgap probe roundtrip");
        return then(row("roundtrip", State::Look, text), depth.0, depth.1);
    }
    // One that polls and has one reply: the least that a request can cost.
    let plain = |(series, _): &&(&Series, f64)| (needed(series) - 2.0).abs() < f64::EPSILON;
    let least = cells
        .iter()
        .filter(plain)
        .map(|(_, switches)| *switches)
        .fold(f64::NAN, f64::max);
    match least.is_nan() {
        false => {
            let least_there_can_be = match format!("{least:.1}").as_str() {
                "2.0" => ", as few as there can be",
                _ => "; 2 are the least there can be",
            };
            let text = format!("{least:.1} task switches per request{least_there_can_be}");
            row("roundtrip", State::Ok, text)
        }
        true => row(
            "roundtrip",
            State::Ok,
            "no more task switches per request than Linux needs",
        ),
    }
}

// chunks, reclaim, wakeup

/// Returns the longest sample of the series of this name, and the least time that counts as a stall.
fn longest(answer: &Answer, name: &str) -> (Option<Nanos>, Option<Nanos>) {
    let series = answer.series.iter().filter(|series| series.name == name);
    let blocks = || series.clone().flat_map(|series| &series.blocks);
    let worst = blocks()
        .filter_map(|block| block.histogram.as_ref()?.max())
        .max();
    let limit = blocks()
        .filter_map(|block| Some(block.stalls.as_ref()?.threshold_ns))
        .min();
    (worst.map(Nanos), limit.map(Nanos))
}

fn chunks(answer: &Answer) -> Row {
    let (worst, limit) = longest(answer, "block");
    let Some(worst) = worst else {
        return by_word(answer);
    };
    let limit = limit.map_or(String::new(), |limit| format!(" (warns at {limit})"));
    if answer.verdict.word == Word::Stalls {
        let state = match worst >= FREEZE {
            true => State::Cause,
            false => State::Look,
        };
        let text = format!("a piece of a large buffer took up to {worst}{limit}");
        let depth = (
            "See which way to build it stalls:",
            "sudo stopgap probe chunks",
        );
        return found(answer, state, text, depth);
    }
    row(
        "chunks",
        State::Ok,
        format!("no piece of a large buffer took longer than {worst}"),
    )
}

fn reclaim(answer: &Answer) -> Row {
    if !answer
        .series
        .iter()
        .any(|series| series.name == "scanned per reclaimed")
    {
        return by_word(answer);
    }
    let figure = answer.figure.as_ref().map(|figure| figure.value);
    if answer.verdict.word == Word::Excess {
        let times = figure.map_or("more".to_owned(), |value| format!("{}x the", number(value)));
        let text = format!("beside pinned memory the kernel scans {times} pages per page freed");
        let depth = (
            "See what it does to latency:",
            "sudo stopgap probe reclaim -d 60s",
        );
        return found(answer, State::Look, text, depth);
    }
    row(
        "reclaim",
        State::Ok,
        "held memory does not make others wait when memory is short",
    )
}

fn wakeup(answer: &Answer) -> Row {
    let (worst, _) = longest(answer, "wake-up");
    let worst = worst.unwrap_or_default();
    if answer.verdict.word == Word::Stalls {
        let state = match worst >= FREEZE {
            true => State::Cause,
            false => State::Look,
        };
        let text = format!("a thread that was due woke up to {worst} late");
        return found(
            answer,
            state,
            text,
            ("See who had its CPU:", super::now::RECORD),
        );
    }
    row(
        "wakeup",
        State::Ok,
        format!("a thread that was due woke at most {worst} late"),
    )
}
