//! Where CPU time went, for people: threads with their states, functions with their shares.

use stopgap_events::units::Nanos;
use stopgap_stats::explain::ShortCalls;
use stopgap_stats::profile::{Innermost, Mode, Profile};

use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// Functions that are shown; the JSON record has all.
const FUNCTIONS: usize = 20;
/// Threads that are shown.
const THREADS: usize = 12;
/// States of a thread that are shown.
const STATES: usize = 4;

/// `12.4 %`.
pub(crate) fn share(some: u64, all: u64) -> String {
    format!("{} %", number(some as f64 / all.max(1) as f64 * 100.0))
}

/// What a function is, in words.
pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::User => "user",
        Mode::Kernel => "kernel",
        Mode::Unnamed => "no name",
    }
}

/// `2,037 samples, one each 1.00 ms of CPU time: 12.1 % in functions of programs and libraries, ...`.
pub(crate) fn whole(profile: &Profile) -> String {
    let each = profile.period_ns.map_or_else(String::new, |ns| {
        format!(", one each {} of CPU time", Nanos(ns))
    });
    let by = &profile.innermost;
    let of = |some| share(some, profile.samples);
    format!(
        "{} samples{each}: {} in functions of programs and libraries, {} in functions of the kernel, {} in code without a \
         name.",
        thousands(profile.samples),
        of(by.user),
        of(by.kernel),
        of(by.unnamed)
    )
}

/// The whole of it.
pub(crate) fn screen(profile: &Profile, style: Style) -> String {
    if profile.samples == 0 {
        return String::new();
    }
    let mut text = wrap(&format!("  {}", whole(profile)), style.width, 2);
    text.push_str(&threads(profile, style));
    text.push('\n');
    text.push_str(&functions(profile, style));
    text
}

fn threads(profile: &Profile, style: Style) -> String {
    let head = [
        "thread", "samples", "%", "user", "kernel", "no name", "state",
    ];
    let row = |name: String, samples: u64, by: Innermost, states: String| {
        vec![
            name,
            thousands(samples),
            of(samples, profile.samples),
            of(by.user, samples),
            of(by.kernel, samples),
            of(by.unnamed, samples),
            states,
        ]
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for thread in profile.threads.iter().take(THREADS) {
        let told = thread.states.iter().take(STATES);
        let mut states: Vec<String> = told
            .map(|state| {
                format!(
                    "{} {}",
                    plain(&state.state),
                    share(state.samples, thread.samples)
                )
            })
            .collect();
        let rest = thread.states.iter().skip(STATES);
        if rest.len() > 0 {
            let rest: u64 = rest.map(|state| state.samples).sum();
            states.push(format!("others {}", share(rest, thread.samples)));
        }
        let states = states.join(", ");
        let name = plain(&thread.task);
        rows.push(row(name, thread.samples, thread.innermost, states));
    }
    let rest = profile.threads.iter().skip(THREADS);
    if rest.len() > 0 {
        let name = format!("{} others", thousands(rest.len() as u64));
        let mut by = Innermost::default();
        let mut samples = 0;
        for thread in rest {
            samples += thread.samples;
            by.add(Mode::User, thread.innermost.user);
            by.add(Mode::Kernel, thread.innermost.kernel);
            by.add(Mode::Unnamed, thread.innermost.unnamed);
        }
        rows.push(row(name, samples, by, String::new()));
    }
    let right = [false, true, true, true, true, true, false];
    plain_table(&head, rows, &right, false, style)
}

fn functions(profile: &Profile, style: Style) -> String {
    let head = [
        "function",
        "own samples",
        "own %",
        "with calls %",
        "what it is",
    ];
    let own = profile.functions.iter().filter(|one| one.own_samples > 0);
    let mut rows: Vec<Vec<String>> = own
        .clone()
        .take(FUNCTIONS)
        .map(|one| {
            vec![
                plain(&one.function),
                thousands(one.own_samples),
                of(one.own_samples, profile.samples),
                of(one.with_calls_samples, profile.samples),
                mode(one.mode).to_owned(),
            ]
        })
        .collect();
    let count = own.clone().count().saturating_sub(FUNCTIONS);
    if count > 0 {
        let samples: u64 = own.skip(FUNCTIONS).map(|one| one.own_samples).sum();
        rows.push(vec![
            format!("{} others", thousands(count as u64)),
            thousands(samples),
            of(samples, profile.samples),
            String::new(),
            String::new(),
        ]);
    }
    let right = [false, true, true, true, false];
    plain_table(&head, rows, &right, false, style)
}

fn of(some: u64, all: u64) -> String {
    number(some as f64 / all.max(1) as f64 * 100.0)
}

/// Short calls that are a stall together.
pub(crate) fn short_calls(all: &[ShortCalls], style: Style) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = [
        "many short calls",
        "count",
        "together",
        "mean",
        "longest",
        "of its work",
        "in the kernel",
    ];
    let rows = all.iter().take(THREADS).flat_map(|short| {
        let inside = short.functions.iter().map(|one| {
            let all = short.samples.unwrap_or(0);
            format!("{} {}", plain(&one.function), share(one.samples, all))
        });
        let inside: Vec<String> = inside.take(3).collect();
        let whole = vec![
            plain(&short.task),
            thousands(short.calls),
            Nanos(short.total_ns).to_string(),
            Nanos(short.mean_ns).to_string(),
            Nanos(short.longest_ns).to_string(),
            share(short.total_ns, short.work_ns),
            inside.join(", "),
        ];
        let kinds = short.kinds.iter().map(|kind| {
            vec![
                format!("  {}", plain(&kind.kind)),
                thousands(kind.calls),
                Nanos(kind.total_ns).to_string(),
                Nanos(kind.total_ns / kind.calls.max(1)).to_string(),
                Nanos(kind.longest_ns).to_string(),
                share(kind.total_ns, short.work_ns),
                String::new(),
            ]
        });
        std::iter::once(whole).chain(kinds)
    });
    let right = [false, true, true, true, true, true, false];
    let mut text = plain_table(&head, rows.collect(), &right, false, style);
    text.push_str(&wrap(
        "  work: time on a CPU, and asleep in these calls; waits for a CPU are in none of these times",
        style.width,
        2,
    ));
    text
}
