//! Captures of this process's own threads, as root.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stopgap_capture::{
    Capture, Error, Follow, Level, Options, Record, Task, TaskEvent, Wait, Waking, flag,
};
use stopgap_testing::{Skip, skip};

/// Number of clock_nanosleep(2).
pub(super) const CLOCK_NANOSLEEP: u32 = if cfg!(target_arch = "x86_64") {
    230
} else {
    115
};

/// One test at a time: each counts what is attached, or what its threads do.
pub(super) static ALONE: Mutex<()> = Mutex::new(());

/// Starts a capture of this process; `None` where that needs root or another kernel.
fn start() -> Option<Capture> {
    start_with(&Options::default())
}

/// As [`start`], with other options.
pub(super) fn start_with(options: &Options) -> Option<Capture> {
    let mut capture = match Capture::start(options) {
        Ok(capture) => capture,
        Err(Error::Unsupported(why)) if why.contains("Operation not permitted") => {
            skip(&Skip::root("capture by BPF"));
            return None;
        }
        Err(error) => {
            skip(&Skip::machine(error));
            return None;
        }
    };
    let us = Follow {
        process: Some(std::process::id()),
        ..Follow::all(Level::Whole)
    };
    assert!(
        capture.follow(&us).unwrap() >= 2,
        "this test and its harness"
    );
    Some(capture)
}

/// Carries `act` out while it is captured, and reads to the end; `None` as [`start`].
pub(super) fn captured<T>(act: impl FnOnce() -> T) -> Option<(T, Vec<Record>)> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut capture = start()?;
    let mut records = Vec::new();
    let mut keep = |_, bytes: &[u8]| records.push(Record::parse(bytes).unwrap());
    let came = act();
    capture.read(&mut keep);
    assert_eq!(capture.stop(&mut keep).unwrap(), 0, "records lost");
    // Each ring is in order by itself.
    records.sort_by_key(Record::time);
    Some((came, records))
}

/// Two threads that answer each other `rounds` times; their thread ids: who asks, who answers.
pub(super) fn ping_pong(rounds: usize) -> (u32, u32) {
    fn plays(first: bool, rounds: usize, (mut from, mut to): (PipeReader, PipeWriter)) -> u32 {
        for _ in 0..rounds {
            if first {
                to.write_all(b"?").unwrap();
            }
            from.read_exact(&mut [0]).unwrap();
            if !first {
                to.write_all(b"!").unwrap();
            }
        }
        own_tid()
    }
    let ((from_b, to_a), (from_a, to_b)) = (pipe().unwrap(), pipe().unwrap());
    let asks = thread::spawn(move || (plays(true, rounds, (from_b, to_b)), ()));
    let answers = thread::spawn(move || (plays(false, rounds, (from_a, to_a)), ()));
    (joined(asks).0, joined(answers).0)
}

pub(super) fn own_tid() -> u32 {
    let path = std::fs::read_link("/proc/thread-self").unwrap();
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// How often this thread has given up its CPU to sleep, as the kernel counts.
fn sleeps_of_this_thread() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let (_, rest) = status.split_once("\nvoluntary_ctxt_switches:").unwrap();
    rest.lines().next().unwrap().trim().parse().unwrap()
}

/// Joins a thread and waits for its end: who joins it goes on before the kernel has counted its switches and told its end.
pub(super) fn joined<T>(thread: thread::JoinHandle<(u32, T)>) -> (u32, T) {
    let (tid, result) = thread.join().unwrap();
    until_gone(tid);
    (tid, result)
}

/// Waits until the thread of this process is no more.
pub(super) fn until_gone(tid: u32) {
    wait_for("a thread's end", || {
        !Path::new(&format!("/proc/self/task/{tid}")).exists()
    });
}

/// Waits until the thread of this process sleeps: on a busy machine it is still on its way there.
pub(super) fn until_asleep(tid: u32) {
    let stat = format!("/proc/self/task/{tid}/stat");
    wait_for("a thread's sleep", || {
        std::fs::read_to_string(&stat).unwrap().contains(") S ")
    });
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{what}: it never came"
        );
        // No sleep: sleeps of this thread are counted, too.
        thread::yield_now();
    }
}

