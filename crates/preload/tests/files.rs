//! Maps of files with `STOPGAP_FILES`: where they go, and that nothing else is different. Random calls: `tests/fuzz`.

#![allow(unsafe_code)]

mod guests;
#[path = "fuzz/sides.rs"]
mod sides;

use std::ffi::{CStr, c_int};
use std::os::unix::process::CommandExt;
use std::process::Command;

use guests::{CASE, guest_of, number, run, shown, skipped, status_kib};
use sides::{Errno, Side, read, write};

const PAGE: usize = 4096;
const READ: c_int = libc::PROT_READ;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
/// Hints that are not taken, until the library gives no more (`books`).
const PATIENCE: usize = 64;

fn with_files(case: &str) -> Command {
    let mut command = guest_of(case);
    command.env("STOPGAP_FILES", "1");
    command
}

/// A file of memory; each page begins with its number.
fn file(pages: usize, flags: libc::c_uint) -> c_int {
    let name: &CStr = c"files";
    // SAFETY: the name ends with a 0; the buffer is as long as it says.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), flags);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::ftruncate(fd, (pages * PAGE) as libc::off_t), 0);
        for page in 0..pages {
            let at = (page * PAGE) as libc::off_t;
            let byte = page as u8;
            assert_eq!(libc::pwrite(fd, (&raw const byte).cast(), 1, at), 1);
        }
        fd
    }
}

fn byte(at: usize) -> Result<u8, Errno> {
    let mut page = [0; PAGE];
    read(at, &mut page).map(|_| page[0])
}

