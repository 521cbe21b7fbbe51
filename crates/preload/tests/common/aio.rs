//! Linux's asynchronous I/O on files without the page cache: the device reads from user pages, or writes to them.

#![allow(dead_code)] // each test uses a part

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::raw::{Errno, Map, call, number, open};

/// Opens an unnamed file with `O_DIRECT`, of `pages` pages full of `byte`. `Err`: a reason to skip.
pub(crate) fn direct_file(byte: u8, pages: usize) -> Result<OwnedFd, String> {
    let folders: [PathBuf; 2] = [
        std::env::temp_dir(),
        // Where this test was built.
        std::env::current_exe()
            .expect("/proc is mounted")
            .parent()
            .expect("a folder")
            .into(),
    ];
    let mut why = String::new();
    for folder in folders {
        let path = CString::new(folder.as_os_str().as_bytes()).expect("no 0");
        let flags = libc::O_RDWR | libc::O_DIRECT | libc::O_TMPFILE | libc::O_CLOEXEC;
        let here = libc::AT_FDCWD as usize;
        let arguments = [here, path.as_ptr() as usize, flags as usize, 0o600];
        match open("O_DIRECT", libc::SYS_openat, &arguments) {
            Ok(_) if in_memory(&path) => why = "O_DIRECT: only file systems in memory".into(),
            Ok(file) => {
                let map = Map::bare(pages);
                map.fill(byte);
                let arguments = [number(&file), map.at, map.length, 0];
                assert_eq!(call(libc::SYS_pwrite64, &arguments), Ok(map.length));
                assert_eq!(call(libc::SYS_fsync, &[number(&file)]), Ok(0));
                assert_eq!(call(libc::SYS_munmap, &[map.at, map.length]), Ok(0));
                return Ok(file);
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Returns whether a folder is on tmpfs, where no request is ever in flight.
fn in_memory(path: &CString) -> bool {
    const TMPFS: libc::c_long = 0x0102_1994;
    // SAFETY: all zeroes are a valid statfs; the kernel fills it.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    let arguments = [path.as_ptr() as usize, &raw mut about as usize];
    call(libc::SYS_statfs, &arguments).is_ok() && about.f_type == TMPFS
}

/// A context of io_setup(2).
pub(crate) struct Context(usize);

/// A request, as in linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;

impl Context {
    pub(crate) fn new() -> Result<Context, String> {
        let mut context = 0_usize;
        let done = call(libc::SYS_io_setup, &[8, &raw mut context as usize]);
        done.map_err(|errno| format!("io_setup: {errno}"))?;
        Ok(Context(context))
    }

    pub(crate) fn submit(&self, opcode: u16, file: &OwnedFd, map: Map) -> Result<(), String> {
        let request = Request {
            opcode,
            fd: number(file) as u32,
            buffer: map.at as u64,
            bytes: map.length as u64,
            ..Request::default()
        };
        let list = [&raw const request as usize];
        let done = call(libc::SYS_io_submit, &[self.0, 1, list.as_ptr() as usize]);
        done.map(drop)
            .map_err(|errno| format!("io_submit: {errno}"))
    }

    /// Waits for a request. Returns its bytes, or a negative errno.
    pub(crate) fn wait(&self) -> i64 {
        let mut event = [0_i64; 4];
        let at = event.as_mut_ptr() as usize;
        loop {
            match call(libc::SYS_io_getevents, &[self.0, 1, 1, at, 0]) {
                Err(Errno(libc::EINTR)) | Ok(0) => {}
                done => {
                    assert_eq!(done, Ok(1));
                    return event[2];
                }
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        assert_eq!(call(libc::SYS_io_destroy, &[self.0]), Ok(0));
    }
}
