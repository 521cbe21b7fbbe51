//! Reads the program's own functions on a sleeping thread's stack: where in the program it waits, and for locks that
//! no call names.

use crate::stack::frames;

/// Most functions of a place that are named.
const MOST_NAMED: usize = 3;
/// Most characters of one function's name.
const LONGEST: usize = 48;

pub(super) const INTERPRETER: &str = "global lock of Python";
const AT_BARRIER: &str = "others at the barrier";

/// Functions in which a thread only waits for a lock, or for the last thread at a barrier; by the name of the lock.
/// Without them, a condition variable, an eventfd or `epoll_wait` below them looks like a wait for work.
const LOCKS: [(&str, &str); 7] = [
    // glibc's nptl; libgomp/barrier.c and openmp/runtime/src/kmp_csupport.cpp, whose threads without work wait in other functions;
    // Rust's library/std/src/sync/barrier.rs.
    (
        AT_BARRIER,
        "pthread_barrier_wait GOMP_barrier kmpc_barrier Barrier::wait",
    ),
    // src/hotspot/share/runtime/safepoint.cpp
    ("safepoint of the JVM", "SafepointSynchronize::block"),
    // src/hotspot/share/runtime/objectMonitor.cpp: `synchronized`, also after a wait() in it.
    (
        "monitor of the JVM",
        "ObjectMonitor::enter ObjectMonitor::EnterI ObjectMonitor::ReenterI ObjectMonitor::enter_internal ObjectMonitor::reenter_internal",
    ),
    // Python/ceval_gil.c
    (INTERPRETER, "take_gil"),
    // Modules/_threadmodule.c: RLock. Modules/_io/bufferedio.c: a file that another thread writes.
    ("lock of Python", "rlock_acquire enter_buffered_busy"),
    // src/backend/storage/lmgr: proc.c, lwlock.c
    (
        "lock of PostgreSQL",
        "ProcSleep LWLockAcquire LWLockAcquireOrWait",
    ),
    // glibc's nptl; Rust's library/std/src/sys/sync; crate parking_lot; abseil.
    (
        "lock",
        "pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock pthread_rwlock_rdlock pthread_rwlock_wrlock \
         pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock Mutex::lock_contended RwLock::read_contended \
         RwLock::write_contended RawMutex::lock_slow RawRwLock::lock_shared_slow RawRwLock::lock_exclusive_slow \
         absl::Mutex::LockSlow",
    ),
];

/// Functions that wait for a lock as well as for work. Python builds its condition variables, and so its queues, from
/// plain locks. Python/thread_pthread.h, Python/lock.c.
const LOCKS_OR_NOT: &str = "PyThread_acquire_lock_timed PyMutex_LockTimed";

/// Functions above those that make the wait one for work. Modules/_queuemodule.c
const QUEUES: &str = "queue_SimpleQueue_get queue_SimpleQueue_get_impl";

/// Functions in which a thread sleeps on purpose between looks at a lock; by the name of the lock.
const LOOKED_AT: [(&str, &str); 1] = [
    // src/main.c: sqliteDefaultBusyCallback(), whose name a library without symbols does not have.
    (
        "lock of SQLite",
        "sqliteDefaultBusyCallback sqlite3_step sqlite3_exec sqlite3_prepare_v2 sqlite3_prepare_v3 sqlite3_wal_checkpoint_v2 \
         sqlite3_backup_step sqlite3_close sqlite3_close_v2",
    ),
];

/// Functions in which a thread of a runtime's scheduler has nothing to run: Go's src/runtime/proc.go, tokio's
/// src/runtime/scheduler/multi_thread/worker.rs and src/runtime/blocking/pool.rs. Such threads wake each other all
/// the time, but none of them asks for anything.
const WITHOUT_WORK: &str = "runtime.stopm runtime.netpoll runtime.sysmon worker::Context::park worker::Context::park_timeout \
     worker::Context::park_internal blocking::pool::Inner::run";

/// Functions in which a wait with a timeout is a sleep on purpose.
const SLEEPS: &str = "pg_sleep JVM_Sleep JavaThread::sleep JavaThread::sleep_nanos";

