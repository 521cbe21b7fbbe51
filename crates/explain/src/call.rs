//! System calls by their purpose. Names are the kernel's, without `sys_`.

use stopgap_events::words;
use stopgap_trace::Text;

/// The part of a call in a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It sends data to a peer.
    Sends,
    /// It takes data from a peer. That makes room, which may wake the peer.
    Receives,
    /// It waits for one of several descriptors.
    Waits,
    /// It has no part.
    Other,
}

pub(crate) fn role(name: &str) -> Role {
    match name {
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "sendto" | "sendmsg"
        | "sendmmsg" => Role::Sends,
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "recvfrom" | "recvmsg"
        | "recvmmsg" => Role::Receives,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
        | "epoll_pwait2" => Role::Waits,
        _ => Role::Other,
    }
}

/// Families of operations whose time is divided by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Brk,
    Fault,
    Ioctl,
    Poll,
    /// Any other call.
    Call,
    /// No call: the program's own code, while it is kept from a CPU.
    Computing,
}

words!(
    Family,
    "family of calls",
    Mmap "mmap",
    Munmap "munmap",
    Mprotect "mprotect",
    Mremap "mremap",
    Madvise "madvise",
    Brk "brk",
    Fault "fault",
    Ioctl "ioctl",
    Poll "poll",
    Call "call",
    Computing "computing",
);

impl Family {
    /// Returns the family of a call.
    pub(crate) fn of_call(name: &str) -> Family {
        match name {
            "mmap" | "mmap2" => Family::Mmap,
            "munmap" => Family::Munmap,
            "mprotect" | "pkey_mprotect" => Family::Mprotect,
            "mremap" => Family::Mremap,
            "madvise" | "process_madvise" => Family::Madvise,
            "brk" => Family::Brk,
            "ioctl" => Family::Ioctl,
            _ if role(name) == Role::Waits => Family::Poll,
            _ => Family::Call,
        }
    }

    /// Returns whether it is about the memory map or its pages.
    pub(crate) fn is_memory(self) -> bool {
        !matches!(
            self,
            Family::Ioctl | Family::Poll | Family::Call | Family::Computing
        )
    }

    /// Returns whether CPU time in it is work and no loss: in the call, or in the program's own code.
    pub(crate) fn works(self) -> bool {
        matches!(self, Family::Poll | Family::Call | Family::Computing)
    }
}

/// The system call of a thread.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: Text,
    pub(crate) role: Role,
    /// The first argument: the descriptor of calls that send or receive, the address of calls that map.
    pub(crate) first: Option<u64>,
}

/// Returns the name of a call; `call 9` if the trace has only its number. Numbers differ between architectures, which
/// a trace does not name.
pub(crate) fn name_of(number: u32, name: Option<&Text>) -> Text {
    name.map_or_else(|| format!("call {number}").into(), Text::clone)
}

/// Returns the descriptor that refers to another file, or to none, after a call with this first argument and result.
pub(crate) fn opened(name: &str, first: Option<u64>, result: Option<i64>) -> Option<u64> {
    match name {
        "close" => first,
        "open" | "openat" | "openat2" | "creat" | "socket" | "accept" | "accept4" | "dup"
        | "dup2" | "dup3" | "eventfd" | "eventfd2" | "memfd_create" | "timerfd_create" => {
            result.and_then(|result| u64::try_from(result).ok())
        }
        _ => None,
    }
}

/// Returns whether a call waits for several descriptors. The second argument of `poll` is their number.
pub(crate) fn waits_for_several(name: &str, second: Option<u64>) -> bool {
    match name {
        "poll" | "ppoll" => second.is_some_and(|count| count > 1),
        _ => role(name) == Role::Waits,
    }
}