fn map(pages: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> usize {
    let at = Side::Library.mmap(0, pages * PAGE, protection, flags, fd, offset);
    at.expect("a map of a file")
}

fn unmap(at: usize, pages: usize) {
    assert_eq!(Side::Library.munmap(at, pages * PAGE), Ok(0));
}

/// Where the kernel puts a page.
fn top() -> usize {
    let at = Side::Kernel.mmap(0, PAGE, 0, ANONYMOUS, -1, 0).unwrap();
    assert_eq!(Side::Kernel.munmap(at, PAGE), Ok(0));
    at
}

/// Whether a map has a place of the library's: the kernel puts nothing there.
fn has_a_place(at: usize) -> bool {
    at < top() / 16 * 15
}

/// Where the next map of so many pages goes, as long as nobody maps any other.
fn next_place(pages: usize, fd: c_int) -> usize {
    let at = map(pages, READ, libc::MAP_SHARED, fd, 0);
    unmap(at, pages);
    assert!(has_a_place(at), "{at:x}");
    at
}

/// Which of the pages from `start` on are free: given out to maps of a page each, until the room is full.
fn free_pages(start: usize, pages: usize, fd: c_int) -> Vec<usize> {
    let mut maps = Vec::new();
    loop {
        let at = map(1, READ, libc::MAP_SHARED, fd, 0);
        maps.push(at);
        if !has_a_place(at) {
            break;
        }
    }
    maps.iter().for_each(|at| unmap(*at, 1));
    (0..pages)
        .filter(|page| maps.contains(&(start + page * PAGE)))
        .collect()
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: only the limit of this process changes.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

#[test]
fn guest() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    match case.as_str() {
        "placed" => placed(),
        "not-asked-for" => {
            let at = map(1, READ, libc::MAP_SHARED, file(1, 0), 0);
            assert!(!has_a_place(at), "{at:x}");
        }
        "passed" => passed(),
        "refused" => refused(),
        "parts" => parts(),
        "moved" => moved(),
        "taken" => taken(),
        "limits" => limits(),
        "locked" => locked(),
        "forks" => forks(),
        "huge-pages" => huge_pages(),
        "ring" => ring(),
        "full" => {
            let fd = file(2, 0);
            let maps = [(); 520].map(|()| map(1, READ, libc::MAP_SHARED, fd, 0));
            assert_eq!(maps.iter().filter(|at| has_a_place(**at)).count(), 512);
            maps.iter().for_each(|at| unmap(*at, 1));
            next_place(1, fd);
        }
        "limited" => {
            let at = Side::Library.mmap(0, 16 * PAGE, READ_WRITE, ANONYMOUS, -1, 0);
            assert!(shown(at.unwrap() - PAGE).as_deref() != Some("---p"));
            placed();
        }
        "unmapped" => {
            let fd = file(4, 0);
            let at = map(4, READ_WRITE, libc::MAP_PRIVATE, fd, 0);
            for page in 0..4 {
                write(at + page * PAGE, &[7; 8]).unwrap();
            }
            unmap(at, 4);
            assert_eq!(shown(at), None);
            let anonymous = Side::Library.mmap(0, 4 * PAGE, READ_WRITE, ANONYMOUS, -1, 0);
            assert_eq!(byte(anonymous.unwrap()), Ok(0));
        }
        other => panic!("{other}"),
    }
}

fn placed() {
    let fd = file(8, 0);
    for (protection, flags, permissions) in [
        (READ, libc::MAP_SHARED, "r--s"),
        (READ_WRITE, libc::MAP_PRIVATE, "rw-p"),
        (0, libc::MAP_PRIVATE, "---p"),
        (
            READ | libc::PROT_EXEC,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            "r-xs",
        ),
    ] {
        let at = map(3, protection, flags, fd, 2 * PAGE as i64);
        assert!(has_a_place(at), "{at:x}");
        assert_eq!(shown(at).as_deref(), Some(permissions));
        assert_eq!(shown(at + 2 * PAGE).as_deref(), Some(permissions));
        let bytes = [0, 1, 2].map(|page| byte(at + page * PAGE));
        let readable = protection & READ != 0;
        let wanted = [2, 3, 4].map(|byte| {
            if readable {
                Ok(byte)
            } else {
                Err(libc::EFAULT)
            }
        });
        assert_eq!(bytes, wanted);
        unmap(at, 3);
        assert_eq!((shown(at), byte(at)), (None, Err(libc::EFAULT)));
        unmap(at, 3); // twice is no error
    }
}

/// What the kernel would align, or what says where it may be.
fn passed() {
    let fd = file(1024, 0);
    for (pages, flags) in [
        (512, libc::MAP_SHARED),
        (513, libc::MAP_PRIVATE),
        (1, libc::MAP_SHARED | libc::MAP_32BIT),
        (1, libc::MAP_SHARED | libc::MAP_NORESERVE | 0x4000_0000),
    ] {
        let at = map(pages, READ, flags, fd, 0);
        assert!(!has_a_place(at) || at < 1 << 32, "{at:x}");
        assert_eq!(byte(at), Ok(0));
        unmap(at, pages);
    }
    let wanted = top() / 2 / PAGE * PAGE;
    let at = Side::Library.mmap(wanted, PAGE, READ, libc::MAP_SHARED, fd, 0);
    assert_eq!(at, Ok(wanted), "an address of the program's own choice");
}

/// A call that fails has the kernel's errno, and costs no place.
fn refused() {
    let good = file(4, 0);
    let reopened = |flags: c_int| {
        let path = format!("/proc/self/fd/{good}\0");
        // SAFETY: the path ends with a 0.
        unsafe { libc::open(path.as_ptr().cast(), flags) }
    };
    let sealed = file(4, libc::MFD_ALLOW_SEALING);
    // SAFETY: a file of this test; names that end with a 0; an array of two.
    let (pipe, folder) = unsafe {
        assert_eq!(
            libc::fcntl(sealed, libc::F_ADD_SEALS, libc::F_SEAL_WRITE),
            0
        );
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (ends[0], libc::open(c"/".as_ptr(), libc::O_RDONLY))
    };
    let place = next_place(2, good);
    let offset = i64::MAX - (PAGE as i64 - 1);
    let bad = [
        (1 << 20, READ, libc::MAP_SHARED, 0, libc::EBADF),
        (-1, READ, libc::MAP_SHARED, 0, libc::EBADF),
        (
            reopened(libc::O_PATH),
            READ,
            libc::MAP_SHARED,
            0,
            libc::EBADF,
        ),
        (
            reopened(libc::O_WRONLY),
            READ,
            libc::MAP_PRIVATE,
            0,
            libc::EACCES,
        ),
        (
            reopened(libc::O_RDONLY),
            READ_WRITE,
            libc::MAP_SHARED,
            0,
            libc::EACCES,
        ),
        (sealed, READ_WRITE, libc::MAP_SHARED, 0, libc::EPERM),
        (pipe, READ, libc::MAP_SHARED, 0, libc::ENODEV),
        (folder, READ, libc::MAP_PRIVATE, 0, libc::ENODEV),
        (good, READ, libc::MAP_SHARED, 1, libc::EINVAL),
        (good, READ, libc::MAP_SHARED, offset, libc::EOVERFLOW),
        (good, READ, 0, 0, libc::EINVAL),
        (good, READ, 3 | libc::MAP_SYNC, 0, libc::EOPNOTSUPP),
    ];
    for (fd, protection, flags, offset, errno) in bad {
        let call = |side: Side| side.mmap(0, 2 * PAGE, protection, flags, fd, offset);
        for _ in 0..2 * PATIENCE {
            assert_eq!(
                call(Side::Library),
                Err(errno),
                "{fd} {protection} {flags:x} {offset}"
            );
        }
        assert_eq!(call(Side::Kernel), Err(errno));
    }
    let none = Side::Library.mmap(0, 0, READ, libc::MAP_SHARED, good, 0);
    assert_eq!(none, Err(libc::EINVAL));
    assert_eq!(next_place(2, good), place);
}

/// A part that is unmapped is free, and nothing else of the place is, whatever the program maps there meanwhile.
fn parts() {
    let fd = file(8, 0);
    let at = map(6, READ_WRITE, libc::MAP_PRIVATE, fd, 0);
    assert_eq!(write(at + 4 * PAGE, &[77]), Ok(1));
    unmap(at + 2 * PAGE, 1);
    assert_eq!((shown(at + 2 * PAGE), byte(at + 3 * PAGE)), (None, Ok(3)));
    // As far as the kernel goes, and no further.
    let (protected, advised) = (
        Side::Library.mprotect(at + PAGE, 4 * PAGE, READ),
        Side::Library.madvise(at, 6 * PAGE, libc::MADV_DONTNEED),
    );
    assert_eq!((protected, advised), (Err(libc::ENOMEM), Err(libc::ENOMEM)));
    let pages = [1, 3].map(|page| shown(at + page * PAGE));
    assert_eq!(pages, [Some("r--p".to_owned()), Some("rw-p".to_owned())]);
    assert_eq!(byte(at + 4 * PAGE), Ok(4), "what was written is gone");
    assert_eq!(free_pages(at, 6, fd), [2]);
    // Something else over the hole: then it is what is left.
    let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
    let over = Side::Library.mmap(at + 2 * PAGE, PAGE, READ, fixed, fd, 5 * PAGE as i64);
    assert_eq!(over, Ok(at + 2 * PAGE));
    unmap(at, 2);
    unmap(at + 3 * PAGE, 3);
    assert_eq!(free_pages(at, 6, fd), [0, 1, 3, 4, 5]);
    assert_eq!(byte(at + 2 * PAGE), Ok(5));
    unmap(at + 2 * PAGE, 1);
    assert_eq!(free_pages(at, 6, fd), [0, 1, 2, 3, 4, 5]);
    // All of it at once, over parts that are free, and over what lies beside it.
    let at = map(6, READ, libc::MAP_SHARED, fd, 0);
    unmap(at + PAGE, 2);
    unmap(at, 6);
    assert_eq!(free_pages(at, 6, fd), [0, 1, 2, 3, 4, 5]);
}

/// mremap: shorter, longer in its place, elsewhere, and leaving the map behind.
fn moved() {
    let fd = file(8, 0);
    let all = [0, 1, 2, 3];
    let at = map(4, READ, libc::MAP_SHARED, fd, 0);
    assert_eq!(Side::Library.mremap(at, 4 * PAGE, 2 * PAGE, 0, 0), Ok(at));
    assert_eq!((byte(at + PAGE), shown(at + 2 * PAGE)), (Ok(1), None));
    assert_eq!(free_pages(at, 4, fd), [2, 3]);
    assert_eq!(Side::Library.mremap(at, 2 * PAGE, 3 * PAGE, 0, 0), Ok(at));
    assert_eq!(byte(at + 2 * PAGE), Ok(2));
    assert_eq!(free_pages(at, 4, fd), [3]);
    // Longer than its place was: that is taken, too, until it is unmapped.
    let longer = Side::Library.mremap(at, 3 * PAGE, 6 * PAGE, 0, 0);
    if longer == Ok(at) {
        assert_eq!(byte(at + 5 * PAGE), Ok(5));
        assert_eq!(free_pages(at, 6, fd), [0; 0]);
        unmap(at, 6);
    } else {
        unmap(at, 3);
    }
    assert_eq!(free_pages(at, 4, fd), all);
    // Out of its place, to where something is reserved.
    let to = Side::Kernel.mmap(0, 8 * PAGE, 0, ANONYMOUS, -1, 0).unwrap();
    let place = map(4, READ, libc::MAP_SHARED, fd, 0);
    let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    assert_eq!(
        Side::Library.mremap(place, 4 * PAGE, 8 * PAGE, moves, to),
        Ok(to)
    );
    assert_eq!((byte(to + 7 * PAGE), shown(place)), (Ok(7), None));
    assert_eq!(free_pages(place, 4, fd), all);
    // And back: the place is taken again.
    assert_eq!(
        Side::Library.mremap(to, 8 * PAGE, 4 * PAGE, moves, place),
        Ok(place)
    );
    assert_eq!(byte(place + 3 * PAGE), Ok(3));
    assert_eq!(free_pages(place, 4, fd), [0; 0]);
    let left = Side::Library.mremap(
        place,
        4 * PAGE,
        4 * PAGE,
        libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP,
        0,
    );
    match left {
        Ok(to) => {
            assert_eq!(
                (byte(place), byte(to)),
                (Ok(0), Ok(0)),
                "a file's pages are there twice"
            );
            assert_eq!(free_pages(place, 4, fd), [0; 0]);
            unmap(to, 4);
        }
        Err(errno) => skipped(format_args!("MREMAP_DONTUNMAP of a file: errno {errno}")),
    }
    unmap(place, 4);
    assert_eq!(free_pages(place, 4, fd), all);
    // A copy by a length of 0 leaves the first where it is.
    let at = map(4, READ, libc::MAP_SHARED, fd, 0);
    let copy = Side::Library.mremap(at, 0, 4 * PAGE, libc::MREMAP_MAYMOVE, 0);
    assert_eq!(byte(copy.unwrap()), Ok(0));
    assert_eq!(free_pages(at, 4, fd), [0; 0]);
    assert_eq!(byte(at), Ok(0));
}

/// Whoever is at a place by a system call of his own stays there; after some such places no more are tried.
fn taken() {
    let fd = file(2, 0);
    let fixed = ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for turn in 0..PATIENCE {
        let place = next_place(1, fd);
        assert_eq!(
            Side::Kernel.mmap(place, PAGE, READ_WRITE, fixed, -1, 0),
            Ok(place)
        );
        assert_eq!(write(place, &[99]), Ok(1));
        let at = map(1, READ, libc::MAP_SHARED, fd, PAGE as i64);
        assert_ne!(at, place);
        assert_eq!((byte(at), byte(place)), (Ok(1), Ok(99)));
        unmap(at, 1);
        if turn == 0 {
            // Who unmaps it gives it back.
            unmap(place, 1);
            assert_eq!(next_place(1, fd), place);
        }
    }
    let at = map(1, READ, libc::MAP_SHARED, fd, 0);
    assert!(!has_a_place(at), "{at:x}");
}

/// A map is one map to the kernel, and nothing beside it counts.
fn limits() {
    let fd = file(64, 0);
    let lines = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count()
    };
    next_place(1, fd);
    let before = lines();
    // Each second page, so that no two are joined.
    let maps: Vec<usize> = (0..30)
        .map(|page| map(1, READ, libc::MAP_SHARED, fd, 2 * page * PAGE as i64))
        .collect();
    assert_eq!(lines(), before + 30);
    maps.iter().for_each(|at| unmap(*at, 1));
    assert_eq!(lines(), before);
    let size = status_kib("VmSize:");
    let at = map(16, READ, libc::MAP_SHARED, fd, 0);
    assert_eq!(status_kib("VmSize:"), size + 64);
    unmap(at, 16);
    assert_eq!(status_kib("VmSize:"), size);

    let both = |pages: usize, protection: c_int| {
        [Side::Library, Side::Kernel].map(|side| {
            let at = side.mmap(0, pages * PAGE, protection, libc::MAP_PRIVATE, fd, 0)?;
            side.munmap(at, pages * PAGE)
        })
    };
    limit(
        libc::RLIMIT_DATA,
        status_kib("VmData:") * 1024 + 8 * PAGE as u64,
    );
    assert_eq!(both(64, READ_WRITE), [Err(libc::ENOMEM); 2]);
    assert_eq!(both(64, READ), [Ok(0); 2]);
    limit(libc::RLIMIT_DATA, libc::RLIM_INFINITY);
    // Nothing is reserved, so the limit changes nothing.
    limit(
        libc::RLIMIT_AS,
        (status_kib("VmSize:") * 1024).min(1 << 30) + (16 << 20),
    );
    let at = map(1, READ, libc::MAP_SHARED, fd, 0);
    assert!(has_a_place(at), "{at:x}");
    limit(
        libc::RLIMIT_AS,
        status_kib("VmSize:") * 1024 + 8 * PAGE as u64,
    );
    assert_eq!(both(64, READ), [Err(libc::ENOMEM); 2]);
    assert_eq!(both(4, READ), [Ok(0); 2]);
}