/// The function to which a signal handler returns, and the name that is shown for it.
const RESTORER: &str = "__restore_rt";
const HANDLER: &str = "signal handler";

/// Meaning of the functions on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// The thread waits for this lock.
    Lock(&'static str),
    /// The thread polls this lock if it sleeps on purpose.
    LooksAt(&'static str),
    /// The thread sleeps on purpose if a timer ends the sleep.
    Sleeps,
    /// The thread waits for a lock or for work.
    LockOrNot,
    /// The thread has nothing to run if a thread of its own process ends the sleep.
    Work,
}

/// Returns the meaning of the innermost function that has one.
pub(super) fn says(stack: &str) -> Option<Says> {
    if waits_in_team(stack) {
        return Some(Says::Lock(AT_BARRIER));
    }
    if waits_in_interpreter(stack) {
        return Some(Says::Lock(INTERPRETER));
    }
    let any = |name: &str, names: &str| names.split(' ').any(|one| is(name, one));
    let functions = || frames(stack).rev().filter_map(function);
    let tells = functions().find_map(|name| {
        let of = |table: &[(&'static str, &str)]| {
            let row = table.iter().find(|(_, functions)| any(name, functions));
            row.map(|(lock, _)| *lock)
        };
        (of(&LOCKS).map(Says::Lock))
            .or_else(|| of(&LOOKED_AT).map(Says::LooksAt))
            .or_else(|| any(name, SLEEPS).then_some(Says::Sleeps))
            .or_else(|| any(name, WITHOUT_WORK).then_some(Says::Work))
    });
    let or_not = || {
        let mut functions = functions();
        let at = functions.any(|name| any(name, LOCKS_OR_NOT));
        (at && !functions.any(|name| any(name, QUEUES))).then_some(Says::LockOrNot)
    };
    tells.or_else(or_not)
}

/// Returns whether the thread is in a signal handler. The interrupted code goes on only after the handler.
pub(super) fn handles_signal(stack: &str) -> bool {
    frames(stack).any(|frame| frame == RESTORER)
}

/// Returns whether a thread waits in libgomp for the others of its parallel region. libgomp's functions have no
/// names, so the function below them decides: the one that gcc made of the region, or the call that began the region.
/// Idle threads of the pool have neither.
fn waits_in_team(stack: &str) -> bool {
    let is_library = |frame: &&str| frame.starts_with("libgomp.so");
    let mut user = frames(stack)
        .rev()
        .filter(|frame| !frame.ends_with("_[k]"))
        .peekable();
    if !user.peek().is_some_and(is_library) {
        return false;
    }
    let outer = user.find(|frame| !is_library(frame));
    outer.is_some_and(|name| name.contains("._omp_fn.") || name.starts_with("GOMP_parallel"))
}

/// Returns whether a thread waits for the global lock of a Python whose static functions have no names, as distributions build it. Of the
/// interpreter itself only `take_gil` waits by a condition variable with a timeout, and only these functions call it.
fn waits_in_interpreter(stack: &str) -> bool {
    const CALLERS: &str =
        "PyEval_RestoreThread PyEval_AcquireThread PyEval_AcquireLock PyGILState_Ensure";
    const LOOP: &str = "PyEval_EvalFrameDefault";
    let is_nameless = |frame: &str, of: &str| frame.starts_with(of) && frame.contains("+0x");
    let mut user = frames(stack)
        .rev()
        .filter(|frame| !frame.ends_with("_[k]"))
        .skip_while(|frame| is_nameless(frame, "libc") || is_nameless(frame, "libpthread"));
    let timed = user.next().and_then(function);
    if !timed.is_some_and(|name| is(name, "pthread_cond_timedwait")) {
        return false;
    }
    let own = |frame: &str| is_nameless(frame, "python") || is_nameless(frame, "libpython");
    let mut by_own = false;
    let caller = user.find(|frame| {
        by_own |= own(frame);
        !own(frame)
    });
    caller
        .and_then(function)
        .is_some_and(|name| CALLERS.split(' ').any(|one| is(name, one)) || by_own && is(name, LOOP))
}

/// Returns where in the program a thread waits: the innermost functions that have a name, outermost first. Functions
/// of the C library or of a language's runtime that only carry out the wait are left out.
pub(super) fn place(stack: &str) -> Option<String> {
    let named = frames(stack).rev().filter_map(function);
    let handler = |name| if name == RESTORER { HANDLER } else { name };
    let mut named: Vec<&str> = named
        .map(handler)
        .skip_while(|name| carries_out(name))
        .take_while(|name| !begins_thread(name))
        .take(MOST_NAMED)
        .collect();
    named.dedup();
    named.reverse();
    let short = |name: &&str| name.chars().take(LONGEST).collect::<String>();
    let place: Vec<String> = named.iter().map(short).collect();
    (!place.is_empty()).then(|| place.join(" > "))
}

/// Returns the name of a frame's function without its arguments; `None` for an address and for functions of the
/// kernel.
fn function(frame: &str) -> Option<&str> {
    let unknown = frame.starts_with("0x") || frame.contains("+0x") || frame.starts_with('[');
    if unknown || frame.ends_with("_[k]") {
        return None;
    }
    // A C++ name ends with its arguments, a C name may end with a suffix of the compiler.
    let name = match frame.find('(') {
        Some(at) if at > 0 => &frame[..at],
        _ => frame,
    };
    let name = [".part.", ".constprop.", ".isra.", ".cold"]
        .iter()
        .fold(name, |name, suffix| {
            name.split(suffix).next().unwrap_or(name)
        });
    (!name.is_empty()).then_some(name)
}

/// Returns whether a function is `wanted`, in any namespace and with any number of leading underscores.
fn is(name: &str, wanted: &str) -> bool {
    let bare = name.trim_start_matches('_');
    bare == wanted || (bare.strip_suffix(wanted)).is_some_and(|before| before.ends_with("::"))
}

/// Returns whether a function only carries out a wait for its caller.
fn carries_out(name: &str) -> bool {
    const BEGINS: [&str; 10] = [
        "_", "pthread_", "sem_", "mtx_", "cnd_", "std::", "core::", "alloc::", "<std::", "futex",
    ];
    const CALLS: &str = "accept accept4 clock_nanosleep close connect epoll_pwait epoll_wait fcntl fdatasync flock fsync fwrite fread \
        getdents64 ioctl lockf msgrcv msync mq_receive mq_timedreceive nanosleep open open64 openat openat64 poll ppoll pread pread64 preadv \
        pselect pwrite pwrite64 pwritev read readv recv recvfrom recvmmsg recvmsg select semop semtimedop send sendfile sendmsg sendto sigtimedwait sigwait \
        sigwaitinfo sleep splice sync syncfs syscall unlink usleep wait wait3 wait4 waitid waitpid write writev exit abort fflush fclose";
    BEGINS.iter().any(|begin| name.starts_with(begin))
        || CALLS.split_ascii_whitespace().any(|one| one == name)
}

/// Returns whether a function is the first of a thread, which says nothing about the place.
fn begins_thread(name: &str) -> bool {
    const FIRST: &str = "main _start start_thread thread_native_entry clone clone3";
    name.starts_with("__libc_start") || FIRST.split(' ').any(|one| one == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_programs_own_functions() {
        for (stack, expected) in [
            (
                "_start;__libc_start_main;postgres+0x2f7bbe;pg_sleep;WaitLatch;WaitEventSetWait;epoll_wait",
                Some("pg_sleep > WaitLatch > WaitEventSetWait"),
            ),
            (
                "libc.so.6+0x891f4;bioProcessBackgroundJobs;pthread_cond_wait;libc.so.6+0x85f16",
                Some("bioProcessBackgroundJobs"),
            ),
            ("_start;main;select", None),
            ("main;serve;__libc_read;do_syscall_64_[k]", Some("serve")),
            ("0x7f93c4938cc9;0x7f93c49416e6", None),
            (
                "std::thread::start;app::pool::Worker::run(int);std::sync::mpsc::recv;syscall",
                Some("std::thread::start > app::pool::Worker::run"),
            ),
            (
                "main;mutate;__restore_rt;safepoint;syscall",
                Some("mutate > signal handler > safepoint"),
            ),
            ("", None),
        ] {
            assert_eq!(place(stack).as_deref(), expected, "{stack}");
        }
    }

    #[test]
    fn locks_are_told_by_who_takes_them() {
        for (stack, expected) in [
            (
                "JavaThread::sleep(long);SafepointSynchronize::block(JavaThread*);LinuxWaitBarrier::wait(int);syscall",
                Some(Says::Lock("safepoint of the JVM")),
            ),
            (
                "ObjectMonitor::enter(JavaThread*);ObjectMonitor::EnterI(JavaThread*);os::PlatformEvent::park(long);pthread_cond_timedwait",
                Some(Says::Lock("monitor of the JVM")),
            ),
            (
                "ObjectMonitor::wait(long, bool, JavaThread*);os::PlatformEvent::park(long);pthread_cond_timedwait",
                None,
            ),
            (
                "run;GOMP_parallel;run._omp_fn.0;libgomp.so.1.0.0+0x1f823",
                Some(Says::Lock("others at the barrier")),
            ),
            (
                "libc.so.6+0x891f4;libgomp.so.1.0.0+0x1d0de;libgomp.so.1.0.0+0x1f823",
                None,
            ),
            ("run._omp_fn.0;serve;libc.so.6+0x1f823", None),
            (
                "sqlite3_step;libsqlite3.so.0+0x1b0c7;usleep;clock_nanosleep",
                Some(Says::LooksAt("lock of SQLite")),
            ),
            (
                "ProcSleep;WaitLatch;WaitEventSetWait;epoll_wait",
                Some(Says::Lock("lock of PostgreSQL")),
            ),
            (
                "pool_get;___pthread_mutex_lock;__lll_lock_wait",
                Some(Says::Lock("lock")),
            ),
            (
                "app::main;std::sys::sync::rwlock::futex::RwLock::read_contended;syscall",
                Some(Says::Lock("lock")),
            ),
            ("my_pthread_mutex_lock_test;pthread_cond_wait", None),
            (
                "lock_PyThread_acquire_lock;acquire_timed;PyThread_acquire_lock_timed;libc.so.6+0x891f4",
                Some(Says::LockOrNot),
            ),
            (
                "rlock_acquire;acquire_timed;PyThread_acquire_lock_timed;libc.so.6+0x891f4",
                Some(Says::Lock("lock of Python")),
            ),
            (
                "_queue_SimpleQueue_get_impl;PyThread_acquire_lock_timed;libc.so.6+0x891f4",
                None,
            ),
            (
                "PyObject_Vectorcall;python3.11+0x1d64bd;PyEval_RestoreThread;python3.11+0xf94ed;pthread_cond_timedwait;libc.so.6+0x85f16;\
                 do_syscall_64_[k]",
                Some(Says::Lock(INTERPRETER)),
            ),
            (
                "_PyEval_EvalFrameDefault;libpython3.12.so.1.0+0xf9;libpython3.12.so.1.0+0xa1;pthread_cond_timedwait",
                Some(Says::Lock(INTERPRETER)),
            ),
            // A module written in C has a condition variable of its own.
            (
                "_PyEval_EvalFrameDefault;_queues.so+0xf9;pthread_cond_timedwait;libc.so.6+0x85f16",
                None,
            ),
            (
                "_PyEval_EvalFrameDefault;pthread_cond_timedwait;libc.so.6+0x85f16",
                None,
            ),
            (
                "pg_sleep;WaitLatch;WaitEventSetWait;epoll_wait",
                Some(Says::Sleeps),
            ),
            (
                "JVM_Sleep;JavaThread::sleep(long);os::PlatformEvent::park(long);pthread_cond_timedwait",
                Some(Says::Sleeps),
            ),
            ("serve;WaitLatch;WaitEventSetWait;epoll_wait", None),
            (
                "runtime.schedule;runtime.findRunnable;runtime.stopm;runtime.notesleep;runtime.futex.abi0",
                Some(Says::Work),
            ),
            ("runtime.lock2;runtime.futexsleep;runtime.futex.abi0", None),
            (
                "tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;syscall",
                Some(Says::Work),
            ),
            (
                "app::main;tokio::runtime::park::CachedParkThread::block_on;syscall",
                None,
            ),
        ] {
            assert_eq!(says(stack), expected, "{stack}");
        }
    }
}
