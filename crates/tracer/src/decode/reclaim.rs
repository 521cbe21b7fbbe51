//! Reclaim and compaction (`include/trace/events/vmscan.h`, `compaction.h`).

use stopgap_events::units::Nanos;
use stopgap_trace::{Kind, Reclaimer, Text};

use super::Made;
use super::context::{Allocation, Context};
use super::source::{Fields, Number, Source, source};
use crate::print::Names;

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    let by = match event {
        "mm_vmscan_direct_reclaim_begin" | "mm_vmscan_direct_reclaim_end" => Reclaimer::Direct,
        _ => Reclaimer::Memcg,
    };
    Some(match event {
        "mm_vmscan_direct_reclaim_begin" | "mm_vmscan_memcg_reclaim_begin" => {
            let gfp = Names::of(&fields.format.print, "gfp_flags");
            let fields = BeginFields::of(fields)?;
            Box::new(Begin { by, fields, gfp })
        }
        "mm_vmscan_direct_reclaim_end" | "mm_vmscan_memcg_reclaim_end" => {
            let fields = EndFields::of(fields)?;
            Box::new(End { by, fields })
        }
        "mm_shrink_slab_start" => {
            let gfp = Names::of(&fields.format.print, "gfp_flags");
            let fields = ShrinkFields::of(fields)?;
            Box::new(Shrink { fields, gfp })
        }
        "mm_shrink_slab_end" => Box::new(ShrinkEnd::of(fields)?),
        "mm_vmscan_throttled" => {
            let reasons = Names::of(&fields.format.print, "reason");
            let fields = ThrottledFields::of(fields)?;
            Box::new(Throttled { fields, reasons })
        }
        "mm_compaction_try_to_compact_pages" => {
            let gfp = Names::of(&fields.format.print, "gfp_mask");
            let fields = CompactFields::of(fields)?;
            Box::new(Compact { fields, gfp })
        }
        "mm_compaction_begin" => Box::new(CompactionBegin::of(fields)?),
        "mm_compaction_end" => {
            let statuses = Names::of(&fields.format.print, "status");
            let fields = CompactionEndFields::of(fields)?;
            Box::new(CompactionEnd { fields, statuses })
        }
        _ => return None,
    })
}

source!(BeginFields { ; order gfp_flags });
source!(EndFields { ; nr_reclaimed });
source!(ShrinkFields { ; shrink nid gfp_flags total_scan });
source!(ShrinkEnd { ; shrink nid retval total_scan });
source!(ThrottledFields { ; nid usec_delayed reason });
source!(CompactFields { ; order gfp_mask });
source!(CompactionBegin { ; sync });
source!(CompactionEndFields { ; status });

/// Flags of an allocation in the kernel's words, or in hexadecimal where it has none.
fn gfp(names: &Names, bits: Option<u64>, context: &mut Context) -> Option<Text> {
    let bits = bits?;
    let words = names.flags(bits).unwrap_or_else(|| "0x0".to_owned());
    Some(context.keep(&words))
}

struct Begin {
    by: Reclaimer,
    fields: BeginFields,
    gfp: Names,
}

impl Source for Begin {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        Ok(Some(Kind::ReclaimBegin {
            by: self.by,
            order: self.fields.order.u32(record),
            gfp: gfp(&self.gfp, self.fields.gfp_flags.u64(record), context),
            node: None,
            shrinker: None,
        }))
    }
}

struct End {
    by: Reclaimer,
    fields: EndFields,
}

impl Source for End {
    fn kind(&self, record: &[u8], _: &mut Context) -> Made {
        Ok(Some(Kind::ReclaimEnd {
            by: self.by,
            order: None,
            node: None,
            scanned: None,
            reclaimed: self.fields.nr_reclaimed.u64(record),
            shrinker: None,
            reason: None,
            duration: None,
        }))
    }
}

struct Shrink {
    fields: ShrinkFields,
    gfp: Names,
}

