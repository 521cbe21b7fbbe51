//! The kernel's events, each once: what its fields mean.
//!
//! `stopgap-tracer` finds the fields in binary records and [`crate::text`] in what other tools print; both implement
//! [`Fields`] under the names that the kernel's formats have (`include/trace/events/*.h`). Switches, system calls and
//! requests to disks are printed so differently that each side has its own functions for them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos, Pages};
use stopgap_events::wait::Context;

use crate::{Kind, Reclaimer, Text};

/// The fields of one event, by the kernel's names. `None`: the event has no such field, or no value that can be read.
pub trait Fields {
    /// Returns an unsigned number.
    fn u64(&self, name: &str) -> Option<u64>;
    /// Returns a signed number.
    fn i64(&self, name: &str) -> Option<i64>;
    /// Returns an address, or another number that the kernel prints in hexadecimal.
    fn address(&self, name: &str) -> Option<u64>;
    /// Returns a text.
    fn text(&self, name: &str) -> Option<Cow<'_, str>>;
    /// Returns the kernel's words for a number, as flags joined by `|`.
    fn words(&self, name: &str) -> Option<Cow<'_, str>>;
    /// Returns the name of the function that a pointer points to.
    fn function(&self, name: &str) -> Option<Cow<'_, str>>;

    /// Returns `major:minor` of a number as the kernel has it (`include/linux/kdev_t.h`: 12 and 20 bits).
    fn device(&self, name: &str) -> Option<String> {
        let device = self.u64(name)?;
        Some(format!("{}:{}", device >> 20, device & 0xf_ffff))
    }
    /// Returns a number that fits into 32 bits and is not negative.
    fn u32(&self, name: &str) -> Option<u32> {
        u32::try_from(self.i64(name)?).ok()
    }
    /// Returns a signed number that fits into 32 bits.
    fn i32(&self, name: &str) -> Option<i32> {
        i32::try_from(self.i64(name)?).ok()
    }
    /// Returns whether a number is not 0.
    fn flag(&self, name: &str) -> Option<bool> {
        self.u64(name).map(|number| number != 0)
    }
}

/// What an event says; `None` if it only tells the reader something about later events. The error is the name of a
/// field that the event must have and that has no value.
pub type Made = Result<Option<Kind>, &'static str>;

/// One event of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct KernelEvent {
    /// Its name, without its system.
    pub name: &'static str,
    /// Fields without which it says nothing.
    pub need: &'static [&'static str],
    /// Fields without which it says less.
    pub may: &'static [&'static str],
    /// Makes a kind of its fields.
    pub make: fn(&dyn Fields, &mut Tasks) -> Made,
}

macro_rules! events {
    ($($name:literal: $($need:literal)*; $($may:literal)* => $make:expr;)+) => {
        &[$(KernelEvent {
            name: $name,
            need: &[$($need),*],
            may: &[$($may),*],
            make: $make,
        },)+]
    };
}

