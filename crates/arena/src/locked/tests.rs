#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use stopgap_testing::{Skip, skip};

use super::*;
use crate::error::{Error, Result};
use crate::inject::failing;
use crate::own_process::own_process;
use crate::sys::{files, page};

fn memfd_of(length: u64) -> Result<OwnedFd> {
    files::memfd(c"theirs", length, SealFlags::empty())
}

fn set(budget: u64) -> Set {
    with(|options| options.budget = budget).unwrap()
}

/// A set of the default options but for what `change` changes.
fn with(change: impl FnOnce(&mut Options)) -> Result<Set> {
    let mut options = Options::default();
    change(&mut options);
    Set::new(options)
}

/// A set that is asked about pressure like the machine's, but for what `change` changes.
fn pressed(change: impl FnOnce(&mut Pressure)) -> Result<Set> {
    let mut pressure = Pressure::default();
    change(&mut pressure);
    with(|options| options.pressure = Some(pressure))
}

fn nothing_is_left(set: &Set) {
    let found = set.statistics().unwrap();
    let purged = found.purged;
    assert_eq!(
        found,
        Statistics {
            purged,
            ..Statistics::default()
        }
    );
}

fn invalid<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.errno()), Some(libc::EINVAL));
}

fn rlimit(resource: Resource, bytes: u64) {
    let both = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(resource, both).unwrap();
}

/// Writes `byte` all over it.
fn fill(held: &Held, byte: u8) {
    // SAFETY: its memory, to which there are no references.
    unsafe { held.as_ptr().write_bytes(byte, held.len()) };
}

/// Whether each page holds `byte`, in its first and its last byte.
fn holds(held: &Held, byte: u8) -> bool {
    let at = |offset: usize| {
        // SAFETY: within its memory, to which there are no references.
        unsafe { held.as_ptr().add(offset).read_volatile() }
    };
    (0..held.len())
        .step_by(page())
        .all(|start| at(start) == byte && at(start + page() - 1) == byte)
}

/// A segment as `/proc/sysvipc/shm` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    id: i32,
    ends: bool,
    locked: bool,
    attached: u64,
    resident: u64,
}

/// Segments that process `pid` made.
fn segments(pid: i32) -> Vec<Segment> {
    let text = read_to_string("/proc/sysvipc/shm").unwrap();
    let rows = text
        .lines()
        .skip(1)
        .map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    let number = |text: &str| text.parse::<u64>().unwrap();
    rows.filter(|row| row[4].parse() == Ok(pid))
        .map(|row| {
            let mode = u32::from_str_radix(row[2], 8).unwrap();
            Segment {
                id: row[1].parse().unwrap(),
                ends: mode & 0o1000 != 0,
                locked: mode & 0o2000 != 0,
                attached: number(row[6]),
                resident: number(row[14]),
            }
        })
        .collect()
}

fn own_segments() -> Vec<Segment> {
    segments(getpid().as_raw_pid())
}

/// Bytes that the kernel counts as locked by mlock(2).
fn mlocked() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Mappings of sets in this process.
fn mappings() -> usize {
    let maps = read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("/SYSV") || line.contains("/memfd:"))
        .count()
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Has `RLIMIT_MEMLOCK` bind this thread.
fn give_up_privilege() {
    let mut own = rustix::thread::capabilities(None).unwrap();
    own.effective
        .remove(rustix::thread::CapabilitySet::IPC_LOCK);
    rustix::thread::set_capabilities(None, own).unwrap();
}

#[test]
fn a_segment_is_locked_before_its_first_page_and_ends_with_its_holder() {
    if !own_process(a_segment_is_locked_before_its_first_page_and_ends_with_its_holder) {
        return;
    }
    let set = set(1 << 20);
    let held = set.take(5 * page() - 1).unwrap();
    assert_eq!(
        (held.len(), held.way(), held.instead()),
        (5 * page(), Way::SysV, None)
    );
    assert!(holds(&held, 0) && held.is_writable());
    let own = own_segments();
    let [segment] = own[..] else {
        panic!("{own:?}")
    };
    assert!(segment.ends && segment.locked, "{segment:?}");
    assert_eq!(segment.attached, 1);
    assert_eq!(set.statistics().unwrap().locked, 5 * page() as u64);
    drop(held);
    assert_eq!((own_segments(), mappings()), (vec![], 0));
    assert_eq!(set.statistics().unwrap(), Statistics::default());
}

