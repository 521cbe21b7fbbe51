//! Clients of an X server: who makes its windows, and `xwininfo`, which asks for them.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Signal;
use rustix::thread::sched_setaffinity;
use stopgap_events::units::Nanos;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt, CreateWindowAux, WindowClass};
use x11rb::rust_connection::{DefaultStream, RustConnection};

use super::{Child, Conditions, Held, Linux};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::read_lossy;
use crate::proc::{number_of, switches_of};
use crate::tasks::Switches;
use crate::x11::{Placing, X11, XRun, XServer};
use crate::{folder, process};

/// Windows in each child of the root, that child counted.
const BRANCH: u32 = 10;
/// Longest run of one client.
const CLIENT_TIME: Nanos = Nanos::secs(30);
/// How long a server may take to sleep again.
const QUIET: Duration = Duration::from_secs(2);
/// Longest output of a client: a line of a window is some 80 bytes.
const OUTPUT: usize = 1 << 20;

/// A server with its windows.
struct Tree {
    // Before the server: who made the windows leaves first.
    _windows: RustConnection,
    server: Xvfb,
}

impl X11 for Linux {
    fn x_programs(&self) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there =
            |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
        let absent: Vec<&str> = ["Xvfb", "xwininfo"]
            .into_iter()
            .filter(|name| !is_there(name))
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        let what = format!("an X server ({} not found)", absent.join(" and "));
        Err(Error::unsupported(what, "install xvfb and x11-utils"))
    }

    fn start_x(&self, windows: u32, cpus: &[u32]) -> Result<Box<dyn XServer>> {
        self.x_programs()?;
        let server = Xvfb::start(cpus)?;
        let connection = connect(&server)?;
        make(&connection, windows).map_err(|why| spoken(&why))?;
        Ok(Box::new(Tree {
            _windows: connection,
            server,
        }))
    }
}

fn spoken(why: &dyn std::error::Error) -> Error {
    Error::child(format!("Xvfb: {why}"))
}

fn connect(server: &Xvfb) -> Result<RustConnection> {
    let socket = server.socket();
    let stream = UnixStream::connect(&socket)
        .and_then(DefaultStream::from_unix_stream)
        .map_err(|e| Error::call("connect", socket.display(), e))?;
    let name = b"MIT-MAGIC-COOKIE-1".to_vec();
    let cookie = server.cookie().to_vec();
    RustConnection::connect_to_stream_with_auth_info(stream.0, 0, name, cookie)
        .map_err(|why| spoken(&why))
}

/// Makes the windows and waits until the server has them.
fn make(
    to: &RustConnection,
    windows: u32,
) -> std::result::Result<(), x11rb::errors::ReplyOrIdError> {
    let root = to.setup().roots.first().map_or(0, |screen| screen.root);
    let mut parent = root;
    for window in 0..windows {
        let id = to.generate_id()?;
        let first = window % BRANCH == 0;
        let above = if first { root } else { parent };
        // As an icon: never shown, so that nothing is drawn.
        let values = CreateWindowAux::new();
        let kind = WindowClass::INPUT_OUTPUT;
        to.create_window(0, id, above, 1, 1, 8, 8, 0, kind, 0, &values)?;
        if first {
            parent = id;
        }
    }
    to.get_input_focus()?.reply()?;
    Ok(())
}

impl XServer for Tree {
    fn pid(&self) -> u32 {
        self.server.child().watched().pid()
    }

    fn ask(&self, placing: &Placing, held: &mut dyn FnMut(u32) -> Result<()>) -> Result<XRun> {
        self.place(&placing.server)?;
        let (client, output) = self.hold(placing)?;
        let pid = client.pid();
        let prepared = held(pid).and_then(|()| {
            let server = quiet(self.pid())?;
            Ok((server, quiet(pid)?))
        });
        let (server_before, before) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = client.give_up(); // the first error is told
                return Err(error);
            }
        };
        let begin = Linux.now();
        let client = client.release()?;
        let timely = client.watched().ends_within(CLIENT_TIME);
        let elapsed = Linux.now().saturating_sub(begin);
        // Ended and not yet reaped: the kernel still tells what it counted.
        let writes = writes(pid);
        let ended = match timely {
            true => client.ended()?,
            false => client.end(Nanos::millis(100))?,
        };
        let said = |ended: &str| Err(Error::child(ended));
        let Some(ended) = ended.filter(|ended| timely && ended.how == Ok(0)) else {
            return said("xwininfo failed or took more than 30 s");
        };
        if self.server.child().watched().has_ended() {
            return said("Xvfb ended while it was asked");
        }
        let (text, outputs) = read(&output)?;
        Ok(XRun {
            client: ended.switches.since(before),
            server: quiet(self.pid())?.since(server_before),
            flushes: writes.map(|writes| writes.saturating_sub(outputs)),
            windows: windows(&text),
            elapsed,
        })
    }
}

