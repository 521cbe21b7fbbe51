//! Captures every wait of the threads of a program, or of the whole machine, in the kernel by BPF.
//!
//! A *wait* is one interval in which a thread was off its CPU. It comes as one record: when the thread left, was
//! woken and ran again; its state and system call, with three arguments; the thread that woke it, and in which call.
//! A wait that lasted long or is the first of its kind has the kernel's stack. Each place of waiting has the
//! program's stack once. Other records are activities of threads (reclaim, compaction, locks, fences), block
//! requests, long interrupts, signals, and begin and end of threads.
//!
//! | module | what |
//! |---|---|
//! | [`Capture`] | loads and attaches the programs, follows threads, reads records |
//! | [`Record`] | what comes |
//! | [`Part`] | what can be left out, and what it costs |
//! | [`Histogram`] | waits counted in the kernel, by process, call and how the thread waited |
//!
//! ```no_run
//! use stopgap_capture::{Capture, Follow, Level, Options, Record};
//! let mut capture = Capture::start(&Options::default())?;
//! capture.follow(&Follow { process: Some(1234), ..Follow::all(Level::Whole) })?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! capture.read(|_, bytes| {
//!     if let Ok(Record::Wait(wait)) = Record::parse(bytes) {
//!         println!("{} was off its CPU from {} to {}", wait.tid, wait.left, wait.ran);
//!     }
//! });
//! # Ok::<(), stopgap_capture::Error>(())
//! ```
//!
//! Needs Linux 6.1 or later with BTF, and `CAP_BPF` with `CAP_PERFMON` or root; neither tracefs nor a C compiler. Cost: see
//! `docs/record.md`. Links to the programs are descriptors of this process: when it ends, however it ends, nothing stays attached.
//!
//! All that a captured program can influence (names, arguments, its stack) is data: it changes no length and no address that
//! the reader believes.

mod batch;
mod btf;
mod capture;
mod error;
mod histogram;
mod part;
mod record;

pub use capture::{Capture, Follow, Level, Options};
pub use error::Error;
pub use histogram::{BUCKETS, Histogram, How, Process, bucket_begin};
pub use part::Part;
pub use record::{
    Block, Enter, Exec, FenceNames, FileLock, Leave, LockOwner, Malformed, Record, Signal, Span,
    SpanKind, Task, TaskEvent, UserStack, Wait, Waking, flag,
};
