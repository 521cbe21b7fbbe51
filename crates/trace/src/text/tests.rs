//! One run of a client, a server and a thread (`./rt 5`), recorded at once by `stopgap record`, `perf record`, `trace-cmd
//! record` and an instance of tracefs on Linux 6.18: what their texts say agrees. And lines of events that did not
//! happen in it, as the kernel's formats print them.

use std::collections::{BTreeMap, HashSet};
use std::io::Cursor;

use super::*;
use crate::{Reclaimer, Text, file};
use stopgap_events::units::{Bytes, Nanos};

const RECORDED: &[u8] = include_bytes!("../../fixtures/text/recorded.parquet");
const PERF: &str = include_str!("../../fixtures/text/perf.txt");
const TRACE_CMD: &str = include_str!("../../fixtures/text/trace-cmd.txt");
const TRACE: &str = include_str!("../../fixtures/text/trace.txt");
const PERF_STACKS: &str = include_str!("../../fixtures/text/perf-stacks.txt");
const TRACE_CMD_STACKS: &str = include_str!("../../fixtures/text/trace-cmd-stacks.txt");

/// The rows as they stand; those of an `Input` are waits.
fn input(text: &[u8]) -> Reader<&[u8]> {
    assert!(is_text(text), "not recognised: {text:?}");
    Reader::new(text, survey(text))
}

