//! `Xvfb`, an X server without a screen, on a display of its own.
//!
//! Its cookie is in a file in memory that server and clients inherit: nothing of it lies on a disk. It takes the
//! display's lock (`/tmp/.Xn-lock`) and removes lock and socket when it ends by a signal that it can catch, as
//! the one that it gets when we die; where it could not, we do.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::process::Signal;
use stopgap_events::units::Nanos;

use super::{Child, Conditions, Held};
use crate::error::{Error, Result};
use crate::folder;

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
    use crate::x11::{Placing, X11};

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
