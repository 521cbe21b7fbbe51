//! The last seconds of records, in memory: slices, of which the oldest go.
//!
//! ```text
//! names of threads | slice  slice  slice  slice |  <- a slice a reading
//!  as they were here ^ first                 last ^
//! ```
//!
//! A window shares its slices with the ring, so that it can be written while the ring goes on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stopgap_events::order::SortRows;

/// The kind of a record of a thread (`stopgap_capture::Record`), and where such a record has what the ring needs of it.
const TASK: u8 = 5;
const WHY: usize = 1;
const BEGIN: u8 = 1;
const RENAMED: u8 = 3;
const EXITED: u8 = 4;
const TID: usize = 4;
const TIME: usize = 16;
const COMM: usize = 104;
const MAKER: usize = 120;

/// The kinds of records of waits, and where they have the time of their end; and where a signal has its time.
const WAIT: u8 = 1;
const WAIT_STACK: u8 = 2;
const RAN: usize = 24;
const SENT: usize = 8;

/// Memory that a slice may have beside its entries and an eighth of them.
const SPARE: usize = 4 << 10;

/// Bits of an entry's head that hold the record's length; above them is the number of its ring.
const LENGTH_BITS: u32 = 16;

/// What came in one reading.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Nothing in it was written before.
    pub(super) begin: u64,
    /// Nothing in it was written after.
    pub(super) end: u64,
    /// Records that were lost meanwhile.
    pub(super) lost: u64,
    /// Entries: length of the record and number of its ring in 4 bytes, then the record.
    entries: Vec<u8>,
}

impl Slice {
    pub(super) fn new(begin: u64, entries: Vec<u8>) -> Slice {
        Slice {
            begin,
            entries,
            ..Slice::default()
        }
    }

    pub(super) fn put(&mut self, ring: usize, record: &[u8]) {
        entry(&mut self.entries, ring, record);
    }

    /// Records of threads in the order of time: those of several CPUs stand one after the other.
    pub(super) fn threads(&self) -> Vec<&[u8]> {
        let records = self.records().map(|(_, record)| record);
        let mut threads: Vec<&[u8]> = records.filter(|record| is_thread(record)).collect();
        threads.sort_rows_by_key(|record| time_of(record));
        threads
    }

    /// Records that are none of threads, waits and signals in the order of time: who woke whom first shows who asks.
    pub(super) fn others(&self) -> Vec<&[u8]> {
        let records = self.records().map(|(_, record)| record);
        let mut others: Vec<&[u8]> = records.filter(|record| !is_thread(record)).collect();
        // Each CPU's records are in order already, and this sort is one for such runs.
        others.sort_rows_by_key(|record| over_at(record));
        others
    }

    /// All of it, for another process.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.begin, self.end, self.lost];
        let mut bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        bytes.extend_from_slice(&self.entries);
        bytes
    }

    /// Reads what [`Slice::to_bytes`] wrote.
    pub(super) fn parse(bytes: &[u8]) -> Option<Slice> {
        let (numbers, entries) = bytes.split_at_checked(24)?;
        let number = |at: usize| numbers[at..].first_chunk().copied().map(u64::from_le_bytes);
        Some(Slice {
            begin: number(0)?,
            end: number(8)?,
            lost: number(16)?,
            entries: entries.to_vec(),
        })
    }

    /// Adds the slice that came next.
    pub(super) fn join(&mut self, next: &Slice) {
        self.end = next.end;
        self.lost += next.lost;
        self.entries.extend_from_slice(&next.entries);
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Frees memory that it does not need. A slice of a quiet moment takes over the memory of a busy one, and would hold all of it
    /// for as long as it is kept.
    fn fit(&mut self) {
        if self.entries.capacity() > self.entries.len() / 8 * 9 + SPARE {
            self.entries.shrink_to_fit();
        }
    }

    /// Its records, each with the number of its ring, in the order in which they came.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = &self.entries[..];
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk()?;
            let head = u32::from_le_bytes(*head);
            let length = (head & ((1 << LENGTH_BITS) - 1)) as usize;
            let (record, after) = after.split_at_checked(length)?;
            rest = after;
            Some((head >> LENGTH_BITS, record))
        })
    }
}

