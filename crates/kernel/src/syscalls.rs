//! Names and numbers of the system calls that stalls are about. Numbers are this machine's.

/// Which a capture takes: they map memory, wait, or talk.
///
/// Calls that an architecture does not have (`poll` on arm64, which has `ppoll` alone) are not in its
/// list. Those that programs wait and talk by come first: the kernel tries a filter of these numbers term by
/// term, and entry and exit of the last of 53 cost 0.2 us more than of the first.
#[must_use]
pub fn chosen() -> Vec<(u32, &'static str)> {
    let all = OFTEN.iter().chain(OLDER).chain(SELDOM);
    all.copied()
        .filter_map(|(number, name)| Some((u32::try_from(number).ok()?, name)))
        .collect()
}

macro_rules! numbers {
    ($($constant:ident $name:literal)+) => {
        &[$((libc::$constant, $name)),+]
    };
}

/// Calls that programs which talk make all the time.
const OFTEN: &[(libc::c_long, &str)] = numbers! {
    SYS_read "read" SYS_write "write" SYS_ppoll "ppoll" SYS_futex "futex" SYS_writev "writev"
    SYS_recvmsg "recvmsg" SYS_sendmsg "sendmsg" SYS_epoll_pwait "epoll_pwait" SYS_ioctl "ioctl"
};

/// Calls that newer architectures were not given.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(libc::c_long, &str)] = numbers! {
    SYS_poll "poll" SYS_epoll_wait "epoll_wait" SYS_select "select" SYS_accept "accept"
    SYS_fork "fork" SYS_vfork "vfork" SYS_pause "pause" SYS_open "open" SYS_stat "stat" SYS_lstat "lstat"
    SYS_unlink "unlink" SYS_rename "rename" SYS_mkdir "mkdir" SYS_rmdir "rmdir" SYS_getdents "getdents"
};
/// Calls that newer architectures were not given.
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(libc::c_long, &str)] = &[];

const SELDOM: &[(libc::c_long, &str)] = numbers! {
    // talking
    SYS_readv "readv" SYS_sendto "sendto" SYS_recvfrom "recvfrom" SYS_sendmmsg "sendmmsg"
    SYS_recvmmsg "recvmmsg" SYS_connect "connect" SYS_accept4 "accept4"
    SYS_io_uring_enter "io_uring_enter" SYS_splice "splice"
    // waiting
    SYS_pselect6 "pselect6" SYS_epoll_pwait2 "epoll_pwait2" SYS_nanosleep "nanosleep"
    SYS_clock_nanosleep "clock_nanosleep" SYS_sched_yield "sched_yield" SYS_wait4 "wait4"
    SYS_fsync "fsync" SYS_fdatasync "fdatasync" SYS_rt_sigsuspend "rt_sigsuspend"
    SYS_semop "semop" SYS_semtimedop "semtimedop" SYS_msgsnd "msgsnd" SYS_msgrcv "msgrcv"
    SYS_mq_timedsend "mq_timedsend" SYS_mq_timedreceive "mq_timedreceive" SYS_io_getevents "io_getevents"
    // memory
    SYS_mmap "mmap" SYS_munmap "munmap" SYS_mremap "mremap" SYS_mprotect "mprotect" SYS_brk "brk"
    SYS_madvise "madvise" SYS_mlock "mlock" SYS_munlock "munlock" SYS_mlock2 "mlock2"
    SYS_msync "msync" SYS_mbind "mbind" SYS_migrate_pages "migrate_pages"
    SYS_move_pages "move_pages" SYS_process_madvise "process_madvise"
    SYS_shmat "shmat" SYS_shmdt "shmdt" SYS_fallocate "fallocate" SYS_ftruncate "ftruncate"
    // processes
    SYS_clone "clone" SYS_clone3 "clone3" SYS_execve "execve" SYS_exit "exit" SYS_exit_group "exit_group"
    SYS_waitid "waitid" SYS_rt_sigtimedwait "rt_sigtimedwait"
    // files
    SYS_pread64 "pread64" SYS_pwrite64 "pwrite64" SYS_preadv "preadv" SYS_pwritev "pwritev"
    SYS_openat "openat" SYS_close "close" SYS_fcntl "fcntl" SYS_flock "flock" SYS_sync "sync"
    SYS_syncfs "syncfs" SYS_preadv2 "preadv2" SYS_pwritev2 "pwritev2"
    SYS_sendfile "sendfile" SYS_copy_file_range "copy_file_range" SYS_truncate "truncate"
    SYS_newfstatat "newfstatat" SYS_statx "statx" SYS_unlinkat "unlinkat" SYS_renameat2 "renameat2"
    SYS_mkdirat "mkdirat" SYS_getdents64 "getdents64"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_one_number_and_one_name() {
        let chosen = chosen();
        let numbers: std::collections::HashSet<_> = chosen.iter().map(|(n, _)| n).collect();
        let names: std::collections::HashSet<_> = chosen.iter().map(|(_, n)| n).collect();
        assert_eq!((numbers.len(), names.len()), (chosen.len(), chosen.len()));
        assert!(names.contains(&"mmap") && names.contains(&"ppoll"));
    }

    #[test]
    fn calls_that_wait_and_talk_come_before_those_that_map() {
        let chosen = chosen();
        let place = |wanted| chosen.iter().position(|(_, name)| *name == wanted).unwrap();
        for often in ["read", "write", "ppoll", "futex"] {
            assert!(place(often) < 10 && place(often) < place("mmap"), "{often}");
        }
    }
}
