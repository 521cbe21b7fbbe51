//! Waiting for locks (`include/trace/events/lock.h`, `mmap_lock.h`).

use stopgap_trace::Kind;

use super::Made;
use super::context::Context;
use super::source::{Fields, Number, Source, source};
use crate::print::Names;

/// The column's word for a process's memory map.
const MMAP: &str = "mmap";

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    Some(match event {
        "mmap_lock_start_locking" => Box::new(MmapStart(MmapFields::of(fields)?)),
        "mmap_lock_acquire_returned" => Box::new(MmapAcquired::of(fields)?),
        "mmap_lock_released" => Box::new(MmapReleased(MmapFields::of(fields)?)),
        "contention_begin" => {
            let kinds = Names::of(&fields.format.print, "flags");
            let fields = BeginFields::of(fields)?;
            Box::new(Begin { fields, kinds })
        }
        "contention_end" => Box::new(End::of(fields)?),
        _ => return None,
    })
}

source!(MmapFields { ; mm write });
source!(MmapAcquired { ; mm write success });
source!(BeginFields { ; lock_addr flags });
source!(End { ; lock_addr ret });

struct MmapStart(MmapFields);
struct MmapReleased(MmapFields);

impl Source for MmapStart {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        Ok(Some(Kind::LockBegin {
            lock: Some(context.keep(MMAP)),
            address: self.0.mm.u64(record),
            write: self.0.write.flag(record),
        }))
    }
}

impl Source for MmapAcquired {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        // A try that fails says no more than that.
        const AGAIN: i64 = -11;
        let success = self.success.flag(record);
        Ok(Some(Kind::LockEnd {
            lock: Some(context.keep(MMAP)),
            address: self.mm.u64(record),
            write: self.write.flag(record),
            result: success.map(|success| if success { 0 } else { AGAIN }),
        }))
    }
}

impl Source for MmapReleased {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        Ok(Some(Kind::LockRelease {
            lock: Some(context.keep(MMAP)),
            address: self.0.mm.u64(record),
            write: self.0.write.flag(record),
        }))
    }
}

struct Begin {
    fields: BeginFields,
    kinds: Names,
}

impl Source for Begin {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let words = self
            .fields
            .flags
            .u64(record)
            .and_then(|flags| self.kinds.flags(flags));
        let has = |word: &str| {
            words
                .iter()
                .flat_map(|words| words.split('|'))
                .any(|w| w == word)
        };
        let write = match (has("WRITE"), has("READ")) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None, // a lock that knows no readers
        };
        Ok(Some(Kind::LockBegin {
            lock: words.map(|words| context.keep(&words)),
            address: self.fields.lock_addr.u64(record),
            write,
        }))
    }
}

impl Source for End {
    fn kind(&self, record: &[u8], _: &mut Context) -> Made {
        Ok(Some(Kind::LockEnd {
            lock: None,
            address: self.lock_addr.u64(record),
            write: None,
            result: self.ret.i64(record),
        }))
    }
}
