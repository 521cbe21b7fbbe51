//! A buffer of vgem whose fence is signalled late: three processes as an application, a driver's user and a compositor are.
//!
//! `waiter` wants to read the buffer (`DMA_BUF_IOCTL_SYNC`), and the kernel lets it sleep until the fence is signalled; `submitter`
//! made that fence. It signals it itself, or `signaller` does, which has the same open card, or nobody: then vgem's own timer does after 10 s.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::ioctl::{Setter, Updater, ioctl, opcode};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::Outcome;

const CARD: &str = "/dev/dri/card0";
const ROUNDS: usize = 3;
/// How late; without the fault that late.
const LATE: Duration = Duration::from_millis(500);
const PROMPT: Duration = Duration::from_millis(1);

/// `struct drm_mode_create_dumb`, drm_mode.h.
#[repr(C)]
#[derive(Default)]
struct CreateDumb {
    height: u32,
    width: u32,
    bits: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

/// `struct drm_prime_handle`, drm.h.
#[repr(C)]
struct Prime {
    handle: u32,
    flags: u32,
    fd: i32,
}

/// `struct drm_vgem_fence_attach`, vgem_drm.h.
#[repr(C)]
struct Attach {
    handle: u32,
    flags: u32,
    fence: u32,
    pad: u32,
}

/// `struct drm_vgem_fence_signal`.
#[repr(C)]
struct Signal {
    fence: u32,
    flags: u32,
}

const CREATE_DUMB: u32 = opcode::read_write::<CreateDumb>(b'd', 0xb2);
const PRIME: u32 = opcode::read_write::<Prime>(b'd', 0x2d);
const ATTACH: u32 = opcode::read_write::<Attach>(b'd', 0x41);
const SIGNAL: u32 = opcode::write::<Signal>(b'd', 0x42);
/// `DMA_BUF_IOCTL_SYNC`, dma-buf.h, and its flags for the begin and the end of reading.
const SYNC: u32 = opcode::write::<u64>(b'b', 0);
const BEGIN_READING: u64 = 1;
const END_READING: u64 = 1 | 4;
/// `VGEM_FENCE_WRITE`: readers wait for the fence.
const WRITES: u32 = 1;

/// Reads and writes the structure of an ioctl.
fn update<const NUMBER: u32, T>(what: &str, fd: impl AsFd, argument: &mut T) -> Outcome {
    // SAFETY: the constants above have each number with the structure that the kernel's headers have.
    unsafe { ioctl(fd, Updater::<NUMBER, T>::new(argument)) }
        .map_err(|error| format!("{what}: {error}").into())
}

fn set<const NUMBER: u32, T>(what: &str, fd: impl AsFd, argument: T) -> Outcome {
    // SAFETY: as above.
    unsafe { ioctl(fd, Setter::<NUMBER, T>::new(argument)) }
        .map_err(|error| format!("{what}: {error}").into())
}

fn attach(card: &File, handle: u32) -> Result<u32, Box<dyn std::error::Error>> {
    let mut fence = Attach {
        handle,
        flags: WRITES,
        fence: 0,
        pad: 0,
    };
    update::<ATTACH, _>("DRM_IOCTL_VGEM_FENCE_ATTACH", card, &mut fence)?;
    Ok(fence.fence)
}

fn signal(card: &File, fence: u32, late: Duration) -> Outcome {
    sleep(late);
    let signal = Signal { fence, flags: 0 };
    set::<SIGNAL, _>("DRM_IOCTL_VGEM_FENCE_SIGNAL", card, signal)
}

/// Runs `body` in a process of that name.
fn child(name: &CStr, body: impl FnOnce() -> Outcome) -> io::Result<Pid> {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            let ended = rustix::thread::set_name(name)
                .map_err(Into::into)
                .and_then(|()| body());
            if let Err(error) = &ended {
                eprintln!("{}: {error}", name.to_string_lossy());
            }
            std::process::exit(i32::from(ended.is_err()));
        }
        pid => Pid::from_raw(pid)
            .filter(|_| pid > 0)
            .ok_or_else(io::Error::last_os_error),
    }
}

/// `known fence submitter|signaller|nobody|prompt|poll`: who signals; or that the submitter does so at once; or that it does, and the
/// waiter polls the buffer, which makes the kernel call it back.
pub(crate) fn fence() -> Outcome {
    let who = std::env::args().nth(2).unwrap_or_default();
    let (rounds, late) = match &*who {
        "submitter" | "signaller" | "poll" => (ROUNDS, LATE),
        "prompt" => (ROUNDS, PROMPT),
        "nobody" => (1, LATE),
        _ => return Err("known fence submitter | signaller | nobody | prompt | poll".into()),
    };
    let card = OpenOptions::new().read(true).write(true).open(CARD);
    let card = card.map_err(|error| format!("{CARD}: {error}"))?;
    let mut buffer = CreateDumb {
        height: 64,
        width: 64,
        bits: 32,
        ..CreateDumb::default()
    };
    update::<CREATE_DUMB, _>("DRM_IOCTL_MODE_CREATE_DUMB", &card, &mut buffer)?;
    let handle = buffer.handle;
    let mut shared = Prime {
        handle,
        flags: libc::O_CLOEXEC.cast_unsigned(),
        fd: -1,
    };
    update::<PRIME, _>("DRM_IOCTL_PRIME_HANDLE_TO_FD", &card, &mut shared)?;
    // SAFETY: the kernel has just opened it for this process.
    let shared = unsafe { OwnedFd::from_raw_fd(shared.fd) };

    let (mut ask, mut asked) = UnixStream::pair()?;
    let (mut hand, mut handed) = UnixStream::pair()?;
    let ours = matches!(&*who, "submitter" | "prompt" | "poll");
    let other = who == "signaller";
    let submitter = child(c"submitter", || {
        for _ in 0..rounds {
            asked.read_exact(&mut [0])?;
            let fence = attach(&card, handle)?;
            asked.write_all(&[0])?;
            if ours {
                signal(&card, fence, late)?;
            } else if other {
                hand.write_all(&fence.to_ne_bytes())?;
            }
        }
        // Its fences would be signalled by its end, were it the last that has the card.
        asked.read_exact(&mut [0])?;
        Ok(())
    })?;
    let signaller = other.then(|| {
        child(c"signaller", || {
            for _ in 0..rounds {
                let mut fence = [0; 4];
                handed.read_exact(&mut fence)?;
                signal(&card, u32::from_ne_bytes(fence), late)?;
            }
            Ok(())
        })
    });
    let signaller = signaller.transpose()?;
    rustix::thread::set_name(c"waiter")?;
    let mut waited = Vec::new();
    for _ in 0..rounds {
        ask.write_all(&[0])?;
        ask.read_exact(&mut [0])?;
        let begin = Instant::now();
        if who == "poll" {
            poll(&mut [PollFd::new(&shared, PollFlags::IN)], None)?;
        }
        set::<SYNC, _>("DMA_BUF_IOCTL_SYNC", &shared, BEGIN_READING)?;
        waited.push(begin.elapsed().as_nanos());
        set::<SYNC, _>("DMA_BUF_IOCTL_SYNC", &shared, END_READING)?;
    }
    ask.write_all(&[0])?;
    for process in [Some(submitter), signaller].into_iter().flatten() {
        let ended = waitpid(Some(process), WaitOptions::empty())?;
        if ended.is_none_or(|(_, status)| status.exit_status() != Some(0)) {
            return Err("a process failed".into());
        }
    }
    println!("{{\"submitter\":{submitter},\"waited_ns\":{waited:?}}}");
    Ok(())
}
