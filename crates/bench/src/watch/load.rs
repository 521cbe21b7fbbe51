//! The load: a thread that maps a little memory all the time and notes itself how long that took,
//! and stalls on command.
//!
//! ```text
//! mapper   mmap-touch-munmap .. .. .. |wait for the lock|.. .. ..
//! main     sleeps                     [populate or unmap]            done KIND BEGIN END
//! child                                                   [squeeze]  in a memory cgroup
//! ```

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stopgap_cli::Failure;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::memory::{Advice, Mapping, Memory};
use stopgap_kernel::tasks::{ChildLimits, Tasks};

use crate::common::{failed, map};

/// Bytes that the mapper maps.
const SMALL: Bytes = Bytes::kib(64);
/// Between two of its rounds.
const PAUSE: Nanos = Nanos::millis(5);
/// From here on it notes a round: what watch calls slow, less what a round has beside the call.
const NOTED: Nanos = Nanos::millis(9);
/// Bytes that are populated or unmapped in one call: long under any lock.
const LARGE: Bytes = Bytes::mib(400);
/// Memory that the squeezed child touches; its cgroup allows a part of that.
const WANTED: Bytes = Bytes::mib(448);
/// A squeeze that takes longer is over.
const LONGEST: Nanos = Nanos::secs(60);

#[derive(Default)]
struct Mapper {
    stop: AtomicBool,
    rounds: AtomicU64,
    cpu_ns: AtomicU64,
    /// When, and how long.
    noted: Mutex<Vec<(Nanos, Nanos)>>,
}

/// Reads commands until `end` or the end of standard input.
pub(super) fn run() -> Result<(), Failure> {
    let mapper = Mapper::default();
    std::thread::scope(|scope| {
        scope.spawn(|| map_on(&mapper));
        let done = obey(&mapper);
        mapper.stop.store(true, Ordering::Relaxed);
        done
    })
}

fn map_on(mapper: &Mapper) {
    while !mapper.stop.load(Ordering::Relaxed) {
        let (begin, cpu) = (Linux.now(), Linux.thread_cpu());
        if let Ok(mapping) = map(SMALL, Bytes(0)) {
            let _ = Linux.touch(&mapping, Bytes(0), SMALL);
            let _ = Linux.unmap(mapping);
        }
        let (took, cpu) = (
            Linux.now().saturating_sub(begin),
            Linux.thread_cpu().saturating_sub(cpu),
        );
        mapper.rounds.fetch_add(1, Ordering::Relaxed);
        mapper.cpu_ns.fetch_add(cpu.0, Ordering::Relaxed);
        if took >= NOTED
            && let Ok(mut noted) = mapper.noted.lock()
        {
            noted.push((begin, took));
        }
        Linux.sleep_until(Linux.now() + PAUSE);
    }
}

fn obey(mapper: &Mapper) -> Result<(), Failure> {
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        let said = writeln!(out, "{line}").and_then(|()| out.flush());
        said.map_err(failed("standard output"))
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed("standard input"))?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (begin, end) = match word {
            "populate" => populate()?,
            "unmap" => unmap()?,
            "squeeze" => squeeze(rest.into())?,
            "count" => {
                let rounds = mapper.rounds.load(Ordering::Relaxed);
                let cpu = mapper.cpu_ns.load(Ordering::Relaxed);
                say(format!("count {rounds} {cpu}"))?;
                continue;
            }
            _ => break,
        };
        say(format!("done {} {}", begin.0, end.0))?;
    }
    if let Ok(noted) = mapper.noted.lock() {
        for (begin, took) in noted.iter() {
            say(format!("noted {} {}", begin.0, took.0))?;
        }
    }
    say("end".to_owned())
}

/// Whatever `what` takes.
fn timed(what: impl FnOnce() -> stopgap_kernel::Result<()>) -> Result<(Nanos, Nanos), Failure> {
    let begin = Linux.now();
    what()?;
    Ok((begin, Linux.now()))
}

/// Holds mmap_lock for reading while it makes pages (`faultin_page_range()`); who maps waits.
fn populate() -> Result<(Nanos, Nanos), Failure> {
    let mapping = map(LARGE, Bytes(0))?;
    Linux.advise(&mapping, Bytes(0), LARGE, Advice::NoHugePage)?;
    let took = timed(|| Linux.advise(&mapping, Bytes(0), LARGE, Advice::PopulateWrite))?;
    give_back(mapping)?;
    Ok(took)
}

/// Holds mmap_lock while it frees pages (`do_vmi_align_munmap()`). The pages were made by faults,
/// which hold the lock of their VMA alone (6.4 on) and none for long.
fn unmap() -> Result<(Nanos, Nanos), Failure> {
    let mapping = map(LARGE, Bytes(0))?;
    Linux.advise(&mapping, Bytes(0), LARGE, Advice::NoHugePage)?;
    Linux.touch(&mapping, Bytes(0), LARGE)?;
    timed(|| Linux.unmap(mapping))
}

/// In pieces, so that no call is slow.
fn give_back(mapping: Mapping) -> Result<(), Failure> {
    let piece = Bytes::mib(4);
    for at in (0..LARGE.0).step_by(piece.0 as usize) {
        Linux.advise(&mapping, Bytes(at), piece, Advice::DontNeed)?;
    }
    Linux.unmap(mapping)?;
    Ok(())
}

/// A child in the cgroup wants more than it may have.
fn squeeze(cgroup: PathBuf) -> Result<(Nanos, Nanos), Failure> {
    let limits = ChildLimits {
        time: LONGEST,
        cgroup: Some(cgroup),
    };
    timed(|| {
        let mut body = || {
            let touched =
                map(WANTED, Bytes(0)).and_then(|mapping| Linux.touch(&mapping, Bytes(0), WANTED));
            touched.map_or_else(|error| error.to_string().into_bytes(), |()| Vec::new())
        };
        Linux.run_child(&limits, &mut body).map(drop)
    })
}
