//! Finds what a sleep was for and what ended it, from the fields of one wait.

use std::collections::HashMap;

use stopgap_events::wait::{Call, Context, State, Wait, Waker, Within};
use stopgap_trace::{Activity, Span, Text};

use super::path::{For, Name, Paths, Quick};
use super::user::{self, Says};
use crate::call::{Role, role, waits_for_several};
use crate::recent::Recent;
use crate::stack;
use crate::why::Why;

/// Most stacks whose cause is remembered.
const MOST_STACKS: usize = 1 << 16;
/// A timer ends a sleep late by at most this many nanoseconds plus one per cent.
const TIMER_SLACK: u64 = 2_000_000;

/// Prefix of the names of threads that carry out requests of an io_uring (io_uring/io-wq.c).
pub(super) const RING_WORKER: &str = "iou-wrk-";

/// The thread or thing that ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// This thread.
    By(u32),
    /// A disk.
    Disk,
    /// A timer, at the time that the thread had chosen.
    Timer,
    /// A timer, before the thread got what it waited for.
    Timeout,
    Network,
    /// An acknowledgement that TCP held back.
    DelayedAck,
    Device,
    Interrupt,
    /// An interrupt, or the thread that it interrupted.
    Uncertain,
    /// The end of the thread's process.
    ProcessOver,
    Nobody,
}

/// Families of calls by what they wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Time,
    Futex,
    Events,
    Socket,
    Data,
    Sync,
    Child,
    FileLock,
    Semaphore,
    Signal,
    Other,
}

fn family(call: &Call) -> Family {
    let name = call.name.as_deref();
    name.map_or(Family::Other, |name| family_of(name, call.arguments))
}

pub(super) fn family_of(name: &str, arguments: [Option<u64>; 3]) -> Family {
    match name {
        // A sleep that goes on after a stop keeps its end time.
        "nanosleep" | "clock_nanosleep" | "restart_syscall" => Family::Time,
        // A poll of no descriptor is a sleep.
        "poll" | "ppoll" if arguments[1] == Some(0) => Family::Time,
        "select" | "pselect6" if arguments[0] == Some(0) => Family::Time,
        "futex" | "futex_wait" | "futex_waitv" => Family::Futex,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
        | "epoll_pwait2" | "io_getevents" | "io_pgetevents" | "io_uring_enter" => Family::Events,
        "recvfrom" | "recvmsg" | "recvmmsg" | "accept" | "accept4" | "connect" | "sendto"
        | "sendmsg" | "sendmmsg" => Family::Socket,
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "write" | "writev" | "pwrite64"
        | "pwritev" | "pwritev2" | "splice" | "tee" | "sendfile" | "sendfile64" | "msgrcv"
        | "msgsnd" | "mq_timedreceive" | "mq_timedsend" => Family::Data,
        "fsync" | "fdatasync" | "msync" | "sync" | "syncfs" | "sync_file_range" => Family::Sync,
        // Here, clone waits for the new thread or process to start, unless that runs on at once.
        "wait4" | "waitid" | "waitpid" | "vfork" | "clone" | "clone3" => Family::Child,
        "flock" => Family::FileLock,
        // F_SETLKW and F_OFD_SETLKW.
        "fcntl" if matches!(arguments[1], Some(7 | 38)) => Family::FileLock,
        "semop" | "semtimedop" => Family::Semaphore,
        "pause" | "rt_sigsuspend" | "rt_sigtimedwait" | "sigsuspend" => Family::Signal,
        _ => Family::Other,
    }
}

/// Returns whether the call sleeps only once: a thread that is woken in it has what it waited for, or has reached its
/// timeout.
pub(crate) fn sleeps_once(name: &str, arguments: [Option<u64>; 3]) -> bool {
    use Family::{Child, Events, Futex, Semaphore, Signal, Time};
    let waits = matches!(
        family_of(name, arguments),
        Time | Futex | Events | Child | Signal | Semaphore
    );
    waits || matches!(name, "accept" | "accept4") || role(name) == Role::Receives
}

/// Returns whether the call sends bytes. The network's softirq may deliver them at once to a receiver on this
/// machine.
pub(super) fn sends(call: &Call) -> bool {
    call.name.as_deref().is_some_and(sends_at_once)
}

pub(super) fn sends_at_once(name: &str) -> bool {
    matches!(
        name,
        "write"
            | "writev"
            | "sendto"
            | "sendmsg"
            | "sendmmsg"
            | "sendfile"
            | "sendfile64"
            | "splice"
            | "connect"
            | "shutdown"
            | "close"
            | "io_uring_enter"
            | "exit_group"
            | "exit"
    )
}