/// Pages of a mapping that lie on the unevictable list, and all of it that are resident; `None`: not to be read.
fn unevictable(held: &Held) -> Option<(usize, usize)> {
    use std::os::unix::fs::FileExt;
    let pagemap = std::fs::File::open("/proc/self/pagemap").ok()?;
    let flags = std::fs::File::open("/proc/kpageflags").ok()?;
    let word = |file: &std::fs::File, index: usize| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, index as u64 * 8).ok()?;
        Some(u64::from_ne_bytes(word))
    };
    let first = held.as_ptr().addr() / page();
    let (mut off, mut resident) = (0, 0);
    for at in first..first + held.len() / page() {
        let entry = word(&pagemap, at)?;
        let frame = entry & ((1 << 55) - 1);
        if entry >> 63 == 1 && frame != 0 {
            resident += 1;
            off += usize::from(word(&flags, usize::try_from(frame).ok()?)? >> 18 & 1 == 1);
        }
    }
    Some((off, resident))
}

/// Both ways: what is touched after it was locked is on no list that is scanned. The last few are on their way.
#[test]
fn what_is_touched_is_off_the_lists_at_once() {
    let set = set(64 << 20);
    let bytes = 4 << 20;
    for held in [set.take(bytes).unwrap(), set.take_shareable(bytes).unwrap()] {
        fill(&held, 1);
        let Some((off, resident)) = unevictable(&held).filter(|&(_, resident)| resident > 0) else {
            skip(&Skip::root("page flags"));
            return;
        };
        assert_eq!(resident, bytes / page());
        assert!(
            off + 128 >= resident,
            "{:?}: {off} of {resident}",
            held.way()
        );
    }
}

#[test]
fn files_that_may_not_be_that_long_are_an_error_and_no_signal() {
    if !own_process(files_that_may_not_be_that_long_are_an_error_and_no_signal) {
        return;
    }
    let set = set(1 << 20);
    rlimit(Resource::Fsize, page() as u64);
    let by_memfd = with(|options| options.way = Way::Memfd).unwrap();
    for refused in [
        set.take_shareable(2 * page()).map(drop),
        by_memfd.take(2 * page()).map(drop),
    ] {
        let passed = Error::Limit {
            asked: 2 * page() as u64,
            limit: page() as u64,
            which: "RLIMIT_FSIZE",
        };
        assert_eq!(refused.unwrap_err(), passed);
    }
    fill(&set.take_shareable(page()).unwrap(), 1);
    // A segment is no file.
    fill(&set.take(2 * page()).unwrap(), 2);
    assert_eq!(mlocked(), 0);
}

#[test]
fn what_can_be_passed_on_is_a_memfd_that_nobody_can_cut() {
    if !own_process(what_can_be_passed_on_is_a_memfd_that_nobody_can_cut) {
        return;
    }
    let set = set(1 << 20);
    let held = set.take_shareable(3 * page()).unwrap();
    assert_eq!((held.way(), mlocked()), (Way::Memfd, 3 * page() as u64));
    fill(&held, 9);
    let (fd, offset) = held.file().unwrap().unwrap();
    assert_eq!(offset, 0);
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    let theirs = set.take_file(fd, page() as u64, page()).unwrap();
    assert!(holds(&theirs, 9));
    fill(&theirs, 4);
    assert!(!holds(&held, 9), "one and the same memory");
    assert_eq!(
        set.take(page()).unwrap().file().unwrap().map(drop),
        None,
        "a segment has no descriptor"
    );
    drop((held, theirs));
    assert_eq!((mlocked(), mappings()), (0, 0));
}

#[test]
fn somebody_elses_memfd_is_checked_first() {
    let set = set(1 << 20);
    let memfd = |length: u64| memfd_of(length).unwrap();
    let two = 2 * page();
    invalid(set.take_file(memfd(page() as u64), 0, two));
    invalid(set.take_file(memfd(two as u64), page() as u64, two));
    invalid(set.take_file(
        memfd(two as u64),
        u64::MAX - u64::MAX % page() as u64,
        page(),
    ));
    invalid(set.take_file(memfd(two as u64), 1, page()));
    invalid(set.take_file(memfd(two as u64), 0, 0));
    // Half a page is mapped as a whole one.
    assert_eq!(set.take_file(memfd(10), 0, 10).unwrap().len(), page());
    let not_one = std::fs::File::open("/dev/null").unwrap();
    invalid(set.take_file(not_one.into(), 0, page()));
    let (read, _write) = rustix::pipe::pipe().unwrap();
    invalid(set.take_file(read, 0, page()));
    // A purge would remove the contents from the disk.
    for path in [
        std::env::current_exe().unwrap(),
        PathBuf::from("/sys/kernel/mm/ksm/run"),
    ] {
        match std::fs::File::open(&path) {
            Ok(file) if rustix::fs::fcntl_get_seals(&file).is_err() => {
                invalid(set.take_file(file.into(), 0, page()));
            }
            _ => skip(&Skip::machine(format_args!(
                "{}: none, or in memory",
                path.display()
            ))),
        }
    }
    assert_eq!(set.statistics().unwrap(), Statistics::default());
}

