//! `stopgap-bench batch-client`: what answers cost that come one by one, and what takes that away: the arena's writer in
//! the server, or `SCHED_BATCH` for the client.
//!
//! ```text
//! server   read 32 requests, answer each        client   send 32 requests, poll and read until 32 replies are there
//!          one by one: a write each             under SCHED_OTHER or SCHED_BATCH
//!          writer:     push each
//!          gathered:   one write, by hand
//! ```
//!
//! Both on one CPU. Then what a client under `SCHED_BATCH` waits on a CPU that another thread uses, and a real X server
//! and its client.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use stopgap_arena::coalesce::{Options, Writer};
use stopgap_arena::sched;
use stopgap_cli::{Failure, print, tell};
use stopgap_kernel::tasks::{Switches, Tasks};
use stopgap_kernel::x11::{Placing, X11};
use stopgap_kernel::{Linux, signals};

use crate::common::{Bounds, failed, last_cpu, middle, own_program, rounds, table};
use crate::x11::{RATIO, WINDOWS, unrecorded};

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each of the ways to answer.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Rounds of 32 requests in each run.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Runs of the real client of each policy, each with a server of its own; 0: none.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    x_runs: u32,
    /// The CPU of both; it should be idle [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// A command that runs the real client under SCHED_BATCH, as 'stopgap run --fix batch-client --' [default: the library's
    /// own call, then exec].
    #[arg(long, value_name = "COMMAND")]
    through: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct ExecFlags {
    /// The command and its words.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Bytes of a request and of its reply.
const MESSAGE: usize = 32;
/// Requests that come together.
const TOGETHER: usize = 32;
/// Wake-ups of each kind, and the time between two of them.
const WAKES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(12);

/// How a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    OneByOne,
    Batch,
    Writer,
    Gathered,
}

const WAYS: [(Way, &str); 4] = [
    (Way::OneByOne, "a write for each"),
    (Way::Batch, "the same, client under SCHED_BATCH"),
    (Way::Writer, "the coalescing writer"),
    (Way::Gathered, "one write, gathered by hand"),
];

/// Returns the value that a share of them do not pass.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let at = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let cpus = Linux.cpus()?;
    let cpu = last_cpu(flags.cpu, &cpus);
    let mut bounds = Bounds::default();
    Linux.set_cpus(&[cpu])?;
    replies(flags, cpu, &mut bounds)?;
    Linux.set_cpus(&cpus)?;
    match cpus.iter().find(|&&other| other != cpu) {
        Some(&other) => waits(cpu, other)?,
        None => print("\nwhat a woken thread waits: not measured, there is one CPU")?,
    }
    // As `stopgap-bench x11`: we sleep while they run.
    Linux.set_cpus(&[cpu])?;
    if flags.x_runs > 0 {
        real_x(flags, cpu, &mut bounds)?;
    }
    bounds.print()
}

/// Becomes a command under `SCHED_BATCH`.
pub(crate) fn exec(flags: &ExecFlags) -> Result<ExitCode, Failure> {
    let program = &flags.command[0];
    let batch = sched::batch_client().map_err(failed(program.display()))?;
    batch.stay();
    let error = Command::new(program).args(&flags.command[1..]).exec();
    Err(failed(program.display())(error))
}

/// The cost of a round.
#[derive(Debug, Clone, Copy)]
struct Costs {
    /// Switches of both.
    switches: f64,
    /// How often the client slept, and so was woken.
    wakes: f64,
    /// How often it read.
    reads: f64,
    micros: f64,
}

/// Answers until no more requests come; returns its own switches.
fn serve(socket: &UnixStream, way: Way) -> Result<Switches, Failure> {
    let before = Linux.switches()?;
    let mut buffer = [0; MESSAGE * TOGETHER];
    // Nothing but the end of the requests sends: on a busy machine a millisecond is soon over.
    let options = Options {
        longest: Duration::from_secs(1),
        ..Options::default()
    };
    let mut writer = Writer::new(socket, options);
    loop {
        let count = match way {
            Way::Writer => writer
                .read(socket, &mut buffer)
                .map_err(failed("the writer"))?,
            _ => (&*socket).read(&mut buffer).map_err(failed("read"))?,
        };
        if count == 0 {
            return Ok(Linux.switches()?.since(before));
        }
        // Requests are sent in whole and read so: the buffer holds a round.
        for request in buffer[..count].chunks_exact(MESSAGE) {
            match way {
                Way::OneByOne | Way::Batch => {
                    (&*socket).write_all(request).map_err(failed("write"))?;
                }
                Way::Writer => drop(writer.push(request).map_err(failed("the writer"))?),
                Way::Gathered => {}
            }
        }
        if way == Way::Gathered {
            (&*socket)
                .write_all(&buffer[..count])
                .map_err(failed("write"))?;
        }
    }
}

