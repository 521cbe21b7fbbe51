use std::os::fd::OwnedFd;
use std::time::Duration;

use stopgap_testing::{Skip, skip};

use super::*;

mod forks;
mod injected;
mod oracle;
mod signals;
mod threads;

pub(super) fn arena(window: usize) -> Arena {
    with(window, |_| ())
}

/// An arena whose configuration is the default one but for the window and what `change` changes.
pub(super) fn with(window: usize, change: impl FnOnce(&mut Config)) -> Arena {
    let mut config = Config {
        window,
        ..Config::default()
    };
    change(&mut config);
    made(config)
}

pub(super) fn made(config: Config) -> Arena {
    Arena::new(&config).unwrap()
}

pub(super) fn free(arena: &Arena, address: NonNull<u8>, len: usize) -> Result<()> {
    // SAFETY: tests use nothing after they freed it.
    unsafe { arena.free(address, len) }
}

pub(super) fn bytes<'a>(address: NonNull<u8>, len: usize) -> &'a mut [u8] {
    // SAFETY: tests ask for what was given out, as long as it was, and once at a time.
    unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), len) }
}

pub(super) fn address(number: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::with_exposed_provenance_mut(number)).unwrap()
}

/// Lines of /proc/self/maps inside a range: start, end, permissions.
pub(super) fn vmas(range: (usize, usize)) -> Vec<(usize, usize, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let vma = |line: &str| {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?, rest.get(..4)?.to_owned()))
    };
    let all = maps.lines().filter_map(vma);
    all.filter(|&(start, end, _)| start < range.0 + range.1 && range.0 < end)
        .collect()
}

/// No hole: every address of the window is mapped, by us.
pub(super) fn assert_whole(arena: &Arena) {
    let (start, length) = arena.window();
    let mut at = start;
    for (from, to, permissions) in vmas((start, length)) {
        assert!(from <= at, "a hole at {at:x}");
        assert_ne!(permissions, "r-xp");
        at = to;
    }
    assert!(at >= start + length, "a hole at {at:x}");
}

pub(super) fn check(arena: &Arena) {
    for shard in &arena.0.shards {
        shard.check().unwrap();
    }
    assert_whole(arena);
}

pub(super) fn file(pages: usize) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, (pages * page()) as u64).unwrap();
    for number in 0..pages {
        let text = vec![u8::try_from(number % 251).unwrap(); page()];
        assert_eq!(
            rustix::io::pwrite(&file, &text, (number * page()) as u64),
            Ok(page())
        );
    }
    file
}

/// Bytes of a memfd or of anonymous memory that are there.
fn resident(address: NonNull<u8>, len: usize) -> usize {
    let mut there = vec![0_u8; len.div_ceil(page())];
    let at = address.as_ptr().cast();
    // SAFETY: the vector has a byte a page.
    assert_eq!(unsafe { libc::mincore(at, len, there.as_mut_ptr()) }, 0);
    there.iter().filter(|&&byte| byte & 1 == 1).count() * page()
}

/// Arenas of either memory.
fn both(window: usize) -> [(Arena, Backing); 2] {
    both_with(window, |_| ())
}

fn both_with(window: usize, change: impl Fn(&mut Config)) -> [(Arena, Backing); 2] {
    [Backing::Anonymous, Backing::Memfd].map(|backing| {
        let arena = with(window, |config| {
            config.backing = backing;
            change(config);
        });
        (arena, backing)
    })
}

/// Whether each byte is `byte`.
pub(super) fn filled(address: NonNull<u8>, len: usize, byte: u8) -> bool {
    bytes(address, len).iter().all(|&here| here == byte)
}

/// `len` bytes of a file from its start, mapped.
pub(super) fn map(arena: &Arena, file: &OwnedFd, len: usize) -> Result<NonNull<u8>> {
    arena.map_fd(file.as_fd(), 0, len, Protection::READ, Sharing::Shared)
}

fn invalid<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.errno()), Some(libc::EINVAL));
}