#[test]
fn a_memfd_that_may_not_be_written_is_read_and_never_purged() {
    let set = set(1 << 20);
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let fd = memfd_of(page() as u64).unwrap();
        rustix::io::write(&fd, &[3]).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seal).unwrap();
        let held = set.take_file(fd, 0, page()).unwrap();
        assert!(!held.is_writable());
        invalid(held.purgeable());
        held.release().unwrap();
        assert_eq!(held.keep(), Ok(Contents::Kept));
    }
    // A file that was opened read-only.
    let fd = memfd_of(page() as u64).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let held = set
        .take_file(std::fs::File::open(path).unwrap().into(), 0, page())
        .unwrap();
    assert!(!held.is_writable() && holds(&held, 0));
    // One that is sealed later refuses to be emptied; what is in it stays.
    let held = set.take_file(fd.try_clone().unwrap(), 0, page());
    let held = held.unwrap();
    held.purgeable().unwrap();
    fill(&held, 8);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE).unwrap();
    let purged = set.react().unwrap();
    assert_eq!(
        (purged.objects, purged.error.map(|error| error.errno())),
        (0, Some(libc::EPERM))
    );
    assert_eq!(held.keep(), Ok(Contents::Kept));
    assert!(holds(&held, 8));
}

#[test]
fn what_is_purgeable_goes_when_memory_gets_short_and_that_is_told_once() {
    let set = set(1 << 20);
    for shareable in [false, true] {
        let held = if shareable {
            set.take_shareable(3 * page())
        } else {
            set.take(3 * page())
        };
        let held = held.unwrap();
        fill(&held, 5);
        held.purgeable().unwrap();
        held.purgeable().unwrap();
        let before = failing(0, Errno::NOMEM, || held.keep());
        assert_eq!(
            (before.result, before.made),
            (Ok(Contents::Kept), 0),
            "no system call"
        );
        held.purgeable().unwrap();
        let bytes = held.len() as u64;
        assert_eq!(set.statistics().unwrap().purgeable, bytes);
        let purged = set.react().unwrap();
        assert_eq!(
            purged,
            Purged {
                objects: 1,
                bytes,
                unlocked: 0,
                error: None
            }
        );
        let after = set.statistics().unwrap();
        assert_eq!((after.locked, after.bytes, after.purgeable), (0, bytes, 0));
        assert!(holds(&held, 0));
        invalid(held.release());
        assert_eq!(held.keep(), Ok(Contents::Lost));
        assert_eq!(held.keep(), Ok(Contents::Kept));
        assert_eq!(set.statistics().unwrap().locked, bytes);
    }
    assert_eq!(set.react().unwrap(), Purged::default());
    assert_eq!(set.poll_pressure(), Ok(None));
}

/// ```text
/// mapped   | a | b | c | d | e |      batch: 2 pages
/// released   x   x   x       x        a+b, c of one run in two calls; e
/// ```
#[test]
fn what_was_released_side_by_side_is_unlocked_in_one_call() {
    if !own_process(what_was_released_side_by_side_is_unlocked_in_one_call) {
        return;
    }
    let set = with(|options| (options.way, options.batch) = (Way::Memfd, 1 << 20)).unwrap();
    let mut all: Vec<Held> = (0..32).map(|_| set.take(page()).unwrap()).collect();
    all.sort_by_key(|held| held.as_ptr().addr());
    let apart = |two: &&[Held]| two[1].as_ptr().addr() - two[0].as_ptr().addr() != page();
    let runs = 1 + all.windows(2).filter(apart).count() as u64;
    let one = failing(0, Errno::NOMEM, || {
        for held in &all {
            held.release().unwrap();
        }
        assert_eq!(mlocked(), 32 * page() as u64, "still");
        set.flush()
    });
    assert_eq!((one.result, mlocked()), (Ok(32 * page() as u64), 0));
    assert_eq!(one.made, runs, "a call for each run of them");
    assert!(runs < 32, "the kernel placed all of them apart");
    // A released one that is taken again before its batch is full costs nothing.
    assert_eq!(all[0].keep(), Ok(Contents::Kept));
    let cheap = failing(0, Errno::NOMEM, || {
        all[0].release().unwrap();
        all[0].keep()
    });
    assert_eq!((cheap.result, cheap.made), (Ok(Contents::Kept), 0));
    assert_eq!(mlocked(), page() as u64);
}

#[test]
fn nothing_is_unlocked_in_larger_steps_than_a_batch() {
    if !own_process(nothing_is_unlocked_in_larger_steps_than_a_batch) {
        return;
    }
    for (batch, calls) in [(3_u64 << 20, 2), (64 << 20, 1), (0, 5), ((1 << 20) + 1, 5)] {
        let set = with(|options| (options.way, options.batch) = (Way::Memfd, batch)).unwrap();
        let held = set.take(5 << 20).unwrap();
        let made = failing(0, Errno::NOMEM, || {
            held.release().unwrap();
            set.flush()
        });
        assert_eq!((made.made, mlocked()), (calls, 0), "{batch}");
        assert!(made.result.is_ok());
    }
}