/// The events that mean the same in a record and in a text.
pub const KERNEL_EVENTS: &[KernelEvent] = events! {
    "sched_waking": "pid"; "comm" "prio" "target_cpu" "common_flags" => waking;
    "sched_wakeup_new": "pid"; "comm" "prio" "target_cpu" => new;
    "task_newtask": "pid" "clone_flags"; => new_task;
    "sched_process_fork": "child_pid"; "child_comm" => fork;
    "sched_process_exec": "pid"; "filename" "old_pid" => exec;
    "sched_process_exit": ; "comm" "prio" => exit;
    "vm_unmapped_area": "addr" "length";
        "total_vm" "flags" "low_limit" "high_limit" "align_mask" "align_offset" => unmapped_area;
    "page_fault_user": "address"; "ip" "error_code" => |fields, _| fault(fields, true);
    "page_fault_kernel": "address"; "ip" "error_code" => |fields, _| fault(fields, false);
    "mm_page_alloc_extfrag": "alloc_order";
        "pfn" "fallback_order" "alloc_migratetype" "fallback_migratetype" "change_ownership" => extfrag;
    "mm_vmscan_direct_reclaim_begin": ; "order" "gfp_flags" => |fields, tasks| begin(Reclaimer::Direct, fields, tasks);
    "mm_vmscan_memcg_reclaim_begin": ; "order" "gfp_flags" => |fields, tasks| begin(Reclaimer::Memcg, fields, tasks);
    "mm_vmscan_direct_reclaim_end": ; "nr_reclaimed" => |fields, _| end(Reclaimer::Direct, fields);
    "mm_vmscan_memcg_reclaim_end": ; "nr_reclaimed" => |fields, _| end(Reclaimer::Memcg, fields);
    "mm_shrink_slab_start": ; "shrink" "nid" "gfp_flags" "total_scan" => shrink;
    "mm_shrink_slab_end": ; "shrink" "nid" "retval" "total_scan" => shrink_end;
    "mm_vmscan_throttled": ; "nid" "usec_delayed" "reason" => throttled;
    "mm_compaction_try_to_compact_pages": ; "order" "gfp_mask" => compact;
    "mm_compaction_begin": ; "sync" => compaction_begin;
    "mm_compaction_end": ; "status" => compaction_end;
    "mmap_lock_start_locking": ; "mm" "write" => mmap_lock_start;
    "mmap_lock_acquire_returned": ; "mm" "write" "success" => mmap_lock_acquired;
    "mmap_lock_released": ; "mm" "write" => mmap_lock_released;
    "contention_begin": ; "lock_addr" "flags" => contention_begin;
    "contention_end": ; "lock_addr" "ret" => contention_end;
    "posix_lock_inode": "i_ino" "s_dev" "type" "ret"; "owner" "flags" "fl_start" "fl_end" => |fields, tasks| file_lock("fcntl", fields, tasks);
    "flock_lock_inode": "i_ino" "s_dev" "type" "ret"; "owner" "flags" "fl_start" "fl_end" => |fields, tasks| file_lock("flock", fields, tasks);
    "dma_fence_init": "context" "seqno"; "driver" "timeline" => fence_init;
    "dma_fence_wait_start": ; "driver" "timeline" "context" "seqno" => fence_begin;
    "signal_generate": "sig" "pid"; "comm" "group" "result" => signal;
    "dma_fence_wait_end": ; "driver" "timeline" "context" "seqno" => fence_end;
};

/// The column's word for a process's memory map.
const MMAP: &str = "mmap";

/// Returns the thread that is woken, runs for the first time or gets a signal.
fn target(fields: &dyn Fields, tasks: &mut Tasks) -> Result<(u32, Option<Text>), &'static str> {
    let tid = fields.u32("pid").ok_or("pid")?;
    let comm = tasks.text(fields, "comm");
    tasks.name(tid, comm.as_ref());
    Ok((tid, comm))
}

/// Bits of the flags that begin each binary record (`trace_flag_type`, include/linux/trace_events.h).
const IN_INTERRUPT: u64 = 0x08;
const IN_SOFTIRQ: u64 = 0x10;
const IN_NMI: u64 = 0x40;

fn context(flags: u64) -> Context {
    match flags {
        flags if flags & (IN_INTERRUPT | IN_NMI) != 0 => Context::Interrupt,
        flags if flags & IN_SOFTIRQ != 0 => Context::Softirq,
        _ => Context::Task,
    }
}

fn waking(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let (target_tid, target_comm) = target(fields, tasks)?;
    Ok(Some(Kind::Waking {
        target_tid,
        target_comm,
        target_priority: fields.i32("prio"),
        target_cpu: fields.u32("target_cpu"),
        waker_context: fields.u64("common_flags").map(context),
    }))
}

fn new(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let (target_tid, target_comm) = target(fields, tasks)?;
    Ok(Some(Kind::New {
        target_tid,
        target_comm,
        target_priority: fields.i32("prio"),
        target_cpu: fields.u32("target_cpu"),
    }))
}

fn new_task(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    const CLONE_THREAD: u64 = 0x10000;
    let tid = fields.u32("pid").ok_or("pid")?;
    let flags = fields.address("clone_flags").ok_or("clone_flags")?;
    if tasks.threads.len() < MOST_PENDING {
        tasks.threads.insert(tid, flags & CLONE_THREAD != 0);
    }
    Ok(None)
}

fn fork(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let target_tid = fields.u32("child_pid").ok_or("child_pid")?;
    let target_comm = tasks.text(fields, "child_comm");
    let target_pid = match tasks.threads.remove(&target_tid) {
        Some(true) => tasks.tid.and_then(|tid| tasks.task(tid)?.pid),
        Some(false) => Some(target_tid),
        None => None,
    };
    tasks.name(target_tid, target_comm.as_ref());
    tasks.process(target_tid, target_pid);
    Ok(Some(Kind::Fork {
        target_tid,
        target_pid,
        target_comm,
    }))
}

