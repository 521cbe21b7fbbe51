//! Flags of `watch`.

use std::path::PathBuf;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_tracer::waits::syscall_names;

use super::values::{pid, process_name, size, time};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each stall becomes two files and a line on standard output. stall-TIME.txt says
what fired and the cause, and has explain's findings. stall-TIME.parquet is the
trace, with the stall in its middle. kill -USR1 takes a window now. Ctrl-C ends.
Watch needs BPF: root, or CAP_BPF and CAP_PERFMON.

Start with: sudo stopgap watch")]
pub(crate) struct Watch {
    /// Fire at stalls of these processes, as 17,42, of all their threads and of what they start,
    /// until they end; repeatable [default: any process]. The trace has all threads of the machine
    /// in any case.
    #[arg(short, long, value_name = "PID", value_parser = pid, value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Fire at stalls of the processes in this control group (a folder below /sys/fs/cgroup) and
    /// below it, and of what they start, later ones too; repeatable.
    #[arg(long, value_name = "DIR")]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Fire at stalls of threads and processes of this name (at most 15 bytes, as ps -o comm
    /// prints it); repeatable.
    #[arg(long, value_name = "NAME", value_parser = process_name)]
    pub(crate) comm: Vec<String>,
    /// Fire at this pressure, as 150ms/1s: tasks waited for memory for 150 ms within a second.
    /// Name a resource for one alone, as memory=150ms/1s,io=700ms/1s; off: never. A window is
    /// 500ms to 10s [default: memory=150ms/1s,io=700ms/1s].
    #[arg(long, value_name = "[RESOURCE=]STALL/WINDOW", value_delimiter = ',', value_parser = psi)]
    pub(crate) psi: Vec<Psi>,
    /// Fire where a thread loses so much time in one system call, asleep or without a CPU, as
    /// fsync=50ms,futex=1s. Besides calls there are fault (page faults), any (calls and faults,
    /// except waits for work, as poll), run-queue (ready without a CPU), blocked (state D),
    /// stopped (by SIGSTOP) and cpu-quota; off: never [default:
    /// any=250ms,run-queue=100ms,blocked=1s,stopped=250ms,cpu-quota=100ms].
    #[arg(long, value_name = "WHAT=TIME", value_delimiter = ',', value_parser = slow)]
    pub(crate) slow: Vec<Slow>,
    /// Fire at this growth, as 24h/1m: at the rate of the last minute a process would have as many
    /// mappings as the kernel allows (vm.max_map_count) within 24 hours; off: never. The page
    /// names the code that maps.
    #[arg(long, value_name = "TIME/WINDOW", value_parser = growth, default_value = "24h/1m")]
    pub(crate) map_growth: MapGrowth,
    /// Fire at this mark: the NAME that a program gives to stopgap_mark() (stopgap_mark.h);
    /// repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) mark: Vec<String>,
    /// Fire at late frames: those of the threads of this process or of this name, as game, 812 or
    /// game=60Hz, or those that a program ends by stopgap_mark(), as mark:frame. Watch learns the
    /// period from 16 beats unless it is given, as 60Hz or 16.7ms. A frame is what a thread does
    /// from one sleep for its next beat to the next; such a sleep is never late. Repeatable.
    #[arg(long, value_name = "WHO[=RATE]", value_parser = frame)]
    pub(crate) frame: Vec<Frame>,
    /// Call a frame late where it takes so much longer than its period [default: one period].
    #[arg(long, value_name = "TIME", value_parser = time, requires = "frame")]
    pub(crate) frame_late: Option<Nanos>,
    /// Also write the last seconds to a file of --buffer bytes, and sync it every second. After a
    /// hang or a loss of power, the next watch into the same directory makes a page of it.
    #[arg(long)]
    pub(crate) survive: bool,
    /// Write stalls into this directory [default: watch in where records go:
    /// $XDG_STATE_HOME/stopgap or ~/.local/state/stopgap].
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Keep so much time before a stall in its trace, as far as the buffer holds it.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub(crate) keep: Nanos,
    /// Use so much memory for the last seconds, as 64M.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64M")]
    pub(crate) buffer: Bytes,
    /// Let stalls take so much of the disk; the oldest go first.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) disk: Bytes,
    /// Stop after this time, as 8h [default: at Ctrl-C, or when the process ends].
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Nanos>,
    /// Print a line of JSON per stall, and one at the end (schema stopgap.watch/3).
    #[arg(long)]
    pub(crate) json: bool,
    /// Watch nothing, and print what threads lost time to in the last TIME, as -24h, -30m or -7d,
    /// by cause, with a picture. Each watch keeps a history of 30 days in DIR/history. With
    /// --json: schema stopgap.history/1.
    #[arg(long, value_name = "TIME", value_parser = back, allow_hyphen_values = true)]
    pub(crate) history: Option<Nanos>,
    /// Also write the history as an HTML page with a picture of lost time by cause. - is standard
    /// output.
    #[arg(
        long,
        value_name = "FILE",
        requires = "history",
        conflicts_with = "json"
    )]
    pub(crate) html: Option<PathBuf>,
    /// Make the files of a window that was taken out, from its folder; watch does this itself.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) finish: Option<PathBuf>,
    /// Merge old files of the history in this folder; watch does this itself.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) thin: Option<PathBuf>,
    /// Write what standard input sends into this file; watch does this itself.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) keep_in: Option<PathBuf>,
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