pub(super) fn waits_of(records: &[Record], tid: u32) -> Vec<&Wait> {
    let waits = records.iter().filter_map(|record| match record {
        Record::Wait(wait) if wait.tid == tid => Some(&**wait),
        _ => None,
    });
    waits.collect()
}

#[test]
fn a_thread_has_as_many_waits_as_the_kernel_counts_switches() {
    let Some((threads, records)) = captured(|| ping_pong(5_000)) else {
        return;
    };
    let mut counts: HashMap<u32, [&Task; 2]> = HashMap::new();
    for record in &records {
        if let Record::Task(task) = record {
            let pair = counts.entry(task.tid).or_insert([task, task]);
            pair[1] = task;
        }
    }
    for tid in [threads.0, threads.1] {
        let [begin, end] = counts[&tid];
        assert_eq!(begin.event, TaskEvent::Forked);
        assert_eq!(end.event, TaskEvent::Exited);
        let mut waits = waits_of(&records, tid);
        // It counted itself in its exit, and may lose its CPU after that.
        waits.retain(|wait| wait.left <= end.time);
        let seen = waits.iter().filter(|wait| wait.flags & flag::NEW == 0);
        let (slept, ready): (Vec<&Wait>, Vec<&Wait>) =
            seen.copied().partition(|wait| wait.state != 0);
        let differs = |ours: usize, kernel: u64| (ours as u64).abs_diff(kernel) > 2;
        assert!(
            !differs(slept.len(), end.voluntary),
            "{} of {}",
            slept.len(),
            end.voluntary
        );
        assert!(
            !differs(ready.len(), end.involuntary),
            "{} of {}",
            ready.len(),
            end.involuntary
        );
        let in_order = waits.windows(2).all(|pair| pair[0].ran <= pair[1].left);
        assert!(in_order, "a thread runs between two waits");
        let delay: u64 = waits
            .iter()
            .map(|wait| wait.ran - wait.woken.max(wait.left))
            .sum();
        // The kernel counts from when the thread is on the queue: later than the waking, where another CPU has to be woken first.
        let kernel = end.run_delay_ns;
        assert!(
            delay + delay / 10 + 1_000_000 >= kernel,
            "{delay} ns ready, the kernel counts {kernel}"
        );
    }
}

/// Threads that take their CPUs from one another and from all others. The kernel of some virtual machines tells no switch that comes from
/// a thread of the host's side; a wait that ends with one is there nonetheless, once the thread has left its CPU again.
#[test]
fn a_thread_that_computes_has_a_wait_for_each_switch() {
    let computes = || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(700) {
            std::hint::spin_loop();
        }
        (own_tid(), ())
    };
    let Some((tids, records)) = captured(|| {
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(computes)).collect();
        threads
            .into_iter()
            .map(|thread| joined(thread).0)
            .collect::<Vec<u32>>()
    }) else {
        return;
    };
    for tid in tids {
        let end = records.iter().find_map(|record| match record {
            Record::Task(task) if task.tid == tid && task.event == TaskEvent::Exited => Some(task),
            _ => None,
        });
        let end = end.expect("its end");
        let mut waits = waits_of(&records, tid);
        waits.retain(|wait| wait.left <= end.time && wait.flags & flag::NEW == 0);
        assert_eq!(waits.len() as u64, end.voluntary + end.involuntary);
        let in_order = waits.windows(2).all(|pair| pair[0].ran <= pair[1].left);
        assert!(in_order, "a thread runs between two waits");
    }
}

