//! `LD_PRELOAD` interposer: places for the maps of a program that nobody may rebuild.
//!
//! Build it with `cargo build --release -p stopgap-preload`; it is then `target/release/libstopgap_preload.so`, beside
//! the command, where `stopgap run --fix arena -- CMD` finds it. By hand: `LD_PRELOAD=.../libstopgap_preload.so CMD`.
//!
//! # Contract
//!
//! A program that calls mmap, munmap, mremap, mprotect and madvise gets what the kernel would give it, addresses apart:
//! the library chooses an address and tells it to the kernel as a *hint*. A kernel takes a hint whose addresses are free
//! without a search, searches as ever where they are not, and does all else to the map as it does without one. Nothing
//! is reserved, nothing translated, and munmap unmaps. So no page is ever handed out twice, and references that the kernel, a
//! device or another process still holds to an unmapped page stay right.
//!
//! # Where the gain is
//!
//! Under kernels that search for a place linearly (before 3.8, and again those whose tree is slow beside tens of
//! thousands of maps); since 6.1 there is next to none (docs/fixes/run.md has figures).
//!
//! Placed are anonymous private maps, read and write, no address, up to 8 MiB (`calls::LIMIT`). All others pass through.
//!
//! # Keeping pages (`STOPGAP_KEEP`): unsafe for some programs
//!
//! A page fault costs several times what zeroing a page costs. So where it is asked to, the library keeps the pages of a
//! freed map, without access, and the next map of that size gets them, zeroed by memset. That is right only as long as
//! nobody but the program's own memory accesses uses the pages: a page that the kernel or another process still refers
//! to (vmsplice, O_DIRECT or io_uring in flight, MSG_ZEROCOPY, shmat with SHM_REMAP, ...) is then overwritten, and what
//! system calls made directly have done to a map (mbind, userfaultfd, names) the next map has, too. docs/fixes/run.md
//! has the list, `tests/references` the proofs.
//!
//! * Kept: whole maps that the program never changed (no mprotect, advice that stays, mlock, partial munmap, mremap),
//!   of which at least two pages are resident; at most as many bytes as asked for, the oldest go first. Nothing is kept
//!   beside a map that was changed: to the kernel the two might be one map, and two when kept pages come back.
//! * Every interposed call unmaps first what is kept at the addresses it is about: the kernel then answers as ever.
//! * A fork unmaps what is kept; so do a limit of the address space, mlockall, and ENOMEM, after which the call is made
//!   again.
//!
//! # Modules
//!
//! * `exports`: the symbols, `errno`. `calls`: what each call does.
//! * `stage`: idle, serving or aside. `books`: what the lock protects. `room`: which addresses are taken. `kept`: freed
//!   maps that wait.
//! * `lock`, `notes`, `forks`: threads, signal handlers, fork. `setup`: environment, limits. `heap`: the library's own
//!   memory. `kernel`: system calls. `report`: the line at exit.
//!
//! # Decisions
//!
//! * **Hints, not a reserved window.** Over a reservation a map that fails leaves a hole or does not, by kernel and
//!   errno, and what lies there then nobody can tell; mprotect, mlock and madvise see reserved addresses as mapped; the
//!   reservation counts against limits, and more VMAs are made. A hint has none of that and costs less.
//! * **The room lies where a kernel puts nothing by itself**, so the search for all others' places does not meet the
//!   room's maps either.
//! * **Books may be wrong.** System calls made directly are not seen. A place thought to be taken is not used, a place
//!   thought to be free keeps what lies there; after 64 such hints there are no more.
//! * **Nobody waits.** A call that does not get the lock goes to the kernel as it is (`lock`).
//! * **At most 2 KiB of the caller's stack**, in any call: it may be a signal handler's or a small thread's. The room's
//!   13 KiB are a static, opened where they lie.
//! * **Not beside a sanitizer**: AddressSanitizer and its relatives own parts of the address space, and must see every
//!   map. Where a runtime of theirs is loaded, each call is its own.
//!
//! # Lineage
//!
//! Placing in user space: r6144's mail of 2011. Keeping freed pages for the next of their size is what every malloc
//! does above mmap; `stopgap_placement::Stopgap` chooses addresses.

mod books;
mod calls;
mod exports;
mod forks;
mod heap;
mod inject;
mod kept;
mod kernel;
mod lock;
mod notes;
mod report;
mod room;
mod setup;
mod stage;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

mod known_by {
    #![allow(unsafe_code)]

    /// An ELF note, which stays in a file that is stripped.
    #[repr(C)]
    struct Note {
        name_length: u32,
        version_length: u32,
        kind: u32,
        name: [u8; 8],
        version: u32,
    }

    /// `stopgap run` preloads no library without it: another one would be loaded and change nothing, and nobody would
    /// know. The version is that of the variables by which the two understand each other.
    #[used]
    // SAFETY: the section holds notes, one after the other, which are read by nobody but by name; this is a whole one.
    #[unsafe(link_section = ".note.stopgap")]
    static NOTE: Note = Note {
        name_length: 8,
        version_length: 4,
        kind: 1,
        name: *b"stopgap\0",
        version: 3,
    };
}

mod at_start {
    #![allow(unsafe_code)]

    #[used]
    // SAFETY: the section holds addresses of functions that are called when the library is loaded; this is one.
    #[unsafe(link_section = ".init_array")]
    static WATCH: extern "C" fn() = watch;

    extern "C" fn watch() {
        crate::forks::watch();
        if crate::setup::sanitized() {
            crate::exports::leave_to_the_sanitizer();
        }
    }
}

mod at_exit {
    #![allow(unsafe_code)]

    use crate::setup::Report;
    use crate::{exports, kernel, report, setup, stage};

    #[used]
    // SAFETY: the section holds addresses of functions that are called at exit; this is one.
    #[unsafe(link_section = ".fini_array")]
    static TELL: extern "C" fn() = tell;

    extern "C" fn tell() {
        let Some(place) = setup::report() else { return };
        if !report::any() || !exports::called() {
            return;
        }
        match place {
            Report::Error => report::tell(2, stage::state()),
            Report::File(path) => match kernel::open_to_add(path) {
                Ok(fd) => {
                    report::tell(fd, stage::state());
                    kernel::close(fd);
                }
                Err(kernel::Errno(errno)) => report::no_file(errno),
            },
        }
    }
}