#[test]
fn what_is_given_out_is_zero_and_comes_back() {
    for (arena, _) in both(1 << 30) {
        for len in [1, 5_000, 64 << 12, 65 << 12, 5 << 20] {
            let first = arena.alloc(len, 1).unwrap();
            let whole = len.next_multiple_of(page());
            assert!(filled(first, whole, 0));
            bytes(first, whole).fill(7);
            free(&arena, first, len).unwrap();
            let again = arena.alloc_uninit(whole, 1).unwrap();
            assert_eq!(first, again);
            assert!(filled(again, whole, 7));
            free(&arena, again, whole).unwrap();
            let zero = arena.alloc(len, 1).unwrap();
            assert_eq!(first, zero);
            assert!(filled(zero, whole, 0));
            free(&arena, zero, len).unwrap();
        }
        check(&arena);
    }
}

#[test]
fn errors_are_exact() {
    for (arena, _) in both(1 << 30) {
        invalid(arena.alloc(0, 1));
        invalid(arena.alloc(1, 0));
        invalid(arena.alloc(1, 24));
        for len in [(1 << 30) + 1, usize::MAX, 1 << 62] {
            assert_eq!(arena.alloc(len, 1), Err(Error::NoRoom { bytes: len }));
        }
        assert!(matches!(arena.alloc(1, 1 << 63), Err(Error::NoRoom { .. })));
        let buffer = arena.alloc(3 << 12, 1).unwrap();
        let number = buffer.addr().get();
        let foreign = |at: usize, len| {
            let address = at;
            assert_eq!(
                free(&arena, self::address(at), len),
                Err(Error::Foreign { address })
            );
        };
        foreign(number + 4_096, 4_096);
        foreign(number + 1, 3 << 12);
        foreign(arena.window().0, 4_096);
        foreign(arena.window().0 - 4_096, 4_096);
        foreign(arena.window().0 + arena.window().1, 4_096);
        foreign(8, 4_096);
        foreign(usize::MAX & !4_095, 4_096);
        let stack = 0_u64;
        foreign((&raw const stack).addr(), 8);
        let absurd = [1 << 30, (1 << 30) + 1, 1 << 62, usize::MAX];
        for len in [0, 1, 2 << 12, (3 << 12) + 1].into_iter().chain(absurd) {
            let refused = free(&arena, buffer, len);
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{len}");
        }
        free(&arena, buffer, (2 << 12) + 1).unwrap();
        let freed = Err(Error::Freed { address: number });
        assert_eq!(free(&arena, buffer, 3 << 12), freed);
        arena.trim().unwrap();
        assert_eq!(free(&arena, buffer, 3 << 12), freed);
        assert_eq!(Error::Freed { address: 1 }.errno(), libc::EINVAL);
        check(&arena);
    }
}

#[test]
fn a_window_that_cannot_be_is_an_error() {
    let new = |window| {
        Arena::new(&Config {
            window,
            ..Config::default()
        })
    };
    invalid(new(0));
    invalid(new(usize::MAX));
    // As many pages as an address space has and more.
    invalid(new(1 << 48));
    new(1).unwrap();
    let large = new(1 << 40).unwrap();
    assert_eq!(large.window().1, 1 << 40);
    let buffer = large.alloc(1, 1).unwrap();
    free(&large, buffer, 1).unwrap();
}

#[test]
fn many_buffers_are_few_vmas() {
    for (arena, _) in both(16 << 30) {
        let all: Vec<_> = (0..20_000).map(|_| arena.alloc(1, 1).unwrap()).collect();
        for at in &all {
            bytes(*at, 1)[0] = 1;
        }
        let count = vmas(arena.window()).len();
        assert!(count <= 2 * arena.0.shards.len(), "{count}");
        for at in all.iter().step_by(2) {
            free(&arena, *at, 1).unwrap();
        }
        arena.trim().unwrap();
        assert_eq!(vmas(arena.window()).len(), count);
        let statistics = arena.statistics();
        assert_eq!(
            (statistics.buffers, statistics.buffer_bytes),
            (10_000, 10_000 << 12)
        );
        assert_eq!((statistics.kept, statistics.strays), (0, 0));
        assert!(statistics.given_back >= 10_000 << 12);
    }
}