#[test]
fn lengths_that_make_no_sense_are_errors() {
    let set = set(u64::MAX);
    invalid(set.take(0));
    for length in [usize::MAX, usize::MAX - page(), 1 << 62] {
        assert!(set.take(length).is_err());
        assert!(set.take_shareable(length).is_err());
    }
    assert_eq!(set.statistics().unwrap(), Statistics::default());
}

/// Segments are counted for the user: other tests' count, too, while they run.
fn patiently<T>(work: impl Fn() -> Result<T>) -> T {
    let begin = std::time::Instant::now();
    loop {
        match work() {
            Ok(done) => return done,
            Err(error @ Error::Limit { .. }) => {
                assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn rlimit_memlock_binds_all_ways_together() {
    if !own_process(rlimit_memlock_binds_all_ways_together) {
        return;
    }
    let page64 = page() as u64;
    rlimit(Resource::Memlock, 4 * page64);
    give_up_privilege();
    let refused = |result: Result<Held>| match result {
        Err(Error::Limit {
            which: "RLIMIT_MEMLOCK",
            limit,
            ..
        }) => assert_eq!(limit, 4 * page64),
        other => panic!("{other:?}"),
    };
    let first = set(1 << 30);
    refused(first.take(5 * page()));
    let segment = patiently(|| first.take(2 * page()));
    let memfd = first.take_shareable(2 * page()).unwrap();
    refused(first.take(1));
    refused(first.take_shareable(1));
    // Another set does not know of these; the kernel does.
    let second = set(1 << 30);
    refused(second.take(3 * page()));
    refused(second.take_shareable(3 * page()));
    drop(memfd);
    // Somebody else's memory that would give way, does.
    let own = second.take_shareable(4 * page()).unwrap();
    drop(own);
    segment.purgeable().unwrap();
    let more = patiently(|| first.take(4 * page()));
    assert!(matches!(segment.keep(), Err(Error::Limit { .. })));
    drop(more);
    assert_eq!(patiently(|| segment.keep()), Contents::Lost);
    drop(segment);
    rlimit(Resource::Memlock, 0);
    for result in [first.take(1), first.take_shareable(1)] {
        assert!(
            matches!(
                result,
                Err(Error::Limit {
                    limit: 0,
                    which: "RLIMIT_MEMLOCK",
                    ..
                })
            ),
            "{result:?}"
        );
    }
    assert_eq!((own_segments(), mlocked(), mappings()), (vec![], 0, 0));
}

#[test]
fn where_the_kernel_has_too_few_segments_it_is_a_memfd() {
    if !own_process(where_the_kernel_has_too_few_segments_it_is_a_memfd) {
        return;
    }
    // Limits are a namespace's.
    // SAFETY: no descriptor depends on the namespace.
    let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWIPC) };
    if unshared.is_err() {
        skip(&Skip::root("an IPC namespace"));
        return;
    }
    let set = set(1 << 20);
    let with = |name: &str, value: u64, work: &dyn Fn()| {
        let path = format!("/proc/sys/kernel/{name}");
        let before = read_to_string(&path).unwrap();
        std::fs::write(&path, value.to_string()).unwrap();
        work();
        std::fs::write(&path, before).unwrap();
    };
    let instead = |length: usize| {
        let held = set.take(length).unwrap();
        fill(&held, 1);
        (held.way(), held.instead().map(|error| error.errno()))
    };
    let segment = (Way::SysV, None);
    with("shmmax", page() as u64, &|| {
        assert_eq!(instead(page()), segment);
        assert_eq!(instead(page() + 1), (Way::Memfd, Some(libc::EINVAL)));
    });
    with("shmmni", 1, &|| {
        let _one = set.take(1).unwrap();
        assert_eq!(instead(1), (Way::Memfd, Some(libc::ENOSPC)));
    });
    with("shmall", 2, &|| {
        assert_eq!(instead(2 * page()), segment);
        assert_eq!(instead(3 * page()), (Way::Memfd, Some(libc::ENOSPC)));
    });
    assert_eq!(instead(3 * page()), segment);
}

#[test]
fn a_kernel_without_segments_is_asked_once() {
    let set = set(1 << 20);
    // Signals, then shmget.
    let first = failing(2, Errno::NOSYS, || set.take(page()));
    assert_eq!(first.failed, Some("shmget"));
    let first = first.result.unwrap();
    assert_eq!(
        (first.way(), first.instead().unwrap().errno()),
        (Way::Memfd, libc::ENOSYS)
    );
    let second = failing(0, Errno::NOSYS, || set.take(page()));
    assert_eq!(second.result.unwrap().way(), Way::Memfd);
    assert!(second.made < 8, "{}", second.made);
}

/// Everything once, some call failing; then again with none, since an error must leave a set that works.
fn everything(set: &Set) -> Result<()> {
    let theirs = memfd_of(2 * page() as u64)?;
    let made = [
        set.take(2 * page()),
        set.take_shareable(page()),
        set.take_file(theirs, page() as u64, page()),
    ];
    let held: Vec<Held> = made.into_iter().collect::<Result<_>>()?;
    if held.iter().any(|one| !one.is_writable()) {
        return Ok(()); // to be mapped for writing was refused: that is an answer, too
    }
    for (byte, one) in (1..).zip(&held) {
        fill(one, byte);
        one.release()?;
    }
    set.flush()?;
    for (byte, one) in (1..).zip(&held) {
        assert_eq!(one.keep()?, Contents::Kept);
        assert!(holds(one, byte));
        one.purgeable()?;
        if byte == 2 {
            one.release()?;
        }
    }
    let purged = set.react()?;
    for (byte, one) in (1..).zip(&held) {
        let was_lost = holds(one, 0);
        let contents = match one.keep() {
            Ok(contents) => contents,
            // `keep` reports lost contents as soon as it succeeds.
            Err(_) => one.keep().expect("one call fails"),
        };
        assert_eq!(contents == Contents::Lost, was_lost, "{byte}");
        assert!(was_lost || holds(one, byte), "{byte}");
    }
    let file = held[1].file()?.expect("a memfd has one");
    drop(file);
    purged.error.map_or(Ok(()), Err)
}

#[test]
fn whichever_call_fails_nothing_leaks_and_nothing_lies() {
    if !own_process(whichever_call_fails_nothing_leaks_and_nothing_lies) {
        return;
    }
    let before = (files(), mappings());
    for errno in [
        Errno::NOMEM,
        Errno::NOSYS,
        Errno::PERM,
        Errno::AGAIN,
        Errno::INTR,
    ] {
        let mut tolerated = Vec::new();
        for nth in 1.. {
            let set = set(1 << 20);
            let calls = failing(nth, errno, || everything(&set));
            let Some(call) = calls.failed else {
                assert!(nth > 25, "only {nth} calls");
                assert_eq!(calls.result, Ok(()));
                break;
            };
            if calls.result.is_ok() {
                tolerated.push(call);
            }
            // Memory that could not be unmapped counts until it is.
            set.flush().unwrap();
            nothing_is_left(&set);
            assert_eq!(everything(&set), Ok(()), "after {nth}: {call} {errno}");
            drop(set);
            assert_eq!(
                (files(), mappings(), own_segments(), mlocked()),
                (before.0, before.1, vec![], 0),
                "{nth}: {call}"
            );
        }
        if errno == Errno::NOMEM {
            // Unmapping has nobody to tell, removing is tried again, and locking makes others give way first.
            let known = [
                "munmap",
                "shmdt",
                "shmctl(IPC_RMID)",
                "shmctl(SHM_LOCK)",
                "mlock",
                "mlock2",
            ];
            tolerated.retain(|call| !known.contains(call));
            assert_eq!(tolerated, Vec::<&str>::new());
        }
    }
}

#[test]
fn no_kernel_pressure_is_an_error_that_says_so() {
    let nowhere = PathBuf::from("/nonexistent/pressure");
    let error = pressed(|asked| asked.path = nowhere).unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { .. }) && error.to_string().contains("psi=1"),
        "{error}"
    );
    // A path that is mistyped is the likelier cause.
    assert!(error.to_string().contains("no such file"), "{error}");
    // The kernel keeps none, as with psi=0.
    for (nth, call) in [(3, "pread"), (4, "write")] {
        let off = failing(nth, Errno::OPNOTSUPP, || pressed(|_| ()).map(drop));
        if std::fs::exists("/proc/pressure/memory").unwrap() {
            assert_eq!(off.failed, Some(call));
        }
        assert!(
            matches!(off.result, Err(Error::Unsupported { .. })),
            "{:?}",
            off.result
        );
    }
    for (stall, window) in [(0, 1000), (1000, 0), (1001, 1000)] {
        let [stall, window] = [stall, window].map(Duration::from_millis);
        invalid(pressed(|asked| {
            (asked.stall, asked.window) = (stall, window);
        }));
    }
    assert!(pressed(|asked| asked.path = PathBuf::from("/")).is_err());
    invalid(set(1).watch());
}

