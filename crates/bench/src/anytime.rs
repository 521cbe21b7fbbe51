//! `stopgap-bench anytime`: what looking after every unit costs, and what it saves, beside what others do.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_report::text::thousands;
use stopgap_stats::anytime::least_units;
use stopgap_stats::anytime::simulate::{
    ALPHAS, CHANGES, EARLY, EQUAL, MARGIN, PEERS, Tally, UNEQUAL, UNITS, World, one,
};

use crate::common::simulated;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Simulations of each world.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    simulations: u32,
    /// Seed of the first simulation; each has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// One world's tallies, one for each change.
type Tallies = [Tally; CHANGES.len()];

/// Simulates every world, and prints the tables.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let all: Vec<World> = EQUAL.into_iter().chain(UNEQUAL).collect();
    let mut simulated = Vec::new();
    let bar = progress_bar();
    for (number, world) in all.iter().enumerate() {
        let done = AtomicU32::new(0);
        let told = || {
            let done = done.load(Ordering::Relaxed);
            let of_all =
                number as u64 * 1_000 + u64::from(done) * 1_000 / u64::from(flags.simulations);
            bar.set_position(of_all / all.len() as u64);
            bar.set_message(format!("{}, {done} simulations", world.name()));
        };
        if bar.is_hidden() {
            tell(&format!(
                "world {} of {}: {}",
                number + 1,
                all.len(),
                world.name()
            ));
        }
        let tallies = simulate(*world, flags, &done, told);
        if signals::interrupted() {
            bar.finish_and_clear();
            return Err(Failure::error(format!(
                "interrupted while '{}' was simulated, world {} of {}",
                world.name(),
                number + 1,
                all.len()
            )));
        }
        simulated.push((*world, tallies));
    }
    bar.finish_and_clear();
    print(&tables(&simulated, flags))?;
    Ok(ExitCode::SUCCESS)
}

/// Simulates one world in several threads. `told` is called from this one now and then.
fn simulate(world: World, flags: &Flags, done: &AtomicU32, told: impl Fn()) -> Tallies {
    simulated(
        flags.simulations,
        done,
        |number, tallies: &mut Tallies| {
            let seed = flags.seed.wrapping_add(u64::from(number));
            one(world, seed, tallies);
        },
        |all, part| {
            for (tally, other) in all.iter_mut().zip(part) {
                tally.add(other);
            }
        },
        told,
    )
}

/// All tables.
fn tables(simulated: &[(World, Tallies)], flags: &Flags) -> String {
    let n = f64::from(flags.simulations);
    let error = |share: f64| 100.0 * (share * (1.0 - share) / n).sqrt();
    let mut text = format!(
        "{} simulations of each world, seed {}; up to {UNITS} pairs of runs; margin of same {:.0} %\n\
         Shares in per cent of the simulations. Standard error: {:.2} at 1 %, {:.2} at 5 %, {:.2} at 50 %.\n\
         Fewest units that prove anything: {} at a level of 1 %, {} at 5 %.\n",
        thousands(u64::from(flags.simulations)),
        flags.seed,
        100.0 * MARGIN,
        error(0.01),
        error(0.05),
        error(0.5),
        least_units(ALPHAS[0], 1),
        least_units(ALPHAS[1], 1),
    );
    let equal = || simulated.iter().filter(|(world, _)| EQUAL.contains(world));
    let unequal = || {
        simulated
            .iter()
            .filter(|(world, _)| UNEQUAL.contains(world))
    };

    let _ = writeln!(
        text,
        "\nBoth sides equal: called different at any of {UNITS} looks (ours), or by the tests of others"
    );
    text.push_str(&heading(&FOUND));
    for (world, tallies) in equal() {
        text.push_str(&row(&world.name(), &found(&tallies[0], 1)));
    }

    for (at, change) in CHANGES.iter().enumerate().skip(1) {
        let _ = writeln!(
            text,
            "\nThe later side is {:.0} % slower: called different within {EARLY} pairs (ours)",
            100.0 * change
        );
        text.push_str(&heading(&FOUND));
        for (world, tallies) in equal().filter(|(world, _)| !world.is_of_counts()) {
            text.push_str(&row(&world.name(), &found(&tallies[at], 0)));
        }
    }
    text.push_str("\nThe sides differ in shape: called different within 60 pairs (ours)\n");
    text.push_str(&heading(&FOUND));
    for (world, tallies) in unequal() {
        text.push_str(&row(&world.name(), &found(&tallies[0], 0)));
    }

    let _ = writeln!(
        text,
        "\nOurs at 1 %, pairs: called different within {UNITS} pairs, the pairs it took at the median of those, likewise of Lindon's t; called the wrong way round"
    );
    let names: Vec<String> = CHANGES[1..]
        .iter()
        .map(|change| format!("+{:.0} %", 100.0 * change))
        .collect();
    text.push_str(&heading(
        &names
            .iter()
            .flat_map(|name| [name.as_str(), "pairs", "Lindon", "wrong"])
            .collect::<Vec<_>>(),
    ));
    for (world, tallies) in equal().filter(|(world, _)| !world.is_of_counts()) {
        let cells: Vec<String> = tallies[1..].iter().flat_map(decided).collect();
        text.push_str(&row(&world.name(), &cells));
    }
    for (world, tallies) in unequal() {
        text.push_str(&row(&world.name(), &decided(&tallies[0])));
    }

    let _ = writeln!(
        text,
        "\nOurs at 1 %, both sides equal: words within {UNITS} pairs, pairs until `same` at the median; `same` of blocks; wrong words \
         at 5 %; `same` where a side is 5 % slower"
    );
    text.push_str(&heading(&[
        "same, 60",
        "same, 300",
        "pairs",
        "different",
        "blocks, 60",
        "blocks, 300",
        "diff., 5 %",
        "same, +5 %",
    ]));
    for (world, tallies) in simulated {
        text.push_str(&row(&world.name(), &words(tallies)));
    }
    let _ = writeln!(
        text,
        "\nIntervals that held the truth at every one of {UNITS} looks"
    );
    text.push_str(&heading(&[
        "1 %, equal",
        "1 %, +2 %",
        "1 %, +5 %",
        "1 %, +10 %",
        "5 %, equal",
        "5 %, +10 %",
    ]));
    for (world, tallies) in equal() {
        let held = |level: usize, change: usize| {
            share(
                tallies[change].pairs[level].covered,
                tallies[change].simulations,
            )
        };
        let cells = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 3)]
            .map(|(level, change)| held(level, change));
        text.push_str(&row(&world.name(), &cells));
    }
    text
}

