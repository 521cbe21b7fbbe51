//! What watch said, held against what was injected and what else there was. Pure.

use std::fmt::Write as _;

use stopgap_stats::watch::{Document, Page, Told, TriggerKind};

use super::Kind;

/// A stall that was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injected {
    pub(super) kind: Kind,
    /// ns on the monotonic clock.
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The time between stalls.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    pub(super) ns: u64,
    /// CPU time of the watch in it.
    pub(super) cpu_ns: u64,
    /// When, and how long some task had waited for memory and for I/O by then.
    pub(super) pressure: Vec<(u64, [u64; 2])>,
}

/// The bench's own observations.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) injected: Vec<Injected>,
    /// Rounds of the load that took 9 ms or more: when and how long.
    pub(super) noted: Vec<(u64, u64)>,
    pub(super) quiet: Quiet,
    /// CPU time of a round of the load, before it was watched and while it was.
    pub(super) alone_us: f64,
    pub(super) watched_us: f64,
    /// Exit status of the watch.
    pub(super) status: Option<i32>,
}

pub(super) struct Verdict {
    pub(super) text: String,
    pub(super) holds: bool,
}

/// The share of one CPU that a watch may take while nothing happens.
const MOST_CPU: f64 = 0.02;
/// Pressure that others made is real from this part of the threshold on: our looks are not the watch's.
const REAL: f64 = 0.7;

/// `documents` is what watch printed.
pub(super) fn judge(documents: &str, seen: &Seen) -> Result<Verdict, String> {
    let mut pages = Vec::new();
    let mut ended = false;
    for line in documents.lines() {
        let document: Document =
            serde_json::from_str(line).map_err(|error| format!("what watch said: {error}"))?;
        match document.told {
            Told::Stall(page) => pages.push(page),
            Told::End(_) => ended = true,
        }
    }
    let mut text = format!(
        "{:<10} {:>8} {:>9}  {:<7} {:<6} named\n",
        "injected", "at", "took", "caught", "right"
    );
    let start = seen.injected.first().map_or(0, |first| first.begin);
    let (mut caught, mut right) = (0, 0);
    for one in &seen.injected {
        // A stall may have a second window: the one that names its cause counts.
        let mut of_it: Vec<&Page> = pages.iter().filter(|page| overlaps(page, one)).collect();
        of_it.sort_by_key(|page| !one.kind.is_named_by(&page.cause.word));
        let page = of_it.first();
        let named = page.is_some_and(|page| one.kind.is_named_by(&page.cause.word));
        caught += usize::from(page.is_some());
        right += usize::from(named);
        let word = |yes| if yes { "yes" } else { "NO" };
        let _ = writeln!(
            text,
            "{:<10} {:>6.1} s {:>6.0} ms  {:<7} {:<6} {}",
            one.kind.word(),
            (one.begin - start) as f64 / 1e9,
            (one.end - one.begin) as f64 / 1e6,
            word(page.is_some()),
            word(named),
            page.map_or("-", |page| &page.cause.text)
        );
    }
    let mut wrong = 0;
    for page in &pages {
        if seen.injected.iter().any(|one| overlaps(page, one)) {
            continue;
        }
        let real = is_real(page, seen);
        wrong += usize::from(!real);
        let _ = writeln!(
            text,
            "{:<10} {:>6.1} s            {}  {}",
            if real { "other's" } else { "FALSE" },
            (page.stall.begin_ns as f64 - start as f64) / 1e9,
            if real {
                "real: seen without watch, too;"
            } else {
                "nothing else saw it;"
            },
            page.cause.text
        );
    }
    let cpu = seen.quiet.cpu_ns as f64 / (seen.quiet.ns as f64).max(1.0);
    let count = seen.injected.len();
    let slower = (seen.watched_us / seen.alone_us - 1.0) * 100.0;
    let _ = write!(
        text,
        "caught {caught} of {count}, cause named {right} of {count}, false {wrong}\n\
         CPU time of watch while nothing happens: {:.2} % of one CPU over {:.0} s (at most {:.0} %)\n\
         a round of the load (mmap, 16 faults, munmap): {:.1} us of CPU time before, {:.1} us watched ({slower:+.0} %)\n",
        cpu * 100.0,
        seen.quiet.ns as f64 / 1e9,
        MOST_CPU * 100.0,
        seen.alone_us,
        seen.watched_us,
    );
    if seen.status != Some(0) || !ended {
        let _ = writeln!(text, "watch ended with status {:?}", seen.status);
    }
    let holds = caught == count
        && right == count
        && wrong == 0
        && cpu <= MOST_CPU
        && seen.status == Some(0)
        && ended;
    Ok(Verdict { text, holds })
}

fn overlaps(page: &Page, one: &Injected) -> bool {
    page.stall.begin_ns <= one.end && page.stall.end_ns >= one.begin
}

