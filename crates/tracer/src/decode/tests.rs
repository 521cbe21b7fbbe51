//! The fixture: what a kernel 6.18 wrote while `sh -c '/bin/true; echo hi | cat >/dev/null'` ran,
//! and what the same kernel printed of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::*;
use crate::spool::{Spool, pages_of};
use crate::trace::{Pages, Source as _};
use stopgap_events::wait::{Context, Wait};

/// Kinds that do not come out of a trace.
const MADE_INTO_OTHERS: [&str; 4] = ["lock-begin", "switch", "waking", "new"];

/// As counted in the kernel's own text; only the decoder uses `task_newtask`.
const COUNTS: [(&str, usize); 11] = [
    ("syscall-exit", 244), // and three of sigreturn, which has no number any more when it ends
    ("syscall-enter", 247),
    ("page-fault", 228),
    ("lock-begin", 173),
    ("unmapped-area", 32),
    ("switch", 17),
    ("waking", 8),
    ("exit", 4),
    ("exec", 3),
    ("fork", 3),
    ("new", 3),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn description() -> Description {
    Spool::open(&fixtures()).unwrap().description().clone()
}

fn page_layout() -> crate::page::PageLayout {
    crate::page::PageLayout::parse("header_page", &description().header_page).unwrap()
}

/// The events of the fixture's pages, as the kernel told them.
fn events_of(symbols: Symbols) -> (Vec<Event>, Vec<Missing>) {
    let description = description();
    let file = |cpu: u32| File::open(fixtures().join(pages_of(cpu))).unwrap();
    let sources = description.cpus.iter().map(|&cpu| (cpu, file(cpu)));
    let pages = Pages::new(
        &description,
        page_layout(),
        symbols,
        sources.collect(),
        Vec::new(),
    );
    read(pages.unwrap())
}

fn read(mut pages: Pages<impl Read>) -> (Vec<Event>, Vec<Missing>) {
    let mut events = Vec::new();
    while let Some(event) = pages.next_event().unwrap() {
        events.push(event);
    }
    (events, pages.report().missing)
}

fn events() -> Vec<Event> {
    events_of(Symbols::default()).0
}

/// The trace has waits in place of switches and wake-ups, and spans in place of their ends.
#[test]
fn a_trace_has_waits_and_spans() {
    let spool = Spool::open(&fixtures()).unwrap();
    let mut trace = spool.trace(&Symbols::default()).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    let mut waits = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        *counts.entry(event.kind.word()).or_insert(0) += 1;
        if let Kind::Wait(wait) = event.kind {
            waits.push((event.tid.unwrap(), *wait));
        }
    }
    let kept = COUNTS
        .iter()
        .filter(|(word, _)| !MADE_INTO_OTHERS.contains(word));
    let mut expected: std::collections::BTreeMap<&str, usize> = kept.copied().collect();
    expected.extend([("wait", waits.len()), ("span", counts["span"])]);
    assert_eq!(counts, expected);
    // A wait begins where a thread that is not idle leaves its CPU, or is new.
    let begins = |event: &&Event| match event.kind {
        Kind::Switch { .. } => event.tid != Some(0),
        Kind::New { .. } => true,
        _ => false,
    };
    let known = |wait: &&(u32, Wait)| !wait.1.began_before;
    let begun = events().iter().filter(begins).count();
    assert_eq!(waits.iter().filter(known).count(), begun, "{waits:#?}");
}

#[test]
fn every_event_that_the_kernel_printed_is_there_in_order() {
    let events = events();
    let mut counts = std::collections::BTreeMap::new();
    for event in &events {
        *counts.entry(event.kind.word()).or_insert(0) += 1;
    }
    let expected = COUNTS.iter().copied().collect();
    assert_eq!(counts, expected);
    assert!(events.is_sorted_by_key(|event| event.time));
}

#[test]
fn a_switch_says_who_left_and_why() {
    let events = events();
    let first = &events[1];
    assert_eq!((first.tid, first.cpu), (Some(28028), Some(1)));
    assert_eq!(first.comm.as_deref(), Some("rustc"));
    let Kind::Switch {
        state,
        preempted,
        priority,
        next_tid,
        stack,
        ..
    } = &first.kind
    else {
        panic!("{first:?}");
    };
    assert_eq!(state.as_deref(), Some("R"));
    assert_eq!((*priority, *next_tid), (Some(120), Some(29414)));
    assert_eq!((*preempted, stack), (Some(false), &None));
    // Every one that blocks has its stack; who is ready has none.
    let mut blocked = 0;
    for event in &events {
        if let Kind::Switch { state, stack, .. } = &event.kind {
            let runs = state.as_deref() == Some("R");
            assert_eq!(stack.is_none(), runs, "{event:?}");
            blocked += i32::from(!runs);
        }
    }
    assert!(blocked > 3, "{blocked}");
}

