//! The last seconds on the disk: a file of a fixed size, into which a process of its own writes what it is sent and syncs it each
//! second, so that it is there after the machine has hung or lost power.
//!
//! ```text
//! 0            64 KiB
//! | description | batch | batch | .. batch of this lap | batch of the lap before | .. |
//!               each at a multiple of 4 KiB, with its number and a sum over all of it
//! ```
//!
//! A batch that was half written is none; those before it are untouched, because no two share a block. Four times a lap a batch
//! begins with all threads that live, since the records that named them are overwritten.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::local_time::utc;

use super::ring::{Slice, begun, entry, remember};
use super::{Files, Record, Taken, flag, write_spool};
use crate::description::Description;
use crate::error::{Error, Result};
use crate::spool;
use crate::waits::WaitsDescription;

/// A batch begins at a multiple of it: the most that a disk writes at once or not at all is smaller or the same.
const BLOCK: u64 = 4 << 10;
/// Where batches begin. The description has names of system calls, 10 KiB.
const FIRST: u64 = 64 << 10;
const MAGIC: [u8; 8] = *b"SGBOX/1\n";
const BATCH: [u8; 8] = *b"SGBATCH\n";
/// Magic, number, id, begin, end, length, sum.
const HEAD: usize = 8 * 7;
/// Laps of the file are divided by it: so often all threads are written.
const TABLES: u64 = 4;
/// The least file: some seconds of a quiet machine.
pub(super) const LEAST: Bytes = Bytes::kib(256);

/// The first bytes of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    /// Tells batches of this file from those of an earlier one at the same place of the disk.
    pub(super) id: u64,
    pub(super) description: Description,
    /// The same moment on two clocks.
    pub(super) now_ns: u64,
    pub(super) unix_s: u64,
}

/// FNV-1a: tells a batch that was half written from a whole one.
fn sum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Writes batches into the file.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    bytes: u64,
    id: u64,
    at: u64,
    number: u64,
    threads: HashMap<u32, Box<[u8]>>,
    /// The part of the lap in which all threads were written last.
    table: Option<u64>,
    found: usize,
}

impl Writer {
    /// Writes the description into `file`, which takes `bytes` from now on. `found` is the number under which threads are written.
    pub(super) fn new(file: File, bytes: Bytes, about: &About, found: usize) -> io::Result<Writer> {
        let text = serde_json::to_vec(about).map_err(io::Error::other)?;
        let length = text.len() as u64;
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(&sum(&[&text]).to_le_bytes());
        head.extend_from_slice(&text);
        if head.len() as u64 > FIRST {
            return Err(io::Error::other("its description is longer than its room"));
        }
        let bytes = bytes.0.max(LEAST.0) / BLOCK * BLOCK;
        // Written once, so that later writes need no new blocks of the disk.
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        while at < bytes {
            let length = (bytes - at).min(zeros.len() as u64);
            file.write_all_at(&zeros[..usize::try_from(length).unwrap_or(0)], at)?;
            at += length;
        }
        file.write_all_at(&head, 0)?;
        file.sync_all()?;
        Ok(Writer {
            file,
            bytes,
            id: about.id,
            at: FIRST,
            number: 0,
            threads: HashMap::new(),
            table: None,
            found,
        })
    }