/// Returns what an interruptible sleep in a call of the family is for. `lock` makes the value for a lock, of its kind
/// and address.
pub(super) fn what_of(
    family: Family,
    arguments: [Option<u64>; 3],
    lock: impl FnOnce(&str, u64) -> For,
) -> For {
    let address = arguments[0].unwrap_or(0);
    match family {
        Family::Time => For::Time,
        Family::Futex if is_mutex(arguments) => lock("futex", address),
        // A condition variable of glibc has two words side by side, which waiters use in turn.
        Family::Futex => For::Word {
            address: address & !7,
        },
        Family::FileLock => lock("file lock", 0),
        Family::Semaphore => For::Word { address: 0 },
        Family::Events => For::Events,
        Family::Child => For::Child,
        Family::Signal => For::Signal,
        Family::Sync => For::Io,
        Family::Socket | Family::Data => For::Data,
        Family::Other => For::Something,
    }
}

/// Returns whether the futex call waits for a mutex: `FUTEX_WAIT` for the value 2, which means a mutex with waiters
/// in glibc, musl and Rust's library; or a mutex with priority inheritance (`FUTEX_LOCK_PI`, `FUTEX_LOCK_PI2`).
pub(super) fn is_mutex([_, operation, value]: [Option<u64>; 3]) -> bool {
    let command = operation.map(|operation| operation & 0x7f);
    let value = value.map(|value| value & 0xffff_ffff);
    matches!(command, Some(6 | 13)) || (matches!(command, Some(0 | 9)) && value == Some(2))
}

/// Returns whether a thread in the call waits for room for what it writes, or for a connection for which it asks.
pub(super) fn waits_for_room(name: &str) -> bool {
    role(name) == Role::Sends
        || matches!(
            name,
            "sendfile" | "sendfile64" | "msgsnd" | "mq_timedsend" | "connect" | "close"
        )
}

/// Returns whether the call takes bytes.
pub(super) fn receives(call: &Call) -> bool {
    (call.name.as_deref()).is_some_and(|name| role(name) == Role::Receives)
}

/// Returns whether the call waits for several descriptors.
pub(super) fn of_several(call: &Call) -> bool {
    (call.name.as_deref()).is_some_and(|name| waits_for_several(name, call.arguments[1]))
}

/// Returns whether the call is a poll of two descriptors, for example for the output and the errors of one child.
pub(super) fn of_two(call: &Call) -> bool {
    matches!(call.name.as_deref(), Some("poll" | "ppoll")) && call.arguments[1] == Some(2)
}

