//! 32 requests that come together, answered in three ways.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use stopgap_arena::coalesce::{Options, Writer};
use stopgap_arena::sched;
use stopgap_cli::{Failure, progress_bar};
use stopgap_kernel::tasks::{Switches, Tasks};
use stopgap_kernel::{Linux, signals};

use super::{Bound, Flags, middle};

/// Bytes of a request and of its reply.
const MESSAGE: usize = 32;
/// Requests that come together.
const TOGETHER: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    OneByOne,
    Batch,
    Writer,
    Gathered,
}

impl Way {
    const ALL: [Way; 4] = [Way::OneByOne, Way::Batch, Way::Writer, Way::Gathered];

    fn words(self) -> &'static str {
        match self {
            Way::OneByOne => "a write for each",
            Way::Batch => "the same, client under SCHED_BATCH",
            Way::Writer => "the coalescing writer",
            Way::Gathered => "one write, gathered by hand",
        }
    }
}

/// A round.
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

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::error(error.to_string())
}

/// Answers until no more requests come; its own switches.
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
            Way::Writer => writer.read(socket, &mut buffer).map_err(failed)?,
            _ => (&*socket).read(&mut buffer).map_err(failed)?,
        };
        if count == 0 {
            return Ok(Linux.switches()?.since(before));
        }
        let mut gathered = Vec::with_capacity(count);
        // Requests are sent in whole and read so: the buffer holds a round.
        for request in buffer[..count].chunks_exact(MESSAGE) {
            match way {
                Way::OneByOne | Way::Batch => (&*socket).write_all(request).map_err(failed)?,
                Way::Writer => drop(writer.push(request).map_err(failed)?),
                Way::Gathered => gathered.extend_from_slice(request),
            }
        }
        if way == Way::Gathered {
            (&*socket).write_all(&gathered).map_err(failed)?;
        }
    }
}

fn one(way: Way, rounds: u32) -> Result<Costs, Failure> {
    let (server, client) = UnixStream::pair().map_err(failed)?;
    std::thread::scope(|scope| {
        let served = scope.spawn(move || serve(&server, way));
        let asked = scope.spawn(move || {
            let guard = (way == Way::Batch)
                .then(sched::batch_client)
                .transpose()
                .map_err(failed)?;
            // In read(2) it would be woken, too, when the server has read and there is room to write again.
            let mut fds = [PollFd::new(&client, PollFlags::IN)];
            let requests: Vec<u8> = (0..MESSAGE * TOGETHER).map(|at| (at % 251) as u8).collect();
            let mut buffer = [0; MESSAGE * TOGETHER];
            let (before, start, mut reads) = (Linux.switches()?, std::time::Instant::now(), 0_u64);
            for _ in 0..rounds {
                (&client).write_all(&requests).map_err(failed)?;
                let mut got = 0;
                while got < buffer.len() {
                    rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None))
                        .map_err(failed)?;
                    match (&client).read(&mut buffer[got..]).map_err(failed)? {
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
            drop(guard);
            drop(client);
            Ok((switches, took, reads))
        });
        let ended = || Failure::error("a thread panicked");
        let (client, took, reads) = asked.join().map_err(|_| ended())??;
        let server = served.join().map_err(|_| ended())??;
        let a_round = |count: u64| count as f64 / f64::from(rounds);
        Ok(Costs {
            switches: a_round(client.total() + server.total()),
            wakes: a_round(client.voluntary),
            reads: a_round(reads),
            micros: took.as_secs_f64() * 1e6 / f64::from(rounds),
        })
    })
}

/// Prints a line for each way; the bound.
pub(super) fn measure(flags: &Flags) -> Result<Vec<Bound>, Failure> {
    let cpus = Linux.cpus()?;
    let cpu = flags.cpu.or(cpus.last().copied()).unwrap_or(0);
    Linux.set_cpus(&[cpu])?;
    println!(
        "{TOGETHER} requests together, client and server on CPU {cpu}, {} rounds a run, {} runs of each in turn; medians",
        flags.rounds, flags.runs
    );
    let bar = progress_bar();
    let mut all: [Vec<Costs>; 4] = Default::default();
    for run in 0..flags.runs {
        for turn in 0..Way::ALL.len() {
            if signals::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            let way = Way::ALL[(turn + run as usize) % Way::ALL.len()];
            all[way as usize].push(one(way, flags.rounds)?);
        }
        bar.set_position(u64::from(run + 1) * 1_000 / u64::from(flags.runs));
    }
    bar.finish_and_clear();
    Linux.set_cpus(&cpus)?;
    let figure = |way: Way, of: fn(&Costs) -> f64| {
        middle(&all[way as usize].iter().map(of).collect::<Vec<_>>())
    };
    println!(
        "answers                              switches a round  wakes of the client  its reads  us a round"
    );
    for way in Way::ALL {
        println!(
            "{:35}  {:16.2}  {:19.2}  {:9.2}  {:10.1}",
            way.words(),
            figure(way, |c| c.switches),
            figure(way, |c| c.wakes),
            figure(way, |c| c.reads),
            figure(way, |c| c.micros),
        );
    }
    let wakes = figure(Way::Writer, |c| c.wakes);
    Ok(vec![Bound {
        // A wake more in fifty rounds is other work on this CPU, whose time slice ends in the middle of one.
        holds: wakes <= 1.02,
        text: format!(
            "writer: {TOGETHER} replies cost {wakes:.2} wakes of the client (1), {:.2} without it",
            figure(Way::OneByOne, |c| c.wakes)
        ),
    }])
}