/// Asks for so many rounds; returns its own switches, how often it read, and the time that it took.
fn ask(client: &UnixStream, way: Way, rounds: u32) -> Result<(Switches, u64, Duration), Failure> {
    let batch = (way == Way::Batch).then(sched::batch_client).transpose();
    let batch = batch.map_err(failed("SCHED_BATCH"))?;
    // In read(2) it would be woken, too, when the server has read and there is room to write again.
    let mut fds = [PollFd::new(client, PollFlags::IN)];
    let requests: Vec<u8> = (0..MESSAGE * TOGETHER).map(|at| (at % 251) as u8).collect();
    let mut buffer = [0; MESSAGE * TOGETHER];
    let (before, start, mut reads) = (Linux.switches()?, Instant::now(), 0);
    for _ in 0..rounds {
        (&*client).write_all(&requests).map_err(failed("write"))?;
        let mut got = 0;
        while got < buffer.len() {
            let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None));
            ready.map_err(failed("poll"))?;
            match (&*client)
                .read(&mut buffer[got..])
                .map_err(failed("read"))?
            {
                0 => return Err(Failure::error("the server ended")),
                count => got += count,
            }
            reads += 1;
        }
        if buffer[..] != requests[..] {
            return Err(Failure::error("replies are not what was asked for"));
        }
    }
    let (switches, took) = (Linux.switches()?.since(before), start.elapsed());
    drop(batch);
    Ok((switches, reads, took))
}

fn panicked<E>(_: E) -> Failure {
    Failure::error("a thread panicked")
}

/// Carries out one run of a way to answer.
fn answered(way: Way, rounds: u32) -> Result<Costs, Failure> {
    let (server, client) = UnixStream::pair().map_err(failed("a socket pair"))?;
    std::thread::scope(|scope| {
        let served = scope.spawn(move || serve(&server, way));
        let asked = scope.spawn(move || ask(&client, way, rounds));
        let (client, reads, took) = asked.join().map_err(panicked)??;
        let server = served.join().map_err(panicked)??;
        let a_round = |count: u64| count as f64 / f64::from(rounds);
        Ok(Costs {
            switches: a_round(client.total() + server.total()),
            wakes: a_round(client.voluntary),
            reads: a_round(reads),
            micros: took.as_secs_f64() * 1e6 / f64::from(rounds),
        })
    })
}

/// Prints a line for each way to answer.
fn replies(flags: &Flags, cpu: u32, bounds: &mut Bounds) -> Result<(), Failure> {
    let all = rounds(flags.runs, &[WAYS.len()], |_, way| {
        answered(WAYS[way].0, flags.rounds)
    })?;
    let rows = WAYS.iter().enumerate().map(|(way, (_, words))| {
        let figure =
            |digits: usize, of: fn(&Costs) -> f64| format!("{:.digits$}", all[0].median(way, of));
        vec![
            (*words).to_owned(),
            figure(2, |c| c.switches),
            figure(2, |c| c.wakes),
            figure(2, |c| c.reads),
            figure(1, |c| c.micros),
        ]
    });
    let head = "answers|switches a round|wakes of the client|its reads|us a round";
    print(&format!(
        "{TOGETHER} requests together, client and server on CPU {cpu}, {} rounds a run, {} runs of each in turn; medians\n{}",
        flags.rounds,
        flags.runs,
        table(head, rows).trim_end()
    ))?;
    let wakes = |way: Way| all[0].median(way as usize, |costs| costs.wakes);
    let (writer, without) = (wakes(Way::Writer), wakes(Way::OneByOne));
    // A wake more in fifty rounds is other work on this CPU, whose time slice ends in the middle of one.
    let what = format!(
        "writer: {TOGETHER} replies cost {writer:.2} wakes of the client (1), {without:.2} without it"
    );
    bounds.add(writer <= 1.02, what);
    Ok(())
}