/// Whether what fired was there by somebody else's word.
fn is_real(page: &Page, seen: &Seen) -> bool {
    page.stall
        .triggers
        .iter()
        .any(|trigger| match trigger.kind {
            TriggerKind::SlowCall => {
                let length = trigger.measured_ns.unwrap_or(0);
                let begin = trigger.at_ns.saturating_sub(length);
                let in_load = |&(at, took): &(u64, u64)| at <= trigger.at_ns && at + took >= begin;
                seen.noted.iter().any(in_load)
            }
            TriggerKind::MemoryPressure => pressed(trigger.at_ns, trigger.threshold_ns, seen, 0),
            TriggerKind::IoPressure => pressed(trigger.at_ns, trigger.threshold_ns, seen, 1),
            TriggerKind::Request => false,
        })
}

/// Whether so much pressure was there in the two seconds before `at`.
fn pressed(at: u64, threshold: Option<u64>, seen: &Seen, resource: usize) -> bool {
    let window = at.saturating_sub(2_000_000_000)..=at + 500_000_000;
    let looks = seen
        .quiet
        .pressure
        .iter()
        .filter(|(when, _)| window.contains(when));
    let totals: Vec<u64> = looks.map(|(_, totals)| totals[resource]).collect();
    let waited = match (totals.first(), totals.last()) {
        (Some(first), Some(last)) => last.saturating_sub(*first),
        _ => 0,
    };
    waited as f64 >= threshold.unwrap_or(0) as f64 * REAL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(begin: u64, end: u64, word: &str, kind: &str) -> String {
        let findings = r#""findings":{"trace":{"events":0},"losses":{"limit":0.01,"contradictions":0,"disordered":0},
            "verdict":{"word":"clean","text":"clean"},"switches":{"per_roundtrip":{"distribution":[]},"causes":[],"pairs":[]},
            "tasks":[],"slow":[],"calls":[],"memory":{},"advice":[],"missing":[]}"#;
        format!(
            r#"{{"schema":"stopgap.watch/1","version":"0","told":"stall","unix_s":0,"triggers":[{{"kind":"{kind}",
            "at_ns":{end},"measured_ns":5,"threshold_ns":100,"open":false}}],"begin_ns":{begin},"end_ns":{end},"from_ns":0,
            "taken_ns":{end},"gap_ns":0,"suppressed":0,"cause":{{"word":"{word}","text":"{word}, 90 %"}},{findings}}}"#
        )
        .replace('\n', "")
    }

    const END: &str = r#"{"schema":"stopgap.watch/1","version":"0","told":"end","stalls":1,"suppressed":0,"failed":0,"watched_ns":1,"why":"x"}"#;

    fn seen(cpu_ns: u64) -> Seen {
        Seen {
            injected: vec![Injected {
                kind: Kind::Populate,
                begin: 1_000,
                end: 2_000,
            }],
            noted: vec![(5_000, 20)],
            quiet: Quiet {
                ns: 1_000,
                cpu_ns,
                pressure: Vec::new(),
            },
            alone_us: 10.0,
            watched_us: 11.0,
            status: Some(0),
        }
    }

    #[test]
    fn it_holds_when_all_is_caught_and_named() {
        let said = format!("{}\n{END}", line(1_500, 2_500, "mmap_lock", "slow-call"));
        let verdict = judge(&said, &seen(20)).unwrap();
        assert!(verdict.holds, "{}", verdict.text);
        assert!(
            verdict
                .text
                .contains("caught 1 of 1, cause named 1 of 1, false 0")
        );
        assert!(!judge(&said, &seen(21)).unwrap().holds, "more than 2 %");
        let wrong = format!("{}\n{END}", line(1_500, 2_500, "on-cpu", "slow-call"));
        assert!(!judge(&wrong, &seen(0)).unwrap().holds);
        let late = format!("{}\n{END}", line(2_001, 2_500, "mmap_lock", "slow-call"));
        assert!(!judge(&late, &seen(0)).unwrap().holds);
        assert!(judge("{}", &seen(0)).is_err());
    }

    #[test]
    fn what_the_load_saw_itself_is_no_false_one() {
        let hit = line(1_500, 2_500, "mmap_lock", "slow-call");
        let with = |other: String| judge(&format!("{hit}\n{other}\n{END}"), &seen(0)).unwrap();
        let real = with(line(5_000, 5_010, "run-queue", "slow-call"));
        assert!(real.holds && real.text.contains("other's"), "{}", real.text);
        let none = with(line(7_000, 7_010, "run-queue", "slow-call"));
        assert!(!none.holds && none.text.contains("FALSE"), "{}", none.text);
        assert!(!with(line(7_000, 7_010, "io", "io-pressure")).holds);
    }
}