    /// Writes the entries of a slice and syncs them. What is larger than a quarter of the file is cut.
    pub(super) fn put(&mut self, slice: &Slice) -> io::Result<()> {
        let mut body = Vec::new();
        let part = |at: u64| at * TABLES / self.bytes;
        let mut at = self.at;
        if self.table != Some(part(at)) {
            self.table = Some(part(at));
            for record in self.threads.values() {
                entry(&mut body, self.found, &begun(record, slice.begin));
            }
        }
        let most = usize::try_from((self.bytes - FIRST) / TABLES).unwrap_or(usize::MAX) - HEAD;
        for record in slice.threads() {
            remember(&mut self.threads, record);
        }
        for (ring, record) in slice.records() {
            if body.len() + record.len() + 4 <= most {
                entry(&mut body, ring as usize, record);
            }
        }
        body.truncate(most);
        let length = (HEAD + body.len()) as u64;
        if at + length > self.bytes {
            at = FIRST;
        }
        let mut head = BATCH.to_vec();
        let numbers = [
            self.number,
            self.id,
            slice.begin,
            slice.end,
            body.len() as u64,
        ];
        for number in numbers {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let sum = sum(&[&head, &body]);
        head.extend_from_slice(&sum.to_le_bytes());
        head.extend_from_slice(&body);
        self.file.write_all_at(&head, at)?;
        self.file.sync_data()?;
        self.at = (at + length).next_multiple_of(BLOCK);
        self.number += 1;
        Ok(())
    }
}

/// A batch that is whole.
struct Batch {
    number: u64,
    slice: Slice,
}

/// What a file has: the batches that follow one another up to the last one.
pub(super) struct Kept {
    about: About,
    batches: Vec<Batch>,
}

impl Kept {
    /// Reads the file; its length and every number in it may be anything.
    pub(super) fn read(file: &File) -> io::Result<Kept> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let bytes = file.metadata()?.len();
        let mut head = [0; 24];
        file.read_exact_at(&mut head, 0)?;
        let number = |at: usize| {
            let bytes = head[at..].first_chunk().copied();
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        if head[..8] != MAGIC || number(8) > FIRST {
            return Err(wrong("it is no file of the last seconds"));
        }
        let mut text = vec![0; usize::try_from(number(8)).unwrap_or(0)];
        file.read_exact_at(&mut text, 24)?;
        if sum(&[&text]) != number(16) {
            return Err(wrong("its description is damaged"));
        }
        let about: About = serde_json::from_slice(&text).map_err(io::Error::other)?;
        let mut batches = Vec::new();
        let mut at = FIRST;
        while at + HEAD as u64 <= bytes {
            match batch(file, at, bytes, about.id)? {
                Some(batch) => {
                    at = (at + (HEAD + batch.slice.bytes()) as u64).next_multiple_of(BLOCK);
                    batches.push(batch);
                }
                None => at += BLOCK,
            }
        }
        batches.sort_rows_by_key(|batch: &Batch| batch.number);
        // What comes before a gap is older than what was lost: of no use without it.
        let follows = |pair: &[Batch]| pair[0].number + 1 == pair[1].number;
        let gap = batches.windows(2).rposition(|pair| !follows(pair));
        batches.drain(..gap.map_or(0, |gap| gap + 1));
        Ok(Kept { about, batches })
    }

    /// Writes the spool of a trace into the folder `path`, which is made; `None` where the file has no batch.
    pub(super) fn to_spool(&self, path: &Path) -> Result<Option<Taken>> {
        let (Some(first), Some(last)) = (self.batches.first(), self.batches.last()) else {
            return Ok(None);
        };
        let (since, end) = (Nanos(first.slice.begin), Nanos(last.slice.end));
        let mut description = self.about.description.clone();
        let before = self.about.now_ns.saturating_sub(since.0);
        let after = since.0.saturating_sub(self.about.now_ns);
        let began = self.about.unix_s.saturating_sub(before / 1_000_000_000);
        description.metadata.start = Some(utc(began.saturating_add(after / 1_000_000_000)));
        let files = description.waits.as_ref().map_or(0, |waits| waits.files);
        let files = files.min(1 << 12);
        let folder = spool::make(path)?;
        let mut out = Files::create(&folder, files as usize + 1)?;
        // The last look at each thread says what it was in; earlier looks say the same, or what has ended since.
        let mut open: BTreeMap<u32, &[u8]> = BTreeMap::new();
        for batch in &self.batches {
            for (ring, record) in batch.slice.records() {
                match Record::wait_of(record) {
                    Some(wait) if wait.flags & flag::OPEN != 0 => {
                        open.insert(wait.tid, record);
                    }
                    _ => out.put(ring as usize, record)?,
                }
            }
        }
        // In a file of their own, because they come after all that has ended.
        for record in open.into_values() {
            out.put(files as usize, record)?;
        }
        out.finish()?;
        description.waits = Some(WaitsDescription {
            files: files + 1,
            no_page_locks: false,
        });
        let spool = write_spool(folder, &description, &[], None)?;
        Ok(Some(Taken { spool, since, end }))
    }

    /// When the last batch ended, in seconds since 1970.
    pub(super) fn unix_end(&self) -> u64 {
        let end = self.batches.last().map_or(0, |batch| batch.slice.end);
        let after = end.saturating_sub(self.about.now_ns) / 1_000_000_000;
        self.about.unix_s.saturating_add(after)
    }
}

/// The batch at `at`, where there is a whole one of this file.
fn batch(file: &File, at: u64, bytes: u64, id: u64) -> io::Result<Option<Batch>> {
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, at)?;
    let number = |at: usize| {
        let bytes = head[at..].first_chunk().copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let length = number(40);
    let fits = at
        .checked_add(HEAD as u64)
        .and_then(|end| end.checked_add(length));
    if head[..8] != BATCH || number(16) != id || fits.is_none_or(|end| end > bytes) {
        return Ok(None);
    }
    let mut body = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut body, at + HEAD as u64)?;
    if sum(&[&head[..HEAD - 8], &body]) != number(48) {
        return Ok(None);
    }
    let mut slice = Slice::new(number(24), body);
    slice.end = number(32);
    Ok(Some(Batch {
        number: number(8),
        slice,
    }))
}