fn locked() {
    let fd = file(64, 0);
    let kib = || status_kib("VmLck:");
    let before = kib();
    let at = map(4, READ, libc::MAP_SHARED | libc::MAP_LOCKED, fd, 0);
    assert!(has_a_place(at), "{at:x}");
    assert_eq!(kib(), before + 16);
    unmap(at + PAGE, 1);
    assert_eq!(kib(), before + 12);
    unmap(at, 4);
    assert_eq!(kib(), before);
    let at = map(4, READ, libc::MAP_SHARED, fd, 0);
    assert_eq!(Side::Library.mlock(at, 3 * PAGE), Ok(0));
    assert_eq!(kib(), before + 12);
    assert_eq!(Side::Library.munlock(at, PAGE), Ok(0));
    assert_eq!(kib(), before + 8);
    unmap(at, 4);
    assert_eq!(kib(), before);
    // SAFETY: locking changes no contents.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
    let before = kib();
    let at = map(4, READ, libc::MAP_SHARED, fd, 0);
    assert!(has_a_place(at), "{at:x}");
    assert_eq!(kib(), before + 16);
    unmap(at, 4);
    assert_eq!(kib(), before);
}

fn forks() {
    let fd = file(8, 0);
    let inherited = map(2, READ_WRITE, libc::MAP_PRIVATE, fd, 0);
    let left_out = map(2, READ, libc::MAP_SHARED, fd, 0);
    let advised = Side::Library.madvise(left_out, 2 * PAGE, libc::MADV_DONTFORK);
    assert_eq!(advised, Ok(0));
    for bare in [false, true] {
        // SAFETY: the child maps, looks and ends; the only other thread waits.
        let child = unsafe {
            if bare {
                libc::syscall(libc::SYS_fork) as c_int
            } else {
                libc::fork()
            }
        };
        if child == 0 {
            let mut good = byte(inherited + PAGE) == Ok(1) && byte(left_out) == Err(libc::EFAULT);
            let mine: Vec<usize> = (0..8)
                .map(|page| map(1, READ, libc::MAP_SHARED, fd, page * PAGE as i64))
                .collect();
            for (page, at) in mine.iter().enumerate() {
                good &= has_a_place(*at) && byte(*at) == Ok(page as u8);
            }
            unmap(inherited, 2);
            unmap(left_out, 2);
            // SAFETY: nothing of the parent's is run.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 1;
        // SAFETY: `status` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "bare {bare}");
        assert_eq!((byte(inherited + PAGE), byte(left_out)), (Ok(1), Ok(0)));
        assert!(Command::new("true").status().unwrap().success());
    }
    unmap(inherited, 2);
    unmap(left_out, 2);
}

/// A file of huge pages is rounded up to them, and goes where they fit.
fn huge_pages() {
    const HUGE: usize = 2 << 20;
    let flags = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    // SAFETY: the name ends with a 0.
    let fd = unsafe { libc::memfd_create(c"huge".as_ptr(), flags) };
    if fd < 0 {
        skipped("no files of huge pages");
        return;
    }
    let small = file(1, 0);
    for _ in 0..PATIENCE {
        let at = [Side::Library, Side::Kernel].map(|side| {
            // Nothing is taken from the machine's huge pages before it is touched.
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            side.mmap(0, PAGE, READ_WRITE, flags, fd, 0)
        });
        let [Ok(ours), Ok(theirs)] = at else {
            assert_eq!(at[0], at[1]);
            break;
        };
        assert_eq!((ours % HUGE, theirs % HUGE), (0, 0));
        assert_eq!(shown(ours + HUGE - PAGE).as_deref(), Some("rw-s"));
        for side in [Side::Library, Side::Kernel] {
            assert_eq!(side.munmap(ours, PAGE), Err(libc::EINVAL));
        }
        unmap(ours, HUGE / PAGE);
        unmap(theirs, HUGE / PAGE);
        assert_eq!(shown(ours), None);
    }
    let at = map(1, READ, libc::MAP_SHARED, small, 0);
    assert_eq!(byte(at), Ok(0));
}

/// A driver that takes no address at all.
fn ring() {
    let mut parameters = [0_u32; 30];
    // SAFETY: the kernel's struct is 120 bytes, which may be all zeroes.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if fd < 0 {
        skipped(format_args!(
            "io_uring: {}",
            std::io::Error::last_os_error()
        ));
        return;
    }
    let fd = fd as c_int;
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    let sides = [Side::Library, Side::Kernel];
    let mapped = sides.map(|side| side.mmap(0, PAGE, READ_WRITE, flags, fd, 0).map(byte));
    assert_eq!(mapped[0], mapped[1]);
    assert!(mapped[0].is_ok_and(|byte| byte.is_ok()), "{mapped:?}");
}