impl Source for Shrink {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let to_scan = self.fields.total_scan.u64(record);
        if let (Some(tid), Some(to_scan)) = (context.tid, to_scan) {
            context.to_scan.insert(tid, to_scan);
        }
        Ok(Some(Kind::ReclaimBegin {
            by: Reclaimer::Shrinker,
            order: None,
            gfp: gfp(&self.gfp, self.fields.gfp_flags.u64(record), context),
            node: self.fields.nid.u32(record),
            shrinker: context.function(self.fields.shrink.u64(record)),
        }))
    }
}

impl Source for ShrinkEnd {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        // The end says how many are left (`do_shrink_slab()`).
        let to_scan = context.tid.and_then(|tid| context.to_scan.remove(&tid));
        let left = self.total_scan.u64(record);
        Ok(Some(Kind::ReclaimEnd {
            by: Reclaimer::Shrinker,
            order: None,
            node: self.nid.u32(record),
            scanned: to_scan
                .zip(left)
                .and_then(|(to_scan, left)| to_scan.checked_sub(left)),
            reclaimed: self
                .retval
                .i64(record)
                .and_then(|freed| u64::try_from(freed).ok()),
            shrinker: context.function(self.shrink.u64(record)),
            reason: None,
            duration: None,
        }))
    }
}

struct Throttled {
    fields: ThrottledFields,
    reasons: Names,
}

/// `enum vmscan_throttle_state` (Linux 5.16), bit by bit: its `print fmt` names the bits by constants
/// that it does not give.
const REASONS: [&str; 4] = [
    "VMSCAN_THROTTLE_WRITEBACK",
    "VMSCAN_THROTTLE_ISOLATED",
    "VMSCAN_THROTTLE_NOPROGRESS",
    "VMSCAN_THROTTLE_CONGESTED",
];

impl Source for Throttled {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let fields = &self.fields;
        let reason = fields.reason.u64(record).map(|bits| {
            let one = (bits.is_power_of_two() && self.reasons.largest().is_none())
                .then(|| REASONS.get(bits.ilog2() as usize))
                .flatten();
            match one {
                Some(word) => context.keep(word),
                None => {
                    let words = self.reasons.flags(bits);
                    context.keep(words.as_deref().unwrap_or("VMSCAN_THROTTLE_NONE"))
                }
            }
        });
        let delayed_us = fields.usec_delayed.i64(record);
        Ok(Some(Kind::ReclaimEnd {
            by: Reclaimer::Throttled,
            order: None,
            node: fields.nid.u32(record),
            scanned: None,
            reclaimed: None,
            shrinker: None,
            reason,
            duration: delayed_us
                .and_then(|us| u64::try_from(us).ok())
                .map(Nanos::micros),
        }))
    }
}

struct Compact {
    fields: CompactFields,
    gfp: Names,
}

/// An allocation compacts zone by zone (`try_to_compact_pages()`): this comes once, begin and end with
/// each zone.
impl Source for Compact {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let allocation = Allocation {
            order: self.fields.order.u32(record),
            gfp: gfp(&self.gfp, self.fields.gfp_mask.u64(record), context),
        };
        if let Some(tid) = context.tid {
            context.compacts.insert(tid, allocation);
        }
        Ok(None)
    }
}

impl Source for CompactionBegin {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let allocation = context.tid.and_then(|tid| context.compacts.get(&tid));
        let Allocation { order, gfp } = allocation.cloned().unwrap_or_default();
        Ok(Some(Kind::CompactionBegin {
            order,
            gfp,
            node: None,
            synchronous: self.sync.flag(record),
        }))
    }
}

struct CompactionEnd {
    fields: CompactionEndFields,
    statuses: Names,
}

impl Source for CompactionEnd {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        let status = self.fields.status.u64(record).map(|status| {
            let word = self.statuses.symbol(status).map(str::to_owned);
            context.keep(&word.unwrap_or_else(|| status.to_string()))
        });
        Ok(Some(Kind::CompactionEnd {
            order: None,
            node: None,
            status,
        }))
    }
}