/// The largest slice that is taken from a stream: a second of a busy machine.
const LARGEST: u64 = 64 << 20;

/// Writes what `from` sends into `file` until it ends: [`About`], then slices, each with its length before it. Syncs once a second.
///
/// # Errors
/// Where the file cannot be written, or what is sent is nothing of the kind.
pub fn keep(mut from: impl Read, file: File, bytes: Bytes) -> Result<()> {
    let failed = |source| Error::File {
        file: "the last seconds".to_owned(),
        source,
    };
    let Some(about) = next(&mut from).map_err(failed)? else {
        return Ok(());
    };
    let about: About = serde_json::from_slice(&about)
        .map_err(|error| Error::description("the last seconds", error.to_string()))?;
    let files = about
        .description
        .waits
        .as_ref()
        .map_or(1, |waits| waits.files);
    let found = files.saturating_sub(1) as usize;
    let mut writer = Writer::new(file, bytes, &about, found).map_err(failed)?;
    let mut waiting: Option<Slice> = None;
    while let Some(sent) = next(&mut from).map_err(failed)? {
        let Some(slice) = Slice::parse(&sent) else {
            continue;
        };
        let slice = match waiting.take() {
            None => slice,
            Some(mut before) => {
                before.join(&slice);
                before
            }
        };
        if slice.end.saturating_sub(slice.begin) >= SYNC.0 || slice.bytes() as u64 > bytes.0 / 16 {
            writer.put(&slice).map_err(failed)?;
        } else {
            waiting = Some(slice);
        }
    }
    // The watch was killed, the machine was not.
    waiting.map_or(Ok(()), |slice| writer.put(&slice).map_err(failed))
}

/// Between two syncs.
const SYNC: Nanos = Nanos::secs(1);

/// The next piece that was sent; `None` at the end, also within a piece.
fn next(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if bounded_exact(from, &mut length)?.is_none() {
        return Ok(None);
    }
    let length = u64::from(u32::from_le_bytes(length));
    if length > LARGEST {
        return Err(io::Error::other("a piece is longer than any"));
    }
    let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
    Ok(bounded_exact(from, &mut piece)?.map(|()| piece))
}