#[test]
fn a_map_of_a_file_has_a_place_of_its_own_and_is_the_kernels_otherwise() {
    let told = run(&mut with_files("placed"));
    assert_eq!(number(&told[0], "placed_files"), 4, "{told:?}");
    assert_eq!(number(&told[0], "passed_file"), 0, "{told:?}");
}

#[test]
fn a_map_of_a_file_is_left_alone_unless_that_is_asked_for() {
    for (word, ignored) in [
        (None, false),
        (Some("0"), false),
        (Some(""), false),
        (Some("yes"), true),
    ] {
        let mut command = guest_of("not-asked-for");
        if let Some(word) = word {
            command.env("STOPGAP_FILES", word);
        }
        let told = run(&mut command);
        assert_eq!(number(&told[0], "placed_files"), 0, "{told:?}");
        assert_eq!(number(&told[0], "passed_file"), 1, "{told:?}");
        let said = told[0].ends_with(" ignored=STOPGAP_FILES");
        assert_eq!(said, ignored, "{word:?}: {told:?}");
    }
}

#[test]
fn what_a_kernel_would_align_or_put_elsewhere_passes_through() {
    let told = run(&mut with_files("passed"));
    assert_eq!(number(&told[0], "placed_files"), 0, "{told:?}");
}

#[test]
fn a_call_that_fails_has_the_kernels_errno_and_costs_no_place() {
    run(&mut with_files("refused"));
}