fn exec(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let tid = fields.u32("pid").ok_or("pid")?;
    let filename = tasks.text(fields, "filename");
    if let Some(filename) = &filename {
        let comm = tasks.comm_of(filename);
        tasks.name(tid, Some(&comm));
    }
    tasks.process(tid, Some(tid)); // who execs leads its process
    let old_tid = fields.u32("old_pid").filter(|&old| old != tid);
    Ok(Some(Kind::Exec { filename, old_tid }))
}

fn exit(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let comm = tasks.text(fields, "comm");
    if let Some(tid) = tasks.tid {
        if comm.is_some() {
            tasks.name(tid, comm.as_ref());
        }
        tasks.compacts.remove(&tid); // another thread may get its number
    }
    let priority = fields.i32("prio");
    Ok(Some(Kind::Exit { priority }))
}

fn unmapped_area(fields: &dyn Fields, _: &mut Tasks) -> Made {
    const LARGEST_ERRNO: i64 = 4095;
    const TOP_DOWN: u64 = 1;
    let found = fields.address("addr").ok_or("addr")?;
    let errno = found.cast_signed();
    let failed = (-LARGEST_ERRNO..0).contains(&errno);
    let limits = fields.u64("low_limit").zip(fields.u64("high_limit"));
    let mask = fields.u64("align_mask");
    Ok(Some(Kind::UnmappedArea {
        address: (!failed).then_some(found),
        length: Bytes(fields.u64("length").ok_or("length")?),
        limits: limits
            .filter(|(start, end)| start <= end)
            .map(|(start, end)| AddressRange { start, end }),
        alignment: mask.and_then(|mask| mask.checked_add(1)).map(Bytes),
        offset: fields.u64("align_offset").map(Bytes),
        top_down: fields.u64("flags").map(|flags| flags & TOP_DOWN != 0),
        total: fields.u64("total_vm").map(Pages),
        result: failed.then_some(errno),
    }))
}

fn fault(fields: &dyn Fields, user: bool) -> Made {
    Ok(Some(Kind::PageFault {
        address: fields.u64("address").ok_or("address")?,
        instruction_pointer: fields.u64("ip"),
        error_code: fields.u64("error_code"),
        user: Some(user),
    }))
}

fn extfrag(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::Extfrag {
        frame: fields.u64("pfn"),
        order: fields.u32("alloc_order").ok_or("alloc_order")?,
        fallback_order: fields.u32("fallback_order"),
        migrate_type: tasks.words(fields, "alloc_migratetype"),
        fallback_migrate_type: tasks.words(fields, "fallback_migratetype"),
        changed_ownership: fields.flag("change_ownership"),
    }))
}

fn begin(by: Reclaimer, fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::ReclaimBegin {
        by,
        order: fields.u32("order"),
        gfp: tasks.words(fields, "gfp_flags"),
        node: None,
        shrinker: None,
    }))
}