fn bounded_exact(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<Option<()>> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the spool of a trace of the file that a watch left which was cut off, in the folder `path`; also when the last record
/// was written, in seconds since 1970. `None` where it has no record.
///
/// # Errors
/// Where it is no such file, or the folder cannot be written.
pub fn recover(file: &File, path: &Path) -> Result<Option<(Taken, u64)>> {
    let failed = |source| Error::File {
        file: "the last seconds".to_owned(),
        source,
    };
    let kept = Kept::read(file).map_err(failed)?;
    let taken = kept.to_spool(path)?;
    Ok(taken.map(|taken| (taken, kept.unix_end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            id: 42,
            description: Description {
                schema: crate::description::SCHEMA.to_owned(),
                waits: Some(crate::waits::WaitsDescription {
                    files: 3,
                    ..Default::default()
                }),
                ..Description::default()
            },
            now_ns: 0,
            unix_s: 1_000,
        }
    }

    /// A slice of some records of 112 bytes that all have `number` in them.
    fn slice(number: u8, records: usize) -> Slice {
        let begin = u64::from(number) * 1_000_000_000;
        let mut slice = Slice::new(begin, Vec::new());
        slice.end = begin + 1_000_000_000;
        for _ in 0..records {
            slice.put(usize::from(number % 2), &[number; 112]);
        }
        slice
    }

    /// Threads 7 and 8 wait at each of three looks; the wait of 8 ends after the second.
    #[test]
    fn of_open_waits_the_last_look_stays() {
        let wait = |tid: u8, left: u64, flags: u8| {
            let mut record = vec![0; 112];
            (record[0], record[1], record[4]) = (1, flags, tid);
            record[8..16].copy_from_slice(&left.to_le_bytes());
            record
        };
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(file.try_clone().unwrap(), LEAST, &about(), 2).unwrap();
        for look in 1..=3_u64 {
            let mut slice = Slice::new(look, Vec::new());
            slice.end = look + 1;
            if look == 3 {
                slice.put(0, &wait(8, 5, 0));
            }
            slice.put(2, &wait(7, 4, flag::OPEN));
            slice.put(2, &wait(8, 5 + look / 3, flag::OPEN));
            writer.put(&slice).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        Kept::read(&file).unwrap().to_spool(&path).unwrap().unwrap();
        let waits = |number: u32| {
            let bytes = std::fs::read(path.join(crate::waits::waits_of(number))).unwrap();
            let records = bytes.chunks(116);
            let told = records.map(|record| (record[8], record[12], record[5] & flag::OPEN != 0));
            told.collect::<Vec<_>>()
        };
        assert_eq!(waits(0), [(8, 5, false)]);
        assert!(waits(2).is_empty());
        assert_eq!(waits(3), [(7, 4, true), (8, 6, true)]);
    }

    fn numbers(file: &File) -> Vec<u8> {
        let kept = Kept::read(file).unwrap();
        let numbers = kept.batches.iter().map(|batch| {
            let records: Vec<u8> = batch.slice.records().map(|(_, record)| record[0]).collect();
            assert!(records.iter().all(|&number| number == records[0]));
            records[0]
        });
        numbers.collect()
    }

    /// Cut or overwritten at every block, it has the batches before the damage or those after it, each whole.
    #[test]
    fn what_is_whole_survives_a_cut_at_any_block() {
        let whole = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(whole.try_clone().unwrap(), LEAST, &about(), 2).unwrap();
        // More than a lap: the first ones are overwritten.
        for number in 1..=40 {
            writer.put(&slice(number, 300)).unwrap();
        }
        let all = numbers(&whole);
        assert_eq!(all.last(), Some(&40));
        assert!((3..20).contains(&all.len()), "{all:?}");
        let bytes = whole.metadata().unwrap().len();
        let mut content = vec![0; bytes as usize];
        whole.read_exact_at(&mut content, 0).unwrap();
        for at in (FIRST..bytes).step_by(BLOCK as usize) {
            let cut = tempfile::tempfile().unwrap();
            cut.write_all_at(&content[..at as usize], 0).unwrap();
            let left = numbers(&cut);
            assert!(
                left.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                "{at}: {left:?}"
            );
            let torn = tempfile::tempfile().unwrap();
            torn.write_all_at(&content, 0).unwrap();
            torn.write_all_at(&[0x5a; BLOCK as usize], at).unwrap();
            let left = numbers(&torn);
            assert!(
                left.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                "{at}: {left:?}"
            );
            assert!(!left.is_empty(), "{at}");
            // Only the newest batch can be torn by a loss of power; then all before it are there.
            if !left.contains(&40) {
                assert_eq!(left.last(), Some(&39));
            }
        }
    }

    #[test]
    fn a_file_of_something_else_is_none() {
        let file = tempfile::tempfile().unwrap();
        assert!(Kept::read(&file).is_err());
        file.write_all_at(&[7; 1 << 17], 0).unwrap();
        assert!(Kept::read(&file).is_err());
        let mut writer = Writer::new(file.try_clone().unwrap(), LEAST, &about(), 2).unwrap();
        assert!(Kept::read(&file).unwrap().batches.is_empty());
        writer.put(&slice(1, 3)).unwrap();
        let other = About { id: 43, ..about() };
        let _again = Writer::new(file.try_clone().unwrap(), LEAST, &other, 2).unwrap();
        assert!(numbers(&file).is_empty());
    }

    #[test]
    fn what_is_sent_is_a_spool_with_the_threads_that_live() {
        let mut sent = Vec::new();
        let mut send = |piece: &[u8]| {
            sent.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            sent.extend_from_slice(piece);
        };
        send(&serde_json::to_vec(&about()).unwrap());
        let mut task = vec![0; 128];
        (task[0], task[1], task[4]) = (5, 1, 7);
        let mut first = slice(1, 1);
        first.put(2, &task);
        send(&first.to_bytes());
        for number in 2..=60 {
            send(&slice(number, 300).to_bytes());
        }
        sent.truncate(sent.len() - 10); // the last one was cut off
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        keep(&*sent, file.try_clone().unwrap(), LEAST).unwrap();
        let path = folder.path().join("spool");
        let (taken, unix_s) = recover(&file, &path).unwrap().unwrap();
        assert_eq!(taken.end, Nanos::secs(60));
        assert!(taken.since > Nanos::secs(20), "{:?}", taken.since);
        assert_eq!(unix_s, 1_060);
        let tasks = std::fs::read(path.join("waits2.raw")).unwrap();
        assert_eq!(tasks.len() % 132, 0);
        assert!(
            tasks.len() >= 132,
            "thread 7 is named though its record is gone"
        );
    }
}
