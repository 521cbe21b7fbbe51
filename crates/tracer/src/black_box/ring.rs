//! The last seconds of records, in memory: slices, of which the oldest go.
//!
//! ```text
//! names of threads | slice  slice  slice  slice |  <- a slice a reading
//!  as they were here ^ first                 last ^
//! ```

use std::collections::{HashMap, VecDeque};

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

/// Memory that a slice may have beside twice its entries.
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
        threads.sort_by_key(|record| {
            let time = record[TIME..].first_chunk().copied();
            time.map_or(0, u64::from_le_bytes)
        });
        threads
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
        if self.entries.capacity() > 2 * self.entries.len() + SPARE {
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

/// Slices, and the threads that there were before the first one.
#[derive(Debug, Default)]
pub(super) struct Ring {
    slices: VecDeque<Slice>,
    bytes: usize,
    /// The last record of each thread before the first slice.
    threads: HashMap<u32, Box<[u8]>>,
}

impl Ring {
    /// Adds a slice. Slices that ended before `from`, and the oldest while all have more than `most` bytes, go. Returns the
    /// memory of one of them, to be used again.
    pub(super) fn push(&mut self, mut slice: Slice, from: u64, most: usize) -> Option<Vec<u8>> {
        slice.fit();
        self.bytes += slice.bytes();
        self.slices.push_back(slice);
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
            free = Some(gone.entries);
        }
        free
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn last(&self) -> Option<&Slice> {
        self.slices.back()
    }

    /// Gives `each` the threads that there were before `from`, as records of the moment at which the ring begins, then
    /// records of the slices that ended at `from` or later. Returns how many were lost among these, and when they begin.
    pub(super) fn read(
        &self,
        from: u64,
        mut each: impl FnMut(Option<u32>, &[u8]),
    ) -> (u64, Option<u64>) {
        let first = self.slices.partition_point(|slice| slice.end < from);
        let mut threads = self.threads.clone();
        for slice in self.slices.range(..first) {
            for record in slice.threads() {
                remember(&mut threads, record);
            }
        }
        let begin = self.slices.get(first).map(|slice| slice.begin);
        for record in threads.into_values() {
            each(None, &begun(&record, begin.unwrap_or(from)));
        }
        let mut lost = 0;
        for slice in self.slices.range(first..) {
            lost += slice.lost;
            for (ring, record) in slice.records() {
                each(Some(ring), record);
            }
        }
        (lost, begin)
    }
}

/// Whether a record is one of a thread.
pub(super) fn is_thread(record: &[u8]) -> bool {
    record.first() == Some(&TASK) && record.len() >= MAKER + 4
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
    if !is_thread(record) {
        return;
    }
    let tid = record[TID..]
        .first_chunk()
        .map(|tid| u32::from_le_bytes(*tid));
    let Some(tid) = tid else { return };
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
        let (mut threads, mut others) = (Vec::new(), Vec::new());
        let (_, begin) = ring.read(from, |ring, record| match ring {
            None => {
                assert_eq!((record[WHY], record[MAKER]), (BEGIN, 0));
                threads.push((record[TID], record[104]));
            }
            Some(ring) => {
                assert_eq!(ring, 3);
                others.push(record[0]);
            }
        });
        threads.sort_unstable();
        (threads, others, begin)
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
            memory <= 2 * ring.bytes() + ring.slices.len() * SPARE,
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
}