fn recorded() -> Vec<Event> {
    let rows = file::Reader::new(Cursor::new(RECORDED)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn read(text: &str) -> (Vec<Event>, Metadata) {
    let input = input(text.as_bytes());
    let metadata = input.metadata().clone();
    (input.map(Result::unwrap).collect(), metadata)
}

fn one(line: &str) -> Event {
    let (mut events, _) = read(line);
    assert_eq!(events.len(), 1, "{line}");
    events.remove(0)
}

fn kind(event: &str) -> Kind {
    one(&format!("  a b-7 [001] d..2. 12.000345: {event}\n")).kind
}

fn refused(text: &str) -> String {
    let last = input(text.as_bytes()).last().unwrap();
    last.unwrap_err().to_string()
}

/// By thread, in order.
fn by_thread(events: Vec<Event>) -> BTreeMap<Option<u32>, Vec<Event>> {
    let mut threads: BTreeMap<_, Vec<Event>> = BTreeMap::new();
    for event in events {
        threads.entry(event.tid).or_default().push(event);
    }
    threads
}

/// What a text cannot say alike: perf and the kernel print names where we have addresses, the kernel's own text has
/// lock addresses that are scrambled, trace-cmd prints no `+` after a state, and stacks are held elsewhere to be right.
fn alike(mut kind: Kind, text: &str) -> Kind {
    match &mut kind {
        Kind::LockBegin { address, .. }
        | Kind::LockEnd { address, .. }
        | Kind::LockRelease { address, .. }
            if text == TRACE =>
        {
            *address = None;
        }
        Kind::PageFault {
            instruction_pointer,
            user: Some(false),
            ..
        } => *instruction_pointer = None,
        // A line before the cut named the maker's process.
        Kind::Fork { target_pid, .. } if text != PERF => *target_pid = None,
        Kind::Switch {
            preempted,
            stack,
            state,
            ..
        } => {
            *stack = None;
            if text == TRACE_CMD {
                *preempted = None;
                // Its letters are of older kernels.
                if state.as_deref() == Some("X") {
                    *state = Some("Z".into());
                }
            }
        }
        _ => {}
    }
    kind
}

#[test]
fn what_we_recorded_and_what_other_tools_print_of_the_same_run_agree() {
    let recorded = recorded();
    let calls: HashSet<u32> = recorded
        .iter()
        .filter_map(|event| call(&event.kind))
        .collect();
    let recorded = by_thread(recorded);
    assert_eq!(recorded.len(), 3);
    for text in [PERF, TRACE_CMD, TRACE] {
        let mut threads = by_thread(read(text).0);
        let mut compared = 0;
        for (tid, ours) in &recorded {
            let mut theirs = threads.remove(tid).unwrap();
            // Ours is of some calls only.
            theirs.retain(|event| call(&event.kind).is_none_or(|number| calls.contains(&number)));
            let mut ours = ours.clone();
            if text == PERF {
                // Its events end with the thread: what that does while it dies is not among them.
                let end = |event: &Event| matches!(event.kind, Kind::Exit { .. });
                let ended = ours.iter().position(end).map_or(ours.len(), |at| at + 1);
                ours.truncate(ended);
            }
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let near = ours.time.0.abs_diff(theirs.time.0);
                assert!(near < 200_000, "{near} ns apart: {ours:?}\n{theirs:?}");
                assert_eq!(
                    alike(ours.kind.clone(), text),
                    alike(theirs.kind.clone(), text),
                    "{ours:?}"
                );
                assert_eq!(ours.cpu, theirs.cpu);
                if text == PERF {
                    assert_eq!(ours.pid, theirs.pid);
                    // An exec gives the name some locks before it says so.
                    let renamed = theirs.comm.as_deref() == Some("true");
                    assert!(renamed || ours.comm == theirs.comm, "{theirs:?}");
                } else if theirs.pid.is_some() {
                    assert_eq!(ours.pid, theirs.pid);
                }
                compared += 1;
            }
            assert_eq!(ours.len(), theirs.len(), "{tid:?} of {}", &text[..40]);
        }
        assert!(compared > 290, "{compared}");
        assert!(threads.is_empty(), "{:?}", threads.keys());
    }
}

fn call(kind: &Kind) -> Option<u32> {
    match kind {
        Kind::SyscallEnter { number, .. } | Kind::SyscallExit { number, .. } => Some(*number),
        _ => None,
    }
}

/// Where a thread blocks: triggers wrote stacks of those switches alone, ours of the last one of a thread, too.
#[test]
fn the_kernels_own_text_has_the_stacks_that_we_recorded() {
    let stacks = |events: Vec<Event>| {
        let stack = |event: Event| match event.kind {
            Kind::Switch { stack, state, .. } if matches!(state.as_deref(), Some("S" | "D")) => {
                Some((event.tid, stack))
            }
            _ => None,
        };
        events.into_iter().filter_map(stack).collect::<Vec<_>>()
    };
    let ours = stacks(recorded());
    let theirs = stacks(read(TRACE).0);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(theirs.len(), ours.len());
    let having = ours.iter().filter(|(_, stack)| stack.is_some()).count();
    assert!(having >= 10, "{having}");
}

#[test]
fn stacks_of_perf_and_trace_cmd() {
    let blocked = "entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k];ksys_read_[k];vfs_read_[k];\
                   sock_read_iter_[k];sock_recvmsg_[k];unix_stream_recvmsg_[k];\
                   unix_stream_read_generic_[k];schedule_timeout_[k];schedule_[k];__schedule_[k]";
    for (text, expected) in [
        (PERF_STACKS, format!("0x0;read;{blocked}")),
        (TRACE_CMD_STACKS, blocked.to_owned()),
    ] {
        let (events, _) = read(text);
        let stacks: Vec<&str> = events
            .iter()
            .filter_map(|event| match &event.kind {
                Kind::Switch { stack, .. } => Some(&*stack.as_ref().unwrap().0),
                _ => None,
            })
            .collect();
        assert!(stacks.len() > 3);
        assert!(stacks.contains(&&*expected), "{stacks:#?}");
        let write = |kind: &Kind| matches!(kind, Kind::SyscallEnter { name: Some(name), arguments, .. } if **name == *"write" && arguments[2] == Some(32));
        assert!(events.iter().any(|event| write(&event.kind)));
    }
}

/// ```text
/// cpu 0  switch ...... stack
/// cpu 1          waking
/// ```
#[test]
fn a_stack_finds_its_switch_behind_events_of_other_cpus() {
    let switch = |cpu: u32, tid: u32, us: u32| {
        format!(
            "a-{tid} [00{cpu}] d..2. 5.00000{us}: sched_switch: prev_comm=a prev_pid={tid} prev_prio=120 prev_state=S ==> next_comm=b next_pid=9 next_prio=120\n"
        )
    };
    let waking = "c-3 [001] d..2. 5.000002: sched_waking: comm=a pid=7 prio=120 target_cpu=000\n";
    let stack =
        "a-7 [000] d..2. 5.000003: <stack trace>\n => __schedule\n => schedule\n => vfs_read\n";
    let (events, _) = read(&format!(
        "{}{waking}{stack}{}",
        switch(0, 7, 1),
        switch(0, 9, 4)
    ));
    assert_eq!(events.len(), 3);
    let of = |event: &Event| match &event.kind {
        Kind::Switch { stack, .. } => stack.clone().map(|stack| stack.0.to_string()),
        kind => Some(kind.word().to_owned()),
    };
    let all: Vec<_> = events.iter().map(of).collect();
    let whole = Some("vfs_read_[k];schedule_[k];__schedule_[k]".to_owned());
    assert_eq!(all, [whole, Some("waking".to_owned()), None]);
    // A stack of another thread, or after another event there, belongs to no switch.
    for between in [switch(0, 8, 2), waking.replace("[001]", "[000]")] {
        let (events, _) = read(&format!("{}{between}{stack}", switch(0, 7, 1)));
        assert!(
            events
                .iter()
                .all(|event| !matches!(&event.kind, Kind::Switch { stack: Some(_), .. }))
        );
    }
}

#[test]
fn who_leaves_and_who_comes() {
    let Kind::Switch {
        state,
        preempted,
        priority,
        next_tid,
        next_comm,
        ..
    } = kind(
        "sched_switch: prev_comm=a b prev_pid=7 prev_prio=-3 prev_state=R+ ==> next_comm=x ==> y next_pid=8 next_prio=120",
    )
    else {
        panic!()
    };
    assert_eq!((state.as_deref(), preempted), (Some("R"), Some(true)));
    assert_eq!((priority, next_tid), (Some(-3), Some(8)));
    assert_eq!(next_comm.as_deref(), Some("x ==> y"));
    let plug_in = kind("sched_switch:         lto cgu.04:13320 [120] D ==> k/1:0:22 [0]");
    let Kind::Switch {
        state,
        preempted,
        next_comm,
        next_tid,
        next_priority,
        ..
    } = plug_in
    else {
        panic!()
    };
    assert_eq!((state.as_deref(), preempted), (Some("D"), None));
    assert_eq!((next_comm.as_deref(), next_tid), (Some("k/1:0"), Some(22)));
    assert_eq!(next_priority, Some(0));
    let woken = kind("sched_waking: a b:22 [98] success=1 CPU:003");
    let expected = Kind::Waking {
        target_tid: 22,
        target_comm: Some("a b".into()),
        target_priority: Some(98),
        target_cpu: Some(3),
        waker_context: None,
    };
    assert_eq!(woken, expected);
}

#[test]
fn memory_is_reclaimed_and_compacted() {
    let gfp: Option<Text> = Some("GFP_KERNEL|__GFP_NOWARN".into());
    let begin = kind("mm_vmscan_direct_reclaim_begin: order=4 gfp_flags=GFP_KERNEL|__GFP_NOWARN");
    let by = Reclaimer::Direct;
    let expected = Kind::ReclaimBegin {
        by,
        order: Some(4),
        gfp,
        node: None,
        shrinker: None,
    };
    assert_eq!(begin, expected);
    let text = "a-7 [001] ..... 1.000001: mm_shrink_slab_start: super_cache_scan+0x0/0x1a0 00000000ab: nid: 1 objects to shrink 2 gfp_flags GFP_KERNEL cache items 90 delta 4 total_scan 64 priority 12\n\
                a-7 [001] ..... 1.000002: mm_shrink_slab_end: super_cache_scan+0x0/0x1a0 00000000ab: nid: 1 unused scan count 2 new scan count 3 total_scan 14 last shrinker return val 40\n";
    let (events, _) = read(text);
    let Kind::ReclaimEnd {
        by,
        node,
        scanned,
        reclaimed,
        shrinker,
        ..
    } = &events[1].kind
    else {
        panic!()
    };
    assert_eq!((*by, *node), (Reclaimer::Shrinker, Some(1)));
    assert_eq!((*scanned, *reclaimed), (Some(50), Some(40)));
    assert_eq!(shrinker.as_deref(), Some("super_cache_scan"));
    let throttled = kind(
        "mm_vmscan_throttled: nid=0 usec_timeout=100000 usect_delayed=4000 reason=VMSCAN_THROTTLE_NOPROGRESS",
    );
    assert!(
        matches!(throttled, Kind::ReclaimEnd { duration: Some(Nanos(4_000_000)), reason: Some(reason), .. } if &*reason == "VMSCAN_THROTTLE_NOPROGRESS")
    );
    let compacts =
        "zone_start=0x1000 migrate_pfn=0x1000 free_pfn=0x40000 zone_end=0x40000, mode=sync";
    let begin = kind(&format!("mm_compaction_begin: {compacts}"));
    assert!(matches!(
        begin,
        Kind::CompactionBegin {
            synchronous: Some(true),
            ..
        }
    ));
    let end = kind(&format!("mm_compaction_end: {compacts} status=complete"));
    assert!(
        matches!(end, Kind::CompactionEnd { status: Some(status), .. } if &*status == "complete")
    );
    let other = kind(
        "mm_page_alloc_extfrag: page=00000000ab pfn=0x1234 alloc_order=0 fallback_order=3 pageblock_order=9 alloc_migratetype=1 fallback_migratetype=0 fragmenting=1 change_ownership=0",
    );
    assert!(matches!(
        other,
        Kind::Extfrag {
            frame: Some(0x1234),
            order: 0,
            fallback_order: Some(3),
            changed_ownership: Some(false),
            ..
        }
    ));
    let none = kind(
        "vm_unmapped_area: addr=0x0 err=-12 total_vm=0x26 flags=0x1 len=0x35000 lo=0x1000 hi=0x7fa412094000 mask=0xfff ofs=0x0",
    );
    let Kind::UnmappedArea {
        address,
        length,
        result,
        alignment,
        ..
    } = none
    else {
        panic!()
    };
    assert_eq!((address, result), (None, Some(-12)));
    assert_eq!((length, alignment), (Bytes(0x35000), Some(Bytes(4_096))));
}

#[test]
fn threads_wait_for_locks_disks_and_fences() {
    let begin = kind("contention_begin: 00000000deadbeef (flags=SPIN|READ)");
    let expected = Kind::LockBegin {
        lock: Some("SPIN|READ".into()),
        address: Some(0xdead_beef),
        write: Some(false),
    };
    assert_eq!(begin, expected);
    let end = kind("contention_end: 0xdeadbeef (ret=-4)");
    assert!(matches!(
        end,
        Kind::LockEnd {
            address: Some(0xdead_beef),
            result: Some(-4),
            ..
        }
    ));
    let issue = kind("block_rq_issue: 8,16 WS 4096 (a b) 2048 + 8 none,0,0 [kworker/0:1]");
    let expected = Kind::BlockIssue {
        device: "8:16".into(),
        sector: 2_048,
        length: Some(Bytes(4_096)),
        operation: Some("WS".into()),
    };
    assert_eq!(issue, expected);
    let insert = kind("block_rq_insert: 8,16 WS 4096 (a b) 2048 + 8 none,0,0 [kworker/0:1]");
    let expected = Kind::BlockInsert {
        device: "8:16".into(),
        sector: 2_048,
        length: Some(Bytes(4_096)),
        operation: Some("WS".into()),
    };
    assert_eq!(insert, expected);
    let merge = |length| Kind::BlockMerge {
        device: "8:16".into(),
        sector: 2_048,
        length: Some(Bytes(length)),
        operation: Some("WS".into()),
    };
    let bio = kind("block_bio_backmerge: 8,16 WS 2048 + 16 [a b]");
    assert_eq!(bio, merge(8_192));
    let request = kind("block_rq_merge: 8,16 WS 4096 () 2048 + 8 none,0,0 [a b]");
    assert_eq!(request, merge(4_096));
    let done = kind("block_rq_complete: 8,16 WS () 2048 + 8 none,0,0 [-5]");
    let expected = Kind::BlockComplete {
        device: "8:16".into(),
        sector: 2_048,
        length: Some(Bytes(4_096)),
        operation: Some("WS".into()),
        result: Some(-5),
    };
    assert_eq!(done, expected);
    let fence = kind("dma_fence_wait_start: driver=i915 timeline=rcs0 a context=9 seqno=77");
    let expected = Kind::FenceWaitBegin {
        driver: Some("i915".into()),
        timeline: Some("rcs0 a".into()),
        context: Some(9),
        seqno: Some(77),
    };
    assert_eq!(fence, expected);
}

#[test]
fn a_lock_of_a_file_has_its_range_and_its_result() {
    let line = |flags: &str, way: &str, end: &str, result: i32| {
        kind(&format!(
            "posix_lock_inode: fl=00000000b27 dev=0xfe:0x1 ino=0x1f2 fl_blocker=(nil) fl_owner=00000000c31 fl_pid=77 \
             fl_flags={flags} fl_type={way} fl_start=120 fl_end={end} ret={result}"
        ))
    };
    let refused = Kind::FileLock {
        lock: "fcntl".into(),
        device: "254:1".into(),
        inode: 0x1f2,
        start: 120,
        length: Some(Bytes(1)),
        write: Some(true),
        owner: 0xc31,
        result: -11,
    };
    assert_eq!(line("FL_POSIX|FL_ACCESS", "F_WRLCK", "120", -11), refused);
    let to_the_end = "9223372036854775807";
    let Kind::FileLock {
        lock,
        length,
        write,
        ..
    } = line("FL_POSIX|FL_OFDLCK", "F_UNLCK", to_the_end, 0)
    else {
        panic!("another kind");
    };
    assert_eq!((&*lock, length, write), ("open-file", None, None));
}

#[test]
fn a_signal_has_its_target() {
    let sent = kind("signal_generate: sig=19 errno=0 code=0 comm=a b pid=77 grp=1 res=0");
    let expected = Kind::Signal {
        signal: 19,
        target_tid: 77,
        target_pid: None,
        target_comm: Some("a b".into()),
        to_process: Some(true),
        result: Some(0),
    };
    assert_eq!(sent, expected);
}

/// By number, by name, and by both at once: each call once.
#[test]
fn a_call_is_told_once_in_whatever_form() {
    let raw = "a-7 [001] ..... 1.000001: sys_enter: NR 1 (3, 7ffc, 20, 0, 0, 0)\n";
    let named =
        "a-7 [001] ..... 1.000002: sys_write(fd: 3, buf: 0x7ffc \"x, y: z\", count: 0x20)\n";
    let report = "a-7 [001] 1.000002: sys_enter_write:      fd: 0x00000003, buf: 0x7ffc, count: 0x00000020\n";
    let ends = [
        "a-7 [001] ..... 1.000003: sys_exit: NR 1 = -11\n",
        "a-7 [001] ..... 1.000004: sys_write -> 0xfffffffffffffff5\n",
    ];
    if cfg!(not(target_arch = "x86_64")) {
        return; // the lines are of that machine
    }
    let expected = |arguments: usize| {
        let all = [Some(3), Some(0x7ffc), Some(0x20), Some(0), Some(0), Some(0)];
        let mut some = [None; 6];
        some[..arguments].copy_from_slice(&all[..arguments]);
        Kind::SyscallEnter {
            number: 1,
            name: Some("write".into()),
            arguments: some,
        }
    };
    let (first, _) = read(&format!("{raw}{named}{}{}", ends[0], ends[1]));
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].kind, expected(6));
    for (line, end) in [(named, ends[1]), (report, ends[1])] {
        let (events, _) = read(&format!("{line}{end}{line}{end}"));
        assert_eq!(events.len(), 4);
        assert_eq!(events[2].kind, expected(3));
        assert!(matches!(
            &events[3].kind,
            Kind::SyscallExit {
                number: 1,
                result: Some(-11),
                ..
            }
        ));
    }
    let (none, _) = read("a-7 [001] ..... 1.000001: sys_exit: NR -1 = 0\n");
    assert!(none.is_empty(), "a return from a signal's handler");
}