#[test]
fn a_wait_says_who_ended_it_in_which_call() {
    if cfg!(not(target_arch = "x86_64")) {
        return skip(&Skip::machine("the numbers of x86-64's system calls"));
    }
    let Some(((asks, answers), records)) = captured(|| ping_pong(1_000)) else {
        return;
    };
    let waits = waits_of(&records, answers);
    let read = |wait: &&&Wait| wait.call == Some(0) && wait.state == 1;
    let reads: Vec<_> = waits.iter().filter(read).collect();
    // On a busy machine the answer is often there before it is waited for.
    assert!(reads.len() > 50, "{} waits in read(2)", reads.len());
    for wait in &reads {
        assert_eq!(
            (wait.waker, wait.waker_call),
            (asks, Some(1)),
            "write(2) of the other"
        );
        assert_eq!(wait.waker_context, Some(Waking::Task));
        assert!(
            wait.left <= wait.woken && wait.woken <= wait.ran,
            "{wait:?}"
        );
        assert!(wait.ip != 0 && wait.sp != 0);
        assert_eq!(wait.arguments[2], 1, "one byte is read");
    }
    assert!(
        reads.iter().any(|wait| !wait.stack.is_empty()),
        "the first has a stack"
    );
    let of_place = records.iter().any(|record| {
        matches!(record, Record::UserStack(stack) if stack.ip == reads[0].ip && stack.tgid == std::process::id() && stack.bytes.len() >= 512)
    });
    assert!(of_place, "the program's stack where it reads");
}

#[test]
fn a_timer_wakes_in_an_interrupt_and_an_open_wait_is_written_down() {
    let (tell, told) = channel();
    let sleeper = thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        loop {
            thread::park();
        }
    });
    let tid = told.recv().unwrap();
    until_asleep(tid);
    let Some((_, records)) = captured(|| {
        let sleeps = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            own_tid()
        });
        let slept = sleeps.join().unwrap();
        thread::sleep(Duration::from_millis(5));
        slept
    })
    .map(|(slept, records)| {
        let long = waits_of(&records, slept);
        // A mapping's lock may be waited for as long on a busy machine.
        let timed = |wait: &&&Wait| {
            wait.call == Some(CLOCK_NANOSLEEP) && wait.woken.saturating_sub(wait.left) > 15_000_000
        };
        let wait = long.iter().find(timed).expect("the sleep of 20 ms");
        assert_eq!(wait.waker_context, Some(Waking::Interrupt), "{wait:?}");
        assert!(!wait.stack.is_empty(), "a long wait has its own stack");
        (slept, records)
    }) else {
        return;
    };
    let waits = waits_of(&records, tid);
    assert_eq!(waits.len(), 1, "it slept all the time: {waits:?}");
    let both = flag::BEGAN_BEFORE | flag::OPEN;
    assert_eq!(waits[0].flags & both, both);
    drop(sleeper);
}

/// A thread that was woken a moment before its last sleep began, and sleeps when the capture ends, waits for no CPU.
#[test]
fn a_thread_that_sleeps_to_the_end_was_not_woken() {
    let (tell, told) = channel();
    let Some(((sleeper, tid), records)) = captured(|| {
        let sleeper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            tell.send(own_tid()).unwrap();
            loop {
                thread::park();
            }
        });
        let tid = told.recv().unwrap();
        until_asleep(tid);
        (sleeper, tid)
    }) else {
        return;
    };
    let waits = waits_of(&records, tid);
    let last = waits.last().expect("it sleeps");
    assert_ne!(last.flags & flag::OPEN, 0, "{last:?}");
    assert_eq!(last.woken, 0, "{last:?}");
    drop(sleeper);
}

#[test]
fn a_wait_comes_at_the_next_reading_and_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut capture) = start() else { return };
    let mut records: Vec<(usize, Record)> = Vec::new();
    let mut all = 0;
    for round in 1..=100 {
        let sleeper = thread::spawn(|| {
            thread::sleep(Duration::from_micros(50));
            (own_tid(), sleeps_of_this_thread())
        });
        let (tid, slept) = sleeper.join().unwrap();
        capture.read(|number, bytes| records.push((number, Record::parse(bytes).unwrap())));
        let read = records.iter().filter(|(_, record)| {
            matches!(record, Record::Wait(wait) if wait.tid == tid && wait.state != 0)
        });
        let read = read.count() as u64;
        assert!(read >= slept, "{read} of {slept} sleeps of round {round}");
        all += slept;
    }
    // A timer that fires while the hypervisor has the CPU ends before its thread is off it: no sleep then.
    assert!(all > 50, "{all} sleeps");
    let lost = capture.stop(|number, bytes| records.push((number, Record::parse(bytes).unwrap())));
    assert_eq!(lost.unwrap(), 0);
    let mut last: HashMap<usize, u64> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for (number, record) in &records {
        let Record::Wait(wait) = record else { continue };
        let before = last.insert(*number, wait.ran).unwrap_or(0);
        assert!(before <= wait.ran, "waits of a sequence are in order");
        assert!(seen.insert((wait.tid, wait.left)), "twice: {wait:?}");
    }
}

