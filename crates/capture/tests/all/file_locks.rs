//! The holder of a file's lock that another thread wants.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stopgap_capture::{FileLock, LockOwner, Record};
use stopgap_testing::{Skip, skip};

use super::live::{captured, own_tid, until_asleep, waits_of};

/// A file that nobody else has, removed with this.
struct Locked(PathBuf);

impl Locked {
    fn new(name: &str) -> Locked {
        let name = format!("stopgap-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap();
        Locked(path)
    }

    fn open(&self) -> File {
        let file = OpenOptions::new().read(true).write(true).open(&self.0);
        file.unwrap()
    }

    fn inode(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().ino()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Waits until the thread of this process sleeps in flock(2).
fn until_waits_for_a_lock(tid: u32) {
    const FLOCK: &str = if cfg!(target_arch = "x86_64") {
        "73 "
    } else {
        "32 "
    };
    let call = format!("/proc/self/task/{tid}/syscall");
    while !std::fs::read_to_string(&call).unwrap().starts_with(FLOCK) {
        thread::sleep(Duration::from_millis(1));
    }
    until_asleep(tid);
}

fn attempts(records: &[Record], tid: u32) -> Vec<&FileLock> {
    let locks = records.iter().filter_map(|record| match record {
        Record::FileLock(lock) if lock.tid == tid => Some(lock),
        _ => None,
    });
    locks.collect()
}

#[test]
fn who_finds_a_file_locked_is_told_by_which_thread() {
    let locked = Locked::new("flock");
    let came = captured(|| {
        let ((holds, is_held), (gives_up, until)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let (file, other) = (locked.open(), locked.open());
            let holder = scope.spawn(move || {
                flock(&file, FlockOperation::LockExclusive).unwrap();
                holds.send(own_tid()).unwrap();
                until.recv().unwrap();
            });
            let holding = is_held.recv().unwrap();
            let comer = scope.spawn(move || {
                let file = other;
                for how in [
                    FlockOperation::NonBlockingLockExclusive,
                    FlockOperation::NonBlockingLockShared,
                ] {
                    assert_eq!(flock(&file, how), Err(Errno::WOULDBLOCK));
                }
                let tid = own_tid();
                thread::scope(|inner| {
                    inner.spawn(move || {
                        until_waits_for_a_lock(tid);
                        gives_up.send(()).unwrap();
                    });
                    flock(&file, FlockOperation::LockExclusive).unwrap();
                });
                own_tid()
            });
            let comer = comer.join().unwrap();
            holder.join().unwrap();
            (holding, comer)
        })
    });
    let Some(((holder, comer), records)) = came else {
        return;
    };
    let seen = attempts(&records, comer);
    let facts: Vec<_> = seen
        .iter()
        .map(|lock| (lock.is_for_writing, lock.blocks))
        .collect();
    assert_eq!(facts, [(true, false), (false, false), (true, true)]);
    let waits = waits_of(&records, comer);
    for lock in seen {
        let own = std::process::id();
        assert_eq!(lock.owner, LockOwner::Flock);
        assert_eq!(
            (lock.holder, lock.holder_process),
            (Some(holder), Some(own))
        );
        assert_eq!(lock.inode, locked.inode());
        assert_eq!((lock.start, lock.end), (0, i64::MAX as u64));
        let slept = waits.iter().any(|wait| wait.left >= lock.time);
        assert!(slept, "it waited after the last attempt");
    }
}

#[test]
fn a_range_of_a_file_is_held_by_a_process() {
    let lock = |path: &std::path::Path, bytes: &str| {
        let script = "import fcntl, sys
file = open(sys.argv[1], 'r+')
start, length = map(int, sys.argv[2].split('+'))
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    print('held', flush=True)
except OSError:
    print('refused', flush=True)
sys.stdin.readline()";
        let mut python = Command::new("python3");
        let python = python.args(["-c", script]).arg(path).arg(bytes);
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let locked = Locked::new("fcntl");
    let came = captured(|| {
        // Two holders of different ranges, so that the file alone does not say which one is in the way.
        let mut tids = Vec::new();
        let mut said = Vec::new();
        let mut all = Vec::new();
        for bytes in ["100+10", "120+1", "105+100", "120+1"] {
            let mut python = match lock(&locked.0, bytes) {
                Ok(python) => python,
                Err(error) => {
                    skip(&Skip::machine(format!(
                        "python3, which locks ranges: {error}"
                    )));
                    return None;
                }
            };
            let mut line = String::new();
            let mut output = BufReader::new(python.stdout.take().unwrap());
            output.read_line(&mut line).unwrap();
            said.push(line.trim().to_owned());
            tids.push(python.id());
            all.push(python);
        }
        for mut python in all {
            writeln!(python.stdin.take().unwrap()).unwrap();
            python.wait().unwrap();
        }
        Some((tids, said))
    });
    let Some((Some((tids, said)), records)) = came else {
        return;
    };
    assert_eq!(said, ["held", "held", "refused", "refused"]);
    for (comer, holder, range) in [(2, 0, (105, 204)), (3, 1, (120, 120))] {
        let seen = attempts(&records, tids[comer]);
        let [lock] = seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(lock.owner, LockOwner::Process);
        assert_eq!((lock.start, lock.end), range);
        assert_eq!(lock.holder, Some(tids[holder]), "{lock:?}");
        assert!(!lock.blocks && lock.is_for_writing);
    }
}