#[test]
fn processes_are_known_where_something_tells_them() {
    let text = "a-7 [000] ..... 1.000001: sched_process_exec: filename=/bin/a b pid=7 old_pid=7\n\
                x-7 [000] ..... 1.000002: task_newtask: pid=8 comm=a clone_flags=3d0f00 oom_score_adj=0\n\
                x-7 [000] ..... 1.000003: sched_process_fork: comm=a pid=7 child_comm=t 1 child_pid=8\n\
                x-8 [000] ..... 1.000004: sched_process_exit: comm=t 1 pid=8 prio=120\n\
                y-9 [000] ..... 1.000005: sched_process_exit: comm=y pid=9 prio=120\n";
    let (events, metadata) = read(text);
    let who: Vec<_> = events
        .iter()
        .map(|event| (event.tid, event.pid, event.comm.as_deref()))
        .collect();
    let expected = [
        (Some(7), Some(7), Some("a b")),
        (Some(7), Some(7), Some("a b")),
        (Some(8), Some(7), Some("t 1")),
        (Some(9), None, Some("y")),
    ];
    assert_eq!(who, expected);
    let missing: Vec<&str> = metadata.missing.iter().map(|m| &*m.what).collect();
    assert!(
        missing.contains(&"processes of some threads"),
        "{missing:?}"
    );
    let (_, metadata) = read(PERF);
    let missing: Vec<&str> = metadata.missing.iter().map(|m| &*m.what).collect();
    assert!(
        !missing.contains(&"processes of some threads"),
        "{missing:?}"
    );
    assert!(!missing.contains(&"nanoseconds"), "{missing:?}");
}

