//! Flags of `watch`.

use std::path::PathBuf;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_tracer::slow_calls::{Limit, number};

use super::values::{pid, size, time};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A stall is a pair of files, stall-TIME.txt (the page: what fired, the cause, and \
                  explain's findings) and stall-TIME.parquet (the trace), and a line on standard \
                  output. kill -USR1 takes a window now; Ctrl-C ends. Needs root: without it there \
                  is no trace. Start with: stopgap watch"
)]
pub(crate) struct Watch {
    /// Watch this process, all its threads and what they start, until it ends [default: the whole
    /// system].
    #[arg(short, long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// Pressure that fires, as 150ms/1s: tasks waited for memory for 150 ms within a second. With the
    /// resource before it for one alone, as memory=150ms/1s,io=700ms/1s; off: none. Windows of 500ms to
    /// 10s [default: memory=150ms/1s,io=700ms/1s].
    #[arg(long, value_name = "[RESOURCE=]STALL/WINDOW", value_delimiter = ',', value_parser = psi)]
    pub(crate) psi: Vec<Psi>,
    /// System calls that fire when they take so long, as mmap=10ms,ioctl=1s; off: none [default: mmap,
    /// munmap, mprotect, mremap, brk and madvise from 10ms on with -p, from 50ms on without].
    #[arg(long, value_name = "CALL=TIME", value_delimiter = ',', value_parser = slow)]
    pub(crate) slow: Vec<Slow>,
    /// Directory for the stalls [default: watch in where records go: $XDG_STATE_HOME/stopgap or
    /// ~/.local/state/stopgap, else a private folder under the temporary directory].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Memory of the window for each CPU, as 32M: what happened last, as far back as that holds
    /// [default: 16M, or the CPU's share of 1/32 of memory].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<Bytes>,
    /// The most that stalls may take on the disk; the oldest go first.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) disk: Bytes,
    /// Stop after this time, as 8h [default: at Ctrl-C, or when the process ends].
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Nanos>,
    /// Print a line of JSON a stall, and one at the end (schema stopgap.watch/1).
    #[arg(long)]
    pub(crate) json: bool,
    /// Make the files of a window that was taken out, from its folder; watch does this itself.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) finish: Option<PathBuf>,
}

/// A trigger by pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Psi {
    Off,
    /// One resource, or `None` for both; how long tasks waited, within which window.
    On(Option<Resource>, Nanos, Nanos),
}

/// A resource that tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    Io,
}

/// A trigger by a slow call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Slow {
    Off,
    On(Limit),
}

fn psi(text: &str) -> Result<Psi, String> {
    if text == "off" {
        return Ok(Psi::Off);
    }
    let (resource, times) = match text.split_once('=') {
        None => (None, text),
        Some(("memory", times)) => (Some(Resource::Memory), times),
        Some(("io", times)) => (Some(Resource::Io), times),
        Some((other, _)) => return Err(format!("'{other}' is neither memory nor io")),
    };
    let wrong = || format!("'{text}' is no pressure; write it as 150ms/1s or memory=150ms/1s");
    let (stall, window) = times.split_once('/').ok_or_else(wrong)?;
    if [stall, window]
        .iter()
        .any(|time| time.ends_with(|c: char| c.is_ascii_digit()))
    {
        return Err(format!(
            "'{text}': write both times with their unit, as 150ms/1s"
        ));
    }
    let (stall, window) = (time(stall)?, time(window)?);
    if !(Nanos::millis(500)..=Nanos::secs(10)).contains(&window) {
        return Err(format!("a window is of 500ms to 10s, not of {window}"));
    }
    if stall == Nanos(0) || stall > window {
        return Err(format!(
            "no task can wait for {stall} within {window}, or it always does"
        ));
    }
    Ok(Psi::On(resource, stall, window))
}

fn slow(text: &str) -> Result<Slow, String> {
    if text == "off" {
        return Ok(Slow::Off);
    }
    let (call, limit) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no limit; write it as mmap=10ms"))?;
    if number(call).is_none() {
        let known = stopgap_kernel::syscalls::chosen();
        let names: Vec<&str> = known.into_iter().map(|(_, name)| name).collect();
        return Err(format!("'{call}' is none of {}", names.join(" ")));
    }
    let limit = time(limit)?;
    if limit < Nanos::millis(1) {
        return Err(format!("{text}: below 1ms each call would fire"));
    }
    Ok(Slow::On(Limit {
        call: call.to_owned(),
        time: limit,
    }))
}

impl Watch {
    /// Pressure that fires: resource, stall, window.
    pub(crate) fn pressures(&self) -> Vec<(Resource, Nanos, Nanos)> {
        if self.psi.is_empty() {
            // A second of which a third of a frame in each hundred ms waits for memory is felt. The
            // start of a program waits for the disk as long: that is no stall, but 0.7 s of 1 is.
            let memory = (Resource::Memory, Nanos::millis(150), Nanos::secs(1));
            return vec![memory, (Resource::Io, Nanos::millis(700), Nanos::secs(1))];
        }
        let mut all = Vec::new();
        for psi in &self.psi {
            match *psi {
                Psi::Off => {}
                Psi::On(Some(resource), stall, window) => all.push((resource, stall, window)),
                Psi::On(None, stall, window) => {
                    all.extend([Resource::Memory, Resource::Io].map(|r| (r, stall, window)));
                }
            }
        }
        all
    }

    /// Calls that fire. Memory calls alone by default: ioctl and the others may wait on purpose (the
    /// next frame, a virtual machine), which no limit tells from a stall.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        if self.slow.is_empty() {
            // Most of a frame for a program that somebody suspects; three frames for any program.
            let time = Nanos::millis(if self.pid.is_some() { 10 } else { 50 });
            let calls = ["mmap", "munmap", "mprotect", "mremap", "brk", "madvise"];
            let limit = |call: &str| Limit {
                call: call.to_owned(),
                time,
            };
            return calls.into_iter().map(limit).collect();
        }
        let limit = |slow: &Slow| match slow {
            Slow::Off => None,
            Slow::On(limit) => Some(limit.clone()),
        };
        self.slow.iter().filter_map(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_of_one_resource_or_of_both() {
        let ms = Nanos::millis;
        assert_eq!(psi("150ms/1s"), Ok(Psi::On(None, ms(150), ms(1_000))));
        let io = Psi::On(Some(Resource::Io), ms(700), ms(2_000));
        assert_eq!(psi("io=700ms/2s"), Ok(io));
        assert_eq!(psi("off"), Ok(Psi::Off));
        for wrong in [
            "150ms",
            "cpu=1ms/1s",
            "2s/1s",
            "0s/1s",
            "1ms/100ms",
            "1ms/11s",
            "x/1s",
            "1/1s",
            "memory=150ms/1",
        ] {
            assert!(psi(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_names_a_call_of_this_machine() {
        let limit = Limit {
            call: "ioctl".to_owned(),
            time: Nanos::secs(1),
        };
        assert_eq!(slow("ioctl=1s"), Ok(Slow::On(limit)));
        for wrong in ["ioctl", "nosuchcall=1s", "mmap=1us", "mmap=x"] {
            assert!(slow(wrong).is_err(), "{wrong}");
        }
    }
}