/// A trigger is text that is written into a file: into another one than the kernel's own it must not be.
#[test]
fn a_file_that_is_none_of_pressure_is_left_as_it_is() {
    let path = std::env::temp_dir().join(format!("stopgap-pressure-{}", std::process::id()));
    let refused = |path: PathBuf| {
        invalid(pressed(|asked| asked.path = path));
    };
    for text in [
        "root:x:0:0",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ] {
        std::fs::write(&path, text).unwrap();
        refused(path.clone());
        assert_eq!(read_to_string(&path).unwrap(), text);
    }
    std::fs::remove_file(&path).unwrap();
    // The kernel has it, and would take it.
    let comm = PathBuf::from("/proc/self/comm");
    let before = read_to_string(&comm).unwrap();
    refused(comm.clone());
    assert_eq!(read_to_string(&comm).unwrap(), before);
}

/// A set that is asked about the machine's pressure; `None`: it cannot be here.
fn under_pressure() -> Option<Set> {
    match pressed(|_| ()) {
        Ok(set) => Some(set),
        Err(error) => {
            skip(&Skip::machine(format_args!(
                "no trigger of memory pressure: {error}"
            )));
            None
        }
    }
}

#[test]
fn a_trigger_that_does_not_fire_waits_for_nobody() {
    let Some(set) = under_pressure() else { return };
    // Who waits does so each time; a busy machine keeps us seldom for so long.
    let looks = [(); 5].map(|()| {
        let begin = std::time::Instant::now();
        let calls = failing(0, Errno::NOMEM, || set.poll_pressure());
        assert_eq!(calls.made, 1);
        assert!(calls.result.is_ok());
        begin.elapsed()
    });
    let shortest = looks.into_iter().min().unwrap();
    assert!(shortest < Duration::from_millis(500), "{shortest:?}");
    assert!(set.pressure_file().is_some());
    if !is_root() {
        // Users without privilege may ask for no other windows than 2 s.
        assert_eq!(set.pressure().unwrap().window, Duration::from_secs(2));
        assert_eq!(set.pressure().unwrap().stall, Duration::from_millis(300));
    }
}

