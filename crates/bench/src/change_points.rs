//! `stopgap-bench change-points`: the search for change points where the truth is known, beside Otava's.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_kernel::signals;
use stopgap_report::text::thousands;
use stopgap_stats::change_points::simulate::{NEAR, STEPS, Tally, WORLDS, World, one};

use crate::common::simulated;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Histories of each world, each as it is and with each step.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    histories: u32,
    /// Occasions of each history [default: from 50 to 500, as many histories of 50 to 158 as of 158 to 500].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(12..=5_000))]
    points: Option<u32>,
    /// Seed of the first history; each has the next.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Simulates every world, and prints the tables.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let bar = progress_bar();
    let mut simulated = Vec::new();
    for (number, world) in WORLDS.into_iter().enumerate() {
        if bar.is_hidden() {
            let name = world.name();
            tell(&format!("world {} of {}: {name}", number + 1, WORLDS.len()));
        }
        let done = AtomicU32::new(0);
        let told = || {
            let part = u64::from(done.load(Ordering::Relaxed)) * 1_000 / u64::from(flags.histories);
            bar.set_position((number as u64 * 1_000 + part) / WORLDS.len() as u64);
            bar.set_message(world.name());
        };
        simulated.push((world, simulate(world, flags, &done, told)));
        if signals::interrupted() {
            bar.finish_and_clear();
            return Err(Failure::error("interrupted before all was simulated"));
        }
    }
    bar.finish_and_clear();
    print(&tables(&simulated, flags))?;
    Ok(ExitCode::SUCCESS)
}

/// Simulates one world in several threads. `told` is called from this one now and then.
fn simulate(world: World, flags: &Flags, done: &AtomicU32, told: impl Fn()) -> Tally {
    let points = flags.points.map(|n| n as usize);
    simulated(
        flags.histories,
        done,
        |number, tally: &mut Tally| {
            let seed = flags.seed.wrapping_add(u64::from(number));
            one(world, seed, points, tally);
        },
        |all, part| all.add(&part),
        told,
    )
}

fn tables(simulated: &[(World, Tally)], flags: &Flags) -> String {
    let length = match flags.points {
        Some(n) => format!("{n}"),
        None => "50 to 500".to_owned(),
    };
    let mut text = format!(
        "{} histories of {length} occasions in each world, seed {}; in per cent of them\n\
         Found: a change point within {NEAR} occasions of the planted step. Others: change points besides, per 100 histories.\n",
        thousands(u64::from(flags.histories)),
        flags.seed
    );
    let _ = writeln!(text, "\nNo step: called changed");
    text += &heading(&["ours", "Otava"]);
    for (world, tally) in simulated {
        let cells = tally
            .false_alarms
            .map(|count| share(count, tally.histories));
        text += &row(*world, &cells);
    }
    let _ = writeln!(
        text,
        "\nThe size that ours says it would find, in fresh noise of the same kind: found"
    );
    text += &heading(&["ours", "of"]);
    for (world, tally) in simulated {
        let [of, found] = tally.power;
        text += &row(*world, &[share(found, of), of.to_string()]);
    }
    let names = STEPS.map(|step| format!("{step} errors"));
    for (head, side, count) in [
        ("Found by ours", 0, "near"),
        ("Found by Otava", 1, "near"),
        ("Others by ours", 0, "others"),
        ("Others by Otava", 1, "others"),
    ] {
        let _ = writeln!(
            text,
            "\n{head}, by the size of the step in standard errors of one occasion"
        );
        text += &heading(&names.each_ref().map(String::as_str));
        for (world, tally) in simulated {
            let cells = tally.steps.map(|step| {
                let counted = match count {
                    "near" => step[side].near,
                    _ => step[side].others,
                };
                share(counted, tally.histories)
            });
            text += &row(*world, &cells);
        }
    }
    for (head, which) in [("place", 0), ("size", 1)] {
        let _ = writeln!(
            text,
            "\n95 % interval of the {head} that held the truth, of histories that ours called changed"
        );
        text += &heading(&names.each_ref().map(String::as_str));
        for (world, tally) in simulated {
            let cells: Vec<String> = (0..STEPS.len())
                .map(|step| share(tally.held[step][which], tally.steps[step][0].any))
                .collect();
            text += &row(*world, &cells);
        }
    }
    let _ = writeln!(
        text,
        "\nOccasions from the last before the change to the first after it, on average"
    );
    text += &heading(&names.each_ref().map(String::as_str));
    for (world, tally) in simulated {
        let cells: Vec<String> = (0..STEPS.len())
            .map(|step| match tally.steps[step][0].any {
                0 => String::new(),
                any => format!("{:.1}", f64::from(tally.width[step]) / f64::from(any)),
            })
            .collect();
        text += &row(*world, &cells);
    }
    text
}

/// A count as a share in per cent.
fn share(count: u32, of: u32) -> String {
    match of {
        0 => String::new(),
        of => format!("{:.1}", 100.0 * f64::from(count) / f64::from(of)),
    }
}

fn heading(names: &[&str]) -> String {
    line("", names)
}

fn row(world: World, cells: &[String]) -> String {
    line(
        world.name(),
        &cells.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn line(name: &str, cells: &[&str]) -> String {
    let mut text = format!("  {name:<26}");
    for cell in cells {
        let _ = write!(text, "{cell:>11}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_every_world_and_do_not_depend_on_threads() {
        let flags = Flags {
            histories: 3,
            points: Some(50),
            seed: 1,
        };
        let done = AtomicU32::new(0);
        let simulated: Vec<_> = [World::Normal, World::Trend]
            .map(|world| (world, simulate(world, &flags, &done, || ())))
            .into();
        assert_eq!(done.into_inner(), 6);
        let mut alone = Tally::default();
        for seed in 1..=3 {
            one(World::Normal, seed, Some(50), &mut alone);
        }
        assert_eq!(simulated[0].1, alone);
        let text = tables(&simulated, &flags);
        assert!(text.starts_with("3 histories of 50 occasions in each world, seed 1;"));
        let lines = text
            .lines()
            .filter(|line| line.trim().starts_with("normal noise"));
        assert_eq!(lines.count(), 9);
    }
}
