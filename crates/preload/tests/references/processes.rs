//! Other processes: processes that read or write this one's memory, and forked children.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::raw::{
    Count, Errno, Map, PAGE, answer, call, in_a_child, number, open, pipe, read, wait_for, write,
};
use crate::userfault::{Faults, MISSING};
use crate::{Programs, Seen};

pub(crate) const PROGRAMS: Programs = &[
    ("process-vm-writev", || {
        in_the_midst(libc::SYS_process_vm_writev)
    }),
    ("process-vm-readv", || {
        in_the_midst(libc::SYS_process_vm_readv)
    }),
    ("process-vm-unmapped", read_when_unmapped),
    ("proc-mem", written_by_file),
    ("proc-mem-unmapped", || by_file_when_unmapped(false)),
    ("proc-mem-written-unmapped", || by_file_when_unmapped(true)),
    ("unmapped", said_of_unmapped),
    ("fork", || looked_at_by_a_child(false)),
    ("fork-bare", || looked_at_by_a_child(true)),
    ("fork-child-unmaps", unmapped_by_a_child),
    ("dontfork", || inherited(libc::MADV_DONTFORK)),
    ("wipeonfork", || inherited(libc::MADV_WIPEONFORK)),
    ("futex", futex),
];

const PAGES: usize = 4;

/// Stops another process in the middle of process_vm_readv or process_vm_writev: the process's own page is missing, and
/// userfaultfd(2) tells when the kernel needs it. By then the kernel has pinned the pages of this process.
fn in_the_midst(way: libc::c_long) -> Seen {
    let writes = way == libc::SYS_process_vm_writev;
    let (mut dirty, mut changed) = (Count::default(), Count::default());
    let parent = std::process::id() as usize;
    for _ in 0..20 {
        let (tells, told, go) = (pipe(PAGE), pipe(PAGE), pipe(PAGE));
        let faults = Faults::new(0)?;
        // Forked before there is a map: nothing of it is shared.
        // SAFETY: the program has one thread; the child works and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let at = read(&tells[0], 8).try_into().expect("8 bytes");
            let seen = stand_still(parent, usize::from_ne_bytes(at), way, &told[1], &go[0]);
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(seen.into()) };
        }
        drop(faults);
        let map = Map::filled(1, 0x11);
        let map_of_two = Map::filled(PAGES, 0x11);
        map.unmap();
        write(&tells[1], &map_of_two.at.to_ne_bytes());
        if read(&told[0], 1) != [1] {
            wait_for(child);
            return Err("userfaultfd is not permitted for the kernel's faults".into());
        }
        let map = map_of_two.again();
        if !writes {
            map.fill(0xbb);
        }
        write(&go[1], &[1]);
        let seen = wait_for(child);
        if writes {
            assert_eq!(seen, 0, "it has written");
            dirty.add(!map.all(0));
        } else {
            changed.add(seen != 0x11);
        }
        map.unmap();
    }
    Ok(if writes {
        format!("{dirty} new maps not zero")
    } else {
        format!("{changed} times something else was read")
    })
}

/// Makes the call in the other process, whose own page comes late. Returns the byte that was read, or 0.
fn stand_still(pid: usize, remote: usize, way: libc::c_long, told: &OwnedFd, go: &OwnedFd) -> u8 {
    let page = Map::bare(1);
    let Ok(faults) = Faults::new(0) else {
        write(told, &[0]);
        return 0;
    };
    faults.register(page, MISSING).expect("a missing page");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = faults.wait();
            write(told, &[1]);
            read(go, 1);
            faults.fill(at, 0xee);
        });
        let (local, remote) = ([page.at, PAGE], [remote, PAGE]);
        let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
        assert_eq!(call(way, &[pid, local, 1, remote, 1, 0]), Ok(PAGE));
    });
    let seen = page.get(PAGE - 1);
    if seen == 0xee { 0 } else { seen }
}

/// Another process that waits for an address. Forked before the map exists, because a fork unmaps kept maps.
struct Other {
    child: i32,
    tells: OwnedFd,
}

