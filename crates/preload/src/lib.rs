//! `LD_PRELOAD` interposer: the arena under a program that nobody may rebuild.
//!
//! Build it with `cargo build --release -p stopgap-preload`; it is then `target/release/libstopgap_preload.so`, beside
//! the command, where `stopgap run --fix arena -- CMD` finds it. By hand: `LD_PRELOAD=.../libstopgap_preload.so CMD`.
//!
//! # Contract
//!
//! A program that calls mmap, munmap, mremap, mprotect and madvise gets what the kernel would give it: addresses apart,
//! contents, protections, errno, and in `/proc/self/maps` no page that can be touched and is not mapped. Whatever this
//! library cannot serve just so it hands to the kernel; whatever goes wrong in it ends in handing everything to the
//! kernel (*aside*). That is always possible, because every map of the window is an ordinary map: nothing has to be
//! translated, ever.
//!
//! # Where the gain is
//!
//! Not in placing: a map at a fixed address in a window and back costs more than mmap and munmap. In the pages: of a
//! map that is touched, faults (an exception, a page, its zeroing, its accounting, and giving it back) are nearly all
//! of the cost. So a freed map keeps its pages, without access, and the next request of that very size gets them zeroed
//! by memset: two changes of protection and a pass over warm memory instead of a fault a page.
//!
//! * Taken over: anonymous private maps, read and write, no address, up to 8 MiB (`arena::LIMIT`).
//! * Given a place, where it is asked for (`STOPGAP_FILES`): maps of files, no address, below 2 MiB. That gains where
//!   the kernel searches linearly, and only there (`arena::files`).
//! * Kept: whole maps that the program never changed (no mprotect, advice that stays, mlock, partial munmap, mremap),
//!   of which two pages at least are resident; 32 MiB in all at most, the oldest go first. All else goes back to the
//!   kernel at once.
//! * Untouched pages stay untouched: mincore(2) says which hold something, no other is written to.
//! * A size whose maps were not worth it four times in a row passes through for the next 256 maps, then 512, ...: hardly
//!   touched, changed before they were freed, or evicted before their pages were used.
//! * A process that forks more than it gains gives its window up (`arena::weigh_forks`).
//!
//! # Rooms
//!
//! * `exports`: the symbols, `errno`. * `arena`: what each call does, the window's life (`change`, `remap`, `forks`),
//!   places for files (`files`). `window`: which part of the window is the program's. * `kept`: freed maps that wait.
//! * `lock`, `notes`: threads, signal handlers, vfork. `own`: what a fork does not copy.
//! * `setup`: environment, limits, the reservation. * `heap`: our own memory. * `kernel`: system calls. * `report`.
//!
//! # Decisions
//!
//! * **The window is mapped without `MAP_NORESERVE`.** A map in it must be charged and must merge as the kernel's own
//!   would: a flag more, and mremap over two neighbours fails where it did not. Without access a reservation is charged
//!   nothing.
//! * **A hole is never left in the window.** What the program unmaps is replaced by the reservation in one call
//!   (MAP_FIXED). Where only mremap can be used, or mlock must meet a hole to do what it does before one, the hole is
//!   closed by `MAP_FIXED_NOREPLACE`; if somebody was quicker it is theirs, and counts as mapped from then on.
//! * **Nothing is kept beside a map that the program changed.** A map whose middle lost its access for a while is one
//!   map again afterwards, unless its two ends were joined with different neighbours that have pages: then mremap calls
//!   it two (EFAULT). What the kernel maps anew has no pages and is joined with anything; what was kept has.
//! * **Files' places are hints.** Nothing is reserved for them, so nothing of the above is for them (`arena::files`).
//! * **Reserved counts as free.** mprotect, madvise and mlock stop or complain at what is only reserved,
//!   `MAP_FIXED_NOREPLACE` succeeds there.
//! * **Forks.** What changes all the time, the lock, the counters and the mark of the process, lies on pages that a fork
//!   wipes (`MADV_WIPEONFORK`): no side copies them, a child finds out that it is one however it was made, and runs
//!   nothing of this library before it calls it. libc's fork holds the lock; after another fork the child looks whether
//!   somebody was inside, and stands aside. Kept pages are not used after a fork on either side: writing to them would
//!   copy them first. A kernel that has no such pages (before 4.14) gets no window.
//! * **Limits.** With a limited address space (`RLIMIT_AS`) no window is made; when one is set later (setrlimit,
//!   prlimit are interposed for that) the window goes. mlockall would lock the window: it goes. ENOMEM from the kernel:
//!   all that is kept goes back, then the call is made once more.
//! * **Before main, and twice.** Fork handlers apart, nothing happens until the first map that could be served; then
//!   the window is made by whoever comes first, while others pass through. Of two copies only one is ever called.
//!
//! # What it cannot see
//!
//! * Calls that do not go through the dynamic linker: glibc's own malloc and thread stacks, static programs, system
//!   calls made directly (Go, `syscall(2)`). Their maps are the kernel's and stay so. A *direct* munmap in the window
//!   leaves a hole, which counts as mapped; the kernel may use it, and when mmap returns such an address it is the
//!   program's.
//! * What such a call changes in a map of the window and munmap would have undone: a memory policy (mbind), a name
//!   (`PR_SET_VMA`), a registration with userfaultfd(2). The next map of that size would have it, too. mlock, mlock2,
//!   pkey_mprotect are interposed for this reason.
//! * mincore, msync, munlock, mbind, process_madvise and prctl treat reserved addresses as mapped without access, where
//!   without the library they would say ENOMEM; /proc/self/maps shows the reservation as one, and VmSize counts it.
//! * A sandbox (seccomp) that allows mmap and mprotect, but not mincore, ends a program at its first munmap of a map of
//!   ours.
//! * A freed map's pages stay charged (vm.overcommit_memory 2), and count as resident, until they are used or go back
//!   (32 MiB).
//!
//! # Lineage
//!
//! Reserving and placing inside: r6144's mail of 2011. Keeping freed pages for the next of their size is what every
//! malloc does above mmap; `stopgap_placement::Stopgap` chooses addresses.

mod arena;
mod exports;
mod heap;
mod inject;
mod kept;
mod kernel;
mod lock;
mod notes;
mod own;
mod report;
mod setup;
mod window;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

mod known_by {
    #![allow(unsafe_code)]

    /// An ELF note, in whose file it stands whoever strips it.
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
        version: 2,
    };
}

mod at_start {
    #![allow(unsafe_code)]

    #[used]
    // SAFETY: the section holds addresses of functions that are called when the library is loaded; this is one.
    #[unsafe(link_section = ".init_array")]
    static WATCH: extern "C" fn() = watch;

    extern "C" fn watch() {
        crate::arena::watch_forks();
    }
}

mod at_exit {
    #![allow(unsafe_code)]

    use crate::setup::Report;
    use crate::{arena, exports, kernel, report, setup};

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
            Report::Error => report::tell(2, arena::state()),
            Report::File(path) => match kernel::open_to_add(path) {
                Ok(fd) => {
                    report::tell(fd, arena::state());
                    kernel::close(fd);
                }
                Err(kernel::Errno(errno)) => report::no_file(errno),
            },
        }
    }
}