#[test]
fn processes_and_names_are_learned() {
    let events = events();
    let of = |tid: u32, word: &str| {
        let found = events
            .iter()
            .find(|event| event.tid == Some(tid) && event.kind.word() == word);
        found.unwrap_or_else(|| panic!("no {word} of {tid}"))
    };
    // A vfork: a process of its own, with the name of its maker until its exec.
    let Kind::Fork {
        target_tid,
        target_pid,
        ..
    } = of(29414, "fork").kind
    else {
        panic!()
    };
    assert_eq!((target_tid, target_pid), (29419, Some(29419)));
    assert_eq!(of(29419, "exec").pid, Some(29419));
    let exit = of(29419, "exit");
    assert_eq!(
        (exit.pid, exit.comm.as_deref()),
        (Some(29419), Some("true"))
    );
    let Kind::SyscallEnter {
        number,
        name,
        arguments,
    } = &of(29414, "syscall-enter").kind
    else {
        panic!()
    };
    assert_eq!((*number, name.as_deref()), (59, Some("execve")));
    assert_eq!(arguments[0], Some(0x7f54_5c08_3f20));
    assert_eq!(arguments[5], Some(2));
}

#[test]
fn memory_is_decoded() {
    let events = events();
    let area = events
        .iter()
        .find(|event| event.kind.word() == "unmapped-area")
        .unwrap();
    let Kind::UnmappedArea {
        address,
        length,
        top_down,
        total,
        result,
        ..
    } = area.kind
    else {
        panic!()
    };
    assert_eq!((address, length.0), (Some(0x7f88_20d8_8000), 0x35000));
    assert_eq!(
        (top_down, total.unwrap().0, result),
        (Some(true), 0x43, None)
    );
}

/// `mm_compaction_try_to_compact_pages` says for what, then begins and ends come zone by zone.
#[test]
fn a_compaction_is_of_the_allocation_that_asked_for_it() {
    const COMMON: &str = "format:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    let compact = format!(
        "name: mm_compaction_try_to_compact_pages\nID: 668\n{COMMON}\
         \tfield:int order;\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:unsigned long gfp_mask;\toffset:16;\tsize:8;\tsigned:0;\n\n\
         print fmt: \"order=%d gfp_mask=%s\", REC->order, \
         __print_flags(REC->gfp_mask, \"|\", {{ 0x40, \"__GFP_IO\" }}, {{ 0x80, \"__GFP_FS\" }})\n"
    );
    let begin = format!(
        "name: mm_compaction_begin\nID: 670\n{COMMON}\
         \tfield:bool sync;\toffset:40;\tsize:1;\tsigned:0;\n\n\
         print fmt: \"mode=%s\", REC->sync ? \"sync\" : \"async\"\n"
    );
    let formats = [
        ("compaction:mm_compaction_try_to_compact_pages", compact),
        ("compaction:mm_compaction_begin", begin),
    ];
    let description = Description {
        formats: formats.map(|(name, text)| (name.to_owned(), text)).into(),
        ..Description::default()
    };
    let (mut decoder, missing) = Decoder::new(&description, Symbols::default()).unwrap();
    assert_eq!(missing, []);
    let record = |id: u16, tid: u32| {
        let mut record = vec![0; 41];
        record[..2].copy_from_slice(&id.to_le_bytes());
        record[4..8].copy_from_slice(&tid.to_le_bytes());
        record
    };
    let mut asked = record(668, 7);
    asked[8] = 9;
    asked[16] = 0xc0;
    assert_eq!(decoder.decode(0, 1, &asked, None), Ok(None));
    let mut said = |tid| {
        let event = decoder.decode(0, 2, &record(670, tid), None).unwrap();
        match event.unwrap().kind {
            Kind::CompactionBegin { order, gfp, .. } => (order, gfp.map(|gfp| gfp.to_string())),
            other => panic!("{other:?}"),
        }
    };
    let known = (Some(9), Some("__GFP_IO|__GFP_FS".to_owned()));
    assert_eq!((said(7), said(7)), (known.clone(), known));
    assert_eq!(said(8), (None, None), "another thread asked for nothing");
}

#[test]
fn stacks_have_names_and_begin_at_the_scheduler() {
    let stack = |symbols: Symbols| {
        let (events, missing) = events_of(symbols);
        let stack = events.iter().find_map(|event| match &event.kind {
            Kind::Switch { stack, .. } => stack.clone(),
            _ => None,
        });
        let unnamed = missing.iter().any(|m| m.what.contains("kernel functions"));
        (stack.unwrap(), unnamed)
    };
    let (plain, unnamed) = stack(Symbols::default());
    assert!(unnamed && plain.frames().all(|frame| frame.starts_with("0xffff")));
    // The third of the frames is the scheduler, as the kernel printed it.
    let frames: Vec<&str> = plain.frames().collect();
    let schedule = frames[frames.len() - 3].trim_end_matches("_[k]");
    let kallsyms = format!("{} t __schedule\n", schedule.trim_start_matches("0x"));
    let (named, unnamed) = stack(Symbols::parse(&kallsyms));
    assert!(!unnamed);
    assert_eq!(named.frames().next_back(), Some("__schedule_[k]"));
    assert_eq!(named.frames().count(), frames.len() - 2);
}