/// Reasons for a sleep by a kernel function on the stack (Linux 6.1 to 6.18). They hold for any call.
const BY_FUNCTION: [(By, &str); 10] = [
    // io_uring/io-wq.c, io_uring/sqpoll.c: a worker of a ring, which is in no call of its own
    (By::Work, "io_wq_worker io_sq_thread"),
    (By::Ring, "io_wq_submit_work"),
    // fs/timerfd.c
    (
        By::Time,
        "timerfd_read timerfd_read_iter hrtimer_nanosleep drm_wait_vblank_ioctl drm_crtc_queue_sequence_ioctl",
    ),
    // The thread asks for nothing: fs/notify, fs/signalfd.c, drivers/tty, drivers/input, fs/eventpoll.c, a guest
    // without work (virt/kvm).
    (
        By::Events,
        "inotify_read fanotify_read signalfd_dequeue signalfd_read signalfd_read_iter n_tty_read evdev_read mousedev_read ep_poll \
         do_sys_poll do_select inet_csk_accept unix_accept \
         vsock_accept recv_wait_event seccomp_notify_ioctl kvm_vcpu_block kvm_vcpu_halt binder_wait_for_work",
    ),
    // Another program answers: kernel/seccomp.c, fs/notify/fanotify, fs/userfaultfd.c, fs/fuse/dev.c, net/sunrpc/sched.c, fs/smb/client.
    (
        By::Answer,
        "seccomp_do_user_notification fanotify_handle_event fanotify_get_response handle_userfault request_wait_answer fuse_wait_answer __fuse_request_send fuse_simple_request rpc_wait_bit_killable __rpc_execute \
         wait_for_response cifs_send_recv p9_client_rpc",
    ),
    // kernel/exit.c, kernel/fork.c
    (By::Child, "do_wait kernel_wait4 wait_for_vfork_done"),
    // fs/pipe.c: the other end of a FIFO that the thread opens. net/core/stream.c: the bytes that it wrote before it
    // closes.
    (By::Data, "wait_for_partner sk_stream_wait_close"),
    // fs/locks.c
    (
        By::FileLock,
        "flock_lock_inode_wait posix_lock_inode_wait locks_lock_inode_wait fcntl_setlk __break_lease",
    ),
    // kernel/signal.c, kernel/cgroup/freezer.c, kernel/freezer.c
    (
        By::Stop,
        "do_signal_stop do_jobctl_trap ptrace_stop do_freezer_trap __refrigerator",
    ),
    // fs/jbd2, fs/xfs, fs/btrfs, fs/fs-writeback.c: the journal, writeback.
    (
        By::Io,
        "jbd2_log_wait_commit jbd2_complete_transaction xlog_wait_on_iclog xfs_log_force btrfs_wait_ordered_range \
         wb_wait_for_completion wait_sb_inodes filemap_fdatawait_range",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Time,
    Events,
    Answer,
    Child,
    FileLock,
    Stop,
    Io,
    Data,
    Work,
    /// A request of a ring, for an unknown purpose.
    Ring,
}

/// Returns the reason of the innermost function that has one.
fn by_function(stack: &str) -> Option<By> {
    let of = |function: &str| {
        let row = |(_, functions): &&(By, &str)| functions.split(' ').any(|one| one == function);
        BY_FUNCTION.iter().find(row).map(|(by, _)| *by)
    };
    let functions = || {
        stack::frames(stack)
            .rev()
            .filter_map(stack::kernel_function)
    };
    let innermost = functions().next();
    functions().find_map(of).or(match innermost {
        // BPF's stacks leave out the functions of the scheduler. In these two functions a thread sleeps for nothing
        // else.
        Some("get_signal") => Some(By::Stop),
        Some("kernel_clone") => Some(By::Child),
        _ => None,
    })
}

/// Returns whether the thread sleeps in a Unix socket (net/unix/af_unix.c), to which no packets come.
fn of_unix_socket(wait: &Wait) -> bool {
    let stack = wait.stack.as_ref();
    stack.is_some_and(|stack| {
        let mut functions = stack::frames(&stack.frames).filter_map(stack::kernel_function);
        functions.any(|function| function.starts_with("unix_"))
    })
}

/// Returns whether an interrupt ended the sleep, as a timer does.
fn by_timer(wait: &Wait) -> bool {
    let context = wait.waker.as_ref().map(|waker| waker.context);
    context == Some(Some(Context::Interrupt))
}

/// Returns whether the call is one that sleeps for a chosen time.
pub(crate) fn sleeps_on_purpose(wait: &Wait) -> bool {
    (wait.call.as_ref()).is_some_and(|call| family(call) == Family::Time)
}

/// Result for a stack of the kernel: the cause of an operation, and the reason for the sleep.
type OfStack = (Option<Why>, Option<By>);

/// Result for a stack of the program.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Program {
    /// Where in the program the thread waits; 0 where no function has a name.
    pub(super) place: Name,
    pub(super) says: Option<Says>,
    /// Whether the thread is in a signal handler.
    pub(super) handles_signal: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sleeps {
    stacks: HashMap<Text, OfStack>,
    recent: Recent<OfStack>,
    /// Results by the stack's address in memory. The stack is kept too, so that no other stack gets its address.
    programs: HashMap<u64, (Text, Program), Quick>,
    /// Whether the source distinguishes softirqs from hard interrupts.
    softirqs: bool,
}

impl Sleeps {
    fn of_stack(&mut self, wait: &Wait) -> OfStack {
        let Some(stack) = &wait.stack else {
            return (None, None);
        };
        let frames = &stack.frames;
        let stacks = &mut self.stacks;
        self.recent.get(frames, |frames| {
            if let Some(known) = stacks.get(frames) {
                return known.clone();
            }
            let found = (stack::why(frames), by_function(frames));
            if stacks.len() < MOST_STACKS {
                stacks.insert(Text::clone(frames), found.clone());
            }
            found
        })
    }

    /// Returns where in its program a thread waits, and what the functions on its stack mean.
    pub(super) fn program(&mut self, wait: &Wait, paths: &mut Paths) -> Program {
        let Some(stack) = &wait.user_stack else {
            return Program::default();
        };
        let frames = &stack.frames;
        let key = frames.as_ptr() as u64;
        if let Some((_, program)) = self.programs.get(&key) {
            return *program;
        }
        let program = Program {
            place: user::place(frames).map_or(0, |place| paths.name(&place.into())),
            says: user::says(frames),
            handles_signal: user::handles_signal(frames),
        };
        if self.programs.len() >= MOST_STACKS {
            self.programs.clear();
        }
        self.programs.insert(key, (Text::clone(frames), program));
        program
    }

    /// Returns what the thread waited for.
    pub(super) fn what(&mut self, wait: &Wait, paths: &mut Paths) -> For {
        if matches!(wait.state, Some(State::Stopped | State::Traced)) {
            return For::Continue;
        }
        let lock = |kind: &str, address, paths: &mut Paths| For::Lock {
            kind: paths.name(&kind.into()),
            address,
        };
        let (why, by) = self.of_stack(wait);
        match why {
            Some(Why::MmapLock) => return lock("mmap_lock", 0, paths),
            Some(Why::Lock) => return lock("kernel lock", 0, paths),
            Some(Why::Fence) => return For::Fence { driver: 0 },
            Some(Why::Io) => return For::Io,
            Some(Why::Rcu) => return For::Rcu,
            Some(
                why @ (Why::Throttled | Why::DirectReclaim | Why::MemcgReclaim | Why::Compaction),
            ) => {
                return For::Memory {
                    how: paths.name(&why.word().into()),
                };
            }
            _ => {}
        }
        let address = |call: &Call| match family(call) {
            Family::Futex => call.arguments[0].unwrap_or(0),
            _ => 0,
        };
        let address = wait.call.as_ref().map_or(0, address);
        match self.program(wait, paths).says {
            // The lock is built from a condition variable of glibc, which has two words side by side.
            Some(Says::Lock(kind)) if kind != "lock" => return lock(kind, address & !7, paths),
            Some(Says::Lock(kind)) => return lock(kind, address, paths),
            Some(Says::LooksAt(kind)) if by == Some(By::Time) || sleeps_on_purpose(wait) => {
                return lock(kind, 0, paths);
            }
            Some(Says::Sleeps) if by_timer(wait) => return For::Time,
            Some(Says::Work) if wait.call.as_ref().map(family) == Some(Family::Futex) => {
                return For::Work;
            }
            _ => {}
        }
        if sleeps_on_purpose(wait) {
            return For::Time;
        }
        match by {
            Some(By::Time) => return For::Time,
            Some(By::Events) => return For::Events,
            Some(By::Answer) => return For::Answer,
            Some(By::Child) => return For::Child,
            Some(By::FileLock) => return lock("file lock", 0, paths),
            Some(By::Stop) => return For::Continue,
            Some(By::Io) => return For::Io,
            Some(By::Data) => return For::Data,
            Some(By::Work) => return For::Work,
            Some(By::Ring) if wait.for_io == Some(true) => return For::Io,
            Some(By::Ring) => return For::Something,
            None => {}
        }
        let Some(call) = &wait.call else {
            return match (wait.within, wait.for_io) {
                (_, Some(true)) => For::Io,
                (Some(Within::Kernel), _) => For::Work,
                _ => For::Something,
            };
        };
        let blocked = wait.state == Some(State::Blocked);
        match family(call) {
            Family::Data | Family::Child | Family::Other if wait.for_io == Some(true) => For::Io,
            // The sleep is uninterruptible, so it is not for bytes, which may never come.
            Family::Data if blocked => For::Something,
            family => what_of(family, call.arguments, |kind, address| {
                lock(kind, address, paths)
            }),
        }
    }

    /// Returns what the thread waited for, according to a span that ended after the sleep.
    pub(super) fn told_by(span: &Span, submitter: Option<&str>, paths: &mut Paths) -> Option<For> {
        let name = |text: &Option<Text>, or: &str, paths: &mut Paths| {
            paths.name(text.as_ref().unwrap_or(&or.into()))
        };
        let address = span.address.unwrap_or(0);
        Some(match span.what {
            Activity::Lock => For::Lock {
                kind: name(&span.lock, "kernel lock", paths),
                address,
            },
            Activity::MmapLock => For::Lock {
                kind: paths.name(&"mmap_lock".into()),
                address,
            },
            Activity::Fence => {
                let mut whose = span
                    .driver
                    .as_deref()
                    .unwrap_or("an unknown driver")
                    .to_owned();
                if let Some(timeline) = &span.timeline {
                    whose += &format!(" (timeline {timeline})");
                }
                if let Some(submitter) = submitter {
                    whose += &format!(", submitted by {submitter}");
                }
                let known = span.driver.is_some() || submitter.is_some();
                For::Fence {
                    driver: if known { paths.name(&whose.into()) } else { 0 },
                }
            }
            Activity::PageLock | Activity::Writeback => For::Io,
            Activity::DirectReclaim
            | Activity::MemcgReclaim
            | Activity::Throttled
            | Activity::Compaction => For::Memory {
                how: paths.name(&span.what.to_string().into()),
            },
            _ => return None,
        })
    }

    /// Returns the thread or thing that ended the sleep. `disk_done` returns whether a disk request ended when the
    /// thread was woken: one of its own (`true`), or any (`false`).
    pub(super) fn ended(
        &mut self,
        wait: &Wait,
        what: For,
        disk_done: impl Fn(bool) -> bool,
        is_kernel: impl Fn(u32) -> bool,
    ) -> Ended {
        let Some(waker) = wait.waker.as_ref().filter(|_| wait.woken.is_some()) else {
            // Some kernels hide wakings. A sleep for a chosen time that is over ended by its timer.
            return match what {
                For::Time if wait.ran.is_some() => Ended::Timer,
                _ => Ended::Nobody,
            };
        };
        self.softirqs |= waker.context == Some(Context::Softirq);
        let family = match what {
            For::Time => Family::Time,
            For::Data if wait.call.as_ref().map(family) == Some(Family::Other) => Family::Data,
            _ => wait.call.as_ref().map_or(Family::Other, family),
        };
        let by = waker.task.tid;
        match waker.context {
            Some(Context::Task) if by != 0 => Ended::By(by),
            None if by != 0 && waker.call.is_none() => {
                if is_kernel(by) {
                    Ended::By(by)
                } else {
                    Ended::Uncertain
                }
            }
            None if by != 0 && family != Family::Time && !self.is_timeout(wait) => Ended::By(by),
            _ => self.interrupted(wait, waker, what, family, disk_done),
        }
    }

    fn interrupted(
        &self,
        wait: &Wait,
        waker: &Waker,
        what: For,
        family: Family,
        disk_done: impl Fn(bool) -> bool,
    ) -> Ended {
        let kernel = wait.within == Some(Within::Kernel);
        let soft = waker.context == Some(Context::Softirq);
        let sent = soft && waker.task.tid != 0 && waker.call.as_ref().is_some_and(sends);
        match (what, family) {
            (For::Fence { .. }, _) => return Ended::Device,
            (For::Memory { .. }, _) => return Ended::Timeout,
            (For::Rcu, _) => return Ended::Interrupt,
            (_, Family::Time) => return Ended::Timer,
            (For::Io, _) => return Ended::Disk,
            _ => {}
        }
        // The end of the thread's own disk request may show by an eventfd or a ring.
        if family == Family::Events && disk_done(true) {
            return Ended::Disk;
        }
        let for_disk = kernel || wait.for_io != Some(false);
        if for_disk && disk_done(!kernel) {
            return Ended::Disk;
        }
        match family {
            Family::Events | Family::Socket | Family::Data if sent => Ended::By(waker.task.tid),
            Family::Events if self.is_timeout(wait) => Ended::Timeout,
            // The timers of these calls are hard interrupts, and packets are softirqs.
            Family::Events if soft => Ended::Network,
            Family::Events if self.softirqs => Ended::Timeout,
            Family::Socket | Family::Data if of_unix_socket(wait) => Ended::Timeout,
            Family::Socket => Ended::Network,
            Family::Data if soft => Ended::Network,
            Family::Futex | Family::Semaphore | Family::Signal | Family::FileLock => Ended::Timeout,
            _ if kernel && soft => Ended::Timer,
            _ => Ended::Interrupt,
        }
    }

    /// Returns whether the sleep was as long as the timeout in the call. Only poll has the timeout among the recorded
    /// arguments: its third.
    #[allow(clippy::unused_self)]
    fn is_timeout(&self, wait: &Wait) -> bool {
        let Some(call) = &wait.call else { return false };
        let (Some("poll"), Some(ms)) = (call.name.as_deref(), call.arguments[2]) else {
            return false;
        };
        let asked = (ms & 0xffff_ffff).saturating_mul(1_000_000);
        let slept = wait
            .woken
            .map_or(0, |woken| woken.0.saturating_sub(wait.left.0));
        (ms as i32) >= 0 && slept >= asked && slept <= asked + asked / 100 + TIMER_SLACK
    }
}
