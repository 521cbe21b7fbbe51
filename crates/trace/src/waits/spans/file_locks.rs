//! Locks of files that are held, as far as events tell: who is in the way of a thread that finds a file locked.

use std::collections::HashMap;

use stopgap_events::units::Bytes;

use crate::{Activity, Event, Kind, Span, Text};

/// Files with locks that are kept, and locks of one.
const MOST_FILES: usize = 1 << 14;
const MOST_LOCKS: usize = 256;
/// Results of an attempt: another has the lock, and the thread does not wait for it (`EAGAIN`), or does
/// (`FILE_LOCK_DEFERRED`, include/linux/filelock.h).
const AGAIN: i64 = -11;
const DEFERRED: i64 = 1;

#[derive(Debug, Default)]
pub(super) struct FileLocks(HashMap<(Text, u64), Vec<Held>>);

#[derive(Debug, Clone)]
struct Held {
    tid: Option<u32>,
    owner: u64,
    flock: bool,
    write: bool,
    start: u64,
    /// The first byte beyond.
    end: u64,
}

impl Held {
    /// Whether both cover a byte, and are of the same kind: flock's and fcntl's do not see each other.
    fn meets(&self, other: &Held) -> bool {
        self.flock == other.flock && self.start < other.end && other.start < self.end
    }
}

impl FileLocks {
    /// Takes a [`Kind::FileLock`]. Returns the span of an attempt that failed because of another's lock.
    pub(super) fn takes(&mut self, event: &Event) -> Option<Span> {
        let Kind::FileLock {
            lock,
            device,
            inode,
            start,
            length,
            write,
            owner,
            result,
        } = &event.kind
        else {
            return None;
        };
        let length = *length;
        let wanted = Held {
            tid: event.tid.filter(|&tid| tid != 0),
            owner: *owner,
            flock: &**lock == "flock",
            write: *write == Some(true),
            start: *start,
            end: length.map_or(u64::MAX, |Bytes(length)| start.saturating_add(length)),
        };
        let file = (Text::clone(device), *inode);
        if write.is_none() || *result == 0 {
            let held = write.is_some().then(|| wanted.clone());
            self.changes(&file, &wanted, held);
            return None;
        }
        if !matches!(*result, AGAIN | DEFERRED) {
            return None;
        }
        let in_the_way = |held: &&Held| {
            held.owner != wanted.owner && held.meets(&wanted) && (held.write || wanted.write)
        };
        let held = self.0.get(&file).into_iter().flatten();
        Some(Span {
            lock: Some(Text::clone(lock)),
            device: Some(Text::clone(device)),
            inode: Some(*inode),
            address: Some(*start),
            length,
            write: *write,
            holder: held.rev().find(in_the_way).and_then(|held| held.tid),
            result: Some(*result).filter(|&result| result == AGAIN),
            ..Span::new(Activity::FileLock, event.time)
        })
    }

    /// An owner's locks within `range` become `held`, or nothing.
    fn changes(&mut self, file: &(Text, u64), range: &Held, held: Option<Held>) {
        if self.0.len() >= MOST_FILES && !self.0.contains_key(file) {
            return;
        }
        let locks = self.0.entry(file.clone()).or_default();
        for old in std::mem::take(locks) {
            if old.owner != range.owner || !old.meets(range) {
                locks.push(old);
                continue;
            }
            let before = Held {
                end: range.start,
                ..old.clone()
            };
            let behind = Held {
                start: range.end,
                ..old
            };
            locks.extend(
                [before, behind]
                    .into_iter()
                    .filter(|part| part.start < part.end),
            );
        }
        locks.extend(held);
        if locks.len() > MOST_LOCKS {
            locks.remove(0);
        }
        if locks.is_empty() {
            self.0.remove(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use stopgap_events::units::Nanos;

    use super::*;

    /// An event of thread and owner `tid`: for writing, for reading or to unlock.
    fn event(tid: u32, range: std::ops::Range<u64>, write: Option<bool>, result: i64) -> Event {
        let kind = Kind::FileLock {
            lock: "fcntl".into(),
            device: "8:1".into(),
            inode: 12,
            start: range.start,
            length: (range.end < u64::MAX).then(|| Bytes(range.end - range.start)),
            write,
            owner: u64::from(tid),
            result,
        };
        let time = Nanos(5);
        Event {
            time,
            cpu: Some(0),
            pid: Some(tid),
            tid: Some(tid),
            comm: None,
            kind,
        }
    }

    #[test]
    fn the_holder_of_the_range_is_named() {
        let mut files = FileLocks::default();
        let mut takes = |tid, range, write, result| {
            let span = files.takes(&event(tid, range, write, result));
            span.map(|span| (span.holder, span.result))
        };
        let (read, write) = (Some(false), Some(true));
        for (tid, range, kind) in [
            (1, 0..10, write),
            (2, 20..u64::MAX, read),
            (3, 20..30, read),
        ] {
            assert_eq!(takes(tid, range, kind, 0), None);
        }
        assert_eq!(takes(4, 5..8, read, AGAIN), Some((Some(1), Some(AGAIN))));
        assert_eq!(takes(4, 5..25, write, DEFERRED), Some((Some(3), None)));
        assert_eq!(takes(4, 40..41, write, AGAIN), Some((Some(2), Some(AGAIN))));
        assert_eq!(takes(4, 40..41, write, -9), None, "a bad descriptor");
        // The middle of 1's range is free now.
        assert_eq!(takes(1, 4..6, None, 0), None);
        assert_eq!(takes(4, 4..6, write, 0), None);
        assert_eq!(takes(5, 4..5, read, AGAIN), Some((Some(4), Some(AGAIN))));
        assert_eq!(takes(5, 8..9, read, AGAIN), Some((Some(1), Some(AGAIN))));
        assert_eq!(takes(5, 2..3, read, AGAIN), Some((Some(1), Some(AGAIN))));
        // Of before the recording.
        assert_eq!(takes(5, 15..16, read, AGAIN), Some((None, Some(AGAIN))));
    }
}