/// Returns the microseconds from each wake-up until the woken thread ran.
fn wake_ups(woken: u32, waker: u32, batch: bool, busy: bool) -> Result<Vec<f64>, Failure> {
    let (to, from) = UnixStream::pair().map_err(failed("a socket pair"))?;
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let hog = busy.then(|| {
            scope.spawn(|| {
                Linux.set_cpus(&[woken])?;
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok::<(), Failure>(())
            })
        });
        let sleeper = scope.spawn(move || {
            Linux.set_cpus(&[woken])?;
            let batch = batch.then(sched::batch_client).transpose();
            let _batch = batch.map_err(failed("SCHED_BATCH"))?;
            let (mut sent, mut waits) = ([0; 8], Vec::new());
            while (&from).read(&mut sent).map_err(failed("read"))? == 8 {
                let sent = Duration::from_nanos(u64::from_ne_bytes(sent));
                waits.push(begin.elapsed().saturating_sub(sent).as_secs_f64() * 1e6);
            }
            Ok::<Vec<f64>, Failure>(waits)
        });
        let wake = || -> Result<(), Failure> {
            Linux.set_cpus(&[waker])?;
            for round in 0..WAKES {
                // Not in step with the clock tick.
                std::thread::sleep(BETWEEN + Duration::from_micros(u64::from(round) * 37 % 1_000));
                let now = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                (&to)
                    .write_all(&now.to_ne_bytes())
                    .map_err(failed("write"))?;
            }
            Ok(())
        };
        let woken = wake();
        drop(to);
        let waits = sleeper.join().map_err(panicked);
        stop.store(true, Ordering::Relaxed);
        hog.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join)
            .map_err(panicked)??;
        woken?;
        waits?
    })
}

/// Prints what a woken thread waits, with its CPU to itself and beside a thread that computes.
fn waits(cpu: u32, other: u32) -> Result<(), Failure> {
    let cpus = Linux.cpus()?;
    let mut rows = Vec::new();
    for busy in [false, true] {
        for batch in [false, true] {
            let waits = wake_ups(cpu, other, batch, busy)?;
            rows.push(vec![
                if batch { "SCHED_BATCH" } else { "SCHED_OTHER" }.to_owned(),
                if busy { "a busy thread" } else { "nobody" }.to_owned(),
                format!("{:.0}", middle(waits.iter().copied())),
                format!("{:.0}", quantile(&waits, 0.9)),
                format!("{:.0}", quantile(&waits, 1.0)),
            ]);
        }
    }
    Linux.set_cpus(&cpus)?;
    print(&format!(
        "\nfrom being woken (by CPU {other}) until it runs (CPU {cpu}), {WAKES} times each, us\n{}",
        table("policy|beside|median|p90|max", rows).trim_end()
    ))
}

/// Prints the switches of a real X server and its client, as it is and under `SCHED_BATCH` by the fix.
fn real_x(flags: &Flags, cpu: u32, bounds: &mut Bounds) -> Result<(), Failure> {
    if let Err(error) = Linux.x_programs() {
        tell(&error.to_string());
        bounds.add(false, format!("real X: not measured: {error}"));
        return Ok(());
    }
    let fix: Vec<OsString> = match &flags.through {
        Some(words) => words.split_whitespace().map(OsString::from).collect(),
        None => vec![
            own_program()?.into(),
            "batch-client-exec".into(),
            "--".into(),
        ],
    };
    let all = rounds(flags.x_runs, &[2], |_, fixed| {
        unrecorded(&Placing {
            server: vec![cpu],
            client: vec![cpu],
            batch: false,
            through: if fixed == 1 { fix.clone() } else { Vec::new() },
        })
    })?;
    let by_library = || "sched::batch_client()".to_owned();
    let through = flags.through.clone().unwrap_or_else(by_library);
    let rows = ["as it is", &through]
        .into_iter()
        .enumerate()
        .map(|(side, name)| {
            let values: Vec<f64> = all[0].side(side).copied().flatten().collect();
            let figures = [
                middle(values.iter().copied()),
                quantile(&values, 0.1),
                quantile(&values, 0.9),
            ];
            let figures = figures.map(|value| format!("{value:.2}"));
            std::iter::once(name.to_owned()).chain(figures).collect()
        });
    print(&format!(
        "\nXvfb with {WINDOWS} windows, xwininfo -root -tree, both on CPU {cpu}, {} runs of each in turn; switches of both a flush\n{}",
        flags.x_runs,
        table("client|median|p10|p90", rows).trim_end()
    ))?;
    let median = |side| middle(all[0].side(side).copied().flatten());
    let ratio = median(0) / median(1);
    let what = format!("real X: {ratio:.2}x fewer switches a flush by {through} ({RATIO}x)");
    bounds.add(ratio >= RATIO, what);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let at = |share| quantile(&values, share).to_string();
        assert_eq!([at(0.1), at(0.9), at(1.0)], ["1", "9", "10"]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