impl Other {
    fn new(work: impl FnOnce(usize) -> u8) -> Other {
        let [told, tells] = pipe(PAGE);
        // SAFETY: the program has one thread; the child works and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let at = read(&told, 8).try_into().expect("8 bytes");
            let seen = work(usize::from_ne_bytes(at));
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(seen.into()) };
        }
        Other { child, tells }
    }

    fn sees(self, at: usize) -> u8 {
        write(&self.tells, &at.to_ne_bytes());
        wait_for(self.child)
    }
}

fn read_when_unmapped() -> Seen {
    let parent = std::process::id() as usize;
    let others = [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev].map(|way| {
        Other::new(move |at| {
            let page = Map::bare(1);
            let (local, remote) = ([page.at, PAGE], [at, PAGE]);
            let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
            let done = call(way, &[parent, local, 1, remote, 1, 0]);
            done.map_or_else(|Errno(errno)| errno as u8, |_| 0)
        })
    });
    let map = Map::filled(PAGES, 0x11);
    map.unmap();
    let [reads, writes] = others.map(|other| match other.sees(map.at) {
        0 => "ok".to_owned(),
        errno => Errno(errno.into()).to_string(),
    });
    let zero = Map::new(PAGES).all(0);
    Ok(format!(
        "reads: {reads}, writes: {writes}, the new map zero: {zero}"
    ))
}

/// Opens the memory of a process as a file.
fn memory_of(pid: u32) -> Result<OwnedFd, String> {
    let path = format!("/proc/{pid}/mem\0");
    let here = libc::AT_FDCWD as usize;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    open(
        &path,
        libc::SYS_openat,
        &[here, path.as_ptr() as usize, flags],
    )
}

fn written_by_file() -> Seen {
    let mut dirty = Count::default();
    let parent = std::process::id();
    for _ in 0..50 {
        let map = Map::filled(PAGES, 0x11);
        let done = in_a_child(|| {
            let Ok(memory) = memory_of(parent) else {
                return 1;
            };
            let bytes = [0x33_u8; 2 * PAGE];
            let arguments = [number(&memory), bytes.as_ptr() as usize, 2 * PAGE, map.at];
            u8::from(call(libc::SYS_pwrite64, &arguments) != Ok(2 * PAGE))
        });
        if done != 0 {
            return Err("/proc/PID/mem of the parent".into());
        }
        assert!(map.part(0, 2).all(0x33));
        let map = map.again();
        dirty.add(!map.all(0));
        map.unmap();
    }
    Ok(format!("{dirty} new maps not zero"))
}

/// Accesses an unmapped map through `/proc/PID/mem`, which ignores the protection of private maps.
fn by_file_when_unmapped(writes: bool) -> Seen {
    let parent = std::process::id();
    let other = Other::new(|at| {
        let Ok(memory) = memory_of(parent) else {
            return 255;
        };
        let mut byte = [0x33_u8];
        // A write goes to the last page, which is absent.
        let (way, at) = if writes {
            (libc::SYS_pwrite64, at + (PAGES - 1) * PAGE)
        } else {
            (libc::SYS_pread64, at)
        };
        let arguments = [number(&memory), byte.as_mut_ptr() as usize, 1, at];
        match call(way, &arguments) {
            Ok(_) if writes => 1,
            Ok(_) if byte == [0] => 2,
            Ok(_) => 3,
            Err(_) => 0,
        }
    });
    let map = Map::new(PAGES);
    map.part(0, PAGES - 1).fill(0x11);
    map.unmap();
    let seen = match other.sees(map.at) {
        0 => "an error",
        1 => "it writes",
        2 => "it reads a zero",
        3 => "it reads what the map held",
        _ => return Err("/proc/PID/mem of the parent".into()),
    };
    let zero = Map::new(PAGES).all(0);
    Ok(format!("{seen}, the new map zero: {zero}"))
}