/// A set whose trigger fires as soon as the other end sends urgent data, which poll(2) tells as it tells pressure.
fn urgent() -> (Set, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let trigger = pressure::Trigger::of(receiver.into());
    (Set::with(Options::default(), Some(trigger)), sender)
}

fn send_urgent(sender: &std::net::TcpStream) {
    rustix::net::send(sender, b"!", rustix::net::SendFlags::OOB).unwrap();
}

#[test]
fn a_trigger_that_fires_has_what_is_purgeable_go() {
    let (set, sender) = urgent();
    let held = set.take(page()).unwrap();
    fill(&held, 1);
    held.purgeable().unwrap();
    assert_eq!(set.poll_pressure(), Ok(None));
    send_urgent(&sender);
    let begin = std::time::Instant::now();
    let purged = loop {
        assert!(begin.elapsed() < Duration::from_secs(60));
        if let Some(purged) = set.poll_pressure().unwrap() {
            break purged;
        }
    };
    assert_eq!((purged.objects, purged.bytes), (1, page() as u64));
    assert_eq!(held.keep(), Ok(Contents::Lost));
}

#[test]
fn a_watch_reacts_by_itself() {
    let (set, sender) = urgent();
    let (held, other) = (set.take(page()).unwrap(), set.take(page()).unwrap());
    fill(&other, 2);
    held.purgeable().unwrap();
    let watch = set.watch().unwrap();
    send_urgent(&sender);
    let begin = std::time::Instant::now();
    while set.statistics().unwrap().purged == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    watch.end().unwrap();
    assert_eq!(held.keep(), Ok(Contents::Lost));
    assert!(holds(&other, 2));
}

#[test]
fn a_refused_window_is_stretched_at_the_same_share() {
    // open, fstatfs, pread, write, and again
    let calls = failing(4, Errno::PERM, || pressed(|_| ()));
    match calls.result {
        Ok(set) => assert_eq!(
            set.pressure(),
            Some(&Pressure {
                stall: Duration::from_millis(300),
                window: Duration::from_secs(2),
                ..Pressure::default()
            })
        ),
        Err(error) => skip(&Skip::machine(format_args!(
            "no trigger of memory pressure: {error}"
        ))),
    }
}

#[test]
fn a_watch_ends_when_it_is_told_and_its_set_lives_as_long() {
    let Some(set) = under_pressure() else { return };
    for _ in 0..20 {
        let watch = set.watch().unwrap();
        watch.end().unwrap();
    }
    for nth in 1..=4 {
        let calls = failing(nth, Errno::MFILE, || set.watch().map(drop));
        assert!(
            calls.failed.is_none() || calls.result.is_err() || nth > 3,
            "{calls:?}"
        );
    }
    drop(set.watch().unwrap());
}

#[test]
fn a_child_of_fork_has_the_memory_and_not_the_set() {
    if !own_process(a_child_of_fork_has_the_memory_and_not_the_set) {
        return;
    }
    let set = set(1 << 20);
    let (segment, memfd) = (
        set.take(page()).unwrap(),
        set.take_shareable(page()).unwrap(),
    );
    fill(&segment, 1);
    // SAFETY: the child calls nothing that another thread could have locked, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let invalid = |result: Result<()>| matches!(result, Err(Error::Invalid { .. }));
        let good = holds(&segment, 1)
            && invalid(set.take(1).map(drop))
            && invalid(segment.release())
            && invalid(segment.keep().map(drop))
            && invalid(set.react().map(drop));
        fill(&memfd, 6);
        drop((segment, memfd, set));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(own_segments()[0].locked, "{:?}", own_segments());
    assert_eq!(mlocked(), page() as u64);
    assert!(holds(&segment, 1) && holds(&memfd, 6));
}

