//! Whether the programs load on this kernel and count right: two threads of this process answer each other, and their
//! waits are held against the kernel's own counts; what this process maps and unmaps is held against the calls that were seen, and who is
//! said to hold a file's lock against who does.
//! Prints a line, and ends with status 1 where something does not hold.
//!
//!     cargo run --release -p stopgap-capture --example self_check

use std::collections::HashMap;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::thread;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stopgap_capture::{
    Capture, Follow, Level, LockOwner, Options, Part, Record, Task, TaskEvent, flag,
};

/// Round trips of the two threads.
const ROUNDS: usize = 2_000;
/// By how many waits a thread's count may differ from the kernel's: one at each edge.
const EDGES: u64 = 2;

fn main() -> ExitCode {
    match check() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<String, Box<dyn std::error::Error>> {
    let start = |parts: Vec<Part>| {
        Capture::start(&Options {
            parts,
            whole_machine: true,
            histograms: Some(256),
            ..Options::default()
        })
    };
    // By all calls, then by the functions of those that map.
    let by_calls = start(vec![Part::Calls])?;
    let no_calls: Vec<String> = lacking(&by_calls);
    let mapped = map_and_unmap(by_calls, no_calls.is_empty())?;
    let by_functions = start(vec![Part::AddressSpace])?;
    let has_functions = by_functions.lacks().is_empty();
    let mapped_by_functions = map_and_unmap(by_functions, has_functions)?;
    let mut parts = Part::ALL.to_vec();
    parts.retain(|&part| part != Part::Calls);
    let mut capture = start(parts)?;
    capture.follow(&Follow::all(Level::Waits))?;
    capture.follow(&Follow {
        process: Some(std::process::id()),
        ..Follow::all(Level::Whole)
    })?;
    let mut lacks = lacking(&capture);
    lacks.extend(no_calls);
    let (mut records, mut malformed) = (Vec::new(), 0);
    let mut keep = |_, bytes: &[u8]| match Record::parse(bytes) {
        Ok(record) => records.push(record),
        Err(_) => malformed += 1,
    };
    let ((from_b, to_a), (from_a, to_b)) = (pipe()?, pipe()?);
    let asks = thread::spawn(move || plays(true, from_b, to_b));
    let answers = thread::spawn(move || plays(false, from_a, to_a));
    let played = [asks.join(), answers.join()];
    // A thread is joined before it tells of its exit (do_exit(), kernel/exit.c), and is in the folder until after that.
    while std::fs::read_dir("/proc/self/task")?.count() > 1 {
        thread::sleep(std::time::Duration::from_millis(1));
    }
    let locked = find_locked()?;
    capture.read(&mut keep);
    capture.turn()?;
    thread::sleep(std::time::Duration::from_millis(20));
    let counted = capture.histograms()?;
    let lost = capture.stop(&mut keep)?;
    for one in played {
        one.map_err(|_| "a thread panicked")??;
    }
    records.sort_by_key(Record::time);
    let (waits, stacks, user_stacks) = kinds(&records);
    let threads = compare(&records)?;
    if !lacks.iter().any(|lack| lack.starts_with("file-locks")) {
        names_holder(&records, locked)?;
    }
    // Both the asking and the answering thread sleep at least once a round, in any call.
    let counted: u64 = counted.iter().map(|histogram| histogram.waits).sum();
    if counted < 2 * ROUNDS as u64 - EDGES {
        return Err(format!("{counted} waits in histograms, of {ROUNDS} round trips").into());
    }
    if malformed > 0 || lost > 0 {
        return Err(format!("{malformed} records are malformed, {lost} are lost").into());
    }
    if threads < 2 || stacks == 0 || user_stacks == 0 {
        return Err(format!(
            "{threads} threads compared, {stacks} kernel stacks, {user_stacks} user stacks"
        )
        .into());
    }
    let lacks = if lacks.is_empty() {
        "nothing".to_owned()
    } else {
        lacks.join(", ")
    };
    Ok(format!(
        "right: {waits} waits, {stacks} kernel stacks, {user_stacks} user stacks, {threads} threads as the kernel counts, \
         {mapped} and {mapped_by_functions} mappings; lacks {lacks}"
    ))
}

fn lacking(capture: &Capture) -> Vec<String> {
    let lacks = capture.lacks().iter();
    lacks
        .map(|(part, why)| format!("{}: {why}", part.word()))
        .collect()
}

/// Finds a file locked by another open file of this thread; returns its inode.
fn find_locked() -> std::io::Result<u64> {
    let folder = std::env::temp_dir();
    let folder = match folder.is_dir() {
        true => folder,
        false => "/".into(),
    };
    let path = folder.join(format!("stopgap-self-check-{}", std::process::id()));
    let (holder, other) = (File::create(&path)?, File::create(&path)?);
    std::fs::remove_file(&path)?;
    flock(&holder, FlockOperation::LockExclusive)?;
    match flock(&other, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(holder.metadata()?.ino()),
        Ok(()) => Err(std::io::Error::other("a file was locked twice")),
        Err(error) => Err(error.into()),
    }
}

/// Holds the attempt of [`find_locked`] against what was seen of it.
fn names_holder(records: &[Record], inode: u64) -> Result<(), String> {
    let own = std::process::id();
    let of_it = records.iter().find_map(|record| match record {
        Record::FileLock(lock) if lock.tid == own && lock.inode == inode => Some(lock),
        _ => None,
    });
    match of_it {
        Some(lock) if lock.holder == Some(own) && lock.owner == LockOwner::Flock => Ok(()),
        other => Err(format!(
            "thread {own} holds inode {inode}; seen was {other:?}"
        )),
    }
}

/// Maps and unmaps memory that malloc(3) asks the kernel for each time, and looks for these calls with their results; how many.
fn map_and_unmap(
    mut capture: Capture,
    expected: bool,
) -> Result<usize, Box<dyn std::error::Error>> {
    /// Above the largest size that the C library keeps (`M_MMAP_THRESHOLD`).
    const BYTES: usize = 64 << 20;
    const TIMES: usize = 50;
    let us = Follow {
        process: Some(std::process::id()),
        ..Follow::all(Level::Whole)
    };
    capture.follow(&us)?;
    let mut made = Vec::new();
    for _ in 0..TIMES {
        let memory: Vec<u8> = Vec::with_capacity(BYTES);
        made.push(std::hint::black_box(&memory).as_ptr() as u64);
    }
    let mut records = Vec::new();
    capture.stop(|_, bytes| records.extend(Record::parse(bytes)))?;
    records.sort_by_key(Record::time);
    let (mut last, mut mapped, mut unmapped) = (None, Vec::new(), 0);
    for record in &records {
        match record {
            Record::Enter(enter) => last = Some(enter),
            Record::Leave(leave) => {
                let Some(enter) = last.filter(|enter| leave.call == Some(enter.call)) else {
                    continue;
                };
                // Only mmap returns the address of a mapping; only munmap takes one.
                let (length, result) = (enter.arguments[1], leave.result as u64);
                let whole = (BYTES as u64..BYTES as u64 + 65536).contains(&length);
                if whole && result == 0 && mapped.contains(&enter.arguments[0]) {
                    unmapped += 1;
                } else if whole {
                    mapped.push(result);
                }
            }
            _ => {}
        }
    }
    if !expected {
        return Ok(0);
    }
    let of_made = |(made, mapped): (&u64, &u64)| (*mapped..*mapped + 4096).contains(made);
    let right = mapped.len() == TIMES && made.iter().zip(&mapped).all(of_made);
    if !right || unmapped != TIMES {
        let mapped = mapped.len();
        return Err(format!(
            "{TIMES} times memory was mapped and unmapped; seen were {mapped} and {unmapped}"
        )
        .into());
    }
    Ok(mapped.len())
}

fn plays(first: bool, mut from: PipeReader, mut to: PipeWriter) -> std::io::Result<()> {
    for _ in 0..ROUNDS {
        if first {
            to.write_all(b"?")?;
        }
        from.read_exact(&mut [0])?;
        if !first {
            to.write_all(b"!")?;
        }
    }
    Ok(())
}

/// Waits, those with a stack of their own, and stacks of programs.
fn kinds(records: &[Record]) -> (usize, usize, usize) {
    let (mut waits, mut stacks, mut user_stacks) = (0, 0, 0);
    for record in records {
        match record {
            Record::Wait(wait) => {
                waits += 1;
                stacks += usize::from(!wait.stack.is_empty());
            }
            Record::UserStack(_) => user_stacks += 1,
            _ => {}
        }
    }
    (waits, stacks, user_stacks)
}

/// Compares the waits of the threads that this process made with what the kernel counts; how many threads.
fn compare(records: &[Record]) -> Result<usize, String> {
    let mut ours: HashMap<u32, u64> = HashMap::new();
    let mut ended: HashMap<u32, &Task> = HashMap::new();
    for record in records {
        match record {
            // A thread counts itself in its exit, and may lose its CPU after that.
            Record::Wait(wait) if wait.flags & flag::NEW == 0 && !ended.contains_key(&wait.tid) => {
                *ours.entry(wait.tid).or_default() += 1;
            }
            Record::Task(task)
                if task.tgid == std::process::id()
                    && task.tid != task.tgid
                    && task.event == TaskEvent::Exited =>
            {
                ended.insert(task.tid, task);
            }
            _ => {}
        }
    }
    for (tid, task) in &ended {
        let kernel = task.voluntary + task.involuntary;
        let waits = ours.get(tid).copied().unwrap_or_default();
        if kernel.abs_diff(waits) > EDGES || waits < ROUNDS as u64 / 4 {
            return Err(format!(
                "thread {tid}: {waits} waits, the kernel counts {kernel} switches"
            ));
        }
    }
    Ok(ended.len())
}