fn said_of_unmapped() -> Seen {
    let map = Map::filled(PAGES, 0x11);
    map.unmap();
    let mut pages = [0_u8; PAGES];
    let asynchronously = libc::MS_ASYNC as usize;
    let arguments = [map.at, map.length, pages.as_mut_ptr() as usize];
    let mincore = answer(call(libc::SYS_mincore, &arguments));
    let msync = answer(call(libc::SYS_msync, &[map.at, map.length, asynchronously]));
    let munlock = answer(call(libc::SYS_munlock, &[map.at, map.length]));
    extern "C" fn on_fault(_: i32, about: *const libc::siginfo_t, _: *const libc::c_void) {
        // SAFETY: the kernel gives the handler what it tells of the signal; nothing else of the process is run.
        unsafe { libc::_exit((*about).si_code) };
    }
    let code = in_a_child(|| {
        // SAFETY: the handler ends the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        }
        map.get(0);
        0
    });
    Ok(format!(
        "mincore {mincore}, msync {msync}, munlock {munlock}, SIGSEGV with code {code}"
    ))
}

fn looked_at_by_a_child(bare: bool) -> Seen {
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    for _ in 0..20 {
        let go = pipe(PAGE);
        let map = Map::filled(PAGES, 0x11);
        let child = if bare {
            let arguments = [libc::SIGCHLD as usize];
            call(libc::SYS_clone, &arguments).expect("a child") as i32
        } else {
            // SAFETY: the program has one thread; the child looks and ends.
            unsafe { libc::fork() }
        };
        if child == 0 {
            read(&go[0], 1);
            let changed = !map.all(0x11);
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(changed.into()) };
        }
        let map = map.again();
        dirty.add(!map.all(0));
        map.fill(0xbb);
        write(&go[1], &[1]);
        changed.add(wait_for(child) != 0);
        map.unmap();
    }
    Ok(format!(
        "{changed} children saw a change, {dirty} new maps not zero"
    ))
}

fn unmapped_by_a_child() -> Seen {
    let (mut changed, mut dirty) = (Count::default(), Count::default());
    for _ in 0..20 {
        let map = Map::filled(PAGES, 0x11);
        dirty.add(
            in_a_child(|| {
                let map = map.again();
                let dirty = !map.all(0);
                map.fill(0xbb);
                dirty.into()
            }) != 0,
        );
        changed.add(!map.all(0x11));
        map.unmap();
    }
    Ok(format!("{changed} maps changed, {dirty} new maps not zero"))
}

/// Lets a forked child read a new map that its parent has written to.
fn inherited(advice: i32) -> Seen {
    let map = Map::filled(PAGES, 0x11);
    map.advise(advice).map_err(|errno| errno.to_string())?;
    let map = map.again();
    map.fill(0xbb);
    let seen = in_a_child(|| crate::raw::peek(map.at).unwrap_or(1));
    Ok(match seen {
        0xbb => "it reads what was written".into(),
        0 => "it reads a zero".into(),
        _ => "it has no such map".into(),
    })
}

fn futex() -> Seen {
    let mut woken = Count::default();
    for _ in 0..10 {
        let map = Map::filled(PAGES, 0);
        let ready = pipe(PAGE);
        let waiter_is = AtomicI64::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: it takes no argument.
                let own = unsafe { libc::syscall(libc::SYS_gettid) };
                waiter_is.store(own, Ordering::Relaxed);
                write(&ready[1], &[1]);
                let time = [10_u64, 0];
                let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
                call(
                    libc::SYS_futex,
                    &[map.at, operation, 0, time.as_ptr() as usize],
                )
            });
            read(&ready[0], 1);
            let waiter_is = waiter_is.load(Ordering::Relaxed);
            let called = format!("/proc/self/task/{waiter_is}/syscall");
            let futex = format!("{} {:#x} ", libc::SYS_futex, map.at);
            // Where this cannot be read, or it never sleeps, no waiter is woken.
            for _ in 0..2_000 {
                if std::fs::read_to_string(&called).is_ok_and(|call| call.starts_with(&futex)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            map.unmap();
            let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
            let wakes = call(libc::SYS_futex, &[map.at, operation, 1]);
            let answer = answer(waiter.join().expect("a thread"));
            woken.add(wakes == Ok(1) && answer == "ok");
        });
        let new = Map::new(PAGES);
        assert!(new.all(0));
        new.unmap();
    }
    Ok(format!("{woken} waiters woken"))
}
