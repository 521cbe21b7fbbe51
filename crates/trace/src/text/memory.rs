//! The memory map, faults, reclaim and compaction (`include/trace/events/mmap.h`, `kmem.h`, `vmscan.h`,
//! `compaction.h`, x86's `exceptions.h`).

use super::context::Context;
use super::fields::{Fields, number};
use super::kinds::Made;
use crate::{Kind, Reclaimer};
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos, Pages};

pub(super) fn make(event: &str, fields: Fields<'_>, context: &mut Context) -> Option<Made> {
    Some(match event {
        "vm_unmapped_area" => unmapped_area(fields),
        "page_fault_user" => fault(fields, true),
        "page_fault_kernel" => fault(fields, false),
        "mm_page_alloc_extfrag" => extfrag(fields, context),
        "mm_vmscan_direct_reclaim_begin" => begin(Reclaimer::Direct, fields, context),
        "mm_vmscan_memcg_reclaim_begin" => begin(Reclaimer::Memcg, fields, context),
        "mm_vmscan_direct_reclaim_end" => end(Reclaimer::Direct, fields),
        "mm_vmscan_memcg_reclaim_end" => end(Reclaimer::Memcg, fields),
        "mm_shrink_slab_start" => shrink(fields, context),
        "mm_shrink_slab_end" => shrink_end(fields, context),
        "mm_vmscan_throttled" => throttled(fields, context),
        "mm_compaction_begin" => Ok(Some(Kind::CompactionBegin {
            order: None,
            gfp: None,
            node: None,
            synchronous: fields.word("mode").map(|mode| mode == "sync"),
        })),
        "mm_compaction_end" => Ok(Some(Kind::CompactionEnd {
            order: None,
            node: None,
            status: fields.word("status").map(|status| context.keep(status)),
        })),
        _ => return None,
    })
}

fn unmapped_area(fields: Fields<'_>) -> Made {
    const TOP_DOWN: u64 = 1;
    let result = fields.i64("err").filter(|&err| err != 0);
    let limits = fields.u64("lo").zip(fields.u64("hi"));
    let mask = fields.u64("mask");
    Ok(Some(Kind::UnmappedArea {
        address: match result {
            None => Some(Fields::need("addr", fields.address("addr"))?),
            Some(_) => None,
        },
        length: Bytes(Fields::need("len", fields.u64("len"))?),
        limits: limits
            .filter(|(start, end)| start <= end)
            .map(|(start, end)| AddressRange { start, end }),
        alignment: mask.and_then(|mask| mask.checked_add(1)).map(Bytes),
        offset: fields.u64("ofs").map(Bytes),
        top_down: fields.u64("flags").map(|flags| flags & TOP_DOWN != 0),
        total: fields.u64("total_vm").map(Pages),
        result,
    }))
}

/// An instruction in the kernel is printed as a function's name, whose address nobody says.
fn fault(fields: Fields<'_>, user: bool) -> Made {
    Ok(Some(Kind::PageFault {
        address: Fields::need("address", fields.u64("address"))?,
        instruction_pointer: fields.u64("ip"),
        error_code: fields.u64("error_code"),
        user: Some(user),
    }))
}

fn extfrag(fields: Fields<'_>, context: &mut Context) -> Made {
    let mut word = |name| fields.word(name).map(|word| context.keep(word));
    Ok(Some(Kind::Extfrag {
        frame: fields.u64("pfn"),
        order: Fields::need("alloc_order", fields.u32("alloc_order"))?,
        fallback_order: fields.u32("fallback_order"),
        migrate_type: word("alloc_migratetype"),
        fallback_migrate_type: word("fallback_migratetype"),
        changed_ownership: fields.flag("change_ownership"),
    }))
}

fn begin(by: Reclaimer, fields: Fields<'_>, context: &mut Context) -> Made {
    Ok(Some(Kind::ReclaimBegin {
        by,
        order: fields.u32("order"),
        gfp: fields.word("gfp_flags").map(|gfp| context.keep(gfp)),
        node: None,
        shrinker: None,
    }))
}

fn end(by: Reclaimer, fields: Fields<'_>) -> Made {
    Ok(Some(Kind::ReclaimEnd {
        by,
        order: None,
        node: None,
        scanned: None,
        reclaimed: fields.u64("nr_reclaimed"),
        shrinker: None,
        reason: None,
        duration: None,
    }))
}

/// The word after `label` in a line that has labels with spaces.
fn after<'l>(text: &'l str, label: &str) -> Option<&'l str> {
    let (_, rest) = text.split_once(label)?;
    rest.split_ascii_whitespace().next()
}

/// `super_cache_scan+0x0/0x1a0 000000..: nid: 0 ...`: the function.
fn function(text: &str) -> Option<&str> {
    let word = text.split_ascii_whitespace().next()?;
    word.split('+').next().filter(|name| !name.is_empty())
}

fn shrink(fields: Fields<'_>, context: &mut Context) -> Made {
    const MOST: usize = 1 << 16;
    let to_scan = after(fields.0, "total_scan ").and_then(number);
    if let (Some(tid), Some(to_scan)) = (context.tid, to_scan)
        && context.to_scan.len() < MOST
    {
        context.to_scan.insert(tid, to_scan);
    }
    Ok(Some(Kind::ReclaimBegin {
        by: Reclaimer::Shrinker,
        order: None,
        gfp: after(fields.0, "gfp_flags ").map(|gfp| context.keep(gfp)),
        node: node(fields.0),
        shrinker: function(fields.0).map(|name| context.keep(name)),
    }))
}

fn node(text: &str) -> Option<u32> {
    u32::try_from(number(after(text, "nid: ")?)?).ok()
}

fn shrink_end(fields: Fields<'_>, context: &mut Context) -> Made {
    // The end says how many are left (`do_shrink_slab()`).
    let to_scan = context.tid.and_then(|tid| context.to_scan.remove(&tid));
    let left = after(fields.0, "total_scan ").and_then(number);
    Ok(Some(Kind::ReclaimEnd {
        by: Reclaimer::Shrinker,
        order: None,
        node: node(fields.0),
        scanned: to_scan
            .zip(left)
            .and_then(|(to_scan, left)| to_scan.checked_sub(left)),
        reclaimed: after(fields.0, "return val ").and_then(number),
        shrinker: function(fields.0).map(|name| context.keep(name)),
        reason: None,
        duration: None,
    }))
}

fn throttled(fields: Fields<'_>, context: &mut Context) -> Made {
    // The kernel's own spelling, since it prints the field.
    let us = fields.u64("usect_delayed").or(fields.u64("usec_delayed"));
    let ns = us.and_then(|us| us.checked_mul(1_000));
    Ok(Some(Kind::ReclaimEnd {
        by: Reclaimer::Throttled,
        order: None,
        node: fields.u32("nid"),
        scanned: None,
        reclaimed: None,
        shrinker: None,
        reason: fields.word("reason").map(|reason| context.keep(reason)),
        duration: ns.map(Nanos),
    }))
}