fn end(by: Reclaimer, fields: &dyn Fields) -> Made {
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

fn shrink(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let to_scan = fields.u64("total_scan");
    if let (Some(tid), Some(to_scan)) = (tasks.tid, to_scan)
        && tasks.to_scan.len() < MOST_PENDING
    {
        tasks.to_scan.insert(tid, to_scan);
    }
    Ok(Some(Kind::ReclaimBegin {
        by: Reclaimer::Shrinker,
        order: None,
        gfp: tasks.words(fields, "gfp_flags"),
        node: fields.u32("nid"),
        shrinker: fields.function("shrink").map(|name| tasks.keep(&name)),
    }))
}

fn shrink_end(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    // The end says how many are left (`do_shrink_slab()`).
    let to_scan = tasks.tid.and_then(|tid| tasks.to_scan.remove(&tid));
    let scanned = to_scan.zip(fields.u64("total_scan"));
    let freed = fields.i64("retval");
    Ok(Some(Kind::ReclaimEnd {
        by: Reclaimer::Shrinker,
        order: None,
        node: fields.u32("nid"),
        scanned: scanned.and_then(|(to_scan, left)| to_scan.checked_sub(left)),
        reclaimed: freed.and_then(|freed| u64::try_from(freed).ok()),
        shrinker: fields.function("shrink").map(|name| tasks.keep(&name)),
        reason: None,
        duration: None,
    }))
}

fn throttled(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let us = fields
        .i64("usec_delayed")
        .and_then(|us| u64::try_from(us).ok());
    Ok(Some(Kind::ReclaimEnd {
        by: Reclaimer::Throttled,
        order: None,
        node: fields.u32("nid"),
        scanned: None,
        reclaimed: None,
        shrinker: None,
        reason: tasks.words(fields, "reason"),
        duration: us.and_then(|us| us.checked_mul(1_000)).map(Nanos),
    }))
}

/// An allocation compacts zone by zone (`try_to_compact_pages()`): this comes once, begin and end with each zone.
fn compact(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let allocation = Allocation {
        order: fields.u32("order"),
        gfp: tasks.words(fields, "gfp_mask"),
    };
    if let Some(tid) = tasks.tid
        && tasks.compacts.len() < MOST_PENDING
    {
        tasks.compacts.insert(tid, allocation);
    }
    Ok(None)
}

fn compaction_begin(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let allocation = tasks.tid.and_then(|tid| tasks.compacts.get(&tid));
    let Allocation { order, gfp } = allocation.cloned().unwrap_or_default();
    Ok(Some(Kind::CompactionBegin {
        order,
        gfp,
        node: None,
        synchronous: fields.flag("sync"),
    }))
}

fn compaction_end(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::CompactionEnd {
        order: None,
        node: None,
        status: tasks.words(fields, "status"),
    }))
}

fn mmap_lock_start(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::LockBegin {
        lock: Some(tasks.keep(MMAP)),
        address: fields.address("mm"),
        write: fields.flag("write"),
    }))
}

fn mmap_lock_acquired(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    // A try that fails says no more than that.
    const AGAIN: i64 = -11;
    let success = fields.flag("success");
    Ok(Some(Kind::LockEnd {
        lock: Some(tasks.keep(MMAP)),
        address: fields.address("mm"),
        write: fields.flag("write"),
        result: success.map(|success| if success { 0 } else { AGAIN }),
    }))
}

fn mmap_lock_released(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::LockRelease {
        lock: Some(tasks.keep(MMAP)),
        address: fields.address("mm"),
        write: fields.flag("write"),
    }))
}

fn contention_begin(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let words = fields.words("flags");
    let has = |word| (words.iter()).any(|words| words.split('|').any(|w| w == word));
    let write = match (has("WRITE"), has("READ")) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None, // a lock that knows no readers
    };
    Ok(Some(Kind::LockBegin {
        lock: words.map(|words| tasks.keep(&words)),
        address: fields.address("lock_addr"),
        write,
    }))
}

fn contention_end(fields: &dyn Fields, _: &mut Tasks) -> Made {
    Ok(Some(Kind::LockEnd {
        lock: None,
        address: fields.address("lock_addr"),
        write: None,
        result: fields.i64("ret"),
    }))
}

/// `fs/locks.c`.
fn file_lock(by: &str, fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    const OPEN_FILE: &str = "FL_OFDLCK";
    let flags = fields.words("flags").unwrap_or_default();
    let lock = match flags.split('|').any(|word| word == OPEN_FILE) {
        true => "open-file",
        false => by,
    };
    let (start, end) = (fields.i64("fl_start").unwrap_or(0), fields.i64("fl_end"));
    // Both are bytes of the range; it goes to the end of the file where the second is the largest number that there is.
    let length = end.filter(|&end| end != i64::MAX);
    let length = length.and_then(|end| end.checked_sub(start)?.checked_add(1));
    let device = fields.device("s_dev").ok_or("s_dev")?;
    Ok(Some(Kind::FileLock {
        lock: tasks.keep(lock),
        device: tasks.keep(&device),
        inode: fields.address("i_ino").ok_or("i_ino")?,
        start: start.unsigned_abs(),
        length: length.map(|length| Bytes(length.unsigned_abs())),
        write: match fields.words("type").as_deref() {
            Some("F_RDLCK") => Some(false),
            Some("F_WRLCK") => Some(true),
            Some(_) => None,
            None => return Err("type"),
        },
        owner: fields.address("owner").unwrap_or(0),
        result: fields.i64("ret").ok_or("ret")?,
    }))
}