/// The names of a window's threads, and its slices.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Records of the moment at which the first slice begins.
    pub(super) threads: Vec<Vec<u8>>,
    pub(super) slices: Vec<Arc<Slice>>,
}

/// Slices, and the threads that there were before the first one.
#[derive(Debug, Default)]
pub(super) struct Ring {
    slices: VecDeque<Arc<Slice>>,
    bytes: usize,
    /// Slices that have gone, and that windows still share.
    held: Vec<Arc<Slice>>,
    /// The last record of each thread before the first slice.
    threads: HashMap<u32, Box<[u8]>>,
    /// The threads that lived at a time which the first slice has not come to.
    alive: Option<(u64, HashSet<u32>)>,
}

impl Ring {
    /// Adds a slice. Slices that ended before `from`, and the oldest while all have more than `most` bytes, go. What windows
    /// still share counts, but the ring may have half of `most` in any case. Returns the memory of one of the slices, to be used again.
    pub(super) fn push(&mut self, mut slice: Slice, from: u64, most: usize) -> Option<Vec<u8>> {
        slice.fit();
        self.bytes += slice.bytes();
        self.slices.push_back(Arc::new(slice));
        self.held.retain(|slice| Arc::strong_count(slice) > 1);
        let held: usize = self.held.iter().map(|slice| slice.bytes()).sum();
        let most = most.saturating_sub(held).max(most / 2);
        let mut free = None;
        while let Some(first) = self.slices.front()
            && self.slices.len() > 1
            && (self.bytes > most || first.end < from)
        {
            let Some(gone) = self.slices.pop_front() else {
                break;
            };
            self.bytes -= gone.bytes();
            for record in gone.threads() {
                remember(&mut self.threads, record);
            }
            match Arc::try_unwrap(gone) {
                Ok(gone) => free = Some(gone.entries),
                Err(shared) => self.held.push(shared),
            }
        }
        self.forget();
        free
    }

    /// Takes the threads that lived at a time. The ring forgets others when its first slice is later than that: the end of a thread
    /// may be among the records that were lost.
    pub(super) fn alive(&mut self, time: u64, threads: impl Iterator<Item = u32>) {
        if self.alive.is_none() {
            self.alive = Some((time, threads.collect()));
        }
    }

