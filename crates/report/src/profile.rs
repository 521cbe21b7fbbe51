//! Where CPU time went, for people: threads with their states, functions with their shares.

use stopgap_events::units::Nanos;
use stopgap_stats::explain::ShortCalls;
use stopgap_stats::profile::{Innermost, Mode, Profile};

use crate::table::{Screen, Table, join, known_or};
use crate::text::{share, thousands};

/// Functions that are shown; the JSON record has all.
const FUNCTIONS: usize = 20;
/// Threads that are shown.
const THREADS: usize = 12;
/// States of a thread that are shown.
const STATES: usize = 4;

/// Returns what a function is, in words.
pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::User => "user",
        Mode::Kernel => "kernel",
        Mode::Unnamed => "no name",
    }
}

/// Returns `2,037 samples, one each 1.00 ms of CPU time: 12.1 % in functions of programs and libraries, ...`.
pub(crate) fn whole(profile: &Profile) -> String {
    let each = |ns| format!(", one each {} of CPU time", Nanos(ns));
    let by = &profile.innermost;
    let of = |some| share(some, profile.samples);
    format!(
        "{} samples{}: {} % in functions of programs and libraries, {} % in functions of the kernel, {} % in code without a \
         name.",
        thousands(profile.samples),
        known_or("", profile.period_ns.map(each)),
        of(by.user),
        of(by.kernel),
        of(by.unnamed)
    )
}

/// Adds the whole profile.
pub(crate) fn say(profile: &Profile, screen: &mut Screen) {
    if profile.samples > 0 {
        screen.say(format!("  {}", whole(profile)));
        screen.table(&threads(profile));
        screen.add("\n");
        screen.table(&functions(profile));
    }
}

fn threads(profile: &Profile) -> Table {
    let mut table = Table::new("thread | >samples | >% | >user | >kernel | >no name | state");
    let mut add = |name: &str, samples: u64, by: Innermost, states: &str| {
        let [user, kernel, unnamed] = [by.user, by.kernel, by.unnamed].map(|n| share(n, samples));
        let (count, of_all) = (thousands(samples), share(samples, profile.samples));
        table.row(&[&name, &count, &of_all, &user, &kernel, &unnamed, &states]);
    };
    for thread in profile.threads.iter().take(THREADS) {
        let (shown, rest) = thread.states.split_at(thread.states.len().min(STATES));
        let shown = shown.iter().map(|state| (&*state.state, state.samples));
        let rest = (!rest.is_empty()).then(|| ("others", rest.iter().map(|s| s.samples).sum()));
        let state = |(name, samples)| format!("{name} {} %", share(samples, thread.samples));
        let states = join(shown.chain(rest).map(state), ", ");
        add(&thread.task, thread.samples, thread.innermost, &states);
    }
    let rest = profile.threads.iter().skip(THREADS);
    if rest.len() > 0 {
        let name = format!("{} others", thousands(rest.len() as u64));
        let (mut by, mut samples) = (Innermost::default(), 0);
        for thread in rest {
            samples += thread.samples;
            by.add(Mode::User, thread.innermost.user);
            by.add(Mode::Kernel, thread.innermost.kernel);
            by.add(Mode::Unnamed, thread.innermost.unnamed);
        }
        add(&name, samples, by, "");
    }
    table
}

fn functions(profile: &Profile) -> Table {
    let mut table = Table::new("function | >own samples | >own % | >with calls % | what it is");
    let of_all = |samples| share(samples, profile.samples);
    let mut own = profile.functions.iter().filter(|one| one.own_samples > 0);
    for one in own.by_ref().take(FUNCTIONS) {
        let (samples, with_calls) = (one.own_samples, of_all(one.with_calls_samples));
        let (count, kind) = (thousands(samples), mode(one.mode));
        table.row(&[&one.function, &count, &of_all(samples), &with_calls, &kind]);
    }
    let rest: Vec<u64> = own.map(|one| one.own_samples).collect();
    if !rest.is_empty() {
        let name = format!("{} others", thousands(rest.len() as u64));
        let samples = rest.iter().sum();
        table.row(&[&name, &thousands(samples), &of_all(samples), &"", &""]);
    }
    table
}

/// Adds short calls that are a stall together; nothing where there are none.
pub(crate) fn say_short_calls(all: &[ShortCalls], screen: &mut Screen) {
    if all.is_empty() {
        return;
    }
    let mut table = Table::new(
        "many short calls | >count | >together | >mean | >longest | >of its work | in the kernel",
    );
    for short in all.iter().take(THREADS) {
        let mut add = |name: &str, calls: u64, [total, mean, longest]: [u64; 3], inside: &str| {
            let [total_ns, mean, longest] = [total, mean, longest].map(Nanos);
            let share = format!("{} %", share(total, short.work_ns));
            table.row(&[
                &name,
                &thousands(calls),
                &total_ns,
                &mean,
                &longest,
                &share,
                &inside,
            ]);
        };
        let all = short.samples.unwrap_or(0);
        let inside = short.functions.iter().take(3);
        let inside = inside.map(|one| format!("{} {} %", one.function, share(one.samples, all)));
        let times = [short.total_ns, short.mean_ns, short.longest_ns];
        add(&short.task, short.calls, times, &join(inside, ", "));
        for kind in &short.kinds {
            let mean = kind.total_ns / kind.calls.max(1);
            let times = [kind.total_ns, mean, kind.longest_ns];
            add(&format!("  {}", kind.kind), kind.calls, times, "");
        }
    }
    screen.table(&table);
    screen.say(
        "  work: time on a CPU, and asleep in these calls; waits for a CPU are in none of these times",
    );
}
