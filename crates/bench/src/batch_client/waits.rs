//! What `SCHED_BATCH` costs: how long a thread waits from when it is woken until it runs, with its CPU to itself and beside a
//! thread that computes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stopgap_arena::sched;
use stopgap_cli::Failure;
use stopgap_kernel::Linux;
use stopgap_kernel::tasks::Tasks;

use super::{Flags, middle, quantile};

/// Wake-ups of each kind.
const WAKES: u32 = 100;
/// Between two of them.
const BETWEEN: Duration = Duration::from_millis(12);

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::error(error.to_string())
}

/// Microseconds from each wake-up until the woken thread ran.
fn one(woken: u32, waker: u32, batch: bool, busy: bool) -> Result<Vec<f64>, Failure> {
    let (to, from) = UnixStream::pair().map_err(failed)?;
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
            let _guard = batch
                .then(sched::batch_client)
                .transpose()
                .map_err(failed)?;
            let (mut sent, mut waits) = ([0; 8], Vec::new());
            while (&from).read(&mut sent).map_err(failed)? == 8 {
                let now = begin.elapsed();
                let sent = Duration::from_nanos(u64::from_ne_bytes(sent));
                waits.push(now.saturating_sub(sent).as_secs_f64() * 1e6);
            }
            Ok::<Vec<f64>, Failure>(waits)
        });
        let wake = || -> Result<(), Failure> {
            Linux.set_cpus(&[waker])?;
            for round in 0..WAKES {
                // Not in step with the clock tick.
                std::thread::sleep(BETWEEN + Duration::from_micros(u64::from(round) * 37 % 1_000));
                let now = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                (&to).write_all(&now.to_ne_bytes()).map_err(failed)?;
            }
            Ok(())
        };
        let woken = wake();
        drop(to);
        let ended = || Failure::error("a thread panicked");
        let waits = sleeper.join().map_err(|_| ended());
        stop.store(true, Ordering::Relaxed);
        if let Some(hog) = hog {
            hog.join().map_err(|_| ended())??;
        }
        woken?;
        waits?
    })
}

/// Prints a line for each.
pub(super) fn measure(flags: &Flags) -> Result<(), Failure> {
    let cpus = Linux.cpus()?;
    let cpu = flags.cpu.or(cpus.last().copied()).unwrap_or(0);
    let Some(&other) = cpus.iter().find(|&&other| other != cpu) else {
        println!("\nwhat a woken thread waits: not measured, there is one CPU");
        return Ok(());
    };
    println!(
        "\nfrom being woken (by CPU {other}) until it runs (CPU {cpu}), {WAKES} times each, us"
    );
    println!("policy       beside         median    p90    max");
    for busy in [false, true] {
        for batch in [false, true] {
            let waits = one(cpu, other, batch, busy)?;
            println!(
                "{:11}  {:13}  {:6.0}  {:5.0}  {:5.0}",
                if batch { "SCHED_BATCH" } else { "SCHED_OTHER" },
                if busy { "a busy thread" } else { "nobody" },
                middle(&waits),
                quantile(&waits, 0.9),
                quantile(&waits, 1.0),
            );
        }
    }
    Linux.set_cpus(&cpus)?;
    Ok(())
}
