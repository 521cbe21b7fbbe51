//! A binary record of the kernel, with the names of its fields.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stopgap_events::units::Bytes;
use stopgap_trace::kernel_event::{Fields, Made, Tasks};
use stopgap_trace::{Kind, Text};

use crate::format::Field;
use crate::print::Names;
use crate::symbols::Symbols;

/// A field of an event, as this kernel has it.
pub(super) struct NamedField {
    pub(super) name: &'static str,
    /// `None` where this kernel's event has no such field.
    pub(super) field: Option<Field>,
    /// The names of its flags or states, from the event's `print fmt`.
    pub(super) names: Names,
}

/// The meaning of this kernel's numbers, beside those that a format explains.
pub(super) struct Meanings {
    pub(super) symbols: Symbols,
    pub(super) syscalls: BTreeMap<u32, String>,
    pub(super) migrate_types: Vec<String>,
}

/// One record.
pub(super) struct Record<'r> {
    pub(super) bytes: &'r [u8],
    pub(super) fields: &'r [NamedField],
    pub(super) meanings: &'r Meanings,
}

/// An event that only a record says in this way: its name, the fields that it needs, those that it may have, and what
/// they mean.
pub(super) type OwnEvent = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    fn(&Record<'_>, &mut Tasks) -> Made,
);

/// Events that texts print in other ways than by name and value.
pub(super) const OWN_EVENTS: &[OwnEvent] = &[
    (
        "sched_switch",
        &["prev_pid", "next_pid"],
        &[
            "prev_comm",
            "prev_prio",
            "prev_state",
            "next_comm",
            "next_prio",
        ],
        switch,
    ),
    ("sys_enter", &["id"], &["args"], enter),
    ("sys_exit", &["id"], &["ret"], leave),
    (
        "block_rq_insert",
        &["dev", "sector"],
        &["bytes", "rwbs", "comm"],
        insert,
    ),
    (
        "block_rq_issue",
        &["dev", "sector"],
        &["bytes", "rwbs", "comm"],
        issue,
    ),
    (
        "block_rq_merge",
        &["dev", "sector"],
        &["nr_sector", "rwbs", "comm"],
        merge,
    ),
    (
        "block_bio_backmerge",
        &["dev", "sector"],
        &["nr_sector", "rwbs", "comm"],
        merge,
    ),
    (
        "block_bio_frontmerge",
        &["dev", "sector"],
        &["nr_sector", "rwbs", "comm"],
        merge,
    ),
    (
        "block_rq_complete",
        &["dev", "sector"],
        &["nr_sector", "rwbs", "error"],
        complete,
    ),
];

impl Record<'_> {
    fn named(&self, name: &str) -> Option<&NamedField> {
        self.fields.iter().find(|field| field.name == name)
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.named(name)?.field.as_ref()
    }

    fn syscall(&self, number: u32, tasks: &mut Tasks) -> Option<Text> {
        let name = self.meanings.syscalls.get(&number)?;
        Some(tasks.keep(name))
    }

    fn block_device(&self, tasks: &mut Tasks) -> Option<Text> {
        Fields::device(self, "dev").map(|device| tasks.keep(&device))
    }

    fn kept(&self, name: &str, tasks: &mut Tasks) -> Option<Text> {
        self.text(name).map(|text| tasks.keep(&text))
    }
}

impl Fields for Record<'_> {
    fn u64(&self, name: &str) -> Option<u64> {
        self.field(name)?.unsigned(self.bytes)
    }

    fn i64(&self, name: &str) -> Option<i64> {
        self.field(name)?.signed(self.bytes)
    }

    fn address(&self, name: &str) -> Option<u64> {
        self.u64(name)
    }

    fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.field(name)?.text(self.bytes)
    }

    fn words(&self, name: &str) -> Option<Cow<'_, str>> {
        /// `enum vmscan_throttle_state` (Linux 5.16), bit by bit: its `print fmt` names the bits by constants that it
        /// does not give.
        const REASONS: [&str; 4] = [
            "VMSCAN_THROTTLE_WRITEBACK",
            "VMSCAN_THROTTLE_ISOLATED",
            "VMSCAN_THROTTLE_NOPROGRESS",
            "VMSCAN_THROTTLE_CONGESTED",
        ];
        let NamedField { field, names, .. } = self.named(name)?;
        let bits = field.as_ref()?.unsigned(self.bytes)?;
        let flags = || names.flags(bits).map(Cow::Owned);
        Some(match name {
            "gfp_flags" | "gfp_mask" => flags().unwrap_or(Cow::Borrowed("0x0")),
            "reason" => {
                let known = bits.is_power_of_two() && names.largest().is_none();
                let one = known.then(|| REASONS.get(bits.ilog2() as usize)).flatten();
                match one {
                    Some(word) => Cow::Borrowed(*word),
                    None => flags().unwrap_or(Cow::Borrowed("VMSCAN_THROTTLE_NONE")),
                }
            }
            "status" | "type" => names
                .symbol(bits)
                .map_or_else(|| bits.to_string().into(), Cow::Borrowed),
            "alloc_migratetype" | "fallback_migratetype" => {
                let number = self.u32(name)?;
                let known = self.meanings.migrate_types.get(number as usize);
                known.map_or_else(|| number.to_string().into(), |name| name.as_str().into())
            }
            _ => return flags(),
        })
    }

    fn function(&self, name: &str) -> Option<Cow<'_, str>> {
        let address = self.u64(name)?;
        Some(match self.meanings.symbols.function(address) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{address:#x}")),
        })
    }
}