#[test]
fn a_part_of_a_place_is_free_when_it_is_unmapped() {
    run(with_files("parts").env("STOPGAP_WINDOW", "2M"));
}

#[test]
fn a_place_is_free_when_its_map_has_moved() {
    run(with_files("moved").env("STOPGAP_WINDOW", "2M"));
}

#[test]
fn who_is_there_already_stays_there() {
    let told = run(&mut with_files("taken"));
    assert_eq!(number(&told[0], "missed"), PATIENCE as u64, "{told:?}");
    assert_eq!(number(&told[0], "passed_file"), 1, "{told:?}");
}

#[test]
fn a_room_that_is_full_passes_through() {
    let told = run(with_files("full").env("STOPGAP_WINDOW", "2M"));
    assert_eq!(number(&told[0], "placed_files"), 513, "{told:?}");
    assert_eq!(number(&told[0], "passed_no_room"), 8, "{told:?}");
}

#[test]
fn limits_count_what_the_kernel_counts() {
    run(&mut with_files("limits"));
}

#[test]
fn what_is_locked_is_counted_as_locked() {
    run(&mut with_files("locked"));
}

#[test]
fn a_forked_child_finds_its_maps_and_makes_its_own() {
    run(&mut with_files("forks"));
}

#[test]
fn files_of_huge_pages_go_where_they_fit() {
    run(&mut with_files("huge-pages"));
}

#[test]
fn a_file_that_takes_no_address_is_mapped_without() {
    run(&mut with_files("ring"));
}

#[test]
fn a_map_of_a_file_is_never_kept() {
    run(with_files("unmapped").env("STOPGAP_KEEP", "32M"));
}

#[test]
fn files_have_places_where_addresses_are_limited() {
    let mut limited = with_files("limited");
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        limited.pre_exec(|| {
            limit(libc::RLIMIT_AS, 4 << 30);
            Ok(())
        });
    }
    let told = run(&mut limited);
    assert_eq!(number(&told[0], "placed_files"), 4, "{told:?}");
}