/// A trigger by growth of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapGrowth {
    Off,
    /// Time to the limit, and the window whose rate counts.
    On(Nanos, Nanos),
}

/// A trigger by time that a thread loses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Slow {
    Off,
    On(Limit),
}

/// A cause of lost time, and the least loss that triggers a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) what: What,
    pub(crate) time: Nanos,
}

/// The kinds of waiting in which a thread loses time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A system call, by its name, or a page fault.
    Call(String),
    /// Any call and fault, but for waits for work.
    Any,
    /// Ready, and without a CPU.
    RunQueue,
    /// State D.
    Blocked,
    /// State T.
    Stopped,
    /// Its cgroup's quota of CPU time.
    CpuQuota,
}

impl What {
    pub(crate) fn word(&self) -> &str {
        match self {
            What::Call(call) => call,
            What::Any => "any",
            What::RunQueue => "run-queue",
            What::Blocked => "blocked",
            What::Stopped => "stopped",
            What::CpuQuota => "cpu-quota",
        }
    }
}

/// Frames that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) of: FrameOf,
    /// `None`: it is learned.
    pub(crate) period: Option<Nanos>,
}

/// Whose frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrameOf {
    /// Those of the threads of a process.
    Process(u32),
    /// Those of threads of a name, and of processes of a name.
    Name(String),
    /// Those that a mark ends.
    Mark(String),
}

impl std::fmt::Display for FrameOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameOf::Process(pid) => write!(f, "{pid}"),
            FrameOf::Name(name) => write!(f, "{name}"),
            FrameOf::Mark(mark) => write!(f, "mark:{mark}"),
        }
    }
}

/// `game`, `812=60Hz`, `mark:frame=16.7ms`.
fn frame(text: &str) -> Result<Frame, String> {
    let (who, rate) = match text.rsplit_once('=') {
        Some((who, rate)) => (who, Some(rate)),
        None => (text, None),
    };
    let of = match (who.strip_prefix("mark:"), who.parse()) {
        (Some(""), _) => return Err(format!("'{text}' names no mark; write it as mark:frame")),
        (Some(mark), _) => FrameOf::Mark(mark.to_owned()),
        (None, Ok(pid)) => FrameOf::Process(pid),
        (None, Err(_)) => FrameOf::Name(process_name(who)?),
    };
    let period = rate.map(period).transpose()?;
    Ok(Frame { of, period })
}

/// `60Hz` or `16.7ms`.
fn period(text: &str) -> Result<Nanos, String> {
    let period = match text.strip_suffix("Hz") {
        Some(rate) => {
            let rate: Result<f64, _> = rate.parse();
            let rate = rate.ok().filter(|rate| *rate > 0.0 && rate.is_finite());
            rate.map(|rate| Nanos((1e9 / rate) as u64))
        }
        None => time(text).ok(),
    };
    let wrong = || format!("'{text}' is no rate; write it as 60Hz or as a period, 16.7ms");
    let period = period.ok_or_else(wrong)?;
    let sane = (Nanos::millis(1)..=Nanos::secs(1)).contains(&period);
    sane.then_some(period)
        .ok_or_else(|| format!("'{text}': frames come at 1Hz to 1000Hz"))
}

/// A time back from now: `-24h`, `24h`, `7d`.
fn back(text: &str) -> Result<Nanos, String> {
    let length = text.strip_prefix('-').unwrap_or(text);
    if !length.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!(
            "'{text}' is no time back; write it as -24h, -30m or -7d"
        ));
    }
    match time(length)? {
        Nanos(0) => Err(format!("'{text}': nothing happens in no time")),
        back => Ok(back),
    }
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