fn switch(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    let comm = record.kept("prev_comm", tasks);
    if let Some(tid) = record.u32("prev_pid") {
        tasks.name(tid, comm.as_ref());
    }
    let next_tid = record.u32("next_pid").ok_or("next_pid")?;
    let next_comm = record.kept("next_comm", tasks);
    tasks.name(next_tid, next_comm.as_ref());
    // The bits' names end with the last one before the flag that says "pre-empted" (`TASK_REPORT_MAX`, since Linux 4.14).
    let names = record.named("prev_state").map(|state| &state.names);
    let largest = names.and_then(Names::largest);
    let preempted_bit = largest.and_then(|bit| bit.checked_mul(2));
    let bits = record.u64("prev_state");
    let state = bits.zip(names).map(|(bits, names)| {
        let states = bits & preempted_bit.unwrap_or(1 << 8).wrapping_sub(1);
        tasks.keep(names.flags(states).as_deref().unwrap_or("R"))
    });
    Ok(Some(Kind::Switch {
        state,
        preempted: bits.zip(preempted_bit).map(|(bits, flag)| bits & flag != 0),
        priority: record.i32("prev_prio"),
        next_tid: Some(next_tid),
        next_comm,
        next_priority: record.i32("next_prio"),
        stack: None,
    }))
}

fn enter(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    let Ok(number) = u32::try_from(record.i64("id").ok_or("id")?) else {
        return Ok(None); // -1: what a tracer forbade
    };
    let mut arguments = [None; 6];
    if let Some(args) = record.field("args") {
        let size = args.size() / arguments.len();
        for (index, argument) in arguments.iter_mut().enumerate() {
            *argument = args.element(record.bytes, size, index);
        }
    }
    Ok(Some(Kind::SyscallEnter {
        number,
        name: record.syscall(number, tasks),
        arguments,
    }))
}

fn leave(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    let Ok(number) = u32::try_from(record.i64("id").ok_or("id")?) else {
        return Ok(None); // -1: a return from a signal's handler
    };
    Ok(Some(Kind::SyscallExit {
        number,
        name: record.syscall(number, tasks),
        result: record.i64("ret"),
    }))
}

/// Bytes of a sector in the kernel's events of requests.
const SECTOR: u64 = 512;

/// Learns the name of the thread that asks for the request.
fn asks(record: &Record<'_>, tasks: &mut Tasks) {
    if let (Some(tid), Some(comm)) = (tasks.tid, record.kept("comm", tasks)) {
        tasks.name(tid, Some(&comm));
    }
}

fn bytes_of_sectors(record: &Record<'_>) -> Option<Bytes> {
    let sectors = record.u64("nr_sector")?;
    sectors.checked_mul(SECTOR).map(Bytes)
}

fn merge(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    asks(record, tasks);
    Ok(Some(Kind::BlockMerge {
        device: record.block_device(tasks).ok_or("dev")?,
        sector: record.u64("sector").ok_or("sector")?,
        length: bytes_of_sectors(record),
        operation: record.kept("rwbs", tasks),
    }))
}

fn insert(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    asks(record, tasks);
    Ok(Some(Kind::BlockInsert {
        device: record.block_device(tasks).ok_or("dev")?,
        sector: record.u64("sector").ok_or("sector")?,
        length: record.u64("bytes").map(Bytes),
        operation: record.kept("rwbs", tasks),
    }))
}

fn issue(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    asks(record, tasks);
    Ok(Some(Kind::BlockIssue {
        device: record.block_device(tasks).ok_or("dev")?,
        sector: record.u64("sector").ok_or("sector")?,
        length: record.u64("bytes").map(Bytes),
        operation: record.kept("rwbs", tasks),
    }))
}

fn complete(record: &Record<'_>, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::BlockComplete {
        device: record.block_device(tasks).ok_or("dev")?,
        sector: record.u64("sector").ok_or("sector")?,
        length: bytes_of_sectors(record),
        operation: record.kept("rwbs", tasks),
        result: record.i64("error"),
    }))
}