    fn forget(&mut self) {
        let first = self.slices.front().map_or(0, |slice| slice.begin);
        let Some((time, alive)) = self.alive.take_if(|(time, _)| first > *time) else {
            return;
        };
        self.threads
            .retain(|tid, record| alive.contains(tid) || time_of(record) > time);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn last(&self) -> Option<&Slice> {
        self.slices.back().map(|slice| &**slice)
    }

    /// Returns the threads that there were before `from`, and the slices that ended at `from` or later.
    pub(super) fn since(&self, from: u64) -> Part {
        let first = self.slices.partition_point(|slice| slice.end < from);
        let mut threads = self.threads.clone();
        for slice in self.slices.range(..first) {
            for record in slice.threads() {
                remember(&mut threads, record);
            }
        }
        let slices: Vec<_> = self.slices.range(first..).cloned().collect();
        let begin = slices.first().map_or(from, |slice| slice.begin);
        let threads = threads.into_values().map(|record| begun(&record, begin));
        Part {
            threads: threads.collect(),
            slices,
        }
    }
}

/// Returns when a wait was over, or when a signal was sent.
fn over_at(record: &[u8]) -> u64 {
    let at = match record.first() {
        Some(&(WAIT | WAIT_STACK)) => RAN,
        _ => SENT,
    };
    let time = record.get(at..).and_then(|bytes| bytes.first_chunk());
    time.map_or(0, |time| u64::from_le_bytes(*time))
}

/// Returns when a thread's record was written.
fn time_of(record: &[u8]) -> u64 {
    let time = record[TIME..].first_chunk().copied();
    time.map_or(0, u64::from_le_bytes)
}

/// Whether a record is one of a thread.
fn is_thread(record: &[u8]) -> bool {
    record.first() == Some(&TASK) && record.len() >= MAKER + 4
}

/// Returns the thread that a record is one of.
pub(super) fn thread_of(record: &[u8]) -> Option<u32> {
    let tid = record.get(TID..)?.first_chunk().copied();
    tid.map(u32::from_le_bytes).filter(|_| is_thread(record))
}

/// Whether a record of a thread says that it ends.
pub(super) fn is_end(record: &[u8]) -> bool {
    record[WHY] == EXITED
}

/// Adds an entry to those of a slice.
pub(super) fn entry(entries: &mut Vec<u8>, ring: usize, record: &[u8]) {
    let (Ok(length), Ok(ring)) = (u16::try_from(record.len()), u16::try_from(ring)) else {
        return; // the largest record has 8.5 KiB, and there are 1024 rings at most
    };
    let head = u32::from(ring) << LENGTH_BITS | u32::from(length);
    entries.extend_from_slice(&head.to_le_bytes());
    entries.extend_from_slice(record);
}

/// Returns a thread's record as if the capture began at `time`.
pub(super) fn begun(record: &[u8], time: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    record[WHY] = BEGIN;
    record[TIME..TIME + 8].copy_from_slice(&time.to_le_bytes());
    // It was made before.
    record[MAKER..MAKER + 4].fill(0);
    record
}

/// Keeps a thread's record where it lives.
pub(super) fn remember(threads: &mut HashMap<u32, Box<[u8]>>, record: &[u8]) {
    let Some(tid) = thread_of(record) else { return };
    match record[WHY] {
        // The name of a mark is none of the thread.
        RENAMED if record[COMM] == 1 => {}
        EXITED => drop(threads.remove(&tid)),
        _ => drop(threads.insert(tid, record.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(why: u8, tid: u8, comm: u8) -> Vec<u8> {
        let mut record = vec![0; 128];
        (record[0], record[WHY], record[TID], record[104]) = (TASK, why, tid, comm);
        record[MAKER] = 1;
        record
    }

    fn slice(begin: u64, records: &[&[u8]]) -> Slice {
        let mut slice = Slice::new(begin, Vec::new());
        for record in records {
            slice.put(3, record);
        }
        slice.end = begin + 10;
        slice
    }

    /// Reads the ring: threads by number and name, and the bytes of other records.
    fn read(ring: &Ring, from: u64) -> (Vec<(u8, u8)>, Vec<u8>, Option<u64>) {
        let part = ring.since(from);
        let threads = part.threads.iter().map(|record| {
            assert_eq!((record[WHY], record[MAKER]), (BEGIN, 0));
            (record[TID], record[104])
        });
        let mut threads: Vec<(u8, u8)> = threads.collect();
        threads.sort_unstable();
        let records = part.slices.iter().flat_map(|slice| slice.records());
        let others = records.map(|(ring, record)| {
            assert_eq!(ring, 3);
            record[0]
        });
        let begin = part.slices.first().map(|slice| slice.begin);
        (threads, others.collect(), begin)
    }

    #[test]
    fn what_goes_leaves_the_threads_that_live() {
        let mut ring = Ring::default();
        ring.push(
            slice(0, &[&task(1, 7, b'a'), &task(2, 8, b'b')]),
            0,
            1 << 20,
        );
        ring.push(
            slice(10, &[&task(3, 7, b'c'), &task(4, 8, b'b')]),
            0,
            1 << 20,
        );
        ring.push(slice(20, &[&[1; 112]]), 0, 1 << 20);
        assert_eq!(
            read(&ring, 0),
            (vec![], vec![TASK, TASK, TASK, TASK, 1], Some(0))
        );
        assert_eq!(
            read(&ring, 11).0,
            [(7, b'a'), (8, b'b')],
            "as they were then"
        );
        assert_eq!(read(&ring, 21), (vec![(7, b'c')], vec![1], Some(20)));
        ring.push(slice(30, &[&[2; 112]]), 25, 1 << 20);
        assert_eq!(read(&ring, 0), (vec![(7, b'c')], vec![1, 2], Some(20)));
    }

    /// The records of a CPU stand one after the other, then those of the next.
    #[test]
    fn waits_and_signals_of_all_cpus_are_in_the_order_of_time() {
        let record = |kind: u8, at: usize, time: u8| {
            let mut record = vec![0; 112];
            (record[0], record[at]) = (kind, time);
            record
        };
        let wait = |kind, ran| record(kind, RAN, ran);
        let first = [wait(WAIT, 2), wait(WAIT_STACK, 5), task(1, 7, b'a')];
        let second = [wait(WAIT, 1), record(8, SENT, 3), wait(WAIT, 4)];
        let all: Vec<&[u8]> = first.iter().chain(&second).map(|one| &one[..]).collect();
        let slice = slice(0, &all);
        let times: Vec<u64> = slice.others().into_iter().map(over_at).collect();
        assert_eq!(times, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_memory_of_a_busy_slice_does_not_stay_in_quiet_ones() {
        let mut ring = Ring::default();
        let mut free = Vec::new();
        for time in 0..400 {
            let mut slice = Slice::new(time, std::mem::take(&mut free));
            let records = if time < 100 { 1_000 } else { 1 };
            (0..records).for_each(|_| slice.put(0, &[1; 112]));
            slice.end = time;
            if let Some(mut gone) = ring.push(slice, time.saturating_sub(100), usize::MAX) {
                gone.clear();
                free = gone;
            }
        }
        let memory: usize = ring.slices.iter().map(|s| s.entries.capacity()).sum();
        assert!(
            memory <= ring.bytes() / 8 * 9 + ring.slices.len() * SPARE,
            "{memory}"
        );
    }

    #[test]
    fn it_never_has_more_bytes_than_it_may() {
        let mut ring = Ring::default();
        for time in 0..100 {
            let freed = ring.push(slice(time * 10, &[&[1; 112], &[2; 376]]), 0, 2_000);
            assert!(ring.bytes() <= 2_000, "{}", ring.bytes());
            assert_eq!(freed.is_some(), time >= 4, "{time}");
        }
        assert_eq!(read(&ring, 0).2, Some(960));
    }

    /// ```text
    /// ring    | ........ |                    at most 2,000 bytes
    /// window  | ........ |                    shared by then, and held while it is written
    /// ring                 ..... | ......     at most half of 2,000 meanwhile
    /// ```
    #[test]
    fn a_window_that_is_written_takes_from_the_rings_room() {
        let mut ring = Ring::default();
        let grow = |ring: &mut Ring| {
            for _ in 0..100 {
                ring.push(slice(0, &[&[1; 112], &[2; 376]]), 0, 2_000);
            }
        };
        grow(&mut ring);
        let window = ring.since(0);
        let shared: usize = window.slices.iter().map(|slice| slice.bytes()).sum();
        assert_eq!(shared, ring.bytes());
        assert!(ring.held.is_empty(), "both have the same memory");
        grow(&mut ring);
        let held: usize = ring.held.iter().map(|slice| slice.bytes()).sum();
        assert_eq!(held, shared);
        assert!(
            ring.bytes() <= 1_000 && ring.bytes() > 0,
            "{}",
            ring.bytes()
        );
        drop(window);
        grow(&mut ring);
        assert!(ring.held.is_empty() && ring.bytes() > 1_000);
    }

    /// 8 ended, and its record was lost; 9 began after the look; 10 ended before the ring began, by its record.
    #[test]
    fn threads_whose_end_was_lost_are_forgotten() {
        let mut ring = Ring::default();
        let at = |time: u64, mut record: Vec<u8>| {
            record[TIME] = u8::try_from(time).unwrap();
            record
        };
        let threads = [7, 8, 10].map(|tid| at(1, task(1, tid, b'a')));
        ring.push(
            slice(0, &threads.each_ref().map(|record| &record[..])),
            0,
            1 << 20,
        );
        let (ends, begins) = (at(21, task(4, 10, b'a')), at(33, task(2, 9, b'b')));
        ring.push(slice(20, &[&ends, &begins]), 0, 1 << 20);
        ring.alive(30, [7].into_iter());
        ring.push(slice(40, &[&[1; 112]]), 15, 1 << 20);
        assert_eq!(ring.threads.len(), 3, "the ring begins before the look");
        ring.push(slice(60, &[&[1; 112]]), 35, 1 << 20);
        assert_eq!(read(&ring, 0).0, [(7, b'a'), (9, b'b')]);
    }
}
