//! What a guest does beside a watch that survives it, and beside a recording while the clock is set.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime, clock_settime};

use crate::Outcome;

/// The folder of packaging/stopgap-watch.service.
const STATE: &str = "/var/lib/stopgap";
/// The watch says so when it watches.
const WATCHES: &str = "Ctrl-C ends";
/// From then on: the page of a life before is made meanwhile, and a reading of the history comes each 10 s.
const BEFORE: Duration = Duration::from_secs(16);
const DAY: i64 = 86_400;

/// Commands, each after a `--`.
fn commands() -> Vec<Vec<String>> {
    let words: Vec<String> = std::env::args().collect();
    words
        .split(|word| word == "--")
        .skip(1)
        .map(<[String]>::to_vec)
        .collect()
}

fn start(words: &[String]) -> Result<Child, Box<dyn std::error::Error>> {
    let (program, words) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command.spawn()?)
}

/// Waits until it watches. Each line of its standard error goes to `port`, now and later.
fn until_it_watches(child: &mut Child, mut port: impl Write + Send + 'static) -> Outcome {
    let told = BufReader::new(child.stderr.take().ok_or("no pipe")?);
    let (tell, watches) = channel();
    thread::spawn(move || {
        for line in told.lines().map_while(Result::ok) {
            let _ = writeln!(port, "\nknown: {line}");
            if line.contains(WATCHES) {
                let _ = tell.send(());
            }
        }
    });
    Ok(watches.recv()?)
}

/// `stall` until somebody kills the machine, or `end` in order. The first command is the watch, the second shows its history at the end.
pub(crate) fn watch() -> Outcome {
    let end = std::env::args().nth(2).as_deref() == Some("end");
    let commands = commands();
    let [watch, history] = &commands[..] else {
        return Err("known watch stall|end -- COMMAND -- COMMAND".into());
    };
    // Where the machine's killer reads it.
    let mut port = OpenOptions::new().write(true).open("/dev/ttyS0")?;
    fs::create_dir_all(STATE)?;
    let data: Option<&CStr> = None;
    mount(c"/dev/vda", STATE, c"ext4", MountFlags::empty(), data)
        .map_err(|error| format!("{STATE}: {error}"))?;
    let folder = format!("{STATE}/watch");
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("{folder}: {error}").into());
        }
        _ => {}
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    writeln!(port, "\nknown: boot {}", boot.trim())?;
    let mut child = start(watch)?;
    until_it_watches(&mut child, port.try_clone()?)?;
    let said = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    let mut also = port.try_clone()?;
    let says = thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            let _ = writeln!(also, "\nknown: {line}");
        }
    });
    thread::sleep(BEFORE);
    if end {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // As KillSignal= of the unit.
        kill_process(pid.ok_or("no process")?, Signal::INT)?;
        let ended = child.wait()?;
        let _ = says.join();
        writeln!(port, "\nknown: watch {ended}")?;
        let shown = Command::new(&history[0]).args(&history[1..]).output()?;
        for line in String::from_utf8_lossy(&shown.stdout).lines() {
            writeln!(port, "\nknown: history: {line}")?;
        }
        writeln!(port, "\nknown: history {}", shown.status)?;
        rustix::mount::unmount(STATE, rustix::mount::UnmountFlags::empty())?;
        return Ok(());
    }
    let file = format!("{STATE}/lock");
    let held = File::create(&file)?;
    held.lock()?;
    let (tell, told) = channel();
    thread::spawn(move || -> io::Result<()> {
        let wanted = File::open(&file)?;
        let _ = tell.send((now(), rustix::thread::gettid()));
        wanted.lock()
    });
    let (stall, victim) = told.recv()?;
    writeln!(port, "\nknown: stall {stall} {}", victim.as_raw_nonzero())?;
    loop {
        writeln!(port, "\nknown: now {}", now())?;
        thread::sleep(Duration::from_millis(100));
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn jump(days: i64) -> Outcome {
    let mut day = clock_gettime(ClockId::Realtime);
    day.tv_sec += days * DAY;
    Ok(clock_settime(ClockId::Realtime, day)?)
}

/// Sleeps 300 ms four times; in the midst of two of these sleeps somebody sets the clock a day ahead, then two days back.
pub(crate) fn naps() -> Outcome {
    const NAP: Duration = Duration::from_millis(300);
    for days in [0, 1, -2, 0] {
        let setter = thread::spawn(move || {
            thread::sleep(NAP / 3);
            jump(days).map_err(|error| error.to_string())
        });
        thread::sleep(NAP);
        setter.join().map_err(|_| "the setter")??;
    }
    Ok(())
}

/// Runs a watch, in which a thread waits for a lock for 700 ms three times, and the clock is set before the second and the third.
pub(crate) fn beside() -> Outcome {
    let commands = commands();
    let mut child = start(commands.first().ok_or("no command")?)?;
    until_it_watches(&mut child, io::stderr())?;
    let folder = std::env::temp_dir();
    for days in [0, 1, -2] {
        jump(days)?;
        let file = folder.join("lock");
        let held = File::create(&file)?;
        held.lock()?;
        let victim = thread::spawn(move || File::open(file)?.lock());
        thread::sleep(Duration::from_millis(700));
        held.unlock()?;
        victim.join().map_err(|_| "the victim")??;
        thread::sleep(Duration::from_secs(3));
    }
    let output = child.wait_with_output()?;
    io::stdout().write_all(&output.stdout)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(output.status.to_string().into()),
    }
}

