//! Clients of an X server: who makes its windows, and `xwininfo`, which asks for them.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Signal;
use rustix::thread::sched_setaffinity;
use stopgap_events::units::Nanos;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt, CreateWindowAux, WindowClass};
use x11rb::rust_connection::{DefaultStream, RustConnection};

use super::xvfb::Xvfb;
use super::{Conditions, Held, Linux};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::read_lossy;
use crate::proc::status;
use crate::process;
use crate::tasks::Switches;
use crate::x11::{Placing, X11, XRun, XServer};

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
    status::number(&text, "syscw")
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
            let all = status::switches(&text);
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