fn signal(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    let (target_tid, target_comm) = target(fields, tasks)?;
    Ok(Some(Kind::Signal {
        signal: fields.u32("sig").ok_or("sig")?,
        target_tid,
        target_pid: tasks.task(target_tid).and_then(|task| task.pid),
        target_comm,
        to_process: fields.flag("group"),
        result: fields.i64("result"),
    }))
}

fn fence_init(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::FenceInit {
        driver: tasks.text(fields, "driver"),
        timeline: tasks.text(fields, "timeline"),
        context: fields.u64("context").ok_or("context")?,
        seqno: fields.u64("seqno").ok_or("seqno")?,
    }))
}

fn fence_begin(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::FenceWaitBegin {
        driver: tasks.text(fields, "driver"),
        timeline: tasks.text(fields, "timeline"),
        context: fields.u64("context"),
        seqno: fields.u64("seqno"),
    }))
}

fn fence_end(fields: &dyn Fields, tasks: &mut Tasks) -> Made {
    Ok(Some(Kind::FenceWaitEnd {
        driver: tasks.text(fields, "driver"),
        timeline: tasks.text(fields, "timeline"),
        context: fields.u64("context"),
        seqno: fields.u64("seqno"),
    }))
}

/// Texts that are kept once; what comes beyond is made anew each time.
const MOST_TEXTS: usize = 1 << 16;
/// Threads that are followed; of more, no names and processes are learned.
const MOST_TASKS: usize = 1 << 22;
/// Threads of which something is remembered until another event of theirs.
const MOST_PENDING: usize = 1 << 16;

/// Facts about a thread that events have shown.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Its process.
    pub pid: Option<u32>,
    /// Its name.
    pub comm: Option<Text>,
}

/// An allocation that could not be served.
#[derive(Debug, Clone, Default)]
struct Allocation {
    order: Option<u32>,
    gfp: Option<Text>,
}

/// Facts beside the event at hand: threads, and texts that come again.
#[derive(Debug, Default)]
pub struct Tasks {
    /// The thread of the event at hand.
    pub tid: Option<u32>,
    tasks: HashMap<u32, Task>,
    /// Whether a new thread belongs to the process of its maker, by thread.
    threads: HashMap<u32, bool>,
    /// Objects that a shrinker was to look at, by thread.
    to_scan: HashMap<u32, u64>,
    /// For what a thread compacts memory, by thread.
    compacts: HashMap<u32, Allocation>,
    texts: HashSet<Text>,
}

impl Tasks {
    /// Returns what is known of a thread.
    #[must_use]
    pub fn task(&self, tid: u32) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    fn entry(&mut self, tid: u32) -> Option<&mut Task> {
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&tid) {
            return None;
        }
        let task = self.tasks.entry(tid).or_default();
        if tid == 0 {
            task.pid = Some(0); // the idle task is a process of its own
        }
        Some(task)
    }

    /// Sets the name of a thread, where the name is known.
    pub fn name(&mut self, tid: u32, comm: Option<&Text>) {
        if let Some(task) = self.entry(tid)
            && let Some(comm) = comm
            && task.comm.as_ref() != Some(comm)
        {
            task.comm = Some(Text::clone(comm));
        }
    }

    /// Sets the process of a thread.
    pub fn process(&mut self, tid: u32, pid: Option<u32>) {
        if let Some(task) = self.entry(tid) {
            task.pid = pid;
        }
    }

    /// Returns the name that the kernel gives a thread that runs `filename`.
    fn comm_of(&mut self, filename: &str) -> Text {
        /// `TASK_COMM_LEN` less its NUL.
        const LONGEST: usize = 15;
        let name = filename.rsplit('/').next().unwrap_or(filename);
        let mut end = name.len().min(LONGEST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        self.keep(&name[..end])
    }

    /// Returns the text, shared with those before it.
    pub fn keep(&mut self, text: &str) -> Text {
        if let Some(kept) = self.texts.get(text) {
            return Text::clone(kept);
        }
        let text = Text::from(text);
        if self.texts.len() < MOST_TEXTS {
            self.texts.insert(Text::clone(&text));
        }
        text
    }

    fn text(&mut self, fields: &dyn Fields, name: &str) -> Option<Text> {
        fields.text(name).map(|text| self.keep(&text))
    }

    fn words(&mut self, fields: &dyn Fields, name: &str) -> Option<Text> {
        fields.words(name).map(|words| self.keep(&words))
    }
}