/// The process that is killed: it makes and drops segments until then.
#[test]
fn a_process_that_is_killed_leaves_no_memory() {
    use std::os::unix::process::ExitStatusExt;
    const MARK: &str = "STOPGAP_ARENA_KILLED";
    if std::env::var_os(MARK).is_some() {
        let set = set(64 << 20);
        let kept = set.take(1 << 20).unwrap();
        fill(&kept, 1);
        println!("begun");
        loop {
            fill(&set.take(page()).unwrap(), 1);
        }
    }
    let itself = std::env::current_exe().unwrap();
    let name = "locked::tests::a_process_that_is_killed_leaves_no_memory";
    let mut left = 0;
    for run in 0..20_u64 {
        let mut child = std::process::Command::new(&itself)
            .args(["--exact", name, "--nocapture"])
            .env(MARK, "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut begun = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("begun") {
            line.clear();
            assert_ne!(
                std::io::BufRead::read_line(&mut begun, &mut line).unwrap(),
                0,
                "it ended"
            );
        }
        std::thread::sleep(Duration::from_micros(500 + run * 97));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let there = segments(child.id().cast_signed());
        // At most the one that was being made; it has no page, and nobody has it.
        assert!(there.len() <= 1, "{there:?}");
        for segment in there {
            assert_eq!((segment.resident, segment.attached), (0, 0), "{segment:?}");
            left += 1;
            crate::sys::shm::remove(segment.id).unwrap();
        }
    }
    if left > 0 {
        println!("{left} of 20 killed processes left an empty segment");
    }
}

