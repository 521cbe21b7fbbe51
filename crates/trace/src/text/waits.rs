//! Locks, block devices and fences (`include/trace/events/lock.h`, `mmap_lock.h`, `block.h`, `dma_fence.h`).

use super::context::Context;
use super::fields::{Fields, hexadecimal};
use super::kinds::Made;
use crate::Kind;
use stopgap_events::units::Bytes;

/// The column's word for a process's memory map.
const MMAP: &str = "mmap";

pub(super) fn make(event: &str, fields: Fields<'_>, context: &mut Context) -> Option<Made> {
    Some(match event {
        "mmap_lock_start_locking" => Ok(Some(Kind::LockBegin {
            lock: Some(context.keep(MMAP)),
            address: fields.address("mm"),
            write: fields.flag("write"),
        })),
        "mmap_lock_acquire_returned" => {
            // A try that fails says no more than that.
            const AGAIN: i64 = -11;
            let success = fields.flag("success");
            Ok(Some(Kind::LockEnd {
                lock: Some(context.keep(MMAP)),
                address: fields.address("mm"),
                write: fields.flag("write"),
                result: success.map(|success| if success { 0 } else { AGAIN }),
            }))
        }
        "mmap_lock_released" => Ok(Some(Kind::LockRelease {
            lock: Some(context.keep(MMAP)),
            address: fields.address("mm"),
            write: fields.flag("write"),
        })),
        "contention_begin" => Ok(Some(contended(fields, context))),
        "contention_end" => Ok(Some(Kind::LockEnd {
            lock: None,
            address: first(fields).and_then(hexadecimal),
            write: None,
            result: within(fields, "(ret=").and_then(|result| result.parse().ok()),
        })),
        "block_rq_issue" => issue(fields, context),
        "block_rq_complete" => complete(fields, context),
        "dma_fence_wait_start" | "dma_fence_wait_end" => {
            let mut text = |name, next| fields.until(name, next).map(|text| context.keep(text));
            let (driver, timeline) = (text("driver", "timeline"), text("timeline", "context"));
            let (context, seqno) = (fields.u64("context"), fields.u64("seqno"));
            Ok(Some(match event {
                "dma_fence_wait_start" => Kind::FenceWaitBegin {
                    driver,
                    timeline,
                    context,
                    seqno,
                },
                _ => Kind::FenceWaitEnd {
                    driver,
                    timeline,
                    context,
                    seqno,
                },
            }))
        }
        _ => return None,
    })
}

fn first(fields: Fields<'_>) -> Option<&str> {
    fields.0.split_ascii_whitespace().next()
}

/// What stands between `open` and the next parenthesis that closes.
fn within<'l>(fields: Fields<'l>, open: &str) -> Option<&'l str> {
    let (_, rest) = fields.0.split_once(open)?;
    rest.split(')').next()
}

/// `0xffff888105148640 (flags=SPIN|WRITE)`.
fn contended(fields: Fields<'_>, context: &mut Context) -> Kind {
    let words = within(fields, "(flags=").filter(|words| !words.is_empty());
    let has = |word| words.is_some_and(|words| words.split('|').any(|w| w == word));
    let write = match (has("WRITE"), has("READ")) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None, // a lock that knows no readers
    };
    Kind::LockBegin {
        lock: words.map(|words| context.keep(words)),
        address: first(fields).and_then(hexadecimal),
        write,
    }
}

/// The parts of `8,0 WS 4096 () 2048 + 8 [kworker]`: device, letters, what stands before the command, and after it.
fn request(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (device, rest) = text.trim().split_once(' ')?;
    let (letters, rest) = rest.trim_start().split_once(' ')?;
    let (before, rest) = rest.split_once('(')?;
    let (_, after) = rest.split_once(')')?;
    Some((device, letters, before.trim(), after.trim()))
}

const WRONG: &str = "not 'major,minor letters [bytes] (command) sector + count ...'";

/// First sector and sectors of `2048 + 8 ...`.
fn sectors(text: &str) -> Option<(u64, Option<u64>)> {
    let mut words = text.split_ascii_whitespace();
    let sector = words.next()?.parse().ok()?;
    let count = words.nth(1).and_then(|count| count.parse().ok());
    Some((sector, count))
}

fn issue(fields: Fields<'_>, context: &mut Context) -> Made {
    let (device, letters, bytes, rest) = request(fields.0).ok_or(WRONG)?;
    let (sector, _) = sectors(rest).ok_or(WRONG)?;
    Ok(Some(Kind::BlockIssue {
        device: context.keep(&device.replace(',', ":")),
        sector,
        length: bytes.parse().ok().map(Bytes),
        operation: Some(context.keep(letters)),
    }))
}

fn complete(fields: Fields<'_>, context: &mut Context) -> Made {
    const SECTOR: u64 = 512;
    let (device, letters, _, rest) = request(fields.0).ok_or(WRONG)?;
    let (sector, count) = sectors(rest).ok_or(WRONG)?;
    let result = rest.rsplit_once('[').map(|(_, result)| result);
    Ok(Some(Kind::BlockComplete {
        device: context.keep(&device.replace(',', ":")),
        sector,
        length: count.and_then(|count| count.checked_mul(SECTOR)).map(Bytes),
        operation: Some(context.keep(letters)),
        result: result.and_then(|result| result.trim_end_matches(']').parse().ok()),
    }))
}