impl Tree {
    fn place(&self, cpus: &[u32]) -> Result<()> {
        let set = super::cpu_set(cpus)?;
        for tid in process::threads(&Linux, self.pid())? {
            let thread = rustix::process::Pid::from_raw(tid.cast_signed());
            sched_setaffinity(thread, &set)
                .map_err(|e| Error::call("sched_setaffinity", format!("CPUs {cpus:?}"), e))?;
        }
        Ok(())
    }

    /// A client that stands before its exec, and where its output will be.
    fn hold(&self, placing: &Placing) -> Result<(Held, OwnedFd)> {
        // Each write is a packet of its own, so that they can be counted; with room for all of them, so that
        // the client never waits and we sleep until its end.
        let pipe = |e: rustix::io::Errno| Error::call("pipe", "xwininfo", e);
        let flags = PipeFlags::CLOEXEC | PipeFlags::DIRECT;
        let (output, input) = pipe_with(flags).map_err(pipe)?;
        fcntl_setpipe_size(&input, OUTPUT).map_err(pipe)?;
        rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK | OFlags::DIRECT).map_err(pipe)?;
        let (cookie, environment) = self.server.access()?;
        let client = ["xwininfo", "-root", "-tree"].map(OsString::from);
        let words = [placing.through.as_slice(), &client].concat();
        let conditions = Conditions {
            cpus: placing.client.clone(),
            batch: placing.batch,
            output: Some(input),
            keeps: vec![cookie],
            environment,
            silent: true,
            dies_by: Some(Signal::KILL),
            group: false,
        };
        Ok((Held::start_under(&words, &conditions)?, output))
    }
}

/// Returns the bytes written, and by how many writes.
fn read(from: &OwnedFd) -> Result<(Vec<u8>, u64)> {
    let (mut text, mut packets) = (Vec::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rustix::io::read(from, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok((text, packets)),
            Ok(count) => {
                packets += 1;
                text.extend_from_slice(&buffer[..count]);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::call("read", "what xwininfo wrote", e)),
        }
    }
}

/// Windows of the tree, each on a line that begins with its number.
fn windows(tree: &[u8]) -> u64 {
    let lines = tree.split(|&byte| byte == b'\n');
    let named = lines.filter(|line| line.trim_ascii_start().starts_with(b"0x"));
    named.count() as u64
}

/// Write calls of a process so far; `None` where the kernel does not tell.
fn writes(pid: u32) -> Option<u64> {
    let text = read_lossy(&Linux, format!("/proc/{pid}/io")).ok()?;
    number_of(&text, "syscw")
}