/// Sleeps 300 ms four times, and in the midst of the third the machine is suspended for seconds. With a command, a watch, that runs beside,
/// and a thread waits for a lock for 700 ms afterwards. Prints how long the machine was suspended.
pub(crate) fn suspend() -> Outcome {
    const NAP: Duration = Duration::from_millis(300);
    let watch = commands().into_iter().next();
    let child = match &watch {
        Some(watch) => {
            let mut child = start(watch)?;
            until_it_watches(&mut child, io::stderr())?;
            Some(child)
        }
        None => None,
    };
    let before = suspended();
    for nap in 0..4 {
        let suspender = (nap == 2).then(|| {
            thread::spawn(|| {
                thread::sleep(NAP / 3);
                suspend_for(3).map_err(|error| error.to_string())
            })
        });
        thread::sleep(NAP);
        suspender
            .map_or(Ok(Ok(())), thread::JoinHandle::join)
            .map_err(|_| "the suspender")??;
    }
    println!(
        "suspended {} ms",
        suspended().saturating_sub(before).as_millis()
    );
    let Some(child) = child else { return Ok(()) };
    let file = std::env::temp_dir().join("lock");
    let held = File::create(&file)?;
    held.lock()?;
    let victim = thread::spawn(move || File::open(file)?.lock());
    thread::sleep(Duration::from_millis(700));
    held.unlock()?;
    victim.join().map_err(|_| "the victim")??;
    let output = child.wait_with_output()?;
    io::stdout().write_all(&output.stdout)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(output.status.to_string().into()),
    }
}

/// Suspends the machine, without help of its firmware, until its clock rings.
fn suspend_for(seconds: u32) -> Outcome {
    const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
    let write = |file: &str, text: &str| {
        fs::write(file, text).map_err(|error| format!("{text} to {file}: {error}"))
    };
    write(ALARM, "0")?;
    write(ALARM, &format!("+{seconds}"))?;
    Ok(write("/sys/power/state", "mem")?)
}

/// How long the machine has been suspended since it started.
fn suspended() -> Duration {
    let all = clock_gettime(ClockId::Boottime);
    let all = all.tv_sec.cast_unsigned() * 1_000_000_000 + all.tv_nsec.cast_unsigned();
    Duration::from_nanos(all.saturating_sub(now()))
}

/// Mounts the folder in which everybody looks for it, and prints it.
pub(crate) fn lockdown() -> Outcome {
    const FOLDER: &str = "/sys/kernel/security";
    let data: Option<&CStr> = None;
    mount(
        c"securityfs",
        FOLDER,
        c"securityfs",
        MountFlags::empty(),
        data,
    )?;
    print!("{}", fs::read_to_string(format!("{FOLDER}/lockdown"))?);
    Ok(())
}