fn growth(text: &str) -> Result<MapGrowth, String> {
    if text == "off" {
        return Ok(MapGrowth::Off);
    }
    let wrong = || format!("'{text}' is no growth; write it as 24h/1m, both times with their unit");
    let (horizon, window) = text.split_once('/').ok_or_else(wrong)?;
    if [horizon, window]
        .iter()
        .any(|time| time.ends_with(|c: char| c.is_ascii_digit()))
    {
        return Err(wrong());
    }
    let (horizon, window) = (time(horizon)?, time(window)?);
    if !(Nanos::secs(1)..=Nanos::secs(3_600)).contains(&window) {
        return Err(format!("a window is of 1s to 1h, not of {window}"));
    }
    if horizon <= window {
        return Err(format!(
            "{horizon} to the limit is not longer than the window of {window}"
        ));
    }
    Ok(MapGrowth::On(horizon, window))
}

fn slow(text: &str) -> Result<Slow, String> {
    if text == "off" {
        return Ok(Slow::Off);
    }
    let (word, limit) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no limit; write it as fsync=50ms"))?;
    let what = match word {
        "any" => What::Any,
        "run-queue" => What::RunQueue,
        "blocked" => What::Blocked,
        "stopped" => What::Stopped,
        "cpu-quota" => What::CpuQuota,
        call if call == FAULT || syscall_names().values().any(|name| name == call) => {
            What::Call(call.to_owned())
        }
        _ => {
            return Err(format!(
                "'{word}' is no system call of this machine, nor fault, any, run-queue, blocked, stopped or cpu-quota"
            ));
        }
    };
    let time = time(limit)?;
    if time < Nanos::millis(1) {
        return Err(format!("{text}: below 1ms each call would fire"));
    }
    Ok(Slow::On(Limit { what, time }))
}

/// Page faults among calls.
pub(crate) const FAULT: &str = "fault";

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

    /// The time that a thread may lose before it fires.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        if self.slow.is_empty() {
            // A user feels a quarter of a second, and a CPU that does not come for six frames.
            let limit = |(what, ms)| Limit {
                what,
                time: Nanos::millis(ms),
            };
            return [
                (What::Any, 250),
                (What::RunQueue, 100),
                (What::Blocked, 1_000),
                (What::Stopped, 250),
                (What::CpuQuota, 100),
            ]
            .map(limit)
            .into();
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
    fn growth_has_a_time_and_a_window() {
        let day = MapGrowth::On(Nanos::secs(86_400), Nanos::secs(60));
        assert_eq!(growth("24h/1m"), Ok(day));
        assert_eq!(growth("off"), Ok(MapGrowth::Off));
        for wrong in ["24h", "1m/24h", "24h/1ms", "24/1m", "x/1m", "24h/2h"] {
            assert!(growth(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_back_has_a_unit_and_30_days_at_most() {
        for (text, seconds) in [
            ("-24h", 86_400),
            ("24h", 86_400),
            ("-7d", 604_800),
            ("-90s", 90),
        ] {
            assert_eq!(back(text), Ok(Nanos::secs(seconds)), "{text}");
        }
        for wrong in [
            "",
            "-",
            "-0h",
            "0d",
            "24",
            "-24",
            "yesterday",
            "--json",
            "31d",
            "-721h",
            "-1x",
            "- 1h",
        ] {
            assert!(back(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn frames_are_of_a_process_a_name_or_a_mark() {
        let of = |text: &str| frame(text).map(|frame| (frame.of, frame.period));
        let name = |name: &str| FrameOf::Name(name.to_owned());
        assert_eq!(of("game"), Ok((name("game"), None)));
        let period = Some(Nanos(16_666_666));
        assert_eq!(of("812=60Hz"), Ok((FrameOf::Process(812), period)));
        let mark = FrameOf::Mark("frame".to_owned());
        assert_eq!(of("mark:frame=20ms"), Ok((mark, Some(Nanos::millis(20)))));
        for wrong in [
            "",
            "=60Hz",
            "game=",
            "game=60",
            "game=0Hz",
            "game=-1Hz",
            "game=5000Hz",
            "game=2s",
            "mark:",
            "a-name-of-20-letters",
        ] {
            assert!(frame(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_names_a_call_of_this_machine() {
        let limit = Limit {
            what: What::Call("ioctl".to_owned()),
            time: Nanos::secs(1),
        };
        assert_eq!(slow("ioctl=1s"), Ok(Slow::On(limit)));
        let limit = Limit {
            what: What::RunQueue,
            time: Nanos::millis(20),
        };
        assert_eq!(slow("run-queue=20ms"), Ok(Slow::On(limit)));
        for wrong in ["ioctl", "nosuchcall=1s", "mmap=1us", "mmap=x"] {
            assert!(slow(wrong).is_err(), "{wrong}");
        }
    }
}