#[test]
fn guards_fault_and_cost_no_vma_where_the_kernel_has_them() {
    for (arena, backing) in both_with(1 << 30, |c| c.guard = true) {
        let mut all = Vec::new();
        for round in 0..3 {
            for pages in [1, 2, 70] {
                let len = pages * page();
                let at = arena.alloc(len, 1).unwrap();
                assert!(filled(at, len, 0));
                bytes(at, len).fill(9);
                let after = at.addr().get() + len;
                assert!(faults(after), "{pages} pages, round {round}");
                assert!(faults(after + page() - 1));
                all.push((at, len));
            }
            if round == 1 {
                for (at, len) in all.drain(..) {
                    free(&arena, at, len).unwrap();
                }
                arena.trim().unwrap();
            }
        }
        if arena.0.guard_by_table {
            assert!(vmas(arena.window()).len() <= 2 * arena.0.shards.len());
        } else {
            skip(&Skip::machine(format_args!(
                "guards without a VMA: this kernel has none for {backing:?}"
            )));
        }
        for (at, len) in all {
            free(&arena, at, len).unwrap();
        }
        arena.trim().unwrap();
        // Where guards were there are none: the whole is usable.
        let len = 1 << 28;
        let whole = arena.alloc(len, 1).unwrap();
        for at in (0..len).step_by(page()) {
            // SAFETY: given out.
            unsafe { whole.as_ptr().add(at).write_volatile(1) };
        }
        free(&arena, whole, len).unwrap();
        check(&arena);
    }
}