/// Columns of the tables that compare ours with others, in the order of [`found`].
const FOUND: [&str; 15] = [
    "ours 1 %",
    "ours 5 %",
    "blocks 1 %",
    "Lindon 1 %",
    "MW 10",
    "MW 30",
    "MW 60",
    "MW looking",
    "Welch 10",
    "Welch 30",
    "Welch 60",
    "W. looking",
    "hyperfine",
    "tango 60",
    "tango 300",
];

fn found(tally: &Tally, until: usize) -> Vec<String> {
    const { assert!(FOUND.len() == PEERS.len() + 4) };
    let ours = [&tally.pairs[0], &tally.pairs[1], &tally.blocks].map(|ours| ours.different[until]);
    let looked_at = [EARLY, UNITS][until] as u32;
    let t = tally
        .anytime_t
        .iter()
        .filter(|pairs| **pairs <= looked_at)
        .count() as u32;
    let counts = ours.into_iter().chain([t]).chain(tally.peers);
    counts
        .map(|count| share(count, tally.simulations))
        .collect()
}

fn decided(tally: &Tally) -> Vec<String> {
    let ours = &tally.pairs[0];
    vec![
        share(ours.different[1], tally.simulations),
        typical(&ours.pairs_different),
        typical(&tally.anytime_t),
        share(ours.words[1], tally.simulations),
    ]
}

fn words(tallies: &Tallies) -> Vec<String> {
    let (first, n) = (&tallies[0], tallies[0].simulations);
    let [strict, loose] = &first.pairs;
    let slower = &tallies[2];
    vec![
        share(strict.same[0], n),
        share(strict.same[1], n),
        typical(&strict.pairs_same),
        share(strict.words.iter().sum(), n),
        share(first.blocks.same[0], n),
        share(first.blocks.same[1], n),
        share(loose.words.iter().sum(), n),
        share(slower.pairs[0].same[1], slower.simulations),
    ]
}

/// The median of numbers of pairs.
fn typical(pairs: &[u32]) -> String {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    pairs
        .get(pairs.len() / 2)
        .map_or(String::new(), u32::to_string)
}

/// A count as a share in per cent, with as many digits as give the count back.
fn share(count: u32, of: u32) -> String {
    if of == 0 {
        return String::new();
    }
    format!("{:.2}", 100.0 * f64::from(count) / f64::from(of))
}

fn heading(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    row("", &names)
}

fn row(name: &str, cells: &[String]) -> String {
    let mut text = format!("  {name:<30}");
    for cell in cells {
        let _ = write!(text, "{cell:>12}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_every_world() {
        let flags = Flags {
            simulations: 3,
            seed: 1,
        };
        let done = AtomicU32::new(0);
        let simulated: Vec<_> = [World::Normal(0.05), World::MoreSlow(0.05), World::Counts]
            .map(|world| (world, simulate(world, &flags, &done, || ())))
            .into();
        assert_eq!(done.into_inner(), 9);
        let text = tables(&simulated, &flags);
        assert!(text.starts_with("3 simulations of each world, seed 1; "));
        let lines = |begins: &str| {
            text.lines()
                .filter(|line| line.trim().starts_with(begins))
                .count()
        };
        // False alarms, three changes, decisions, words, intervals.
        assert_eq!(lines("normal noise of 5 %"), 7);
        assert_eq!(lines("slow mode 10 -> 40 %"), 3);
        assert_eq!(lines("counts, mostly 0"), 3);
        let first = text
            .lines()
            .find(|line| line.trim().starts_with("normal noise"))
            .unwrap();
        assert_eq!(first.split_whitespace().count(), 5 + FOUND.len());
    }
}
