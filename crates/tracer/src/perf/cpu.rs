//! The records of one CPU's file, in the order of time.

use std::collections::VecDeque;
use std::io::Read;

use super::record::{Body, HEADER, Record, parse};
use crate::spool::read_page;
use crate::trace::Damage;

/// Records that are looked at before the earliest is given: an interrupt writes its own in between,
/// with a later time, so that neighbours are out of order by as many as interrupts nest.
const WINDOW: usize = 64;

/// One CPU's records.
pub(super) struct Cpu<R> {
    pub(super) number: u32,
    source: R,
    records: u64,
    /// Sorted, the earliest first.
    window: VecDeque<Record>,
    ended: bool,
    pub(super) lost: u64,
    pub(super) throttled: u64,
}

impl<R: Read> Cpu<R> {
    pub(super) fn new(number: u32, source: R) -> Cpu<R> {
        Cpu {
            number,
            source,
            records: 0,
            window: VecDeque::new(),
            ended: false,
            lost: 0,
            throttled: 0,
        }
    }

    /// The next record.
    pub(super) fn next(&mut self, damage: &mut Damage) -> std::io::Result<Option<Record>> {
        while !self.ended && self.window.len() < WINDOW {
            let place = || format!("CPU {}, record {} of perf", self.number, self.records);
            let Some(bytes) = read_record(&mut self.source)? else {
                self.ended = true;
                break;
            };
            let record = match bytes.map(|bytes| parse(&bytes)) {
                Ok(Ok(record)) => record,
                Ok(Err(why)) => {
                    damage.add(place(), why);
                    self.records += 1;
                    continue;
                }
                // Where the next would begin nobody knows.
                Err(why) => {
                    damage.add(place(), why);
                    self.ended = true;
                    break;
                }
            };
            self.records += 1;
            match record.body {
                Body::Lost(count) => self.lost = self.lost.saturating_add(count),
                Body::Throttled => self.throttled += 1,
                _ => {
                    let at = self
                        .window
                        .partition_point(|other| other.time <= record.time);
                    self.window.insert(at, record);
                }
            }
        }
        Ok(self.window.pop_front())
    }
}

/// The bytes of the next record; `None` at the end, a line where what is there is none.
fn read_record(from: &mut impl Read) -> std::io::Result<Option<Result<Vec<u8>, String>>> {
    let mut header = [0; HEADER];
    match read_page(from, &mut header)? {
        0 => return Ok(None),
        HEADER => {}
        length => return Ok(Some(Err(format!("it is cut off after {length} bytes")))),
    }
    let length = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    if length < HEADER {
        return Ok(Some(Err(format!("it says that it has {length} bytes"))));
    }
    let mut record = header.to_vec();
    record.resize(length, 0);
    let have = HEADER + read_page(from, &mut record[HEADER..])?;
    if have < length {
        let why = format!("it is cut off: {have} of its {length} bytes are there");
        return Ok(Some(Err(why)));
    }
    Ok(Some(Ok(record)))
}
