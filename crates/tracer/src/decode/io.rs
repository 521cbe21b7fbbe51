//! Block devices and fences (`include/trace/events/block.h`, `dma_fence.h`).

use stopgap_events::units::Bytes;
use stopgap_trace::{Kind, Text};

use super::Made;
use super::context::Context;
use super::source::{Fields, Number, Short, Source, source};
use crate::format::Field;

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    Some(match event {
        "block_rq_issue" => Box::new(Issue::of(fields)?),
        "block_rq_complete" => Box::new(Complete::of(fields)?),
        "dma_fence_wait_start" => Box::new(FenceBegin(FenceFields::of(fields)?)),
        "dma_fence_wait_end" => Box::new(FenceEnd(FenceFields::of(fields)?)),
        _ => return None,
    })
}

source!(Issue { dev sector; bytes rwbs });
source!(Complete { dev sector; nr_sector rwbs error });
source!(FenceFields { ; driver timeline context seqno });

/// `major:minor` of the kernel's own `dev_t` (`include/linux/kdev_t.h`: 12 and 20 bits).
fn device(field: &Option<Field>, record: &[u8], context: &mut Context) -> Option<Text> {
    let dev = field.u64(record)?;
    let (major, minor) = (dev >> 20, dev & ((1 << 20) - 1));
    Some(context.keep(&format!("{major}:{minor}")))
}

impl Source for Issue {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        Ok(Some(Kind::BlockIssue {
            device: device(&self.dev, record, context).ok_or(Short)?,
            sector: self.sector.u64(record).ok_or(Short)?,
            length: self.bytes.u64(record).map(Bytes),
            operation: context.text(&self.rwbs, record),
        }))
    }
}

impl Source for Complete {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        const SECTOR: u64 = 512;
        let sectors = self.nr_sector.u64(record);
        Ok(Some(Kind::BlockComplete {
            device: device(&self.dev, record, context).ok_or(Short)?,
            sector: self.sector.u64(record).ok_or(Short)?,
            length: sectors
                .and_then(|sectors| sectors.checked_mul(SECTOR))
                .map(Bytes),
            operation: context.text(&self.rwbs, record),
            result: self.error.i64(record),
        }))
    }
}

struct FenceBegin(FenceFields);
struct FenceEnd(FenceFields);

impl Source for FenceBegin {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.0;
        Ok(Some(Kind::FenceWaitBegin {
            driver: context.text(&fields.driver, record),
            timeline: context.text(&fields.timeline, record),
            context: fields.context.u64(record),
            seqno: fields.seqno.u64(record),
        }))
    }
}

impl Source for FenceEnd {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.0;
        Ok(Some(Kind::FenceWaitEnd {
            driver: context.text(&fields.driver, record),
            timeline: context.text(&fields.timeline, record),
            context: fields.context.u64(record),
            seqno: fields.seqno.u64(record),
        }))
    }
}