/// Switches of all threads of a process, once all of them sleep and go on sleeping for a moment.
fn quiet(pid: u32) -> Result<Switches> {
    let deadline = Instant::now() + QUIET;
    let mut before = None;
    loop {
        let mut sum = Switches::default();
        let mut asleep = true;
        for tid in process::threads(&Linux, pid)? {
            let path = format!("/proc/{pid}/task/{tid}/status");
            let text = read_lossy(&Linux, &path)?;
            asleep &= text.lines().any(|line| line.starts_with("State:\tS"));
            let all = switches_of(&text);
            let all = all.ok_or_else(|| Error::parse(&path, "no counts of context switches"))?;
            sum.voluntary += all.voluntary;
            sum.involuntary += all.involuntary;
        }
        if asleep && before == Some(sum) {
            return Ok(sum);
        }
        before = asleep.then_some(sum);
        if Instant::now() > deadline {
            let ended = format!("process {pid} does not come to rest");
            return Err(Error::child(ended));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

// `Xvfb`, an X server without a screen, on a display of its own.
//
// Its cookie is in a file in memory that server and clients inherit: nothing of it lies on a disk. It takes the
// display's lock (`/tmp/.Xn-lock`) and removes lock and socket when it ends by a signal that it can catch, as
// the one that it gets when we die; where it could not, we do.

/// Where X servers have their sockets.
const SOCKETS: &str = "/tmp/.X11-unix";
/// Displays that are looked at: people's own are the low ones.
const DISPLAYS: std::ops::Range<u32> = 1_000..30_000;
/// Tries where another server takes the display first.
const TRIES: u32 = 5;
/// How long it may take to serve.
const START: Duration = Duration::from_secs(20);
/// How often it is looked whether it does.
const LOOK: Nanos = Nanos::millis(5);

/// A server that serves.
#[derive(Debug)]
pub(super) struct Xvfb {
    child: Child,
    display: u32,
    cookie: [u8; 16],
    /// The cookie's file.
    access: OwnedFd,
}

impl Xvfb {
    /// How long it may take to clean up.
    pub(super) const PATIENCE: Nanos = Nanos::secs(2);

    /// Starts one and waits until it serves.
    pub(super) fn start(cpus: &[u32]) -> Result<Xvfb> {
        let mut cookie = [0; 16];
        rustix::rand::getrandom(&mut cookie, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::call("getrandom", "a cookie", e))?;
        let access = file_of(&cookie)?;
        let mut last = None;
        for display in free().take(TRIES as usize) {
            match serve(display, &access, cpus) {
                Ok(child) => {
                    return Ok(Xvfb {
                        child,
                        display,
                        cookie,
                        access,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::child("found no display that is free")))
    }

    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    pub(super) fn cookie(&self) -> &[u8] {
        &self.cookie
    }

    pub(super) fn socket(&self) -> PathBuf {
        socket(self.display)
    }

    /// What a client must have open, and the variables by which it finds that and the server.
    pub(super) fn access(&self) -> Result<(OwnedFd, Vec<(String, String)>)> {
        let copy = copy_of(&self.access)?;
        let display = format!(":{}", self.display);
        let variables = [("DISPLAY", display), ("XAUTHORITY", path_of(&copy))];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        Ok((copy, variables.into()))
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        let _ = self.child.end(Xvfb::PATIENCE); // nobody asks how
        clean(self.display, self.child.watched().pid());
    }
}

fn copy_of(access: &OwnedFd) -> Result<OwnedFd> {
    let copy = access.try_clone();
    copy.map_err(|e| Error::call("dup", "the cookie", e))
}

/// Returns the path of an open file for a process that has it open under the same number.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn socket(display: u32) -> PathBuf {
    format!("{SOCKETS}/X{display}").into()
}

fn lock(display: u32) -> PathBuf {
    format!("/tmp/.X{display}-lock").into()
}

/// Returns displays that nobody seems to have, begun with one that other runs hardly begin with.
fn free() -> impl Iterator<Item = u32> {
    let count = DISPLAYS.end - DISPLAYS.start;
    let begin = std::process::id().wrapping_mul(31) % count;
    (0..count)
        .map(move |step| DISPLAYS.start + (begin + step) % count)
        .filter(|&display| !socket(display).exists() && !lock(display).exists())
}

/// A file in memory as xauth(1) writes it: the cookie, for any display.
fn file_of(cookie: &[u8]) -> Result<OwnedFd> {
    /// `FamilyWild` (Xauth.h): this entry is for every address.
    const ANY: [u8; 2] = [0xff, 0xff];
    let mut entry = ANY.to_vec();
    for part in [&b""[..], b"", b"MIT-MAGIC-COOKIE-1", cookie] {
        let length = u16::try_from(part.len()).unwrap_or(0); // of at most 18 bytes
        entry.extend(length.to_be_bytes());
        entry.extend(part);
    }
    let file = rustix::fs::memfd_create("stopgap-x-cookie", MemfdFlags::CLOEXEC)
        .map_err(|e| Error::call("memfd_create", "a cookie", e))?;
    rustix::io::write(&file, &entry).map_err(|e| Error::call("write", "a cookie", e))?;
    Ok(file)
}

/// Starts a server on `display` and waits until it listens. (`-displayfd`, which would say so, makes it take no
/// lock, and a server without one takes another's socket away.)
fn serve(display: u32, access: &OwnedFd, cpus: &[u32]) -> Result<Child> {
    let copy = copy_of(access)?;
    let (name, cookie) = (format!(":{display}"), path_of(&copy));
    let words = [
        "Xvfb",
        &name,
        "-auth",
        &cookie,
        "-nolisten",
        "tcp",
        "-nolisten",
        "local",
        "-screen",
        "0",
        "640x480x24",
    ];
    let words = words.map(OsString::from);
    let conditions = Conditions {
        cpus: cpus.to_vec(),
        keeps: vec![copy],
        silent: true,
        dies_by: Some(Signal::TERM),
        ..Conditions::default()
    };
    let child = Held::start_under(&words, &conditions)?.release()?;
    let pid = child.watched().pid();
    let deadline = Instant::now() + START;
    let in_time = loop {
        // Another server that was quicker may have the display.
        if holder(display) == Some(pid) && UnixStream::connect(socket(display)).is_ok() {
            return Ok(child);
        }
        if child.watched().ends_within(LOOK) {
            break true;
        }
        if Instant::now() > deadline {
            break false;
        }
    };
    let ended = child.end(Nanos::secs(1))?;
    clean(display, pid);
    let how = match ended.map(|ended| ended.how) {
        Some(Ok(status)) if in_time => format!("ended with status {status}"),
        Some(Err(signal)) if in_time => format!("was killed by signal {signal}"),
        _ => "did not serve within 20 s".to_owned(),
    };
    Err(Error::child(format!("(Xvfb on display :{display}) {how}")))
}

/// Returns the process that has the lock of a display.
fn holder(display: u32) -> Option<u32> {
    // The folder is everybody's: what somebody else has put there may be a pipe that nobody writes to.
    let text = folder::read(lock(display).as_ref(), 64).ok()?;
    String::from_utf8(text).ok()?.trim().parse().ok()
}

/// Removes what a server that has ended could not remove: its lock, and with that the socket.
fn clean(display: u32, pid: u32) {
    if holder(display) == Some(pid) {
        // The socket first: while the lock is there nobody takes the display.
        let _ = std::fs::remove_file(socket(display)); // it may have removed that itself
        let _ = std::fs::remove_file(lock(display));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use crate::tasks::Tasks;

    fn is_here() -> bool {
        Linux
            .x_programs()
            .inspect_err(|why| stopgap_testing::skip(&stopgap_testing::Skip::program(why)))
            .is_ok()
    }

    #[test]
    fn it_serves_those_with_its_cookie_and_leaves_nothing() {
        if !is_here() {
            return;
        }
        let mut server = Xvfb::start(&[]).unwrap();
        let pid = server.child().watched().pid();
        let display = server.display;
        assert!(lock(display).exists() && socket(display).exists());
        let stranger = std::process::Command::new("xwininfo")
            .args(["-root", "-display", &format!(":{display}")])
            .env("XAUTHORITY", "/nonexistent")
            .output()
            .unwrap();
        assert!(!stranger.status.success(), "let in without a cookie");
        // Even one that gets no chance to clean up.
        let process = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(process, Signal::KILL).unwrap();
        assert!(server.child.watched().ends_within(Nanos::secs(10)));
        assert!(lock(display).exists(), "the case that is tested");
        server.cookie = [0; 16];
        drop(server);
        assert!(!lock(display).exists() && !socket(display).exists());
        assert!(
            !PathBuf::from(format!("/proc/{pid}")).exists(),
            "not reaped"
        );
    }

    #[test]
    fn a_client_is_counted() {
        if !is_here() {
            return;
        }
        let x = Linux.start_x(60, &[]).unwrap();
        let pid = x.pid();
        let cpus = Linux.cpus().unwrap();
        let last = vec![*cpus.last().unwrap()];
        for batch in [false, true] {
            let placing = Placing {
                server: last.clone(),
                client: last.clone(),
                batch,
                through: Vec::new(),
            };
            let mut client = None;
            let run = x
                .ask(&placing, &mut |pid| {
                    client = Some(pid);
                    Ok(())
                })
                .unwrap();
            assert!(run.windows >= 60, "{run:?}");
            // A tree of two levels takes some flushes, and each at least a switch of each.
            let flushes = run.flushes.unwrap();
            assert!((3..1_000).contains(&flushes), "{run:?}");
            assert!(
                run.server.voluntary > 0 && run.client.voluntary > 0,
                "{run:?}"
            );
            assert!(!PathBuf::from(format!("/proc/{}", client.unwrap())).exists());
        }
        drop(x);
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    }
}