#[test]
fn what_this_kernel_lacks_is_missing_by_name() {
    let mut description = description();
    let change = |description: &mut Description, event: &str, from: &str, to: &str| {
        let text = description.formats.get_mut(event).unwrap();
        assert!(text.contains(from), "{event}");
        *text = text.replace(from, to);
    };
    let said = |description: &Description| {
        let (_, missing) =
            Decoder::new(description, Symbols::default()).unwrap_or_else(|error| panic!("{error}"));
        missing
            .iter()
            .map(|missing| format!("{}: {}\n", missing.what, missing.why))
            .collect::<String>()
    };
    assert_eq!(said(&description), "");
    change(
        &mut description,
        "sched:sched_switch",
        "prev_prio;",
        "prev_priority;",
    );
    let without = said(&description);
    assert!(
        without.contains("field prev_prio of event sched:sched_switch"),
        "{without}"
    );
    change(
        &mut description,
        "sched:sched_waking",
        "pid_t pid;",
        "pid_t tid;",
    );
    let without = said(&description);
    assert!(
        without.contains("event sched:sched_waking: this kernel's has no field pid"),
        "{without}"
    );
    change(&mut description, "sched:sched_waking", "ID: ", "ID: x");
    let error = Decoder::new(&description, Symbols::default())
        .map(|_| ())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("format of sched:sched_waking: the ID"),
        "{error}"
    );
}

/// A field that has moved is found where the format says.
#[test]
fn a_field_that_moved_is_followed() {
    let mut description = description();
    let text = description.formats.get_mut("sched:sched_waking").unwrap();
    *text = text
        .replace("prio;\toffset:28", "prio;\toffset:32")
        .replace("target_cpu;\toffset:32", "target_cpu;\toffset:28");
    let (mut decoder, _) = Decoder::new(&description, Symbols::default()).unwrap();
    let format = Format::parse("", &description.formats["sched:sched_waking"]).unwrap();
    let mut record = vec![0; 36];
    record[..2].copy_from_slice(&format.id.to_le_bytes());
    record[28] = 1;
    record[32] = 120;
    let event = decoder.decode(0, 5, &record, None).unwrap().unwrap();
    let Kind::Waking {
        target_priority,
        target_cpu,
        ..
    } = event.kind
    else {
        panic!()
    };
    assert_eq!((target_priority, target_cpu), (Some(120), Some(1)));
    record.truncate(10);
    let error = decoder.decode(0, 5, &record, None).unwrap_err();
    assert!(
        error.contains("event sched:sched_waking: a record of 10 bytes"),
        "{error}"
    );
    assert_eq!(decoder.decode(0, 5, &[0xff, 0xff, 0, 0], None), Ok(None));
    assert!(decoder.decode(0, 5, &[1], None).is_err());
}

/// The flags at the begin of a record say on whose behalf the CPU woke the thread.
#[test]
fn a_waking_says_its_context() {
    let description = description();
    let (mut decoder, _) = Decoder::new(&description, Symbols::default()).unwrap();
    let format = Format::parse("", &description.formats["sched:sched_waking"]).unwrap();
    let mut context = |flags: u8| {
        let mut record = vec![0; 36];
        record[..2].copy_from_slice(&format.id.to_le_bytes());
        record[2] = flags;
        match decoder.decode(0, 5, &record, None).unwrap().unwrap().kind {
            Kind::Waking { waker_context, .. } => waker_context,
            kind => panic!("{kind:?}"),
        }
    };
    // Interrupts are off in all of them, and the thread is to give up its CPU.
    let expected = [
        Context::Task,
        Context::Softirq,
        Context::Interrupt,
        Context::Interrupt,
    ];
    assert_eq!(
        [0x05, 0x15, 0x1d, 0x45].map(&mut context),
        expected.map(Some)
    );
    assert_eq!(context(0x85), Some(Context::Task), "softirqs are off");
}

/// Damaged pages cost only their own events, and the damage is reported.
#[test]
fn damage_is_told_and_passed_over() {
    let description = description();
    let mut bytes = std::fs::read(fixtures().join("cpu1.raw")).unwrap();
    bytes[4096 + 8..4096 + 12].copy_from_slice(&0x000f_ffff_u32.to_le_bytes());
    bytes.truncate(bytes.len() - 4096 - 5000);
    let sources = vec![(1, std::io::Cursor::new(bytes))];
    let pages = Pages::new(
        &description,
        page_layout(),
        Symbols::default(),
        sources,
        Vec::new(),
    );
    let (events, missing) = read(pages.unwrap());
    assert!(events.len() > 400, "{}", events.len());
    let said = format!("{missing:?}");
    assert!(said.contains("CPU 1, page 1"), "{said}");
    assert!(
        said.contains("CPU 1, page 7"),
        "the page that is cut: {said}"
    );
}
