//! What is captured, held against a truth that the test or another part of the kernel knows.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stopgap_capture::{Capture, Follow, Level, Options, Record, TaskEvent, Wait, flag};
use stopgap_testing::{Skip, skip};

use super::live::{captured, joined, own_tid, ping_pong, until_gone, waits_of};

/// After so many nanoseconds a cgroup has CPU time again.
const PERIOD: u64 = 50_000_000;

/// A cgroup with a tenth of a CPU; it goes with this.
struct Quota(PathBuf);

impl Quota {
    fn new() -> Option<Quota> {
        let folder = format!("/sys/fs/cgroup/cpu/stopgap-test-{}", std::process::id());
        let quota = Quota(folder.into());
        std::fs::create_dir(&quota.0).ok()?;
        std::fs::write(
            quota.0.join("cpu.cfs_period_us"),
            (PERIOD / 1000).to_string(),
        )
        .ok()?;
        std::fs::write(quota.0.join("cpu.cfs_quota_us"), "5000").ok()?;
        Some(quota)
    }

    /// Nanoseconds for which the kernel says that threads in it were throttled.
    fn throttled(&self) -> u64 {
        let text = std::fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("throttled_time "));
        line.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Nanoseconds for which this thread was ready to run, throttled ones too, as the kernel counts.
fn run_delay() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    counts.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_thread_whose_cgroup_has_no_cpu_time_left_is_throttled() {
    let Some(quota) = Quota::new() else {
        return skip(&Skip::machine("no cgroup of version 1 with a CPU quota"));
    };
    let tasks = quota.0.join("tasks");
    let came = captured(|| {
        let free = thread::spawn(|| {
            spin(Duration::from_millis(50));
            own_tid()
        });
        let free = free.join().unwrap();
        let quota = &quota;
        let squeezed = thread::scope(|scope| {
            let squeezed = scope.spawn(move || {
                std::fs::write(tasks, own_tid().to_string()).unwrap();
                // Where others have the CPU it needs more time for its quota.
                while quota.throttled() < 200_000_000 {
                    spin(Duration::from_millis(10));
                }
                (own_tid(), run_delay())
            });
            squeezed.join().unwrap()
        });
        until_gone(squeezed.0);
        (free, squeezed)
    });
    let Some(((free, (squeezed, delay)), records)) = came else {
        return;
    };
    let throttled = |tid| -> Vec<&Wait> {
        let waits = waits_of(&records, tid).into_iter();
        waits
            .filter(|wait| wait.flags & flag::THROTTLED != 0)
            .collect()
    };
    assert!(throttled(free).is_empty(), "a thread without a quota");
    let waits = throttled(squeezed);
    let ours: u64 = waits.iter().map(|wait| wait.ran - wait.left).sum();
    let kernel = quota.throttled();
    assert!(
        kernel - kernel / 10 <= ours,
        "{ours} ns, the kernel counts {kernel}"
    );
    // Ours goes on until the thread has a CPU again, which others may keep; the kernel counts all of that as one.
    let most = kernel.max(delay) + kernel / 4 + PERIOD;
    assert!(
        ours < most,
        "{ours} ns, the kernel counts {kernel} of {delay}"
    );
}

#[test]
fn a_stop_says_how_long_and_a_signal_by_whom() {
    let came = captured(|| {
        let mut target = Command::new("sleep").arg("10").spawn().unwrap();
        let kill = |signal: &str| {
            let mut kill = Command::new("kill");
            let mut kill = kill
                .arg(signal)
                .arg(target.id().to_string())
                .spawn()
                .unwrap();
            assert!(kill.wait().unwrap().success());
            kill.id()
        };
        thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        let senders = [
            kill("-STOP"),
            {
                // On a busy machine it stops later than asked.
                let stat = format!("/proc/{}/stat", target.id());
                let stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
                while !stopped() {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(60));
                kill("-CONT")
            },
            kill("-TERM"),
        ];
        target.wait().unwrap();
        (target.id(), senders, begin.elapsed())
    });
    let Some(((target, senders, most), records)) = came else {
        return;
    };
    let stops: Vec<u64> = waits_of(&records, target)
        .iter()
        .filter(|wait| wait.state & 4 != 0)
        .map(|wait| wait.woken - wait.left)
        .collect();
    let times = Duration::from_millis(60)..most;
    assert!(
        matches!(stops[..], [stop] if times.contains(&Duration::from_nanos(stop))),
        "{stops:?} ns, {times:?}"
    );
    for (number, sender) in [19, 18, 15].into_iter().zip(senders) {
        let sent = records.iter().any(|record| {
            matches!(record, Record::Signal(signal) if signal.number == number
                && (signal.tid, signal.target, signal.to_process) == (sender, target, true))
        });
        assert!(sent, "signal {number} by {sender}");
    }
    let ended = records.iter().any(
        |record| matches!(record, Record::Task(task) if task.tid == target && task.event == TaskEvent::Exited),
    );
    assert!(ended, "its end");
}

/// Set in a copy of this test that is refused.
const REFUSED: &str = "STOPGAP_TEST_IS_REFUSED";

#[test]
fn a_refusal_is_one_line_that_says_what_helps() {
    if std::env::var_os(REFUSED).is_some() {
        match Capture::start(&Options::default()) {
            Ok(_) => println!("refused: no"),
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    if captured(|| ()).is_none() {
        return;
    }
    let test = "truths::a_refusal_is_one_line_that_says_what_helps";
    let refused = |script: &str| {
        let mut shell = Command::new("sh");
        let shell = shell
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap());
        let shell = shell
            .args(["--exact", test, "--nocapture"])
            .env(REFUSED, "1");
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let from = text
            .split_once("refused: ")
            .map(|(_, line)| line.to_owned());
        from.unwrap_or_else(|| panic!("{script}: {output:?}"))
    };
    // `setpriv` keeps the user: the test's program may lie in a folder that only root may read.
    let by_rights = refused(
        "exec setpriv --bounding-set -all --inh-caps -all --securebits +noroot,+noroot_locked \"$0\" \"$@\"",
    );
    let first = by_rights.lines().next().unwrap();
    assert!(
        first.contains("Operation not permitted") && first.contains("CAP_BPF"),
        "{by_rights}"
    );
    let without_btf = refused(
        "exec unshare -m sh -c 'mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$0\" \"$@\"' \"$0\" \"$@\"",
    );
    let first = without_btf.lines().next().unwrap();
    assert!(
        first.contains("BTF") && first.contains("/sys/kernel/btf/vmlinux"),
        "{without_btf}"
    );
}

#[test]
fn two_captures_at_once_see_the_same() {
    let mut other = None;
    let came = captured(|| {
        let mut second = Capture::start(&Options::default()).unwrap();
        let us = Follow {
            process: Some(std::process::id()),
            ..Follow::all(Level::Whole)
        };
        second.follow(&us).unwrap();
        let sleeps = thread::spawn(|| {
            for _ in 0..50 {
                thread::sleep(Duration::from_micros(100));
            }
            (own_tid(), ())
        });
        let (tid, ()) = joined(sleeps);
        let mut records = Vec::new();
        let lost = second.stop(|_, bytes| records.push(Record::parse(bytes).unwrap()));
        assert_eq!(lost.unwrap(), 0);
        other = Some(records);
        tid
    });
    let (Some((tid, records)), Some(mut other)) = (came, other) else {
        return;
    };
    other.sort_by_key(Record::time);
    // Each has a clock reading of its own.
    let what = |wait: &&Wait| (wait.state, wait.call, wait.waker, wait.next);
    let of_one: Vec<_> = waits_of(&records, tid).iter().map(what).collect();
    let of_other: Vec<_> = waits_of(&other, tid).iter().map(what).collect();
    // A timer that fires while the hypervisor has the CPU ends before its thread is off it: no wait then.
    assert!(of_one.len() > 25, "{}", of_one.len());
    assert_eq!(of_one, of_other);
}

/// Memory that a device may read and write directly.
#[repr(align(4096))]
struct Aligned([u8; 256 << 10]);

/// A file without a cache.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") {
    0o200_000
} else {
    0o40_000
};

/// A new file in a file system that may do without a cache; `None` elsewhere.
fn direct_file(name: &str) -> Option<File> {
    let name = format!("{name}-{}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let file = options.custom_flags(O_DIRECT).open(&path).ok()?;
    std::fs::remove_file(&path).unwrap();
    Some(file)
}

/// Each sleep for a request of its own is one for I/O; none for a lock, for a pipe or for time is, whichever CPU the waker has.
#[test]
fn sleeps_for_io_are_told_from_others() {
    let Some(mut file) = direct_file("for-io") else {
        return skip(&Skip::machine("a file system without direct I/O"));
    };
    let came = captured(|| {
        let (ask, answer) = ping_pong(500);
        let locked = Arc::new(Mutex::new(()));
        let held = locked.lock().unwrap();
        let waits = {
            let locked = Arc::clone(&locked);
            thread::spawn(move || {
                drop(locked.lock().unwrap());
                for _ in 0..100 {
                    thread::sleep(Duration::from_micros(100));
                }
                own_tid()
            })
        };
        thread::sleep(Duration::from_millis(5));
        drop(held);
        let waits = waits.join().unwrap();
        let works = thread::spawn(move || {
            let mut buffer = Box::new(Aligned([7; 256 << 10]));
            file.write_all(&buffer.0).unwrap();
            for _ in 0..50 {
                file.rewind().unwrap();
                file.read_exact(&mut buffer.0).unwrap();
            }
            own_tid()
        });
        ([ask, answer, waits], works.join().unwrap())
    });
    let Some((([ask, answer, waits], works), records)) = came else {
        return;
    };
    let for_io = |wait: &&Wait| wait.flags & flag::FOR_IO != 0;
    for tid in [ask, answer, waits] {
        let all = waits_of(&records, tid);
        let wrong: Vec<_> = all.iter().copied().filter(for_io).collect();
        assert!(all.len() > 50, "{}", all.len());
        assert!(
            wrong.is_empty(),
            "{} of {}: {:?}",
            wrong.len(),
            all.len(),
            wrong[0]
        );
    }
    // State D, in a call.
    let of_calls = |wait: &&Wait| wait.state == 2 && wait.call.is_some();
    let slept: Vec<_> = waits_of(&records, works)
        .into_iter()
        .filter(of_calls)
        .collect();
    if slept.is_empty() {
        return skip(&Skip::machine("a disk that is never waited for"));
    }
    let right = slept.iter().copied().filter(for_io).count();
    // A lock of the file system is not I/O.
    assert!(right * 10 >= slept.len() * 9, "{right} of {}", slept.len());
}

/// Bytes that this thread had a disk read, as the kernel counts; `None` where it does not.
fn read_by_this_thread() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let mut lines = counts.lines();
    let line = lines.find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.parse().ok()
}

#[test]
fn block_requests_are_booked_on_the_thread_that_made_them() {
    let Some(mut file) = direct_file("block") else {
        return skip(&Skip::machine("a file system without direct I/O"));
    };
    let came = captured(|| {
        let works = thread::spawn(move || {
            let mut buffer = Box::new(Aligned([7; 256 << 10]));
            for _ in 0..4 {
                file.write_all(&buffer.0).unwrap();
            }
            file.sync_all().unwrap();
            file.rewind().unwrap();
            for _ in 0..4 {
                file.read_exact(&mut buffer.0).unwrap();
            }
            (own_tid(), read_by_this_thread())
        });
        joined(works)
    });
    let Some(((tid, counted), records)) = came else {
        return;
    };
    let bytes = |operation: u32| {
        let of_thread = records.iter().filter_map(|record| match record {
            Record::Block(block) if block.tid == tid && block.flags & 0xff == operation => {
                Some(block)
            }
            _ => None,
        });
        let of_thread: Vec<_> = of_thread.collect();
        for block in &of_thread {
            let begin = block.inserted.max(block.issued);
            assert!(
                begin > 0 && begin <= block.completed && block.status == 0,
                "{block:?}"
            );
        }
        of_thread
            .iter()
            .map(|block| u64::from(block.bytes))
            .sum::<u64>()
    };
    let (read, written) = (bytes(0), bytes(1));
    if read + written == 0 {
        return skip(&Skip::machine("a file system without a block device"));
    }
    // The file system may have read its own tables, too.
    assert!(read >= 1 << 20, "{read} bytes read");
    assert_eq!(Some(read), counted.or(Some(read)), "bytes read");
    // The journal may be written by it, too.
    assert!(
        (1 << 20..3 << 20).contains(&written),
        "{written} bytes written"
    );
}