#[test]
fn losses_and_what_is_passed_over_are_counted() {
    let (events, metadata) = read(TRACE);
    assert!(!events.is_empty());
    let losses = metadata.losses.unwrap();
    assert_eq!((losses.len(), losses[0].count), (1, 76_544 - 66_896));
    assert_eq!(read(PERF).1.losses, None, "perf prints none unless asked");
    assert_eq!(read(TRACE_CMD).1.losses, Some(Vec::new()));

    let text = "cpus=2\nCPU 1 is empty\n\
                a-7 [000] 1.000001: sched_stat_runtime: comm=a pid=7 runtime=5\n\
                a-7 [000] 1.000002: print: x: one\nand another line\n\
                CPU:0 [LOST 12 EVENTS]\nCPU:0 [3 EVENTS DROPPED]\nCPU:1 [LOST EVENTS]\n\
                a-7 [000] 1.000003: sched_switch: [FAILED TO PARSE] prev_comm=a\n\
                a-7 [000] 1.000004: sched_process_exit: comm=a pid=7 prio=120\n";
    let (events, metadata) = read(text);
    assert_eq!(events.len(), 1);
    let losses = metadata.losses.unwrap();
    assert_eq!((&*losses[0].what, losses[0].count), ("CPU 0", 15));
    let missing: Vec<&str> = metadata.missing.iter().map(|m| &*m.what).collect();
    for what in [
        "1 events sched_stat_runtime",
        "1 events print",
        "1 events",
        "how many events were lost",
        "the clock",
        "nanoseconds",
    ] {
        assert!(missing.contains(&what), "{what}: {missing:?}");
    }
    let lost = "a 7 [000] 1.000001: PERF_RECORD_LOST lost 7\n";
    assert_eq!(read(lost).1.losses.unwrap()[0].count, 7);
}