/// A wait that ends while the open ones are written down has one record, that of its end.
#[test]
fn a_wait_that_ends_with_the_capture_comes_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..3 {
        let Some(mut capture) = start() else { return };
        let stopped = AtomicBool::new(false);
        let mut times: HashMap<(u32, u64), u32> = HashMap::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !stopped.load(Relaxed) {
                        thread::sleep(Duration::from_micros(20));
                    }
                });
            }
            thread::sleep(Duration::from_millis(20));
            let mut keep = |_, bytes: &[u8]| {
                if let Record::Wait(wait) = Record::parse(bytes).unwrap() {
                    *times.entry((wait.tid, wait.left)).or_default() += 1;
                }
            };
            capture.read(&mut keep);
            let lost = capture.stop(&mut keep);
            stopped.store(true, Relaxed);
            assert_eq!(lost.unwrap(), 0);
        });
        let twice = times.values().filter(|&&count| count > 1).count();
        assert_eq!(twice, 0, "of {} waits", times.len());
    }
}

/// Stacks of programs are dear. Where the reader does not come, waits go first: none is lost while there is room for them.
#[test]
fn stacks_leave_room_for_waits() {
    const THREADS: usize = 400;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = Options {
        ring_bytes: 2 << 20,
        ..Options::default()
    };
    let Some(capture) = start_with(&options) else {
        return;
    };
    // Each has a stack pointer of its own, so that its stack is another.
    let threads: Vec<_> = (0..THREADS)
        .map(|_| thread::spawn(|| thread::sleep(Duration::from_millis(1))))
        .collect();
    threads.into_iter().for_each(|one| one.join().unwrap());
    let (mut waits, mut stacks) = (0, 0);
    let lost = capture.stop(|_, bytes| match Record::parse(bytes).unwrap() {
        Record::Wait(_) => waits += 1,
        Record::UserStack(_) => stacks += 1,
        _ => {}
    });
    assert_eq!(lost.unwrap(), 0, "{waits} waits, {stacks} stacks");
    assert!(
        waits > THREADS && stacks > 10,
        "{waits} waits, {stacks} stacks"
    );
}

/// Programs of ours that the kernel has, of any process.
fn loaded() -> usize {
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let ours = programs.filter(|program| program.name_as_str() == Some("on_waking"));
    ours.count()
}

/// Waits until the kernel has fewer of our programs than `before`: it frees them after a grace period.
fn assert_fewer(before: usize) {
    wait_for("the end of a program of the kernel's", || loaded() < before);
}

#[test]
fn nothing_stays_attached() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(capture) = start() else { return };
    let with = loaded();
    assert!(with > 0);
    drop(capture);
    assert_fewer(with);
}

/// Set in a copy of this test that is to be killed.
const HOLD: &str = "STOPGAP_TEST_HOLDS_A_CAPTURE";

#[test]
fn nothing_stays_attached_of_a_killed_process() {
    if std::env::var_os(HOLD).is_some() {
        let _capture = start();
        println!("holds");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if start().is_none() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let mut copy = Command::new(own);
    copy.args([
        "--exact",
        "live::nothing_stays_attached_of_a_killed_process",
        "--nocapture",
    ]);
    let mut copy = copy.env(HOLD, "1").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(copy.stdout.take().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.ends_with("holds"))
    );
    let with = loaded();
    assert!(with > 0);
    copy.kill().unwrap();
    copy.wait().unwrap();
    assert_fewer(with);
}
