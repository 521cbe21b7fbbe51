//! Traces and texts with changed bytes, read as the fuzz targets read them, and the memory that this takes.
#![allow(unsafe_code)] // an allocator that counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

mod text_bytes;
mod trace_bytes;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on to the system's allocator; the counters touch no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the seed and the number of rounds of a test with random bytes: `STOPGAP_SEED` and `STOPGAP_ROUNDS`, or these.
/// Both are printed.
fn seed_and_rounds(seed: u64, rounds: u64) -> (u64, u64) {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = given("STOPGAP_SEED").unwrap_or(seed);
    let rounds = given("STOPGAP_ROUNDS").unwrap_or(rounds);
    println!("STOPGAP_SEED={seed} STOPGAP_ROUNDS={rounds}");
    (seed, rounds)
}
