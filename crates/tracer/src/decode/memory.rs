//! The memory map and its pages (`include/trace/events/mmap.h`, `kmem.h`, x86's `exceptions.h`).

use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Pages};
use stopgap_trace::Kind;

use super::Made;
use super::context::Context;
use super::source::{Fields, Number, Short, Source, source};

pub(super) fn make(event: &str, fields: &mut Fields<'_>) -> Option<Box<dyn Source>> {
    Some(match event {
        "vm_unmapped_area" => Box::new(UnmappedArea::of(fields)?),
        "page_fault_user" => Box::new(UserFault(FaultFields::of(fields)?)),
        "page_fault_kernel" => Box::new(KernelFault(FaultFields::of(fields)?)),
        "mm_page_alloc_extfrag" => Box::new(Extfrag::of(fields)?),
        _ => return None,
    })
}

source!(UnmappedArea {
    addr length;
    total_vm flags low_limit high_limit align_mask align_offset
});
source!(FaultFields { address; ip error_code });
source!(Extfrag {
    alloc_order;
    pfn fallback_order alloc_migratetype fallback_migratetype change_ownership
});

impl Source for UnmappedArea {
    fn kind(&self, record: &[u8], _: &mut Context) -> Made {
        const LARGEST_ERRNO: i64 = 4095;
        const TOP_DOWN: u64 = 1;
        let found = self.addr.u64(record).ok_or(Short)?;
        let errno = found.cast_signed();
        let failed = (-LARGEST_ERRNO..0).contains(&errno);
        let mask = self.align_mask.u64(record);
        let limits = self.low_limit.u64(record).zip(self.high_limit.u64(record));
        Ok(Some(Kind::UnmappedArea {
            address: (!failed).then_some(found),
            length: Bytes(self.length.u64(record).ok_or(Short)?),
            limits: limits
                .filter(|(start, end)| start <= end)
                .map(|(start, end)| AddressRange { start, end }),
            alignment: mask.and_then(|mask| mask.checked_add(1)).map(Bytes),
            offset: self.align_offset.u64(record).map(Bytes),
            top_down: self.flags.u64(record).map(|flags| flags & TOP_DOWN != 0),
            total: self.total_vm.u64(record).map(Pages),
            result: failed.then_some(errno),
        }))
    }
}

struct UserFault(FaultFields);
struct KernelFault(FaultFields);

impl FaultFields {
    fn fault(&self, record: &[u8], user: bool) -> Made {
        Ok(Some(Kind::PageFault {
            address: self.address.u64(record).ok_or(Short)?,
            instruction_pointer: self.ip.u64(record),
            error_code: self.error_code.u64(record),
            user: Some(user),
        }))
    }
}

impl Source for UserFault {
    fn kind(&self, record: &[u8], _: &mut Context) -> Made {
        self.0.fault(record, true)
    }
}

impl Source for KernelFault {
    fn kind(&self, record: &[u8], _: &mut Context) -> Made {
        self.0.fault(record, false)
    }
}

impl Source for Extfrag {
    fn kind(&self, record: &[u8], context: &mut Context) -> Made {
        Ok(Some(Kind::Extfrag {
            frame: self.pfn.u64(record),
            order: self.alloc_order.u32(record).ok_or(Short)?,
            fallback_order: self.fallback_order.u32(record),
            migrate_type: context.migrate_type(self.alloc_migratetype.u32(record)),
            fallback_migrate_type: context.migrate_type(self.fallback_migratetype.u32(record)),
            changed_ownership: self.change_ownership.flag(record),
        }))
    }
}