/// Whether a byte cannot be read: the kernel reads it for us, and says so.
fn faults(at: usize) -> bool {
    let file = rustix::fs::memfd_create("fault", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the kernel reads a byte, or returns EFAULT.
    let written = unsafe {
        libc::write(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            std::ptr::with_exposed_provenance(at),
            1,
        )
    };
    written == -1
}

#[test]
fn a_file_is_mapped_and_its_place_is_reserved_again() {
    for (arena, backing) in both(1 << 28) {
        let file = file(10);
        let map = |offset, len, sharing| {
            arena.map_fd(file.as_fd(), offset, len, Protection::READ_WRITE, sharing)
        };
        let buffer = arena.alloc(1, 1).unwrap();
        let first = map(0, 2 * page(), Sharing::Shared).unwrap();
        let second = map(3 << 12, page() + 1, Sharing::Private).unwrap();
        assert_eq!(bytes(first, 8_192)[4_096], 1);
        assert_eq!(
            (bytes(second, 8_192)[0], bytes(second, 8_192)[8_191]),
            (3, 4)
        );
        bytes(first, 1)[0] = 200;
        bytes(second, 1)[0] = 201;
        let mut byte = [0];
        rustix::io::pread(&file, &mut byte, 0).unwrap();
        assert_eq!(byte, [200]);
        rustix::io::pread(&file, &mut byte, 3 << 12).unwrap();
        assert_eq!(byte, [3]);
        assert_eq!(arena.statistics().maps, 2);
        invalid(free(&arena, first, page()));
        free(&arena, first, 2 * page()).unwrap();
        let number = first.addr().get();
        assert_eq!(
            free(&arena, first, 2 * page()),
            Err(Error::Freed { address: number })
        );
        assert!(faults(number));
        assert_whole(&arena);
        free(&arena, second, 2 * page()).unwrap();
        invalid(map(1, 4_096, Sharing::Shared));
        invalid(map(0, 0, Sharing::Shared));
        // A pipe cannot be mapped, and its place stays reserved.
        let (pipe, _other) = std::io::pipe().unwrap();
        let refused = arena.map_fd(pipe.as_fd(), 0, 4_096, Protection::READ, Sharing::Shared);
        assert!(matches!(refused, Err(Error::Call { call: "mmap", .. })));
        assert_eq!(arena.statistics().maps, 0);
        free(&arena, buffer, 1).unwrap();
        check(&arena);
        // All of it is free again.
        let (_, window) = arena.window();
        let largest = first_page(window / page(), arena.0.shards.len(), 1) * page();
        let whole = arena.alloc(largest, 1).unwrap();
        if backing == Backing::Memfd {
            // Where the file was mapped is the memfd's again.
            let (fd, offset) = arena.export(whole).unwrap();
            for at in (0..largest).step_by(page()).take(8) {
                bytes(address(whole.addr().get() + at), 1)[0] = 77;
                let mut byte = [0];
                rustix::io::pread(fd, &mut byte, offset + at as u64).unwrap();
                assert_eq!(byte, [77]);
            }
        }
        free(&arena, whole, largest).unwrap();
        assert!(vmas(arena.window()).len() <= 2 * arena.0.shards.len());
    }
}

/// What fits best may be a hole between mappings, where no buffer goes: then the next best is taken.
///
/// ```text
/// 0123 .. 9
///  mBB .. B     to be given out: 1 page
///  mBB..B   B   a hole of 3 pages there is; that of 1 page fits better
/// ```
#[test]
fn a_hole_between_mappings_does_not_hide_another() {
    let arena = arena(64 * page());
    let file = file(4);
    let [low, _high] = [(); 2].map(|()| map(&arena, &file, page()).unwrap());
    free(&arena, low, page()).unwrap();
    let buffer = arena.alloc(3 * page(), 1).unwrap();
    while arena.alloc(page(), 1).is_ok() {}
    free(&arena, buffer, 3 * page()).unwrap();
    let all: Vec<_> = (0..3).map(|_| arena.alloc(page(), 1).unwrap()).collect();
    assert_eq!(all.iter().min(), Some(&buffer));
    assert!(arena.alloc(page(), 1).is_err());
    check(&arena);
}

/// The page that is a guard now may hold what was left there before, and does after the buffer is given back.
///
/// ```text
///   |         xxxxxxgxxxxxxg|   freed, kept
///   |zzzzzzzzzzzzzgyyyyyyyg|   z is too large to be kept, its guard is an old page
/// ```
#[test]
fn what_a_guard_hides_does_not_come_back() {
    for (arena, _) in both_with(212 * page(), |c| {
        (c.keep, c.guard, c.give_back) = (
            135 * page(),
            true,
            GiveBack::After(Duration::from_secs(3_600)),
        );
    }) {
        let alloc = |pages| arena.alloc(pages * page(), 1).unwrap();
        let free = |at, pages| free(&arena, at, pages * page()).unwrap();
        for at in [(); 2].map(|()| alloc(65)) {
            bytes(at, 65 * page()).fill(7);
            free(at, 65);
        }
        assert_eq!(arena.statistics().kept, (2 * 66) << 12);
        let (above, large) = (alloc(70), alloc(140));
        assert_eq!(above.addr().get() - large.addr().get(), 141 * page());
        free(large, 140);
        free(above, 70);
        arena.trim().unwrap();
        let zero = alloc(211);
        assert!(filled(zero, 211 * page(), 0));
        check(&arena);
    }
}

/// The error names the bytes that were asked for, without the guard.
#[test]
fn no_room_names_what_was_asked_for() {
    let arena = with(64 * page(), |c| c.guard = true);
    let bytes = 64 * page();
    assert_eq!(arena.alloc(bytes, 1), Err(Error::NoRoom { bytes }));
}

#[test]
fn a_memfds_buffers_are_exported() {
    let arena = with(1 << 30, |c| c.backing = Backing::Memfd);
    let at = arena.alloc(8_192, 1).unwrap();
    bytes(at, 8_192)[5_000] = 42;
    let (fd, offset) = arena.export(at).unwrap();
    let mut byte = [0];
    rustix::io::pread(fd, &mut byte, offset + 5_000).unwrap();
    assert_eq!(byte, [42]);
    // Nobody who has it can make it end before the mapping does.
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    let inside = address(at.addr().get() + page());
    assert!(matches!(arena.export(inside), Err(Error::Foreign { .. })));
    assert!(matches!(
        arena.export(address(16)),
        Err(Error::Foreign { .. })
    ));
    free(&arena, at, 8_192).unwrap();
    assert!(matches!(arena.export(at), Err(Error::Freed { .. })));
    arena.trim().unwrap();
    rustix::io::pread(arena.0.window.file().unwrap(), &mut byte, offset + 5_000).unwrap();
    assert_eq!(byte, [0], "given back");
    let anonymous = self::arena(1 << 20);
    let at = anonymous.alloc(1, 1).unwrap();
    assert!(matches!(
        anonymous.export(at),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn a_memfd_larger_than_files_may_be_is_an_error_and_no_signal() {
    forks::in_child(|| {
        let limit = rustix::process::Rlimit {
            current: Some(1 << 20),
            maximum: Some(1 << 20),
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        let config = |window| Config {
            window,
            backing: Backing::Memfd,
            ..Config::default()
        };
        let limited = Arena::new(&config(2 << 20)).unwrap_err();
        assert_eq!(
            limited,
            Error::Limit {
                asked: 2 << 20,
                limit: 1 << 20,
                which: "RLIMIT_FSIZE"
            }
        );
        assert_eq!(limited.errno(), libc::ENOMEM);
        let fits = Arena::new(&config(1 << 20)).unwrap();
        bytes(fits.alloc(1 << 20, 1).unwrap(), 1 << 20).fill(1);
    });
}

#[test]
fn an_address_space_that_is_limited_is_an_error() {
    forks::in_child(|| {
        // Beside what the tests that run at the same time have mapped by now.
        let room = 4 << 30;
        let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mapped: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
        let limit = mapped * page() as u64 + room as u64;
        let limit = rustix::process::Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
        let maps = || {
            std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count()
        };
        let before = maps();
        for backing in [Backing::Anonymous, Backing::Memfd] {
            // The second is reserved; then there is no room for its marks.
            for window in [64 << 30, room - (1 << 20)] {
                let refused = Arena::new(&Config {
                    window,
                    backing,
                    ..Config::default()
                });
                let errno = refused.unwrap_err();
                assert!(
                    matches!(errno, Error::Call { call: "mmap", .. }),
                    "{errno:?}"
                );
                assert_eq!(errno.errno(), libc::ENOMEM);
            }
        }
        assert_eq!(maps(), before, "nothing stays mapped");
        let arena = arena(1 << 30);
        let at = arena.alloc(1, 1).unwrap();
        free(&arena, at, 1).unwrap();
    });
}

#[test]
fn what_is_kept_is_bounded_and_counted() {
    let keep = 8 << 20;
    let (after, hour) = (GiveBack::After, Duration::from_secs(3_600));
    for (arena, _) in both_with(1 << 30, |c| (c.keep, c.give_back) = (keep, after(hour))) {
        let mut held = Vec::new();
        for round in 0..2_000_usize {
            let len = (1 + round * 7_919 % 90) * page();
            let at = arena.alloc_uninit(len, 1).unwrap();
            bytes(at, len).fill(1);
            held.push((at, len));
            if held.len() > 100 {
                let (at, len) = held.swap_remove(round % 100);
                free(&arena, at, len).unwrap();
            }
            if round.is_multiple_of(100) {
                let statistics = arena.statistics();
                assert!(statistics.kept <= keep as u64, "{statistics:?}");
                assert!(statistics.cached <= 1 << 20);
            }
        }
        for (at, len) in held {
            free(&arena, at, len).unwrap();
        }
        let kept = arena.statistics().kept;
        assert!(kept > 0 && kept <= keep as u64);
        // No more is accessible and resident than is kept.
        let (start, length) = arena.window();
        let there = resident(address(start), length);
        assert!(there as u64 <= kept, "{there} there, {kept} kept");
        // Some ranges in caches were never used.
        let given_back = arena.trim().unwrap();
        assert!(given_back <= kept && given_back >= there as u64);
        assert_eq!(resident(address(start), length), 0);
        assert_eq!(arena.statistics().kept, 0);
        // Larger than what may be kept: goes at once.
        let at = arena.alloc(keep + page(), 1).unwrap();
        bytes(at, keep).fill(1);
        free(&arena, at, keep + page()).unwrap();
        assert_eq!(arena.statistics().kept, 0);
        check(&arena);
    }
}

/// A thread's cache gets its part when the thread frees its first small buffer; shards may hold that part by then.
#[test]
fn a_cache_that_comes_late_keeps_no_more_than_is_left() {
    let keep = 256 * page();
    let (after, hour) = (GiveBack::After, Duration::from_secs(3_600));
    for (arena, _) in both_with(1 << 30, |c| (c.keep, c.give_back) = (keep, after(hour))) {
        let large: Vec<_> = (0..2)
            .map(|_| arena.alloc(128 * page(), 1).unwrap())
            .collect();
        for at in large {
            bytes(at, 128 * page()).fill(1);
            free(&arena, at, 128 * page()).unwrap();
        }
        assert_eq!(arena.statistics().kept, keep as u64);
        let small: Vec<_> = (0..16)
            .map(|_| arena.alloc(4 * page(), 1).unwrap())
            .collect();
        for at in small {
            bytes(at, 4 * page()).fill(1);
            free(&arena, at, 4 * page()).unwrap();
            let statistics = arena.statistics();
            assert!(statistics.kept <= keep as u64, "{statistics:?}");
        }
        assert!(arena.statistics().cached > 0);
    }
}

#[test]
fn at_once_keeps_nothing() {
    for (arena, _) in both_with(1 << 28, |c| c.give_back = GiveBack::AtOnce) {
        for len in [1, 100_000, 1 << 20] {
            let at = arena.alloc(len, 1).unwrap();
            bytes(at, len).fill(1);
            free(&arena, at, len).unwrap();
            assert_eq!(resident(at, len), 0);
            assert_eq!(arena.statistics().kept, 0);
        }
        check(&arena);
    }
}

#[test]
fn what_nobody_needed_for_some_time_goes() {
    let arena = with(1 << 28, |c| {
        c.give_back = GiveBack::After(Duration::from_millis(30));
    });
    let len = 1 << 20;
    let at = arena.alloc(len, 1).unwrap();
    bytes(at, len).fill(1);
    free(&arena, at, len).unwrap();
    assert_eq!(arena.statistics().kept, len as u64);
    // Calls that take a lock, until two periods are over.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(40));
        let other = arena.alloc_uninit(70 * page(), 1).unwrap();
        free(&arena, other, 70 * page()).unwrap();
    }
    assert!(arena.statistics().kept <= 70 << 12);
    assert!(arena.statistics().given_back >= len as u64 - (70 << 12));
}

#[test]
fn pressure_is_watched_or_said_to_be_unsupported() {
    let made = Arena::new(&Config {
        window: 1 << 28,
        give_back: GiveBack::UnderPressure,
        ..Config::default()
    });
    match made {
        Ok(arena) => {
            let at = arena.alloc(1 << 20, 1).unwrap();
            bytes(at, 1 << 20).fill(1);
            free(&arena, at, 1 << 20).unwrap();
            // Pressed or not, both are answers; without pressure all stays.
            if !arena.pressure().unwrap() {
                assert_eq!(arena.statistics().kept, 1 << 20);
            }
        }
        Err(Error::Unsupported { what, .. }) => {
            skip(&Skip::machine(format_args!("pressure: {what}")));
        }
        Err(error) => panic!("{error}"),
    }
    let other = arena(1 << 20);
    assert!(matches!(other.pressure(), Err(Error::Unsupported { .. })));
}

#[test]
fn several_arenas_are_apart() {
    let (one, two) = (arena(1 << 28), arena(1 << 28));
    let at = one.alloc(1, 1).unwrap();
    assert!(one.contains(at) && !two.contains(at));
    assert!(matches!(free(&two, at, 1), Err(Error::Foreign { .. })));
    free(&one, at, 1).unwrap();
    drop(one);
    free(&two, two.alloc(1, 1).unwrap(), 1).unwrap();
}