#[test]
fn samples_are_where_a_thread_was() {
    let text = "a 7/8 [000] 1.000000001:  250000 cpu-clock:ppp: \n\
                \tffffffff821facd8 clear_page+0x8 ([kernel.kallsyms])\n\
                \t           f8350 main+0x10 (/usr/bin/a)\n\n\
                a 7/8 [000] 1.000000002:  250000 cpu-clock:  7f00 f+0x1 (/usr/bin/a)\n\
                a 7/8 [000] 1.000000003:  250000 cpu-clock: \n";
    let (events, metadata) = read(text);
    let stacks: Vec<&str> = events
        .iter()
        .map(|event| match &event.kind {
            Kind::Sample { stack } => &*stack.0,
            kind => panic!("{kind:?}"),
        })
        .collect();
    assert_eq!(stacks, ["main;clear_page_[k]", "f"]);
    assert!(
        metadata
            .missing
            .iter()
            .any(|missing| missing.what == "1 samples")
    );
}

#[test]
fn what_is_wrong_is_one_line() {
    let good = "a-7 [000] 1.000001: sched_process_exit: comm=a pid=7 prio=120\n";
    for (line, why) in [
        ("what is this", "line 2: neither an event"),
        (
            "a-7 [000] 1.000002: sched_switch: prev_comm=a prev_pi",
            "line 2: event sched_switch: no '==>'",
        ),
        (
            "a-7 [000] 1.000002: sched_waking: comm=a pid=x prio=1",
            "line 2: event sched_waking: no value that can be read for pid",
        ),
        (
            "a-7 [000] 1.000002: sys_enter: NR",
            "line 2: event sys_enter: no number after NR",
        ),
        (
            "a-7 [000] 1.000002: block_rq_issue: 8,0",
            "line 2: event block_rq_issue: not ",
        ),
    ] {
        let error = refused(&format!("{good}{line}\n"));
        assert!(error.starts_with(why), "{error}");
        // The events before it are given.
        assert_eq!(input(format!("{good}{line}\n").as_bytes()).count(), 2);
    }
    let error = refused(&format!("{good}{}\n", "x".repeat(100_000)));
    assert!(
        error.contains("line 2: it has more than 65536 bytes"),
        "{error}"
    );
    let mut input = input(good.as_bytes());
    input.next();
    assert_eq!(input.place(), Place::Line(1));
}

#[test]
fn other_text_is_not_taken_for_these() {
    for text in [
        "",
        "no trace\n",
        "{\"time_ns\":1,\"kind\":\"mark\",\"name\":\"a-1 [000] 5.5: x: y\"}\n",
        "# a comment alone\n",
        "a,b,c\na-7 [000] 1.000001: sched_process_exit: x\n",
    ] {
        assert!(!is_text(text.as_bytes()), "{text}");
    }
    for text in ["# tracer: nop\n#\n", "cpus=2\n", "CPU:1 [LOST 5 EVENTS]\n"] {
        assert!(is_text(text.as_bytes()), "{text}");
    }
}
