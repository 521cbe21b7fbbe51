//! What each program costs a call, by the kernel's own measure: two processes answer each other over pipes while they are
//! recorded. The kernel reads its clock before and after each call, which is in the figures; `beside` shows how much that is.
//! The figures need no quiet machine: what other programs do between two calls is not in them. A command is run instead of the
//! two processes.
//!
//!     taskset -c 1 target/release/examples/cost [whole|waits|beside] [PART,PART...|usual[,histograms] [COMMAND...]]
//!
//! `whole`: the two processes are followed; `waits`: only their waits are kept; `beside`: neither. `histograms` counts waits, too.

use std::io::{self, Read, Write, pipe, stdin, stdout};
use std::process::{Child, Command, Stdio};

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use stopgap_capture::{Capture, Follow, Level, Options, Part};

/// Round trips of the two processes.
const ROUNDS: usize = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let level = words.next().unwrap_or_else(|| "whole".to_owned());
    if let Some(first) = level.strip_prefix("plays ") {
        return Ok(plays(first == "first")?);
    }
    let list = words.next().unwrap_or_else(|| "usual".to_owned());
    let mut parts = Vec::new();
    for word in list.split(',') {
        match word {
            "usual" => parts.extend(Options::default().parts),
            word => parts.extend(Part::ALL.into_iter().find(|part| part.word() == word)),
        }
    }
    let before: Vec<u32> = ids();
    let mut capture = Capture::start(&Options {
        parts,
        whole_machine: level == "waits",
        histograms: list
            .split(',')
            .any(|word| word == "histograms")
            .then_some(2_048),
        ..Options::default()
    })?;
    for (part, why) in capture.lacks() {
        println!("lacks {}: {why}", part.word());
    }
    let us = |level| Follow {
        process: Some(std::process::id()),
        ..Follow::all(level)
    };
    match level.as_str() {
        "whole" => capture.follow(&us(Level::Whole))?,
        "waits" => capture.follow(&us(Level::Waits))?,
        _ => 0,
    };
    let stats = enable_stats(Stats::RunTime)?;
    let command: Vec<String> = words.collect();
    match command.split_first() {
        Some((program, words)) => succeeds(Command::new(program).args(words).spawn()?)?,
        None => play()?,
    }
    drop(stats);
    let mut total = 0.0;
    for program in loaded_programs().filter_map(Result::ok) {
        if before.contains(&program.id()) || program.run_count() == 0 {
            continue;
        }
        let (time, calls) = (program.run_time().as_nanos() as f64, program.run_count());
        total += time;
        let name = program.name_as_str().unwrap_or("?");
        println!("{name:<16}{calls:>10} calls{:>9.1} ns", time / calls as f64);
    }
    if command.is_empty() {
        println!("{:.1} ns a round trip", total / ROUNDS as f64);
    }
    let lost = capture.stop(|_, _| {})?;
    println!("{lost} lost");
    Ok(())
}

fn ids() -> Vec<u32> {
    let programs = loaded_programs().filter_map(Result::ok);
    programs.map(|program| program.id()).collect()
}

/// Runs the two processes until they have ended.
fn play() -> Result<(), Box<dyn std::error::Error>> {
    let ((from_b, to_a), (from_a, to_b)) = (pipe()?, pipe()?);
    let own = std::env::current_exe()?;
    let player = |role: &str, from, to| {
        let mut command = Command::new(&own);
        command.arg(format!("plays {role}"));
        command
            .stdin(Stdio::from(from))
            .stdout(Stdio::from(to))
            .spawn()
    };
    let players = [
        player("first", from_b, to_b)?,
        player("second", from_a, to_a)?,
    ];
    players.into_iter().try_for_each(succeeds)
}

fn succeeds(mut child: Child) -> Result<(), Box<dyn std::error::Error>> {
    let status = child.wait()?;
    let failed = || format!("a process failed: {status}").into();
    if status.success() {
        Ok(())
    } else {
        Err(failed())
    }
}

fn plays(first: bool) -> io::Result<()> {
    let (mut from, mut to) = (stdin().lock(), stdout().lock());
    for _ in 0..ROUNDS {
        if first {
            to.write_all(b"?")?;
            to.flush()?;
        }
        from.read_exact(&mut [0])?;
        if !first {
            to.write_all(b"!")?;
            to.flush()?;
        }
    }
    Ok(())
}
