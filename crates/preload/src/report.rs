//! Counters of calls, written at exit where `STOPGAP_REPORT` asks for them.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::{kernel, setup};

macro_rules! counters {
    ($($name:ident: $words:literal,)*) => {
        /// One number each.
        #[derive(Debug, Clone, Copy)]
        #[allow(non_camel_case_types)]
        pub(crate) enum Count { $($name,)* }

        const WORDS: &[(&str, Count)] = &[$(($words, Count::$name),)*];
    };
}

counters! {
    placed: "placed",
    used_again: "used_again",
    faults_saved: "faults_saved",
    unmapped: "unmapped",
    kept: "kept",
    evicted: "evicted",
    passed_address: "passed_address",
    passed_flags: "passed_flags",
    passed_protection: "passed_protection",
    passed_file: "passed_file",
    passed_size: "passed_size",
    passed_no_room: "passed_no_room",
    passed_aside: "passed_aside",
    missed: "missed",
    busy: "busy",
    relieved: "relieved",
}

static COUNTS: [AtomicU64; WORDS.len()] = [const { AtomicU64::new(0) }; WORDS.len()];

/// Adds to a counter.
#[inline]
pub(crate) fn count(count: Count, by: usize) {
    // Threads may lose each other's additions; an atomic addition would cost more than what it counts.
    let counter = &COUNTS[count as usize];
    counter.store(counter.load(Relaxed).wrapping_add(by as u64), Relaxed);
}

/// Sets all counters to 0, in a child.
pub(crate) fn begin_anew() {
    for counter in &COUNTS {
        counter.store(0, Relaxed);
    }
}

/// Text in a buffer of its own, cut where that ends: nothing is allocated at exit.
struct Line {
    text: [u8; 1024],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.text[self.length..];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

/// Whether there is anything to tell.
pub(crate) fn any() -> bool {
    COUNTS.iter().any(|count| count.load(Relaxed) != 0)
}

/// Writes one line: `stopgap-preload: pid=12 state=serving served_kept=3 ...`, all counters, always in this order,
/// and in the end what of the environment was ignored, if anything was.
pub(crate) fn tell(fd: i32, state: &str) {
    let mut line = Line {
        text: [0; 1024],
        length: 0,
    };
    let _ = write!(line, "stopgap-preload: pid={} state={state}", kernel::pid());
    for (word, count) in WORDS {
        let count = COUNTS[*count as usize].load(Relaxed);
        let _ = write!(line, " {word}={count}");
    }
    let mut before = " ignored=";
    for name in setup::ignored() {
        let _ = write!(line, "{before}{name}");
        before = ",";
    }
    let _ = line.write_str("\n");
    kernel::write(fd, &line.text[..line.length]);
}

/// The report's file cannot be opened: that, where errors go.
pub(crate) fn no_file(errno: i32) {
    let mut line = Line {
        text: [0; 1024],
        length: 0,
    };
    let _ = writeln!(
        line,
        "stopgap: the file of STOPGAP_REPORT cannot be opened (errno {errno})"
    );
    kernel::write(2, &line.text[..line.length]);
}