#[test]
fn threads_share_a_set() {
    let (budget, batch) = (64 * page() as u64, 8 * page() as u64);
    let set = with(|options| (options.budget, options.batch) = (budget, batch)).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let set = set.clone();
            scope.spawn(move || {
                for round in 0..60_usize {
                    let Ok(held) = set.take((round % 5 + 1) * page()) else {
                        continue;
                    };
                    fill(&held, thread);
                    match round % 3 {
                        0 => held.purgeable().unwrap(),
                        1 => held.release().unwrap(),
                        _ => {}
                    }
                    if round % 7 == 0 {
                        let purged = set.react().unwrap();
                        assert_eq!(purged.error, None);
                    }
                    match held.keep() {
                        Ok(Contents::Kept) => assert!(holds(&held, thread)),
                        Ok(Contents::Lost) => assert!(holds(&held, 0)),
                        Err(Error::Limit { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    nothing_is_left(&set);
}

/// The rules, on a list: what `Set` must do, in the plainest form.
#[derive(Debug, Default)]
struct Naive {
    budget: u64,
    batch: u64,
    /// By name; `stamp`: when it was marked.
    objects: BTreeMap<usize, Simple>,
    stamp: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    Held,
    Released,
    Purgeable(u64),
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Simple {
    bytes: u64,
    locked: bool,
    is: Is,
}

impl Naive {
    fn sum(&self, of: impl Fn(&Simple) -> bool) -> u64 {
        self.objects
            .values()
            .filter(|one| of(one))
            .map(|one| one.bytes)
            .sum()
    }

    fn locked(&self) -> u64 {
        self.sum(|one| one.locked)
    }

    fn flush(&mut self) {
        for one in self
            .objects
            .values_mut()
            .filter(|one| one.is == Is::Released)
        {
            one.locked = false;
        }
    }

    /// But `spared`, and what is not locked.
    fn purge_oldest(&mut self, spared: Option<usize>) -> bool {
        let marked = self
            .objects
            .iter_mut()
            .filter(|(name, one)| Some(**name) != spared && one.locked);
        let marked = marked.filter_map(|(_, one)| match one.is {
            Is::Purgeable(stamp) => Some((stamp, one)),
            _ => None,
        });
        let Some((_, oldest)) = marked.min_by_key(|(stamp, _)| *stamp) else {
            return false;
        };
        (oldest.is, oldest.locked) = (Is::Lost, false);
        true
    }

    fn make_room(&mut self, asked: u64, spared: Option<usize>) -> bool {
        if asked > self.budget {
            return false;
        }
        while self.locked() + asked > self.budget {
            if self.sum(|one| one.locked && one.is == Is::Released) > 0 {
                self.flush();
            } else if !self.purge_oldest(spared) {
                return false;
            }
        }
        true
    }

    fn keep(&mut self, name: usize) -> Option<Contents> {
        let one = self.objects[&name];
        if !one.locked && one.is != Is::Held && !self.make_room(one.bytes, Some(name)) {
            return None;
        }
        let kept = self.objects.get_mut(&name).unwrap();
        (kept.is, kept.locked) = (Is::Held, true);
        Some(if one.is == Is::Lost {
            Contents::Lost
        } else {
            Contents::Kept
        })
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize, bool),
    Release(usize),
    Purgeable(usize),
    Keep(usize),
    Drop(usize),
    Flush,
    React,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0_usize..12;
    prop_oneof![
        3 => (1_usize..6, any::<bool>()).prop_map(|(pages, file)| Step::Take(pages, file)),
        3 => which.clone().prop_map(Step::Release),
        3 => which.clone().prop_map(Step::Purgeable),
        4 => which.clone().prop_map(Step::Keep),
        2 => which.prop_map(Step::Drop),
        1 => Just(Step::Flush),
        1 => Just(Step::React),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_set_does_what_the_plain_rules_say(
        steps in proptest::collection::vec(step(), 1..80),
        budget in 4_u64..24,
        batch in 0_u64..12,
    ) {
        let page64 = page() as u64;
        let mut naive = Naive { budget: budget * page64, batch: batch * page64, ..Naive::default() };
        let set = Set::new(Options { budget: naive.budget, batch: naive.batch, ..Options::default() }).unwrap();
        let mut held: BTreeMap<usize, Held> = BTreeMap::new();
        let byte = |name: usize| (name % 250 + 1) as u8;
        for (name, step) in steps.into_iter().enumerate() {
            let nth = |which: usize| held.keys().nth(which % held.len().max(1)).copied();
            match step {
                Step::Take(pages, file) => {
                    let bytes = pages as u64 * page64;
                    let expected = naive.make_room(bytes, None);
                    let taken = if file { set.take_shareable(pages * page()) } else { set.take(pages * page()) };
                    let refused = Some(Error::Limit { asked: bytes, limit: naive.budget, which: "the budget" });
                    prop_assert_eq!(taken.as_ref().err().copied(), refused.filter(|_| !expected));
                    if let Ok(taken) = taken {
                        fill(&taken, byte(name));
                        held.insert(name, taken);
                        naive.objects.insert(name, Simple { bytes, locked: true, is: Is::Held });
                    }
                }
                Step::Release(which) => if let Some(name) = nth(which) {
                    let one = naive.objects.get_mut(&name).unwrap();
                    let expected = !matches!(one.is, Is::Released | Is::Lost);
                    let before = set.statistics().unwrap();
                    let released = held[&name].release();
                    prop_assert!(expected || released.is_err() && set.statistics().unwrap() == before);
                    prop_assert_eq!(released.is_ok(), expected);
                    if expected {
                        one.is = Is::Released;
                        let waits = naive.sum(|one| one.locked && one.is == Is::Released);
                        if waits > 0 && waits >= naive.batch {
                            naive.flush();
                        }
                    }
                },
                Step::Purgeable(which) => if let Some(name) = nth(which) {
                    held[&name].purgeable().unwrap();
                    let one = naive.objects.get_mut(&name).unwrap();
                    if matches!(one.is, Is::Held | Is::Released) {
                        naive.stamp += 1;
                        one.is = Is::Purgeable(naive.stamp);
                    }
                },
                Step::Keep(which) => if let Some(name) = nth(which) {
                    let expected = naive.keep(name);
                    prop_assert_eq!(held[&name].keep().ok(), expected);
                    if expected == Some(Contents::Lost) {
                        prop_assert!(holds(&held[&name], 0));
                        fill(&held[&name], byte(name));
                    }
                },
                Step::Drop(which) => if let Some(name) = nth(which) {
                    held.remove(&name);
                    naive.objects.remove(&name);
                },
                Step::Flush => {
                    let waits = naive.sum(|one| one.locked && one.is == Is::Released);
                    prop_assert_eq!(set.flush(), Ok(waits));
                    naive.flush();
                }
                Step::React => {
                    let purged = set.react().unwrap();
                    let marked = naive.objects.values().filter(|one| matches!(one.is, Is::Purgeable(_))).count();
                    prop_assert_eq!((purged.objects, purged.error), (marked as u64, None));
                    for one in naive.objects.values_mut().filter(|one| matches!(one.is, Is::Purgeable(_))) {
                        (one.is, one.locked) = (Is::Lost, false);
                    }
                    naive.flush();
                }
            }
            let found = set.statistics().unwrap();
            prop_assert_eq!(found.locked, naive.locked());
            prop_assert!(found.locked <= naive.budget);
            prop_assert_eq!(found.released, naive.sum(|one| one.locked && one.is == Is::Released));
            prop_assert_eq!(found.purgeable, naive.sum(|one| one.locked && matches!(one.is, Is::Purgeable(_))));
            prop_assert_eq!((found.objects, found.bytes), (held.len() as u64, naive.sum(|_| true)));
            for (name, held) in &held {
                let expected = if naive.objects[name].is == Is::Lost { 0 } else { byte(*name) };
                prop_assert!(holds(held, expected), "{}", name);
            }
        }
    }
}
